// ScanEmitter.h: a loop along an axis in the host code: its kernels, launched in each trip, and where their operands lie in it.
#ifndef CINCH_COMPILER_PHASES_SCANEMITTER_H
#define CINCH_COMPILER_PHASES_SCANEMITTER_H

#include "compiler/phases/EntryEmitter.h"
#include "compiler/phases/HostCode.h"

namespace cinch {

// `moved`: the offset of an operand or result of the loop, in the micro-batch that runs.
void emitScan(const HostCode &, EntryEmitter &, plan::KernelOp loop, llvm::function_ref<mlir::Value(mlir::Value, int64_t)> moved);

} // namespace cinch
#endif
