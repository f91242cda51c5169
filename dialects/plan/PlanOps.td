//===- PlanOps.td - the plan dialect: when, where, in which bytes ----------------------------------------------------===//
//
//   source --> nn (what is computed) --> plan (when, where, in which bytes) --> kernels (how) --> runtime
//
// `plan` orders the work of `nn` and places it in memory. It has a handful of ops: a loop over micro-batches, a kernel (a
// group of `nn` ops that runs as one function), and the gate before the update.
//
//===------------------------------------------------------------------------------------------------------------------===//
#ifndef CINCH_DIALECTS_PLAN_PLANOPS_TD
#define CINCH_DIALECTS_PLAN_PLANOPS_TD

include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::cinch::plan";
  let summary = "when and where the ops of a training step run, and in which bytes";
  let description = [{
    A function of the `nn` dialect becomes, under a decision of the planner, a straight line of `plan.kernel`s around one
    `plan.microbatches` loop:

    ```
    prologue kernels                      batch-free values that the loop needs
    %sums:2 = plan.microbatches count 4 { one pass for each micro-batch; its results are chains over all of them
      plan.kernel ..
      plan.yield %dw, %loss
    }
    epilogue kernels                      gradients of batch-free values, clipping
    plan.gate %loss, %norm                stops here when either is not finite: the parameters are intact
    update kernels
    return
    ```
    Recomputation is explicit: a kernel that stands twice runs twice. After memory assignment every operand and result of a
    kernel has a byte offset in the arena.
  }];
}

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

def Plan_MicrobatchesOp : Plan_Op<"microbatches", [
    SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects]> {
  let summary = "the loop over the micro-batches of one batch";
  let description = [{
    Runs its body `count` times; pass i sees the examples [i * size, (i + 1) * size) of the batch. A `count` of 0 means that
    the caller says how many (evaluation, prediction). Result j is the chain over the passes of yielded value j: a
    contraction, a reduction over the batch axis or a scatter-add that goes on, in each pass, from what the pass before left
    (exactly the additions of the undivided batch).

    C1: count >= 0 and size >= 1.
    C2: results and yielded values agree in number and type.
    C3: no result has a batch axis.
  }];
  let arguments = (ins I64Attr:$count, I64Attr:$size);
  let results = (outs Variadic<AnyType>:$sums);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = "`count` $count `size` $size (`->` type($sums)^)? $body attr-dict";
  let hasVerifier = 1;
}

def Plan_YieldOp : Plan_Op<"yield", [Pure, Terminator, HasParent<"MicrobatchesOp">]> {
  let summary = "ends one pass of the micro-batch loop";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins)>];
}

def Plan_KernelOp : Plan_Op<"kernel", [IsolatedFromAbove, SingleBlockImplicitTerminator<"ReturnOp">]> {
  let summary = "a group of nn ops that runs as one function on buffers";
  let description = [{
    The region's arguments are the buffers read, `plan.return` names the values written. `recompute` marks a second or later
    run of the same work. After memory assignment `reads` and `writes` hold the byte offsets in the arena, `scratch` that of
    the scratch (-1: none needed). `accumulates` (one flag a result) says that a result goes on from what its buffer holds.

    C1: region arguments agree with the operands, the terminator with the results.
    C2: `reads`, `writes`, `accumulates`, where present, have one entry an operand or result.
  }];
  let arguments = (ins Variadic<AnyType>:$inputs, UnitAttr:$recompute,
                       OptionalAttr<DenseBoolArrayAttr>:$accumulates,
                       OptionalAttr<DenseI64ArrayAttr>:$reads, OptionalAttr<DenseI64ArrayAttr>:$writes,
                       OptionalAttr<I64Attr>:$scratch, OptionalAttr<StrAttr>:$label);
  let results = (outs Variadic<AnyType>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    ($label^)? (`recompute` $recompute^)? `(` $inputs `)` `:` functional-type($inputs, $outputs)
    (`accumulates` $accumulates^)? (`reads` $reads^)? (`writes` $writes^)? (`scratch` $scratch^)? $body attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_ReturnOp : Plan_Op<"return", [Pure, Terminator, HasParent<"KernelOp">]> {
  let summary = "names what a kernel writes";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins)>];
}

def Plan_ResultsOp : Plan_Op<"results"> {
  let summary = "values that are handed out here";
  let description = [{
    Inside the loop: results of a micro-batch, handed to the caller before the next one. Behind it: scalars that stay where
    they are until the next step.
  }];
  let arguments = (ins Variadic<AnyType>:$values, ArrayAttr:$names, OptionalAttr<DenseI64ArrayAttr>:$reads);
  let assemblyFormat = "$names ($values^ `:` type($values))? (`reads` $reads^)? attr-dict";
}

def Plan_GateOp : Plan_Op<"gate"> {
  let summary = "goes on only if the loss and the gradient norm are finite";
  let description = [{
    Stands before the first kernel that writes a parameter or a state. Without a norm only the loss is tested.
  }];
  let arguments = (ins AnyType:$loss, Optional<AnyType>:$norm, OptionalAttr<DenseI64ArrayAttr>:$reads);
  let assemblyFormat = "$loss (`,` $norm^)? `:` type($loss) (`,` type($norm)^)? (`reads` $reads^)? attr-dict";
}

#endif
