// NNOps.td: the ops a model is written in. One op per textbook operation; constraints are numbered C1.. for each op and cited
// by the shape rules in dialects/ops/Shapes.cpp. Gradients of the larger ops and the updates of parameters: TrainOps.td.
#ifndef CINCH_NN_OPS_TD
#define CINCH_NN_OPS_TD

include "mlir/Interfaces/InferTypeOpInterface.td"
include "mlir/Interfaces/SideEffectInterfaces.td"
include "dialects/nn/NNDialect.td"
include "dialects/nn/Interfaces.td"

class Has<list<Trait> traits, string name> {
  bit is = !not(!empty(!filter(trait, traits, !eq(!cast<string>(trait), name))));
}
// `cost` is a C++ expression over the op (Costs.h). The shape rule (dialects/ops/Shapes.cpp) gives the types of an op with
// `Infers` and verifies the others, but for element-wise ops of one type: there the traits say all.
class NN_Op<string mnemonic, list<Trait> traits = []>
    : Op<NN_Dialect, mnemonic, !listconcat(traits, [Pure, DeclareOpInterfaceMethods<NN_Cost>])> {
  bit infersTypes = Has<traits, "InferTypeOpAdaptor">.is;
  bit hasOneType = !and(Has<traits, "Elementwise">.is, Has<traits, "SameOperandsAndResultType">.is);
  let hasVerifier = !not(!or(infersTypes, hasOneType));
  string cost = "elementsOf(getOperation()->getResult(0))";
  string moreChecks = "::llvm::success()"; // of what the rule does not see
  let extraClassDefinition = "double $cppClass::flops() { return " # cost # "; }\n" # !cond(infersTypes : [{
    ::llvm::LogicalResult $cppClass::inferReturnTypes(::mlir::MLIRContext *context, std::optional<::mlir::Location> location,
                                                      Adaptor op, ::llvm::SmallVectorImpl<::mlir::Type> &types) {
      return inferByRule<$cppClass>(context, location, op, types);
    }
  }], hasOneType : "", true : [{
    ::llvm::LogicalResult $cppClass::verify() {
      return ::llvm::success(::llvm::succeeded(verifyByRule(*this)) && ::llvm::succeeded(}] # moreChecks # [{));
    }
  }]);
}
defvar Derivative = DeclareOpInterfaceMethods<NN_Differentiable>;
defvar Infers = InferTypeOpAdaptor;

// ==== Constants and inputs =================================================================================================
def NN_ConstantOp : NN_Op<"constant", [NN_NoGradient]> {
  let summary = "one number everywhere";
  let description = [{
    `number`, rounded once to the element type. C1: a whole number for i32, 0 or 1 for i1.
  }];
  let arguments = (ins F64Attr:$number);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$number attr-dict `:` type($result)";
  let cost = "0";
}

def NN_VectorOp : NN_Op<"vector", [NN_NoGradient]> {
  let summary = "a 1-D tensor of given numbers";
  let description = "C1: as many numbers as elements. C2: no batch axis.";
  let arguments = (ins DenseF64ArrayAttr:$numbers);
  let results = (outs NN_Float:$result);
  let assemblyFormat = "$numbers attr-dict `:` type($result)";
  let cost = "0";
}

def NN_RangeOp : NN_Op<"range", [NN_NoGradient]> {
  let summary = "0, 1, .. n - 1";
  let description = "C1: one axis. C2: no batch axis.";
  let results = (outs NN_Int:$result);
  let assemblyFormat = "attr-dict `:` type($result)";
  let cost = "0";
}

def NN_RandomOp : NN_Op<"random", [NN_NoGradient]> {
  let summary = "random numbers, a pure function of seed, step, example, key and element";
  let description = [{
    `uniform` f32 in [0, 1), `normal` f32, `int` i32 in 0 .. `number` - 1, `bool` i1, true with probability `number` rounded
    to 1/65536. `key` is the hash of the call's path. Without a batch axis the example is 0. The element is the row-major number
    inside the example. C1: the element type fits the draw. C2: `int` has a whole number >= 1, `bool` one in [0, 1].
  }];
  let arguments = (ins NN_DrawAttr:$draw, I64Attr:$key, DefaultValuedAttr<F64Attr, "0.0">:$number);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$draw `key` $key (`of` $number^)? attr-dict `:` type($result)";
  let cost = "20 * elementsOf(getResult())";
}

def NN_StepOp : NN_Op<"step", [NN_NoGradient]> {
  let summary = "the number of the step, from 0";
  let results = (outs NN_F64Scalar:$result);
  let assemblyFormat = "attr-dict";
  let cost = "0";
}

def NN_TotalStepsOp : NN_Op<"total_steps", [NN_NoGradient]> {
  let summary = "the number of steps of the whole run, the horizon of schedules";
  let results = (outs NN_F64Scalar:$result);
  let assemblyFormat = "attr-dict";
  let cost = "0";
}

def NN_RunValueOp : NN_Op<"run_value", [NN_NoGradient]> {
  let summary = "a number that the trained binary is given when it starts";
  let description = [{
    Value `which` in the list of the run's values (compiler/frontend/RunValues.h). `number` is what the program says it is, if
    nobody gives another one; no kernel depends on it.

        %lr = nn.run_value 0 of 3.000000e-04
  }];
  let arguments = (ins I64Attr:$which, F64Attr:$number);
  let results = (outs NN_F64Scalar:$result);
  let assemblyFormat = "$which `of` $number attr-dict";
  let cost = "0";
}

// ==== Element-wise =========================================================================================================
// All operands and the result have one type; nothing is broadcast (`broadcast` says it).
class NN_Elementwise<string mnemonic, string meaning, dag operands, string operandFormat, Type type, list<Trait> traits>
    : NN_Op<mnemonic, !listconcat(traits, [SameOperandsAndResultType, Elementwise])> {
  let summary = meaning;
  let arguments = operands;
  let results = (outs type:$result);
  let assemblyFormat = operandFormat # " attr-dict `:` type($result)";
}
class NN_OneOperand<string mnemonic, string meaning, Type type, list<Trait> traits>
    : NN_Elementwise<mnemonic, meaning, (ins type:$x), "$x", type, traits>;
class NN_TwoOperands<string mnemonic, string meaning, Type type, list<Trait> traits>
    : NN_Elementwise<mnemonic, meaning, (ins type:$a, type:$b), "$a `,` $b", type, traits>;

// A function of numbers, whose formula is the function of its name in compiler/kernels/MathFormulas.h. `weight`: cost of one
// element.
class NN_Formula<int weight> {
  int weightOfElement = weight;
  string cost = !cast<string>(weight) # " * elementsOf(getOperation()->getResult(0))";
}
class NN_Unary<string mnemonic, int weight, string meaning, list<Trait> traits = [Derivative]>
    : NN_OneOperand<mnemonic, meaning, NN_Float, traits>, NN_Formula<weight>;
def NN_NegOp : NN_Unary<"neg", 1, "-x">;
def NN_ExpOp : NN_Unary<"exp", 10, "e^x">;
def NN_Expm1Op : NN_Unary<"expm1", 14, "e^x - 1, exact near 0">;
def NN_LogOp : NN_Unary<"log", 12, "natural logarithm">;
def NN_Log1pOp : NN_Unary<"log1p", 16, "log(1 + x), exact near 0">;
def NN_SqrtOp : NN_Unary<"sqrt", 6, "square root">;
def NN_SinOp : NN_Unary<"sin", 16, "sine">;
def NN_CosOp : NN_Unary<"cos", 16, "cosine">;
def NN_AsinhOp : NN_Unary<"asinh", 30, "inverse hyperbolic sine">;
def NN_TanhOp : NN_Unary<"tanh", 14, "hyperbolic tangent">;
def NN_ErfOp : NN_Unary<"erf", 16, "error function">;
def NN_SigmoidOp : NN_Unary<"sigmoid", 14, "1 / (1 + e^-x)">;
def NN_SoftplusOp : NN_Unary<"softplus", 24, "log(1 + e^x), without overflow">;
def NN_AbsOp : NN_Unary<"abs", 1, "absolute value; derivative 0 at 0">;
def NN_FloorOp : NN_Unary<"floor", 1, "largest whole number not above x", [NN_NoGradient]>;
def NN_StopGradientOp : NN_OneOperand<"stop_gradient", "x, with derivative 0", NN_Float, [NN_NoGradient]> {
  let cost = "0";
}

class NN_Binary<string mnemonic, int weight, string meaning, Type type, list<Trait> traits>
    : NN_TwoOperands<mnemonic, meaning, type, traits>, NN_Formula<weight>;
def NN_AddOp : NN_Binary<"add", 1, "a + b", NN_Number, [Derivative, Commutative]>;
def NN_SubOp : NN_Binary<"sub", 1, "a - b", NN_Number, [Derivative]>;
def NN_MulOp : NN_Binary<"mul", 1, "a * b", NN_Number, [Derivative, Commutative]>;
def NN_DivOp : NN_Binary<"div", 4, "a / b", NN_Float, [Derivative]>;
def NN_PowOp : NN_Binary<"pow", 30, "a to the power of b", NN_Float, [Derivative]>;
def NN_MaxOp : NN_Binary<"max", 1, "the larger, NaN if one is; derivative follows b at a tie", NN_Number, [Derivative]>;
def NN_MinOp : NN_Binary<"min", 1, "the smaller, NaN if one is; derivative follows b at a tie", NN_Number, [Derivative]>;

def NN_AndOp : NN_TwoOperands<"and", "both", NN_Bool, [NN_NoGradient, Commutative]>;
def NN_OrOp : NN_TwoOperands<"or", "at least one", NN_Bool, [NN_NoGradient, Commutative]>;
def NN_NotOp : NN_OneOperand<"not", "not x", NN_Bool, [NN_NoGradient]>;

def NN_CompareOp : NN_Op<"compare", [NN_NoGradient, Infers, SameTypeOperands, Elementwise]> {
  let summary = "element-wise comparison; with a NaN only `ne` is true";
  let arguments = (ins NN_CompareAttr:$comparison, NN_Tensor:$a, NN_Tensor:$b);
  let results = (outs NN_Bool:$result);
  let assemblyFormat = "$comparison $a `,` $b attr-dict `:` functional-type(operands, $result)";
}

def NN_WhereOp : NN_Op<"where", [Derivative, Infers, Elementwise]> {
  let summary = "a where the condition holds, else b";
  let description = "C1: the condition has the shape and the batch axis of a. C2: a and b have one type.";
  let arguments = (ins NN_Bool:$condition, NN_Tensor:$a, NN_Tensor:$b);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$condition `,` $a `,` $b attr-dict `:` functional-type(operands, $result)";
}

def NN_CastOp : NN_Op<"cast", [Derivative, Elementwise]> {
  let summary = "the same number as another type, rounded to nearest";
  let description = [{
    i1 and i32 to a float, i1 to i32, f32 to f64 and back. C1: shape and batch axis stay. C2: no float becomes an integer.

    f32 to bf16 rounds to nearest, ties to even; a NaN stays one, subnormal numbers stay what they are. bf16 to f32 is exact. The gradient
    of a bf16 value is bf16: what its readers contribute is rounded, and so is each partial sum of contributions.
  }];
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Stored:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, $result)";
}

// ==== Shape ================================================================================================================
def NN_BroadcastOp : NN_Op<"broadcast", [Derivative]> {
  let summary = "repeats x along new axes";
  let description = [{
    Result axis `axes[i]` is axis i of x; all others are new. C1: one entry an axis of x, strictly increasing, inside the
    result. C2: sizes agree. C3: x's batch axis becomes the result's; if x has none, a new axis may be it.

        %y = nn.broadcast %x [1] : (tensor<8xf32>) -> tensor<16x8xf32, #nn.batch<0>>
  }];
  let arguments = (ins NN_Tensor:$x, DenseI64ArrayAttr:$axes);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$x $axes attr-dict `:` functional-type(operands, $result)";
  let cost = "0";
}

def NN_TransposeOp : NN_Op<"transpose", [Derivative, Infers]> {
  let summary = "result axis i is axis permutation[i] of x";
  let description = "C1: a permutation of the axes.";
  let arguments = (ins NN_Tensor:$x, DenseI64ArrayAttr:$permutation);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$x $permutation attr-dict `:` functional-type(operands, $result)";
  let cost = "0";
}

def NN_ReshapeOp : NN_Op<"reshape", [Derivative]> {
  let summary = "the same elements, row-major, in another shape";
  let description = [{
    C1: as many elements. C2: both sides have a batch axis or none; as many elements lie before it in both, and it holds as many examples:
    it is neither merged nor moved, and split into groups only.
  }];
  let arguments = (ins NN_Tensor:$x);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$x attr-dict `:` functional-type(operands, $result)";
  let cost = "0";
}

def NN_SliceOp : NN_Op<"slice", [Derivative, Infers]> {
  let summary = "elements begin .. end - 1 of an axis, which stays";
  let description = "C1: the axis exists and is not the batch axis. C2: 0 <= begin < end <= its size.";
  let arguments = (ins NN_Tensor:$x, I64Attr:$axis, I64Attr:$begin, I64Attr:$end);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$x `axis` $axis `from` $begin `to` $end attr-dict `:` functional-type(operands, $result)";
  let cost = "0";
}

def NN_PadOp : NN_Op<"pad", [Derivative, Infers]> {
  let summary = "`before` and `after` further elements, each `value`, at the ends of an axis";
  let description = "C1: the axis exists and is not the batch axis. C2: before, after >= 0.";
  let arguments = (ins NN_Tensor:$x, I64Attr:$axis, I64Attr:$before, I64Attr:$after, DefaultValuedAttr<F64Attr, "0.0">:$value);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $x `axis` $axis `before` $before `after` $after (`value` $value^)? attr-dict `:` functional-type(operands, $result)
  }];
  let cost = "0";
}

def NN_ConcatOp : NN_Op<"concat", [Derivative, Infers]> {
  let summary = "operands one behind the other along an axis";
  let description = [{
    C1: at least one operand. C2: the axis exists and is not the batch axis. C3: all other sizes, element types and batch axes
    agree.
  }];
  let arguments = (ins Variadic<NN_Tensor>:$operands, I64Attr:$axis);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$operands `axis` $axis attr-dict `:` functional-type(operands, $result)";
  let cost = "0";
}

def NN_ReverseOp : NN_Op<"reverse", [Derivative, SameOperandsAndResultType]> {
  let summary = "an axis back to front";
  let description = "C1: the axis exists and is not the batch axis.";
  let arguments = (ins NN_Tensor:$x, I64Attr:$axis);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$x `axis` $axis attr-dict `:` type($result)";
  let cost = "0";
}

// ==== Sums and products ====================================================================================================
def NN_ReduceOp : NN_Op<"reduce", [Derivative, Infers]> {
  let summary = "sum, largest, smallest, product, any or all over axes, which go away";
  let description = [{
    Order of a sum (`sum`, `prod`): if the last axis of x is reduced, the run of reduced axes that ends x, the batch axis
    excepted, is summed in 16 logical lanes and a fixed tree; what remains is one chain over the other reduced axes in order,
    the batch axis slowest. If the last axis stays, it is one chain over the reduced axes, batch slowest. Chains start at the
    neutral element (+0.0 for a sum).
    A mean is `reduce sum` and a `div` behind it. C1: axes strictly increasing, inside x, at least one. C2: any and all: i1;
    the others: numbers.
  }];
  let arguments = (ins NN_ReductionAttr:$reduction, NN_Tensor:$x, DenseI64ArrayAttr:$axes);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = "$reduction $x $axes attr-dict `:` functional-type(operands, $result)";
  let cost = "elementsOf(getX())";
}

def NN_GroupMeanOp : NN_Op<"group_mean", [Derivative, SameOperandsAndResultType]> {
  let summary = "each example gets the mean over its group of consecutive examples";
  let description = [{
    Groups are cut from the first example on. The sum of a group is one chain over its examples in order, from +0.0; it is then
    divided by `group`. A micro-batch holds whole groups. C1: x has a batch axis, whose size `group` >= 1 divides.
  }];
  let arguments = (ins NN_Float:$x, I64Attr:$group);
  let results = (outs NN_Float:$result);
  let assemblyFormat = "$x `group` $group attr-dict `:` type($result)";
  let cost = "2 * elementsOf(getX())";
}

def NN_ContractOp : NN_Op<"contract", [Derivative]> {
  let summary = "a sum of products of two operands";
  let description = [{
    Every axis of an operand has a label. Labels 0 .. r-1 are the result's axes in order, labels r and above are summed, the
    smallest slowest. Each element is one chain of FMAs in that order, from +0.0.

        // y[b, o] = sum over i of x[b, i] * w[o, i]
        %y = nn.contract %x [0, 2], %w [1, 2] : (tensor<16x8xf32, #nn.batch<0>>, tensor<4x8xf32>) -> tensor<16x4xf32, #nn.batch<0>>

    C1: one label an axis, no label twice in an operand. C2: axes with one label have one size. C3: every summed label is in both
    operands, every result axis in at least one. C4: one element type, or bf16 with f32 or bf16, which gives f32 (if it has the batch axis,
    bf16 too). C5: the batch axes of the operands have one label; if it is
    a result axis, that is the result's batch axis; if it is summed, it is the smallest summed label and in both operands it is
    the batch axis.

    A product of bf16 has an operand of that type, or says `nn.bf16`: an f32 operand is rounded to bf16 first. The summed elements are
    cut into blocks of 32 (anew at each example if
    the batch axis is summed, at each grain if there is one). A block is a chain of FMAs from +0.0 over its even elements and one over
    its odd ones; the sum of the two is added to the result, in the order of the blocks. In all of this, subnormal numbers count as
    zeros of their sign. A result in bf16 is the sum rounded as `cast` rounds.

    A product of f32 that says `nn.tf32` runs on the tensor cores of a GPU (`TensorCores.h`).
  }];
  let arguments = (ins NN_Factor:$lhs, NN_Factor:$rhs, DenseI64ArrayAttr:$lhsLabels, DenseI64ArrayAttr:$rhsLabels);
  let results = (outs NN_Factor:$result);
  let assemblyFormat = "$lhs $lhsLabels `,` $rhs $rhsLabels attr-dict `:` functional-type(operands, $result)";
  let cost = "contractFlops(*this)";
}

def NN_GatherOp : NN_Op<"gather", [Derivative, Infers]> {
  let summary = "elements of x at computed places";
  let description = [{
    `xLabels` has one entry an axis of x: a label >= 0, or -j for "at the j-th index tensor" (from 1). `indexLabels[j-1]` has the
    labels of that index tensor's axes. Labels 0 .. r-1 are the result's axes in order.

        // y[b, t, d] = table[ids[b, t], d]
        %y = nn.gather %table [-1, 2] at (%ids) [[0, 1]] : (tensor<100x8xf32>, tensor<4x6xi32, #nn.batch<0>>) -> tensor<4x6x8xf32, #nn.batch<0>>

    Indices lie inside their axis (the checker has proven it). C1: one entry an axis, no label twice in an operand. C2: axes
    with one label have one size. C3: the labels are 0 .. r-1 without a gap. C4: every index tensor is named exactly once. C5:
    the batch axis of x is not indexed; batch axes have one label, which no other axis has.
  }];
  let arguments = (ins NN_Tensor:$x, Variadic<NN_Int>:$indices, DenseI64ArrayAttr:$xLabels,
                       TypedArrayAttrBase<DenseI64ArrayAttr, "label lists">:$indexLabels);
  let results = (outs NN_Tensor:$result);
  let assemblyFormat = [{
    $x $xLabels `at` `(` $indices `)` custom<LabelLists>($indexLabels) attr-dict `:` functional-type(operands, $result)
  }];
}

def NN_ScatterAddOp : NN_Op<"scatter_add"> {
  let summary = "adds elements at computed places: the gradient of gather";
  let description = [{
    With the labels of a `gather` of a tensor of the result's type: starts from +0.0 and adds every element of `updates` where
    the gather would have read it, in row-major order of `updates` with the batch axis slowest. C1: `updates` has the type that
    the gather would have. C2: if `updates` has the batch axis and the result has not, the result accumulates over the examples.
  }];
  let arguments = (ins NN_Float:$updates, Variadic<NN_Int>:$indices, DenseI64ArrayAttr:$xLabels,
                       TypedArrayAttrBase<DenseI64ArrayAttr, "label lists">:$indexLabels);
  let results = (outs NN_Float:$result);
  let assemblyFormat = [{
    $updates $xLabels `at` `(` $indices `)` custom<LabelLists>($indexLabels) attr-dict `:`
    functional-type(operands, $result)
  }];
  let cost = "elementsOf(getUpdates())";
}

// ==== Rows =================================================================================================================
class NN_RowOp<string mnemonic, string meaning, list<Trait> traits> : NN_Op<mnemonic, traits> {
  let summary = meaning;
  let arguments = (ins NN_Float:$x, I64Attr:$axis);
  let assemblyFormat = "$x `axis` $axis attr-dict `:` functional-type(operands, $result)";
}
def NN_SoftmaxOp : NN_RowOp<"softmax", "e^x over its sum along an axis", [Derivative, SameOperandsAndResultType]> {
  let description = "e = exp(x - max), e / sum(e). C1: the axis exists and is not the batch axis.";
  let results = (outs NN_Float:$result);
  let cost = "18 * elementsOf(getX())";
}
def NN_LogSoftmaxOp : NN_RowOp<"log_softmax", "logarithm of the softmax along an axis",
                               [Derivative, SameOperandsAndResultType]> {
  let description = "x - max - log(sum(exp(x - max))), from left to right. C1: the axis exists and is not the batch axis.";
  let results = (outs NN_Float:$result);
  let cost = "14 * elementsOf(getX())";
}
def NN_ArgMaxOp : NN_RowOp<"argmax", "lowest index of the largest along an axis, which goes away", [NN_NoGradient, Infers]> {
  let description = "C1: the axis exists and is not the batch axis.";
  let results = (outs NN_Int:$result);
  let cost = "2 * elementsOf(getX())";
}
def NN_ArgMinOp : NN_RowOp<"argmin", "lowest index of the smallest along an axis, which goes away", [NN_NoGradient, Infers]> {
  let description = "C1: the axis exists and is not the batch axis.";
  let results = (outs NN_Int:$result);
  let cost = "2 * elementsOf(getX())";
}

def NN_CrossEntropyOp : NN_Op<"cross_entropy", [Derivative, Infers]> {
  let summary = "-log softmax(logits)[y] along an axis, with label smoothing";
  let description = [{
    With m = max(x), l = log(sum(exp(x - m))), s = smooth, C classes: l + (m - x[y]) if s = 0, else
    (l + (1 - s) * (m - x[y])) - (s / C) * sum(x - m). Where y = `except` the result is 0 and has no gradient.
    C1: the axis exists and is not the batch axis. C2: y has the shape and batch axis of the logits without that axis.
    C3: 0 <= smooth < 1.
  }];
  let arguments = (ins NN_Float:$logits, NN_Int:$y, I64Attr:$axis, DefaultValuedAttr<F64Attr, "0.0">:$smooth,
                       OptionalAttr<I64Attr>:$except);
  let results = (outs NN_Float:$result);
  let assemblyFormat = [{
    $logits `,` $y `axis` $axis (`smooth` $smooth^)? (`except` $except^)? attr-dict `:` functional-type(operands, $result)
  }];
  let cost = "14 * elementsOf(getLogits())";
}

// ==== Convolutions and pools ===============================================================================================
def NN_ConvOp : NN_Op<"conv", [Derivative]> {
  let summary = "one of the three tensors of a convolution from the other two";
  let description = [{
    A convolution relates an image x[.., H, W, C], a filter w[R, S, C / groups, O] and an output y[.., P, Q, O]: output (p, q) meets
    image (h, w) at tap (r, s) where h + pad[0] = p * stride[0] + r * dilate[0] and w + pad[1] = q * stride[1] + s * dilate[1], and
    channels meet where they are of one group (C / groups and O / groups channels in a row). `gives` names what is computed, from the
    other two in the order image, output, filter or image, output:

        y[.., p, q, o] = sum over r, s, c of x * w         `output`  a convolution
        x[.., h, w, c] = sum over r, s, o of y * w         `image`   its data gradient; a transposed convolution
        w[r, s, c, o]  = sum over .., p, q of x * y        `filter`  its weight gradient

    Each element is one chain of FMAs from +0.0 in the order written, the first index slowest (of the leading axes the batch axis, then
    the others in order), all of them ascending. Where the element of the other image or output lies outside of it, +0.0 takes its
    place; an h that no p meets (stride > 1) is not in the chain.

        %y = nn.conv output %x, %w stride [2, 2] pad [1, 1] dilate [1, 1]
           : (tensor<8x32x32x16xf32, #nn.batch<0>>, tensor<3x3x16x32xf32>) -> tensor<8x16x16x32xf32, #nn.batch<0>>

    C1: image and output have the same leading axes, the batch axis among them; the filter has four axes, none of them the batch's. C2: two
    strides and dilations >= 1, two paddings >= 0, groups >= 1. C3: channels fit as above. C4: P = floor((H + 2 pad[0] - dilate[0] (R - 1)
    - 1) / stride[0]) + 1, and Q likewise. C5: one element type, or bf16 with f32 or bf16, which gives f32 (an image or an output may be bf16).

    A convolution of 3 x 3 taps with the attribute `nn.winograd` is summed by Winograd's minimal filtering: 2 x 2 elements of an output or an image
    are made of 16 chains over the channels, 3 x 3 taps of a filter of 16 chains over some rows of places, and then added up
    (compiler/kernels/Winograd.h). The compiler for a CPU sets it where it is quicker (compiler/transforms/ChooseWinograd).

    A convolution of bf16 sums as a product of bf16 does (`contract`). Its blocks of 32 go over the taps of a row and their channels, channels
    fastest, and begin anew at each row of taps; at each tap if there are groups or a dilation, and of an image if there is a stride. Those of
    a filter go over an example's leading axes and places and begin anew at each example, or at each grain. With groups of one channel
    of the image (a depthwise convolution) there are no blocks: an element is one chain of FMAs, in which subnormal numbers count as zeros.
  }];
  let arguments = (ins NN_Factor:$lhs, NN_Factor:$rhs, NN_ConvPartAttr:$gives, DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$pad,
                       DenseI64ArrayAttr:$dilate, DefaultValuedAttr<I64Attr, "1">:$groups);
  let results = (outs NN_Factor:$result);
  let assemblyFormat = [{
    $gives $lhs `,` $rhs `stride` $stride `pad` $pad `dilate` $dilate (`groups` $groups^)? attr-dict `:`
    functional-type(operands, $result)
  }];
  let cost = "convFlops(*this)";
  let extraClassDeclaration = [{
    ::mlir::Value part(ConvPart); // operand or result
  }];
}

// `window`, `stride` and `pad` of the axes H and W of x[.., H, W, C]. C1: at least three axes, the batch axis before the last three.
// C2: two numbers each, window and stride >= 1, 0 <= pad < window, so that no window lies in the padding alone. C3: the result is
// [.., P, Q, C], P = floor((H + 2 pad[0] - window[0]) / stride[0]) + 1, and Q likewise.
class NN_PoolOp<string name, list<Trait> traits> : NN_Op<name, traits> {
  dag windows = (ins DenseI64ArrayAttr:$window, DenseI64ArrayAttr:$stride, DenseI64ArrayAttr:$pad);
  string form = "`window` $window `stride` $stride `pad` $pad attr-dict `:`";
}

def NN_MaxPoolOp : NN_PoolOp<"max_pool", [Derivative, Infers]> {
  let summary = "the largest of each window";
  let description = [{
    y is the largest element of the window at (p * stride - pad), of those that lie inside x; `place` says which: its number in the
    window, row-major, the first of several. If an element is a NaN, y is one. C1 to C3: NN_PoolOp.
  }];
  let arguments = !con((ins NN_Factor:$x), windows);
  let results = (outs NN_Factor:$y, NN_Int:$place);
  let assemblyFormat = "$x " # form # " functional-type(operands, results)";
  let cost = "elementsOf(getY()) * getWindow()[0] * getWindow()[1]";
}

def NN_SumPoolOp : NN_PoolOp<"sum_pool", [Derivative, Infers]> {
  let summary = "the sum of each window";
  let description = [{
    One chain from +0.0 over the window, row-major, of the elements that lie inside x. The sums of bf16 are f32. C1 to C3: NN_PoolOp.
  }];
  let arguments = !con((ins NN_Factor:$x), windows);
  let results = (outs NN_Float:$result);
  let assemblyFormat = "$x " # form # " functional-type(operands, $result)";
  let cost = "elementsOf(getResult()) * getWindow()[0] * getWindow()[1]";
}

// ==== Attention ============================================================================================================
def NN_AttendOp : NN_Op<"attend", [Derivative, Infers, AttrSizedOperandSegments]> {
  let summary = "scaled dot-product attention with grouped key heads";
  let description = [{
    q[.., A, T, K], k[.., G, S, K], v[.., G, S, E], keys i1[.., S], bias[A, T, S]: for query head a with g = floor(a * G / A),
    p = softmax over s of (scale * q . k + bias), where `keys` is false or, if `causal`, s > t, as if -inf; dropout keeps an
    element with probability 1 - dropout (draw `key`; the element counts, row-major, the leading axes without the batch, then
    a, t, s) and divides by it; o = p . v.
    `lse` is the logarithm of the sum of e^score of a row: what the backward pass needs. It is rounded to the scores' digits, so weights of the backward
    pass are e^r times those of the forward pass, where r is that rounding: much where all scores of a row are of 1e5 and more.
    C1: leading axes agree in size and batch axis, which is one of them. C2: A is a multiple of G. C3: sizes agree as above.
    C4: the bias has no batch axis. C5: one element type; but beside q, k and v of bf16, o, `lse` and the bias are f32. C6: 0 <= dropout < 1.
  }];
  let arguments = (ins NN_Factor:$q, NN_Factor:$k, NN_Factor:$v, Optional<NN_Bool>:$keys, Optional<NN_Float>:$bias,
                       F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$key);
  let results = (outs NN_Float:$o, NN_Float:$lse);
  let assemblyFormat = [{
    $q `,` $k `,` $v (`keys` $keys^)? (`bias` $bias^)? `scale` $scale (`causal` $causal^)?
    (`dropout` $dropout^)? (`key` $key^)? attr-dict `:` functional-type(operands, results)
  }];
  let cost = "attendFlops(*this)";
}

// ==== Loops ================================================================================================================
def NN_ScanOp : Op<NN_Dialect, "scan", [Pure, IsolatedFromAbove, SingleBlock, AttrSizedOperandSegments,
                                        DeclareOpInterfaceMethods<NN_Cost>]> {
  let summary = "a loop along an axis: the body runs once for each part of its sliced operands";
  let description = [{
    Runs its body `trips` times. In trip i it works at part i of the first axis (at part trips - 1 - i if `reverse`). The body's arguments are,
    in this order,

    - a *carried* value for each of `inits`: that operand in the first trip, then what the trip before yielded for it;
    - the part of each of `slices`, without their first axis;
    - for each of `stacks`, with `firsts` beside it: the part *before* the one at which the trip works, at part 0 the operand of `firsts`
      (states before a trip, of the stack of states behind it);
    - each of `wholes`, the same in every trip.

    It yields the next carried values and, behind them, values that are stacked. Results: the carried values after the last trip, then the
    stacked ones with a new first axis.

    A part may also be *several in a row*: of an operand with n * trips parts, the body sees n along the same axis, and n that it yields in
    a row lie so in the result. The types say which.

        %last, %all = nn.scan trips 3 from (%h) slices (%x) : .. {
        ^bb0(%before: tensor<4x8xf32, #nn.batch<0>>, %part: tensor<4x8xf32, #nn.batch<0>>):
          %sum = nn.add %before, %part : tensor<4x8xf32, #nn.batch<0>>
          nn.yield %sum, %sum : ..
        }
    In `plan` it is a plan.loop of kernels.

    C1: trips >= 1. C2: slices and stacks have `trips` parts, or n * trips, along their first axis, which is not the batch axis; `firsts` are parts of
    stacks. C3: body arguments, yielded values and results are of the types that this says. C4: an op of the body neither draws nor sums
    over the batch.
  }];
  let arguments = (ins Variadic<NN_Tensor>:$inits, Variadic<NN_Tensor>:$slices, Variadic<NN_Tensor>:$stacks,
                       Variadic<NN_Tensor>:$firsts, Variadic<NN_Tensor>:$wholes, I64Attr:$trips, UnitAttr:$reverse);
  let results = (outs Variadic<NN_Tensor>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `trips` $trips (`reverse` $reverse^)? (`from` `(` $inits^ `)`)? (`slices` `(` $slices^ `)`)?
    (`before` `(` $stacks^ `)` `first` `(` $firsts `)`)? (`with` `(` $wholes^ `)`)? `:` functional-type(operands, results)
    $body attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    // The part of a stacked type, and back.
    static ::mlir::RankedTensorType partOf(::mlir::Type stacked);
    static ::mlir::RankedTensorType stackedType(::mlir::Type part, int64_t trips);
    // The same for parts that are several in a row.
    static ::mlir::RankedTensorType runOf(::mlir::Type stacked, int64_t trips);
    static ::mlir::RankedTensorType joinedType(::mlir::Type run, int64_t trips);

    ::mlir::Block &block() { return getBody().front(); }
    ::mlir::Operation *yield() { return block().getTerminator(); }
    unsigned carriedCount() { return unsigned(getInits().size()); }
    unsigned stackedCount() { return getNumResults() - carriedCount(); }
    ::mlir::Value stackedResult(unsigned i) { return getResult(carriedCount() + i); }
    // The arguments of the body.
    ::mlir::Value carried(unsigned i) { return block().getArgument(i); }
    ::mlir::Value part(unsigned i) { return block().getArgument(carriedCount() + i); }
    ::mlir::Value before(unsigned i) { return block().getArgument(carriedCount() + unsigned(getSlices().size()) + i); }
    ::mlir::Value whole(unsigned i) {
      return block().getArgument(carriedCount() + unsigned(getSlices().size() + getStacks().size()) + i);
    }
  }];
}
def NN_YieldOp : Op<NN_Dialect, "yield", [Pure, Terminator, HasParent<"ScanOp">]> {
  let summary = "ends a trip: the carried values for the next one, then what is stacked";
  let arguments = (ins Variadic<NN_Tensor>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
}

include "dialects/nn/TrainOps.td"

#endif
