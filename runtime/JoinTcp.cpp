// JoinTcp.cpp: how processes find one another: all call worker 0 at MASTER_ADDR:MASTER_PORT, which checks that they belong
// together and tells everybody where the others listen; then those call one another that have a channel in common.
#include "runtime/Join.h"
#include "runtime/Launcher.h"
#include "runtime/LinksTcp.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

// Where a worker listens.
struct Place {
  char host[64];
  int32_t port;
};

double deadline, joinSeconds, saidAt; // saidAt: when it is said what is waited for; 0: it was

// Who is waited for, and where: one line, once.
struct Awaited {
  const char *host = "", *port = ""; // of a worker that is called; empty: others call
  int64_t worker = -1;
};
Awaited awaited;

void addMissing(Text &missing) {
  for (int64_t i = 1; i < programWorkers(); ++i)
    if (ownWorker == 0 ? links[i].fd < 0 : i > ownWorker && needsLink(i, ownWorker) && !links[i].open)
      missing.add("%s%lld", missing.size ? ", " : "", (long long)i);
}

void sayAwaited() {
  if (!saidAt || monotonicSeconds() < saidAt)
    return;
  saidAt = 0;
  if (awaited.worker >= 0) {
    sayAnyway("worker %lld of %lld waits for worker %lld at %s:%s, at most %.0f s", (long long)ownWorker, (long long)programWorkers(),
              (long long)awaited.worker, awaited.host, awaited.port, joinSeconds);
    return;
  }
  Text missing;
  addMissing(missing);
  sayAnyway("worker %lld of %lld waits at %s, port %s, for worker%s %s to call, at most %.0f s", (long long)ownWorker, (long long)programWorkers(),
            ownCard().host, awaited.port, strpbrk(missing.data, ",") ? "s" : "", missing.data, joinSeconds);
}

// poll until the deadline; what is waited for is said meanwhile.
bool ready(pollfd &polled) {
  for (;;) {
    double now = monotonicSeconds(), until = saidAt && saidAt < deadline ? saidAt : deadline;
    if (deadline <= now)
      return false;
    int n = poll(&polled, 1, until > now ? int((until - now) * 1000) + 1 : 1);
    if (n != 0)
      return n > 0;
    sayAwaited();
  }
}

// Whole transfers until the deadline.
bool transfer(int fd, void *data, size_t size, bool writes) {
  char *at = static_cast<char *>(data);
  while (size) {
    pollfd polled = {fd, short(writes ? POLLOUT : POLLIN), 0};
    if (!ready(polled))
      return false;
    ssize_t n = writes ? send(fd, at, size, MSG_NOSIGNAL | MSG_DONTWAIT) : recv(fd, at, size, MSG_DONTWAIT);
    if (n < 0 && (errno == EINTR || errno == EAGAIN))
      continue;
    if (n <= 0)
      return false;
    at += n;
    size -= size_t(n);
  }
  return true;
}

// Listens on all addresses of this machine; port 0: any, which is `given`.
int listenAt(int port, int &given) {
  int error = 0;
  const int families[] = {AF_INET6, AF_INET};
  for (int family : families) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0), one = 1, zero = 0;
    if (fd < 0)
      continue;
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero); // IPv4's calls come in, too
    sockaddr_storage any = {};
    any.ss_family = sa_family_t(family);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    in_port_t &bytes = family == AF_INET6 ? reinterpret_cast<sockaddr_in6 &>(any).sin6_port : reinterpret_cast<sockaddr_in &>(any).sin_port;
    bytes = htons(uint16_t(port));
    if (bind(fd, reinterpret_cast<sockaddr *>(&any), size) == 0 && listen(fd, 128) == 0 &&
        getsockname(fd, reinterpret_cast<sockaddr *>(&any), &size) == 0) {
      given = ntohs(bytes);
      return fd;
    }
    error = errno;
    close(fd);
    if (error == EADDRINUSE)
      break;
  }
  fail(kResources, "worker %lld cannot listen at port %d: %s", (long long)ownWorker, port, strerror(error));
}

void tune(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

// A connection to one of the addresses; -1 when the deadline has come.
int call(const char *host, const char *port, const char *&why) {
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  why = "";
  while (monotonicSeconds() < deadline) {
    sayAwaited();
    if (int error = getaddrinfo(host, port, &wanted, &found)) {
      why = gai_strerror(error);
      usleep(200000);
      continue;
    }
    for (addrinfo *each = found; each; each = each->ai_next) {
      int fd = socket(each->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0);
      if (fd >= 0 && connect(fd, each->ai_addr, each->ai_addrlen) == 0) {
        freeaddrinfo(found);
        tune(fd);
        return fd;
      }
      why = strerror(errno);
      if (fd >= 0)
        close(fd);
    }
    freeaddrinfo(found);
    usleep(50000);
  }
  return -1;
}

int accepted(int listener) {
  pollfd polled = {listener, POLLIN, 0};
  if (!ready(polled))
    return -1;
  int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  if (fd >= 0)
    tune(fd);
  return fd;
}

// The address at the other end of a connection, as a number.
void addressOf(int fd, char (&text)[64]) {
  sockaddr_storage other = {};
  socklen_t size = sizeof other;
  text[0] = 0;
  if (getpeername(fd, reinterpret_cast<sockaddr *>(&other), &size) == 0)
    getnameinfo(reinterpret_cast<sockaddr *>(&other), size, text, sizeof text, nullptr, 0, NI_NUMERICHOST);
}

void open(int64_t worker, int fd) {
  links[worker].fd = fd;
  links[worker].open = true;
}

[[noreturn]] void refuseAll(int caller, const char *why) {
  Verdict verdict = {};
  snprintf(verdict.words, sizeof verdict.words, "%s", why);
  deadline = monotonicSeconds() + 1;
  if (caller >= 0)
    transfer(caller, &verdict, sizeof verdict, true);
  for (int64_t i = 1; i < programWorkers(); ++i)
    if (links[i].fd >= 0)
      transfer(links[i].fd, &verdict, sizeof verdict, true);
  usleep(100000); // for them to read it
  fail(kUsage, "%s", why);
}

// Worker 0: everybody calls.
void receiveAll(int port) {
  const int64_t count = programWorkers();
  Card own = ownCard();
  Verdict verdict = {};
  verdict.accepted = 1;
  verdict.meeting = uint64_t(monotonicSeconds() * 1e9) * 0x9e3779b97f4a7c15u ^ uint64_t(getpid());
  Place *places = allocateArray<Place>(count);
  int given, listener = listenAt(port, given);
  char number[16];
  snprintf(number, sizeof number, "%d", given);
  awaited = {"", number, -1};
  for (int64_t come = 1; come < count;) {
    int fd = accepted(listener);
    if (fd < 0) {
      Text missing, why;
      addMissing(missing);
      why.add("worker 0 at %s waited %.0f s at port %d: of %lld workers %s did not call", own.host, joinSeconds, given,
              (long long)count, missing.data);
      refuseAll(-1, why.data);
    }
    Card card;
    double whole = deadline;
    deadline = monotonicSeconds() + 2; // whoever calls is quick, or no worker
    bool good = transfer(fd, &card, sizeof card, false) && isCard(card);
    deadline = whole;
    if (!good) {
      close(fd);
      continue;
    }
    Text why;
    judge(own, card, links[card.rank < 0 || card.rank >= own.world ? 0 : card.rank].fd >= 0, why);
    if (why.size)
      refuseAll(fd, why.data);
    links[card.rank].fd = fd;
    addressOf(fd, places[card.rank].host);
    places[card.rank].port = card.port;
    ++come;
  }
  close(listener);
  for (int64_t i = 1; i < count; ++i) {
    if (!transfer(links[i].fd, &verdict, sizeof verdict, true) || !transfer(links[i].fd, places, size_t(count) * sizeof(Place), true))
      lostWorker(i, Loss::Gone);
    open(i, links[i].fd);
  }
}

// Another: calls worker 0, then those below that it has a channel with, and is called by those above.
void callOthers(const char *host, const char *port) {
  const int64_t count = programWorkers();
  Card own = ownCard();
  int listener = listenAt(0, own.port);
  const char *why;
  awaited = {host, port, 0};
  int fd = call(host, port, why);
  if (fd < 0)
    fail(kResources, "worker %lld cannot reach worker 0 at %s:%s within %.0f s: %s", (long long)ownWorker, host, port, joinSeconds, why);
  Verdict verdict;
  Place *places = allocateArray<Place>(count);
  if (!transfer(fd, &own, sizeof own, true) || !transfer(fd, &verdict, sizeof verdict, false))
    fail(kResources, "worker 0 at %s:%s did not answer worker %lld", host, port, (long long)ownWorker);
  verdict.words[sizeof verdict.words - 1] = 0;
  if (!verdict.accepted)
    fail(kUsage, "%s", verdict.words);
  if (!transfer(fd, places, size_t(count) * sizeof(Place), false))
    lostWorker(0, Loss::Gone);
  open(0, fd);
  own.meeting = verdict.meeting;
  int64_t callers = 0;
  for (int64_t i = 1; i < count; ++i) {
    if (i == ownWorker || !needsLink(i, ownWorker))
      continue;
    if (i > ownWorker) {
      ++callers;
      continue;
    }
    char number[16];
    snprintf(number, sizeof number, "%d", places[i].port);
    awaited = {places[i].host, number, i};
    int peer = call(places[i].host, number, why);
    if (peer < 0 || !transfer(peer, &own, sizeof own, true))
      fail(kResources, "worker %lld cannot reach worker %lld at %s:%s: %s", (long long)ownWorker, (long long)i, places[i].host, number, why);
    open(i, peer);
  }
  char ownPort[16];
  snprintf(ownPort, sizeof ownPort, "%d", own.port);
  awaited = {"", ownPort, -1};
  while (callers) {
    int peer = accepted(listener);
    Card card;
    if (peer < 0)
      fail(kResources, "worker %lld was not called by %lld of the workers above it", (long long)ownWorker, (long long)callers);
    if (!transfer(peer, &card, sizeof card, false) || card.meeting != own.meeting || card.rank <= ownWorker || card.rank >= count ||
        links[card.rank].open) {
      close(peer);
      continue;
    }
    open(card.rank, peer);
    --callers;
  }
  close(listener);
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
  joinSeconds = workerTimeout > 60 ? workerTimeout : 60;
  deadline = monotonicSeconds() + joinSeconds;
  saidAt = monotonicSeconds() + kSilentJoin;
  if (ownWorker == 0)
    receiveAll(int(number));
  else
    callOthers(host, given);
  saidAt = 0;
  startTcpLinks();
}

} // namespace cinch::rt
