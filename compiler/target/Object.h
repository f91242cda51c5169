// Object.h: an LLVM dialect module -> optimised LLVM IR -> object code or assembly, in process.
#ifndef CINCH_COMPILER_TARGET_OBJECT_H
#define CINCH_COMPILER_TARGET_OBJECT_H

#include "compiler/kernels/Kernels.h"

#include "mlir/Support/LLVM.h"
#include "llvm/ADT/SmallVector.h"
#include <memory>
#include <string>
#include <vector>

namespace mlir {
class ModuleOp;
}
namespace llvm {
class LLVMContext;
class Module;
class TargetMachine;
} // namespace llvm

namespace cinch::target {

// A machine to generate for, by LLVM's name ("haswell", "znver4"); "native" or "" is the CPU of this machine. Null,
// with the reason, if the name is unknown or the CPU has no fused multiply-add.
std::unique_ptr<llvm::TargetMachine> createMachine(const std::string &cpu, std::string *error);

// What kernels are built for on that CPU: its f32 lanes are 16 with AVX-512, 8 with AVX2; 0 where there is no machine.
kernels::TargetInfo infoOf(const std::string &cpu);
// By LLVM's names, the instruction sets that kernels for it may use, of those that CPUs with AVX2 and FMA differ in; those of AMX only if
// there are products of bf16.
std::vector<std::string> instructionSetsOf(const std::string &cpu, bool bf16);
inline int lanesOf(const std::string &cpu) { return infoOf(cpu).lanes; }

// Translates, optimises (nothing is unrolled or vectorised that the builders did not) and checks the result against the
// numbers contract: no fast-math flag, no llvm.fmuladd, no mathematical function in f32. Null after an error was
// emitted.
std::unique_ptr<llvm::Module> optimizeForMachine(mlir::ModuleOp, llvm::LLVMContext &, llvm::TargetMachine &);

enum class CodeFile { Object, Assembly };
mlir::LogicalResult emitCode(llvm::Module &, llvm::TargetMachine &, CodeFile, llvm::SmallVectorImpl<char> &);

// All three steps: modules of the LLVM dialect as the bytes of objects, one after the other. The passes are set up once, which takes
// a tenth of the time that a small kernel takes.
class ObjectEmitter {
public:
  explicit ObjectEmitter(llvm::TargetMachine &);
  ~ObjectEmitter();
  mlir::LogicalResult emit(mlir::ModuleOp, llvm::SmallVectorImpl<char> &);

private:
  struct State;
  std::unique_ptr<State> state;
};

} // namespace cinch::target
#endif
