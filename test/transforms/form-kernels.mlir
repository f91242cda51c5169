// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels))" | FileCheck %s
// RUN: cinch-opt %S/Inputs/net.mlir --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels))" | cinch-opt --verify-roundtrip
// RUN: not cinch-opt %S/Inputs/softmax.mlir --pass-pipeline="builtin.module(func.func(form-kernels))" 2>&1 | FileCheck %s --check-prefix=ORDER

// One kernel for each product. What is cheap and used twice (tanh) is computed in both kernels that need it, from the product's result.
// CHECK: func.func @train(%[[W:.*]]: tensor<3x4xf32> {{.*}}, %[[X:.*]]: tensor<8x4xf32, #nn.batch<0>>
// All of the batch is one trip, until a plan says otherwise.
// CHECK: %[[SUMS:.*]]:2 = plan.loop count 1 over #plan.examples<size = 8> accumulated(tensor<f32>, tensor<3x4xf32>)
// CHECK: %[[Y:.*]] = plan.kernel "net: contract"(%[[X]], %[[W]])
// CHECK-SAME: -> tensor<8x3xf32, #nn.batch<0>> as product {
// CHECK-NEXT: ^bb0
// CHECK-NEXT: nn.contract
// CHECK-NEXT: plan.return
// The loss is a sum over the examples: it goes on from trip to trip.
// CHECK: %[[LOSS:.*]] = plan.kernel "reduce"(%[[Y]])
// CHECK-SAME: domain 1 accumulates [true]
// CHECK: nn.tanh
// CHECK-NEXT: nn.reduce
// CHECK: %[[D:.*]] = plan.kernel "sub (gradient)"(%[[Y]])
// CHECK: nn.tanh
// CHECK: %[[DW:.*]] = plan.kernel "contract (gradient)"(%[[D]], %[[X]])
// CHECK-SAME: as product accumulates [true]
// CHECK: plan.yield %[[LOSS]], %[[DW]]
// The update needs all examples and the gate.
// CHECK: plan.gate %[[SUMS]]#0
// CHECK: %[[NEW:.*]] = plan.kernel "sub (gradient)"(%[[SUMS]]#1, %[[W]])
// CHECK: plan.results ["loss"] %[[SUMS]]#0
// CHECK: return %[[NEW]] : tensor<3x4xf32>

// ORDER: run decompose-ops first
