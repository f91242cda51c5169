// InternalError.h: how the compiler says that it is itself at fault.
#ifndef CINCH_COMPILER_PHASES_INTERNALERROR_H
#define CINCH_COMPILER_PHASES_INTERNALERROR_H

#include "llvm/ADT/Twine.h"

#include <string>

namespace mlir {
class MLIRContext;
}

namespace cinch {

// Says on standard error what is wrong, that it is not the user's fault, what to try and where to report it.
// Returns the exit code of such an end, 70.
int internalError(const llvm::Twine &what);
// From here on no other plan is recommended: what runs makes none.
void thereIsNoPlan();

// From here on a fatal error of LLVM, a crash and a call of abort end like this, too, and memory that is not there ends with 5.
void catchFatalErrors();

// From here on this is written, a file or standard output, by streams of LLVM and the linker: where one of them has no place, it is named, and
// what LLVM removes when a signal ends the process is removed.
void beginsToWrite(std::string path);

// What passes report while it lives: none of it is printed as MLIR would. A user's program that passed the checker is right, so
// an error of a pass is one of the compiler. Remarks are printed if they were asked for.
class PassErrors {
public:
  PassErrors(mlir::MLIRContext &context, bool remarks);
  ~PassErrors();
  PassErrors(const PassErrors &) = delete;
  // Empty if there was none; "gpt.cinch:12: .." otherwise.
  std::string text;

private:
  mlir::MLIRContext &context;
  uint64_t handler;
};

} // namespace cinch
#endif
