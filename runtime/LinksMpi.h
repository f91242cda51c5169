// LinksMpi.h: between finding one another (JoinMpi.cpp) and moving frames (LinksMpi.cpp), all on the thread of MPI.
#ifndef CINCH_RUNTIME_LINKSMPI_H
#define CINCH_RUNTIME_LINKSMPI_H
#include "runtime/Links.h"
#include "runtime/Mpi.h"

namespace cinch::rt {

extern Mpi mpi; // of this process
void sendBytes(const void *from, int64_t bytes, int64_t worker, int tag, MpiRequest &);
void receiveBytes(void *into, int64_t bytes, int64_t worker, int tag, MpiRequest &);
bool isDone(MpiRequest &);

// ---- Sums of replicas by the library (--all-reduce mpi) ----
// Those that have a worker's place in all replicas.
void makeReplicaGroup();
// Values in place; the request is tested as any.
void sumAmongReplicas(void *values, int64_t bytes, bool wide, MpiRequest &);
// For a worker's thread: the thread of MPI does it, and `counter` counts when it is done, in the order in which sums are posted. So many wait at most.
constexpr uint32_t kSums = 64;
void postSum(char *values, int64_t bytes, bool wide, Counter &counter);
// The library has so many of them at a time, as it takes memory of its own for each.
constexpr uint32_t kSumsAtOnce = 4;

// Before anything else; messages may be too large for MPI.
void makeMpiLinks();
// Moves frames until the end of the process. Every link is open; `joined` counts when it has begun.
[[noreturn]] void moveOverMpi(Counter &joined);

// Between two looks at what has come, if nothing has. Giving the processor away is quickest while no other thread wants it. Where others do, each of
// them takes a turn of some milliseconds first, and a short sleep is over sooner: a second long nothing is given away then.
class Rest {
public:
  void something() { idle = 0; }
  void nothing(Counter &wakeUp, uint32_t seen); // ends early when that counts

private:
  int64_t idle = 0; // looks in a row that found nothing
  double crowdedUntil = 0;
};

constexpr int kPacketTag = 1, kBulkTag = 2, kJoinTag = 3, kFirstChannelTag = 16;

} // namespace cinch::rt
#endif
