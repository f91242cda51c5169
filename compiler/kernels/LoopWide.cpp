// LoopWide.cpp: how a team of a GPU walks along columns of which nothing is summed: a thread has four neighbours at a time, which it loads
// and stores together, 16 bytes of f32. Which thread has which column changes no number.
#include "compiler/kernels/LoopEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"

#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

constexpr int64_t kTogether = 4;

// Columns lie side by side, and every fourth one begins at a multiple of four elements: buffers begin at multiples of 64 bytes, and blocks
// of columns at multiples of 16.
bool LoopEmitter::isWide(const View &view, Elem elem) const {
  auto whole = [](int64_t n) { return n % kTogether == 0; };
  return elem != Elem::F64 && plan.columnStride(view) == 1 && whole(view.offset) &&
         std::all_of(view.strides.begin(), view.strides.end() - 1, whole);
}

// Everything that is loaded along the columns and all that is stored lies so. What several passes keep in scratch stays with the thread
// that has put it there.
bool LoopEmitter::suitsWide(const std::vector<int> &stores, const Preheader &pre) const {
  if (!plan.teams || stores.empty() || spec.cols < kTogether * kLoopLanes)
    return false;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!pre.nodes[n])
      continue;
    const bool loads = node.op == LoopOp::Load && plan.columnStride(node.view) != 0;
    if (plan.keptBy[n] >= 0 || plan.selectsAddress[n] || node.op == LoopOp::LoadAt || node.op == LoopOp::ReduceChain ||
        (loads && !isWide(node.view, node.elem)))
      return false;
  }
  return std::all_of(stores.begin(), stores.end(), [&](int store) {
    const LoopStore &target = spec.stores[store];
    return target.copies == 1 && isWide(target.view, spec.nodes[target.node].elem);
  });
}

// From `begin` on; returns where the columns are left to the walk of one column a thread.
Value LoopEmitter::runWide(Value begin, const std::vector<int> &stores, const Preheader &pre) {
  constexpr int64_t kColumns = kTogether * kLoopLanes;
  Value own = lane, rest = arith::SubIOp::create(b, loc, wholeVectorsEnd(), begin);
  rest = arith::DivUIOp::create(b, loc, rest, index(kColumns));
  Value end = addIndex(begin, mulIndex(rest, kColumns));
  auto typeOf = [&](Elem elem) { return VectorType::get({kTogether}, storedType(b, elem)); };
  auto aligned = [&](auto op, Elem elem) {
    op->setAttr("alignment", b.getI64IntegerAttr(kTogether * bytesOf(elem)));
    return op;
  };
  scf::ForOp::create(b, loc, begin, end, index(kColumns), ValueRange(), [&](OpBuilder &, Location, Value column, ValueRange) {
    Value first = addIndex(column, mulIndex(own, kTogether));
    std::vector<Value> loaded(spec.nodes.size());
    for (size_t n = 0; n < loaded.size(); ++n)
      if (const LoopNode &node = spec.nodes[n]; pre.nodes[n] && node.op == LoopOp::Load && plan.columnStride(node.view) == 1) {
        Value from = buffer(node.view.buffer, node.elem), at = addIndex(pre.bases[n], first);
        loaded[n] = aligned(vector::LoadOp::create(b, loc, typeOf(node.elem), from, ValueRange{at}), node.elem);
      }
    std::vector<Values> stored(stores.size());
    for (int64_t each = 0; each < kTogether; ++each) {
      Lanes lanes{column, Value(), std::vector<Value>(loaded.size())};
      for (size_t n = 0; n < loaded.size(); ++n)
        if (loaded[n])
          lanes.values[n] = toValue(b, loc, vector::ExtractOp::create(b, loc, loaded[n], ArrayRef<int64_t>{each}), spec.nodes[n].elem);
      lane = addIndex(mulIndex(own, kTogether), index(each));
      evaluateVectors(lanes, pre);
      for (size_t i = 0; i < stores.size(); ++i) {
        const int node = spec.stores[stores[i]].node;
        stored[i].push_back(toStored(b, loc, operand(node, lanes, pre), spec.nodes[node].elem));
      }
    }
    for (size_t i = 0; i < stores.size(); ++i) {
      const LoopStore &target = spec.stores[stores[i]];
      const Elem elem = spec.nodes[target.node].elem;
      Value together = vector::FromElementsOp::create(b, loc, typeOf(elem), stored[i]), at = addIndex(pre.storeBases[i], first);
      aligned(vector::StoreOp::create(b, loc, together, buffer(target.view.buffer, elem), ValueRange{at}), elem);
    }
    scf::YieldOp::create(b, loc);
  });
  lane = own;
  return end;
}

} // namespace cinch::kernels
