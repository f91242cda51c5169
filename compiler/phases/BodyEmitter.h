// BodyEmitter.h: the body of an entry point, as code.
#ifndef CINCH_COMPILER_PHASES_BODYEMITTER_H
#define CINCH_COMPILER_PHASES_BODYEMITTER_H

#include "compiler/phases/EntryEmitter.h"
#include "compiler/phases/HostCode.h"

namespace cinch {

// `counted`: the first argument behind the context says how many micro-batches there are.
void emitBody(const HostCode &, EntryEmitter &, mlir::Block &, bool counted);

} // namespace cinch
#endif
