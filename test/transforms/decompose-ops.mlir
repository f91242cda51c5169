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
