// Links.h: frames between the processes of a run. One thread of each process moves them (LinksTcp.cpp, LinksMpi.cpp), so that a
// message arrives while its receiver computes, and that everybody hears from everybody all the time: silence is loss.
#ifndef CINCH_RUNTIME_LINKS_H
#define CINCH_RUNTIME_LINKS_H
#include "runtime/Channels.h"
#include "runtime/Waiting.h"
#include <pthread.h>
#include <stdint.h>

namespace cinch::rt {

enum class FrameKind : uint32_t {
  Message, // of channel `number`; goes into its next mailbox
  Credit,  // channel `number`: a mailbox is free again
  Tag,     // of a message in a replay: causes a, clock b
  Control, // one of a kind at a time in each direction: a question, an answer
  Bulk,    // into the place that was named by expectBulk
  Alive,
  Leaving, // the sender leaves with exit code `number`, and so does everybody; its last words are the payload
};
struct FrameHead {
  FrameKind kind = FrameKind::Alive;
  int32_t number = 0;
  int64_t bytes = 0; // of the payload
  uint64_t a = 0, b = 0;
};
constexpr int64_t kControlBytes = 2048;

// A word that others wait for.
struct Counter {
  uint32_t value = 0, sleepers = 0;
  uint32_t now() const { return __atomic_load_n(&value, __ATOMIC_SEQ_CST); }
  void add(uint32_t more = 1) {
    __atomic_add_fetch(&value, more, __ATOMIC_SEQ_CST);
    wakeSleepers(&value, &sleepers);
  }
};

// A frame on its way out. The payload stays where it is until `done` counts.
struct OutFrame {
  FrameHead head;
  const char *payload = nullptr;
  Counter *done = nullptr;
  char *staging = nullptr; // takes the payload, if it cannot be written at once; null: it stays where it is
};

struct Link {
  int64_t worker = -1;
  bool open = false;
  // Out: a ring.
  pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
  OutFrame *frames = nullptr;
  int64_t capacity = 0, first = 0, count = 0;
  int64_t written = 0; // bytes of the first frame, head and payload
  char controlOut[kControlBytes];
  Counter controlSent;
  uint32_t controlPosted = 0;
  // In.
  FrameHead head;
  int64_t headRead = 0, bodyRead = 0;
  char *into = nullptr;
  double lastHeard = 0, lastSaid = 0;
  char controlIn[2][kControlBytes]; // an answer may be followed by the one to `stop`
  char words[kControlBytes];
  Counter controlCame;
  uint32_t controlTaken = 0;
  char *bulk = nullptr;
  int64_t bulkBytes = 0;
  Counter bulkCame;
  uint32_t bulkTaken = 0;
  int fd = -1;
};
extern Link *links; // one a worker; closed ones have no business with this process
extern int64_t ownWorker;
extern double workerTimeout;

// What a transport does. `post` puts a frame into the link's ring, or writes it at once; the link's mutex is held.
struct Wire {
  void (*post)(Link &, const OutFrame &);
  void (*arenaReady)(); // mailboxes are there from now on; null: it does not matter
  void (*farewell)(const FrameHead &, const char *words); // says the last words to all; others will not be heard any more
};
extern const Wire *wire;

// Channels, seen from here: those that send count messages on the wire, those that receive count tags.
struct WireChannel {
  uint32_t posted = 0; // messages handed to the wire
  Counter written;     // of them left the staging bytes
  Counter tagged;      // tags that came
  uint32_t tagsTaken = 0;
};
extern WireChannel *wireChannels;

void prepareLinks(); // makes `links` and opens those that channels and worker 0 need
bool needsLink(int64_t a, int64_t b);
void postFrame(Link &, const OutFrame &);
void sendControl(Link &, const void *content, int64_t bytes);
// The next control frame; `limit` seconds (0: none) until the worker counts as lost.
void receiveControl(Link &, void *content, int64_t bytes, double limit);
bool controlWaits(const Link &);
void expectBulk(Link &, char *into, int64_t bytes);
void awaitBulk(Link &);

// A link on which nothing is heard for workerTimeout is a loss. Who waits for a message gives up after so many seconds: later, as it blames whom it
// waits for, who may be waiting for the silent one.
inline double longestWait() { return workerTimeout * 4 / 3; }

// For transports: where the payload of a frame goes; then that it is complete.
char *placeOf(Link &, const FrameHead &);
void delivered(Link &, const FrameHead &, const char *payload);
// Ends the run: that worker is not there any more, or does not come to the end of what it is waited for.
enum class Loss {
  Gone,   // its connection has ended
  Silent, // not even its thread for messages says anything
  Waited  // it is alive, and slow or stuck
};
[[noreturn]] void lostWorker(int64_t worker, Loss, double seconds = 0); // for which it was silent or waited for
bool isLeaving(); // this process is: whatever happens to others is no loss any more
[[noreturn]] void waitForTheEnd(); // somebody else is ending this process

// TCP: finds the others; every link is open then. MPI: the same.
void joinByTcp();
void joinByMpi();

} // namespace cinch::rt
#endif
