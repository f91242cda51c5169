// TensorFileRead.cpp: any safetensors file is read with suspicion: every length, offset and shape is checked before
// use.
#include "runtime/Checksum.h"
#include "runtime/Files.h"
#include "runtime/Json.h"
#include "runtime/Random.h"
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

int editDistance(const char *a, const char *b) {
  int row[65];
  int n = int(strlen(b));
  if (n > 64 || strlen(a) > 64)
    return 99;
  for (int j = 0; j <= n; ++j)
    row[j] = j;
  for (int i = 1; a[i - 1]; ++i) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; ++j) {
      int changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      int shorter = row[j - 1] < row[j] ? row[j - 1] : row[j];
      row[j] = shorter + 1 < changed ? shorter + 1 : changed;
    }
  }
  return row[n];
}

TensorFile::~TensorFile() {
  if (fd >= 0)
    close(fd);
}

static const char *because() { return errno ? strerror(errno) : "unexpected end"; }

bool TensorFile::open(const char *path, TensorList &wanted, const char *ignored, Problem &problem) {
  const char *why;
  fd = openToRead(path, size, why);
  if (fd < 0) {
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
  uint64_t slots = 16;
  while (slots < uint64_t(wanted.count) * 2)
    slots *= 2;
  names = allocateArray<uint32_t>(int64_t(slots));
  nameMask = slots - 1;
  for (int64_t i = 0; i < wanted.count; ++i) {
    wanted.items[i].found = false;
    uint64_t at = hashText(wanted.items[i].name) & nameMask;
    while (names[at])
      at = (at + 1) & nameMask;
    names[at] = uint32_t(i + 1);
  }
  return readHeader(wanted, ignored, problem);
}

bool TensorFile::readHeader(TensorList &wanted, const char *ignored, Problem &problem) {
  JsonReader json(fd, 8, headerSize, transfer, 16384);
  covered = 0;
  json.enterObject();
  while (json.nextKey()) {
    bool good = strcmp(json.key, "__metadata__") == 0 ? readInfo(json) : readTensor(json, wanted, ignored, problem);
    if (!good && !json.failed())
      return false; // `problem` says why
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
  for (int64_t i = 0; i < wanted.count; ++i) {
    Tensor &tensor = wanted.items[i];
    for (int64_t k = 0; !tensor.found && tensor.likeIfMissing && k < wanted.count; ++k)
      if (wanted.items[k].found && strcmp(wanted.items[k].name, tensor.likeIfMissing) == 0) {
        tensor.found = true;
        tensor.fileElem = wanted.items[k].fileElem;
        tensor.fileOffset = wanted.items[k].fileOffset;
      }
    if (!tensor.found) {
      problem.set("the tensor `%s` is missing in it", tensor.name);
      return false;
    }
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

bool TensorFile::readTensor(JsonReader &json, TensorList &wanted, const char *ignored, Problem &problem) {
  char name[512], type[16] = "";
  if (json.cut || strlen(json.key) >= sizeof name) {
    problem.set("a tensor's name is longer than %zu bytes", sizeof name - 1);
    return false;
  }
  snprintf(name, sizeof name, "%s", json.key);
  Shape shape;
  int64_t count = 1, begin = -1, end = -1;
  bool tooLarge = false, hasShape = false;
  json.enterObject();
  while (json.nextKey()) {
    if (strcmp(json.key, "dtype") == 0) {
      if (json.readString())
        snprintf(type, sizeof type, "%.15s", json.text);
    } else if (strcmp(json.key, "shape") == 0) {
      hasShape = true;
      json.enterArray();
      while (json.nextItem()) {
        int64_t dim = 0;
        json.readInteger(dim);
        if (dim < 0 || shape.rank == 12 || (dim && count > (int64_t(1) << 50) / dim)) {
          tooLarge = true;
          continue;
        }
        count *= dim;
        shape.dims[shape.rank++] = dim;
      }
    } else if (strcmp(json.key, "data_offsets") == 0) {
      int n = 0;
      json.enterArray();
      while (json.nextItem()) {
        int64_t value = 0;
        json.readInteger(value);
        (n == 0 ? begin : end) = value;
        ++n;
      }
      if (n != 2)
        begin = -1;
    } else {
      json.skipValue();
    }
  }
  if (json.failed())
    return false;
  int64_t unit = bytesOfType(type), dataSize = size - 8 - headerSize;
  if (!unit) {
    problem.set("the tensor `%s` has the unknown type `%s`", name, type);
    return false;
  }
  if (tooLarge || !hasShape || begin < 0 || end < begin || end - begin != count * unit) {
    problem.set("the tensor `%s` is described wrongly: type %s, shape %s, bytes %lld to %lld", name, type,
                describe(shape).text, (long long)begin, (long long)end);
    return false;
  }
  if (end > dataSize) {
    problem.set("it is truncated: the tensor `%s` ends at byte %lld of %lld", name, (long long)end,
                (long long)dataSize);
    return false;
  }
  covered += end - begin;
  uint64_t at = hashText(name) & nameMask;
  while (names[at] && strcmp(wanted.items[names[at] - 1].name, name) != 0)
    at = (at + 1) & nameMask;
  if (!names[at]) {
    if (ignored && strncmp(name, ignored, strlen(ignored)) == 0)
      return true;
    const char *nearest = nullptr;
    int least = 4;
    for (int64_t i = 0; i < wanted.count; ++i)
      if (editDistance(wanted.items[i].name, name) < least) {
        least = editDistance(wanted.items[i].name, name);
        nearest = wanted.items[i].name;
      }
    problem.set("its tensor `%s` is no parameter of this program%s%s%s", name, nearest ? "; did you mean `" : "",
                nearest ? nearest : "", nearest ? "`?" : "");
    return false;
  }
  Tensor &tensor = wanted.items[names[at] - 1];
  if (tensor.found) {
    problem.set("the tensor `%s` stands in it twice", name);
    return false;
  }
  bool sameShape = shape.rank == tensor.shape->rank;
  for (int i = 0; sameShape && i < shape.rank; ++i)
    sameShape = shape.dims[i] == tensor.shape->dims[i];
  if (!sameShape) {
    problem.set("the tensor `%s` has shape %s in it, expected %s", name, describe(shape).text,
                describe(*tensor.shape).text);
    return false;
  }
  bool real = tensor.elem == Elem::F32 || tensor.elem == Elem::F64;
  if (real ? strcmp(type, "F32") != 0 && strcmp(type, "F64") != 0 : strcmp(type, nameOf(tensor.elem)) != 0) {
    problem.set("the tensor `%s` is %s in it, expected %s", name, type, real ? "F32 or F64" : nameOf(tensor.elem));
    return false;
  }
  tensor.found = true;
  tensor.fileElem = strcmp(type, "F64") == 0 ? Elem::F64 : strcmp(type, "F32") == 0 ? Elem::F32 : tensor.elem;
  tensor.fileOffset = 8 + headerSize + begin;
  return true;
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

bool TensorFile::load(TensorList &wanted, Problem &problem) {
  for (int64_t i = 0; i < wanted.count; ++i) {
    Tensor &tensor = wanted.items[i];
    bool good = true;
    if (tensor.fileElem == tensor.elem) {
      good = readAt(fd, tensor.data, size_t(tensor.bytes()), tensor.fileOffset);
    } else {
      int64_t count = tensor.shape->count(), unit = bytesOf(tensor.fileElem),
              perChunk = int64_t(sizeof transfer) / unit;
      for (int64_t done = 0; good && done < count; done += perChunk) {
        int64_t now = count - done < perChunk ? count - done : perChunk;
        good = readAt(fd, transfer, size_t(now * unit), tensor.fileOffset + done * unit);
        for (int64_t k = 0; good && k < now; ++k)
          if (tensor.elem == Elem::F64) {
            float value;
            memcpy(&value, transfer + 4 * k, 4);
            reinterpret_cast<double *>(tensor.data)[done + k] = double(value);
          } else {
            double value;
            memcpy(&value, transfer + 8 * k, 8);
            reinterpret_cast<float *>(tensor.data)[done + k] = float(value);
          }
      }
    }
    if (!good) {
      problem.set("cannot read it: %s", because());
      return false;
    }
  }
  return true;
}

} // namespace cinch::rt
