// LoopOps.h: the operations of a loop kernel's nodes (Kernels.h says what they mean). A trained binary is told of its kernels in
// these numbers (runtime/METADATA.md, `bodies`).
#ifndef CINCH_COMPILER_KERNELS_LOOPOPS_H
#define CINCH_COMPILER_KERNELS_LOOPOPS_H

namespace cinch::kernels {

// Bool is one byte, 0 or 1. BF16 is two bytes in memory and, in a register, an f32 whose lower half is zero: Cast to it rounds.
enum class Elem { F32, F64, I32, Bool, BF16 };

// Words of a kernel's context.
enum ContextWord { kStep = 0, kFirstExample = 1, kSeed = 2, kTotalSteps = 3, kFirstPosition = 4, kWorker = 5,
                   kRunValues = 8, kContextWords = 128 }; // from kRunValues on: the run's values, f64

enum class LoopOp {
  Load,      // view; `level`
  LoadAt,    // gather: view plus sum over i of args[i] * atStrides[i]; args are i32 nodes, `level` as given or joined
  Const,     // number
  Index,     // i32: offset + sum(d_i * strides[i]) of `view` (nothing is loaded): for range[N]
  Step,      // the step's number, as elem (i32 or f64)
  TotalSteps, // the number of steps of the run (context word kTotalSteps), as elem (i32 or f64)
  RunValue,  // `number` counts the values of the run (context word kRunValues and those behind it); f64
  // f32/f64 (and i32 where it makes sense): functions of one or two numbers, Neg, Exp .. Min
#define FORMULA(KIND, FUNCTION, OPERANDS, WEIGHT) KIND,
#include "dialects/ops/Ops.inc"
  Fma,
  CompareEQ, CompareNE, CompareLT, CompareLE, CompareGT, CompareGE, // -> Bool
  Not, And, Or, Select, Cast, // Cast: to elem
  RandomUniform, RandomNormal, RandomInt, RandomBool,
  ReduceCols, ReduceChain,    // `reduce`
  ArgMaxCols, ArgMinCols,     // Full f32 -> Row i32: lowest index of the largest
};
enum class LoopReduce { Sum, Prod, Max, Min, Any, All };
enum class Level { Outer, Row, Column, Full };

} // namespace cinch::kernels
#endif
