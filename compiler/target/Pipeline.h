// Pipeline.h: LLVM's passes over generated code, for every machine.
#ifndef CINCH_COMPILER_TARGET_PIPELINE_H
#define CINCH_COMPILER_TARGET_PIPELINE_H

#include <memory>

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace cinch::target {

// Passes over modules, one after the other. Kernels of a CPU run through a list of passes of their own. For a GPU (`unrolls`) it is LLVM's default
// pipeline without the loop and SLP vectorisers and without interleaving: kernels arrive as they should be. There loops may be unrolled, which a
// CPU's register tile would pay for by spilling (measured: 0.3 of the speed).
class Optimizer {
public:
  Optimizer(llvm::TargetMachine &, bool unrolls);
  ~Optimizer();
  void run(llvm::Module &);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace cinch::target
#endif
