// RUN: cinch-opt %s --round-values | FileCheck %s
// RUN: cinch-opt %s --round-values --round-values | FileCheck %s

// A linear layer of the library, whose inside is f32, and a residual in the user's text. The operand is rounded once, its weight inside of
// the product; the result of the product, that of the layer, and that of the definition are rounded. `add` has its own view of %h; the
// layer %7 of the library has one for both of its reads.
// CHECK-LABEL: func.func @step
// CHECK: %[[X:.*]] = nn.cast %arg1 : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xbf16, #nn.batch<0>>
// CHECK: %[[P:.*]] = nn.contract %[[X]] [0, 2], %arg0 [1, 2] : (tensor<4x8xbf16, #nn.batch<0>>, tensor<8x8xf32>) -> tensor<4x8xf32, #nn.batch<0>>
// CHECK: %[[PB:.*]] = nn.cast %[[P]] : {{.*}} -> tensor<4x8xbf16, #nn.batch<0>>
// CHECK: %[[PF:.*]] = nn.cast %[[PB]] : {{.*}} -> tensor<4x8xf32, #nn.batch<0>>
// CHECK: %[[H:.*]] = nn.tanh %[[PF]]
// CHECK: %[[HB:.*]] = nn.cast %[[H]] {nn.keep} : {{.*}} -> tensor<4x8xbf16, #nn.batch<0>>
// CHECK: %[[A:.*]] = nn.cast %[[HB]] : {{.*}} -> tensor<4x8xf32
// CHECK: %[[B:.*]] = nn.cast %[[HB]] : {{.*}} -> tensor<4x8xf32
// CHECK: %[[S:.*]] = nn.add %[[A]], %[[B]]
// CHECK: %[[L:.*]] = nn.cast %[[HB]] : {{.*}} -> tensor<4x8xf32
// CHECK: %[[E:.*]] = nn.exp %[[L]]
// CHECK: nn.mul %[[L]], %[[E]]
// CHECK: %[[R:.*]] = nn.reshape %[[HB]] : (tensor<4x8xbf16, #nn.batch<0>>) -> tensor<4x2x4xbf16, #nn.batch<0>>
// CHECK: nn.contract %[[R]] [0, 1, 2], %{{.*}} [0, 1, 2] : (tensor<4x2x4xbf16
module attributes {nn.bf16} {
  func.func @step(%w: tensor<8x8xf32>, %x: tensor<4x8xf32, #nn.batch<0>>) -> tensor<4xf32, #nn.batch<0>> {
    %y = nn.contract %x [0, 2], %w [1, 2] : (tensor<4x8xf32, #nn.batch<0>>, tensor<8x8xf32>) -> tensor<4x8xf32, #nn.batch<0>>
    %h = nn.tanh %y {nn.rounded, nn.keep} : tensor<4x8xf32, #nn.batch<0>>
    %s = nn.add %h, %h : tensor<4x8xf32, #nn.batch<0>>
    %e = nn.exp %h {nn.layer = 7 : i64} : tensor<4x8xf32, #nn.batch<0>>
    %m = nn.mul %h, %e {nn.layer = 7 : i64} : tensor<4x8xf32, #nn.batch<0>>
    %t = nn.add %s, %m : tensor<4x8xf32, #nn.batch<0>>
    %r = nn.reshape %h : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x2x4xf32, #nn.batch<0>>
    %q = nn.reshape %t : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x2x4xf32, #nn.batch<0>>
    %z = nn.contract %r [0, 1, 2], %q [0, 1, 2] : (tensor<4x2x4xf32, #nn.batch<0>>, tensor<4x2x4xf32, #nn.batch<0>>) -> tensor<4xf32, #nn.batch<0>>
    return %z : tensor<4xf32, #nn.batch<0>>
  }
}
