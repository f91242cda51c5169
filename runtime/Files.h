// Files.h: reading and writing whole ranges, and files that appear complete or not at all.
#ifndef CINCH_RUNTIME_FILES_H
#define CINCH_RUNTIME_FILES_H
#include <stddef.h>
#include <stdint.h>

namespace cinch::rt {

constexpr size_t kPathMax = 4096;
struct Path {
  char text[kPathMax];
};

// Both go on after interruptions and short transfers. False: errno tells why (0: end of file).
bool writeAll(int fd, const void *data, size_t size);
bool readAt(int fd, void *data, size_t size, int64_t offset);

// Opens a file to read and tells its size. -1: `why` says why not, errno too (0 if it is no regular file). It never
// waits: a fifo that nobody writes would be waited for without end.
int openToRead(const char *path, int64_t &size, const char *&why);

// Whether an error of `open` says that the process, or the machine, has too many files open.
bool mayOpenNoMore(int error);

// folder/name, or name if it is absolute. Leaves with an error if the result is too long.
void joinPath(Path &result, const char *folder, const char *name);
// Makes a folder and its parents. False: errno.
bool makeFolders(const char *path);
bool exists(const char *path);
bool syncFolderOf(const char *path);
// Whether a file of this name, in a folder that runs write to, is one that a run wrote.
using IsOurs = bool (*)(const char *name);
enum class Aside { Nothing, Renamed, Replaced };
// Moves `path`, a file or a folder, to `path.previous`, replacing what an earlier run left there. What `isOurs` does not know in a folder is
// somebody else's: it is not moved with the rest, and a `path.previous` that holds such a thing stays as it is; `path.previous-2` and so on is
// taken then. Nothing: there was nothing to move. Leaves with kResources if it cannot be moved.
Aside setAside(const char *path, IsOurs isOurs);
// The name that it would move `path` to. True: what is there now would go.
bool nameAside(Path &aside, const char *path, IsOurs isOurs);

// A file that appears under its name only when it is complete: temporary name, write, fsync, rename, fsync of the
// folder. The temporary name is one that no other file has: NAME.PROCESS-NUMBER.tmp. Of several processes that write the same file the last one's
// stays; what those that were killed left behind goes when the file is written again. A device or a pipe of that name is written to instead, and `temporary` is empty.
struct AtomicFile {
  int fd = -1;
  Path path, temporary;
};
bool beginFile(AtomicFile &, const char *path);
// The same for what several runs need: they all take the temporary name NAME.tmp, so that one goes first, and the others wait for it.
bool beginSharedFile(AtomicFile &, const char *path);
// Removes the shared file that this process is writing, if there is one: a run that ends in the middle leaves no half of a table. A signal may call it.
void dropSharedFile();
// What is written is for this process alone: it has no name from now on, and is gone with the process.
void forgetName(AtomicFile &);
// A second name for the same bytes. The file has it before it has the first one: whoever finds the first name finds this one, too.
struct SecondName {
  const char *path = nullptr; // in the same folder
  bool named = false;         // the file has it
  int error = 0;              // why it could not have it; then the file is abandoned
};
// False: nothing changed under the name; errno tells why.
bool commitFile(AtomicFile &, SecondName *second = nullptr);
void abandonFile(AtomicFile &); // keeps errno
// The size of a name without the ending of a temporary one; -1: it is no temporary name.
int64_t sizeBehindTemporary(const char *name);

// Calls `visit` with the name of every entry of a folder but `.` and `..`. False: it cannot be read.
bool listFolder(const char *path, void (*visit)(void *closure, const char *name), void *closure);

} // namespace cinch::rt
#endif
