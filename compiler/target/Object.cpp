// Object.cpp: object code through LLVM's own pipeline, in process. Nothing is unrolled (Pipeline.h), which halves compile time, too.
#include "compiler/target/Object.h"
#include "compiler/target/Pipeline.h"
#include "compiler/target/VerifyNumbers.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/DiagnosticInfo.h"
#include "llvm/IR/DiagnosticPrinter.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/MCSubtargetInfo.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <map>
#include <mutex>

using namespace llvm;

namespace cinch::target {

static bool isHost(const std::string &cpu) { return cpu.empty() || cpu == "native"; }

std::unique_ptr<TargetMachine> createMachine(const std::string &cpu, std::string *error) {
  static std::once_flag once; // several threads ask for machines
  std::call_once(once, [] {
    InitializeNativeTarget();
    InitializeNativeTargetAsmPrinter();
  });
  Triple triple(sys::getDefaultTargetTriple());
  const Target *target = TargetRegistry::lookupTarget(triple, *error);
  if (!target)
    return nullptr;
  auto isKnown = [&] {
    std::unique_ptr<MCSubtargetInfo> known(target->createMCSubtargetInfo(triple, "", ""));
    return known && known->isCPUStringValid(cpu);
  };
  if (!isHost(cpu) && !isKnown()) {
    *error = "unknown cpu '" + cpu + "' for " + triple.str();
    return nullptr;
  }
  std::string features;
  if (isHost(cpu)) {
    for (auto &feature : sys::getHostCPUFeatures())
      features += (features.empty() ? "" : ",") + std::string(feature.second ? "+" : "-") + feature.first().str();
  }
  TargetOptions options;
  options.AllowFPOpFusion = FPOpFusion::Standard;
  options.FunctionSections = true;
  options.DataSections = true;
  std::unique_ptr<TargetMachine> machine(
      target->createTargetMachine(triple, isHost(cpu) ? sys::getHostCPUName() : StringRef(cpu), features, options,
                                  Reloc::PIC_, std::nullopt, CodeGenOptLevel::Default));
  if (!machine) {
    *error = "no code generator for " + triple.str();
    return nullptr;
  }
  // Without the instruction, llvm.fma would become a call of the C library.
  if (!machine->getMCSubtargetInfo()->checkFeatures("+avx2,+fma")) {
    *error = "cpu '" + machine->getTargetCPU().str() + "' has no fused multiply-add; expected AVX2 and FMA, or AVX-512";
    return nullptr;
  }
  return machine;
}

static kernels::TargetInfo readInfo(const std::string &cpu) {
  kernels::TargetInfo info;
  std::string error;
  auto machine = createMachine(cpu, &error);
  auto has = [&](const char *features) { return machine && machine->getMCSubtargetInfo()->checkFeatures(features); };
  bool wide = has("+avx512f,+avx512vl,+avx512bw,+avx512dq");
  info.lanes = wide ? 16 : machine ? 8 : 0;
  const bool words = wide && has("+avx512bf16");
  info.amx = words && has("+amx-tile,+amx-bf16");
  // Sapphire Rapids, Emerald Rapids and Granite Rapids. A virtual machine may hide their AMX.
  const bool rapids = wide && machine->getTargetCPU().contains("rapids");
  // They take two cycles for a vdpbf16ps (Sapphire Rapids, measured), in which they begin four FMAs.
  info.dots = words && !rapids;
  info.fewLoads = rapids;
  return info;
}

kernels::TargetInfo infoOf(const std::string &cpu) {
  // A machine takes a millisecond, and every phase asks.
  static std::mutex mutex;
  static std::map<std::string, kernels::TargetInfo> known;
  std::lock_guard<std::mutex> lock(mutex);
  auto [place, isNew] = known.try_emplace(cpu);
  if (isNew)
    place->second = readInfo(cpu);
  return place->second;
}

std::vector<std::string> instructionSetsOf(const std::string &cpu, bool bf16) {
  std::string error;
  auto machine = createMachine(cpu, &error);
  std::vector<std::string> sets;
  for (StringRef name : {"avx2", "fma", "bmi", "bmi2", "avx512f", "avx512vl", "avx512bw", "avx512dq", "avx512cd", "avx512vbmi", "avx512vbmi2",
                         "avx512vnni", "avx512bitalg", "avx512vpopcntdq", "avx512vp2intersect", "avx512bf16", "gfni", "amx-tile", "amx-bf16"})
    if (machine && (bf16 || !name.starts_with("amx")) && machine->getMCSubtargetInfo()->checkFeatures(("+" + name).str()))
      sets.push_back(name.str());
  return sets;
}

static std::unique_ptr<Module> optimizeBy(Optimizer &optimizer, mlir::ModuleOp source, LLVMContext &context, TargetMachine &machine) {
  // LLVM would print an error of its own and end the process.
  context.setDiagnosticHandlerCallBack(
      [](const DiagnosticInfo *info, void *) {
        if (info->getSeverity() != DS_Error)
          return;
        std::string text;
        raw_string_ostream stream(text);
        DiagnosticPrinterRawOStream printer(stream);
        info->print(printer);
        report_fatal_error(Twine(text));
      },
      nullptr);
  std::unique_ptr<Module> module = mlir::translateModuleToLLVMIR(source, context);
  if (!module)
    return nullptr;
  module->setTargetTriple(machine.getTargetTriple());
  module->setDataLayout(machine.createDataLayout());
  for (Function &function : *module) {
    if (function.isDeclaration())
      continue;
    function.addFnAttr(Attribute::NoUnwind);
    function.addFnAttr("target-cpu", machine.getTargetCPU());
    function.addFnAttr("target-features", machine.getTargetFeatureString());
    function.addFnAttr("prefer-vector-width", "512"); // where the CPU has it: skylake would halve our vectors
  }

  optimizer.run(*module);
  std::string fault = verifyNumbers(*module);
  if (!fault.empty()) {
    source.emitError("internal error: generated code breaks the numbers contract: ") << fault;
    return nullptr;
  }
  return module;
}

std::unique_ptr<Module> optimizeForMachine(mlir::ModuleOp source, LLVMContext &context, TargetMachine &machine) {
  Optimizer optimizer(machine, /*unrolls=*/false);
  return optimizeBy(optimizer, source, context, machine);
}

mlir::LogicalResult emitCode(Module &module, TargetMachine &machine, CodeFile kind, SmallVectorImpl<char> &bytes) {
  raw_svector_ostream stream(bytes);
  legacy::PassManager passes;
  auto type = kind == CodeFile::Object ? CodeGenFileType::ObjectFile : CodeGenFileType::AssemblyFile;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, type))
    return mlir::failure();
  passes.run(module);
  return mlir::success();
}

// LLVM's passes for code generation may run again for another module of the same context (llc has an option that tests it).
struct ObjectEmitter::State {
  explicit State(TargetMachine &machine) : machine(machine), optimizer(machine, /*unrolls=*/false) {}
  TargetMachine &machine;
  Optimizer optimizer;
  LLVMContext context;
  SmallVector<char, 0> bytes;
  raw_svector_ostream stream{bytes};
  legacy::PassManager passes;
  bool emits = false;
};

ObjectEmitter::ObjectEmitter(TargetMachine &machine) : state(new State(machine)) {
  state->emits = !machine.addPassesToEmitFile(state->passes, state->stream, nullptr, CodeGenFileType::ObjectFile);
}

ObjectEmitter::~ObjectEmitter() = default;

mlir::LogicalResult ObjectEmitter::emit(mlir::ModuleOp source, SmallVectorImpl<char> &bytes) {
  if (!state->emits)
    return source.emitError("internal error: this target cannot emit objects");
  auto module = optimizeBy(state->optimizer, source, state->context, state->machine);
  if (!module)
    return mlir::failure();
  state->bytes.clear();
  state->passes.run(*module);
  bytes.assign(state->bytes.begin(), state->bytes.end());
  return mlir::success();
}

} // namespace cinch::target
