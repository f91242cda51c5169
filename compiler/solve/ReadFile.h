// ReadFile.h: text that people hand in. What may never end is refused before a byte of it is read, and what is too long is not read on.
#ifndef CINCH_COMPILER_SOLVE_READFILE_H
#define CINCH_COMPILER_SOLVE_READFILE_H

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <string>
#include <sys/stat.h>
#include <unistd.h>

namespace cinch {

// Whether an open file is a device without an end that anybody knows of. The null device has nothing but its end.
inline bool isEndless(int descriptor) {
  struct stat status, null;
  if (fstat(descriptor, &status) != 0 || !(S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)))
    return false;
  return !isatty(descriptor) && !(stat("/dev/null", &null) == 0 && null.st_rdev == status.st_rdev);
}

// Reads an open file, a pipe or a terminal to its end. False, and `error`: it cannot be read, has more than 1 GiB, or is another device,
// such as /dev/zero, which may never end.
inline bool readStream(std::FILE *stream, std::string &text, std::string &error) {
  if (isEndless(fileno(stream))) {
    error = "not a regular file";
    return false;
  }
  text.clear();
  char buffer[1 << 16];
  size_t count;
  while ((count = std::fread(buffer, 1, sizeof buffer, stream)) > 0) {
    text.append(buffer, count);
    if (text.size() > (1u << 30))
      break;
  }
  bool failed = std::ferror(stream);
  int reason = errno;
  if (failed || text.size() > (1u << 30)) {
    error = failed ? std::strerror(reason) : "larger than 1 GiB";
    return false;
  }
  return true;
}

// The same of a file by its name.
inline bool readFile(const std::string &path, std::string &text, std::string &error) {
  std::FILE *stream = std::fopen(path.c_str(), "rb");
  if (!stream) {
    error = std::strerror(errno);
    return false;
  }
  const bool good = readStream(stream, text, error);
  std::fclose(stream);
  return good;
}

} // namespace cinch
#endif
