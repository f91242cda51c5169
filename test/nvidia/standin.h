// standin.h: between the stand-in's threads (standin.cpp) and its driver (driver.cpp).
#ifndef STANDIN_H
#define STANDIN_H
#include <cstdint>
#include <string>

namespace standin {

// Says what is wrong and ends the process with 99: whoever uses the driver made a mistake that a GPU need not show.
[[noreturn]] void fault(const std::string &what);
// A variable of the environment; null or `otherwise`: it is not set.
const char *setting(const char *name);
uint64_t number(const char *name, uint64_t otherwise);

struct Kernel {
  std::string name; // and the lines of the program that it serves
  void (*run)(void *, void *, void *, void *);
  int64_t words;
  void *module;
  int shared; // most bytes of shared memory that a launch may give
  int64_t maps; // i64, of its launches
};

// A map of a tensor, as this driver encodes it (cuTensorMapEncodeTiled): 128 bytes, opaque to everybody else.
struct Map {
  uint32_t mark, rank;
  char *begin;
  uint64_t size[5], stride[4]; // bytes
  uint8_t box[5];              // less one
  uint8_t line;                // bytes of a swizzled line, 0: none
};
constexpr uint32_t kMapMark = 0x7e4504a9;
static_assert(sizeof(Map) <= 128);

// What kernels may touch; set before a block runs.
extern char *arenaBegin, *arenaEnd;
// Runs all threads of a block. One block at a time.
void runBlock(const Kernel &kernel, void *const arguments[4], uint32_t number, uint32_t threads);

} // namespace standin
#endif
