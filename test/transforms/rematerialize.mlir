// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=all threads=1},form-microbatches,rematerialize),verify-phase{phase=planned})" | FileCheck %s
// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1},form-microbatches,rematerialize),verify-phase{phase=planned})" | FileCheck %s --check-prefix=NONE
// RUN: not cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 threads=1},rematerialize))" 2>&1 | FileCheck %s --check-prefix=ORDER

// Everything recomputed that can be: the product runs again right before the gradient reads it, from the same operands; the sum reads the
// first copy.
// CHECK: %[[FIRST:.*]] = plan.kernel "net: contract"(%[[X:.*]], %[[W:.*]]) :
// CHECK: plan.run = 0
// CHECK: plan.kernel "reduce"(%[[FIRST]])
// CHECK: %[[SECOND:.*]] = plan.kernel "net: contract" recompute(%[[X]], %[[W]]) :
// CHECK-NEXT: ^bb0
// CHECK-NEXT: nn.contract
// CHECK: plan.kernel "sub (gradient)"(%[[SECOND]])
// A sum runs once.
// CHECK: plan.kernel "contract (gradient)"
// CHECK-NOT: recompute(

// NONE-NOT: recompute(
// NONE: plan.run = 5

// ORDER: has micro-batches of 8 examples, the decision of 2: run form-microbatches first
