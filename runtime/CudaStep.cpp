// CudaStep.cpp: training steps whose gate the device has: they are asked for one ahead of what is known, from the second on as a graph.
//
// The gate sets a word on the device, and whatever stands behind a closed gate does nothing: update, state, the count of steps. So the
// host may ask for the next step before it knows that this one was good, and reads loss, norm and that word one step late.
//
// A step is captured twice, once a turn, since two are under way: each graph brings its data from pinned memory of its own, into which the
// host reads the next batch while the device works. The number of the step is the device's; nothing else changes from step to step.
#include "runtime/Cuda.h"
#include "runtime/Fill.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/Times.h"
#include <string.h>

namespace cinch::rt {

int64_t graphBytes, graphCount;

namespace {

constexpr int64_t kMostLaunches = 100000; // of a graph: each takes some KB

int64_t relative(const Worker &worker, int64_t offset) { return offset >= 0 && worker.has(offset) ? offset - worker.at : -1; }

// Where loss, norm and learning rate lie, as the kernels of the gate read it.
struct GateWords {
  int64_t words[4];
  explicit GateWords(const Worker &worker) {
    const Meta &meta = run.meta;
    bool several = meta.workers.size != 0; // each looks at its own copies, which hold the same bits
    words[0] = relative(worker, several ? meta.workers[worker.number].lossAt : meta.lossAt);
    words[1] = relative(worker, several ? meta.workers[worker.number].normAt : meta.normAt);
    words[2] = meta.gateElem == Elem::F64;
    words[3] = relative(worker, meta.learningRateAt);
  }
};

double numberOf(int64_t bits, Elem elem) {
  if (elem == Elem::F64) {
    double value;
    memcpy(&value, &bits, 8);
    return value;
  }
  float value;
  uint32_t low = uint32_t(bits);
  memcpy(&value, &low, 4);
  return double(value);
}

int64_t strideOf(const Gpu &gpu) { return onLine(gpu.fillBytes); }

} // namespace

// Asks for all of a step, kernel by kernel.
void enqueue(Worker &worker, Turn &turn) {
  Gpu &gpu = gpuOf(worker);
  gpu.fillsOfStep = gpu.launchesOfStep = 0;
  gpu.counting = true;
  beginMessages(gpu);
  cinch_train_step(&worker.context);
  endMessages();
  gpu.counting = gpu.behind = false;
  launchControl(gpu, gpu.endStep, GateWords(worker).words, 1, 32);
  expect(cuda.copyFromDevice(turn.result, gpu.control, sizeof(Control), gpu.stream), "give back what a step left");
}

bool giveUp(Gpu &gpu, const char *why, CUresult result) {
  Text text;
  text.add("note: the steps are no CUDA graph: %s", why);
  if (result) {
    text.add(": ");
    addResult(text, result);
  }
  if (!run.options.quiet)
    say("%s; each is asked for kernel by kernel", text.data);
  gpu.graphs = false;
  return false;
}

// The first step shows how large one is.
bool mayCapture(Gpu &gpu) {
  if (!gpu.graphs || gpu.asked == 0 || timing || cuda.blocking)
    return false;
  if (!cuda.hasGraphs)
    return giveUp(gpu, "the driver of NVIDIA on this machine is too old for them", 0);
  if (gpu.launchesOfStep * workerCount > kMostLaunches) {
    Text why;
    why.add("one would have %lld kernels", (long long)(gpu.launchesOfStep * workerCount));
    return giveUp(gpu, why.data, 0);
  }
  return true;
}

bool takeFills(Gpu &gpu, Turn &turn) {
  const int64_t fills = gpu.fillsOfStep;
  char *memory = takePinned(fills * strideOf(gpu) + 64);
  turn.fills.size = 0;
  for (int64_t i = 0; memory && i < fills; ++i)
    turn.fills.add().memory = memory + i * strideOf(gpu);
  turn.fills.size = 0;
  return memory;
}

void refill(Worker &worker, const Turn &turn) {
  for (const StagedFill &fill : turn.fills)
    fillInto(worker, fill.entry, fill.index, fill.memory);
}

bool endCapture(Gpu &gpu, Turn &turn) {
  CUgraph graph = nullptr;
  if (CUresult result = cuda.endCapture(gpu.stream, &graph))
    return giveUp(gpu, "the driver does not end one", result);
  CUresult result = cuda.instantiate(&turn.graph, graph, 0);
  cuda.destroyGraph(graph);
  if (result) {
    turn.graph = nullptr;
    return giveUp(gpu, "the driver cannot make it ready", result);
  }
  ++graphCount;
  return true;
}

int64_t freeBytes() {
  size_t left = 0, total = 0;
  expect(cuda.memoryInfo(&left, &total), "tell its memory");
  return int64_t(left);
}

// The step becomes a graph; nothing of it is done yet. False: it is none.
static bool capture(Worker &worker, Turn &turn) {
  Gpu &gpu = gpuOf(worker);
  if (!takeFills(gpu, turn))
    return giveUp(gpu, "there is no pinned memory for the data of two of them", 0);
  if (CUresult result = cuda.beginCapture(gpu.stream, kCaptureOfThread))
    return giveUp(gpu, "the driver does not begin one", result);
  gpu.capturing = &turn;
  enqueue(worker, turn);
  gpu.capturing = nullptr;
  return endCapture(gpu, turn);
}

bool captureBoth(Worker &worker) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  if (!mayCapture(gpu))
    return false;
  const int64_t before = freeBytes();
  for (Turn &turn : gpu.turns)
    if (!capture(worker, turn))
      return false;
  graphBytes += before - freeBytes();
  return true;
}

char *stageInCapture(Worker &worker, int32_t entry, int64_t index) {
  Gpu &gpu = gpuOf(worker);
  List<StagedFill> &fills = gpu.capturing->fills;
  if (fills.size == fills.capacity || !fills.items[fills.size].memory)
    failInternal("a step brings more micro-batches than the one before it");
  StagedFill &fill = fills.items[fills.size++];
  fill.entry = entry, fill.index = index;
  return fill.memory;
}

void prepareSteps(Worker &worker) {
  for (Turn &turn : gpuOf(worker).turns) {
    turn.result = reinterpret_cast<Control *>(takePinned(sizeof(Control)));
    if (!turn.result)
      fail(kResources, "the driver of the GPU has no %zu bytes of pinned memory", sizeof(Control));
    expect(cuda.createEvent(&turn.done, kEventWithoutTimes), "make an event");
  }
}

void restartSteps(Worker &worker, int64_t step) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expect(cuda.waitForStream(gpu.stream), "finish its work");
  gpu.settled = gpu.asked;
  gpu.step = step;
  Control *from = gpu.turns[0].result;
  *from = Control();
  from->step = step;
  expect(cuda.copyToDevice(gpu.control, from, sizeof(Control), gpu.stream), "take the number of the step");
  expect(cuda.waitForStream(gpu.stream), "finish its work");
}

void askForStep(Worker &worker) {
  if (workerCount > 1)
    return askTogether(worker);
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  Turn &turn = gpu.turns[gpu.asked & 1];
  const bool alone = !connectedByNccl();
  const bool fresh = alone && !turn.graph && mayCapture(gpu);
  const int64_t before = fresh ? freeBytes() : 0;
  bool isGraph = turn.graph && (alone || gpu.graphs);
  if (isGraph)
    refill(worker, turn);
  else if (!fresh || !(isGraph = capture(worker, turn)))
    enqueue(worker, turn);
  if (isGraph)
    expect(cuda.launchGraph(turn.graph, gpu.stream), "start a step");
  if (fresh && turn.graph && before > freeBytes())
    graphBytes += before - freeBytes();
  expect(cuda.recordEvent(turn.done, gpu.stream), "mark a step");
  ++gpu.asked;
}

void gateOnDevice(Worker &worker) {
  Gpu &gpu = gpuOf(worker);
  launchControl(gpu, gpu.gate, GateWords(worker).words, 1, 32);
  gpu.behind = true;
}

void settleStep(Worker &worker, StepResult &result) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  const Turn &turn = gpu.turns[gpu.settled & 1];
  expect(cuda.waitForEvent(turn.done), "finish a step");
  ++gpu.settled;
  const Control &left = *turn.result;
  result.gateFailed = left.closed != 0;
  result.loss = numberOf(left.loss, run.meta.gateElem);
  result.norm = run.meta.normAt < 0 ? 0 : numberOf(left.norm, run.meta.gateElem);
  result.learningRate = relative(worker, run.meta.learningRateAt) < 0 ? __builtin_nan("") : numberOf(left.learningRate, Elem::F64);
  if (!result.gateFailed && left.step != ++gpu.step)
    failInternal("the device is at step %lld, the host at %lld", (long long)left.step, (long long)gpu.step);
}

// Devices of other processes would wait for ever for the messages of half a step.
bool mayStopNow(Worker &worker) {
  const Gpu &gpu = gpuOf(worker);
  return gpu.asked == gpu.settled && !gpu.capturing && !connectedByNccl();
}

} // namespace cinch::rt
