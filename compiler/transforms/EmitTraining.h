// EmitTraining.h: settings of a Program as attributes of the `nn` dialect.
#ifndef CINCH_COMPILER_TRANSFORMS_EMIT_TRAINING_H
#define CINCH_COMPILER_TRANSFORMS_EMIT_TRAINING_H

#include "compiler/frontend/Program.h"
#include "dialects/nn/NN.h"

namespace cinch {

mlir::DictionaryAttr parameterAttributes(mlir::Builder &, const Program &, const Parameter &);
nn::TrainingAttr trainingAttribute(mlir::Builder &, const Train &);
// Where the parts of Train lie among the run's values: each optimizer, the schedule, clip norm, clip value, averages.
mlir::DenseI64ArrayAttr runValuesAttribute(mlir::Builder &, const Train &);

} // namespace cinch
#endif
