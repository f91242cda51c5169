// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1},form-microbatches,rematerialize,assign-memory),verify-phase{phase=scheduled})" | FileCheck %s
// RUN: not cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 threads=1},form-microbatches,assign-memory))" 2>&1 | FileCheck %s --check-prefix=RUNS
// RUN: not cinch-opt %S/form-row-blocks.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1 row-blocks=4},form-microbatches,rematerialize,assign-memory))" 2>&1 | FileCheck %s --check-prefix=ROWS

// Parameters come first, then the examples of a pass. The decision has been carried out and is gone.
// CHECK: func.func @train(%{{.*}}: tensor<3x4xf32> {{.*}}plan.offset = 0{{.*}}, %{{.*}}: tensor<2x4xf32, #nn.batch<0>> {{.*}}plan.offset = 64
// CHECK-SAME: plan.arena =
// CHECK-NOT: plan.decision
// CHECK: plan.kernel "net: contract"
// CHECK-SAME: reads [64, 0] writes [[Y:\[[0-9]+\]]] scratch {{[0-9]+}}
// CHECK: plan.scratch_bytes
// CHECK: plan.kernel "reduce"
// CHECK-SAME: reads [[Y]] writes [{{[0-9]+}}] scratch -1
// Element by element: the gradient takes the bytes of what it is made from.
// CHECK: plan.kernel "sub (gradient)"
// CHECK-SAME: reads [[Y]] writes [[Y]] scratch -1
// Sums are cleared before the loop.
// CHECK: plan.zeroed =
// The new parameters lie where the old ones did.
// CHECK: plan.gate
// CHECK: plan.kernel "sub (gradient)"
// CHECK-SAME: 0] writes [0]

// RUNS: is no run of the decision: run rematerialize first
// ROWS: has no blocks of rows, which its decision has: run form-row-blocks first
