// KernelJit.cpp: objects go through LLVM's JIT linker, so that what runs is what the compiler would have written.
#include "compiler/target/KernelJit.h"

#include "compiler/target/LowerKernels.h"
#include "compiler/target/Object.h"

#include "mlir/IR/Builders.h"
#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/Verifier.h"
#include "llvm/ExecutionEngine/Orc/LLJIT.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <ctime>
#include <sys/syscall.h>
#include <unistd.h>

using namespace mlir;

namespace cinch::target {

struct KernelJit::State {
  std::string cpu, error, assembly;
  DialectRegistry registry;
  std::unique_ptr<MLIRContext> context;
  OwningOpRef<ModuleOp> module;
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  double seconds = 0;
};

KernelJit::KernelJit(const std::string &cpu) : state(new State) {
  state->cpu = cpu;
  registerKernelDialects(state->registry);
  state->context = std::make_unique<MLIRContext>(state->registry, MLIRContext::Threading::DISABLED);
  state->context->loadAllAvailableDialects();
  state->context->getDiagEngine().registerHandler([s = state.get()](Diagnostic &diagnostic) {
    s->error += diagnostic.str() + "\n";
    return success();
  });
  state->module = ModuleOp::create(UnknownLoc::get(state->context.get()));
}

KernelJit::~KernelJit() = default;

ModuleOp KernelJit::module() { return *state->module; }
OpBuilder KernelJit::builder() { return OpBuilder::atBlockEnd(state->module->getBody()); }
const std::string &KernelJit::error() const { return state->error; }
double KernelJit::compileSeconds() const { return state->seconds; }

// A process may use the registers of AMX once it has asked Linux for their place in its saved state.
static bool permitAmx() {
  constexpr int kRequest = 0x1023, kTileData = 18; // ARCH_REQ_XCOMP_PERM of asm/prctl.h, XFEATURE_XTILE_DATA
  static const bool permitted = syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
  return permitted;
}

bool KernelJit::compile() {
  std::clock_t start = std::clock();
  if (failed(verify(*state->module)) || failed(lowerKernels(*state->module)))
    return false;
  state->machine = createMachine(state->cpu, &state->error);
  if (!state->machine)
    return false;
  auto module = optimizeForMachine(*state->module, state->llvmContext, *state->machine);
  if (!module)
    return false;
  SmallVector<char, 0> object;
  if (failed(emitCode(*module, *state->machine, CodeFile::Object, object)))
    return false;
  state->seconds = double(std::clock() - start) / CLOCKS_PER_SEC;
  auto jit = llvm::orc::LLJITBuilder().create();
  if (!jit) {
    state->error += llvm::toString(jit.takeError());
    return false;
  }
  state->jit = std::move(*jit);
  auto buffer = llvm::MemoryBuffer::getMemBufferCopy(StringRef(object.data(), object.size()), "kernels");
  if (auto error = state->jit->addObjectFile(std::move(buffer))) {
    state->error += llvm::toString(std::move(error));
    return false;
  }
  return true;
}

KernelFunction KernelJit::lookup(const std::string &name) {
  if (infoOf(state->cpu).amx && !permitAmx()) {
    state->error += "the operating system does not let programs use AMX";
    return nullptr;
  }
  auto symbol = state->jit->lookup(name);
  if (!symbol) {
    state->error += llvm::toString(symbol.takeError());
    return nullptr;
  }
  return symbol->toPtr<KernelFunction>();
}

std::string KernelJit::assembly() {
  llvm::LLVMContext context;
  auto module = optimizeForMachine(*state->module, context, *state->machine);
  SmallVector<char, 0> text;
  if (!module || failed(emitCode(*module, *state->machine, CodeFile::Assembly, text)))
    return "";
  return std::string(text.data(), text.size());
}

} // namespace cinch::target
