// Calibrate.cpp: the two commands, from a measurement to a profile that is whole at every moment.
#include "compiler/calibrate/Calibrate.h"

#include "compiler/calibrate/Measure.h"
#include "compiler/calibrate/Tune.h"
#include "compiler/target/Object.h"
#include "compiler/target/TemporaryFile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"

#include <chrono>

namespace cinch::calibrate {

static double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// Under another name first: whoever compiles meanwhile reads the old profile or the new one. Of a link, what it leads to is replaced. `make` gives the
// text, and an exit code; if that is not 0, it said why.
static int writeWhole(const std::string &output, llvm::function_ref<int(std::string &text)> make) {
  llvm::SmallString<256> file(output);
  auto unwritable = [&](std::error_code code) {
    llvm::errs() << "cinch: cannot write '" << output << "': " << code.message() << "\n";
    return 5;
  };
  std::error_code code;
  if (llvm::StringRef folder = llvm::sys::path::parent_path(output); !folder.empty())
    code = llvm::sys::fs::create_directories(folder);
  if (!code && llvm::sys::fs::exists(output))
    code = llvm::sys::fs::real_path(output, file);
  if (!code && llvm::sys::fs::is_directory(file)) // before anything is measured
    code = std::make_error_code(std::errc::is_a_directory);
  target::TemporaryFile temporary;
  if (!code)
    code = temporary.makeBeside(file.str().str());
  if (code)
    return unwritable(code);
  std::string text;
  if (int status = make(text))
    return status;
  code = temporary.write(text);
  if (!code)
    code = temporary.renameTo(file.str().str());
  return code ? unwritable(code) : 0;
}

int calibrate(const std::string &compiler, const std::string &output, int threads) {
  if (output.empty()) {
    llvm::errs() << "cinch: calibrate: neither XDG_CONFIG_HOME nor HOME says where profiles are kept; name a file with -o\n";
    return 5;
  }
  double begin = now();
  int status = writeWhole(output, [&](std::string &text) {
    analysis::Profile profile;
    std::string problem;
    const int failed = measureMachine(compiler, threads, profile, problem);
    if (failed)
      llvm::errs() << "cinch: calibrate: " << problem << "\n";
    text = analysis::profileText(profile);
    return failed;
  });
  if (status == 0)
    llvm::outs() << llvm::formatv("written to {0} in {1:F0} s\n", output, now() - begin);
  return status;
}

static bool readProfile(const std::string &path, analysis::Profile &profile, std::string &problem) {
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    problem = file.getError().message();
  return file && analysis::parseProfile((*file)->getBuffer().str(), profile, problem);
}

bool hasProfile(const std::string &path, std::string &problem) {
  analysis::Profile profile;
  if (!llvm::sys::fs::exists(path))
    return false;
  return readProfile(path, profile, problem) && profile.cpu == llvm::sys::getHostCPUName();
}

bool mayReplace(const std::string &path) {
  if (!llvm::sys::fs::exists(path))
    return true;
  auto file = llvm::MemoryBuffer::getFile(path);
  return file && analysis::isProfile((*file)->getBuffer().str());
}

// One line a product.
static std::string lineOf(const Product &product, const Tuned &tuned) {
  const kernels::Tiling &t = tuned.tiling;
  std::string result = tuned.kept ? llvm::formatv("{0:F1}   {1}x{2} vectors, {3} steps, {4} and {5} KiB", product.flops / tuned.after / 1e9, t.rows,
                                                  t.vectors, t.steps, t.near >> 10, t.far >> 10)
                                        .str()
                                  : "as before";
  return llvm::formatv("{0,5}  {1,-58} {2,7:F1}  {3}\n", product.calls, product.text, product.flops / tuned.before / 1e9, result);
}

int tune(mlir::ModuleOp scheduled, const std::string &path, int threads, double limit) {
  double begin = now();
  std::vector<Product> products = productsOf(scheduled);
  const std::string cpu = "native"; // LLVM's name of it may have instructions that this machine hides
  kernels::TileTable found;
  llvm::outs() << llvm::formatv("{0} products of the program, on {1} thread{2}; GFLOP/s by the built-in rules and by what was found\n", products.size(),
                                threads, threads == 1 ? "" : "s")
               << "calls  product                                                     before  after\n";
  double total = 0, left = 0;
  for (const Product &product : products)
    left += product.flops * product.calls;
  size_t done = 0, kept = 0;
  for (const Product &product : products) {
    double remaining = limit - (now() - begin);
    if (remaining <= 0)
      break;
    // The share of the work that is left, but no product so little that it shows nothing, none all of the time.
    double share = product.flops * product.calls / left;
    left -= product.flops * product.calls;
    Tuned tuned;
    std::string error;
    if (!tuneProduct(product, cpu, threads, std::min(remaining, std::max(3.0, std::min(0.5, share) * remaining)), tuned, error)) {
      llvm::errs() << "cinch: calibrate: " << product.text << ": " << error << "\n";
      return 70;
    }
    ++done;
    if (tuned.tooLarge)
      llvm::outs() << llvm::formatv("{0,5}  {1,-58} takes more than half of this machine's memory: left as it is\n", product.calls, product.text);
    else if (tuned.before > 0)
      llvm::outs() << lineOf(product, tuned);
    llvm::outs().flush();
    total += tuned.kept ? (tuned.before - tuned.after) * product.calls : 0;
    if (tuned.kept)
      found.tilings[kernels::shapeText(product.spec, target::infoOf(cpu))] = tuned.tiling, ++kept;
  }
  int status = writeWhole(path, [&](std::string &text) {
    analysis::Profile profile; // as it is now: somebody else may have tuned meanwhile
    std::string problem;
    if (!readProfile(path, profile, problem)) {
      llvm::errs() << "cinch: calibrate: cannot read '" << path << "': " << problem << "\n";
      return 1;
    }
    for (size_t i = 0; i < done; ++i)
      profile.tiles.tilings.erase(kernels::shapeText(products[i].spec, target::infoOf(cpu)));
    for (auto &[shape, tiling] : found.tilings)
      profile.tiles.tilings[shape] = tiling;
    text = analysis::profileText(profile);
    return 0;
  });
  if (status)
    return status;
  if (done < products.size())
    llvm::outs() << llvm::formatv("the time was over before {0} of them; --time-limit gives more\n", products.size() - done);
  llvm::outs() << llvm::formatv("{0} have a quicker tiling, which saves {1:F2} ms if each kernel is called once; written to {2} in {3:F0} s\n",
                                kept, total * 1e3, path, now() - begin);
  return 0;
}

} // namespace cinch::calibrate
