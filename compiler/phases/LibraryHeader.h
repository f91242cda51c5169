// LibraryHeader.h: the C header of a library: what the program's fields, metrics, results and parameters are, then the functions.
#ifndef CINCH_COMPILER_PHASES_LIBRARYHEADER_H
#define CINCH_COMPILER_PHASES_LIBRARYHEADER_H

#include "compiler/frontend/Program.h"

namespace cinch {

std::string libraryHeader(const Program &, const std::string &source, int64_t arenaBytes);

} // namespace cinch
#endif
