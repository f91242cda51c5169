// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels))" | FileCheck %s --check-prefix=FORMED
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1}))" > %t.decided
// RUN: FileCheck %s --check-prefix=DECIDED < %t.decided
// RUN: cinch-opt %t.decided | cmp - %t.decided
// RUN: cinch-opt %t.decided --pass-pipeline="builtin.module(func.func(form-microbatches))" | FileCheck %s --check-prefix=LOOP
// RUN: cinch-opt %t.decided --pass-pipeline="builtin.module(func.func(form-microbatches,rematerialize),verify-phase{phase=planned})"
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=all threads=1},form-microbatches,rematerialize),verify-phase{phase=planned})" | FileCheck %s --check-prefix=AGAIN
// RUN: cinch-opt %t.decided --pass-pipeline="builtin.module(func.func(form-microbatches,rematerialize,assign-memory),verify-phase{phase=scheduled})" | FileCheck %s --check-prefix=MEMORY
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(func.func(form-kernels,decide-plan{microbatch=3}))" 2>&1 | FileCheck %s --check-prefix=DIVIDE
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(func.func(form-kernels,decide-plan{arena-budget-bytes=64}))" 2>&1 | FileCheck %s --check-prefix=BUDGET
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(func.func(form-microbatches))" 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(func.func(decide-plan))" 2>&1 | FileCheck %s --check-prefix=FIRST

// Ops are grouped on the whole batch: one kernel for each product, the loss and its gradient row by row.
// FORMED: func.func @train(%[[W:.*]]: tensor<3x4xf32> {{.*}}, %[[X:.*]]: tensor<8x4xf32, #nn.batch<0>>
// FORMED: %[[SUMS:.*]]:2 = plan.microbatches count 1 size 8 -> tensor<f32>, tensor<3x4xf32>
// FORMED: plan.kernel "net: contract"(%[[X]], %[[W]])
// FORMED-NEXT: ^bb0
// FORMED-NEXT: nn.contract
// FORMED-NEXT: plan.return
// FORMED: plan.kernel "reduce"
// FORMED-SAME: domain 1 accumulates [true]
// FORMED: plan.yield
// FORMED: plan.gate %[[SUMS]]#0
// FORMED: plan.kernel "sub (gradient)"(%[[SUMS]]#1, %[[W]])
// FORMED: plan.results ["loss"] %[[SUMS]]#0
// FORMED: return {{.*}} : tensor<3x4xf32>

// A decision names kernels, and reads back.
// DECIDED: #plan.decision<microbatch = 2, count = 4, batch = 8,
// DECIDED-SAME: #plan.run<kernel = 0, recompute = false, reads = [64, 0], writes = [256]
// DECIDED: plan.microbatches count 1 size 8

// The gradient of w goes on from micro-batch to micro-batch; its update stands behind the loop.
// LOOP: func.func @train(%[[W:.*]]: tensor<3x4xf32> {{.*}}, %[[X:.*]]: tensor<2x4xf32, #nn.batch<0>>
// LOOP: %[[SUMS:.*]]:2 = plan.microbatches count 4 size 2 -> tensor<f32>, tensor<3x4xf32>
// LOOP: plan.kernel "net: contract"(%[[X]], %[[W]]) : (tensor<2x4xf32, #nn.batch<0>>, tensor<3x4xf32>) -> tensor<2x3xf32, #nn.batch<0>>
// LOOP: plan.yield
// LOOP: plan.kernel {{.*}}(%[[SUMS]]#1, %[[W]])

// Everything recomputed that can be: the product runs again before the gradient reads it.
// AGAIN: plan.kernel "net: contract"(
// AGAIN: plan.kernel "net: contract" recompute

// MEMORY: func.func @train(%{{.*}}: tensor<3x4xf32> {{.*}}plan.offset = 0
// MEMORY-SAME: plan.arena =
// MEMORY: plan.kernel
// MEMORY-SAME: reads [
// MEMORY-SAME: writes [

// DIVIDE: expected a micro-batch that divides the batch of 8, got 3; nearest: 2 and 4
// BUDGET: no plan fits into an arena of 64 bytes; the smallest needs
// ORDER: run decide-plan first
// FIRST: run form-kernels first
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
