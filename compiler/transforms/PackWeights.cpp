// PackWeights.cpp: a product of bf16 in a loop along an axis reads its weights as words of two neighbours in k.
//
//     nn.scan .. with (%w) {                                    %p = words of %w : tensor<K/2 x N x 2 x bf16>
//       %y = nn.contract %x [0, 2], %w [1, 2]                   nn.scan .. with (%p) {
//     }                                                   ->      %q = nn.reshape %x : K as K/2 x 2
//                                                                 %y = nn.contract %q [0, 2, 3], %p [2, 1, 3]
//                                                               }
//
// AMX takes such words from where they lie (kernels/ContractAmx.cpp). Otherwise every trip rounds the weights and copies them into this order, which
// takes as long as the product itself where few rows are multiplied. The elements of k are summed in the same order, so no bit changes.
#include "compiler/transforms/PackWeights.h"
#include "compiler/transforms/NarrowWeights.h"

using namespace mlir;

namespace cinch {
namespace {

constexpr int64_t kBlock = 32, kSquare = 16; // of k and of columns: whole ones alone are read in place

// Weights as a product in a loop reads them.
struct Reading {
  nn::ContractOp product;
  unsigned operand = 0;              // which one they are
  int64_t ofK = 0;                   // the axis of k, of two
  Value weights;                     // of the function
  SmallVector<nn::ScanOp> loops;     // from the product's one outwards
};

// The argument of the function that `value` is in every trip, and the loops on the way; none: it is something else.
Value sameInEachTrip(Value value, SmallVectorImpl<nn::ScanOp> &loops) {
  while (auto argument = dyn_cast<BlockArgument>(value)) {
    auto scan = dyn_cast<nn::ScanOp>(argument.getOwner()->getParentOp());
    if (!scan)
      return value;
    unsigned first = scan.block().getNumArguments() - unsigned(scan.getWholes().size());
    if (argument.getArgNumber() < first)
      return {};
    loops.push_back(scan);
    value = scan.getWholes()[argument.getArgNumber() - first];
  }
  return {};
}

// The columns of a product are its result's last axis, of the operand that alone has it.
std::optional<Reading> readingOf(nn::ContractOp product) {
  const int64_t rank = nn::tensorOf(product.getResult()).getRank();
  if (!isOfBF16(product) || rank == 0)
    return std::nullopt;
  for (unsigned operand : {0u, 1u}) {
    ArrayRef<int64_t> labels = operand ? product.getRhsLabels() : product.getLhsLabels();
    ArrayRef<int64_t> others = operand ? product.getLhsLabels() : product.getRhsLabels();
    Value value = product->getOperand(operand);
    if (labels.size() != 2 || !llvm::is_contained(labels, rank - 1) || !llvm::is_contained(labels, rank) || llvm::is_contained(others, rank - 1))
      continue;
    Reading reading{product, operand, labels[0] == rank ? 0 : 1, {}, {}};
    ArrayRef<int64_t> shape = nn::tensorOf(value).getShape();
    if (shape[size_t(reading.ofK)] % kBlock || shape[size_t(1 - reading.ofK)] % kSquare || nn::hasBatch(value))
      continue;
    reading.weights = sameInEachTrip(value, reading.loops);
    if (reading.weights && !reading.loops.empty() && nn::tensorOf(reading.weights).getElementType().isF32())
      return reading;
  }
  return std::nullopt;
}

Value wordsOf(OpBuilder &b, Location loc, Value weights, int64_t ofK) {
  auto type = nn::tensorOf(weights);
  ArrayRef<int64_t> shape = type.getShape();
  SmallVector<int64_t> split = ofK == 0 ? SmallVector<int64_t>{shape[0] / 2, 2, shape[1]} : SmallVector<int64_t>{shape[0], shape[1] / 2, 2};
  Value pairs = nn::ReshapeOp::create(b, loc, RankedTensorType::get(split, type.getElementType()), weights);
  Value words = nn::TransposeOp::create(b, loc, pairs, ofK == 0 ? ArrayRef<int64_t>{0, 2, 1} : ArrayRef<int64_t>{1, 0, 2});
  return nn::CastOp::create(b, loc, nn::withElement(nn::tensorOf(words), b.getBF16Type()), words);
}

// The axis of k in two: pairs, and the elements of a pair.
Value inPairs(OpBuilder &b, nn::ContractOp product, Value x, int64_t axis) {
  auto type = nn::tensorOf(x);
  SmallVector<int64_t> shape(type.getShape());
  shape[size_t(axis)] /= 2;
  shape.insert(shape.begin() + axis + 1, 2);
  int64_t batch = nn::batchAxis(type);
  auto pairs = nn::ReshapeOp::create(
      b, product.getLoc(), nn::tensorType(shape, type.getElementType(), batch > axis ? batch + 1 : batch, batch < 0 ? 1 : nn::batchGroup(type)), x);
  for (StringRef name : {nn::kBackwardAttr, nn::kBlockAttr})
    if (Attribute attribute = product->getDiscardableAttr(name))
      pairs->setDiscardableAttr(name, attribute);
  return pairs;
}

class Packer {
public:
  explicit Packer(func::FuncOp function) : function(function) {}

  bool run() {
    SmallVector<Reading> readings;
    function.walk([&](nn::ContractOp product) {
      if (std::optional<Reading> reading = readingOf(product))
        readings.push_back(std::move(*reading));
    });
    for (Reading &reading : readings)
      pack(reading);
    for (Reading &reading : readings)
      for (nn::ScanOp scan : reading.loops) // inner ones first: then an outer one hands nothing on to them
        dropUnread(scan);
    return !readings.empty();
  }

private:
  void pack(Reading &reading) {
    nn::ContractOp product = reading.product;
    OpBuilder b = OpBuilder::atBlockBegin(&function.getBody().front());
    Value &words = copies[{reading.weights, reading.ofK}];
    if (!words)
      words = wordsOf(b, product.getLoc(), reading.weights, reading.ofK);
    Value inside = words;
    for (nn::ScanOp scan : llvm::reverse(reading.loops))
      inside = broughtInto(scan, inside);

    const int64_t k = nn::tensorOf(product.getResult()).getRank();
    unsigned other = 1 - reading.operand;
    SmallVector<int64_t> labels(other ? product.getRhsLabels() : product.getLhsLabels());
    int64_t axis = llvm::find(labels, k) - labels.begin();
    labels.insert(labels.begin() + axis + 1, k + 1);
    b.setInsertionPoint(product);
    Value pairs = inPairs(b, product, product->getOperand(other), axis);
    SmallVector<int64_t> ofWords{k, k - 1, k + 1};
    product->setOperand(other, pairs), product->setOperand(reading.operand, inside);
    product.setLhsLabels(other ? ofWords : labels), product.setRhsLabels(other ? labels : ofWords);
  }

  // Each trip of a loop sees it.
  Value broughtInto(nn::ScanOp scan, Value value) {
    Value &inside = seen[{scan, value}];
    if (!inside) {
      scan.getWholesMutable().append(value);
      inside = scan.block().addArgument(value.getType(), value.getLoc());
    }
    return inside;
  }

  static void dropUnread(nn::ScanOp scan) {
    unsigned first = scan.block().getNumArguments() - unsigned(scan.getWholes().size());
    for (unsigned i = unsigned(scan.getWholes().size()); i-- > 0;)
      if (scan.whole(i).use_empty()) {
        scan.getWholesMutable().erase(i);
        scan.block().eraseArgument(first + i);
      }
  }

  func::FuncOp function;
  DenseMap<std::pair<Value, int64_t>, Value> copies;
  DenseMap<std::pair<Operation *, Value>, Value> seen;
};

} // namespace

bool packWeights(func::FuncOp function) { return Packer(function).run(); }

} // namespace cinch
