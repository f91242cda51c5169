// LoopWide.cpp: how a team of a GPU walks along columns of which nothing is summed: a thread has four or eight neighbours at a time, which it
// loads and stores together, 16 bytes of f32 or of bf16. Which thread has which column changes no number.
//
// Rows of an odd length begin anywhere. If they do so in all buffers alike, columns before the first place that such accesses may
// begin at are done one by one, and so are those behind the last whole round of the team. So are all where a buffer begins anywhere.
#include "compiler/kernels/LoopEmitter.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "llvm/ADT/STLExtras.h"

#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

// The loads of which a Select takes one by its address.
void LoopEmitter::chosenFrom(int node, std::vector<int> &loads) const {
  const LoopNode &n = spec.nodes[node];
  if (n.op != LoopOp::Select)
    return loads.push_back(node);
  chosenFrom(n.args[1], loads);
  chosenFrom(n.args[2], loads);
}

// Everything that is loaded along the columns and all that is stored lies side by side. What several passes keep in scratch stays with the
// thread that has put it there.
LoopEmitter::Wide LoopEmitter::wideOf(const std::vector<int> &stores, const Preheader &pre) const {
  std::vector<std::pair<const View *, Elem>> views;
  std::vector<int> chosen;
  Wide wide;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!pre.nodes[n])
      continue;
    if (plan.keptBy[n] >= 0 || node.op == LoopOp::LoadAt || node.op == LoopOp::ReduceChain)
      return {};
    if (plan.selectsAddress[n])
      chosenFrom(int(n), chosen);
    if (node.op == LoopOp::Load && plan.columnStride(node.view) != 0) {
      views.push_back({&node.view, node.elem});
      wide.base = pre.bases[n];
    }
  }
  for (size_t i = 0; i < stores.size(); ++i) {
    const LoopStore &target = spec.stores[stores[i]];
    if (target.copies != 1)
      return {};
    views.push_back({&target.view, spec.nodes[target.node].elem});
    wide.base = pre.storeBases[i];
  }
  for (int load : chosen)
    views.push_back({&spec.nodes[load].view, spec.nodes[load].elem});
  const bool isShort = std::any_of(views.begin(), views.end(), [](auto &view) { return bytesOf(view.second) <= 2; });
  for (int64_t together : {8, 4}) {
    auto beyond = [&](const View &view) { // what is left of the number of the first column
      std::vector<int64_t> rest{view.offset};
      rest.insert(rest.end(), view.strides.begin(), view.strides.end() - 1);
      for (int64_t &number : rest)
        number = (number % together + together) % together;
      return rest;
    };
    const bool suits = !views.empty() && std::all_of(views.begin(), views.end(), [&](auto &view) {
      return view.second != Elem::F64 && plan.columnStride(*view.first) == 1 && beyond(*view.first) == beyond(*views.front().first);
    });
    if (!suits || (together == 8 && !isShort))
      continue;
    std::vector<int64_t> rest = beyond(*views.front().first);
    wide.aligned = std::all_of(rest.begin(), rest.end(), [](int64_t number) { return number == 0; });
    if (spec.cols < (wide.aligned ? 1 : 4) * together * kLoopLanes)
      continue;
    const bool areChosenAligned = wide.aligned && std::all_of(chosen.begin(), chosen.end(), [&](int load) {
      const std::vector<int64_t> &strides = spec.nodes[load].atStrides;
      return std::all_of(strides.begin(), strides.end(), [&](int64_t stride) { return stride % together == 0; });
    });
    if (!chosen.empty() && !areChosenAligned)
      continue;
    wide.together = together;
    return wide;
  }
  return {};
}

// One column a thread.
void LoopEmitter::runNarrow(Value from, Value to, const std::vector<int> &stores, const Preheader &pre) {
  scf::ForOp::create(b, loc, from, to, index(kLoopLanes), ValueRange(), [&](OpBuilder &, Location, Value column, ValueRange) {
    Lanes lanes{column, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, addIndex(column, lane), to), {}};
    evaluateTogether(lanes, pre, [](size_t) {});
    for (size_t i = 0; i < stores.size(); ++i)
      storeColumns(stores[i], pre.storeBases[i], operand(spec.stores[stores[i]].node, lanes, pre), lanes);
    scf::YieldOp::create(b, loc);
  });
}

// Buffers begin at 16 bytes, but for slices of a value that a loop walks along: its trips are as many bytes apart as they have.
Value LoopEmitter::basesAreAligned() {
  Value bits = index(0);
  for (auto &[number, byte] : bufferBytes)
    bits = arith::OrIOp::create(b, loc, bits, byte);
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, arith::AndIOp::create(b, loc, bits, index(15)), index(0));
}

// What memory holds of this thread's neighbours, where the team's columns begin at `column`.
SmallVector<LoopEmitter::Lanes> LoopEmitter::loadWide(const Wide &wide, Value column, const Preheader &pre) {
  const int64_t together = wide.together;
  Value first = addIndex(column, mulIndex(lane, together));
  SmallVector<Lanes> columns(size_t(together), Lanes{column, Value(), std::vector<Value>(spec.nodes.size())});
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    const bool loads = plan.selectsAddress[n] || (node.op == LoopOp::Load && plan.columnStride(node.view) == 1);
    if (!pre.nodes[n] || !loads)
      continue;
    Value from = plan.selectsAddress[n] ? viewAt(index(0), node.elem) : buffer(node.view.buffer, node.elem);
    Value at = addIndex(pre.bases[n], first);
    auto loaded = vector::LoadOp::create(b, loc, accessOf(node.elem, together), from, ValueRange{at});
    loaded->setAttr("alignment", alignmentOf(node.elem, together));
    for (int64_t each = 0; each < together; ++each)
      columns[each].values[n] = toValue(b, loc, vector::ExtractOp::create(b, loc, loaded, ArrayRef<int64_t>{each}), node.elem);
  }
  return columns;
}

// Reductions that give the same in any order (a maximum, say), so that which thread has which column does not count: two accesses of a thread at a
// time. Returns where the rest of the row begins.
Value LoopEmitter::reduceWide(const Wide &wide, const std::vector<int> &reductions, Values &carried, const Preheader &pre) {
  constexpr int64_t kTogether = 2;
  const int64_t round = wide.together * kLoopLanes, width = kTogether * round;
  const size_t count = carried.size();
  Value end = arith::SelectOp::create(b, loc, basesAreAligned(), index(spec.cols / width * width), index(0));
  Values sums;
  for (int64_t u = 0; u < kTogether; ++u)
    sums.append(carried.begin(), carried.end());
  auto loop = scf::ForOp::create(b, loc, index(0), end, index(width), sums, [&](OpBuilder &, Location, Value column, ValueRange arguments) {
    Values next(arguments.begin(), arguments.end());
    std::vector<SmallVector<Lanes>> loaded;
    for (int64_t u = 0; u < kTogether; ++u)
      loaded.push_back(loadWide(wide, addIndex(column, index(u * round)), pre));
    for (auto [u, columns] : llvm::enumerate(loaded)) {
      Value own = lane;
      auto turnTo = [&](size_t each) { lane = addIndex(mulIndex(own, wide.together), index(int64_t(each))); };
      evaluateTogether(columns, pre, turnTo);
      for (auto [each, lanes] : llvm::enumerate(columns)) {
        turnTo(each);
        for (size_t i = 0; i < count; ++i)
          accumulate(reductions[i], MutableArrayRef<Value>(next).slice(u * count + i, 1), lanes, pre);
      }
      lane = own;
    }
    scf::YieldOp::create(b, loc, next);
  });
  carried.assign(loop.getResults().begin(), loop.getResults().begin() + count);
  for (size_t at = count; at < sums.size(); ++at)
    carried[at % count] = combine(spec.nodes[reductions[at % count]].reduce, carried[at % count], loop.getResult(unsigned(at)));
  return end;
}

void LoopEmitter::runWide(const Wide &wide, const std::vector<int> &stores, const Preheader &pre) {
  const int64_t together = wide.together, round = together * kLoopLanes;
  Value own = lane, begin = columnBegin;
  if (!wide.aligned) {
    auto within = [&](Value x) -> Value { return arith::AndIOp::create(b, loc, x, index(together - 1)); };
    Value before = within(arith::SubIOp::create(b, loc, index(0), within(addIndex(wide.base, columnBegin))));
    begin = addIndex(columnBegin, before);
    runNarrow(columnBegin, arith::MinSIOp::create(b, loc, begin, columnEnd), stores, pre);
  }
  Value rest = arith::MaxSIOp::create(b, loc, arith::SubIOp::create(b, loc, columnEnd, begin), index(0));
  rest = arith::SelectOp::create(b, loc, basesAreAligned(), rest, index(0));
  Value end = addIndex(begin, mulIndex(arith::DivUIOp::create(b, loc, rest, index(round)), round));
  scf::ForOp::create(b, loc, begin, end, index(round), ValueRange(), [&](OpBuilder &, Location, Value column, ValueRange) {
    Value first = addIndex(column, mulIndex(own, together));
    SmallVector<Lanes> columns = loadWide(wide, column, pre);
    for (size_t n = 0; n < spec.nodes.size(); ++n)
      if (pre.nodes[n] && sharesDraw(int(n), wide))
        for (auto [lanes, flag] : llvm::zip_equal(columns, sharedDraw(int(n), column)))
          lanes.values[n] = flag;
    evaluateTogether(columns, pre, [&](size_t each) { lane = addIndex(mulIndex(own, together), index(int64_t(each))); });
    lane = own;
    for (size_t i = 0; i < stores.size(); ++i) {
      const LoopStore &target = spec.stores[stores[i]];
      const Elem elem = spec.nodes[target.node].elem;
      Values stored;
      for (const Lanes &lanes : columns)
        stored.push_back(toStored(b, loc, operand(target.node, lanes, pre), elem));
      Value all = vector::FromElementsOp::create(b, loc, accessOf(elem, together), stored), at = addIndex(pre.storeBases[i], first);
      vector::StoreOp::create(b, loc, all, buffer(target.view.buffer, elem), ValueRange{at})->setAttr("alignment", alignmentOf(elem, together));
    }
    scf::YieldOp::create(b, loc);
  });
  runNarrow(end, columnEnd, stores, pre);
}

} // namespace cinch::kernels
