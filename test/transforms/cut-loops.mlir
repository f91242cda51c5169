// RUN: cinch-opt %s --pass-pipeline='builtin.module(func.func(cut-loops))' | FileCheck %s
// RUN: cinch-opt %s --pass-pipeline='builtin.module(func.func(cut-loops{levels=2}))' | FileCheck %s --check-prefix=TWO

// A backward loop that reads what the forward loop kept of 64 trips: runs of 8 trips, for which the least is kept.
// CHECK-LABEL: func.func @pair
// CHECK: %[[F:.*]]:2 = nn.scan trips 8 from(%arg0) slices(%arg1)
// CHECK-SAME: -> (tensor<4x8xf32, #nn.batch<0>>, tensor<8x4x8xf32, #nn.batch<1>>)
// CHECK-NEXT: ^bb0
// CHECK-NEXT: nn.scan trips 8 from
// CHECK: nn.scan trips 8 reverse from(%[[F]]#0) slices(%arg1, %arg2) before(%[[F]]#1) first(%arg0)
// CHECK-NEXT: ^bb0
// CHECK-NEXT: %[[AGAIN:.*]]:2 = nn.scan trips 8 from
// CHECK: nn.tanh
// CHECK: nn.scan trips 8 reverse from{{.*}}slices(%{{.*}}, %[[AGAIN]]#1)
// CHECK: tensor<64x4x8xf32, #nn.batch<1>>
// Runs of runs: three loops in the backward one.
// TWO-LABEL: func.func @pair
// TWO: reverse
// TWO: nn.scan trips
// TWO: nn.scan trips {{[0-9]+}} reverse
// TWO: nn.scan trips
// TWO: nn.scan trips {{[0-9]+}} reverse
func.func @pair(%h: tensor<4x8xf32, #nn.batch<0>>, %x: tensor<64x4x8xf32, #nn.batch<1>>, %g: tensor<64x4x8xf32, #nn.batch<1>>)
    -> (tensor<4x8xf32, #nn.batch<0>>, tensor<64x4x8xf32, #nn.batch<1>>) {
  %f:2 = nn.scan trips 64 from(%h) slices(%x)
      : (tensor<4x8xf32, #nn.batch<0>>, tensor<64x4x8xf32, #nn.batch<1>>) -> (tensor<4x8xf32, #nn.batch<0>>, tensor<64x4x8xf32, #nn.batch<1>>) {
  ^bb0(%a: tensor<4x8xf32, #nn.batch<0>>, %b: tensor<4x8xf32, #nn.batch<0>>):
    %s = nn.mul %a, %b : tensor<4x8xf32, #nn.batch<0>>
    %t = nn.tanh %s : tensor<4x8xf32, #nn.batch<0>>
    nn.yield %s, %t : tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>
  }
  %r:2 = nn.scan trips 64 reverse from(%f#0) slices(%g, %f#1)
      : (tensor<4x8xf32, #nn.batch<0>>, tensor<64x4x8xf32, #nn.batch<1>>, tensor<64x4x8xf32, #nn.batch<1>>)
        -> (tensor<4x8xf32, #nn.batch<0>>, tensor<64x4x8xf32, #nn.batch<1>>) {
  ^bb0(%a: tensor<4x8xf32, #nn.batch<0>>, %b: tensor<4x8xf32, #nn.batch<0>>, %c: tensor<4x8xf32, #nn.batch<0>>):
    %s = nn.add %a, %b : tensor<4x8xf32, #nn.batch<0>>
    %t = nn.mul %s, %c : tensor<4x8xf32, #nn.batch<0>>
    nn.yield %t, %s : tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>
  } {nn.backward}
  return %r#0, %r#1 : tensor<4x8xf32, #nn.batch<0>>, tensor<64x4x8xf32, #nn.batch<1>>
}
