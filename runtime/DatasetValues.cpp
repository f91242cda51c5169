// DatasetValues.cpp: raw values to the program's types, and the check of every value before step 1.
// An f32 field is f32(value) * f32(scale); in f64, f64(value) * scale. Each operation is rounded once.
#include "runtime/Checksum.h"
#include "runtime/Dataset.h"
#include "runtime/Output.h"
#include "runtime/Random.h"
#include "runtime/Run.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cinch::rt {

double halfToDouble(uint64_t bits) {
  int exponent = int(bits >> 10 & 31), fraction = int(bits & 1023);
  double value = exponent == 0    ? fraction * 0x1p-24
                 : exponent == 31 ? (fraction ? __builtin_nan("") : __builtin_inf())
                                  : (1024 + fraction) * 0x1p-25 * double(uint64_t(1) << exponent);
  return bits & 0x8000 ? -value : value;
}

namespace {

uint64_t rawBits(const char *at, int64_t unit, bool bigEndian) {
  uint64_t bits = 0;
  for (int64_t i = 0; i < unit; ++i)
    bits |= uint64_t(static_cast<unsigned char>(at[bigEndian ? unit - 1 - i : i])) << 8 * i;
  return bits;
}

Number ofReal(double value) { // tables of text hold whole numbers as floating-point ones
  bool whole = value >= -0x1p53 && value <= 0x1p53 && double(int64_t(value)) == value;
  return {whole ? int64_t(value) : 0, value, whole};
}

inline Number decode(RawType raw, const char *at, bool bigEndian) {
  uint64_t bits = rawBits(at, bytesOf(raw), bigEndian);
  int64_t whole = 0;
  switch (raw) {
  case RawType::U8:
  case RawType::Bool:
  case RawType::U16:
  case RawType::U32: whole = int64_t(bits); break;
  case RawType::U64: // beyond i64: no i32 can hold it either way
    return {bits > uint64_t(INT64_MAX) ? INT64_MAX : int64_t(bits), double(bits), true};
  case RawType::I8: whole = int8_t(bits); break;
  case RawType::I16: whole = int16_t(bits); break;
  case RawType::I32: whole = int32_t(bits); break;
  case RawType::I64: whole = int64_t(bits); break;
  case RawType::F16: return ofReal(halfToDouble(bits));
  case RawType::BF16: // the upper half of an f32
  case RawType::F32: {
    uint32_t narrow = raw == RawType::BF16 ? uint32_t(bits) << 16 : uint32_t(bits);
    float value;
    memcpy(&value, &narrow, 4);
    return ofReal(double(value));
  }
  case RawType::F64: {
    double value;
    memcpy(&value, &bits, 8);
    return ofReal(value);
  }
  }
  return {whole, double(whole), true};
}

template <typename Read> void convertTo(Elem elem, double scale, int64_t count, char *into, Read read) {
  const float narrow = float(scale);
  auto each = [&](auto *values, auto value) {
    for (int64_t i = 0; i < count; ++i)
      values[i] = value(read(i));
  };
  switch (elem) {
  case Elem::F32: each(reinterpret_cast<float *>(into), [=](Number number) { return float(number.real) * narrow; }); break;
  case Elem::F64: each(reinterpret_cast<double *>(into), [=](Number number) { return number.real * scale; }); break;
  case Elem::I32: each(reinterpret_cast<int32_t *>(into), [](Number number) { return int32_t(number.whole); }); break;
  case Elem::Bool: each(into, [](Number number) { return char(number.whole != 0); }); break;
  case Elem::BF16: break; // no field is
  }
}

// Values as this machine has them: a loop for each type, since a step waits for its batch.
template <typename Raw> void convertNative(Elem elem, double scale, int64_t count, const char *raw, char *into) {
  convertTo(elem, scale, count, into, [=](int64_t i) {
    Raw value;
    memcpy(&value, raw + i * int64_t(sizeof value), sizeof value);
    if constexpr (Raw(0.5) != Raw(0))
      return ofReal(double(value));
    else
      return Number{int64_t(value), double(value), true};
  });
}

// Null: values of that type take the slow way.
decltype(convertNative<float>) *nativeOf(RawType raw) {
  switch (raw) {
  case RawType::U8: return convertNative<uint8_t>;
  case RawType::I8: return convertNative<int8_t>;
  case RawType::U16: return convertNative<uint16_t>;
  case RawType::I16: return convertNative<int16_t>;
  case RawType::U32: return convertNative<uint32_t>;
  case RawType::I32: return convertNative<int32_t>;
  case RawType::I64: return convertNative<int64_t>;
  case RawType::F32: return convertNative<float>;
  case RawType::F64: return convertNative<double>;
  case RawType::Bool:
  case RawType::U64:
  case RawType::F16:
  case RawType::BF16: return nullptr;
  }
  return nullptr;
}

} // namespace

void convertValues(const FieldFile &file, const FieldSpec &field, const char *raw, int64_t first, int64_t count, Elem elem,
                   char *into) {
  if (file.mean) {
    for (int64_t i = 0, column = first % file.columns; i < count; ++i, column = column + 1 == file.columns ? 0 : column + 1) {
      const double read = decode(file.raw, raw + bytesOf(file.raw) * i, file.bigEndian).real;
      const double value = isGap(file, read) ? 0 : (read - file.mean[column]) / file.deviation[column];
      if (elem == Elem::F64)
        reinterpret_cast<double *>(into)[i] = value;
      else
        reinterpret_cast<float *>(into)[i] = float(value);
    }
    return;
  }
  const int64_t unit = bytesOf(file.raw);
  auto *native = file.bigEndian && unit > 1 ? nullptr : nativeOf(file.raw);
  if (native)
    native(elem, field.scale, count, raw, into);
  else
    convertTo(elem, field.scale, count, into, [&](int64_t i) { return decode(file.raw, raw + i * unit, file.bigEndian); });
}

void readReals(const FieldFile &file, int64_t first, int64_t count, double *into) {
  static char buffer[16384];
  const int64_t unit = bytesOf(file.raw), most = int64_t(sizeof buffer) / unit;
  for (int64_t done = 0; done < count;) {
    const int64_t now = count - done < most ? count - done : most;
    if (!readAt(file.fd, buffer, size_t(now * unit), file.dataOffset + (first + done) * unit))
      fail(kData, "cannot read %s: %s", file.path.text, errno ? strerror(errno) : "it became shorter while it was read");
    for (int64_t i = 0; i < now; ++i)
      into[done + i] = decode(file.raw, buffer + i * unit, file.bigEndian).real;
    done += now;
  }
}

// ---- The check
// ---------------------------------------------------------------------------------------------------------------

void checkNumber(const FieldFile &file, const FieldSpec &field, Number number, const char *where) {
  if (field.elem == Elem::F32 || field.elem == Elem::F64) {
    const bool isF32 = field.elem == Elem::F32; // and what convertTo makes of it
    const double value = isF32 ? double(float(number.real) * float(field.scale)) : number.real * field.scale;
    if (!__builtin_isfinite(value) && __builtin_isfinite(number.real)) {
      char scale[40], scaled[64] = "";
      if (field.scale != 1)
        snprintf(scaled, sizeof scaled, ", with its scale of %s,", exact(scale, field.scale, false));
      fail(kData, "%s: field `%s` has %g %s, which%s is too large for %s", file.path.text, field.name, number.real, where, scaled, isF32 ? "f32" : "f64");
    }
    if (!__builtin_isfinite(value))
      fail(kData, "%s: field `%s` has %g %s; every value must be finite", file.path.text, field.name, number.real,
           where);
    return;
  }
  if (!number.isWhole)
    fail(kData, "%s: field `%s` needs whole numbers, but has %g %s", file.path.text, field.name, number.real, where);
  if (field.elem == Elem::Bool) {
    if (number.whole < 0 || number.whole > 1)
      fail(kData, "%s: field `%s` is bool, but has %lld %s", file.path.text, field.name, (long long)number.whole,
           where);
    return;
  }
  if (field.hasExcept && number.whole == field.except)
    return;
  if (field.hasBelow && (number.whole < 0 || number.whole >= field.below))
    fail(kData, "%s: field `%s` is declared below %lld, but has %lld %s", file.path.text, field.name,
         (long long)field.below, (long long)number.whole, where);
  if (number.whole < INT32_MIN || number.whole > INT32_MAX)
    fail(kData, "%s: field `%s` is i32, but has %lld %s", file.path.text, field.name, (long long)number.whole, where);
}

static void checkOne(const FieldFile &file, const FieldSpec &field, bool windows, int64_t index, const char *at) {
  char where[96];
  if (windows)
    snprintf(where, sizeof where, "at position %lld", (long long)index);
  else if (file.firstRow >= 0)
    snprintf(where, sizeof where, "in row %lld, value %lld", (long long)(file.firstRow + index / file.columns), (long long)(index % file.columns));
  else
    snprintf(where, sizeof where, "in example %lld, value %lld", (long long)(index / file.count),
             (long long)(index % file.count));
  const Number number = decode(file.raw, at, file.bigEndian);
  if (!isGap(file, number.real))
    checkNumber(file, field, number, where);
}

// No value of this raw type can be wrong for the field.
static bool cannotFail(const FieldFile &file, const FieldSpec &field) {
  int64_t width = bytesOf(file.raw);
  bool isUnsigned = file.raw == RawType::U8 || file.raw == RawType::U16 || file.raw == RawType::Bool;
  if (field.elem == Elem::F32 || field.elem == Elem::F64)
    return !isFloat(file.raw) && __builtin_fabs(field.scale) <= 1e18; // whole numbers are below 2e19, f32 goes to 3e38
  return field.elem == Elem::I32 && isUnsigned && (!field.hasBelow || field.below >= int64_t(1) << 8 * width);
}

// The bytes [at, end), whose first value is number `index` of the file's. Goes on with the checksum.
static uint32_t checkRange(const FieldFile &file, const FieldSpec &field, bool windows, int64_t at, int64_t end, int64_t index,
                           uint32_t crc) {
  static char buffer[65536];
  int64_t unit = bytesOf(file.raw);
  bool skip = cannotFail(file, field);
  // The narrow unsigned types are compared in a loop that the compiler vectorises; the slow way names the value.
  int64_t limit = field.hasBelow && !field.hasExcept && field.elem == Elem::I32 ? field.below : 0;
  while (at < end) {
    int64_t now = end - at < int64_t(sizeof buffer) ? end - at : int64_t(sizeof buffer);
    now -= now % unit;
    if (now == 0)
      break;
    if (!readAt(file.fd, buffer, size_t(now), at))
      fail(kData, "cannot read %s: %s", file.path.text,
           errno ? strerror(errno) : "it became shorter while it was read");
    crc = crc32c(crc, buffer, size_t(now));
    if (!skip) {
      bool fine = false;
      if (limit > 0 && file.raw == RawType::U8) {
        unsigned most = 0;
        for (int64_t i = 0; i < now; ++i)
          most = static_cast<unsigned char>(buffer[i]) > most ? static_cast<unsigned char>(buffer[i]) : most;
        fine = int64_t(most) < limit;
      } else if (limit > 0 && file.raw == RawType::U16 && !file.bigEndian) {
        const uint16_t *values = reinterpret_cast<const uint16_t *>(buffer);
        unsigned most = 0;
        for (int64_t i = 0; i < now / 2; ++i)
          most = values[i] > most ? values[i] : most;
        fine = int64_t(most) < limit;
      }
      if (!fine)
        for (int64_t i = 0; i < now / unit; ++i)
          checkOne(file, field, windows, index + i, buffer + i * unit);
    }
    index += now / unit;
    at += now;
  }
  return crc;
}

// Values that lie apart are checked example by example.
static uint32_t checkFile(const FieldFile &file, const FieldSpec &field, bool windows) {
  int64_t bytes = file.count * bytesOf(file.raw);
  if (windows || file.firstRow >= 0 || file.exampleStep == bytes)
    return checkRange(file, field, windows, file.dataOffset, file.dataEnd, 0, 0);
  uint32_t crc = 0;
  for (int64_t example = 0; example < file.here; ++example) {
    int64_t at = file.dataOffset + example * file.exampleStep;
    crc = checkRange(file, field, false, at, at + bytes, example * file.count, crc);
  }
  return crc;
}

// One line a file that passed: hash of what was asked of it, size, time of the last change, checksum, path.
static bool isRemembered(const char *out, uint64_t asked, int64_t size, long long time, const char *path,
                         uint32_t &crc) {
  Path name;
  joinPath(name, out, "data-checked.txt");
  const char *why;
  int64_t bytes;
  int fd = openToRead(name.text, bytes, why);
  if (fd < 0)
    return false;
  char wanted[64];
  snprintf(wanted, sizeof wanted, "%016llx %lld %lld ", (unsigned long long)asked, (long long)size, time);
  char text[16384];
  ssize_t n = read(fd, text, sizeof text - 1);
  close(fd);
  if (n <= 0)
    return false;
  text[n] = 0;
  for (char *line = text; *line;) {
    char *end = strchr(line, '\n');
    if (!end)
      return false;
    *end = 0;
    if (strncmp(line, wanted, strlen(wanted)) == 0) {
      char *space;
      crc = uint32_t(strtoul(line + strlen(wanted), &space, 16));
      if (*space == ' ' && strcmp(space + 1, path) == 0)
        return true;
    }
    line = end + 1;
  }
  return false;
}

static void remember(const char *out, uint64_t asked, int64_t size, long long time, uint32_t crc, const char *path) {
  Path name;
  joinPath(name, out, "data-checked.txt");
  struct stat status;
  bool restart = stat(name.text, &status) == 0 && status.st_size > 12000;
  int fd = open(name.text, O_WRONLY | O_CREAT | O_APPEND | O_NONBLOCK | O_CLOEXEC | (restart ? O_TRUNC : 0), 0666);
  if (fd < 0)
    return; // the next start checks again
  Text line;
  line.add("%016llx %lld %lld %08x %s\n", (unsigned long long)asked, (long long)size, time, crc, path);
  (void)writeAll(fd, line.data, line.size);
  close(fd);
}

// An array in a ZIP file has the checksum that the directory says.
static void checkStored(const FieldFile &file, const char *name) {
  static char buffer[16384];
  uint32_t crc = 0;
  for (int64_t at = file.storedAt; at < file.storedEnd;) {
    int64_t now = file.storedEnd - at < int64_t(sizeof buffer) ? file.storedEnd - at : int64_t(sizeof buffer);
    if (!readAt(file.fd, buffer, size_t(now), at))
      fail(kData, "cannot read %s: %s", file.path.text, errno ? strerror(errno) : "it became shorter while it was read");
    crc = crc32OfZip(crc, buffer, size_t(now));
    at += now;
  }
  if (crc != file.storedCrc && file.storedEnd > file.storedAt)
    fail(kData, "%s: `%s` is damaged: its checksum is another one", file.path.text, name);
}

void sumSource(FieldFile &file, const DatasetSpec &spec, const char *out) {
  static char buffer[65536];
  if (run.options.transport == Transport::Threads || spec.fields.size < 2)
    return;
  struct stat status;
  if (fstat(file.fd, &status) != 0)
    fail(kData, "cannot read %s: %s", file.path.text, strerror(errno));
  const long long time = (long long)status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec;
  const uint64_t asked = hashText("all of its bytes");
  const bool keep = exists(out);
  if (keep && isRemembered(out, asked, file.size, time, file.path.text, file.sourceCrc))
    return;
  for (int64_t at = 0; at < file.size;) {
    const int64_t now = file.size - at < int64_t(sizeof buffer) ? file.size - at : int64_t(sizeof buffer);
    if (!readAt(file.fd, buffer, size_t(now), at))
      fail(kData, "cannot read %s: %s", file.path.text, errno ? strerror(errno) : "it became shorter while it was read");
    file.sourceCrc = crc32c(file.sourceCrc, buffer, size_t(now));
    at += now;
  }
  if (keep)
    remember(out, asked, file.size, time, file.sourceCrc, file.path.text);
}

static void checkOneFile(const DatasetSpec &spec, const FieldSpec &field, FieldFile &file, const char *out) {
  bool windows = strcmp(spec.source, "text") == 0 || strcmp(spec.source, "tokens") == 0;
  struct stat status;
  if (fstat(file.fd, &status) != 0)
    fail(kData, "cannot read %s: %s", file.path.text, strerror(errno));
  // The time of modification can be set back, by people and by programs that copy; this one cannot.
  long long time = (long long)status.st_ctim.tv_sec * 1000000000 + status.st_ctim.tv_nsec;
  Text asked;
  asked.add("2 %s %a %d %lld %d %d %lld %d %lld %lld %lld", spec.source, field.scale, int(file.raw), (long long)file.dataOffset,
            int(field.elem), field.hasBelow, (long long)field.below, field.hasExcept, (long long)field.except,
            (long long)file.count, (long long)file.exampleStep);
  if (file.firstRow >= 0)
    asked.add(" rows %lld", (long long)file.rows);
  else if (windows && spec.holdOut > 0)
    asked.add(" to %lld", (long long)file.dataEnd);
  if (file.gaps)
    asked.add(" gaps");
  uint64_t hash = hashText(asked.data);
  bool keep = exists(out);
  if (keep && isRemembered(out, hash, file.size, time, file.path.text, file.crc))
    return;
  checkStored(file, field.from.size ? field.from[0] : field.name);
  file.crc = checkFile(file, field, windows);
  if (keep)
    remember(out, hash, file.size, time, file.crc, file.path.text);
}

void checkValues(Dataset &dataset, int number, const char *out) {
  const DatasetSpec &spec = *dataset.spec;
  FieldFile &first = dataset.fields[number];
  for (FieldFile *file = &first; file; file = file->next)
    checkOneFile(spec, spec.fields[number], *file, out);
  for (FieldFile *file = first.next; file; file = file->next)
    first.crc = crc32c(first.crc, reinterpret_cast<const char *>(&file->crc), sizeof file->crc);
}

} // namespace cinch::rt
