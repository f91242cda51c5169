//===- PlanOps.td - the plan dialect: when, where, in which bytes ----------------------------------------------------===//
//
//   source --> nn (what is computed) --> plan (when, where, in which bytes) --> kernels (how) --> runtime
//
// `plan` orders the work of `nn` and places it in memory. It has a handful of ops: a kernel (a group of `nn` ops that runs as one
// function), a loop, and the gate before the update.
//
//===------------------------------------------------------------------------------------------------------------------===//
#ifndef CINCH_DIALECTS_PLAN_PLANOPS_TD
#define CINCH_DIALECTS_PLAN_PLANOPS_TD

include "mlir/IR/AttrTypeBase.td"
include "mlir/IR/EnumAttr.td"
include "mlir/IR/OpBase.td"
include "mlir/Interfaces/SideEffectInterfaces.td"

def Plan_Dialect : Dialect {
  let name = "plan";
  let cppNamespace = "::cinch::plan";
  let useDefaultAttributePrinterParser = 1;
  let summary = "when and where the ops of a training step run, and in which bytes";
  let description = [{
    The ops of a function of the `nn` dialect are grouped into `plan.kernel`s first, on the whole batch: a straight line around
    loops over the examples of the batch that make one trip each. Under a decision of the planner the loops get their trips, kernels their
    order:

    ```
    kernels that run once                 batch-free values that the loop needs
    %sums:2 = plan.loop count 4 {         one trip for each micro-batch; its results are chains over all of them
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
    the micro-batches take in turns (plan.loop, `actions`).

    `rows` (absent: those of the block) are the rows of images that it makes in a loop over blocks of rows: the first one in the first trip, how
    many, and how much further on they are in the next trip. A fourth number says that the run copies a band (plan.band) for the run behind it,
    of that kernel's read of this number.

    `zeroed` holds pairs of a byte offset and a number of bytes: sums that begin with the run and are cleared before it.

    A kernel that is a loop along an axis has `slots`, two offsets for each carried value that is not stacked, and `inside`, the
    runs of a trip, whose kernels are those of the body. Among their offsets, -1 is what lies outside of the loop's scratch.
  }];
  let parameters = (ins "int64_t":$kernel, "bool":$recompute, "::mlir::DenseI64ArrayAttr":$reads,
                        "::mlir::DenseI64ArrayAttr":$writes, "int64_t":$scratch, "int64_t":$scratch_bytes,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$rows,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$copies,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$slots, OptionalParameter<"::mlir::ArrayAttr">:$inside,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$zeroed);
}

def Plan_LoopAttr : Plan_Attr<"Loop", "loop"> {
  let summary = "runs [first, last) are the body of a loop over the micro-batches";
  let description = "`zeroed` holds pairs of a byte offset and a number of bytes that are cleared before the loop.";
  let parameters = (ins "int64_t":$first, "int64_t":$last, "::mlir::DenseI64ArrayAttr":$zeroed);
}

def Plan_RowsAttr : Plan_Attr<"Rows", "rows"> {
  let summary = "runs [first, last) work block by block, on `positions` positions of each of `examples` examples";
  let description = "`zeroed`: as of a run, cleared before the first block.";
  let parameters = (ins "int64_t":$first, "int64_t":$last, "int64_t":$examples, "int64_t":$positions,
                        OptionalParameter<"::mlir::DenseI64ArrayAttr">:$zeroed);
}

def Plan_MoveAttr : Plan_Attr<"Move", "move"> {
  let summary = "right before run `before` a copy between pinned memory and the arena begins, or is waited for";
  let description = [{
    `what` is "fetch", "store" or "await" (plan.fetch, plan.store, plan.await), `argument` the number of the function's argument, `offset` its
    place in the arena meanwhile. Where `argument` is -1, it is `result` of `kernel`, a value of the main loop that waits at `host` in pinned memory.
  }];
  let parameters = (ins "int64_t":$before, "::mlir::StringAttr":$what, "int64_t":$argument, "int64_t":$offset,
                        DefaultValuedParameter<"int64_t", "-1">:$kernel, DefaultValuedParameter<"int64_t", "-1">:$result,
                        DefaultValuedParameter<"int64_t", "0">:$host);
}

def Plan_DecisionAttr : Plan_Attr<"Decision", "decision"> {
  let summary = "what the planner decided about a function";
  let description = [{
    Runs stand in their order; `loops` says which of them are bodies of loops over the micro-batches, `arguments` gives the offset of
    each argument. An example has `row_positions` positions; `row_heights` are pairs of the height of an image with several
    rows a position, and that number. A `count` of 0 means that the caller says how many micro-batches there are.
    Arguments with `moves` lie in pinned memory of the host, of which there are `host` bytes; their offsets count from its begin.
  }];
  let parameters = (ins "int64_t":$microbatch, "int64_t":$count, "int64_t":$batch, "int64_t":$arena,
                        "int64_t":$row_positions, OptionalParameter<"::mlir::DenseI64ArrayAttr">:$row_heights, "::mlir::DenseI64ArrayAttr":$arguments, "::mlir::ArrayAttr":$loops,
                        "::mlir::ArrayAttr":$rows, "::mlir::ArrayAttr":$runs,
                        DefaultValuedParameter<"int64_t", "0">:$host, OptionalParameter<"::mlir::ArrayAttr">:$moves);
}

//===- Ops --------------------------------------------------------------------------------------------------------------===//

class Plan_Op<string mnemonic, list<Trait> traits = []> : Op<Plan_Dialect, mnemonic, traits>;

// What a loop walks.
def Plan_ExamplesAttr : Plan_Attr<"Examples", "examples"> {
  let summary = "the examples of the batch, `size` of them in each trip";
  let description = [{
    Trip i sees the examples [first + i * size, first + (i + 1) * size) of the batch; the worker of a replica has those from `first` on. The
    function's arguments with a batch axis hold those of one trip.
  }];
  let parameters = (ins "int64_t":$size, DefaultValuedParameter<"int64_t", "0">:$first);
}

def Plan_RowBlocksAttr : Plan_Attr<"RowBlocks", "row_blocks"> {
  let summary = "the rows of a micro-batch, block by block";
  let description = [{
    A row is an (example, position) pair; an example has `of` positions. A trip works on `examples` examples x `positions` positions, in the
    order of the rows: all positions of some examples, or some positions of one. Of images the positions are rows, and an image may have several
    rows a position.
  }];
  let parameters = (ins "int64_t":$examples, "int64_t":$positions, "int64_t":$of);
}

def Plan_AxisAttr : Plan_Attr<"Axis", "axis"> {
  let summary = "the first axis of what is sliced and stacked, which is not the batch axis; from its end if `reverse`";
  let parameters = (ins "bool":$reverse);
}

def Plan_ActionsAttr : AttrDef<Plan_Dialect, "Actions"> {
  let mnemonic = "actions";
  let summary = "in which order a worker runs the parts of a loop body, and for which micro-batches";
  let description = [{
    `#plan.actions<part 0 on 0 1 2, part 1 on 0, part 0 on 3>`: part 0 for micro-batches 0, 1 and 2, then part 1 for micro-batch 0, then
    part 0 for micro-batch 3.
  }];
  let parameters = (ins ArrayRefParameter<"::cinch::plan::Action">:$list);
  let hasCustomAssemblyFormat = 1;
}

def Plan_LoopOp : Plan_Op<"loop", [
    SingleBlockImplicitTerminator<"YieldOp">, RecursiveMemoryEffects, AttrSizedOperandSegments, AttrSizedResultSegments]> {
  let summary = "runs its body once for each part of what it walks: the examples of the batch, the rows of a micro-batch, or an axis";
  let description = [{
    Runs its body `count` times. The body's arguments are, in this order,

    - a *carried* value for each of `inits`: that operand in the first trip, then what the trip before yielded for it;
    - the *part* of each of `slices` at which the trip works;
    - for each of `stacks`, with `firsts` beside it: the part before the one at which the trip works, at part 0 the operand of `firsts`.

    What is *whole*, the same in every trip, the body reads from outside. It yields, in the order of the results,

    - the carried values for the next trip: those of the `last` one are results;
    - parts of the *stacked* results;
    - *accumulated* values: chains over all trips. A contraction, a reduction over the batch axis or a scatter-add goes on, in each trip,
      from what the trip before left (exactly the additions of the undivided work).

    ```
    %sum = plan.loop count 4 over #plan.examples<size = 2> accumulated(tensor<999x4xf32>) {
      %dx, %dw = plan.loop count 16 over #plan.row_blocks<examples = 1, positions = 8, of = 64>
          sliced(%x : tensor<2x64x4xf32, #nn.batch<0>>) stacked(tensor<2x64x4xf32, #nn.batch<0>>) accumulated(tensor<999x4xf32>) {
      ^bb0(%xb: tensor<1x8x4xf32, #nn.batch<0>>):
        ..
        plan.yield %dxb, %p : tensor<1x8x4xf32, #nn.batch<0>>, tensor<999x4xf32>
      }
      plan.yield %dw : tensor<999x4xf32>
    }
    ```
    **Over the examples of the batch** a `count` of 0 means that the caller says how many trips there are (evaluation, prediction).

    A worker of several (`plan.send`, `plan.receive`) does not run the body as a whole. `plan.part` cuts it into parts, and `actions` says in
    which order they run for which micro-batches: every part takes all micro-batches, in ascending order. What one part leaves for a later one waits while other micro-batches run. Where the steps of a worker overlap, micro-batch count + k is micro-batch k
    of the next step: a part that begins with micro-batch f does its first f with the step before (or at the begin, if nothing of the step was
    done), and what waits, lives on to the next step. Then sums, and what is computed before the loop, are there twice, for two steps; and
    for the next step the parameters stand in for the previous ones (`PATH.prev`). Where the caller says how many micro-batches there are, part i
    runs `lags[i]` micro-batches behind the first one: at tick t it takes micro-batch t - lags[i].

    **Over blocks of rows** a part of slice i has the examples and positions of the block, its positions counted from `from[i]` on (absent:
    from 0), or all that its examples have. Rows around a block are a copy (plan.band).

    **Along an axis** the loop is the work of a kernel, and trip i works at part i of the first axis (at part count - 1 - i if it is walked
    from its end). A part is without that axis, or it is several in a row: of n * count parts the body sees n along the same axis, and n
    that it yields in a row lie so in the result. The types say which.

    C1: count >= 1, or >= 0 over examples; sizes are at least 1, and a block of rows is of one example unless it has all positions, whose
    number its own divides.
    C2: operands, body arguments, yielded values and results agree in number, and carried ones in type.
    C3: a body argument is a part of its slice or stack, a yielded value of its stacked result: the parts of all trips are the whole, but
    for positions that `from` leaves out, and a part is one piece of memory. `firsts` are parts of stacks.
    C4: an accumulated value has no batch axis.
    C5: over examples, values are only accumulated; over rows, they are sliced, stacked or accumulated; along an axis, not accumulated.
    C6: `actions` and `lags` are there only over examples and if the body has a `plan.part`. `actions` name parts of the body, each with
    micro-batches one after the other; `lags` are one a part, ascending from 0.
  }];
  let arguments = (ins Variadic<AnyType>:$inits, Variadic<AnyType>:$slices, Variadic<AnyType>:$stacks, Variadic<AnyType>:$firsts,
                       I64Attr:$count, AnyAttrOf<[Plan_ExamplesAttr, Plan_RowBlocksAttr, Plan_AxisAttr]>:$over,
                       OptionalAttr<DenseI64ArrayAttr>:$from, OptionalAttr<Plan_ActionsAttr>:$actions,
                       OptionalAttr<DenseI64ArrayAttr>:$lags);
  let results = (outs Variadic<AnyType>:$last, Variadic<AnyType>:$stacked, Variadic<AnyType>:$sums);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    `count` $count `over` $over (`actions` $actions^)? (`lags` $lags^)?
    (`carried` `(` $inits^ `:` type($inits) `)`)? (`sliced` `(` $slices^ `:` type($slices) `)`)? (`from` $from^)?
    (`before` `(` $stacks^ `:` type($stacks) `)` `first` `(` $firsts `:` type($firsts) `)`)?
    (`last` `(` type($last)^ `)`)? (`stacked` `(` type($stacked)^ `)`)? (`accumulated` `(` type($sums)^ `)`)? $body attr-dict
  }];
  let builders = [OpBuilder<(ins "::mlir::TypeRange":$sums, "uint64_t":$count, "ExamplesAttr":$over,
                                 CArg<"ActionsAttr", "{}">:$actions, CArg<"::mlir::DenseI64ArrayAttr", "{}">:$lags)>];
  let hasVerifier = 1;
  let extraClassDeclaration = [{
    // What is walked; null: something else.
    ExamplesAttr examples() { return ::llvm::dyn_cast<ExamplesAttr>(getOver()); }
    RowBlocksAttr rowBlocks() { return ::llvm::dyn_cast<RowBlocksAttr>(getOver()); }
    AxisAttr axis() { return ::llvm::dyn_cast<AxisAttr>(getOver()); }
    // The loop over examples around an op; null: there is none.
    static LoopOp overExamplesAround(::mlir::Operation *);

    ::mlir::Block &block() { return getBody().front(); }
    YieldOp yield();
    // The arguments of the body.
    ::mlir::Value carried(unsigned i) { return block().getArgument(i); }
    ::mlir::Value part(unsigned i) { return block().getArgument(unsigned(getInits().size()) + i); }
    // What a body argument begins as, is a part of, or comes before.
    ::mlir::Value operandOf(::mlir::BlockArgument argument) { return getOperand(argument.getArgNumber()); }
    // What the body yields for a result; and the result that a value of the body is yielded for, a part of a stacked one
    // rather than a carried one. Null: it is not yielded.
    ::mlir::Value yieldedFor(::mlir::Value result);
    ::mlir::OpResult resultOf(::mlir::Value yielded);
    bool isCarried(::mlir::OpResult result) { return result.getResultNumber() < getInits().size(); }
    bool isStacked(::mlir::OpResult result) { return !isCarried(result) && result.getResultNumber() < getNumResults() - getSums().size(); }
    // Does a carried value lie in two places of its own, which take turns? Otherwise it is a part of the stacked result that holds it, too.
    bool hasSlots(unsigned carried) { return !isStacked(resultOf(yieldedFor(getResult(carried)))); }

    // Where the parts of a sliced operand or of a stacked result lie, in bytes: the first at `first`, the next `inner` further on; each
    // `innerTrips` of them begin `outer` behind the ones before.
    struct Steps {
      int64_t first = 0, outer = 0, inner = 0;
    };
    Steps stepsOfSlice(unsigned i);
    Steps stepsOf(::mlir::Value whole);
    Steps stepsOf(::mlir::Value whole, ::mlir::Type part, int64_t from);
    int64_t innerTrips();
  }];
}

def Plan_BandOp : Plan_Op<"band", [HasParent<"LoopOp">]> {
  let summary = "a block of an image's rows, and rows around it";
  let description = [{
    In trip i of an example a loop over blocks of rows copies the rows [first + i * step, ..) of it, as many as the result has. Rows outside of
    the image are zeros. The image lies outside of the loop. After memory assignment `reads` and `writes` hold the byte offsets.

    ```
    %around = plan.band %x first -1 step 4 : tensor<2x16x16x3xf32, #nn.batch<0>> -> tensor<1x6x16x3xf32, #nn.batch<0>>
    ```
    C1: the loop around it is over blocks of rows of one example. C2: the result is one example of the operand, with another number of rows.
  }];
  let arguments = (ins AnyType:$image, I64Attr:$first, I64Attr:$step, OptionalAttr<DenseI64ArrayAttr>:$reads,
                       OptionalAttr<DenseI64ArrayAttr>:$writes);
  let results = (outs AnyType:$rows);
  let assemblyFormat = [{
    $image `first` $first `step` $step `:` type($image) `->` type($rows) (`reads` $reads^)? (`writes` $writes^)? attr-dict
  }];
  let hasVerifier = 1;
}

def Plan_YieldOp : Plan_Op<"yield", [Pure, Terminator, HasParent<"LoopOp">]> {
  let summary = "ends a trip of a loop: what is carried, stacked, accumulated";
  let arguments = (ins Variadic<AnyType>:$values);
  let assemblyFormat = "($values^ `:` type($values))? attr-dict";
  let builders = [OpBuilder<(ins)>];
}

class Plan_KernelKindCase<int number, string symbol, string word> : I32EnumAttrCase<symbol, number, word>;
def Plan_KernelKind : I32EnumAttr<"KernelKind", "the kinds of kernels, listed once", [
    Plan_KernelKindCase<0, "Loop", "loop">, Plan_KernelKindCase<1, "Product", "product">, Plan_KernelKindCase<2, "Attention", "attention">,
    Plan_KernelKindCase<3, "AttentionGrad", "attention_gradient">, Plan_KernelKindCase<4, "Convolution", "convolution">,
    Plan_KernelKindCase<5, "Pool", "pool">, Plan_KernelKindCase<6, "Scan", "scan">]> {
  let cppNamespace = "::cinch::plan";
}

def Plan_KernelOp : Plan_Op<"kernel", [IsolatedFromAbove, SingleBlockImplicitTerminator<"ReturnOp">]> {
  let summary = "a group of nn ops that runs as one function on buffers";
  let description = [{
    The region's arguments are the buffers read, `plan.return` names the values written. `as` says the kind of the kernel, which kernel
    formation found: a loop where nothing is said. A loop kernel runs over the natural domain of the result of the op numbered `domain` in its
    body. Kind, domain, `accumulates` and body together say what is computed, and how, on any part of the batch. `recompute` marks a second or later
    run of the same work. After memory assignment `reads` and `writes` hold the byte offsets in the arena, `scratch` that of
    the scratch (-1: none needed). `accumulates` (one flag a result) says that a result goes on from what its buffer holds.

    C1: region arguments agree with the operands, the terminator with the results.
    C2: `reads`, `writes`, `accumulates`, where present, have one entry an operand or result.
    C3: `domain`, where present, numbers an op of the body that has a result. Only loops have one.
    C4: the kind is the one that serves the op of the body whose result is returned first.
  }];
  let arguments = (ins Variadic<AnyType>:$inputs, UnitAttr:$recompute,
                       DefaultValuedAttr<Plan_KernelKind, "::cinch::plan::KernelKind::Loop">:$kind,
                       OptionalAttr<DenseBoolArrayAttr>:$accumulates,
                       OptionalAttr<DenseI64ArrayAttr>:$reads, OptionalAttr<DenseI64ArrayAttr>:$writes,
                       OptionalAttr<I64Attr>:$scratch, OptionalAttr<StrAttr>:$label, OptionalAttr<I64Attr>:$domain);
  let results = (outs Variadic<AnyType>:$outputs);
  let regions = (region SizedRegion<1>:$body);
  let assemblyFormat = [{
    ($label^)? (`recompute` $recompute^)? `(` $inputs `)` `:` functional-type($inputs, $outputs)
    (`as` $kind^)? (`domain` $domain^)? (`accumulates` $accumulates^)? (`reads` $reads^)? (`writes` $writes^)? (`scratch` $scratch^)? $body attr-dict
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
  let summary = "begins to copy a state, or a value that was stored, from pinned memory of the host into the arena";
  let description = [{
    The copy begins when the device has done all that stands before this, and goes on beside what follows, up to its `plan.await`; before that
    nobody reads the result, or writes where it goes. `host` is where it lies on the host, `offset` its place in the arena. A value of the main loop is
    the result of its plan.store, which has been awaited.
  }];
  let arguments = (ins AnyType:$value, OptionalAttr<I64Attr>:$host, OptionalAttr<I64Attr>:$offset);
  let results = (outs AnyType:$copy);
  let assemblyFormat = "$value `:` type($value) (`host` $host^)? (`offset` $offset^)? attr-dict";
}

def Plan_StoreOp : Plan_Op<"store", [AllTypesMatch<["value", "copy"]>]> {
  let summary = "begins to copy a state, or a value of the main loop, from the arena into pinned memory of the host";
  let description = [{
    As plan.fetch does. Up to its `plan.await` nobody writes where it comes from. The result is the new state, or the value, as it lies on the host.
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

def Plan_PartOp : Plan_Op<"part", [HasParent<"LoopOp">]> {
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
