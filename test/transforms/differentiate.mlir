// RUN: cinch-opt %s --split-input-file --verify-phase=phase=parsed --differentiate --verify-phase=phase=differentiated | FileCheck %s

// A layer and its loss: 1/n is applied at the loss's gradient; the weight's gradient is one contraction over the batch, the bias's one
// sum; dropout's mask is the same value in both sweeps; clipping, AdamW and the learning rate follow.
// CHECK-LABEL: func.func @train
// CHECK-SAME: %[[W:arg0]]: tensor<4x8xf32>
// CHECK-SAME: %[[X:arg2]]: tensor<16x8xf32, #nn.batch<0>>
// CHECK-SAME: {nn.slot = "w.m"}
// CHECK-SAME: -> (tensor<4x8xf32> {nn.path = "w"}, tensor<4xf32> {nn.path = "b"}, tensor<4x8xf32> {nn.slot = "w.m"}
// CHECK-SAME: tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "norm"}, tensor<f64> {nn.name = "lr"})
// CHECK: %[[MASK:.*]] = nn.random bool
// CHECK: %[[LOSS:.*]] = nn.div
// CHECK: %[[SEED:.*]] = nn.constant 6.250000e-02 {nn.backward} : tensor<16xf32, #nn.batch<0>>
// CHECK: %[[DLOGITS:.*]] = nn.cross_entropy_grad %{{.*}}, %arg3, %[[SEED]]
// CHECK: %[[DY:.*]] = nn.where %[[MASK]], %[[DLOGITS]]
// CHECK: %[[DB:.*]] = nn.reduce sum %[[DY]] [0]
// CHECK: %[[DW:.*]] = nn.contract %[[X]] [2, 1], %[[DY]] [2, 0]
// CHECK: %[[SUM_W:.*]] = nn.sum_squares %[[DW]]
// CHECK: %[[SUM_B:.*]] = nn.sum_squares %[[DB]]
// CHECK: %[[SUM:.*]] = nn.add %[[SUM_W]], %[[SUM_B]]
// CHECK: %[[NORM:.*]] = nn.sqrt %[[SUM]]
// CHECK: %[[FACTOR:.*]] = nn.clip_factor %[[NORM]] limit 1.000000e+00
// CHECK: %[[LR:.*]] = nn.learning_rate 1.000000e-01 <cosine
// CHECK: nn.update %[[W]], %[[DW]] lr %[[LR]] factor %[[FACTOR]] state %arg4, %arg5 by <adamw, {{.*}}decay = 1.000000e-02
// The bias does not decay.
// CHECK: nn.update %arg1, %[[DB]] {{.*}}decay = 0.000000e+00
// CHECK: return
func.func @step(%w: tensor<4x8xf32> {nn.path = "w", nn.decays}, %b: tensor<4xf32> {nn.path = "b"},
                %x: tensor<16x8xf32, #nn.batch<0>> {nn.field = 0}, %y: tensor<16xi32, #nn.batch<0>> {nn.field = 1}) -> tensor<f32>
    attributes {nn.training = #nn.training<optimizers = [#nn.optimizer<adamw, lr = 0.1, decay = 0.01>],
      schedule = #nn.schedule<cosine, warmup = 10.0, end = 0.1, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>, steps = 100, clip_norm = 1.0, clip_value = 0.0>} {
  %0 = nn.contract %x [0, 2], %w [1, 2] : (tensor<16x8xf32, #nn.batch<0>>, tensor<4x8xf32>) -> tensor<16x4xf32, #nn.batch<0>>
  %1 = nn.broadcast %b [1] : (tensor<4xf32>) -> tensor<16x4xf32, #nn.batch<0>>
  %2 = nn.add %0, %1 : tensor<16x4xf32, #nn.batch<0>>
  %m = nn.random bool key 77 of 0.9 : tensor<16x4xi1, #nn.batch<0>>
  %z = nn.constant 0.0 : tensor<16x4xf32, #nn.batch<0>>
  %d = nn.where %m, %2, %z : (tensor<16x4xi1, #nn.batch<0>>, tensor<16x4xf32, #nn.batch<0>>, tensor<16x4xf32, #nn.batch<0>>) -> tensor<16x4xf32, #nn.batch<0>>
  %3 = nn.cross_entropy %d, %y axis 1 : (tensor<16x4xf32, #nn.batch<0>>, tensor<16xi32, #nn.batch<0>>) -> tensor<16xf32, #nn.batch<0>>
  %4 = nn.reduce sum %3 [0] : (tensor<16xf32, #nn.batch<0>>) -> tensor<f32>
  %n = nn.constant 16.0 : tensor<f32>
  %5 = nn.div %4, %n : tensor<f32>
  return %5 : tensor<f32>
}

// -----
// A tied weight: one accumulator a use (a scatter and a contraction over the batch), added in the order of the uses.
// CHECK-LABEL: func.func @train
// CHECK: %[[SECOND:.*]] = nn.contract %{{.*}} [2, 1], %{{.*}} [2, 0]
// CHECK: %[[FIRST:.*]] = nn.scatter_add
// CHECK: %[[GRAD:.*]] = nn.add %[[FIRST]], %[[SECOND]] {nn.backward} : tensor<5x4xf32>
// CHECK: nn.update %arg0, %[[GRAD]]
func.func @step(%w: tensor<5x4xf32> {nn.path = "w"}, %ids: tensor<3xi32, #nn.batch<0>> {nn.field = 0}) -> tensor<f32>
    attributes {nn.training = #nn.training<optimizers = [#nn.optimizer<sgd, lr = 0.1>],
      schedule = #nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>, steps = 100, clip_norm = 0.0, clip_value = 0.0>} {
  %e = nn.gather %w [-1, 1] at (%ids) [[0]] : (tensor<5x4xf32>, tensor<3xi32, #nn.batch<0>>) -> tensor<3x4xf32, #nn.batch<0>>
  %h = nn.tanh %e : tensor<3x4xf32, #nn.batch<0>>
  %l = nn.contract %h [0, 2], %w [1, 2] : (tensor<3x4xf32, #nn.batch<0>>, tensor<5x4xf32>) -> tensor<3x5xf32, #nn.batch<0>>
  %s = nn.reduce sum %l [0, 1] : (tensor<3x5xf32, #nn.batch<0>>) -> tensor<f32>
  return %s : tensor<f32>
}

// -----
// A batch-free value used by work on examples: the examples are summed by one op each use, tanh's derivative comes once behind.
// A frozen parameter and one behind stop_gradient have no update, and no work is done for them.
// CHECK-LABEL: func.func @train
// CHECK-SAME: -> (tensor<4xf32> {nn.path = "p"}, tensor<f32> {nn.name = "loss"}
// CHECK: %[[T:.*]] = nn.tanh %arg0
// CHECK: %[[USE2:.*]] = nn.reduce sum %{{.*}} [0] {nn.backward} : (tensor<3x4xf32, #nn.batch<0>>) -> tensor<4xf32>
// CHECK: %[[USE1:.*]] = nn.reduce sum %{{.*}} [0] {nn.backward} : (tensor<3x4xf32, #nn.batch<0>>) -> tensor<4xf32>
// CHECK: %[[SUM:.*]] = nn.add %[[USE1]], %[[USE2]]
// CHECK: nn.mul %[[T]], %[[T]] {nn.backward}
// CHECK-NOT: nn.reduce
// CHECK: nn.update
// CHECK-NOT: nn.update
// CHECK: return
func.func @step(%p: tensor<4xf32> {nn.path = "p"}, %frozen: tensor<4xf32> {nn.path = "frozen", nn.frozen},
                %stopped: tensor<4xf32> {nn.path = "stopped"}, %x: tensor<3x4xf32, #nn.batch<0>> {nn.field = 0}) -> tensor<f32>
    attributes {nn.training = #nn.training<optimizers = [#nn.optimizer<sgd, lr = 0.1>],
      schedule = #nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>, steps = 100, clip_norm = 0.0, clip_value = 0.0>} {
  %t = nn.tanh %p : tensor<4xf32>
  %b1 = nn.broadcast %t [1] : (tensor<4xf32>) -> tensor<3x4xf32, #nn.batch<0>>
  %m1 = nn.mul %x, %b1 : tensor<3x4xf32, #nn.batch<0>>
  %b2 = nn.broadcast %t [1] : (tensor<4xf32>) -> tensor<3x4xf32, #nn.batch<0>>
  %m2 = nn.mul %m1, %b2 : tensor<3x4xf32, #nn.batch<0>>
  %fb = nn.broadcast %frozen [1] : (tensor<4xf32>) -> tensor<3x4xf32, #nn.batch<0>>
  %m3 = nn.mul %m2, %fb : tensor<3x4xf32, #nn.batch<0>>
  %stop = nn.stop_gradient %stopped : tensor<4xf32>
  %sb = nn.broadcast %stop [1] : (tensor<4xf32>) -> tensor<3x4xf32, #nn.batch<0>>
  %m4 = nn.mul %m3, %sb : tensor<3x4xf32, #nn.batch<0>>
  %s = nn.reduce sum %m4 [0, 1] : (tensor<3x4xf32, #nn.batch<0>>) -> tensor<f32>
  return %s : tensor<f32>
}

// -----
// Slices that cover an axis: the gradient is their concatenation, in the order of the axis.
// CHECK-LABEL: func.func @train
// CHECK-NOT: nn.pad
// CHECK: %[[E:.*]] = nn.exp
// CHECK: %[[DA:.*]] = nn.mul %{{.*}} {nn.backward} : tensor<2xf32>
// CHECK: nn.concat %[[DA]], %[[E]] axis 0
func.func @step(%p: tensor<4xf32> {nn.path = "p"}) -> tensor<f32>
    attributes {nn.training = #nn.training<optimizers = [#nn.optimizer<sgd, lr = 0.1>],
      schedule = #nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>, steps = 100, clip_norm = 0.0, clip_value = 0.0>} {
  %a = nn.slice %p axis 0 from 0 to 2 : (tensor<4xf32>) -> tensor<2xf32>
  %b = nn.slice %p axis 0 from 2 to 4 : (tensor<4xf32>) -> tensor<2xf32>
  %e = nn.exp %a : tensor<2xf32>
  %m = nn.mul %e, %b : tensor<2xf32>
  %s = nn.reduce sum %m [0] : (tensor<2xf32>) -> tensor<f32>
  return %s : tensor<f32>
}

// -----
// The new value of a state is handed on as it is; the average of a parameter follows its update.
// CHECK-LABEL: func.func @train
// CHECK-SAME: -> (tensor<4xf32> {nn.path = "w"}, tensor<f32> {nn.path = "seen"}, tensor<4xf32> {nn.path = "w.ema"}, tensor<f32> {nn.name = "loss"}
// CHECK: %[[SEEN:.*]] = nn.new_state "seen"
// CHECK: %[[W:.*]] = nn.update %arg0
// CHECK: %[[OLD:.*]] = nn.mul %arg2, %{{.*}}
// CHECK: %[[NEW:.*]] = nn.mul %[[W]], %{{.*}}
// CHECK: %[[E:.*]] = nn.add %[[OLD]], %[[NEW]]
// CHECK: return %[[W]], %[[SEEN]], %[[E]]
func.func @step(%w: tensor<4xf32> {nn.path = "w"}, %n: tensor<f32> {nn.path = "seen", nn.state},
                %e: tensor<4xf32> {nn.path = "w.ema", nn.state, nn.average = {of = "w", decay = 0.9}},
                %x: tensor<3x4xf32, #nn.batch<0>> {nn.field = 0}) -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.path = "seen"})
    attributes {nn.training = #nn.training<optimizers = [#nn.optimizer<sgd, lr = 0.1>],
      schedule = #nn.schedule<constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>, steps = 100, clip_norm = 0.0, clip_value = 0.0>} {
  %b = nn.broadcast %w [1] : (tensor<4xf32>) -> tensor<3x4xf32, #nn.batch<0>>
  %m = nn.mul %b, %x : tensor<3x4xf32, #nn.batch<0>>
  %s = nn.reduce sum %m [0, 1] : (tensor<3x4xf32, #nn.batch<0>>) -> tensor<f32>
  %o = nn.constant 1.0 : tensor<f32>
  %a = nn.add %n, %o : tensor<f32>
  %t = nn.new_state "seen" %a : tensor<f32>
  return %s, %t : tensor<f32>, tensor<f32>
}

// -----
// In bf16: what each reader of %h contributes is rounded, and so is the sum of two; gradients of parameters are sums in f32.
// CHECK-LABEL: func.func @train
// CHECK: %[[H:.*]] = nn.cast %{{.*}} : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xbf16, #nn.batch<0>>
// CHECK: %[[FIRST:.*]] = nn.cast %{{.*}} : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xbf16, #nn.batch<0>>
// CHECK: %[[SECOND:.*]] = nn.cast %{{.*}} : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xbf16, #nn.batch<0>>
// CHECK: %[[A:.*]] = nn.cast %{{.*}} : (tensor<4x8xbf16, #nn.batch<0>>) -> tensor<4x8xf32
// CHECK: %[[B:.*]] = nn.cast %{{.*}} : (tensor<4x8xbf16, #nn.batch<0>>) -> tensor<4x8xf32
// CHECK: %[[SUM:.*]] = nn.add %[[B]], %[[A]]
// CHECK: %[[D:.*]] = nn.cast %[[SUM]] {nn.backward} : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xbf16, #nn.batch<0>>
// CHECK: nn.contract %{{.*}} : (tensor<4x8xbf16, #nn.batch<0>>, tensor<4x8xbf16, #nn.batch<0>>) -> tensor<8x8xf32>
func.func @step(%w: tensor<8x8xf32> {nn.path = "w", nn.init = #nn.init<constant, 1.0>, nn.optimizer = 0 : i64},
                %x: tensor<4x8xbf16, #nn.batch<0>> {nn.field = 0 : i64}) -> tensor<f32>
    attributes {nn.training = #nn.training<optimizers = [<sgd, lr = 1.0e-01, momentum = 0.0, nesterov = false, decay = 0.0>], schedule = <constant, warmup = 0.0, end = 0.0, power = 1.0, factor = 1.0, every = 0.0, decay = 0.0>, steps = 0, clip_norm = 0.0, clip_value = 0.0>} {
  %p = nn.contract %x [0, 2], %w [1, 2] : (tensor<4x8xbf16, #nn.batch<0>>, tensor<8x8xf32>) -> tensor<4x8xf32, #nn.batch<0>> loc("m.cinch":1:1)
  %h = nn.cast %p : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<4x8xbf16, #nn.batch<0>> loc("m.cinch":1:1)
  %a = nn.cast %h : (tensor<4x8xbf16, #nn.batch<0>>) -> tensor<4x8xf32, #nn.batch<0>> loc("m.cinch":1:1)
  %b = nn.cast %h : (tensor<4x8xbf16, #nn.batch<0>>) -> tensor<4x8xf32, #nn.batch<0>> loc("m.cinch":1:1)
  %t = nn.tanh %b : tensor<4x8xf32, #nn.batch<0>> loc("m.cinch":1:1)
  %s = nn.mul %a, %t : tensor<4x8xf32, #nn.batch<0>> loc("m.cinch":1:1)
  %loss = nn.reduce sum %s [0, 1] : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<f32> loc("m.cinch":1:1)
  return %loss : tensor<f32> loc("m.cinch":1:1)
} loc("m.cinch":1:1)
