// JoinCalls.cpp: see JoinCalls.h.
#include "runtime/JoinCalls.h"
#include "runtime/Links.h"
#include "runtime/Run.h"
#include <errno.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

namespace cinch::rt {

JoinWait joinWait;

namespace {

constexpr double kAttempt = 3;       // seconds of one attempt to connect: some of the packets may be lost
constexpr double kSilentCaller = 5;  // a worker shows its card as soon as it is connected
constexpr double kLook = 0.5;        // a wait looks at the clock at least so often

double least(double a, double b) { return a < b ? a : b; }

void sayIfLate() {
  if (!joinWait.sayAt || monotonicSeconds() < joinWait.sayAt)
    return;
  joinWait.sayAt = 0;
  joinWait.say();
}

// One look. What is said or comes to an end while this process is stopped (Ctrl-Z) is later by as much.
int look(pollfd *sockets, int64_t count, double until) {
  const double begun = monotonicSeconds(), wait = least(until - begun, kLook);
  const int ready = poll(sockets, nfds_t(count), wait > 0 ? int(wait * 1000) + 1 : 0);
  const double late = monotonicSeconds() - begun - kLook;
  if (late > TimeLimit::kStopped) {
    joinWait.deadline += late;
    joinWait.sayAt += joinWait.sayAt ? late : 0;
  }
  sayIfLate();
  return ready;
}

bool awaitOne(pollfd &socket) {
  while (monotonicSeconds() < joinWait.deadline)
    if (look(&socket, 1, joinWait.deadline) > 0)
      return true;
  return false;
}

void tune(int fd) {
  int one = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof one);
}

sockaddr *generic(sockaddr_storage &address) { return reinterpret_cast<sockaddr *>(&address); }

// A port that nobody listens at may be connected to itself, if it is among those that the system gives out. Nobody could listen there then, and
// for a minute more if the connection were closed as usual.
bool isItself(int fd) {
  sockaddr_storage own = {}, other = {};
  socklen_t ownSize = sizeof own, otherSize = sizeof other;
  const bool same = getsockname(fd, generic(own), &ownSize) == 0 && getpeername(fd, generic(other), &otherSize) == 0 && ownSize == otherSize &&
                    memcmp(&own, &other, ownSize) == 0;
  const linger reset = {1, 0};
  if (same)
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &reset, sizeof reset);
  return same;
}

// Waits for a connection that is under way. 0, or the error.
int awaitConnection(int fd) {
  const double until = least(monotonicSeconds() + kAttempt, joinWait.deadline);
  pollfd polled = {fd, POLLOUT, 0};
  while (!polled.revents && monotonicSeconds() < until)
    awaitSockets(&polled, 1, until);
  int error = 0;
  socklen_t size = sizeof error;
  if (!polled.revents || getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0)
    return ETIMEDOUT;
  return error;
}

// One attempt; -1: `error` says why not.
int callAddress(const addrinfo &address, int &error) {
  const int fd = socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) {
    error = errno;
    return -1;
  }
  error = connect(fd, address.ai_addr, address.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS)
    error = awaitConnection(fd);
  if (!error && isItself(fd))
    error = ECONNREFUSED;
  if (!error) {
    tune(fd);
    return fd;
  }
  close(fd);
  return -1;
}

} // namespace

bool awaitSockets(pollfd *sockets, int64_t count, double until) {
  const int64_t workers = programWorkers();
  static pollfd *all;
  if (!all)
    all = allocateArray<pollfd>(kMostSockets + workers);
  for (int64_t i = 0; i < count; ++i)
    all[i] = sockets[i];
  for (int64_t i = 0; i < workers; ++i) // worker 0 hears of everybody, everybody of worker 0
    all[count + i] = {ownWorker == 0 || i == 0 ? links[i].fd : -1, POLLIN, 0};
  until = least(until, joinWait.deadline);
  int ready = 0;
  while (ready <= 0 && monotonicSeconds() < until)
    ready = look(all, count + workers, until);
  if (ready <= 0)
    return false;
  for (int64_t i = 0; i < workers; ++i)
    if (all[count + i].revents)
      joinWait.heed(i);
  for (int64_t i = 0; i < count; ++i)
    sockets[i] = all[i];
  return true;
}

bool transfer(int fd, void *data, size_t size, bool writes) {
  char *at = static_cast<char *>(data);
  while (size) {
    pollfd polled = {fd, short(writes ? POLLOUT : POLLIN), 0};
    if (!awaitOne(polled))
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

int tryToListen(int port, int &given, int &error) {
  error = 0;
  const int families[] = {AF_INET6, AF_INET};
  for (int family : families) {
    int fd = socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0), one = 1, zero = 0;
    if (fd < 0) {
      error = errno;
      continue;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &one, sizeof one);
    setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &zero, sizeof zero); // IPv4's calls come in, too
    sockaddr_storage any = {};
    any.ss_family = sa_family_t(family);
    socklen_t size = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
    in_port_t &bytes = family == AF_INET6 ? reinterpret_cast<sockaddr_in6 &>(any).sin6_port : reinterpret_cast<sockaddr_in &>(any).sin_port;
    bytes = htons(uint16_t(port));
    if (bind(fd, generic(any), size) == 0 && listen(fd, 128) == 0 && getsockname(fd, generic(any), &size) == 0) {
      given = ntohs(bytes);
      return fd;
    }
    error = errno;
    close(fd);
    if (error == EADDRINUSE)
      break;
  }
  return -1;
}

int listenAt(int port, int &given) {
  int error;
  const int fd = tryToListen(port, given, error);
  if (fd >= 0)
    return fd;
  fail(kResources, "worker %lld cannot listen at port %d: %s%s", (long long)ownWorker, port, strerror(error),
       error == EADDRINUSE ? "; another worker 0, another run or another program listens there" : "");
}

int call(const char *host, const char *port, const char *&why) {
  addrinfo wanted = {}, *found = nullptr;
  wanted.ai_socktype = SOCK_STREAM;
  why = "";
  while (monotonicSeconds() < joinWait.deadline) {
    sayIfLate();
    if (int error = getaddrinfo(host, port, &wanted, &found)) {
      why = gai_strerror(error);
      usleep(200000);
      continue;
    }
    int fd = -1, error = 0;
    for (addrinfo *each = found; each && fd < 0; each = each->ai_next)
      fd = callAddress(*each, error);
    freeaddrinfo(found);
    if (fd >= 0)
      return fd;
    why = strerror(error);
    awaitSockets(nullptr, 0, monotonicSeconds() + 0.05);
  }
  return -1;
}

bool Address::isLoopback() const { return strncmp(text, "127.", 4) == 0 || strcmp(text, "::1") == 0; }

Address addressOf(int fd, End end) {
  Address address = {};
  sockaddr_storage found = {};
  socklen_t size = sizeof found;
  if ((end == End::Own ? getsockname : getpeername)(fd, generic(found), &size) != 0)
    return address;
  getnameinfo(generic(found), size, address.text, sizeof address.text, nullptr, 0, NI_NUMERICHOST);
  // What came by IPv4 to a listener for both: other machines may have no IPv6 to call that.
  const char mapped[] = "::ffff:";
  const size_t length = sizeof mapped - 1;
  if (strncmp(address.text, mapped, length) == 0 && strchr(address.text, '.'))
    memmove(address.text, address.text + length, strlen(address.text + length) + 1);
  return address;
}

void Callers::dismiss(Caller &caller) {
  close(caller.fd);
  caller.fd = -1;
}

Callers::~Callers() {
  close(listener);
  for (Caller &caller : callers)
    if (caller.fd >= 0)
      dismiss(caller);
}

Callers::Caller *Callers::freePlace() {
  for (Caller &caller : callers)
    if (caller.fd < 0)
      return &caller;
  return nullptr;
}

void Callers::greet() {
  Caller *caller = freePlace();
  const int fd = caller ? accept4(listener, nullptr, nullptr, SOCK_CLOEXEC) : -1;
  if (fd < 0) {
    if (errno != EAGAIN)
      usleep(10000); // a call that is over already; no more files
    return;
  }
  tune(fd);
  caller->fd = fd;
  caller->until = monotonicSeconds() + kSilentCaller;
  caller->read = 0;
}

// Reads what has come of the card. Who shows none is dismissed.
bool Callers::isWhole(Caller &caller) {
  const ssize_t n = recv(caller.fd, reinterpret_cast<char *>(&caller.card) + caller.read, sizeof(Card) - caller.read, MSG_DONTWAIT);
  if (n < 0 && (errno == EAGAIN || errno == EINTR))
    return false;
  caller.read += n > 0 ? size_t(n) : 0;
  if (n <= 0 || (caller.read >= sizeof caller.card.magic && !isCard(caller.card)))
    dismiss(caller);
  return caller.fd >= 0 && caller.read == sizeof(Card);
}

int Callers::next(Card &card) {
  while (monotonicSeconds() < joinWait.deadline) {
    pollfd sockets[1 + kAtOnce];
    double until = joinWait.deadline;
    sockets[0] = {freePlace() ? listener : -1, POLLIN, 0};
    for (int i = 0; i < kAtOnce; ++i) {
      sockets[1 + i] = {callers[i].fd, POLLIN, 0};
      until = callers[i].fd >= 0 ? least(until, callers[i].until) : until;
    }
    const bool came = awaitSockets(sockets, 1 + kAtOnce, until);
    for (int i = 0; i < kAtOnce; ++i) {
      Caller &caller = callers[i];
      if (caller.fd < 0)
        continue;
      if (came && sockets[1 + i].revents && isWhole(caller)) {
        const int fd = caller.fd;
        card = caller.card;
        caller.fd = -1;
        return fd;
      }
      if (caller.fd >= 0 && monotonicSeconds() >= caller.until)
        dismiss(caller);
    }
    if (came && sockets[0].revents)
      greet();
  }
  return -1;
}

void awaitClose(int fd, double deadline) {
  char ignored[4096];
  shutdown(fd, SHUT_WR);
  for (double left; (left = deadline - monotonicSeconds()) > 0;) {
    pollfd polled = {fd, POLLIN, 0};
    const int ready = poll(&polled, 1, int(1000 * left) + 1);
    if (ready < 0 && errno != EINTR)
      return;
    if (ready <= 0)
      continue;
    const ssize_t n = recv(fd, ignored, sizeof ignored, MSG_DONTWAIT);
    if (n == 0 || (n < 0 && errno != EAGAIN && errno != EINTR))
      return;
  }
}

void Callers::tellAll(Verdict &verdict, int64_t missing, double deadline) {
  List<int> told; // closed with the process
  auto tell = [&](int fd) {
    transfer(fd, &verdict, sizeof verdict, true);
    told.add() = fd;
    --missing;
  };
  for (Caller &caller : callers)
    if (caller.fd >= 0)
      tell(caller.fd);
  while (missing > 0 && monotonicSeconds() < deadline)
    if (const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC); fd >= 0)
      tell(fd);
    else
      usleep(5000);
  for (int fd : told)
    awaitClose(fd, deadline);
}

} // namespace cinch::rt
