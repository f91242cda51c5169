// NNDialect.td: the `nn` dialect, its enums, attributes and type constraints.
#ifndef CINCH_NN_DIALECT_TD
#define CINCH_NN_DIALECT_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/IR/TensorEncoding.td"

def NN_Dialect : Dialect {
  let name = "nn";
  let cppNamespace = "::cinch::nn";
  let summary = "what a training program computes";
  let description = [{
    source -> **nn** -> plan -> kernels

    `nn` says *what* is computed: tensors with value semantics, one operation per textbook operation, every shape static.

    - The source lies before it: names, layers, sizes with letters are gone; every op carries its place as a location,
      `loc("blocks.3.ff"("model.cinch":12:7))`, the name being the path of the instance.
    - `plan` lies behind it: order, micro-batches, kernels and bytes are decided there.

    **The example axis is part of a tensor's type**: `tensor<16x8xf32, #nn.batch<0>>` holds 16 examples of 8 numbers. The
    size is that of the whole batch. A tensor without the encoding is the same for all examples. No op mixes examples but
    those whose result has no batch axis (`reduce`, `contract`, `conv filter`, `scatter_add`, the `dbias` of `attend_grad`), which are the
    values that accumulate over micro-batches, and `group_mean`, whose groups no micro-batch cuts; nor does it cut those of an axis of groups.

    **Numbers.** Every op is defined down to the bit: an element-wise op is one correctly rounded operation or one of our
    polynomials, sums have the order that the op's description gives. No op may be re-associated or contracted.

    Discardable attributes. On operations: `nn.keep`, `nn.recompute` (hints of the user), `nn.ends_stage` (another: the number of the stage
    that ends with the op, -1: any; and a number that the parts of a decomposed op have in common), `nn.block`, `nn.block_end` (block of
    a `repeat`), `nn.backward` (made by the backward sweep or behind it), `nn.stream` (an
    `add` of a reversible layer: which operand is the stream that the result goes on; until gradients are made), `nn.rounded` (the value
    is rounded in `precision bf16`), `nn.layer` (the number of the library's layer that the op belongs to, which reads a rounded value
    once; both until values are rounded). On the module: `nn.bf16` (values are yet to be rounded); on `attend`,
    `attend_grad` and a `contract` of f32: products are those of bf16. `nn.tf32` on a `contract` and a `conv` of f32: on the tensor cores of
    a GPU (`precision tf32`). On arguments: `nn.path`, `nn.init`, `nn.optimizer`,
    `nn.decays`, `nn.frozen` (a parameter), `nn.state` (beside `nn.path` and `nn.init`: a state of the model, which
    has no gradient), `nn.average` (beside `nn.state`: {of, decay}, the exponential average of a parameter), `nn.slot` (optimizer state), `nn.field` (data),
    `nn.valid_rows`. On results: `nn.name`, `nn.path`, `nn.slot`. On `@step`: `nn.training`, `nn.delay` (gradients are those
    at the parameters before the last update).
  }];
  let useDefaultAttributePrinterParser = 1;
}

// ---- Types ------------------------------------------------------------------------------------------------------------
// `elementTypes` is what the checker's table reads (dialects/ops).
class NN_TensorOf<list<Type> elements, string name> : RankedTensorOf<elements, [HasStaticShapePred], name> {
  list<Type> elementTypes = elements;
}
// bf16 is how numbers lie in memory and travel: ops that move elements take it, products do, and no other arithmetic.
def NN_Tensor : NN_TensorOf<[F32, F64, I32, I1, BF16], "static tensor of f32, f64, i32, i1 or bf16">;
def NN_Float : NN_TensorOf<[F32, F64], "static tensor of f32 or f64">;
def NN_Factor : NN_TensorOf<[F32, F64, BF16], "static tensor of f32, f64 or bf16">;
def NN_Number : NN_TensorOf<[F32, F64, I32], "static tensor of f32, f64 or i32">;
def NN_Stored : NN_TensorOf<[F32, F64, I32, BF16], "static tensor of f32, f64, i32 or bf16">;
def NN_Int : NN_TensorOf<[I32], "static tensor of i32">;
def NN_Bool : NN_TensorOf<[I1], "static tensor of i1">;
def NN_F64Scalar
    : Type<CPred<"::cinch::nn::isF64Scalar($_self)">, "tensor<f64>", "::mlir::RankedTensorType">,
      BuildableType<"::mlir::RankedTensorType::get({}, $_builder.getF64Type())"> {
  list<Type> elementTypes = [F64];
}

// ---- Enums ------------------------------------------------------------------------------------------------------------
class NN_Case<int number, string symbol> : I32EnumAttrCase<symbol, number, !tolower(symbol)>;
class NN_Enum<string name, string summary, list<I32EnumAttrCase> cases> : I32EnumAttr<name, summary, cases> {
  let cppNamespace = "::cinch::nn";
  let genSpecializedAttr = 0;
}
class NN_EnumAttr<EnumAttrInfo info, string mnemonic> : EnumAttr<NN_Dialect, info, mnemonic>;

def NN_Compare : NN_Enum<"Comparison", "comparison",
  [NN_Case<0, "EQ">, NN_Case<1, "NE">, NN_Case<2, "LT">, NN_Case<3, "LE">, NN_Case<4, "GT">, NN_Case<5, "GE">]>;
def NN_CompareAttr : NN_EnumAttr<NN_Compare, "comparison">;
def NN_Reduction : NN_Enum<"Reduction", "what a reduction does",
  [NN_Case<0, "Sum">, NN_Case<1, "Max">, NN_Case<2, "Min">, NN_Case<3, "Prod">, NN_Case<4, "Any">, NN_Case<5, "All">]>;
def NN_ReductionAttr : NN_EnumAttr<NN_Reduction, "reduction">;
def NN_Draw : NN_Enum<"Draw", "kind of random numbers",
  [NN_Case<0, "Uniform">, NN_Case<1, "Normal">, NN_Case<2, "Int">, NN_Case<3, "Bool">]>;
def NN_DrawAttr : NN_EnumAttr<NN_Draw, "draw">;
def NN_ConvPart : NN_Enum<"ConvPart", "one of the three tensors of a convolution",
  [NN_Case<0, "Output">, NN_Case<1, "Image">, NN_Case<2, "Filter">]>;
def NN_ConvPartAttr : NN_EnumAttr<NN_ConvPart, "conv_part">;
def NN_InitKind : NN_Enum<"InitKind", "distribution of initial values",
  [NN_Case<0, "Constant">, NN_Case<1, "Normal">, NN_Case<2, "Truncated_Normal">, NN_Case<3, "Uniform">,
   NN_Case<4, "Orthogonal">]>;
def NN_ScheduleKind : NN_Enum<"ScheduleKind", "course of the learning rate",
  [NN_Case<0, "Constant">, NN_Case<1, "Linear">, NN_Case<2, "Cosine">, NN_Case<3, "Polynomial">,
   NN_Case<4, "Inverse_Sqrt">, NN_Case<5, "Step">, NN_Case<6, "Exponential">, NN_Case<7, "WSD">]>;

// ---- Attributes -------------------------------------------------------------------------------------------------------
class NN_Attr<string name, string attrMnemonic, list<Trait> traits = []> : AttrDef<NN_Dialect, name, traits> {
  let mnemonic = attrMnemonic;
}

def NN_BatchAttr : NN_Attr<"Batch", "batch", [DeclareAttrInterfaceMethods<VerifiableTensorEncoding>]> {
  let summary = "the axis of a tensor that holds the examples";
  let description = [{
    An *axis of groups* counts `group` consecutive examples as one element: `tensor<4x3x8xf32, #nn.batch<0, group = 3>>` is a batch of 12
    examples of 8 numbers. What stands inside such an element may be mixed, so the examples of a group may be compared with one another;
    no micro-batch cuts a group. A `reshape` makes groups of examples, and examples of groups.

    `pitch` says how the tensor lies in memory, and nothing of its numbers: its rows along the last axis begin so many elements apart, as in
    `tensor<4x3x1003xbf16, #nn.batch<0 : pitch = 1008>>`. 0: they lie side by side. What lies behind the end of a row belongs to nobody.
  }];
  let parameters = (ins "int64_t":$axis, DefaultValuedParameter<"int64_t", "1">:$group, DefaultValuedParameter<"int64_t", "0">:$pitch);
  let assemblyFormat = "`<` $axis (`,` `group` `=` $group^)? (`:` `pitch` `=` $pitch^)? `>`";
}

def NN_InitAttr : NN_Attr<"Init", "init"> {
  let summary = "initial values of a parameter: a is the value, deviation, half-width or gain";
  let parameters = (ins EnumParameter<NN_InitKind>:$kind, APFloatParameter<"">:$a);
  let assemblyFormat = "`<` $kind `,` custom<Number>($a) `>`";
}

def NN_OptimizerAttr : NN_Attr<"Optimizer", "optimizer"> {
  let summary = "an update rule and its hyperparameters";
  let description = [{
    A rule of dialects/ops/Optimizers.cpp, and a value for each hyperparameter that it lists (a pair has two), in its order:
    `<adamw, lr = 0.1, decay = 0.01, betas = (0.9, 0.999), eps = 1.0e-8>`; what has a default may be left out.
  }];
  let parameters = (ins StringRefParameter<>:$name, "::mlir::DenseF64ArrayAttr":$values);
  let hasCustomAssemblyFormat = 1;
  let genVerifyDecl = 1;
  let extraClassDeclaration = [{
    const ::cinch::OptimizerRule &rule() const;
    double value(::llvm::StringRef hyperparameter) const; // of a pair: the first
    OptimizerAttr with(::llvm::StringRef hyperparameter, double value) const;
  }];
}

def NN_ScheduleAttr : NN_Attr<"Schedule", "schedule"> {
  let summary = "the learning rate's course, in steps and in shares of the learning rate";
  let parameters = (ins EnumParameter<NN_ScheduleKind>:$kind, APFloatParameter<"">:$warmup, APFloatParameter<"">:$end, APFloatParameter<"">:$power,
                        APFloatParameter<"">:$factor, APFloatParameter<"">:$every, APFloatParameter<"">:$decay, OptionalArrayRefParameter<"int64_t">:$at);
  let assemblyFormat = [{
    `<` $kind `,` `warmup` `=` custom<Number>($warmup) `,` `end` `=` custom<Number>($end) `,` `power` `=`
    custom<Number>($power) `,` `factor` `=` custom<Number>($factor) `,` `every` `=` custom<Number>($every) `,` `decay` `=`
    custom<Number>($decay) (`,` `at` `=` `[` $at^ `]`)? `>`
  }];
}

def NN_TrainingAttr : NN_Attr<"Training", "training"> {
  let summary = "how parameters are updated: what Differentiate needs beside the loss";
  let description = [{
    `steps` is the schedule's horizon; 0: it follows from the number of examples and is known when the run starts.
    `clipNorm` and `clipValue` are 0 for none.
  }];
  let parameters = (ins ArrayRefParameter<"::cinch::nn::OptimizerAttr">:$optimizers,
                        "::cinch::nn::ScheduleAttr":$schedule, "int64_t":$steps, APFloatParameter<"">:$clipNorm, APFloatParameter<"">:$clipValue);
  let assemblyFormat = [{
    `<` `optimizers` `=` `[` $optimizers `]` `,` `schedule` `=` $schedule `,` `steps` `=` $steps `,` `clip_norm` `=`
    custom<Number>($clipNorm) `,` `clip_value` `=` custom<Number>($clipValue) `>`
  }];
}

#endif
