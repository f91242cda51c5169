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
//   STANDIN_EAGER                    1: all streams of a device but its first do what they are asked for as early as their waits allow, not as
//                                    late as that can be
//   STANDIN_PATIENCE                 seconds after which waiting for another process is a fault (60)
//   STANDIN_FORGET                   N: the N-th time that a stream is asked to wait for an event it does not
//   STANDIN_CAPABILITY, STANDIN_VERSION  80, 11080
//   STANDIN_LOG                      a file that gets a line for each launch, graph, wait, allocation, and for each copy from a device to the host,
//                                    `from BYTES`
// CUDA_VISIBLE_DEVICES and CUDA_LAUNCH_BLOCKING mean what they mean to the driver.
#include "driver.h"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

namespace standin {

std::recursive_mutex mutex;
std::vector<Range> pinned;
std::vector<Stream *> streams;
thread_local Device *current = nullptr;

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

// Milliseconds.
static double now() {
  timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return double(time.tv_sec) * 1e3 + double(time.tv_nsec) * 1e-6;
}

int drain(Stream &stream, uint64_t count) {
  while (stream.done < count && !stream.device->failed) {
    if (stream.queue.empty())
      fault("a stream waits for what was never asked");
    Op &op = stream.queue.front();
    int result = op.waits ? drain(*op.waits, op.count) : op.run();
    if (result == kBusy)
      return kBusy;
    stream.queue.pop_front();
    if (result)
      stream.device->failed = result;
    ++stream.done;
  }
  return stream.device->failed;
}

int finish(Stream &stream, uint64_t count, std::unique_lock<std::recursive_mutex> &lock) {
  for (double begun = now();;) {
    int result = drain(stream, count);
    if (result != kBusy)
      return result;
    if (now() - begun > 1000 * double(number("STANDIN_PATIENCE", 60)))
      fault("another process was waited for too long");
    for (Stream *other : streams)
      drain(*other, other->asked);
    lock.unlock();
    usleep(100);
    lock.lock();
  }
}

int ask(Stream &stream, Op op) {
  if (current != stream.device)
    return current ? kInvalidHandle : kInvalidContext;
  if (stream.capture) {
    stream.capture->branches[stream.capture->branchOf(&stream)].push_back(std::move(op));
    return 0;
  }
  stream.queue.push_back(std::move(op));
  ++stream.asked;
  const int result = isEager(stream) ? drain(stream, stream.asked) : stream.device->failed;
  return result == kBusy ? 0 : result;
}

bool isEager(const Stream &stream) {
  static const bool eager = number("STANDIN_EAGER", 0) != 0;
  return eager && &stream != *std::find_if(streams.begin(), streams.end(), [&](Stream *one) { return one->device == stream.device; });
}

// Calls that a thread may not make while it captures.
int unsafeNow() {
  for (Stream *stream : streams)
    if (stream->capture && stream->device == current) {
      stream->capture->invalidated = true;
      return kCaptureUnsupported;
    }
  return 0;
}

} // namespace standin

using namespace standin;

namespace {

Device devices[16];

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
int cuCtxGetCurrent(void **context) { return *context = current, 0; }
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
int cuMemHostRegister_v2(void *at, size_t bytes, unsigned) {
  Lock lock(mutex);
  if (int result = planted("cuMemHostRegister_v2", kOutOfMemory))
    return result;
  if (int result = unsafeNow())
    return result;
  if (reinterpret_cast<uintptr_t>(at) % 4096)
    return kInvalidValue;
  pinned.push_back({static_cast<char *>(at), static_cast<char *>(at) + bytes});
  note("pinned");
  return 0;
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
  auto *maps = static_cast<int64_t *>(dlsym(library, (std::string(name) + "_maps").c_str()));
  auto *lines = static_cast<const char *>(dlsym(library, (std::string(name) + "_lines").c_str()));
  auto *entry = reinterpret_cast<void (*)(void *, void *, void *, void *)>(run);
  *function = new Kernel{lines ? std::string(name) + " (" + lines + ")" : name, entry, *static_cast<int64_t *>(words), handle, 48 << 10, maps ? *maps : 0};
  return 0;
}
int cuFuncSetAttribute(void *function, int attribute, int value) {
  constexpr int kMostSharedOfLaunch = 8, kMost = 227 << 10; // of a Hopper
  if (attribute != kMostSharedOfLaunch || value < 0 || value > kMost)
    return kInvalidValue;
  return static_cast<Kernel *>(function)->shared = value, 0;
}
// CUDA Driver API, cuTensorMapEncodeTiled: elements of bf16 (9); no interleaving; a swizzle of 0, 32, 64 or 128 bytes; zeros outside.
int cuTensorMapEncodeTiled(void *map, int type, uint32_t rank, void *at, const uint64_t *sizes, const uint64_t *strides, const uint32_t *boxes,
                           const uint32_t *steps, int interleave, int swizzle, int promotion, int fill) {
  const bool aligned = reinterpret_cast<uintptr_t>(map) % 64 == 0 && reinterpret_cast<uintptr_t>(at) % 16 == 0;
  if (!aligned || type != 9 || rank < 1 || rank > 5 || interleave || swizzle < 0 || swizzle > 3 || promotion < 0 || promotion > 3 || fill)
    return kInvalidValue;
  const char *planted = setting("STANDIN_MAPS"); // a fault: lines are swizzled in another way
  const uint32_t line = planted && !strcmp(planted, "64") ? 64 : swizzle ? 16u << swizzle : 0;
  Map made = {kMapMark, rank, static_cast<char *>(at), {}, {}, {}, uint8_t(line)};
  for (uint32_t i = 0; i < rank; ++i) {
    const bool apart = i == 0 || (strides[i - 1] % 16 == 0 && strides[i - 1] < uint64_t(1) << 40 && (i == 1 || strides[i - 1] % strides[i - 2] == 0));
    if (!apart || sizes[i] < 1 || sizes[i] > uint64_t(1) << 32 || boxes[i] < 1 || boxes[i] > 256 || steps[i] != 1)
      return kInvalidValue;
    made.size[i] = sizes[i], made.box[i] = uint8_t(boxes[i] - 1);
    if (i > 0)
      made.stride[i - 1] = strides[i - 1];
  }
  if (boxes[0] * 2 % 16 || (swizzle && boxes[0] * 2 > (16u << swizzle)))
    return kInvalidValue;
  note("map");
  return memcpy(map, &made, sizeof made), 0;
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
  std::unique_lock<std::recursive_mutex> lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (int result = unsafeNow())
    return result;
  note("wait");
  return finish(*stream, stream->asked, lock);
}
int cuStreamWaitEvent(void *handle, void *what, unsigned) {
  Lock lock(mutex);
  auto *event = static_cast<Event *>(what);
  if (!event->stream) // nothing to wait for
    return 0;
  auto *stream = static_cast<Stream *>(handle);
  static uint64_t waits = 0;
  if (++waits == number("STANDIN_FORGET", 0))
    return 0;
  note("waits");
  Op op;
  op.waits = event->stream, op.count = event->count;
  if (event->captured && !stream->capture && event->stream->capture) { // joins it
    stream->capture = event->stream->capture;
    stream->capture->streams.push_back(stream);
    stream->capture->branches.emplace_back();
  }
  if (stream->capture && (!event->captured || event->stream->capture != stream->capture)) {
    stream->capture->invalidated = true;
    return kCaptureIsolation;
  }
  return ask(*stream, std::move(op));
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
  event->stream = stream, event->count = stream->capture ? stream->capture->branches[stream->capture->branchOf(stream)].size() : stream->asked;
  return result;
}
int cuEventSynchronize(void *what) {
  std::unique_lock<std::recursive_mutex> lock(mutex);
  auto *event = static_cast<Event *>(what);
  if (event->captured)
    return kCaptureUnsupported;
  if (int result = unsafeNow())
    return result;
  note("event");
  return event->stream ? finish(*event->stream, event->count, lock) : 0;
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
