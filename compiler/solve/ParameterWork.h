// ParameterWork.h: work on parameters alone, in every micro-batch anew.
//
// What is made of parameters alone (a filter turned to the layout of its kernel, a weight rounded to bf16, `w = tanh(p)`) is the same for every
// micro-batch. It is made once, before the main loop, and lies there until the loop ends: a copy of most parameters. Made in the loop, right before
// it is read, it lies there no longer than an activation does, may be made again for the backward sweep, and costs its time once a micro-batch.
// Kernel and operands are the same, so no bit changes.
#ifndef CINCH_COMPILER_SOLVE_PARAMETERWORK_H
#define CINCH_COMPILER_SOLVE_PARAMETERWORK_H

#include "compiler/solve/RowBlocks.h"

namespace cinch::solve {

// The step with such work in the main loop, each kernel before the first one that reads what it makes: all of it, and the largest results alone that
// are half of the bytes. Work stays where it is if anything outside of the main loop reads its results. None where nothing can be moved, or only little,
// where steps overlap, and where micro-batches differ in the order of the parts of the loop.
std::vector<RowBlocked> withParameterWorkInLoop(const RowBlocked &);

} // namespace cinch::solve
#endif
