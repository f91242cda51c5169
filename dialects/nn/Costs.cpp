// Costs.cpp: operation counts of the larger ops. The others stand in NNOps.td.
#include "dialects/nn/Costs.h"
#include "dialects/nn/Winograd.h"

using namespace mlir;

namespace cinch::nn {

double elementsOf(Value value) { return double(tensorOf(value).getNumElements()); }

double contractFlops(ContractOp op) {
  double products = elementsOf(op.getResult());
  auto lhs = op.getLhs().getType();
  for (auto [axis, label] : llvm::enumerate(op.getLhsLabels()))
    if (label >= op.getType().getRank())
      products *= double(lhs.getDimSize(axis));
  return 2 * products;
}

// Every tap of every output, those in the padding too.
// By Winograd's minimal filtering 16 products stand for 36; what is added to transform the operands does not count.
double convFlops(ConvOp op) {
  auto filter = tensorOf(op.part(ConvPart::Filter)).getShape();
  double ofDefinition = 2 * elementsOf(op.part(ConvPart::Output)) * double(filter[0] * filter[1] * filter[2]);
  return op->hasAttr(kWinogradAttr) ? ofDefinition * 16 / 36 : ofDefinition;
}

// Two products a score (causal: half of them), and the softmax.
static double scores(Value q, Value k, bool causal) {
  auto type = tensorOf(q);
  double count = elementsOf(q) / double(type.getShape().back()) * double(tensorOf(k).getShape().drop_back().back());
  return causal ? count / 2 : count;
}

double attendFlops(AttendOp op) {
  double products = double(op.getQ().getType().getShape().back() + op.getV().getType().getShape().back());
  return scores(op.getQ(), op.getK(), op.getCausal()) * (2 * products + 14);
}

// Scores again, then dv, dp, dq and dk.
double attendGradFlops(AttendGradOp op) {
  double products = double(3 * op.getQ().getType().getShape().back() + 2 * op.getV().getType().getShape().back());
  return scores(op.getQ(), op.getK(), op.getCausal()) * (2 * products + 18);
}

} // namespace cinch::nn
