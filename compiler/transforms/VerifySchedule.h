// VerifySchedule.h: the memory of a scheduled function, proved from its text.
#ifndef CINCH_COMPILER_TRANSFORMS_VERIFYSCHEDULE_H
#define CINCH_COMPILER_TRANSFORMS_VERIFYSCHEDULE_H

#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// Fails, with an error at the kernel at fault, unless every value has its place, live values share no byte and all lie in
// the arena.
mlir::LogicalResult verifySchedule(mlir::func::FuncOp function);

} // namespace cinch
#endif
