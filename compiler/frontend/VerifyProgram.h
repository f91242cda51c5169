// VerifyProgram.h: the verifier at the border between the checker and the emitter. A fault it finds is a fault of the
// compiler, never of the user's file.
#ifndef CINCH_COMPILER_FRONTEND_VERIFYPROGRAM_H
#define CINCH_COMPILER_FRONTEND_VERIFYPROGRAM_H

#include "compiler/frontend/Program.h"

namespace cinch {

// "" if the program keeps everything that Program.h promises, else the first fault: "step, op 12 (reduce): ..".
std::string verifyProgram(const Program &program);

} // namespace cinch
#endif
