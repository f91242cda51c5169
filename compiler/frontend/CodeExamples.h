// CodeExamples.h: a wrong and a right text for every code.
#ifndef CINCH_COMPILER_FRONTEND_CODEEXAMPLES_H
#define CINCH_COMPILER_FRONTEND_CODEEXAMPLES_H

#include "compiler/frontend/Diagnostics.h"

namespace cinch {

struct CodeExample {
  // Where the texts stand (ForeignWords.def, CodeExamples.def).
  enum Place { Value, Body, Use, Item, Clause, Optimizer, Items, Loss, File, CommandLine } place;
  Code code;
  const char *wrong, *right;
};
const std::vector<CodeExample> &codeExamples();

// As `cinch explain` prints it; "" if the code has none.
std::string exampleText(Code code);

} // namespace cinch
#endif
