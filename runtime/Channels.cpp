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
bool inStep = false;

void prepareChannels() {
  const Meta &meta = run.meta;
  if (!meta.channels.size)
    return;
  uintptr_t space = reinterpret_cast<uintptr_t>(allocate(size_t(meta.channels.size) * sizeof(Channel) + 64));
  channels = reinterpret_cast<Channel *>((space + 63) & ~uintptr_t(63));
  for (int64_t i = 0; i < meta.channels.size; ++i) {
    Channel &channel = *new (&channels[i]) Channel();
    channel.spec = &meta.channels[i];
    channel.tags = allocateArray<MessageTag>(channel.spec->boxes);
  }
}

void beginStepOfChannels() {
  for (int64_t i = 0; i < run.meta.channels.size; ++i)
    channels[i].begun = channels[i].received;
  inStep = true;
}

void checkChannelsEmpty() {
  for (int64_t i = 0; i < run.meta.channels.size; ++i)
    if (isHere(channels[i].spec->at) && channels[i].sent != channels[i].received)
      failInternal("%u messages were sent but not received over the channel `%s` from worker %d to worker %d",
                   channels[i].sent - channels[i].received, channels[i].spec->name, channels[i].spec->from,
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
void awaitOther(Worker &worker, uint32_t *counter, uint32_t seen, uint32_t *sleepers, Patience &patience) {
  double since = monotonicSeconds();
  await(counter, seen, sleepers, patience);
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

static void sendMessage(Worker &worker, int32_t number, int64_t offset, int64_t bytes) {
  Channel &channel = channels[number];
  const ChannelSpec &spec = *channel.spec;
  cinch_ctx *context = &worker.context;
  if (peers) {
    fromDevice(worker.at + offset, bytes);
    return peers->send(worker, number, offset, bytes);
  }
  uint32_t message = channel.sent; // only this thread changes it
  for (uint32_t received; message - (received = __atomic_load_n(&channel.received, __ATOMIC_ACQUIRE)) >= uint32_t(spec.boxes);)
    awaitOther(worker, &channel.received, received, &channel.waitingSenders, channel.senderPatience);
  if (device)
    device->sendMessage(worker, number, message % uint32_t(spec.boxes), offset, bytes);
  else
    copyMessage(worker, channel.box(message), context->arena + offset, bytes);
  if (__builtin_expect(context->checking, 0))
    channel.tags[message % uint32_t(spec.boxes)] = checkSend(worker, offset, bytes);
  __atomic_store_n(&channel.sent, message + 1, __ATOMIC_SEQ_CST);
  wakeSleepers(&channel.sent, &channel.waitingReceivers);
}

static void receiveMessage(Worker &worker, int32_t number, int64_t offset, int64_t bytes) {
  Channel &channel = channels[number];
  const ChannelSpec &spec = *channel.spec;
  cinch_ctx *context = &worker.context;
  if (peers) {
    peers->receive(worker, number, offset, bytes);
    return toDevice(worker.at + offset, bytes);
  }
  uint32_t message = channel.received; // only this thread changes it
  if (__atomic_load_n(&channel.sent, __ATOMIC_ACQUIRE) == message)
    awaitOther(worker, &channel.sent, message, &channel.waitingReceivers, channel.receiverPatience);
  if (device)
    device->receiveMessage(worker, number, message % uint32_t(spec.boxes), offset, bytes);
  else
    copyMessage(worker, context->arena + offset, channel.box(message), bytes);
  if (__builtin_expect(context->checking, 0))
    checkReceive(worker, spec.from, offset, bytes, channel.tags[message % uint32_t(spec.boxes)]);
  __atomic_store_n(&channel.received, message + 1, __ATOMIC_SEQ_CST);
  wakeSleepers(&channel.received, &channel.waitingSenders);
}

// In messages of the channel's size, the last one shorter.
static void inMessages(const Channel &channel, int64_t offset, int64_t bytes, void (*one)(Worker &, int32_t, int64_t, int64_t),
                       Worker &worker, int32_t number) {
  for (int64_t most = channel.spec->bytes; bytes > 0; offset += most, bytes -= most)
    one(worker, number, offset, bytes < most ? bytes : most);
}

} // namespace cinch::rt

using namespace cinch::rt;

void cinch_send(cinch_ctx *context, int32_t number, int64_t offset, int64_t bytes) {
  Worker &worker = workerOf(context);
  inMessages(channelOf(worker, number, true), offset, bytes, sendMessage, worker, number);
}

void cinch_receive(cinch_ctx *context, int32_t number, int64_t offset, int64_t bytes) {
  Worker &worker = workerOf(context);
  inMessages(channelOf(worker, number, false), offset, bytes, receiveMessage, worker, number);
}
