// DeviceCode.cpp: each kernel is compiled by itself, several at a time, or taken from those compiled before; then their PTX is put together.
//
// A kernel travels as text (as those of a CPU do, KernelObjects.cpp), in which it and its memory have a name that is the same for all. So equal
// kernels are one entry of the cache, and their own names are put into what comes of the text.
#include "compiler/target/DevicePiece.h"
#include "compiler/target/KernelTexts.h"
#include "compiler/target/LowerKernels.h"
#include "compiler/target/Version.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/AsmParser/Parser.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"
#include "llvm/Target/TargetMachine.h"

#include <atomic>

using namespace llvm;

namespace cinch::target {

std::string verifyPtx(const std::string &ptx, ArrayRef<std::string> approximating, ArrayRef<std::string> multiplyingInTF32) {
  SmallVector<StringRef> lines;
  StringRef(ptx).split(lines, '\n');
  bool mayApproximate = false, mayRound = false;
  for (StringRef line : lines) {
    StringRef code = line.split("//").first.trim();
    if (code.contains(".entry ")) {
      StringRef name = code.split(".entry ").second.split('(').first;
      mayApproximate = is_contained(approximating, name), mayRound = is_contained(multiplyingInTF32, name);
    }
    if (!mayRound && code.contains(".tf32"))
      return code.str();
    if (mayApproximate && (code.starts_with("ex2.approx.ftz.f32") || code.starts_with("rcp.approx.ftz.f32")))
      continue;
    for (const char *word : {".approx", ".ftz", "div.full", ".extern .func", "min.u16", "max.u16", "min.s16", "max.s16"})
      if (code.contains(word))
        return code.str();
  }
  return "";
}

namespace {

constexpr StringRef kName = "cinch_one_kernel"; // in texts; nothing else is called so

struct Work {
  std::string text; // "": the kernels of the gate
  std::string key;  // of the cache
  DeviceKernel kernel;
  DevicePiece piece;
};

std::string replaced(StringRef text, StringRef from, StringRef to) {
  std::string result;
  for (size_t at; (at = text.find(from)) != StringRef::npos; text = text.drop_front(at + from.size()))
    result.append(text.data(), at), result += to;
  return result += text;
}

// A function of the module and the memory that it refers to, called kName instead of by its own name.
std::string textOf(mlir::func::FuncOp function) {
  auto module = function->getParentOfType<mlir::ModuleOp>();
  const std::string name = function.getName().str();
  std::string text;
  raw_string_ostream out(text);
  const auto flags = mlir::OpPrintingFlags().useLocalScope().assumeVerified();
  llvm::StringSet<> printed;
  out << "module {\n";
  function.walk([&](mlir::Operation *op) {
    for (mlir::NamedAttribute attribute : op->getAttrs())
      attribute.getValue().walk([&](mlir::FlatSymbolRefAttr symbol) {
        mlir::Operation *memory = module.lookupSymbol(symbol.getValue());
        if (memory && memory != function && printed.insert(symbol.getValue()).second) {
          memory->print(out, flags);
          out << "\n";
        }
      });
  });
  function->print(out, flags);
  out << "\n}\n";
  for (const char *behind : {"_", "(", " "})
    text = replaced(text, "@" + name + behind, ("@" + kName + behind).str());
  return text;
}

// What decides the code beside the text.
std::string surroundings(const DeviceKernel &kernel, const std::string &arch) {
  std::string text;
  raw_string_ostream out(text);
  out << "\n" << kernel.workers << ' ' << kernel.lanes << ' ' << kernel.block << ' ' << kernel.words << ' ' << kernel.maps.front() << '\n'
      << arch << '\n' << LLVM_VERSION_STRING << '\n' << targetVersion();
  return text;
}

// An entry of the cache: the length of the PTX, a line end, the PTX, the IR.
std::optional<DevicePiece> pieceOf(ArrayRef<char> bytes) {
  auto [length, rest] = StringRef(bytes.data(), bytes.size()).split('\n');
  size_t size;
  if (length.getAsInteger(10, size) || size > rest.size())
    return std::nullopt;
  return DevicePiece{rest.take_front(size).str(), rest.drop_front(size).str(), ""};
}
std::string bytesOf(const DevicePiece &piece) { return std::to_string(piece.ptx.size()) + "\n" + piece.ptx + piece.ir; }

void compile(std::vector<Work *> missing, const std::string &arch, const KernelCache &cache, int threads) {
  llvm::stable_sort(missing, [](const Work *a, const Work *b) { return a->text.size() > b->text.size(); });
  std::atomic<size_t> next{0};
  auto run = [&] {
    mlir::DialectRegistry registry;
    registerKernelDialects(registry);
    mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
    context.loadAllAvailableDialects();
    std::string error;
    auto machine = createDeviceMachine(arch, error);
    for (size_t i; (i = next++) < missing.size();) {
      Work &work = *missing[i];
      work.piece = work.text.empty() ? compileControl(*machine) : compilePiece(work.text, work.kernel, context, *machine);
      if (work.piece.error.empty())
        cache.keep(work.key, bytesOf(work.piece));
    }
  };
  onThreads(threads, missing.size(), run);
  if (!missing.empty())
    cache.trim();
}

// One text: the head of the first piece, then the pieces without theirs. What several of them declare stands there once, and what the gate's kernels
// define is declared by none.
std::string joinedPtx(ArrayRef<Work> works) {
  std::string all;
  llvm::StringSet<> declared;
  for (const Work &work : works) {
    StringRef text = work.piece.ptx;
    const size_t head = text.find(".address_size");
    const size_t end = text.find('\n', head == StringRef::npos ? 0 : head) + 1;
    if (all.empty())
      all += text.take_front(end);
    SmallVector<StringRef> lines;
    text.drop_front(end).split(lines, '\n');
    for (StringRef line : lines)
      if (!line.starts_with(".extern ") || (!line.contains("cinch_control") && declared.insert(line).second))
        all += (line + "\n").str();
  }
  return all;
}

// One module, or what went wrong.
std::string joinIr(ArrayRef<Work> works, std::string &ir) {
  LLVMContext context;
  std::unique_ptr<Module> all;
  for (const Work &work : works) {
    SMDiagnostic problem;
    std::unique_ptr<Module> module = parseAssemblyString(work.piece.ir, problem, context);
    if (!module)
      return ("the code of a kernel cannot be read again: " + problem.getMessage()).str();
    if (!all)
      all = std::move(module);
    else if (Linker::linkModules(*all, std::move(module)))
      return "the code of kernels cannot be put together";
  }
  raw_string_ostream(ir) << *all;
  return "";
}

} // namespace

DeviceCode compileForDevice(mlir::ModuleOp kernels, const std::vector<DeviceKernel> &list, const std::string &arch, const KernelCache &cache, int threads,
                            bool withIr) {
  DeviceCode code;
  if (!createDeviceMachine(arch, code.error))
    return code;
  std::vector<Work> works(list.size() + 1);
  std::vector<Work *> missing;
  for (size_t i = 0; i < works.size(); ++i) {
    Work &work = works[i];
    if (i > 0) {
      work.kernel = list[i - 1];
      auto function = kernels.lookupSymbol<mlir::func::FuncOp>(work.kernel.name);
      if (!function) {
        code.error = "a kernel was lost";
        return code;
      }
      work.kernel.name = kName.str();
      mergeConstants(function);
      work.text = textOf(function);
    }
    XXH128_hash_t hash = xxh3_128bits(arrayRefFromStringRef(work.text + surroundings(work.kernel, arch)));
    work.key = "device_" + utohexstr(hash.high64, true, 16) + utohexstr(hash.low64, true, 16);
    std::optional<DevicePiece> found;
    if (auto bytes = cache.find(work.key))
      found = pieceOf(*bytes);
    if (found)
      work.piece = std::move(*found);
    else
      missing.push_back(&work);
  }
  for (mlir::Operation &op : llvm::make_early_inc_range(*kernels.getBody()))
    op.erase();
  compile(std::move(missing), arch, cache, threads);

  std::vector<std::string> approximating, multiplyingInTF32;
  for (size_t i = 0; i < works.size(); ++i) {
    Work &work = works[i];
    if (!work.piece.error.empty()) {
      code.error = work.piece.error;
      return code;
    }
    if (i == 0)
      continue;
    const DeviceKernel &kernel = list[i - 1];
    work.piece.ptx = replaced(work.piece.ptx, kName, kernel.name);
    work.piece.ir = withIr ? replaced(work.piece.ir, kName, kernel.name) : "";
    if (kernel.approximates)
      approximating.push_back(kernel.name);
    if (kernel.tf32)
      multiplyingInTF32.push_back(kernel.name);
  }
  code.ptx = joinedPtx(works);
  if (withIr)
    code.error = joinIr(works, code.ir);
  if (std::string line = verifyPtx(code.ptx, approximating, multiplyingInTF32); code.error.empty() && !line.empty())
    code.error = "the PTX may not hold: " + line;
  return code;
}

} // namespace cinch::target
