// GradientSweep.cpp: reverse mode over the ops' `Differentiable` interface.
#include "compiler/transforms/GradientSweep.h"
#include "dialects/nn/Reversible.h"
#include "dialects/nn/Shards.h"

#include "mlir/IR/IRMapping.h"

#include <map>

using namespace mlir;

namespace cinch {

void GradientSweep::grow(DenseSet<Value> &active, Block &block) {
  for (Operation &op : block) {
    if (op.hasTrait<nn::NoGradient>() || llvm::none_of(op.getOperands(), [&](Value v) { return active.contains(v); }))
      continue;
    for (Value result : op.getResults())
      if (isFloatTensor(result))
        active.insert(result);
  }
}

// The contributions of slices that cover one axis without overlap, end to end: what the slices' gradients were before
// they were padded with zeros. (A pad of the program's own may be a contribution, too, as 1 times a pad is.)
bool GradientSweep::coverAnAxis(ArrayRef<Contribution> parts, SmallVectorImpl<nn::PadOp> &pads) {
  for (const Contribution &part : parts) {
    auto pad = part.gradient.getDefiningOp<nn::PadOp>();
    if (!pad || !pad.getValue().isZero() || pad.getAxis() != parts.front().gradient.getDefiningOp<nn::PadOp>().getAxis())
      return false;
    pads.push_back(pad);
  }
  llvm::sort(pads, [](nn::PadOp a, nn::PadOp b) { return a.getBefore() < b.getBefore(); });
  uint64_t end = 0;
  for (nn::PadOp pad : pads) {
    if (pad.getBefore() != end)
      return false;
    end += pad.getX().getType().getDimSize(pad.getAxis());
  }
  return pads.size() > 1 && pads.back().getAfter() == 0;
}

void GradientSweep::contribute(Value value, unsigned user, unsigned operand, Value gradient, int shard) {
  contributions[value].push_back({user, operand, gradient, shard});
}

void GradientSweep::replace(ArrayRef<Value> before, ValueRange now) {
  for (auto &[value, parts] : contributions)
    for (Contribution &part : parts)
      if (auto it = llvm::find(before, part.gradient); it != before.end())
        part.gradient = now[it - before.begin()];
}

SmallVector<GradientSweep::Contribution> GradientSweep::take(Value value) {
  auto found = contributions.find(value);
  if (found == contributions.end())
    return {};
  SmallVector<Contribution> parts = std::move(found->second);
  contributions.erase(found);
  llvm::stable_sort(parts, [](const Contribution &a, const Contribution &b) {
    return std::tie(a.user, a.operand) < std::tie(b.user, b.operand);
  });
  return parts;
}

SmallVector<Value> GradientSweep::takeContributions(Value value) {
  return llvm::map_to_vector(take(value), [](const Contribution &part) { return part.gradient; });
}

// In bf16: the sum of two, rounded.
Value GradientSweep::plus(Value a, Value b) {
  auto type = nn::tensorOf(a);
  if (!type.getElementType().isBF16())
    return builder.make<nn::AddOp>(a, b);
  auto wide = nn::withElement(type, builder.opBuilder().getF32Type());
  Value sum = builder.make<nn::AddOp>(builder.make<nn::CastOp>(wide, a).getResult(), builder.make<nn::CastOp>(wide, b).getResult());
  return builder.make<nn::CastOp>(type, sum);
}

Value GradientSweep::gradientOf(Value value) {
  SmallVector<Contribution> parts = take(value);
  if (parts.empty())
    return Value();
  Operation *source = value.getDefiningOp();
  std::string name = source ? nn::nameOf(source) : nn::instancePath(value.getLoc()).str();
  builder.setLocation(nn::called(value.getLoc(), "gradient of " + name));
  SmallVector<nn::PadOp> pads;
  if (coverAnAxis(parts, pads)) {
    SmallVector<Value> slices = llvm::map_to_vector(pads, [](nn::PadOp pad) -> Value { return pad.getX(); });
    return builder.make<nn::ConcatOp>(slices, pads.front().getAxis());
  }
  return sumOfShards(parts);
}

// What all shards do, then the sum of what the shards contribute: each adds its own, and what they have is added in their order.
Value GradientSweep::sumOfShards(ArrayRef<Contribution> parts) {
  std::map<int, Value> sums; // -1: what all do
  for (const Contribution &part : parts) {
    Value &sum = sums[part.shard];
    sum = sum ? plus(sum, part.gradient) : part.gradient;
  }
  Value all = sums.count(-1) ? sums[-1] : Value(), ofShards;
  sums.erase(-1);
  for (auto &[shard, sum] : sums)
    ofShards = ofShards ? plus(ofShards, sum) : sum;
  if (sums.size() > 1)
    ofShards.getDefiningOp()->setAttr(nn::kAllReduceAttr, builder.opBuilder().getUnitAttr());
  return !all ? ofShards : ofShards ? plus(all, ofShards) : all;
}

LogicalResult GradientSweep::checkReads(Operation &op, ValueRange saved, ValueRange grads, size_t firstMade) {
  DenseSet<Value> allowed(saved.begin(), saved.end());
  allowed.insert(grads.begin(), grads.end());
  for (Value grad : grads) // of a rounded result: the rounded gradient
    if (auto widened = grad ? grad.getDefiningOp<nn::CastOp>() : nn::CastOp())
      allowed.insert(widened.getX());
  for (Operation *made : builder.made().drop_front(firstMade))
    for (Value operand : made->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (!allowed.contains(operand) && !(source && (isa<nn::ConstantOp>(source) ||
                                                     llvm::is_contained(builder.made().drop_front(firstMade), source))))
        return op.emitOpError() << "internal error: its derivative reads a value that it does not save";
    }
  return success();
}

// ---- Reversible layers
// The value, from streams that are known again where it depends on such; else as it is.
Value GradientSweep::computedAnew(Value value) {
  DenseSet<Operation *> above;
  SmallVector<Operation *> stack;
  auto reach = [&](Value operand) {
    Operation *op = operand.getDefiningOp();
    if (op && !rebuilt.contains(operand) && places.contains(op) && above.insert(op).second)
      stack.push_back(op);
  };
  reach(value);
  while (!stack.empty())
    for (Value operand : stack.pop_back_val()->getOperands())
      reach(operand);
  SmallVector<Operation *> ops(above.begin(), above.end());
  llvm::sort(ops, [&](Operation *a, Operation *b) { return places.lookup(a) < places.lookup(b); });
  IRMapping known;
  for (Operation *op : ops) {
    bool depends = false;
    for (Value operand : op->getOperands()) {
      if (Value stream = rebuilt.lookup(operand))
        known.map(operand, stream);
      depends = depends || known.contains(operand);
    }
    if (!depends)
      continue;
    Operation *copy = builder.opBuilder().clone(*op, known);
    for (StringRef hint : {nn::kKeepAttr, nn::kRecomputeAttr, nn::kStageAttr, nn::kBlockEndAttr, nn::kStreamAttr})
      copy->removeDiscardableAttr(hint);
    builder.note(copy);
    doneAgain[op] = copy;
  }
  return known.lookupOrDefault(value);
}

void GradientSweep::rebuildStream(Operation &addition) {
  unsigned stream = unsigned(cast<IntegerAttr>(addition.getDiscardableAttr(nn::kStreamAttr)).getInt());
  Value y = addition.getResult(0), x = addition.getOperand(stream);
  Value known = rebuilt.lookup(y);
  Value added = computedAnew(addition.getOperand(1 - stream));
  builder.setLocation(nn::called(addition.getLoc(), "stream rebuilt before " + nn::nameOf(&addition)));
  rebuilt[x] = builder.make<nn::SubOp>(known ? known : y, added);
}

LogicalResult GradientSweep::visit(Operation &op, unsigned place) {
  if (op.hasAttr(nn::kStreamAttr) && isActive(op.getResult(0)))
    rebuildStream(op);
  SmallVector<Value> grads;
  for (Value result : op.getResults())
    grads.push_back(gradientOf(result));
  if (llvm::none_of(grads, [](Value v) { return bool(v); }))
    return success();
  if (auto scan = dyn_cast<nn::ScanOp>(op)) {
    places.erase(&op); // it may be replaced
    return differentiateScan(scan, place, grads, *this, builder);
  }
  Operation *source = doneAgain.lookup(&op);
  auto rule = dyn_cast<nn::Differentiable>(source ? source : &op);
  if (!rule)
    return op.emitOpError() << "has no derivative, and the loss depends on a parameter through it";
  SmallVector<bool> wanted;
  for (Value operand : op.getOperands())
    wanted.push_back(active.contains(operand));
  builder.setLocation(nn::called(op.getLoc(), "gradient of " + nn::nameOf(&op)));
  size_t firstMade = builder.made().size();
  SmallVector<Value> saved = rule.savedValues(wanted);
  SmallVector<Value> operandGrads = rule.buildBackward(builder, saved, grads, wanted);
  if (failed(checkReads(op, saved, grads, firstMade)))
    return failure();
  for (auto [i, want] : llvm::enumerate(wanted)) {
    if (!want)
      continue;
    Value gradient = i < operandGrads.size() ? operandGrads[i] : Value();
    if (gradient && nn::tensorOf(op.getOperand(i)).getElementType().isBF16() && nn::tensorOf(gradient).getElementType().isF32())
      gradient = builder.make<nn::CastOp>(nn::tensorOf(op.getOperand(i)), gradient);
    if (!gradient || gradient.getType() != op.getOperand(i).getType())
      return op.emitOpError() << "internal error: the gradient of operand " << i << " is missing or of another type";
    auto shard = op.getAttrOfType<IntegerAttr>(nn::kShardAttr);
    contribute(op.getOperand(i), place, unsigned(i), gradient, shard ? int(shard.getInt()) : -1);
  }
  return success();
}

LogicalResult GradientSweep::visit(Block &block) {
  SmallVector<Operation *> forward;
  for (Operation &op : block.without_terminator())
    forward.push_back(&op);
  for (auto [place, op] : llvm::enumerate(forward))
    places[op] = unsigned(place);
  for (unsigned place = forward.size(); place-- > 0;)
    if (failed(visit(*forward[place], place)))
      return failure();
  return success();
}

} // namespace cinch
