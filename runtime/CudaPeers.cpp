// CudaPeers.cpp: messages of training steps between the devices of workers in several processes, by NCCL.
//
// A lane leads from one worker to another: a communicator of two. The sender's messages go through it in the order of its program, whatever
// their channels are, on the stream that computes, which so waits until there is room for them. The receiver's lane has a stream of its own,
// beside the one that computes: a message is received into its mailbox as soon as that is empty, long before it is asked for. So a message
// needs what it needs between threads, an empty mailbox, and no order of messages can stop a run that would not stop there.
//
// The receiver has to ask NCCL for the messages in the sender's order. It finds that order by going through the sender's step itself, with a
// device that does nothing (`listener`). In a graph of a step a lane is a branch.
// NCCL wants a message to be in graphs on both sides or on none (its guide, "Using NCCL with CUDA Graphs"): all capture when worker 0 asks for
// it, and all use their graphs if everybody has them.
#include "runtime/Cuda.h"
#include "runtime/Nccl.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <new>
#include <string.h>

namespace cinch::rt {

namespace {

struct Sent {
  int32_t channel = 0;
  int64_t bytes = 0;
};
// Of the lanes to other workers only the communicator is used.
struct Lane {
  NcclComm comm = nullptr;
  CUstream stream = nullptr;
  List<Sent> order; // messages of a step
  int64_t posted = 0;
};
struct Box {
  CUevent full = nullptr, empty = nullptr;
};
// Of a channel to this worker: messages of this step that NCCL was asked for, and that were taken out of their mailboxes.
struct Incoming {
  Box *boxes = nullptr;
  int64_t posted = 0, taken = 0;
};

bool carries; // NCCL is in use
Lane *incomingLanes, *outgoingLanes; // one a worker
Incoming *incoming; // one a channel
NcclComm replicas;  // those that have this worker's place, if it adds their sums
CUevent begun;
int64_t ncclBytes, ncclVersion; // ncclBytes: of the device, by its driver's count
List<Sent> *heard;
int64_t hearer; // the worker whose messages are looked for

// ---- A device that does nothing, to hear what a step sends
const Device *makeListener() {
  static Device none = {};
  none.launch = [](Worker &, int32_t, const int64_t *, const int64_t *) {};
  none.zero = [](Worker &, int64_t, int64_t) {};
  none.set = [](Worker &, int64_t, int64_t, int64_t) {};
  none.copy = [](Worker &, int64_t, int64_t, int64_t) {};
  none.fetch = none.store = [](Worker &, int32_t, int64_t, int64_t, int64_t) {};
  none.await = [](Worker &, int32_t) {};
  none.gate = [](Worker &) {};
  none.sum = [](Worker &, int32_t, int64_t, int64_t) {};
  none.meetsPeers = [](Worker &) { return true; };
  none.receiveMessage = [](Worker &, int32_t, uint32_t, int64_t, int64_t, Arrival) {};
  none.sendMessage = [](Worker &, int32_t channel, uint32_t, int64_t, int64_t bytes) {
    if (run.meta.channels[channel].to != hearer)
      return;
    Sent &sent = heard->add();
    sent.channel = channel, sent.bytes = bytes;
  };
  return &none;
}

// The program of every worker is in every process.
void hear(int64_t from, List<Sent> &order) {
  static Worker other;
  const Device *real = device;
  const bool late = run.late;
  other.number = from;
  memcpy(other.context.words, workers[0].context.words, sizeof other.context.words);
  other.context.words[kWorker] = from;
  heard = &order, hearer = workers[0].number;
  device = makeListener();
  run.late = true;
  cinch_train_step(&other.context);
  run.late = late;
  device = real;
}

// ---- Finding one another
CUdeviceptr placeOf(const ChannelSpec &spec, int64_t box) {
  return gpus[0].arena + uint64_t(spec.at - workers[0].at) + uint64_t(box) * uint64_t(spec.boxBytes());
}

// NCCL connects the ends of a lane with its first message, and both calls wait for one another, on the host. A step begins with what a worker
// receives, so two workers that send to one another would wait for ever. Here both ends are at the same lane. What comes goes to a mailbox.
int64_t connect(NcclComm comm, const DeviceMeeting &meeting) {
  constexpr size_t kFew = 4; // bytes
  Gpu &gpu = gpus[0];
  int result = 0;
  if (meeting.to != workers[0].number)
    result = nccl.send(reinterpret_cast<const void *>(gpu.arena), kFew, kNcclBytes, 1, comm, gpu.stream);
  for (const ChannelSpec &channel : run.meta.channels)
    if (meeting.to == workers[0].number && channel.to == meeting.to && channel.from == meeting.from) {
      result = nccl.receive(reinterpret_cast<void *>(placeOf(channel, 0)), kFew, kNcclBytes, 0, comm, gpu.stream);
      break;
    }
  if (result == 0)
    expect(cuda.waitForStream(gpu.stream), "wait for the first message of a lane");
  return result;
}

int64_t join(const DeviceMeeting &meeting) {
  use(gpus[0]);
  const int64_t before = freeBytes();
  NcclId id;
  memcpy(id.bytes, meeting.id, sizeof id.bytes);
  NcclComm comm = nullptr;
  const int result = nccl.join(&comm, meeting.count, id, meeting.rank);
  if (result != 0)
    return result;
  ncclBytes += before - freeBytes();
  if (meeting.to < 0)
    replicas = comm;
  else if (meeting.to == workers[0].number)
    incomingLanes[meeting.from].comm = comm;
  else
    outgoingLanes[meeting.to].comm = comm;
  return meeting.to < 0 ? 0 : connect(comm, meeting);
}

int64_t find() {
  int version = 0;
  if (!openNccl() || nccl.version(&version) != 0)
    return 0;
  incomingLanes = allocateArray<Lane>(programWorkers());
  outgoingLanes = allocateArray<Lane>(programWorkers());
  incoming = allocateArray<Incoming>(run.meta.channels.size);
  return ncclVersion = version;
}

void begin() {
  Gpu &gpu = gpus[0];
  use(gpu);
  expect(cuda.createEvent(&begun, kEventWithoutTimes), "make an event");
  for (int64_t from = 0; from < programWorkers(); ++from) {
    Lane &lane = incomingLanes[from];
    if (!lane.comm)
      continue;
    expect(cuda.createStream(&lane.stream, kStreamWaitsForNoOther), "make a stream");
    hear(from, lane.order);
  }
  for (int64_t i = 0; i < run.meta.channels.size; ++i) {
    const ChannelSpec &spec = run.meta.channels[i];
    if (spec.to != workers[0].number)
      continue;
    incoming[i].boxes = allocateArray<Box>(spec.boxes);
    for (int64_t box = 0; box < spec.boxes; ++box) {
      expect(cuda.createEvent(&incoming[i].boxes[box].full, kEventWithoutTimes), "make an event");
      expect(cuda.createEvent(&incoming[i].boxes[box].empty, kEventWithoutTimes), "make an event");
    }
  }
  carries = true;
}

// Asks NCCL for the lane's next messages, as long as their mailboxes are empty, or will be when the device is done with what it was asked for.
void post(Lane &lane) {
  for (; lane.posted < lane.order.size; ++lane.posted) {
    const Sent &next = lane.order[lane.posted];
    const ChannelSpec &spec = run.meta.channels[next.channel];
    Incoming &channel = incoming[next.channel];
    if (channel.posted - channel.taken == spec.boxes)
      return;
    const int64_t number = channel.posted % spec.boxes;
    Box &box = channel.boxes[number];
    if (channel.posted >= spec.boxes)
      expect(cuda.streamWaitsFor(lane.stream, box.empty, 0), "wait for a mailbox");
    expectNccl(nccl.receive(reinterpret_cast<void *>(placeOf(spec, number)), size_t(next.bytes), kNcclBytes, 0, lane.comm, lane.stream),
               "receive a message");
    expect(cuda.recordEvent(box.full, lane.stream), "mark a message");
    ++channel.posted;
  }
}

} // namespace

bool meetsPeers(Worker &worker) { return carries && gpuOf(worker).counting; }

bool connectedByNccl() { return carries; }

int64_t meetByNccl(DeviceMeeting &meeting) {
  switch (meeting.what) {
  case DeviceMeeting::Find: return find();
  case DeviceMeeting::Name: return nccl.makeId(reinterpret_cast<NcclId *>(meeting.id));
  case DeviceMeeting::Join: return join(meeting);
  case DeviceMeeting::Begin: return begin(), 0;
  case DeviceMeeting::Capture: return captureBoth(workers[0]);
  case DeviceMeeting::Graphs:
    gpus[0].graphs = meeting.count != 0;
    return 0;
  }
  return -1;
}

const char *wordsOfNccl(int64_t result) { return nccl.errorText(int(result)); }

// All mailboxes are empty when a step begins and when it ends.
void beginMessages(Gpu &gpu) {
  if (!carries)
    return;
  for (int64_t i = 0; i < run.meta.channels.size; ++i)
    incoming[i].posted = incoming[i].taken = 0;
  expect(cuda.recordEvent(begun, gpu.stream), "mark the begin of a step");
  for (int64_t from = 0; from < programWorkers(); ++from) {
    Lane &lane = incomingLanes[from];
    lane.posted = 0;
    if (!lane.order.size)
      continue;
    expect(cuda.streamWaitsFor(lane.stream, begun, 0), "wait for the begin of a step");
    post(lane);
  }
}

void endMessages() {
  for (int64_t i = 0; carries && i < run.meta.channels.size; ++i)
    if (incoming[i].posted != incoming[i].taken)
      failInternal("%lld messages were sent but not received over the channel `%s`", (long long)(incoming[i].posted - incoming[i].taken),
                   run.meta.channels[i].name);
  for (int64_t from = 0; carries && from < programWorkers(); ++from)
    if (incomingLanes[from].posted != incomingLanes[from].order.size)
      failInternal("worker %lld sends more messages than were received", (long long)from);
}

void sendByNccl(Worker &worker, int32_t channel, int64_t offset, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  expectNccl(nccl.send(reinterpret_cast<const void *>(gpu.arena + uint64_t(offset)), size_t(bytes), kNcclBytes, 1,
                       outgoingLanes[run.meta.channels[channel].to].comm, gpu.stream),
             "send a message");
}

void receiveByNccl(Worker &worker, int32_t number, int64_t offset, int64_t bytes, Arrival arrival) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  const ChannelSpec &spec = run.meta.channels[number];
  Incoming &channel = incoming[number];
  if (channel.posted == channel.taken)
    failInternal("the next message over the channel `%s` cannot come before others that have no mailbox", spec.name);
  const int64_t place = channel.taken % spec.boxes;
  expect(cuda.streamWaitsFor(gpu.stream, channel.boxes[place].full, 0), "wait for a message");
  takeOnDevice(gpu, offset, placeOf(spec, place), bytes, arrival);
  expect(cuda.recordEvent(channel.boxes[place].empty, gpu.stream), "mark a mailbox");
  ++channel.taken;
  post(incomingLanes[spec.from]);
}

void sumByNccl(Worker &worker, int32_t channel, int64_t offset, int64_t bytes) {
  Gpu &gpu = gpuOf(worker);
  use(gpu);
  const bool wide = run.meta.channels[channel].sums == 8;
  void *values = reinterpret_cast<void *>(gpu.arena + uint64_t(offset));
  expectNccl(nccl.allReduce(values, values, size_t(bytes) / (wide ? 8 : 4), wide ? kNcclF64 : kNcclF32, kNcclSum, replicas, gpu.stream), "add sums");
}

void describeNccl() {
  if (!carries)
    return;
  int64_t count = replicas != nullptr;
  for (int64_t i = 0; i < programWorkers(); ++i)
    count += (incomingLanes[i].comm != nullptr) + (outgoingLanes[i].comm != nullptr);
  char human[40];
  say("NCCL %lld: %lld communicators of this process, %lld bytes (%s) of the device, as its driver counts", (long long)ncclVersion, (long long)count,
      (long long)ncclBytes, humanBytes(human, ncclBytes));
}

} // namespace cinch::rt
