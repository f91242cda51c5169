// RUN: cinch-opt %s --split-input-file --verify-diagnostics

func.func @no_size() {
  // expected-error @+1 {{needs a count of at least 0 and a size of at least 1, got 1 and 0}}
  plan.microbatches count 1 size 0 {
  }
  return
}

// -----

func.func @types_differ(%x: tensor<f32>) {
  // expected-error @+1 {{yields types that differ from its results}}
  %0 = plan.microbatches count 1 size 1 -> tensor<2xf32> {
    plan.yield %x : tensor<f32>
  }
  return
}

// -----

func.func @batch_leaves_the_loop(%x: tensor<2xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has a result with a batch axis}}
  %0 = plan.microbatches count 1 size 2 -> tensor<2xf32, #nn.batch<0>> {
    plan.yield %x : tensor<2xf32, #nn.batch<0>>
  }
  return
}

// -----

func.func @arguments_differ(%x: tensor<f32>) {
  // expected-error @+1 {{has region arguments that differ from its operands}}
  %0 = plan.kernel (%x) : (tensor<f32>) -> tensor<f32> {
    %c = nn.constant 1.0 : tensor<f32>
    plan.return %c : tensor<f32>
  }
  return
}

// -----

func.func @results_differ(%x: tensor<f32>) {
  // expected-error @+1 {{returns types that differ from its results}}
  %0 = plan.kernel (%x) : (tensor<f32>) -> tensor<2xf32> {
  ^bb0(%a: tensor<f32>):
    plan.return %a : tensor<f32>
  }
  return
}

// -----

func.func @too_many_offsets(%x: tensor<f32>) {
  // expected-error @+1 {{has 2 entries in 'reads', expected 1}}
  %0 = plan.kernel (%x) : (tensor<f32>) -> tensor<f32> reads [0, 64] {
  ^bb0(%a: tensor<f32>):
    %n = nn.neg %a : tensor<f32>
    plan.return %n : tensor<f32>
  }
  return
}
