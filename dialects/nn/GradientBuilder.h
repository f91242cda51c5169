// GradientBuilder.h: what derivative rules build with. Simplifies only where no bit can change: times one, over one, an
// operation on two constants (one rounding, the same as at run time), shape work on a constant.
#ifndef CINCH_DIALECTS_NN_GRADIENT_BUILDER_H
#define CINCH_DIALECTS_NN_GRADIENT_BUILDER_H

#include "dialects/nn/PlainTypes.h"
#include "llvm/ADT/DenseMap.h"

namespace cinch::nn {

class GradientBuilder {
public:
  using Value = mlir::Value;
  using Type = mlir::RankedTensorType;

  explicit GradientBuilder(mlir::OpBuilder &builder) : builder(builder), location(builder.getUnknownLoc()) {}

  void setLocation(mlir::Location place) { location = place; }
  // Every op made so far, in order.
  llvm::ArrayRef<mlir::Operation *> made() const { return operations; }

  Value constant(Type type, double number);
  Value like(Value value, double number) { return constant(tensorOf(value), number); }

  Value neg(Value x);
  Value add(Value a, Value b);
  Value sub(Value a, Value b);
  Value mul(Value a, Value b);
  Value div(Value a, Value b);
  // x to a constant power: products for whole exponents up to 16, roots for halves, else `pow`. The one definition that the
  // emitter and the derivatives share.
  Value power(Value x, double exponent);
  Value compare(Comparison comparison, Value a, Value b);
  Value where(Value condition, Value a, Value b);
  Value broadcast(Value x, llvm::ArrayRef<int64_t> axes, Type type);
  Value reshape(Value x, Type type);
  // In bf16; of a value that was widened from there, that one.
  Value rounded(Value x);
  Value transpose(Value x, llvm::ArrayRef<int64_t> permutation);
  Value sum(Value x, llvm::ArrayRef<int64_t> axes);

  // Any other op.
  template <typename Op, typename... Args> Op make(Args &&...args) {
    auto op = Op::create(builder, location, std::forward<Args>(args)...);
    operations.push_back(op);
    return op;
  }
  // An op of the table (PlainTypes.h).
  mlir::Operation *make(OpKind kind, llvm::ArrayRef<Value> operands, llvm::ArrayRef<AttrValue> attributes, Type result) {
    return operations.emplace_back(createFromTable(builder, location, kind, operands, attributes, result));
  }

  // For ops that are not made by a builder's call: they are noted as made.
  mlir::OpBuilder &opBuilder() { return builder; }
  void note(mlir::Operation *op) { operations.push_back(op); }
  mlir::Location place() const { return location; }

private:
  Value fold(Value a, Value b, double (*operation)(double, double));

  mlir::OpBuilder &builder;
  mlir::Location location;
  llvm::SmallVector<mlir::Operation *> operations;
  llvm::DenseMap<std::pair<mlir::Type, uint64_t>, Value> constants; // by type and bits of the number
};

} // namespace cinch::nn
#endif
