// Plan.h: the plan dialect (when and where, in which bytes). The one header to include.
#ifndef CINCH_DIALECTS_PLAN_PLAN_H
#define CINCH_DIALECTS_PLAN_PLAN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"
#include "llvm/ADT/Hashing.h"

#include "dialects/plan/PlanDialect.h.inc"
#include "dialects/plan/PlanEnums.h.inc"

namespace cinch::plan {

// A part of a loop body, run for one micro-batch (#plan.actions).
struct Action {
  int64_t part = 0, microbatch = 0;
  bool operator==(const Action &o) const { return part == o.part && microbatch == o.microbatch; }
};
inline llvm::hash_code hash_value(const Action &action) { return llvm::hash_combine(action.part, action.microbatch); }

// The kind of kernel that serves an op: loops serve whatever has no kernel of its own.
KernelKind kindOf(mlir::Operation *);

} // namespace cinch::plan

#define GET_ATTRDEF_CLASSES
#include "dialects/plan/PlanAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.h.inc"

#endif
