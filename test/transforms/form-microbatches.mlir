// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=all threads=1},form-microbatches))" | FileCheck %s
// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=8 remat=none threads=1},form-microbatches))" | FileCheck %s --check-prefix=WHOLE
// RUN: not cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(func.func(form-microbatches))" 2>&1 | FileCheck %s --check-prefix=ORDER

// Four passes of two examples; every tensor of the examples shrinks, inside of kernels too, parameters and sums do not. Which kernels run
// again is not its question.
// CHECK: func.func @train(%[[W:.*]]: tensor<3x4xf32> {{.*}}, %[[X:.*]]: tensor<2x4xf32, #nn.batch<0>>
// CHECK: %[[SUMS:.*]]:2 = plan.loop count 4 over #plan.examples<size = 2> accumulated(tensor<f32>, tensor<3x4xf32>)
// CHECK: plan.kernel "net: contract"(%[[X]], %[[W]]) : (tensor<2x4xf32, #nn.batch<0>>, tensor<3x4xf32>) -> tensor<2x3xf32, #nn.batch<0>>
// CHECK-NEXT: ^bb0(%{{.*}}: tensor<2x4xf32, #nn.batch<0>>, %{{.*}}: tensor<3x4xf32>)
// CHECK-NOT: tensor<8x
// CHECK-NOT: recompute(
// CHECK: plan.yield
// CHECK: plan.kernel {{.*}}(%[[SUMS]]#1, %[[W]])

// WHOLE: plan.loop count 1 over #plan.examples<size = 8>
// WHOLE: tensor<8x3xf32, #nn.batch<0>>

// ORDER: run decide-plan first
