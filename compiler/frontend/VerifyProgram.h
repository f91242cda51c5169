// VerifyProgram.h: the verifier at the border between the checker and the emitter. A fault it finds is a fault of the
// compiler, never of the user's file.
#ifndef CINCH_COMPILER_FRONTEND_VERIFYPROGRAM_H
#define CINCH_COMPILER_FRONTEND_VERIFYPROGRAM_H

#include "compiler/frontend/Program.h"

namespace cinch {

// "" if the program keeps everything that Program.h promises, else the first fault: "step, op 12 (Reduce): ..".
std::string verifyProgram(const Program &program);

const char *opKindName(OpKind kind);

} // namespace cinch
#endif
