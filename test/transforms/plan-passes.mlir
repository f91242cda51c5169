// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(decide-plan{microbatch=2 remat=none threads=1},form-microbatches))" | FileCheck %s --check-prefix=LOOP
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(decide-plan{microbatch=2 remat=none threads=1},form-microbatches,rematerialize),verify-phase{phase=planned},func.func(form-kernels))" | FileCheck %s --check-prefix=KERNELS
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(decide-plan{microbatch=2 remat=none threads=1},form-microbatches,rematerialize,form-kernels,assign-memory),verify-phase{phase=scheduled})" | FileCheck %s --check-prefix=MEMORY
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(func.func(decide-plan{microbatch=3}))" 2>&1 | FileCheck %s --check-prefix=DIVIDE
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(func.func(decide-plan{arena-budget-bytes=64}))" 2>&1 | FileCheck %s --check-prefix=BUDGET
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(func.func(form-microbatches))" 2>&1 | FileCheck %s --check-prefix=ORDER

// The gradient of w goes on from micro-batch to micro-batch; its update stands behind the loop.
// LOOP: func.func @train(%[[W:.*]]: tensor<3x4xf32> {{.*}}, %[[X:.*]]: tensor<2x4xf32, #nn.batch<0>>
// LOOP: %[[SUMS:.*]]:2 = plan.microbatches count 4 size 2 -> tensor<f32>, tensor<3x4xf32>
// LOOP: nn.contract %[[X]] [0, 2], %[[W]] [1, 2]
// LOOP: plan.yield
// LOOP: nn.mul %[[SUMS]]#1
// LOOP: return {{.*}} : tensor<3x4xf32>

// One kernel for each product; the loss and its gradient row by row; the sums flagged as going on.
// KERNELS: plan.microbatches
// KERNELS: plan.kernel "net: contract"
// KERNELS: accumulates
// KERNELS: plan.gate
// KERNELS: plan.kernel

// MEMORY: func.func @train(%{{.*}}: tensor<3x4xf32> {{.*}}plan.offset = 0
// MEMORY-SAME: plan.arena =
// MEMORY: plan.kernel
// MEMORY-SAME: reads [
// MEMORY-SAME: writes [

// DIVIDE: expected a micro-batch that divides the batch of 8, got 3; nearest: 2 and 4
// BUDGET: no plan fits into an arena of 64 bytes; the smallest needs
// ORDER: run decide-plan first
func.func @train(%w: tensor<3x4xf32> {nn.path = "w"}, %x: tensor<8x4xf32, #nn.batch<0>> {nn.field = 0})
    -> (tensor<3x4xf32> {nn.path = "w"}, tensor<f32> {nn.name = "loss"}) {
  %y = nn.contract %x [0, 2], %w [1, 2] : (tensor<8x4xf32, #nn.batch<0>>, tensor<3x4xf32>) -> tensor<8x3xf32, #nn.batch<0>> loc("net"("net.cinch":3:1))
  %t = nn.tanh %y : tensor<8x3xf32, #nn.batch<0>> loc("net"("net.cinch":3:2))
  %r = nn.reduce sum %t [0, 1] : (tensor<8x3xf32, #nn.batch<0>>) -> tensor<f32> loc("net.cinch":4:1)
  %one = nn.constant 1.0 {nn.backward} : tensor<8x3xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %tt = nn.mul %t, %t {nn.backward} : tensor<8x3xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %d = nn.sub %one, %tt {nn.backward} : tensor<8x3xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %dw = nn.contract %d [2, 0], %x [2, 1] {nn.backward} : (tensor<8x3xf32, #nn.batch<0>>, tensor<8x4xf32, #nn.batch<0>>) -> tensor<3x4xf32> loc("net.cinch":4:1)
  %lr = nn.constant 0.1 : tensor<3x4xf32> loc("net.cinch":5:1)
  %step = nn.mul %dw, %lr {nn.backward} : tensor<3x4xf32> loc("net.cinch":5:1)
  %new = nn.sub %w, %step {nn.backward} : tensor<3x4xf32> loc("net.cinch":5:1)
  return %new, %r : tensor<3x4xf32>, tensor<f32>
}
