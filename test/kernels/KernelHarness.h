// KernelHarness.h: builds kernels, compiles them through the compiler's own path (lowerKernels, emitObject) for a given
// CPU and calls them in this process.
#ifndef CINCH_TEST_KERNELS_KERNELHARNESS_H
#define CINCH_TEST_KERNELS_KERNELHARNESS_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace cinch::test {

using KernelFunction = void (*)(char *arena, const int64_t *offsets, int64_t *context, int64_t thread, int64_t threads);

// One module of kernels for one CPU. Usage:
//   KernelHarness harness("haswell");                 // "native": this machine
//   kernels::buildLoop(builder = harness.builder(), harness.module(), "k", spec);
//   if (!harness.compile()) fail(harness.error());
//   callKernel(harness.lookup("k"), arena, offsets, context, threads);
class KernelHarness {
public:
  explicit KernelHarness(const std::string &cpu);
  ~KernelHarness();

  mlir::ModuleOp module();
  mlir::OpBuilder builder(); // inserts at the end of the module
  bool compile();            // lowers the module in place; false: see error()
  const std::string &error() const;
  KernelFunction lookup(const std::string &name);
  std::string assembly(); // of the whole module, after compile()
  double compileSeconds() const; // processor time

private:
  struct State;
  std::unique_ptr<State> state;
};

// CPUs to test that this machine can run: AVX2 ("haswell") always, AVX-512 ("skylake-avx512") and its products of bf16 ("cooperlake")
// where it has them.
std::vector<std::string> runnableCpus();

// Runs all threads' parts one after another, last thread first (parts must be independent).
void callKernel(KernelFunction, char *arena, const int64_t *offsets, int64_t *context, int64_t threads);

// Bytes at a 64-byte boundary with guard bytes behind each buffer; one arena a call of a kernel.
class Arena {
public:
  int add(int64_t bytes); // next buffer; returns its number
  template <class T> T *at(int buffer) { return reinterpret_cast<T *>(data() + offsetsOf()[buffer]); }
  char *data();
  const int64_t *offsetsOf();
  bool guardsIntact(); // nothing was written outside of the buffers

private:
  void place();
  std::vector<int64_t> sizes, offsets;
  std::unique_ptr<char[]> storage;
  char *base = nullptr;
};

} // namespace cinch::test
#endif
