// JoinTcp.cpp: how processes find one another: all call worker 0 at MASTER_ADDR:MASTER_PORT, which checks that they belong together and tells
// everybody where the others listen; then those call one another that have a channel in common. Each tells worker 0 that it has; when all have,
// worker 0 lets all begin, since who begins earlier would soon miss the others.
#include "runtime/Join.h"
#include "runtime/JoinCalls.h"
#include "runtime/Launcher.h"
#include "runtime/LinksTcp.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

// Where a worker listens.
struct Place {
  Address host;
  int32_t port;
};

double seconds; // joinSeconds()
// Who waits for the word of another that waits itself waits longer by so much, or they would give up at once, and the reason would not be heard.
constexpr double kGrace = 2;

void grant(double most) { joinWait.deadline = monotonicSeconds() + most; }

// Who is waited for, and where: one line, once.
struct Awaited {
  const char *host = "", *port = ""; // of a worker that is called; host empty: others call
  int64_t worker = -1;
  bool meeting = false; // worker 0: all have called, and call one another
};
Awaited awaited;

// Its number, or numbers, as "worker 2" or "workers 1, 2".
void nameMissing(Text &text) {
  Text missing;
  for (int64_t i = 1; i < programWorkers(); ++i)
    if (ownWorker != 0 ? i > ownWorker && needsLink(i, ownWorker) && !links[i].open : awaited.meeting ? !links[i].open : links[i].fd < 0)
      missing.add("%s%lld", missing.size ? ", " : "", (long long)i);
  text.add("worker%s %s", strpbrk(missing.data, ",") ? "s" : "", missing.data);
}

void sayAwaited() {
  Text line;
  line.add("worker %lld of %lld waits ", (long long)ownWorker, (long long)programWorkers());
  if (awaited.worker >= 0) {
    line.add("for worker %lld at %s:%s", (long long)awaited.worker, awaited.host, awaited.port);
  } else if (awaited.meeting) {
    line.add("for ");
    nameMissing(line);
    line.add(" to reach the other workers");
  } else {
    line.add("at %s, port %s, for ", ownCard().host, awaited.port);
    nameMissing(line);
    line.add(" to call");
  }
  sayAnyway("%s, at most %g s", line.data, seconds);
}

// ---- Worker 0

Callers *atTheDoor; // those that are not known yet

[[noreturn]] void refuseAll(int caller, int code, const char *why) {
  Verdict verdict = {};
  verdict.code = code;
  snprintf(verdict.words, sizeof verdict.words, "%s", why);
  grant(kTimeToRead);
  const double deadline = monotonicSeconds() + kTimeToRead;
  int64_t missing = programWorkers() - 1 - (caller >= 0);
  if (caller >= 0)
    transfer(caller, &verdict, sizeof verdict, true);
  for (int64_t i = 1; i < programWorkers(); ++i)
    if (links[i].fd >= 0) {
      transfer(links[i].fd, &verdict, sizeof verdict, true);
      --missing;
    }
  if (atTheDoor)
    atTheDoor->tellAll(verdict, missing, deadline);
  if (caller >= 0)
    awaitClose(caller, deadline);
  for (int64_t i = 1; i < programWorkers(); ++i)
    if (links[i].fd >= 0)
      awaitClose(links[i].fd, deadline);
  fail(code, "%s", why);
}

[[noreturn]] void refuseSinceLost(int64_t worker) {
  Text why;
  why.add("worker %lld lost before all workers had joined: its connection has ended", (long long)worker);
  refuseAll(-1, kResources, why.data);
}

// What a worker that has called says: that it has met the others, or why it cannot; or it has ended.
void heedOther(int64_t worker) {
  Verdict verdict;
  if (!transfer(links[worker].fd, &verdict, sizeof verdict, false))
    refuseSinceLost(worker);
  verdict.words[sizeof verdict.words - 1] = 0;
  if (!verdict.accepted)
    refuseAll(-1, kResources, verdict.words);
  links[worker].open = true;
}

// Where worker `to` can call the others. Who came over the loopback is on this machine: a worker of another machine calls it where it has called
// worker 0. (On the machine of MASTER_ADDR its name may stand for 127.0.1.1.)
void placesFor(int64_t to, const Place *seen, Place *told) {
  const bool elsewhere = !seen[to].host.isLoopback();
  const Address here = addressOf(links[to].fd, End::Own);
  for (int64_t i = 1; i < programWorkers(); ++i) {
    told[i] = seen[i];
    if (elsewhere && seen[i].host.isLoopback())
      told[i].host = here;
  }
}

void tellPlaces(const Place *seen, Verdict &verdict) {
  const int64_t count = programWorkers();
  Place *told = allocateArray<Place>(count);
  memset(told, 0, size_t(count) * sizeof(Place));
  for (int64_t i = 1; i < count; ++i) {
    placesFor(i, seen, told);
    if (!transfer(links[i].fd, &verdict, sizeof verdict, true) || !transfer(links[i].fd, told, size_t(count) * sizeof(Place), true))
      refuseSinceLost(i);
  }
}

bool haveMet() {
  for (int64_t i = 1; i < programWorkers(); ++i)
    if (!links[i].open)
      return false;
  return true;
}

void awaitMeeting(Verdict &verdict) {
  grant(seconds + 2 * kGrace);
  joinWait.sayAt = monotonicSeconds() + kSilentJoin;
  awaited.meeting = true;
  while (!haveMet())
    if (!awaitSockets(nullptr, 0, joinWait.deadline)) {
      Text why;
      nameMissing(why);
      why.add(" did not reach all other workers within %g s", seconds);
      refuseAll(-1, kResources, why.data);
    }
  for (int64_t i = 1; i < programWorkers(); ++i)
    if (!transfer(links[i].fd, &verdict, sizeof verdict, true))
      lostWorker(i, Loss::Gone);
}

// Everybody calls.
void receiveAll(int port) {
  const int64_t count = programWorkers();
  const Card own = ownCard();
  Verdict verdict = {};
  verdict.accepted = 1;
  verdict.meeting = uint64_t(monotonicSeconds() * 1e9) * 0x9e3779b97f4a7c15u ^ uint64_t(getpid());
  Place *places = allocateArray<Place>(count);
  int given;
  {
    Callers callers(listenAt(port, given));
    atTheDoor = &callers;
    char number[16];
    snprintf(number, sizeof number, "%d", given);
    awaited = {"", number, -1};
    for (int64_t come = 1; come < count; ++come) {
      Card card;
      const int fd = callers.next(card);
      Text why;
      if (fd < 0) {
        nameMissing(why);
        why.add(" of %lld did not call within %g s; worker 0 at %s listened at port %d", (long long)count, seconds, own.host, given);
        refuseAll(-1, kResources, why.data);
      }
      judge(own, card, links[card.rank < 0 || card.rank >= own.world ? 0 : card.rank].fd >= 0, why);
      if (why.size)
        refuseAll(fd, kUsage, why.data);
      links[card.rank].fd = fd;
      places[card.rank] = {addressOf(fd, End::Other), card.port};
    }
    atTheDoor = nullptr;
  }
  answerSignals(); // from here on the others are told
  tellPlaces(places, verdict);
  awaitMeeting(verdict);
}

// ---- Another

const char *firstHost, *firstPort; // of worker 0

// What worker 0 answers. If it refuses, so does this process.
void hearVerdict(int fd, Verdict &verdict) {
  if (!transfer(fd, &verdict, sizeof verdict, false)) {
    if (links[0].open)
      lostWorker(0, Loss::Gone);
    if (monotonicSeconds() < joinWait.deadline)
      fail(kResources, "worker 0 at %s:%s ended the connection with worker %lld", firstHost, firstPort, (long long)ownWorker);
    fail(kResources, "worker 0 at %s:%s did not answer worker %lld within %g s", firstHost, firstPort, (long long)ownWorker, seconds);
  }
  if (verdict.accepted != 0 && verdict.accepted != 1)
    fail(kResources, "what listens at %s:%s is not worker 0 of this program", firstHost, firstPort);
  verdict.words[sizeof verdict.words - 1] = 0;
  if (!verdict.accepted)
    fail(verdict.code == kResources ? kResources : kUsage, "%s", verdict.words);
}

// Before all have met worker 0 has nothing to say but that they will not, and why.
void heedFirst(int64_t) {
  Verdict verdict;
  hearVerdict(links[0].fd, verdict);
}

// Worker 0 tells the others why this one cannot go on.
[[noreturn]] void giveUp(const Text &why) {
  Verdict verdict = {};
  snprintf(verdict.words, sizeof verdict.words, "%s", why.data);
  grant(1);
  transfer(links[0].fd, &verdict, sizeof verdict, true);
  fail(kResources, "%s", why.data);
}

void open(int64_t worker, int fd) {
  links[worker].fd = fd;
  links[worker].open = true;
}

// Shows worker 0 the card, and hears where the others are.
void callFirst(Card &own, Place *places) {
  const int64_t count = programWorkers();
  const char *why;
  awaited = {firstHost, firstPort, 0};
  const int fd = call(firstHost, firstPort, why);
  if (fd < 0)
    fail(kResources, "worker %lld cannot reach worker 0 at %s:%s within %g s: %s", (long long)ownWorker, firstHost, firstPort, seconds, why);
  grant(seconds + kGrace); // worker 0 has begun to wait before this
  (void)transfer(fd, &own, sizeof own, true); // if it does not come to that, there will be no answer
  Verdict verdict;
  hearVerdict(fd, verdict);
  own.meeting = verdict.meeting;
  open(0, fd);
  if (!transfer(fd, places, size_t(count) * sizeof(Place), false))
    lostWorker(0, Loss::Gone);
}

void callBelow(Card &own, const Place *places) {
  for (int64_t i = 1; i < ownWorker; ++i) {
    if (!needsLink(i, ownWorker))
      continue;
    char number[16];
    snprintf(number, sizeof number, "%d", places[i].port);
    awaited = {places[i].host.text, number, i};
    const char *reason;
    const int fd = call(places[i].host.text, number, reason);
    if (fd < 0 || !transfer(fd, &own, sizeof own, true)) {
      Text why;
      why.add("worker %lld cannot reach worker %lld at %s:%s within %g s: %s", (long long)ownWorker, (long long)i, places[i].host.text, number,
              seconds, fd < 0 ? reason : "it ended the connection");
      giveUp(why);
    }
    open(i, fd);
  }
}

void hearAbove(const Card &own, Callers &callers) {
  const int64_t count = programWorkers();
  int64_t missing = 0;
  for (int64_t i = ownWorker + 1; i < count; ++i)
    missing += needsLink(i, ownWorker);
  char number[16];
  snprintf(number, sizeof number, "%d", own.port);
  awaited = {"", number, -1};
  while (missing) {
    Card card;
    const int fd = callers.next(card);
    if (fd < 0) {
      Text why;
      why.add("worker %lld at %s, port %s, was not called within %g s by ", (long long)ownWorker, own.host, number, seconds);
      nameMissing(why);
      giveUp(why);
    }
    if (card.meeting != own.meeting || card.rank <= ownWorker || card.rank >= count || !needsLink(card.rank, ownWorker) || links[card.rank].open) {
      close(fd);
      continue;
    }
    open(card.rank, fd);
    --missing;
  }
}

// Calls worker 0, then those below that it has a channel with, and is called by those above.
void callOthers() {
  Card own = ownCard();
  Callers callers(listenAt(0, own.port));
  Place *places = allocateArray<Place>(programWorkers());
  callFirst(own, places);
  grant(seconds);
  joinWait.sayAt = monotonicSeconds() + kSilentJoin;
  callBelow(own, places);
  grant(seconds + kGrace);
  hearAbove(own, callers);
  grant(seconds + 3 * kGrace);
  joinWait.sayAt = 0;
  Verdict verdict = {};
  verdict.accepted = 1;
  (void)transfer(links[0].fd, &verdict, sizeof verdict, true);
  hearVerdict(links[0].fd, verdict);
}

// Worker 0 that ends before it meets anybody tells why those who call it meanwhile: all of them, or who does within some seconds.
void turnAway(const Card &own) {
  int given, error;
  const int listener = tryToListen(atoi(firstPort), given, error);
  if (listener < 0) // of another worker 0, which they reach
    return;
  grant(kSilentJoin);
  Callers callers(listener);
  for (int64_t come = 1; come < programWorkers(); ++come) {
    Card card;
    const int fd = callers.next(card);
    if (fd < 0)
      return;
    Text why;
    judge(own, card, false, why);
    if (!why.size)
      why.add("worker 0 at %s was started as one of %d, and the program has %lld workers", own.host, own.world, (long long)programWorkers());
    Verdict verdict = {};
    verdict.code = kUsage;
    snprintf(verdict.words, sizeof verdict.words, "%s", why.data);
    transfer(fd, &verdict, sizeof verdict, true);
  }
  usleep(100000); // for the last one to read it
}

// This process was started as one of another number than the program has workers. The others would wait for it: so worker 0 tells them, and
// another one tells worker 0, if it is there already.
[[noreturn]] void leaveForWorld() {
  Card own = ownCard();
  own.world = int32_t(run.options.world);
  if (ownWorker == 0) {
    turnAway(own);
  } else {
    grant(1);
    const char *why;
    const int fd = call(firstHost, firstPort, why);
    Verdict verdict; // it says the same
    if (fd >= 0 && transfer(fd, &own, sizeof own, true))
      (void)transfer(fd, &verdict, sizeof verdict, false);
  }
  failForWorld(run.options, run.meta);
}

} // namespace

void joinByTcp() {
  const char *host = getenv("MASTER_ADDR"), *port = getenv("MASTER_PORT");
  static char node[256], nodePort[16];
  if ((!host || !*host) && (!port || !*port) && findSlurmMaster(node, nodePort))
    host = node, port = nodePort;
  if (!host || !*host || !port || !*port)
    fail(kUsage, "%s is not set: every process needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them",
         host && *host ? "MASTER_PORT" : "MASTER_ADDR");
  char *end;
  long number = strtol(port, &end, 10);
  if (*end || number < 1 || number > 65534)
    fail(kUsage, "MASTER_PORT is `%s`, which is no port", port);
  // torchrun's own agent listens at that port then.
  const char *agent = getenv("TORCHELASTIC_USE_AGENT_STORE");
  if (agent && strcmp(agent, "True") == 0)
    ++number;
  char given[16];
  snprintf(given, sizeof given, "%ld", number);
  firstHost = host, firstPort = given;
  if (run.options.world != programWorkers())
    leaveForWorld();
  seconds = joinSeconds();
  grant(seconds);
  joinWait.sayAt = monotonicSeconds() + kSilentJoin;
  joinWait.say = sayAwaited;
  joinWait.heed = ownWorker == 0 ? heedOther : heedFirst;
  if (ownWorker == 0)
    receiveAll(int(number));
  else
    callOthers();
  startTcpLinks();
}

} // namespace cinch::rt
