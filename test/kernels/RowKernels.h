// RowKernels.h: the loop kernels that training programs are full of, as specs: for tests and for the benchmark.
#ifndef CINCH_TEST_KERNELS_ROWKERNELS_H
#define CINCH_TEST_KERNELS_ROWKERNELS_H

#include "compiler/kernels/Kernels.h"

#include <string>
#include <vector>

namespace cinch::test {

using namespace cinch::kernels;

// Writes specs over (rows) x cols, or with the rows as the chain.
class SpecWriter {
public:
  SpecWriter(int64_t rows, int64_t cols, bool chain = false) : rows(rows), chain(chain) {
    (chain ? spec.chain : spec.outer).push_back(rows);
    spec.cols = cols;
  }

  LoopSpec spec;
  std::vector<int64_t> elements; // of every buffer
  std::vector<Elem> elems;

  View view(Level level, Elem elem, int buffer) {
    View v;
    v.buffer = buffer;
    v.elem = elem;
    bool row = level == Level::Full || level == Level::Row, col = level == Level::Full || level == Level::Column;
    v.strides = {row ? (col ? spec.cols : 1) : 0, col ? 1 : 0};
    return v;
  }
  int buffer(Level level, Elem elem = Elem::F32) {
    bool row = level == Level::Full || level == Level::Row, col = level == Level::Full || level == Level::Column;
    elements.push_back((row ? rows : 1) * (col ? spec.cols : 1));
    elems.push_back(elem);
    return int(elements.size()) - 1;
  }
  int load(Level level, Elem elem = Elem::F32) {
    LoopNode node;
    node.op = LoopOp::Load;
    node.elem = elem;
    node.level = level;
    node.view = view(level, elem, buffer(level, elem));
    return add(node);
  }
  int number(double x, Elem elem = Elem::F32) {
    LoopNode node;
    node.elem = elem;
    node.number = x;
    return add(node);
  }
  int op(LoopOp op, std::vector<int> args) {
    LoopNode node;
    node.op = op;
    node.elem = spec.nodes[args.back()].elem;
    node.args = args;
    return add(node);
  }
  int compare(LoopOp which, int x, int y) {
    LoopNode node;
    node.op = which;
    node.elem = Elem::Bool;
    node.args = {x, y};
    return add(node);
  }
  int reduce(LoopOp which, LoopReduce reduce, int x) {
    LoopNode node;
    node.op = which;
    node.elem = spec.nodes[x].elem;
    node.reduce = reduce;
    node.args = {x};
    return add(node);
  }
  int sum(int x) { return reduce(LoopOp::ReduceCols, LoopReduce::Sum, x); }
  int chainSum(int x) { return reduce(LoopOp::ReduceChain, LoopReduce::Sum, x); }
  int mul(int x, int y) { return op(LoopOp::Mul, {x, y}); }
  int plus(int x, int y) { return op(LoopOp::Add, {x, y}); }
  int sub(int x, int y) { return op(LoopOp::Sub, {x, y}); }
  int div(int x, int y) { return op(LoopOp::Div, {x, y}); }
  int columnIndex() {
    LoopNode node;
    node.op = LoopOp::Index;
    node.elem = Elem::I32;
    node.view.strides = {0, 1};
    return add(node);
  }
  int kept(double p) {
    LoopNode node;
    node.op = LoopOp::RandomBool;
    node.elem = Elem::Bool;
    node.number = p;
    node.key = 0x123456789abcdef;
    node.view.strides = {spec.cols, 1};
    node.exampleStrides = {0, 0};
    return add(node);
  }
  void store(int node, Level level) {
    Elem elem = spec.nodes[node].elem;
    spec.stores.push_back({node, view(level, elem, buffer(level, elem))});
  }
  void storeInPlace(int node, int load) { spec.stores.push_back({node, spec.nodes[load].view}); }
  int add(const LoopNode &node) {
    spec.nodes.push_back(node);
    return int(spec.nodes.size()) - 1;
  }

  int gelu(int x) { // the tanh form
    int cube = mul(mul(x, x), x);
    int inner = mul(number(0.7978845608028654), plus(x, mul(number(0.044715), cube)));
    return mul(mul(number(0.5), x), plus(number(1), op(LoopOp::Tanh, {inner})));
  }
  int softmax(int x) {
    int e = op(LoopOp::Exp, {sub(x, reduce(LoopOp::ReduceCols, LoopReduce::Max, x))});
    return div(e, sum(e));
  }

private:
  int64_t rows;
  bool chain;
};

struct RowKernel {
  std::string name;
  SpecWriter writer;
};

// rows x cols matrices; `classes` columns for softmax and cross-entropy.
inline std::vector<RowKernel> rowKernels(int64_t rows, int64_t cols, int64_t classRows, int64_t classes) {
  std::vector<RowKernel> all;
  auto begin = [&](const char *name, int64_t r, int64_t c, bool chain = false) -> SpecWriter & {
    all.push_back({name, SpecWriter(r, c, chain)});
    return all.back().writer;
  };
  {
    SpecWriter &w = begin("copy", rows, cols);
    w.store(w.load(Level::Full), Level::Full);
  }
  {
    SpecWriter &w = begin("bias_gelu", rows, cols);
    int x = w.load(Level::Full), bias = w.load(Level::Column);
    w.store(w.gelu(w.plus(x, bias)), Level::Full);
  }
  {
    SpecWriter &w = begin("gelu_erf", rows, cols);
    int x = w.load(Level::Full);
    int e = w.op(LoopOp::Erf, {w.mul(x, w.number(0.7071067811865476))});
    w.store(w.mul(w.mul(w.number(0.5), x), w.plus(w.number(1), e)), Level::Full);
  }
  {
    SpecWriter &w = begin("dropout", rows, cols);
    int x = w.load(Level::Full);
    w.store(w.op(LoopOp::Select, {w.kept(0.9), w.mul(x, w.number(1 / 0.9)), w.number(0)}), Level::Full);
  }
  {
    SpecWriter &w = begin("layer_norm", rows, cols);
    int x = w.load(Level::Full), gamma = w.load(Level::Column), beta = w.load(Level::Column);
    int n = w.number(double(cols));
    int mean = w.div(w.sum(x), n);
    int centred = w.sub(x, mean);
    int variance = w.div(w.sum(w.mul(centred, centred)), n);
    int root = w.op(LoopOp::Sqrt, {w.plus(variance, w.number(1e-5))});
    int inverse = w.div(w.number(1), root);
    w.store(w.plus(w.mul(w.mul(centred, inverse), gamma), beta), Level::Full);
    w.store(mean, Level::Row);
    w.store(inverse, Level::Row);
  }
  {
    SpecWriter &w = begin("layer_norm_dx", rows, cols);
    int x = w.load(Level::Full), dy = w.load(Level::Full), gamma = w.load(Level::Column);
    int mean = w.load(Level::Row), inverse = w.load(Level::Row);
    int n = w.number(double(cols));
    int hat = w.mul(w.sub(x, mean), inverse), g = w.mul(dy, gamma);
    int a = w.div(w.sum(g), n), b = w.div(w.sum(w.mul(g, hat)), n);
    w.store(w.mul(inverse, w.sub(w.sub(g, a), w.mul(hat, b))), Level::Full);
  }
  {
    SpecWriter &w = begin("layer_norm_dgamma", rows, cols, true);
    int x = w.load(Level::Full), dy = w.load(Level::Full), mean = w.load(Level::Row), inverse = w.load(Level::Row);
    w.store(w.chainSum(w.mul(dy, w.mul(w.sub(x, mean), inverse))), Level::Column);
    w.store(w.chainSum(dy), Level::Column);
  }
  {
    SpecWriter &w = begin("bias_gradient", rows, cols, true);
    w.store(w.chainSum(w.load(Level::Full)), Level::Column);
  }
  {
    SpecWriter &w = begin("softmax", classRows, classes);
    w.store(w.softmax(w.load(Level::Full)), Level::Full);
  }
  {
    // Loss of a row: log sum exp(x - max) - (x[label] - max).
    SpecWriter &w = begin("cross_entropy", classRows, classes);
    int x = w.load(Level::Full), label = w.load(Level::Row, Elem::I32);
    int most = w.reduce(LoopOp::ReduceCols, LoopReduce::Max, x);
    int total = w.sum(w.op(LoopOp::Exp, {w.sub(x, most)}));
    LoopNode at;
    at.op = LoopOp::LoadAt;
    at.args = {label};
    at.atStrides = {1};
    at.view = w.spec.nodes[x].view;
    at.view.strides[1] = 0;
    int chosen = w.add(at);
    w.store(w.sub(w.op(LoopOp::Log, {total}), w.sub(chosen, most)), Level::Row);
  }
  {
    SpecWriter &w = begin("cross_entropy_gradient", classRows, classes);
    int x = w.load(Level::Full), label = w.load(Level::Row, Elem::I32), weight = w.load(Level::Row);
    int p = w.softmax(x);
    int hit = w.compare(LoopOp::CompareEQ, w.columnIndex(), label);
    int target = w.op(LoopOp::Select, {hit, w.number(1), w.number(0)});
    w.storeInPlace(w.mul(w.sub(p, target), weight), x);
  }
  {
    SpecWriter &w = begin("adamw", 1, rows * cols);
    int p = w.load(Level::Full), g = w.load(Level::Full), m = w.load(Level::Full), v = w.load(Level::Full);
    int rate = w.load(Level::Outer), correction = w.load(Level::Outer);
    int decayed = w.mul(p, w.sub(w.number(1), w.mul(rate, w.number(0.1))));
    int m1 = w.plus(w.mul(m, w.number(0.9)), w.mul(g, w.number(0.1)));
    int v1 = w.plus(w.mul(v, w.number(0.999)), w.mul(w.mul(g, g), w.number(0.001)));
    int root = w.plus(w.div(w.op(LoopOp::Sqrt, {v1}), correction), w.number(1e-8));
    w.storeInPlace(w.sub(decayed, w.mul(rate, w.div(m1, root))), p);
    w.storeInPlace(m1, m);
    w.storeInPlace(v1, v);
  }
  {
    SpecWriter &w = begin("embedding", rows, cols);
    int token = w.load(Level::Row, Elem::I32);
    LoopNode at;
    at.op = LoopOp::LoadAt;
    at.args = {token};
    at.atStrides = {cols};
    at.view = w.view(Level::Column, Elem::F32, w.buffer(Level::Full));
    w.store(w.add(at), Level::Full);
  }
  {
    SpecWriter &w = begin("embedding_gradient", rows, cols, true);
    int token = w.load(Level::Row, Elem::I32), dy = w.load(Level::Full);
    w.spec.addAt.present = true;
    w.spec.addAt.node = dy;
    w.spec.addAt.args = {token};
    w.spec.addAt.atStrides = {cols};
    w.spec.addAt.atSizes = {rows};
    w.spec.addAt.view = w.view(Level::Column, Elem::F32, w.buffer(Level::Full));
  }
  return all;
}

} // namespace cinch::test
#endif
