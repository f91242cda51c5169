// HoistRoundings.cpp: a value of which all parts are rounded is rounded as a whole.
//
//     %s = nn.slice %x .. ; %q = nn.cast %s : f32 -> bf16          %r = nn.cast %x : f32 -> bf16
//     %t = nn.slice %x .. ; %k = nn.cast %t : f32 -> bf16    ->    %q = nn.slice %r ..
//                                                                  %k = nn.slice %r ..
//
// Queries, keys and values that one product gives are such parts: `precision bf16` rounds them where attention reads them. Rounded as a whole they
// take one kernel instead of three, and attention reads them where they lie. Likewise elements of bf16 are moved as that, and widened behind it:
//
//     %s = nn.cast %q : bf16 -> f32 ; %t = nn.transpose %s    ->    %t = nn.transpose %q ; %s = nn.cast %t : bf16 -> f32
//
// so that the gradients of the three parts are put together as bf16, which the products behind them read. Rounding, widening and moving elements
// commute, so no bit changes. It runs behind gradients, which are rounded where the program's roundings are. It is a function of the program alone.
#include "compiler/transforms/Hints.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"

namespace cinch {
#define GEN_PASS_DEF_HOISTROUNDINGS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

// What only moves elements of its operand.
bool movesElements(Operation *op) { return isa<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp, nn::ReverseOp>(op); }

bool isRounding(Operation *op) {
  auto cast = dyn_cast<nn::CastOp>(op);
  return cast && nn::tensorOf(cast.getX()).getElementType().isF32() && nn::tensorOf(cast.getResult()).getElementType().isBF16();
}

bool isWidening(Operation *op) {
  auto cast = dyn_cast_or_null<nn::CastOp>(op);
  return cast && nn::tensorOf(cast.getX()).getElementType().isBF16() && nn::tensorOf(cast.getResult()).getElementType().isF32() && !hasHint(op);
}

// What stands around the operand is the same number in bf16.
bool padsWithBF16(nn::PadOp op) {
  bool loses = false;
  APFloat number = op.getValue();
  number.convert(APFloat::BFloat(), APFloat::rmNearestTiesToEven, &loses);
  return !loses;
}

// What moves widened values moves the narrow ones, and is widened itself.
void sinkWidenings(Operation *op, OpBuilder &b) {
  auto pad = dyn_cast<nn::PadOp>(op);
  if (!movesElements(op) && !isa<nn::ConcatOp>(op) && !(pad && padsWithBF16(pad)))
    return;
  if (!llvm::all_of(op->getOperands(), [](Value operand) { return isWidening(operand.getDefiningOp()); }) || hasHint(op))
    return;
  b.setInsertionPoint(op);
  for (OpOperand &operand : op->getOpOperands())
    operand.set(operand.get().getDefiningOp<nn::CastOp>().getX());
  Value result = op->getResult(0);
  auto wide = nn::tensorOf(result);
  result.setType(nn::withElement(wide, b.getBF16Type()));
  b.setInsertionPointAfter(op);
  auto cast = nn::CastOp::create(b, op->getLoc(), wide, result);
  for (StringRef name : {nn::kBackwardAttr, nn::kBlockAttr})
    if (Attribute attribute = op->getDiscardableAttr(name))
      cast->setDiscardableAttr(name, attribute);
  result.replaceAllUsesExcept(cast.getResult(), cast);
}

// The roundings of all parts of `value`, and the ops that make the parts; false if anything else reads one of them.
bool findParts(Value value, SmallVectorImpl<Operation *> &moves, SmallVectorImpl<nn::CastOp> &roundings) {
  for (Operation *user : value.getUsers()) {
    if (user->getBlock() != value.getParentBlock())
      return false;
    if (isRounding(user))
      roundings.push_back(cast<nn::CastOp>(user));
    else if (!movesElements(user))
      return false;
    else if (moves.push_back(user); !findParts(user->getResult(0), moves, roundings))
      return false;
  }
  return true;
}

// Is all that is said of a rounding said of `op`, too?
bool isPlain(nn::CastOp rounding, Operation *op) {
  return llvm::all_of(rounding->getDiscardableAttrs(), [&](NamedAttribute attribute) {
    return op->getDiscardableAttr(attribute.getName()) == attribute.getValue();
  });
}

void hoist(Operation *op, OpBuilder &b) {
  if (op->getNumResults() != 1 || movesElements(op) || !isa<RankedTensorType>(op->getResult(0).getType()))
    return;
  Value value = op->getResult(0);
  SmallVector<Operation *> moves;
  SmallVector<nn::CastOp> roundings;
  if (!nn::tensorOf(value).getElementType().isF32() || !findParts(value, moves, roundings) || roundings.size() < 2)
    return;
  int64_t rounded = 0;
  for (nn::CastOp rounding : roundings) {
    if (!isPlain(rounding, op))
      return;
    rounded += nn::tensorOf(rounding.getResult()).getNumElements();
  }
  if (rounded < nn::tensorOf(value).getNumElements())
    return;

  b.setInsertionPointAfter(op);
  Type element = b.getBF16Type();
  auto whole = nn::CastOp::create(b, roundings.front().getLoc(), nn::withElement(nn::tensorOf(value), element), value);
  for (NamedAttribute attribute : roundings.front()->getDiscardableAttrs())
    whole->setDiscardableAttr(attribute.getName(), attribute.getValue());
  value.replaceAllUsesExcept(whole.getResult(), whole);
  for (Operation *move : moves)
    move->getResult(0).setType(nn::withElement(nn::tensorOf(move->getResult(0)), element));
  for (nn::CastOp rounding : roundings) {
    rounding.getResult().replaceAllUsesWith(rounding.getX());
    rounding.erase();
  }
}

struct HoistRoundings : cinch::impl::HoistRoundingsBase<HoistRoundings> {
  void runOnOperation() final {
    OpBuilder builder(&getContext());
    for (auto function : getOperation().getOps<func::FuncOp>())
      function.walk([&](Block *block) {
        for (Operation &op : llvm::make_early_inc_range(block->without_terminator()))
          sinkWidenings(&op, builder);
        SmallVector<Operation *> ops;
        for (Operation &op : block->without_terminator())
          if (!isRounding(&op)) // roundings are erased meanwhile
            ops.push_back(&op);
        for (Operation *op : ops)
          hoist(op, builder);
      });
  }
};

} // namespace
