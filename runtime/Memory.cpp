// Memory.cpp: see Memory.h. Everything comes from mmap, in chunks small enough that little is touched in vain.
#include "runtime/Memory.h"
#include "runtime/Files.h"
#include "runtime/Output.h"
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/sysinfo.h>
#include <unistd.h>

#ifndef MFD_CLOEXEC
#define MFD_CLOEXEC 1
#endif
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif

namespace cinch::rt {

static char *chunk = nullptr;
static size_t chunkLeft = 0;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER; // workers, and the thread for messages, take bytes, too

void *allocate(size_t bytes) {
  bytes = (bytes + 15) & ~size_t(15);
  pthread_mutex_lock(&mutex);
  if (bytes > chunkLeft) {
    size_t size = bytes > (size_t(1) << 18) ? bytes : size_t(1) << 18;
    void *fresh = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (fresh == MAP_FAILED) {
      pthread_mutex_unlock(&mutex); // whoever hears of it may take bytes
      fail(kResources, "cannot allocate %zu bytes: %s", size, strerror(errno));
    }
    (void)madvise(fresh, size, MADV_NOHUGEPAGE);
    chunk = static_cast<char *>(fresh);
    chunkLeft = size;
  }
  void *result = chunk;
  chunk += bytes;
  chunkLeft -= bytes;
  pthread_mutex_unlock(&mutex);
  return result;
}

const char *copyText(const char *text, size_t size) {
  char *copy = static_cast<char *>(allocate(size + 1));
  memcpy(copy, text, size);
  copy[size] = 0;
  return copy;
}

char *makeArena(int64_t bytes, bool touch) {
  const uint64_t block = uint64_t(2) << 20;
  char human[40];
  if (bytes < 0)
    failInternal("the program's arena has %lld bytes", (long long)bytes);
  uint64_t size = bytes ? (uint64_t(bytes) + 4095) & ~uint64_t(4095) : 4096;
  // The kernel may promise more than there is and end the process later; what cannot fit is refused here.
  struct sysinfo machine;
  if (sysinfo(&machine) == 0 && size / machine.mem_unit > machine.totalram + machine.totalswap)
    fail(kResources, "the arena of %s (%lld bytes) is larger than the memory of this machine", humanBytes(human, bytes),
         (long long)bytes);
  void *space = mmap(nullptr, size + block, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (space == MAP_FAILED)
    fail(kResources, "cannot allocate the arena of %s (%lld bytes): %s", humanBytes(human, bytes), (long long)bytes,
         strerror(errno));
  uint64_t start = reinterpret_cast<uint64_t>(space), aligned = (start + block - 1) & ~(block - 1);
  if (aligned > start)
    munmap(space, aligned - start);
  uint64_t behind = start + size + block - (aligned + size);
  if (behind)
    munmap(reinterpret_cast<void *>(aligned + size), behind);
  char *arena = reinterpret_cast<char *>(aligned);
  uint64_t whole = uint64_t(bytes) & ~(block - 1);
  if (whole)
    (void)madvise(arena, whole, MADV_HUGEPAGE);
  if (size > whole)
    (void)madvise(arena + whole, size - whole, MADV_NOHUGEPAGE);
  if (touch && madvise(arena, size, MADV_POPULATE_WRITE) != 0 && errno != EINVAL)
    fail(kResources, "the machine does not have the %s (%lld bytes) of the arena: %s", humanBytes(human, bytes),
         (long long)bytes, strerror(errno));
  return arena;
}

void shareMemory(char *const *places, int64_t count, int64_t bytes) {
  int fd = int(syscall(SYS_memfd_create, "cinch", MFD_CLOEXEC));
  bool good = fd >= 0 && ftruncate(fd, off_t(bytes)) == 0;
  for (int64_t i = 0; good && i < count; ++i)
    good = mmap(places[i], size_t(bytes), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, fd, 0) != MAP_FAILED;
  if (!good)
    fail(kResources, "cannot allocate %lld bytes that the replicas share: %s", (long long)bytes, strerror(errno));
  close(fd);
}

char *makeMirror(int64_t bytes) {
  const size_t size = bytes > 0 ? size_t(bytes) : 4096;
  void *space = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (space == MAP_FAILED)
    fail(kResources, "no addresses for %lld bytes: %s", (long long)bytes, strerror(errno));
  (void)madvise(space, size, MADV_NOHUGEPAGE);
  return static_cast<char *>(space);
}

// The number of arguments stands before the pointers to them, the name of the program behind the texts of the environment.
int64_t bytesOfArguments(char **argv) {
  const uint64_t begin = reinterpret_cast<uint64_t>(argv - 1), name = getauxval(AT_EXECFN);
  if (name < begin)
    return 0;
  return int64_t(name - begin) + int64_t(strlen(reinterpret_cast<const char *>(name))) + 1;
}

static int64_t statusBytes(const char *key) {
  char status[4096];
  int fd = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    return 0;
  ssize_t n = read(fd, status, sizeof status - 1);
  close(fd);
  if (n <= 0)
    return 0;
  status[n] = 0;
  const char *line = strstr(status, key);
  return line ? strtoll(line + strlen(key), nullptr, 10) * 1024 : 0;
}

int64_t peakMemory() { return statusBytes("VmHWM:"); }
int64_t residentMemory() { return statusBytes("VmRSS:"); }

} // namespace cinch::rt
