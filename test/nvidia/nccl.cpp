// nccl.cpp: the functions of NVIDIA's communication library (libnccl.so.2) that the runtime calls, done by the stand-in's devices: how the runtime
// uses the library is what this tests. The processes of a communicator share a file in /dev/shm.
//
// A message leaves when it is being received, not before, as large ones do; from then on until it is there, the receiver's bytes may hold anything.
// Sums are added from the last process to the first. Two processes with one device are refused, as the library does.
//   STANDIN_FAIL    ncclSend and the like return an error
//   STANDIN_NCCL    the version (22105)
#include "driver.h"

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace standin;

namespace {

enum { kSystemError = 2, kInvalidArgument = 4, kInvalidUsage = 5, kRemoteError = 6 };
constexpr int kMost = 8;                    // members
constexpr size_t kSpace = size_t(16) << 20; // of a message

struct Way { // from one member to another
  std::atomic<int> state; // 0: nothing, 1: its receiver waits, 2: it is there
  size_t bytes;
  bool captured; // on its receiver's side; on both or none, NVIDIA says
  std::atomic<bool> sends, receives; // whether its ends have asked for a message
};
struct Shared {
  std::atomic<int> joined, opened;
  int devices[kMost];
  Way ways[kMost][kMost];
  std::atomic<uint64_t> arrived[kMost], left[kMost]; // of sums
  size_t sumBytes[kMost];
};
struct Comm {
  Device *device;
  int count, rank;
  Shared *shared;
  char *space; // of the messages, then of the sums
  uint64_t sums = 0;
  char *messageOf(int from, int to) { return space + kSpace * size_t(from * kMost + to); }
  char *sumOf(int member) { return space + kSpace * size_t(kMost * kMost + member); }
};

// A GPU works without being waited for.
std::atomic<bool> ends;
std::thread *worker;
void workAlone() {
  worker = new std::thread([] {
    while (!ends) {
      {
        Lock lock(mutex);
        for (Stream *stream : streams)
          drain(*stream, stream->asked);
      }
      usleep(200);
    }
  });
  atexit([] {
    ends = true;
    worker->join();
  });
}

int check(const Comm &comm, const Stream &stream, const void *at, size_t bytes, int peer) {
  if (stream.device != comm.device || !isOn(*comm.device, reinterpret_cast<uint64_t>(at), bytes) || bytes > kSpace)
    return kInvalidArgument;
  return peer < 0 || peer >= comm.count || peer == comm.rank ? kInvalidArgument : 0;
}

// The first message of a way connects its ends. Both calls wait for one another, on the host.
void connect(Comm &comm, int from, int to) {
  Way &way = comm.shared->ways[from][to];
  (comm.rank == from ? way.sends : way.receives) = true;
  for (int waited = 0; !way.sends || !way.receives; usleep(1000))
    if (++waited > 20000)
      fault("NCCL: the first message from one member to another is " + std::string(way.sends ? "sent and never received" : "received and never sent"));
}

int asked(Stream &stream, std::function<int()> run) { return ask(stream, {std::move(run)}) ? 1 : 0; }

template <typename T> void addAll(Comm &comm, T *into, size_t count) {
  for (size_t i = 0; i < count; ++i) {
    T sum = 0;
    for (int member = comm.count; member-- > 0;)
      sum += reinterpret_cast<const T *>(comm.sumOf(member))[i];
    into[i] = sum;
  }
}

} // namespace

extern "C" {
struct ncclUniqueId {
  char bytes[128];
};
int ncclGetVersion(int *version) { return *version = int(number("STANDIN_NCCL", 22105)), planted("ncclGetVersion", kSystemError); }
int ncclGetUniqueId(ncclUniqueId *id) {
  static int made = 0;
  memset(id->bytes, 0, sizeof id->bytes);
  snprintf(id->bytes, sizeof id->bytes, "/standin-nccl-%d-%d", int(getpid()), ++made);
  return planted("ncclGetUniqueId", kSystemError);
}
int ncclCommInitRank(void **made, int count, ncclUniqueId id, int rank) {
  if (int result = planted("ncclCommInitRank", kSystemError))
    return result;
  if (!current || count < 1 || count > kMost || rank < 0 || rank >= count || !id.bytes[0])
    return kInvalidArgument;
  const size_t bytes = sizeof(Shared) + 64 + kSpace * kMost * (kMost + 1);
  const int file = shm_open(id.bytes, O_RDWR | O_CREAT, 0600);
  if (file < 0 || ftruncate(file, off_t(bytes)) != 0)
    return kSystemError;
  char *memory = static_cast<char *>(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0));
  close(file);
  if (memory == MAP_FAILED)
    return kSystemError;
  auto *shared = reinterpret_cast<Shared *>(memory);
  shared->devices[rank] = current->number;
  ++shared->joined;
  for (int waited = 0; shared->joined < count; usleep(1000))
    if (++waited > 60000)
      return kRemoteError;
  shm_unlink(id.bytes);
  for (int i = 0; i < count; ++i)
    for (int j = 0; j < i; ++j)
      if (shared->devices[i] == shared->devices[j])
        return kInvalidUsage;
  Lock lock(mutex);
  *made = new Comm{current, count, rank, shared, memory + (sizeof(Shared) + 63) / 64 * 64};
  note("communicator");
  if (!worker)
    workAlone();
  return 0;
}
int ncclSend(const void *from, size_t bytes, int type, int peer, void *handle, void *to) {
  if (auto *comm = static_cast<Comm *>(handle); peer >= 0 && peer < comm->count)
    connect(*comm, comm->rank, peer);
  Lock lock(mutex);
  auto &comm = *static_cast<Comm *>(handle);
  auto &stream = *static_cast<Stream *>(to);
  if (int result = planted("ncclSend", kSystemError))
    return result;
  if (int result = type != 1 ? kInvalidArgument : check(comm, stream, from, bytes, peer))
    return result;
  note("ncclSend");
  return asked(stream, [=, &comm, captured = stream.capture != nullptr] {
    Way &way = comm.shared->ways[comm.rank][peer];
    if (way.state != 1)
      return int(kBusy);
    if (way.bytes != bytes)
      fault("NCCL: " + std::to_string(bytes) + " bytes are sent where " + std::to_string(way.bytes) + " are received");
    if (way.captured != captured)
      fault("NCCL: a message is in a graph of one process alone");
    memcpy(comm.messageOf(comm.rank, peer), from, bytes);
    way.state = 2;
    return 0;
  });
}
int ncclRecv(void *into, size_t bytes, int type, int peer, void *handle, void *to) {
  if (auto *comm = static_cast<Comm *>(handle); peer >= 0 && peer < comm->count)
    connect(*comm, peer, comm->rank);
  Lock lock(mutex);
  auto &comm = *static_cast<Comm *>(handle);
  auto &stream = *static_cast<Stream *>(to);
  if (int result = planted("ncclRecv", kSystemError))
    return result;
  if (int result = type != 1 ? kInvalidArgument : check(comm, stream, into, bytes, peer))
    return result;
  note("ncclRecv");
  return asked(stream, [=, &comm, captured = stream.capture != nullptr, waits = false]() mutable {
    Way &way = comm.shared->ways[peer][comm.rank];
    if (!waits) {
      if (way.state != 0)
        fault("NCCL: two messages are received at once");
      memset(into, 0xff, bytes);
      way.bytes = bytes, way.captured = captured;
      way.state = 1;
      waits = true;
    }
    if (way.state != 2)
      return int(kBusy);
    memcpy(into, comm.messageOf(peer, comm.rank), bytes);
    way.state = 0;
    waits = false; // in a graph it comes again
    return 0;
  });
}
int ncclAllReduce(const void *from, void *into, size_t count, int type, int operation, void *handle, void *to) {
  Lock lock(mutex);
  auto &comm = *static_cast<Comm *>(handle);
  auto &stream = *static_cast<Stream *>(to);
  const size_t bytes = count * (type == 8 ? 8 : 4);
  if (int result = planted("ncclAllReduce", kSystemError))
    return result;
  if ((type != 7 && type != 8) || operation != 0 || check(comm, stream, from, bytes, comm.rank ? 0 : 1) || check(comm, stream, into, bytes, comm.rank ? 0 : 1))
    return kInvalidArgument;
  note("ncclAllReduce");
  return asked(stream, [=, &comm, waits = false]() mutable {
    Shared &shared = *comm.shared;
    auto all = [&](std::atomic<uint64_t> *counts, uint64_t least) {
      return std::all_of(counts, counts + comm.count, [&](const std::atomic<uint64_t> &each) { return each >= least; });
    };
    if (!waits) {
      if (!all(shared.left, comm.sums)) // somebody still reads the last one
        return int(kBusy);
      memcpy(comm.sumOf(comm.rank), from, bytes);
      memset(into, 0xff, bytes);
      shared.sumBytes[comm.rank] = bytes;
      shared.arrived[comm.rank] = comm.sums + 1;
      waits = true;
    }
    if (!all(shared.arrived, comm.sums + 1))
      return int(kBusy);
    for (int member = 0; member < comm.count; ++member)
      if (shared.sumBytes[member] != bytes)
        fault("NCCL: sums of " + std::to_string(bytes) + " and " + std::to_string(shared.sumBytes[member]) + " bytes meet");
    type == 8 ? addAll(comm, static_cast<double *>(into), count) : addAll(comm, static_cast<float *>(into), count);
    shared.left[comm.rank] = ++comm.sums;
    waits = false;
    return 0;
  });
}
const char *ncclGetErrorString(int error) {
  return error == kSystemError       ? "unhandled system error"
         : error == kInvalidArgument ? "invalid argument"
         : error == kInvalidUsage    ? "invalid usage"
                                     : "remote process exited";
}
}
