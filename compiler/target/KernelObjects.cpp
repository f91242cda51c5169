// KernelObjects.cpp: a kernel travels as text. The text, without locations and with the same name for all, is what the cache knows it
// by; each thread reads it into a context of its own, so that threads share nothing of MLIR or LLVM.
#include "compiler/target/KernelObjects.h"
#include "compiler/target/KernelTexts.h"
#include "compiler/target/LowerKernels.h"
#include "compiler/target/Object.h"
#include "compiler/target/Version.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/Parser/Parser.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Target/TargetMachine.h"

#include <atomic>

using namespace mlir;

namespace cinch::target {

namespace {

struct Work {
  std::string text; // one function, called kName
  KernelObjects::Object *object;
  std::string error;
};

constexpr StringRef kName = "kernel";

bool refersToOthers(func::FuncOp function) {
  return function
      .walk([&](Operation *op) {
        bool refers = false;
        for (NamedAttribute attribute : op->getAttrs())
          attribute.getValue().walk([&](SymbolRefAttr) { refers = true; });
        return refers ? WalkResult::interrupt() : WalkResult::advance();
      })
      .wasInterrupted();
}

std::string textOf(func::FuncOp function) {
  std::string text, name = function.getName().str();
  llvm::raw_string_ostream out(text);
  function.setName(kName);
  function->print(out, OpPrintingFlags().useLocalScope().assumeVerified());
  function.setName(name);
  return text;
}

// What decides the object beside the text: the CPU, LLVM, and how this compiler lowers.
std::string surroundings(const llvm::TargetMachine &machine) {
  return "\n" + machine.getTargetTriple().str() + "\n" + machine.getTargetCPU().str() + "\n" + machine.getTargetFeatureString().str() +
         "\n" + LLVM_VERSION_STRING + "\n" + targetVersion();
}

void generate(Work &work, MLIRContext &context, ObjectEmitter &emitter) {
  std::string said;
  ScopedDiagnosticHandler handler(&context, [&](Diagnostic &diagnostic) {
    said += diagnostic.str() + "\n";
    return success();
  });
  auto fail = [&](const char *what) { work.error = std::string(what) + (said.empty() ? "" : ": " + said); };
  OwningOpRef<ModuleOp> module = parseSourceString<ModuleOp>(work.text, ParserConfig(&context, /*verifyAfterParse=*/false));
  if (!module)
    return fail("a kernel cannot be read again");
  auto function = module->lookupSymbol<func::FuncOp>(kName);
  if (!function)
    return fail("a kernel was lost");
  function.setName(work.object->symbol);
  function.setPublic();
  if (failed(lowerKernels(*module)))
    return fail("a kernel cannot be lowered");
  if (failed(emitter.emit(*module, work.object->bytes)))
    return fail("no code for a kernel");
}

} // namespace

KernelObjects compileKernels(ModuleOp kernels, const std::string &cpu, const KernelCache &cache, int threads) {
  KernelObjects result;
  auto machine = createMachine(cpu, &result.error);
  if (!machine)
    return result;
  const std::string around = surroundings(*machine);
  SmallVector<func::FuncOp> functions;
  for (func::FuncOp function : kernels.getOps<func::FuncOp>())
    if (!function.isExternal() && !refersToOthers(function))
      functions.push_back(function);
  result.objects.resize(functions.size());
  std::vector<Work> missing;
  for (auto [function, object] : llvm::zip_equal(functions, result.objects)) {
    mergeConstants(function);
    std::string text = textOf(function);
    llvm::XXH128_hash_t hash = llvm::xxh3_128bits(llvm::arrayRefFromStringRef(text + around));
    std::string key = llvm::utohexstr(hash.high64, true, 16) + llvm::utohexstr(hash.low64, true, 16);
    object.symbol = "kernel_" + key;
    result.symbolOf[function.getName()] = object.symbol;
    if (auto bytes = cache.find(object.symbol)) {
      object.bytes = std::move(*bytes);
      object.found = true;
    } else {
      missing.push_back({std::move(text), &object, ""});
    }
    function.erase();
  }

  // The largest first, so that no thread is left with one while the others are done.
  llvm::stable_sort(missing, [](const Work &a, const Work &b) { return a.text.size() > b.text.size(); });
  std::atomic<size_t> next{0};
  auto run = [&] {
    DialectRegistry registry;
    registerKernelDialects(registry);
    MLIRContext context(registry, MLIRContext::Threading::DISABLED);
    context.loadAllAvailableDialects();
    // A machine reads the tables of its CPU at the first kernel, and serves the thread for all others.
    std::string error;
    auto machine = createMachine(cpu, &error);
    ObjectEmitter emitter(*machine);
    for (size_t i; (i = next++) < missing.size();) {
      generate(missing[i], context, emitter);
      if (missing[i].error.empty())
        cache.keep(missing[i].object->symbol, missing[i].object->bytes);
    }
  };
  onThreads(threads, missing.size(), run);
  for (const Work &work : missing)
    if (!work.error.empty())
      result.error = work.error;
  if (!missing.empty())
    cache.trim();
  return result;
}

std::string writeArchive(const KernelObjects &kernels, const std::string &path) {
  std::vector<llvm::NewArchiveMember> members;
  std::vector<std::string> names;
  for (const KernelObjects::Object &object : kernels.objects)
    names.push_back(object.symbol + ".o");
  for (auto [object, name] : llvm::zip_equal(kernels.objects, names)) {
    llvm::NewArchiveMember member(llvm::MemoryBufferRef(StringRef(object.bytes.data(), object.bytes.size()), name));
    member.MemberName = name;
    members.push_back(std::move(member));
  }
  llvm::Error error = llvm::writeArchive(path, members, llvm::SymtabWritingMode::NormalSymtab, llvm::object::Archive::K_GNU,
                                         /*Deterministic=*/true, /*Thin=*/false);
  return error ? toString(std::move(error)) : "";
}

} // namespace cinch::target
