// VerifyNumbers.h: the lint of the final LLVM IR against the numbers contract.
#ifndef CINCH_COMPILER_TARGET_VERIFYNUMBERS_H
#define CINCH_COMPILER_TARGET_VERIFYNUMBERS_H

#include <string>

namespace llvm {
class Module;
}

namespace cinch::target {

// Empty if the module keeps the contract, else the first thing that breaks it: a fast-math flag, llvm.fmuladd, a float
// reduction, bfloat arithmetic, minnum/maxnum, or a mathematical function in f32 (intrinsic or libm call).
std::string verifyNumbers(const llvm::Module &);

} // namespace cinch::target
#endif
