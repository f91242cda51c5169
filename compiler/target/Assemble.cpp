// Assemble.cpp: see Assemble.h.
#include "compiler/target/Assemble.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

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

Assembled assemble(const std::string &assembler, const std::string &ptx, const std::string &arch) {
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

} // namespace cinch::target
