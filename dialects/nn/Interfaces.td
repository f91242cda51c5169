// Interfaces.td: what Differentiate and the planner ask of an op.
#ifndef CINCH_NN_INTERFACES_TD
#define CINCH_NN_INTERFACES_TD

include "mlir/IR/OpBase.td"

def NN_Differentiable : OpInterface<"Differentiable"> {
  let cppNamespace = "::cinch::nn";
  let description = [{
    The derivative of an op in reverse mode. What the forward pass must keep (`savedValues`) is apart from how it is used
    (`buildBackward`): the border between them is where rematerialization chooses. `buildBackward` reads `saved`,
    `resultGrads` and what it makes itself, nothing else; Differentiate checks it.
  }];
  let methods = [
    InterfaceMethod<[{
      The operands and results of this op that the gradients of the operands in `wanted` are computed from.
    }], "::llvm::SmallVector<::mlir::Value>", "savedValues", (ins "::llvm::ArrayRef<bool>":$wanted)>,
    InterfaceMethod<[{
      Gradients of the operands, one a wanted operand and null for the others, from those of the results (null where a result
      has none).
    }], "::llvm::SmallVector<::mlir::Value>", "buildBackward",
      (ins "::cinch::nn::GradientBuilder &":$b, "::mlir::ValueRange":$saved, "::mlir::ValueRange":$resultGrads,
           "::llvm::ArrayRef<bool>":$wanted)>
  ];
}

def NN_Cost : OpInterface<"Cost"> {
  let cppNamespace = "::cinch::nn";
  let description = [{
    What an op costs over the whole batch. Bytes follow from the types. Operations that touch the batch axis cost in proportion
    to the number of examples, the others once a step.
  }];
  let methods = [
    InterfaceMethod<"floating-point operations, weighted by what each costs beside an addition", "double", "flops">,
  ];
}

def NN_Decomposable : OpInterface<"Decomposable"> {
  let cppNamespace = "::cinch::nn";
  let description = [{
    An op whose definition is a handful of element-wise ops and sums: `decompose` writes them out before the op and returns
    what replaces its results. The definition, bit for bit.
  }];
  let methods = [
    InterfaceMethod<"the op in simpler ones", "::llvm::SmallVector<::mlir::Value>", "decompose",
                    (ins "::mlir::OpBuilder &":$builder)>
  ];
}

// The derivative is zero by definition: the backward sweep stops here. An op on a path to the loss that has neither this nor
// Differentiable is an error.
def NN_NoGradient : NativeOpTrait<"NoGradient"> { let cppNamespace = "::cinch::nn"; }

#endif
