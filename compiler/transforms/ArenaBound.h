// ArenaBound.h: bytes that no plan of a function can do without; no plan is made to know them.
#ifndef CINCH_COMPILER_TRANSFORMS_ARENABOUND_H
#define CINCH_COMPILER_TRANSFORMS_ARENABOUND_H

#include "compiler/transforms/Decision.h"

namespace cinch {

// Of a function of kernels, at the micro-batch of the options. 0: nothing is known, and decidePlan says why.
int64_t arenaBound(mlir::func::FuncOp function, const DecideOptions &);

} // namespace cinch
#endif
