// Updates.h: from gradients to the results of @train.
#ifndef CINCH_COMPILER_TRANSFORMS_UPDATES_H
#define CINCH_COMPILER_TRANSFORMS_UPDATES_H

#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/NN.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {

// True for an argument that is a parameter and not frozen.
bool isTrained(mlir::func::FuncOp function, mlir::BlockArgument argument);

// Adds the gradient's norm, clipping and one update a parameter that has a gradient (in the order of the arguments),
// arguments for the optimizer's state, and returns parameters, the model's states, the optimizer's, loss, norm and learning
// rate, each with its name.
void buildUpdates(mlir::func::FuncOp function, nn::TrainingAttr training, mlir::Value loss,
                  const llvm::DenseMap<mlir::Value, mlir::Value> &gradients, nn::GradientBuilder &builder);

} // namespace cinch
#endif
