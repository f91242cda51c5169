// Channels.h: what workers hand to one another: messages of a fixed size, first in, first out, through mailboxes that lie in the
// arena of the worker that receives.
#ifndef CINCH_RUNTIME_CHANNELS_H
#define CINCH_RUNTIME_CHANNELS_H
#include "runtime/Checking.h"
#include "runtime/Waiting.h"
#include "runtime/Worker.h"

namespace cinch::rt {

// Both counters run around. Messages `received` to `sent` lie in the mailboxes, message i in box i modulo `boxes`.
struct Channel {
  const ChannelSpec *spec = nullptr;
  MessageTag *tags = nullptr; // one a box, in the replay of a failed step
  alignas(64) uint32_t sent = 0;
  uint32_t waitingReceivers = 0;
  Patience receiverPatience;
  alignas(64) uint32_t received = 0;
  uint32_t waitingSenders = 0;
  Patience senderPatience;
  uint32_t begun = 0; // messages of the steps before this one, where there is one each micro-batch; only while a step runs

  char *box(uint32_t message) const { return arenaAt(spec->at) + int64_t(message % uint32_t(spec->boxes)) * spec->boxBytes(); }
};
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
