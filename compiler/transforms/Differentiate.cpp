// Differentiate.cpp: reverse-mode differentiation of @step and the update of its parameters. Assumes phase `parsed`,
// leaves phase `differentiated`. The rules of single ops stand in dialects/nn/Derivatives.cpp.
//
// Invariants:
//  1. An op of the sweep reads the saved values and result gradients its rule was given, or what the rule made:
//  checked.
//  2. A value's gradient is the chain c0 + c1 + .. of its contributions in the order of its uses (op, then operand).
//  Slices
//     that cover an axis without overlap give back a concatenation.
//  3. Every contribution to a value without the batch axis has no batch axis either: the type says that the example
//  axis was
//     summed by the op that made it, so that op alone accumulates and the additions of 2 lie behind the micro-batch
//     loop.
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/Updates.h"
#include "dialects/nn/GradientBuilder.h"
#include "dialects/nn/NN.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace cinch {
#define GEN_PASS_DEF_DIFFERENTIATE
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

// One gradient that reaches a value, and the use it came through.
struct Contribution {
  unsigned user, operand;
  Value gradient;
};

class Sweep {
public:
  Sweep(func::FuncOp function, nn::GradientBuilder &builder) : function(function), builder(builder) {}

  // Gradients of the trained parameters; an argument that the loss does not reach has none.
  FailureOr<DenseMap<Value, Value>> run(Value loss);

private:
  void findActive();
  LogicalResult visit(Operation &op, unsigned place);
  Value gradientOf(Value value);
  LogicalResult checkReads(Operation &op, ValueRange saved, ValueRange grads, size_t firstMade);

  func::FuncOp function;
  nn::GradientBuilder &builder;
  DenseSet<Value> active; // depends on a trained parameter, through derivatives
  DenseMap<Value, SmallVector<Contribution>> contributions;
};

} // namespace

static bool isFloat(Value value) {
  auto type = dyn_cast<RankedTensorType>(value.getType());
  return type && isa<FloatType>(type.getElementType());
}

void Sweep::findActive() {
  for (BlockArgument argument : function.getArguments())
    if (isTrained(function, argument))
      active.insert(argument);
  for (Operation &op : function.getBody().front()) {
    if (op.hasTrait<nn::NoGradient>() || llvm::none_of(op.getOperands(), [&](Value v) { return active.contains(v); }))
      continue;
    for (Value result : op.getResults())
      if (isFloat(result))
        active.insert(result);
  }
}

// The contributions of slices that cover one axis without overlap, end to end: what the slices' gradients were before
// they were padded with zeros.
static bool coverAnAxis(ArrayRef<Contribution> parts, SmallVectorImpl<nn::PadOp> &pads) {
  for (const Contribution &part : parts) {
    auto pad = part.gradient.getDefiningOp<nn::PadOp>();
    if (!pad || pad.getAxis() != parts.front().gradient.getDefiningOp<nn::PadOp>().getAxis())
      return false;
    pads.push_back(pad);
  }
  llvm::sort(pads, [](nn::PadOp a, nn::PadOp b) { return a.getBefore() < b.getBefore(); });
  uint64_t end = 0;
  for (nn::PadOp pad : pads) {
    if (pad.getBefore() != end)
      return false;
    end += pad.getX().getType().getDimSize(pad.getAxis());
  }
  return pads.size() > 1 && pads.back().getAfter() == 0;
}

Value Sweep::gradientOf(Value value) {
  auto found = contributions.find(value);
  if (found == contributions.end())
    return Value();
  SmallVector<Contribution> parts = std::move(found->second);
  contributions.erase(found);
  llvm::sort(parts, [](const Contribution &a, const Contribution &b) {
    return std::tie(a.user, a.operand) < std::tie(b.user, b.operand);
  });
  Operation *source = value.getDefiningOp();
  std::string name = source ? nn::nameOf(source) : nn::instancePath(value.getLoc()).str();
  builder.setLocation(nn::called(value.getLoc(), "gradient of " + name));
  SmallVector<nn::PadOp> pads;
  if (coverAnAxis(parts, pads)) {
    SmallVector<Value> slices = llvm::map_to_vector(pads, [](nn::PadOp pad) -> Value { return pad.getX(); });
    return builder.make<nn::ConcatOp>(slices, pads.front().getAxis());
  }
  Value sum = parts.front().gradient;
  for (const Contribution &part : ArrayRef(parts).drop_front())
    sum = builder.make<nn::AddOp>(sum, part.gradient);
  return sum;
}

LogicalResult Sweep::checkReads(Operation &op, ValueRange saved, ValueRange grads, size_t firstMade) {
  DenseSet<Value> allowed(saved.begin(), saved.end());
  allowed.insert(grads.begin(), grads.end());
  for (Operation *made : builder.made().drop_front(firstMade))
    for (Value operand : made->getOperands()) {
      Operation *source = operand.getDefiningOp();
      if (!allowed.contains(operand) && !(source && (isa<nn::ConstantOp>(source) ||
                                                     llvm::is_contained(builder.made().drop_front(firstMade), source))))
        return op.emitOpError() << "internal error: its derivative reads a value that it does not save";
    }
  return success();
}

LogicalResult Sweep::visit(Operation &op, unsigned place) {
  SmallVector<Value> grads;
  for (Value result : op.getResults())
    grads.push_back(gradientOf(result));
  if (llvm::none_of(grads, [](Value v) { return bool(v); }))
    return success();
  auto rule = dyn_cast<nn::Differentiable>(op);
  if (!rule)
    return op.emitOpError() << "has no derivative, and the loss depends on a parameter through it";
  SmallVector<bool> wanted;
  for (Value operand : op.getOperands())
    wanted.push_back(active.contains(operand));
  builder.setLocation(nn::called(op.getLoc(), "gradient of " + nn::nameOf(&op)));
  size_t firstMade = builder.made().size();
  SmallVector<Value> saved = rule.savedValues(wanted);
  SmallVector<Value> operandGrads = rule.buildBackward(builder, saved, grads, wanted);
  if (failed(checkReads(op, saved, grads, firstMade)))
    return failure();
  for (auto [i, want] : llvm::enumerate(wanted)) {
    if (!want)
      continue;
    Value gradient = i < operandGrads.size() ? operandGrads[i] : Value();
    if (!gradient || gradient.getType() != op.getOperand(i).getType())
      return op.emitOpError() << "internal error: the gradient of operand " << i << " is missing or of another type";
    contributions[op.getOperand(i)].push_back({place, unsigned(i), gradient});
  }
  return success();
}

FailureOr<DenseMap<Value, Value>> Sweep::run(Value loss) {
  findActive();
  if (!active.contains(loss)) {
    function.emitError() << "the loss depends on no parameter that is trained";
    return failure();
  }
  SmallVector<Operation *> forward;
  for (Operation &op : function.getBody().front().without_terminator())
    forward.push_back(&op);
  builder.setLocation(loss.getLoc());
  contributions[loss].push_back({0, 0, builder.like(loss, 1)});
  for (unsigned place = forward.size(); place-- > 0;)
    if (failed(visit(*forward[place], place)))
      return failure();
  DenseMap<Value, Value> gradients;
  for (BlockArgument argument : function.getArguments())
    if (Value gradient = active.contains(argument) ? gradientOf(argument) : Value())
      gradients[argument] = gradient;
  return gradients;
}

// What neither a result nor a later op reads.
static void eraseDead(Block &block) {
  SmallVector<Operation *> ops;
  for (Operation &op : block.without_terminator())
    ops.push_back(&op);
  for (Operation *op : llvm::reverse(ops))
    if (op->use_empty() && isMemoryEffectFree(op))
      op->erase();
}

namespace {
struct Differentiate : cinch::impl::DifferentiateBase<Differentiate> {
  void runOnOperation() final {
    auto step = getOperation().lookupSymbol<func::FuncOp>(nn::kStepName);
    auto training = step ? step->getAttrOfType<nn::TrainingAttr>(nn::kTrainingAttr) : nn::TrainingAttr();
    if (!training || !step.getBody().hasOneBlock()) {
      getOperation().emitError() << "expected a function @" << nn::kStepName << " with '" << nn::kTrainingAttr << "'";
      return signalPassFailure();
    }
    auto exit = cast<func::ReturnOp>(step.getBody().front().getTerminator());
    Value loss;
    for (auto [i, value] : llvm::enumerate(exit.getOperands())) {
      if (step.getResultAttr(unsigned(i), nn::kPathAttr)) // the new value of a state
        continue;
      if (loss || !isFloat(value) || nn::tensorOf(value).getRank() != 0) {
        step.emitError() << "expected one result beside states, the loss, a scalar";
        return signalPassFailure();
      }
      loss = value;
    }
    if (!loss) {
      step.emitError() << "expected the loss among the results";
      return signalPassFailure();
    }
    OpBuilder opBuilder(exit);
    nn::GradientBuilder builder(opBuilder);
    auto gradients = Sweep(step, builder).run(loss);
    if (failed(gradients))
      return signalPassFailure();
    buildUpdates(step, training, loss, *gradients, builder);
    for (Operation *op : builder.made())
      op->setAttr(nn::kBackwardAttr, UnitAttr::get(&getContext()));
    eraseDead(step.getBody().front());
    step->removeAttr(nn::kTrainingAttr);
    step->removeAttr(nn::kRunValuesAttr);
    step.setName(nn::kTrainName);
  }
};
} // namespace
