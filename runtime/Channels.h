// Channels.h: what workers hand to one another: messages of a fixed size, first in, first out, through mailboxes that lie in the
// arena of the worker that receives.
#ifndef CINCH_RUNTIME_CHANNELS_H
#define CINCH_RUNTIME_CHANNELS_H
#include "runtime/Checking.h"
#include "runtime/Waiting.h"
#include "runtime/Worker.h"

namespace cinch::rt {

// The number of a channel's first message. A run of days sends more than 2^32; every run of some messages goes past that number.
constexpr uint64_t kFirstMessage = (uint64_t(1) << 32) - 20;

// Messages `received` to `sent` lie in the mailboxes, message i in box i modulo `boxes`. Sleepers wait for the low halves of the counters.
struct Channel {
  const ChannelSpec *spec = nullptr;
  MessageTag *tags = nullptr; // one a box, in the replay of a failed step
  alignas(64) uint64_t sent = kFirstMessage;
  uint32_t waitingReceivers = 0;
  Patience receiverPatience;
  alignas(64) uint64_t received = kFirstMessage;
  uint32_t waitingSenders = 0;
  Patience senderPatience;
  uint64_t begun = 0; // messages of the steps before this one, where there is one each micro-batch; only while a step runs

  uint32_t boxOf(uint64_t message) const { return uint32_t(message % uint64_t(spec->boxes)); }
  char *box(uint64_t message) const { return arenaAt(spec->at) + boxOf(message) * spec->boxBytes(); }
};
inline uint32_t *lowHalf(uint64_t &counter) { return reinterpret_cast<uint32_t *>(&counter); } // x86 puts it first
// Where this process is in a training step.
enum class StepPhase {
  None,
  Runs,  // `begun` counts
  Behind // it is done here, and others are waited for, which have passed the gate
};
extern StepPhase stepPhase;
extern Channel *channels; // as meta.channels numbers them

// On all threads of the worker, if that is worth it.
void copyMessage(Worker &, char *into, const char *from, int64_t bytes);

// The same, or what comes is added.
void takeMessage(Worker &, Arrival, char *into, const char *from, int64_t bytes);

// After the workers were started.
void prepareChannels();
void beginStepOfChannels();
// When every worker is done with an entry, no message is left behind.
void checkChannelsEmpty();

} // namespace cinch::rt
#endif
