// Rematerialize.cpp: puts the runs in the decided order. A kernel's last run is the kernel itself, moved to its place; each earlier one is
// a copy. A kernel that runs again is recomputed, and uses behind it read the new copy, if their part of the loop body finds it. What work in
// blocks of rows computes again for itself, nobody else reads. Assumes the micro-batch loop is formed.
#include "compiler/transforms/Decision.h"
#include "compiler/solve/Timeline.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/IRMapping.h"

#include <map>

namespace cinch {
#define GEN_PASS_DEF_REMATERIALIZE
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

class Scheduler {
public:
  Scheduler(func::FuncOp function, const Decided &decided) : function(function), decided(decided), step(function) {}

  LogicalResult run() {
    Operation *exit = function.getBody().front().getTerminator();
    if (failed(findLastRuns()))
      return failure();
    SmallVector<Operation *> old; // what will be left of the step as it was
    for (Operation &op : function.getBody().front().without_terminator())
      if (!moves.contains(&op))
        old.push_back(&op);
    for (BlockArgument argument : function.getArguments())
      current.map(argument, argument);
    OpBuilder builder(exit);
    if (decided.loops.size() != step.loops.size())
      return function.emitError("'") << kDecisionAttr << "' has " << decided.loops.size() << " loops, the function "
                                     << step.loops.size();
    findAgain();
    int64_t done = 0;
    for (auto [old, decidedLoop] : llvm::zip(step.loops, decided.loops)) {
      if (failed(emit(builder, done, decidedLoop.first)) || failed(emitLoop(builder, old, decidedLoop)))
        return failure();
      done = decidedLoop.last;
    }
    if (failed(emit(builder, done, int64_t(decided.runs.size()))))
      return failure();
    move(builder, int64_t(decided.runs.size()));
    for (OpOperand &operand : exit->getOpOperands())
      operand.set(current.lookupOrDefault(operand.get()));
    for (Operation *op : llvm::reverse(old)) {
      op->dropAllUses();
      op->erase();
    }
    return success();
  }

private:
  LogicalResult emitLoop(OpBuilder &builder, plan::LoopOp old, const DecidedLoop &decidedLoop) {
    plan::YieldOp oldYield = old.yield();
    auto loop = plan::LoopOp::create(builder, old.getLoc(), old.getResultTypes(), old.getCount(), old.examples(), old.getActionsAttr(),
                                     old.getLagsAttr());
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(builder.createBlock(&loop.getBody()));
    finds = solve::partsThatFind(analysis::actionsOf(loop));
    part = 0;
    if (failed(emit(builder, decidedLoop.first, decidedLoop.last)))
      return failure();
    finds.clear(), copies.clear();
    SmallVector<Value> yielded;
    for (Value value : oldYield.getValues())
      yielded.push_back(current.lookup(value));
    plan::YieldOp::create(builder, oldYield.getLoc(), yielded);
    for (auto [before, now] : llvm::zip(old.getSums(), loop.getSums()))
      current.map(before, now);
    return success();
  }

  LogicalResult findLastRuns() {
    for (auto [number, run] : llvm::enumerate(decided.runs)) {
      if (run.kernel >= int64_t(step.parts.size()))
        return function.emitError("'") << kDecisionAttr << "' runs kernel " << run.kernel << " of " << step.parts.size();
      if (run.band < 0)
        moves[step.parts[run.kernel].op] = int64_t(number);
    }
    return success();
  }

  // The runs of a range in blocks of rows that stand in it for another range's work are marked as recomputed, unlike its own, where the range
  // runs first. Where all of a range is recomputed, the same kernels are.
  void findAgain() {
    again.assign(decided.runs.size(), false);
    std::map<SmallVector<int64_t>, SmallVector<bool>> known; // kernels of a range -> those that it computes for itself alone
    for (const DecidedRows &rows : decided.rows) {
      ArrayRef<DecidedRun> runs = ArrayRef(decided.runs).slice(size_t(rows.first), size_t(rows.last - rows.first));
      SmallVector<bool> marked = llvm::map_to_vector(runs, [](const DecidedRun &run) { return run.recompute; });
      auto [entry, fresh] = known.try_emplace(llvm::map_to_vector(runs, [](const DecidedRun &run) { return run.kernel; }), marked);
      llvm::copy(entry->second, again.begin() + rows.first);
    }
  }

  // Behind a range: what it computed for itself is gone.
  void endRows(int64_t number) {
    if (llvm::none_of(decided.rows, [&](const DecidedRows &rows) { return rows.last == number; }))
      return;
    for (auto [value, before] : llvm::reverse(inside)) {
      if (before)
        current.map(value, before);
      else
        current.erase(value);
      if (!finds.empty())
        copies[value].pop_back();
    }
    inside.clear();
  }

  // What the run at hand reads: the latest copy in a part that its own finds.
  Value found(Value value) const {
    auto list = copies.find(value);
    if (list == copies.end())
      return current.lookupOrNull(value);
    for (auto [made, copy] : llvm::reverse(list->second))
      if (made == part || finds[size_t(made)][size_t(part)])
        return copy;
    return {};
  }

  // The copies of state that begin, or are waited for, right before a run. What has been fetched is what the update reads, what has been stored
  // is the new state that the step leaves.
  void move(OpBuilder &builder, int64_t before) {
    for (; moved < decided.moves.size() && decided.moves[moved].before == before; ++moved) {
      const DecidedMove &one = decided.moves[moved];
      if (one.argument < 0) {
        moveResult(builder, one);
        continue;
      }
      BlockArgument argument = function.getArgument(unsigned(one.argument));
      Location loc = argument.getLoc();
      IntegerAttr offset = builder.getI64IntegerAttr(one.offset), host = builder.getI64IntegerAttr(decided.arguments[size_t(one.argument)]);
      if (one.what == solve::Kernel::Await) {
        plan::AwaitOp::create(builder, loc, onItsWay.lookup(argument));
      } else if (one.what == solve::Kernel::Fetch) {
        auto fetch = plan::FetchOp::create(builder, loc, argument.getType(), argument, host, offset);
        current.map(argument, fetch.getCopy());
        onItsWay[argument] = fetch.getCopy();
      } else {
        Value result; // the new state, before it is copied
        for (OpOperand &operand : function.getBody().front().getTerminator()->getOpOperands())
          if (operand.get().getDefiningOp() && step.homeOf(operand.get()) == argument)
            result = operand.get();
        auto store = plan::StoreOp::create(builder, loc, argument.getType(), current.lookup(result), host, offset);
        current.map(result, store.getCopy());
        onItsWay[argument] = store.getCopy();
      }
    }
  }

  // A value of the loop leaves, comes back, or is waited for. What is fetched is its latest copy, as if it had been computed again.
  void moveResult(OpBuilder &builder, const DecidedMove &one) {
    Value value = step.parts[size_t(one.kernel)].op->getResult(unsigned(one.result)), copy = current.lookup(value);
    IntegerAttr offset = builder.getI64IntegerAttr(one.offset), host = builder.getI64IntegerAttr(one.host);
    if (one.what == solve::Kernel::Await) {
      plan::AwaitOp::create(builder, value.getLoc(), onItsWay.lookup(value));
    } else if (one.what == solve::Kernel::Fetch) {
      auto fetch = plan::FetchOp::create(builder, value.getLoc(), copy.getType(), onItsWay.lookup(value), host, offset);
      current.map(value, fetch.getCopy());
      onItsWay[value] = fetch.getCopy();
    } else {
      onItsWay[value] = plan::StoreOp::create(builder, value.getLoc(), copy.getType(), copy, host, offset).getCopy();
    }
  }

  // Each run reads what the latest run before it wrote.
  LogicalResult emit(OpBuilder &builder, int64_t begin, int64_t end) {
    for (int64_t number = begin; number < end; ++number) {
      move(builder, number);
      const DecidedRun &run = decided.runs[number];
      if (run.band >= 0) // copied inside of its range (form-row-blocks)
        continue;
      Operation *op = step.parts[run.kernel].op;
      part += isa<plan::PartOp>(op);
      SmallVector<Value> operands;
      for (Value operand : op->getOperands()) {
        operands.push_back(found(operand));
        if (!operands.back())
          return op->emitError("internal error: run ") << number << " reads what no earlier run stores";
      }
      Operation *now = place(builder, op, operands, moves.lookup(op) == number);
      if (again[size_t(number)])
        for (Value result : op->getResults())
          inside.push_back({result, current.lookupOrNull(result)});
      current.map(op->getResults(), now->getResults());
      for (auto [result, made] : llvm::zip(op->getResults(), now->getResults()))
        if (!finds.empty())
          copies[result].push_back({part, made});
      now->setAttr(kRunAttr, builder.getI64IntegerAttr(number));
      if (run.recompute)
        cast<plan::KernelOp>(now).setRecompute(true);
      endRows(number + 1);
    }
    return success();
  }

  // Of a deep step the kernels are most of the compiler's memory: those that run once are there once.
  static Operation *place(OpBuilder &builder, Operation *op, ArrayRef<Value> operands, bool move) {
    if (!move) {
      IRMapping mapping; // for this copy alone: a mapping keeps what stands in the body
      mapping.map(op->getOperands(), operands);
      return builder.clone(*op, mapping);
    }
    op->moveBefore(builder.getInsertionBlock(), builder.getInsertionPoint());
    op->setOperands(operands);
    return op;
  }

  func::FuncOp function;
  const Decided &decided;
  analysis::Step step;
  IRMapping current;
  DenseMap<Operation *, int64_t> moves;            // of each kernel that runs: its last run
  std::vector<bool> again;                         // of the runs
  SmallVector<std::pair<Value, Value>> inside;     // of the range at hand: what it computed for itself, and the copy before; null: none yet
  // In a loop whose parts do not all find what earlier ones left (Timeline.h): of each value the part and the result of every copy.
  std::vector<std::vector<char>> finds;
  DenseMap<Value, SmallVector<std::pair<int, Value>>> copies;
  int part = 0;
  size_t moved = 0;                    // of the decision's moves
  DenseMap<Value, Value> onItsWay;     // of what lies on the host: the last copy that began
};

struct Rematerialize : cinch::impl::RematerializeBase<Rematerialize> {
  void runOnOperation() final {
    FailureOr<Decided> decided = readDecision(getOperation());
    if (failed(decided))
      return signalPassFailure();
    for (plan::LoopOp loop : getOperation().getOps<plan::LoopOp>())
      if (loop.examples().getSize() != decided->microbatch) {
        loop.emitOpError("has micro-batches of ") << loop.examples().getSize() << " examples, the decision of " << decided->microbatch
                                                  << ": run form-microbatches first";
        return signalPassFailure();
      }
    if (failed(Scheduler(getOperation(), *decided).run()))
      signalPassFailure();
  }
};

} // namespace
