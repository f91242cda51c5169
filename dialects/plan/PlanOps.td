//===- PlanOps.td - the plan dialect: when, where, in which bytes ----------------------------------------------------===//
//
//   source --> nn (what is computed) --> plan (when, where, in which bytes) --> kernels (how) --> runtime
//
// `plan` orders the work of `nn` and places it in memory. It has a handful of ops: a loop over micro-batches, one over blocks
// of rows inside a micro-batch, a kernel (a group of `nn` ops that runs as one function), and the gate before the update.
//
//===------------------------------------------------------------------------------------------------------------------===//
#ifndef CINCH_DIALECTS_PLAN_PLANOPS_TD
#define CINCH_DIALECTS_PLAN_PLANOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::cinch::plan";
  let useDefaultAttributePrinterParser = 1;
  let summary = "when and where the ops of a training step run, and in which bytes";
  let description = [{
    The ops of a function of the `nn` dialect are grouped into `plan.kernel`s first, on the whole batch: a straight line around
    `plan.microbatches` loops that make one pass each. Under a decision of the planner the loops get their passes, kernels their order:

    ```
    kernels that run once                 batch-free values that the loop needs
    %sums:2 = plan.microbatches count 4 { one pass for each micro-batch; its results are chains over all of them
      plan.kernel ..
      plan.yield %dw, %loss
    }
    kernels that run once                 gradients of batch-free values, clipping
    plan.gate %loss, %norm                stops here when either is not finite: the parameters are intact
    update kernels
    return
    ```
    Recomputation is explicit: a kernel that stands twice runs twice. After memory assignment every operand and result of a
    kernel has a byte offset in the arena.
  }];
}

//===- The decision -----------------------------------------------------------------------------------------------------===//

class Plan_Attr<string name, string mnemonic_> : AttrDef<Plan_Dialect, name> {
  let mnemonic = mnemonic_;
  let assemblyFormat = "`<` struct(params) `>`";
}

def Plan_RunAttr : Plan_Attr<"Run", "run"> {
  let summary = "one run of a kernel, and the byte offsets of what it reads and writes";
  let description = [{
    `kernel` numbers the kernels, gates and results of the function in the order in which they stand. `scratch` is the offset of
    the scratch of all threads together, -1 if there is none.

    `copies` (absent: one each) says for what the run writes how many copies of it there are, one behind the other from its offset on, which
    the micro-batches take in turns (plan.microbatches, `actions`).

    A kernel that is a loop along an axis (nn.scan) has `slots`, two offsets for each carried value that is not stacked, and `inside`, the
    runs of a trip, whose kernels are those of the body. Among their offsets, -1 is what lies outside of the loop's scratch.
  }];
  let parameters = (ins "int64_t":$kernel, "bool":$recompute, "::mlir::DenseI64ArrayAttr":$reads,
                        "::mlir::DenseI64ArrayAttr":$writes, "int64_t":$scratch, "int64_t":$scratch_bytes,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$copies,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$slots, OptionalParameter<"::mlir::ArrayAttr">:$inside);
}

def Plan_LoopAttr : Plan_Attr<"Loop", "loop"> {
  let summary = "runs [first, last) are the body of a loop over the micro-batches";
  let description = "`zeroed` holds pairs of a byte offset and a number of bytes that are cleared before the loop.";
  let parameters = (ins "int64_t":$first, "int64_t":$last, "::mlir::DenseI64ArrayAttr":$zeroed);
}

def Plan_RowsAttr : Plan_Attr<"Rows", "rows"> {
  let summary = "runs [first, last) work block by block, on `positions` positions of each of `examples` examples";
  let parameters = (ins "int64_t":$first, "int64_t":$last, "int64_t":$examples, "int64_t":$positions);
}

def Plan_MoveAttr : Plan_Attr<"Move", "move"> {
  let summary = "right before run `before` a copy of an argument between pinned memory and the arena begins, or is waited for";
  let description = [{
    `what` is "fetch", "store" or "await" (plan.fetch, plan.store, plan.await), `argument` the number of the function's argument, `offset` its
    place in the arena meanwhile.
  }];
  let parameters = (ins "int64_t":$before, "::mlir::StringAttr":$what, "int64_t":$argument, "int64_t":$offset);
}

def Plan_DecisionAttr : Plan_Attr<"Decision", "decision"> {
  let summary = "what the planner decided about a function";
  let description = [{
    Runs stand in their order; `loops` says which of them are bodies of loops over the micro-batches, `arguments` gives the offset of
    each argument. An example has `row_positions` positions. A `count` of 0 means that the caller says how many micro-batches there are.
    Arguments with `moves` lie in pinned memory of the host, of which there are `host` bytes; their offsets count from its begin.
  }];
  let parameters = (ins "int64_t":$microbatch, "int64_t":$count, "int64_t":$batch, "int64_t":$arena,
                        "int64_t":$row_positions, "::mlir::DenseI64ArrayAttr":$arguments, "::mlir::ArrayAttr":$loops,
                        "::mlir::ArrayAttr":$rows, "::mlir::ArrayAttr":$runs,
                        DefaultValuedParameter<"int64_t", "0">:$host, OptionalParameter<"::mlir::ArrayAttr">:$moves);
}

//===- Ops --------------------------------------------------------------------------------------------------------------===//

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

def Plan_MicrobatchesOp : Plan_Op<"microbatches", [
    SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects]> {
  let summary = "the loop over the micro-batches of one batch";
  let description = [{
    Runs its body `count` times; pass i sees the examples [i * size, (i + 1) * size) of the batch. A `count` of 0 means that
    the caller says how many (evaluation, prediction). Result j is the chain over the passes of yielded value j: a
    contraction, a reduction over the batch axis or a scatter-add that goes on, in each pass, from what the pass before left
    (exactly the additions of the undivided batch).

    A worker of several (`plan.send`, `plan.receive`) does not run the body as a whole. `plan.part` cuts it into parts, and `actions` lists
    pairs of a part and a micro-batch in the order in which they run: every part takes all micro-batches, in ascending order. What one
    part leaves for a later one waits while other micro-batches run. Where the steps of a worker overlap, micro-batch count + k is micro-batch k
    of the next step: a part that begins with micro-batch f does its first f with the step before (or at the begin, if nothing of the step was
    done), and what waits, lives on to the next step. Then sums, and what is computed before the loop, are there twice, for two steps; and
    for the next step the parameters stand in for the previous ones (`PATH.prev`). Where the caller says how many micro-batches there are, part i
    runs `lags[i]` micro-batches behind the first one: at tick t it takes micro-batch t - lags[i].

    A worker of a replica has the examples from `first` on only: its pass i sees the examples [first + i * size, first + (i + 1) * size)
    of the batch.

    C1: count >= 0 and size >= 1.
    C2: results and yielded values agree in number and type.
    C3: no result has a batch axis.
    C4: `actions` and `lags` are there only if the body has a `plan.part`; `actions` are pairs, `lags` one a part, ascending from 0.
  }];
  let arguments = (ins I64Attr:$count, I64Attr:$size, OptionalAttr<DenseI64ArrayAttr>:$actions, OptionalAttr<DenseI64ArrayAttr>:$lags,
                       OptionalAttr<I64Attr>:$first);
  let results = (outs Variadic<AnyType>:$sums);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `count` $count `size` $size (`first` $first^)? (`actions` $actions^)? (`lags` $lags^)? (`->` type($sums)^)? $body attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_RowBlocksOp : Plan_Op<"row_blocks", [
    SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects]> {
  let summary = "a loop over blocks of rows inside a micro-batch";
  let description = [{
    A row is an (example, position) pair; an example has `of` positions. Runs its body `count` times, on `examples` examples x
    `positions` positions each time, in the order of the rows: all positions of some examples, or some positions of one.
    Operand i is given to the body block by block: its positions from `from[i]` on, or, where that is -1, its examples whole.
    What is the same for all rows the body reads from outside. A yielded value of rows fills the rows of a result; a yielded
    value without a batch axis is a sum that goes on from block to block, as in `plan.microbatches`.

    ```
    %dx, %dw = plan.row_blocks count 16 block 1 x 8 of 64 (%x) from [0] : (tensor<2x64x4xf32, #nn.batch<0>>)
        -> (tensor<2x64x4xf32, #nn.batch<0>>, tensor<999x4xf32>) {
    ^bb0(%xb: tensor<1x8x4xf32, #nn.batch<0>>):
      ..
      plan.yield %dxb, %p : tensor<1x8x4xf32, #nn.batch<0>>, tensor<999x4xf32>
    }
    ```
    C1: sizes are at least 1, and a block is of one example unless it has all positions, whose number its own divides.
    C2: a body argument is its operand with the examples and (unless `from` is -1) the positions of a block; the positions
    that are read exist, and a block is one piece of memory. C3: a result is the yielded value with the rows of all blocks, or the very type of a sum.
    C4: operands and results have `count` blocks.
  }];
  let arguments = (ins I64Attr:$count, I64Attr:$examples, I64Attr:$positions, I64Attr:$of, Variadic<AnyType>:$rows,
                       DenseI64ArrayAttr:$from);
  let results = (outs Variadic<AnyType>:$results);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `count` $count `block` $examples `x` $positions `of` $of `(` $rows `)` `from` $from `:`
    functional-type($rows, $results) $body attr-dict
  }];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    // Where a block of an operand or of a result of rows lies, in bytes: the first at `first`, that of the next example
    // `example` further on, of the next position `position`.
    struct Steps {
      int64_t first = 0, example = 0, position = 0;
    };
    Steps stepsOfOperand(unsigned i);
    Steps stepsOfResult(unsigned i);
    // The result that yielded value `value` fills; none for sums and values that are not yielded.
    std::optional<unsigned> resultFilledBy(::mlir::Value value);
  }];
}

def Plan_YieldOp : Plan_Op<"yield", [Pure, Terminator, ParentOneOf<["MicrobatchesOp", "RowBlocksOp"]>]> {
  let summary = "ends one pass of the micro-batch loop, or of the loop over blocks of rows";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins)>];
}

def Plan_KernelOp : Plan_Op<"kernel", [IsolatedFromAbove, SingleBlockImplicitTerminator<"ReturnOp">]> {
  let summary = "a group of nn ops that runs as one function on buffers";
  let description = [{
    The region's arguments are the buffers read, `plan.return` names the values written. A loop kernel runs over the natural domain
    of the result of the op numbered `domain` in its body. `recompute` marks a second or later
    run of the same work. After memory assignment `reads` and `writes` hold the byte offsets in the arena, `scratch` that of
    the scratch (-1: none needed). `accumulates` (one flag a result) says that a result goes on from what its buffer holds.

    C1: region arguments agree with the operands, the terminator with the results.
    C2: `reads`, `writes`, `accumulates`, where present, have one entry an operand or result.
    C3: `domain`, where present, numbers an op of the body that has a result.
  }];
  let arguments = (ins Variadic<AnyType>:$inputs, UnitAttr:$recompute,
                       OptionalAttr<DenseBoolArrayAttr>:$accumulates,
                       OptionalAttr<DenseI64ArrayAttr>:$reads, OptionalAttr<DenseI64ArrayAttr>:$writes,
                       OptionalAttr<I64Attr>:$scratch, OptionalAttr<StrAttr>:$label, OptionalAttr<I64Attr>:$domain);
  let results = (outs Variadic<AnyType>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    ($label^)? (`recompute` $recompute^)? `(` $inputs `)` `:` functional-type($inputs, $outputs)
    (`domain` $domain^)? (`accumulates` $accumulates^)? (`reads` $reads^)? (`writes` $writes^)? (`scratch` $scratch^)? $body attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_ReturnOp : Plan_Op<"return", [Pure, Terminator, HasParent<"KernelOp">]> {
  let summary = "names what a kernel writes";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins)>];
}

//===- State on the host -------------------------------------------------------------------------------------------------===//

def Plan_FetchOp : Plan_Op<"fetch", [AllTypesMatch<["value", "copy"]>]> {
  let summary = "begins to copy a state from pinned memory of the host into the arena";
  let description = [{
    The copy begins when the device has done all that stands before this, and goes on beside what follows, up to its `plan.await`; before that
    nobody reads the result, or writes where it goes. `host` is where the state lies on the host, `offset` its place in the arena.
  }];
  let arguments = (ins AnyType:$value, OptionalAttr<I64Attr>:$host, OptionalAttr<I64Attr>:$offset);
  let results = (outs AnyType:$copy);
  let assemblyFormat = "$value `:` type($value) (`host` $host^)? (`offset` $offset^)? attr-dict";
}

def Plan_StoreOp : Plan_Op<"store", [AllTypesMatch<["value", "copy"]>]> {
  let summary = "begins to copy a state from the arena back into pinned memory of the host";
  let description = [{
    As plan.fetch does. Up to its `plan.await` nobody writes where it comes from. The result is the new state, as it lies on the host.
  }];
  let arguments = (ins AnyType:$value, OptionalAttr<I64Attr>:$host, OptionalAttr<I64Attr>:$offset);
  let results = (outs AnyType:$copy);
  let assemblyFormat = "$value `:` type($value) (`host` $host^)? (`offset` $offset^)? attr-dict";
}

def Plan_AwaitOp : Plan_Op<"await"> {
  let summary = "what follows waits for the end of a copy";
  let description = [{
    C1: waits for the result of a plan.fetch or a plan.store.
  }];
  let arguments = (ins AnyType:$copy);
  let assemblyFormat = "$copy `:` type($copy) attr-dict";
  let hasVerifier = 1;
}

//===- Several workers --------------------------------------------------------------------------------------------------===//

def Plan_PartOp : Plan_Op<"part", [HasParent<"MicrobatchesOp">]> {
  let summary = "the next part of the loop body begins here";
  let description = [{
    The loop's `actions` number the parts from 0 on.
  }];
  let assemblyFormat = "attr-dict";
}

def Plan_SendOp : Plan_Op<"send"> {
  let summary = "hands a value to another worker";
  let description = [{
    `channel` numbers the channels of the program. A channel leads from one worker to one other, and is first in, first out. After
    memory assignment `reads` holds the byte offset of the value.

    With `last` it is a sum of the loop, which is sent in the last micro-batch alone.

    C1: `last` stands in a loop over the micro-batches.
  }];
  let arguments = (ins AnyType:$value, I64Attr:$channel, StrAttr:$label, UnitAttr:$last, OptionalAttr<DenseI64ArrayAttr>:$reads);
  let assemblyFormat = "$label $value `:` type($value) `channel` $channel (`last` $last^)? (`reads` $reads^)? attr-dict";
  let hasVerifier = 1;
}

def Plan_ReceiveOp : Plan_Op<"receive"> {
  let summary = "waits for the next value of a channel";
  let description = [{
    The value is one that another worker computes. After memory assignment `writes` holds the byte offset where it is left.

    With `begins` j, result j of the loop around it goes on from the value: it is received in the first micro-batch alone, into the bytes of
    that sum. With `adds`, too, the sum does not go on from it: in the last micro-batch it is added to the sum where that lies,
    (value + sum) + 0.0, which is behind the work that adds to it and before a `plan.send` of it with `last`.

    C1: `begins` names a result of the loop over the micro-batches around it, which has the type of the value. C2: `adds` stands with `begins`.
  }];
  let arguments = (ins I64Attr:$channel, StrAttr:$label, OptionalAttr<I64Attr>:$begins, OptionalAttr<DenseI64ArrayAttr>:$writes, UnitAttr:$adds);
  let results = (outs AnyType:$value);
  let assemblyFormat = "$label `channel` $channel (`begins` $begins^)? (`adds` $adds^)? `:` type($value) (`writes` $writes^)? attr-dict";
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    // The value of the loop body that becomes the sum; null without `begins`.
    ::mlir::Value sum();
  }];
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
