// CodeExamples.cpp: see CodeExamples.h.
#include "compiler/frontend/CodeExamples.h"

namespace cinch {

const std::vector<CodeExample> &codeExamples() {
  static const std::vector<CodeExample> examples = {
#define EXAMPLE(CODE, PLACE, WRONG, RIGHT) {CodeExample::PLACE, Code::CODE, WRONG, RIGHT},
#include "compiler/frontend/CodeExamples.def"
#undef EXAMPLE
  };
  return examples;
}

// A text that is wrong because it is long is shown without its middle.
static std::string abridged(std::string text, bool isFile) {
  constexpr size_t most = 200, shown = 60;
  if (isFile || text.size() <= most)
    return text;
  return text.substr(0, shown) + " .. " + text.substr(text.size() - shown);
}

// A line each statement: `;` separates them in the table.
static std::string block(const CodeExample &example, const char *whole) {
  std::string text = abridged(whole, example.place == CodeExample::File || example.place == CodeExample::Items);
  std::string result = "\n    ";
  if (example.place == CodeExample::CommandLine)
    result += "--set ";
  int braces = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    braces += text[i] == '{' ? 1 : text[i] == '}' ? -1 : 0;
    if (text[i] == '\n')
      result += "\n    ";
    else if (text[i] == ';' && braces == 0 && example.place != CodeExample::File)
      result += "\n   "; // the blank behind it is the fourth
    else
      result += text[i];
  }
  return result + "\n";
}

std::string exampleText(Code code) {
  for (const CodeExample &example : codeExamples())
    if (example.code == code)
      return "Wrong:\n" + block(example, example.wrong) + "\nRight:\n" + block(example, example.right);
  return "";
}

} // namespace cinch
