// Complain.h: what the driver says of no place in a file.
#ifndef CINCH_COMPILER_TOOLS_COMPLAIN_H
#define CINCH_COMPILER_TOOLS_COMPLAIN_H

#include "llvm/ADT/StringRef.h"

namespace cinch {

// Reads --diagnostics-format of all arguments, before anything can be wrong with the others: errors of usage are objects then, too.
void chooseFormat(int argc, const char *const *argv);
// `text` ends its last line. `code` says of what kind it is: "usage", "input", "budget".
void complain(llvm::StringRef text, const char *code);

} // namespace cinch
#endif
