// Dataset.cpp: opening, and reading with pread through a small buffer on the stack: a mapped file would count as
// memory.
#include "runtime/Dataset.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include <errno.h>
#include <string.h>
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

void openDataFile(FieldFile &file, const char *folder, const char *name, const DatasetSpec &spec) {
  Path path;
  joinPath(path, folder, name);
  file.path.text = copyText(path.text, strlen(path.text));
  const char *why;
  file.fd = openToRead(file.path.text, file.size, why);
  if (file.fd >= 0) {
    file.dataEnd = file.size;
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

static void matchAxes(const FieldFile &file, const FieldSpec &field, const Shape &inFile) {
  if (sameAxes(axesOf(inFile, 1), axesOf(field.shape, 0)))
    return;
  Text how = transposition(inFile, field.shape), mend;
  if (how.size)
    mend.add("its axes stand in another order: save it transposed, in NumPy with .%s", how.data);
  else
    mend.add("as many values in other axes: transpose it into this order, or, if it only lacks its shape, save it as [%lld, %lld]",
             (long long)inFile.dims[0], (long long)field.shape.count());
  fail(kData, "%s: field `%s` has shape %s an example; the file has shape %s, %s", file.path.text, field.name, describe(field.shape).text,
       describe(inFile).text, mend.data);
}

// The first axis counts the examples; the others are the declared ones, row-major, but for merged and split neighbours.
static void matchRows(FieldFile &file, const FieldSpec &field, const Shape &inFile) {
  int64_t wanted = field.shape.count(), found = 1;
  for (int i = 1; i < inFile.rank; ++i)
    found *= inFile.dims[i];
  if (inFile.rank == 0)
    fail(kData, "%s: one value without axes; the first axis must count the examples", file.path.text);
  if (found != wanted && inFile.count() == wanted && sameAxes(axesOf(inFile, 0), axesOf(field.shape, 0)))
    fail(kData, "%s: field `%s` has shape %s an example; the file has shape %s, where the first axis must count the examples: if it is one example, save it as "
                "x[None]",
         file.path.text, field.name, describe(field.shape).text, describe(inFile).text);
  if (found != wanted && field.elem == Elem::I32 && wanted == 1)
    fail(kData, "%s: field `%s` is one number an example; the file has shape %s, %lld an example: if these are one-hot, save the place of the 1, in NumPy "
                "argmax(-1)",
         file.path.text, field.name, describe(inFile).text, (long long)found);
  if (found != wanted)
    fail(kData, "%s: field `%s` needs %lld values an example, shape %s; the file has shape %s, %lld an example",
         file.path.text, field.name, (long long)wanted, describe(field.shape).text, describe(inFile).text,
         (long long)found);
  matchAxes(file, field, inFile);
  if (field.elem == Elem::I32 && isFloat(file.raw))
    fail(kData, "%s: field `%s` is i32, but the file holds %s; save it as whole numbers, in NumPy with astype(\"i4\")", file.path.text, field.name,
         nameOf(file.raw));
  if (field.elem == Elem::Bool && isFloat(file.raw))
    fail(kData, "%s: field `%s` is bool, but the file holds %s; save it as bool or as 0 and 1, in NumPy with astype(\"bool\")", file.path.text,
         field.name, nameOf(file.raw));
  file.count = wanted;
  file.exampleStep = wanted * bytesOf(file.raw);
  file.examples = inFile.dims[0];
  int64_t left = file.dataEnd - file.dataOffset;
  if (file.exampleStep && left / file.exampleStep < file.examples)
    fail(kData, "%s: field `%s` is truncated: its header says %lld examples of %lld bytes, %lld bytes are there",
         file.path.text, field.name, (long long)file.examples, (long long)file.exampleStep, (long long)left);
  if (left != file.examples * file.exampleStep)
    fail(kData, "%s: field `%s`: %lld bytes follow the %lld examples that its header announces", file.path.text,
         field.name, (long long)(left - file.examples * file.exampleStep), (long long)file.examples);
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
  if (length < spec.window)
    fail(kData, "%s: %lld %s are fewer than one window of %lld", file.path.text, (long long)length,
         tokens ? "tokens" : "bytes", (long long)spec.window);
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

void beginDataset(Dataset &dataset, const DatasetSpec &spec, const DatasetSpec &trained) {
  dataset = Dataset();
  dataset.spec = &spec;
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
    if (oneFile && field.from.size != 1)
      failInternal("data `%s`: the field `%s` comes from %lld arrays", spec.name, field.name,
                   (long long)field.from.size);
    Shape shape = idx       ? readIdxHeader(file)
                  : npy     ? readNpyHeader(file)
                  : tensors ? findTensor(file, field.from[0])
                            : findNpzArray(file, field.from[0], spec.name, field.name, out);
    matchRows(file, field, shape);
  }
  if (const Normal *normal = field.normalize ? normalOf(field.name) : nullptr) {
    file.mean = normal->mean;
    file.deviation = normal->deviation;
  }
  if (dataset.counted < 0) {
    dataset.counted = number;
    dataset.examples = file.examples;
  }
  const FieldFile &counted = dataset.fields[dataset.counted];
  if (file.examples != counted.examples)
    fail(kData, "data `%s`: field `%s` in %s has %lld examples, but field `%s` in %s has %lld", spec.name, field.name, file.path.text,
         (long long)file.examples, spec.fields[dataset.counted].name, counted.path.text, (long long)counted.examples);
  if (file.examples == 0)
    fail(kData, "%s: there is no example in it", file.path.text);
  checkValues(dataset, number, out);
}

bool readExample(const Dataset &dataset, int field, int64_t example, Elem elem, char *into) {
  const FieldFile &file = fileOf(dataset.fields[field], example);
  const FieldSpec &spec = dataset.spec->fields[field];
  alignas(8) char buffer[16384];
  int64_t unit = bytesOf(file.raw), perChunk = int64_t(sizeof buffer) / unit;
  for (int64_t done = 0; done < file.count; done += perChunk) {
    int64_t now = file.count - done < perChunk ? file.count - done : perChunk;
    if (!readAt(file.fd, buffer, size_t(now * unit), file.dataOffset + example * file.exampleStep + done * unit))
      return false;
    convertValues(file, spec, buffer, done, now, elem, into + done * bytesOf(elem));
  }
  return true;
}

} // namespace cinch::rt
