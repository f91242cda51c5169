// Cuda.cpp: GPUs of NVIDIA behind Device.h: what a worker asks its device for.
#include "runtime/Cuda.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/Times.h"
#include <string.h>

namespace cinch::rt {

int64_t pinnedBytes;

namespace {

constexpr int64_t kMostMaps = 2; // of a kernel

void zero(Worker &worker, int64_t offset, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  if (gpu.behind)
    return launchIfOpen(gpu, gpu.clear, offset, 0, bytes);
  use(gpu);
  expect(cuda.setBytes(gpu.arena + uint64_t(offset), 0, size_t(bytes), gpu.stream), "clear memory");
}

void set(Worker &worker, int64_t offset, int64_t bytes, int64_t word) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  const uint64_t bits = uint64_t(word);
  const uint32_t low = uint32_t(bits), high = uint32_t(bits >> 32);
  const CUdeviceptr at = gpu.arena + uint64_t(offset);
  CUresult result;
  if (bits == (bits & 0xff) * 0x0101010101010101u)
    result = cuda.setBytes(at, uint8_t(bits), size_t(bytes), gpu.stream);
  else if (bits == (bits & 0xffff) * 0x0001000100010001u && bytes % 2 == 0)
    result = cuda.setHalves(at, uint16_t(bits), size_t(bytes / 2), gpu.stream);
  else if (low == high && bytes % 4 == 0)
    result = cuda.setWords(at, low, size_t(bytes / 4), gpu.stream);
  else if (bytes % 8 != 0)
    failInternal("%lld bytes cannot hold whole words", (long long)bytes);
  else if (!(result = cuda.setRows(at, 8, low, 1, size_t(bytes / 8), gpu.stream)))
    result = cuda.setRows(at + 4, 8, high, 1, size_t(bytes / 8), gpu.stream);
  expect(result, "set memory");
}

void copy(Worker &worker, int64_t to, int64_t from, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expect(cuda.copyOnDevice(gpu.arena + uint64_t(to), gpu.arena + uint64_t(from), size_t(bytes), gpu.stream), "copy memory");
}

void awaitCopied(Staging &staging) {
  if (staging.used)
    expect(cuda.waitForEvent(staging.copied), "finish a copy");
}

void markCopied(Gpu &gpu, Staging &staging) {
  expect(cuda.recordEvent(staging.copied, gpu.stream), "mark a copy");
  staging.used = true;
}

void send(Worker &worker, int64_t offset, const char *from, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expect(cuda.copyToDevice(gpu.arena + uint64_t(offset), from, size_t(bytes), gpu.stream), "take data");
}

void write(Worker &worker, int64_t offset, const char *from, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  if (worker.onHost(worker.at + offset)) // there already: the mirror is the pinned memory
    return expect(cuda.waitForStream(gpu.stream), "finish its work");
  while (bytes > 0) {
    int64_t part = bytes < kWriteBytes ? bytes : kWriteBytes;
    Staging &buffer = gpu.writes[gpu.writeTurn ^= 1];
    awaitCopied(buffer);
    memcpy(buffer.memory, from, size_t(part));
    send(worker, offset, buffer.memory, part);
    markCopied(gpu, buffer);
    offset += part, from += part, bytes -= part;
  }
}

char *stage(Worker &worker, int32_t entry, int64_t index) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  ++gpu.fillsOfStep;
  if (gpu.capturing)
    return stageInCapture(worker, entry, index);
  Staging &buffer = gpu.fills[gpu.fillTurn ^= 1];
  awaitCopied(buffer);
  return buffer.memory;
}

void endStaging(Worker &worker) {
  Gpu &gpu = gpuOf(worker);
  if (!gpu.capturing)
    markCopied(gpu, gpu.fills[gpu.fillTurn]);
}

void finish(Worker &worker) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expect(cuda.waitForStream(gpu.stream), "finish its work");
  collectTimes(gpu);
}

void read(Worker &worker, int64_t offset, char *into, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  if (bytes > 0 && !worker.onHost(worker.at + offset))
    expect(cuda.copyFromDevice(into, gpu.arena + uint64_t(offset), size_t(bytes), gpu.stream), "give data back");
  expect(cuda.waitForStream(gpu.stream), "finish its work");
}

void describe(Text &text) {
  if (workerCount == 1) {
    text.add("%s", gpus[0].name);
    return;
  }
  int used = 0;
  for (int64_t i = 0; i < workerCount; ++i) {
    bool known = false;
    for (int64_t j = 0; j < i; ++j)
      known |= gpus[j].device == gpus[i].device;
    used += !known;
  }
  text.add("%d GPU%s (the first: %s)", used, used == 1 ? "" : "s", gpus[0].name);
  if (used < workerCount)
    text.add(", which workers share");
}

void describeMemory() {
  char human[40], more[40];
  for (int64_t i = 0; i < workerCount; ++i) {
    Gpu &gpu = gpus[i];
    size_t left = 0, total = 0;
    use(gpu);
    expect(cuda.memoryInfo(&left, &total), "tell its memory");
    Text whose;
    if (programWorkers() > 1)
      whose.add("worker %lld: ", (long long)workers[i].number);
    say("%sdevice memory %lld bytes (%s) in one piece; %s of %s are taken by all now, %lld bytes of it before: other processes and the driver's context",
        whose.data, (long long)workers[i].bytes, humanBytes(human, workers[i].bytes), humanBytes(more, int64_t(total - left)), gpu.name,
        (long long)gpu.takenBefore);
  }
  say("%lld graphs of the steps, %lld bytes of the device; pinned memory of the host %lld bytes (%s); this process %lld bytes", (long long)graphCount,
      (long long)graphBytes, (long long)pinnedBytes, humanBytes(human, pinnedBytes), (long long)peakMemory());
  describeNccl();
}

const Device nvidia = {openDevices,   enterThread,    leaveThread, launchOnDevice, zero,     set,          copy,         write,      read,         finish,     stage,    send,
                       endStaging,    fetchFromHost, storeToHost, awaitCopy, sendOnDevice,   receiveOnDevice, sumByNccl,
                       meetsPeers,    meetByNccl, wordsOfNccl, connectedByNccl, restartSteps,  askForStep,      gateOnDevice,
                       settleStep,    mayStopNow, describe,   describeMemory};

} // namespace

// What this thread has made current, or found to be when it entered. Between calls of a library the caller may make any other context current.
static thread_local CUcontext current = nullptr;
static CUcontext callers = nullptr; // of the thread that has entered
static bool entered = false;

void use(Gpu &gpu) {
  if (current == gpu.context)
    return;
  expect(cuda.setContext(gpu.context), "use its context");
  current = gpu.context;
}

void enterThread() {
  if (entered || !cuda.currentContext) // openDevices enters when it has found the driver
    return;
  if (cuda.currentContext(&callers) != 0) // the driver was not started: there is none
    callers = nullptr;
  current = callers;
  entered = true;
}

void leaveThread() {
  if (entered && current != callers)
    cuda.setContext(callers); // fails where its owner has destroyed it meanwhile: then nothing can be given back
  entered = false;
}

char *takePinned(int64_t bytes) {
  void *memory = nullptr;
  if (cuda.allocatePinned(&memory, size_t(bytes)) != 0)
    return nullptr;
  __atomic_fetch_add(&pinnedBytes, bytes, __ATOMIC_RELAXED);
  return static_cast<char *>(memory);
}

// The maps of a kernel's tensors, from its words on (compiler/phases/LaunchTables.cpp), behind which `word` goes: the arena is where it is, and so
// are the tensors of this launch.
static void encodeMaps(const Gpu &gpu, const int64_t *&word, const int64_t *offsets, TensorMapWords (&maps)[kMostMaps], int32_t number) {
  const int64_t count = *word++;
  if (count > kMostMaps)
    failInternal("a kernel has %lld maps", (long long)count);
  if (count > 0 && !cuda.encodeMap)
    fail(kResources, "the driver of NVIDIA on this machine is too old: it has no cuTensorMapEncodeTiled");
  for (int64_t map = 0; map < count; ++map) {
    uint64_t sizes[5], strides[5];
    uint32_t boxes[5], ones[5];
    const uint64_t begin = gpu.arena + uint64_t(offsets[word[0]] + word[1]);
    const uint32_t rank = uint32_t(word[2]);
    word += 3;
    for (uint32_t axis = 0; axis < rank; ++axis, word += 3)
      sizes[axis] = uint64_t(word[0]), strides[axis] = uint64_t(word[1]), boxes[axis] = uint32_t(word[2]), ones[axis] = 1;
    expect(cuda.encodeMap(&maps[map], kMapOfBF16, rank, reinterpret_cast<void *>(begin), sizes, strides + 1, boxes, ones, kMapInterleavesNothing,
                          kMapSwizzle128, kMapPromotes128, kMapFillsZeros),
           "take the map of a tensor", number);
  }
}

void launchOnDevice(Worker &worker, int32_t number, const int64_t *kernel, const int64_t *offsets) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  // In a step that the device counts, kernels ask it for the number; those behind the gate ask it whether that is closed.
  int64_t words[sizeof worker.context.words / 8];
  memcpy(words, worker.context.words, sizeof words);
  if (gpu.counting)
    words[kStep] = -1;
  words[kBehindGate] = gpu.behind;
  if (__builtin_expect(timing, 0))
    beginTime(gpu, number, worker.number);
  for (int64_t left = *kernel++; left > 0; --left) {
    const int64_t *shape = kernel;
    kernel += 5;
    TensorMapWords maps[kMostMaps];
    encodeMaps(gpu, kernel, offsets, maps, number);
    void *arguments[] = {&gpu.arena, const_cast<int64_t *>(offsets), words, maps};
    ++gpu.launchesOfStep;
    expect(cuda.launchKernel(gpu.kernels[shape[0]], unsigned(shape[1]), 1, 1, unsigned(shape[2]), 1, 1, unsigned(shape[4]), gpu.stream,
                             arguments, nullptr),
           cuda.blocking ? "do a kernel" : "start a kernel", number);
  }
  if (__builtin_expect(timing, 0))
    endTime(gpu);
  if (__builtin_expect(cuda.blocking, 0))
    expect(cuda.waitForStream(gpu.stream), "do a kernel", number);
}

void launchControl(Gpu &gpu, CUfunction kernel, const int64_t (&words)[4], unsigned blocks, unsigned threads) {
  use(gpu);
  static const int64_t context[sizeof(cinch_ctx::words) / 8] = {};
  void *arguments[] = {&gpu.arena, const_cast<int64_t *>(words), const_cast<int64_t *>(context)};
  expect(cuda.launchKernel(kernel, blocks, 1, 1, threads, 1, 1, 0, gpu.stream, arguments, nullptr), "start a kernel of the gate");
}

void launchIfOpen(Gpu &gpu, CUfunction kernel, int64_t to, int64_t from, int64_t bytes) {
  constexpr int64_t kThreads = 128, kMostBlocks = 512;
  int64_t blocks = (bytes / 4 + kThreads - 1) / kThreads;
  blocks = blocks < 1 ? 1 : blocks > kMostBlocks ? kMostBlocks : blocks;
  launchControl(gpu, kernel, {to, from, bytes, blocks * kThreads}, unsigned(blocks), unsigned(kThreads));
}

} // namespace cinch::rt

extern "C" void cinch_open_device() { cinch::rt::device = &cinch::rt::nvidia; }
