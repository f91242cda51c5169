// Loop.cpp: the function of a loop kernel.
#include "compiler/kernels/LoopEmitter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace cinch::kernels {

func::FuncOp buildLoop(OpBuilder &builder, ModuleOp module, const std::string &name, const LoopSpec &spec,
                       const TargetInfo &target) {
  LoopPlan plan = planLoop(spec, target);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(module.getBody());
  Location loc = builder.getUnknownLoc();
  Type index = builder.getIndexType();
  int64_t buffers = plan.buffers + 1;
  for (const LoopNode &node : spec.nodes)
    buffers = std::max<int64_t>(buffers, plan.buffers + 2 + std::max(node.keyWord, node.numberWord));
  auto type = builder.getFunctionType({MemRefType::get({kArenaBytes}, builder.getI8Type()),
                                       MemRefType::get({buffers}, builder.getI64Type()),
                                       MemRefType::get({kContextWords}, builder.getI64Type()), index, index},
                                      {});
  auto function = func::FuncOp::create(builder, loc, name, type);
  Block *entry = function.addEntryBlock();
  builder.setInsertionPointToStart(entry);
  auto end = func::ReturnOp::create(builder, loc);
  builder.setInsertionPoint(end);
  LoopEmitter(builder, loc, plan, entry->getArguments()).emit();
  return function;
}

} // namespace cinch::kernels
