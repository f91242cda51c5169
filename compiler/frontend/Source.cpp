// Source.cpp: see Source.h.
#include "compiler/frontend/Source.h"

#include "llvm/Support/JSON.h"

#include <algorithm>

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
