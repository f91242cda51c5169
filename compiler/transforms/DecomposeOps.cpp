// DecomposeOps.cpp: row-wise ops and updates in the ops that loop kernels compute. The formulas are those of the ops'
// descriptions, term for term: they define the bits.
#include "compiler/transforms/Passes.h"
#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/NN.h"

#include "mlir/IR/Dominance.h"
#include "mlir/IR/PatternMatch.h"
#include "mlir/Transforms/CSE.h"
#include "llvm/ADT/TypeSwitch.h"

namespace cinch {
#define GEN_PASS_DEF_DECOMPOSEOPS
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

// A row along one axis of x: its largest element and the rest of a softmax.
struct Row {
  nn::GradientBuilder &b;
  Value x;
  int64_t axis;

  SmallVector<int64_t> otherAxes() const {
    SmallVector<int64_t> axes;
    for (int64_t i = 0; i < nn::tensorOf(x).getRank(); ++i)
      if (i != axis)
        axes.push_back(i);
    return axes;
  }
  Value reduce(nn::Reduction kind, Value of) const {
    Builder attributes(of.getContext());
    return b.make<nn::ReduceOp>(nn::ReductionAttr::get(of.getContext(), kind), of,
                                attributes.getDenseI64ArrayAttr({axis}));
  }
  Value spread(Value row) const { // back over the axis
    return b.broadcast(row, otherAxes(), nn::withElement(nn::tensorOf(x), nn::tensorOf(row).getElementType()));
  }
  Value max() const { return reduce(nn::Reduction::Max, x); }
  Value exp(Value max) const { return b.make<nn::ExpOp>(b.sub(x, spread(max))); }
  Value sum(Value of) const { return reduce(nn::Reduction::Sum, of); }
};

class Decomposer {
public:
  Decomposer(nn::GradientBuilder &b) : b(b) {}

  Value softmax(nn::SoftmaxOp op) {
    Row row{b, op.getX(), int64_t(op.getAxis())};
    Value e = row.exp(row.max());
    return b.div(e, row.spread(row.sum(e)));
  }

  Value logSoftmax(nn::LogSoftmaxOp op) { // x - max - log(sum(exp(x - max)))
    Row row{b, op.getX(), int64_t(op.getAxis())};
    Value m = row.max();
    Value log = b.make<nn::LogOp>(row.sum(row.exp(m)));
    return b.sub(b.sub(op.getX(), row.spread(m)), row.spread(log));
  }

  Value softmaxGrad(nn::SoftmaxGradOp op) { // y * (dy - sum(dy * y))
    Row row{b, op.getY(), int64_t(op.getAxis())};
    Value dot = row.sum(b.mul(op.getDy(), op.getY()));
    return b.mul(op.getY(), b.sub(op.getDy(), row.spread(dot)));
  }

  Value logSoftmaxGrad(nn::LogSoftmaxGradOp op) { // dy - exp(y) * sum(dy)
    Row row{b, op.getY(), int64_t(op.getAxis())};
    Value e = b.make<nn::ExpOp>(op.getY());
    return b.sub(op.getDy(), b.mul(e, row.spread(row.sum(op.getDy()))));
  }

  Value crossEntropy(nn::CrossEntropyOp op) {
    Row row{b, op.getLogits(), int64_t(op.getAxis())};
    double smooth = op.getSmooth().convertToDouble(), classes = double(nn::tensorOf(row.x).getDimSize(row.axis));
    Value m = row.max();
    Value log = b.make<nn::LogOp>(row.sum(row.exp(m)));
    Value label = insideLabel(op.getY(), op.getExcept());
    // x[.., y ..]: every axis of y is a label of its own.
    Builder attributes(op.getContext());
    SmallVector<int64_t> xLabels, yLabels;
    int64_t next = 0;
    for (int64_t i = 0; i < nn::tensorOf(row.x).getRank(); ++i)
      xLabels.push_back(i == row.axis ? -1 : next++);
    for (int64_t i = 0; i < next; ++i)
      yLabels.push_back(i);
    Attribute lists = attributes.getDenseI64ArrayAttr(yLabels);
    Value chosen = b.make<nn::GatherOp>(row.x, ValueRange{label}, attributes.getDenseI64ArrayAttr(xLabels),
                                        attributes.getArrayAttr(lists));
    // Differences from the largest keep their digits, however large the logits are.
    Value below = b.sub(m, chosen), loss;
    if (smooth == 0) {
      loss = b.add(log, below);
    } else {
      Value first = b.add(log, b.mul(b.like(below, 1 - smooth), below));
      loss = b.sub(first, b.mul(b.like(below, smooth / classes), row.sum(b.sub(row.x, row.spread(m)))));
    }
    if (op.getExcept())
      loss = b.where(isExcept(op.getY(), *op.getExcept()), b.like(loss, 0), loss);
    return loss;
  }

  Value crossEntropyGrad(nn::CrossEntropyGradOp op) {
    Row row{b, op.getLogits(), int64_t(op.getAxis())};
    double smooth = op.getSmooth().convertToDouble();
    int64_t classes = nn::tensorOf(row.x).getDimSize(row.axis);
    Value e = row.exp(row.max());
    Value p = b.div(e, row.spread(row.sum(e)));
    Builder attributes(op.getContext());
    Type i32 = attributes.getI32Type();
    Value number = b.make<nn::RangeOp>(nn::tensorType({classes}, i32, -1));
    Value numbers = b.broadcast(number, {row.axis}, nn::withElement(nn::tensorOf(row.x), i32));
    Value isLabel = b.compare(nn::Comparison::EQ, numbers, row.spread(op.getY()));
    Value target = b.where(isLabel, b.like(p, (1 - smooth) + smooth / double(classes)),
                           b.like(p, smooth / double(classes)));
    Value gradient = b.mul(row.spread(op.getDy()), b.sub(p, target));
    if (op.getExcept())
      gradient = b.where(row.spread(isExcept(op.getY(), *op.getExcept())), b.like(gradient, 0), gradient);
    return gradient;
  }

  // f64: chunks of kChunk elements in lanes, the chunks' sums as one chain, the shorter last chunk at its end.
  Value sumSquares(nn::SumSquaresOp op) {
    constexpr int64_t chunk = nn::SumSquaresOp::kChunk;
    Builder attributes(op.getContext());
    Type f64 = attributes.getF64Type();
    int64_t count = nn::tensorOf(op.getX()).getNumElements();
    Type element = nn::tensorOf(op.getX()).getElementType();
    auto part = [&](int64_t begin, int64_t rows, int64_t length) { // sums of squares of `rows` chunks
      Value flat = b.reshape(op.getX(), nn::tensorType({count}, element, -1));
      if (begin != 0 || rows * length != count)
        flat = b.make<nn::SliceOp>(flat, attributes.getI64IntegerAttr(0), attributes.getI64IntegerAttr(begin),
                                   attributes.getI64IntegerAttr(begin + rows * length));
      Value grid = b.reshape(flat, nn::tensorType({rows, length}, element, -1));
      if (element != f64)
        grid = b.make<nn::CastOp>(nn::tensorType({rows, length}, f64, -1), grid);
      Value sums = b.sum(b.mul(grid, grid), {1});
      if (rows == 1) // +0.0 + sum is the sum, which no -0.0 is
        return b.reshape(sums, nn::tensorType({}, f64, -1));
      Value column = b.reshape(sums, nn::tensorType({rows, 1}, f64, -1));
      return b.reshape(b.sum(column, {0}), nn::tensorType({}, f64, -1)); // the last axis stays: a chain over the chunks
    };
    int64_t whole = count / chunk, rest = count % chunk;
    Value sum;
    if (whole)
      sum = part(0, whole, chunk);
    if (rest) {
      Value tail = part(whole * chunk, 1, rest);
      sum = sum ? b.add(sum, tail) : tail;
    }
    return sum;
  }

  // A sum over examples whose f32 would lose what it counts, in f64, rounded once: how many flags of a batch are set, exact however many there
  // are; and every sum of an evaluation, whose chain goes over all batches of a data set. Behind 2^24 ones an f32 stops counting.
  Value longSum(nn::ReduceOp op) {
    auto type = nn::tensorOf(op.getResult());
    if (op.getReduction() != nn::Reduction::Sum || !type.getElementType().isF32() || !nn::hasBatch(op.getX()) || nn::hasBatch(op.getResult()))
      return {};
    auto cast = op.getX().getDefiningOp<nn::CastOp>();
    const bool counts = cast && nn::tensorOf(cast.getX()).getElementType().isInteger(1);
    if (!counts && op->getParentOfType<func::FuncOp>().getName() != nn::kEvaluationName)
      return {};
    Type f64 = Float64Type::get(op.getContext());
    Value numbers = b.make<nn::CastOp>(nn::withElement(nn::tensorOf(op.getX()), f64), counts ? cast.getX() : op.getX());
    return b.make<nn::CastOp>(type, b.sum(numbers, llvm::to_vector(op.getAxes())));
  }

  // Of many operands: what groups of them join to, joined. A kernel asks for every element which operand it comes from, and is
  // written out for each of them.
  Value concat(nn::ConcatOp op) {
    constexpr size_t kMost = 32;
    SmallVector<Value> parts(op->getOperands());
    if (parts.size() <= kMost)
      return {};
    while (parts.size() > 1) {
      SmallVector<Value> groups;
      for (ArrayRef<Value> rest = parts; !rest.empty(); rest = rest.drop_front(std::min(rest.size(), kMost))) {
        ArrayRef<Value> group = rest.take_front(kMost);
        groups.push_back(group.size() == 1 ? group.front() : b.make<nn::ConcatOp>(group, op.getAxis()).getResult());
      }
      parts = std::move(groups);
    }
    return parts.front();
  }

private:
  Value isExcept(Value y, int64_t except) { return b.compare(nn::Comparison::EQ, y, b.like(y, double(except))); }
  // A label that is surely inside its axis, for the gather.
  Value insideLabel(Value y, std::optional<int64_t> except) {
    return except ? b.where(isExcept(y, *except), b.like(y, 0), y) : y;
  }

  nn::GradientBuilder &b;
};

// Of products that each element sums.
int64_t lengthOfSum(nn::ContractOp product) {
  int64_t length = 1, rank = nn::tensorOf(product.getResult()).getRank();
  for (auto [axis, label] : llvm::enumerate(product.getLhsLabels()))
    if (label >= rank)
      length *= nn::tensorOf(product.getLhs()).getDimSize(axis);
  return length;
}
int64_t lengthOfSum(nn::ConvOp product) { // of an image or an output: taps and channels
  auto filter = nn::tensorOf(product.part(nn::ConvPart::Filter));
  return filter.getNumElements() / (product.getGives() == nn::ConvPart::Image ? filter.getDimSize(2) : filter.getDimSize(3));
}

// Of a product that is read by its rounding alone: the kernel rounds what it stores. It sums all of k at once for that.
template <typename Product>
void giveRounded(Product product) {
  constexpr int64_t kLongest = 4096; // of k: panels that long lie in scratch
  auto rounding = product->hasOneUse() ? dyn_cast<nn::CastOp>(*product->user_begin()) : nn::CastOp();
  if (!rounding || !nn::hasBatch(product.getResult()) || !nn::tensorOf(rounding.getResult()).getElementType().isBF16() ||
      lengthOfSum(product) > kLongest)
    return;
  for (NamedAttribute attribute : rounding->getDiscardableAttrs())
    product->setDiscardableAttr(attribute.getName(), attribute.getValue());
  product.getResult().setType(cast<mlir::TypedValue<RankedTensorType>>(rounding.getResult()).getType());
  rounding.getResult().replaceAllUsesWith(product.getResult());
  rounding->erase();
}

// The bf16 value that a cast to f32 widens, which is exact.
Value widenedBy(Value value) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  bool widens = cast && nn::tensorOf(cast.getX()).getElementType().isBF16() && nn::tensorOf(value).getElementType().isF32();
  return widens ? cast.getX() : Value();
}

// Rounding what was widened gives the value that it was widened from.
void dropRounding(nn::CastOp cast) {
  Value narrow = widenedBy(cast.getX());
  auto isHint = [](NamedAttribute a) { return a.getName() != nn::kBackwardAttr && a.getName() != nn::kBlockAttr; };
  if (!narrow || !nn::tensorOf(cast.getResult()).getElementType().isBF16() || llvm::any_of(cast->getDiscardableAttrs(), isHint))
    return;
  cast.getResult().replaceAllUsesWith(narrow);
  cast->erase();
}

// A few elements of what is widened are widened alone, and the wide values are no copy in memory.
void gatherNarrow(nn::GatherOp gather) {
  Value narrow = widenedBy(gather->getOperand(0));
  if (!narrow)
    return;
  OpBuilder builder(gather->getContext());
  builder.setInsertionPointAfter(gather);
  auto wide = nn::tensorOf(gather.getResult());
  gather->setOperand(0, narrow);
  gather.getResult().setType(nn::withElement(wide, builder.getBF16Type()));
  auto cast = nn::CastOp::create(builder, gather.getLoc(), wide, gather.getResult());
  cast->setDiscardableAttrs(gather->getDiscardableAttrDictionary());
  gather.getResult().replaceAllUsesExcept(cast.getResult(), cast);
}

bool isMove(Operation *op) { return isa_and_present<nn::ReshapeOp, nn::TransposeOp, nn::ConcatOp>(op); }

// The f32 of which an only reader takes the rounding, if it is what attention has written or a move of it.
Value roundedAttention(Value value) {
  auto cast = value.getDefiningOp<nn::CastOp>();
  if (!cast || !value.hasOneUse() || !nn::tensorOf(value).getElementType().isBF16() || !nn::tensorOf(cast.getX()).getElementType().isF32())
    return {};
  Operation *from = cast.getX().getDefiningOp();
  while (isMove(from))
    from = from->getOperand(0).getDefiningOp();
  return isa_and_present<nn::AttendOp, nn::AttendGradOp>(from) ? cast.getX() : Value();
}

// Where what attention gives is rounded and then moved, as the parts of a projection join, it is rounded on its way: one pass over memory
// instead of one for each. What has its axes in another order is merged behind that: no kernel walks merged axes of such a view.
void roundMoved(Operation *move) {
  SmallVector<Value> wide;
  for (Value operand : move->getOperands())
    wide.push_back(roundedAttention(operand));
  auto isTurned = [](Value value) { return isa_and_present<nn::TransposeOp, nn::ConcatOp>(value.getDefiningOp()); };
  if (!isMove(move) || llvm::is_contained(wide, Value()) || (isa<nn::ReshapeOp>(move) && llvm::any_of(wide, isTurned)))
    return;
  SmallVector<Operation *> casts;
  for (auto [operand, value] : llvm::zip_equal(move->getOpOperands(), wide)) {
    casts.push_back(operand.get().getDefiningOp());
    operand.set(value);
  }
  OpBuilder builder(move->getContext());
  builder.setInsertionPointAfter(move);
  Value result = move->getResult(0);
  auto narrow = nn::tensorOf(result);
  result.setType(nn::withElement(narrow, builder.getF32Type()));
  auto cast = nn::CastOp::create(builder, casts.front()->getLoc(), narrow, result);
  cast->setDiscardableAttrs(casts.front()->getDiscardableAttrDictionary());
  result.replaceAllUsesExcept(cast.getResult(), cast);
  for (Operation *op : casts)
    op->erase();
}

struct DecomposeOps : cinch::impl::DecomposeOpsBase<DecomposeOps> {
  void runOnOperation() final {
    getOperation().walk([&](func::FuncOp function) { decompose(function); });
    getOperation().walk([](nn::GatherOp gather) { gatherNarrow(gather); });
    getOperation().walk([](Operation *op) { roundMoved(op); });
    getOperation().walk([](nn::CastOp cast) { dropRounding(cast); });
    SmallVector<Operation *> products;
    getOperation().walk([&](Operation *op) {
      if (isa<nn::ContractOp, nn::ConvOp>(op))
        products.push_back(op);
    });
    for (Operation *op : products)
      if (auto product = dyn_cast<nn::ContractOp>(op))
        giveRounded(product);
      else
        giveRounded(cast<nn::ConvOp>(op));
    IRRewriter rewriter(&getContext());
    DominanceInfo dominance;
    getOperation().walk([&](func::FuncOp function) { eliminateCommonSubExpressions(rewriter, dominance, function); });
  }

  void decompose(func::FuncOp function) {
    SmallVector<Operation *> ops;
    function.walk([&](Operation *op) {
      if (isa<nn::NNDialect>(op->getDialect()))
        ops.push_back(op);
    });
    for (Operation *op : ops) {
      OpBuilder builder(op);
      nn::GradientBuilder gradientBuilder(builder);
      op->setLoc(nn::called(op->getLoc(), nn::nameOf(op))); // its parts are called as it is
      gradientBuilder.setLocation(op->getLoc());
      Decomposer decomposer(gradientBuilder);
      Operation *before = op->getPrevNode();
      SmallVector<Value> values;
      TypeSwitch<Operation *>(op)
          .Case<nn::SoftmaxOp>([&](auto o) { values = {decomposer.softmax(o)}; })
          .Case<nn::LogSoftmaxOp>([&](auto o) { values = {decomposer.logSoftmax(o)}; })
          .Case<nn::SoftmaxGradOp>([&](auto o) { values = {decomposer.softmaxGrad(o)}; })
          .Case<nn::LogSoftmaxGradOp>([&](auto o) { values = {decomposer.logSoftmaxGrad(o)}; })
          .Case<nn::CrossEntropyOp>([&](auto o) { values = {decomposer.crossEntropy(o)}; })
          .Case<nn::CrossEntropyGradOp>([&](auto o) { values = {decomposer.crossEntropyGrad(o)}; })
          .Case<nn::SumSquaresOp>([&](auto o) { values = {decomposer.sumSquares(o)}; })
          .Case<nn::ConcatOp>([&](auto o) {
            if (Value joined = decomposer.concat(o))
              values = {joined};
          })
          .Case<nn::ReduceOp>([&](auto o) {
            if (Value sum = decomposer.longSum(o))
              values = {sum};
          })
          .Case<nn::Decomposable>([&](nn::Decomposable o) { values = o.decompose(builder); })
          .Default([](Operation *) {});
      if (values.empty())
        continue;
      // What was known of the op holds for its parts; but what a gradient computes from forward values alone is forward
      // work, and equal to what the loss computed already.
      for (Operation *part = before ? before->getNextNode() : &op->getBlock()->front(); part != op;
           part = part->getNextNode())
        for (NamedAttribute attribute : op->getDiscardableAttrs())
          if (attribute.getName() != nn::kBackwardAttr || llvm::any_of(part->getOperands(), [](Value operand) {
                return operand.getDefiningOp() && operand.getDefiningOp()->hasAttr(nn::kBackwardAttr);
              }))
            part->setDiscardableAttr(attribute.getName(), attribute.getValue());
      op->replaceAllUsesWith(values);
      op->erase();
    }
  }
};

} // namespace
