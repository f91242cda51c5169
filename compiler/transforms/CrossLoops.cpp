// CrossLoops.cpp: element-wise work beside a loop along an axis is done in its trips.
//
//     %s = nn.add %x, %b                                 %all = nn.scan slices(%x) with(%bias)
//     %all = nn.scan slices(%s)                    ->      ^bb0(%p, %w):  %b = nn.broadcast %w ; %s = nn.add %p, %b
//       ^bb0(%p): ..  nn.yield .., %h                        .. ; %c = nn.cast %h ; nn.yield .., %c
//     %r = nn.cast %all : f32 -> bf16
//
// What a layer in front of the loop adds to a product would be as large as all trips together, and be written and read once more. In the trip that
// reads it, it is computed on the spot. Likewise what all readers of a stack round is stacked as that, and a stack that is rounded beside another
// one that holds just that is not rounded again. What is computed of one element stays, so no bit changes. It runs behind gradients, and is a
// function of the program alone.
#include "compiler/transforms/Hints.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"

#include "mlir/IR/IRMapping.h"

namespace cinch {
#define GEN_PASS_DEF_CROSSLOOPS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

int64_t bytesOf(Value value) {
  auto type = nn::tensorOf(value);
  return type.getNumElements() * std::max(1u, type.getElementTypeBitWidth() / 8);
}

bool isRounding(Operation *op) {
  auto cast = dyn_cast<nn::CastOp>(op);
  return cast && nn::tensorOf(cast.getX()).getElementType().isF32() && nn::tensorOf(cast.getResult()).getElementType().isBF16();
}

// Is all that reads this value element-wise work, or a view before such work? That computes what it reads on the spot.
bool isReadOnTheSpot(Value value) {
  return llvm::all_of(value.getUsers(), [](Operation *user) {
    bool view = isa<nn::SliceOp, nn::ReshapeOp, nn::BroadcastOp>(user);
    return user->hasTrait<OpTrait::Elementwise>() || (view && isReadOnTheSpot(user->getResult(0)));
  });
}

// The loop with other operands; its block has the arguments for them.
nn::ScanOp withOperands(nn::ScanOp scan, ValueRange slices, ValueRange wholes, TypeRange results) {
  OpBuilder b(scan);
  auto made = nn::ScanOp::create(b, scan.getLoc(), results, scan.getInits(), slices, scan.getStacks(), scan.getFirsts(), wholes, scan.getTrips(),
                                 scan.getReverse());
  made->setDiscardableAttrs(scan->getDiscardableAttrDictionary());
  made.getBody().takeBody(scan.getBody());
  scan->replaceAllUsesWith(made->getResults());
  scan.erase();
  return made;
}

// ---- Into the trips ---------------------------------------------------------------------------------------------------

// Of one operand of the work: how a trip gets its part.
struct Part {
  Value slice, whole;  // what is sliced, or read whole, if anything
  nn::BroadcastOp repeated; // of that
};

// False if a trip has no part of it.
bool partOf(Value operand, int64_t trips, Part &part) {
  if (operand.getDefiningOp<nn::ConstantOp>())
    return true;
  part.repeated = operand.getDefiningOp<nn::BroadcastOp>();
  if (!part.repeated) {
    part.slice = operand;
    return true;
  }
  ArrayRef<int64_t> axes = part.repeated.getAxes();
  Value source = part.repeated.getX();
  bool has = llvm::is_contained(axes, 0);
  (has ? part.slice : part.whole) = source;
  return !has || (axes.front() == 0 && nn::batchAxis(source) != 0 && nn::tensorOf(source).getDimSize(0) == trips);
}

// What lies in memory for the trips to compute this value: itself, or what it is computed from.
int64_t bytesFor(Value value, int64_t trips) {
  Operation *op = value.getDefiningOp();
  if (!op || !op->hasTrait<OpTrait::Elementwise>() || !value.hasOneUse())
    return bytesOf(value);
  int64_t bytes = 0;
  for (Value operand : op->getOperands()) {
    Part part;
    if (!partOf(operand, trips, part))
      return bytesOf(value);
    if (part.slice)
      bytes += bytesFor(part.slice, trips);
  }
  return std::min(bytes, bytesOf(value));
}

// Moves what computes slice number `index` into the loop, if that takes no more memory; null if it does not.
nn::ScanOp enter(nn::ScanOp scan, unsigned index) {
  Value slice = scan.getSlices()[index];
  Operation *op = slice.getDefiningOp();
  const int64_t trips = int64_t(scan.getTrips());
  if (!op || !op->hasTrait<OpTrait::Elementwise>() || op->getNumResults() != 1 || !slice.hasOneUse() || op->getBlock() != scan->getBlock() ||
      scan.part(index).getType() != nn::ScanOp::partOf(slice.getType()) || hasHint(op) || !isReadOnTheSpot(scan.part(index)))
    return {};
  SmallVector<Part> parts(op->getNumOperands());
  llvm::SmallSetVector<Value, 4> sliced, read;
  int64_t bytes = 0;
  for (auto [operand, part] : llvm::zip_equal(op->getOperands(), parts)) {
    if (!partOf(operand, trips, part))
      return {};
    if (part.slice && sliced.insert(part.slice))
      bytes += bytesFor(part.slice, trips);
    if (part.whole)
      read.insert(part.whole);
  }
  if (sliced.empty() || bytes > bytesOf(slice))
    return {};

  Block &block = scan.block();
  IRMapping inside;
  SmallVector<Value> slices(scan.getSlices()), wholes(scan.getWholes());
  BlockArgument argument = block.getArgument(scan.carriedCount() + index);
  unsigned next = scan.carriedCount() + unsigned(slices.size());
  for (Value value : sliced) {
    inside.map(value, block.insertArgument(next++, nn::ScanOp::partOf(value.getType()), value.getLoc()));
    slices.push_back(value);
  }
  for (Value value : read) {
    inside.map(value, block.addArgument(value.getType(), value.getLoc()));
    wholes.push_back(value);
  }
  OpBuilder b(&block, block.begin());
  IRMapping map;
  for (auto [operand, part] : llvm::zip_equal(op->getOperands(), parts)) {
    Type type = nn::ScanOp::partOf(operand.getType());
    Value made;
    if (auto constant = operand.getDefiningOp<nn::ConstantOp>()) {
      made = nn::ConstantOp::create(b, constant.getLoc(), type, constant.getNumberAttr());
    } else if (part.repeated) {
      SmallVector<int64_t> axes;
      for (int64_t axis : part.repeated.getAxes())
        if (axis > 0)
          axes.push_back(axis - 1);
      made = nn::BroadcastOp::create(b, part.repeated.getLoc(), cast<RankedTensorType>(type), inside.lookup(part.slice ? part.slice : part.whole), axes);
    } else {
      made = inside.lookup(part.slice);
    }
    if (Operation *view = made.getDefiningOp())
      view->setDiscardableAttrs(operand.getDefiningOp()->getDiscardableAttrDictionary());
    map.map(operand, made);
  }
  Operation *same = b.clone(*op, map);
  same->getResult(0).setType(nn::ScanOp::partOf(slice.getType()));
  argument.replaceAllUsesWith(same->getResult(0));
  block.eraseArgument(argument.getArgNumber());
  slices.erase(slices.begin() + index);
  nn::ScanOp made = withOperands(scan, slices, wholes, scan.getResultTypes());
  op->erase();
  return made;
}

// ---- Out of the trips -------------------------------------------------------------------------------------------------

// Readers that round a stack read one that holds what is rounded, if the loop has it.
void readRounded(nn::ScanOp scan) {
  Operation *yield = scan.yield();
  for (unsigned i = scan.carriedCount(); i < scan.getNumResults(); ++i) {
    auto rounding = yield->getOperand(i).getDefiningOp<nn::CastOp>();
    if (!rounding || !isRounding(rounding))
      continue;
    for (unsigned j = scan.carriedCount(); j < scan.getNumResults(); ++j) {
      if (yield->getOperand(j) != rounding.getX())
        continue;
      for (Operation *user : llvm::make_early_inc_range(scan.getResult(j).getUsers()))
        if (isRounding(user) && !hasHint(user)) {
          user->getResult(0).replaceAllUsesWith(scan.getResult(i));
          user->erase();
        }
    }
  }
}

// What all readers of a stack round is rounded in the trip.
nn::ScanOp roundStacks(nn::ScanOp scan) {
  SmallVector<Type> results(scan.getResultTypes());
  SmallVector<Operation *> roundings;
  Operation *yield = scan.yield();
  for (unsigned i = scan.carriedCount(); i < results.size(); ++i) {
    Value result = scan.getResult(i);
    if (result.use_empty() || !llvm::all_of(result.getUsers(), [](Operation *user) { return isRounding(user) && !hasHint(user); }))
      continue;
    Operation *first = *result.getUsers().begin();
    OpBuilder b(yield);
    Value value = yield->getOperand(i);
    auto made = nn::CastOp::create(b, first->getLoc(), nn::withElement(nn::tensorOf(value), b.getBF16Type()), value);
    if (Operation *op = value.getDefiningOp())
      for (StringRef name : {nn::kBackwardAttr, nn::kBlockAttr})
        if (Attribute attribute = op->getDiscardableAttr(name))
          made->setDiscardableAttr(name, attribute);
    yield->setOperand(i, made.getResult());
    results[i] = nn::withElement(nn::tensorOf(result), b.getBF16Type());
    llvm::append_range(roundings, result.getUsers());
  }
  if (roundings.empty())
    return scan;
  scan = withOperands(scan, scan.getSlices(), scan.getWholes(), results);
  for (Operation *rounding : roundings) {
    rounding->getResult(0).replaceAllUsesWith(rounding->getOperand(0));
    rounding->erase();
  }
  return scan;
}

struct CrossLoops : cinch::impl::CrossLoopsBase<CrossLoops> {
  void runOnOperation() final {
    for (auto function : getOperation().getOps<func::FuncOp>()) {
      SmallVector<nn::ScanOp> loops;
      function.walk([&](nn::ScanOp scan) { loops.push_back(scan); }); // inner loops first
      for (nn::ScanOp scan : loops) {
        for (unsigned i = 0; i < scan.getSlices().size();)
          if (nn::ScanOp made = enter(scan, i))
            scan = made, i = 0;
          else
            ++i;
        readRounded(scan);
        roundStacks(scan);
      }
    }
  }
};

} // namespace
