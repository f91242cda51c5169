// Peers.h: the workers in other processes, as the rest of the runtime sees them. Worker 0 drives: it reads the command line's
// wishes, writes OUT, and asks the others for what it needs. What stands behind this is linked into programs of several
// workers only (-u cinch_join_peers).
#ifndef CINCH_RUNTIME_PEERS_H
#define CINCH_RUNTIME_PEERS_H
#include "runtime/TensorFile.h"
#include "runtime/Worker.h"

namespace cinch::rt {

struct Peers {
  // All of worker 0, in this order: fields of a data set (`entry` null: all of it) are opened by whoever reads them, and what
  // several read is the same everywhere; the workers allocate; a step, an evaluation, ..
  void (*openData)(int dataset, const Entry *entry);
  void (*findNormals)(); // of fields that worker 0 does not read
  void (*prepareArena)(bool touch);
  void (*initialize)();
  void (*beginCall)(EntryCall, int64_t microbatches);
  void (*endCall)();
  double (*waited)(int64_t worker); // seconds in calls so far
  // Bytes of the whole arena that lie elsewhere.
  void (*read)(int64_t offset, char *into, int64_t bytes);
  // `count` values of tensor `number` of parameters and slots, as a file has them, from value `first` on, to who has it, or that part of
  // it, at `offset`.
  void (*store)(const TensorList &, int64_t number, int64_t offset, int64_t part, int64_t first, int64_t count, const char *values, int64_t bytes);
  int64_t (*firstBadParameter)(bool all);
  void (*fetchReplays)();
  int64_t (*peakMemory)(int64_t worker, int64_t &transportBytes);
  void (*stop)(); // in the middle of a step: they wait for what comes next
  // Of every worker.
  void (*send)(Worker &, int32_t channel, int64_t offset, int64_t bytes);
  void (*receive)(Worker &, int32_t channel, int64_t offset, int64_t bytes, Arrival);
  void (*sum)(Worker &, int32_t channel, int64_t offset, int64_t bytes); // among the replicas, by the library: begins
  void (*awaitSums)(Worker &);
};
extern const Peers *peers; // null: all workers are in this process

} // namespace cinch::rt

// Finds the other processes and sets `peers`. Worker 0 returns; the others do what it says and leave with it.
extern "C" void cinch_join_peers() __attribute__((weak));
#endif
