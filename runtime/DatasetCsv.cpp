// DatasetCsv.cpp: tables of text. Rows of a csv file cannot be found without reading all before them, so its values are
// written once, as f64, to a file a field, OUT/NAME.FIELD.csv-values, checked on the way, and read from there like any
// other file.
#include "runtime/ColumnBytes.h"
#include "runtime/DatasetKept.h"
#include "runtime/Output.h"
#include "runtime/OwnRows.h"
#include "runtime/Random.h"
#include "runtime/Run.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

constexpr int64_t kRowMax = 65536; // values a row
const char *const kMissingWords[] = {"", "NA", "N/A", "NaN", "null", "None", "?"};

// Cells, one after another, with quotes undone and without blanks around them. Empty lines at the end of the file are no rows, not even in a
// table of one column, where an empty line in the middle is an empty cell.
class CsvReader {
public:
  CsvReader(const FieldFile &file, char separator) : file(file), separator(separator), fileEnd(endOfRows()) {
    char mark[3]; // a byte order mark is no part of the first cell
    if (file.size >= 3 && readAt(file.fd, mark, 3, 0) && memcmp(mark, "\xEF\xBB\xBF", 3) == 0)
      position = 3;
  }
  enum End { Cell, Row, File };
  // The next cell into `text`; says what follows it. File: there was none.
  End next() {
    column = inRow ? column + 1 : 1;
    const End end = read();
    inRow = end == Cell;
    return end;
  }
  char text[256];
  bool isCut = false; // the cell is longer than that: no number and no name is
  bool hasReturns = false; // there was a CR that no LF follows
  int64_t line = 1;

private:
  End read() {
    size_t size = 0;
    bool quoted = false, any = false;
    isCut = false;
    for (;;) {
      int c = take();
      if (c < 0) {
        while (size && text[size - 1] == ' ' && !quoted)
          --size;
        text[size] = 0;
        return any ? Row : File;
      }
      if (c == '"' && size == 0 && !quoted) {
        quoted = any = true;
        const int64_t begin = line;
        for (c = take(); c >= 0; c = take()) {
          if (c == '"' && peek() != '"')
            break;
          if (c == '"')
            take();
          if (c == 0)
            refuseZero();
          line += c == '\n';
          put(size, c);
        }
        if (c < 0)
          fail(kData, "%s: line %lld: a quote does not end", file.path.text, (long long)begin);
        continue;
      }
      any = true;
      if (c == 0)
        refuseZero();
      hasReturns |= c == '\r' && peek() != '\n';
      if (c == separator || c == '\n') {
        if (c == '\n' && size && text[size - 1] == '\r' && !quoted)
          --size;
        while (size && text[size - 1] == ' ' && !quoted)
          --size;
        text[size] = 0;
        line += c == '\n';
        return c == '\n' ? Row : Cell;
      }
      bool blank = c == ' ' && (quoted || size == 0); // around a cell, and around its quotes
      if (quoted && !blank && c != '\r')
        fail(kData, "%s: line %lld, column %lld: there is text behind the closing quote of a cell; a quote inside of quotes is written twice",
             file.path.text, (long long)line, (long long)column);
      if (!quoted && !blank)
        put(size, c);
    }
  }
  // Behind the last byte that belongs to a cell.
  int64_t endOfRows() {
    int64_t end = file.size;
    while (end > 0) {
      const int64_t block = end < int64_t(sizeof buffer) ? end : int64_t(sizeof buffer);
      if (!readAt(file.fd, buffer, size_t(block), end - block))
        cannotRead();
      for (int64_t i = block; i > 0; --i, --end)
        if (buffer[i - 1] != '\n' && buffer[i - 1] != '\r' && (buffer[i - 1] != ' ' || separator == ' '))
          return end;
    }
    return 0;
  }
  [[noreturn]] void refuseZero() {
    fail(kData, "%s: line %lld, column %lld: there is a byte of value 0; a table is text in UTF-8", file.path.text, (long long)line, (long long)column);
  }
  [[noreturn]] void cannotRead() {
    fail(kData, "cannot read %s: %s", file.path.text, errno ? strerror(errno) : "it became shorter while it was read");
  }
  void put(size_t &size, int c) {
    isCut |= size == sizeof text - 1;
    if (!isCut)
      text[size++] = char(c);
  }
  int peek() {
    if (at == filled) {
      int64_t left = fileEnd - position;
      filled = left < int64_t(sizeof buffer) ? left : int64_t(sizeof buffer);
      at = 0;
      if (filled == 0)
        return -1;
      if (!readAt(file.fd, buffer, size_t(filled), position))
        cannotRead();
      position += filled;
    }
    return static_cast<unsigned char>(buffer[at]);
  }
  int take() {
    int c = peek();
    at += c >= 0;
    return c;
  }
  const FieldFile &file;
  const char separator;
  char buffer[16384];
  int64_t fileEnd, position = 0, at = 0, filled = 0;
  int64_t column = 1; // of the cell, in its row
  bool inRow = false; // the next cell is in the row of the last one
};

// Which columns the values of a field come from. It takes memory for these alone, however many others a table has.
struct Columns {
  int64_t count = 0;         // values
  int64_t *column = nullptr; // of each value; -1: not found yet
  int64_t *order = nullptr;  // the values by rising columns
  int64_t found = 0;         // of them
  int64_t columns = 0;       // of the file
};
static_assert(kReadBytes == sizeof(*Columns::column) + sizeof(*Columns::order) + sizeof(double)); // and the row of convertRows

void assign(Columns &columns, const FieldSpec &field, const FieldFile &file, int64_t column, const char *name) {
  for (int64_t value = 0; value < field.from.size; ++value)
    if (strcmp(field.from[value], name) == 0) {
      if (columns.column[value] >= 0)
        fail(kData, "%s: two columns are called `%s`", file.path.text, name);
      columns.column[value] = column;
      columns.order[columns.found++] = value;
    }
}

// Which value comes from where: by the names of the first row, or by number.
void findColumns(Columns &columns, const DatasetSpec &spec, const FieldSpec &field, const FieldFile &file) {
  CsvReader counted(file, spec.separator[0]);
  CsvReader::End end;
  while ((end = counted.next()) == CsvReader::Cell)
    ++columns.columns;
  if (end == CsvReader::File && columns.columns == 0)
    fail(kData, "%s: the file is empty", file.path.text);
  if (counted.hasReturns && counted.line == 1)
    fail(kData, "%s: its lines end with CR alone; end them with LF, or with CR and LF", file.path.text);
  ++columns.columns;
  columns.column = allocateArray<int64_t>(columns.count);
  columns.order = allocateArray<int64_t>(columns.count);
  for (int64_t i = 0; i < columns.count; ++i)
    columns.column[i] = -1;
  CsvReader reader(file, spec.separator[0]);
  Text names;
  bool number = false; // one of them: names of columns are words
  for (int64_t column = 0; column < columns.columns; ++column) {
    char name[32], *end;
    reader.next();
    (void)strtod(reader.text, &end);
    number |= end != reader.text && !*end;
    snprintf(name, sizeof name, "%lld", (long long)column);
    if (!spec.csvHeader || !reader.isCut)
      assign(columns, field, file, column, spec.csvHeader ? reader.text : name);
    names.add("%s%s", column ? ", " : "", reader.text);
  }
  for (int64_t value = 0; value < columns.count; ++value)
    if (columns.column[value] < 0) {
      if (!names.size)
        fail(kData, "%s: line 1 is empty; it %s", file.path.text, spec.csvHeader ? "has the names of the columns" : "says how many columns a row has");
      const char *other = columns.columns == 1 ? strpbrk(names.data, ";\t,|") : nullptr;
      if (other)
        fail(kData, "%s: its cells are not separated by `%c`; for this file write csv(\"..\", separator = \"%s\")", file.path.text, spec.separator[0],
             *other == '\t' ? "\\t" : *other == ';' ? ";" : *other == ',' ? "," : "|");
      const Text without = resultsWithout(field.name);
      Text mend;
      if (without.size)
        mend.add("; --only %s leaves out the results that need it", without.data);
      if (spec.csvHeader)
        fail(kData, "%s: field `%s` takes the column `%s`, but the file has %s%s%s", file.path.text, field.name, field.from[value], names.data,
             number ? "; if this is a row of values, write header = false in csv(..), and the numbers of the columns behind `from`: \"0\", \"1\", .."
                    : "", mend.data);
      fail(kData, "%s: field `%s` takes column %s, but a row has %lld%s", file.path.text, field.name, field.from[value],
           (long long)columns.columns, mend.data);
    }
}

// What tables write where there is no number.
bool isMissing(const char *text) {
  for (const char *word : kMissingWords)
    if (strcasecmp(text, word) == 0)
      return true;
  return false;
}

double ofName(const char *text, const FieldSpec &field, const FieldFile &file, int64_t line, int64_t column) {
  Text names;
  for (int64_t i = 0; i < field.names.size; ++i) {
    if (strcmp(text, field.names[i]) == 0)
      return double(i);
    names.add("%s`%s`", i ? ", " : "", field.names[i]);
  }
  if (field.other)
    return double(field.names.size);
  fail(kData, "%s: line %lld, column %lld: `%s` is none of the names of field `%s`: %s%s", file.path.text, (long long)line,
       (long long)column + 1, text, field.name, names.data, field.elem == Elem::I32 ? "; the word `other` behind them makes one more class of such cells" : "");
}

[[noreturn]] void refuseCells(const FieldFile &file, int64_t line, int64_t cells, int64_t expected) {
  fail(kData, "%s: line %lld has %lld cells, expected %lld", file.path.text, (long long)line, (long long)cells, (long long)expected);
}

bool isReal(const FieldSpec &field) { return field.elem == Elem::F32 || field.elem == Elem::F64; }

// `missing = ..` counts for numbers with a fraction only.
bool takesMissing(const DatasetSpec &spec, const FieldSpec &field) { return spec.hasMissing && isReal(field); }

// `missing = "mean"`: what such a cell counts as is known when all rows were read. It is kept as a NaN, which no cell is.
bool takesMean(const DatasetSpec &spec, const FieldSpec &field) { return spec.missingMean && field.normalize; }

// A value that makes no sense may be another column's, if the row lacks one. The reader is behind cell `column`; what it holds stays.
void needCells(CsvReader &reader, CsvReader::End follows, int64_t expected, const FieldFile &file, int64_t line, int64_t column) {
  char text[sizeof reader.text];
  memcpy(text, reader.text, sizeof text);
  for (; follows == CsvReader::Cell; ++column)
    follows = reader.next();
  if (column + 1 != expected)
    refuseCells(file, line, column + 1, expected);
  memcpy(reader.text, text, sizeof text);
}

// A cell of a row that should have `expected` of them, and what follows it.
double readCell(CsvReader &reader, CsvReader::End follows, int64_t expected, const DatasetSpec &spec, const FieldSpec &field, const FieldFile &file, int64_t line,
                int64_t column) {
  const char *text = reader.text;
  char *end;
  bool isName = false;
  for (const char *name : field.names)
    isName |= strcmp(text, name) == 0;
  if (!isName && !field.other && isMissing(text)) {
    if (takesMissing(spec, field))
      return spec.missing;
    Text what;
    if (text[0])
      what.add("`%s` is no value", text);
    else
      what.add("the cell is empty");
    if (isReal(field))
      fail(kData, "%s: line %lld, column %lld: %s%s field `%s`; %s", file.path.text, (long long)line, (long long)column + 1, what.data,
           text[0] ? " of" : ", where a number is expected of", field.name,
           spec.missingMean ? "`missing = \"mean\"` of csv(..) stands for fields with `normalize` only"
                            : "`missing = ..` of csv(..) says what such cells count as");
    // A class or a flag that nobody wrote down is not guessed.
    const char *elem = field.names.size ? "has names" : field.elem == Elem::Bool ? "is bool" : "is i32";
    fail(kData, "%s: line %lld, column %lld: %s, but field `%s` %s, for which `missing = ..` does not stand; %s", file.path.text,
         (long long)line, (long long)column + 1, what.data, field.name, elem,
         field.names.size && field.elem == Elem::I32 ? "write one of its names, give these cells a name of their own or the word `other` behind the names, or remove the row"
         : field.names.size                          ? "write one of its names, or remove the row"
                                                     : "write a value, or remove the row");
  }
  if (field.names.size)
    return ofName(text, field, file, line, column);
  if (field.elem == Elem::Bool && (strcasecmp(text, "true") == 0 || strcasecmp(text, "false") == 0))
    return strcasecmp(text, "true") == 0;
  double value = strtod(text, &end);
  bool any = end != text && !strpbrk(text, "xX"); // a table's numbers are decimal
  while (*end == ' ')
    ++end;
  if (!any || *end) {
    needCells(reader, follows, expected, file, line, column);
    fail(kData, "%s: line %lld, column %lld: `%s` is %s", file.path.text, (long long)line, (long long)column + 1, text,
         field.elem == Elem::Bool  ? "neither true nor false (nor 1 nor 0)"
         : field.elem == Elem::I32 ? "no number; words are numbered by names (\"..\", ..) behind the field's type"
                                   : "no number");
  }
  return value;
}

// Writes the rows behind the head of `into`; one is there at least.
void convertRows(const DatasetSpec &spec, const FieldSpec &field, const FieldFile &file, const Columns &columns, AtomicFile &into) {
  static double buffer[4096];
  CsvReader reader(file, spec.separator[0]);
  double *row = allocateArray<double>(columns.count);
  int64_t rows = 0, used = 0, inFile = 0;
  const RowDraw draw(spec);
  auto flush = [&] {
    if (!writeAll(into.fd, buffer, size_t(used) * 8))
      fail(kResources, "cannot write %s: %s", into.temporary.text, strerror(errno));
    used = 0;
  };
  if (spec.csvHeader)
    while (reader.next() == CsvReader::Cell)
      continue;
  for (;;) {
    int64_t line = reader.line, column = 0, next = 0; // next: in `order`
    const bool ours = !spec.drawsRows() || draw.owns(inFile);
    CsvReader::End end;
    do {
      end = reader.next();
      if (end == CsvReader::File && column == 0)
        break;
      if (end != CsvReader::Cell && column == 0 && columns.columns > 1 && !reader.text[0])
        break; // an empty line
      for (; ours && next < columns.count && columns.column[columns.order[next]] == column; ++next) {
        const int64_t v = columns.order[next];
        char where[64];
        if (reader.isCut && !field.other)
          fail(kData, "%s: line %lld, column %lld: a cell of field `%s` has more than %zu bytes", file.path.text, (long long)line, (long long)column + 1,
               field.name, sizeof reader.text - 1);
        if (takesMean(spec, field) && isMissing(reader.text)) {
          row[v] = __builtin_nan("");
          continue;
        }
        row[v] = reader.isCut ? double(field.names.size) // no name is so long
                              : readCell(reader, end, columns.columns, spec, field, file, line, column);
        snprintf(where, sizeof where, "in line %lld, column %lld", (long long)line, (long long)column + 1);
        bool whole = row[v] >= -0x1p53 && row[v] <= 0x1p53 && double(int64_t(row[v])) == row[v];
        checkNumber(file, field, {whole ? int64_t(row[v]) : 0, row[v], whole}, where);
      }
      ++column;
    } while (end == CsvReader::Cell);
    if (column == 0) {
      if (end == CsvReader::File)
        break;
      continue;
    }
    if (column != columns.columns)
      refuseCells(file, line, column, columns.columns);
    ++inFile;
    if (!ours)
      continue;
    for (int64_t v = 0; v < columns.count; ++v) {
      if (used == int64_t(sizeof buffer / 8))
        flush();
      buffer[used++] = row[v];
    }
    ++rows;
  }
  if (rows == 0) {
    abandonFile(into);
    fail(kData, "%s: there is no example in it%s", file.path.text,
         inFile == 0 ? spec.csvHeader ? ", only the names of the columns" : ""
         : spec.held ? " that is held out"
                     : " that is not held out");
  }
  flush();
}

} // namespace

void openCsv(Dataset &dataset, int number, const char *folder, const char *out) {
  const DatasetSpec &spec = *dataset.spec;
  const FieldSpec &field = spec.fields[number];
  FieldFile file;
  openDataFile(file, folder, spec.files[0], spec);
  sumSource(file, spec, out);
  Columns columns;
  columns.count = field.from.size;
  if (columns.count != spec.shapeOfRow(field).count())
    failInternal("data `%s`: `%s` has %lld values from %lld columns", spec.name, field.name,
                 (long long)spec.shapeOfRow(field).count(), (long long)columns.count);
  if (columns.count > kRowMax)
    fail(kData, "data `%s`: %lld columns are too many", spec.name, (long long)columns.count);
  Text asked;
  asked.add("rows 2 %s %d %d %d %lld %d %lld %a", spec.separator, spec.csvHeader, int(field.elem), field.hasBelow, // 2: without empty ones at the end
            (long long)field.below, field.hasExcept, (long long)field.except, field.scale);
  char missing[40];
  if (field.other)
    asked.add(" other");
  if (takesMissing(spec, field))
    asked.add(" missing %s", exact(missing, spec.missing, false));
  if (takesMean(spec, field))
    asked.add(" missing mean");
  if (spec.drawsRows())
    asked.add(" hold %s %lld %d", exact(missing, spec.holdOut, false), (long long)spec.holdSeed, spec.held);
  uint64_t hash = hashText(asked.data);
  for (const char *text : field.from)
    hash = hash * 31 + hashText(text);
  for (const char *text : field.names)
    hash = hash * 37 + hashText(text);
  KeptFile kept;
  findKept(kept, out, spec.name, field.name, "csv-values", hash, file);
  if (kept.fd < 0) {
    AtomicFile into;
    findColumns(columns, spec, field, file);
    const bool begun = beginKept(kept, into);
    if (begun) {
      convertRows(spec, field, file, columns, into);
      expectUnchanged(file);
      endKept(kept, into);
    }
  }
  close(file.fd);
  FieldFile &values = dataset.fields[number];
  values.source = file.source;
  values.sourceCrc = file.sourceCrc;
  values.fd = kept.fd;
  values.path.text = copyText(kept.path.text, strlen(kept.path.text));
  values.size = values.dataEnd = kept.size;
  values.dataOffset = kKeptHead;
  values.columns = columns.count;
  values.rows = (kept.size - kKeptHead) / (8 * values.columns);
  values.raw = RawType::F64;
  values.gaps = takesMean(spec, field);
}

} // namespace cinch::rt
