// RUN: cinch-opt %s --verify-roundtrip | FileCheck %s

// A kernel before memory assignment, one behind it, and the loop with its sum.
// CHECK-LABEL: func.func @step
// CHECK: %[[SUM:.*]] = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<3xf32>)
// CHECK: plan.kernel "double"
// CHECK: accumulates [true] reads [0] writes [64] scratch -1
// CHECK: plan.yield
// CHECK: plan.results ["loss"] %[[SUM]]
func.func @step(%x: tensor<2x3xf32, #nn.batch<0>>, %loss: tensor<f32>) {
  %0 = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<3xf32>) {
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
// CHECK: plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 2, of = 4> sliced(%{{.*}}, %{{.*}} : {{.*}}, {{.*}}) from [0, 1]
// CHECK-SAME: stacked(tensor<2x4xf32, #nn.batch<0>>) accumulated(tensor<3xf32>)
// CHECK: ^bb0(%{{.*}}: tensor<1x2x3xf32, #nn.batch<0>>, %{{.*}}: tensor<1x2xi32, #nn.batch<0>>)
// CHECK: plan.yield %{{.*}}, %{{.*}} : tensor<1x2xf32, #nn.batch<0>>, tensor<3xf32>
func.func @rows(%x: tensor<2x4x3xf32, #nn.batch<0>>, %l: tensor<2x5xi32, #nn.batch<0>>) {
  %0:2 = plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 2, of = 4>
      sliced(%x, %l : tensor<2x4x3xf32, #nn.batch<0>>, tensor<2x5xi32, #nn.batch<0>>) from [0, 1]
      stacked(tensor<2x4xf32, #nn.batch<0>>) accumulated(tensor<3xf32>) {
  ^bb0(%a: tensor<1x2x3xf32, #nn.batch<0>>, %b: tensor<1x2xi32, #nn.batch<0>>):
    %s = nn.gather %a [0, 1, -1] at (%b) [[0, 1]] : (tensor<1x2x3xf32, #nn.batch<0>>, tensor<1x2xi32, #nn.batch<0>>) -> tensor<1x2xf32, #nn.batch<0>>
    %r = nn.reduce sum %a [0, 1] : (tensor<1x2x3xf32, #nn.batch<0>>) -> tensor<3xf32>
    plan.yield %s, %r : tensor<1x2xf32, #nn.batch<0>>, tensor<3xf32>
  }
  return
}

// Images in blocks of rows: of one there are two rows a position, of the other a copy with a row above and below.
// CHECK-LABEL: func.func @bands
// CHECK: ^bb0(%{{.*}}: tensor<1x4x3xf32, #nn.batch<0>>)
// CHECK: plan.band %{{.*}} first -1 step 2 : tensor<2x4x3xf32, #nn.batch<0>> -> tensor<1x4x3xf32, #nn.batch<0>> reads [0] writes [64]
func.func @bands(%x: tensor<2x8x3xf32, #nn.batch<0>>, %y: tensor<2x4x3xf32, #nn.batch<0>>) {
  %0 = plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 2, of = 4> sliced(%x : tensor<2x8x3xf32, #nn.batch<0>>)
      stacked(tensor<2x8x3xf32, #nn.batch<0>>) {
  ^bb0(%a: tensor<1x4x3xf32, #nn.batch<0>>):
    %b = plan.band %y first -1 step 2 : tensor<2x4x3xf32, #nn.batch<0>> -> tensor<1x4x3xf32, #nn.batch<0>> reads [0] writes [64]
    %s = nn.add %a, %b : tensor<1x4x3xf32, #nn.batch<0>>
    plan.yield %s : tensor<1x4x3xf32, #nn.batch<0>>
  }
  return
}

// A loop along an axis from its end: a carried value, a part without the axis and one of two in a row, the part before of a stack; what is
// whole, the body reads from outside.
// CHECK-LABEL: func.func @axis
// CHECK: plan.loop count 3 over #plan.axis<reverse = true> carried(%arg0 : tensor<4x8xf32, #nn.batch<0>>)
// CHECK-SAME: sliced(%arg1, %arg2 : tensor<3x4x8xf32, #nn.batch<1>>, tensor<6x4x8xf32, #nn.batch<1>>)
// CHECK-SAME: before(%arg1 : tensor<3x4x8xf32, #nn.batch<1>>) first(%arg0 : tensor<4x8xf32, #nn.batch<0>>)
// CHECK-SAME: last(tensor<4x8xf32, #nn.batch<0>>) stacked(tensor<3x4x8xf32, #nn.batch<1>>, tensor<6x4x8xf32, #nn.batch<1>>)
func.func @axis(%h: tensor<4x8xf32, #nn.batch<0>>, %x: tensor<3x4x8xf32, #nn.batch<1>>, %y: tensor<6x4x8xf32, #nn.batch<1>>, %w: tensor<8xf32>) {
  %0:3 = plan.loop count 3 over #plan.axis<reverse = true> carried(%h : tensor<4x8xf32, #nn.batch<0>>)
      sliced(%x, %y : tensor<3x4x8xf32, #nn.batch<1>>, tensor<6x4x8xf32, #nn.batch<1>>)
      before(%x : tensor<3x4x8xf32, #nn.batch<1>>) first(%h : tensor<4x8xf32, #nn.batch<0>>)
      last(tensor<4x8xf32, #nn.batch<0>>) stacked(tensor<3x4x8xf32, #nn.batch<1>>, tensor<6x4x8xf32, #nn.batch<1>>) {
  ^bb0(%a: tensor<4x8xf32, #nn.batch<0>>, %b: tensor<4x8xf32, #nn.batch<0>>, %c: tensor<2x4x8xf32, #nn.batch<1>>, %d: tensor<4x8xf32, #nn.batch<0>>):
    %k:3 = plan.kernel (%a, %b, %c, %d, %w)
        : (tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>, tensor<2x4x8xf32, #nn.batch<1>>, tensor<4x8xf32, #nn.batch<0>>, tensor<8xf32>)
        -> (tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>, tensor<2x4x8xf32, #nn.batch<1>>) {
    ^bb0(%i: tensor<4x8xf32, #nn.batch<0>>, %j: tensor<4x8xf32, #nn.batch<0>>, %m: tensor<2x4x8xf32, #nn.batch<1>>, %n: tensor<4x8xf32, #nn.batch<0>>, %v: tensor<8xf32>):
      %s = nn.add %i, %j : tensor<4x8xf32, #nn.batch<0>>
      %p = nn.mul %s, %n : tensor<4x8xf32, #nn.batch<0>>
      %q = nn.neg %m : tensor<2x4x8xf32, #nn.batch<1>>
      plan.return %s, %p, %q : tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>, tensor<2x4x8xf32, #nn.batch<1>>
    }
    plan.yield %k#0, %k#1, %k#2 : tensor<4x8xf32, #nn.batch<0>>, tensor<4x8xf32, #nn.batch<0>>, tensor<2x4x8xf32, #nn.batch<1>>
  }
  return
}

// A loop body in two parts, of which a worker of several runs one after the other on each micro-batch, and its messages.
// CHECK-LABEL: func.func @worker
// CHECK: plan.loop count 3 over #plan.examples<size = 2> actions <part 0 on 0 1, part 1 on 0, part 0 on 2, part 1 on 1 2> {
// CHECK: %[[X:.*]] = plan.receive "x" channel 0 : tensor<2x3xf32, #nn.batch<0>> writes [64]
// CHECK: plan.part
// CHECK: plan.send "y" %[[X]] : tensor<2x3xf32, #nn.batch<0>> channel 1 reads [64]
// CHECK: plan.loop count 0 over #plan.examples<size = 2> lags [0, 4] {
func.func @worker() {
  plan.loop count 3 over #plan.examples<size = 2> actions <part 0 on 0 1, part 1 on 0, part 0 on 2, part 1 on 1 2> {
    %x = plan.receive "x" channel 0 : tensor<2x3xf32, #nn.batch<0>> writes [64]
    plan.part
    plan.send "y" %x : tensor<2x3xf32, #nn.batch<0>> channel 1 reads [64]
    plan.yield
  }
  plan.loop count 0 over #plan.examples<size = 2> lags [0, 4] {
    %x = plan.receive "x" channel 0 : tensor<2x3xf32, #nn.batch<0>>
    plan.part
    plan.send "y" %x : tensor<2x3xf32, #nn.batch<0>> channel 1
    plan.yield
  }
  return
}

// A replica's loop over its examples: a sum that goes on from another worker's, and is handed on.
// CHECK-LABEL: func.func @replica
// CHECK: plan.loop count 3 over #plan.examples<size = 2, first = 6> accumulated(tensor<3xf32>) {
// CHECK: plan.receive "s" channel 0 begins 0 : tensor<3xf32>
// CHECK: plan.receive "s" channel 2 begins 0 adds : tensor<3xf32>
// CHECK: plan.send "s" %{{.*}} : tensor<3xf32> channel 1 last
func.func @replica(%x: tensor<2x3xf32, #nn.batch<0>>) {
  %sum = plan.loop count 3 over #plan.examples<size = 2, first = 6> accumulated(tensor<3xf32>) {
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
