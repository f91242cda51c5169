// LinksMpi.cpp: frames over MPI. One thread makes every call of the library. Messages of channels are received straight into
// their mailboxes, posted before they are sent, one tag a channel; all other frames are small packets, and bulk follows its own.
//
// The thread polls, since MPI has no way to sleep until something comes; when nothing does it rests.
#include "runtime/LinksMpi.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <limits.h>
#include <new>
#include <sched.h>
#include <string.h>
#include <sys/prctl.h>

namespace cinch::rt {

Mpi mpi;

void sendBytes(const void *from, int64_t bytes, int64_t worker, int tag, MpiRequest &request) {
  mpi.isend(from, int(bytes), mpi.byte, int(worker), tag, mpi.world, request.handle);
}
void receiveBytes(void *into, int64_t bytes, int64_t worker, int tag, MpiRequest &request) {
  mpi.irecv(into, int(bytes), mpi.byte, int(worker), tag, mpi.world, request.handle);
}
bool isDone(MpiRequest &request) {
  int done = 0;
  mpi.test(request.handle, &done, mpi.ignoreStatus);
  return done != 0;
}

namespace {
uintptr_t replicaGroup;
}

void makeReplicaGroup() {
  const int own = int(ownWorker), places = int(programWorkers() / run.meta.replicas);
  mpi.commSplit(mpi.world, own % places, own / places, &replicaGroup);
}

void sumAmongReplicas(void *values, int64_t bytes, bool wide, MpiRequest &request) {
  mpi.iallreduce(mpi.inPlace, values, int(bytes / (wide ? 8 : 4)), wide ? mpi.f64 : mpi.f32, mpi.sum, replicaGroup, request.handle);
}

void Rest::nothing(Counter &wakeUp, uint32_t seen) {
  const double begun = monotonicSeconds();
  if (++idle <= 50 && begun >= crowdedUntil) {
    sched_yield();
    const double now = monotonicSeconds();
    crowdedUntil = now - begun > 200e-6 ? now + 1 : 0;
    return;
  }
  awaitFor(&wakeUp.value, seen, &wakeUp.sleepers, idle < 1000 ? 20e-6 : 200e-6);
}

namespace {

constexpr int kPackets = 4;

struct Packet {
  FrameHead head;
  char body[kControlBytes];
  MpiRequest request;
  bool busy = false;
};
struct MpiLink {
  Packet in, out[kPackets];
  MpiRequest bulkIn, bulkOut;
  bool receivesBulk = false, sendsBulk = false;
  bool gone = false; // its last words came
  FrameHead bulkHead;
  Counter *bulkDone = nullptr;
  char *bulkInto = nullptr;
};
struct MpiChannel {
  MpiRequest out;
  bool sends = false;
  Counter *done = nullptr;
  MpiRequest *in = nullptr; // one a box
  uint64_t posted = kFirstMessage, come = kFirstMessage; // receives
};

// What is summed among the replicas.
struct Sum {
  char *values = nullptr;
  int64_t bytes = 0;
  bool wide = false;
  Counter *done = nullptr;
  MpiRequest request;
};

Sum sums[kSums]; // number i stands at i modulo that
uint32_t sumsPosted, sumsBegun, sumsDone;
MpiLink *mpiLinks;
MpiChannel *mpiChannels;
pthread_t mover;
Counter wakeUp, ended;
uint32_t mailboxesThere, mailboxesPosted, finalizing, wantsEnd;
FrameHead lastHead;
const char *lastWords;

void postPacketReceive(int64_t worker) {
  Packet &packet = mpiLinks[worker].in;
  receiveBytes(&packet, sizeof packet.head + sizeof packet.body, worker, kPacketTag, packet.request);
}

void postMailbox(int64_t number) {
  MpiChannel &own = mpiChannels[number];
  const Channel &channel = channels[number];
  uint64_t message = own.posted++;
  receiveBytes(channel.box(message), channel.spec->bytes, channel.spec->from, kFirstChannelTag + int(number), own.in[channel.boxOf(message)]);
}

Packet *freePacket(MpiLink &own) {
  for (Packet &packet : own.out)
    if (!packet.busy)
      return &packet;
  return nullptr;
}

void sendPacket(Link &link, Packet &packet, const OutFrame &frame, bool withBody) {
  packet.head = frame.head;
  packet.busy = true;
  if (withBody)
    memcpy(packet.body, frame.payload, size_t(frame.head.bytes));
  sendBytes(&packet, int64_t(sizeof packet.head) + (withBody ? frame.head.bytes : 0), link.worker, kPacketTag, packet.request);
}

// The first frame of the link; false: it has to wait. The link's mutex is held.
bool sendFirst(Link &link, MpiLink &own) {
  const OutFrame frame = link.frames[link.first];
  if (frame.head.kind == FrameKind::Message) {
    MpiChannel &channel = mpiChannels[frame.head.number];
    if (channel.sends)
      return false;
    channel.sends = true;
    channel.done = frame.done;
    sendBytes(frame.payload, frame.head.bytes, link.worker, kFirstChannelTag + frame.head.number, channel.out);
    return true;
  }
  Packet *packet = freePacket(own);
  if (!packet || (frame.head.kind == FrameKind::Bulk && own.sendsBulk))
    return false;
  if (frame.head.kind == FrameKind::Credit) // the mailbox is free: the next message may come into it
    postMailbox(frame.head.number);
  sendPacket(link, *packet, frame, frame.head.kind != FrameKind::Bulk && frame.head.bytes > 0);
  if (frame.head.kind == FrameKind::Bulk) {
    own.sendsBulk = true;
    own.bulkDone = frame.done;
    sendBytes(frame.payload, frame.head.bytes, link.worker, kBulkTag, own.bulkOut);
  } else if (frame.done) {
    frame.done->add(); // the packet holds a copy
  }
  return true;
}

bool moveOut(Link &link) {
  MpiLink &own = mpiLinks[link.worker];
  bool moved = false;
  for (Packet &packet : own.out)
    if (packet.busy && isDone(packet.request)) {
      packet.busy = false;
      moved = true;
    }
  if (own.sendsBulk && isDone(own.bulkOut)) {
    own.sendsBulk = false;
    moved = true;
    if (own.bulkDone)
      own.bulkDone->add();
  }
  pthread_mutex_lock(&link.mutex);
  while (link.count && sendFirst(link, own)) {
    link.first = (link.first + 1) % link.capacity;
    --link.count;
    moved = true;
  }
  pthread_mutex_unlock(&link.mutex);
  return moved;
}

bool moveIn(Link &link) {
  MpiLink &own = mpiLinks[link.worker];
  bool moved = false;
  if (own.receivesBulk && isDone(own.bulkIn)) {
    own.receivesBulk = false;
    moved = true;
    delivered(link, own.bulkHead, own.bulkInto);
  }
  // A second bulk waits until the first is complete.
  if (!own.receivesBulk && !own.gone && isDone(own.in.request)) {
    moved = true;
    FrameHead head = own.in.head;
    char *into = placeOf(link, head);
    if (head.kind == FrameKind::Bulk) {
      own.receivesBulk = true;
      own.bulkHead = head;
      own.bulkInto = into;
      receiveBytes(into, head.bytes, link.worker, kBulkTag, own.bulkIn);
    } else if (head.bytes) {
      memcpy(into, own.in.body, size_t(head.bytes));
    }
    own.gone = head.kind == FrameKind::Leaving;
    if (!own.gone)
      postPacketReceive(link.worker);
    if (head.kind != FrameKind::Bulk)
      delivered(link, head, into);
  }
  return moved;
}

bool moveChannels() {
  bool moved = false;
  for (int64_t i = 0; i < run.meta.channels.size; ++i) {
    MpiChannel &own = mpiChannels[i];
    const ChannelSpec &spec = run.meta.channels[i];
    if (own.sends && isDone(own.out)) {
      own.sends = false;
      moved = true;
      own.done->add();
    }
    // They are handed on in their order, whichever is complete first.
    while (own.come != own.posted && isDone(own.in[channels[i].boxOf(own.come)])) {
      ++own.come;
      moved = true;
      FrameHead head;
      head.kind = FrameKind::Message;
      head.number = int32_t(i);
      links[spec.from].lastHeard = monotonicSeconds();
      delivered(links[spec.from], head, nullptr);
    }
  }
  return moved;
}

bool moveSums() {
  bool moved = false;
  while (sumsBegun != sumsDone && isDone(sums[sumsDone % kSums].request)) {
    sums[sumsDone++ % kSums].done->add();
    moved = true;
  }
  while (sumsBegun - sumsDone < kSumsAtOnce && sumsBegun != __atomic_load_n(&sumsPosted, __ATOMIC_ACQUIRE)) {
    Sum &sum = sums[sumsBegun++ % kSums];
    sumAmongReplicas(sum.values, sum.bytes, sum.wide, sum.request);
    moved = true;
  }
  return moved;
}

void post(Link &link, const OutFrame &frame) {
  OutFrame &last = link.frames[(link.first + link.count++) % link.capacity];
  last = frame;
  if (frame.staging && frame.head.kind == FrameKind::Message) {
    memcpy(frame.staging, frame.payload, size_t(frame.head.bytes));
    last.payload = frame.staging;
  }
  wakeUp.add();
}

// Everything was said, and the last words of all the others were heard: what is not received would stay in the library.
bool isOver() {
  for (int64_t i = 0; i < programWorkers(); ++i) {
    if (!links[i].open)
      continue;
    if (links[i].count || !mpiLinks[i].gone)
      return false;
    for (Packet &packet : mpiLinks[i].out)
      if (packet.busy)
        return false;
  }
  return true;
}

void drop(MpiRequest &request) {
  mpi.cancel(request.handle);
  mpi.wait(request.handle, mpi.ignoreStatus);
}

// On the thread of MPI: tells the others, and leaves MPI together with them. A worker that is lost would never come to that.
void end(const FrameHead &head, const char *words) {
  finalizing = 1;
  for (int64_t i = 0; i < programWorkers(); ++i) {
    Link &link = links[i];
    if (!link.open)
      continue;
    OutFrame frame;
    frame.head = head;
    frame.payload = words;
    if (pthread_mutex_trylock(&link.mutex) == 0) {
      if (link.count < link.capacity)
        link.frames[(link.first + link.count++) % link.capacity] = frame;
      pthread_mutex_unlock(&link.mutex);
    }
  }
  bool lost = head.number == kResources && strstr(words, ") lost ");
  double until = monotonicSeconds() + (lost ? 0.2 : 2);
  Rest rest;
  while (!isOver() && monotonicSeconds() < until) {
    moveChannels();
    for (int64_t i = 0; i < programWorkers(); ++i)
      if (links[i].open) {
        moveIn(links[i]);
        moveOut(links[i]);
      }
    rest.nothing(wakeUp, wakeUp.now());
  }
  if (lost || !isOver() || sumsBegun != sumsDone) // replicas that did not come to a sum: nobody would finish it
    mpi.abort(mpi.world, head.number);
  for (int64_t i = 0; i < programWorkers(); ++i)
    if (links[i].open) {
      if (!mpiLinks[i].gone)
        drop(mpiLinks[i].in.request);
      if (mpiLinks[i].receivesBulk)
        drop(mpiLinks[i].bulkIn);
    }
  for (int64_t i = 0; i < run.meta.channels.size; ++i)
    for (MpiChannel &own = mpiChannels[i]; own.come != own.posted; ++own.come)
      drop(own.in[channels[i].boxOf(own.come)]);
  mpi.finalize();
}

void farewell(const FrameHead &head, const char *words) {
  if (pthread_equal(mover, pthread_self())) {
    if (!finalizing)
      end(head, words);
    return;
  }
  lastHead = head;
  lastWords = words;
  __atomic_store_n(&wantsEnd, 1, __ATOMIC_SEQ_CST);
  wakeUp.add();
  double until = monotonicSeconds() + 5;
  while (!ended.now() && monotonicSeconds() < until)
    awaitFor(&ended.value, 0, &ended.sleepers, until - monotonicSeconds());
}

void arenaReady() {
  __atomic_store_n(&mailboxesThere, 1, __ATOMIC_SEQ_CST);
  wakeUp.add();
}

[[noreturn]] void move() {
  const double beat = workerTimeout / 8 < 1 ? workerTimeout / 8 : 1, silence = workerTimeout;
  double before = monotonicSeconds();
  for (Rest rest;;) {
    uint32_t woken = wakeUp.now();
    if (__atomic_load_n(&wantsEnd, __ATOMIC_SEQ_CST)) {
      end(lastHead, lastWords);
      ended.add();
      waitForTheEnd();
    }
    if (!mailboxesPosted && __atomic_load_n(&mailboxesThere, __ATOMIC_SEQ_CST)) {
      mailboxesPosted = 1;
      for (int64_t i = 0; i < run.meta.channels.size; ++i)
        for (int64_t box = 0; run.meta.channels[i].to == ownWorker && box < run.meta.channels[i].boxes; ++box)
          postMailbox(i);
    }
    double now = monotonicSeconds();
    bool slept = now - before > beat + silence / 2; // this process was stopped: the others could not be heard
    before = now;
    bool moved = moveChannels();
    moved |= moveSums();
    for (int64_t i = 0; i < programWorkers(); ++i) {
      Link &link = links[i];
      if (!link.open)
        continue;
      if (moveIn(link)) {
        moved = true;
        link.lastHeard = now;
      }
      moved |= moveOut(link);
      if (now - link.lastSaid >= beat) {
        link.lastSaid = now;
        OutFrame alive;
        if (link.count == 0) {
          pthread_mutex_lock(&link.mutex);
          link.frames[(link.first + link.count++) % link.capacity] = alive;
          pthread_mutex_unlock(&link.mutex);
        }
      }
      if (slept)
        link.lastHeard = now;
      if (now - link.lastHeard > silence && !isLeaving())
        lostWorker(i, Loss::Silent, silence);
    }
    moved ? rest.something() : rest.nothing(wakeUp, woken);
  }
}

} // namespace

void postSum(char *values, int64_t bytes, bool wide, Counter &counter) {
  Sum &sum = sums[sumsPosted % kSums];
  sum.values = values, sum.bytes = bytes, sum.wide = wide, sum.done = &counter;
  __atomic_store_n(&sumsPosted, sumsPosted + 1, __ATOMIC_SEQ_CST);
  wakeUp.add();
}

void makeMpiLinks() {
  const int64_t count = programWorkers();
  mpiLinks = allocateArray<MpiLink>(count);
  mpiChannels = allocateArray<MpiChannel>(run.meta.channels.size);
  for (int64_t i = 0; i < count; ++i)
    new (&mpiLinks[i]) MpiLink();
  for (int64_t i = 0; i < run.meta.channels.size; ++i) {
    const ChannelSpec &spec = run.meta.channels[i];
    if (spec.bytes > INT_MAX)
      fail(kResources, "a message of %lld bytes is too large for MPI; use --transport tcp", (long long)spec.bytes);
    (new (&mpiChannels[i]) MpiChannel())->in = spec.to == ownWorker ? allocateArray<MpiRequest>(spec.boxes) : nullptr;
  }
}

void moveOverMpi(Counter &joined) {
  mover = pthread_self();
  prctl(PR_SET_TIMERSLACK, 1000); // its short sleeps are meant
  for (int64_t i = 0; i < programWorkers(); ++i)
    if (links[i].frames) {
      postPacketReceive(i);
      links[i].open = true;
      links[i].lastHeard = links[i].lastSaid = monotonicSeconds();
    }
  static const Wire overMpi = {post, arenaReady, farewell};
  wire = &overMpi;
  joined.add();
  move();
}

} // namespace cinch::rt
