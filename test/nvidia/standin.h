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
  std::string name;
  void (*run)(void *, void *, void *);
  int64_t words;
  void *module;
  int shared; // most bytes of shared memory that a launch may give
};

// What kernels may touch; set before a block runs.
extern char *arenaBegin, *arenaEnd;
// Runs all threads of a block. One block at a time.
void runBlock(const Kernel &kernel, void *const arguments[3], uint32_t number, uint32_t threads);

} // namespace standin
#endif
