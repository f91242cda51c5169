// TensorFileWrite.cpp: u64 length of the header, a JSON header padded to 8 bytes, the data without holes.
#include "runtime/Checksum.h"
#include "runtime/Files.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/TensorFile.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <string.h>

namespace cinch::rt {

namespace {

// The header is produced twice: once to measure it, once to write it.
struct HeaderSink {
  int fd = -1; // -1: only measured
  int64_t size = 0;
  uint32_t crc = 0;
  bool good = true;
  char buffer[4096];
  size_t used = 0;

  void flush() {
    if (fd >= 0 && good && used)
      good = writeAll(fd, buffer, used);
    used = 0;
  }
  void put(const char *text, size_t length) {
    crc = crc32c(crc, text, length);
    putUnchecked(text, length);
  }
  void putUnchecked(const char *text, size_t length) {
    size += int64_t(length);
    for (size_t i = 0; i < length; ++i) {
      if (used == sizeof buffer)
        flush();
      buffer[used++] = text[i];
    }
  }
  void print(const char *format, ...) __attribute__((format(printf, 2, 3))) {
    char text[256];
    va_list args;
    va_start(args, format);
    int n = vsnprintf(text, sizeof text, format, args);
    va_end(args);
    put(text, n < 0 ? 0 : size_t(n) < sizeof text ? size_t(n) : sizeof text - 1);
  }
  void quote(const char *text) {
    put("\"", 1);
    for (; *text; ++text) {
      unsigned char c = static_cast<unsigned char>(*text);
      if (c == '"' || c == '\\')
        print("\\%c", c);
      else if (c < 0x20)
        print("\\u%04x", c);
      else
        put(text, 1);
    }
    put("\"", 1);
  }
  void pair(const char *name, const char *value) {
    print(",");
    quote(name);
    print(":");
    quote(value);
  }
};

constexpr char kOpening[] = "{\"__metadata__\":{\"check\":\"";

void produceHeader(HeaderSink &sink, const TensorList &tensors, const TensorFileInfo &info, const char *check) {
  sink.put(kOpening, sizeof kOpening - 1);
  sink.crc = crc32c(sink.crc, "0000000000000000", 16);
  sink.putUnchecked(check, 16);
  sink.print("\"");
  sink.pair("format", "pt");
  if (info.kind[0]) {
    char number[32];
    sink.pair("cinch", info.kind);
    sink.pair("program", info.program);
    sink.pair("hash", info.hash);
    snprintf(number, sizeof number, "%lld", (long long)info.step);
    sink.pair("step", number);
    sink.pair("pending", info.pending ? "1" : "0");
    sink.pair("best", info.best);
    static const char *const names[] = {"loss", "norm", "lr"};
    for (int i = 0; i < 3; ++i) {
      char value[40];
      sink.pair(names[i], exact(value, info.last[i], false));
    }
    for (const Note &note : info.notes)
      sink.pair(note.key, note.text);
    for (const DataMark &mark : info.data) {
      char value[48];
      snprintf(value, sizeof value, "%s %lld %08x", mark.type, (long long)mark.bytes, mark.crc);
      sink.print(",\"data.");
      sink.put(mark.field, strlen(mark.field));
      sink.print("\":");
      sink.quote(value);
    }
  }
  sink.print("}");
  int64_t offset = 0;
  for (int64_t i = 0; i < tensors.count; ++i) {
    const Tensor &tensor = tensors.items[i];
    sink.print(",");
    sink.quote(tensor.name);
    sink.print(":{\"dtype\":\"%s\",\"shape\":[", nameOf(tensor.elem));
    for (int axis = 0; axis < tensor.shape->rank; ++axis)
      sink.print(axis ? ",%lld" : "%lld", (long long)tensor.shape->dims[axis]);
    sink.print("],\"data_offsets\":[%lld,%lld]}", (long long)offset, (long long)(offset + tensor.bytes()));
    offset += tensor.bytes();
  }
  sink.print("}");
  while (sink.size % 8)
    sink.print(" ");
}

} // namespace

// Elements of a tensor in parts, in the order of the whole.
static void gather(const Tensor &tensor, int64_t first, int64_t count, char *into) {
  const int64_t own = bytesOf(tensor.elem), run = tensor.shape->count() / tensor.before / tensor.parts;
  for (int64_t at = first; at < first + count;) {
    int64_t part = at / run % tensor.parts, now = run - at % run < first + count - at ? run - at % run : first + count - at;
    int64_t offset = (part == 0 ? tensor.offset : (*tensor.copies)[part - 1]) + (at / (run * tensor.parts) * run + at % run) * own;
    if (isHere(offset))
      memcpy(into, arenaAt(offset), size_t(now * own));
    else
      peers->read(offset, into, now * own);
    into += now * own;
    at += now;
  }
}

// The average of a tensor and its copies, values [first, first + count): summed in f64, in the order of the replicas.
static void averageOf(const Tensor &tensor, int64_t first, int64_t count, char *into) {
  static double sums[4096];
  static char piece[sizeof sums];
  const int64_t unit = bytesOf(tensor.elem), places = 1 + tensor.copies->size;
  auto value = [&](int64_t i) {
    float narrow;
    double wide;
    memcpy(&narrow, piece + i * unit, 4);
    if (tensor.elem == Elem::F32)
      return double(narrow);
    memcpy(&wide, piece + i * unit, 8);
    return wide;
  };
  for (int64_t place = 0; place < places; ++place) {
    int64_t offset = (place ? (*tensor.copies)[place - 1] : tensor.offset) + first * unit;
    if (isHere(offset))
      memcpy(piece, arenaAt(offset), size_t(count * unit));
    else
      peers->read(offset, piece, count * unit);
    for (int64_t i = 0; i < count; ++i)
      sums[i] = place ? sums[i] + value(i) : value(i);
  }
  for (int64_t i = 0; i < count; ++i) {
    double wide = sums[i] / double(places);
    float narrow = float(wide);
    if (tensor.elem == Elem::F32)
      memcpy(into + i * unit, &narrow, 4);
    else
      memcpy(into + i * unit, &wide, 8);
  }
}

// Calls take(data, bytes) with the values of a tensor; with pieces of them if it lies in another process, in parts, or is an average.
template <typename F> static bool forEachPiece(const Tensor &tensor, F take) {
  static char piece[65536];
  if (tensor.parts > 1) {
    const int64_t count = tensor.shape->count(), own = bytesOf(tensor.elem), most = int64_t(sizeof piece) / own;
    for (int64_t at = 0; at < count; at += most) {
      int64_t now = count - at < most ? count - at : most;
      gather(tensor, at, now, piece);
      if (!take(piece, size_t(now * own)))
        return false;
    }
    return true;
  }
  if (tensor.averaged && (tensor.elem == Elem::F32 || tensor.elem == Elem::F64)) {
    const int64_t most = 4096, count = tensor.shape->count(), unit = bytesOf(tensor.elem);
    for (int64_t first = 0; first < count; first += most) {
      int64_t now = count - first < most ? count - first : most;
      averageOf(tensor, first, now, piece);
      if (!take(piece, size_t(now * unit)))
        return false;
    }
    return true;
  }
  if (tensor.data)
    return take(tensor.data, size_t(tensor.bytes()));
  for (int64_t at = 0, bytes = tensor.bytes(); at < bytes; at += int64_t(sizeof piece)) {
    int64_t now = bytes - at < int64_t(sizeof piece) ? bytes - at : int64_t(sizeof piece);
    peers->read(tensor.offset + at, piece, now);
    if (!take(piece, size_t(now)))
      return false;
  }
  return true;
}

bool writeTensorFile(const char *path, const TensorList &tensors, const TensorFileInfo &info, SecondName *second) {
  uint32_t dataCrc = 0;
  for (int64_t i = 0; i < tensors.count; ++i)
    forEachPiece(tensors.items[i], [&](const char *data, size_t bytes) {
      dataCrc = crc32c(dataCrc, data, bytes);
      return true;
    });
  HeaderSink measured;
  produceHeader(measured, tensors, info, "0000000000000000");
  char check[17];
  snprintf(check, sizeof check, "%08x%08x", dataCrc, measured.crc);

  AtomicFile file;
  if (!beginFile(file, path))
    return false;
  uint64_t length = uint64_t(measured.size);
  HeaderSink sink;
  sink.fd = file.fd;
  bool good = writeAll(file.fd, &length, 8);
  if (good) {
    produceHeader(sink, tensors, info, check);
    sink.flush();
    good = sink.good;
  }
  for (int64_t i = 0; good && i < tensors.count; ++i)
    good = forEachPiece(tensors.items[i], [&](const char *data, size_t bytes) { return writeAll(file.fd, data, bytes); });
  if (!good) {
    abandonFile(file);
    return false;
  }
  return commitFile(file, second);
}

} // namespace cinch::rt
