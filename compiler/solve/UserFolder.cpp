// UserFolder.cpp: a folder counts only if its path is absolute, as the XDG base directory specification has it.
#include "compiler/solve/UserFolder.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/Path.h"

#include <cstdlib>

namespace cinch::solve {

std::string userFolder(const char *variable, const char *underHome) {
  namespace path = llvm::sys::path;
  llvm::SmallString<256> folder;
  if (const char *given = std::getenv(variable); given && path::is_absolute(given)) {
    folder = given;
  } else if (const char *home = std::getenv("HOME"); home && path::is_absolute(home)) {
    folder = home;
    path::append(folder, underHome);
  } else {
    return "";
  }
  path::append(folder, "cinch");
  return folder.str().str();
}

} // namespace cinch::solve
