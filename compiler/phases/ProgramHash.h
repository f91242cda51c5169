// ProgramHash.h: whether a checkpoint's training may go on in another executable.
#ifndef CINCH_COMPILER_PHASES_PROGRAMHASH_H
#define CINCH_COMPILER_PHASES_PROGRAMHASH_H

#include "compiler/frontend/Program.h"

#include "mlir/IR/BuiltinOps.h"

namespace cinch {

// A hash over what decides the numbers of a training step: the computation in @train and how examples are read. Nothing of the
// plan, of evaluation and prediction, of initial values; not the values of the run, which a checkpoint names one by one
// (RunValues.h), though which of them are 0 counts where that decides the computation. 16 hex digits.
std::string hashOfTraining(mlir::ModuleOp differentiated, const Program &);

// The same things in words, for people who are told why a training cannot go on: ("batch", "32"). Those of the second list may
// differ: the numbers of the training do not depend on them.
struct Described {
  std::vector<std::pair<std::string, std::string>> decides, besides;
};
Described describedTraining(const Program &);

} // namespace cinch
#endif
