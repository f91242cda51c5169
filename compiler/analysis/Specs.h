// Specs.h: products and attention as kernel specs. Operands are read where they lie, through any views.
#ifndef CINCH_COMPILER_ANALYSIS_SPECS_H
#define CINCH_COMPILER_ANALYSIS_SPECS_H

#include "compiler/analysis/LoopTrace.h"
#include "dialects/nn/NN.h"

namespace cinch::analysis {

// Each fills `spec` and returns true, or returns false with the value that has to be stored first in `blocker`.
// `bufferOf` numbers the values in memory (results of the op included); `passed` collects the views on the way.
bool contractSpec(nn::ContractOp, llvm::function_ref<int(mlir::Value)> bufferOf, bool accumulate,
                  kernels::ContractSpec &spec, mlir::Value &blocker, llvm::SetVector<mlir::Operation *> *passed = nullptr,
                  const Extent & = {});
bool attendSpec(nn::AttendOp, llvm::function_ref<int(mlir::Value)> bufferOf, kernels::AttendSpec &spec,
                mlir::Value &blocker, llvm::SetVector<mlir::Operation *> *passed = nullptr, const Extent & = {});
bool attendGradSpec(nn::AttendGradOp, llvm::function_ref<int(mlir::Value)> bufferOf, kernels::AttendGradSpec &spec,
                    mlir::Value &blocker, llvm::SetVector<mlir::Operation *> *passed = nullptr, const Extent & = {});

} // namespace cinch::analysis
#endif
