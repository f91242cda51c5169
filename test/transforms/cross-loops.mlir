// RUN: cinch-opt %s --cross-loops | FileCheck %s

// What a layer adds to its product in front of a loop is added in each trip: the product is sliced, the bias is read whole.
// CHECK-LABEL: func.func @enter
// CHECK-SAME: %[[X:[^:]*]]: tensor<3x4x8xbf16, #nn.batch<1>>, %[[B:[^:]*]]: tensor<8xf32>, %[[H:[^:]*]]:
// CHECK: nn.scan trips 3 from(%[[H]]) slices(%[[X]]) with(%[[B]])
// CHECK: ^bb0(%[[C:.*]]: tensor<4x8xf32, #nn.batch<0>>, %[[P:.*]]: tensor<4x8xbf16, #nn.batch<0>>, %[[W:.*]]: tensor<8xf32>):
// CHECK: %[[S:.*]] = nn.cast %[[P]]
// CHECK: %[[R:.*]] = nn.broadcast %[[W]] [1] : {{.*}} -> tensor<4x8xf32, #nn.batch<0>>
// CHECK: %[[A:.*]] = nn.add %[[S]], %[[R]] : tensor<4x8xf32, #nn.batch<0>>
// CHECK: nn.add %[[C]], %[[A]]
func.func @enter(%x: tensor<3x4x8xbf16, #nn.batch<1>>, %b: tensor<8xf32>, %h: tensor<4x8xf32, #nn.batch<0>>) -> tensor<3x4x8xf32, #nn.batch<1>> {
  %0 = nn.broadcast %b [2] : (tensor<8xf32>) -> tensor<3x4x8xf32, #nn.batch<1>>
  %1 = nn.cast %x : (tensor<3x4x8xbf16, #nn.batch<1>>) -> tensor<3x4x8xf32, #nn.batch<1>>
  %2 = nn.add %1, %0 : tensor<3x4x8xf32, #nn.batch<1>>
  %last, %all = nn.scan trips 3 from(%h) slices(%2) : (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>) -> (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>) {
  ^bb0(%c: tensor<4x8xf32, #nn.batch<0>>, %p: tensor<4x8xf32, #nn.batch<0>>):
    %3 = nn.add %c, %p : tensor<4x8xf32, #nn.batch<0>>
    nn.yield %3, %3 : tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>
  }
  return %all : tensor<3x4x8xf32, #nn.batch<1>>
}

// A number of each trip, repeated, is sliced as it is.
// CHECK-LABEL: func.func @of_trips
// CHECK-SAME: %[[X:[^:]*]]: {{.*}}, %[[W:[^:]*]]: tensor<3xf32>, %[[H:[^:]*]]:
// CHECK: nn.scan trips 3 from(%[[H]]) slices(%[[W]], %[[X]])
// CHECK: ^bb0(%{{.*}}: tensor<4x8xf32, #nn.batch<0>>, %[[P:.*]]: tensor<f32>, %{{.*}}):
// CHECK: nn.broadcast %[[P]] [] : (tensor<f32>) -> tensor<4x8xf32, #nn.batch<0>>
func.func @of_trips(%x: tensor<3x4x8xbf16, #nn.batch<1>>, %w: tensor<3xf32>, %h: tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xf32, #nn.batch<0>> {
  %0 = nn.broadcast %w [0] : (tensor<3xf32>) -> tensor<3x4x8xf32, #nn.batch<1>>
  %1 = nn.cast %x : (tensor<3x4x8xbf16, #nn.batch<1>>) -> tensor<3x4x8xf32, #nn.batch<1>>
  %2 = nn.mul %1, %0 : tensor<3x4x8xf32, #nn.batch<1>>
  %last = nn.scan trips 3 from(%h) slices(%2) : (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>) -> tensor<4x8xf32, #nn.batch<0>> {
  ^bb0(%c: tensor<4x8xf32, #nn.batch<0>>, %p: tensor<4x8xf32, #nn.batch<0>>):
    %3 = nn.add %c, %p : tensor<4x8xf32, #nn.batch<0>>
    nn.yield %3 : tensor<4x8xf32, #nn.batch<0>>
  }
  return %last : tensor<4x8xf32, #nn.batch<0>>
}

// Two values would lie in memory instead of one; what is computed has another reader; a product of the body reads it.
// CHECK-LABEL: func.func @stays
// CHECK-COUNT-3: nn.add {{.*}} : tensor<3x4x4xf32, #nn.batch<1>>
// CHECK: slices(%{{.*}}, %{{.*}}, %{{.*}}) :
func.func @stays(%x: tensor<3x4x4xf32, #nn.batch<1>>, %y: tensor<3x4x4xf32, #nn.batch<1>>, %w: tensor<4x4xf32>, %h: tensor<4x4xf32, #nn.batch<0>>)
    -> (tensor<4x4xf32, #nn.batch<0>>, tensor<3x4x4xf32, #nn.batch<1>>) {
  %0 = nn.add %x, %y : tensor<3x4x4xf32, #nn.batch<1>>
  %1 = nn.add %x, %x : tensor<3x4x4xf32, #nn.batch<1>>
  %2 = nn.add %y, %y : tensor<3x4x4xf32, #nn.batch<1>>
  %last = nn.scan trips 3 from(%h) slices(%0, %1, %2) with(%w) : (tensor<4x4xf32, #nn.batch<0>>, tensor<3x4x4xf32, #nn.batch<1>>, tensor<3x4x4xf32, #nn.batch<1>>, tensor<3x4x4xf32, #nn.batch<1>>, tensor<4x4xf32>) -> tensor<4x4xf32, #nn.batch<0>> {
  ^bb0(%c: tensor<4x4xf32, #nn.batch<0>>, %p: tensor<4x4xf32, #nn.batch<0>>, %q: tensor<4x4xf32, #nn.batch<0>>, %r: tensor<4x4xf32, #nn.batch<0>>, %v: tensor<4x4xf32>):
    %3 = nn.contract %r [0, 2], %v [1, 2] : (tensor<4x4xf32, #nn.batch<0>>, tensor<4x4xf32>) -> tensor<4x4xf32, #nn.batch<0>>
    %4 = nn.add %c, %p : tensor<4x4xf32, #nn.batch<0>>
    %5 = nn.add %4, %q : tensor<4x4xf32, #nn.batch<0>>
    %6 = nn.add %5, %3 : tensor<4x4xf32, #nn.batch<0>>
    nn.yield %6 : tensor<4x4xf32, #nn.batch<0>>
  }
  return %last, %1 : tensor<4x4xf32, #nn.batch<0>>, tensor<3x4x4xf32, #nn.batch<1>>
}

// A stack that is only rounded is stacked as that. One that is read as f32, too, is not; its rounding is another stack that is there already.
// CHECK-LABEL: func.func @leave
// CHECK: %[[L:.*]]:4 = nn.scan {{.*}} -> (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xbf16, #nn.batch<1>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<3x4x8xbf16, #nn.batch<1>>)
// CHECK: return %[[L]]#1, %[[L]]#2, %[[L]]#3, %[[L]]#3
func.func @leave(%h: tensor<4x8xf32, #nn.batch<0>>)
    -> (tensor<3x4x8xbf16, #nn.batch<1>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<3x4x8xbf16, #nn.batch<1>>, tensor<3x4x8xbf16, #nn.batch<1>>) {
  %last, %all, %more, %narrow = nn.scan trips 3 from(%h) : (tensor<4x8xf32, #nn.batch<0>>) -> (tensor<4x8xf32, #nn.batch<0>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<3x4x8xbf16, #nn.batch<1>>) {
  ^bb0(%c: tensor<4x8xf32, #nn.batch<0>>):
    %0 = nn.exp %c : tensor<4x8xf32, #nn.batch<0>>
    %1 = nn.neg %c : tensor<4x8xf32, #nn.batch<0>>
    %2 = nn.cast %1 : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xbf16, #nn.batch<0>>
    nn.yield %0, %0, %1, %2 : tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xbf16, #nn.batch<0>>
  }
  %3 = nn.cast %all : (tensor<3x4x8xf32, #nn.batch<1>>) -> tensor<3x4x8xbf16, #nn.batch<1>>
  %4 = nn.cast %more : (tensor<3x4x8xf32, #nn.batch<1>>) -> tensor<3x4x8xbf16, #nn.batch<1>>
  return %3, %more, %4, %narrow : tensor<3x4x8xbf16, #nn.batch<1>>, tensor<3x4x8xf32, #nn.batch<1>>, tensor<3x4x8xbf16, #nn.batch<1>>, tensor<3x4x8xbf16, #nn.batch<1>>
}
