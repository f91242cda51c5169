// GptShape.h: the sizes of a GPT that a program trains, for `cinch plan FILE.cinch --cluster`.
#ifndef CINCH_COMPILER_TOOLS_GPTSHAPE_H
#define CINCH_COMPILER_TOOLS_GPTSHAPE_H

#include "compiler/frontend/Program.h"
#include "compiler/solve/cluster/Cluster.h"

namespace cinch {

// Empty, or why the program is no GPT: blocks with one attention of the same shape each, and scores over a vocabulary at every position.
std::string gptShape(const Program &, solve::GptModel &);

// Its parameters in all, which need not be those of the formula.
double parametersOf(const Program &);

} // namespace cinch
#endif
