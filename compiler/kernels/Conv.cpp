// Conv.cpp: a convolution is some contractions in a row, each walked like a product (Contract.cpp).
#include "compiler/kernels/ContractEmitter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

using namespace mlir;

namespace cinch::kernels {

int64_t scratchBytesPerThread(const ConvSpec &spec, const TargetInfo &target) {
  int64_t most = 0;
  for (const ContractSpec &part : spec.parts)
    most = std::max(most, scratchBytesPerThread(part, target));
  return most;
}

// No part reads what another writes, and a thread has one scratch for all: threads need not wait between them.
func::FuncOp buildConv(OpBuilder &builder, ModuleOp module, const std::string &name, const ConvSpec &spec,
                       const TargetInfo &target) {
  int64_t scratch = scratchBytesPerThread(spec, target);
  func::FuncOp function = contractFunction(builder, module, name, scratch > 0);
  OpBuilder::InsertionGuard guard(builder);
  Block &entry = function.getBody().front();
  builder.setInsertionPoint(entry.getTerminator());
  if (!spec.parts.empty() && (spec.parts[0].pairs || spec.parts[0].rounds))
    function->setAttr(kFlushesAttr, builder.getUnitAttr());
  for (const ContractSpec &part : spec.parts) {
    ContractPlan plan = planContract(part, target);
    ContractEmitter(builder, builder.getUnknownLoc(), plan)
        .emitBody(entry.getArgument(0), entry.getArgument(1), entry.getArgument(2), entry.getArgument(3), entry.getArgument(4), scratch);
  }
  return function;
}

} // namespace cinch::kernels
