// Specs.h: products, attention, convolutions and pools as kernel specs. Operands are read where they lie, through any views.
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

// Convolutions (ConvSpecs.cpp) and pools take and give their tensors with neighbouring channels: other operands are stored so first.
bool convSpec(nn::ConvOp, llvm::function_ref<int(mlir::Value)> bufferOf, bool accumulate, kernels::ConvSpec &spec,
              mlir::Value &blocker, llvm::SetVector<mlir::Operation *> *passed = nullptr, const Extent & = {});
bool poolSpec(mlir::Operation *, llvm::function_ref<int(mlir::Value)> bufferOf, kernels::PoolSpec &spec, mlir::Value &blocker,
              llvm::SetVector<mlir::Operation *> *passed = nullptr, const Extent & = {});

// Where a value lies in memory, with strides over its axes (that of an axis of one element is 0). False, and `blocker` is set, if
// that takes a copy; so if it is `unitLast` that matters and the last stride is another than 1.
bool locateAxes(mlir::Value, llvm::function_ref<int(mlir::Value)> bufferOf, bool unitLast, kernels::View &view, mlir::Value &blocker,
                llvm::SetVector<mlir::Operation *> *passed, const Extent &);

} // namespace cinch::analysis
#endif
