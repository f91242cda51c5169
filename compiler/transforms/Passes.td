// Passes.td: every pass on one page.
#ifndef CINCH_PASSES_TD
#define CINCH_PASSES_TD

include "mlir/Pass/PassBase.td"

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
    accumulate over micro-batches and the additions come behind. Only what a trained parameter needs is computed. Parameters that
    the loss does not reach, and frozen ones, are left as they are.
  }];
  let dependentDialects = ["::cinch::nn::NNDialect", "::mlir::func::FuncDialect"];
}

def VerifyPhase : Pass<"verify-phase", "::mlir::ModuleOp"> {
  let summary = "checks what must hold on exit from a phase; changes nothing";
  let options = [
    Option<"phase", "phase", "::cinch::Phase", "::cinch::Phase::Parsed", "the phase that just ended",
      [{::llvm::cl::values(
          clEnumValN(::cinch::Phase::Parsed, "parsed", "nn and func only, every op with its source place"),
          clEnumValN(::cinch::Phase::Differentiated, "differentiated", "loss, gradients and update explicit"))}]>
  ];
}

#endif
