// Links.cpp: what all transports share: control frames, bulk, who is lost, the end.
#include "runtime/Links.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <new>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cinch::rt {

Link *links;
int64_t ownWorker;
double workerTimeout;
const Wire *wire;
WireChannel *wireChannels;

static uint32_t leaving;

bool isLeaving() { return __atomic_load_n(&leaving, __ATOMIC_SEQ_CST); }

[[noreturn]] void waitForTheEnd() {
  for (;;)
    pause();
}

// What fail() and leave() call: tells everybody.
static void tellAll(int code, const char *message) {
  if (__atomic_exchange_n(&leaving, 1, __ATOMIC_SEQ_CST))
    waitForTheEnd(); // another thread is at it
  FrameHead head;
  head.kind = FrameKind::Leaving;
  head.number = code;
  head.bytes = int64_t(strlen(message));
  if (head.bytes > kControlBytes - 1)
    head.bytes = kControlBytes - 1;
  if (wire)
    wire->farewell(head, message);
}

bool needsLink(int64_t a, int64_t b) {
  if (a == 0 || b == 0)
    return a != b;
  for (const ChannelSpec &channel : run.meta.channels)
    if ((channel.from == a && channel.to == b) || (channel.from == b && channel.to == a))
      return true;
  return false;
}

void prepareLinks() {
  const int64_t count = programWorkers();
  links = allocateArray<Link>(count);
  wireChannels = allocateArray<WireChannel>(run.meta.channels.size);
  for (int64_t i = 0; i < run.meta.channels.size; ++i)
    wireChannels[i] = WireChannel();
  for (int64_t i = 0; i < count; ++i) {
    Link &link = *new (&links[i]) Link();
    link.worker = i;
    link.capacity = 16;
    for (const ChannelSpec &channel : run.meta.channels)
      link.capacity += channel.from == i || channel.to == i ? 4 + 2 * channel.boxes : 0;
    if (i != ownWorker && needsLink(i, ownWorker))
      link.frames = allocateArray<OutFrame>(link.capacity);
  }
  beforeLeaving = tellAll;
}

void postFrame(Link &link, const OutFrame &frame) {
  if (!link.frames)
    failInternal("worker %lld has no link to worker %lld", (long long)ownWorker, (long long)link.worker);
  pthread_mutex_lock(&link.mutex);
  while (link.count == link.capacity) { // never, by the number of mailboxes; but then it is only slow
    pthread_mutex_unlock(&link.mutex);
    usleep(200);
    pthread_mutex_lock(&link.mutex);
  }
  wire->post(link, frame);
  pthread_mutex_unlock(&link.mutex);
}

void sendControl(Link &link, const void *content, int64_t bytes) {
  OutFrame frame;
  frame.head.kind = FrameKind::Control;
  frame.head.bytes = bytes;
  frame.payload = link.controlOut;
  frame.done = &link.controlSent;
  for (uint32_t sent; (sent = link.controlSent.now()) != link.controlPosted;)
    awaitFor(&link.controlSent.value, sent, &link.controlSent.sleepers, 60);
  ++link.controlPosted;
  memcpy(link.controlOut, content, size_t(bytes));
  postFrame(link, frame);
}

bool controlWaits(const Link &link) { return link.controlCame.now() != link.controlTaken; }

// Waits without an end but that of the worker, which the thread that moves frames sees.
static void awaitCounter(Link &link, Counter &counter, uint32_t before, double limit) {
  if (limit <= 0) {
    while (!awaitFor(&counter.value, before, &counter.sleepers, 60))
      continue;
    return;
  }
  TimeLimit patience(limit);
  while (!awaitFor(&counter.value, before, &counter.sleepers, TimeLimit::kLook))
    if (patience.isOver())
      lostWorker(link.worker, Loss::Waited, limit);
}

void receiveControl(Link &link, void *content, int64_t bytes, double limit) {
  awaitCounter(link, link.controlCame, link.controlTaken, limit);
  memcpy(content, link.controlIn[link.controlTaken % 2], size_t(bytes));
  __atomic_store_n(&link.controlTaken, link.controlTaken + 1, __ATOMIC_SEQ_CST);
}

void expectBulk(Link &link, char *into, int64_t bytes) {
  link.bulkBytes = bytes;
  __atomic_store_n(&link.bulk, into, __ATOMIC_SEQ_CST);
}

void awaitBulk(Link &link) {
  awaitCounter(link, link.bulkCame, link.bulkTaken, 0);
  ++link.bulkTaken;
}

char *placeOf(Link &link, const FrameHead &head) {
  const int64_t channels_ = run.meta.channels.size;
  switch (head.kind) {
  case FrameKind::Message:
    if (head.number >= 0 && head.number < channels_ && channels[head.number].spec->to == ownWorker &&
        head.bytes > 0 && head.bytes <= channels[head.number].spec->bytes)
      return channels[head.number].box(channels[head.number].sent);
    break;
  case FrameKind::Control:
    if (head.bytes <= kControlBytes && link.controlCame.now() - __atomic_load_n(&link.controlTaken, __ATOMIC_SEQ_CST) < 2)
      return link.controlIn[link.controlCame.now() % 2];
    break;
  case FrameKind::Leaving:
    if (head.bytes < kControlBytes)
      return link.words;
    break;
  case FrameKind::Bulk:
    if (link.bulk && head.bytes >= 0 && head.bytes <= link.bulkBytes)
      return link.bulk;
    break;
  default:
    if (head.bytes == 0)
      return link.words;
  }
  failInternal("a frame of kind %u with %lld bytes came from worker %lld unasked", unsigned(head.kind), (long long)head.bytes,
               (long long)link.worker);
}

void delivered(Link &link, const FrameHead &head, const char *payload) {
  switch (head.kind) {
  case FrameKind::Message: {
    Channel &channel = channels[head.number];
    __atomic_add_fetch(&channel.sent, 1, __ATOMIC_SEQ_CST);
    wakeSleepers(lowHalf(channel.sent), &channel.waitingReceivers);
    break;
  }
  case FrameKind::Credit: {
    Channel &channel = channels[head.number];
    __atomic_add_fetch(&channel.received, 1, __ATOMIC_SEQ_CST);
    wakeSleepers(lowHalf(channel.received), &channel.waitingSenders);
    break;
  }
  case FrameKind::Tag: {
    Channel &channel = channels[head.number];
    MessageTag &tag = channel.tags[wireChannels[head.number].tagged.now() % uint32_t(channel.spec->boxes)];
    tag.causes = head.a;
    tag.clock = int64_t(head.b);
    wireChannels[head.number].tagged.add();
    break;
  }
  case FrameKind::Control: link.controlCame.add(); break;
  case FrameKind::Bulk: link.bulkCame.add(); break;
  case FrameKind::Alive: break;
  case FrameKind::Leaving: {
    if (__atomic_exchange_n(&leaving, 1, __ATOMIC_SEQ_CST))
      break; // so are we, and who leaves is waiting for this thread to read the others' last words
    // What worker 0 says was said by itself; it repeats what others could not go on for.
    if (ownWorker == 0 && head.number != kDone)
      sayLastWords("worker %lld ended the run: %.*s", (long long)link.worker, int(head.bytes), payload);
    if (wire) // nobody is to take the end of this process for a loss
      wire->farewell(head, payload);
    dropSharedFile();
    _exit(head.number);
  }
  }
}

// Of the messages of this step, and where steps overlap of the next one, that the worker still has to send to this one: the one of the
// earliest micro-batch. The action that sends it did not come to its end. Behind the loop that is known only of a worker from which
// something of what comes before has come.
static bool unfinishedAction(int64_t worker, char *text, size_t size) {
  const Entry *train = run.meta.entry("train");
  enum { Loop, Gate, Update, Nothing } earliest = stepPhase == StepPhase::Behind ? Update : Nothing; // all workers have passed the gate
  uint32_t microbatch = 0;
  bool came[Nothing] = {};
  for (int64_t i = 0; stepPhase == StepPhase::Runs && i < run.meta.channels.size; ++i) {
    const Channel &channel = channels[i];
    const ChannelSpec &spec = *channel.spec;
    if (spec.from != worker || spec.to != ownWorker || !*spec.action)
      continue;
    auto phase = strcmp(spec.action, "gate") == 0 ? Gate : strcmp(spec.action, "update") == 0 ? Update : Loop;
    const uint32_t count = phase == Loop && train ? uint32_t(train->count) : 1; // messages of a step
    const uint32_t message = uint32_t(__atomic_load_n(&channel.sent, __ATOMIC_ACQUIRE) - channel.begun);
    bool unfinished = message < (phase == Loop && run.meta.overlaps ? 2 * count : count);
    came[phase] |= message >= count;
    if (!unfinished || phase > earliest || (phase == earliest && message >= microbatch))
      continue;
    earliest = phase;
    microbatch = message;
    if (phase == Loop)
      snprintf(text, size, "%s%u of step %lld", spec.action, message % count, (long long)run.step + message / count);
  }
  if (earliest == Gate || earliest == Update)
    snprintf(text, size, "%s of step %lld", earliest == Gate ? "gate" : "update", (long long)run.step);
  return earliest == Loop || (earliest == Gate && came[Loop]) || (earliest == Update && (came[Gate] || stepPhase == StepPhase::Behind));
}

void lostWorker(int64_t worker, Loss loss, double seconds) {
  if (isLeaving())
    waitForTheEnd();
  char when[64] = "before the first step", action[48];
  if (run.training && unfinishedAction(worker, action, sizeof action))
    snprintf(when, sizeof when, "in %s", action);
  else if (run.training)
    snprintf(when, sizeof when, "in step %lld", (long long)run.step);
  else if (run.options.command != Options::Train)
    snprintf(when, sizeof when, "during %s", run.options.command == Options::Eval ? "eval" : run.options.command == Options::Predict ? "predict" : "generate");
  const int64_t each = programWorkers() / run.meta.replicas, shards = run.meta.shards;
  Text place;
  if (run.meta.replicas > 1)
    place.add("replica %lld, ", (long long)(worker / each));
  place.add("stage %lld", (long long)(worker % each / shards));
  if (shards > 1)
    place.add(", shard %lld", (long long)(worker % shards));
  char why[128] = "its connection has ended";
  if (loss == Loss::Silent)
    snprintf(why, sizeof why, "nothing was heard of it for %.3g s", seconds);
  if (loss == Loss::Waited)
    snprintf(why, sizeof why, "it is alive, but was waited for longer than %.3g s; --worker-timeout grants more", seconds);
  fail(kResources, "worker %lld (%s) lost %s: %s", (long long)worker, place.data, when, why);
}

} // namespace cinch::rt
