// RUN: cinch-opt %s --split-input-file --verify-phase=phase=scheduled --verify-diagnostics

// Overwrites what is read later.
func.func @overlap(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192} {
  plan.loop count 1 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    // expected-error @+1 {{overlaps a value that is still alive: bytes [96, 160) and [64, 128)}}
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [96] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %c = plan.kernel (%a, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 96] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

func.func @outside(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 100} {
  plan.loop count 1 over #plan.examples<size = 1> {
    // expected-error @+1 {{lies outside the arena of 100 bytes}}
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

func.func @elsewhere(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192} {
  plan.loop count 1 over #plan.examples<size = 1> {
    // expected-error @+1 {{reads offset 64, its operand lies elsewhere}}
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [64] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

func.func @unplaced(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192} {
  plan.loop count 1 over #plan.examples<size = 1> {
    // expected-error @+1 {{has no offsets}}
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// Writing over an operand that dies there is no overlap.
func.func @in_place(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192} {
  plan.loop count 1 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %b = plan.kernel (%a) : (tensor<16xf32>) -> tensor<16xf32> reads [64] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// A loop over blocks of rows fills %r from its first block to its last: block values may not share its bytes, though %r is
// written behind them in the body.
func.func @rows_filled(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 512} {
  plan.loop count 1 over #plan.examples<size = 2> {
    %r = plan.loop count 2 over #plan.row_blocks<examples = 1, positions = 1, of = 1> sliced(%x : tensor<2x16xf32, #nn.batch<0>>)
      stacked(tensor<2x16xf32, #nn.batch<0>>) {
    ^bb0(%b: tensor<1x16xf32, #nn.batch<0>>):
      // expected-error @+1 {{overlaps a value that is still alive: bytes [128, 192) and [128, 256)}}
      %t = plan.kernel (%b) : (tensor<1x16xf32, #nn.batch<0>>) -> tensor<1x16xf32, #nn.batch<0>> reads [0] writes [128] scratch -1 {
      ^bb0(%i: tensor<1x16xf32, #nn.batch<0>>):
        %n = nn.neg %i : tensor<1x16xf32, #nn.batch<0>>
        plan.return %n : tensor<1x16xf32, #nn.batch<0>>
      }
      %u = plan.kernel (%t) : (tensor<1x16xf32, #nn.batch<0>>) -> tensor<1x16xf32, #nn.batch<0>> reads [128] writes [128] scratch -1 {
      ^bb0(%i: tensor<1x16xf32, #nn.batch<0>>):
        %n = nn.abs %i : tensor<1x16xf32, #nn.batch<0>>
        plan.return %n : tensor<1x16xf32, #nn.batch<0>>
      }
      plan.yield %u : tensor<1x16xf32, #nn.batch<0>>
    }
  }
  return
}

// -----

// What the blocks read from outside is read again by the next block: nothing in the body may take its bytes.
func.func @rows_read_again(%x: tensor<2x16xf32, #nn.batch<0>> {plan.offset = 0}) attributes {plan.arena = 512} {
  plan.loop count 1 over #plan.examples<size = 2> {
    %w = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<2x16xf32, #nn.batch<0>> reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.neg %i : tensor<2x16xf32, #nn.batch<0>>
      plan.return %n : tensor<2x16xf32, #nn.batch<0>>
    }
    %r = plan.loop count 2 over #plan.row_blocks<examples = 1, positions = 1, of = 1> sliced(%w : tensor<2x16xf32, #nn.batch<0>>)
      stacked(tensor<2x16xf32, #nn.batch<0>>) {
    ^bb0(%b: tensor<1x16xf32, #nn.batch<0>>):
      %t = plan.kernel (%b) : (tensor<1x16xf32, #nn.batch<0>>) -> tensor<1x16xf32, #nn.batch<0>> reads [128] writes [256] scratch -1 {
      ^bb0(%i: tensor<1x16xf32, #nn.batch<0>>):
        %n = nn.neg %i : tensor<1x16xf32, #nn.batch<0>>
        plan.return %n : tensor<1x16xf32, #nn.batch<0>>
      }
      // expected-error @+1 {{overlaps a value that is still alive: bytes [192, 256) and [128, 256)}}
      %s = plan.kernel (%t) : (tensor<1x16xf32, #nn.batch<0>>) -> tensor<1x16xf32, #nn.batch<0>> reads [256] writes [192] scratch -1 {
      ^bb0(%i: tensor<1x16xf32, #nn.batch<0>>):
        %n = nn.neg %i : tensor<1x16xf32, #nn.batch<0>>
        plan.return %n : tensor<1x16xf32, #nn.batch<0>>
      }
      %u = plan.kernel (%s) : (tensor<1x16xf32, #nn.batch<0>>) -> tensor<1x16xf32, #nn.batch<0>> reads [192] writes [384] scratch -1 {
      ^bb0(%i: tensor<1x16xf32, #nn.batch<0>>):
        %n = nn.abs %i : tensor<1x16xf32, #nn.batch<0>>
        plan.return %n : tensor<1x16xf32, #nn.batch<0>>
      }
      plan.yield %u : tensor<1x16xf32, #nn.batch<0>>
    }
  }
  return
}

// -----

// Part 0 runs on two micro-batches before part 1 runs on the first: what waits between them needs two copies.
func.func @waits_in_one_copy() attributes {plan.arena = 512} {
  plan.loop count 2 over #plan.examples<size = 2> actions <part 0 on 0 1, part 1 on 0 1> {
    // expected-error @+1 {{has 1 copies, but waits for a later part in 2 micro-batches at once}}
    %x = plan.receive "x" channel 0 : tensor<2x16xf32, #nn.batch<0>> writes [0]
    plan.part
    plan.send "x" %x : tensor<2x16xf32, #nn.batch<0>> channel 1 reads [0]
    plan.yield
  }
  return
}

// -----

// What waits has the bytes of all its copies through the whole loop, where the work of either part may not reach.
func.func @waits_elsewhere() attributes {plan.arena = 512} {
  plan.loop count 2 over #plan.examples<size = 2> actions <part 0 on 0 1, part 1 on 0 1> {
    %x = plan.receive "x" channel 0 : tensor<2x16xf32, #nn.batch<0>> writes [0] {plan.copies = array<i64: 2>}
    plan.part
    // expected-error @+1 {{overlaps a value that is still alive: bytes [128, 256) and [0, 256)}}
    %y = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<2x16xf32, #nn.batch<0>> reads [0] writes [128] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.neg %i : tensor<2x16xf32, #nn.batch<0>>
      plan.return %n : tensor<2x16xf32, #nn.batch<0>>
    }
    plan.send "y" %y : tensor<2x16xf32, #nn.batch<0>> channel 1 reads [128]
    plan.yield
  }
  return
}

// -----

// The second micro-batch runs part 2 before part 1, so that it does not find what part 1 leaves; the first one alone would.
func.func @read_too_early() attributes {plan.arena = 512} {
  plan.loop count 2 over #plan.examples<size = 2> actions <part 0 on 0, part 1 on 0, part 2 on 0, part 0 on 1, part 2 on 1, part 1 on 1> {
    plan.part
    // expected-error @+1 {{is read in part 2 of the loop body, which a micro-batch runs before part 1, where it is written}}
    %x = plan.receive "x" channel 0 : tensor<2x16xf32, #nn.batch<0>> writes [0] {plan.copies = array<i64: 2>}
    plan.part
    plan.send "x" %x : tensor<2x16xf32, #nn.batch<0>> channel 1 reads [0]
    plan.yield
  }
  return
}

// -----

// The same in turns: nothing waits, and one copy is enough.
func.func @in_turns() attributes {plan.arena = 512} {
  plan.loop count 2 over #plan.examples<size = 2> actions <part 0 on 0, part 1 on 0, part 0 on 1, part 1 on 1> {
    %x = plan.receive "x" channel 0 : tensor<2x16xf32, #nn.batch<0>> writes [0]
    plan.part
    plan.send "x" %x : tensor<2x16xf32, #nn.batch<0>> channel 1 reads [0]
    plan.yield
  }
  return
}

// -----

// Micro-batch 2 of two is the first one of the next step: what waits for it lies there behind the loop, too.
func.func @waits_for_the_next_step() attributes {plan.arena = 512} {
  plan.loop count 2 over #plan.examples<size = 2> actions <part 0 on 1, part 1 on 0, part 0 on 2, part 1 on 1> {
    %x = plan.receive "x" channel 0 : tensor<2x16xf32, #nn.batch<0>> writes [0] {plan.copies = array<i64: 2>}
    plan.part
    plan.send "x" %x : tensor<2x16xf32, #nn.batch<0>> channel 1 reads [0]
    plan.yield
  }
  // expected-error @+1 {{overlaps a value that is still alive: bytes [192, 256) and [0, 256)}}
  %y = plan.receive "y" channel 2 : tensor<16xf32> writes [192]
  plan.send "y" %y : tensor<16xf32> channel 3 reads [192]
  return
}

// -----

// Three micro-batches take turns on three places, but not on two: the next step's first one would find the third one's.
func.func @turns_of_the_next_step() attributes {plan.arena = 512} {
  plan.loop count 3 over #plan.examples<size = 2> actions <part 0 on 1, part 1 on 0, part 0 on 2, part 1 on 1, part 0 on 3, part 1 on 2> {
    // expected-error @+1 {{has 2 copies, on which the 3 micro-batches of the next step do not take turns}}
    %x = plan.receive "x" channel 0 : tensor<2x16xf32, #nn.batch<0>> writes [0] {plan.copies = array<i64: 2>}
    plan.part
    plan.send "x" %x : tensor<2x16xf32, #nn.batch<0>> channel 1 reads [0]
    plan.yield
  }
  return
}

// -----

// A sum of this step and one of the next.
func.func @one_sum() attributes {plan.arena = 512} {
  %s = plan.loop count 2 over #plan.examples<size = 2> actions <part 0 on 1, part 1 on 1, part 0 on 2, part 1 on 2> accumulated(tensor<16xf32>) {
    %x = plan.receive "x" channel 0 : tensor<2x16xf32, #nn.batch<0>> writes [0]
    plan.part
    // expected-error @+1 {{is not there twice, for the next step, too}}
    %a = plan.kernel (%x) : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32> accumulates [true] reads [0] writes [256] scratch -1 {
    ^bb0(%i: tensor<2x16xf32, #nn.batch<0>>):
      %n = nn.reduce sum %i [0] : (tensor<2x16xf32, #nn.batch<0>>) -> tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    plan.yield %a : tensor<16xf32>
  } {plan.zeroed = array<i64: 256, 64>}
  return
}

// -----

// What is computed once a step for the loop.
func.func @once_a_step() attributes {plan.arena = 512} {
  // expected-error @+1 {{is not there twice, for the next step, too}}
  %w = plan.receive "w" channel 2 : tensor<16xf32> writes [256]
  plan.loop count 2 over #plan.examples<size = 2> actions <part 0 on 1, part 1 on 1, part 0 on 2, part 1 on 2> {
    plan.send "w" %w : tensor<16xf32> channel 3 reads [256]
    plan.part
    plan.yield
  }
  return
}

// -----

// State on the host: as it should be.
func.func @moved(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// State on the host: it is read while it is on its way.
func.func @read_early(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  // expected-error @+1 {{reads what is on its way}}
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  plan.await %a : tensor<16xf32>
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// State on the host: nobody waits for the copy back.
func.func @not_awaited(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  // expected-error @+1 {{is not awaited}}
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  return %b : tensor<16xf32>
}

// -----

// State on the host: there is nothing to wait for.
func.func @awaited_twice(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  // expected-error @+1 {{waits for a copy that is not under way}}
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// State on the host: its place is written while it goes back.
func.func @written_early(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  // expected-error @+1 {{overlaps a value that is still alive}}
  %o = plan.kernel (%p) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %s = nn.neg %i : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// State on the host: it comes to where a value is still alive.
func.func @into_a_value(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %o = plan.kernel (%p) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [128] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %s = nn.neg %i : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  // expected-error @+1 {{overlaps a value that is still alive}}
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 128
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %o) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [128, 128] writes [128] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  %b = plan.store %n : tensor<16xf32> host 0 offset 128
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// State on the host: it goes back from elsewhere.
func.func @elsewhere_back(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [192] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  // expected-error @+1 {{copies a state from elsewhere than it was copied to}}
  %b = plan.store %n : tensor<16xf32> host 0 offset 192
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// State on the host: it is not there.
func.func @elsewhere_on_the_host(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 128} {
  // expected-error @+1 {{does not copy from where its operand lies on the host}}
  %a = plan.fetch %m : tensor<16xf32> host 64 offset 64
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// State on the host: it has no bytes there.
// expected-error @+1 {{argument 1 lies outside the pinned memory}}
func.func @outside_the_host(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 32} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// State on the host: two states in the same bytes.
// expected-error @+1 {{argument 2 shares bytes of pinned memory with another}}
func.func @shared_on_the_host(%p: tensor<16xf32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"},
    %v: tensor<32xf32> {nn.slot = "p.v", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 192} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  %n = plan.kernel (%a, %p) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
    %s = nn.add %i, %j : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// Along an axis a trip works in the scratch of the kernel that the loop is. The two places of what it carries take turns there: no value of
// a trip may lie in one of them.
func.func @slots(%h: tensor<16xf32> {plan.offset = 0}, %x: tensor<3x16xf32> {plan.offset = 64}) attributes {plan.arena = 512} {
  plan.loop count 1 over #plan.examples<size = 1> {
    %r = plan.kernel (%h, %x) : (tensor<16xf32>, tensor<3x16xf32>) -> tensor<16xf32> as scan reads [0, 64] writes [256] scratch 320 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<3x16xf32>):
      // expected-error @+1 {{has two values in the same bytes of its scratch: [384, 448) and [384, 448)}}
      %last = plan.loop count 3 over #plan.axis<reverse = false> carried(%i : tensor<16xf32>) sliced(%j : tensor<3x16xf32>)
          last(tensor<16xf32>) {
      ^bb0(%a: tensor<16xf32>, %b: tensor<16xf32>):
        %t = plan.kernel (%a, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [0, 64] writes [384] scratch -1 {
        ^bb0(%k: tensor<16xf32>, %l: tensor<16xf32>):
          %n = nn.add %k, %l : tensor<16xf32>
          plan.return %n : tensor<16xf32>
        }
        %u = plan.kernel (%t, %i) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [384, 0] writes [320] scratch -1 {
        ^bb0(%k: tensor<16xf32>, %l: tensor<16xf32>):
          %n = nn.mul %k, %l : tensor<16xf32>
          plan.return %n : tensor<16xf32>
        }
        plan.yield %u : tensor<16xf32>
      } {plan.slots = array<i64: 320, 384>}
      plan.return %last : tensor<16xf32>
    } {plan.scratch_bytes = 192}
  }
  return
}

// -----

// A value of the loop that waits on the host.
func.func @waits_on_the_host(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192, plan.host = 64} {
  plan.loop count 2 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %h = plan.store %a : tensor<16xf32> host 0 offset 64
    plan.await %h : tensor<16xf32>
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %f = plan.fetch %h : tensor<16xf32> host 0 offset 128
    plan.await %f : tensor<16xf32>
    %c = plan.kernel (%f, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [128, 64] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// A value on the host: its bytes are taken before it has left.
func.func @taken_early(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192, plan.host = 64} {
  plan.loop count 2 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %h = plan.store %a : tensor<16xf32> host 0 offset 64
    // expected-error @+1 {{overlaps a value that is still alive}}
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    plan.await %h : tensor<16xf32>
    %f = plan.fetch %h : tensor<16xf32> host 0 offset 128
    plan.await %f : tensor<16xf32>
    %c = plan.kernel (%f, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [128, 64] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// A value on the host: it is fetched before it has left.
func.func @fetched_early(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192, plan.host = 64} {
  plan.loop count 2 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %h = plan.store %a : tensor<16xf32> host 0 offset 64
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    // expected-error @+1 {{copies what is on its way to the host}}
    %f = plan.fetch %h : tensor<16xf32> host 0 offset 128
    plan.await %f : tensor<16xf32>
    %c = plan.kernel (%f, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [128, 64] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// A value on the host: it is read before it is back.
func.func @read_before_it_is_back(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192, plan.host = 64} {
  plan.loop count 2 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %h = plan.store %a : tensor<16xf32> host 0 offset 64
    plan.await %h : tensor<16xf32>
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %f = plan.fetch %h : tensor<16xf32> host 0 offset 128
    // expected-error @+1 {{reads what is on its way}}
    %c = plan.kernel (%f, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [128, 64] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// A value on the host: a trip ends while a copy is under way.
func.func @trip_ends(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192, plan.host = 64} {
  plan.loop count 2 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %h = plan.store %a : tensor<16xf32> host 0 offset 64
    plan.await %h : tensor<16xf32>
    // expected-error @+1 {{is not awaited}}
    %g = plan.fetch %h : tensor<16xf32> host 0 offset 128
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %c = plan.kernel (%b, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [64, 64] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// A value on the host: it is fetched from elsewhere.
func.func @fetched_from_elsewhere(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192, plan.host = 64} {
  plan.loop count 2 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %h = plan.store %a : tensor<16xf32> host 0 offset 64
    plan.await %h : tensor<16xf32>
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    // expected-error @+1 {{does not copy from where its operand lies on the host}}
    %f = plan.fetch %h : tensor<16xf32> host 64 offset 128
    plan.await %f : tensor<16xf32>
    %c = plan.kernel (%f, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [128, 64] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// A value on the host: another one has its place there.
func.func @two_on_the_host(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192, plan.host = 64} {
  plan.loop count 2 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %h = plan.store %a : tensor<16xf32> host 0 offset 64
    plan.await %h : tensor<16xf32>
    // expected-error @+1 {{stores a value that shares bytes of pinned memory with another}}
    %g = plan.store %a : tensor<16xf32> host 0 offset 64
    plan.await %g : tensor<16xf32>
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %f = plan.fetch %h : tensor<16xf32> host 0 offset 128
    plan.await %f : tensor<16xf32>
    %c = plan.kernel (%f, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [128, 64] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// A value on the host: it has no bytes there.
func.func @no_room_on_the_host(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192, plan.host = 32} {
  plan.loop count 2 over #plan.examples<size = 1> {
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    // expected-error @+1 {{stores a value that lies outside the pinned memory}}
    %h = plan.store %a : tensor<16xf32> host 0 offset 64
    plan.await %h : tensor<16xf32>
    %b = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.abs %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
    %f = plan.fetch %h : tensor<16xf32> host 0 offset 128
    plan.await %f : tensor<16xf32>
    %c = plan.kernel (%f, %b) : (tensor<16xf32>, tensor<16xf32>) -> tensor<16xf32> reads [128, 64] writes [128] scratch -1 {
    ^bb0(%i: tensor<16xf32>, %j: tensor<16xf32>):
      %n = nn.add %i, %j : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

// Only element-wise work, at the same places, may write over its operand: a product reads all of it for each of its elements.
func.func @product_in_place(%x: tensor<4x16xf32, #nn.batch<0>> {plan.offset = 0}, %w: tensor<16x16xf32> {plan.offset = 256}) attributes {plan.arena = 2048} {
  plan.loop count 1 over #plan.examples<size = 4> {
    %a = plan.kernel (%x) : (tensor<4x16xf32, #nn.batch<0>>) -> tensor<4x16xf32, #nn.batch<0>> reads [0] writes [1536] scratch -1 {
    ^bb0(%i: tensor<4x16xf32, #nn.batch<0>>):
      %n = nn.neg %i : tensor<4x16xf32, #nn.batch<0>>
      plan.return %n : tensor<4x16xf32, #nn.batch<0>>
    }
    // expected-error @+1 {{overlaps a value that is still alive: bytes [1536, 1792) and [1536, 1792)}}
    %b = plan.kernel (%a, %w) : (tensor<4x16xf32, #nn.batch<0>>, tensor<16x16xf32>) -> tensor<4x16xf32, #nn.batch<0>> as product reads [1536, 256] writes [1536] scratch -1 {
    ^bb0(%i: tensor<4x16xf32, #nn.batch<0>>, %j: tensor<16x16xf32>):
      %n = nn.contract %i [0, 2], %j [2, 1] : (tensor<4x16xf32, #nn.batch<0>>, tensor<16x16xf32>) -> tensor<4x16xf32, #nn.batch<0>>
      plan.return %n : tensor<4x16xf32, #nn.batch<0>>
    }
  }
  return
}

// -----

// .. and so does a transposition.
func.func @transposed_in_place(%x: tensor<4x4xf32> {plan.offset = 0}) attributes {plan.arena = 256} {
  plan.loop count 1 over #plan.examples<size = 4> {
    %a = plan.kernel (%x) : (tensor<4x4xf32>) -> tensor<4x4xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<4x4xf32>):
      %n = nn.neg %i : tensor<4x4xf32>
      plan.return %n : tensor<4x4xf32>
    }
    // expected-error @+1 {{overlaps a value that is still alive: bytes [64, 128) and [64, 128)}}
    %b = plan.kernel (%a) : (tensor<4x4xf32>) -> tensor<4x4xf32> domain 1 reads [64] writes [64] scratch -1 {
    ^bb0(%i: tensor<4x4xf32>):
      %t = nn.transpose %i [1, 0] : (tensor<4x4xf32>) -> tensor<4x4xf32>
      %n = nn.neg %t : tensor<4x4xf32>
      plan.return %n : tensor<4x4xf32>
    }
  }
  return
}

// -----

// A parameter is as it was until the gate is passed.
func.func @update_before_the_gate(%p: tensor<16xf32> {nn.path = "p", plan.offset = 0}, %l: tensor<f32> {plan.offset = 64})
    -> (tensor<16xf32> {nn.path = "p"}) attributes {plan.arena = 128} {
  // expected-error @+1 {{overwrites a parameter or a state before the gate, which leaves it as it was where it is closed: bytes [0, 64)}}
  %n = plan.kernel (%p) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [0] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %s = nn.neg %i : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  plan.gate %l : tensor<f32> reads [64]
  return %n : tensor<16xf32>
}

// -----

func.func @update_behind_the_gate(%p: tensor<16xf32> {nn.path = "p", plan.offset = 0}, %l: tensor<f32> {plan.offset = 64})
    -> (tensor<16xf32> {nn.path = "p"}) attributes {plan.arena = 128} {
  plan.gate %l : tensor<f32> reads [64]
  %n = plan.kernel (%p) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [0] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %s = nn.neg %i : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  return %n : tensor<16xf32>
}

// -----

// A state that is copied back to the host before the gate would be lost where the gate is closed.
func.func @store_before_the_gate(%l: tensor<f32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  // expected-error @+1 {{copies a state to the host before the gate}}
  %b = plan.store %a : tensor<16xf32> host 0 offset 64
  plan.await %b : tensor<16xf32>
  plan.gate %l : tensor<f32> reads [0]
  return %b : tensor<16xf32>
}

// -----

// What came from the host goes back there, whether or not the gate is closed.
func.func @copy_before_the_gate(%l: tensor<f32> {plan.offset = 0}, %m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0, plan.space = "host"})
    -> (tensor<16xf32> {nn.slot = "p.m"}) attributes {plan.arena = 256, plan.host = 64} {
  %a = plan.fetch %m : tensor<16xf32> host 0 offset 64
  plan.await %a : tensor<16xf32>
  // expected-error @+1 {{overwrites a parameter or a state before the gate, which leaves it as it was where it is closed: bytes [64, 128)}}
  %n = plan.kernel (%a) : (tensor<16xf32>) -> tensor<16xf32> reads [64] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %s = nn.neg %i : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  plan.gate %l : tensor<f32> reads [0]
  %b = plan.store %n : tensor<16xf32> host 0 offset 64
  plan.await %b : tensor<16xf32>
  return %b : tensor<16xf32>
}

// -----

// Scratch of no size would be others' bytes, too.
func.func @scratch_of_no_size(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192} {
  plan.loop count 1 over #plan.examples<size = 1> {
    // expected-error @+1 {{has scratch at offset 128, but not how many bytes of it are its own}}
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch 128 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    }
  }
  return
}

// -----

func.func @scratch_without_a_place(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192} {
  plan.loop count 1 over #plan.examples<size = 1> {
    // expected-error @+1 {{has no place for its 64 bytes of scratch}}
    %a = plan.kernel (%x) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
    ^bb0(%i: tensor<16xf32>):
      %n = nn.neg %i : tensor<16xf32>
      plan.return %n : tensor<16xf32>
    } {plan.scratch_bytes = 64 : i64}
  }
  return
}

// -----

// The next step reads a parameter where it lay in this one.
func.func @state_moves(%p: tensor<16xf32> {nn.path = "p", plan.offset = 0}) -> (tensor<16xf32> {nn.path = "p"}) attributes {plan.arena = 256} {
  // expected-error @+1 {{leaves the new value of "p" at offset 64, where the next step finds none: the old one lies at 0}}
  %n = plan.kernel (%p) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %s = nn.neg %i : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  return %n : tensor<16xf32>
}

// -----

// Two slots change places: each lies where the other one is looked for.
func.func @slots_change_places(%m: tensor<16xf32> {nn.slot = "p.m", plan.offset = 0}, %v: tensor<16xf32> {nn.slot = "p.v", plan.offset = 64})
    -> (tensor<16xf32> {nn.slot = "p.m"}, tensor<16xf32> {nn.slot = "p.v"}) attributes {plan.arena = 256} {
  // expected-error @+1 {{leaves the new value of "p.m" at offset 64, where the next step finds none: the old one lies at 0}}
  %n = plan.kernel (%m) : (tensor<16xf32>) -> tensor<16xf32> reads [0] writes [64] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %s = nn.neg %i : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  %w = plan.kernel (%v) : (tensor<16xf32>) -> tensor<16xf32> reads [64] writes [0] scratch -1 {
  ^bb0(%i: tensor<16xf32>):
    %s = nn.neg %i : tensor<16xf32>
    plan.return %s : tensor<16xf32>
  }
  return %n, %w : tensor<16xf32>, tensor<16xf32>
}
