// DatasetKept.cpp: see DatasetKept.h.
#include "runtime/DatasetKept.h"
#include "runtime/Checksum.h"
#include "runtime/Output.h"
#include "runtime/Random.h"
#include "runtime/Run.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

namespace cinch::rt {

// The first line ends with the time at which the file was written, a checksum of what is behind the line, and the size of the file. So one that
// lost its end is written anew. One that has another time is looked at: if the checksum is right it was copied, else something in it was changed.
constexpr int kSizeDigits = 20, kSizeAt = int(kKeptHead) - kSizeDigits - 1;
constexpr int kSumDigits = 8, kSumAt = kSizeAt - kSumDigits - 1;
constexpr int kTimeDigits = 30, kTimeAt = kSumAt - kTimeDigits - 1;
static void putSize(char *head, int64_t size) {
  char digits[kSizeDigits + 1];
  snprintf(digits, sizeof digits, "%020lld", (long long)size);
  memcpy(head + kSizeAt, digits, kSizeDigits);
}

static void putTime(char *head, timespec time) {
  char digits[kTimeDigits + 1];
  snprintf(digits, sizeof digits, "%020lld.%09ld", (long long)time.tv_sec, long(time.tv_nsec));
  memcpy(head + kTimeAt, digits, kTimeDigits);
}

// False: it cannot be read.
static bool putSum(char *head, int fd, int64_t size) {
  static char buffer[16384];
  uint32_t crc = 0;
  for (int64_t at = kKeptHead; at < size;) {
    const int64_t now = size - at < int64_t(sizeof buffer) ? size - at : int64_t(sizeof buffer);
    if (!readAt(fd, buffer, size_t(now), at))
      return false;
    crc = crc32c(crc, buffer, size_t(now));
    at += now;
  }
  char digits[kSumDigits + 1];
  snprintf(digits, sizeof digits, "%08x", unsigned(crc));
  memcpy(head + kSumAt, digits, kSumDigits);
  return true;
}

// Whether it is whole, and was made as it is wanted. One that was copied gets its time back, so that it is not read again.
static bool isWanted(KeptFile &kept) {
  char there[kKeptHead];
  struct stat status;
  if (!readAt(kept.fd, there, kKeptHead, 0) || fstat(kept.fd, &status) != 0)
    return false;
  putSize(kept.head, kept.size);
  putTime(kept.head, status.st_mtim);
  memcpy(kept.head + kSumAt, there + kSumAt, kSumDigits);
  if (memcmp(there, kept.head, kKeptHead) == 0)
    return true;
  memcpy(kept.head + kTimeAt, there + kTimeAt, kTimeDigits);
  if (memcmp(there, kept.head, kKeptHead) != 0 || !putSum(kept.head, kept.fd, kept.size) || memcmp(there, kept.head, kKeptHead) != 0)
    return false;
  char *end;
  timespec times[2] = {};
  times[0].tv_nsec = UTIME_OMIT;
  times[1].tv_sec = strtoll(there + kTimeAt, &end, 10);
  if (*end == '.')
    times[1].tv_nsec = strtol(end + 1, nullptr, 10);
  (void)!futimens(kept.fd, times);
  return true;
}

// Opens it, if it is there.
static bool openKept(KeptFile &kept) {
  const char *why;
  kept.fd = openToRead(kept.path.text, kept.size, why);
  if (kept.fd >= 0 && !isWanted(kept)) {
    close(kept.fd);
    kept.fd = -1;
  }
  return kept.fd >= 0;
}

void findKept(KeptFile &kept, const char *out, const char *set, const char *field, const char *kind, uint64_t asked,
              const FieldFile &source) {
  struct stat status;
  char name[256];
  if (fstat(source.fd, &status) != 0)
    fail(kResources, "cannot read %s: %s", source.path.text, strerror(errno));
  snprintf(kept.head, sizeof kept.head, "%s %016llx %lld %lld.%09ld %016llx", kind, (unsigned long long)asked,
           (long long)status.st_size, (long long)status.st_ctim.tv_sec, long(status.st_ctim.tv_nsec),
           (unsigned long long)hashText(source.path.text));
  size_t used = strlen(kept.head);
  memset(kept.head + used, ' ', kKeptHead - used);
  kept.head[kKeptHead - 1] = '\n';
  kept.head[kKeptHead] = 0;
  snprintf(name, sizeof name, "%.100s.%.100s.%s", set, field, kind);
  joinPath(kept.path, out, name);
  kept.named = out[0] != 0;
  if (kept.named && openKept(kept))
    return;
  if (run.options.command == Options::Eval && !(makeFolders(out) && access(out, W_OK) == 0)) // it only prints, and keeps what it may
    kept.named = false;
  if (!kept.named) {
    out = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
    snprintf(name, sizeof name, "cinch-%lld.%s", (long long)getpid(), kind);
    joinPath(kept.path, out, name);
  }
  if (!makeFolders(out))
    fail(kResources, "cannot make the folder %s: %s", out, strerror(errno));
}

bool beginKept(KeptFile &kept, AtomicFile &into) {
  bool good = beginSharedFile(into, kept.path.text);
  if (good && kept.named && openKept(kept)) {
    abandonFile(into);
    return false;
  }
  if (good && !kept.named)
    forgetName(into);
  if (!good || !writeAll(into.fd, kept.head, kKeptHead))
    fail(kResources, "cannot write %s: %s", kept.path.text, strerror(errno));
  return true;
}

// What was written is read by the same descriptor: by now its name may be that of another table, which another process keeps there.
void endKept(KeptFile &kept, AtomicFile &into) {
  struct stat status;
  kept.fd = fcntl(into.fd, F_DUPFD_CLOEXEC, 0);
  bool good = kept.fd >= 0 && fstat(kept.fd, &status) == 0;
  if (good) {
    timespec now[2] = {};
    clock_gettime(CLOCK_REALTIME, &now[1]);
    now[0].tv_nsec = UTIME_OMIT;
    putSize(kept.head, status.st_size);
    putTime(kept.head, now[1]);
    good = putSum(kept.head, into.fd, status.st_size) && pwrite(into.fd, kept.head, kKeptHead, 0) == kKeptHead;
    (void)!futimens(into.fd, now); // where times cannot be set, the checksum is looked at each time
    good = good && commitFile(into);
  }
  if (!good)
    fail(kResources, "cannot write %s: %s", kept.path.text, strerror(errno));
  kept.size = status.st_size;
}

} // namespace cinch::rt
