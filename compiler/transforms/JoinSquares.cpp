// JoinSquares.cpp: the sums of squares of all gradients, for a GPU: a few kernels instead of one and more for each.
//
// A parameter's contribution to the gradient's norm is a chain over the sums of its chunks, and most parameters are too small to keep a GPU
// busy. Here the chunks of many gradients are rows of one concatenation, whose sums one kernel finds. Gradients of as many chunks come one
// behind the other, so that their chains are columns of one kernel. The last, shorter chunks of one length are rows together, too.
//
//     gradients   a: 8192  b: 8192  c: 4106         chunk sums  [a0 a1 b0 b1 c0]   chains  [a0 + a1, b0 + b1], [c0]   rests  [c's 10 elements]
//
// Which numbers are added to which, in which order, is what nn.sum_squares says.
#include "compiler/transforms/Passes.h"
#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/NN.h"

#include <algorithm>
#include <map>

namespace cinch {
#define GEN_PASS_DEF_JOINSQUARES
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

// Of one concatenation: a longer one is made of several (decompose-ops), which lie in memory.
constexpr size_t kMostJoined = 32;
constexpr int64_t kChunk = nn::SumSquaresOp::kChunk;

class Joiner {
public:
  Joiner(OpBuilder &builder, ArrayRef<nn::SumSquaresOp> sums) : b(builder), sums(sums), f64(builder.getF64Type()) {
    Operation *first = nn::SumSquaresOp(sums.front());
    b.setLocation(nn::called(first->getLoc(), nn::nameOf(first)));
  }

  // What each of them gives.
  SmallVector<Value> join() {
    std::map<int64_t, SmallVector<size_t>> wholes, rests; // by the number of chunks, and by the length of the last one
    for (size_t i = 0; i < sums.size(); ++i) {
      int64_t count = elementsOf(i);
      if (count >= kChunk)
        wholes[count / kChunk].push_back(i);
      if (count % kChunk)
        rests[count % kChunk].push_back(i);
    }
    found.resize(sums.size());
    SmallVector<std::pair<size_t, int64_t>> rows;
    auto flush = [&] {
      if (!rows.empty())
        addChains(rows);
      rows.clear();
    };
    for (auto &[chunks, those] : wholes)
      for (size_t i : those) {
        rows.push_back({i, chunks});
        if (rows.size() == kMostJoined)
          flush();
      }
    flush();
    for (auto &[length, those] : rests)
      for (ArrayRef<size_t> left = those; !left.empty(); left = left.drop_front(std::min(left.size(), kMostJoined)))
        addRests(left.take_front(kMostJoined), length);
    return found;
  }

  ArrayRef<Operation *> made() const { return b.made(); }

private:
  Value slice(Value x, int64_t begin, int64_t end) {
    if (begin == 0 && end == nn::tensorOf(x).getDimSize(0))
      return x;
    auto number = [&](int64_t n) { return IntegerAttr::get(IntegerType::get(f64.getContext(), 64), n); };
    return b.make<nn::SliceOp>(x, number(0), number(begin), number(end));
  }
  Value shaped(Value x, ArrayRef<int64_t> shape) {
    return b.reshape(x, nn::tensorType(shape, nn::tensorOf(x).getElementType(), -1));
  }
  Value gradient(size_t i) const { return nn::SumSquaresOp(sums[i]).getX(); }
  int64_t elementsOf(size_t i) const { return nn::tensorOf(gradient(i)).getNumElements(); }
  // Elements of a gradient from `begin` on, as rows of one length.
  Value rowsOf(size_t i, int64_t begin, int64_t rows, int64_t length) {
    Value flat = shaped(gradient(i), {elementsOf(i)});
    return shaped(slice(flat, begin, begin + rows * length), {rows, length});
  }
  Value sumsOfSquares(ArrayRef<Value> parts) {
    Value rows = parts.size() == 1 ? parts.front() : b.make<nn::ConcatOp>(parts, 0).getResult();
    if (nn::tensorOf(rows).getElementType() != f64)
      rows = b.make<nn::CastOp>(nn::withElement(nn::tensorOf(rows), f64), rows);
    return b.sum(b.mul(rows, rows), {1});
  }
  void addTo(size_t i, Value part) { found[i] = found[i] ? b.add(found[i], part) : part; }
  void addEach(ArrayRef<size_t> those, Value values) {
    for (auto [place, i] : llvm::enumerate(those))
      addTo(i, shaped(slice(values, int64_t(place), int64_t(place) + 1), {}));
  }

  // Whole chunks of gradients, those of as many chunks one behind the other.
  void addChains(ArrayRef<std::pair<size_t, int64_t>> all) {
    SmallVector<Value> parts;
    for (auto [i, chunks] : all)
      parts.push_back(rowsOf(i, 0, chunks, kChunk));
    Value ofChunks = sumsOfSquares(parts);
    int64_t begin = 0;
    while (!all.empty()) {
      const int64_t chunks = all.front().second;
      auto like = all.take_while([&](auto &each) { return each.second == chunks; });
      const int64_t count = int64_t(like.size());
      Value values = slice(ofChunks, begin, begin + count * chunks);
      if (chunks > 1) // the last axis stays: chains over the chunks
        values = b.sum(b.transpose(shaped(values, {count, chunks}), {1, 0}), {0});
      addEach(llvm::map_to_vector(like, [](auto &each) { return each.first; }), values);
      begin += count * chunks;
      all = all.drop_front(like.size());
    }
  }
  void addRests(ArrayRef<size_t> those, int64_t length) {
    SmallVector<Value> parts;
    for (size_t i : those) {
      int64_t count = elementsOf(i);
      parts.push_back(rowsOf(i, count - length, 1, length));
    }
    addEach(those, sumsOfSquares(parts));
  }

  nn::GradientBuilder b;
  ArrayRef<nn::SumSquaresOp> sums;
  Type f64;
  SmallVector<Value> found;
};

struct JoinSquares : cinch::impl::JoinSquaresBase<JoinSquares> {
  void runOnOperation() final {
    getOperation().walk([&](func::FuncOp function) {
      SmallVector<Type> elements;
      SmallVector<nn::SumSquaresOp> sums;
      function.walk([&](nn::SumSquaresOp sum) { sums.push_back(sum); });
      for (nn::SumSquaresOp sum : sums)
        if (Type element = nn::tensorOf(sum.getX()).getElementType(); !llvm::is_contained(elements, element))
          elements.push_back(element);
      for (Type element : elements)
        join(llvm::filter_to_vector(sums, [&](nn::SumSquaresOp sum) { return nn::tensorOf(sum.getX()).getElementType() == element; }));
    });
  }

  // The gradients are there before the first of their sums.
  void join(ArrayRef<nn::SumSquaresOp> sums) {
    Operation *first = nn::SumSquaresOp(sums.front());
    OpBuilder builder(first);
    Joiner joiner(builder, sums);
    SmallVector<Value> found = joiner.join();
    for (Operation *op : joiner.made())
      op->setDiscardableAttrs(first->getDiscardableAttrDictionary());
    for (auto [sum, value] : llvm::zip_equal(sums, found)) {
      nn::SumSquaresOp(sum).replaceAllUsesWith(value);
      nn::SumSquaresOp(sum).erase();
    }
  }
};

} // namespace
