// Source.h: the texts being compiled. A Span names a file by its place in the SourceList; file 0 is the prelude.
#ifndef CINCH_COMPILER_FRONTEND_SOURCE_H
#define CINCH_COMPILER_FRONTEND_SOURCE_H

#include "compiler/frontend/Program.h"
#include "compiler/solve/ReadFile.h"

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace cinch {

struct LineColumn {
  int line = 0, column = 0; // from 1; columns count characters
};

class SourceList {
public:
  SourceList(); // holds the prelude, as file 0
  int add(std::string name, std::string text); // what is no UTF-8 in the name is replaced: it is for messages
  // Reads a file from disk; -1 and `error` on failure.
  int addFile(const std::string &path, std::string &error);

  int size() const { return static_cast<int>(files.size()); }
  std::string_view name(int file) const { return files[file].name; }
  std::string_view text(int file) const { return files[file].text; }
  std::string_view text(Span span) const; // the piece of text; "" for an unknown span
  LineColumn locate(int file, uint32_t offset) const;
  LineColumn locate(Span span) const { return locate(span.file, span.begin); }
  int lineCount(int file) const { return static_cast<int>(files[file].lines.size()); }
  std::string_view line(int file, int number) const; // from 1, without its end
  bool valid(Span span) const {
    return span.file >= 0 && span.file < size() && span.begin <= span.end && span.end <= files[span.file].text.size();
  }
  // "gpt.cinch:24"; for labels that speak of another place.
  std::string place(Span span) const;

private:
  struct File {
    std::string name, text;
    std::vector<uint32_t> lines; // offset of each line's beginning
  };
  std::deque<File> files; // a deque: texts and names handed out stay where they are
};

// The text of the prelude, built into the compiler.
std::string_view preludeText();

} // namespace cinch
#endif
