// RUN: cinch-opt %s --sink-groups | FileCheck %s

// Scores of the examples with the rows of their group are one product a group; nothing of the size 3 x 3 x 8 is made.
// CHECK-LABEL: func.func @scores
// CHECK-SAME: %[[Q:[^:]*]]: {{.*}}, %[[K:[^:]*]]:
// CHECK-DAG: %[[ROWS:.*]] = nn.reshape %[[K]] : {{.*}} -> tensor<4x3x8xf32, #nn.batch<0, group = 3>>
// CHECK-DAG: %[[EXAMPLES:.*]] = nn.reshape %[[Q]] : {{.*}} -> tensor<4x3x8xf32, #nn.batch<0, group = 3>>
// CHECK: %[[S:.*]] = nn.contract %[[EXAMPLES]] [0, 1, 3], %[[ROWS]] [0, 2, 3]
// CHECK-NEXT: %[[BACK:.*]] = nn.reshape %[[S]] : (tensor<4x3x3xf32, #nn.batch<0, group = 3>>) -> tensor<12x3xf32, #nn.batch<0>>
// CHECK-NEXT: return %[[BACK]]
func.func @scores(%q: tensor<12x8xf32, #nn.batch<0>>, %k: tensor<12x8xf32, #nn.batch<0>>) -> tensor<12x3xf32, #nn.batch<0>> {
  %0 = nn.reshape %k : (tensor<12x8xf32, #nn.batch<0>>) -> tensor<4x3x8xf32, #nn.batch<0, group = 3>>
  %1 = nn.broadcast %0 [0, 2, 3] : (tensor<4x3x8xf32, #nn.batch<0, group = 3>>) -> tensor<4x3x3x8xf32, #nn.batch<0, group = 3>>
  %2 = nn.reshape %1 : (tensor<4x3x3x8xf32, #nn.batch<0, group = 3>>) -> tensor<12x3x8xf32, #nn.batch<0>>
  %3 = nn.broadcast %q [0, 2] : (tensor<12x8xf32, #nn.batch<0>>) -> tensor<12x3x8xf32, #nn.batch<0>>
  %4 = nn.mul %3, %2 : tensor<12x3x8xf32, #nn.batch<0>>
  %5 = nn.reduce sum %4 [2] : (tensor<12x3x8xf32, #nn.batch<0>>) -> tensor<12x3xf32, #nn.batch<0>>
  return %5 : tensor<12x3xf32, #nn.batch<0>>
}

// A product with an axis of its own keeps it; the rows are read where they lie.
// CHECK-LABEL: func.func @product
// CHECK: %[[ROWS:.*]] = nn.reshape %arg1
// CHECK: %[[EXAMPLES:.*]] = nn.reshape %arg0 : {{.*}} -> tensor<4x3x5x8xf32, #nn.batch<0, group = 3>>
// CHECK: nn.contract %[[EXAMPLES]] [0, 1, 2, 4], %[[ROWS]] [0, 3, 4] : {{.*}} -> tensor<4x3x5x3xf32, #nn.batch<0, group = 3>>
func.func @product(%q: tensor<12x5x8xf32, #nn.batch<0>>, %k: tensor<12x8xf32, #nn.batch<0>>) -> tensor<12x5x3xf32, #nn.batch<0>> {
  %0 = nn.reshape %k : (tensor<12x8xf32, #nn.batch<0>>) -> tensor<4x3x8xf32, #nn.batch<0, group = 3>>
  %1 = nn.broadcast %0 [0, 2, 3] : (tensor<4x3x8xf32, #nn.batch<0, group = 3>>) -> tensor<4x3x3x8xf32, #nn.batch<0, group = 3>>
  %2 = nn.reshape %1 : (tensor<4x3x3x8xf32, #nn.batch<0, group = 3>>) -> tensor<12x3x8xf32, #nn.batch<0>>
  %3 = nn.contract %q [0, 1, 3], %2 [0, 2, 3] : (tensor<12x5x8xf32, #nn.batch<0>>, tensor<12x3x8xf32, #nn.batch<0>>) -> tensor<12x5x3xf32, #nn.batch<0>>
  return %3 : tensor<12x5x3xf32, #nn.batch<0>>
}

// Element-wise work with a parameter is done on the groups, up to the sum; a sum over the batch is of examples.
// CHECK-LABEL: func.func @distances
// CHECK: nn.sub {{.*}} : tensor<4x3x3x8xf32, #nn.batch<0, group = 3>>
// CHECK: nn.broadcast %arg2 [3] : {{.*}} -> tensor<4x3x3x8xf32, #nn.batch<0, group = 3>>
// CHECK: %[[SUM:.*]] = nn.reduce sum {{.*}} [3] : {{.*}} -> tensor<4x3x3xf32, #nn.batch<0, group = 3>>
// CHECK: %[[BACK:.*]] = nn.reshape %[[SUM]] : {{.*}} -> tensor<12x3xf32, #nn.batch<0>>
// CHECK: nn.reduce sum %[[BACK]] [0, 1]
func.func @distances(%q: tensor<12x8xf32, #nn.batch<0>>, %k: tensor<12x8xf32, #nn.batch<0>>, %w: tensor<8xf32>) -> tensor<f32> {
  %0 = nn.reshape %k : (tensor<12x8xf32, #nn.batch<0>>) -> tensor<4x3x8xf32, #nn.batch<0, group = 3>>
  %1 = nn.broadcast %0 [0, 2, 3] : (tensor<4x3x8xf32, #nn.batch<0, group = 3>>) -> tensor<4x3x3x8xf32, #nn.batch<0, group = 3>>
  %2 = nn.reshape %1 : (tensor<4x3x3x8xf32, #nn.batch<0, group = 3>>) -> tensor<12x3x8xf32, #nn.batch<0>>
  %3 = nn.broadcast %q [0, 2] : (tensor<12x8xf32, #nn.batch<0>>) -> tensor<12x3x8xf32, #nn.batch<0>>
  %4 = nn.sub %3, %2 : tensor<12x3x8xf32, #nn.batch<0>>
  %5 = nn.broadcast %w [2] : (tensor<8xf32>) -> tensor<12x3x8xf32, #nn.batch<0>>
  %6 = nn.mul %4, %5 : tensor<12x3x8xf32, #nn.batch<0>>
  %7 = nn.abs %6 : tensor<12x3x8xf32, #nn.batch<0>>
  %8 = nn.reduce sum %7 [2] : (tensor<12x3x8xf32, #nn.batch<0>>) -> tensor<12x3xf32, #nn.batch<0>>
  %9 = nn.reduce sum %8 [0, 1] : (tensor<12x3xf32, #nn.batch<0>>) -> tensor<f32>
  return %9 : tensor<f32>
}
