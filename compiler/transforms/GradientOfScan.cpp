// GradientOfScan.cpp: the gradient of a loop along an axis (nn.scan).
//
//     forward     h_t = tanh(x_t + h_(t-1) w)          x is sliced, h carried and stacked, w whole
//     backward    from the last trip to the first:
//                   dz_t = (dy_t + dh_t) (1 - h_t^2)    h_t: saved, or computed again from what is saved
//                   dh_(t-1) = dz_t w'                  carried
//                   dx_t = dz_t                         stacked
//     behind it   dw = sum over (example, t) of h_(t-1) dz_t
//
// What is the same in every trip has one sum over all examples and trips, behind the loop: the examples slowest, then time ascending,
// whichever way the loop runs. So its bits do not depend on how examples are cut into micro-batches. A product whose result only leaves the
// loop is computed behind it, too.
//
// What is saved of a trip, and what is computed from it again: SavedOfScan.h.
#include "compiler/transforms/GradientBehindScan.h"
#include "compiler/transforms/GradientSweep.h"
#include "compiler/transforms/SavedOfScan.h"
#include "dialects/nn/Scan.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace cinch {
namespace {

class ScanGradient {
public:
  ScanGradient(nn::ScanOp scan, unsigned place, ValueRange grads, GradientSweep &outer, nn::GradientBuilder &b)
      : scan(scan), trips(int64_t(scan.getTrips())), place(place), grads(grads), outer(outer), b(b), block(new Block) {}

  LogicalResult run() {
    if (!scan.getStacks().empty())
      return scan.emitOpError("internal error: a backward loop has no derivative");
    OpBuilder inside(scan.getContext());
    inside.setInsertionPointToEnd(block);
    nn::GradientBuilder builder(inside);
    builder.setLocation(b.place());
    body = &builder;
    GradientSweep sweep(builder, activeInside());
    begin(sweep);
    if (failed(sweep.visit(scan.block())))
      return failure();
    finish(sweep);
    eraseUnread();
    saveWhatIsRead();
    makeLoop();
    for (const Leaving &leaving : left)
      outer.contribute(scan->getOperand(leaving.operand), place, leaving.operand, outside(leaving));
    for (Operation *op : taken)
      op->destroy();
    return success();
  }

private:
  // A contribution that leaves the loop: computed behind it from values of all trips, which `op` computes in one.
  struct Leaving {
    unsigned operand; // of the forward loop
    Value value;
    bool keepsTrips;                        // a part for each trip, or the sum over them
    Operation *op = nullptr;                // contract, conv filter, sum or scatter_add, taken out of the loop; null: `value` itself
    SmallVector<Operation *, 2> views = {}; // of what `op` gives, from `value` back; taken out with it
  };

  // ---- The sweep over the body
  DenseSet<Value> activeInside() {
    DenseSet<Value> active;
    for (auto [i, operand] : llvm::enumerate(scan->getOperands()))
      if (outer.isActive(operand))
        active.insert(scan.block().getArgument(unsigned(i)));
    while (true) { // until nothing more is carried from trip to trip
      size_t before = active.size();
      GradientSweep::grow(active, scan.block());
      for (unsigned i = 0; i < scan.carriedCount(); ++i)
        if (active.contains(scan.yield()->getOperand(i)))
          active.insert(scan.carried(i));
      if (active.size() == before)
        return active;
    }
  }

  void begin(GradientSweep &sweep) {
    unsigned last = unsigned(std::distance(scan.block().begin(), scan.block().end()));
    for (unsigned i = 0; i < scan.carriedCount(); ++i) {
      if (!sweep.isActive(scan.carried(i)))
        continue;
      carriedOf.push_back(i);
      parts.inits.push_back(grads[i] ? grads[i] : b.like(scan.getInits()[i], 0));
      Value argument = block->addArgument(scan.getInits()[i].getType(), scan.getLoc());
      if (sweep.isActive(scan.yield()->getOperand(i)))
        sweep.contribute(scan.yield()->getOperand(i), last, i, argument);
    }
    for (unsigned j = 0; j < scan.stackedCount(); ++j) {
      unsigned result = scan.carriedCount() + j;
      Value yielded = scan.yield()->getOperand(result);
      if (!grads[result] || !sweep.isActive(yielded))
        continue;
      parts.slices.push_back(grads[result]);
      sweep.contribute(yielded, last, result, block->addArgument(yielded.getType(), scan.getLoc()));
    }
  }

  void finish(GradientSweep &sweep) {
    for (unsigned i : carriedOf) {
      Value gradient = sweep.gradientOf(scan.carried(i));
      parts.yields.push_back(gradient ? gradient : body->like(scan.carried(i), 0));
    }
    unsigned operand = scan.carriedCount();
    for (unsigned j = 0; j < scan.getSlices().size(); ++j, ++operand)
      if (sweep.isActive(scan.part(j)))
        leaveEach(sweep, scan.part(j), operand, true);
    for (unsigned j = 0; j < scan.getWholes().size(); ++j, ++operand) {
      if (!sweep.isActive(scan.whole(j)))
        continue;
      if (!nn::hasBatch(scan.whole(j)))
        leaveEach(sweep, scan.whole(j), operand, false);
      else if (Value gradient = sweep.gradientOf(scan.whole(j)))
        sumUp(gradient, operand);
    }
    takeOut();
    // Stacked values follow the carried ones, of which there may be more now.
    for (Value value : wanted)
      parts.yields.push_back(value);
  }

  // Work on examples that every trip does on the same operand: its gradient is a chain over the trips, carried along.
  void sumUp(Value gradient, unsigned operand) {
    Value sum = block->insertArgument(unsigned(parts.inits.size()), gradient.getType(), scan.getLoc());
    parts.inits.push_back(b.like(scan->getOperand(operand), 0));
    parts.yields.push_back(body->make<nn::AddOp>(sum, gradient));
    sumOf.push_back(operand);
  }

  void leaveEach(GradientSweep &sweep, Value argument, unsigned operand, bool keepsTrips) {
    SmallVector<Value> gradients;
    if (!nn::hasBatch(argument))
      gradients = sweep.takeContributions(argument);
    else if (Value gradient = sweep.gradientOf(argument))
      gradients.push_back(gradient);
    for (Value gradient : gradients)
      left.push_back({operand, gradient, keepsTrips});
  }

  // Contributions are looked at when the body has all its ops: one value may be several of them, and what is made of the last may read the first.
  void takeOut() {
    for (Leaving &leaving : left) {
      findOp(leaving);
      if (!leaving.op)
        want(leaving.value);
      else
        for (Value value : leaving.op->getOperands())
          want(value);
    }
  }

  // The op that can compute a contribution behind the loop, if nothing in the loop reads it.
  void findOp(Leaving &leaving) {
    Operation *op = leaving.value.getDefiningOp();
    if (!op || !isHere(leaving.value) || !leaving.value.use_empty() || llvm::is_contained(parts.yields, leaving.value))
      return; // a product that the next trip needs stays
    if (canStandBehindLoop(op)) {
      if (!nn::hasBatch(leaving.value) || isa<nn::ContractOp>(op)) // so does what is not summed over examples, but for products
        leaving.op = op;
      return;
    }
    // The filters of the trips of a loop in this one are a sum over examples, brought into their order.
    SmallVector<Operation *, 2> views;
    while (op && isa<nn::ReshapeOp, nn::TransposeOp>(op)) {
      Value viewed = op->getOperand(0);
      if (!isHere(viewed) || !viewed.hasOneUse() || llvm::is_contained(parts.yields, viewed) ||
          llvm::any_of(left, [&](const Leaving &other) { return other.value == viewed; }))
        return;
      views.push_back(op);
      op = viewed.getDefiningOp();
    }
    if (!canStandBehindLoop(op) || !nn::touchesBatch(op) || nn::hasBatch(op->getResult(0)))
      return;
    leaving.op = op;
    leaving.views = std::move(views);
  }

  // A value of the trips is asked for behind the loop. One of the backward loop is stacked.
  void want(Value value) {
    if (isHere(value) && !isSameInEachTrip(value))
      wanted.insert(value);
    else if (Operation *op = value.getDefiningOp(); op && op->getBlock() == &scan.block() && !isSameInEachTrip(value))
      savedForOutside.insert(value);
  }
  bool isHere(Value value) const { return value.getParentBlock() == block; }

  void eraseUnread() {
    for (Leaving &leaving : left) {
      if (!leaving.op || llvm::is_contained(taken, leaving.op))
        continue;
      llvm::append_range(taken, leaving.views); // readers first
      taken.push_back(leaving.op);
    }
    for (Operation *op : taken)
      op->remove();
    DenseSet<Value> needed(parts.yields.begin(), parts.yields.end());
    for (Operation &op : llvm::make_early_inc_range(llvm::reverse(*block)))
      if (op.use_empty() && llvm::none_of(op.getResults(), [&](Value value) { return needed.contains(value); }))
        op.erase();
  }

  // ---- What is saved
  // Values of the forward body that the backward body reads are computed in it from a cut through the forward body.
  void saveWhatIsRead() {
    llvm::SetVector<Value> read;
    auto note = [&](Value value) {
      if (value.getParentBlock() == &scan.block())
        read.insert(value);
    };
    for (Operation &op : *block)
      for (Value operand : op.getOperands())
        note(operand);
    for (Value value : parts.yields)
      note(value);
    DenseSet<Value> cut = cheapestToSave(scan, read, savedForOutside);
    stackAll(cut);
    addStacked(scan, read, cut);
    IRMapping inside;
    bringIn(cut, inside);
    computeAgain(scan, read, *block, parts.yields, inside);
  }

  // The forward loop stacks the values of the cut, in the order of its body, and what is asked for behind the loop.
  void stackAll(const DenseSet<Value> &cut) {
    SmallVector<Value> stacked(savedForOutside.begin(), savedForOutside.end());
    for (Operation &op : scan.block().without_terminator())
      for (Value result : op.getResults())
        if (cut.contains(result) && !savedForOutside.contains(result))
          stacked.push_back(result);
    for (unsigned i = 0; i < scan.carriedCount(); ++i)
      if ((cut.contains(scan.carried(i)) || beforeIsWanted(i)) && !llvm::is_contained(stacked, scan.yield()->getOperand(i)))
        stacked.push_back(scan.yield()->getOperand(i));
    llvm::erase_if(stacked, [&](Value value) { return stackOf(value) >= 0; });
    if (stacked.empty())
      return;
    SmallVector<Value> before(scan.getResults());
    scan = nn::addStacked(scan, stacked);
    // A result may be a gradient: of another one that it is multiplied with, or of anything else.
    ValueRange now = scan.getResults().take_front(before.size());
    for (SmallVectorImpl<Value> *values : {&parts.inits, &parts.slices})
      for (Value &value : *values)
        if (auto it = llvm::find(before, value); it != before.end())
          value = now[it - before.begin()];
    outer.replace(before, now);
  }

  // Values of the cut come into the backward body by slices; wholes are what they are.
  void bringIn(const DenseSet<Value> &cut, IRMapping &inside) {
    for (unsigned j = 0; j < scan.getSlices().size(); ++j)
      if (cut.contains(scan.part(j)))
        inside.map(scan.part(j), sliceOf(scan.getSlices()[j]));
    for (Operation &op : scan.block().without_terminator())
      for (Value result : op.getResults())
        if (cut.contains(result))
          inside.map(result, sliceOf(scan.getResult(unsigned(stackOf(result)))));
    for (unsigned i = 0; i < scan.carriedCount(); ++i)
      if (cut.contains(scan.carried(i))) {
        parts.stacks.push_back(scan.getResult(unsigned(stackOf(scan.yield()->getOperand(i)))));
        parts.firsts.push_back(scan.getInits()[i]);
        unsigned at = unsigned(parts.inits.size() + parts.slices.size() + parts.stacks.size()) - 1;
        inside.map(scan.carried(i), block->insertArgument(at, scan.carried(i).getType(), scan.getLoc()));
      }
    for (unsigned j = 0; j < scan.getWholes().size(); ++j)
      inside.map(scan.whole(j), scan.getWholes()[j]);
  }

  int stackOf(Value value) { return cinch::stackOf(scan, value); }
  Value sliceOf(Value stack) {
    unsigned at = unsigned(parts.inits.size() + parts.slices.size());
    parts.slices.push_back(stack);
    return block->insertArgument(at, nn::ScanOp::partOf(stack.getType()), scan.getLoc());
  }
  bool beforeIsWanted(unsigned i) {
    return llvm::any_of(left, [&](const Leaving &leaving) {
      return leaving.op ? llvm::is_contained(leaving.op->getOperands(), scan.carried(i)) : leaving.value == scan.carried(i);
    });
  }

  // ---- The loop, and what stands behind it
  void makeLoop() {
    parts.trips = trips;
    parts.reverse = !scan.getReverse();
    auto loop = nn::createScan(b.opBuilder(), b.place(), parts, block);
    if (Attribute number = scan->getAttr(nn::kBlockAttr))
      loop->setAttr(nn::kBlockAttr, number);
    b.note(loop);
    backward = loop;
    for (auto [k, i] : llvm::enumerate(carriedOf))
      if (outer.isActive(scan.getInits()[i]))
        outer.contribute(scan.getInits()[i], place, i, loop.getResult(unsigned(k)));
    for (auto [k, operand] : llvm::enumerate(sumOf))
      outer.contribute(scan->getOperand(operand), place, operand, loop.getResult(unsigned(carriedOf.size() + k)));
    for (auto [k, value] : llvm::enumerate(wanted))
      stackedAs[value] = loop.stackedResult(unsigned(k));
  }

  // A value of the trips behind the loop. With trips as its first axis, or (`timeless`) the same for all of them.
  Value ofAllTrips(Value value, bool &timeless) {
    timeless = false;
    if (Value stack = stackedAs.lookup(value))
      return stack;
    if (isSameInEachTrip(value)) {
      timeless = true;
      Operation *copy = b.opBuilder().clone(*value.getDefiningOp());
      b.note(copy);
      return copy->getResult(0);
    }
    for (unsigned i = 0; i < scan.carriedCount(); ++i)
      if (value == scan.carried(i))
        return statesBefore(i);
    for (unsigned j = 0; j < scan.getSlices().size(); ++j)
      if (value == scan.part(j))
        return scan.getSlices()[j];
    for (unsigned j = 0; j < scan.getWholes().size(); ++j)
      if (value == scan.whole(j)) {
        timeless = true;
        return scan.getWholes()[j];
      }
    return scan.getResult(unsigned(stackOf(value)));
  }

  IntegerAttr number(int64_t n) { return b.opBuilder().getI64IntegerAttr(n); }
  Value cut(Value stack, int64_t from, int64_t to) {
    return from == 0 && to == trips ? stack : Value(b.make<nn::SliceOp>(stack, number(0), number(from), number(to)));
  }
  Value alone(Value part) { return b.reshape(part, nn::ScanOp::stackedType(part.getType(), 1)); }

  Value statesBefore(unsigned i) {
    Value behind = scan.getResult(unsigned(stackOf(scan.yield()->getOperand(i))));
    bool forwards = !scan.getReverse();
    Value first = alone(scan.getInits()[i]);
    if (trips == 1)
      return first;
    SmallVector<Value> both{first, forwards ? cut(behind, 0, trips - 1) : cut(behind, 1, trips)};
    if (!forwards)
      std::swap(both[0], both[1]);
    return b.make<nn::ConcatOp>(both, uint64_t(0));
  }

  Value outside(const Leaving &leaving) {
    bool timeless = false;
    if (!leaving.op) {
      Value all = ofAllTrips(leaving.value, timeless);
      if (timeless)
        all = withTrips(b, all, trips);
      return leaving.keepsTrips ? all : b.sum(all, {0});
    }
    Value &made = behind[leaving.keepsTrips][leaving.value]; // it may be several contributions of each kind
    if (!made)
      made = madeBehind(leaving);
    return made;
  }

  Value madeBehind(const Leaving &leaving) {
    SmallVector<Value> operands;
    SmallVector<bool> timeless;
    for (Value value : leaving.op->getOperands()) {
      bool same = false;
      operands.push_back(ofAllTrips(value, same));
      timeless.push_back(same);
    }
    Value made = sumOverTrips(b, leaving.op, trips, leaving.keepsTrips, operands, timeless);
    for (Operation *view : llvm::reverse(leaving.views))
      made = viewBehind(b, view, trips, leaving.keepsTrips, made);
    return made;
  }

  nn::ScanOp scan, backward;
  int64_t trips;
  unsigned place;
  ValueRange grads;
  GradientSweep &outer;
  nn::GradientBuilder &b;
  nn::GradientBuilder *body = nullptr;
  Block *block; // of the backward loop
  nn::ScanParts parts;
  SmallVector<unsigned> carriedOf, sumOf;  // carried values of the backward loop: of which of the forward one; of which operand
  llvm::SetVector<Value> wanted;           // values of the backward body that are stacked
  llvm::SetVector<Value> savedForOutside;  // values of the forward body that are
  llvm::MapVector<Value, Value> stackedAs; // values of the backward body -> results of the loop
  SmallVector<Operation *> taken;          // out of the backward body
  DenseMap<Value, Value> behind[2];        // what stands behind the loop for a contribution: of all trips, a part for each
  SmallVector<Leaving> left;
};

} // namespace

LogicalResult differentiateScan(nn::ScanOp scan, unsigned place, ValueRange grads, GradientSweep &outer, nn::GradientBuilder &b) {
  return ScanGradient(scan, place, grads, outer, b).run();
}

} // namespace cinch
