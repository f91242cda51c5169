// RUN: cinch-opt %s --sink-splits | FileCheck %s

// A group norm: the mean of a group is repeated for its channels, then for the places; the sum over groups reads the work as groups.
// CHECK-LABEL: func.func @norm
// CHECK-SAME: %[[Y:[^:]*]]: {{.*}}, %[[M:[^:]*]]:
// CHECK: %[[J:.*]] = nn.broadcast %[[M]] [0, 1] : (tensor<8x4xf32, #nn.batch<0>>) -> tensor<8x4x3xf32, #nn.batch<0>>
// CHECK: %[[C:.*]] = nn.reshape %[[J]] : {{.*}} -> tensor<8x12xf32, #nn.batch<0>>
// CHECK: %[[W:.*]] = nn.broadcast %[[C]] [0, 2] : {{.*}} -> tensor<8x64x12xf32, #nn.batch<0>>
// CHECK: %[[D:.*]] = nn.sub %[[Y]], %[[W]] : tensor<8x64x12xf32, #nn.batch<0>>
// CHECK: %[[Q:.*]] = nn.mul %[[D]], %[[D]] : tensor<8x64x12xf32, #nn.batch<0>>
// CHECK: %[[G:.*]] = nn.reshape %[[Q]] : {{.*}} -> tensor<8x64x4x3xf32, #nn.batch<0>>
// CHECK: %[[S:.*]] = nn.reduce sum %[[G]] [1, 3]
// CHECK: return %[[D]], %[[S]]
func.func @norm(%y: tensor<8x64x12xf32, #nn.batch<0>>, %m: tensor<8x4xf32, #nn.batch<0>>)
    -> (tensor<8x64x12xf32, #nn.batch<0>>, tensor<8x4xf32, #nn.batch<0>>) {
  %0 = nn.reshape %y : (tensor<8x64x12xf32, #nn.batch<0>>) -> tensor<8x64x4x3xf32, #nn.batch<0>>
  %1 = nn.broadcast %m [0, 2] : (tensor<8x4xf32, #nn.batch<0>>) -> tensor<8x64x4x3xf32, #nn.batch<0>>
  %2 = nn.sub %0, %1 : tensor<8x64x4x3xf32, #nn.batch<0>>
  %3 = nn.mul %2, %2 : tensor<8x64x4x3xf32, #nn.batch<0>>
  %4 = nn.reduce sum %3 [1, 3] : (tensor<8x64x4x3xf32, #nn.batch<0>>) -> tensor<8x4xf32, #nn.batch<0>>
  %5 = nn.reshape %2 : (tensor<8x64x4x3xf32, #nn.batch<0>>) -> tensor<8x64x12xf32, #nn.batch<0>>
  return %5, %4 : tensor<8x64x12xf32, #nn.batch<0>>, tensor<8x4xf32, #nn.batch<0>>
}

// What lies between the split and the work on whole axes goes there with it, and its other readers follow. What has no such reader stays.
// CHECK-LABEL: func.func @between
// CHECK-SAME: %[[Y:[^:]*]]: tensor<8x64x12xbf16
// CHECK: %[[F:.*]] = nn.cast %[[Y]] : {{.*}} -> tensor<8x64x12xf32, #nn.batch<0>>
// CHECK: %[[E:.*]] = nn.exp %[[F]] : tensor<8x64x12xf32, #nn.batch<0>>
// CHECK: %[[P:.*]] = nn.reshape %[[E]] : {{.*}} -> tensor<8x64x4x3xf32, #nn.batch<0>>
// CHECK: %[[N:.*]] = nn.neg %[[P]] : tensor<8x64x4x3xf32, #nn.batch<0>>
// CHECK: %[[D:.*]] = nn.sub %[[E]], %{{.*}} : tensor<8x64x12xf32, #nn.batch<0>>
// CHECK: return %[[D]], %[[N]]
func.func @between(%y: tensor<8x64x12xbf16, #nn.batch<0>>, %m: tensor<8x4xf32, #nn.batch<0>>)
    -> (tensor<8x64x12xf32, #nn.batch<0>>, tensor<8x64x4x3xf32, #nn.batch<0>>) {
  %0 = nn.reshape %y : (tensor<8x64x12xbf16, #nn.batch<0>>) -> tensor<8x64x4x3xbf16, #nn.batch<0>>
  %1 = nn.cast %0 : (tensor<8x64x4x3xbf16, #nn.batch<0>>) -> tensor<8x64x4x3xf32, #nn.batch<0>>
  %2 = nn.exp %1 : tensor<8x64x4x3xf32, #nn.batch<0>>
  %3 = nn.neg %2 : tensor<8x64x4x3xf32, #nn.batch<0>>
  %4 = nn.broadcast %m [0, 2] : (tensor<8x4xf32, #nn.batch<0>>) -> tensor<8x64x4x3xf32, #nn.batch<0>>
  %5 = nn.sub %2, %4 : tensor<8x64x4x3xf32, #nn.batch<0>>
  %6 = nn.reshape %5 : (tensor<8x64x4x3xf32, #nn.batch<0>>) -> tensor<8x64x12xf32, #nn.batch<0>>
  return %6, %3 : tensor<8x64x12xf32, #nn.batch<0>>, tensor<8x64x4x3xf32, #nn.batch<0>>
}

// A split that is undone is none; what was said of the value is said of the op that computes it. Where that has a hint of its own, all stays.
// CHECK-LABEL: func.func @hints
// CHECK: %[[D:.*]] = nn.sub {{.*}} {nn.ends_stage = array<i64: 0, 3>} : tensor<8x64x12xf32, #nn.batch<0>>
// CHECK: %[[K:.*]] = nn.add {{.*}} {nn.keep} : tensor<8x64x12xf32, #nn.batch<0>>
// CHECK: %[[S:.*]] = nn.reshape %[[K]]
// CHECK: %[[U:.*]] = nn.reshape %[[S]] {nn.ends_stage = array<i64: 1, 3>}
// CHECK: return %[[D]], %[[U]]
func.func @hints(%y: tensor<8x64x12xf32, #nn.batch<0>>, %m: tensor<8x4xf32, #nn.batch<0>>)
    -> (tensor<8x64x12xf32, #nn.batch<0>>, tensor<8x64x12xf32, #nn.batch<0>>) {
  %0 = nn.reshape %y : (tensor<8x64x12xf32, #nn.batch<0>>) -> tensor<8x64x4x3xf32, #nn.batch<0>>
  %1 = nn.broadcast %m [0, 2] : (tensor<8x4xf32, #nn.batch<0>>) -> tensor<8x64x4x3xf32, #nn.batch<0>>
  %2 = nn.sub %0, %1 : tensor<8x64x4x3xf32, #nn.batch<0>>
  %3 = nn.reshape %2 {nn.ends_stage = array<i64: 0, 3>} : (tensor<8x64x4x3xf32, #nn.batch<0>>) -> tensor<8x64x12xf32, #nn.batch<0>>
  %4 = nn.add %0, %1 {nn.keep} : tensor<8x64x4x3xf32, #nn.batch<0>>
  %5 = nn.reshape %4 {nn.ends_stage = array<i64: 1, 3>} : (tensor<8x64x4x3xf32, #nn.batch<0>>) -> tensor<8x64x12xf32, #nn.batch<0>>
  return %3, %5 : tensor<8x64x12xf32, #nn.batch<0>>, tensor<8x64x12xf32, #nn.batch<0>>
}

// Repeated along the second part of two split axes, and a constant; what has no batch axis gets none before it is repeated for the examples.
// CHECK-LABEL: func.func @two
// CHECK: nn.broadcast %arg1 [1, 3] : (tensor<2x5xf32>) -> tensor<3x2x4x5xf32>
// CHECK: nn.reshape {{.*}} : (tensor<3x2x4x5xf32>) -> tensor<6x20xf32>
// CHECK: nn.broadcast {{.*}} [1, 2] : (tensor<6x20xf32>) -> tensor<7x6x20xf32, #nn.batch<0>>
// CHECK: nn.add {{.*}} : tensor<7x6x20xf32, #nn.batch<0>>
// CHECK: nn.constant 2.0{{.*}} : tensor<7x6x20xf32, #nn.batch<0>>
// CHECK: nn.mul {{.*}} : tensor<7x6x20xf32, #nn.batch<0>>
func.func @two(%x: tensor<7x6x20xf32, #nn.batch<0>>, %w: tensor<2x5xf32>) -> tensor<7x3x2x4x5xf32, #nn.batch<0>> {
  %0 = nn.reshape %x : (tensor<7x6x20xf32, #nn.batch<0>>) -> tensor<7x3x2x4x5xf32, #nn.batch<0>>
  %1 = nn.broadcast %w [2, 4] : (tensor<2x5xf32>) -> tensor<7x3x2x4x5xf32, #nn.batch<0>>
  %2 = nn.add %0, %1 : tensor<7x3x2x4x5xf32, #nn.batch<0>>
  %3 = nn.constant 2.0 : tensor<7x3x2x4x5xf32, #nn.batch<0>>
  %4 = nn.mul %2, %3 : tensor<7x3x2x4x5xf32, #nn.batch<0>>
  return %4 : tensor<7x3x2x4x5xf32, #nn.batch<0>>
}

// Nothing is repeated along a part, or another value has the parts: all stays.
// CHECK-LABEL: func.func @stays
// CHECK: %[[R:.*]] = nn.reshape %arg0
// CHECK: %[[W:.*]] = nn.broadcast %arg1 [1, 2]
// CHECK: nn.add %[[R]], %[[W]] : tensor<8x4x3xf32, #nn.batch<0>>
// CHECK: nn.sub {{.*}}, %arg2 : tensor<8x4x3xf32, #nn.batch<0>>
func.func @stays(%y: tensor<8x12xf32, #nn.batch<0>>, %w: tensor<4x3xf32>, %z: tensor<8x4x3xf32, #nn.batch<0>>) -> tensor<8x4x3xf32, #nn.batch<0>> {
  %0 = nn.reshape %y : (tensor<8x12xf32, #nn.batch<0>>) -> tensor<8x4x3xf32, #nn.batch<0>>
  %1 = nn.broadcast %w [1, 2] : (tensor<4x3xf32>) -> tensor<8x4x3xf32, #nn.batch<0>>
  %2 = nn.add %0, %1 : tensor<8x4x3xf32, #nn.batch<0>>
  %3 = nn.sub %2, %z : tensor<8x4x3xf32, #nn.batch<0>>
  return %3 : tensor<8x4x3xf32, #nn.batch<0>>
}
