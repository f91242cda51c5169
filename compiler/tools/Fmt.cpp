// Fmt.cpp: see Fmt.h. What is written is read again first: a formatter may lose nothing.
#include "compiler/tools/Fmt.h"
#include "compiler/frontend/Format.h"
#include "compiler/frontend/Parser.h"
#include "compiler/phases/InternalError.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

namespace cinch {

// Beside the file, then renamed over it: whoever reads it meanwhile sees the old text or the new one.
static bool replaceFile(const std::string &path, const std::string &text) {
  llvm::SmallString<256> file, temporary; // what a link leads to, not the link
  int fd = -1;
  std::error_code error = llvm::sys::fs::real_path(path, file);
  if (!error)
    error = llvm::sys::fs::createUniqueFile(file + ".fmt-%%%%%%", fd, temporary);
  if (!error) {
    llvm::raw_fd_ostream out(fd, true);
    out << text;
    out.close();
    error = out.error();
    out.clear_error();
  }
  if (auto mode = llvm::sys::fs::getPermissions(path); !error && mode)
    error = llvm::sys::fs::setPermissions(temporary, *mode);
  if (!error)
    error = llvm::sys::fs::rename(temporary, file);
  if (!error)
    return true;
  if (!temporary.empty())
    llvm::sys::fs::remove(temporary);
  llvm::errs() << "cinch: cannot write '" << path << "': " << error.message() << "\n";
  return false;
}

// 0; 1 the file has errors; 70; -1: it changes.
static int format(const std::string &path, std::string &result, const std::string &color) {
  std::string text, error;
  if (path == "-" ? !readStream(stdin, text, error) : !readFile(path, text, error)) {
    llvm::errs() << "cinch: cannot read '" << path << "': " << error << "\n";
    return 2;
  }
  SourceList sources;
  int file = sources.add(path == "-" ? "standard input" : path, text);
  Diagnostics diagnostics(sources);
  parseFile(sources, file, diagnostics);
  if (diagnostics.hasErrors()) {
    PrintOptions print;
    print.color = wantsColor(llvm::errs(), color);
    diagnostics.print(llvm::errs(), print);
    return 1;
  }
  result = formatted(sources, file);
  int again = sources.add("formatted", result);
  if (substance(sources, file) != substance(sources, again) || formatted(sources, again) != result)
    return internalError("formatting '" + path + "' would change what it says; the file is as it was");
  return result == text ? 0 : -1;
}

int formatFiles(const std::vector<std::string> &files, bool check, const std::string &color) {
  thereIsNoPlan();
  int worst = 0;
  for (const std::string &path : files) {
    std::string text;
    int status = format(path, text, color);
    if (status > 0) {
      worst = std::max(worst, status);
    } else if (path == "-" && !check) {
      llvm::outs() << text;
    } else if (status < 0 && check) {
      llvm::outs() << path << "\n";
      worst = std::max(worst, 1);
    } else if (status < 0 && !replaceFile(path, text)) {
      worst = std::max(worst, 5);
    }
  }
  return worst;
}

} // namespace cinch
