// KernelBody.cpp: specs as lists of whole numbers. runtime/KernelBody.cpp reads them in the same order.
#include "compiler/phases/KernelBody.h"

#include "llvm/ADT/bit.h"

namespace cinch {

using namespace kernels;

namespace {
struct Writer {
  std::vector<int64_t> out;

  void add(int64_t number) { out.push_back(number); }
  void all(const std::vector<int64_t> &list) { out.insert(out.end(), list.begin(), list.end()); }
  void all(const std::vector<int> &list) { out.insert(out.end(), list.begin(), list.end()); }
  template <typename T> void counted(const std::vector<T> &list) {
    add(int64_t(list.size()));
    all(list);
  }
  void index(const View &view) {
    add(view.offset);
    all(view.strides);
  }
  void view(const View &view) {
    add(view.buffer);
    index(view);
  }
  void number(double value) { add(llvm::bit_cast<int64_t>(value)); }
};
} // namespace

std::vector<int64_t> kernelBody(const LoopSpec &spec, int words, int batchDim, int positionDim, int64_t examplesOfGroup) {
  Writer w;
  w.counted(spec.outer);
  w.counted(spec.chain);
  w.add(spec.cols);
  w.add(spec.blockRows);
  w.add(batchDim);
  w.add(positionDim);
  w.add(examplesOfGroup);
  w.add(int64_t(spec.nodes.size()));
  for (const LoopNode &node : spec.nodes) {
    w.add(int64_t(node.op));
    w.add(int64_t(node.elem));
    w.add(int64_t(node.level));
    w.counted(node.args);
    switch (node.op) {
    case LoopOp::Load: w.view(node.view); break;
    case LoopOp::LoadAt:
      w.view(node.view);
      w.all(node.atStrides);
      break;
    case LoopOp::Const: case LoopOp::RunValue: w.number(node.number); break;
    case LoopOp::Index: w.index(node.view); break;
    case LoopOp::RandomUniform: case LoopOp::RandomNormal: case LoopOp::RandomInt: case LoopOp::RandomBool:
      w.number(node.number);
      w.add(words + node.keyWord);
      w.add(node.usesExample);
      w.add(node.positionStride);
      w.index(node.view);
      w.all(node.exampleStrides);
      break;
    case LoopOp::ReduceCols: w.add(int64_t(node.reduce)); break;
    case LoopOp::ReduceChain:
      w.add(int64_t(node.reduce));
      w.add(node.hasInit);
      if (node.hasInit)
        w.view(node.view);
      break;
    default: break;
    }
  }
  w.add(int64_t(spec.stores.size()));
  for (const LoopStore &store : spec.stores) {
    w.add(store.node);
    w.view(store.view);
    w.add(store.copies);
    w.add(store.copyStride);
  }
  w.add(spec.addAt.present);
  if (spec.addAt.present) {
    w.add(spec.addAt.node);
    w.view(spec.addAt.view);
    w.counted(spec.addAt.args);
    w.all(spec.addAt.atStrides);
  }
  return std::move(w.out);
}

LoopSpec loopOfContract(const ContractSpec &spec) {
  // Dims: batch.., m.., n.., k.., and one column.
  size_t batch = spec.batch.size(), m = spec.m.size(), n = spec.n.size(), k = spec.k.size();
  LoopSpec loop;
  for (const std::vector<int64_t> *group : {&spec.batch, &spec.m, &spec.n})
    loop.outer.insert(loop.outer.end(), group->begin(), group->end());
  loop.chain = spec.k;
  loop.blockRows = spec.grain;
  for (size_t dim = 1; dim < spec.k.size(); ++dim)
    loop.blockRows *= spec.k[dim];
  // Strides of a view over (batch.., two groups) as strides over all dims.
  auto spread = [&](const View &from, size_t first, size_t firstSize, size_t second, size_t secondSize) {
    View view = from;
    view.strides.assign(batch + m + n + k + 1, 0);
    auto put = [&](size_t at, size_t source, size_t count) {
      for (size_t i = 0; i < count; ++i)
        view.strides[at + i] = from.strides[source + i];
    };
    put(0, 0, batch);
    put(first, batch, firstSize);
    put(second, batch + firstSize, secondSize);
    return view;
  };
  size_t mAt = batch, nAt = batch + m, kAt = batch + m + n;
  auto add = [&](LoopOp op, Level level, std::vector<int> args, View view) {
    LoopNode node;
    node.op = op;
    node.elem = spec.elem;
    node.level = level;
    node.args = std::move(args);
    node.view = std::move(view);
    loop.nodes.push_back(std::move(node));
  };
  // An operand may lie there in two bytes.
  auto load = [&](View view) {
    bool half = view.elem == Elem::BF16;
    add(LoopOp::Load, Level::Row, {}, std::move(view));
    if (half)
      loop.nodes.back().elem = Elem::BF16;
  };
  View c = spread(spec.c, mAt, m, nAt, n);
  load(spread(spec.a, mAt, m, kAt, k));
  load(spread(spec.b, kAt, k, nAt, n));
  add(LoopOp::Mul, Level::Row, {0, 1}, {});
  add(LoopOp::ReduceChain, Level::Outer, {2}, c);
  loop.nodes.back().hasInit = spec.accumulate;
  if (c.elem == Elem::BF16) { // rounding may make an infinity
    add(LoopOp::Cast, Level::Outer, {3}, {});
    loop.nodes.back().elem = Elem::BF16;
  }
  loop.stores.push_back({int(loop.nodes.size()) - 1, c});
  return loop;
}

} // namespace cinch
