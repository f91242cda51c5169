// GraphValues.h: evaluates a Graph of Program.h op by op in f64, straight from the definitions there; for tests.
#ifndef CINCH_TEST_UNIT_GRAPHVALUES_H
#define CINCH_TEST_UNIT_GRAPHVALUES_H

#include "compiler/frontend/Program.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <random>

namespace cinch {

struct Array {
  std::vector<int64_t> shape;
  std::vector<double> data;
  explicit Array(std::vector<int64_t> shape = {}) : shape(std::move(shape)) {
    int64_t size = 1;
    for (int64_t axis : this->shape)
      size *= axis;
    data.assign(size, 0);
  }
  size_t place(const std::vector<int64_t> &at) const {
    size_t result = 0;
    for (size_t i = 0; i < shape.size(); ++i)
      result = result * shape[i] + at[i];
    return result;
  }
  double &operator[](const std::vector<int64_t> &at) { return data[place(at)]; }
  double operator[](const std::vector<int64_t> &at) const { return data[place(at)]; }
};
using Index = std::vector<int64_t>;

inline void forAll(const std::vector<int64_t> &shape, const std::function<void(const Index &)> &body) {
  Index at(shape.size(), 0);
  for (int64_t axis : shape)
    if (axis == 0)
      return;
  while (true) {
    body(at);
    size_t i = shape.size();
    while (i > 0 && ++at[i - 1] == shape[i - 1])
      at[--i] = 0;
    if (i == 0)
      return;
  }
}

struct Inputs {
  std::vector<Array> fields, parameters;
  std::map<uint64_t, Array> draws; // by key; made up when first asked for
  int64_t valid = -1;              // rows that are examples; -1: all
  std::mt19937_64 random{5};
  double uniform() { return static_cast<double>(random() >> 11) / 9007199254740992.0; }
};

inline double unary(OpKind kind, double x) {
  switch (kind) {
#define FUNCTION(OP, NAME, FROM, TO, NEAR, ULP32, ULP64, TRUTH)                                                       \
  case OpKind::OP:                                                                                                    \
    return TRUTH;
#include "test/oracle/Functions.def"
  case OpKind::Floor:
    return std::floor(x);
  case OpKind::Not:
    return x == 0;
  default:
    return x; // StopGradient, Cast
  }
}

inline double binary(const Op &op, double a, double b) {
  switch (op.kind) {
  case OpKind::And:
    return a != 0 && b != 0;
  case OpKind::Or:
    return a != 0 || b != 0;
  case OpKind::Add:
    return a + b;
  case OpKind::Sub:
    return a - b;
  case OpKind::Mul:
    return a * b;
  case OpKind::Div:
    return a / b;
  case OpKind::Pow:
    return std::pow(a, b);
  case OpKind::Max:
    return std::max(a, b);
  case OpKind::Min:
    return std::min(a, b);
  default:
    break;
  }
  switch (Comparison(op.integer(Key::Comparison))) {
  case Comparison::EQ:
    return a == b;
  case Comparison::NE:
    return a != b;
  case Comparison::LT:
    return a < b;
  case Comparison::LE:
    return a <= b;
  case Comparison::GT:
    return a > b;
  default:
    return a >= b;
  }
}

inline Array evaluate(const Op &op, const std::vector<Array> &values, Inputs &inputs) {
  Array out(op.type.shape);
  auto in = [&](int i) -> const Array & { return values[op.operands[i]]; };
  auto without = [](Index at, int64_t axis) {
    at.erase(at.begin() + axis);
    return at;
  };
  auto with = [](Index at, int64_t axis, int64_t value) {
    at.insert(at.begin() + axis, value);
    return at;
  };
  switch (op.kind) {
  case OpKind::Parameter:
    return inputs.parameters[op.integer(Key::Index)];
  case OpKind::Field:
    return inputs.fields[op.integer(Key::Index)];
  case OpKind::ValidRows:
    forAll(out.shape, [&](const Index &at) { out[at] = inputs.valid < 0 || at[0] < inputs.valid; });
    return out;
  case OpKind::Constant:
    for (double &x : out.data)
      x = op.number(Key::Number);
    return out;
  case OpKind::Vector:
    out.data = std::get<std::vector<double>>(op.attribute(Key::Numbers));
    return out;
  case OpKind::Range:
    forAll(out.shape, [&](const Index &at) { out[at] = static_cast<double>(at[0]); });
    return out;
  case OpKind::Where:
    for (size_t i = 0; i < out.data.size(); ++i)
      out.data[i] = in(0).data[i] != 0 ? in(1).data[i] : in(2).data[i];
    return out;
  case OpKind::Broadcast:
    forAll(out.shape, [&](const Index &at) {
      Index from;
      for (int64_t axis : op.integers(Key::Axes))
        from.push_back(at[axis]);
      out[at] = in(0)[from];
    });
    return out;
  case OpKind::Transpose:
    forAll(out.shape, [&](const Index &at) {
      Index from(at.size());
      for (size_t i = 0; i < at.size(); ++i)
        from[op.integers(Key::Permutation)[i]] = at[i];
      out[at] = in(0)[from];
    });
    return out;
  case OpKind::Reshape:
    out.data = in(0).data;
    return out;
  case OpKind::Slice:
  case OpKind::Pad:
  case OpKind::Reverse:
    forAll(out.shape, [&](const Index &at) {
      Index from = at;
      int64_t &x = from[op.integer(Key::Axis)];
      int64_t size = in(0).shape[op.integer(Key::Axis)];
      x = op.kind == OpKind::Slice ? x + op.integer(Key::Begin)
          : op.kind == OpKind::Pad ? x - op.integer(Key::Before)
                                   : size - 1 - x;
      out[at] = x < 0 || x >= size ? op.number(Key::Value) : in(0)[from];
    });
    return out;
  case OpKind::Concat:
    forAll(out.shape, [&](const Index &at) {
      Index from = at;
      int64_t &x = from[op.integer(Key::Axis)];
      for (size_t i = 0; i < op.operands.size(); ++i) {
        int64_t size = in(i).shape[op.integer(Key::Axis)];
        if (x < size) {
          out[at] = in(i)[from];
          return;
        }
        x -= size;
      }
    });
    return out;
  case OpKind::Reduce: {
    auto reduction = Reduction(op.integer(Key::Reduction));
    const std::vector<int64_t> &axes = op.integers(Key::Axes);
    std::vector<double> count(out.data.size(), 0);
    forAll(in(0).shape, [&](const Index &at) {
      Index to = at;
      for (size_t i = axes.size(); i-- > 0;)
        to.erase(to.begin() + axes[i]);
      double x = in(0)[at], &y = out[to], &n = count[out.place(to)];
      if (n++ == 0)
        y = x;
      else if (reduction == Reduction::Max || reduction == Reduction::Any)
        y = std::max(y, x);
      else if (reduction == Reduction::Min || reduction == Reduction::All)
        y = std::min(y, x);
      else if (reduction == Reduction::Prod)
        y *= x;
      else
        y += x;
    });
    return out;
  }
  case OpKind::Contract: {
    std::map<int64_t, int64_t> sizes;
    const std::vector<int64_t> *maps[] = {&op.integers(Key::LhsLabels), &op.integers(Key::RhsLabels)};
    for (int k = 0; k < 2; ++k)
      for (size_t i = 0; i < maps[k]->size(); ++i)
        sizes[(*maps[k])[i]] = in(k).shape[i];
    std::vector<int64_t> all;
    for (const auto &[label, size] : sizes)
      all.push_back(size);
    forAll(all, [&](const Index &at) {
      Index a, b;
      for (int64_t label : *maps[0])
        a.push_back(at[label]);
      for (int64_t label : *maps[1])
        b.push_back(at[label]);
      out[Index(at.begin(), at.begin() + out.shape.size())] += in(0)[a] * in(1)[b];
    });
    return out;
  }
  case OpKind::Gather:
    forAll(out.shape, [&](const Index &at) {
      Index from;
      for (int64_t entry : op.integers(Key::XLabels)) {
        if (entry >= 0) {
          from.push_back(at[entry]);
          continue;
        }
        Index where;
        for (int64_t label : std::get<Lists>(op.attribute(Key::IndexLabels))[-entry - 1])
          where.push_back(at[label]);
        from.push_back(static_cast<int64_t>(in(-entry)[where]));
      }
      out[at] = in(0)[from];
    });
    return out;
  case OpKind::Softmax:
  case OpKind::LogSoftmax:
  case OpKind::ArgMax:
  case OpKind::ArgMin:
  case OpKind::CrossEntropy: {
    int64_t axis = op.integer(Key::Axis);
    Array rows(without(in(0).shape, axis));
    int64_t size = in(0).shape[axis];
    forAll(rows.shape, [&](const Index &row) {
      double sum = 0;
      int64_t best = 0;
      for (int64_t i = 0; i < size; ++i) {
        double x = in(0)[with(row, axis, i)];
        sum += std::exp(x);
        double top = in(0)[with(row, axis, best)];
        if (op.kind == OpKind::ArgMin ? x < top : x > top)
          best = i;
      }
      if (op.kind == OpKind::ArgMax || op.kind == OpKind::ArgMin)
        out[row] = static_cast<double>(best);
      if (op.kind == OpKind::CrossEntropy) {
        double y = in(1)[row];
        const AttrValue &except = op.attribute(Key::Except);
        if (except.index() && y == static_cast<double>(std::get<int64_t>(except)))
          return;
        double smooth = op.number(Key::Smooth);
        for (int64_t i = 0; i < size; ++i)
          out[row] -= ((1 - smooth) * (static_cast<double>(i) == y) + smooth / static_cast<double>(size)) *
                      (in(0)[with(row, axis, i)] - std::log(sum));
      }
      for (int64_t i = 0; i < size && (op.kind == OpKind::Softmax || op.kind == OpKind::LogSoftmax); ++i) {
        double x = in(0)[with(row, axis, i)];
        out[with(row, axis, i)] = op.kind == OpKind::Softmax ? std::exp(x) / sum : x - std::log(sum);
      }
    });
    return out;
  }
  case OpKind::Attend: {
    const Array &q = in(0), &k = in(1), &v = in(2);
    size_t lead = q.shape.size() - 3;
    int64_t heads = q.shape[lead], groups = k.shape[lead], keys = k.shape[lead + 1], width = q.shape[lead + 2];
    forAll(Index(q.shape.begin(), q.shape.end() - 1), [&](const Index &row) {
      Index batch(row.begin(), row.begin() + lead);
      int64_t head = row[lead], t = row[lead + 1], group = head * groups / heads;
      std::vector<double> score(keys);
      double sum = 0;
      auto of = [&](int64_t h, int64_t s, int64_t e) {
        Index at = batch;
        at.insert(at.end(), {h, s, e});
        return at;
      };
      for (int64_t s = 0; s < keys; ++s) {
        double dot = 0;
        for (int64_t e = 0; e < width; ++e)
          dot += q[of(head, t, e)] * k[of(group, s, e)];
        dot *= op.number(Key::Scale);
        if (op.operands[4] >= 0)
          dot += in(4)[{head, t, s}];
        bool seen = !op.flag(Key::Causal) || s <= t;
        if (op.operands[3] >= 0) {
          Index at = batch;
          at.push_back(s);
          seen = seen && in(3)[at] != 0;
        }
        score[s] = seen ? std::exp(dot) : 0;
        sum += score[s];
      }
      for (int64_t e = 0; e < v.shape[lead + 2]; ++e)
        for (int64_t s = 0; s < keys; ++s)
          out[of(head, t, e)] += score[s] / sum * v[of(group, s, e)];
    });
    return out;
  }
  case OpKind::Random: {
    auto [entry, isNew] = inputs.draws.try_emplace(uint64_t(op.integer(Key::Key)), out);
    auto draw = Draw(op.integer(Key::Draw));
    if (isNew)
      for (double &x : entry->second.data)
        x = draw == Draw::Bool  ? inputs.uniform() < op.number(Key::Number)
            : draw == Draw::Int ? std::floor(inputs.uniform() * op.number(Key::Number))
                                : inputs.uniform();
    return entry->second;
  }
  default:
    break;
  }
  for (size_t i = 0; i < out.data.size(); ++i)
    out.data[i] = op.operands.size() == 1
                      ? unary(op.kind, in(0).data[i])
                      : binary(op, in(0).data[i], in(1).data[i]);
  return out;
}

inline std::vector<Array> run(const Graph &graph, Inputs &inputs) {
  std::vector<Array> values;
  for (const Op &op : graph.ops)
    values.push_back(evaluate(op, values, inputs));
  return values;
}

} // namespace cinch
#endif
