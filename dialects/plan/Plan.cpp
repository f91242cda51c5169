// Plan.cpp: the plan dialect's registration and verifiers (constraints C1.. stand in PlanOps.td).
#include "dialects/plan/Plan.h"

#include "mlir/IR/Builders.h"

using namespace mlir;
using namespace cinch::plan;

#include "dialects/plan/PlanDialect.cpp.inc"
#define GET_OP_CLASSES
#include "dialects/plan/PlanOps.cpp.inc"

void PlanDialect::initialize() {
  addOperations<
#define GET_OP_LIST
#include "dialects/plan/PlanOps.cpp.inc"
      >();
}

void YieldOp::build(OpBuilder &, OperationState &) {}
void ReturnOp::build(OpBuilder &, OperationState &) {}

LogicalResult MicrobatchesOp::verify() {
  if (getCount() < 0 || getSize() < 1) // C1
    return emitOpError("needs a count of at least 0 and a size of at least 1, got ")
           << getCount() << " and " << getSize();
  auto yield = cast<YieldOp>(getBody().front().getTerminator());
  if (yield.getValues().getTypes() != getSums().getTypes()) // C2
    return emitOpError("yields types that differ from its results");
  for (Type type : getSums().getTypes()) // C3
    if (auto tensor = dyn_cast<RankedTensorType>(type); tensor && tensor.getEncoding())
      return emitOpError("has a result with a batch axis: ") << type;
  return success();
}

LogicalResult KernelOp::verify() {
  Block &body = getBody().front();
  if (TypeRange(body.getArgumentTypes()) != getInputs().getTypes()) // C1
    return emitOpError("has region arguments that differ from its operands");
  auto terminator = cast<ReturnOp>(body.getTerminator());
  if (terminator.getValues().getTypes() != getOutputs().getTypes())
    return emitOpError("returns types that differ from its results");
  auto sized = [&](auto attr, size_t want, StringRef name) -> LogicalResult { // C2
    if (attr && attr->size() != want)
      return emitOpError() << "has " << attr->size() << " entries in '" << name << "', expected " << want;
    return success();
  };
  if (failed(sized(getAccumulates(), getNumResults(), "accumulates")) ||
      failed(sized(getReads(), getNumOperands(), "reads")) || failed(sized(getWrites(), getNumResults(), "writes")))
    return failure();
  return success();
}
