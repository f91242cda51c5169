// NN.h: the one header of the `nn` dialect.
#ifndef CINCH_DIALECTS_NN_NN_H
#define CINCH_DIALECTS_NN_NN_H

#include "mlir/Bytecode/BytecodeOpInterface.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinAttributes.h"
#include "mlir/IR/BuiltinTypes.h"
#include "mlir/IR/Dialect.h"
#include "mlir/IR/OpDefinition.h"
#include "mlir/IR/OpImplementation.h"
#include "mlir/IR/TensorEncoding.h"
#include "mlir/Interfaces/FunctionInterfaces.h"
#include "mlir/Interfaces/InferTypeOpInterface.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace cinch {
struct OptimizerRule;
}

namespace cinch::nn {

class GradientBuilder;

// The derivative is zero by definition (see Interfaces.td).
template <typename Op> class NoGradient : public mlir::OpTrait::TraitBase<Op, NoGradient> {};

// Names of discardable attributes (see the dialect's description).
inline constexpr llvm::StringLiteral kPathAttr = "nn.path", kInitAttr = "nn.init", kOptimizerAttr = "nn.optimizer",
                                     kDecaysAttr = "nn.decays", kFrozenAttr = "nn.frozen", kStateAttr = "nn.state",
                                     kAverageAttr = "nn.average",
                                     kSlotAttr = "nn.slot",
                                     kFieldAttr = "nn.field", kValidRowsAttr = "nn.valid_rows", kNameAttr = "nn.name",
                                     kTrainingAttr = "nn.training", kRunValuesAttr = "nn.run_values",
                                     kDelayAttr = "nn.delay",
                                     kKeepAttr = "nn.keep",
                                     kRecomputeAttr = "nn.recompute", kStageAttr = "nn.ends_stage", kBlockAttr = "nn.block",
                                     kBlockEndAttr = "nn.block_end", kBackwardAttr = "nn.backward",
                                     kBF16Attr = "nn.bf16", kRoundedAttr = "nn.rounded", kLayerAttr = "nn.layer";

// The slot that holds a parameter as it was before the last update, if training has a delay.
inline std::string previousOf(llvm::StringRef path) { return (path + ".prev").str(); }

// Names of the functions of a program.
inline constexpr llvm::StringLiteral kStepName = "step", kTrainName = "train", kEvaluationName = "evaluation",
                                     kPredictionName = "prediction";

inline mlir::RankedTensorType tensorOf(mlir::Value value) {
  return mlir::cast<mlir::RankedTensorType>(value.getType());
}
bool isF64Scalar(mlir::Type);

// The batch axis of a type; -1: none.
int64_t batchAxis(mlir::Type);
inline int64_t batchAxis(mlir::Value value) { return batchAxis(value.getType()); }
int64_t batchGroup(mlir::Type); // examples in one element of the batch axis
// Elements in memory from the begin of one row along the last axis to that of the next (BatchAttr's pitch), and in all.
int64_t rowPitch(mlir::RankedTensorType);
int64_t elementsInMemory(mlir::RankedTensorType);
inline bool hasBatch(mlir::Value value) { return batchAxis(value) >= 0; }
// True if an operand or a result of the op has the batch axis: such work lies inside the micro-batch loop.
bool touchesBatch(mlir::Operation *);
// A micro-batch of a function is a multiple of this: of its grain (Grain.h) and of the groups of examples that have a mean.
int64_t examplesTogether(mlir::Operation *function);
int64_t examplesOfGroups(mlir::Operation *function); // the same without the grain
// Examples in the batch of a function: the size of its batch axes (1 if there is none).
int64_t batchOf(mlir::FunctionOpInterface);

mlir::RankedTensorType tensorType(llvm::ArrayRef<int64_t> shape, mlir::Type element, int64_t batch, int64_t group = 1);
mlir::RankedTensorType withElement(mlir::RankedTensorType, mlir::Type element);

// The number that fills a value, if a constant (through broadcasts) does.
std::optional<double> splatNumber(mlir::Value);

// Where an op comes from, for people: path of the instance ("" for the train block), file and line (0: unknown).
llvm::StringRef instancePath(mlir::Location);
mlir::FileLineColLoc sourcePlace(mlir::Location);
// The same, or for text of the prelude the place in the user's file that led there.
mlir::FileLineColLoc userPlace(mlir::Location);
// What an op is called in messages: `log`, `gradient of sqrt`, `cross_entropy` for each of the ops that it is made of. `called`
// gives a location a name of its own; without one it follows from the op.
mlir::Location called(mlir::Location, const llvm::Twine &name);
std::string nameOf(mlir::Operation *);

} // namespace cinch::nn

#include "dialects/nn/NNDialect.h.inc"
#include "dialects/nn/NNEnums.h.inc"
#include "dialects/nn/Interfaces.h.inc"
#define GET_ATTRDEF_CLASSES
#include "dialects/nn/NNAttrs.h.inc"
#define GET_OP_CLASSES
#include "dialects/nn/NNOps.h.inc"

#endif
