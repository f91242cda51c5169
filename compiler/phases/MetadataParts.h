// MetadataParts.h: what the files that write the runtime's description (Metadata*.cpp, runtime/METADATA.md) share.
#ifndef CINCH_COMPILER_PHASES_METADATAPARTS_H
#define CINCH_COMPILER_PHASES_METADATAPARTS_H

#include "compiler/phases/Compile.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/JSON.h"

namespace cinch::metadata {

using llvm::json::OStream;

// A function of an entry, and where the arena of its worker begins in the whole one.
struct Part {
  mlir::func::FuncOp function;
  const EntryPlan *plan;
  int64_t base;
  int64_t hostAt = 0; // where its pinned memory begins in the runtime's offsets
};

const char *dtypeOf(kernels::Elem); // as safetensors names it
void numbers(OStream &, llvm::StringRef key, llvm::ArrayRef<int64_t>);
// Where an argument of the part's function lies: bytes from the begin of the whole arena.
int64_t offsetOf(const Part &, unsigned argument);

// The keys `parameters` and `slots`, in the order of the program, whichever of the step's workers has them.
void parametersAndSlots(OStream &, llvm::ArrayRef<Part> train, const Program &, OwnSteps);

} // namespace cinch::metadata
#endif
