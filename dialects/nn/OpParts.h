// OpParts.h: what the generated code of the ops sees. It is compiled in shards (Tables.cmake), each a source of its own.
#ifndef CINCH_DIALECTS_NN_OP_PARTS_H
#define CINCH_DIALECTS_NN_OP_PARTS_H

#include "dialects/nn/Costs.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/ShapeRules.h"
#include "dialects/ops/Optimizers.h"

namespace cinch::nn {

// C2 of update.
mlir::LogicalResult verifySlots(UpdateOp);

// Lists of labels: [[0, 1], [0]].
mlir::ParseResult parseLabelLists(mlir::OpAsmParser &, mlir::ArrayAttr &lists);
void printLabelLists(mlir::OpAsmPrinter &, mlir::Operation *, mlir::ArrayAttr lists);

} // namespace cinch::nn
#endif
