// Checking.h: what the replays after a failed gate find (Checking.cpp), and what the message about it is made of
// (CheckingReport.cpp).
#ifndef CINCH_RUNTIME_CHECKING_H
#define CINCH_RUNTIME_CHECKING_H
#include "runtime/KernelBody.h"
#include "runtime/Meta.h"

namespace cinch::rt {

struct Worker;

// What goes with a message in a replay: the causes of its bad numbers, as its sender numbers them, and the sender's clock.
struct MessageTag {
  Causes causes = 0;
  int64_t clock = 0;
};
MessageTag checkSend(Worker &, int64_t offset, int64_t bytes);
void checkReceive(Worker &, int from, int64_t offset, int64_t bytes, const MessageTag &, bool adds);

// A bad number that a launch will store. Of an output, the first NaN and the first infinity of each sign are noted.
struct Suspect {
  int64_t call = 0; // number of the launch in the step, repetitions counted
  int output = 0;
  int64_t index = 0;
  double number = 0;
};
// Bytes of the arena that a bad launch or a message wrote.
struct Spoiled {
  int64_t begin = 0, end = 0;
  Causes causes = 0;
};
struct Cause {
  int32_t launch = -1;
  BadNode node; // node.node < 0: the kernel is not described inside
  int output = 0;
  int64_t index = 0, firstExample = 0, firstPosition = 0;
  double number = 0;
  int64_t clock = 0;
  // Not an op but a message: bad numbers with these causes of worker `from` (-1: an op).
  int from = -1;
  Causes passed = 0;
};

// Of one worker. The clock counts launches and messages, and is moved on to that of a message (Lamport, 1978): what depends
// on something else has the higher clock, on whichever worker, and no clock depends on how long anything takes.
struct Replay {
  List<Suspect> suspects;
  List<Spoiled> spoiled;
  List<Cause> causes;
  Cause firstBad; // the first bad number that was stored, for the case that no cause is found
  int64_t calls = 0, nextSuspect = 0, clock = 0;
};
Replay &replayOf(int64_t worker); // of all workers of the program
Causes causesAt(const Replay &, int64_t byte);

// The first NaN, inf and -inf of a buffer, -1: none.
struct BadPlaces {
  int64_t index[3] = {-1, -1, -1};
  double number[3];
};
BadPlaces badPlaces(const char *at, const LaunchBuffer &);
// CheckingBytes.cpp: the same of what lies `offset` bytes into the worker's arena, wherever that is.
BadPlaces badPlaces(Worker &, int64_t offset, const LaunchBuffer &);
// What lies in the arena of this worker now is looked at, element by element: `elementAt` says where the host finds the element at that byte of it.
void lookAt(Worker &);
const char *elementAt(int64_t byte);

// Before the step runs again in checking mode.
void beginReplay(int checking);
// The number of the first parameter of this process that is not finite, as it lies on the host; -1: all are. `all`: those that no optimizer changes
// are looked at, too, and those that were not finite when training began. Such a one may be infinite by intention: a mask.
int64_t firstBadParameter(bool all);
// Before training begins, and before anything lies on a device: which parameters of this process are not finite now.
void lookAtFirstParameters();
// Runs the step again on all workers. 1: notes which launches store bad numbers; 2: finds out why.
void replayStep(int checking);

} // namespace cinch::rt
#endif
