// Product.cpp: links what was compiled.
#include "compiler/tools/Product.h"

#include "compiler/phases/InternalError.h"
#include "compiler/phases/LibraryHeader.h"
#include "compiler/target/Library.h"
#include "compiler/target/Link.h"
#include "compiler/tools/Complain.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/ToolOutputFile.h"
#include "llvm/Support/raw_ostream.h"

namespace cinch {

std::string ownFile(const char *self) { return llvm::sys::fs::getMainExecutable(self, reinterpret_cast<void *>(&ownFile)); }

static std::string runtimeArchive(const char *self) {
  llvm::SmallString<256> path(ownFile(self));
  llvm::sys::path::remove_filename(path);
  llvm::sys::path::append(path, "..", "lib", "libcinchrt.a");
  return path.str().str();
}

int writeOutput(const std::string &path, llvm::StringRef bytes) {
  const std::string place = target::behindLinks(path);
  std::error_code error;
  auto write = [&](llvm::raw_fd_ostream &out) {
    if (error)
      return;
    out << bytes;
    out.close();
    error = out.error();
    out.clear_error();
  };
  if (llvm::sys::fs::is_symlink_file(place)) { // to a pipe, say: there is no file that could be removed
    llvm::raw_fd_ostream out(place, error);
    write(out);
  } else { // removed again if it is not written to its end
    llvm::ToolOutputFile file(place, error, llvm::sys::fs::OF_None);
    write(file.os());
    if (!error)
      file.keep();
  }
  if (error)
    complain("cinch: cannot write '" + path + "': " + error.message() + "\n", "output");
  return error ? 5 : 0;
}

void printSummary(const Compilation &compilation) {
  for (const std::string &text : compilation.summary())
    llvm::outs() << text << "\n";
  if (!compilation.assembled.empty())
    llvm::outs() << compilation.assembled << "\n";
}

static int writeLibrary(const CommandLine &line, const Program &program, Compilation &compilation, llvm::StringRef object,
                        const std::vector<std::string> &objects, const std::string &runtime) {
  const LibraryFiles library = libraryFiles(line, program.modelName);
  const std::string names[] = {library.archive, library.shared, library.header};
  // All are written before one takes its name: one without the others is no library.
  target::TemporaryFile files[3];
  std::string error;
  size_t at = 0;
  for (; at < 3 && error.empty(); ++at) {
    beginsToWrite(names[at]);
    std::error_code code = files[at].makeBeside(names[at]);
    if (!code && at == 2)
      code = files[at].write(libraryHeader(program, line.input, compilation.arenaBytes()));
    error = code      ? code.message()
            : at == 0 ? target::writeStaticLibrary(object, compilation.kernelObjects, runtime, files[0].path())
            : at == 1 ? target::linkSharedLibrary(objects, runtime, files[1].path(), llvm::sys::path::filename(library.shared).str())
                      : "";
  }
  for (at = error.empty() ? 0 : at; at < 3 && error.empty(); ++at)
    if (std::error_code code = files[at].renameTo(names[at]))
      error = code.message();
  if (!error.empty()) {
    complain("cinch: cannot write '" + names[at - 1] + "': " + error + "\n", "output");
    return 5;
  }
  beginsToWrite("standard output");
  printSummary(compilation);
  llvm::outs() << "library      " << library.archive << ", " << library.shared << ", " << library.header << "\n";
  return 0;
}

// False: it cannot be made, which is said.
static bool makeTemporary(target::TemporaryFile &file, const char *ending) {
  std::error_code error = file.make(ending);
  if (error)
    complain("cinch: cannot make the temporary file '" + file.path() + "': " + error.message() + "\n", "output");
  return !error;
}

static target::Linking linkingOf(const CompileOptions &options) {
  if (options.target.isDevice())
    return options.workers() > 1 ? target::Linking::WithPeersAndDevice : target::Linking::WithDevice;
  return options.workers() > 1 ? target::Linking::WithPeers : target::Linking::Static;
}

namespace {
// What is linked: the object of the program and the archive of its kernels, in temporary files.
class LinkInput {
public:
  int write(const Compilation &compilation, llvm::StringRef object) {
    if (!makeTemporary(program, "o") || !makeTemporary(kernels, "a"))
      return 5;
    std::error_code error = program.write(object);
    if (error)
      return cannotWrite(program, error.message());
    beginsToWrite(kernels.path());
    std::string problem = target::writeArchive(compilation.kernelObjects, kernels.path());
    return problem.empty() ? 0 : cannotWrite(kernels, problem);
  }
  std::vector<std::string> objects() const { return {program.path(), kernels.path()}; }

private:
  static int cannotWrite(const target::TemporaryFile &file, const std::string &why) {
    complain("cinch: cannot write '" + file.path() + "': " + why + "\n", "output");
    return 5;
  }
  target::TemporaryFile program, kernels;
};
} // namespace

int linkProduct(const CommandLine &line, const Program &program, Compilation &compilation, llvm::StringRef object, const char *self,
                       const CompileOptions &options, int64_t &leftOver) {
  LinkInput input;
  if (int status = input.write(compilation, object))
    return status;
  if (line.emit == "lib")
    return writeLibrary(line, program, compilation, object, input.objects(), runtimeArchive(self));
  beginsToWrite(line.output);
  std::string error = target::linkExecutable(input.objects(), runtimeArchive(self), line.output,
                                             [&](int64_t bytes) { return (leftOver = compilation.leftOverBy(bytes)) >= 0; },
                                             linkingOf(options));
  beginsToWrite("standard output");
  if (!error.empty()) {
    complain("cinch: cannot write '" + line.output + "': " + error + "\n", "output");
    return 5;
  }
  return 0;
}

// Where nothing can be linked, nothing is known to be left over.
int measureProduct(Compilation &compilation, llvm::StringRef object, const char *self, const CompileOptions &options, int64_t &leftOver) {
  LinkInput input;
  if (int status = input.write(compilation, object))
    return status;
  auto measure = [&](int64_t bytes) {
    leftOver = compilation.leftOverBy(bytes);
    return false;
  };
  (void)target::linkExecutable(input.objects(), runtimeArchive(self), "/dev/null", measure, linkingOf(options));
  beginsToWrite("standard output");
  return 0;
}

} // namespace cinch
