// The planner chooses among the step as it is and with its wide work in blocks of rows (PlanVariants.cpp): what fits and is fastest wins.
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1}))" | FileCheck %s --check-prefix=ROOM
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 arena-budget-bytes=13000}))" | FileCheck %s --check-prefix=TIGHT
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 microbatch=4 row-blocks=-1 arena-budget-bytes=13000}))" 2>&1 | FileCheck %s --check-prefix=WHOLE
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 row-blocks=2}))" | FileCheck %s --check-prefix=ASKED
// RUN: not cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 row-blocks=16 microbatch=1}))" 2>&1 | FileCheck %s --check-prefix=EXAMPLES
// RUN: sed -e 's/PLACE/nn.grain = 2 : i64/' %s > %t.grain
// RUN: not cinch-opt %t.grain --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 row-blocks=4}))" 2>&1 | FileCheck %s --check-prefix=GRAIN
// RUN: cinch-opt %t.grain --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{threads=1 row-blocks=16}))" | FileCheck %s --check-prefix=GRAINS

// With room for the scores nothing is cut; without, blocks keep the whole batch together, where whole scores would need micro-batches.
// ROOM: microbatch = 4, count = 1
// ROOM-SAME: rows = []
// TIGHT: microbatch = 4, count = 1
// TIGHT-SAME: rows = [#plan.rows<first = 0, last = 4, examples = 1, positions = 8, zeroed = [{{.*}}]>]
// WHOLE: no plan fits into an arena of 13000 bytes

// A number is taken, whatever it costs. A block of two examples asks for micro-batches of two.
// ASKED: rows = [#plan.rows<first = 0, last = 4, examples = 1, positions = 2, zeroed = [{{.*}}]>]
// EXAMPLES: a block of 16 rows holds 2 examples, of which a micro-batch of 1 is no multiple

// No example that belongs to a grain may be cut.
// GRAIN: got 4; nearest: 16
// GRAINS: rows = [#plan.rows<first = 0, last = {{[0-9]+}}, examples = 2, positions = 8, zeroed = [{{.*}}]>]
func.func @train(%w: tensor<64x4xf32> {nn.path = "w"}, %x: tensor<4x8x4xf32, #nn.batch<0>> {nn.field = 0},
                 %text: tensor<4x9xi32, #nn.batch<0>> {nn.field = 1})
    -> (tensor<64x4xf32> {nn.path = "w"}, tensor<f32> {nn.name = "loss"}) attributes {PLACE} {
  %labels = nn.slice %text axis 1 from 1 to 9 : (tensor<4x9xi32, #nn.batch<0>>) -> tensor<4x8xi32, #nn.batch<0>> 
  %scores = nn.contract %x [0, 1, 3], %w [2, 3] : (tensor<4x8x4xf32, #nn.batch<0>>, tensor<64x4xf32>) -> tensor<4x8x64xf32, #nn.batch<0>> loc("net"("net.cinch":3:1))
  %score = nn.gather %scores [0, 1, -1] at (%labels) [[0, 1]] : (tensor<4x8x64xf32, #nn.batch<0>>, tensor<4x8xi32, #nn.batch<0>>) -> tensor<4x8xf32, #nn.batch<0>> 
  %r = nn.reduce sum %score [0, 1] : (tensor<4x8xf32, #nn.batch<0>>) -> tensor<f32> 
  %d = nn.tanh %scores {nn.backward} : tensor<4x8x64xf32, #nn.batch<0>> 
  %dw = nn.contract %d [2, 3, 0], %x [2, 3, 1] {nn.backward} : (tensor<4x8x64xf32, #nn.batch<0>>, tensor<4x8x4xf32, #nn.batch<0>>) -> tensor<64x4xf32> 
  %new = nn.sub %w, %dw {nn.backward} : tensor<64x4xf32> 
  return %new, %r : tensor<64x4xf32>, tensor<f32>
}
