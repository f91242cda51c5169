// Pipeline.h: LLVM's passes over generated code, for every machine.
#ifndef CINCH_COMPILER_TARGET_PIPELINE_H
#define CINCH_COMPILER_TARGET_PIPELINE_H

namespace llvm {
class Module;
class TargetMachine;
} // namespace llvm

namespace cinch::target {

// The default pipeline without the loop and SLP vectorisers and without interleaving: kernels arrive as they should be. `unrolls`: loops
// may still be unrolled, which a CPU's register tile would pay for by spilling (measured: 0.3 of the speed).
void optimize(llvm::Module &, llvm::TargetMachine &, bool unrolls);

} // namespace cinch::target
#endif
