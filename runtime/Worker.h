// Worker.h: who runs a stage of every step. A program of one stage has one worker, the main thread. Otherwise this process has
// all workers, one thread each, or with one process a worker, its own only.
#ifndef CINCH_RUNTIME_WORKER_H
#define CINCH_RUNTIME_WORKER_H
#include "runtime/Meta.h"
#include "runtime/Pool.h"
#include "runtime/runtime.h"

namespace cinch::rt {

// What a message does to the bytes where it is left: sums of floats are added to what is there.
enum class Arrival : int32_t { Replaces, AddsF32, AddsF64 };

struct Replay; // Checking.h: what a worker found in the replay of a failed step

struct Worker {
  cinch_ctx context; // first: the compiled program hands its address back to us
  Pool pool;
  int64_t number = 0;
  int64_t at = 0, bytes = 0; // its part of the arena
  bool gateFailed = false;   // in the step done last
  double waited = 0;         // seconds of training so far in which it waited for another worker's message or for room for its own
  Replay *replay = nullptr;

  int64_t hostAt = 0, hostBytes = 0; // its pinned memory beside a GPU: offsets behind the whole arena
  // Whether a byte of the whole arena is in its part.
  bool has(int64_t offset) const { return (offset >= at && offset < at + bytes) || onHost(offset); }
  bool onHost(int64_t offset) const { return offset >= hostAt && offset < hostAt + hostBytes; }
  // Where it has a tensor; -1: nowhere.
  int64_t placeOf(const Stored &) const;
};
inline Worker &workerOf(cinch_ctx *context) { return *reinterpret_cast<Worker *>(context); }

// The workers of this process. The first is run by the main thread.
extern Worker *workers;
extern int64_t workerCount;

// How many the program has.
int64_t programWorkers();

// Allocates what they work in and starts their threads, `threads` each. `number` -1: all of the program; else that one only.
void startWorkers(int64_t number, int64_t threads, bool touch);

// A byte of the whole arena, which has to be a part of a worker of this process.
char *arenaAt(int64_t offset);
bool isHere(int64_t offset);
// The worker whose part of the arena has that byte.
int64_t ownerOf(int64_t offset);

// Runs job(closure, i, ..) for every worker of this process on its thread; returns when all are done.
void runWorkers(Job, void *closure);

// Sets a word of the context of all workers of this process.
void setWord(int word, int64_t value);
int64_t wordOf(int word); // of the first

// The compiled program's functions, run by all workers at the same time; returns when the last is done.
enum class EntryCall : int32_t { Train, Eval, Predict };
void callWorkers(EntryCall, int64_t microbatches);

} // namespace cinch::rt
#endif
