// TrainOps.td: gradients of the larger ops, and what happens to parameters once all gradients are there.
#ifndef CINCH_NN_TRAIN_OPS_TD
#define CINCH_NN_TRAIN_OPS_TD

include "dialects/nn/NNOps.td"

// ==== Gradients ============================================================================================================
class NN_RowGradOp<string mnemonic, string meaning>
    : NN_Op<mnemonic, [SameOperandsAndResultType]> {
  let summary = meaning;
  let arguments = (ins NN_Float:$y, NN_Float:$dy, I64Attr:$axis);
  let results = (outs NN_Float:$result);
  let assemblyFormat = "$y `,` $dy `axis` $axis attr-dict `:` type($result)";
  let cost = "5 * elementsOf(getResult())";
}
def NN_SoftmaxGradOp : NN_RowGradOp<"softmax_grad", "gradient of softmax"> {
  let description = "y * (dy - sum(dy * y)), y being the softmax. C1: the axis exists and is not the batch axis.";
}
def NN_LogSoftmaxGradOp : NN_RowGradOp<"log_softmax_grad", "gradient of log_softmax"> {
  let description = "dy - exp(y) * sum(dy), y being the log softmax. C1: the axis exists and is not the batch axis.";
}

def NN_CrossEntropyGradOp : NN_Op<"cross_entropy_grad", [AllTypesMatch<["logits", "result"]>]> {
  let summary = "gradient of cross_entropy with respect to the logits";
  let description = [{
    With p = exp(x - max) / sum(exp(x - max)), s = smooth, C classes: dy * (p - t), where t is 1 at y and 0 elsewhere if s = 0,
    else (1 - s) + s / C at y and s / C elsewhere; 0 where y = `except`. Constraints as cross_entropy; dy has its result's type.
  }];
  let arguments = (ins NN_Float:$logits, NN_Int:$y, NN_Float:$dy, I64Attr:$axis,
                       DefaultValuedAttr<F64Attr, "0.0">:$smooth, OptionalAttr<I64Attr>:$except);
  let results = (outs NN_Float:$result);
  let assemblyFormat = [{
    $logits `,` $y `,` $dy `axis` $axis (`smooth` $smooth^)? (`except` $except^)? attr-dict `:`
    functional-type(operands, $result)
  }];
  let cost = "18 * elementsOf(getLogits())";
}

def NN_AttendGradOp : NN_Op<"attend_grad", [AttrSizedOperandSegments]> {
  let summary = "gradient of attend";
  let description = [{
    Recomputes the scores from q, k and `lse`. `dbias`, a sum over all leading axes with the examples slowest, is there only if
    it is wanted. C1: gradients have the types of what they belong to, o and lse those of attend; but dout
    has the elements of q, and beside a q of bf16 all of dq, dk and dv may be f32 (not yet rounded). C2: `dbias` only with a bias.
  }];
  let arguments = (ins NN_Factor:$q, NN_Factor:$k, NN_Factor:$v, NN_Float:$o, NN_Float:$lse, NN_Factor:$dout,
                       Optional<NN_Bool>:$keys, Optional<NN_Float>:$bias,
                       F64Attr:$scale, UnitAttr:$causal, DefaultValuedAttr<F64Attr, "0.0">:$dropout,
                       DefaultValuedAttr<I64Attr, "0">:$key);
  let results = (outs NN_Factor:$dq, NN_Factor:$dk, NN_Factor:$dv, Optional<NN_Float>:$dbias);
  let assemblyFormat = [{
    $q `,` $k `,` $v `,` $o `,` $lse `,` $dout (`keys` $keys^)? (`bias` $bias^)? `scale` $scale (`causal` $causal^)?
    (`dropout` $dropout^)? (`key` $key^)? attr-dict `:` functional-type(operands, results)
  }];
  let cost = "attendGradFlops(*this)";
}

def NN_MaxPoolGradOp : NN_PoolOp<"max_pool_grad", []> {
  let summary = "gradient of max_pool";
  let description = [{
    Each element is one chain from +0.0 over the numbers that it may have in a window, ascending: dy of that window is added where
    `place` is that number. C1 to C3: NN_PoolOp, the result being x. C4: `place` has the shape of dy.
  }];
  let arguments = !con((ins NN_Int:$place, NN_Float:$dy), windows);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = "$place `,` $dy " # form # " functional-type(operands, $dx)";
  let cost = "2 * elementsOf(getDy()) * getWindow()[0] * getWindow()[1]";
}

def NN_SumPoolGradOp : NN_PoolOp<"sum_pool_grad", []> {
  let summary = "gradient of sum_pool";
  let description = [{
    Each element is one chain from +0.0 over the numbers that it may have in a window, ascending, of dy of that window. C1 to C3:
    NN_PoolOp, the result being x.
  }];
  let arguments = !con((ins NN_Float:$dy), windows);
  let results = (outs NN_Float:$dx);
  let assemblyFormat = "$dy " # form # " functional-type(operands, $dx)";
  let cost = "elementsOf(getDy()) * getWindow()[0] * getWindow()[1]";
}

// ==== The gradient's norm ==================================================================================================
def NN_SumSquaresOp : NN_Op<"sum_squares"> {
  let summary = "a parameter's contribution to the squared norm of the gradient";
  let description = [{
    In f64: the elements, row-major, in chunks of 4096 (the last may be shorter); each chunk's squares are summed in 16 logical
    lanes and the fixed tree, the chunks' sums are one chain from +0.0. C1: no batch axis.
  }];
  let arguments = (ins NN_Float:$x);
  let results = (outs NN_F64Scalar:$result);
  let assemblyFormat = "$x attr-dict `:` type($x)";
  let extraClassDeclaration = "static constexpr int64_t kChunk = 4096;";
  let cost = "2 * elementsOf(getX())";
}

def NN_ClipFactorOp : NN_Op<"clip_factor", [DeclareOpInterfaceMethods<NN_Decomposable>]> {
  let summary = "min(1, limit / (norm + 1e-6))";
  let description = "`values`: the limit is this value of the run (nn.run_value).";
  let arguments = (ins NN_F64Scalar:$norm, F64Attr:$limit, OptionalAttr<I64Attr>:$values);
  let results = (outs NN_F64Scalar:$result);
  let assemblyFormat = "$norm `limit` $limit (`values` $values^)? attr-dict";
}

// ==== State ================================================================================================================
def NN_NewStateOp : NN_Op<"new_state", [NN_NoGradient, SameOperandsAndResultType]> {
  let summary = "what a state is from the next step on";
  let description = [{
    x, as the value that the state `path` has behind the gate. It is an op so that every state has a value of its own to be written,
    be its new value a sum over the batch, another state or a number. C1: no batch axis.

        %m = nn.new_state "norm.running_mean" %x : tensor<8xf32>
  }];
  let arguments = (ins StrAttr:$path, NN_Float:$x);
  let results = (outs NN_Float:$result);
  let assemblyFormat = "$path $x attr-dict `:` type($result)";
  let cost = "0";
}

// ==== Updates ==============================================================================================================
def NN_LearningRateOp : NN_Op<"learning_rate", [DeclareOpInterfaceMethods<NN_Decomposable>]> {
  let summary = "the learning rate of this step";
  let description = [{
    All in f64, s = the step from 0, w = warmup, N = `horizon` (0: `total_steps`). While s < w: lr * ((s + 1) / w). Behind it
    lr times, with t = (s - w) / max(N - w, 1) cut to [0, 1]:

    | schedule | share |
    |---|---|
    | constant | 1 |
    | linear | 1 - (1 - end) * t |
    | cosine | end + (1 - end) * (0.5 * (1 + cos(pi * t))) |
    | cosine with `every` | the same, t being (s - w) / every less its whole part |
    | cosine with `at` | the same, t going from the last entry <= s (at least w) to the first one > s (or N) |
    | polynomial | end + (1 - end) * (1 - t)^power |
    | inverse_sqrt | sqrt(max(w, 1) / max(s + 1, max(w, 1))) |
    | step | factor^(floor(s / every)), or factor^(number of entries of `at` that are <= s) |
    | exponential | factor^(s / every) |
    | wsd | 1 while s < N - decay, then 1 - (1 - end) * ((s - (N - decay)) / decay) |

    `values`: lr and the numbers of the schedule are values of the run: the place of lr, and that of warmup, behind which end,
    power, factor, every and decay follow (nn.run_value).
  }];
  let arguments = (ins F64Attr:$lr, NN_ScheduleAttr:$schedule, I64Attr:$horizon, OptionalAttr<DenseI64ArrayAttr>:$values);
  let results = (outs NN_F64Scalar:$result);
  let assemblyFormat = "$lr $schedule `horizon` $horizon (`values` $values^)? attr-dict";
}

def NN_UpdateOp : NN_Op<"update", [AttrSizedOperandSegments, DeclareOpInterfaceMethods<NN_Decomposable>]> {
  let summary = "the update of a parameter by an optimizer";
  let description = [{
    The formula of the rule in dialects/ops/Optimizers.cpp, with g = gradient * factor (if given). Scalars are f64 and are rounded
    to the parameter's type where they meet a tensor. `state` and the further results are the rule's slots, in its order.
    `values`: the hyperparameters are values of the run, from this place on (nn.run_value); only whether one is 0 counts here.
    C1: gradient and state have the parameter's type, without batch axis. C2: the old and the new state of each slot that the
    rule has with these hyperparameters.
  }];
  let arguments = (ins NN_Float:$parameter, NN_Float:$gradient, NN_F64Scalar:$lr, Optional<NN_F64Scalar>:$factor,
                       Variadic<NN_Float>:$state, NN_OptimizerAttr:$optimizer, OptionalAttr<I64Attr>:$values);
  let results = (outs NN_Float:$result, Variadic<NN_Float>:$newState);
  let assemblyFormat = [{
    $parameter `,` $gradient `lr` $lr (`factor` $factor^)? (`state` $state^)? `by` $optimizer (`values` $values^)? attr-dict `:`
    functional-type(operands, results)
  }];
  let moreChecks = "verifySlots(*this)";
  let cost = "getOptimizer().rule().cost * elementsOf(getParameter())";
}

#endif
