// CudaOffload.cpp: what lies in pinned memory of the host: state, which is copied to the device for its update, and values that wait there between the
// forward and the backward sweep of a micro-batch. Each direction has a stream of its own, so that copies go on beside kernels and beside one
// another. The pinned memory is the upper end of the host's mirror: who saves or loads state finds it there.
//
// Where a step is captured, the streams join the capture with their first copy, and the awaits bring them back: the graph has the same branches.
#include "runtime/Cuda.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <sys/sysinfo.h>

namespace cinch::rt {

namespace {

char *pinnedAt(const Worker &worker, int64_t host) { return arenaAt(worker.hostAt + host); }

// What was asked for so far comes before the copies that follow on the stream.
void follow(Gpu &gpu, CUstream stream) {
  expect(cuda.recordEvent(gpu.mayBegin, gpu.stream), "mark a copy between host and device");
  expect(cuda.streamWaitsFor(stream, gpu.mayBegin, 0), "wait for a copy between host and device");
}

void markEnd(Gpu &gpu, int32_t copy, CUstream stream) {
  while (gpu.ended.size <= copy)
    expect(cuda.createEvent(&gpu.ended.add(), kEventWithoutTimes), "make an event");
  expect(cuda.recordEvent(gpu.ended[copy], stream), "mark a copy between host and device");
}

} // namespace

void prepareOffload(Worker &worker) {
  Gpu &gpu = gpuOf(worker);
  const int64_t bytes = worker.hostBytes;
  if (bytes == 0)
    return;
  char human[40], all[40];
  int64_t ofAll = 0; // workers of this process
  for (int64_t i = 0; i < workerCount; ++i)
    ofAll += workers[i].hostBytes;
  struct sysinfo machine; // the kernel would promise more than there is
  if (sysinfo(&machine) == 0 && uint64_t(ofAll) / machine.mem_unit > machine.totalram)
    fail(kResources, "the plan needs %s (%lld bytes) of pinned memory; this machine has %s in all: compile with a smaller --host-memory-budget",
         humanBytes(human, ofAll), (long long)ofAll, humanBytes(all, int64_t(machine.totalram * machine.mem_unit)));
  humanBytes(human, bytes);
  use(gpu);
  if (CUresult result = cuda.pinMemory(pinnedAt(worker, 0), size_t(bytes), 0)) {
    Text why;
    addResult(why, result);
    fail(kResources, "the driver of the GPU cannot pin %s (%lld bytes) of the host's memory, which the plan needs: %s; compile with a smaller --host-memory-budget, or "
         "without it", human, (long long)bytes, why.data);
  }
  __atomic_fetch_add(&pinnedBytes, bytes, __ATOMIC_RELAXED);
  expect(cuda.createStream(&gpu.in, kStreamWaitsForNoOther), "make a stream");
  expect(cuda.createStream(&gpu.out, kStreamWaitsForNoOther), "make a stream");
  expect(cuda.createEvent(&gpu.mayBegin, kEventWithoutTimes), "make an event");
}

void fetchFromHost(Worker &worker, int32_t copy, int64_t offset, int64_t host, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  follow(gpu, gpu.in);
  expect(cuda.copyToDevice(gpu.arena + uint64_t(offset), pinnedAt(worker, host), size_t(bytes), gpu.in), "copy from the host");
  markEnd(gpu, copy, gpu.in);
}

void storeToHost(Worker &worker, int32_t copy, int64_t offset, int64_t host, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  follow(gpu, gpu.out);
  expect(cuda.copyFromDevice(pinnedAt(worker, host), gpu.arena + uint64_t(offset), size_t(bytes), gpu.out), "copy to the host");
  markEnd(gpu, copy, gpu.out);
}

void awaitCopy(Worker &worker, int32_t copy) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expect(cuda.streamWaitsFor(gpu.stream, gpu.ended[copy], 0), "wait for a copy between host and device");
}

} // namespace cinch::rt
