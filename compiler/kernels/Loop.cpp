// Loop.cpp: the function of a loop kernel, or those of its launches.
#include "compiler/kernels/LoopEmitter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace cinch::kernels {

static func::FuncOp buildLaunch(OpBuilder &builder, ModuleOp module, const std::string &name, const LoopPlan &plan) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(module.getBody());
  Location loc = builder.getUnknownLoc();
  Type index = builder.getIndexType();
  int64_t buffers = plan.buffers + 1;
  for (const LoopNode &node : plan.spec.nodes)
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

std::string nameOfLaunch(const std::string &name, size_t number) { return number == 0 ? name : name + "_then"; }

func::FuncOp buildLoop(OpBuilder &builder, ModuleOp module, const std::string &name, const LoopSpec &spec,
                       const TargetInfo &target) {
  LoopLaunches launches = planLaunches(spec, target);
  func::FuncOp first = buildLaunch(builder, module, name, launches.plans.front());
  for (size_t number = 1; number < launches.plans.size(); ++number)
    buildLaunch(builder, module, nameOfLaunch(name, number), launches.plans[number]).setPrivate();
  return first;
}

} // namespace cinch::kernels
