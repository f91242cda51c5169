// RUN: cinch-opt %s --decompose-ops | FileCheck %s

// The largest element and the sum of a row are found once for the loss and its gradient.
// CHECK-LABEL: func.func @loss_and_gradient
// CHECK: %[[MAX:.*]] = nn.reduce max %[[X:.*]] [1]
// CHECK: %[[EXP:.*]] = nn.exp
// CHECK: %[[SUM:.*]] = nn.reduce sum %[[EXP]] [1]
// CHECK-NOT: nn.reduce
// CHECK: nn.gather %[[X]] [0, -1]
// CHECK: %[[P:.*]] = nn.div %[[EXP]]
// CHECK: nn.compare eq
// CHECK-NOT: cross_entropy
func.func @loss_and_gradient(%x: tensor<4x8xf32, #nn.batch<0>>, %y: tensor<4xi32, #nn.batch<0>>, %dy: tensor<4xf32, #nn.batch<0>>)
    -> (tensor<4xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>) {
  %0 = nn.cross_entropy %x, %y axis 1 : (tensor<4x8xf32, #nn.batch<0>>, tensor<4xi32, #nn.batch<0>>) -> tensor<4xf32, #nn.batch<0>>
  %1 = nn.cross_entropy_grad %x, %y, %dy axis 1 : (tensor<4x8xf32, #nn.batch<0>>, tensor<4xi32, #nn.batch<0>>, tensor<4xf32, #nn.batch<0>>) -> tensor<4x8xf32, #nn.batch<0>>
  return %0, %1 : tensor<4xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>
}

// Chunks of 4096 in lanes, their sums as one chain, the shorter last chunk behind it, all in f64.
// CHECK-LABEL: func.func @norm
// CHECK: nn.slice %{{.*}} axis 0 from 0 to 8192
// CHECK: nn.reshape {{.*}} -> tensor<2x4096xf32>
// CHECK: nn.reduce sum %{{.*}} [1] : (tensor<2x4096xf64>) -> tensor<2xf64>
// CHECK: nn.reduce sum %{{.*}} [0] : (tensor<2x1xf64>) -> tensor<1xf64>
// CHECK: nn.slice %{{.*}} axis 0 from 8192 to 10000
// CHECK: nn.add
func.func @norm(%x: tensor<100x100xf32>) -> tensor<f64> {
  %0 = nn.sum_squares %x : tensor<100x100xf32>
  return %0 : tensor<f64>
}

// What was widened from bf16 is no copy in memory: rounding gives the narrow value back, and a few elements are widened alone.
// CHECK-LABEL: func.func @widened
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xbf16, #nn.batch<0>>
// CHECK: %[[FEW:.*]] = nn.gather %[[X]] [0, -1] {{.*}} -> tensor<4xbf16, #nn.batch<0>>
// CHECK: %[[WIDE:.*]] = nn.cast %[[FEW]] {{.*}} -> tensor<4xf32, #nn.batch<0>>
// CHECK: return %[[X]], %[[WIDE]]
func.func @widened(%x: tensor<4x8xbf16, #nn.batch<0>>, %y: tensor<4xi32, #nn.batch<0>>)
    -> (tensor<4x8xbf16, #nn.batch<0>>, tensor<4xf32, #nn.batch<0>>) {
  %0 = nn.cast %x : (tensor<4x8xbf16, #nn.batch<0>>) -> tensor<4x8xf32, #nn.batch<0>>
  %1 = nn.cast %0 : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xbf16, #nn.batch<0>>
  %2 = nn.gather %0 [0, -1] at(%y) [[0]] : (tensor<4x8xf32, #nn.batch<0>>, tensor<4xi32, #nn.batch<0>>) -> tensor<4xf32, #nn.batch<0>>
  return %1, %2 : tensor<4x8xbf16, #nn.batch<0>>, tensor<4xf32, #nn.batch<0>>
}

// What attention gives is rounded behind the moves that bring it into another order; axes are merged behind that.
// CHECK-LABEL: func.func @moved
// CHECK: %[[O:.*]], %{{.*}} = nn.attend
// CHECK: %[[T:.*]] = nn.transpose %[[O]] [0, 2, 1, 3] : {{.*}} -> tensor<2x6x3x4xf32, #nn.batch<0>>
// CHECK: %[[R:.*]] = nn.cast %[[T]] {{.*}} -> tensor<2x6x3x4xbf16, #nn.batch<0>>
// CHECK: nn.reshape %[[R]] {{.*}} -> tensor<2x6x12xbf16, #nn.batch<0>>
func.func @moved(%q: tensor<2x3x6x4xf32, #nn.batch<0>>) -> tensor<2x6x12xbf16, #nn.batch<0>> {
  %o, %l = nn.attend %q, %q, %q scale 5.000000e-01 : (tensor<2x3x6x4xf32, #nn.batch<0>>, tensor<2x3x6x4xf32, #nn.batch<0>>, tensor<2x3x6x4xf32, #nn.batch<0>>) -> (tensor<2x3x6x4xf32, #nn.batch<0>>, tensor<2x3x6xf32, #nn.batch<0>>)
  %0 = nn.cast %o : (tensor<2x3x6x4xf32, #nn.batch<0>>) -> tensor<2x3x6x4xbf16, #nn.batch<0>>
  %1 = nn.transpose %0 [0, 2, 1, 3] : (tensor<2x3x6x4xbf16, #nn.batch<0>>) -> tensor<2x6x3x4xbf16, #nn.batch<0>>
  %2 = nn.reshape %1 : (tensor<2x6x3x4xbf16, #nn.batch<0>>) -> tensor<2x6x12xbf16, #nn.batch<0>>
  return %2 : tensor<2x6x12xbf16, #nn.batch<0>>
}

// Counts, and what an evaluation sums over examples, are f64 until all examples are in the sum. What stays with an example is not, nor is the
// sum of a training step.
// CHECK-LABEL: func.func @evaluation
// CHECK-SAME: (%[[X:.*]]: tensor<4x8xf32, #nn.batch<0>>
// CHECK: %[[ROWS:.*]] = nn.reduce sum %[[X]] [1] : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4xf32, #nn.batch<0>>
// CHECK: %[[WIDE:.*]] = nn.cast %[[ROWS]] {{.*}} -> tensor<4xf64, #nn.batch<0>>
// CHECK: %[[SUM:.*]] = nn.reduce sum %[[WIDE]] [0] : (tensor<4xf64, #nn.batch<0>>) -> tensor<f64>
// CHECK: %[[LOSS:.*]] = nn.cast %[[SUM]] : (tensor<f64>) -> tensor<f32>
// CHECK: %[[LARGEST:.*]] = nn.reduce max %[[ROWS]] [0] : (tensor<4xf32, #nn.batch<0>>) -> tensor<f32>
// CHECK: return %[[LOSS]], %[[LARGEST]]
func.func @evaluation(%x: tensor<4x8xf32, #nn.batch<0>>) -> (tensor<f32>, tensor<f32>) {
  %0 = nn.reduce sum %x [1] : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4xf32, #nn.batch<0>>
  %1 = nn.reduce sum %0 [0] : (tensor<4xf32, #nn.batch<0>>) -> tensor<f32>
  %2 = nn.reduce max %0 [0] : (tensor<4xf32, #nn.batch<0>>) -> tensor<f32>
  return %1, %2 : tensor<f32>, tensor<f32>
}
// CHECK-LABEL: func.func @step
// CHECK: nn.reduce sum %{{.*}} [0] : (tensor<4xf32, #nn.batch<0>>) -> tensor<f32>
// CHECK: %[[FLAGS:.*]] = nn.cast %{{.*}} : (tensor<4xi1, #nn.batch<0>>) -> tensor<4xf64, #nn.batch<0>>
// CHECK: nn.reduce sum %[[FLAGS]] [0] : (tensor<4xf64, #nn.batch<0>>) -> tensor<f64>
func.func @step(%x: tensor<4xf32, #nn.batch<0>>, %y: tensor<4xi1, #nn.batch<0>>) -> (tensor<f32>, tensor<f32>) {
  %0 = nn.reduce sum %x [0] : (tensor<4xf32, #nn.batch<0>>) -> tensor<f32>
  %1 = nn.cast %y : (tensor<4xi1, #nn.batch<0>>) -> tensor<4xf32, #nn.batch<0>>
  %2 = nn.reduce sum %1 [0] : (tensor<4xf32, #nn.batch<0>>) -> tensor<f32>
  return %0, %2 : tensor<f32>, tensor<f32>
}
