// driver.cpp: the functions of NVIDIA's driver (libcuda.so.1) that the runtime calls, done by the CPU: how the runtime uses the driver is
// what this tests. It ignores the PTX and takes the same kernels, compiled for this CPU by nvcpu, from the library that $STANDIN_KERNELS
// names; every module has a copy of its own.
//
// What a stream is asked for is done when somebody waits for it, so that whoever overwrites memory too early is found out. What is illegal
// on a GPU is refused or ends the process: waiting in a capture, memory in a capture that is not pinned, a stream of another context,
// copies outside of what was allocated, a second allocation on a device.
//   STANDIN_DEVICES, STANDIN_ARENAS  how many there are (1); allocations that a device hands out (1)
//   STANDIN_MEMORY, STANDIN_TAKEN    bytes of a device; of them those that another process holds
//   STANDIN_FAIL                     NAME: the function NAME returns an error; launch:N, ecc:N: the N-th kernel fails while it runs, or
//                                    memory does; cubin: machine code is not taken
//   STANDIN_CAPABILITY, STANDIN_VERSION  80, 11080
//   STANDIN_LOG                      a file that gets a line for each launch, graph, wait, allocation
// CUDA_VISIBLE_DEVICES and CUDA_LAUNCH_BLOCKING mean what they mean to the driver.
#include "standin.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <dlfcn.h>
#include <fcntl.h>
#include <functional>
#include <memory>
#include <mutex>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>
#include <vector>

using namespace standin;

namespace {

enum Result { kInvalidValue = 1, kOutOfMemory = 2, kNoDevice = 100, kInvalidContext = 201, kEccError = 214, kNotFound = 500, kInvalidHandle = 400, kNotReady = 600,
              kLaunchFailed = 719, kNotSupported = 801, kCaptureUnsupported = 900, kCaptureInvalidated = 901 };

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
  std::function<int()> run;
  Stream *waits = nullptr; // for another stream, until it has done so many
  uint64_t count = 0;
};
struct Graph {
  std::vector<Op> ops;
};
struct Stream {
  Device *device;
  std::deque<Op> queue;
  uint64_t asked = 0, done = 0;
  Graph *capture = nullptr;
  bool invalidated = false;
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

std::recursive_mutex mutex; // of everything: one call at a time
Device devices[16];
std::vector<Range> pinned;
std::vector<Stream *> streams;
thread_local Device *current = nullptr;
uint64_t executed = 0;

using Lock = std::lock_guard<std::recursive_mutex>;

void note(const char *what) {
  static const char *path = setting("STANDIN_LOG");
  if (!path)
    return;
  static int file = open(path, O_WRONLY | O_CREAT | O_APPEND, 0666);
  std::string line = std::string(what) + "\n";
  if (write(file, line.data(), line.size()) < 0)
    fault("STANDIN_LOG cannot be written");
}

int planted(const char *function, int result) { return setting("STANDIN_FAIL") && !strcmp(setting("STANDIN_FAIL"), function) ? result : 0; }

// As the kernel number N fails that STANDIN_FAIL names.
int plantedInKernel() {
  const char *fail = setting("STANDIN_FAIL");
  ++executed;
  if (!fail)
    return 0;
  if (!strncmp(fail, "launch:", 7) && strtoull(fail + 7, nullptr, 10) == executed)
    return kLaunchFailed;
  return !strncmp(fail, "ecc:", 4) && strtoull(fail + 4, nullptr, 10) == executed ? kEccError : 0;
}

std::vector<int> visible() {
  std::vector<int> list;
  int all = int(number("STANDIN_DEVICES", 1));
  const char *said = getenv("CUDA_VISIBLE_DEVICES");
  for (int i = 0; i < all && !said; ++i)
    list.push_back(i);
  while (said && *said) {
    char *end;
    long device = strtol(said, &end, 10);
    if (end == said || device < 0 || device >= all)
      break;
    list.push_back(int(device));
    said = *end == ',' ? end + 1 : end;
  }
  return list;
}

int drain(Stream &stream, uint64_t count) {
  while (stream.done < count && !stream.device->failed) {
    if (stream.queue.empty())
      fault("a stream waits for what was never asked");
    Op op = std::move(stream.queue.front());
    stream.queue.pop_front();
    int result = op.waits ? drain(*op.waits, op.count) : op.run();
    if (result)
      stream.device->failed = result;
    ++stream.done;
  }
  return stream.device->failed;
}

int ask(Stream &stream, Op op) {
  if (current != stream.device)
    return current ? kInvalidHandle : kInvalidContext;
  if (stream.capture) {
    stream.capture->ops.push_back(std::move(op));
    return 0;
  }
  stream.queue.push_back(std::move(op));
  ++stream.asked;
  return stream.device->failed;
}

bool isPinned(const void *at, size_t bytes) {
  return std::any_of(pinned.begin(), pinned.end(), [&](const Range &range) { return range.has(at, bytes); });
}

bool isOn(const Device &device, uint64_t at, size_t bytes) {
  for (const auto *ranges : {&device.allocations, &device.globals})
    for (const Range &range : *ranges)
      if (range.has(reinterpret_cast<void *>(at), bytes))
        return true;
  return false;
}

// Calls that a thread may not make while it captures.
int unsafeNow() {
  for (Stream *stream : streams)
    if (stream->capture && stream->device == current) {
      stream->invalidated = true;
      return kCaptureUnsupported;
    }
  return 0;
}

double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) * 1e3 + double(time.tv_nsec) * 1e-6;
}

// Copies from and to the host: memory that is not pinned has no place in a graph.
int copyWithHost(Stream &stream, uint64_t at, const void *host, size_t bytes, std::function<int()> run) {
  if (!isOn(*stream.device, at, bytes))
    return kInvalidValue;
  if (stream.capture && !isPinned(host, bytes)) {
    stream.invalidated = true;
    return kCaptureUnsupported;
  }
  return ask(stream, {std::move(run)});
}

int setMemory(Stream &stream, uint64_t at, size_t bytes, std::function<int()> run) {
  if (!isOn(*stream.device, at, bytes))
    return kInvalidValue;
  return ask(stream, {std::move(run)});
}

// A copy of the library of kernels, with variables of its own.
void *openCopy(const char *path) {
  int from = open(path, O_RDONLY), copy = memfd_create("kernels", 0);
  char buffer[1 << 16];
  for (ssize_t n; from >= 0 && (n = read(from, buffer, sizeof buffer)) > 0;)
    if (write(copy, buffer, size_t(n)) != n)
      fault("the kernels cannot be copied");
  close(from);
  return dlopen(("/proc/self/fd/" + std::to_string(copy)).c_str(), RTLD_NOW | RTLD_LOCAL);
}

} // namespace

extern "C" {
int cuInit(unsigned) {
  for (int i = 0; i < 16; ++i)
    devices[i].number = i;
  return planted("cuInit", kNoDevice);
}
int cuDriverGetVersion(int *version) { return *version = int(number("STANDIN_VERSION", 11080)), 0; }
int cuDeviceGetCount(int *count) { return *count = planted("cuDeviceGetCount", 1) ? 0 : int(visible().size()), 0; }
int cuDeviceGet(int *device, int ordinal) {
  std::vector<int> list = visible();
  if (ordinal < 0 || size_t(ordinal) >= list.size())
    return 101;
  return *device = list[size_t(ordinal)], 0;
}
int cuDeviceGetName(char *name, int size, int device) {
  return number("STANDIN_DEVICES", 1) > 1 ? snprintf(name, size_t(size), "stand-in %d on the CPU", device) : snprintf(name, size_t(size), "stand-in on the CPU"), 0;
}
int cuDeviceGetAttribute(int *value, int attribute, int) {
  int capability = int(number("STANDIN_CAPABILITY", 90));
  return *value = attribute == 75 ? capability / 10 : capability % 10, 0;
}
int cuDevicePrimaryCtxRetain(void **context, int device) { return *context = &devices[device], planted("cuDevicePrimaryCtxRetain", 46); }
int cuCtxSetCurrent(void *context) { return current = static_cast<Device *>(context), 0; }
int cuMemGetInfo_v2(size_t *left, size_t *total) {
  Lock lock(mutex);
  if (!current)
    return kInvalidContext;
  *total = number("STANDIN_MEMORY", uint64_t(8) << 30);
  *left = *total - number("STANDIN_TAKEN", 0) - current->taken();
  return 0;
}
int cuMemAlloc_v2(uint64_t *at, size_t bytes) {
  Lock lock(mutex);
  size_t left, total;
  if (int result = cuMemGetInfo_v2(&left, &total))
    return result;
  if (int result = unsafeNow())
    return result;
  if (current->allocations.size() >= number("STANDIN_ARENAS", 1))
    fault("a second allocation on the device");
  if (bytes > left)
    return kOutOfMemory;
  char *arena = static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0));
  current->allocations.push_back({arena, arena + bytes});
  memset(arena, 0xff, std::min<size_t>(bytes, 256 << 20)); // NaNs: what nobody wrote must not be read
  *at = reinterpret_cast<uint64_t>(arena);
  note("allocation");
  return 0;
}
int cuMemAllocHost_v2(void **at, size_t bytes) {
  Lock lock(mutex);
  if (int result = planted("cuMemAllocHost_v2", kOutOfMemory))
    return result;
  if (int result = unsafeNow())
    return result;
  char *memory = static_cast<char *>(malloc(bytes));
  pinned.push_back({memory, memory + bytes});
  return *at = memory, 0;
}
int cuModuleLoadDataEx(void **module, const void *image, unsigned, int *, void **) {
  Lock lock(mutex);
  if (int result = planted("cuModuleLoadDataEx", 222))
    return result;
  if (!current)
    return kInvalidContext;
  if (!memcmp(image, "\x7f" "ELF", 4)) { // machine code
    note("cubin");
    if (setting("STANDIN_FAIL") && !strcmp(setting("STANDIN_FAIL"), "cubin"))
      return 209;
  } else if (!strstr(static_cast<const char *>(image), ".visible .entry")) {
    fault("the image is no PTX");
  }
  const char *path = setting("STANDIN_KERNELS");
  void *library = path ? openCopy(path) : nullptr;
  if (!library)
    fault(path ? dlerror() : "STANDIN_KERNELS names no library of kernels");
  return *module = new Module{current, library}, 0;
}
int cuModuleGetFunction(void **function, void *handle, const char *name) {
  void *library = static_cast<Module *>(handle)->library;
  void *run = dlsym(library, name), *words = dlsym(library, (std::string(name) + "_words").c_str());
  if (!run || !words)
    return kNotFound;
  *function = new Kernel{name, reinterpret_cast<void (*)(void *, void *, void *)>(run), *static_cast<int64_t *>(words), handle};
  return 0;
}
int cuModuleGetGlobal_v2(uint64_t *at, size_t *bytes, void *handle, const char *name) {
  Lock lock(mutex);
  auto *module = static_cast<Module *>(handle);
  char *place = static_cast<char *>(dlsym(module->library, name));
  if (!place)
    return kNotFound;
  Dl_info info;
  const void *symbol = nullptr;
  struct Symbol { // Elf64_Sym
    uint32_t name;
    unsigned char info, other;
    uint16_t section;
    uint64_t value, size;
  };
  size_t size = dladdr1(place, &info, const_cast<void **>(&symbol), RTLD_DL_SYMENT) && symbol ? static_cast<const Symbol *>(symbol)->size : 0;
  module->device->globals.push_back({place, place + size});
  if (bytes)
    *bytes = size;
  return *at = reinterpret_cast<uint64_t>(place), 0;
}
int cuStreamCreate(void **stream, unsigned) {
  Lock lock(mutex);
  if (!current)
    return kInvalidContext;
  Stream *made = new Stream{current};
  streams.push_back(made);
  return *stream = made, 0;
}
int cuStreamSynchronize(void *handle) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (int result = unsafeNow())
    return result;
  note("wait");
  return drain(*stream, stream->asked);
}
int cuStreamWaitEvent(void *handle, void *what, unsigned) {
  Lock lock(mutex);
  auto *event = static_cast<Event *>(what);
  if (!event->stream) // nothing to wait for
    return 0;
  Op op;
  op.waits = event->stream, op.count = event->count;
  return ask(*static_cast<Stream *>(handle), std::move(op));
}
int cuEventCreate(void **event, unsigned flags) {
  Lock lock(mutex);
  if (!current)
    return kInvalidContext;
  Event *made = new Event{current};
  made->timed = !(flags & 2);
  return *event = made, 0;
}
int cuEventRecord(void *what, void *handle) {
  Lock lock(mutex);
  auto *event = static_cast<Event *>(what);
  auto *stream = static_cast<Stream *>(handle);
  if (event->device != stream->device)
    return kInvalidHandle;
  event->captured = stream->capture != nullptr;
  event->when = std::make_shared<double>(-1);
  int result = ask(*stream, {[when = event->when] { return *when = now(), 0; }});
  event->stream = stream, event->count = stream->asked;
  return result;
}
int cuEventSynchronize(void *what) {
  Lock lock(mutex);
  auto *event = static_cast<Event *>(what);
  if (event->captured)
    return kCaptureUnsupported;
  if (int result = unsafeNow())
    return result;
  note("event");
  return event->stream ? drain(*event->stream, event->count) : 0;
}
int cuEventElapsedTime(float *milliseconds, void *from, void *to) {
  Lock lock(mutex);
  auto *begin = static_cast<Event *>(from), *end = static_cast<Event *>(to);
  if (!begin->timed || !end->timed || !begin->stream || !end->stream)
    return kInvalidHandle;
  if (*begin->when < 0 || *end->when < 0)
    return kNotReady;
  return *milliseconds = float(*end->when - *begin->when), 0;
}
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  Lock lock(mutex);
  return copyWithHost(*static_cast<Stream *>(stream), to, from, bytes, [=] { return memcpy(reinterpret_cast<void *>(to), from, bytes), 0; });
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  Lock lock(mutex);
  return copyWithHost(*static_cast<Stream *>(stream), from, to, bytes, [=] { return memcpy(to, reinterpret_cast<void *>(from), bytes), 0; });
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *handle) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (!isOn(*stream->device, to, bytes) || !isOn(*stream->device, from, bytes))
    return kInvalidValue;
  return ask(*stream, {[=] { return memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes), 0; }});
}
int cuMemcpyPeerAsync(uint64_t to, void *toContext, uint64_t from, void *fromContext, size_t bytes, void *handle) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (!isOn(*static_cast<Device *>(toContext), to, bytes) || !isOn(*static_cast<Device *>(fromContext), from, bytes))
    return kInvalidValue;
  note("peer");
  return ask(*stream, {[=] { return memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes), 0; }});
}
int cuMemsetD8Async(uint64_t at, unsigned char value, size_t count, void *stream) {
  Lock lock(mutex);
  return setMemory(*static_cast<Stream *>(stream), at, count, [=] { return memset(reinterpret_cast<void *>(at), value, count), 0; });
}
int cuMemsetD16Async(uint64_t at, unsigned short value, size_t count, void *stream) {
  Lock lock(mutex);
  return setMemory(*static_cast<Stream *>(stream), at, 2 * count,
                   [=] { return std::fill_n(reinterpret_cast<unsigned short *>(at), count, value), 0; });
}
int cuMemsetD32Async(uint64_t at, unsigned value, size_t count, void *stream) {
  Lock lock(mutex);
  return setMemory(*static_cast<Stream *>(stream), at, 4 * count, [=] { return std::fill_n(reinterpret_cast<unsigned *>(at), count, value), 0; });
}
int cuMemsetD2D32Async(uint64_t at, size_t pitch, unsigned value, size_t width, size_t height, void *stream) {
  Lock lock(mutex);
  return setMemory(*static_cast<Stream *>(stream), at, height ? pitch * (height - 1) + 4 * width : 0, [=] {
    for (size_t row = 0; row < height; ++row)
      std::fill_n(reinterpret_cast<unsigned *>(at + row * pitch), width, value);
    return 0;
  });
}
int cuLaunchKernel(void *function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned, void *handle,
                   void **arguments, void **) {
  Lock lock(mutex);
  if (int result = planted("cuLaunchKernel", 701))
    return result;
  if (!blocks || !threads || threads > 1024)
    return kInvalidValue;
  auto *kernel = static_cast<Kernel *>(function);
  auto *stream = static_cast<Stream *>(handle);
  if (static_cast<Module *>(kernel->module)->device != stream->device)
    return kInvalidHandle;
  auto *arena = *static_cast<char **>(arguments[0]);
  Range range = {nullptr, nullptr};
  for (const Range &each : stream->device->allocations)
    if (each.begin == arena)
      range = each;
  if (!range.begin)
    return kInvalidValue;
  auto *words = static_cast<int64_t *>(arguments[1]), *context = static_cast<int64_t *>(arguments[2]);
  std::vector<int64_t> wordsNow(words, words + kernel->words), contextNow(context, context + 128);
  note(stream->capture ? "captured" : "launch");
  int result = ask(*stream, {[=]() mutable {
    if (int failure = plantedInKernel())
      return failure;
    void *each[3] = {arena, wordsNow.data(), contextNow.data()};
    arenaBegin = range.begin, arenaEnd = range.end;
    for (unsigned i = 0; i < blocks; ++i)
      runBlock(*kernel, each, i, threads);
    return 0;
  }});
  static const char *blocking = setting("CUDA_LAUNCH_BLOCKING");
  if (!result && !stream->capture && blocking && !strcmp(blocking, "1"))
    result = drain(*stream, stream->asked);
  return result;
}
int cuStreamBeginCapture_v2(void *handle, int) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (int result = planted("cuStreamBeginCapture_v2", kNotSupported))
    return result;
  if (stream->capture)
    return kInvalidValue;
  stream->capture = new Graph();
  stream->invalidated = false;
  return 0;
}
int cuStreamEndCapture(void *handle, void **graph) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (!stream->capture)
    return kInvalidValue;
  *graph = stream->invalidated ? nullptr : stream->capture;
  stream->capture = nullptr;
  return stream->invalidated ? kCaptureInvalidated : 0;
}
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long) {
  Lock lock(mutex);
  note("instantiation");
  if (int result = planted("cuGraphInstantiateWithFlags", kOutOfMemory))
    return result;
  return *made = new Graph(*static_cast<Graph *>(graph)), 0;
}
int cuGraphDestroy(void *graph) { return delete static_cast<Graph *>(graph), 0; }
int cuGraphLaunch(void *graph, void *handle) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (stream->capture)
    return kCaptureUnsupported;
  note("graph");
  int result = 0;
  for (const Op &op : static_cast<Graph *>(graph)->ops)
    result = ask(*stream, op);
  return result;
}
int cuGetErrorName(int error, const char **name) {
  *name = error == kLaunchFailed ? "CUDA_ERROR_LAUNCH_FAILED" : error == 701 ? "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES"
        : error == kEccError     ? "CUDA_ERROR_ECC_UNCORRECTABLE"
                                 : "CUDA_ERROR_UNKNOWN";
  return 0;
}
int cuGetErrorString(int error, const char **text) {
  *text = error == kLaunchFailed ? "unspecified launch failure" : error == 701 ? "too many resources requested for launch"
        : error == kEccError     ? "uncorrectable ECC error encountered"
                                 : "unknown error";
  return 0;
}
}
