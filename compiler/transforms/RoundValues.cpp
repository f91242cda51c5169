// RoundValues.cpp: `precision bf16`: where values are rounded is decided here, once, before gradients are made. What is stored later
// has no say in it: a value of type bf16 is rounded, wherever it lies.
#include "compiler/transforms/Hints.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Reversible.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

namespace cinch {
#define GEN_PASS_DEF_ROUNDVALUES
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

bool isF32(Value value) { return nn::tensorOf(value).getElementType().isF32(); }
bool isBF16(Value value) { return nn::tensorOf(value).getElementType().isBF16(); }

class Rounder {
public:
  explicit Rounder(MLIRContext *context) : builder(context) {}

  void round(Block &block) {
    SmallVector<Operation *> ops;
    for (Operation &op : block) {
      ops.push_back(&op);
      if (auto stream = op.getAttrOfType<IntegerAttr>(nn::kStreamAttr))
        streams.insert(op.getOperand(unsigned(stream.getInt())));
    }
    for (Operation *op : ops)
      if (auto scan = dyn_cast<nn::ScanOp>(op))
        round(scan);
      else
        round(op);
  }

private:
  Value cast(Value value, Type element, Operation *like) {
    auto type = nn::withElement(nn::tensorOf(value), element);
    auto made = nn::CastOp::create(builder, like ? like->getLoc() : value.getLoc(), type, value);
    if (Attribute block = like ? like->getAttr(nn::kBlockAttr) : Attribute())
      made->setAttr(nn::kBlockAttr, block);
    return made.getResult();
  }

  // The bf16 value in the place of an f32 one.
  Value rounded(Value value) {
    if (isBF16(value))
      return value;
    if (Value known = roundedOf.lookup(value))
      return known;
    Operation *op = value.getDefiningOp();
    if (op)
      builder.setInsertionPointAfter(op);
    else
      builder.setInsertionPointToStart(mlir::cast<BlockArgument>(value).getOwner());
    return roundedOf[value] = cast(value, builder.getBF16Type(), op);
  }

  // What was said of the op is said of its rounding.
  void define(Operation *op) {
    Operation *made = rounded(op->getResult(0)).getDefiningOp();
    replaced.insert(op->getResult(0));
    for (StringRef hint : kHints)
      if (Attribute attribute = op->getDiscardableAttr(hint)) {
        op->removeDiscardableAttr(hint);
        made->setDiscardableAttr(hint, attribute);
      }
  }

  // A reader's own view of a bf16 value.
  Value widened(Value value, Operation *reader) {
    builder.setInsertionPoint(reader);
    auto layer = reader->getAttrOfType<IntegerAttr>(nn::kLayerAttr);
    if (!layer)
      return cast(value, builder.getF32Type(), reader);
    Value &known = widenedIn[{value, layer.getInt()}];
    if (!known)
      known = cast(value, builder.getF32Type(), reader);
    return known;
  }

  // What the operand holds: the rounded value, where it was rounded at its definition. A stream of reversible layers is f32, and all readers
  // see the one that is rebuilt.
  Value held(Value operand) {
    Value value = replaced.contains(operand) ? roundedOf.lookup(operand) : operand;
    if (!isBF16(value) || !streams.contains(operand))
      return value;
    Value &stream = streamOf[operand];
    if (!stream) {
      builder.setInsertionPointAfterValue(value);
      stream = cast(value, builder.getF32Type(), value.getDefiningOp());
    }
    return stream;
  }

  void round(Operation *op) {
    bool product = isa<nn::ContractOp, nn::ConvOp>(op), pool = isa<nn::MaxPoolOp, nn::SumPoolOp>(op), gather = isa<nn::GatherOp>(op);
    if (isa<nn::AttendOp>(op)) {
      // Its kernel reads f32 that hold bf16.
      for (unsigned i = 0; i < 3; ++i)
        op->setOperand(i, widened(rounded(held(op->getOperand(i))), op));
      op->setAttr(nn::kBF16Attr, builder.getUnitAttr());
    }
    bool move = isa<nn::ReshapeOp, nn::TransposeOp, nn::SliceOp, nn::ReverseOp, nn::ConcatOp, nn::MaxPoolOp>(op) &&
                llvm::all_of(op->getOperands(), [&](Value operand) { return isBF16(held(operand)); });
    for (OpOperand &operand : op->getOpOperands()) {
      Value value = held(operand.get());
      if (product && isF32(value) && nn::hasBatch(value))
        value = rounded(value);
      bool narrow = product || move || pool || (gather && operand.getOperandNumber() == 0);
      operand.set(isBF16(value) && !narrow ? widened(value, op) : value);
    }
    if (product && llvm::all_of(op->getOperands(), isF32)) // of parameters alone
      op->setAttr(nn::kBF16Attr, builder.getUnitAttr());
    if (move || (gather && isBF16(op->getOperand(0))))
      op->getResult(0).setType(nn::withElement(nn::tensorOf(op->getResult(0)), builder.getBF16Type()));
    else if (isa<nn::AttendOp>(op))
      define(op);
    else if (op->getNumResults() > 0 && isF32(op->getResult(0)) && (product || gather || op->hasAttr(nn::kRoundedAttr)))
      define(op);
  }

  // What a loop carries is f32, and so is what it reads whole, whose gradient is a sum over the trips. It takes what it has of examples apart,
  // and stacks its results, as they are; a result that is a definition is rounded in each trip.
  void round(nn::ScanOp scan) {
    unsigned carried = scan.carriedCount();
    for (OpOperand &operand : scan->getOpOperands()) {
      Value value = held(operand.get());
      unsigned number = operand.getOperandNumber();
      bool slice = number >= carried && number < carried + scan.getSlices().size();
      operand.set(isBF16(value) && !(slice && nn::hasBatch(value)) ? widened(value, scan) : value);
      BlockArgument argument = scan.block().getArgument(number);
      argument.setType(nn::withElement(nn::tensorOf(argument), nn::tensorOf(operand.get()).getElementType()));
    }
    round(scan.block());
    DenseSet<int64_t> defined;
    if (auto results = scan->getAttrOfType<DenseI64ArrayAttr>(nn::kRoundedAttr))
      defined.insert(results.asArrayRef().begin(), results.asArrayRef().end());
    Operation *yield = scan.yield();
    for (OpOperand &operand : yield->getOpOperands()) {
      Value value = held(operand.get()), result = scan.getResult(operand.getOperandNumber());
      bool stacked = operand.getOperandNumber() >= carried;
      if (isBF16(value) && !stacked)
        value = widened(value, yield);
      if (isF32(value) && stacked && defined.contains(operand.getOperandNumber()))
        value = rounded(value);
      operand.set(value);
      result.setType(nn::withElement(nn::tensorOf(result), nn::tensorOf(value).getElementType()));
    }
    for (int64_t number : defined)
      if (Value result = scan.getResult(unsigned(number)); isF32(result)) {
        rounded(result);
        replaced.insert(result);
      }
  }

  OpBuilder builder;
  DenseSet<Value> streams; // that reversible layers go on
  DenseMap<Value, Value> streamOf;
  DenseMap<Value, Value> roundedOf;
  DenseSet<Value> replaced; // values that were rounded where they are defined: all readers see the rounded one
  DenseMap<std::pair<Value, int64_t>, Value> widenedIn;
};

struct RoundValues : cinch::impl::RoundValuesBase<RoundValues> {
  void runOnOperation() final {
    if (!getOperation()->removeAttr(nn::kBF16Attr))
      return;
    for (auto function : getOperation().getOps<func::FuncOp>())
      Rounder(&getContext()).round(function.getBody().front());
    getOperation()->walk([](Operation *op) {
      op->removeDiscardableAttr(nn::kRoundedAttr);
      op->removeDiscardableAttr(nn::kLayerAttr);
    });
  }
};

} // namespace
