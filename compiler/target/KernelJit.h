// KernelJit.h: kernels are compiled the compiler's own way (lowerKernels, emitObject) for a given CPU and called in this process: to be
// measured, or tested.
#ifndef CINCH_COMPILER_TARGET_KERNELJIT_H
#define CINCH_COMPILER_TARGET_KERNELJIT_H

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/OwningOpRef.h"

#include <cstdint>
#include <memory>
#include <string>

namespace cinch::target {

using KernelFunction = void (*)(char *arena, const int64_t *offsets, int64_t *context, int64_t thread, int64_t threads);

// One module of kernels for one CPU. Usage:
//   KernelJit jit("haswell"); // "native": this machine
//   auto builder = jit.builder();
//   kernels::buildLoop(builder, jit.module(), "k", spec);
//   if (!jit.compile()) fail(jit.error());
//   jit.lookup("k")(arena, offsets, context, thread, threads);
class KernelJit {
public:
  explicit KernelJit(const std::string &cpu);
  ~KernelJit();

  mlir::ModuleOp module();
  mlir::OpBuilder builder(); // inserts at the end of the module
  bool compile();            // lowers the module in place; false: see error()
  const std::string &error() const;
  KernelFunction lookup(const std::string &name); // to be called on this machine; null where it cannot be: see error()
  std::string assembly(); // of the whole module, after compile()
  double compileSeconds() const; // processor time

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace cinch::target
#endif
