// Files.cpp: system calls only; no stdio, no allocation.
#include "runtime/Files.h"
#include "runtime/Output.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cinch::rt {

bool writeAll(int fd, const void *data, size_t size) {
  const char *at = static_cast<const char *>(data);
  while (size) {
    ssize_t n = write(fd, at, size < (size_t(1) << 30) ? size : size_t(1) << 30);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      if (n == 0)
        errno = EIO;
      return false;
    }
    at += n;
    size -= size_t(n);
  }
  return true;
}

bool readAt(int fd, void *data, size_t size, int64_t offset) {
  char *at = static_cast<char *>(data);
  while (size) {
    ssize_t n = pread(fd, at, size < (size_t(1) << 30) ? size : size_t(1) << 30, offset);
    if (n < 0 && errno == EINTR)
      continue;
    if (n <= 0) {
      if (n == 0)
        errno = 0;
      return false;
    }
    at += n;
    offset += n;
    size -= size_t(n);
  }
  return true;
}

int openToRead(const char *path, int64_t &size, const char *&why) {
  int fd = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  struct stat status;
  if (fd < 0 || fstat(fd, &status) != 0) {
    int error = errno;
    if (fd >= 0)
      close(fd);
    errno = error;
    why = strerror(error);
    return -1;
  }
  if (!S_ISREG(status.st_mode)) {
    close(fd);
    errno = 0;
    why = "it is not a file";
    return -1;
  }
  size = status.st_size;
  return fd;
}

bool mayOpenNoMore(int error) { return error == EMFILE || error == ENFILE; }

void joinPath(Path &result, const char *folder, const char *name) {
  int n = name[0] == '/' || !folder[0] ? snprintf(result.text, kPathMax, "%s", name)
                                       : snprintf(result.text, kPathMax, "%s/%s", folder, name);
  if (n < 0 || size_t(n) >= kPathMax - 48) // room for what is put behind it
    fail(kUsage, "the path %.60s.. is too long", result.text);
}

bool makeFolders(const char *path) {
  Path part;
  joinPath(part, "", path);
  size_t size = strlen(part.text);
  for (size_t i = 1; i <= size; ++i) {
    if (part.text[i] != '/' && part.text[i] != 0)
      continue;
    char kept = part.text[i];
    part.text[i] = 0;
    if (mkdir(part.text, 0777) != 0 && errno != EEXIST)
      return false;
    part.text[i] = kept;
  }
  struct stat status;
  if (stat(path, &status) != 0)
    return false;
  if (!S_ISDIR(status.st_mode)) {
    errno = ENOTDIR;
    return false;
  }
  return true;
}

bool exists(const char *path) {
  struct stat status;
  return stat(path, &status) == 0;
}

// The folder that a file lies in.
static void folderOf(Path &folder, const char *path) {
  joinPath(folder, "", path);
  char *slash = strrchr(folder.text, '/');
  if (!slash)
    strcpy(folder.text, ".");
  else if (slash == folder.text)
    slash[1] = 0;
  else
    *slash = 0;
}

bool syncFolderOf(const char *path) {
  Path folder;
  folderOf(folder, path);
  int fd = open(folder.text, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return false;
  bool good = fsync(fd) == 0 || errno == EINVAL; // some file systems have no fsync of folders
  int error = errno;
  close(fd);
  errno = error;
  return good;
}

static bool isFolder(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISDIR(status.st_mode);
}

namespace {
// A folder in which a run's files lie, and perhaps somebody else's.
struct Folder {
  const char *path;
  IsOurs isOurs;
  int64_t ours = 0, others = 0; // what countIn found
  const char *into = nullptr;   // where moveOurs moves to
  int error = 0;                // of the first file that could not be moved
};

// A folder is never ours, whatever it is called.
bool isOursIn(const Folder &folder, const char *name, Path &path) {
  joinPath(path, folder.path, name);
  return folder.isOurs(name) && !isFolder(path.text);
}

void countIn(void *closure, const char *name) {
  Folder &folder = *static_cast<Folder *>(closure);
  Path path;
  ++(isOursIn(folder, name, path) ? folder.ours : folder.others);
}

void removeOurs(void *closure, const char *name) {
  Path path;
  if (isOursIn(*static_cast<Folder *>(closure), name, path))
    unlink(path.text);
}

void moveOurs(void *closure, const char *name) {
  Folder &folder = *static_cast<Folder *>(closure);
  Path path, to;
  joinPath(to, folder.into, name);
  if (isOursIn(folder, name, path) && rename(path.text, to.text) != 0 && !folder.error)
    folder.error = errno;
}
} // namespace

static Folder counted(const char *path, IsOurs isOurs) {
  Folder folder = {path, isOurs};
  if (isFolder(path))
    listFolder(path, countIn, &folder);
  return folder;
}

bool nameAside(Path &aside, const char *path, IsOurs isOurs) {
  for (int number = 1;; ++number) {
    char ending[32] = ".previous";
    if (number > 1)
      snprintf(ending, sizeof ending, ".previous-%d", number);
    joinPath(aside, "", path);
    strcat(aside.text, ending);
    if (!exists(aside.text))
      return false;
    if (isFolder(aside.text) == isFolder(path) && counted(aside.text, isOurs).others == 0)
      return true;
  }
}

Aside setAside(const char *path, IsOurs isOurs) {
  Folder folder = counted(path, isOurs);
  if (!exists(path) || (isFolder(path) && folder.ours == 0))
    return Aside::Nothing;
  Path previous;
  const bool replaces = nameAside(previous, path, isOurs);
  if (replaces && isFolder(previous.text)) {
    Folder old = {previous.text, isOurs};
    listFolder(previous.text, removeOurs, &old);
    rmdir(previous.text);
  }
  if (folder.others == 0) {
    folder.error = rename(path, previous.text) == 0 ? 0 : errno;
  } else if (mkdir(previous.text, 0777) != 0) {
    folder.error = errno;
  } else {
    folder.into = previous.text;
    listFolder(path, moveOurs, &folder);
  }
  if (folder.error)
    fail(kResources, "cannot move %s out of the way to %s: %s", path, previous.text, strerror(folder.error));
  return replaces ? Aside::Replaced : Aside::Renamed;
}

// Waits until no other process writes the temporary file. False: one has written it to its end meanwhile, or removed it as nobody's, so that the
// name stands for another file, or for none. File systems without locks let everybody in.
static bool lock(const AtomicFile &file) {
  if (flock(file.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    sayAnyway("another process writes %s: waiting for it", file.path.text);
    while (flock(file.fd, LOCK_EX) != 0 && errno == EINTR)
      continue;
  }
  struct stat here, named;
  return fstat(file.fd, &here) == 0 && stat(file.temporary.text, &named) == 0 && here.st_ino == named.st_ino && here.st_dev == named.st_dev;
}

// Gives `path` a second, temporary name beside it that no file has, as long as `make` says that one has it. The folder takes no longer names.
template <typename Make> static bool nameTemporary(Path &temporary, const char *path, Make make) {
  static int number = 0;
  const char *slash = strrchr(path, '/');
  const int folder = slash ? int(slash + 1 - path) : 0;
  bool made;
  do
    snprintf(temporary.text, kPathMax, "%.*s%.*s.%lld-%d.tmp", folder, path, NAME_MAX - 32, path + folder, (long long)getpid(), number++);
  while (!(made = make(temporary.text)) && errno == EEXIST);
  return made;
}

// Behind digits; null: there are none.
static const char *skipDigits(const char *text) {
  const char *end = text;
  while (*end >= '0' && *end <= '9')
    ++end;
  return end > text ? end : nullptr;
}

int64_t sizeBehindTemporary(const char *name) {
  for (const char *dot = strchr(name, '.'); dot; dot = strchr(dot + 1, '.')) {
    const char *at = skipDigits(dot + 1);
    if (at && *at == '-')
      at = skipDigits(at + 1);
    if (at && strcmp(at, ".tmp") == 0)
      return dot - name;
  }
  return -1;
}

namespace {
struct Unfinished {
  Path folder;
  const char *name; // of what was written
};
} // namespace

// Whoever writes a temporary file holds its lock.
static void removeUnfinished(void *closure, const char *name) {
  const Unfinished &unfinished = *static_cast<Unfinished *>(closure);
  const int64_t size = sizeBehindTemporary(name);
  if (size < 0 || size_t(size) != strlen(unfinished.name) || strncmp(name, unfinished.name, size_t(size)) != 0)
    return;
  Path path;
  joinPath(path, unfinished.folder.text, name);
  const int fd = open(path.text, O_RDONLY | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC);
  if (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) == 0)
    unlink(path.text);
  if (fd >= 0)
    close(fd);
}

// What processes that were killed while they wrote `path` left beside it.
static void removeTemporaries(const char *path) {
  Unfinished unfinished;
  folderOf(unfinished.folder, path);
  const char *slash = strrchr(path, '/');
  unfinished.name = slash ? slash + 1 : path;
  listFolder(unfinished.folder.text, removeUnfinished, &unfinished);
}

// Whether `path` is a device or a pipe, which is open then. A rename would put a file in its place. Nobody waits for a reader who is not there.
static bool openSpecial(AtomicFile &file, const char *path, bool &good) {
  struct stat status;
  static char target[PATH_MAX];
  const bool isLink = lstat(path, &status) == 0 && S_ISLNK(status.st_mode) && realpath(path, target);
  joinPath(file.path, "", isLink ? target : path); // a link stays one
  file.temporary.text[0] = 0;
  if (stat(file.path.text, &status) != 0 || S_ISREG(status.st_mode) || S_ISDIR(status.st_mode))
    return false;
  file.fd = open(file.path.text, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
  good = file.fd >= 0 && fcntl(file.fd, F_SETFL, 0) == 0;
  return true;
}

bool beginFile(AtomicFile &file, const char *path) {
  bool good;
  if (openSpecial(file, path, good))
    return good;
  removeTemporaries(file.path.text);
  auto make = [&](const char *name) { return (file.fd = open(name, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666)) >= 0; };
  while ((good = nameTemporary(file.temporary, file.path.text, make)) && !lock(file))
    close(file.fd);
  if (!good)
    file.temporary.text[0] = 0; // nothing of ours has it
  return good;
}

static const char *volatile sharedName = nullptr; // of the one that is being written
static void endShared(const AtomicFile &file) {
  if (sharedName == file.temporary.text)
    sharedName = nullptr;
}
void dropSharedFile() {
  if (const char *name = sharedName)
    unlink(name);
}

bool beginSharedFile(AtomicFile &file, const char *path) {
  bool good;
  if (openSpecial(file, path, good))
    return good;
  file.temporary = file.path;
  strcat(file.temporary.text, ".tmp");
  while ((file.fd = open(file.temporary.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) >= 0 && !lock(file))
    close(file.fd);
  if (file.fd >= 0)
    sharedName = file.temporary.text;
  return file.fd >= 0 && ftruncate(file.fd, 0) == 0;
}

void forgetName(AtomicFile &file) {
  if (file.temporary.text[0])
    unlink(file.temporary.text);
  endShared(file);
  file.temporary.text[0] = 0;
}

// The lock goes with the descriptor, so the name goes first: whoever waits for the lock sees then that it waited for another file.
void abandonFile(AtomicFile &file) {
  int error = errno;
  if (file.temporary.text[0])
    unlink(file.temporary.text);
  endShared(file);
  if (file.fd >= 0)
    close(file.fd);
  file.fd = -1;
  errno = error;
}

static bool takeName(const AtomicFile &file, SecondName &second) {
  Path temporary;
  const bool linked = nameTemporary(temporary, second.path, [&](const char *name) { return link(file.temporary.text, name) == 0; });
  second.named = linked && rename(temporary.text, second.path) == 0;
  second.error = second.named ? 0 : errno;
  if (linked && !second.named)
    unlink(temporary.text);
  return second.named;
}

bool commitFile(AtomicFile &file, SecondName *second) {
  if (!file.temporary.text[0]) {
    int fd = file.fd;
    file.fd = -1;
    return close(fd) == 0;
  }
  if (fsync(file.fd) != 0) {
    abandonFile(file);
    return false;
  }
  if (second && !takeName(file, *second)) {
    abandonFile(file);
    return false;
  }
  if (rename(file.temporary.text, file.path.text) != 0) {
    abandonFile(file);
    return false;
  }
  endShared(file);
  flock(file.fd, LOCK_UN); // behind the rename, as in abandonFile; the descriptor may have been duplicated
  close(file.fd);
  file.fd = -1;
  return syncFolderOf(file.path.text);
}

bool listFolder(const char *path, void (*visit)(void *closure, const char *name), void *closure) {
  struct Entry { // linux_dirent64, as getdents64(2) gives it
    uint64_t inode;
    int64_t next;
    unsigned short size;
    unsigned char type;
    char name[];
  };
  int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0)
    return false;
  alignas(8) char buffer[8192];
  long n;
  while ((n = syscall(SYS_getdents64, fd, buffer, sizeof buffer)) > 0)
    for (long at = 0; at < n;) {
      Entry *entry = reinterpret_cast<Entry *>(buffer + at);
      if (strcmp(entry->name, ".") != 0 && strcmp(entry->name, "..") != 0)
        visit(closure, entry->name);
      at += entry->size;
    }
  int error = errno;
  close(fd);
  errno = error;
  return n == 0;
}

} // namespace cinch::rt
