// RUN: cinch-opt %s --split-input-file --verify-phase=phase=scheduled --verify-diagnostics

// Every sum of a loop over micro-batches begins once a step, and nothing else is cleared.

// A sum that the loop clears.
func.func @cleared_by_the_loop(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    plan.yield %s : tensor<16xf32>
  } {plan.zeroed = array<i64: 128, 64>}
  return
}

// -----

// Where there is one trip the work may clear it.
func.func @cleared_by_its_work(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 1 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    } {plan.zeroed = array<i64: 128, 64>}
    plan.yield %s : tensor<16xf32>
  }
  return
}

// -----

// .. or begin it without looking at what is there.
func.func @begun_by_its_work(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 1 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    plan.yield %s : tensor<16xf32>
  }
  return
}

// -----

// Nothing clears it.
func.func @not_cleared(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    // expected-error @+1 {{has a sum at offset 128 that is cleared or begun 0 times, not once}}
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    plan.yield %s : tensor<16xf32>
  } {plan.zeroed = array<i64>}
  return
}

// -----

// The second clearing would lose what was added.
func.func @cleared_twice(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 1 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    // expected-error @+1 {{has a sum at offset 128 that is cleared or begun 2 times, not once}}
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    } {plan.zeroed = array<i64: 128, 64>}
    plan.yield %s : tensor<16xf32>
  } {plan.zeroed = array<i64: 128, 64>}
  return
}

// -----

// Each micro-batch clears what those before it have added.
func.func @cleared_in_each_trip(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    // expected-error @+1 {{begins its sum anew in each of 2 micro-batches}}
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    } {plan.zeroed = array<i64: 128, 64>}
    plan.yield %s : tensor<16xf32>
  }
  return
}

// -----

// .. or overwrites it.
func.func @begun_in_each_trip(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    // expected-error @+1 {{begins its sum anew in each of 2 micro-batches}}
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    plan.yield %s : tensor<16xf32>
  }
  return
}

// -----

// Half of it.
func.func @half_cleared(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    // expected-error @+1 {{has a sum at offset 128 that is cleared or begun 0 times, not once}}
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    plan.yield %s : tensor<16xf32>
  } {plan.zeroed = array<i64: 128, 32>}
  return
}

// -----

// Beside the sum the loop clears what it reads.
func.func @data_cleared(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  // expected-error @+1 {{clears bytes [0, 64), which are no sum that begins there}}
  %sums = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    plan.yield %s : tensor<16xf32>
  } {plan.zeroed = array<i64: 0, 64, 128, 64>}
  return
}

// -----

// A block of rows may not begin a sum that all blocks add to.
func.func @begun_in_each_block(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 1 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    %r = plan.loop count 2 over #plan.row_blocks<examples = 1, positions = 1, of = 1> sliced(%x : tensor<2x16xf32, #nn.batch<0>>)
      accumulated(tensor<16xf32>) {
    ^bb0(%b: tensor<1x16xf32, #nn.batch<0>>):
      // expected-error @+1 {{begins a sum anew in every block of rows}}
      %s = plan.kernel (%b) : (tensor<1x16xf32, #nn.batch<0>>) -> tensor<16xf32> reads [0] writes [128] scratch -1 {
      ^bb0(%i: tensor<1x16xf32, #nn.batch<0>>):
        %n = nn.reduce sum %i [0] : (tensor<1x16xf32, #nn.batch<0>>) -> tensor<16xf32>
        plan.return %n : tensor<16xf32>
      }
      plan.yield %s : tensor<16xf32>
    }
    plan.yield %r : tensor<16xf32>
  }
  return
}

// -----

// What is cleared behind a short sum is written, too: %t lies there.
func.func @more_than_the_sum(%x: tensor<2xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %t = plan.kernel () : () -> tensor<8xf32> reads [] writes [160] scratch -1 {
    %n = nn.constant 1.0 : tensor<8xf32>
    plan.return %n : tensor<8xf32>
  }
  %sums = plan.loop count 2 over #plan.examples<size = 2> accumulated(tensor<f32>) {
    // expected-error @+1 {{overlaps a value that is still alive: bytes [132, 192) and [160, 192)}}
    %s = plan.kernel (%x) : (tensor<2xf32, #nn.batch<0>>) -> tensor<f32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2xf32, #nn.batch<0>>) -> tensor<f32>
      plan.return %n : tensor<f32>
    }
    plan.yield %s : tensor<f32>
  } {plan.zeroed = array<i64: 128, 64>}
  plan.results ["t"] %t : tensor<8xf32> reads [160]
  return
}

// -----

// Sums are cleared where the loop stands that adds to them, or in it.
func.func @cleared_behind(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 256} {
  // expected-error @+1 {{adds to a sum, or clears one, outside of a loop over the micro-batches}}
  %s = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [128] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %n = nn.neg %i : tensor<16xf32>
    plan.return %n : tensor<16xf32>
  } {plan.zeroed = array<i64: 128, 64>}
  return
}

// -----

// A kernel goes on from what no loop clears.
func.func @no_sum(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  plan.loop count 2 over #plan.examples<size = 2> {
    // expected-error @+1 {{adds to result 0, which is no sum of the loop}}
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// What another worker has summed is there before the work, which must not clear it.
func.func @received_and_lost(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 1 over #plan.examples<size = 2> accumulated(tensor<16xf32>) {
    // expected-error @+1 {{leaves what a sum goes on from, and the work of the sum begins with nothing}}
    %r = plan.receive "sum" channel 0 begins 0 : tensor<16xf32> writes [128]
    %s = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    } {plan.zeroed = array<i64: 128, 64>}
    plan.yield %s : tensor<16xf32>
  }
  return
}

// -----

// The sum would be cleared before the kernel has read the operand whose bytes it takes.
func.func @cleared_operand(%x: tensor<4xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 256} {
  %sums = plan.loop count 1 over #plan.examples<size = 4> accumulated(tensor<16xf32>) {
    %a = plan.kernel () : () -> tensor<16xf32> reads [] writes [128] scratch -1 {
      %n = nn.constant 1.0 : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    // expected-error @+1 {{overlaps a value that is still alive: bytes [128, 192) and [128, 192)}}
    %s = plan.kernel (%a) : (tensor<16xf32>) -> tensor<16xf32> accumulates [true] reads [128] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    } {plan.zeroed = array<i64: 128, 64>}
    plan.yield %s : tensor<16xf32>
  }
  return
}
