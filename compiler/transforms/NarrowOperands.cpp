// NarrowOperands.cpp: attention and convolutions read bf16 values as they lie.
//
//     %w = nn.cast %q : bf16 -> f32 ..                 %o = nn.attend %q, ..           : bf16 -> f32
//     %o = nn.attend %w, .. : f32 -> f32         ->
//     %d = nn.attend_grad %w, ..                       %r = nn.attend_grad %q, ..      : bf16 -> bf16
//     %r = nn.cast %d : f32 -> bf16
//
// Queries, keys, values and the gradient of o hold bf16 in any case: read as f32 they would take twice the memory, and each of them a kernel that
// widens it. So would their gradients on a GPU, which are rounded before anybody else reads them. A CPU's kernel adds to the gradients where they
// lie, and f32 is what it adds in. o stays f32: its gradient is summed with it, and the sum is subtracted from numbers near it. All this is decided
// by the op alone, never by a plan.
//
// A filter lies in the order of PyTorch, and convolutions read a copy in another one. Those of bf16 round what they read, so the copy is rounded:
//
//     %c = nn.transpose %w                             %c = nn.transpose %w ; %n = nn.cast %c : f32 -> bf16
//     %y = nn.conv output %x, %c : bf16, f32    ->     %y = nn.conv output %x, %n : bf16, bf16
#include "compiler/transforms/NarrowOperands.h"
#include "compiler/kernels/Device.h"
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch {
namespace {

template <typename Op> bool isOfTensorCores(Op op) {
  kernels::AttendSpec spec;
  spec.pairs = op->hasAttr(nn::kBF16Attr);
  spec.K = nn::tensorOf(op.getQ()).getShape().back(), spec.E = nn::tensorOf(op.getV()).getShape().back();
  return kernels::isOfTensorCores(spec);
}

Value castLike(Operation *like, OpBuilder &builder, Value value, Type element) {
  auto cast = nn::CastOp::create(builder, like->getLoc(), nn::withElement(nn::tensorOf(value), element), value);
  for (StringRef kept : {nn::kBackwardAttr, nn::kBlockAttr})
    if (Attribute attribute = like->getAttr(kept))
      cast->setAttr(kept, attribute);
  return cast;
}

// The bf16 value that an f32 one holds.
Value narrow(Value value, Operation *reader) {
  OpBuilder builder(reader);
  auto cast = value.getDefiningOp<nn::CastOp>();
  bool widens = cast && nn::tensorOf(cast.getX()).getElementType().isBF16();
  return widens ? cast.getX() : castLike(reader, builder, value, builder.getBF16Type());
}

// What was said of a rounding is said of the op again. Whoever reads f32 has it widened.
void giveNarrow(Value result) {
  Operation *op = result.getDefiningOp();
  auto wide = nn::tensorOf(result);
  SmallVector<nn::CastOp> roundings;
  SmallVector<OpOperand *> others;
  for (OpOperand &use : result.getUses())
    if (auto cast = dyn_cast<nn::CastOp>(use.getOwner()); cast && nn::tensorOf(cast.getResult()).getElementType().isBF16())
      roundings.push_back(cast);
    else
      others.push_back(&use);
  OpBuilder builder(op->getContext());
  builder.setInsertionPointAfter(op);
  result.setType(nn::withElement(wide, builder.getBF16Type()));
  if (!others.empty()) {
    Value widened = castLike(op, builder, result, wide.getElementType());
    for (OpOperand *use : others)
      use->set(widened);
  }
  for (nn::CastOp cast : roundings) {
    for (NamedAttribute attribute : cast->getDiscardableAttrs())
      op->setDiscardableAttr(attribute.getName(), attribute.getValue());
    cast.getResult().replaceAllUsesWith(result);
    cast->erase();
  }
}

} // namespace

static void narrowAttention(ModuleOp module, bool isDevice) {
  SmallVector<Operation *> ops;
  module.walk([&](Operation *op) {
    if (isa<nn::AttendOp, nn::AttendGradOp>(op))
      ops.push_back(op);
  });
  for (Operation *op : ops) {
    auto attend = dyn_cast<nn::AttendOp>(op);
    auto grad = dyn_cast<nn::AttendGradOp>(op);
    bool takesNarrow = !isDevice ? op->hasAttr(nn::kBF16Attr) : attend ? isOfTensorCores(attend) : isOfTensorCores(grad);
    if (!takesNarrow)
      continue;
    SmallVector<Value> operands{op->getOperand(0), op->getOperand(1), op->getOperand(2)};
    if (grad)
      operands.push_back(grad.getDout());
    for (Value operand : operands)
      op->replaceUsesOfWith(operand, narrow(operand, op));
    for (unsigned i = 0; isDevice && grad && i < 3; ++i)
      giveNarrow(op->getResult(i));
  }
}

// Filters that convolutions of bf16 alone read, from a copy.
static void narrowFilters(ModuleOp module) {
  SmallVector<nn::TransposeOp> filters;
  module.walk([&](nn::TransposeOp op) {
    auto reads = [](Operation *user) {
      return isa<nn::ConvOp>(user) && llvm::any_of(user->getOperands(), [](Value value) { return nn::tensorOf(value).getElementType().isBF16(); });
    };
    Value copy = op.getResult();
    if (!nn::hasBatch(copy) && nn::tensorOf(copy).getElementType().isF32() && !copy.use_empty() && llvm::all_of(copy.getUsers(), reads))
      filters.push_back(op);
  });
  for (nn::TransposeOp op : filters) {
    OpBuilder builder(op);
    builder.setInsertionPointAfter(op);
    Value narrow = castLike(op, builder, op.getResult(), builder.getBF16Type());
    op.getResult().replaceAllUsesExcept(narrow, narrow.getDefiningOp());
  }
}

void narrowOperands(ModuleOp module, bool isDevice) {
  narrowAttention(module, isDevice);
  narrowFilters(module);
}

} // namespace cinch
