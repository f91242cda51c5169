// SumInBlocks.cpp: column sums of gradients in blocks of rows.
//
//     %db = nn.reduce sum %dy [0, 1] {nn.rows_together = 32} : [32, 1024, 768] -> [768]
//
// One chain over all of its rows cannot be shared by the threads of a GPU: they would wait for one addition after the other.
#include "compiler/transforms/SumInBlocks.h"

#include "dialects/nn/Grain.h"

using namespace mlir;

namespace cinch {

static constexpr int64_t kRowsTogether = 32; // as many as a block of a bf16 product has: row blocks cut there

static bool isColumnSum(nn::ReduceOp reduce) {
  Value x = reduce.getX();
  ArrayRef<int64_t> axes = reduce.getAxes();
  int64_t batch = nn::batchAxis(x), rank = nn::tensorOf(x).getRank();
  return reduce.getReduction() == nn::Reduction::Sum && reduce->hasAttr(nn::kBackwardAttr) && nn::batchGroup(x.getType()) == 1 && batch >= 0 &&
         llvm::is_contained(axes, batch) && axes.back() + 1 < rank;
}

void sumInBlocks(func::FuncOp function) {
  if (nn::grainOf(function) > 0)
    return;
  function.walk([](nn::ReduceOp reduce) {
    if (!isColumnSum(reduce))
      return;
    int64_t rows = 1; // of an example
    for (int64_t axis : reduce.getAxes())
      if (axis != nn::batchAxis(reduce.getX()))
        rows *= nn::tensorOf(reduce.getX()).getDimSize(unsigned(axis));
    if (rows > 0 && rows % kRowsTogether == 0)
      reduce->setAttr(nn::kRowsTogetherAttr, OpBuilder(reduce).getI64IntegerAttr(kRowsTogether));
  });
}

} // namespace cinch
