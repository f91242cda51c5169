// AssignMemory.cpp: writes the decided byte offsets onto the kernels. What an operand's offset is follows from where its value
// was written; that it is what the decision says for this read is checked.
#include "compiler/solve/Timeline.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

namespace cinch {
#define GEN_PASS_DEF_ASSIGNMEMORY
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

struct AssignMemory : cinch::impl::AssignMemoryBase<AssignMemory> {
  void runOnOperation() final {
    func::FuncOp function = getOperation();
    FailureOr<Decided> decided = readDecision(function);
    if (failed(decided) || failed(checkRuns(function, *decided)))
      return signalPassFailure();
    Builder attributes(&getContext());
    DenseSet<int64_t> onHost;
    for (const DecidedMove &move : decided->moves)
      if (move.argument >= 0)
        onHost.insert(move.argument);
    SmallVector<DictionaryAttr> named; // set at once: one by one, each would write the list of all anew
    for (auto [argument, offset] : llvm::zip_equal(function.getArguments(), decided->arguments)) {
      offsets[argument] = offset;
      NamedAttrList known(function.getArgAttrDict(argument.getArgNumber()));
      known.set("plan.offset", attributes.getI64IntegerAttr(offset));
      if (onHost.contains(argument.getArgNumber()))
        known.set(kSpaceAttr, attributes.getStringAttr("host"));
      named.push_back(known.getDictionary(&getContext()));
    }
    function.setAllArgAttrs(named);
    if (failed(assign(function.getBody().front(), *decided)))
      return signalPassFailure();
    function->setAttr(kArenaAttr, attributes.getI64IntegerAttr(decided->arenaBytes));
    if (decided->hostBytes > 0)
      function->setAttr(kHostBytesAttr, attributes.getI64IntegerAttr(decided->hostBytes));
    for (auto [loop, decidedLoop] : llvm::zip(function.getOps<plan::LoopOp>(), decided->loops))
      loop->setAttr(kZeroedAttr, attributes.getDenseI64ArrayAttr(decidedLoop.zeroed));
    function->removeAttr(kDecisionAttr);
    for (plan::LoopOp loop : function.getOps<plan::LoopOp>())
      bringSumsToTheirWork(loop);
  }

  // What a sum goes on from is waited for right before its work, what is added to it right behind that, and there the sum is sent, as far as
  // the order of the messages allows: to the planner, whom they cost no bytes, they may stand anywhere. The bytes of a sum are its own through the whole loop.
  static void bringSumsToTheirWork(plan::LoopOp loop) {
    bool inTurns = solve::copiesBetweenParts(analysis::actionsOf(loop)).empty(); // then the body is one whole
    auto stops = [&](Operation *op) {
      return isa<plan::SendOp, plan::ReceiveOp>(op) || op->hasTrait<OpTrait::IsTerminator>() || (isa<plan::PartOp>(op) && !inTurns);
    };
    SmallVector<Operation *> messages;
    for (Operation &op : loop.block())
      if (isa<plan::SendOp, plan::ReceiveOp>(op))
        messages.push_back(&op);
    for (Operation *op : llvm::reverse(messages))
      if (auto receive = dyn_cast<plan::ReceiveOp>(op); receive && receive.getBegins() && !receive.getAdds()) {
        Operation *work = receive.sum().getDefiningOp(), *next = op->getNextNode();
        while (next != work && !stops(next))
          next = next->getNextNode();
        op->moveBefore(next);
      }
    for (Operation *op : messages) {
      auto send = dyn_cast<plan::SendOp>(op);
      auto receive = dyn_cast<plan::ReceiveOp>(op);
      if ((send && send.getLast()) || (receive && receive.getAdds())) {
        Operation *work = (send ? send.getValue() : receive.sum()).getDefiningOp(), *previous = op->getPrevNode();
        while (previous != work && !stops(previous))
          previous = previous->getPrevNode();
        op->moveAfter(previous);
      }
    }
  }

  LogicalResult assign(Block &block, const Decided &decided) {
    Builder attributes(&getContext());
    auto read = [&](ValueRange values) {
      return attributes.getDenseI64ArrayAttr(
          llvm::map_to_vector(values, [&](Value value) { return offsets.lookup(value); }));
    };
    for (Operation &op : block) {
      for (Value operand : op.getOperands())
        if (!offsets.count(operand))
          return op.emitError("internal error: an operand has no place in memory");
      if (auto loop = dyn_cast<plan::LoopOp>(op)) {
        // What is sliced or stacked is where its first part is.
        for (BlockArgument argument : loop.block().getArguments())
          offsets[argument] = offsets.lookup(loop.operandOf(argument));
        if (failed(assign(loop.block(), decided)))
          return failure();
        for (Value result : loop->getResults())
          offsets[result] = offsets.lookup(loop.yieldedFor(result));
      } else if (auto send = dyn_cast<plan::SendOp>(op)) {
        send.setReadsAttr(read(op.getOperands()));
      } else if (auto receive = dyn_cast<plan::ReceiveOp>(op)) {
        const DecidedRun &run = runOf(&op, decided);
        offsets[receive.getValue()] = run.writes.front();
        receive.setWritesAttr(attributes.getDenseI64ArrayAttr(run.writes.front()));
        setCopies(&op, run);
      } else if (auto fetch = dyn_cast<plan::FetchOp>(op)) {
        offsets[fetch.getCopy()] = int64_t(fetch.getOffset().value_or(-1));
      } else if (auto store = dyn_cast<plan::StoreOp>(op)) {
        if (offsets.lookup(store.getValue()) != int64_t(store.getOffset().value_or(-1)))
          return op.emitError("internal error: copies from offset ") << store.getOffset().value_or(0) << ", the value lies at " << offsets.lookup(store.getValue());
        offsets[store.getCopy()] = int64_t(store.getHost().value_or(-1));
      } else if (auto band = dyn_cast<plan::BandOp>(op)) {
        const DecidedRun &run = runOf(&op, decided);
        if (run.reads != SmallVector<int64_t>{offsets.lookup(band.getImage())})
          return op.emitError("internal error: copies from offset ") << offsets.lookup(band.getImage()) << ", which the decision does not";
        offsets[band.getRows()] = run.writes.front();
        band.setReadsAttr(attributes.getDenseI64ArrayAttr(run.reads));
        band.setWritesAttr(attributes.getDenseI64ArrayAttr(run.writes.front()));
      } else if (auto gate = dyn_cast<plan::GateOp>(op)) {
        gate.setReadsAttr(read(op.getOperands()));
      } else if (auto results = dyn_cast<plan::ResultsOp>(op)) {
        results.setReadsAttr(read(op.getOperands()));
      } else if (auto kernel = dyn_cast<plan::KernelOp>(op)) {
        const DecidedRun &run = runOf(&op, decided);
        if (run.writes.size() < kernel.getNumResults()) // marks may follow (StepProblem.cpp)
          return op.emitError("internal error: the decision places ") << run.writes.size() << " results, not "
                                                                      << kernel.getNumResults();
        for (Value input : kernel.getInputs())
          if (!llvm::is_contained(run.reads, offsets.lookup(input)))
            return op.emitError("internal error: reads offset ") << offsets.lookup(input) << ", which the decision does not";
        if (failed(place(kernel, run, ArrayRef(run.writes).take_front(kernel.getNumResults()))))
          return failure();
      }
    }
    return success();
  }

  // The passes that apply the rest of the decision have run.
  static LogicalResult checkRuns(func::FuncOp function, const Decided &decided) {
    WalkResult walked = function.walk<WalkOrder::PreOrder>([&](Operation *op) {
      auto run = op->getAttrOfType<IntegerAttr>(kRunAttr);
      if (isa<plan::KernelOp, plan::ReceiveOp, plan::BandOp>(op) &&
          (!run || run.getInt() < 0 || run.getInt() >= int64_t(decided.runs.size()))) {
        op->emitOpError("is no run of the decision: run rematerialize first");
        return WalkResult::interrupt();
      }
      return isa<plan::KernelOp>(op) ? WalkResult::skip() : WalkResult::advance();
    });
    if (walked.wasInterrupted())
      return failure();
    auto isOverRows = [](plan::LoopOp loop) { return loop.rowBlocks() ? WalkResult::interrupt() : WalkResult::advance(); };
    if (!decided.rows.empty() && !function.walk(isOverRows).wasInterrupted())
      return function.emitError("has no blocks of rows, which its decision has: run form-row-blocks first");
    return success();
  }

  static const DecidedRun &runOf(Operation *op, const Decided &decided) {
    return decided.runs[op->getAttrOfType<IntegerAttr>(kRunAttr).getInt()];
  }
  static void setCopies(Operation *op, const DecidedRun &run) {
    if (!run.copies.empty())
      op->setAttr(kCopiesAttr, DenseI64ArrayAttr::get(op->getContext(), ArrayRef(run.copies).take_front(op->getNumResults())));
  }

  // Sums that begin with a kernel: a chain begins with its first term as it would with a zero that was written for it. What has to be cleared is
  // left: sums of blocks, which are added to what is there, and those of a loop along an axis. (Maxima have no blocks.)
  SmallVector<int64_t> beginSums(plan::KernelOp kernel, ArrayRef<int64_t> zeroed, ArrayRef<int64_t> writes) {
    SmallVector<int64_t> left;
    SmallVector<bool> accumulates(kernel.getAccumulates().value_or(ArrayRef<bool>()));
    for (size_t i = 0; i + 1 < zeroed.size(); i += 2) {
      const auto *result = llvm::find(writes, zeroed[i]);
      Operation *work = result == writes.end() ? nullptr : analysis::computedBy(kernel->getResult(unsigned(result - writes.begin()))).getDefiningOp();
      auto reduce = dyn_cast_or_null<nn::ReduceOp>(work);
      bool inBlocks = work && (!reduce || reduce.getReduction() == nn::Reduction::Sum) && (nn::grainOf(work) > 0 || nn::rowsTogether(work) > 0);
      if (work && !analysis::loopOf(kernel) && !inBlocks)
        accumulates[size_t(result - writes.begin())] = false;
      else
        left.append({zeroed[i], zeroed[i + 1]});
    }
    if (left.size() < zeroed.size())
      kernel.setAccumulatesAttr(llvm::is_contained(accumulates, true) ? DenseBoolArrayAttr::get(&getContext(), accumulates) : DenseBoolArrayAttr());
    return left;
  }

  LogicalResult place(plan::KernelOp kernel, const DecidedRun &run, ArrayRef<int64_t> writes) {
    Builder attributes(&getContext());
    setCopies(kernel, run);
    kernel.setReadsAttr(attributes.getDenseI64ArrayAttr(
        llvm::map_to_vector(kernel.getInputs(), [&](Value value) { return offsets.lookup(value); })));
    kernel.setWritesAttr(attributes.getDenseI64ArrayAttr(writes));
    kernel.setScratchAttr(attributes.getI64IntegerAttr(run.scratch));
    if (SmallVector<int64_t> zeroed = beginSums(kernel, run.zeroed, writes); !zeroed.empty())
      kernel->setAttr(kZeroedAttr, attributes.getDenseI64ArrayAttr(zeroed));
    if (run.scratch >= 0)
      kernel->setAttr(kScratchBytesAttr, attributes.getI64IntegerAttr(run.scratchBytes));
    for (auto [result, offset] : llvm::zip(kernel.getOutputs(), writes))
      offsets[result] = offset;
    plan::LoopOp loop = analysis::loopOf(kernel);
    return loop ? assignTrip(kernel, loop, run) : success();
  }

  // A loop along an axis: what is sliced or stacked is where the first part lies, a carried value that is only carried in its first slot.
  LogicalResult assignTrip(plan::KernelOp kernel, plan::LoopOp loop, const DecidedRun &run) {
    for (auto [argument, operand] : llvm::zip(kernel.getBody().getArguments(), kernel.getInputs()))
      offsets[argument] = offsets.lookup(operand);
    for (auto [value, offset] : llvm::zip(kernel.getBody().front().getTerminator()->getOperands(), *kernel.getWrites()))
      offsets[value] = offset;
    loop->setAttr(kSlotsAttr, DenseI64ArrayAttr::get(&getContext(), run.slots));
    for (BlockArgument argument : loop.block().getArguments())
      offsets[argument] = offsets.lookup(loop.operandOf(argument));
    DenseMap<Value, int64_t> outside; // of what is yielded
    const int64_t *slot = run.slots.begin();
    for (OpResult result : loop->getResults()) {
      if (loop.isStacked(result))
        outside[loop.yieldedFor(result)] = offsets.lookup(result);
      else if (loop.hasSlots(result.getResultNumber())) {
        if (slot == run.slots.end())
          return loop.emitError("internal error: the decision has too few slots");
        outside[loop.yieldedFor(result)] = *slot;
        slot += 2;
      }
    }
    auto inner = run.inside.begin();
    for (Operation &op : loop.block().without_terminator()) {
      auto part = cast<plan::KernelOp>(op);
      if (inner == run.inside.end() || inner->writes.size() != part.getNumResults())
        return op.emitError("internal error: the decision does not place this kernel of a loop");
      SmallVector<int64_t> writes;
      for (auto [result, offset] : llvm::zip(part.getOutputs(), inner->writes))
        writes.push_back(offset >= 0 ? offset : outside.lookup(result));
      if (failed(place(part, *inner, writes)))
        return failure();
      ++inner;
    }
    return success();
  }

  DenseMap<Value, int64_t> offsets;
};

} // namespace
