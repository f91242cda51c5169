// Assemble.cpp: see Assemble.h.
#include "compiler/target/Assemble.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <cstdlib>

using namespace llvm;

namespace cinch::target {

std::string findAssembler() {
  if (auto found = sys::findProgramByName("ptxas"))
    return *found;
  for (const char *variable : {"CUDA_HOME", "CUDA_PATH"})
    if (const char *folder = std::getenv(variable); folder && *folder) {
      std::string path = std::string(folder) + "/bin/ptxas";
      if (sys::fs::can_execute(path))
        return path;
    }
  return "";
}

namespace {
// Gone when it goes out of scope.
struct TemporaryFile {
  SmallString<128> path;
  FileRemover remover;
  std::error_code error;
  explicit TemporaryFile(StringRef ending) {
    error = sys::fs::createTemporaryFile("cinch", ending, path);
    if (!error)
      remover.setFile(path);
  }
};
} // namespace

static std::string contentOf(StringRef path) {
  auto file = MemoryBuffer::getFile(path);
  return file ? (*file)->getBuffer().str() : "";
}

// Everything that decides the machine code; "": nothing is known of the assembler.
static std::string keyOf(const std::string &assembler, const std::string &ptx, const std::string &arch) {
  sys::fs::file_status status;
  if (sys::fs::status(assembler, status))
    return "";
  const std::string all = ptx + "\n" + arch + "\n" + assembler + "\n" + std::to_string(status.getSize()) + "\n" +
                          std::to_string(status.getLastModificationTime().time_since_epoch().count());
  const XXH128_hash_t hash = xxh3_128bits(arrayRefFromStringRef(all));
  return "cubin_" + utohexstr(hash.high64, true, 16) + utohexstr(hash.low64, true, 16);
}

static Assembled runAssembler(const std::string &assembler, const std::string &ptx, const std::string &arch) {
  TemporaryFile input("ptx"), output("cubin"), words("txt");
  for (const TemporaryFile *file : {&input, &output, &words})
    if (file->error)
      return {"", "a temporary file: " + file->error.message()};
  {
    std::error_code error;
    raw_fd_ostream out(input.path, error);
    out << ptx;
    out.close();
    if (error || out.has_error()) {
      out.clear_error();
      return {"", "a temporary file cannot be written"};
    }
  }
  std::string option = "-arch=" + arch, message;
  StringRef arguments[] = {assembler, option, input.path, "-o", output.path};
  std::optional<StringRef> redirects[] = {std::nullopt, StringRef(words.path), StringRef(words.path)};
  int status = sys::ExecuteAndWait(assembler, arguments, std::nullopt, redirects, 0, 0, &message);
  if (status != 0) {
    std::string said = contentOf(words.path);
    StringRef first = StringRef(said.empty() ? message : said).split('\n').first;
    return {"", first.empty() ? "it ended with " + std::to_string(status) : first.str()};
  }
  std::string cubin = contentOf(output.path);
  return {cubin, cubin.empty() ? "it wrote nothing" : ""};
}

Assembled assemble(const std::string &assembler, const std::string &ptx, const std::string &arch, const KernelCache &cache) {
  const std::string key = keyOf(assembler, ptx, arch);
  if (key.empty())
    return runAssembler(assembler, ptx, arch);
  if (auto bytes = cache.find(key))
    return {std::string(bytes->begin(), bytes->end()), ""};
  Assembled made = runAssembler(assembler, ptx, arch);
  if (made.error.empty()) {
    cache.keep(key, made.cubin);
    cache.trim();
  }
  return made;
}

} // namespace cinch::target
