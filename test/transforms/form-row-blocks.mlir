// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1 row-blocks=4},form-microbatches,rematerialize,form-row-blocks),verify-phase{phase=planned})" | FileCheck %s --check-prefix=BLOCKS
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1 row-blocks=4},form-microbatches,rematerialize,form-row-blocks,assign-memory),verify-phase{phase=scheduled})" | FileCheck %s --check-prefix=MEMORY
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1 row-blocks=16},form-microbatches,rematerialize,form-row-blocks),verify-phase{phase=planned})" | FileCheck %s --check-prefix=EXAMPLES
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1 row-blocks=-1},form-microbatches,rematerialize,form-row-blocks))" | FileCheck %s --check-prefix=NONE
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1 row-blocks=4},form-microbatches,form-row-blocks))" 2>&1 | FileCheck %s --check-prefix=ORDER
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(func.func(form-kernels,decide-plan{row-blocks=5}))" 2>&1 | FileCheck %s --check-prefix=DIVIDE

// The 2 x 8 x 64 scores never exist whole; the labels are read from the second position on; the weight's gradient goes on.
// BLOCKS: plan.loop count 2 over #plan.examples<size = 2>
// BLOCKS: %{{.*}}, %{{.*}} = plan.loop count 4 over #plan.row_blocks<examples = 1, positions = 4, of = 8>
// BLOCKS-SAME: sliced(%{{.*}}, %{{.*}} : tensor<2x8x4xf32, #nn.batch<0>>, tensor<2x9xi32, #nn.batch<0>>) from [0, 1]
// BLOCKS-SAME: stacked(tensor<2x8xf32, #nn.batch<0>>) accumulated(tensor<64x4xf32>)
// BLOCKS: ^bb0(%[[X:.*]]: tensor<1x4x4xf32, #nn.batch<0>>, %[[L:.*]]: tensor<1x4xi32, #nn.batch<0>>):
// BLOCKS-NOT: nn.slice
// BLOCKS: %[[Y:.*]] = plan.kernel "net: contract"(%[[X]], %{{.*}}) : {{.*}} -> tensor<1x4x64xf32, #nn.batch<0>>
// BLOCKS: plan.kernel "gather"(%[[L]], %[[Y]])
// BLOCKS-NEXT: ^bb0(%[[AT:.*]]: tensor<1x4xi32, #nn.batch<0>>, %[[FROM:.*]]: tensor<1x4x64xf32, #nn.batch<0>>)
// BLOCKS-NEXT: nn.gather %[[FROM]] [0, 1, -1] at(%[[AT]])
// BLOCKS: plan.kernel "contract (gradient)"{{.*}} -> tensor<64x4xf32> as product accumulates [true]
// BLOCKS: plan.yield
// BLOCKS-NOT: tensor<2x8x64xf32

// The block is handed its rows where the operand lies; what is local lies in the scratch of the range.
// MEMORY: plan.loop count 4 over #plan.row_blocks
// MEMORY: plan.kernel {{.*}} -> tensor<1x4x64xf32, #nn.batch<0>> as product reads
// MEMORY: plan.kernel {{.*}} -> tensor<64x4xf32> as product accumulates [true] reads

// Two whole examples: the slice stays.
// EXAMPLES: plan.loop count 1 over #plan.row_blocks<examples = 2, positions = 8, of = 8> sliced(%{{.*}}, %{{.*}} : {{.*}}) stacked
// EXAMPLES: ^bb0(%{{.*}}: tensor<2x8x4xf32, #nn.batch<0>>, %[[L:.*]]: tensor<2x9xi32, #nn.batch<0>>)
// EXAMPLES: plan.kernel "gather"(%[[L]], 
// EXAMPLES: nn.slice %{{.*}} axis 1 from 1 to 9

// NONE-NOT: #plan.row_blocks
// NONE: tensor<2x8x64xf32

// DIVIDE: got 5; nearest: 4 and 8
// ORDER: has no runs in the order of its decision: run rematerialize first
func.func @train(%w: tensor<64x4xf32> {nn.path = "w"}, %x: tensor<4x8x4xf32, #nn.batch<0>> {nn.field = 0},
                 %text: tensor<4x9xi32, #nn.batch<0>> {nn.field = 1})
    -> (tensor<64x4xf32> {nn.path = "w"}, tensor<f32> {nn.name = "loss"}) {
  %labels = nn.slice %text axis 1 from 1 to 9 : (tensor<4x9xi32, #nn.batch<0>>) -> tensor<4x8xi32, #nn.batch<0>> loc("net.cinch":3:1)
  %scores = nn.contract %x [0, 1, 3], %w [2, 3] : (tensor<4x8x4xf32, #nn.batch<0>>, tensor<64x4xf32>) -> tensor<4x8x64xf32, #nn.batch<0>> loc("net"("net.cinch":3:1))
  %score = nn.gather %scores [0, 1, -1] at (%labels) [[0, 1]] : (tensor<4x8x64xf32, #nn.batch<0>>, tensor<4x8xi32, #nn.batch<0>>) -> tensor<4x8xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %r = nn.reduce sum %score [0, 1] : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<f32> loc("net.cinch":4:1)
  %d = nn.tanh %scores {nn.backward} : tensor<4x8x64xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %dw = nn.contract %d [2, 3, 0], %x [2, 3, 1] {nn.backward} : (tensor<4x8x64xf32, #nn.batch<0>>, tensor<4x8x4xf32, #nn.batch<0>>) -> tensor<64x4xf32> loc("net.cinch":4:1)
  %new = nn.sub %w, %dw {nn.backward} : tensor<64x4xf32> loc("net.cinch":5:1)
  return %new, %r : tensor<64x4xf32>, tensor<f32>
}
