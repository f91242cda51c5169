// Product.cpp: links what was compiled.
#include "compiler/tools/Product.h"

#include "compiler/phases/InternalError.h"
#include "compiler/phases/LibraryHeader.h"
#include "compiler/target/Library.h"
#include "compiler/target/Link.h"
#include "compiler/tools/Complain.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
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
  std::error_code error;
  llvm::ToolOutputFile file(path, error, llvm::sys::fs::OF_None);
  if (!error) {
    file.os() << bytes;
    file.os().close();
    error = file.os().error();
    file.os().clear_error();
  }
  if (error) {
    complain("cinch: cannot write '" + path + "': " + error.message() + "\n", "output");
    return 5;
  }
  file.keep();
  return 0;
}

void printSummary(const Compilation &compilation) {
  for (const std::string &text : compilation.summary())
    llvm::outs() << text << "\n";
  if (!compilation.assembled.empty())
    llvm::outs() << compilation.assembled << "\n";
}

// --emit=lib -o DIR/NAME: DIR/libNAME.a, DIR/libNAME.so, DIR/NAME.h.
static int writeLibrary(const CommandLine &line, const Program &program, Compilation &compilation, llvm::StringRef object,
                        const std::vector<std::string> &objects, const std::string &runtime) {
  llvm::SmallString<256> folder(line.hasOutput ? line.output : program.modelName);
  if (folder.ends_with("/")) // a folder is named, and nothing in it
    folder += program.modelName;
  llvm::StringRef last = llvm::sys::path::filename(folder);
  if (last.consume_back(".so") || last.consume_back(".a")) // the library itself was named, not what it is called in it
    last.consume_front("lib");
  std::string name = last.empty() ? program.modelName : last.str();
  llvm::sys::path::remove_filename(folder);
  auto in = [&](const std::string &file) {
    llvm::SmallString<256> path(folder);
    llvm::sys::path::append(path, file);
    return path.str().str();
  };
  std::string archive = in("lib" + name + ".a"), shared = in("lib" + name + ".so"), header = in(name + ".h");
  beginsToWrite(archive);
  std::string where = archive, error = target::writeStaticLibrary(object, compilation.kernelObjects, runtime, archive);
  if (error.empty()) {
    where = shared;
    beginsToWrite(shared + ".tmp");
    error = target::linkSharedLibrary(objects, runtime, shared);
  }
  if (!error.empty()) {
    for (const std::string &half : {archive, shared}) // one without the other is no library
      llvm::sys::fs::remove(half);
    complain("cinch: cannot write '" + where + "': " + error + "\n", "output");
    return 5;
  }
  if (int status = writeOutput(header, libraryHeader(program, line.input, compilation.arenaBytes())))
    return status;
  printSummary(compilation);
  llvm::outs() << "library      " << archive << ", " << shared << ", " << header << "\n";
  return 0;
}

// A file of its own under a temporary name, removed with its remover. Empty: it cannot be made, which is said.
static std::string temporaryFile(const char *ending, llvm::FileRemover &remover) {
  llvm::SmallString<128> path;
  if (std::error_code error = llvm::sys::fs::createTemporaryFile("cinch", ending, path)) {
    complain("cinch: cannot make the temporary file '" + path.str().str() + "': " + error.message() + "\n", "output");
    return "";
  }
  remover.setFile(path);
  return path.str().str();
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
    objectPath = temporaryFile("o", objectRemover);
    if (objectPath.empty())
      return 5;
    if (int status = writeOutput(objectPath, object))
      return status;
    kernelsPath = temporaryFile("a", kernelsRemover);
    if (kernelsPath.empty())
      return 5;
    beginsToWrite(kernelsPath);
    std::string problem = target::writeArchive(compilation.kernelObjects, kernelsPath);
    if (problem.empty())
      return 0;
    complain("cinch: cannot write '" + kernelsPath + "': " + problem + "\n", "output");
    return 5;
  }
  std::vector<std::string> objects() const { return {objectPath, kernelsPath}; }

private:
  llvm::FileRemover objectRemover, kernelsRemover;
  std::string objectPath, kernelsPath;
};
} // namespace

int linkProduct(const CommandLine &line, const Program &program, Compilation &compilation, llvm::StringRef object, const char *self,
                       const CompileOptions &options, int64_t &missing) {
  LinkInput input;
  if (int status = input.write(compilation, object))
    return status;
  if (line.emit == "lib")
    return writeLibrary(line, program, compilation, object, input.objects(), runtimeArchive(self));
  beginsToWrite(line.output + ".tmp");
  std::string error = target::linkExecutable(input.objects(), runtimeArchive(self), line.output,
                                             [&](int64_t bytes) { return (missing = compilation.outgrownBy(bytes)) <= 0; },
                                             linkingOf(options));
  if (!error.empty()) {
    complain("cinch: cannot write '" + line.output + "': " + error + "\n", "output");
    return 5;
  }
  return 0;
}

// Where nothing can be linked, nothing is known to be missing.
int measureProduct(Compilation &compilation, llvm::StringRef object, const char *self, const CompileOptions &options, int64_t &missing) {
  LinkInput input;
  if (int status = input.write(compilation, object))
    return status;
  auto measure = [&](int64_t bytes) {
    missing = compilation.outgrownBy(bytes);
    return false;
  };
  (void)target::linkExecutable(input.objects(), runtimeArchive(self), "/dev/null", measure, linkingOf(options));
  return 0;
}

} // namespace cinch
