// driver.h: what the stand-in's driver is made of; its functions stand in driver.cpp (devices, memory, modules, streams, events) and work.cpp
// (copies, launches, graphs).
#ifndef STANDIN_DRIVER_H
#define STANDIN_DRIVER_H
#include "standin.h"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

namespace standin {

enum Result { kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidContext = 201, kEccError = 214, kNotFound = 500, kInvalidHandle = 400, kNotReady = 600,
              kLaunchFailed = 719, kNotSupported = 801, kCaptureUnsupported = 900, kCaptureInvalidated = 901, kCaptureUnjoined = 904,
              kCaptureIsolation = 905, kBusy = -1 };

struct Range {
  char *begin, *end;
  bool has(const void *at, size_t bytes) const { return at >= begin && static_cast<const char *>(at) + bytes <= end; }
};

struct Device {
  int number = 0;
  std::vector<Range> allocations, globals; // globals: of modules
  int failed = 0;                          // sticks, as the driver's does
  size_t taken() const {
    size_t bytes = 0;
    for (const Range &range : allocations)
      bytes += size_t(range.end - range.begin);
    return bytes;
  }
};

struct Stream;
struct Op {
  std::function<int()> run; // kBusy: it cannot be done yet, and is tried again later
  Stream *waits = nullptr; // for another stream, until it has done so many
  uint64_t count = 0;
};
// A branch for each stream that took part in the capture; the first is that of the stream that began it.
struct Graph {
  std::vector<Stream *> streams;
  std::vector<std::vector<Op>> branches;
  bool invalidated = false;
  size_t branchOf(Stream *stream) const { return size_t(std::find(streams.begin(), streams.end(), stream) - streams.begin()); }
};
struct Stream {
  Device *device;
  std::deque<Op> queue;
  uint64_t asked = 0, done = 0;
  Graph *capture = nullptr;
};
struct Event {
  Device *device;
  Stream *stream = nullptr;
  uint64_t count = 0;
  bool timed = false, captured = false;
  std::shared_ptr<double> when = std::make_shared<double>(-1);
};
struct Module {
  Device *device;
  void *library;
};

extern std::recursive_mutex mutex; // of everything: one call at a time
using Lock = std::lock_guard<std::recursive_mutex>;
extern std::vector<Range> pinned;
extern std::vector<Stream *> streams;
extern thread_local Device *current;

// A line of $STANDIN_LOG.
void note(const char *what);
// `result` if STANDIN_FAIL names the function, else 0.
int planted(const char *function, int result);
// Does what a stream was asked for, up to that count. 0, the error that sticks to its device, or kBusy: something waits for another process.
int drain(Stream &, uint64_t count);
// The same until it is done. All streams go on meanwhile, and other threads may call.
int finish(Stream &, uint64_t count, std::unique_lock<std::recursive_mutex> &);
// Whether a number of bytes lies in memory of the device.
bool isOn(const Device &, uint64_t at, size_t bytes);
// Asks a stream for something, or adds it to what it captures. With STANDIN_EAGER a stream other than a device's first does at once what it may.
int ask(Stream &, Op);
bool isEager(const Stream &);
// The error of a call that a thread may not make while it captures.
int unsafeNow();

} // namespace standin
#endif
