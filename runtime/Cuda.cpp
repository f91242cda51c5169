// Cuda.cpp: a GPU of NVIDIA behind Device.h: one allocation, one stream, the kernels of the program's PTX.
#include "runtime/Cuda.h"
#include "runtime/Device.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

namespace {

struct Driver {
#define F(NAME, SYMBOL, ARGUMENTS) CUresult(*NAME) ARGUMENTS;
  CINCH_CUDA_FUNCTIONS(F)
#undef F
} cuda;

char deviceName[128];
CUdeviceptr arena;
int64_t arenaBytes;
CUstream stream;
CUfunction *kernels;
int64_t failing = -1; // the launch that is being started; -1: none

// Data on its way to the device: two buffers of pinned memory take turns, and each waits until its last copy is done.
constexpr int64_t kStagingBytes = int64_t(4) << 20;
struct Staging {
  char *memory;
  CUevent copied;
  bool used;
} staging[2];
int turn;

// Where the error was seen, in the user's words. The device does its work later than the host asks for it.
void addPlace(Text &text) {
  static Launch launch;
  if (failing >= 0 && readLaunch(run.meta, cinch_meta, int32_t(failing), launch))
    text.add(", starting %s (%s:%lld)", launch.text[0] ? launch.text : launch.kernel,
             launch.file[0] ? launch.file : run.meta.source, (long long)launch.line);
  if (run.training)
    text.add(", in step %lld", (long long)run.step);
}

// Every call of the driver comes through here.
void expect(CUresult result, const char *what) {
  if (result == 0)
    return;
  const char *name = nullptr, *words = nullptr;
  if (cuda.errorName)
    cuda.errorName(result, &name);
  if (cuda.errorText)
    cuda.errorText(result, &words);
  Text place;
  addPlace(place);
  fail(kResources, "the GPU failed to %s%s: %s (%s, %d)%s", what, place.size ? place.data : "", words ? words : "unknown error",
       name ? name : "no name", result,
       run.training ? "; the last checkpoint is intact, --resume goes on from it" : "");
}

void openDriver() {
  void *library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_GLOBAL);
  if (!library)
    fail(kResources, "this program was compiled for a GPU of NVIDIA, whose driver is not here: %s; install it, or compile with --target cpu",
         dlerror());
#define F(NAME, SYMBOL, ARGUMENTS)                                                                                                 \
  cuda.NAME = reinterpret_cast<CUresult(*) ARGUMENTS>(dlsym(library, SYMBOL));                                                     \
  if (!cuda.NAME)                                                                                                                  \
    fail(kResources, "the driver of NVIDIA on this machine is too old: it has no %s", SYMBOL);
  CINCH_CUDA_FUNCTIONS(F)
#undef F
}

// The architecture that the PTX names: 80.
int neededCapability() {
  const char *at = strstr(cinch_device_code, ".target sm_");
  return at ? atoi(at + strlen(".target sm_")) : 0;
}

CUdevice findDevice() {
  int count = 0, major = 0, minor = 0;
  CUresult result = cuda.init(0);
  if (result == kNoDevice)
    fail(kResources, "no GPU of NVIDIA is in this machine, or none may be used (CUDA_VISIBLE_DEVICES)");
  expect(result, "start (cuInit)");
  expect(cuda.deviceCount(&count), "be counted");
  if (count == 0)
    fail(kResources, "no GPU of NVIDIA is in this machine, or none may be used (CUDA_VISIBLE_DEVICES)");
  CUdevice device = 0;
  expect(cuda.getDevice(&device, 0), "be found");
  expect(cuda.deviceName(deviceName, sizeof deviceName, device), "tell its name");
  expect(cuda.deviceAttribute(&major, kCapabilityMajor, device), "tell its capability");
  expect(cuda.deviceAttribute(&minor, kCapabilityMinor, device), "tell its capability");
  if (10 * major + minor < neededCapability())
    fail(kResources, "the GPU %s has compute capability %d.%d; the program was compiled for %d.%d and later (--target nvidia:sm_%d)",
         deviceName, major, minor, neededCapability() / 10, neededCapability() % 10, 10 * major + minor);
  return device;
}

void takeArena(int64_t bytes) {
  size_t left = 0, total = 0;
  char needs[40], human[40], all[40];
  arenaBytes = bytes > 0 ? bytes : 1;
  expect(cuda.memoryInfo(&left, &total), "tell its memory");
  humanBytes(needs, arenaBytes);
  if (uint64_t(arenaBytes) > total)
    fail(kResources, "the plan needs %s (%lld bytes) on the device; %s has %s in all: compile with a smaller --memory-budget", needs,
         (long long)arenaBytes, deviceName, humanBytes(all, int64_t(total)));
  CUresult result = cuda.allocateOnDevice(&arena, size_t(arenaBytes));
  if (result == kOutOfMemory)
    fail(kResources, "the plan needs %s (%lld bytes) on the device; of the %s of %s only %s are free: another process holds the rest", needs,
         (long long)arenaBytes, humanBytes(all, int64_t(total)), deviceName, humanBytes(human, int64_t(left)));
  expect(result, "hand out the arena");
}

void loadKernels() {
  CUmodule module = nullptr;
  CUresult result = cuda.loadModule(&module, cinch_device_code, 0, nullptr, nullptr);
  if (result == kUnsupportedPtx || result == kInvalidImage || result == kNoBinaryForGpu) {
    int version = 0;
    cuda.driverVersion(&version);
    fail(kResources, "the driver of NVIDIA on this machine (CUDA %d.%d) cannot read the program's kernels; it is too old for sm_%d",
         version / 1000, version % 1000 / 10, neededCapability());
  }
  expect(result, "take the program's kernels");
  int64_t count = 0;
  for (const char *at = cinch_device_kernels; *at; ++at)
    count += *at == '\n';
  kernels = allocateArray<CUfunction>(count + 1);
  const char *at = cinch_device_kernels;
  for (int64_t i = 0; i < count; ++i) {
    const char *end = strchr(at, '\n');
    expect(cuda.functionOf(&kernels[i], module, copyText(at, size_t(end - at))), "find a kernel");
    at = end + 1;
  }
}

void open(int64_t bytes) {
  openDriver();
  CUdevice device = findDevice();
  CUcontext context = nullptr;
  expect(cuda.retainContext(&context, device), "make a context");
  expect(cuda.setContext(context), "use its context");
  takeArena(bytes);
  expect(cuda.createStream(&stream, 1), "make a stream"); // 1: waits for no other
  loadKernels();
  for (Staging &each : staging) {
    void *memory = nullptr;
    expect(cuda.allocatePinned(&memory, size_t(kStagingBytes)), "hand out pinned memory");
    each.memory = static_cast<char *>(memory);
    expect(cuda.createEvent(&each.copied, 2), "make an event"); // 2: without times
  }
}

void launch(int32_t number, const int64_t *kernel, const int64_t *offsets, const int64_t *words) {
  failing = number;
  void *arguments[] = {&arena, const_cast<int64_t *>(offsets), const_cast<int64_t *>(words)};
  expect(cuda.launchKernel(kernels[kernel[0]], unsigned(kernel[1]), 1, 1, unsigned(kernel[2]), 1, 1, 0, stream, arguments, nullptr),
         "start a kernel");
  failing = -1;
}

void zero(int64_t offset, int64_t bytes) { expect(cuda.setBytes(arena + uint64_t(offset), 0, size_t(bytes), stream), "clear memory"); }

void write(int64_t offset, const char *from, int64_t bytes) {
  while (bytes > 0) {
    int64_t part = bytes < kStagingBytes ? bytes : kStagingBytes;
    Staging &buffer = staging[turn ^= 1];
    if (buffer.used)
      expect(cuda.waitForEvent(buffer.copied), "finish a copy");
    memcpy(buffer.memory, from, size_t(part));
    expect(cuda.copyToDevice(arena + uint64_t(offset), buffer.memory, size_t(part), stream), "take data");
    expect(cuda.recordEvent(buffer.copied, stream), "mark a copy");
    buffer.used = true;
    offset += part, from += part, bytes -= part;
  }
}

void finish() { expect(cuda.waitForStream(stream), "finish its work"); }

void read(int64_t offset, char *into, int64_t bytes) {
  if (bytes > 0)
    expect(cuda.copyFromDevice(into, arena + uint64_t(offset), size_t(bytes), stream), "give data back");
  finish();
}

const char *name() { return deviceName; }

int64_t usedByAll() {
  size_t left = 0, total = 0;
  return cuda.memoryInfo(&left, &total) == 0 ? int64_t(total - left) : 0;
}

const Device nvidia = {open, launch, zero, write, read, finish, name, usedByAll};

} // namespace

} // namespace cinch::rt

extern "C" void cinch_open_device() { cinch::rt::device = &cinch::rt::nvidia; }
