// CutLoops.cpp: a forward loop of T trips, which keeps values of every trip for its backward loop, becomes loops over runs of n trips:
//
//     forward    for each run: { n trips }                      keeps the states behind each run
//     backward   for each run, the last first:
//                  { n trips of the forward loop again, from the state before the run; what the backward loop reads is kept for the run }
//                  { n trips of the backward loop }
//
// Kept are T/n states and n trips instead of T trips; the forward loop runs twice. Values that others read, too, are stacked as before.
#include "compiler/transforms/CutLoops.h"

#include "compiler/solve/Evaluate.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/Scan.h"

#include "mlir/IR/IRMapping.h"

namespace cinch {
#define GEN_PASS_DEF_CUTLOOPS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;

namespace cinch {
namespace {

int64_t bytesOf(Type type) {
  auto tensor = cast<RankedTensorType>(type);
  return tensor.getNumElements() * std::max<int64_t>(8, tensor.getElementTypeBitWidth()) / 8;
}

// A forward loop and the backward loop that reads what it keeps.
class Pair {
public:
  Pair(nn::ScanOp forward, nn::ScanOp backward) : forward(forward), backward(backward) {
    for (Value stack : backward.getStacks())
      carriedOf.push_back(carriedIn(stack));
  }

  // The pair of a backward loop; none if its trips are not those of a forward loop, or if nothing is kept.
  static std::optional<Pair> of(nn::ScanOp backward) {
    for (ValueRange values : {ValueRange(backward.getStacks()), ValueRange(backward.getSlices())})
      for (Value value : values) {
        auto forward = value.getDefiningOp<nn::ScanOp>();
        if (!forward || forward->hasAttr(nn::kBackwardAttr) || !forward.getStacks().empty() || forward == backward ||
            forward->getBlock() != backward->getBlock() || forward.getTrips() != backward.getTrips() ||
            forward.getReverse() == backward.getReverse())
          continue;
        Pair pair(forward, backward);
        if (!llvm::is_contained(pair.carriedOf, -1) && pair.kept() > 0 && forward.carriedCount() > 0)
          return pair;
      }
    return std::nullopt;
  }

  int64_t kept() const { // bytes of a trip
    int64_t bytes = 0;
    for (unsigned i = carried(); i < forward->getNumResults(); ++i)
      if (isLocal(forward->getResult(i)))
        bytes += bytesOf(nn::ScanOp::partOf(forward->getResult(i).getType()));
    return bytes;
  }
  int64_t state() const {
    int64_t bytes = 0;
    for (Type type : forward.getInits().getTypes())
      bytes += bytesOf(type);
    return bytes;
  }
  int64_t trips() const { return int64_t(forward.getTrips()); }

  // The pair inside.
  Pair cut(int64_t run) {
    int64_t runs = trips() / run;
    ready(runs);
    nn::ScanOp outerForward = cutForward(run, runs);
    return cutBackward(outerForward, run, runs);
  }

private:
  unsigned carried() const { return forward.carriedCount(); }
  // Stacked by the forward loop, and read by the backward loop alone.
  bool isLocal(Value value) const {
    if (value.getDefiningOp() != forward.getOperation() || cast<OpResult>(value).getResultNumber() < carried())
      return false;
    Operation *user = backward;
    return !value.use_empty() && llvm::all_of(value.getUsers(), [&](Operation *other) { return other == user; });
  }
  // The carried value whose stack it is; -1: none.
  int carriedIn(Value stack) const {
    auto result = dyn_cast<OpResult>(stack);
    if (!result || result.getOwner() != forward.getOperation())
      return -1;
    nn::ScanOp loop = forward;
    for (unsigned i = 0; i < loop.carriedCount(); ++i)
      if (loop.yield()->getOperand(i) == loop.yield()->getOperand(result.getResultNumber()))
        return int(i);
    return -1;
  }

  void ready(int64_t runs) {
    for (unsigned i = carried(); i < forward.getNumResults(); ++i)
      (isLocal(forward.getResult(i)) ? local : shared).push_back(i);
  }

  // The same trips, so many of them, from other operands, with some of the stacked results.
  nn::ScanOp again(OpBuilder &builder, nn::ScanOp loop, ValueRange inits, ValueRange slices, ValueRange stacks, ValueRange firsts,
                   int64_t count, ArrayRef<unsigned> stacked) {
    SmallVector<Type> results(loop.getInits().getTypes());
    SmallVector<Value> yields(loop.yield()->getOperands().take_front(loop.carriedCount()));
    for (unsigned i : stacked) {
      yields.push_back(loop.yield()->getOperand(i));
      results.push_back(nn::ScanOp::stackedType(yields.back().getType(), count));
    }
    auto copy = nn::ScanOp::create(builder, loop.getLoc(), results, inits, slices, stacks, firsts, loop.getWholes(), uint64_t(count),
                                   loop.getReverse());
    copy->setDiscardableAttrs(loop->getDiscardableAttrDictionary());
    IRMapping mapping;
    loop.getBody().cloneInto(&copy.getBody(), mapping);
    copy.yield()->setOperands(llvm::map_to_vector(yields, [&](Value value) { return mapping.lookupOrDefault(value); }));
    // What only the other results needed.
    SmallVector<Operation *> ops;
    for (Operation &op : copy.block().without_terminator())
      ops.push_back(&op);
    for (Operation *op : llvm::reverse(ops))
      if (op->use_empty())
        op->erase();
    return copy;
  }

  Value run(Block *block, Value whole, int64_t runs) {
    return block->addArgument(nn::ScanOp::runOf(whole.getType(), runs), whole.getLoc());
  }

  nn::ScanOp cutForward(int64_t length, int64_t runs) {
    nn::ScanParts parts;
    parts.trips = runs;
    parts.reverse = forward.getReverse();
    parts.inits.assign(forward.getInits().begin(), forward.getInits().end());
    parts.slices.assign(forward.getSlices().begin(), forward.getSlices().end());
    auto *block = new Block;
    SmallVector<Value> states, slices;
    for (Value init : parts.inits)
      states.push_back(block->addArgument(init.getType(), init.getLoc()));
    for (Value slice : parts.slices)
      slices.push_back(run(block, slice, runs));
    OpBuilder inside(forward.getContext());
    inside.setInsertionPointToEnd(block);
    nn::ScanOp inner = again(inside, forward, states, slices, {}, {}, length, shared);
    parts.yields.assign(inner.getResults().begin(), inner.getResults().end());
    for (unsigned i = 0; i < carried(); ++i) // the states behind each run
      parts.yields.push_back(inner.getResult(i));
    parts.inRuns.assign(shared.size(), true);
    parts.inRuns.append(carried(), false);
    OpBuilder builder(forward);
    nn::ScanOp outer = nn::createScan(builder, forward.getLoc(), parts, block);
    outer->setDiscardableAttrs(forward->getDiscardableAttrDictionary());
    return outer;
  }

  Pair cutBackward(nn::ScanOp outerForward, int64_t length, int64_t runs) {
    nn::ScanParts parts;
    parts.trips = runs;
    parts.reverse = backward.getReverse();
    parts.inits.assign(backward.getInits().begin(), backward.getInits().end());
    auto *block = new Block;
    SmallVector<Value> states, before;
    for (Value init : parts.inits)
      states.push_back(block->addArgument(init.getType(), init.getLoc()));
    // A run of what has all trips.
    DenseMap<Value, Value> runOf;
    auto addRun = [&](Value value) {
      if (runOf.count(value))
        return;
      auto kept = llvm::find(shared, value.getDefiningOp() == forward.getOperation() ? cast<OpResult>(value).getResultNumber() : ~0u);
      parts.slices.push_back(kept == shared.end() ? value
                                                  : outerForward.getResult(carried() + unsigned(kept - shared.begin())));
      runOf[value] = run(block, value, runs);
    };
    for (Value slice : forward.getSlices())
      addRun(slice);
    for (ValueRange values : {ValueRange(backward.getSlices()), ValueRange(backward.getStacks())})
      for (Value value : values)
        if (!isLocal(value))
          addRun(value);
    for (unsigned i = 0; i < carried(); ++i) {
      parts.stacks.push_back(outerForward.getResult(carried() + unsigned(shared.size()) + i));
      parts.firsts.push_back(forward.getInits()[i]);
      before.push_back(block->addArgument(forward.getInits()[i].getType(), forward.getLoc()));
    }
    OpBuilder inside(forward.getContext());
    inside.setInsertionPointToEnd(block);
    SmallVector<Value> slices;
    for (Value slice : forward.getSlices())
      slices.push_back(runOf.lookup(slice));
    nn::ScanOp innerForward = again(inside, forward, before, slices, {}, {}, length, local);
    auto inRun = [&](Value value) {
      if (!isLocal(value))
        return runOf.lookup(value);
      auto place = llvm::find(local, cast<OpResult>(value).getResultNumber());
      return Value(innerForward.getResult(carried() + unsigned(place - local.begin())));
    };
    SmallVector<Value> read = llvm::map_to_vector(backward.getSlices(), inRun), stacks = llvm::map_to_vector(backward.getStacks(), inRun);
    SmallVector<Value> firsts = llvm::map_to_vector(carriedOf, [&](int carried) { return before[size_t(carried)]; });
    SmallVector<unsigned> all = llvm::to_vector(llvm::seq<unsigned>(backward.carriedCount(), backward.getNumResults()));
    nn::ScanOp innerBackward = again(inside, backward, states, read, stacks, firsts, length, all);
    parts.yields.assign(innerBackward.getResults().begin(), innerBackward.getResults().end());
    parts.inRuns.assign(backward.stackedCount(), true);
    OpBuilder builder(backward);
    nn::ScanOp outer = nn::createScan(builder, backward.getLoc(), parts, block);
    outer->setDiscardableAttrs(backward->getDiscardableAttrDictionary());
    backward->replaceAllUsesWith(outer.getResults());
    backward.erase();
    for (auto [place, i] : llvm::enumerate(shared))
      forward.getResult(i).replaceAllUsesWith(outerForward.getResult(carried() + unsigned(place)));
    for (unsigned i = 0; i < carried(); ++i)
      forward.getResult(i).replaceAllUsesWith(outerForward.getResult(i));
    forward.erase();
    Pair innerPair(innerForward, innerBackward);
    innerPair.carriedOf = carriedOf; // runs of a stack are arguments in there
    return innerPair;
  }

  mutable nn::ScanOp forward, backward; // handles, whose questions are no const members
  SmallVector<int> carriedOf;          // of each stack of the backward loop: the carried value of the forward loop that it stacks
  SmallVector<unsigned> local, shared; // stacked results of the forward loop
};

// Lengths of the runs, and of runs in them, with which least is kept of a loop; empty: none is shorter.
SmallVector<int64_t> bestRuns(const Pair &pair, int levels) {
  int64_t least = pair.trips() * pair.kept();
  SmallVector<int64_t> best;
  for (int64_t run : solve::divisors(pair.trips())) {
    if (run == 1 || run == pair.trips())
      continue;
    int64_t states = pair.trips() / run * pair.state();
    if (levels == 1) {
      if (int64_t bytes = states + run * pair.kept(); bytes < least)
        least = bytes, best = {run};
      continue;
    }
    for (int64_t inner : solve::divisors(run)) {
      if (inner == 1 || inner == run)
        continue;
      if (int64_t bytes = states + run / inner * pair.state() + inner * pair.kept(); bytes < least)
        least = bytes, best = {run, inner};
    }
  }
  return best;
}

struct CutLoops : cinch::impl::CutLoopsBase<CutLoops> {
  using CutLoopsBase::CutLoopsBase;
  void runOnOperation() final { cutLoops(getOperation(), levels); }
};

} // namespace

bool cutLoops(func::FuncOp function, int levels) {
  SmallVector<nn::ScanOp> loops;
  for (nn::ScanOp loop : function.getOps<nn::ScanOp>())
    if (loop->hasAttr(nn::kBackwardAttr))
      loops.push_back(loop);
  bool any = false;
  for (nn::ScanOp loop : loops) {
    std::optional<Pair> pair = Pair::of(loop);
    for (int64_t run : pair ? bestRuns(*pair, levels) : SmallVector<int64_t>()) {
      pair = pair->cut(run);
      any = true;
    }
  }
  return any;
}

} // namespace cinch
