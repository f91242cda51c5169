// FormationStores.cpp: which values are stored, before any kernel is formed.
#include "compiler/analysis/Formation.h"
#include "compiler/analysis/Specs.h"
#include "compiler/solve/Evaluate.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Pieces.h"

using namespace mlir;

namespace cinch::analysis {

// Work of one element, beside an addition.
static double weightOf(Operation *op) {
  if (auto cost = dyn_cast<nn::Cost>(op); cost && op->getNumResults() == 1)
    return cost.flops() / double(std::max<int64_t>(1, elementsOf(op->getResult(0))));
  return 1;
}

// Below its views: what lies in memory if the value does.
static bool isConstantLike(Operation *op) { return isa<nn::ConstantOp, nn::RangeOp>(op); }

static Value underViews(Value value) {
  while (Operation *op = value.getDefiningOp()) {
    if (!isView(op))
      break;
    value = op->getOperand(0);
  }
  return value;
}

void Formation::force(Value value) {
  stored.insert(value);
  forced.insert(value);
}

// Views of what is stored need no copy by themselves; the kernels ask for one where they do.
void Formation::forceUnderViews(Value value) {
  value = underViews(value);
  if (Operation *op = value.getDefiningOp(); op && !isConstantLike(op))
    force(value);
}

void Formation::chooseStored() {
  for (Value value : function.getBody().front().getTerminator()->getOperands())
    if (value.getDefiningOp())
      force(value);
  for (Operation *op : ops)
    storeAround(op);
  storeWhatIsDear();
}

// What a kernel of one op reads: its operands below their views, and a view where that cannot be read below it.
void Formation::storeOperands(Operation *op) {
  llvm::SetVector<Value> inWay, reads;
  auto isThere = [&](Value value) {
    Operation *from = value.getDefiningOp();
    return !from || inWay.contains(value) || (!isView(from) && !isConstantLike(from));
  };
  for (size_t i = 0; i < extents.size();) {
    KernelGroup group;
    Value blocker;
    if (tryOwn(group, op, extents[i], blocker, isThere)) {
      reads.insert(group.reads.begin(), group.reads.end());
      ++i;
    } else if (blocker && !isThere(blocker)) {
      inWay.insert(blocker);
      reads.clear();
      i = 0;
    } else { // what is wrong is said where the kernel is formed
      return;
    }
  }
  // Of what is only moved, the view is one copy. What is computed is stored in its own order as well: there it is computed quickly.
  for (Value value : reads) {
    if (!underViews(value).getDefiningOp<nn::ConcatOp>())
      forceUnderViews(value);
    if (value.getDefiningOp())
      force(value);
  }
}

// What must lie in memory because of this op: its results, its operands, or neither.
void Formation::storeAround(Operation *op) {
  if (!isLoopOp(op)) {
    storeOperands(op);
    for (Value result : op->getResults())
      force(result);
    return;
  }
  if (isa<nn::ScatterAddOp, nn::GroupMeanOp>(op) || (op->getNumResults() == 1 && accumulates(op->getResult(0))))
    force(op->getResult(0));
  if (isa<nn::ReduceOp, nn::ArgMaxOp, nn::ArgMinOp>(op))
    stored.insert(op->getResult(0));
  if (isa<nn::GatherOp>(op)) {
    forceUnderViews(op->getOperand(0));
    // A few elements of a wide value of the examples (the scores of the labels): taken at once, it need not wait.
    if (batchAxisOf(op->getOperand(0)) >= 0 && elementsOf(op->getOperand(0)) >= 8 * elementsOf(op->getResult(0)))
      stored.insert(op->getResult(0));
  }
  if (isa<nn::PadOp, nn::ConcatOp>(op))
    for (Value operand : op->getOperands())
      forceUnderViews(operand);
  for (Value operand : op->getOperands()) { // crossing sections, or sent to other shards
    Operation *def = operand.getDefiningOp();
    bool crosses = def && partOf(def) != partOf(op) && !isConstantLike(def) && !isa<nn::RandomOp>(def);
    bool isSent = def && nn::shardOf(def) >= 0 && nn::shardOf(def) != nn::shardOf(op);
    bool isHanded = def && nn::pieceOf(def) != nn::pieceOf(op);
    if ((isSent || isHanded) && isa<nn::SliceOp>(def)) // a part of a value travels alone
      force(operand);
    else if (crosses || isSent)
      forceUnderViews(operand);
  }
}

// A cast that is exact and makes a value twice as long: whoever reads it can read the short one as well.
static bool isWidening(Operation *op) {
  auto cast = dyn_cast<nn::CastOp>(op);
  return cast && nn::tensorOf(cast.getX()).getElementType().isBF16() && nn::tensorOf(cast.getResult()).getElementType().isF32();
}

// Through views and widenings: has a value several readers, and is it repeated for some (four times or more)?
static std::pair<bool, bool> readersOf(Value value) {
  llvm::DenseSet<Operation *> users;
  bool grows = false;
  llvm::SmallVector<Value> pending{value};
  while (!pending.empty())
    for (Operation *user : pending.pop_back_val().getUsers()) {
      if (isView(user) || isWidening(user)) {
        grows |= elementsOf(user->getResult(0)) >= 4 * elementsOf(value);
        pending.push_back(user->getResult(0));
      } else {
        users.insert(user);
      }
    }
  return {users.size() >= 2, grows};
}

namespace {
// Which stored value is computed from a value on the spot, if it is one only: one kernel reads the value then, however often.
class Sinks {
public:
  Sinks(llvm::ArrayRef<Operation *> ops, const llvm::DenseSet<Value> &stored, const llvm::DenseMap<Value, BlockArgument> &home) {
    for (Operation *op : llvm::reverse(ops))
      for (Value result : op->getResults()) {
        Sink sink;
        if (stored.contains(result)) // one kernel computes the new parameter and its new state
          sink.place = home.contains(result) ? this : result.getAsOpaquePointer();
        else
          for (Operation *user : result.getUsers())
            sink = both(sink, through(user));
        sinkOf[result] = sink;
      }
  }
  bool isOne(Value value) const { return sinkOf.lookup(value).one; }

private:
  struct Sink {
    const void *place = nullptr; // null: nothing reads it
    bool one = true;
  };
  static Sink both(Sink a, Sink b) {
    if (!a.place || !b.place)
      return a.place ? a : b;
    return {a.place, a.one && b.one && a.place == b.place};
  }
  // The sink of what the user reads. Where it takes other elements than those that it is computed for, the kernel would compute both.
  Sink through(Operation *user) const {
    bool otherPlaces = isView(user) ? !isa<nn::BroadcastOp, nn::ReshapeOp>(user) : !isLoopOp(user) || isa<nn::GatherOp>(user);
    Sink sink = user->getNumResults() == 1 ? sinkOf.lookup(user->getResult(0)) : Sink();
    return {sink.place ? sink.place : user, sink.one && !otherPlaces};
  }

  llvm::DenseMap<Value, Sink> sinkOf;
};
} // namespace

// What is dear to compute on the spot, wherever it is read: several kernels read it, or it reads much itself. Whatever is stored parts the way
// from what it is computed from to other stored values, so that those are asked again.
void Formation::storeWhatIsDear() {
  struct Inline {
    llvm::SmallVector<Value, 4> leaves; // large values read if this one is computed on the spot
    llvm::SmallSetVector<Operation *, 8> ops;
    double weight = 0; // of the ops
    void add(Operation *op) {
      if (ops.insert(op))
        weight += isView(op) ? 0 : weightOf(op);
    }
  };
  for (size_t before = 0; before != stored.size();) {
    before = stored.size();
    Sinks sinks(ops, stored, home);
    llvm::DenseMap<Value, Inline> inlined;
    for (Operation *op : ops) {
      if (!isLoopOp(op) || op->getNumResults() != 1)
        continue;
      Value value = op->getResult(0);
      int64_t size = elementsOf(value);
      Inline here;
      auto read = [&](Value leaf) {
        if (elementsOf(leaf) * 2 >= size && !llvm::is_contained(here.leaves, leaf))
          here.leaves.push_back(leaf);
      };
      here.add(op);
      for (Value operand : op->getOperands()) {
        if (isa<BlockArgument>(operand) || stored.contains(operand)) {
          read(operand);
          continue;
        }
        const Inline &from = inlined[operand];
        llvm::for_each(from.ops, [&](Operation *other) { here.add(other); });
        llvm::for_each(from.leaves, read);
      }
      if (!isView(op) && !isWidening(op) && !stored.contains(value)) {
        auto [several, grows] = readersOf(value);
        bool shared = several && !sinks.isOne(value);
        if ((shared && (here.leaves.size() >= 2 || here.weight > 60)) || here.leaves.size() > 8 ||
            here.weight > 400 || (grows && here.weight >= 10))
          stored.insert(value);
      }
      inlined[value] = std::move(here);
    }
  }
}

} // namespace cinch::analysis
