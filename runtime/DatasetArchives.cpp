// DatasetArchives.cpp: arrays inside NPZ (a ZIP of NPY files, as numpy.savez and savez_compressed write it) and safetensors files.
#include "runtime/DatasetKept.h"
#include "runtime/Inflate.h"
#include "runtime/Json.h"
#include "runtime/Output.h"
#include "runtime/Random.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

uint64_t number(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; ++i)
    value |= uint64_t(at[i]) << 8 * i;
  return value;
}

struct Directory {
  int64_t offset = 0, entries = 0;
};

// The end record is the last thing in the file (numpy writes no comment); files beyond 4 GiB have a 64-bit one before
// it.
Directory findDirectory(const FieldFile &file) {
  unsigned char end[22];
  if (file.size < 22)
    fail(kData, "%s: the file is truncated: %lld bytes are no NPZ file", file.path.text, (long long)file.size);
  readDataHeader(file, end, 22, file.size - 22, "NPZ");
  if (number(end, 4) != 0x06054b50)
    fail(kData, "%s: not an NPZ file, or truncated: it does not end like a ZIP file without a comment", file.path.text);
  Directory directory = {int64_t(number(end + 16, 4)), int64_t(number(end + 10, 2))};
  if (directory.offset != 0xffffffff && directory.entries != 0xffff)
    return directory;
  unsigned char locator[20], wide[56];
  if (file.size < 42)
    fail(kData, "%s: the file is truncated", file.path.text);
  readDataHeader(file, locator, 20, file.size - 42, "NPZ");
  int64_t at = int64_t(number(locator + 8, 8));
  if (number(locator, 4) != 0x07064b50 || at < 0 || at > file.size - 56)
    fail(kData, "%s: its 64-bit ZIP directory is damaged", file.path.text);
  readDataHeader(file, wide, 56, at, "NPZ");
  if (number(wide, 4) != 0x06064b50)
    fail(kData, "%s: its 64-bit ZIP directory is damaged", file.path.text);
  return {int64_t(number(wide + 48, 8)), int64_t(number(wide + 32, 8))};
}

// An entry of the directory; where the next one begins.
struct DirectoryEntry {
  unsigned char bytes[46];
  char name[300]; // cut if it is longer
  int64_t nameSize = 0, extraSize = 0, next = 0;
};

void readEntry(const FieldFile &file, int64_t at, DirectoryEntry &entry) {
  if (at < 0 || at > file.size - 46)
    fail(kData, "%s: its ZIP directory is damaged", file.path.text);
  readDataHeader(file, entry.bytes, 46, at, "NPZ");
  entry.nameSize = int64_t(number(entry.bytes + 28, 2)), entry.extraSize = int64_t(number(entry.bytes + 30, 2));
  if (number(entry.bytes, 4) != 0x02014b50 || at + 46 + entry.nameSize + entry.extraSize > file.size)
    fail(kData, "%s: its ZIP directory is damaged", file.path.text);
  const int64_t taken = entry.nameSize < int64_t(sizeof entry.name) - 1 ? entry.nameSize : int64_t(sizeof entry.name) - 1;
  readDataHeader(file, entry.name, taken, at + 46, "NPZ");
  entry.name[taken] = 0;
  entry.next = at + 46 + entry.nameSize + entry.extraSize + int64_t(number(entry.bytes + 32, 2));
}

// A compressed array has no example at a place that is known: it is unpacked once, to OUT/SET.FIELD.npz-values.
void unpack(FieldFile &file, const char *name, int64_t begin, int64_t end, int64_t size, uint32_t checksum, const char *set,
            const char *field, const char *out) {
  KeptFile kept;
  findKept(kept, out, set, field, "npz-values", hashText(name), file);
  if (kept.fd < 0) {
    AtomicFile into;
    const bool begun = beginKept(kept, into);
    if (const char *why = begun ? inflate(file, begin, end, into, size, checksum) : nullptr) {
      abandonFile(into);
      fail(kData, "%s: `%s` is damaged: %s", file.path.text, name, why);
    }
    if (begun)
      endKept(kept, into);
  }
  close(file.fd);
  file.fd = kept.fd;
  file.size = file.dataEnd = kept.size;
  file.dataOffset = kKeptHead;
}

} // namespace

Shape findNpzArray(FieldFile &file, const char *name, const char *set, const char *field, const char *out) {
  char wanted[300];
  snprintf(wanted, sizeof wanted, "%.250s.npy", name);
  Directory directory = findDirectory(file);
  Text names;
  int64_t at = directory.offset;
  for (int64_t i = 0; i < directory.entries; ++i) {
    DirectoryEntry here, other;
    readEntry(file, at, here);
    if (strcmp(here.name, wanted) != 0) {
      const int length = int(strlen(here.name));
      names.add("%s%.*s", i ? ", " : "", length > 4 ? length - 4 : length, here.name);
      at = here.next;
      continue;
    }
    other.next = here.next;
    for (int64_t j = i + 1; j < directory.entries; ++j) {
      readEntry(file, other.next, other);
      if (strcmp(other.name, wanted) == 0)
        fail(kData, "%s: it has two arrays `%s`; save one of them only", file.path.text, name);
    }
    const unsigned char *entry = here.bytes;
    const int64_t nameSize = here.nameSize, extraSize = here.extraSize;
    unsigned char extra[512];
    uint64_t method = number(entry + 10, 2), size = number(entry + 24, 4), packed = number(entry + 20, 4), start = number(entry + 42, 4);
    if (method != 0 && method != 8)
      fail(kData, "%s: `%s` is compressed in a way that is not known; save it with numpy.savez", file.path.text, name);
    int64_t extraTaken = extraSize < int64_t(sizeof extra) ? extraSize : int64_t(sizeof extra);
    readDataHeader(file, extra, extraTaken, at + 46 + nameSize, "NPZ");
    for (int64_t e = 0; e + 4 <= extraTaken;) { // 64-bit values stand here, those that do not fit above
      int64_t length = int64_t(number(extra + e + 2, 2)), next = e + 4;
      if (number(extra + e, 2) == 1 && next + length <= extraTaken) {
        if (size == 0xffffffff && length >= 8)
          size = number(extra + next, 8), next += 8;
        if (packed == 0xffffffff && next + 8 <= e + 4 + length)
          packed = number(extra + next, 8), next += 8;
        if (start == 0xffffffff && next + 8 <= e + 4 + length)
          start = number(extra + next, 8);
      }
      e += 4 + length;
    }
    unsigned char local[30];
    if (start > uint64_t(file.size - 30))
      fail(kData, "%s: its ZIP directory is damaged", file.path.text);
    readDataHeader(file, local, 30, int64_t(start), "NPZ");
    uint64_t data = start + 30 + number(local + 26, 2) + number(local + 28, 2);
    if (number(local, 4) != 0x04034b50 || data > uint64_t(file.size) || packed > uint64_t(file.size) - data || (method == 0 && size != packed) ||
        size > uint64_t(1) << 50)
      fail(kData, "%s: `%s` is truncated or damaged", file.path.text, name);
    file.dataOffset = int64_t(data);
    file.dataEnd = int64_t(data + size);
    if (method == 0)
      file.storedAt = int64_t(data), file.storedEnd = int64_t(data + size), file.storedCrc = uint32_t(number(entry + 16, 4));
    else
      unpack(file, name, int64_t(data), int64_t(data + packed), int64_t(size), uint32_t(number(entry + 16, 4)), set, field, out);
    const char *path = file.path.text;
    Text both;
    both.add("%s, array `%s`", path, name);
    file.path.text = both.data; // for what is wrong with its header
    const Shape shape = readNpyHeader(file);
    file.path.text = path;
    return shape;
  }
  fail(kData, "%s: there is no array `%s` in it; it has %s", file.path.text, name, names.size ? names.data : "none");
}

Shape findTensor(FieldFile &file, const char *name) {
  static char buffer[4096];
  unsigned char head[8];
  readDataHeader(file, head, 8, 0, "safetensors");
  uint64_t length = number(head, 8);
  if (length > uint64_t(100) << 20 || length > uint64_t(file.size - 8))
    fail(kData, "%s: not a safetensors file, or truncated: its header is to have %llu bytes", file.path.text,
         (unsigned long long)length);
  static const struct {
    const char *name;
    RawType raw;
  } types[] = {{"F64", RawType::F64}, {"F32", RawType::F32}, {"F16", RawType::F16}, {"BF16", RawType::BF16}, {"I64", RawType::I64},
               {"U64", RawType::U64}, {"I32", RawType::I32}, {"U32", RawType::U32}, {"I16", RawType::I16},
               {"U16", RawType::U16}, {"I8", RawType::I8},   {"U8", RawType::U8},   {"BOOL", RawType::Bool}};
  JsonReader json(file.fd, 8, int64_t(length), buffer, sizeof buffer);
  Shape shape;
  Text names;
  bool found = false;
  json.enterObject();
  while (json.nextKey()) {
    if (found && strcmp(json.key, name) == 0 && !json.cut)
      fail(kData, "%s: it has two tensors `%s`; save one of them only", file.path.text, name);
    if (strcmp(json.key, name) != 0 || json.cut) {
      if (strcmp(json.key, "__metadata__") != 0)
        names.add("%s%.100s", names.size ? ", " : "", json.key);
      json.skipValue();
      continue;
    }
    found = true;
    int64_t begin = -1, end = -1;
    bool known = false, fits = true;
    char type[16] = "";
    json.enterObject();
    while (json.nextKey()) {
      int n = 0;
      if (strcmp(json.key, "dtype") == 0 && json.readString()) {
        snprintf(type, sizeof type, "%.15s", json.text);
        for (const auto &candidate : types)
          if (strcmp(candidate.name, type) == 0)
            file.raw = candidate.raw, known = true;
      } else if (strcmp(json.key, "shape") == 0) {
        json.enterArray();
        while (json.nextItem()) {
          int64_t dim = 0;
          json.readInteger(dim);
          if (shape.rank < 12)
            shape.dims[shape.rank++] = dim;
          else
            fits = false;
        }
      } else if (strcmp(json.key, "data_offsets") == 0) {
        json.enterArray();
        while (json.nextItem())
          json.readInteger(n++ == 0 ? begin : end);
      } else {
        json.skipValue();
      }
    }
    if (json.failed())
      break;
    if (!known)
      fail(kData, "%s: `%s` has values of type %s, which cannot be read", file.path.text, name, type);
    if (!fits || begin < 0 || end < begin || end > file.size - 8 - int64_t(length))
      fail(kData, "%s: `%s` is truncated or described wrongly", file.path.text, name);
    checkSizes(file, shape);
    file.dataOffset = 8 + int64_t(length) + begin;
    file.dataEnd = 8 + int64_t(length) + end;
  }
  json.finish();
  if (json.failed())
    fail(kData, "%s: its header is damaged at byte %lld: %s", file.path.text, (long long)(8 + json.position()),
         json.why());
  if (!found)
    fail(kData, "%s: there is no tensor `%s` in it; it has %s", file.path.text, name, names.size ? names.data : "none");
  return shape;
}

} // namespace cinch::rt
