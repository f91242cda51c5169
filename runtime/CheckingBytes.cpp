// CheckingBytes.cpp: what replays look at, brought from where it lies. The arena of a GPU may be larger than the memory of the host. So a buffer that
// is looked through comes in pieces, each into the same memory; and of what single elements are computed from, only the chunks around them come.
#include "runtime/Checking.h"
#include "runtime/Device.h"
#include "runtime/Run.h"
#include <string.h>

namespace cinch::rt {

namespace {

constexpr int64_t kPiece = int64_t(1) << 20, kChunk = int64_t(1) << 16; // bytes

float widened(uint16_t half) {
  uint32_t bits = uint32_t(half) << 16;
  float value;
  memcpy(&value, &bits, 4);
  return value;
}

// Elements [first, first + count) of a buffer, which lie at `at`.
void lookThrough(const char *at, const LaunchBuffer &buffer, int64_t first, int64_t count, BadPlaces &bad) {
  for (int64_t i = 0; i < count; ++i) {
    const int64_t index = first + i;
    if (buffer.pitch > 0 && index % buffer.pitch >= buffer.columns) // behind the end of a row
      continue;
    double value = buffer.elem == Elem::F64    ? reinterpret_cast<const double *>(at)[i]
                   : buffer.elem == Elem::BF16 ? double(widened(reinterpret_cast<const uint16_t *>(at)[i]))
                                               : double(reinterpret_cast<const float *>(at)[i]);
    if (__builtin_isfinite(value))
      continue;
    int kind = value != value ? 0 : value > 0 ? 1 : 2;
    if (bad.index[kind] < 0) {
      bad.index[kind] = index;
      bad.number[kind] = value;
    }
  }
}

bool isReal(const LaunchBuffer &buffer) { return buffer.elem == Elem::F32 || buffer.elem == Elem::F64 || buffer.elem == Elem::BF16; }

// Of the worker whose launch is looked at: chunks of its arena that are in the mirror as the device has them now.
Worker *looked;
List<int64_t> brought;
char *isBrought; // of each chunk
int64_t chunks;  // that there is room for

} // namespace

BadPlaces badPlaces(const char *at, const LaunchBuffer &buffer) {
  BadPlaces bad;
  if (isReal(buffer))
    lookThrough(at, buffer, 0, buffer.count, bad);
  return bad;
}

BadPlaces badPlaces(Worker &worker, int64_t offset, const LaunchBuffer &buffer) {
  if (!device || worker.onHost(worker.at + offset))
    return badPlaces(worker.context.arena + offset, buffer);
  static char *piece = allocateArray<char>(kPiece);
  BadPlaces bad;
  const int64_t most = kPiece / bytesOf(buffer.elem);
  for (int64_t first = 0; isReal(buffer) && first < buffer.count; first += most) {
    const int64_t count = buffer.count - first < most ? buffer.count - first : most;
    device->read(worker, offset + first * bytesOf(buffer.elem), piece, count * bytesOf(buffer.elem));
    lookThrough(piece, buffer, first, count, bad);
  }
  return bad;
}

void lookAt(Worker &worker) {
  for (int64_t chunk : brought)
    isBrought[chunk] = 0;
  brought.size = 0;
  looked = &worker;
  const int64_t needed = (worker.bytes + kChunk - 1) / kChunk;
  if (device && needed > chunks) {
    chunks = needed;
    isBrought = allocateArray<char>(chunks);
  }
}

const char *elementAt(int64_t byte) {
  if (device && !looked->onHost(looked->at + byte) && !isBrought[byte / kChunk]) {
    const int64_t begin = byte / kChunk * kChunk, left = looked->bytes - begin;
    device->read(*looked, begin, looked->context.arena + begin, left < kChunk ? left : kChunk);
    isBrought[byte / kChunk] = 1;
    brought.add() = byte / kChunk;
  }
  return looked->context.arena + byte;
}

} // namespace cinch::rt
