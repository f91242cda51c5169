// LinksTcp.cpp: frames over sockets. Who posts a frame writes as much of it as the socket takes at once; one thread writes the
// rest, reads what comes, and says every now and then that this process is alive.
#include "runtime/LinksTcp.h"
#include "runtime/Output.h"
#include "runtime/Pool.h"
#include <errno.h>
#include <poll.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

int wakeUp = -1; // an eventfd: there is more to write
pthread_t mover;

constexpr int64_t kHeadBytes = sizeof(FrameHead);

// Writes what the socket takes. False: the other side is gone.
bool writeFrames(Link &link) {
  while (link.count) {
    OutFrame &frame = link.frames[link.first];
    iovec parts[2];
    int count = 0;
    if (link.written < kHeadBytes)
      parts[count++] = {reinterpret_cast<char *>(&frame.head) + link.written, size_t(kHeadBytes - link.written)};
    int64_t body = link.written > kHeadBytes ? link.written - kHeadBytes : 0;
    if (frame.head.bytes > body)
      parts[count++] = {const_cast<char *>(frame.payload) + body, size_t(frame.head.bytes - body)};
    msghdr message = {};
    message.msg_iov = parts;
    message.msg_iovlen = size_t(count);
    ssize_t n = sendmsg(link.fd, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (n < 0 && errno == EINTR)
      continue;
    if (n < 0)
      return errno == EAGAIN || errno == EWOULDBLOCK;
    link.written += n;
    if (link.written < kHeadBytes + frame.head.bytes)
      continue;
    Counter *done = frame.done;
    link.written = 0;
    link.first = (link.first + 1) % link.capacity;
    --link.count;
    if (done)
      done->add();
  }
  return true;
}

void post(Link &link, const OutFrame &frame) {
  link.frames[(link.first + link.count) % link.capacity] = frame;
  ++link.count;
  if (link.count == 1)
    (void)writeFrames(link); // an error is seen by the thread that reads
  if (link.count && frame.staging) { // what is left of it waits there
    OutFrame &last = link.frames[(link.first + link.count - 1) % link.capacity];
    int64_t body = link.count == 1 && link.written > kHeadBytes ? link.written - kHeadBytes : 0;
    memcpy(frame.staging + body, frame.payload + body, size_t(frame.head.bytes - body));
    last.payload = frame.staging;
  }
  if (link.count) {
    uint64_t one = 1;
    (void)!write(wakeUp, &one, 8);
  }
}

// False: the other side is gone.
bool readFrames(Link &link) {
  for (int frames = 0; frames < 64; ++frames) { // then it is the turn of others
    while (link.headRead < kHeadBytes) {
      ssize_t n = recv(link.fd, reinterpret_cast<char *>(&link.head) + link.headRead, size_t(kHeadBytes - link.headRead), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      link.lastHeard = monotonicSeconds();
      link.headRead += n;
      if (link.headRead == kHeadBytes) {
        link.into = placeOf(link, link.head);
        link.bodyRead = 0;
      }
    }
    while (link.bodyRead < link.head.bytes) {
      ssize_t n = recv(link.fd, link.into + link.bodyRead, size_t(link.head.bytes - link.bodyRead), MSG_DONTWAIT);
      if (n < 0 && errno == EINTR)
        continue;
      if (n <= 0)
        return n < 0 && (errno == EAGAIN || errno == EWOULDBLOCK);
      link.lastHeard = monotonicSeconds();
      link.bodyRead += n;
    }
    link.headRead = 0;
    delivered(link, link.head, link.into);
  }
  return true;
}

void *move(void *) {
  const int64_t count = programWorkers();
  pollfd *polled = allocateArray<pollfd>(count + 1);
  const double beat = workerTimeout / 8 < 1 ? workerTimeout / 8 : 1, silence = workerTimeout;
  for (double now = monotonicSeconds();; now = monotonicSeconds()) {
    polled[count] = {wakeUp, POLLIN, 0};
    for (int64_t i = 0; i < count; ++i) {
      Link &link = links[i];
      polled[i] = {link.open ? link.fd : -1, POLLIN, 0};
      if (!link.open || isLeaving())
        continue;
      pthread_mutex_lock(&link.mutex);
      if (link.count)
        polled[i].events |= POLLOUT;
      pthread_mutex_unlock(&link.mutex);
    }
    poll(polled, nfds_t(count + 1), int(beat * 1000));
    uint64_t ignored;
    if (polled[count].revents)
      (void)!read(wakeUp, &ignored, 8);
    double woken = monotonicSeconds();
    bool slept = woken - now > beat + silence / 2; // this process was stopped: the others could not be heard
    for (int64_t i = 0; i < count; ++i) {
      Link &link = links[i];
      if (!link.open)
        continue;
      if ((polled[i].revents & (POLLIN | POLLHUP | POLLERR)) && !readFrames(link)) {
        if (!isLeaving())
          lostWorker(i, Loss::Gone);
        __atomic_store_n(&link.open, false, __ATOMIC_SEQ_CST);
        continue;
      }
      if (isLeaving()) // whoever leaves writes
        continue;
      pthread_mutex_lock(&link.mutex);
      if (woken - link.lastSaid >= beat && link.count == 0) {
        OutFrame alive;
        link.frames[link.first] = alive;
        ++link.count;
      }
      if (woken - link.lastSaid >= beat)
        link.lastSaid = woken;
      bool good = !link.count || writeFrames(link);
      pthread_mutex_unlock(&link.mutex);
      if (slept)
        link.lastHeard = woken;
      if (!good || woken - link.lastHeard > silence)
        lostWorker(i, good ? Loss::Silent : Loss::Gone, silence);
    }
  }
  return nullptr;
}

// Writes what is under way and the last words, for half a second at most, and waits until the others are gone, too: a socket
// that is closed before they have read them may take them along.
void farewell(const FrameHead &head, const char *words) {
  const double until = monotonicSeconds() + 0.5;
  const int64_t count = programWorkers();
  for (int64_t i = 0; i < count; ++i) {
    Link &link = links[i];
    if (!__atomic_load_n(&link.open, __ATOMIC_SEQ_CST))
      continue;
    bool mine = false;
    while (!(mine = pthread_mutex_trylock(&link.mutex) == 0) && monotonicSeconds() < until)
      usleep(500); // its owner may be a thread that waits for the end
    if (!mine)
      continue;
    while (link.count && monotonicSeconds() < until && writeFrames(link)) {
      pollfd polled = {link.fd, POLLOUT, 0};
      if (link.count)
        poll(&polled, 1, 20);
    }
    if (!link.count && send(link.fd, &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT) == ssize_t(sizeof head) && head.bytes)
      (void)!send(link.fd, words, size_t(head.bytes), MSG_NOSIGNAL | MSG_DONTWAIT);
    shutdown(link.fd, SHUT_WR);
    pthread_mutex_unlock(&link.mutex);
  }
  if (pthread_equal(mover, pthread_self()))
    return;
  for (int64_t i = 0; i < count; ++i)
    while (__atomic_load_n(&links[i].open, __ATOMIC_SEQ_CST) && monotonicSeconds() < until)
      usleep(500);
}

void *begin(void *) {
  mover = pthread_self();
  return move(nullptr);
}

const Wire tcp = {post, nullptr, farewell};

} // namespace

void startTcpLinks() {
  wakeUp = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  if (wakeUp < 0)
    fail(kResources, "cannot make an eventfd: %s", strerror(errno));
  for (int64_t i = 0; i < programWorkers(); ++i)
    links[i].lastHeard = links[i].lastSaid = monotonicSeconds();
  wire = &tcp;
  startThread(begin, nullptr, int64_t(256) << 10, "the thread for messages");
}

} // namespace cinch::rt
