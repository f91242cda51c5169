// RUN: cinch-opt %s --split-input-file --verify-diagnostics --verify-phase=phase=differentiated

// expected-error@+1 {{should have become @train by Differentiate}}
func.func @step(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----
// expected-error@+1 {{result 0 has no name}}
func.func @train(%x: tensor<f32>) -> tensor<f32> {
  return %x : tensor<f32>
}

// -----
// expected-error@+1 {{result 0, the new "w", has no argument of its type 'tensor<f32>'}}
func.func @train(%x: tensor<f32> {nn.path = "v"}) -> (tensor<f32> {nn.path = "w"}) {
  return %x : tensor<f32>
}

// -----
// expected-error@+1 {{result 0 of type 'tensor<4xf32, #nn.batch<0>>' has the batch axis}}
func.func @evaluation(%x: tensor<4xf32, #nn.batch<0>>) -> (tensor<4xf32, #nn.batch<0>> {nn.name = "loss"}) {
  return %x : tensor<4xf32, #nn.batch<0>>
}

// -----
// expected-error@+1 {{result 0 of type 'tensor<4xf32>' lacks the batch axis}}
func.func @prediction(%x: tensor<4xf32>) -> (tensor<4xf32> {nn.name = "y"}) {
  return %x : tensor<4xf32>
}

// -----
// Every example is divided by a number that the sum over all examples gives.
func.func @train(%x: tensor<4xf32, #nn.batch<0>>) -> (tensor<f32> {nn.name = "loss"}) {
  %n = nn.reduce sum %x [0] : (tensor<4xf32, #nn.batch<0>>) -> tensor<f32>
  %r = nn.sqrt %n : tensor<f32>
  // expected-error@+1 {{needs a sum over the whole batch that is not constant}}
  %b = nn.broadcast %r [] : (tensor<f32>) -> tensor<4xf32, #nn.batch<0>>
  %y = nn.div %x, %b : tensor<4xf32, #nn.batch<0>>
  %s = nn.reduce sum %y [0] : (tensor<4xf32, #nn.batch<0>>) -> tensor<f32>
  return %s : tensor<f32>
}
