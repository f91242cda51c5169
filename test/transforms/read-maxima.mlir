// RUN: cinch-opt %s --read-maxima | FileCheck %s
// Which branch a maximum took is seen on what it gave where its operand would be kept for that alone.

// A product and its bias: the product is read by nothing else in the backward sweep, the maximum is (a filter's gradient).
// CHECK-LABEL: func.func @layer
// CHECK: %[[Y:.*]] = nn.max
// CHECK: nn.compare gt %[[Y]], %{{.*}} {nn.backward}
func.func @layer(%x: tensor<8x4xf32, #nn.batch<0>>, %w: tensor<4x16xf32>, %b: tensor<16xf32>, %dy: tensor<8x16xf32, #nn.batch<0>>)
    -> (tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) {
  %p = nn.contract %x [0, 2], %w [2, 1] : (tensor<8x4xf32, #nn.batch<0>>, tensor<4x16xf32>) -> tensor<8x16xf32, #nn.batch<0>>
  %c = nn.broadcast %b [1] : (tensor<16xf32>) -> tensor<8x16xf32, #nn.batch<0>>
  %s = nn.add %p, %c : tensor<8x16xf32, #nn.batch<0>>
  %zero = nn.constant 0.0 : tensor<8x16xf32, #nn.batch<0>>
  %y = nn.max %s, %zero : tensor<8x16xf32, #nn.batch<0>>
  %m = nn.compare gt %s, %zero {nn.backward} : (tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) -> tensor<8x16xi1, #nn.batch<0>>
  %d = nn.where %m, %dy, %zero {nn.backward} : (tensor<8x16xi1, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) -> tensor<8x16xf32, #nn.batch<0>>
  %f = nn.mul %y, %dy {nn.backward} : tensor<8x16xf32, #nn.batch<0>>
  return %d, %f : tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>
}

// The least of an image and a parameter, whose sum both gradients read, and so does a view of the result.
// CHECK-LABEL: func.func @sum
// CHECK: %[[Y:.*]] = nn.min
// CHECK: nn.compare lt %[[Y]], %{{.*}} {nn.backward}
func.func @sum(%x: tensor<8x16xf32, #nn.batch<0>>, %z: tensor<8x16xf32, #nn.batch<0>>, %q: tensor<8x16xf32, #nn.batch<0>>)
    -> (tensor<8x16xi1, #nn.batch<0>>, tensor<8x4x4xf32, #nn.batch<0>>) {
  %s = nn.add %x, %z : tensor<8x16xf32, #nn.batch<0>>
  %y = nn.min %s, %q : tensor<8x16xf32, #nn.batch<0>>
  %v = nn.reshape %y : (tensor<8x16xf32, #nn.batch<0>>) -> tensor<8x4x4xf32, #nn.batch<0>>
  %m = nn.compare lt %s, %q {nn.backward} : (tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) -> tensor<8x16xi1, #nn.batch<0>>
  %f = nn.mul %v, %v {nn.backward} : tensor<8x4x4xf32, #nn.batch<0>>
  return %m, %f : tensor<8x16xi1, #nn.batch<0>>, tensor<8x4x4xf32, #nn.batch<0>>
}

// Behind a norm: the difference is read by the norm's own gradient, and the operand is computed from it alone; a row's deviation is small.
// CHECK-LABEL: func.func @norm
// CHECK: %[[A:.*]] = nn.add
// CHECK: nn.max %[[A]]
// CHECK: nn.compare gt %[[A]], %{{.*}} {nn.backward}
func.func @norm(%x: tensor<8x16xf32, #nn.batch<0>>, %r: tensor<8xf32, #nn.batch<0>>, %b: tensor<16xf32>)
    -> (tensor<8x16xi1, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) {
  %w = nn.broadcast %r [0] : (tensor<8xf32, #nn.batch<0>>) -> tensor<8x16xf32, #nn.batch<0>>
  %n = nn.mul %x, %w : tensor<8x16xf32, #nn.batch<0>>
  %c = nn.broadcast %b [1] : (tensor<16xf32>) -> tensor<8x16xf32, #nn.batch<0>>
  %a = nn.add %n, %c : tensor<8x16xf32, #nn.batch<0>>
  %zero = nn.constant 0.0 : tensor<8x16xf32, #nn.batch<0>>
  %y = nn.max %a, %zero : tensor<8x16xf32, #nn.batch<0>>
  %m = nn.compare gt %a, %zero {nn.backward} : (tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) -> tensor<8x16xi1, #nn.batch<0>>
  %e = nn.mul %n, %w {nn.backward} : tensor<8x16xf32, #nn.batch<0>>
  %f = nn.mul %y, %y {nn.backward} : tensor<8x16xf32, #nn.batch<0>>
  return %m, %e, %f : tensor<8x16xi1, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>
}

// Nothing in the backward sweep reads what the maximum gave; another comparison is none of a branch.
// CHECK-LABEL: func.func @neither
// CHECK: %[[S:.*]] = nn.add
// CHECK: nn.compare gt %[[S]], %{{.*}} {nn.backward}
// CHECK: nn.compare ge %[[S]], %{{.*}} {nn.backward}
func.func @neither(%x: tensor<8x16xf32, #nn.batch<0>>, %z: tensor<8x16xf32, #nn.batch<0>>, %q: tensor<8x16xf32, #nn.batch<0>>)
    -> (tensor<8x16xi1, #nn.batch<0>>, tensor<8x16xi1, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) {
  %s = nn.add %x, %z : tensor<8x16xf32, #nn.batch<0>>
  %y = nn.max %s, %q : tensor<8x16xf32, #nn.batch<0>>
  %o = nn.max %s, %z : tensor<8x16xf32, #nn.batch<0>>
  %m = nn.compare gt %s, %q {nn.backward} : (tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) -> tensor<8x16xi1, #nn.batch<0>>
  %n = nn.compare ge %s, %z {nn.backward} : (tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>) -> tensor<8x16xi1, #nn.batch<0>>
  %f = nn.mul %o, %o {nn.backward} : tensor<8x16xf32, #nn.batch<0>>
  return %m, %n, %y, %f : tensor<8x16xi1, #nn.batch<0>>, tensor<8x16xi1, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>, tensor<8x16xf32, #nn.batch<0>>
}
