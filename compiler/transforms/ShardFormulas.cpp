// ShardFormulas.cpp: what is written out where its axis is split: rows of a table, and the cross entropy.
#include "compiler/transforms/ShardBuilder.h"

using namespace mlir;

namespace cinch {

// Each shard has the rows of a range of the table, and zeros for the others.
Value ShardBuilder::gatherRows(nn::GradientBuilder &b, nn::GatherOp op, const Way &way, int64_t shard) {
  Value table = operand(op, way, 0, shard);
  auto type = nn::tensorOf(op.getResult());
  ShardForm form = forms.formOf(op.getX(), way.needs[0]);
  size_t which = size_t(-op.getXLabels()[size_t(form.axis)] - 1);
  int64_t rows = nn::tensorOf(table).getDimSize(unsigned(form.axis));
  SmallVector<Value> indices;
  for (auto [i, index] : llvm::enumerate(op.getIndices()))
    indices.push_back(operand(op, way, unsigned(i + 1), shard));
  Value at = b.make<nn::SubOp>(indices[which], b.like(indices[which], double(shard * rows)));
  Value here = b.make<nn::AndOp>(b.compare(nn::Comparison::GE, at, b.like(at, 0)), b.compare(nn::Comparison::LT, at, b.like(at, double(rows))));
  indices[which] = b.where(here, at, b.like(at, 0));
  Value row = b.make<nn::GatherOp>(table, indices, op.getXLabels(), op.getIndexLabels());
  ArrayRef<int64_t> axes = cast<DenseI64ArrayAttr>(op.getIndexLabels()[which]).asArrayRef();
  Value isHere = b.broadcast(here, axes, nn::withElement(type, b.opBuilder().getI1Type()));
  return b.where(isHere, row, b.like(row, 0));
}

// -log softmax(logits)[y], the classes being those of all shards; the largest logit is a constant to the gradient.
Value ShardBuilder::crossEntropy(nn::CrossEntropyOp op, const Way &way) {
  int64_t axis = int64_t(op.getAxis());
  double smooth = op.getSmooth().convertToDouble(), classes = double(nn::tensorOf(op.getLogits()).getDimSize(unsigned(axis)));
  SmallVector<Value> largest, sums, labels, scores;
  SmallVector<int64_t> others;
  for (int64_t i = 0; i < nn::tensorOf(op.getLogits()).getRank(); ++i)
    if (i != axis)
      others.push_back(i);
  auto logits = [&](int64_t t) { return operand(op, way, 0, t); };
  auto reduce = [&](nn::GradientBuilder &b, nn::Reduction kind, Value x) -> Value {
    return b.make<nn::ReduceOp>(nn::ReductionAttr::get(op.getContext(), kind), x, b.opBuilder().getDenseI64ArrayAttr({axis}));
  };
  auto spread = [&](nn::GradientBuilder &b, Value row, Value like) {
    return b.broadcast(row, others, nn::withElement(nn::tensorOf(like), nn::tensorOf(row).getElementType()));
  };
  for (int64_t t = 0; t < shards; ++t)
    largest.push_back(onShard(op, t, [&](nn::GradientBuilder &b) -> Value {
      return b.make<nn::StopGradientOp>(reduce(b, nn::Reduction::Max, logits(t)));
    }));
  Value m = overShards(op, largest, true);
  for (int64_t t = 0; t < shards; ++t) {
    Value x = logits(t);
    int64_t here = nn::tensorOf(x).getDimSize(unsigned(axis));
    sums.push_back(onShard(op, t, [&](nn::GradientBuilder &b) {
      return reduce(b, nn::Reduction::Sum, b.make<nn::ExpOp>(b.sub(x, spread(b, m, x))));
    }));
    labels.push_back(onShard(op, t, [&](nn::GradientBuilder &b) {
      Value numbers = b.make<nn::RangeOp>(nn::tensorType({here}, b.opBuilder().getI32Type(), -1));
      auto wide = nn::withElement(nn::tensorOf(x), b.opBuilder().getI32Type());
      Value y = b.make<nn::SubOp>(whole(op.getY()), b.like(op.getY(), double(t * here)));
      Value isLabel = b.compare(nn::Comparison::EQ, b.broadcast(numbers, {axis}, wide), spread(b, y, x));
      return reduce(b, nn::Reduction::Sum, b.where(isLabel, x, b.like(x, 0)));
    }));
    if (smooth != 0)
      scores.push_back(onShard(op, t, [&](nn::GradientBuilder &b) { return reduce(b, nn::Reduction::Sum, b.sub(x, spread(b, m, x))); }));
  }
  Value sum = overShards(op, sums), chosen = overShards(op, labels), all = smooth != 0 ? overShards(op, scores) : Value();
  return onShard(op, -1, [&](nn::GradientBuilder &b) -> Value {
    Value log = b.make<nn::LogOp>(sum), below = b.sub(m, chosen), loss;
    if (smooth == 0)
      loss = b.add(log, below);
    else
      loss = b.sub(b.add(log, b.mul(b.like(below, 1 - smooth), below)), b.mul(b.like(all, smooth / classes), all));
    if (op.getExcept()) {
      Value y = whole(op.getY());
      loss = b.where(b.compare(nn::Comparison::EQ, y, b.like(y, double(int64_t(*op.getExcept())))), b.like(loss, 0), loss);
    }
    return loss;
  });
}

} // namespace cinch
