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

