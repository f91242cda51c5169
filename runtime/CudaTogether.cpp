// CudaTogether.cpp: a training step of several workers of this process as one CUDA graph. Each worker's thread asks its own stream for its
// part; the first worker's stream begins the capture, the others join it and are joined at the end, and messages between them become edges.
// When the graph is started, on the first one's stream, that waits for what the others were asked for before, and they wait for the graph.
//
// Threads meet where one needs what another has done; between two meetings only the first worker changes what all look at.
#include "runtime/Cuda.h"
#include "runtime/Run.h"
#include <pthread.h>

namespace cinch::rt {

namespace {
pthread_barrier_t meeting;
bool captures, lacksMemory; // this step, as the first worker decides; whether a worker has no pinned memory for its data

void meet() { pthread_barrier_wait(&meeting); }

bool leads(const Worker &worker) { return &worker == workers; }
// The first worker's stream waits for all others, which have marked where they are, or these for the first one.
void mark(Gpu &gpu) { expect(cuda.recordEvent(gpu.together, gpu.stream), "mark where workers meet"); }
void awaitMark(Gpu &gpu, const Gpu &other) { expect(cuda.streamWaitsFor(gpu.stream, other.together, 0), "wait for another worker"); }
void awaitOthers() {
  for (int64_t i = 1; i < workerCount; ++i)
    awaitMark(gpus[0], gpus[i]);
}

// Leaves the graph with the first worker, or none.
void captureTogether(Worker &worker, Turn &turn) {
  Gpu &gpu = gpuOf(worker), &first = gpus[0];
  if (!takeFills(gpu, turn))
    __atomic_store_n(&lacksMemory, true, __ATOMIC_RELAXED);
  meet();
  if (leads(worker)) {
    forgetMessages(); // a capture cannot wait for what is not in it
    CUresult result = 0;
    if (lacksMemory)
      captures = giveUp(first, "there is no pinned memory for the data of two of them", 0);
    else if ((result = cuda.beginCapture(first.stream, kCaptureOfThread)))
      captures = giveUp(first, "the driver does not begin one", result);
    else
      mark(first);
  }
  meet();
  if (!captures)
    return;
  if (!leads(worker))
    awaitMark(gpu, first);
  gpu.capturing = &turn;
  enqueue(worker, turn);
  gpu.capturing = nullptr;
  if (!leads(worker))
    mark(gpu);
  meet();
  if (leads(worker)) {
    awaitOthers();
    endCapture(first, turn);
    forgetMessages();
  }
  meet();
}

} // namespace

void prepareMeetings() {
  if (workerCount < 2)
    return;
  pthread_barrier_init(&meeting, nullptr, unsigned(workerCount));
  for (int64_t i = 0; i < workerCount; ++i) {
    use(gpus[i]);
    expect(cuda.createEvent(&gpus[i].together, kEventWithoutTimes), "make an event");
  }
}

void askTogether(Worker &worker) {
  Gpu &gpu = gpuOf(worker), &first = gpus[0];
  use(gpu);
  Turn &turn = gpu.turns[gpu.asked & 1], &shared = first.turns[gpu.asked & 1]; // who leads has the graph
  int64_t before = 0;
  if (leads(worker)) {
    captures = !shared.graph && mayCapture(first);
    lacksMemory = false;
    before = captures ? freeBytes() : 0;
  }
  meet();
  const bool fresh = captures;
  if (fresh)
    captureTogether(worker, turn);
  else if (shared.graph)
    refill(worker, turn);
  if (!shared.graph) {
    enqueue(worker, turn);
  } else {
    if (!leads(worker))
      mark(gpu);
    meet();
    if (leads(worker)) {
      awaitOthers();
      expect(cuda.launchGraph(shared.graph, first.stream), "start a step");
      mark(first);
      if (fresh && before > freeBytes())
        graphBytes += before - freeBytes();
    }
    meet();
    if (!leads(worker))
      awaitMark(gpu, first);
  }
  expect(cuda.recordEvent(turn.done, gpu.stream), "mark a step");
  ++gpu.asked;
}

} // namespace cinch::rt
