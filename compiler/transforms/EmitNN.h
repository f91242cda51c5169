// EmitNN.h: the checked program as a module of the `nn` dialect.
#ifndef CINCH_COMPILER_TRANSFORMS_EMIT_NN_H
#define CINCH_COMPILER_TRANSFORMS_EMIT_NN_H

#include "compiler/frontend/Program.h"
#include "compiler/frontend/Source.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"

namespace cinch {

// @step (returns the loss), @evaluation (the metrics) and @prediction (the results of the model). Arguments: the
// parameters (nn.path ..), the fields of the dataset trained on (nn.field = its number), in @evaluation the valid rows
// (nn.valid_rows). With precision f64 every f32 becomes f64. Null after an internal error, which has been reported to
// the context.
mlir::OwningOpRef<mlir::ModuleOp> emitNN(mlir::MLIRContext &, const Program &, const SourceList &);

} // namespace cinch
#endif
