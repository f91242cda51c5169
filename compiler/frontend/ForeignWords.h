// ForeignWords.h: help for people who come from other frameworks.
#ifndef CINCH_COMPILER_FRONTEND_FOREIGNWORDS_H
#define CINCH_COMPILER_FRONTEND_FOREIGNWORDS_H

#include "compiler/frontend/Diagnostics.h"

namespace cinch {

struct ForeignWord {
  enum Place { Value, Body, Use, Item, Clause, Optimizer, Items } place; // as in CodeExample
  Code code;
  const char *word, *left, *right, *help;
};
// The table, as ForeignWords.def describes it.
const std::vector<ForeignWord> &foreignWords();

// The line of the table that a text matches with an error of this code at byte `at`, or null.
const ForeignWord *foreignWord(Code code, std::string_view text, size_t at);

} // namespace cinch
#endif
