// KernelBody.h: what a trained binary is told of the inside of its kernels, so that the replay of a failed step can compute one
// element of one kernel again, op by op, and name the op that made the first bad number (runtime/METADATA.md, `bodies`).
#ifndef CINCH_COMPILER_PHASES_KERNELBODY_H
#define CINCH_COMPILER_PHASES_KERNELBODY_H

#include "compiler/kernels/Kernels.h"

#include <optional>

namespace cinch {

// `words`: buffers and scratch of the launch; draw keys stand behind them. `examplesOfGroup`: as LoopTracer's.
std::vector<int64_t> kernelBody(const kernels::LoopSpec &spec, int words, int batchDim, int positionDim,
                                int64_t examplesOfGroup = 1);

// A product as products of elements and a chain over k. `batchDim` and `positionDim` count its labels (batch.., m.., n.., k..).
kernels::LoopSpec loopOfContract(const kernels::ContractSpec &spec);

} // namespace cinch
#endif
