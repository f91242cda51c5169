// An element type that no kernel has is an error of the compiler, and no other type takes its place.
// RUN: not --crash cinch-opt %s --pass-pipeline="builtin.module(func.func(form-kernels,decide-plan))" 2>&1 | FileCheck %s

// CHECK: LLVM ERROR: no kernel computes elements of type i64
func.func @train(%w: tensor<4xf32> {nn.path = "w"}, %n: tensor<4xi64> {nn.slot = "n"})
    -> (tensor<4xf32> {nn.path = "w"}, tensor<f32> {nn.name = "loss"}) {
  %two = nn.constant 2.0 : tensor<4xf32>
  %v = nn.mul %w, %two : tensor<4xf32>
  %square = nn.mul %w, %w : tensor<4xf32>
  %loss = nn.reduce sum %square [0] : (tensor<4xf32>) -> tensor<f32>
  return %v, %loss : tensor<4xf32>, tensor<f32>
}
