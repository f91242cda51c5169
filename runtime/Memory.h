// Memory.h: the arena, and the few bytes beside it. Nothing here is ever freed; nothing is allocated in the step loop.
#ifndef CINCH_RUNTIME_MEMORY_H
#define CINCH_RUNTIME_MEMORY_H
#include <stddef.h>
#include <stdint.h>

namespace cinch::rt {

// Zeroed memory for the program's description (counted in the allowance).
void *allocate(size_t bytes);
template <typename T> T *allocateArray(int64_t count) { return static_cast<T *>(allocate(size_t(count) * sizeof(T))); }
const char *copyText(const char *text, size_t size);

// An array that grows by doubling; the old copies stay behind, so it suits short lists read once.
template <typename T> struct List {
  T *items = nullptr;
  int64_t size = 0, capacity = 0;
  T &add() {
    if (size == capacity) {
      capacity = capacity ? 2 * capacity : 4;
      T *grown = allocateArray<T>(capacity);
      for (int64_t i = 0; i < size; ++i)
        grown[i] = items[i];
      items = grown;
    }
    items[size] = T();
    return items[size++];
  }
  // Room for so many, and no more, if it has none yet: nothing stays behind then.
  void reserve(int64_t count) {
    if (!capacity && count > 0)
      items = allocateArray<T>(capacity = count);
  }
  T &operator[](int64_t i) { return items[i]; }
  const T &operator[](int64_t i) const { return items[i]; }
  T *begin() { return items; }
  T *end() { return items + size; }
  const T *begin() const { return items; }
  const T *end() const { return items + size; }
};

// What lies in the arena begins at a multiple of a cache line.
inline int64_t onLine(int64_t bytes) { return (bytes + 63) / 64 * 64; }

// The arena: exactly `bytes` bytes from a 2 MiB boundary; huge pages are asked for on whole 2 MiB blocks only, so that
// they never round the memory figure up. `touch` brings every page in now: memory that is not there is missed before
// step 1.
char *makeArena(int64_t bytes, bool touch);

// The same fresh bytes, zeros, at all of these places of the arena: whole pages.
void shareMemory(char *const *places, int64_t count, int64_t bytes);

// Addresses for the host's mirror of an arena that lies on a device: a page takes memory when it is first written.
char *makeMirror(int64_t bytes);

// What the kernel put on the stack before main began: arguments, environment, and the pointers to them. All of it is resident.
int64_t bytesOfArguments(char **argv);
// So many bytes of it are within the allowance of each worker (analysis/Target.h).
constexpr int64_t kArgumentBytes = 256 << 10;

// The peak of the resident set (VmHWM) in bytes, 0 if the kernel does not tell. `ru_maxrss` would inherit the parent's.
int64_t peakMemory();
int64_t residentMemory(); // now (VmRSS)

} // namespace cinch::rt
#endif
