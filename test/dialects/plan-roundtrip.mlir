// RUN: cinch-opt %s --verify-roundtrip | FileCheck %s

// A kernel before memory assignment, one behind it, and the loop with its sum.
// CHECK-LABEL: func.func @step
// CHECK: %[[SUM:.*]] = plan.microbatches count 2 size 2 -> tensor<3xf32>
// CHECK: plan.kernel "double"
// CHECK: accumulates [true] reads [0] writes [64] scratch -1
// CHECK: plan.yield
// CHECK: plan.results ["loss"] %[[SUM]]
func.func @step(%x: tensor<2x3xf32, #nn.batch<0>>, %loss: tensor<f32>) {
  %0 = plan.microbatches count 2 size 2 -> tensor<3xf32> {
    %y = plan.kernel "double" (%x) : (tensor<2x3xf32, #nn.batch<0>>) -> tensor<2x3xf32, #nn.batch<0>> {
    ^bb0(%a: tensor<2x3xf32, #nn.batch<0>>):
      %d = nn.add %a, %a : tensor<2x3xf32, #nn.batch<0>>
      plan.return %d : tensor<2x3xf32, #nn.batch<0>>
    }
    %z = plan.kernel recompute (%y) : (tensor<2x3xf32, #nn.batch<0>>) -> tensor<3xf32>
        accumulates [true] reads [0] writes [64] scratch -1 {
    ^bb0(%a: tensor<2x3xf32, #nn.batch<0>>):
      %s = nn.reduce sum %a [0] : (tensor<2x3xf32, #nn.batch<0>>) -> tensor<3xf32>
      plan.return %s : tensor<3xf32>
    }
    plan.yield %z : tensor<3xf32>
  }
  plan.gate %loss, %loss : tensor<f32>, tensor<f32>
  plan.results ["loss"] %0 : tensor<3xf32>
  return
}

// A loop over blocks of rows: two positions of one example each time, labels from the second position on.
// CHECK-LABEL: func.func @rows
// CHECK: plan.row_blocks count 4 block 1 x 2 of 4(%{{.*}}, %{{.*}}) from [0, 1]
// CHECK: ^bb0(%{{.*}}: tensor<1x2x3xf32, #nn.batch<0>>, %{{.*}}: tensor<1x2xi32, #nn.batch<0>>)
// CHECK: plan.yield %{{.*}}, %{{.*}} : tensor<1x2xf32, #nn.batch<0>>, tensor<3xf32>
func.func @rows(%x: tensor<2x4x3xf32, #nn.batch<0>>, %l: tensor<2x5xi32, #nn.batch<0>>) {
  %0:2 = plan.row_blocks count 4 block 1 x 2 of 4 (%x, %l) from [0, 1]
      : (tensor<2x4x3xf32, #nn.batch<0>>, tensor<2x5xi32, #nn.batch<0>>) -> (tensor<2x4xf32, #nn.batch<0>>, tensor<3xf32>) {
  ^bb0(%a: tensor<1x2x3xf32, #nn.batch<0>>, %b: tensor<1x2xi32, #nn.batch<0>>):
    %s = nn.gather %a [0, 1, -1] at (%b) [[0, 1]] : (tensor<1x2x3xf32, #nn.batch<0>>, tensor<1x2xi32, #nn.batch<0>>) -> tensor<1x2xf32, #nn.batch<0>>
    %r = nn.reduce sum %a [0, 1] : (tensor<1x2x3xf32, #nn.batch<0>>) -> tensor<3xf32>
    plan.yield %s, %r : tensor<1x2xf32, #nn.batch<0>>, tensor<3xf32>
  }
  return
}

// A loop body in two parts, of which a worker of several runs one after the other on each micro-batch, and its messages.
// CHECK-LABEL: func.func @worker
// CHECK: plan.microbatches count 3 size 2 actions [0, 0, 0, 1, 1, 0, 0, 2, 1, 1, 1, 2] {
// CHECK: %[[X:.*]] = plan.receive "x" channel 0 : tensor<2x3xf32, #nn.batch<0>> writes [64]
// CHECK: plan.part
// CHECK: plan.send "y" %[[X]] : tensor<2x3xf32, #nn.batch<0>> channel 1 reads [64]
// CHECK: plan.microbatches count 0 size 2 lags [0, 4] {
func.func @worker() {
  plan.microbatches count 3 size 2 actions [0, 0, 0, 1, 1, 0, 0, 2, 1, 1, 1, 2] {
    %x = plan.receive "x" channel 0 : tensor<2x3xf32, #nn.batch<0>> writes [64]
    plan.part
    plan.send "y" %x : tensor<2x3xf32, #nn.batch<0>> channel 1 reads [64]
    plan.yield
  }
  plan.microbatches count 0 size 2 lags [0, 4] {
    %x = plan.receive "x" channel 0 : tensor<2x3xf32, #nn.batch<0>>
    plan.part
    plan.send "y" %x : tensor<2x3xf32, #nn.batch<0>> channel 1
    plan.yield
  }
  return
}

// A replica's loop over its examples: a sum that goes on from another worker's, and is handed on.
// CHECK-LABEL: func.func @replica
// CHECK: plan.microbatches count 3 size 2 first 6 -> tensor<3xf32> {
// CHECK: plan.receive "s" channel 0 begins 0 : tensor<3xf32>
// CHECK: plan.receive "s" channel 2 begins 0 adds : tensor<3xf32>
// CHECK: plan.send "s" %{{.*}} : tensor<3xf32> channel 1 last
func.func @replica(%x: tensor<2x3xf32, #nn.batch<0>>) {
  %sum = plan.microbatches count 3 size 2 first 6 -> tensor<3xf32> {
    %start = plan.receive "s" channel 0 begins 0 : tensor<3xf32>
    %s = plan.kernel(%x) : (tensor<2x3xf32, #nn.batch<0>>) -> tensor<3xf32> accumulates [true] {
    ^bb0(%a: tensor<2x3xf32, #nn.batch<0>>):
      %r = nn.reduce sum %a [0] : (tensor<2x3xf32, #nn.batch<0>>) -> tensor<3xf32>
      plan.return %r : tensor<3xf32>
    }
    %more = plan.receive "s" channel 2 begins 0 adds : tensor<3xf32>
    plan.send "s" %s : tensor<3xf32> channel 1 last
    plan.yield %s : tensor<3xf32>
  }
  return
}

// A state that lies on the host comes to the arena and goes back.
// CHECK-LABEL: func.func @offload
// CHECK: plan.decision = #plan.decision<{{.*}}host = 128, moves = [#plan.move<before = 0, what = "fetch", argument = 1, offset = 64>]>
// CHECK: %[[M:.*]] = plan.fetch %{{.*}} : tensor<16xf32> host 64 offset 128
// CHECK: plan.await %[[M]] : tensor<16xf32>
// CHECK: %[[S:.*]] = plan.store %{{.*}} : tensor<16xf32> host 64 offset 128
// CHECK: plan.await %[[S]] : tensor<16xf32>
func.func @offload(%x: tensor<16xf32>, %m: tensor<16xf32>) -> tensor<16xf32> attributes {
    plan.decision = #plan.decision<microbatch = 1, count = 1, batch = 1, arena = 192, row_positions = 1, arguments = [0, 64], loops = [], rows = [],
                                   runs = [], host = 128, moves = [#plan.move<before = 0, what = "fetch", argument = 1, offset = 64>]>} {
  %a = plan.fetch %m : tensor<16xf32> host 64 offset 128
  plan.await %a : tensor<16xf32>
  %b = plan.store %a : tensor<16xf32> host 64 offset 128
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}
