// ContractTensorPlan.cpp: how the operands of a product on tensor cores lie in shared memory; plain C++, no MLIR.
#include "compiler/kernels/ContractTensor.h"

#include <algorithm>
#include <cstdlib>

namespace cinch::kernels::device {

// How an operand is read, whichever instruction multiplies. `length`: of a run of k.
static TensorOperand operandOf(const Plan &plan, int which, int64_t length) {
  TensorOperand o;
  o.view = which == 0 ? &plan.spec.a : &plan.spec.b;
  const Dims &rows = which == 0 ? plan.m : plan.n;
  auto closest = [&](const Dims &of) { return of.empty() ? int64_t(1) << 40 : std::abs(strideOf(of.back(), which)); };
  o.alongK = closest(plan.k) < closest(rows);
  o.size = plan.spec.tf32 ? 4 : 2;
  const int64_t chunk = kTensorChunkBytes / o.size;
  const Dims &inner = o.alongK ? plan.k : rows;
  o.wide = o.view->alignment % kTensorChunkBytes == 0 && o.view->offset % chunk == 0 && !inner.empty() && strideOf(inner.back(), which) == 1 &&
           inner.back().size % chunk == 0 && !inner.back().bound[0] && !inner.back().bound[1] && (!o.alongK || length % chunk == 0);
  for (const Dims *dims : {&plan.batch, &rows, &plan.k, &plan.runs})
    for (const Dim &dim : *dims)
      o.wide = o.wide && (&dim == &inner.back() || strideOf(dim, which) % chunk == 0);
  o.copied = plan.spec.tf32 || (o.wide && o.view->elem == Elem::BF16);
  return o;
}
static int64_t lengthOfRun(const Plan &plan) {
  return plan.spec.grain > 0 ? countOf(plan.k) / plan.spec.k[0] * plan.spec.grain : countOf(plan.k);
}

bool outputsArePaired(const Plan &plan) {
  bool pairs = !plan.n.empty() && plan.n.back().c == 1 && plan.n.back().size % 2 == 0 && plan.spec.c.offset % 2 == 0 &&
               plan.spec.c.alignment % (2 * bytesOf(plan.spec.c.elem)) == 0;
  for (const Dims *dims : {&plan.batch, &plan.m, &plan.n})
    for (const Dim &dim : *dims)
      pairs = pairs && (&dim == &plan.n.back() || dim.c % 2 == 0);
  return pairs;
}

bool outputsAreRows(const Plan &plan) { return plan.spec.c.elem == Elem::BF16 && plan.n.size() == 1 && plan.n[0].c == 1; }
int64_t columnsOfRows(const Plan &plan) {
  int64_t pitch = 0;
  for (const Dims *dims : {&plan.batch, &plan.m})
    for (const Dim &dim : *dims)
      pitch = pitch == 0 ? dim.c : std::min(pitch, dim.c);
  const int64_t whole = (plan.N + 7) / 8 * 8;
  return pitch == whole ? whole : plan.N;
}
bool rowsAreAligned(const Plan &plan) {
  bool aligned = plan.spec.c.alignment % kTensorChunkBytes == 0 && columnsOfRows(plan) % 8 == 0 && plan.spec.c.offset % 8 == 0;
  for (const Dims *dims : {&plan.batch, &plan.m})
    for (const Dim &dim : *dims)
      aligned = aligned && dim.c % 8 == 0;
  return aligned;
}

TensorTiles::TensorTiles(const Plan &plan)
    : size(plan.spec.tf32 ? 4 : 2), step(kTensorStepBytes / size), length(lengthOfRun(plan)), steps((length + step - 1) / step) {
  for (int i : {0, 1}) {
    TensorOperand &o = operand[i];
    o = operandOf(plan, i, length);
    o.pitch = o.alongK ? step + kTensorChunkBytes / size : plan.tileM + 8;
    o.bytes = (o.alongK ? plan.tileM : step) * o.pitch * size;
  }
  // More than two stages only help where something is on its way meanwhile.
  constexpr int64_t kShared = 48 << 10;
  if (operand[0].copied || operand[1].copied)
    stages = int(std::clamp<int64_t>(kShared / stageBytes(), 2, 4));
}

// None, where an axis of the step is several indices in memory, or where the places of memory are none that a map can name: it begins at a multiple
// of 16 bytes, its first axis has neighbours, the others lie apart by multiples of 16 bytes and of one another.
static OperandMap mapOf(const Plan &plan, int which, const TensorOperand &o, int64_t length) {
  const Dims &rows = which == 0 ? plan.m : plan.n;
  if (o.view->elem != Elem::BF16 || rows.size() != 1 || plan.k.size() != 1 || o.view->offset % 8 ||
      o.view->alignment % kTensorChunkBytes)
    return {};
  struct Axis {
    OperandMap::Walk walk;
    int64_t size, stride, box;
  };
  std::vector<Axis> axes;
  const int64_t tile = which == 0 ? plan.tileM : plan.tileN, ofK = strideOf(plan.k[0], which);
  axes.push_back({{OperandMap::kAlong, 0}, length, ofK, kGroupStep});
  axes.push_back({{OperandMap::kRow, 0}, rows[0].size, strideOf(rows[0], which), o.alongK ? tile : 64});
  if (plan.K > length)
    axes.push_back({{OperandMap::kGrain, 0}, plan.K / length, ofK * length, 1});
  for (auto [dims, group] : {std::pair(&plan.batch, OperandMap::kBatch), std::pair(&plan.runs, OperandMap::kRun)})
    for (size_t i = 0; i < dims->size(); ++i)
      if (int64_t stride = strideOf((*dims)[i], which)) // else it is the same everywhere
        axes.push_back({{group, i}, (*dims)[i].size, stride, 1});
  std::stable_sort(axes.begin(), axes.end(), [](const Axis &x, const Axis &y) { return x.stride < y.stride; });
  bool fits = axes.size() <= 5 && axes[0].stride == 1 && axes[0].walk.group == (o.alongK ? OperandMap::kAlong : OperandMap::kRow);
  OperandMap made;
  for (size_t i = 0; i < axes.size(); ++i) {
    fits = fits && (i == 0 || (axes[i].stride % 8 == 0 && axes[i].stride % axes[i - 1].stride == 0)) && axes[i].size < int64_t(1) << 31 &&
           axes[i].stride < int64_t(1) << 38;
    made.map.axes.push_back({axes[i].size, axes[i].stride * 2, axes[i].box});
    made.walks.push_back(axes[i].walk);
  }
  made.map.buffer = o.view->buffer, made.map.byte = o.view->offset * 2;
  return fits ? made : OperandMap();
}

GroupTiles::GroupTiles(const Plan &plan) : length(lengthOfRun(plan)), steps((length + kGroupStep - 1) / kGroupStep) {
  for (int i : {0, 1}) {
    operand[i] = operandOf(plan, i, length);
    operand[i].pitch = kGroupStep;
    operand[i].bytes = linesOf(i, i == 0 ? plan.tileM : plan.tileN) * kGroupStep * 2;
    maps[i] = mapOf(plan, i, operand[i], length);
    operand[i].copied = operand[i].copied && !isMapped(i);
    const Dims &rows = i == 0 ? plan.m : plan.n;
    operand[i].shifted = !operand[i].wide && !isMapped(i) && operand[i].view->elem == Elem::BF16 && rows.size() == 1 && plan.k.size() == 1 &&
                         strideOf(operand[i].alongK ? plan.k[0] : rows[0], i) == 1;
  }
  constexpr int64_t kShared = 192 << 10;
  stages = int(kShared / stageBytes());
  // A stage is given back one step behind the one that reads it; so two stages are not on their way.
  ahead = operand[0].copied || operand[1].copied ? stages - 2 : 0;
}

} // namespace cinch::kernels::device
