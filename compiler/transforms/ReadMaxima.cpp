// ReadMaxima.cpp: which branch a maximum took is seen on what it gave, where its operand would be kept for that alone.
//
// max(a, b) > b just where a > b, a NaN included. What a relu gave is kept for the gradients of the layer behind it; what went in is often
// read by nothing else in the backward sweep: the sum of a residual, a product with its bias.
//
//     %y = nn.max %x, %zero                               %y = nn.max %x, %zero
//     %m = nn.compare gt %x, %zero {nn.backward}    ->    %m = nn.compare gt %y, %zero {nn.backward}
//
// Behind a norm the operand stays: one value, which the norm's own gradient needs, is all that it is computed from, and is read there in any
// case. Equal flags come of both, so no bit changes. It is a function of the program alone.
#include "compiler/analysis/LoopTrace.h"
#include "compiler/transforms/Passes.h"
#include "dialects/nn/NN.h"

namespace cinch {
#define GEN_PASS_DEF_READMAXIMA
#include "compiler/transforms/Passes.h.inc"
} // namespace cinch

using namespace mlir;
using namespace cinch;

namespace {

bool isBackward(Operation *op) { return op->hasAttr(nn::kBackwardAttr); }

// The flags of the branch that `choice` took, computed from its operand in the backward sweep.
SmallVector<nn::CompareOp> flagsOf(Operation *choice, nn::Comparison takes) {
  SmallVector<nn::CompareOp> flags;
  for (Operation *user : choice->getOperand(0).getUsers())
    if (auto compare = dyn_cast<nn::CompareOp>(user); compare && isBackward(user) && compare.getComparison() == takes &&
                                                      compare.getA() == choice->getOperand(0) && compare.getB() == choice->getOperand(1))
      flags.push_back(compare);
  return flags;
}

// Does the backward sweep read the value, or a view of it, for more than these flags?
bool isReadBackward(Value value, ArrayRef<nn::CompareOp> flags) {
  for (Operation *user : value.getUsers()) {
    bool isFlag = isa<nn::CompareOp>(user) && llvm::is_contained(flags, cast<nn::CompareOp>(user));
    if ((isBackward(user) && !isFlag) || (!isBackward(user) && analysis::isView(user) && isReadBackward(user->getResult(0), flags)))
      return true;
  }
  return false;
}

// Large values that the operand of a choice is computed from, down to what lies in memory for the backward sweep in any case.
class Sources {
public:
  Sources(Value operand, ArrayRef<nn::CompareOp> flags) : size(analysis::elementsOf(operand)), flags(flags) { visit(operand); }

  // One that is there in any case is as good as what the choice gave.
  bool areDear() const { return dear || there.size() > 1; }

private:
  void visit(Value value) {
    if (2 * analysis::elementsOf(value) < size || !seen.insert(value).second)
      return;
    Operation *op = value.getDefiningOp();
    if (isa_and_present<nn::ConstantOp, nn::RandomOp>(op))
      return;
    if (op && analysis::isView(op)) { // one of what is small is read as that
      visit(op->getOperand(0));
    } else if (!op || isReadBackward(value, flags)) {
      there.insert(value);
    } else if (analysis::isLoopOp(op) && !isa<nn::ReduceOp, nn::GatherOp, nn::ArgMaxOp, nn::ArgMinOp>(op)) {
      for (Value operand : op->getOperands())
        visit(operand);
    } else {
      dear = true;
    }
  }

  int64_t size;
  ArrayRef<nn::CompareOp> flags;
  bool dear = false;
  llvm::SmallDenseSet<Value> there, seen;
};

struct ReadMaxima : cinch::impl::ReadMaximaBase<ReadMaxima> {
  void runOnOperation() final {
    getOperation().walk([](Operation *op) {
      if (!isa<nn::MaxOp, nn::MinOp>(op) || isBackward(op))
        return;
      Value result = op->getResult(0);
      SmallVector<nn::CompareOp> flags = flagsOf(op, isa<nn::MaxOp>(op) ? nn::Comparison::GT : nn::Comparison::LT);
      if (!flags.empty() && isReadBackward(result, flags) && Sources(op->getOperand(0), flags).areDear())
        for (nn::CompareOp flag : flags)
          flag.getAMutable().assign(result);
    });
  }
};

} // namespace
