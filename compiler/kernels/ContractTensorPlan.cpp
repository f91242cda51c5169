// ContractTensorPlan.cpp: how the operands of a product on tensor cores lie in shared memory; plain C++, no MLIR.
#include "compiler/kernels/ContractTensor.h"

#include <algorithm>
#include <cstdlib>

namespace cinch::kernels::device {

TensorTiles::TensorTiles(const Plan &plan) {
  const ContractSpec &spec = plan.spec;
  length = spec.grain > 0 ? countOf(plan.k) / spec.k[0] * spec.grain : countOf(plan.k);
  steps = (length + kTensorStep - 1) / kTensorStep;
  for (int i : {0, 1}) {
    TensorOperand &o = operand[i];
    o.view = i == 0 ? &spec.a : &spec.b;
    const Dims &rows = i == 0 ? plan.m : plan.n;
    auto closest = [&](const Dims &of) { return of.empty() ? int64_t(1) << 40 : std::abs(strideOf(of.back(), i)); };
    o.alongK = closest(plan.k) < closest(rows);
    const Dims &inner = o.alongK ? plan.k : rows;
    o.wide = !inner.empty() && strideOf(inner.back(), i) == 1 && inner.back().size % 8 == 0 && o.view->offset % 8 == 0 &&
             !inner.back().bound[0] && !inner.back().bound[1] && (!o.alongK || length % 8 == 0);
    for (const Dims *dims : {&plan.batch, &rows, &plan.k, &plan.runs})
      for (const Dim &dim : *dims)
        o.wide = o.wide && (&dim == &inner.back() || strideOf(dim, i) % 8 == 0);
    o.copied = o.wide && o.view->elem == Elem::BF16;
    o.pitch = (o.alongK ? kTensorStep : plan.tile) + 8;
    o.bytes = (o.alongK ? plan.tile : kTensorStep) * o.pitch * 2;
  }
  pairs = !plan.n.empty() && plan.n.back().c == 1 && plan.n.back().size % 2 == 0 && spec.c.offset % 2 == 0;
  for (const Dims *dims : {&plan.batch, &plan.m, &plan.n})
    for (const Dim &dim : *dims)
      pairs = pairs && (&dim == &plan.n.back() || dim.c % 2 == 0);
  // More than two stages only help where something is on its way meanwhile.
  constexpr int64_t kShared = 48 << 10;
  if (operand[0].copied || operand[1].copied)
    stages = int(std::clamp<int64_t>(kShared / stageBytes(), 2, 4));
}

} // namespace cinch::kernels::device
