// RUN: cinch-opt %s --split-input-file --round-values | FileCheck %s
// RUN: cinch-opt %s --split-input-file --round-values --round-values | FileCheck %s

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

// -----

// A product of parameters alone says that it is one of bf16; its operands stay what they are, and so do their gradients.
// CHECK-LABEL: func.func @parameters
// CHECK: nn.contract %arg0 [0, 2], %arg0 [1, 2] {nn.bf16} : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
module attributes {nn.bf16} {
  func.func @parameters(%w: tensor<8x8xf32>) -> tensor<8x8xf32> {
    %y = nn.contract %w [0, 2], %w [1, 2] : (tensor<8x8xf32>, tensor<8x8xf32>) -> tensor<8x8xf32>
    return %y : tensor<8x8xf32>
  }
}

// -----

// A loop takes a rounded value of examples apart as it is, carries f32, and rounds what it stacks in each trip if that is a definition.
// CHECK-LABEL: func.func @loop
// CHECK: %[[X:.*]] = nn.cast %{{.*}} : {{.*}} -> tensor<3x4x8xbf16, #nn.batch<1>>
// CHECK: nn.scan trips 3 from(%arg1) slices(%[[X]]) with(%arg0) : {{.*}} -> (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xbf16, #nn.batch<1>>)
// CHECK: ^bb0(%[[H:.*]]: tensor<4x8xf32, #nn.batch<0>>, %[[PART:.*]]: tensor<4x8xbf16, #nn.batch<0>>, %[[W:.*]]: tensor<8x8xf32>):
// CHECK: %[[HB:.*]] = nn.cast %[[H]] : {{.*}} -> tensor<4x8xbf16
// CHECK: %[[U:.*]] = nn.contract %[[HB]] [0, 2], %[[W]] [1, 2]
// CHECK: %[[UB:.*]] = nn.cast %[[U]] : {{.*}} -> tensor<4x8xbf16
// CHECK-DAG: %[[UF:.*]] = nn.cast %[[UB]] : {{.*}} -> tensor<4x8xf32
// CHECK-DAG: %[[XF:.*]] = nn.cast %[[PART]] : {{.*}} -> tensor<4x8xf32
// CHECK: %[[Y:.*]] = nn.add %[[XF]], %[[UF]]
// CHECK: %[[YB:.*]] = nn.cast %[[Y]] : {{.*}} -> tensor<4x8xbf16
// CHECK: nn.yield %[[Y]], %[[YB]]
module attributes {nn.bf16} {
  func.func @loop(%w: tensor<8x8xf32>, %h: tensor<4x8xf32, #nn.batch<0>>, %x: tensor<3x4x8xf32, #nn.batch<1>>) -> tensor<3x4x8xf32, #nn.batch<1>> {
    %t = nn.tanh %x {nn.rounded} : tensor<3x4x8xf32, #nn.batch<1>>
    %last, %all = nn.scan trips 3 from (%h) slices (%t) with (%w) : (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<8x8xf32>) -> (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>) {
    ^bb0(%before: tensor<4x8xf32, #nn.batch<0>>, %part: tensor<4x8xf32, #nn.batch<0>>, %whole: tensor<8x8xf32>):
      %u = nn.contract %before [0, 2], %whole [1, 2] : (tensor<4x8xf32, #nn.batch<0>>, tensor<8x8xf32>) -> tensor<4x8xf32, #nn.batch<0>>
      %y = nn.add %part, %u : tensor<4x8xf32, #nn.batch<0>>
      nn.yield %y, %y : tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>
    } {nn.rounded = array<i64: 1>}
    return %all : tensor<3x4x8xf32, #nn.batch<1>>
  }
}

// -----

// A convolution is a product; the largest of a window of bf16 is bf16.
// CHECK-LABEL: func.func @windows
// CHECK: %[[X:.*]] = nn.cast %arg1 : {{.*}} -> tensor<2x4x4x3xbf16, #nn.batch<0>>
// CHECK: %[[Y:.*]] = nn.conv output %[[X]], %arg0 {{.*}} -> tensor<2x4x4x5xf32, #nn.batch<0>>
// CHECK: %[[YB:.*]] = nn.cast %[[Y]] : {{.*}} -> tensor<2x4x4x5xbf16, #nn.batch<0>>
// CHECK: nn.max_pool %[[YB]] {{.*}} -> (tensor<2x2x2x5xbf16, #nn.batch<0>>
module attributes {nn.bf16} {
  func.func @windows(%w: tensor<3x3x3x5xf32>, %x: tensor<2x4x4x3xf32, #nn.batch<0>>) -> tensor<2x2x2x5xf32, #nn.batch<0>> {
    %y = nn.conv output %x, %w stride [1, 1] pad [1, 1] dilate [1, 1] : (tensor<2x4x4x3xf32, #nn.batch<0>>, tensor<3x3x3x5xf32>) -> tensor<2x4x4x5xf32, #nn.batch<0>>
    %m, %place = nn.max_pool %y window [2, 2] stride [2, 2] pad [0, 0] : (tensor<2x4x4x5xf32, #nn.batch<0>>) -> (tensor<2x2x2x5xf32, #nn.batch<0>>, tensor<2x2x2x5xi32, #nn.batch<0>>)
    return %m : tensor<2x2x2x5xf32, #nn.batch<0>>
  }
}
