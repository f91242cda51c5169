// Dataset.h: data files, opened and checked against the declared types, read example by example into the arena.
#ifndef CINCH_RUNTIME_DATASET_H
#define CINCH_RUNTIME_DATASET_H
#include "runtime/Files.h"
#include "runtime/Meta.h"

namespace cinch::rt {

enum class RawType : uint8_t { U8, I8, Bool, U16, I16, U32, I32, U64, I64, F16, BF16, F32, F64 };
int64_t bytesOf(RawType);
const char *nameOf(RawType);
double halfToDouble(uint64_t bits);
inline bool isFloat(RawType type) { return type >= RawType::F16; }

// Where the values of one field lie: example e is `count` values from byte dataOffset + e * exampleStep + before, below dataEnd. Records and windows
// of text may lie in several files: `examples` counts those of all, and this one has the first `here` of them.
// Which file a field was read from. Fields of one file are one row each only if nobody puts another file in its place between them.
struct FileStamp {
  uint64_t path = 0; // its hash; 0: it was not opened
  uint64_t device = 0, inode = 0;
  int64_t size = 0, changed = 0; // nanoseconds
};

struct FieldFile {
  int fd = -1;
  struct {
    const char *text = "";
  } path; // as long as it is: a program may have hundreds of files
  int64_t size = 0; // of the file
  int64_t dataOffset = 0, dataEnd = 0, exampleStep = 0, before = 0, count = 0, examples = 0;
  int64_t columns = 0, rows = 0; // values of a row and rows from dataOffset on; an example is one, or, if firstRow is not below 0, a window of them
  int64_t firstRow = -1;         // of the file: the one at dataOffset
  RawType raw = RawType::U8;
  bool bigEndian = false;
  const double *mean = nullptr, *deviation = nullptr; // of a field that is normalized: one a value of a row
  bool gaps = false; // of such a field: a NaN counts as the mean of its column, of which it is no part
  FieldFile *next = nullptr; // where the examples behind these lie
  int64_t here = 0;
  FileStamp source;
  uint32_t sourceCrc = 0; // of its bytes, where workers of several processes compare them
  // An array that lies in a ZIP file as it is: its bytes there, and their CRC-32 by the directory.
  int64_t storedAt = 0, storedEnd = 0;
  uint32_t storedCrc = 0;
  uint32_t crc = 0; // of the bytes from dataOffset to dataEnd; of several files: of what each has, of records the field's values
};

inline bool isGap(const FieldFile &file, double value) { return file.gaps && value != value; }

// The file that holds an example; it becomes its number there.
inline const FieldFile &fileOf(const FieldFile &first, int64_t &example) {
  const FieldFile *file = &first;
  for (; file->next && example >= file->here; file = file->next)
    example -= file->here;
  return *file;
}

// Whether all fields lie in each of its files, which are read one behind the other: records and windows.
bool takesFilesInOrder(const DatasetSpec &);

class OwnRows;

struct Dataset {
  const DatasetSpec *spec = nullptr;
  int64_t examples = 0;
  FieldFile *fields = nullptr; // one a field of the spec
  int counted = -1;            // the field that `examples` was taken from: the first that was opened
  int64_t span = 0;            // windows of rows: how many rows an example reaches over
  const OwnRows *own = nullptr; // the rows of the files that are its examples; null: all of them are
  int *fieldOf = nullptr;      // one a field of the data set that the program trains on: ours of that name, or -1
};

// A data set of which nothing is open yet. What is predicted needs no rows behind those of the fields that `predicted` reads: so the last windows of a
// series, whose end is not known yet, are predicted too. Null: an example has whole windows.
void beginDataset(Dataset &, const DatasetSpec &, const DatasetSpec &trained, const Entry *predicted);
// Opens the file of a field under `folder`, unless it is open: checks header, shape and length, and every value. Leaves
// with kData if something is wrong. `out` is where a csv file's values are kept in binary form.
void openField(Dataset &, int field, const char *folder, const char *out);
// How many examples there are, where the files have so many rows.
void takeExamples(Dataset &, int64_t rows);
// Reads every value once (ranges, finite numbers), unless `out`/data-checked.txt says that this was done with the same
// file; takes their checksum. Nothing is remembered where there is no folder `out`.
void checkValues(Dataset &, int field, const char *out);

// Brings one example of one field to `into`, as `elem`. Any thread may call it. False: the file cannot be read (errno).
bool readExample(const Dataset &, int field, int64_t example, Elem elem, char *into);

// Values number `first` and behind it of a file whose examples lie side by side, as they are there. A file that cannot be read ends the run.
void readReals(const FieldFile &, int64_t first, int64_t count, double *into);

// Leaves with kData if a field was read from another file of that name.
void openDataFile(FieldFile &, const char *folder, const char *name, const DatasetSpec &);
// Where every worker has a process, the fields of one file may be read by several, each from its own copy: the checksum of all its bytes tells whether
// the copies are the same. It is remembered as checkValues does.
void sumSource(FieldFile &, const DatasetSpec &, const char *out);
// Leaves with kData if the file was written to since it was opened.
void expectUnchanged(const FieldFile &);

// The formats. Each reads from dataOffset on, fills dataOffset, dataEnd, raw, bigEndian and returns the shape in the
// file, examples first.
Shape readIdxHeader(FieldFile &);
Shape readNpyHeader(FieldFile &);
// A compressed array is unpacked to a file under `out`, which then is the field's.
Shape findNpzArray(FieldFile &, const char *name, const char *set, const char *field, const char *out);
Shape findTensor(FieldFile &, const char *name);
// `size` bytes of the header at dataOffset + offset.
void readDataHeader(const FieldFile &, void *into, int64_t size, int64_t offset, const char *format);
// The product of the axes stays far from overflow; before anything is computed with it.
void checkSizes(const FieldFile &, const Shape &);

// A field of a csv file: its columns are turned into f64 values in OUT, once, and checked on the way. Sets raw, columns and rows.
void openCsv(Dataset &, int field, const char *folder, const char *out);

// What any raw value is: a whole number and a floating-point one (isWhole false: only the latter).
struct Number {
  int64_t whole;
  double real;
  bool isWhole;
};
// Leaves with kData if the field may not hold this.
void checkNumber(const FieldFile &, const FieldSpec &, Number, const char *where);

// Converts `count` raw values, the first of them being value `first` of its example.
void convertValues(const FieldFile &, const FieldSpec &, const char *raw, int64_t first, int64_t count, Elem elem, char *into);

} // namespace cinch::rt
#endif
