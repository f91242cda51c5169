// What is made of parameters alone stands before the loop over the micro-batches, or in it where its bytes are wanted (PlanVariants.cpp).
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 microbatch=1},form-microbatches,rematerialize),verify-phase{phase=planned})" | FileCheck %s --check-prefix=ROOM
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 microbatch=1 arena-budget-bytes=72000},form-microbatches,rematerialize),verify-phase{phase=planned})" | FileCheck %s --check-prefix=TIGHT
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 microbatch=1 remat=none arena-budget-bytes=72000}))" 2>&1 | FileCheck %s --check-prefix=NAMED

// With room each runs once, before the loop.
// ROOM: plan.kernel "tanh"(%arg0)
// ROOM: plan.kernel "tanh"(%arg1)
// ROOM: plan.loop count 4
// ROOM-NOT: "tanh"

// Without, each stands right before its reader, in the same bytes.
// TIGHT-NOT: "tanh"
// TIGHT: plan.loop count 4
// TIGHT: %[[V:.*]] = plan.kernel "tanh"(%arg0)
// TIGHT: plan.kernel "contract"(%arg2, %[[V]])
// TIGHT: %[[U:.*]] = plan.kernel "tanh"(%arg1)
// TIGHT: plan.kernel "contract"(%{{.*}}, %[[U]])
// TIGHT-NOT: "tanh"

// A strategy that has a name leaves them where they are.
// NAMED: no plan fits into an arena of 72000 bytes; the smallest needs 86848
func.func @train(%a: tensor<64x64xf32> {nn.path = "a"}, %b: tensor<64x64xf32> {nn.path = "b"}, %x: tensor<4x64xf32, #nn.batch<0>> {nn.field = 0})
    -> (tensor<64x64xf32> {nn.path = "a"}, tensor<f32> {nn.name = "loss"}) {
  %v = nn.tanh %a : tensor<64x64xf32>
  %u = nn.tanh %b : tensor<64x64xf32>
  %y = nn.contract %x [0, 2], %v [1, 2] : (tensor<4x64xf32, #nn.batch<0>>, tensor<64x64xf32>) -> tensor<4x64xf32, #nn.batch<0>>
  %z = nn.contract %y [0, 2], %u [1, 2] : (tensor<4x64xf32, #nn.batch<0>>, tensor<64x64xf32>) -> tensor<4x64xf32, #nn.batch<0>>
  %r = nn.reduce sum %z [0, 1] : (tensor<4x64xf32, #nn.batch<0>>) -> tensor<f32>
  %new = nn.sub %a, %b {nn.backward} : tensor<64x64xf32>
  return %new, %r : tensor<64x64xf32>, tensor<f32>
}
