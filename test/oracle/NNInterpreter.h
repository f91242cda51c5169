// NNInterpreter.h: functions of the `nn` dialect, computed op by op from the definitions in the .td, in f64, simply and
// slowly. What everything behind `nn` is compared with. It shares no code with the compiler but the dialect.
#ifndef CINCH_TEST_ORACLE_NN_INTERPRETER_H
#define CINCH_TEST_ORACLE_NN_INTERPRETER_H

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include <vector>

namespace cinch::oracle {

using Shape = std::vector<int64_t>;

// Row-major numbers; whole numbers and truth values too.
struct Array {
  Shape shape;
  std::vector<double> data;

  static Array filled(Shape shape, double value);
  int64_t rank() const { return int64_t(shape.size()); }
  int64_t size() const { return int64_t(data.size()); }
  Shape strides() const;
};
int64_t sizeOf(const Shape &);
// The index behind `index` in row-major order; false behind the last.
bool advance(Shape &index, const Shape &shape);

// What numbers depend on beside the arguments.
struct RunState {
  uint64_t seed = 0;
  int64_t step = 0, totalSteps = 0;
};

// The results of the function, in order. Fails (with a diagnostic) on an op that it does not know.
mlir::FailureOr<std::vector<Array>> interpret(mlir::func::FuncOp, llvm::ArrayRef<Array> arguments, const RunState &);

} // namespace cinch::oracle
#endif
