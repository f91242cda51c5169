// FormKernels.cpp: the ops of a function move into plan.kernel ops around loops over the micro-batches, which make one pass over
// the whole batch here. From here on passes order, copy, loop and place kernels.
#include "compiler/analysis/Formation.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Scan.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/StringMap.h"

namespace cinch {
#define GEN_PASS_DEF_FORMKERNELS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

// "blocks.3.ff: mul" for the value a kernel is named after.
std::string labelOf(Operation *op) {
  StringRef path = nn::instancePath(op->getLoc());
  std::string label = path.empty() ? std::string() : path.str() + ": ";
  label += op->getName().stripDialect();
  return op->hasAttr(nn::kBackwardAttr) ? label + " (gradient)" : label;
}

class Writer {
public:
  Writer(func::FuncOp function, const analysis::Formation &formation)
      : function(function), formation(formation), exit(function.getBody().front().getTerminator()), builder(exit) {
    for (auto [i, op] : llvm::enumerate(function.getBody().front()))
      order[&op] = int64_t(i);
    for (auto [i, value] : llvm::enumerate(exit->getOperands()))
      if (auto name = function.getResultAttrOfType<StringAttr>(unsigned(i), nn::kNameAttr)) {
        handed.push_back(value);
        names.push_back(name);
      }
  }

  LogicalResult write() {
    return replaceOps([&]() -> LogicalResult {
      for (int part = 0; part <= formation.sweeps.last(); ++part)
        if (failed(analysis::isSweep(part) ? writeSweep(part) : writePart(part)))
          return failure();
      leave();
      return success();
    });
  }

  // Of the body of a loop: there are no loops over the examples in it.
  LogicalResult writeBody() {
    return replaceOps([&]() -> LogicalResult {
      if (failed(writePart(0)))
        return failure();
      for (OpOperand &operand : exit->getOpOperands())
        operand.set(current.lookup(operand.get()));
      return success();
    });
  }

private:
  LogicalResult replaceOps(llvm::function_ref<LogicalResult()> writeKernels) {
    SmallVector<Operation *> old;
    for (Operation &op : function.getBody().front().without_terminator())
      old.push_back(&op);
    for (BlockArgument argument : function.getArguments())
      current.map(argument, argument);
    if (failed(writeKernels()))
      return failure();
    for (Operation *op : llvm::reverse(old)) {
      op->dropAllUses();
      op->erase();
    }
    return success();
  }

  LogicalResult write(const analysis::KernelGroup &group) {
    if (group.marker != analysis::KernelGroup::Kernel)
      return writeMarker(group.marker);
    SmallVector<Operation *> ops(group.ops.begin(), group.ops.end());
    llvm::sort(ops, [&](Operation *a, Operation *b) { return order.lookup(a) < order.lookup(b); });
    llvm::SetVector<Value> inputs;
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        if (!operand.getDefiningOp() || !group.ops.contains(operand.getDefiningOp()))
          inputs.insert(operand);
    SmallVector<Value> operands;
    for (Value input : inputs) {
      operands.push_back(current.lookupOrNull(input));
      if (!operands.back())
        return internal(input, "a kernel reads what no earlier kernel stores");
    }
    SmallVector<bool> accumulates =
        llvm::map_to_vector(group.stores, [&](Value value) { return formation.accumulates(value); });
    Operation *named = group.stores.front().getDefiningOp();
    IntegerAttr domain;
    if (group.anchor)
      domain = builder.getI64IntegerAttr(llvm::find(ops, group.anchor.getDefiningOp()) - ops.begin());
    auto kernel = plan::KernelOp::create(
        builder, named->getLoc(), ValueRange(group.stores).getTypes(), operands, UnitAttr(),
        plan::KernelKindAttr::get(function.getContext(), group.kind),
        llvm::is_contained(accumulates, true) ? builder.getDenseBoolArrayAttr(accumulates) : DenseBoolArrayAttr(),
        DenseI64ArrayAttr(), DenseI64ArrayAttr(), IntegerAttr(), builder.getStringAttr(labelOf(named)), domain);
    OpBuilder::InsertionGuard guard(builder);
    Block *body = builder.createBlock(&kernel.getBody());
    IRMapping inside;
    for (Value input : inputs)
      inside.map(input, body->addArgument(input.getType(), input.getLoc()));
    builder.setInsertionPointToEnd(body);
    for (Operation *op : ops)
      if (auto scan = dyn_cast<nn::ScanOp>(builder.clone(*op, inside))) {
        FailureOr<plan::LoopOp> loop = formLoop(scan);
        if (failed(loop))
          return failure();
        inside.map(op->getResults(), loop->getResults());
        scan.erase();
      }
    SmallVector<Value> returned;
    for (auto [value, result] : llvm::zip(group.stores, kernel.getOutputs())) {
      returned.push_back(inside.lookupOrNull(value));
      if (!returned.back())
        return internal(value, "a stored value is missing from its kernel");
      current.map(value, result);
    }
    plan::ReturnOp::create(builder, kernel.getLoc(), returned);
    return success();
  }

  LogicalResult writePart(int part) {
    for (const analysis::KernelGroup &group : formation.groups)
      if (group.part == part && failed(write(group)))
        return failure();
    return success();
  }

  // A loop along an axis, whose body's ops move into kernels, too.
  FailureOr<plan::LoopOp> formLoop(nn::ScanOp scan);

  // What leaves the loop: sums that something behind it, or the caller, reads.
  LogicalResult writeSweep(int part) {
    llvm::SetVector<Value> sums;
    llvm::DenseSet<Value> behind = readBehind(part);
    for (const analysis::KernelGroup &group : formation.groups)
      if (group.part == part)
        for (Value value : group.stores)
          if (!nn::hasBatch(value) && behind.contains(value))
            sums.insert(value);
    auto loop = plan::LoopOp::create(builder, function.getLoc(), ValueRange(sums.getArrayRef()).getTypes(), uint64_t(1),
                                     plan::ExamplesAttr::get(function.getContext(), nn::batchOf(function), 0));
    OpBuilder::InsertionGuard guard(builder);
    Block *body = builder.createBlock(&loop.getBody());
    builder.setInsertionPointToEnd(body);
    if (failed(writePart(part)))
      return failure();
    plan::YieldOp::create(builder, function.getLoc(),
                          llvm::map_to_vector(sums, [&](Value value) { return current.lookup(value); }));
    for (auto [value, result] : llvm::zip(sums, loop.getSums()))
      current.map(value, result);
    return success();
  }

  // What groups behind a part, or the caller, read.
  llvm::DenseSet<Value> readBehind(int part) const {
    llvm::DenseSet<Value> read(exit->operand_begin(), exit->operand_end());
    for (const analysis::KernelGroup &group : formation.groups)
      if (group.part > part)
        read.insert(group.reads.begin(), group.reads.end());
    return read;
  }

  LogicalResult writeMarker(analysis::KernelGroup::Marker marker) {
    SmallVector<Value> values;
    llvm::StringMap<Value> byName;
    for (auto [value, name] : llvm::zip(handed, names)) {
      values.push_back(current.lookupOrNull(value));
      if (!values.back())
        return internal(value, "a result is read before it is computed");
      byName[cast<StringAttr>(name).getValue()] = values.back();
    }
    if (marker == analysis::KernelGroup::Results)
      plan::ResultsOp::create(builder, function.getLoc(), values, builder.getArrayAttr(names), DenseI64ArrayAttr());
    else
      plan::GateOp::create(builder, function.getLoc(), byName.lookup("loss"), byName.lookup("norm"), DenseI64ArrayAttr());
    return success();
  }

  // Results with names were handed out by plan.results; the new parameters and state are left.
  void leave() {
    SmallVector<Value> remaining;
    SmallVector<Attribute> attributes;
    for (auto [i, value] : llvm::enumerate(exit->getOperands()))
      if (!function.getResultAttrOfType<StringAttr>(unsigned(i), nn::kNameAttr)) {
        remaining.push_back(current.lookup(value));
        attributes.push_back(function.getResultAttrDict(unsigned(i)));
      }
    exit->setOperands(remaining);
    function.setFunctionType(FunctionType::get(function.getContext(), function.getArgumentTypes(),
                                               ValueRange(remaining).getTypes()));
    function.setResAttrsAttr(builder.getArrayAttr(attributes));
  }

  LogicalResult internal(Value value, const char *what) {
    return emitError(value.getLoc()) << "internal error: kernel formation: " << what;
  }

  func::FuncOp function;
  const analysis::Formation &formation;
  Operation *exit;
  OpBuilder builder;
  IRMapping current; // nn values that are stored -> results of kernels
  llvm::DenseMap<Operation *, int64_t> order;
  SmallVector<Value> handed;
  SmallVector<Attribute> names;
};

FailureOr<plan::LoopOp> Writer::formLoop(nn::ScanOp scan) {
  // Kernel formation works on functions: the body is one for a while.
  auto type = FunctionType::get(scan.getContext(), scan.block().getArgumentTypes(), scan.yield()->getOperandTypes());
  OwningOpRef<func::FuncOp> body = func::FuncOp::create(scan.getLoc(), "body", type);
  if (Attribute grain = function->getAttr(nn::kGrainAttr))
    (*body)->setAttr(nn::kGrainAttr, grain);
  body->getBody().takeBody(scan.getBody());
  Block &block = body->getBody().front();
  analysis::Sweeps noSweeps;
  for (Operation &op : block.without_terminator())
    noSweeps.part[&op] = 0;
  analysis::Formation bodyFormation(*body, std::move(noSweeps), formation.joinsMore);
  if (failed(bodyFormation.form()) || failed(Writer(*body, bodyFormation).writeBody()))
    return failure();
  unsigned wholes = unsigned(scan.getWholes().size()), sliced = block.getNumArguments() - wholes;
  for (auto [argument, whole] : llvm::zip(block.getArguments().drop_front(sliced), scan.getWholes()))
    argument.replaceAllUsesWith(whole);
  block.eraseArguments(sliced, wholes);
  OpBuilder end(block.getTerminator());
  plan::YieldOp::create(end, scan.getLoc(), block.getTerminator()->getOperands());
  block.getTerminator()->erase();
  TypeRange results = scan.getResultTypes();
  auto loop = plan::LoopOp::create(
      builder, scan.getLoc(), results.take_front(scan.carriedCount()), results.drop_front(scan.carriedCount()), TypeRange(),
      scan.getInits(), scan.getSlices(), scan.getStacks(), scan.getFirsts(), scan.getTrips(),
      plan::AxisAttr::get(scan.getContext(), scan.getReverse()), DenseI64ArrayAttr(), plan::ActionsAttr(), DenseI64ArrayAttr());
  loop->setDiscardableAttrs(scan->getDiscardableAttrDictionary());
  loop.getBody().takeBody(body->getBody());
  return loop;
}

// A parameter that is handed out as a result (a loss that is one) is copied: the result is read when the parameter has been updated.
void copyArgumentsHandedOut(func::FuncOp function) {
  Operation *exit = function.getBody().front().getTerminator();
  OpBuilder builder(exit);
  for (OpOperand &operand : exit->getOpOperands())
    if (isa<BlockArgument>(operand.get()) && !nn::hasBatch(operand.get()) &&
        function.getResultAttr(operand.getOperandNumber(), nn::kNameAttr))
      operand.set(nn::StopGradientOp::create(builder, operand.get().getLoc(), operand.get().getType(), operand.get()));
}

// Of a loop that stands in several sweeps each copy stacks only what its own sweep reads.
nn::ScanOp dropUnread(nn::ScanOp scan) {
  scan = nn::separateYields(scan);
  SmallVector<Operation *> ops; // the loop below erases
  for (Operation &op : scan.block().without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty())
      op->erase();
    else if (auto inner = dyn_cast<nn::ScanOp>(op))
      dropUnread(inner);
  return scan;
}

void dropUnread(analysis::Sweeps &sweeps) {
  SmallVector<std::pair<nn::ScanOp, int>> loops;
  for (auto [op, part] : sweeps.part)
    if (auto scan = dyn_cast<nn::ScanOp>(op))
      loops.push_back({scan, part});
  for (auto [scan, part] : loops)
    sweeps.part.erase(scan);
  for (auto [scan, part] : loops)
    sweeps.part[dropUnread(scan)] = part;
}

struct FormKernels : cinch::impl::FormKernelsBase<FormKernels> {
  using FormKernelsBase::FormKernelsBase;
  void runOnOperation() final {
    func::FuncOp function = getOperation();
    copyArgumentsHandedOut(function);
    SmallVector<nn::ScanOp> loops;
    function.walk([&](nn::ScanOp scan) { loops.push_back(scan); });
    for (nn::ScanOp scan : loops)
      nn::separateYields(scan);
    analysis::Sweeps sweeps = analysis::separateSweeps(function);
    dropUnread(sweeps);
    analysis::Formation formation(function, std::move(sweeps), joinsMore);
    if (failed(formation.form()) || failed(Writer(function, formation).write()))
      signalPassFailure();
  }
};

} // namespace
