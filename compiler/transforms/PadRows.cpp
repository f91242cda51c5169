// PadRows.cpp: long rows of bf16 begin at multiples of 16 bytes.
//
//     %logits = nn.contract %x, %w : .. -> tensor<32x1024x50257xbf16, #nn.batch<0>>
//                                       -> tensor<32x1024x50257xbf16, #nn.batch<0 : pitch = 50264>>
//
// A vocabulary of 50,257 words makes rows of which seven in eight begin anywhere. Copies of boxes (TMA) and accesses of 16 bytes cannot read
// them: each element has to go through a register and be shifted into its place. Seven more elements a row spare that.
//
// A pitch says where elements lie, and only the rows of the last axis may be told apart by whoever reads them. So a length of rows is left alone
// if any op of the function takes rows of that length for something else: as a part of a longer run of elements, or as another axis.
#include "compiler/transforms/PadRows.h"

#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch {
namespace {

constexpr int64_t kTogether = 8;      // elements of 16 bytes
constexpr int64_t kFewestColumns = 512; // so at most 1.4 % more bytes

// The length of its rows along the last axis, if the value has rows of examples; else 0.
int64_t columnsOf(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  const int64_t batch = type ? nn::batchAxis(type) : -1;
  return batch < 0 || batch + 1 == type.getRank() || nn::batchGroup(type) > 1 ? 0 : type.getShape().back();
}

bool isOdd(int64_t columns) { return columns >= kFewestColumns && columns % kTogether != 0; }

// Does the op read and make every row as a row?
bool keepsRows(Operation *op) {
  if (op->hasTrait<OpTrait::Elementwise>() || isa<nn::ContractOp, nn::GatherOp, nn::BroadcastOp, nn::StopGradientOp, nn::RandomOp, nn::ConstantOp>(op))
    return true;
  auto last = [](Value value) { return nn::tensorOf(value).getRank() - 1; };
  if (auto reduce = dyn_cast<nn::ReduceOp>(op)) { // along the rows alone, or across them
    ArrayRef<int64_t> axes = reduce.getAxes();
    return !llvm::is_contained(axes, last(reduce.getX())) || axes.size() == 1;
  }
  if (auto slice = dyn_cast<nn::SliceOp>(op))
    return int64_t(slice.getAxis()) != last(slice.getX());
  return isa<nn::ArgMaxOp, nn::ArgMinOp>(op) && op->getAttrOfType<IntegerAttr>("axis").getInt() == last(op->getOperand(0));
}

// Lengths of rows that are more than that somewhere.
llvm::SmallDenseSet<int64_t> otherwiseRead(func::FuncOp function) {
  llvm::SmallDenseSet<int64_t> lengths;
  Block &body = function.getBody().front();
  function.walk([&](Operation *op) {
    if (op == function.getOperation() || (op->getBlock() == &body && keepsRows(op)))
      return;
    for (ValueRange values : {ValueRange(op->getOperands()), ValueRange(op->getResults())})
      for (Value value : values)
        lengths.insert(columnsOf(value));
  });
  return lengths;
}

// A product reads or makes it, and all readers may see another type than that of what they make.
bool isOfProduct(Value value) {
  auto reads = [](Operation *user) { return isa<nn::ContractOp, nn::CastOp, nn::ReduceOp, nn::GatherOp, nn::SliceOp, nn::ArgMaxOp, nn::ArgMinOp>(user); };
  auto multiplies = [](Operation *user) { return isa<nn::ContractOp>(user); };
  return llvm::all_of(value.getUsers(), reads) && (value.getDefiningOp<nn::ContractOp>() || llvm::any_of(value.getUsers(), multiplies));
}

} // namespace

void padRows(func::FuncOp function) {
  const llvm::SmallDenseSet<int64_t> otherwise = otherwiseRead(function);
  for (Operation &op : function.getBody().front()) {
    if (!isa<nn::ContractOp, nn::CastOp>(op))
      continue;
    Value value = op.getResult(0);
    auto type = nn::tensorOf(value);
    const int64_t columns = columnsOf(value);
    if (!type.getElementType().isBF16() || !isOdd(columns) || otherwise.contains(columns) || !isOfProduct(value))
      continue;
    const int64_t pitch = (columns + kTogether - 1) / kTogether * kTogether;
    auto padded = nn::BatchAttr::get(type.getContext(), nn::batchAxis(type), 1, pitch);
    value.setType(RankedTensorType::get(type.getShape(), type.getElementType(), padded));
  }
}

} // namespace cinch
