// JoinMpi.cpp: the launcher has brought the processes together; whether they belong together is seen here.
#include "runtime/Join.h"
#include "runtime/Launcher.h"
#include "runtime/LinksMpi.h"
#include "runtime/Peers.h"
#include "runtime/PeersProtocol.h"
#include "runtime/Pool.h"
#include "runtime/Run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

Counter joined;
int64_t awaited = -1; // the worker that the thread of MPI waits for; -1: the library does not say for whom

// Worker 0 looks at everybody's card, and everybody hears what it thinks of them.
void showCards() {
  const int64_t count = programWorkers();
  Card own = ownCard(), *cards = allocateArray<Card>(count);
  Verdict verdict = {};
  MpiRequest request;
  const double patience = joinSeconds();
  TimeLimit limit(patience);
  auto await = [&](int64_t worker) {
    __atomic_store_n(&awaited, worker, __ATOMIC_RELAXED);
    while (!isDone(request)) {
      if (limit.isOver())
        lostWorker(worker, Loss::Silent, patience);
      usleep(200);
    }
  };
  if (ownWorker != 0) {
    sendBytes(&own, sizeof own, 0, kJoinTag, request);
    await(0);
    receiveBytes(&verdict, sizeof verdict, 0, kJoinTag, request);
    await(0);
  } else {
    verdict.accepted = 1;
    Text why;
    for (int64_t i = 1; i < count; ++i) {
      receiveBytes(&cards[i], sizeof cards[i], i, kJoinTag, request);
      await(i);
      if (!why.size && !isCard(cards[i]))
        why.add("process %lld of %s runs another program than worker 0", (long long)i, mpi.name);
      else if (!why.size)
        judge(own, cards[i], false, why);
    }
    verdict.accepted = why.size == 0;
    snprintf(verdict.words, sizeof verdict.words, "%.511s", why.data);
    for (int64_t i = 1; i < count; ++i) {
      sendBytes(&verdict, sizeof verdict, i, kJoinTag, request);
      await(i);
    }
  }
  if (!verdict.accepted) {
    mpi.finalize();
    fail(kUsage, "%s", verdict.words);
  }
}

// What a link from one worker to another carries at most in one message; 0: they have no link.
int64_t largestMessage(int64_t from, int64_t to) {
  if (!links[from == ownWorker ? to : from].frames)
    return 0;
  int64_t bytes = from == 0 || to == 0 ? kPieceBytes : kControlBytes; // pieces of tensors go through worker 0
  for (const ChannelSpec &channel : run.meta.channels)
    if (channel.from == from && channel.to == to && channel.bytes > bytes)
      bytes = channel.bytes;
  return bytes;
}

// One message of so many bytes, each time through the same room.
void carry(int64_t from, int64_t to, int64_t bytes, int times) {
  void *room = mmap(nullptr, size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    fail(kResources, "no memory for a message of %lld bytes", (long long)bytes);
  memset(room, 0, size_t(bytes));
  MpiRequest request;
  const double patience = joinSeconds();
  TimeLimit limit(patience);
  for (int i = 0; i < times; ++i) {
    if (ownWorker == from)
      sendBytes(room, bytes, to, kJoinTag, request);
    else
      receiveBytes(room, bytes, from, kJoinTag, request);
    Rest rest;
    for (Counter never; !isDone(request); rest.nothing(never, never.now()))
      if (limit.isOver())
        lostWorker(ownWorker == from ? to : from, Loss::Silent, patience);
  }
  munmap(room, size_t(bytes));
}

// As many sums of replicas as there ever are at a time, of the largest size, for the same reason.
void trySums() {
  int64_t bytes = 0;
  for (const ChannelSpec &channel : run.meta.channels)
    if (channel.sums && (channel.from == ownWorker || channel.to == ownWorker) && channel.bytes > bytes)
      bytes = channel.bytes;
  makeReplicaGroup();
  if (!bytes)
    return;
  void *room = mmap(nullptr, kSumsAtOnce * size_t(bytes), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (room == MAP_FAILED)
    fail(kResources, "no memory for %u sums of %lld bytes", kSumsAtOnce, (long long)bytes);
  memset(room, 0, kSumsAtOnce * size_t(bytes));
  MpiRequest requests[kSumsAtOnce];
  const double patience = joinSeconds();
  TimeLimit limit(patience);
  for (uint32_t i = 0; i < kSumsAtOnce; ++i)
    sumAmongReplicas(static_cast<char *>(room) + i * bytes, bytes, false, requests[i]);
  Rest rest;
  for (MpiRequest &request : requests)
    for (Counter never; !isDone(request); rest.nothing(never, never.now()))
      if (limit.isOver())
        fail(kResources, "the replicas of worker %lld did not come to a first sum within %g s", (long long)ownWorker, patience);
  munmap(room, kSumsAtOnce * size_t(bytes));
}

// Every link carries its largest message, each way, before the memory is looked at: libraries take theirs when they need it. Small messages
// go so often that each cell of the library has had its turn, since both sides touch its pages.
void tryLinks() {
  constexpr int64_t kCell = 2 << 10; // a larger message goes another way
  const int64_t count = programWorkers();
  for (int64_t i = 0; i < count; ++i)
    for (int64_t j = 0; j < count; ++j) {
      if (i == j || (ownWorker != i && ownWorker != j))
        continue;
      int64_t bytes = largestMessage(i, j);
      if (!bytes)
        continue;
      carry(i, j, bytes, 1);
      if (mpi.cells)
        carry(i, j, bytes < kCell ? bytes : kCell, 2 * mpi.cells);
    }
  if (run.options.sumsByMpi)
    trySums();
  // Whoever is through with it would soon miss the others.
  for (bool back : {false, true})
    for (int64_t i = 1; i < count; ++i)
      if (ownWorker == 0 || ownWorker == i)
        carry(back ? 0 : i, back ? i : 0, 1, 1);
}

void *begin(void *) { // the thread of MPI
  openMpi(mpi);
  int given = 0, size = 0, rank = 0;
  // MPICH's cells hold a packet of ours. Which of 512 a sender meets changes with the time that a receiver takes, and a cell that nobody met before is
  // memory that was not measured: with the 8256 bytes that are usual, up to 0.6 MB of a process with five links, on a busy machine.
  for (const char *variable : {"UCX_SYSV_SEG_SIZE", "UCX_POSIX_SEG_SIZE"})
    setenv(variable, "2304", 0);
  const int kFunneled = 1; // in both
  // Open MPI would give the processor away in every test of a request; its thread rests between rounds of them (LinksMpi.cpp).
  setenv("OMPI_MCA_mpi_yield_when_idle", "0", 1);
  mpi.initThread(nullptr, nullptr, kFunneled, &given);
  setFloatingPointMode(); // the library may have changed it
  mpi.commSize(mpi.world, &size);
  mpi.commRank(mpi.world, &rank);
  Launcher launcher = findLauncher();
  if (size != programWorkers() || rank != ownWorker)
    fail(kUsage, "%s started this as process %lld of %lld, but the library of %s says %d of %d: is it another MPI's? (CINCH_MPI=openmpi or "
         "mpich chooses)", launcher.who ? launcher.who : "somebody", (long long)ownWorker, (long long)programWorkers(), mpi.name, rank, size);
  showCards();
  tryLinks();
  moveOverMpi(joined);
}

} // namespace

void joinByMpi() {
  makeMpiLinks();
  startThread(begin, nullptr, int64_t(8) << 20, "the thread for messages");
  if (!awaitFor(&joined.value, 0, &joined.sleepers, kSilentJoin) && !joined.now()) {
    int64_t worker = __atomic_load_n(&awaited, __ATOMIC_RELAXED);
    Text whom;
    if (worker >= 0)
      whom.add("worker %lld", (long long)worker);
    else
      whom.add("the other %lld", (long long)(programWorkers() - 1));
    sayAnyway("worker %lld of %lld waits for %s of the processes that %s starts", (long long)ownWorker, (long long)programWorkers(), whom.data,
              mpi.name[0] ? mpi.name : "the MPI library");
  }
  while (!joined.now())
    awaitFor(&joined.value, 0, &joined.sleepers, 60);
  setFloatingPointMode();
}

} // namespace cinch::rt
