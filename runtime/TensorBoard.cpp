// TensorBoard.cpp: event files without protobuf. A record is u64 length, masked crc32c of the length, the bytes, their
// masked crc32c; the bytes are an Event {wall_time = 1, step = 2, file_version = 3, summary = 5 {value = 1 {tag = 1,
// simple_value = 2}}}.
#include "runtime/Checksum.h"
#include "runtime/Files.h"
#include "runtime/Logs.h"
#include "runtime/Output.h"
#include <errno.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

struct Message {
  unsigned char data[6144];
  size_t size = 0;
  void byte(int value) {
    if (size < sizeof data)
      data[size++] = static_cast<unsigned char>(value);
  }
  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7)
      byte(int(value & 127) | 128);
    byte(int(value));
  }
  void raw(const void *bytes, size_t count) {
    for (size_t i = 0; i < count; ++i)
      byte(static_cast<const unsigned char *>(bytes)[i]);
  }
};

uint32_t masked(const void *data, size_t size) {
  uint32_t crc = crc32c(0, data, size);
  return (crc >> 15 | crc << 17) + 0xa282ead8u;
}

void addTime(Message &message) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  double seconds = double(now.tv_sec) + double(now.tv_nsec) * 1e-9;
  message.byte(0x09);
  message.raw(&seconds, 8);
}

void writeRecord(int fd, const Message &event) {
  Message record;
  uint64_t length = event.size;
  uint32_t crc = masked(&length, 8);
  record.raw(&length, 8);
  record.raw(&crc, 4);
  record.raw(event.data, event.size);
  crc = masked(event.data, event.size);
  record.raw(&crc, 4);
  const int64_t before = lseek(fd, 0, SEEK_END);
  if (!writeAll(fd, record.data, record.size)) {
    static bool warned = false;
    if (!warned)
      warn("the TensorBoard log could not be written: %s; training goes on", strerror(errno));
    warned = true;
    if (before >= 0)
      (void)!ftruncate(fd, before); // readers stop at a torn record
  }
}

} // namespace

void beginEvents(int fd) {
  Message event;
  addTime(event);
  event.byte(0x1a);
  event.byte(13);
  event.raw("brain.Event:2", 13);
  writeRecord(fd, event);
}

static void writeSummary(int fd, int64_t step, const Message &summary) {
  Message event;
  addTime(event);
  event.byte(0x10);
  event.varint(uint64_t(step));
  event.byte(0x2a);
  event.varint(summary.size);
  event.raw(summary.data, summary.size);
  writeRecord(fd, event);
}

// In as many records of one step as it takes.
void appendEvent(int fd, int64_t step, const char *const *tags, const double *values, const bool *present, int count) {
  constexpr size_t kMost = 5800; // bytes of a record's values
  Message summary;
  for (int i = 0; i < count; ++i) {
    size_t length = present[i] ? strlen(tags[i]) : 0;
    if (!present[i] || length + 16 > kMost)
      continue;
    if (summary.size + length + 16 > kMost) {
      writeSummary(fd, step, summary);
      summary.size = 0;
    }
    float value = float(values[i]);
    summary.byte(0x0a);
    summary.varint(length + (length < 128 ? 7 : 8)); // two bytes for a length from 128 on
    summary.byte(0x0a);
    summary.varint(length);
    summary.raw(tags[i], length);
    summary.byte(0x15);
    summary.raw(&value, 4);
  }
  writeSummary(fd, step, summary);
}

int64_t lengthOfEvents(int fd, int64_t size, int64_t lastStep) {
  int64_t kept = 0;
  for (;;) {
    unsigned char head[12], data[6144];
    if (size - kept < 16 || !readAt(fd, head, 12, kept))
      return kept;
    uint64_t length;
    uint32_t crc;
    memcpy(&length, head, 8);
    memcpy(&crc, head + 8, 4);
    if (crc != masked(head, 8) || length > sizeof data - 4 || int64_t(length) + 16 > size - kept ||
        !readAt(fd, data, size_t(length) + 4, kept + 12))
      return kept;
    memcpy(&crc, data + length, 4);
    if (crc != masked(data, size_t(length)))
      return kept;
    if (length > 10 && data[0] == 0x09 && data[9] == 0x10) {
      uint64_t step = 0;
      for (size_t i = 10, shift = 0; i < length && shift < 63; ++i, shift += 7) {
        step |= uint64_t(data[i] & 127) << shift;
        if (data[i] < 128)
          break;
      }
      if (int64_t(step) > lastStep)
        return kept;
    }
    kept += 16 + int64_t(length);
  }
}

} // namespace cinch::rt
