// RUN: cinch-opt %s --split-input-file --verify-phase=phase=scheduled --verify-diagnostics

// Overwrites what is read later.
func.func @overlap(%x: tensor<16xf32> {plan.offset = 0}) attributes {plan.arena = 192} {
  plan.microbatches count 1 size 1 {
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
  plan.microbatches count 1 size 1 {
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
  plan.microbatches count 1 size 1 {
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
  plan.microbatches count 1 size 1 {
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
  plan.microbatches count 1 size 1 {
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
