// Checking.cpp: the replays after a failed gate. The step is the same to the bit, so the values that spoiled it appear again, as
// often as it is run.
//
// The first replay notes which launches store numbers that are not finite. A launch may write where it reads, so only the second
// one can say why: before such a launch runs, its bad elements are computed op by op (KernelBody.h). A bad number comes from bad
// numbers that were read, from an op that made it of good ones (a *cause*, a bit), or from nothing to blame: an infinity that is
// written in the program, as in a mask. The causes of what a launch stores are kept, so that in the end those of the loss and of
// the norm are known: what a later op ignored or masked is not among them.
//
// Several workers replay their parts at the same time, and a message passes the causes of its numbers on: to the receiver it
// is one cause, which stands for those of the sender.
#include "runtime/Checking.h"
#include "runtime/Device.h"
#include "runtime/Run.h"
#include <pthread.h>

namespace cinch::rt {

namespace {

constexpr int64_t kMostSuspects = 4096; // more are hardly ever of use: the first causes come first
constexpr int kMostCauses = 64;

// One worker at a time: what follows is too large for one each, and nobody waits for a message inside.
struct Turn {
  static pthread_mutex_t mutex;
  explicit Turn(Worker &worker);
  ~Turn() { pthread_mutex_unlock(&mutex); }
};
pthread_mutex_t Turn::mutex = PTHREAD_MUTEX_INITIALIZER;
Worker *worker; // whose turn it is
Replay *replay;
Launch launch;
KernelBody body;

Turn::Turn(Worker &whose) {
  pthread_mutex_lock(&mutex);
  worker = &whose;
  replay = whose.replay;
}

int64_t offsetOf(const LaunchBuffer &buffer, const int64_t *offsets) {
  return buffer.word >= 0 ? offsets[buffer.word] : buffer.offset;
}

Causes causesHere(int64_t byte) { return causesAt(*replay, byte); }

Causes newCause(const Cause &cause) {
  if (replay->causes.size == kMostCauses)
    return 0;
  replay->causes.add() = cause;
  return Causes(1) << (replay->causes.size - 1);
}

Cause causeOf(int32_t number, const Suspect &suspect) {
  Cause cause;
  cause.launch = number;
  cause.output = suspect.output;
  cause.index = suspect.index;
  cause.number = suspect.number;
  cause.firstExample = worker->context.words[kFirstExample];
  cause.clock = replay->clock;
  cause.firstPosition = worker->context.words[kFirstPosition];
  return cause;
}

// What an op of the launch made bad of good numbers, for one of its outputs.
struct Birth {
  int64_t suspect = 0;
  BadNode node;
};

// The op that stands first in the program is the first cause; one that spoiled several outputs is one cause.
void makeCauses(int32_t number, List<Birth> &births, Causes *causesOf) {
  for (Birth &first : births) {
    Birth *least = &first;
    for (Birth *other = &first + 1; other < births.end(); ++other)
      if (body.placeOf(other->node.node) < body.placeOf(least->node.node))
        least = other;
    Birth taken = *least;
    for (; least > &first; --least)
      *least = least[-1];
    first = taken;
  }
  Causes cause = 0;
  for (int64_t i = 0; i < births.size; ++i) {
    const Suspect &suspect = replay->suspects[births[i].suspect];
    if (i == 0 || births[i].node.node != births[i - 1].node.node) {
      Cause made = causeOf(number, suspect);
      made.node = births[i].node;
      cause = newCause(made);
    }
    causesOf[suspect.output] |= cause;
  }
}

// Each output for itself: what spoiled one of them may be masked in another.
void explainBody(int32_t number, const int64_t *offsets, int64_t begin, int64_t end, Causes *causesOf) {
  static List<int64_t> numbers, places;
  static List<Birth> births;
  if (!readBody(run.meta, cinch_meta, launch, numbers) || !readNodeOperations(run.meta, cinch_meta, launch, places) ||
      !body.read(numbers, places))
    return;
  body.begin(elementAt, offsets, worker->context.words, causesHere);
  const List<Suspect> &suspects = replay->suspects;
  births.size = 0;
  for (int64_t i = begin, next; i < end; i = next) {
    int output = suspects[i].output;
    int64_t word = launch.outputs[output].word;
    Birth birth;
    birth.suspect = i;
    bool any = false;
    for (next = i; next < end && suspects[next].output == output; ++next)
      any |= body.explain(word, suspects[next].index, causesOf[output], birth.node);
    if (!any) // legitimate infinities may hide others
      body.explainAny(word, causesOf[output], birth.node);
    if (birth.node.node >= 0)
      births.add() = birth;
  }
  makeCauses(number, births, causesOf);
}

// A kernel that is one op: it is to blame, unless something bad came in.
Causes explainWhole(int32_t number, const int64_t *offsets, int64_t begin) {
  Causes found = 0;
  for (int i = 0; i < launch.inputCount; ++i) {
    const LaunchBuffer &input = launch.inputs[i];
    int64_t offset = offsetOf(input, offsets);
    BadPlaces bad = badPlaces(*worker, offset, input);
    for (int64_t index : bad.index)
      if (index >= 0)
        found |= causesHere(offset + index * bytesOf(input.elem));
  }
  return found ? found : newCause(causeOf(number, replay->suspects[begin]));
}

} // namespace

Causes causesAt(const Replay &replay, int64_t byte) {
  for (int64_t i = replay.spoiled.size; i-- > 0;)
    if (replay.spoiled[i].begin <= byte && byte < replay.spoiled[i].end)
      return replay.spoiled[i].causes;
  return 0;
}

void checkBefore(Worker &whose, int32_t number, const int64_t *offsets) {
  Turn turn(whose);
  const List<Suspect> &suspects = replay->suspects;
  int64_t &next = replay->nextSuspect;
  if (whose.context.checking != 2 || next == suspects.size || suspects[next].call != replay->calls)
    return;
  lookAt(whose);
  int64_t begin = next;
  while (next < suspects.size && suspects[next].call == replay->calls)
    ++next;
  if (!readLaunch(run.meta, cinch_meta, number, launch) || launch.operations < 0)
    return;
  static List<Causes> causesOf; // the outputs
  causesOf.size = 0;
  for (int i = 0; i < launch.outputCount; ++i)
    causesOf.add() = 0;
  if (launch.body >= 0) {
    explainBody(number, offsets, begin, next, causesOf.items);
  } else {
    Causes found = explainWhole(number, offsets, begin);
    for (Causes &causes : causesOf)
      causes = found;
  }
  for (int64_t i = begin; i < next; ++i) {
    const LaunchBuffer &output = launch.outputs[suspects[i].output];
    if (i > begin && suspects[i].output == suspects[i - 1].output)
      continue;
    Spoiled &bytes = replay->spoiled.add();
    bytes.begin = offsetOf(output, offsets);
    bytes.end = bytes.begin + output.count * bytesOf(output.elem);
    bytes.causes = causesOf[suspects[i].output];
  }
}

void checkAfter(Worker &whose, int32_t number, const int64_t *offsets) {
  Turn turn(whose);
  List<Suspect> &suspects = replay->suspects;
  int64_t call = replay->calls++;
  ++replay->clock;
  if (whose.context.checking != 1 || suspects.size >= kMostSuspects || !readLaunch(run.meta, cinch_meta, number, launch))
    return;
  bool first = suspects.size == 0;
  Cause &firstBad = replay->firstBad;
  for (int i = 0; i < launch.outputCount; ++i) {
    BadPlaces bad = badPlaces(whose, offsetOf(launch.outputs[i], offsets), launch.outputs[i]);
    for (int kind = 0; kind < 3; ++kind) {
      if (bad.index[kind] < 0)
        continue;
      Suspect &suspect = suspects.add();
      suspect.call = call;
      suspect.output = i;
      suspect.index = bad.index[kind];
      suspect.number = bad.number[kind];
      if (first && (firstBad.launch < 0 || (firstBad.output == i && suspect.index < firstBad.index)))
        firstBad = causeOf(number, suspect);
    }
  }
}

// What spoiled bytes that nothing wrote over since.
static Causes causesWithin(int64_t offset, int64_t bytes) {
  Causes causes = 0;
  for (int64_t i = replay->spoiled.size; i-- > 0;) {
    const Spoiled &record = replay->spoiled[i];
    int64_t begin = record.begin > offset ? record.begin : offset;
    if (begin < record.end && begin < offset + bytes && causesAt(*replay, begin) == record.causes) // not written over since
      causes |= record.causes;
  }
  return causes;
}

MessageTag checkSend(Worker &whose, int64_t offset, int64_t bytes) {
  Turn turn(whose);
  MessageTag tag;
  tag.causes = causesWithin(offset, bytes);
  tag.clock = ++replay->clock;
  return tag;
}

void checkReceive(Worker &whose, int from, int64_t offset, int64_t bytes, const MessageTag &tag, bool adds) {
  Turn turn(whose);
  replay->clock = (tag.clock > replay->clock ? tag.clock : replay->clock) + 1;
  if (!tag.causes)
    return;
  Causes bit = 0;
  for (int64_t i = 0; i < replay->causes.size; ++i)
    if (replay->causes[i].from == from && replay->causes[i].passed == tag.causes)
      bit = Causes(1) << i;
  Cause message;
  message.from = from;
  message.passed = tag.causes;
  message.clock = replay->clock;
  const Causes before = adds ? causesWithin(offset, bytes) : 0;
  Spoiled &record = replay->spoiled.add();
  record.begin = offset;
  record.end = offset + bytes;
  record.causes = (bit ? bit : newCause(message)) | before;
}

Replay &replayOf(int64_t number) {
  static Replay *replays;
  if (!replays) {
    replays = allocateArray<Replay>(programWorkers());
    for (int64_t i = 0; i < programWorkers(); ++i)
      replays[i] = Replay();
  }
  return replays[number];
}

void beginReplay(int checking) {
  for (int64_t i = 0; i < workerCount; ++i) {
    Worker &each = workers[i];
    each.replay = &replayOf(each.number);
    each.replay->calls = each.replay->nextSuspect = each.replay->clock = 0;
    each.context.checking = checking;
  }
}

void replayStep(int checking) {
  beginReplay(checking);
  callWorkers(EntryCall::Train, 0);
  for (int64_t i = 0; i < workerCount; ++i)
    workers[i].context.checking = 0;
}

} // namespace cinch::rt
