// Every numbered constraint of the .td, broken once.
// RUN: cinch-opt %s --split-input-file --verify-diagnostics

// expected-error@+1 {{expected the batch axis inside the 1 axes of the tensor, got 1}}
func.func @batch(%x: tensor<8xf32, #nn.batch<1>>) { return }

// -----
// expected-error@+1 {{expected rows of examples, and a pitch of at least the 6 elements of a row, got 5}}
func.func @pitch(%x: tensor<8x6xf32, #nn.batch<0 : pitch = 5>>) { return }

// -----
// expected-error@+1 {{expected rows of examples, and a pitch of at least the 8 elements of a row, got 16}}
func.func @pitch_of_examples(%x: tensor<8xf32, #nn.batch<0 : pitch = 16>>) { return }

// -----
func.func @constant() {
  // expected-error@+1 {{expected a number that 'i32' holds, got 5.000000e-01}}
  %0 = nn.constant 0.5 : tensor<i32>
  return
}

// -----
func.func @vector() {
  // expected-error@+1 {{expected one axis of 2 elements, got 'tensor<3xf32>'}}
  %0 = nn.vector [0.5, 0.2] : tensor<3xf32>
  return
}

// -----
func.func @range() {
  // expected-error@+1 {{expected no batch axis}}
  %0 = nn.range : tensor<3xi32, #nn.batch<0>>
  return
}

// -----
func.func @random_type() {
  // expected-error@+1 {{expected an element type that fits 'int', got 'f32'}}
  %0 = nn.random int key 1 of 9.0 : tensor<3xf32>
  return
}

// -----
func.func @random_number() {
  // expected-error@+1 {{expected a count >= 1 or a probability in [0, 1], got 1.5}}
  %0 = nn.random bool key 1 of 1.5 : tensor<3xi1>
  return
}

// -----
func.func @element_wise(%x: tensor<8xf32, #nn.batch<0>>, %y: tensor<8xf32>) {
  // expected-note@-1 {{prior use here}}
  // expected-error@+1 {{expects different type than prior uses}}
  %0 = nn.add %x, %y : tensor<8xf32, #nn.batch<0>>
  return
}

// -----
func.func @where(%c: tensor<8xi1>, %x: tensor<8xf32, #nn.batch<0>>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected the condition to have the shape and batch axis of}}
  %0 = nn.where %c, %x, %x : (tensor<8xi1>, tensor<8xf32, #nn.batch<0>>, tensor<8xf32, #nn.batch<0>>) -> tensor<8xf32, #nn.batch<0>>
  return
}

// -----
func.func @cast(%x: tensor<8xf32>) {
  // expected-error@+1 {{expected no float to become an integer}}
  %0 = nn.cast %x : (tensor<8xf32>) -> tensor<8xi32>
  return
}

// -----
func.func @broadcast_order(%x: tensor<2x3xf32>) {
  // expected-error@+1 {{expected increasing axes below 3, got 0 behind 1}}
  %0 = nn.broadcast %x [1, 0] : (tensor<2x3xf32>) -> tensor<3x2x3xf32>
  return
}

// -----
func.func @broadcast_size(%x: tensor<2xf32>) {
  // expected-error@+1 {{axis 0 has 2 elements, axis 1 of the result 3}}
  %0 = nn.broadcast %x [1] : (tensor<2xf32>) -> tensor<2x3xf32>
  return
}

// -----
func.func @broadcast_batch(%x: tensor<2xf32, #nn.batch<0>>) {
  // expected-error@+1 {{the batch axis does not carry over}}
  %0 = nn.broadcast %x [1] : (tensor<2xf32, #nn.batch<0>>) -> tensor<3x2xf32, #nn.batch<0>>
  return
}

// -----
func.func @transpose(%x: tensor<2x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected a permutation of 2 axes}}
  %0 = nn.transpose %x [0, 0] : (tensor<2x3xf32>) -> tensor<2x2xf32>
  return
}

// -----
func.func @reshape(%x: tensor<8x6xf32, #nn.batch<0>>) {
  // expected-error@+1 {{expected the batch axis to keep its size and place}}
  %0 = nn.reshape %x : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<48xf32, #nn.batch<0>>
  return
}

// -----
func.func @slice_batch(%x: tensor<8x6xf32, #nn.batch<0>>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{axis 0 is the batch axis: an op works example by example}}
  %0 = nn.slice %x axis 0 from 0 to 4 : (tensor<8x6xf32, #nn.batch<0>>) -> tensor<4x6xf32, #nn.batch<0>>
  return
}

// -----
func.func @slice_range(%x: tensor<6xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected a range inside 6 elements, got 2 to 7}}
  %0 = nn.slice %x axis 0 from 2 to 7 : (tensor<6xf32>) -> tensor<5xf32>
  return
}

// -----
func.func @concat(%x: tensor<6x2xf32>, %y: tensor<6x3xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected all but axis 0 to agree}}
  %0 = nn.concat %x, %y axis 0 : (tensor<6x2xf32>, tensor<6x3xf32>) -> tensor<12x2xf32>
  return
}

// -----
func.func @reduce_axes(%x: tensor<6x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected increasing axes below 2, got 2 behind -1}}
  %0 = nn.reduce sum %x [2] : (tensor<6x2xf32>) -> tensor<6xf32>
  return
}

// -----
func.func @reduce_type(%x: tensor<6x2xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{'any' does not fit}}
  %0 = nn.reduce any %x [1] : (tensor<6x2xf32>) -> tensor<6xf32>
  return
}

// -----
func.func @contract_size(%x: tensor<6x2xf32>, %y: tensor<3x5xf32>) {
  // expected-error@+1 {{label 2 stands for 2 and for 3 elements}}
  %0 = nn.contract %x [0, 2], %y [2, 1] : (tensor<6x2xf32>, tensor<3x5xf32>) -> tensor<6x5xf32>
  return
}

// -----
func.func @contract_sum(%x: tensor<6x2xf32>, %y: tensor<5xf32>) {
  // expected-error@+1 {{summed label 2 is in one operand only}}
  %0 = nn.contract %x [0, 2], %y [1] : (tensor<6x2xf32>, tensor<5xf32>) -> tensor<6x5xf32>
  return
}

// -----
func.func @contract_batch(%x: tensor<8x2xf32, #nn.batch<0>>, %y: tensor<8x3xf32, #nn.batch<0>>) {
  // expected-error@+1 {{the batch axes have two labels, 0 and 1}}
  %0 = nn.contract %x [0, 2], %y [1, 3] : (tensor<8x2xf32, #nn.batch<0>>, tensor<8x3xf32, #nn.batch<0>>) -> tensor<8x8x2x3xf32, #nn.batch<0>>
  return
}

// -----
func.func @contract_slowest(%x: tensor<8x2xf32, #nn.batch<0>>, %y: tensor<8x2xf32, #nn.batch<0>>) {
  // expected-error@+1 {{expected a summed batch axis to be one of both operands and the slowest, got label 1 and slowest 0}}
  %0 = nn.contract %x [1, 0], %y [1, 0] : (tensor<8x2xf32, #nn.batch<0>>, tensor<8x2xf32, #nn.batch<0>>) -> tensor<f32>
  return
}

// -----
func.func @gather_batch(%x: tensor<8x2xf32, #nn.batch<0>>, %i: tensor<3xi32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{takes the batch axis by index}}
  %0 = nn.gather %x [-1, 1] at (%i) [[0]] : (tensor<8x2xf32, #nn.batch<0>>, tensor<3xi32>) -> tensor<3x2xf32>
  return
}

// -----
func.func @gather_gap(%x: tensor<8x2xf32>, %i: tensor<3xi32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected the labels of the result without a gap}}
  %0 = nn.gather %x [-1, 2] at (%i) [[0]] : (tensor<8x2xf32>, tensor<3xi32>) -> tensor<3x2xf32>
  return
}

// -----
func.func @scatter_add(%x: tensor<3x2xf32>, %i: tensor<3xi32>) {
  // expected-error@+1 {{expected updates of type 'tensor<3x4xf32>', got 'tensor<3x2xf32>'}}
  %0 = nn.scatter_add %x [-1, 1] at (%i) [[0]] : (tensor<3x2xf32>, tensor<3xi32>) -> tensor<8x4xf32>
  return
}

// -----
func.func @softmax(%x: tensor<8x2xf32, #nn.batch<0>>) {
  // expected-error@+1 {{axis 0 is the batch axis}}
  %0 = nn.softmax %x axis 0 : (tensor<8x2xf32, #nn.batch<0>>) -> tensor<8x2xf32, #nn.batch<0>>
  return
}

// -----
func.func @cross_entropy(%x: tensor<8x2xf32>, %y: tensor<8x1xi32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected labels of type 'tensor<8xi32>', got 'tensor<8x1xi32>'}}
  %0 = nn.cross_entropy %x, %y axis 1 : (tensor<8x2xf32>, tensor<8x1xi32>) -> tensor<8xf32>
  return
}

// -----
func.func @attend(%q: tensor<3x4x8xf32>, %k: tensor<2x4x8xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected a multiple of the key heads as query heads}}
  %o, %l = nn.attend %q, %k, %k scale 1.0 : (tensor<3x4x8xf32>, tensor<2x4x8xf32>, tensor<2x4x8xf32>) -> (tensor<3x4x8xf32>, tensor<3x4xf32>)
  return
}

// -----
func.func @conv_filter_of_examples(%x: tensor<2x5x5x4xf32>, %w: tensor<3x3x4x2xf32, #nn.batch<3>>) {
  // expected-error@+1 {{expected a filter of four axes without the examples'}}
  %0 = nn.conv output %x, %w stride [1, 1] pad [0, 0] dilate [1, 1] : (tensor<2x5x5x4xf32>, tensor<3x3x4x2xf32, #nn.batch<3>>) -> tensor<2x3x3x2xf32>
  return
}

// -----
func.func @conv_batch_of_rows(%x: tensor<5x5x4xf32, #nn.batch<0>>, %w: tensor<3x3x4x2xf32>) {
  // expected-error@+1 {{expected rows, columns and channels behind the leading axes}}
  %0 = nn.conv output %x, %w stride [1, 1] pad [0, 0] dilate [1, 1] : (tensor<5x5x4xf32, #nn.batch<0>>, tensor<3x3x4x2xf32>) -> tensor<3x3x2xf32>
  return
}

// -----
func.func @conv_leading(%x: tensor<2x5x5x4xf32>, %w: tensor<3x3x4x2xf32>) {
  // expected-error@+1 {{expected the same leading axes}}
  %0 = nn.conv output %x, %w stride [1, 1] pad [0, 0] dilate [1, 1] : (tensor<2x5x5x4xf32>, tensor<3x3x4x2xf32>) -> tensor<3x3x3x2xf32>
  return
}

// -----
func.func @conv_stride(%x: tensor<2x5x5x4xf32>, %w: tensor<3x3x4x2xf32>) {
  // expected-error@+1 {{expected strides and dilations of at least 1}}
  %0 = nn.conv output %x, %w stride [0, 1] pad [0, 0] dilate [1, 1] : (tensor<2x5x5x4xf32>, tensor<3x3x4x2xf32>) -> tensor<2x3x3x2xf32>
  return
}

// -----
func.func @conv_groups(%x: tensor<2x5x5x4xf32>, %w: tensor<3x3x4x3xf32>) {
  // expected-error@+1 {{expected a filter from 4 to 3 channels in 2 groups}}
  %0 = nn.conv output %x, %w stride [1, 1] pad [0, 0] dilate [1, 1] groups 2 : (tensor<2x5x5x4xf32>, tensor<3x3x4x3xf32>) -> tensor<2x3x3x3xf32>
  return
}

// -----
func.func @conv_places(%x: tensor<2x5x5x4xf32>, %w: tensor<3x3x4x2xf32>) {
  // expected-error@+1 {{expected 3 places of the filter along axis 1}}
  %0 = nn.conv output %x, %w stride [1, 1] pad [0, 0] dilate [1, 1] : (tensor<2x5x5x4xf32>, tensor<3x3x4x2xf32>) -> tensor<2x4x3x2xf32>
  return
}

// -----
func.func @conv_elements(%x: tensor<2x5x5x4xf32>, %w: tensor<3x3x4x2xf64>) {
  // expected-error@+1 {{expected one element type}}
  %0 = nn.conv output %x, %w stride [1, 1] pad [0, 0] dilate [1, 1] : (tensor<2x5x5x4xf32>, tensor<3x3x4x2xf64>) -> tensor<2x3x3x2xf32>
  return
}

// -----
func.func @pool_padding(%x: tensor<2x5x5x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{expected windows and strides of at least 1 and a padding from 0 to below the window}}
  %0 = nn.sum_pool %x window [2, 2] stride [1, 1] pad [2, 0] : (tensor<2x5x5x4xf32>) -> tensor<2x8x4x4xf32>
  return
}

// -----
func.func @pool_window(%x: tensor<2x5x5x4xf32>) {
  // expected-error@+2 {{failed to infer returned types}}
  // expected-error@+1 {{a window of 6 x 1 does not fit into}}
  %0 = nn.sum_pool %x window [6, 1] stride [1, 1] pad [0, 0] : (tensor<2x5x5x4xf32>) -> tensor<2x1x5x4xf32>
  return
}

// -----
func.func @pool_places(%p: tensor<2x4x4x3xi32>, %x: tensor<2x4x4x4xf32>) {
  // expected-error@+1 {{expected places of type}}
  %0 = nn.max_pool_grad %p, %x window [2, 2] stride [1, 1] pad [0, 0] : (tensor<2x4x4x3xi32>, tensor<2x4x4x4xf32>) -> tensor<2x5x5x4xf32>
  return
}

// -----
func.func @sgd(%p: tensor<4xf32>, %lr: tensor<f64>) {
  // expected-error@+1 {{expected the old and the new state of 1 slots, got 0 and 0}}
  %0 = nn.update %p, %p lr %lr by <sgd, lr = 0.1, momentum = 0.9> : (tensor<4xf32>, tensor<4xf32>, tensor<f64>) -> tensor<4xf32>
  return
}

// -----
func.func @adam(%p: tensor<4xf32>, %m: tensor<3xf32>, %lr: tensor<f64>) {
  // expected-error@+1 {{expected the parameter's type 'tensor<4xf32>', got 'tensor<3xf32>'}}
  %0, %1, %2 = nn.update %p, %p lr %lr state %m, %m by <adam, lr = 0.1> : (tensor<4xf32>, tensor<4xf32>, tensor<f64>, tensor<3xf32>, tensor<3xf32>) -> (tensor<4xf32>, tensor<3xf32>, tensor<3xf32>)
  return
}

// -----
func.func @optimizer(%p: tensor<4xf32>, %lr: tensor<f64>) {
  // expected-error@+1 {{no optimizer is called 'sgdd'}}
  %0 = nn.update %p, %p lr %lr by <sgdd, lr = 0.1> : (tensor<4xf32>, tensor<4xf32>, tensor<f64>) -> tensor<4xf32>
  return
}

// -----
func.func @hyperparameter(%p: tensor<4xf32>, %lr: tensor<f64>) {
  // expected-error@+1 {{'sgd' has no hyperparameter 'eps'}}
  %0 = nn.update %p, %p lr %lr by <sgd, lr = 0.1, eps = 0.1> : (tensor<4xf32>, tensor<4xf32>, tensor<f64>) -> tensor<4xf32>
  return
}

// -----
func.func @sum_squares(%x: tensor<4xf32, #nn.batch<0>>) {
  // expected-error@+1 {{expected no batch axis}}
  %0 = nn.sum_squares %x : tensor<4xf32, #nn.batch<0>>
  return
}

// -----
func.func @new_state(%x: tensor<4xf32, #nn.batch<0>>) {
  // expected-error@+1 {{expected no batch axis}}
  %0 = nn.new_state "s" %x : tensor<4xf32, #nn.batch<0>>
  return
}

// -----
func.func @group_mean(%x: tensor<4x6xf32, #nn.batch<0>>) {
  // expected-error@+1 {{expected a batch axis that groups of 3 examples divide}}
  %0 = nn.group_mean %x group 3 : tensor<4x6xf32, #nn.batch<0>>
  return
}

// -----
func.func @groups_that_do_not_fit(%x: tensor<4x6xf32, #nn.batch<0>>) {
  // expected-error @below {{expected the batch axis to keep its size and place}}
  %0 = nn.reshape %x : (tensor<4x6xf32, #nn.batch<0>>) -> tensor<2x12xf32, #nn.batch<0, group = 3>>
  return
}

// -----

func.func @groups_and_examples(%x: tensor<2x2x6xf32, #nn.batch<0, group = 2>>, %y: tensor<2x5x6xf32, #nn.batch<0>>) {
  // expected-error @below {{the batch axes hold groups of 2 and of 1 examples}}
  %0 = nn.contract %x [0, 1, 3], %y [0, 2, 3] : (tensor<2x2x6xf32, #nn.batch<0, group = 2>>, tensor<2x5x6xf32, #nn.batch<0>>) -> tensor<2x2x5xf32, #nn.batch<0, group = 2>>
  return
}

// -----

func.func @group_mean_of_no_examples(%x: tensor<4x6xf32>) {
  // expected-error@+1 {{expected a batch axis that groups of 2 examples divide}}
  %0 = nn.group_mean %x group 2 : tensor<4x6xf32>
  return
}

// -----
// C2
func.func @parts(%h: tensor<4x8xf32>, %x: tensor<3x4x8xf32>) {
  // expected-error @+1 {{has no 2 parts along its first axis}}
  %r = nn.scan trips 2 from(%h) slices(%x) : (tensor<4x8xf32>, tensor<3x4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%a: tensor<4x8xf32>, %b: tensor<4x8xf32>):
    nn.yield %a : tensor<4x8xf32>
  }
  return
}

// -----
// C3
func.func @carried(%h: tensor<4x8xf32>, %x: tensor<2x4x8xf32>) {
  // expected-error @+1 {{has body arguments that differ from its operands}}
  %r = nn.scan trips 2 from(%h) slices(%x) : (tensor<4x8xf32>, tensor<2x4x8xf32>) -> tensor<4x8xf32> {
  ^bb0(%a: tensor<8xf32>, %b: tensor<4x8xf32>):
    nn.yield %b : tensor<4x8xf32>
  }
  return
}

// -----
// C4
func.func @sums(%h: tensor<8xf32>, %x: tensor<2x4x8xf32, #nn.batch<1>>) {
  %r = nn.scan trips 2 from(%h) slices(%x) : (tensor<8xf32>, tensor<2x4x8xf32, #nn.batch<1>>) -> tensor<8xf32> {
  ^bb0(%a: tensor<8xf32>, %b: tensor<4x8xf32, #nn.batch<0>>):
    // expected-error @+1 {{sums over the batch inside a loop}}
    %s = nn.reduce sum %b [0] : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<8xf32>
    nn.yield %s : tensor<8xf32>
  }
  return
}

// -----
func.func @contract_bf16_with_f64(%x: tensor<8x2xbf16, #nn.batch<0>>, %y: tensor<3x2xf64>) {
  // expected-error@+1 {{expected one element type}}
  %0 = nn.contract %x [0, 2], %y [1, 2] : (tensor<8x2xbf16, #nn.batch<0>>, tensor<3x2xf64>) -> tensor<8x3xf32, #nn.batch<0>>
  return
}

// -----
// A sum over examples goes on from one micro-batch to the next, in f32.
func.func @contract_sum_in_bf16(%x: tensor<8x2xbf16, #nn.batch<0>>, %y: tensor<8x3xbf16, #nn.batch<0>>) {
  // expected-error@+1 {{expected result type 'tensor<2x3xf32>', got 'tensor<2x3xbf16>'}}
  %0 = nn.contract %x [2, 0], %y [2, 1] : (tensor<8x2xbf16, #nn.batch<0>>, tensor<8x3xbf16, #nn.batch<0>>) -> tensor<2x3xbf16>
  return
}

// -----
func.func @reduce_bf16(%x: tensor<8x2xbf16, #nn.batch<0>>) {
  // expected-error@+2 {{'sum' does not fit}}
  // expected-error@+1 {{failed to infer returned types}}
  %0 = nn.reduce sum %x [1] : (tensor<8x2xbf16, #nn.batch<0>>) -> tensor<8xbf16, #nn.batch<0>>
  return
}

// -----
func.func @add_bf16(%x: tensor<8xbf16>) {
  // expected-error@+1 {{operand #0 must be static tensor of f32, f64 or i32}}
  %0 = nn.add %x, %x : tensor<8xbf16>
  return
}
