// DatasetKept.cpp: see DatasetKept.h.
#include "runtime/DatasetKept.h"
#include "runtime/Output.h"
#include "runtime/Random.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cinch::rt {

// The first line ends with the size of the file, so that one which lost its end is written anew.
constexpr int kSizeDigits = 20, kSizeAt = int(kKeptHead) - kSizeDigits - 1;
static void putSize(char *head, int64_t size) {
  char digits[kSizeDigits + 1];
  snprintf(digits, sizeof digits, "%020lld", (long long)size);
  memcpy(head + kSizeAt, digits, kSizeDigits);
}

// Opens it, if it is there, whole, and was made as it is wanted.
static bool openKept(KeptFile &kept) {
  char there[kKeptHead];
  const char *why;
  kept.fd = openToRead(kept.path.text, kept.size, why);
  putSize(kept.head, kept.size);
  if (kept.fd >= 0 && (!readAt(kept.fd, there, kKeptHead, 0) || memcmp(there, kept.head, kKeptHead) != 0)) {
    close(kept.fd);
    kept.fd = -1;
  }
  return kept.fd >= 0;
}

void findKept(KeptFile &kept, const char *out, const char *set, const char *field, const char *kind, uint64_t asked,
              const FieldFile &source) {
  struct stat status;
  char name[256];
  kept.named = out[0] != 0;
  if (!kept.named)
    out = getenv("TMPDIR") ? getenv("TMPDIR") : "/tmp";
  if (fstat(source.fd, &status) != 0 || !makeFolders(out))
    fail(kResources, "cannot make the folder %s: %s", out, strerror(errno));
  snprintf(kept.head, sizeof kept.head, "%s %016llx %lld %lld.%09ld %016llx", kind, (unsigned long long)asked,
           (long long)status.st_size, (long long)status.st_ctim.tv_sec, long(status.st_ctim.tv_nsec),
           (unsigned long long)hashText(source.path.text));
  size_t used = strlen(kept.head);
  memset(kept.head + used, ' ', kKeptHead - used);
  kept.head[kKeptHead - 1] = '\n';
  kept.head[kKeptHead] = 0;
  snprintf(name, sizeof name, "%.100s.%.100s.%s", set, field, kind);
  if (!kept.named)
    snprintf(name, sizeof name, "cinch-%lld.%s", (long long)getpid(), kind);
  joinPath(kept.path, out, name);
  openKept(kept);
}

bool beginKept(KeptFile &kept, AtomicFile &into) {
  bool good = beginFile(into, kept.path.text);
  if (good && openKept(kept)) {
    abandonFile(into);
    return false;
  }
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
    putSize(kept.head, status.st_size);
    good = pwrite(into.fd, kept.head + kSizeAt, kSizeDigits, kSizeAt) == kSizeDigits && commitFile(into);
  }
  if (!good)
    fail(kResources, "cannot write %s: %s", kept.path.text, strerror(errno));
  kept.size = status.st_size;
  if (!kept.named)
    unlink(kept.path.text);
}

} // namespace cinch::rt
