// Source.cpp: see Source.h.
#include "compiler/frontend/Source.h"

#include "llvm/Support/JSON.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <sys/stat.h>
#include <unistd.h>

namespace cinch {

SourceList::SourceList() { add("prelude.cinch", std::string(preludeText())); }

int SourceList::add(std::string name, std::string text) {
  if (text.compare(0, 3, "\xEF\xBB\xBF") == 0) // a byte order mark is no part of the text: columns count without it
    text.erase(0, 3);
  // A name of a file is any bytes; messages, reports and a binary's description of its program are JSON, which is UTF-8.
  File file{llvm::json::fixUTF8(name), std::move(text), {0}};
  for (uint32_t i = 0; i < file.text.size(); ++i)
    if (file.text[i] == '\n')
      file.lines.push_back(i + 1);
  files.push_back(std::move(file));
  return size() - 1;
}

// Whether an open file is a device without an end that anybody knows of. The null device has nothing but its end.
static bool isEndless(int descriptor) {
  struct stat status, null;
  if (fstat(descriptor, &status) != 0 || !(S_ISCHR(status.st_mode) || S_ISBLK(status.st_mode)))
    return false;
  return !isatty(descriptor) && !(stat("/dev/null", &null) == 0 && null.st_rdev == status.st_rdev);
}

bool readStream(std::FILE *stream, std::string &text, std::string &error) {
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

bool readFile(const std::string &path, std::string &text, std::string &error) {
  std::FILE *stream = std::fopen(path.c_str(), "rb");
  if (!stream) {
    error = std::strerror(errno);
    return false;
  }
  const bool good = readStream(stream, text, error);
  std::fclose(stream);
  return good;
}

int SourceList::addFile(const std::string &path, std::string &error) {
  std::string text;
  return readFile(path, text, error) ? add(path, std::move(text)) : -1;
}

std::string_view SourceList::text(Span span) const {
  if (!valid(span))
    return {};
  return std::string_view(files[span.file].text).substr(span.begin, span.end - span.begin);
}

LineColumn SourceList::locate(int file, uint32_t offset) const {
  const std::vector<uint32_t> &lines = files[file].lines;
  size_t line = std::upper_bound(lines.begin(), lines.end(), offset) - lines.begin(); // 1 or more: lines[0] is 0
  int column = 1;
  for (uint32_t i = lines[line - 1]; i < offset && i < files[file].text.size(); ++i)
    column += (static_cast<unsigned char>(files[file].text[i]) & 0xC0) != 0x80; // not inside a UTF-8 character
  return {static_cast<int>(line), column};
}

std::string_view SourceList::line(int file, int number) const {
  const File &f = files[file];
  size_t begin = f.lines[number - 1];
  size_t end = number < lineCount(file) ? f.lines[number] - 1 : f.text.size();
  if (end > begin && f.text[end - 1] == '\r')
    --end;
  return std::string_view(f.text).substr(begin, end - begin);
}

std::string SourceList::place(Span span) const {
  if (!valid(span))
    return "?";
  return std::string(name(span.file)) + ":" + std::to_string(locate(span).line);
}

} // namespace cinch
