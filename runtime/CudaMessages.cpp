// CudaMessages.cpp: messages between the devices of workers of one process. The mailboxes lie on the receiver's device. No thread waits for
// a device: an event says when a box is full, another when it is empty again, and the streams wait for these.
#include "runtime/Cuda.h"
#include "runtime/Output.h"
#include "runtime/Run.h"

namespace cinch::rt {

namespace {
struct Box {
  CUevent full, empty;
  bool used;
};
Box **boxesOf; // one list a channel

CUdeviceptr placeOf(const ChannelSpec &spec, uint32_t box) {
  return gpus[spec.to].arena + uint64_t(spec.at - workers[spec.to].at) + uint64_t(box) * uint64_t(spec.boxBytes());
}
} // namespace

void prepareMessages() {
  if (workerCount < 2)
    return;
  boxesOf = allocateArray<Box *>(run.meta.channels.size);
  for (int64_t i = 0; i < run.meta.channels.size; ++i) {
    const ChannelSpec &spec = run.meta.channels[i];
    boxesOf[i] = allocateArray<Box>(spec.boxes);
    for (int64_t box = 0; box < spec.boxes; ++box) {
      use(gpus[spec.from]);
      expect(cuda.createEvent(&boxesOf[i][box].full, kEventWithoutTimes), "make an event");
      use(gpus[spec.to]);
      expect(cuda.createEvent(&boxesOf[i][box].empty, kEventWithoutTimes), "make an event");
    }
  }
}

void forgetMessages() {
  for (int64_t i = 0; i < run.meta.channels.size; ++i)
    for (int64_t box = 0; box < run.meta.channels[i].boxes; ++box)
      boxesOf[i][box].used = false;
}

void sendOnDevice(Worker &worker, int32_t channel, uint32_t number, int64_t offset, int64_t bytes) {
  if (meetsPeers(worker))
    return sendByNccl(worker, channel, offset, bytes);
  const ChannelSpec &spec = run.meta.channels[channel];
  Gpu &gpu = gpuOf(worker);
  Box &box = boxesOf[channel][number];
  use(gpu);
  if (box.used)
    expect(cuda.streamWaitsFor(gpu.stream, box.empty, 0), "wait for a mailbox");
  const CUdeviceptr into = placeOf(spec, number), from = gpu.arena + uint64_t(offset);
  const Gpu &other = gpus[spec.to];
  expect(other.context == gpu.context ? cuda.copyOnDevice(into, from, size_t(bytes), gpu.stream)
                                      : cuda.copyBetween(into, other.context, from, gpu.context, size_t(bytes), gpu.stream),
         "send a message");
  expect(cuda.recordEvent(box.full, gpu.stream), "mark a message");
  box.used = true;
}

void takeOnDevice(Gpu &gpu, int64_t offset, CUdeviceptr from, int64_t bytes, Arrival arrival) {
  if (arrival != Arrival::Replaces)
    launchIfOpen(gpu, gpu.add[arrival == Arrival::AddsF64], offset, int64_t(from - gpu.arena), bytes);
  else if (gpu.behind) // a parameter that another worker has updated, if it has
    launchIfOpen(gpu, gpu.take, offset, int64_t(from - gpu.arena), bytes);
  else
    expect(cuda.copyOnDevice(gpu.arena + uint64_t(offset), from, size_t(bytes), gpu.stream), "take a message");
}

void receiveOnDevice(Worker &worker, int32_t channel, uint32_t number, int64_t offset, int64_t bytes, Arrival arrival) {
  if (meetsPeers(worker))
    return receiveByNccl(worker, channel, offset, bytes, arrival);
  Gpu &gpu = gpuOf(worker);
  Box &box = boxesOf[channel][number];
  use(gpu);
  expect(cuda.streamWaitsFor(gpu.stream, box.full, 0), "wait for a message");
  takeOnDevice(gpu, offset, placeOf(run.meta.channels[channel], number), bytes, arrival);
  expect(cuda.recordEvent(box.empty, gpu.stream), "mark a mailbox");
}

} // namespace cinch::rt
