// KernelHarness.h: what tests and benchmarks of kernels share: the compiler's kernels in this process, and an arena to run them on.
#ifndef CINCH_TEST_KERNELS_KERNELHARNESS_H
#define CINCH_TEST_KERNELS_KERNELHARNESS_H

#include "compiler/kernels/Kernels.h"
#include "compiler/target/KernelJit.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace cinch::test {

using KernelHarness = target::KernelJit;
using target::KernelFunction;

// CPUs to test that this machine can run: AVX2 ("haswell") always, AVX-512 ("skylake-avx512") and its products of bf16 ("cooperlake")
// where it has them.
std::vector<std::string> runnableCpus();

// Tiles and blocks that nobody would choose, in the place of the built-in rules for this product.
kernels::TargetInfo withRandomTiling(const kernels::ContractSpec &, kernels::TargetInfo, uint64_t random);

// Runs all threads' parts one after another, last thread first (parts must be independent).
void callKernel(KernelFunction, char *arena, const int64_t *offsets, int64_t *context, int64_t threads);

// Bytes at a 64-byte boundary with guard bytes around each buffer; one arena a call of a kernel. One of the buffers, each in its turn, ends with
// a page behind which nothing can be read, if they have less than 2 MiB together.
class Arena {
public:
  Arena() = default;
  Arena(const Arena &) = delete;
  ~Arena();
  int add(int64_t bytes); // next buffer; returns its number
  template <class T> T *at(int buffer) { return reinterpret_cast<T *>(data() + offsetsOf()[buffer]); }
  char *data();
  const int64_t *offsetsOf();
  bool guardsIntact(); // nothing was written outside of the buffers

private:
  void place();
  bool isInside(int64_t place) const; // of a buffer
  std::vector<int64_t> sizes, offsets;
  size_t atEnd = 0; // the buffer with that page
  char *storage = nullptr, *base = nullptr;
  size_t mapped = 0;
};

} // namespace cinch::test
#endif
