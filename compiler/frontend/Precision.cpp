// Precision.cpp: what cannot be computed in `precision bf16` yet is refused, where it stands.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

static const char *missingInBF16(const Op &op) {
  switch (op.kind) {
  case OpKind::Conv: return "a convolution";
  case OpKind::MaxPool:
  case OpKind::SumPool: return "a pool";
  case OpKind::LoopState: return "a loop";
  default: return op.stream >= 0 ? "a reversible layer" : nullptr;
  }
}

void Elaborator::checkPrecision() {
  if (!program.train.bf16)
    return;
  for (const Graph *graph : {&program.step, &program.evaluation, &program.prediction})
    for (const Op &op : graph->ops)
      if (const char *what = missingInBF16(op)) {
        diags.error(Code::E0707, op.span, std::string(what) + " in `precision bf16` is not there yet").help("write precision f32");
        return;
      }
}

} // namespace cinch
