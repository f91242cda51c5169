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

// -----

func.func @row_blocks_c1(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has no blocks of 2 x 2 rows of 4 positions, 2 times}}
  plan.row_blocks count 2 block 2 x 2 of 4 (%x) from [0] : (tensor<2x4xf32, #nn.batch<0>>) -> () {
  ^bb0(%a: tensor<2x2xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

func.func @row_blocks_argument(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has a body argument 0 of type 'tensor<1x3xf32, #nn.batch<0>>', expected 'tensor<1x2xf32, #nn.batch<0>>'}}
  plan.row_blocks count 4 block 1 x 2 of 4 (%x) from [0] : (tensor<2x4xf32, #nn.batch<0>>) -> () {
  ^bb0(%a: tensor<1x3xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

func.func @row_blocks_beyond(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{operand 0 of type 'tensor<2x4xf32, #nn.batch<0>>' has no 4 positions from 1 on}}
  plan.row_blocks count 4 block 1 x 2 of 4 (%x) from [1] : (tensor<2x4xf32, #nn.batch<0>>) -> () {
  ^bb0(%a: tensor<1x2xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

// Two examples of a longer tensor are not one piece of memory.
func.func @row_blocks_pieces(%x: tensor<2x5xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has no 4 positions from 1 on}}
  plan.row_blocks count 1 block 2 x 4 of 4 (%x) from [1] : (tensor<2x5xf32, #nn.batch<0>>) -> () {
  ^bb0(%a: tensor<2x4xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

func.func @row_blocks_count(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{operand 0 has 2 examples, all blocks together 4}}
  plan.row_blocks count 8 block 1 x 2 of 4 (%x) from [0] : (tensor<2x4xf32, #nn.batch<0>>) -> () {
  ^bb0(%a: tensor<1x2xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

func.func @row_blocks_result(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has a result 0 of type 'tensor<1x4xf32, #nn.batch<0>>', expected 'tensor<2x4xf32, #nn.batch<0>>'}}
  %0 = plan.row_blocks count 4 block 1 x 2 of 4 (%x) from [0] : (tensor<2x4xf32, #nn.batch<0>>) -> tensor<1x4xf32, #nn.batch<0>> {
  ^bb0(%a: tensor<1x2xf32, #nn.batch<0>>):
    plan.yield %a : tensor<1x2xf32, #nn.batch<0>>
  }
  return
}

// -----

func.func @actions_without_parts() {
  // expected-error @+1 {{lists actions, but its body has no parts}}
  plan.microbatches count 2 size 1 actions [0, 0, 0, 1] {
    plan.yield
  }
  return
}

// -----

func.func @actions_in_pairs() {
  // expected-error @+1 {{lists actions that are no pairs of a part and a micro-batch}}
  plan.microbatches count 2 size 1 actions [0, 0, 0] {
    plan.part
    plan.yield
  }
  return
}

// -----

func.func @lags() {
  // expected-error @+1 {{needs one lag a part of its body, ascending from 0}}
  plan.microbatches count 0 size 1 lags [0, 2, 1] {
    plan.part
    plan.part
    plan.yield
  }
  return
}

// -----

func.func @last_outside(%x: tensor<3xf32>) {
  // expected-error @+1 {{of the last micro-batch stands outside a loop over the micro-batches}}
  plan.send "x" %x : tensor<3xf32> channel 0 last
  return
}

// -----

func.func @begins_no_sum() {
  plan.microbatches count 2 size 1 {
    // expected-error @+1 {{begins no sum of a loop over the micro-batches that has its type}}
    %x = plan.receive "x" channel 0 begins 0 : tensor<3xf32>
    plan.yield
  }
  return
}

// -----

func.func @adds_to_no_sum() {
  // expected-error @+1 {{is added to no sum}}
  %x = plan.receive "x" channel 0 adds : tensor<3xf32>
  return
}

// -----

func.func @awaits_no_copy(%x: tensor<3xf32>) {
  // expected-error @+1 {{waits for what is no copy}}
  plan.await %x : tensor<3xf32>
  return
}
