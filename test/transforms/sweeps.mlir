// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels))" | FileCheck %s --check-prefix=FORMED
// RUN: cinch-opt %s --pass-pipeline="builtin.module(decompose-ops,func.func(form-kernels,decide-plan{microbatch=2 remat=none threads=1}))" > %t.decided
// RUN: FileCheck %s --check-prefix=DECIDED < %t.decided
// RUN: cinch-opt %t.decided --pass-pipeline="builtin.module(func.func(form-microbatches,rematerialize),verify-phase{phase=planned},func.func(assign-memory),verify-phase{phase=scheduled})" | FileCheck %s --check-prefix=MEMORY

// Every example is divided by a sum over all of them: a loop of its own finds it first. What both loops need of an example is computed in
// both, and each sum stands in the latest loop in which it can.
// FORMED: %[[SUM:.*]] = plan.loop count 1 over #plan.examples<size = 8> accumulated(tensor<f64>) {
// FORMED: nn.tanh
// FORMED: plan.yield
// FORMED: %[[ROOT:.*]] = plan.kernel "sqrt"(%[[SUM]])
// FORMED: %[[SUMS:.*]]:2 = plan.loop count 1 over #plan.examples<size = 8> accumulated(tensor<f64>, tensor<f64>)
// FORMED: nn.tanh
// FORMED: plan.yield
// FORMED: plan.kernel "cast"(%[[SUMS]]#{{[01]}})
// FORMED: plan.kernel "cast"(%[[SUMS]]#{{[01]}})
// FORMED: plan.results ["loss", "other"]

// DECIDED: loops = [#plan.loop<first = 0, last = 1, zeroed = [{{.*}}]>, #plan.loop<first = 2, last =

// MEMORY: plan.loop count 4 over #plan.examples<size = 2>
// MEMORY: } {plan.zeroed =
// MEMORY: plan.kernel "sqrt"
// MEMORY: plan.loop count 4 over #plan.examples<size = 2>
// MEMORY: } {plan.zeroed =
func.func @evaluation(%x: tensor<8xf32, #nn.batch<0>> {nn.field = 0}) -> (tensor<f32> {nn.name = "loss"}, tensor<f32> {nn.name = "other"}) {
  %t = nn.tanh %x : tensor<8xf32, #nn.batch<0>> loc("net.cinch":3:1)
  %n = nn.reduce sum %t [0] : (tensor<8xf32, #nn.batch<0>>) -> tensor<f32> loc("net.cinch":3:2)
  %r = nn.sqrt %n : tensor<f32> loc("net.cinch":4:1)
  %b = nn.broadcast %r [] : (tensor<f32>) -> tensor<8xf32, #nn.batch<0>> loc("net.cinch":4:1)
  %y = nn.div %t, %b : tensor<8xf32, #nn.batch<0>> loc("net.cinch":4:2)
  %s = nn.reduce sum %y [0] : (tensor<8xf32, #nn.batch<0>>) -> tensor<f32> loc("net.cinch":5:1)
  %o = nn.reduce sum %x [0] : (tensor<8xf32, #nn.batch<0>>) -> tensor<f32> loc("net.cinch":6:1)
  return %s, %o : tensor<f32>, tensor<f32>
}
