// NNSums.h: the interpreter's larger ops, each from its definition.
#ifndef CINCH_TEST_ORACLE_NN_SUMS_H
#define CINCH_TEST_ORACLE_NN_SUMS_H

#include "dialects/nn/NN.h"
#include "test/oracle/NNInterpreter.h"

namespace cinch::oracle {

using Arrays = std::vector<Array>;

// Random numbers (the page of numbers in compiler/kernels/Philox.h, written anew).
double drawUniform(const RunState &, uint64_t key, int64_t example, int64_t element);
double drawNormal(const RunState &, uint64_t key, int64_t example, int64_t element);
double drawBelow(const RunState &, uint64_t key, int64_t example, int64_t element, int64_t n);
bool drawBool(const RunState &, uint64_t key, int64_t example, int64_t element, double probability);

Array reduceOf(nn::ReduceOp, const Array &x, const Shape &resultShape);
Array contractOf(nn::ContractOp, const Array &a, const Array &b, const Shape &resultShape);
Array convOf(nn::ConvOp, const Array &a, const Array &b, const Shape &resultShape);
Arrays poolOf(mlir::Operation *, llvm::ArrayRef<const Array *> operands);
Array gatherOf(nn::GatherOp, llvm::ArrayRef<const Array *> operands, const Shape &resultShape);
Array scatterOf(nn::ScatterAddOp, llvm::ArrayRef<const Array *> operands, const Shape &resultShape);
Array softmaxOf(const Array &x, int64_t axis, bool logarithm);
Array softmaxGradOf(const Array &y, const Array &dy, int64_t axis, bool logarithm);
Array extremeOf(const Array &x, int64_t axis, bool largest, const Shape &resultShape);
Array crossEntropyOf(const Array &logits, const Array &y, int64_t axis, double smooth, std::optional<int64_t> except);
Array crossEntropyGradOf(const Array &logits, const Array &y, const Array &dy, int64_t axis, double smooth,
                         std::optional<int64_t> except);
Arrays attendOf(nn::AttendOp, llvm::ArrayRef<const Array *> operands, const RunState &);
Arrays attendGradOf(nn::AttendGradOp, llvm::ArrayRef<const Array *> operands, const RunState &);
double learningRateOf(nn::LearningRateOp, const RunState &);
Arrays updateOf(nn::UpdateOp, llvm::ArrayRef<const Array *> operands, const RunState &);

} // namespace cinch::oracle
#endif
