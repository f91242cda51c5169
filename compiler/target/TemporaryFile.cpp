// TemporaryFile.cpp: see TemporaryFile.h.
#include "compiler/target/TemporaryFile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace cinch::target {

std::string behindLinks(const std::string &path) {
  SmallString<128> real;
  return sys::fs::is_symlink_file(path) && !sys::fs::real_path(path, real) ? real.str().str() : path;
}

TemporaryFile::~TemporaryFile() {
  if (!made)
    return;
  sys::fs::remove(name);
  sys::DontRemoveFileOnSignal(name);
}

void TemporaryFile::isMade() {
  made = true;
  sys::RemoveFileOnSignal(name);
}

std::error_code TemporaryFile::make(StringRef ending) {
  SmallString<128> path;
  std::error_code error = sys::fs::createTemporaryFile("cinch", ending, path);
  name = path.str().str();
  if (!error)
    isMade();
  return error;
}

// The name is the file's, cut where a folder would not take a longer one, with the process and a number behind it.
std::error_code TemporaryFile::makeBeside(const std::string &file) {
  static unsigned number = 0;
  const std::string place = behindLinks(file);
  SmallString<128> base(sys::path::filename(place));
  base.truncate(std::min<size_t>(base.size(), 220));
  std::error_code error;
  int descriptor = -1;
  do {
    SmallString<128> path(sys::path::parent_path(place));
    sys::path::append(path, Twine(base) + "." + Twine(sys::Process::getProcessId()) + "-" + Twine(number++) + ".tmp");
    name = path.str().str();
    error = sys::fs::openFileForWrite(name, descriptor, sys::fs::CD_CreateNew);
  } while (error == std::errc::file_exists);
  if (error)
    return error;
  sys::fs::file_t handle = sys::fs::convertFDToNativeFile(descriptor);
  sys::fs::closeFile(handle);
  isMade();
  return error;
}

std::error_code TemporaryFile::renameTo(const std::string &file) {
  std::error_code error = sys::fs::rename(name, behindLinks(file));
  if (error)
    return error;
  sys::DontRemoveFileOnSignal(name);
  made = false;
  return error;
}

std::error_code TemporaryFile::write(StringRef bytes) const {
  std::error_code error;
  raw_fd_ostream out(name, error);
  if (error)
    return error;
  out << bytes;
  out.close();
  error = out.error();
  out.clear_error();
  return error;
}

} // namespace cinch::target
