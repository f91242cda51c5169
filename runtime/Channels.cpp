// Channels.cpp: cinch_send and cinch_receive.
#include "runtime/Channels.h"
#include "runtime/Device.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/Run.h"
#include "runtime/Waiting.h"
#include <new>
#include <string.h>

namespace cinch::rt {

Channel *channels;
StepPhase stepPhase = StepPhase::None;

void prepareChannels() {
  const Meta &meta = run.meta;
  if (!meta.channels.size)
    return;
  uintptr_t space = reinterpret_cast<uintptr_t>(allocate(size_t(meta.channels.size) * sizeof(Channel) + 64));
  channels = reinterpret_cast<Channel *>(onLine(int64_t(space)));
  for (int64_t i = 0; i < meta.channels.size; ++i) {
    Channel &channel = *new (&channels[i]) Channel();
    channel.spec = &meta.channels[i];
    channel.tags = allocateArray<MessageTag>(channel.spec->boxes);
  }
}

void beginStepOfChannels() {
  const Entry *train = run.meta.entry("train");
  const bool goesOn = run.meta.overlaps && !wordOf(kFresh); // some messages of this step came while the one before was done
  for (int64_t i = 0; i < run.meta.channels.size; ++i) {
    const char *action = channels[i].spec->action;
    bool inLoop = *action >= '0' && *action <= '9'; // a message each micro-batch
    channels[i].begun = goesOn && train && inLoop ? channels[i].begun + uint64_t(train->count) : channels[i].received;
  }
  stepPhase = StepPhase::Runs;
}

void checkChannelsEmpty() {
  for (int64_t i = 0; i < run.meta.channels.size; ++i)
    if (isHere(channels[i].spec->at) && channels[i].sent != channels[i].received)
      failInternal("%lld messages were sent but not received over the channel `%s` from worker %d to worker %d",
                   (long long)(channels[i].sent - channels[i].received), channels[i].spec->name, channels[i].spec->from,
                   channels[i].spec->to);
}

namespace {

struct Copy {
  char *into;
  const char *from;
  int64_t bytes;
};

void copyPart(void *closure, int64_t thread, int64_t threads) {
  const Copy &copy = *static_cast<Copy *>(closure);
  int64_t begin, end;
  share((copy.bytes + 4095) / 4096, thread, threads, begin, end);
  begin *= 4096;
  end = end * 4096 < copy.bytes ? end * 4096 : copy.bytes;
  if (begin < end)
    memcpy(copy.into + begin, copy.from + begin, size_t(end - begin));
}

// Waits for a counter to change; the worker's time of waiting goes on.
void awaitOther(Worker &worker, uint64_t &counter, uint64_t seen, uint32_t *sleepers, Patience &patience) {
  double since = monotonicSeconds();
  await(lowHalf(counter), uint32_t(seen), sleepers, patience);
  worker.waited += monotonicSeconds() - since;
}

Channel &channelOf(const Worker &worker, int32_t number, bool sends) {
  if (number < 0 || number >= run.meta.channels.size)
    failInternal("worker %lld uses channel %d of %lld", (long long)worker.number, number, (long long)run.meta.channels.size);
  Channel &channel = channels[number];
  if ((sends ? channel.spec->from : channel.spec->to) != worker.number)
    failInternal("worker %lld %s over the channel `%s`, which goes from worker %d to worker %d", (long long)worker.number,
                 sends ? "sends" : "receives", channel.spec->name, channel.spec->from, channel.spec->to);
  return channel;
}

} // namespace

void copyMessage(Worker &worker, char *into, const char *from, int64_t bytes) {
  Copy copy = {into, from, bytes};
  if (bytes >= int64_t(1) << 18)
    worker.pool.run(copyPart, &copy);
  else
    memcpy(into, from, size_t(bytes));
}

namespace {
struct Addition {
  char *into;
  const char *from;
  int64_t count;
  bool wide;
};

template <typename T> void addRange(char *into, const char *from, int64_t begin, int64_t end) {
  T *own = reinterpret_cast<T *>(into);
  const T *before = reinterpret_cast<const T *>(from);
  for (int64_t i = begin; i < end; ++i)
    own[i] = (before[i] + own[i]) + T(0); // of summands that are all -0.0 (underflow) one chain from zero makes 0.0
}

void addPart(void *closure, int64_t thread, int64_t threads) {
  const Addition &addition = *static_cast<Addition *>(closure);
  int64_t begin, end;
  share((addition.count + 1023) / 1024, thread, threads, begin, end);
  begin *= 1024;
  end = end * 1024 < addition.count ? end * 1024 : addition.count;
  (addition.wide ? addRange<double> : addRange<float>)(addition.into, addition.from, begin, end);
}
} // namespace

void takeMessage(Worker &worker, Arrival arrival, char *into, const char *from, int64_t bytes) {
  if (arrival == Arrival::Replaces)
    return copyMessage(worker, into, from, bytes);
  bool wide = arrival == Arrival::AddsF64;
  Addition addition = {into, from, bytes / (wide ? 8 : 4), wide};
  if (bytes >= int64_t(1) << 17)
    worker.pool.run(addPart, &addition);
  else
    addPart(&addition, 0, 1);
}

static void sendMessage(Worker &worker, int32_t number, int64_t offset, int64_t bytes, Arrival) {
  Channel &channel = channels[number];
  const ChannelSpec &spec = *channel.spec;
  cinch_ctx *context = &worker.context;
  if (peers && device && device->meetsPeers(worker))
    return device->sendMessage(worker, number, 0, offset, bytes);
  if (peers) {
    fromDevice(worker.at + offset, bytes);
    return peers->send(worker, number, offset, bytes);
  }
  uint64_t message = channel.sent; // only this thread changes it
  for (uint64_t received; message - (received = __atomic_load_n(&channel.received, __ATOMIC_ACQUIRE)) >= uint64_t(spec.boxes);)
    awaitOther(worker, channel.received, received, &channel.waitingSenders, channel.senderPatience);
  if (device)
    device->sendMessage(worker, number, channel.boxOf(message), offset, bytes);
  else
    copyMessage(worker, channel.box(message), context->arena + offset, bytes);
  if (__builtin_expect(context->checking, 0))
    channel.tags[channel.boxOf(message)] = checkSend(worker, offset, bytes);
  __atomic_store_n(&channel.sent, message + 1, __ATOMIC_SEQ_CST);
  wakeSleepers(lowHalf(channel.sent), &channel.waitingReceivers);
}

static void receiveMessage(Worker &worker, int32_t number, int64_t offset, int64_t bytes, Arrival arrival) {
  Channel &channel = channels[number];
  const ChannelSpec &spec = *channel.spec;
  cinch_ctx *context = &worker.context;
  if (peers && device && device->meetsPeers(worker))
    return device->receiveMessage(worker, number, 0, offset, bytes, arrival);
  if (peers) {
    if (arrival != Arrival::Replaces)
      fromDevice(worker.at + offset, bytes); // what it is added to
    peers->receive(worker, number, offset, bytes, arrival);
    return toDevice(worker.at + offset, bytes);
  }
  uint64_t message = channel.received; // only this thread changes it
  if (__atomic_load_n(&channel.sent, __ATOMIC_ACQUIRE) == message)
    awaitOther(worker, channel.sent, message, &channel.waitingReceivers, channel.receiverPatience);
  if (device)
    device->receiveMessage(worker, number, channel.boxOf(message), offset, bytes, arrival);
  else
    takeMessage(worker, arrival, context->arena + offset, channel.box(message), bytes);
  if (__builtin_expect(context->checking, 0))
    checkReceive(worker, spec.from, offset, bytes, channel.tags[channel.boxOf(message)], arrival != Arrival::Replaces);
  __atomic_store_n(&channel.received, message + 1, __ATOMIC_SEQ_CST);
  wakeSleepers(lowHalf(channel.received), &channel.waitingSenders);
}

static void sumMessage(Worker &worker, int32_t number, int64_t offset, int64_t bytes, Arrival) {
  run.options.sumsByNccl ? device->sum(worker, number, offset, bytes) : peers->sum(worker, number, offset, bytes);
}

// In messages of the channel's size, the last one shorter.
static void inMessages(const Channel &channel, int64_t offset, int64_t bytes, void (*one)(Worker &, int32_t, int64_t, int64_t, Arrival),
                       Worker &worker, int32_t number, Arrival arrival = Arrival::Replaces) {
  for (int64_t most = channel.spec->bytes; bytes > 0; offset += most, bytes -= most)
    one(worker, number, offset, bytes < most ? bytes : most, arrival);
}

// The library's all-reduce takes the place of a sum's way from replica to replica: its first sender and each receiver come to it once, with
// the values where they lie, and go on. Behind the loop they wait for all of them. In the replay of a failed step the values go their way,
// and what made them with them.
static bool isSummed(const Worker &worker, const Channel &channel) {
  return channel.spec->sums > 0 && (run.options.sumsByMpi || run.options.sumsByNccl) && peers && !worker.context.checking;
}

} // namespace cinch::rt

using namespace cinch::rt;

void cinch_send(cinch_ctx *context, int32_t number, int64_t offset, int64_t bytes) {
  Worker &worker = workerOf(context);
  const Channel &channel = channelOf(worker, number, true);
  if (!isSummed(worker, channel))
    inMessages(channel, offset, bytes, sendMessage, worker, number);
  else if (worker.number < programWorkers() / run.meta.replicas) // who receives the sum of those before has come to it there
    inMessages(channel, offset, bytes, sumMessage, worker, number);
}

void cinch_receive(cinch_ctx *context, int32_t number, int64_t offset, int64_t bytes) {
  Worker &worker = workerOf(context);
  inMessages(channelOf(worker, number, false), offset, bytes, receiveMessage, worker, number);
}

void cinch_receive_sum(cinch_ctx *context, int32_t number, int64_t offset, int64_t bytes, int32_t wide) {
  Worker &worker = workerOf(context);
  const Channel &channel = channelOf(worker, number, false);
  inMessages(channel, offset, bytes, isSummed(worker, channel) ? sumMessage : receiveMessage, worker, number,
             wide ? Arrival::AddsF64 : Arrival::AddsF32);
}

void cinch_await_sums(cinch_ctx *context) {
  if (run.options.sumsByMpi && peers)
    peers->awaitSums(workerOf(context));
}
