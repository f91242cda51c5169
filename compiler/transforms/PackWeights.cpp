// PackWeights.cpp: a product in a loop along an axis reads a copy of its weights, in the order in which this CPU multiplies them.
//
//     nn.scan .. with (%w) {                                    %t = nn.transpose %w : tensor<K x N x f32>
//       %y = nn.contract %x [0, 2], %w [1, 2]             ->    nn.scan .. with (%t) {
//     }                                                           %y = nn.contract %x [0, 2], %t [2, 1]
//                                                               }
//
// So it is where the columns of the product do not lie beside each other. Copies for products of bf16 are rounded, and those for AMX hold its words of two
// neighbours in k:
//
//     %y = nn.contract %x [0, 2], %w [1, 2]               ->    %q = nn.reshape %x : K as K/2 x 2
//                                                               %y = nn.contract %q [0, 2, 3], %p [2, 1, 3]         %p : tensor<K/2 x N x 2 x bf16>
//
// The product of few rows reads a copy where it lies (kernels/ContractBlocks.cpp). Otherwise every trip rounds the weights and copies them into such an
// order, which takes as long as the product itself. The elements of k are summed in the same order, so no bit changes.
#include "compiler/transforms/PackWeights.h"
#include "compiler/transforms/NarrowWeights.h"

using namespace mlir;

namespace cinch {
namespace {

constexpr int64_t kBlock = 32, kSquare = 16; // of k and of columns: AMX reads whole ones alone in place
constexpr int64_t kFewTrips = 4;             // fewer of them are not worth a copy
constexpr int64_t kFewRows = 16, kManyRows = 64; // of f32 and f64: with fewer ones, or more, copies are worth nothing (measured on Zen 4)

// Weights as a product in a loop reads them.
struct Reading {
  nn::ContractOp product;
  unsigned operand = 0;              // which one they are
  int64_t ofK = 0;                   // the axis of k, of two
  bool words = false;                // AMX reads them as such
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

bool isWorthACopy(const Reading &reading, bool rounds) {
  nn::ContractOp product = reading.product;
  auto weights = nn::tensorOf(reading.weights), result = nn::tensorOf(product.getResult());
  int64_t trips = 1;
  for (nn::ScanOp loop : reading.loops)
    trips *= int64_t(loop.getTrips());
  if (rounds)
    return weights.getElementType().isF32() && (reading.words || trips >= kFewTrips);
  const int64_t rows = result.getNumElements() / std::max<int64_t>(1, result.getShape().back());
  return reading.ofK == 1 && trips >= kFewTrips && rows >= kFewRows && rows <= kManyRows; // on the other axis they are in order
}

// The columns of a product are its result's last axis, of the operand that alone has it.
std::optional<Reading> readingOf(nn::ContractOp product, bool amx) {
  const int64_t rank = nn::tensorOf(product.getResult()).getRank();
  if (rank == 0)
    return std::nullopt;
  for (unsigned operand : {0u, 1u}) {
    ArrayRef<int64_t> labels = operand ? product.getRhsLabels() : product.getLhsLabels();
    ArrayRef<int64_t> others = operand ? product.getLhsLabels() : product.getRhsLabels();
    Value value = product->getOperand(operand);
    if (labels.size() != 2 || !llvm::is_contained(labels, rank - 1) || !llvm::is_contained(labels, rank) || llvm::is_contained(others, rank - 1))
      continue;
    if (nn::hasBatch(value))
      continue;
    Reading reading{product, operand, labels[0] == rank ? 0 : 1, false, {}, {}};
    ArrayRef<int64_t> shape = nn::tensorOf(value).getShape();
    const bool rounds = isOfBF16(product);
    reading.words = amx && rounds && shape[size_t(reading.ofK)] % kBlock == 0 && shape[size_t(1 - reading.ofK)] % kSquare == 0;
    reading.weights = sameInEachTrip(value, reading.loops);
    if (reading.weights && !reading.loops.empty() && isWorthACopy(reading, rounds))
      return reading;
  }
  return std::nullopt;
}

// Pairs along an axis, and the elements of a pair.
SmallVector<int64_t> inPairs(ArrayRef<int64_t> shape, int64_t axis) {
  SmallVector<int64_t> cut(shape);
  cut[size_t(axis)] /= 2;
  cut.insert(cut.begin() + axis + 1, 2);
  return cut;
}

Value copyOf(OpBuilder &b, const Reading &reading) {
  nn::ContractOp product = reading.product;
  Location loc = product.getLoc();
  auto type = nn::tensorOf(reading.weights);
  Value copy = reading.weights;
  if (reading.words) {
    copy = nn::ReshapeOp::create(b, loc, RankedTensorType::get(inPairs(type.getShape(), reading.ofK), type.getElementType()), copy);
    copy = nn::TransposeOp::create(b, loc, copy, reading.ofK == 0 ? ArrayRef<int64_t>{0, 2, 1} : ArrayRef<int64_t>{1, 0, 2});
  } else if (reading.ofK == 1) {
    copy = nn::TransposeOp::create(b, loc, copy, ArrayRef<int64_t>{1, 0});
  }
  return isOfBF16(product) ? Value(nn::CastOp::create(b, loc, nn::withElement(nn::tensorOf(copy), b.getBF16Type()), copy)) : copy;
}

// The other operand, k in pairs.
Value otherInPairs(OpBuilder &b, nn::ContractOp product, Value x, int64_t axis) {
  auto type = nn::tensorOf(x);
  const int64_t batch = nn::batchAxis(type);
  auto pairs = nn::ReshapeOp::create(
      b, product.getLoc(),
      nn::tensorType(inPairs(type.getShape(), axis), type.getElementType(), batch > axis ? batch + 1 : batch, batch < 0 ? 1 : nn::batchGroup(type)), x);
  for (StringRef name : {nn::kBackwardAttr, nn::kBlockAttr})
    if (Attribute attribute = product->getDiscardableAttr(name))
      pairs->setDiscardableAttr(name, attribute);
  return pairs;
}

class Packer {
public:
  Packer(func::FuncOp function, bool amx) : function(function), amx(amx) {}

  bool run() {
    SmallVector<Reading> readings;
    function.walk([&](nn::ContractOp product) {
      if (std::optional<Reading> reading = readingOf(product, amx))
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
    Value &copy = copies[{reading.weights, int(reading.ofK) + 2 * int(isOfBF16(product)) + 4 * int(reading.words)}];
    if (!copy)
      copy = copyOf(b, reading);
    Value inside = copy;
    for (nn::ScanOp scan : llvm::reverse(reading.loops))
      inside = broughtInto(scan, inside);

    const int64_t k = nn::tensorOf(product.getResult()).getRank();
    const bool isLeft = reading.operand == 0;
    auto setLabels = [&](bool ofLeft, ArrayRef<int64_t> labels) { ofLeft ? product.setLhsLabels(labels) : product.setRhsLabels(labels); };
    product->setOperand(reading.operand, inside);
    if (!reading.words)
      return setLabels(isLeft, {k, k - 1});
    setLabels(isLeft, {k, k - 1, k + 1});

    SmallVector<int64_t> labels(isLeft ? product.getRhsLabels() : product.getLhsLabels());
    const int64_t axis = llvm::find(labels, k) - labels.begin();
    labels.insert(labels.begin() + axis + 1, k + 1);
    b.setInsertionPoint(product);
    product->setOperand(1 - reading.operand, otherInPairs(b, product, product->getOperand(1 - reading.operand), axis));
    setLabels(!isLeft, labels);
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
  bool amx;
  DenseMap<std::pair<Value, int>, Value> copies; // of weights: by the axis of k, whether they are rounded, and whether they are words
  DenseMap<std::pair<Operation *, Value>, Value> seen;
};

} // namespace

bool packWeights(func::FuncOp function, bool amx) { return Packer(function, amx).run(); }

} // namespace cinch
