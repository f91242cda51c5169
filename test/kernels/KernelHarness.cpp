// KernelHarness.cpp: objects go through LLVM's JIT linker, so that what runs is what the compiler would have written.
#include "test/kernels/KernelHarness.h"
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
#include "llvm/TargetParser/Host.h"
#include <cstring>
#include <ctime>

using namespace mlir;

namespace cinch::test {

struct KernelHarness::State {
  std::string cpu, error, assembly;
  DialectRegistry registry;
  std::unique_ptr<MLIRContext> context;
  OwningOpRef<ModuleOp> module;
  llvm::LLVMContext llvmContext;
  std::unique_ptr<llvm::TargetMachine> machine;
  std::unique_ptr<llvm::orc::LLJIT> jit;
  double seconds = 0;
};

KernelHarness::KernelHarness(const std::string &cpu) : state(new State) {
  state->cpu = cpu;
  target::registerKernelDialects(state->registry);
  state->context = std::make_unique<MLIRContext>(state->registry, MLIRContext::Threading::DISABLED);
  state->context->loadAllAvailableDialects();
  state->context->getDiagEngine().registerHandler([s = state.get()](Diagnostic &diagnostic) {
    s->error += diagnostic.str() + "\n";
    return success();
  });
  state->module = ModuleOp::create(UnknownLoc::get(state->context.get()));
}

KernelHarness::~KernelHarness() = default;

ModuleOp KernelHarness::module() { return *state->module; }
OpBuilder KernelHarness::builder() { return OpBuilder::atBlockEnd(state->module->getBody()); }
const std::string &KernelHarness::error() const { return state->error; }
double KernelHarness::compileSeconds() const { return state->seconds; }

bool KernelHarness::compile() {
  std::clock_t start = std::clock();
  if (failed(verify(*state->module)) || failed(target::lowerKernels(*state->module)))
    return false;
  state->machine = target::createMachine(state->cpu, &state->error);
  if (!state->machine)
    return false;
  auto module = target::optimizeForMachine(*state->module, state->llvmContext, *state->machine);
  if (!module)
    return false;
  SmallVector<char, 0> object;
  if (failed(target::emitCode(*module, *state->machine, target::CodeFile::Object, object)))
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

KernelFunction KernelHarness::lookup(const std::string &name) {
  auto symbol = state->jit->lookup(name);
  if (!symbol) {
    state->error += llvm::toString(symbol.takeError());
    return nullptr;
  }
  return symbol->toPtr<KernelFunction>();
}

std::string KernelHarness::assembly() {
  llvm::LLVMContext context;
  auto module = target::optimizeForMachine(*state->module, context, *state->machine);
  SmallVector<char, 0> text;
  if (!module || failed(target::emitCode(*module, *state->machine, target::CodeFile::Assembly, text)))
    return "";
  return std::string(text.data(), text.size());
}

std::vector<std::string> runnableCpus() {
  std::vector<std::string> cpus;
  auto features = llvm::sys::getHostCPUFeatures();
  if (features.lookup("avx2") && features.lookup("fma"))
    cpus.push_back("haswell");
  if (features.lookup("avx512f") && features.lookup("avx512vl") && features.lookup("avx512bw") &&
      features.lookup("avx512dq"))
    cpus.push_back("skylake-avx512");
  if (cpus.size() == 2 && features.lookup("avx512bf16"))
    cpus.push_back("cooperlake");
  return cpus;
}

void callKernel(KernelFunction function, char *arena, const int64_t *offsets, int64_t *context, int64_t threads) {
  for (int64_t thread = threads; thread-- > 0;)
    function(arena, offsets, context, thread, threads);
}

static constexpr int64_t kGuard = 128;
static constexpr char kGuardByte = 0x5b;

int Arena::add(int64_t bytes) {
  sizes.push_back(bytes);
  return int(sizes.size()) - 1;
}

void Arena::place() {
  if (base)
    return;
  int64_t end = kGuard;
  for (int64_t size : sizes) {
    offsets.push_back(end);
    end = (end + size + kGuard + 63) / 64 * 64;
  }
  storage.reset(new char[end + 64]);
  base = storage.get() + (64 - reinterpret_cast<uintptr_t>(storage.get()) % 64) % 64;
  std::memset(base, kGuardByte, end);
}

char *Arena::data() {
  place();
  return base;
}

const int64_t *Arena::offsetsOf() {
  place();
  return offsets.data();
}

bool Arena::guardsIntact() {
  place();
  for (size_t i = 0; i < sizes.size(); ++i) {
    for (int64_t b = 0; b < kGuard; ++b) {
      bool before = i > 0 || base[offsets[i] - 1 - b] == kGuardByte;
      if (!before || base[offsets[i] + sizes[i] + b] != kGuardByte)
        return false;
    }
  }
  return true;
}

} // namespace cinch::test
