// RUN: cinch-opt %s --split-input-file --verify-diagnostics --differentiate

#constant = #nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>
#sgd = #nn.optimizer<sgd, lr = 0.1>
#training = #nn.training<optimizers = [#sgd], schedule = #constant, steps = 100, clip_norm = 0.0, clip_value = 0.0>

// A gradient op has no derivative of its own.
func.func @step(%w: tensor<5x4xf32> {nn.path = "w"}) -> tensor<f32> attributes {nn.training = #training} {
  // expected-error@+1 {{'nn.softmax_grad' op has no derivative, and the loss depends on a parameter through it}}
  %0 = nn.softmax_grad %w, %w axis 1 : tensor<5x4xf32>
  %s = nn.reduce sum %0 [0, 1] : (tensor<5x4xf32>) -> tensor<f32>
  return %s : tensor<f32>
}

// -----
#constant = #nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>
#sgd = #nn.optimizer<sgd, lr = 0.1>
#training = #nn.training<optimizers = [#sgd], schedule = #constant, steps = 100, clip_norm = 0.0, clip_value = 0.0>

// expected-error@+1 {{the loss depends on no parameter that is trained}}
func.func @step(%w: tensor<5xf32> {nn.path = "w", nn.frozen}) -> tensor<f32> attributes {nn.training = #training} {
  %s = nn.reduce sum %w [0] : (tensor<5xf32>) -> tensor<f32>
  return %s : tensor<f32>
}

// -----
// expected-error@+1 {{expected a function @step with 'nn.training'}}
module {
}

// -----
#constant = #nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>
#sgd = #nn.optimizer<sgd, lr = 0.1>
#training = #nn.training<optimizers = [#sgd], schedule = #constant, steps = 100, clip_norm = 0.0, clip_value = 0.0>

// A state is no parameter that is trained.
// expected-error@+1 {{the loss depends on no parameter that is trained}}
func.func @step(%s: tensor<5xf32> {nn.path = "s", nn.state}) -> (tensor<f32>, tensor<5xf32> {nn.path = "s"})
    attributes {nn.training = #training} {
  %0 = nn.reduce sum %s [0] : (tensor<5xf32>) -> tensor<f32>
  %1 = nn.new_state "s" %s : tensor<5xf32>
  return %0, %1 : tensor<f32>, tensor<5xf32>
}

// -----
#constant = #nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>
#sgd = #nn.optimizer<sgd, lr = 0.1>
#training = #nn.training<optimizers = [#sgd], schedule = #constant, steps = 100, clip_norm = 0.0, clip_value = 0.0>

// expected-error@+1 {{expected one result beside states, the loss, a scalar}}
func.func @step(%w: tensor<5xf32> {nn.path = "w"}) -> (tensor<f32>, tensor<5xf32>) attributes {nn.training = #training} {
  %s = nn.reduce sum %w [0] : (tensor<5xf32>) -> tensor<f32>
  %t = nn.neg %w : tensor<5xf32>
  return %s, %t : tensor<f32>, tensor<5xf32>
}
