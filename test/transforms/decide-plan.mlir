// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1}))" > %t.decided
// RUN: FileCheck %s < %t.decided
// RUN: cinch-opt %t.decided | cmp - %t.decided
// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=all threads=1}))" | FileCheck %s --check-prefix=AGAIN
// RUN: not cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(func.func(form-kernels,decide-plan{microbatch=3}))" 2>&1 | FileCheck %s --check-prefix=DIVIDE
// RUN: not cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(func.func(form-kernels,decide-plan{arena-budget-bytes=64}))" 2>&1 | FileCheck %s --check-prefix=BUDGET
// RUN: not cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(func.func(decide-plan))" 2>&1 | FileCheck %s --check-prefix=FIRST

// A decision names kernels, and reads back. Nothing but the attribute changes.
// CHECK: #plan.decision<microbatch = 2, count = 4, batch = 8,
// CHECK-SAME: #plan.run<kernel = 0, recompute = false, reads = [64, 0], writes = [256]
// CHECK-NOT: recompute = true
// CHECK: plan.loop count 1 over #plan.examples<size = 8>

// The product runs again before the gradient reads it.
// AGAIN: #plan.run<kernel = 0, recompute = false
// AGAIN-SAME: #plan.run<kernel = 0, recompute = true

// DIVIDE: expected a micro-batch that divides the batch of 8, got 3; nearest: 2 and 4
// BUDGET: no plan fits into an arena of 64 bytes; the smallest needs
// FIRST: run form-kernels first
