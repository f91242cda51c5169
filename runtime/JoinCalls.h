// JoinCalls.h: calls over TCP while processes find one another (JoinTcp.cpp). No wait goes beyond the deadline, and no caller holds up another:
// strangers call, too, say nothing or something else, and stay.
#ifndef CINCH_RUNTIME_JOINCALLS_H
#define CINCH_RUNTIME_JOINCALLS_H
#include "runtime/Join.h"
#include <poll.h>

namespace cinch::rt {

// What all waits have in common.
struct JoinWait {
  double deadline = 0; // as monotonicSeconds()
  double sayAt = 0;    // when `say` says for whom this process waits; 0: it did
  void (*say)() = nullptr;
  // A worker whose link has a socket already says something, or has gone, while others are waited for. It may return, if it has read what came.
  void (*heed)(int64_t worker) = nullptr;
};
extern JoinWait joinWait;

constexpr int64_t kMostSockets = 17; // that are waited for at a time, beside those of links
// Waits until something has come, but not beyond `until`, nor the deadline. False: nothing has. Sockets below 0 are passed over.
bool awaitSockets(pollfd *sockets, int64_t count, double until);
// Whole transfers until the deadline.
bool transfer(int fd, void *data, size_t size, bool writes);

// Listens on all addresses of this machine; port 0: any, which is `given`. Where that cannot be, the process ends with kResources.
int listenAt(int port, int &given);
int tryToListen(int port, int &given, int &error); // -1: it cannot be, for the errno `error`
// A connection to one of the addresses of the host; -1 when the deadline has come.
int call(const char *host, const char *port, const char *&why);

// An address as a number.
struct Address {
  char text[64];
  bool isLoopback() const;
};
enum class End { Own, Other };
Address addressOf(int fd, End); // at that end of a connection

// What was sent last is read there: waits for the other side to close, at most until `deadline`, and takes what it still sends. A process that ends
// while something of that is not read yet resets the connection, and then the other side may lose what it was told.
constexpr double kTimeToRead = 2; // seconds
void awaitClose(int fd, double deadline);

// Those who call at a listener, which is theirs from now on.
class Callers {
public:
  explicit Callers(int listener) : listener(listener) {}
  ~Callers(); // turns away who waits
  // The connection of the next that shows the card of a program like this one; -1: none did before the deadline.
  int next(Card &);
  // Hands everybody who waits the same verdict, and who calls until `deadline`, as long as so many are `missing`.
  void tellAll(Verdict &, int64_t missing, double deadline);

private:
  struct Caller {
    int fd = -1;
    double until = 0; // strangers have shown no card by then
    size_t read = 0;  // bytes of the card
    Card card;
  };
  Caller *freePlace();
  void greet();
  bool isWhole(Caller &);
  void dismiss(Caller &);
  static constexpr int kAtOnce = kMostSockets - 1; // beside the listener; further ones wait outside
  int listener;
  Caller callers[kAtOnce];
};

} // namespace cinch::rt
#endif
