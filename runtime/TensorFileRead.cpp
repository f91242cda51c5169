// TensorFileRead.cpp: any safetensors file is read with suspicion: every length, offset and shape is checked before
// use.
#include "runtime/Checksum.h"
#include "runtime/Dataset.h"
#include "runtime/EditDistance.h"
#include "runtime/Files.h"
#include "runtime/Json.h"
#include "runtime/NameMap.h"
#include "runtime/Random.h"
#include "runtime/Peers.h"
#include "runtime/Output.h"
#include "runtime/TensorFile.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cinch::rt {

static char transfer[65536]; // the one buffer of this file: header, checksum and conversion follow one another

void Problem::set(const char *format, ...) {
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
}

TensorFile::~TensorFile() {
  if (fd >= 0)
    close(fd);
}

static const char *because() { return errno ? strerror(errno) : "unexpected end"; }

bool TensorFile::open(const char *path, TensorList &wanted, const Taking &taking, Problem &problem) {
  const char *why;
  fd = openToRead(path, size, why);
  if (fd < 0) {
    problem.ofProcess = mayOpenNoMore(errno);
    problem.set("cannot open it: %s", why);
    return false;
  }
  uint64_t length = 0;
  if (size < 8) {
    problem.set("it has %lld bytes, too few for a safetensors file", (long long)size);
    return false;
  }
  if (!readAt(fd, &length, 8, 0)) {
    problem.set("cannot read it: %s", because());
    return false;
  }
  // What else is called a file of weights.
  const char *head = reinterpret_cast<const char *>(&length);
  bool zip = memcmp(head, "PK\3\4", 4) == 0, pickle = head[0] == '\x80' && head[1] >= 2 && head[1] <= 5;
  if ((zip || pickle) && length > uint64_t(size)) {
    problem.set("not a safetensors file: it is a %s file, as torch.save writes it; save the weights with "
                "safetensors.torch.save_file(model.state_dict(), \"model.safetensors\")", zip ? "zip (PyTorch)" : "pickle (PyTorch)");
    return false;
  }
  if (memcmp(head, "\x93NUMPY", 6) == 0) {
    problem.set("not a safetensors file: it is an NPY file, one array without a name, as numpy.save writes it; give it the name of its parameter with "
                "safetensors.numpy.save_file({\"fc.weight\": numpy.load(\"weight.npy\")}, \"model.safetensors\")");
    return false;
  }
  if (length > uint64_t(100) << 20) {
    problem.set("not a safetensors file: its first 8 bytes announce a header of %llu bytes",
                (unsigned long long)length);
    return false;
  }
  if (length > uint64_t(size - 8)) {
    problem.set("it is truncated: %lld bytes, but its header alone takes %llu", (long long)size,
                (unsigned long long)length + 8);
    return false;
  }
  headerSize = int64_t(length);
  return nameTensors(wanted, taking, problem) && readHeader(wanted, taking, problem);
}

bool Taking::passesOver(const char *name) const {
  return strncmp(name, kOfReplica, sizeof kOfReplica - 1) == 0 || (ignored && strncmp(name, ignored, strlen(ignored)) == 0);
}

// Where a name stands in the table, or the free place where it would.
uint64_t TensorFile::slotOf(const TensorList &wanted, const char *name) const {
  uint64_t at = hashText(name) & nameMask;
  while (names[at] && strcmp(wanted.items[names[at] - 1].nameInFile, name) != 0)
    at = (at + 1) & nameMask;
  return at;
}

bool TensorFile::nameTensors(TensorList &wanted, const Taking &taking, Problem &problem) {
  uint64_t slots = 16;
  while (slots < uint64_t(wanted.count) * 2)
    slots *= 2;
  // One table serves all files, which are read one behind the other: memory is never freed, and a library may read many.
  static List<uint32_t> table;
  table.reserve(int64_t(slots));
  if (table.capacity < int64_t(slots)) {
    table = List<uint32_t>();
    table.reserve(int64_t(slots));
  }
  names = table.items;
  memset(names, 0, size_t(slots) * sizeof *names);
  nameMask = slots - 1;
  for (int64_t i = 0; i < wanted.count; ++i) {
    Tensor &tensor = wanted.items[i];
    const char *before = tensor.nameInFile; // in the file that was read last: a library may read the same one often
    tensor.found = tensor.transposed = tensor.initial = false;
    tensor.nameInFile = tensor.name;
    tensor.next = 0;
    char name[512];
    const bool needed = tensor.ofData && !tensor.optional;
    const char *find = "; training finds it in its data: train with this file and `--steps 0`, and take what that run leaves";
    if (taking.names && nameInFile(*taking.names, tensor.name, name, tensor.transposed)) {
      tensor.initial = strcmp(name, "_") == 0;
      if (tensor.initial && needed) {
        problem.set("`names %s` says that `%s` is not in it, and it has no initial value%s", taking.names->name, tensor.name, find);
        return false;
      }
      if (tensor.initial)
        continue;
      tensor.nameInFile = strcmp(name, tensor.name) == 0 ? tensor.name : strcmp(name, before) == 0 ? before : copyText(name, strlen(name));
    } else if (taking.names && (taking.partial || tensor.optional || tensor.likeIfMissing)) {
      continue; // missing
    } else if (taking.names) {
      problem.set("`names %s` does not say what `%s` is called in it%s", taking.names->name, tensor.name, needed ? find : "");
      return false;
    }
    if (tensor.transposed && tensor.shape->rank < 2) {
      problem.set("`names %s` transposes `%s`, which has the shape %s", taking.names->name, tensor.name,
                  describe(*tensor.shape).text);
      return false;
    }
    uint64_t at = slotOf(wanted, tensor.nameInFile);
    tensor.next = names[at];
    names[at] = uint32_t(i + 1);
  }
  return true;
}

namespace {

// The names of a file that are nearest to one that it does not have.
struct NearNames {
  static constexpr int kMost = 3;
  const char *wanted;
  char names[kMost][512];
  int distance[kMost] = {INT32_MAX, INT32_MAX, INT32_MAX};

  // Edits between them where they differ: long paths have long beginnings and ends in common.
  int far(const char *name) const {
    const char *a = wanted, *b = name;
    while (*a && *a == *b)
      ++a, ++b;
    size_t n = strlen(a), m = strlen(b);
    while (n && m && a[n - 1] == b[m - 1])
      --n, --m;
    char first[65], second[65];
    if (n > 64 || m > 64)
      return 99;
    snprintf(first, sizeof first, "%.*s", int(n), a);
    snprintf(second, sizeof second, "%.*s", int(m), b);
    return editDistance(first, second);
  }
  void add(const char *name) {
    int here = far(name), at = kMost;
    while (at > 0 && here < distance[at - 1])
      --at;
    for (int i = kMost - 1; i > at; --i) {
      distance[i] = distance[i - 1];
      memcpy(names[i], names[i - 1], sizeof names[i]);
    }
    if (at < kMost) {
      distance[at] = here;
      snprintf(names[at], sizeof names[at], "%s", name);
    }
  }
};

} // namespace

// "; of its names these are nearest: `a`, `b`"
void TensorFile::addNearNames(const char *name, Problem &problem) {
  JsonReader json(fd, 8, headerSize, transfer, 16384);
  static NearNames near;
  near = NearNames{name, {}};
  json.enterObject();
  while (json.nextKey()) {
    if (strcmp(json.key, "__metadata__") != 0)
      near.add(json.key);
    json.skipValue();
  }
  char text[sizeof problem.text];
  size_t used = size_t(snprintf(text, sizeof text, "%s", problem.text));
  for (int i = 0; i < NearNames::kMost && near.distance[i] != INT32_MAX && used < sizeof text; ++i)
    used += size_t(snprintf(text + used, sizeof text - used, "%s`%.100s`", i ? ", " : "; of its names these are nearest: ", near.names[i]));
  memcpy(problem.text, text, sizeof text);
}

bool TensorFile::readHeader(TensorList &wanted, const Taking &taking, Problem &problem) {
  Problem leftOver; // the first tensor that nobody wants: where a map is wrong, what it asks for comes first
  JsonReader json(fd, 8, headerSize, transfer, 16384);
  covered = 0;
  json.enterObject();
  while (json.nextKey()) {
    bool good = strcmp(json.key, "__metadata__") == 0 ? readInfo(json) : readTensor(json, wanted, taking, problem);
    if (!good && !json.failed() && isLeftOver && taking.names) {
      if (!leftOver.text[0])
        leftOver = problem;
    } else if (!good && !json.failed()) {
      return false; // `problem` says why
    }
  }
  json.finish();
  if (json.failed()) {
    problem.set("its header is damaged at byte %lld: %s", (long long)(8 + json.position()), json.why());
    return false;
  }
  int64_t dataSize = size - 8 - headerSize;
  if (covered != dataSize) {
    problem.set("its tensors cover %lld bytes, but %lld bytes of data follow its header%s", (long long)covered,
                (long long)dataSize, covered > dataSize ? ": it is truncated" : "");
    return false;
  }
  bool any = false;
  for (int64_t i = 0; i < wanted.count; ++i) {
    Tensor &tensor = wanted.items[i];
    for (int64_t k = 0; !tensor.found && tensor.likeIfMissing && k < wanted.count; ++k)
      if (wanted.items[k].found && strcmp(wanted.items[k].name, tensor.likeIfMissing) == 0) {
        tensor.found = true;
        tensor.transposed = wanted.items[k].transposed;
        tensor.fileType = wanted.items[k].fileType;
        tensor.fileOffset = wanted.items[k].fileOffset;
      }
    any |= tensor.found;
    if (!tensor.found && !taking.partial && !tensor.optional && !tensor.initial) {
      bool renamed = strcmp(tensor.name, tensor.nameInFile) != 0;
      problem.set("the tensor `%s`%s%s%s is missing in it", tensor.nameInFile, renamed ? " (here `" : "",
                  renamed ? tensor.name : "", renamed ? "`)" : "");
      addNearNames(tensor.nameInFile, problem);
      return false;
    }
  }
  if (leftOver.text[0]) {
    problem = leftOver;
    return false;
  }
  if (!any && wanted.count) {
    problem.set("no tensor of it has the name of a parameter of this program, such as `%s`", wanted.items[0].nameInFile);
    return false;
  }
  return true;
}

bool TensorFile::readInfo(JsonReader &json) {
  json.enterObject();
  while (json.nextKey()) {
    if (!json.readString())
      return false;
    auto keep = [&](const char *key, char *into, size_t capacity) {
      if (strcmp(json.key, key) == 0)
        snprintf(into, capacity, "%s", json.text);
    };
    keep("check", info.check, sizeof info.check);
    keep("cinch", info.kind, sizeof info.kind);
    keep("program", info.program, sizeof info.program);
    keep("hash", info.hash, sizeof info.hash);
    keep("best", info.best, sizeof info.best);
    static const char *const numbers[] = {"loss", "norm", "lr"};
    for (int i = 0; i < 3; ++i)
      if (strcmp(json.key, numbers[i]) == 0)
        info.last[i] = strtod(json.text, nullptr);
    for (Note &note : info.notes)
      keep(note.key, note.text, sizeof note.text);
    for (DataMark &mark : info.data)
      if (strncmp(json.key, "data.", 5) == 0 && strcmp(json.key + 5, mark.field) == 0) {
        const char *space = strchr(json.text, ' ');
        char *end = nullptr;
        snprintf(mark.type, sizeof mark.type, "%.*s", int(space ? space - json.text : 0), json.text);
        mark.bytes = space ? strtoll(space, &end, 10) : 0;
        mark.crc = space ? uint32_t(strtoul(end, nullptr, 16)) : 0;
      }
    if (strcmp(json.key, "step") == 0)
      info.step = strtoll(json.text, nullptr, 10);
    if (strcmp(json.key, "pending") == 0)
      info.pending = json.text[0] == '1';
  }
  return !json.failed();
}

int64_t bytesOf(FileType type) {
  return type == FileType::F64 ? 8 : type == FileType::Bool ? 1 : type == FileType::F16 || type == FileType::BF16 ? 2 : 4;
}

// Whether a tensor in memory can take values of a safetensors type; then `type` says which.
static bool takes(const Tensor &tensor, const char *written, FileType &type) {
  static const struct {
    const char *name;
    FileType type;
  } types[] = {{"F32", FileType::F32}, {"F64", FileType::F64}, {"F16", FileType::F16}, {"BF16", FileType::BF16},
               {"I32", FileType::I32}, {"BOOL", FileType::Bool}};
  for (const auto &known : types)
    if (strcmp(known.name, written) == 0) {
      type = known.type;
      bool real = tensor.elem == Elem::F32 || tensor.elem == Elem::F64;
      return real ? type < FileType::I32 : strcmp(written, nameOf(tensor.elem)) == 0;
    }
  return false;
}

// Bytes of a value of a safetensors type, 0 if unknown.
static int64_t bytesOfType(const char *type) {
  static const struct {
    const char *name;
    int64_t bytes;
  } types[] = {{"F64", 8}, {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"I64", 8},  {"U64", 8},     {"I32", 4},    {"U32", 4},
               {"I16", 2}, {"U16", 2}, {"I8", 1},  {"U8", 1},   {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}};
  for (const auto &known : types)
    if (strcmp(known.name, type) == 0)
      return known.bytes;
  return 0;
}

// What the header of a file says about one tensor.
struct TensorFile::Described {
  char name[512], type[16] = "";
  Shape shape;
  int64_t count = 1, begin = -1, end = -1; // elements; bytes behind the header
  bool tooLarge = false, hasShape = false;
};

// False: more than a tensor can have.
static bool readShape(JsonReader &json, Shape &shape, int64_t &count) {
  bool fits = true;
  json.enterArray();
  while (json.nextItem()) {
    int64_t dim = 0;
    json.readInteger(dim);
    if (dim < 0 || shape.rank == 12 || (dim && count > (int64_t(1) << 50) / dim)) {
      fits = false;
      continue;
    }
    count *= dim;
    shape.dims[shape.rank++] = dim;
  }
  return fits;
}

bool TensorFile::readDescription(JsonReader &json, Described &found) {
  json.enterObject();
  while (json.nextKey()) {
    if (strcmp(json.key, "dtype") == 0) {
      if (json.readString())
        snprintf(found.type, sizeof found.type, "%.15s", json.text);
    } else if (strcmp(json.key, "shape") == 0) {
      found.hasShape = true;
      found.tooLarge |= !readShape(json, found.shape, found.count);
    } else if (strcmp(json.key, "data_offsets") == 0) {
      int n = 0;
      json.enterArray();
      while (json.nextItem()) {
        int64_t value = 0;
        json.readInteger(value);
        (n == 0 ? found.begin : found.end) = value;
        ++n;
      }
      if (n != 2)
        found.begin = -1;
    } else {
      json.skipValue();
    }
  }
  return !json.failed();
}

// Do type, shape and bytes agree, and do the bytes lie in the file?
bool TensorFile::checkDescription(const Described &found, Problem &problem) const {
  int64_t unit = bytesOfType(found.type), dataSize = size - 8 - headerSize;
  if (!unit) {
    problem.set("the tensor `%s` has the unknown type `%s`", found.name, found.type);
    return false;
  }
  if (found.tooLarge || !found.hasShape || found.begin < 0 || found.end < found.begin || found.end - found.begin != found.count * unit) {
    problem.set("the tensor `%s` is described wrongly: type %s, shape %s, bytes %lld to %lld", found.name, found.type,
                describe(found.shape).text, (long long)found.begin, (long long)found.end);
    return false;
  }
  if (found.end > dataSize) {
    problem.set("it is truncated: the tensor `%s` ends at byte %lld of %lld", found.name, (long long)found.end,
                (long long)dataSize);
    return false;
  }
  return true;
}

// A tensor that the program does not have: may it be passed over?
static bool passOver(const TensorList &wanted, const Taking &taking, const char *name, Problem &problem) {
  if (taking.partial || taking.passesOver(name) || (taking.names && notWanted(*taking.names, name)))
    return true;
  const char *nearest = nullptr;
  int least = 4;
  for (int64_t i = 0; i < wanted.count; ++i)
    if (!wanted.items[i].initial && editDistance(wanted.items[i].nameInFile, name) < least) { // an initial one is not sought
      least = editDistance(wanted.items[i].nameInFile, name);
      nearest = wanted.items[i].nameInFile;
    }
  Text drop;
  if (taking.names)
    drop.add("; `\"_\" = \"%s\"` in `names %s` passes it over", name, taking.names->name);
  problem.set("its tensor `%s` is no parameter of this program%s%s%s%s", name, nearest ? "; did you mean `" : "",
              nearest ? nearest : "", nearest ? "`?" : "", drop.data);
  return false;
}

// Notes in `tensor` where it lies in the file, if it is of the right shape and type there.
bool TensorFile::take(const Described &found, Tensor &tensor, const Taking &taking, Problem &problem) const {
  if (tensor.found) {
    problem.set("the tensor `%s` stands in it twice", found.name);
    return false;
  }
  Shape expected = *tensor.shape;
  if (tensor.transposed) {
    expected.dims[expected.rank - 1] = tensor.shape->dims[expected.rank - 2];
    expected.dims[expected.rank - 2] = tensor.shape->dims[expected.rank - 1];
  }
  bool sameShape = found.shape.rank == expected.rank;
  for (int i = 0; sameShape && i < expected.rank; ++i)
    sameShape = found.shape.dims[i] == expected.dims[i];
  if (!sameShape) {
    Text leave; // where a part of a file is wanted
    if (taking.partial || taking.names)
      leave.add("; a `names` block with the lines `\"%s\" = \"_\"` and `\"_\" = \"%s\"` leaves it as the program begins it", tensor.name, found.name);
    problem.set("the tensor `%s` has shape %s in it, expected %s%s%s", found.name, describe(found.shape).text, describe(expected).text,
                tensor.transposed ? ", which is transposed" : "", leave.size ? leave.data : "");
    return false;
  }
  if (!takes(tensor, found.type, tensor.fileType)) {
    bool real = tensor.elem == Elem::F32 || tensor.elem == Elem::F64;
    problem.set("the tensor `%s` is %s in it, expected %s", found.name, found.type, real ? "F32, F64, F16 or BF16" : nameOf(tensor.elem));
    return false;
  }
  tensor.found = true;
  tensor.fileOffset = 8 + headerSize + found.begin;
  return true;
}

bool TensorFile::readTensor(JsonReader &json, TensorList &wanted, const Taking &taking, Problem &problem) {
  Described found;
  isLeftOver = false;
  if (json.cut || strlen(json.key) >= sizeof found.name) {
    problem.set("a tensor's name is longer than %zu bytes", sizeof found.name - 1);
    return false;
  }
  snprintf(found.name, sizeof found.name, "%s", json.key);
  if (!readDescription(json, found) || !checkDescription(found, problem))
    return false;
  covered += found.end - found.begin;
  uint64_t at = slotOf(wanted, found.name);
  isLeftOver = !names[at];
  if (isLeftOver)
    return passOver(wanted, taking, found.name, problem);
  for (uint32_t number = names[at]; number; number = wanted.items[number - 1].next)
    if (!take(found, wanted.items[number - 1], taking, problem))
      return false;
  return true;
}

void TensorFile::unexpected(const TensorList &wanted, const Taking &taking, void (*each)(void *, const char *),
                            void *closure) {
  JsonReader json(fd, 8, headerSize, transfer, 16384);
  json.enterObject();
  while (json.nextKey()) {
    bool known = strcmp(json.key, "__metadata__") == 0 || names[slotOf(wanted, json.key)] ||
                 taking.passesOver(json.key) ||
                 (taking.names && notWanted(*taking.names, json.key));
    if (!known)
      each(closure, json.key);
    json.skipValue();
  }
}

bool TensorFile::verify(Problem &problem) {
  if (!info.check[0])
    return true;
  uint32_t crc[2] = {0, 0};
  static const char mark[] = "{\"__metadata__\":{\"check\":\"";
  const int64_t digits = 8 + int64_t(sizeof mark) - 1;
  for (int part = 0; part < 2; ++part) { // the data, then the header
    int64_t at = part == 0 ? 8 + headerSize : 8, end = part == 0 ? size : 8 + headerSize;
    while (at < end) {
      int64_t now = end - at < int64_t(sizeof transfer) ? end - at : int64_t(sizeof transfer);
      if (!readAt(fd, transfer, size_t(now), at)) {
        problem.set("cannot read it: %s", because());
        return false;
      }
      for (int64_t i = 0; part == 1 && i < 16; ++i)
        if (digits + i >= at && digits + i < at + now)
          transfer[digits + i - at] = '0';
      crc[part] = crc32c(crc[part], transfer, size_t(now));
      at += now;
    }
  }
  char found[17];
  snprintf(found, sizeof found, "%08x%08x", crc[0], crc[1]);
  if (strcmp(found, info.check) != 0) {
    problem.set("it is corrupt: its checksum is %s, but %s was written", found, info.check);
    return false;
  }
  return true;
}

static double realAt(FileType type, const char *at) {
  uint16_t half;
  float single;
  double value;
  switch (type) {
  case FileType::F16: memcpy(&half, at, 2); return halfToDouble(half);
  case FileType::BF16: {
    memcpy(&half, at, 2);
    uint32_t bits = uint32_t(half) << 16;
    memcpy(&single, &bits, 4);
    return double(single);
  }
  case FileType::F64: memcpy(&value, at, 8); return value;
  default: memcpy(&single, at, 4); return double(single);
  }
}

void storeFromFile(const Tensor &tensor, char *data, int64_t part, int64_t first, int64_t count, const char *values) {
  const bool real = tensor.elem == Elem::F32 || tensor.elem == Elem::F64;
  // Element k of the file belongs to place k, or with the last two axes swapped: matrix, row, column there.
  int rank = tensor.shape->rank;
  int64_t rows = tensor.transposed ? tensor.shape->dims[rank - 1] : 1, cols = tensor.transposed ? tensor.shape->dims[rank - 2] : 1;
  auto placeOf = [&](int64_t k) { return k / (rows * cols) * (rows * cols) + k % cols * rows + k / cols % rows; };
  const int64_t unit = bytesOf(tensor.fileType), own = bytesOf(tensor.elem);
  for (int64_t k = 0; k < count; ++k) {
    const char *from = values + k * unit;
    int64_t place = placeOf(first + k);
    if (tensor.parts > 1 && (place = placeInPart(place, part, tensor.shape->count(), tensor.before, tensor.parts)) < 0)
      continue;
    char *into = data + place * own;
    double value = real ? realAt(tensor.fileType, from) : 0;
    float narrow = float(value);
    if (!real)
      memcpy(into, from, size_t(own));
    else if (tensor.elem == Elem::F64)
      memcpy(into, &value, 8);
    else
      memcpy(into, &narrow, 4);
  }
}

bool TensorFile::loadTensor(TensorList &tensors, int64_t number) {
  Tensor &tensor = tensors.items[number];
  const bool real = tensor.elem == Elem::F32 || tensor.elem == Elem::F64;
  const bool same = !real || (tensor.fileType == FileType::F64) == (tensor.elem == Elem::F64);
  const bool halves = tensor.fileType == FileType::F16 || tensor.fileType == FileType::BF16;
  const int64_t copies = tensor.copies ? tensor.copies->size : 0;
  if (tensor.data && same && !halves && !tensor.transposed && copies == 0)
    return readAt(fd, tensor.data, size_t(tensor.bytes()), tensor.fileOffset);
  const int64_t count = tensor.shape->count(), unit = bytesOf(tensor.fileType), perPiece = int64_t(sizeof transfer) / unit;
  for (int64_t first = 0; first < count; first += perPiece) {
    int64_t now = count - first < perPiece ? count - first : perPiece;
    if (!readAt(fd, transfer, size_t(now * unit), tensor.fileOffset + first * unit))
      return false;
    auto storeAt = [&](int64_t offset, char *data, int64_t part) {
      if (data)
        storeFromFile(tensor, data, part, first, now, transfer);
      else
        peers->store(tensors, number, offset, part, first, now, transfer, now * unit);
    };
    storeAt(tensor.offset, tensor.data, 0);
    for (int64_t i = 0; i < copies; ++i)
      storeAt((*tensor.copies)[i], isHere((*tensor.copies)[i]) ? arenaAt((*tensor.copies)[i]) : nullptr, (i + 1) % tensor.parts);
  }
  return true;
}

bool TensorFile::checkNumbers(const Tensor &tensor, Problem &problem) {
  const int64_t count = tensor.shape->count(), unit = bytesOf(tensor.fileType), perPiece = int64_t(sizeof transfer) / unit;
  for (int64_t first = 0; first < count; first += perPiece) {
    const int64_t now = count - first < perPiece ? count - first : perPiece;
    if (!readAt(fd, transfer, size_t(now * unit), tensor.fileOffset + first * unit)) {
      problem.set("cannot read it: %s", because());
      return false;
    }
    for (int64_t i = 0; i < now; ++i) {
      const double value = realAt(tensor.fileType, transfer + i * unit);
      if (tensor.elem == Elem::F32 && __builtin_isfinite(value) && !__builtin_isfinite(float(value))) {
        problem.set("the tensor `%s` has %g in it, as element %lld (counted from 0): that does not fit f32", tensor.nameInFile, value,
                    (long long)(first + i));
        return false;
      }
      if (tensor.numbers == Tensor::Any)
        continue;
      if (__builtin_isfinite(value) && (tensor.numbers == Tensor::Finite || value > 0))
        continue;
      problem.set("`%s` has %g in column %lld; expected %s", tensor.nameInFile, value, (long long)(first + i),
                  tensor.numbers == Tensor::Finite ? "a finite number" : "a finite number above 0");
      return false;
    }
  }
  return true;
}

bool TensorFile::check(const TensorList &wanted, Problem &problem) {
  for (int64_t i = 0; i < wanted.count; ++i) {
    const Tensor &tensor = wanted.items[i];
    const bool narrows = tensor.elem == Elem::F32 && tensor.fileType == FileType::F64;
    if (tensor.found && (narrows || tensor.numbers != Tensor::Any) && !checkNumbers(tensor, problem))
      return false;
  }
  return true;
}

bool TensorFile::load(TensorList &wanted, Problem &problem) {
  if (!check(wanted, problem))
    return false;
  for (int64_t i = 0; i < wanted.count; ++i)
    if (wanted.items[i].found && !loadTensor(wanted, i)) {
      problem.set("cannot read it: %s", because());
      return false;
    }
  return true;
}

} // namespace cinch::rt
