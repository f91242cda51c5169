// Dataset.cpp: opening, and reading with pread through a small buffer on the stack: a mapped file would count as
// memory.
#include "runtime/Dataset.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include "runtime/OwnRows.h"
#include "runtime/Random.h"
#include "runtime/Run.h"
#include <errno.h>
#include <new>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cinch::rt {

int64_t bytesOf(RawType type) {
  static const int8_t sizes[] = {1, 1, 1, 2, 2, 4, 4, 8, 8, 2, 2, 4, 8};
  return sizes[int(type)];
}

const char *nameOf(RawType type) {
  static const char *names[] = {"u8", "i8", "bool", "u16", "i16", "u32", "i32", "u64", "i64", "f16", "bf16", "f32", "f64"};
  return names[int(type)];
}

// False: it cannot be asked.
static bool stamp(FileStamp &stamp, const FieldFile &file) {
  struct stat status;
  if (fstat(file.fd, &status) != 0)
    return false;
  stamp = {hashText(file.path.text), uint64_t(status.st_dev), uint64_t(status.st_ino), int64_t(status.st_size),
           int64_t(status.st_mtim.tv_sec) * 1000000000 + status.st_mtim.tv_nsec};
  return true;
}
static bool sameFile(const FileStamp &a, const FileStamp &b) {
  return a.device == b.device && a.inode == b.inode && a.size == b.size && a.changed == b.changed;
}

[[noreturn]] static void refuseChanged(const FieldFile &file) {
  fail(kData, "%s: the file was changed, or another one took its place, while it was read: start again when it is whole", file.path.text);
}

// Examples are rows of one file: all fields of all sets that are read from it.
static void expectSameFile(const FieldFile &file) {
  for (int64_t i = 0; run.datasets && i < run.meta.datasets.size; ++i)
    for (int64_t k = 0; run.datasets[i].spec && k < run.datasets[i].spec->fields.size; ++k) {
      const FileStamp &other = run.datasets[i].fields[k].source;
      if (other.path == file.source.path && !sameFile(other, file.source))
        refuseChanged(file);
    }
}

void expectUnchanged(const FieldFile &file) {
  FileStamp now;
  if (!stamp(now, file) || !sameFile(now, file.source))
    refuseChanged(file);
}

void openDataFile(FieldFile &file, const char *folder, const char *name, const DatasetSpec &spec) {
  Path path;
  joinPath(path, folder, name);
  file.path.text = copyText(path.text, strlen(path.text));
  const char *why;
  file.fd = openToRead(file.path.text, file.size, why);
  if (file.fd >= 0) {
    file.dataEnd = file.size;
    if (!stamp(file.source, file))
      fail(kData, "cannot read %s: %s", file.path.text, strerror(errno));
    expectSameFile(file);
    return;
  }
  if (mayOpenNoMore(errno))
    fail(kResources, "data `%s`: cannot open %s: %s", spec.name, file.path.text, why);
  bool missing = errno == ENOENT && !spec.folder;
  static const char *endings[] = {".npy", ".npz", ".csv", ".txt"}; // perhaps forgotten in the program
  size_t length = strlen(file.path.text);
  Path other = path;
  for (const char *ending : endings)
    if (missing && length + strlen(ending) < sizeof other.text && exists(strcpy(other.text + length, ending) - length))
      fail(kData, "data `%s`: cannot open %s: %s; write \"%s%s\" in the program, which is there", spec.name, file.path.text, why, name, ending);
  char here[1024];
  Text from; // of --data-file
  if (spec.folder && name[0] != '/' && getcwd(here, sizeof here))
    from.add(" (looked for from the current folder, %s)", here);
  fail(kData, "data `%s`: cannot open %s: %s%s", spec.name, file.path.text, why,
       missing ? " (--data names the folder of the data files)" : from.data);
}

// The axes of one example, those of size 1 left out; of the shape in a file from axis 1 on.
static Shape axesOf(const Shape &shape, int first) {
  Shape axes;
  for (int i = first; i < shape.rank; ++i)
    if (shape.dims[i] != 1)
      axes.dims[axes.rank++] = shape.dims[i];
  return axes;
}

// Whether one can be made of the other by merging neighbouring axes, or by splitting some, row-major: [768] and [16, 48] are [3, 16, 16],
// [16, 16, 3] is not. Walks from border to border that both have; between two of them one must have a single axis. Both have as many elements.
static bool sameAxes(const Shape &a, const Shape &b) {
  if (a.rank == b.rank) {
    for (int i = 0; i < a.rank; ++i)
      if (a.dims[i] != b.dims[i])
        return false;
    return true;
  }
  for (int i = 0, k = 0; i < a.rank && k < b.rank;) {
    int64_t left = a.dims[i], right = b.dims[k];
    int beginA = i++, beginB = k++;
    while (left != right)
      if (left < right)
        left *= a.dims[i++];
      else
        right *= b.dims[k++];
    if (i - beginA > 1 && k - beginB > 1)
      return false;
  }
  return true;
}

// How NumPy makes the declared axes of the file's, if they are the same in another order: "transpose(0, 3, 1, 2)". Empty: they are not.
static Text transposition(const Shape &inFile, const Shape &wanted) {
  Text text;
  bool used[12] = {};
  if (inFile.rank - 1 != wanted.rank)
    return text;
  text.add("transpose(0");
  for (int i = 0; i < wanted.rank; ++i) {
    int from = 1;
    while (from < inFile.rank && (used[from] || inFile.dims[from] != wanted.dims[i]))
      ++from;
    if (from == inFile.rank)
      return Text();
    used[from] = true;
    text.add(", %d", from);
  }
  text.add(")");
  return text;
}

// What a field must find along each step of the first axis of an array: an example, or a row of a window.
struct Wanted {
  const FieldSpec &field;
  const Shape shape;
  const char *one, *many; // "an example", "examples"
};

static void matchAxes(const FieldFile &file, const Wanted &wanted, const Shape &inFile) {
  if (sameAxes(axesOf(inFile, 1), axesOf(wanted.shape, 0)))
    return;
  Text how = transposition(inFile, wanted.shape), mend;
  if (how.size)
    mend.add("its axes stand in another order: save it transposed, in NumPy with .%s", how.data);
  else
    mend.add("as many values in other axes: transpose it into this order, or, if it only lacks its shape, save it as [%lld, %lld]",
             (long long)inFile.dims[0], (long long)wanted.shape.count());
  fail(kData, "%s: field `%s` has shape %s %s; the file has shape %s, %s", file.path.text, wanted.field.name, describe(wanted.shape).text, wanted.one,
       describe(inFile).text, mend.data);
}

// The first axis counts the rows; the others are the declared ones, row-major, but for merged and split neighbours.
static void matchRows(FieldFile &file, const DatasetSpec &spec, const FieldSpec &field, const Shape &inFile) {
  const Wanted of = {field, spec.shapeOfRow(field), spec.ofRows() ? "a row" : "an example", spec.ofRows() ? "rows" : "examples"};
  int64_t wanted = of.shape.count(), found = 1;
  for (int i = 1; i < inFile.rank; ++i)
    found *= inFile.dims[i];
  if (inFile.rank == 0)
    fail(kData, "%s: one value without axes; the first axis must count the %s", file.path.text, of.many);
  if (found != wanted && inFile.count() == wanted && sameAxes(axesOf(inFile, 0), axesOf(of.shape, 0)))
    fail(kData, "%s: field `%s` has shape %s %s; the file has shape %s, where the first axis must count the %s: if it is one example, save it as "
                "x[None]",
         file.path.text, field.name, describe(of.shape).text, of.one, describe(inFile).text, of.many);
  if (found != wanted && field.elem == Elem::I32 && wanted == 1)
    fail(kData, "%s: field `%s` is one number %s; the file has shape %s, %lld %s: if these are one-hot, save the place of the 1, in NumPy "
                "argmax(-1)",
         file.path.text, field.name, of.one, describe(inFile).text, (long long)found, of.one);
  if (found != wanted)
    fail(kData, "%s: field `%s` needs %lld values %s, shape %s; the file has shape %s, %lld %s",
         file.path.text, field.name, (long long)wanted, of.one, describe(of.shape).text, describe(inFile).text,
         (long long)found, of.one);
  matchAxes(file, of, inFile);
  if (field.elem == Elem::I32 && isFloat(file.raw))
    fail(kData, "%s: field `%s` is i32, but the file holds %s; save it as whole numbers, in NumPy with astype(\"i4\")", file.path.text, field.name,
         nameOf(file.raw));
  if (field.elem == Elem::Bool && isFloat(file.raw))
    fail(kData, "%s: field `%s` is bool, but the file holds %s; save it as bool or as 0 and 1, in NumPy with astype(\"bool\")", file.path.text,
         field.name, nameOf(file.raw));
  file.columns = wanted;
  file.rows = inFile.dims[0];
  const int64_t step = wanted * bytesOf(file.raw), left = file.dataEnd - file.dataOffset;
  if (step && left / step < file.rows)
    fail(kData, "%s: field `%s` is truncated: its header says %lld %s of %lld bytes, %lld bytes are there",
         file.path.text, field.name, (long long)file.rows, of.many, (long long)step, (long long)left);
  if (left != file.rows * step)
    fail(kData, "%s: field `%s`: %lld bytes follow the %lld %s that its header announces", file.path.text,
         field.name, (long long)(left - file.rows * step), (long long)file.rows, of.many);
}

// Examples from the rows of a file: each is one, or each window of them is, in the part of the file that this set has.
static void takeRows(FieldFile &file, const DatasetSpec &spec, const FieldSpec &field, int64_t span) {
  const int64_t step = file.columns * bytesOf(file.raw);
  file.count = field.shape.count();
  file.exampleStep = step;
  file.examples = file.rows;
  if (!spec.ofRows())
    return;
  const int64_t late = int64_t(spec.holdOut * double(file.rows) + 0.5), early = file.rows - late;
  file.firstRow = spec.held ? early : 0;
  file.rows = spec.held ? late : early;
  if (file.rows < span) // what is read of a table is a file of ours
    fail(kData, "%s: %lld rows%s are fewer than one window of %lld", strcmp(spec.source, "csv") == 0 ? spec.files[0] : file.path.text, (long long)file.rows,
         spec.holdOut <= 0 ? "" : spec.held ? " that are held out" : " that are not held out", (long long)span);
  file.dataOffset += file.firstRow * step;
  file.dataEnd = file.dataOffset + file.rows * step;
  file.exampleStep = spec.stride * step;
  file.before = field.at * step;
  file.examples = (file.rows - span) / spec.stride + 1;
}

// Examples are the rows that the files have, or those of them that are drawn. What is read of a table has those only.
void takeExamples(Dataset &dataset, int64_t rows) {
  dataset.examples = rows;
  const DatasetSpec &spec = *dataset.spec;
  if (!spec.drawsRows() || strcmp(spec.source, "csv") == 0)
    return;
  if (!dataset.own)
    dataset.own = new (allocate(sizeof(OwnRows))) OwnRows(spec, rows);
  dataset.examples = dataset.own->count();
  if (dataset.examples == 0)
    fail(kData, "data `%s`: of the %lld examples in %s %s held out; choose another hold_out or hold_seed", spec.name, (long long)rows, spec.files[0],
         spec.held ? "none is" : "all are");
}

static void openWindows(FieldFile &file, const DatasetSpec &spec, bool tokens) {
  int64_t unit = tokens ? spec.tokenBits / 8 : 1;
  file.raw = !tokens ? RawType::U8 : spec.tokenBits == 32 ? RawType::U32 : RawType::U16;
  file.dataOffset = tokens ? spec.header : 0;
  if (file.size < file.dataOffset)
    fail(kData, "%s: the file has %lld bytes, fewer than its header of %lld", file.path.text, (long long)file.size,
         (long long)file.dataOffset);
  int64_t bytes = file.size - file.dataOffset, length = bytes / unit;
  if (bytes % unit)
    fail(kData, "%s: %lld bytes of tokens are no multiple of %lld; is it a file of u%lld?", file.path.text,
         (long long)bytes, (long long)unit, (long long)spec.tokenBits);
  if (spec.holdOut > 0) { // the end of each file
    const int64_t late = int64_t(spec.holdOut * double(length) + 0.5), early = length - late;
    file.dataOffset += spec.held ? early * unit : 0;
    length = spec.held ? late : early;
    file.dataEnd = file.dataOffset + length * unit;
  }
  if (length < spec.window)
    fail(kData, "%s: %lld %s%s are fewer than one window of %lld", file.path.text, (long long)length, tokens ? "tokens" : "bytes",
         spec.holdOut <= 0 ? "" : spec.held ? " that are held out" : " that are not held out", (long long)spec.window);
  file.count = spec.window;
  file.exampleStep = spec.stride * unit;
  file.examples = file.here = (length - spec.window) / spec.stride + 1;
}

// One byte an element, the fields of a record one behind the other.
static void openRecords(FieldFile &file, const DatasetSpec &spec, int number) {
  int64_t before = 0, record = 0;
  for (int64_t i = 0; i < spec.fields.size; ++i) {
    if (i < number)
      before += spec.fields[i].shape.count();
    record += spec.fields[i].shape.count();
  }
  file.raw = RawType::U8;
  file.count = spec.fields[number].shape.count();
  file.exampleStep = record;
  file.dataOffset = spec.header + before;
  if (file.size == spec.header)
    fail(kData, "%s: no record stands behind its header of %lld bytes", file.path.text, (long long)spec.header);
  if (file.size < spec.header || (file.size - spec.header) % record)
    fail(kData, "%s: %lld bytes are no header of %lld and whole records of %lld bytes", file.path.text, (long long)file.size,
         (long long)spec.header, (long long)record);
  file.examples = file.here = (file.size - spec.header) / record;
}

// All files of a field, as one: no window and no record lies in two of them.
template <typename Open> static void openAllFiles(FieldFile &first, const DatasetSpec &spec, const char *folder, Open openOne) {
  FieldFile *last = &first;
  for (int64_t i = 0; i < spec.files.size; ++i) {
    if (i > 0) {
      last->next = allocateArray<FieldFile>(1);
      *last->next = FieldFile();
      last = last->next;
    }
    openDataFile(*last, folder, spec.files[i], spec);
    openOne(*last);
    if (i > 0)
      first.examples += last->examples;
  }
}

bool takesFilesInOrder(const DatasetSpec &spec) {
  return strcmp(spec.source, "records") == 0 || strcmp(spec.source, "text") == 0 || strcmp(spec.source, "tokens") == 0;
}

void beginDataset(Dataset &dataset, const DatasetSpec &spec, const DatasetSpec &trained, const Entry *predicted) {
  dataset = Dataset();
  dataset.spec = &spec;
  dataset.span = predicted && predicted->fields.size ? 0 : spec.window;
  dataset.fields = allocateArray<FieldFile>(spec.fields.size);
  for (int64_t i = 0; i < spec.fields.size; ++i)
    dataset.fields[i] = FieldFile();
  dataset.fieldOf = allocateArray<int>(trained.fields.size);
  for (int64_t i = 0; i < trained.fields.size; ++i) {
    dataset.fieldOf[i] = -1;
    for (int64_t own = 0; own < spec.fields.size; ++own)
      if (strcmp(spec.fields[own].name, trained.fields[i].name) == 0)
        dataset.fieldOf[i] = int(own);
  }
  if (!predicted || !spec.ofRows())
    return;
  for (const EntryField &read : predicted->fields)
    if (const int own = dataset.fieldOf[read.index]; own >= 0) {
      const FieldSpec &field = spec.fields[own];
      const int64_t end = field.at + field.shape.dims[0];
      dataset.span = end > dataset.span ? end : dataset.span;
    }
}

void openField(Dataset &dataset, int number, const char *folder, const char *out) {
  const DatasetSpec &spec = *dataset.spec;
  if (spec.folder)
    folder = spec.folder;
  const FieldSpec &field = spec.fields[number];
  FieldFile &file = dataset.fields[number];
  if (file.fd >= 0)
    return;
  bool text = strcmp(spec.source, "text") == 0, tokens = strcmp(spec.source, "tokens") == 0;
  bool idx = strcmp(spec.source, "idx") == 0, npy = strcmp(spec.source, "npy") == 0;
  bool npz = strcmp(spec.source, "npz") == 0, tensors = strcmp(spec.source, "safetensors") == 0;
  bool csv = strcmp(spec.source, "csv") == 0, records = strcmp(spec.source, "records") == 0;
  bool oneFile = npz || tensors || csv;
  if (!text && !tokens && !idx && !npy && !oneFile && !records)
    failInternal("data `%s` is read from `%s`, which is no format", spec.name, spec.source);
  if (((text || tokens) && (spec.fields.size != 1 || spec.window < 1 || spec.stride < 1)) || spec.fields.size == 0 ||
      (takesFilesInOrder(spec) ? spec.files.size == 0 : spec.files.size != (oneFile ? 1 : spec.fields.size)))
    failInternal("data `%s` is described wrongly", spec.name);
  if (csv) {
    openCsv(dataset, number, folder, out);
  } else if (records) {
    openAllFiles(file, spec, folder, [&](FieldFile &one) { openRecords(one, spec, number); });
  } else if (text || tokens) {
    openAllFiles(file, spec, folder, [&](FieldFile &one) { openWindows(one, spec, tokens); });
    if (field.shape.count() != spec.window)
      failInternal("data `%s`: a window of %lld meets shape %s", spec.name, (long long)spec.window, describe(field.shape).text);
  } else {
    openDataFile(file, folder, spec.files[oneFile ? 0 : number], spec);
    if (oneFile)
      sumSource(file, spec, out);
    if (oneFile && field.from.size != 1)
      failInternal("data `%s`: the field `%s` comes from %lld arrays", spec.name, field.name,
                   (long long)field.from.size);
    Shape shape = idx       ? readIdxHeader(file)
                  : npy     ? readNpyHeader(file)
                  : tensors ? findTensor(file, field.from[0])
                            : findNpzArray(file, field.from[0], spec.name, field.name, out);
    matchRows(file, spec, field, shape);
  }
  if (!takesFilesInOrder(spec))
    takeRows(file, spec, field, dataset.span);
  if (const Normal *normal = field.normalize ? normalOf(field.name) : nullptr) {
    file.mean = normal->mean;
    file.deviation = normal->deviation;
  }
  if (dataset.counted < 0) {
    dataset.counted = number;
    if (file.examples > 0)
      takeExamples(dataset, file.examples);
  }
  const FieldFile &counted = dataset.fields[dataset.counted];
  if (file.firstRow >= 0 && file.rows != counted.rows)
    fail(kData, "data `%s`: field `%s` in %s has %lld rows, but field `%s` in %s has %lld", spec.name, field.name, file.path.text,
         (long long)file.rows, spec.fields[dataset.counted].name, counted.path.text, (long long)counted.rows);
  if (file.examples != counted.examples)
    fail(kData, "data `%s`: field `%s` in %s has %lld examples, but field `%s` in %s has %lld", spec.name, field.name, file.path.text,
         (long long)file.examples, spec.fields[dataset.counted].name, counted.path.text, (long long)counted.examples);
  if (file.examples == 0)
    fail(kData, "%s: there is no example in it", file.path.text);
  checkValues(dataset, number, out);
}

bool readExample(const Dataset &dataset, int field, int64_t example, Elem elem, char *into) {
  if (dataset.own)
    example = dataset.own->rowOf(example);
  const FieldFile &file = fileOf(dataset.fields[field], example);
  const FieldSpec &spec = dataset.spec->fields[field];
  alignas(8) char buffer[16384];
  int64_t unit = bytesOf(file.raw), perChunk = int64_t(sizeof buffer) / unit;
  for (int64_t done = 0; done < file.count; done += perChunk) {
    int64_t now = file.count - done < perChunk ? file.count - done : perChunk;
    if (!readAt(file.fd, buffer, size_t(now * unit), file.dataOffset + example * file.exampleStep + file.before + done * unit))
      return false;
    convertValues(file, spec, buffer, done, now, elem, into + done * bytesOf(elem));
  }
  return true;
}

} // namespace cinch::rt
