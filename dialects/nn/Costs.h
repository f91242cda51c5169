// Costs.h: what the `cost` expressions of NNOps.td are written in.
#ifndef CINCH_DIALECTS_NN_COSTS_H
#define CINCH_DIALECTS_NN_COSTS_H

#include "dialects/nn/NN.h"

namespace cinch::nn {

double elementsOf(mlir::Value);
double contractFlops(ContractOp);
double convFlops(ConvOp);
double attendFlops(AttendOp);
double attendGradFlops(AttendGradOp);

} // namespace cinch::nn
#endif
