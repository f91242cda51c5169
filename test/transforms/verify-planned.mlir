// RUN: cinch-opt %s --split-input-file --verify-diagnostics --verify-phase=phase=planned

// expected-error @+1 {{expected a plan.loop over examples}}
func.func @no_loop() {
  return
}

// -----

// Kernels have no loop along an axis but a plan.loop.
func.func @loop_of_nn(%h: tensor<4x8xf32, #nn.batch<0>>, %x: tensor<3x4x8xf32, #nn.batch<1>>) {
  plan.loop count 1 over #plan.examples<size = 4> {
    %r = plan.kernel (%h, %x) : (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>) -> tensor<4x8xf32, #nn.batch<0>> as scan {
    ^bb0(%i: tensor<4x8xf32, #nn.batch<0>>, %j: tensor<3x4x8xf32, #nn.batch<1>>):
      // expected-error @+1 {{should have become a plan.loop by FormKernels}}
      %last = nn.scan trips 3 from(%i) slices(%j)
          : (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>) -> tensor<4x8xf32, #nn.batch<0>> {
      ^bb0(%a: tensor<4x8xf32, #nn.batch<0>>, %b: tensor<4x8xf32, #nn.batch<0>>):
        %s = nn.add %a, %b : tensor<4x8xf32, #nn.batch<0>>
        nn.yield %s : tensor<4x8xf32, #nn.batch<0>>
      }
      plan.return %last : tensor<4x8xf32, #nn.batch<0>>
    } {plan.run = 0}
  }
  return
}

// -----

// To the rest of the step a loop along an axis is a kernel.
func.func @axis_in_no_kernel(%x: tensor<3x8xf32>) {
  plan.loop count 1 over #plan.examples<size = 4> {
    // expected-error @+1 {{along an axis stands in no kernel, whose work it would be}}
    plan.loop count 3 over #plan.axis<reverse = false> sliced(%x : tensor<3x8xf32>) {
    ^bb0(%a: tensor<8xf32>):
      plan.yield
    }
  }
  return
}

// -----

// Rows are those of a micro-batch.
// expected-error @+1 {{expected a plan.loop over examples, and no other loop beside it}}
func.func @rows_of_no_micro_batch(%x: tensor<4x8xf32, #nn.batch<0>>) {
  plan.loop count 1 over #plan.examples<size = 4> {
  }
  plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 1, of = 1> sliced(%x : tensor<4x8xf32, #nn.batch<0>>) {
  ^bb0(%a: tensor<1x8xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}
