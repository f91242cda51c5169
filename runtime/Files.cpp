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

void joinPath(Path &result, const char *folder, const char *name) {
  int n = name[0] == '/' || !folder[0] ? snprintf(result.text, kPathMax, "%s", name)
                                       : snprintf(result.text, kPathMax, "%s/%s", folder, name);
  if (n < 0 || size_t(n) >= kPathMax - 16)
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

bool syncFolderOf(const char *path) {
  Path folder;
  joinPath(folder, "", path);
  char *slash = strrchr(folder.text, '/');
  if (!slash)
    strcpy(folder.text, ".");
  else if (slash == folder.text)
    slash[1] = 0;
  else
    *slash = 0;
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

// Waits until no other process writes the temporary file. False: one has written it to its end meanwhile, so that the name stands for another
// file, or for none. File systems without locks let everybody in.
static bool lock(const AtomicFile &file) {
  if (flock(file.fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    sayAnyway("another process writes %s: waiting for it", file.path.text);
    while (flock(file.fd, LOCK_EX) != 0 && errno == EINTR)
      continue;
  }
  struct stat here, named;
  return fstat(file.fd, &here) == 0 && stat(file.temporary.text, &named) == 0 && here.st_ino == named.st_ino && here.st_dev == named.st_dev;
}

bool beginFile(AtomicFile &file, const char *path) {
  struct stat status;
  static char target[PATH_MAX];
  const bool isLink = lstat(path, &status) == 0 && S_ISLNK(status.st_mode) && realpath(path, target);
  joinPath(file.path, "", isLink ? target : path); // a link stays one
  file.temporary.text[0] = 0;
  if (stat(file.path.text, &status) == 0 && !S_ISREG(status.st_mode) && !S_ISDIR(status.st_mode)) {
    // A device or a pipe is written to; a rename would put a file in its place. Nobody waits for a reader who is not there.
    file.fd = open(file.path.text, O_WRONLY | O_NONBLOCK | O_CLOEXEC);
    return file.fd >= 0 && fcntl(file.fd, F_SETFL, 0) == 0;
  }
  file.temporary = file.path;
  strcat(file.temporary.text, ".tmp");
  while ((file.fd = open(file.temporary.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666)) >= 0 && !lock(file))
    close(file.fd);
  return file.fd >= 0 && ftruncate(file.fd, 0) == 0;
}

// The lock goes with the descriptor, so the name goes first: whoever waits for the lock sees then that it waited for another file.
void abandonFile(AtomicFile &file) {
  int error = errno;
  if (file.temporary.text[0])
    unlink(file.temporary.text);
  if (file.fd >= 0)
    close(file.fd);
  file.fd = -1;
  errno = error;
}

static bool takeName(const AtomicFile &file, SecondName &second) {
  Path temporary;
  joinPath(temporary, "", second.path);
  strcat(temporary.text, ".tmp");
  unlink(temporary.text);
  second.named = link(file.temporary.text, temporary.text) == 0 && rename(temporary.text, second.path) == 0;
  second.error = second.named ? 0 : errno;
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
