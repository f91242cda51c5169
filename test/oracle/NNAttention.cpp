// NNAttention.cpp: attention with its whole matrix of scores, forward and backward.
#include "test/oracle/NNSums.h"
#include "dialects/nn/Shards.h"
#include <cmath>

using namespace mlir;

namespace cinch::oracle {

namespace {
// What attend and attend_grad have in common: sizes, and the probabilities of one query.
struct Attention {
  int64_t lead = 1, A, G, T, S, K, E, leadRank, batchAxis, headsBefore = 0, headsBehind = 0;
  Shape leadShape;
  const Array *q, *k, *v, *keys = nullptr, *bias = nullptr;
  double scale, dropout;
  bool causal;
  uint64_t key;
  const RunState &run;

  template <typename Op>
  Attention(Op op, ArrayRef<const Array *> x, const RunState &run)
      : q(x[0]), k(x[1]), v(x[2]), scale(op.getScale().convertToDouble()), dropout(op.getDropout().convertToDouble()),
        causal(op.getCausal()), key(op.getKey()), run(run) {
    leadRank = q->rank() - 3;
    leadShape.assign(q->shape.begin(), q->shape.begin() + leadRank);
    batchAxis = nn::batchAxis(op.getQ().getType());
    lead = sizeOf(leadShape);
    A = q->shape[leadRank], T = q->shape[leadRank + 1], K = q->shape[leadRank + 2];
    G = k->shape[leadRank], S = k->shape[leadRank + 1], E = v->shape[leadRank + 2];
    if (auto others = op->template getAttrOfType<DenseI64ArrayAttr>(nn::kOtherHeadsAttr))
      headsBefore = others[0], headsBehind = others[1];
    if (op.getBias())
      bias = x.back();
    if (op.getKeys())
      keys = x[x.size() - (bias ? 2 : 1)];
  }

  int64_t qAt(int64_t l, int64_t a, int64_t t) const { return ((l * A + a) * T + t) * K; }
  int64_t kAt(int64_t l, int64_t a, int64_t s) const { return ((l * G + a * G / A) * S + s) * K; }
  int64_t vAt(int64_t l, int64_t a, int64_t s) const { return ((l * G + a * G / A) * S + s) * E; }
  int64_t oAt(int64_t l, int64_t a, int64_t t) const { return ((l * A + a) * T + t) * E; }

  // Softmax of a row of scores; `total` is the logarithm of the sum.
  std::vector<double> row(int64_t l, int64_t a, int64_t t, double &total) const {
    std::vector<double> p(S);
    double largest = -std::numeric_limits<double>::infinity(), sum = 0;
    for (int64_t s = 0; s < S; ++s) {
      double score = 0;
      for (int64_t i = 0; i < K; ++i)
        score += q->data[qAt(l, a, t) + i] * k->data[kAt(l, a, s) + i];
      score *= scale;
      if (bias)
        score += bias->data[(a * T + t) * S + s];
      if ((keys && keys->data[l * S + s] == 0) || (causal && s > t))
        score = -std::numeric_limits<double>::infinity();
      p[s] = score;
      largest = std::max(largest, score);
    }
    for (double score : p)
      sum += std::exp(score - largest);
    total = largest + std::log(sum);
    for (double &score : p)
      score = std::exp(score - total);
    return p;
  }

  // 1 / (1 - dropout) where kept, else 0.
  double kept(int64_t l, int64_t a, int64_t t, int64_t s) const {
    if (dropout == 0)
      return 1;
    Shape index(leadRank, 0);
    for (int64_t axis = leadRank, rest = l; axis-- > 0; rest /= leadShape[axis])
      index[axis] = rest % leadShape[axis];
    int64_t example = batchAxis < 0 ? 0 : index[batchAxis], element = 0;
    for (int64_t axis = 0; axis < leadRank; ++axis)
      if (axis != batchAxis)
        element = element * leadShape[axis] + index[axis];
    element = ((element * (headsBefore + A + headsBehind) + headsBefore + a) * T + t) * S + s;
    return drawBool(run, key, example, element, 1 - dropout) ? 1 / (1 - dropout) : 0;
  }
};
} // namespace

Arrays attendOf(nn::AttendOp op, ArrayRef<const Array *> x, const RunState &run) {
  Attention at(op, x, run);
  Shape oShape = at.q->shape, lseShape(at.q->shape.begin(), at.q->shape.end() - 1);
  oShape.back() = at.E;
  Array o = Array::filled(oShape, 0), lse = Array::filled(lseShape, 0);
  for (int64_t l = 0; l < at.lead; ++l)
    for (int64_t a = 0; a < at.A; ++a)
      for (int64_t t = 0; t < at.T; ++t) {
        std::vector<double> p = at.row(l, a, t, lse.data[(l * at.A + a) * at.T + t]);
        for (int64_t s = 0; s < at.S; ++s)
          for (int64_t i = 0; i < at.E; ++i)
            o.data[at.oAt(l, a, t) + i] += p[s] * at.kept(l, a, t, s) * at.v->data[at.vAt(l, a, s) + i];
      }
  return {o, lse};
}

Arrays attendGradOf(nn::AttendGradOp op, ArrayRef<const Array *> x, const RunState &run) {
  Attention at(op, x, run);
  const Array &dout = *x[5];
  Array dq = Array::filled(at.q->shape, 0), dk = Array::filled(at.k->shape, 0), dv = Array::filled(at.v->shape, 0);
  Array dbias = Array::filled({at.A, at.T, at.S}, 0);
  std::vector<double> dp(at.S);
  for (int64_t l = 0; l < at.lead; ++l)
    for (int64_t a = 0; a < at.A; ++a)
      for (int64_t t = 0; t < at.T; ++t) {
        double total, mean = 0;
        std::vector<double> p = at.row(l, a, t, total);
        for (int64_t s = 0; s < at.S; ++s) {
          double kept = at.kept(l, a, t, s);
          dp[s] = 0;
          for (int64_t i = 0; i < at.E; ++i) {
            double d = dout.data[at.oAt(l, a, t) + i];
            dp[s] += d * at.v->data[at.vAt(l, a, s) + i] * kept;
            dv.data[at.vAt(l, a, s) + i] += p[s] * kept * d;
          }
          mean += p[s] * dp[s];
        }
        for (int64_t s = 0; s < at.S; ++s) {
          double ds = p[s] * (dp[s] - mean);
          dbias.data[(a * at.T + t) * at.S + s] += ds;
          for (int64_t i = 0; i < at.K; ++i) {
            dq.data[at.qAt(l, a, t) + i] += at.scale * ds * at.k->data[at.kAt(l, a, s) + i];
            dk.data[at.kAt(l, a, s) + i] += at.scale * ds * at.q->data[at.qAt(l, a, t) + i];
          }
        }
      }
  Arrays grads{dq, dk, dv};
  if (op.getDbias())
    grads.push_back(dbias);
  return grads;
}

} // namespace cinch::oracle
