// Passes.td: every pass on one page.
#ifndef CINCH_PASSES_TD
#define CINCH_PASSES_TD

include "mlir/Pass/PassBase.td"

def SinkGroups : Pass<"sink-groups", "::mlir::ModuleOp"> {
  let summary = "what compares the examples of a group is done on an axis of groups";
  let description = [{
    A reshape from groups to examples sinks through views and element-wise work, into sums and products, which are then over groups:

        %w = nn.broadcast %r [0, 2, 3] : [4, 3, 8] -> [4, 3, 3, 8]       groups of 3
        %a = nn.reshape %w : -> [12, 3, 8]
        %s = nn.contract %q [0, 1, 3], %a [0, 2, 3] : [12, 5, 8], [12, 3, 8] -> [12, 5, 3]
     ->
        %g = nn.reshape %q : [12, 5, 8] -> [4, 3, 5, 8]
        %c = nn.contract %g [0, 1, 2, 4], %r [0, 3, 4] -> [4, 3, 5, 3]
        %s = nn.reshape %c : -> [12, 5, 3]

    so that no row is repeated for each example of its group.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def ChooseLayouts : Pass<"choose-layouts", "::mlir::ModuleOp"> {
  let summary = "images keep their channels last between convolutions and pools";
  let description = [{
    Work on a transposed image is done on the image, and its result is transposed:

        %t = nn.transpose %y [0, 3, 1, 2]    %y: an image of a convolution
        %r = nn.tanh %t
     ->
        %u = nn.tanh %y
        %r = nn.transpose %u [0, 3, 1, 2]

    through element-wise work, reductions, broadcasts, slices, padding, and reshapes of axes that lie together; a transpose and
    its inverse are none.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def RoundValues : Pass<"round-values", "::mlir::ModuleOp"> {
  let summary = "rounds values to bf16 where they are defined, in a module that has `nn.bf16`";
  let description = [{
    Rounded are operands (of those with the batch axis) and results of products and gathers, and the results of ops with `nn.rounded`.
    Ops that move elements do so in bf16; all others read f32:

        %y = nn.contract %x [0, 2], %w [1, 2] : (f32, f32) -> f32
        %z = nn.add %y, %b {nn.rounded}
     ->
        %r = nn.cast %x : f32 -> bf16
        %p = nn.contract %r [0, 2], %w [1, 2] : (bf16, f32) -> f32
        %y = nn.cast %p : f32 -> bf16
        %s = nn.cast %y : bf16 -> f32
        %a = nn.add %s, %b
        %z = nn.cast %a : f32 -> bf16

    Each reader widens a bf16 value by an op of its own, so that its contribution to the gradient is rounded; the ops of one layer of
    the library (`nn.layer`) are one reader.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def Differentiate : Pass<"differentiate", "::mlir::ModuleOp"> {
  let summary = "makes gradients, their norm, clipping and the optimizer's update explicit";
  let description = [{
    Turns `@step`, which returns the loss, into `@train`, which returns the updated parameters and optimizer state, the loss, the
    gradient's norm and the learning rate.

        func.func @step(%w: tensor<4xf32> {nn.path = "w", ..}, %x: tensor<8x4xf32, #nn.batch<0>> {nn.field = 0})
            -> tensor<f32> attributes {nn.training = ..}
     ->
        func.func @train(%w, %x) -> (tensor<4xf32> {nn.path = "w"}, tensor<f32> {nn.name = "loss"},
                                     tensor<f32> {nn.name = "norm"}, tensor<f64> {nn.name = "lr"})

    Reverse mode, over the ops' `Differentiable` interface. A value used several times adds its gradients in the order of the uses;
    each use of a value without the batch axis in work on examples has a sum of its own, and only the sums are added: so the sums
    accumulate over micro-batches and the additions come behind. New values of states (results of `@step` with `nn.path`) are results of
    `@train` as they are. Only what a trained parameter needs is computed. Parameters that
    the loss does not reach, and frozen ones, are left as they are. Behind the sweep, `nn.stop_gradient` of anything but an argument is the
    value itself.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect", "::mlir::func::FuncDialect"];
}

def VerifyPhase : Pass<"verify-phase", "::mlir::ModuleOp"> {
  let summary = "checks what must hold on exit from a phase; changes nothing";
  let options = [
    Option<"phase", "phase", "::cinch::Phase", "::cinch::Phase::Parsed", "the phase that just ended",
      [{::llvm::cl::values(
          clEnumValN(::cinch::Phase::Parsed, "parsed", "nn and func only, every op with its source place"),
          clEnumValN(::cinch::Phase::Differentiated, "differentiated", "loss, gradients and update explicit"),
          clEnumValN(::cinch::Phase::Planned, "planned", "loops over the same micro-batches, runs in their order"),
          clEnumValN(::cinch::Phase::Scheduled, "scheduled", "kernels with offsets; live values share no byte"))}]>
  ];
}
def DecomposeOps : Pass<"decompose-ops", "::mlir::ModuleOp"> {
  let summary = "writes row-wise and update ops out in element-wise ops and sums";
  let description = [{
    softmax, log_softmax, cross_entropy and their gradients, sum_squares, clip_factor, learning_rate and update become the
    ops that their descriptions are written in; a count of flags over the batch, and every sum over the batch of @evaluation,
    is taken in f64 and rounded once; a product that is only rounded to bf16 gives bf16; then equal ops are one
    (so that the largest element and the sum of a row are found once for
    the loss and its gradient). What remains is a product, attention, or work that loop kernels do.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def JoinSquares : Pass<"join-squares", "::mlir::ModuleOp"> {
  let summary = "the sums of squares of many gradients are rows of a few sums";
  let description = [{
        %a = nn.sum_squares %x : tensor<64x128xf32>         %rows = nn.concat of %x and %y : -> [4, 4096], as f64
        %b = nn.sum_squares %y : tensor<8192xf32>     ->    %chunks = nn.reduce sum of %rows * %rows over [1] : -> [4]
                                                            %both = nn.reduce sum of %chunks as [2, 2], turned, over [0] : -> [2]

    For a GPU, on which a kernel for each gradient would have too little to do; before ops are decomposed. Which numbers are added to which,
    in which order, stays.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def SinkSplits : Pass<"sink-splits", "::mlir::ModuleOp"> {
  let summary = "element-wise work on a split axis is done on the whole one, where a value is repeated along a part of it";
  let description = [{
        %r = nn.reshape %y : [8, 64, 16] -> [8, 64, 4, 4]
        %w = nn.broadcast %m [0, 2] : [8, 4] -> [8, 64, 4, 4]
        %d = nn.sub %r, %w
     ->
        %j = nn.broadcast %m [0, 1] : [8, 4] -> [8, 4, 4]
        %c = nn.reshape %j : -> [8, 16]
        %w = nn.broadcast %c [0, 2] : -> [8, 64, 16]
        %s = nn.sub %y, %w
        %d = nn.reshape %s : -> [8, 64, 4, 4]

    so that what is repeated is stored without the places of an image. Assumes decomposed ops.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def HoistRoundings : Pass<"hoist-roundings", "::mlir::ModuleOp"> {
  let summary = "a value of which all parts are rounded is rounded as a whole";
  let description = [{
        %s = nn.slice %x .. ; %q = nn.cast %s : f32 -> bf16          %r = nn.cast %x : f32 -> bf16
        %t = nn.slice %x .. ; %k = nn.cast %t : f32 -> bf16    ->    %q = nn.slice %r ..
                                                                     %k = nn.slice %r ..
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def CrossLoops : Pass<"cross-loops", "::mlir::ModuleOp"> {
  let summary = "element-wise work in front of a loop along an axis, and roundings behind it, are done in its trips";
  let description = [{
        %s = nn.add %x, %b                                 %all = nn.scan slices(%x) with(%bias)
        %all = nn.scan slices(%s)                    ->      ^bb0(%p, %w):  %b = nn.broadcast %w ; %s = nn.add %p, %b
          ^bb0(%p): ..  nn.yield .., %h                        .. ; %c = nn.cast %h ; nn.yield .., %c
        %r = nn.cast %all : f32 -> bf16

    Not where it would take more memory, nor where a product of the body reads what is computed.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def ReadMaxima : Pass<"read-maxima", "::mlir::ModuleOp"> {
  let summary = "which branch a maximum took is seen on what it gave, where its operand would be kept for that alone";
  let description = [{
        %y = nn.max %x, %zero                               %y = nn.max %x, %zero
        %m = nn.compare gt %x, %zero {nn.backward}    ->    %m = nn.compare gt %y, %zero {nn.backward}

    where the backward sweep reads %y in any case, and %x is computed from values that it does not read, or from several. Minima too.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def CutLoops : Pass<"cut-loops", "::mlir::func::FuncOp"> {
  let summary = "loops along an axis keep states now and then, and the backward loop computes the trips between them again";
  let description = [{
        %h, %all, %kept = nn.scan trips 64 ..                     a part of %kept for every trip
        %d, %dz = nn.scan trips 64 reverse .. slices(.., %kept)
     -> runs of 8 trips:
        %h, %all, %states = nn.scan trips 8 .. { nn.scan trips 8 .. }
        %d, %dz = nn.scan trips 8 reverse .. before(%states) {
          %kept = nn.scan trips 8 ..                              from the state before the run
          nn.scan trips 8 reverse .. slices(.., %kept)
        }
    With two levels the inner pair is cut once more. Assumes loops as Differentiate leaves them; no bit changes.
  }];
  let options = [Option<"levels", "levels", "int", "1", "1: runs; 2: runs of runs">];
  let dependentDialects = ["::cinch::nn::NNDialect"];
}

def FormKernels : Pass<"form-kernels", "::mlir::func::FuncOp"> {
  let summary = "groups the ops of a function into kernels around one loop over the micro-batches";
  let description = [{
    The loop makes one pass over the whole batch here. What is the same for all examples stands before or behind it.

        %y = nn.contract %x [0, 2], %w [1, 2] : (tensor<8x4xf32, #nn.batch<0>>, ..) -> tensor<8x3xf32, #nn.batch<0>>
        %t = nn.tanh %y : ..
        %r = nn.reduce sum %t [0, 1] : .. -> tensor<f32>
     ->
        %sum = plan.loop count 1 over #plan.examples<size = 8> accumulated(tensor<f32>) {
          %y = plan.kernel "net: contract" (%x, %w) : .. as product { .. }
          %r = plan.kernel "reduce" (%y) : .. -> tensor<f32> domain 1 accumulates [true] { .. }
          plan.yield %r
        }
    An op that several kernels compute on the way stands in each of them. A kernel is one at every micro-batch that may be chosen.
    Assumes decomposed ops (decompose-ops): fails at one that no kernel can do.
  }];
  let options = [Option<"joinsMore", "joins-more", "bool", "false", "for a GPU: kernels that one of a CPU would hand a row's numbers or gradients on to are part of it">];
  let dependentDialects = ["::cinch::plan::PlanDialect"];
}

def DecidePlan : Pass<"decide-plan", "::mlir::func::FuncOp"> {
  let summary = "searches micro-batch, recomputation, order and offsets of a function of kernels; writes the decision down";
  let description = [{
    Changes no op. The function gets `plan.decision`, which the passes behind it apply: micro-batch and count, the runs of kernels in
    order, and the byte offset of everything that a run reads and writes. Only parameters and state have offsets that other
    functions share; `reserved` bytes behind the parameters stay untouched. Work on parameters alone, which stands before the main loop,
    may be decided to run in it. Assumes kernels (form-kernels), and fails without.
    Fails, with what to do about it, if nothing fits.
  }];
  let options = [
    Option<"arenaBudget", "arena-budget-bytes", "int64_t", "-1", "bytes that the arena may have; -1: no limit">,
    Option<"microbatch", "microbatch", "int64_t", "0", "examples a micro-batch; 0: the search chooses">,
    Option<"remat", "remat", "std::string", "\"auto\"", "strategy of recomputation">,
    Option<"rowBlocks", "row-blocks", "int64_t", "0", "rows of a block; 0: the search chooses, -1: no row blocks">,
    Option<"threads", "threads", "int", "4", "threads that scratch is planned for">,
    Option<"lanes", "lanes", "int", "16", "f32 lanes of the machine's vectors, for the size of scratch: 16 or 8">,
    Option<"reserved", "reserved-bytes", "int64_t", "0", "bytes behind the parameters that belong to another function">,
    Option<"callerCounts", "caller-counts", "bool", "false", "the caller says how many micro-batches there are">
  ];
  let dependentDialects = ["::cinch::plan::PlanDialect"];
}

def FormMicrobatches : Pass<"form-microbatches", "::mlir::func::FuncOp"> {
  let summary = "gives the loop over micro-batches its passes; tensors shrink to the examples of one";
  let description = [{
        %w = plan.loop count 1 over #plan.examples<size = 8> accumulated(tensor<4x3xf32>) {
          %p = plan.kernel .. (%x, %y) : (tensor<8x4xf32, #nn.batch<0>>, ..) -> tensor<4x3xf32> accumulates [true] { .. }
     -> micro-batch 2:
        %w = plan.loop count 4 over #plan.examples<size = 2> accumulated(tensor<4x3xf32>) {
          %p = plan.kernel .. (%x, %y) : (tensor<2x4xf32, #nn.batch<0>>, ..) -> tensor<4x3xf32> accumulates [true] { .. }
    Assumes a decision (decide-plan), and fails without.
  }];
  let dependentDialects = ["::cinch::plan::PlanDialect"];
}

def Rematerialize : Pass<"rematerialize", "::mlir::func::FuncOp"> {
  let summary = "puts the runs of all kernels in the decided order, recomputed ones as further copies of their kernel";
  let description = [{
    Every kernel stands there once for each of its runs, numbered by `plan.run`; from the second run in the loop on it is marked
    `recompute`. One that stood before the loop stands in it if its run does. A kernel reads what the latest run before it wrote. Assumes the decided micro-batch (form-microbatches), and fails
    at a loop that has another.
  }];
  let dependentDialects = ["::cinch::plan::PlanDialect"];
}

def FormRowBlocks : Pass<"form-row-blocks", "::mlir::func::FuncOp"> {
  let summary = "wraps kernels that work on rows in a loop over blocks of rows";
  let description = [{
    The tensors that only these kernels use have the rows of one block from here on:

        %y = plan.kernel .. (%x, %w) : .. -> tensor<2x64x999xf32, #nn.batch<0>> { .. }
        %d = plan.kernel .. (%x, %y) : .. -> tensor<999x8xf32> accumulates [true] { .. }
     -> blocks of 16 positions of one example:
        %d = plan.loop count 8 over #plan.row_blocks<examples = 1, positions = 16, of = 64> sliced(%x) .. {
        ^bb0(%xb: tensor<1x16x8xf32, #nn.batch<0>>):
          %y = plan.kernel .. (%xb, %w) : .. -> tensor<1x16x999xf32, #nn.batch<0>> { .. }
          %p = plan.kernel .. (%xb, %y) : .. -> tensor<999x8xf32> accumulates [true] { .. }
          plan.yield %p
        }
    Every sum over rows goes on from block to block. Assumes the runs stand in order (rematerialize), and fails where they do not.
  }];
  let dependentDialects = ["::cinch::plan::PlanDialect"];
}

def AssignMemory : Pass<"assign-memory", "::mlir::func::FuncOp"> {
  let summary = "gives every operand and result of a kernel its byte offset in the arena";
  let description = [{
        %y = plan.kernel "net: contract" (%x, %w) : .. {plan.run = 3}
     ->
        %y = plan.kernel "net: contract" (%x, %w) : .. reads [512, 0] writes [1024] scratch 2048 {plan.run = 3}
    Assumes that the rest of the decision is applied (rematerialize, form-row-blocks): fails at a kernel without its run, and where blocks
    of rows are missing. The decision is gone behind it.
  }];
  let dependentDialects = ["::cinch::plan::PlanDialect"];
}

#endif
