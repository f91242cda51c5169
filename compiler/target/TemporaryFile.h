// TemporaryFile.h: a file under a name that no other file has.
#ifndef CINCH_COMPILER_TARGET_TEMPORARYFILE_H
#define CINCH_COMPILER_TARGET_TEMPORARYFILE_H

#include "llvm/ADT/StringRef.h"

#include <string>
#include <system_error>

namespace cinch::target {

// The file that a link leads to: what is written takes its place, and the link stays. The path itself if it is no link, or leads to nothing that has a
// place of its own, such as a pipe.
std::string behindLinks(const std::string &path);

// Removed when it goes out of scope, and by a signal that ends the process.
class TemporaryFile {
public:
  TemporaryFile() = default; // none
  TemporaryFile(const TemporaryFile &) = delete;
  ~TemporaryFile();

  // Makes it in the folder of temporary files (TMPDIR). What went wrong; the path then says where.
  std::error_code make(llvm::StringRef ending);
  // Makes it beside a file, or beside what a link of that name leads to, so that one rename puts it in that file's place.
  std::error_code makeBeside(const std::string &file);
  std::error_code renameTo(const std::string &file);
  // Its bytes from now on.
  std::error_code write(llvm::StringRef bytes) const;

  const std::string &path() const { return name; }

private:
  void isMade();
  std::string name;
  bool made = false;
};

} // namespace cinch::target
#endif
