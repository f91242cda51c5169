// GenerateCode.cpp: from planned functions to an object: kernels and host code, then LLVM.
#include "compiler/phases/Compile.h"
#include "compiler/target/Assemble.h"
#include "compiler/target/LowerKernels.h"
#include "compiler/target/Object.h"
#include "dialects/nn/NN.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;

namespace cinch {

bool Compilation::lower() {
  kernels = ModuleOp::create(UnknownLoc::get(&context));
  host = std::make_unique<HostCode>(*kernels, options.target);
  for (EntryPlan &entry : entries)
    if (failed(host->addKernels(functionOf(entry))))
      return false;
  return succeeded(target::verifyKernelNumbers(*kernels));
}

bool Compilation::generateDeviceCode() {
  deviceCode = target::compileForDevice(*kernels, host->deviceKernels, options.target.arch, target::KernelCache(options.kernelCache), deviceThreads,
                                        options.deviceIr);
  if (deviceCode.error.empty()) {
    deviceCode.ir += "\n" + host->linesOfKernels();
    std::string names;
    for (const target::DeviceKernel &kernel : host->deviceKernels)
      names += kernel.name + " " + std::to_string(kernel.shared) + "\n";
    addText(*kernels, "cinch_device_code", deviceCode.ptx);
    addText(*kernels, "cinch_device_kernels", names);
    requireSymbol(*kernels, "cinch_open_device"); // the runtime's part for GPUs is linked where somebody asks for it
    if (!options.assembler.empty()) {
      target::Assembled made = target::assemble(options.assembler, deviceCode.ptx, options.target.arch, target::KernelCache(options.kernelCache));
      assembled = made.error.empty() ? "code         PTX, and machine code for " + options.target.arch + " by " + options.assembler
                                     : "code         PTX alone: " + options.assembler + ": " + made.error;
      if (made.error.empty())
        addText(*kernels, "cinch_device_cubin", made.cubin);
    }
    return true;
  }
  emitError(UnknownLoc::get(&context)) << "internal error: phase 'llvm': " << deviceCode.error;
  return false;
}

bool Compilation::compileKernels(int threads) {
  if (options.target.isDevice()) { // one text, in the program's object
    deviceThreads = threads;
    return true;
  }
  kernelObjects = target::compileKernels(*kernels, options.target.cpu.name, target::KernelCache(options.kernelCache), threads);
  if (kernelObjects.error.empty())
    return true;
  emitError(UnknownLoc::get(&context)) << "internal error: phase 'llvm': " << kernelObjects.error;
  return false;
}

// Kernels that have objects of their own are declared, under the names that they have there.
static void declareKernels(ModuleOp module, const target::KernelObjects &objects) {
  if (objects.symbolOf.empty())
    return;
  MLIRContext *context = module.getContext();
  OpBuilder builder(context);
  auto pointer = LLVM::LLVMPointerType::get(context);
  Type i64 = builder.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {pointer, pointer, pointer, i64, i64});
  builder.setInsertionPointToStart(module.getBody());
  llvm::StringSet<> declared;
  for (const target::KernelObjects::Object &object : objects.objects)
    if (declared.insert(object.symbol).second)
      LLVM::LLVMFuncOp::create(builder, module.getLoc(), object.symbol, type);
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](FlatSymbolRefAttr reference) -> std::optional<Attribute> {
    auto found = objects.symbolOf.find(reference.getValue());
    if (found == objects.symbolOf.end())
      return std::nullopt;
    return FlatSymbolRefAttr::get(context, found->second);
  });
  replacer.recursivelyReplaceElementsIn(module);
}

bool Compilation::lowerToLLVM() {
  if (options.target.isDevice() ? !generateDeviceCode() : failed(target::lowerKernels(*kernels)))
    return false;
  host->addTables();
  for (size_t i = 0, entry = 0; i < entries.size(); ++entry) {
    std::string name = entries[i].name;
    SmallVector<func::FuncOp> functions(size_t(workers.count)); // null: a worker has nothing to do
    for (; i < entries.size() && entries[i].name == name; ++i)
      functions[size_t(entries[i].worker)] = functionOf(entries[i]);
    host->addEntry(functions, name == "train" ? "cinch_train_step" : "cinch_" + name, int(entry), name != "train");
  }
  const std::string text = metadata();
  metadataBytes = int64_t(text.size());
  said = summary();
  // All that the object needs is in `kernels` and this text now: LLVM takes the memory of the rest.
  host.reset();
  module = nullptr;
  for (EntryPlan &entry : entries)
    entry.outcome = {};
  addText(*kernels, "cinch_meta", text);
  declareKernels(*kernels, kernelObjects);
  llvm::StringSet<> apart;
  for (const target::KernelObjects::Object &object : kernelObjects.objects)
    apart.insert(object.symbol);
  // The only outside calls are those of runtime.h.
  static const char *known[] = {"cinch_launch", "cinch_zero", "cinch_copy", "cinch_set", "cinch_fill", "cinch_emit", "cinch_gate", "cinch_send", "cinch_receive", "cinch_receive_sum",
                                "cinch_await_sums", "cinch_fetch", "cinch_store", "cinch_await"};
  for (auto function : kernels->getOps<LLVM::LLVMFuncOp>())
    if (function.isExternal() && !llvm::is_contained(known, function.getName()) && !apart.contains(function.getName())) {
      emitError(function.getLoc()) << "internal error: phase 'llvm': a call of '" << function.getName()
                                   << "', which is not in runtime.h";
      return false;
    }
  return true;
}

LogicalResult Compilation::emitObject(llvm::SmallVectorImpl<char> &object, bool assembly) {
  std::string error;
  auto machine = target::createMachine(options.target.cpu.name, &error);
  if (!machine)
    return emitError(UnknownLoc::get(&context)) << error;
  llvm::LLVMContext llvmContext;
  auto llvmModule = target::optimizeForMachine(*kernels, llvmContext, *machine);
  if (!llvmModule)
    return failure();
  return target::emitCode(*llvmModule, *machine, assembly ? target::CodeFile::Assembly : target::CodeFile::Object,
                          object);
}

std::string Compilation::metadata() {
  return metadataText({program, sources, *module, entries, *host, workers,
                       workers.count > 1 ? workers.seconds : entries.front().outcome.result.plan.seconds, options.target.sourceOfRates(),
                       options.target.isDevice() ? "" : options.target.cpu.name.empty() ? "native" : options.target.cpu.name, arenaBytes(), hostAt(), hostBytes(), options.budget.value_or(0), allowance(),
                       persistentBytes(), options.target.cpu.threads, programHash, summary()});
}

} // namespace cinch
