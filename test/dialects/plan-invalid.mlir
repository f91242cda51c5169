// RUN: cinch-opt %s --split-input-file --verify-diagnostics

func.func @no_size() {
  // expected-error @+1 {{has no trips of 0 examples from 0 on}}
  plan.loop count 1 over #plan.examples<size = 0> {
  }
  return
}

// -----

func.func @types_differ(%x: tensor<f32>) {
  // expected-error @+1 {{yields a value of type 'tensor<f32>' for its result 0 of type 'tensor<2xf32>'}}
  %0 = plan.loop count 1 over #plan.examples<size = 1> accumulated(tensor<2xf32>) {
    plan.yield %x : tensor<f32>
  }
  return
}

// -----

func.func @batch_leaves_the_loop(%x: tensor<2xf32, #nn.batch<0>>) {
  // expected-error @+1 {{accumulates a value with a batch axis}}
  %0 = plan.loop count 1 over #plan.examples<size = 2> accumulated(tensor<2xf32, #nn.batch<0>>) {
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

func.func @kind_of_another_op(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{is of kind 'loop'; its first result is that of 'nn.contract', for which kernels of kind 'product' are}}
  %0 = plan.kernel (%x, %y) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32> {
  ^bb0(%a: tensor<2x3xf32>, %b: tensor<3x4xf32>):
    %p = nn.contract %a [0, 2], %b [2, 1] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    plan.return %p : tensor<2x4xf32>
  }
  return
}

// -----

func.func @domain_of_no_loop(%x: tensor<2x3xf32>, %y: tensor<3x4xf32>) {
  // expected-error @+1 {{has a domain, which a kernel of kind 'product' has not}}
  %0 = plan.kernel (%x, %y) : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32> as product domain 0 {
  ^bb0(%a: tensor<2x3xf32>, %b: tensor<3x4xf32>):
    %p = nn.contract %a [0, 2], %b [2, 1] : (tensor<2x3xf32>, tensor<3x4xf32>) -> tensor<2x4xf32>
    plan.return %p : tensor<2x4xf32>
  }
  return
}

// -----

func.func @row_blocks_c1(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has no blocks of 2 x 2 rows of 4 positions, 2 times}}
  plan.loop count 2 over #plan.row_blocks<examples = 2, positions = 2, of = 4> sliced(%x : tensor<2x4xf32, #nn.batch<0>>) {
  ^bb0(%a: tensor<2x2xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

func.func @row_blocks_argument(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has a body argument 0 of type 'tensor<1x3xf32, #nn.batch<0>>' for an operand of type 'tensor<2x4xf32, #nn.batch<0>>'}}
  plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 2, of = 4> sliced(%x : tensor<2x4xf32, #nn.batch<0>>) {
  ^bb0(%a: tensor<1x3xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

func.func @row_blocks_beyond(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has a body argument 0 of type 'tensor<1x2xf32, #nn.batch<0>>' for an operand of type 'tensor<2x4xf32, #nn.batch<0>>'}}
  plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 2, of = 4> sliced(%x : tensor<2x4xf32, #nn.batch<0>>) from [1] {
  ^bb0(%a: tensor<1x2xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

// Two examples of a longer tensor are not one piece of memory.
func.func @row_blocks_pieces(%x: tensor<2x5xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has a body argument 0 of type 'tensor<2x4xf32, #nn.batch<0>>' for an operand of type 'tensor<2x5xf32, #nn.batch<0>>'}}
  plan.loop count 1 over #plan.row_blocks<examples = 2, positions = 4, of = 4> sliced(%x : tensor<2x5xf32, #nn.batch<0>>) from [1] {
  ^bb0(%a: tensor<2x4xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

func.func @row_blocks_count(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has a body argument 0 of type 'tensor<1x2xf32, #nn.batch<0>>' for an operand of type 'tensor<2x4xf32, #nn.batch<0>>'}}
  plan.loop count 8 over #plan.row_blocks<examples = 1, positions = 2, of = 4> sliced(%x : tensor<2x4xf32, #nn.batch<0>>) {
  ^bb0(%a: tensor<1x2xf32, #nn.batch<0>>):
    plan.yield
  }
  return
}

// -----

func.func @row_blocks_result(%x: tensor<2x4xf32, #nn.batch<0>>) {
  // expected-error @+1 {{yields a value of type 'tensor<1x2xf32, #nn.batch<0>>' for its result 0 of type 'tensor<1x4xf32, #nn.batch<0>>'}}
  %0 = plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 2, of = 4> sliced(%x : tensor<2x4xf32, #nn.batch<0>>)
      stacked(tensor<1x4xf32, #nn.batch<0>>) {
  ^bb0(%a: tensor<1x2xf32, #nn.batch<0>>):
    plan.yield %a : tensor<1x2xf32, #nn.batch<0>>
  }
  return
}

// -----

func.func @band_c1(%y: tensor<4x4x3xf32, #nn.batch<0>>) {
  plan.loop count 2 over #plan.row_blocks<examples = 2, positions = 4, of = 4> {
    // expected-error @+1 {{copies rows of what does not lie outside of a loop over blocks of rows of one example}}
    %b = plan.band %y first -1 step 2 : tensor<4x4x3xf32, #nn.batch<0>> -> tensor<1x4x3xf32, #nn.batch<0>>
    plan.yield
  }
  return
}

// -----

func.func @band_inside(%x: tensor<2x4x3xf32, #nn.batch<0>>) {
  plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 2, of = 4> sliced(%x : tensor<2x4x3xf32, #nn.batch<0>>) {
  ^bb0(%a: tensor<1x2x3xf32, #nn.batch<0>>):
    // expected-error @+1 {{copies rows of what does not lie outside of a loop over blocks of rows of one example}}
    %b = plan.band %a first -1 step 2 : tensor<1x2x3xf32, #nn.batch<0>> -> tensor<1x4x3xf32, #nn.batch<0>>
    plan.yield
  }
  return
}

// -----

func.func @band_c2(%y: tensor<2x4x3xf32, #nn.batch<0>>) {
  plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 2, of = 4> {
    // expected-error @+1 {{gives 'tensor<1x4x2xf32, #nn.batch<0>>', which are no rows of 'tensor<2x4x3xf32, #nn.batch<0>>'}}
    %b = plan.band %y first -1 step 2 : tensor<2x4x3xf32, #nn.batch<0>> -> tensor<1x4x2xf32, #nn.batch<0>>
    plan.yield
  }
  return
}

// -----

func.func @actions_without_parts() {
  // expected-error @+1 {{lists actions, but its body has no parts}}
  plan.loop count 2 over #plan.examples<size = 1> actions <part 0 on 0 1> {
    plan.yield
  }
  return
}

// -----

func.func @actions_of_parts_that_are_there() {
  // expected-error @+1 {{lists part 2, which its body does not have}}
  plan.loop count 2 over #plan.examples<size = 1> actions <part 0 on 0, part 2 on 0> {
    plan.part
    plan.yield
  }
  return
}

// -----

func.func @actions_in_the_order_of_micro_batches() {
  // expected-error @+1 {{lists part 1 for micro-batch 0 where 2 is its next one}}
  plan.loop count 2 over #plan.examples<size = 1> actions <part 0 on 0 1, part 1 on 1 0> {
    plan.part
    plan.yield
  }
  return
}

// -----

func.func @actions_with_micro_batches() {
  // expected-error @+1 {{expected integer value}}
  plan.loop count 2 over #plan.examples<size = 1> actions <part 0 on> {
    plan.part
    plan.yield
  }
  return
}

// -----

func.func @lags() {
  // expected-error @+1 {{needs one lag a part of its body, ascending from 0}}
  plan.loop count 0 over #plan.examples<size = 1> lags [0, 2, 1] {
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
  plan.loop count 2 over #plan.examples<size = 1> {
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

// -----

func.func @no_trips(%x: tensor<3x8xf32>) {
  // expected-error @+1 {{makes 0 trips}}
  plan.loop count 0 over #plan.axis<reverse = false> sliced(%x : tensor<3x8xf32>) {
  ^bb0(%a: tensor<8xf32>):
    plan.yield
  }
  return
}

// -----

func.func @operands_in_number(%x: tensor<3x8xf32>) {
  // expected-error @+1 {{has 1 operands to walk, 0 body arguments, 0 yielded values and 0 results}}
  plan.loop count 3 over #plan.axis<reverse = false> sliced(%x : tensor<3x8xf32>) {
    plan.yield
  }
  return
}

// -----

// Three parts of five are not one piece each.
func.func @no_parts_of_an_axis(%x: tensor<5x8xf32>) {
  // expected-error @+1 {{has a body argument 0 of type 'tensor<8xf32>' for an operand of type 'tensor<5x8xf32>'}}
  plan.loop count 3 over #plan.axis<reverse = false> sliced(%x : tensor<5x8xf32>) {
  ^bb0(%a: tensor<8xf32>):
    plan.yield
  }
  return
}

// -----

// Along the batch axis examples are walked.
func.func @axis_of_the_batch(%x: tensor<4x8xf32, #nn.batch<0>>) {
  // expected-error @+1 {{has a body argument 0 of type}}
  plan.loop count 4 over #plan.axis<reverse = false> sliced(%x : tensor<4x8xf32, #nn.batch<0>>) {
  ^bb0(%a: tensor<8xf32>):
    plan.yield
  }
  return
}

// -----

func.func @carried_changes(%h: tensor<8xf32>, %x: tensor<3xf32>) {
  // expected-error @+1 {{carries a value of type 'tensor<8xf32>' that ends as one of type 'tensor<f32>'}}
  %0 = plan.loop count 3 over #plan.axis<reverse = false> carried(%h : tensor<8xf32>) sliced(%x : tensor<3xf32>) last(tensor<f32>) {
  ^bb0(%a: tensor<8xf32>, %b: tensor<f32>):
    plan.yield %b : tensor<f32>
  }
  return
}

// -----

func.func @first_part(%x: tensor<3x8xf32>, %f: tensor<f32>) {
  // expected-error @+1 {{has a first part of type 'tensor<f32>' for a stack of type 'tensor<3x8xf32>'}}
  plan.loop count 3 over #plan.axis<reverse = false> before(%x : tensor<3x8xf32>) first(%f : tensor<f32>) {
  ^bb0(%a: tensor<8xf32>):
    plan.yield
  }
  return
}

// -----

func.func @sum_along_an_axis(%x: tensor<3x8xf32>) {
  // expected-error @+1 {{does with an operand or a result what is not done over #plan.axis<reverse = false>}}
  %0 = plan.loop count 3 over #plan.axis<reverse = false> sliced(%x : tensor<3x8xf32>) accumulated(tensor<8xf32>) {
  ^bb0(%a: tensor<8xf32>):
    plan.yield %a : tensor<8xf32>
  }
  return
}

// -----

func.func @carried_over_examples(%h: tensor<8xf32>) {
  // expected-error @+1 {{does with an operand or a result what is not done over #plan.examples<size = 2>}}
  %0 = plan.loop count 2 over #plan.examples<size = 2> carried(%h : tensor<8xf32>) last(tensor<8xf32>) {
  ^bb0(%a: tensor<8xf32>):
    plan.yield %a : tensor<8xf32>
  }
  return
}
