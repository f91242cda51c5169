// LINK: cinch_frontend
// Every line of compiler/frontend/CodeExamples.def: its wrong side gives its code, its right side is a program without it; and every
// code has a line.
#include "test/unit/Snippets.h"

#include <cstdio>
#include <iostream>

using namespace cinch;

int main() {
  int passed = 0, failed = 0;
  auto expect = [&](bool good, const std::string &what) {
    ++(good ? passed : failed);
    if (!good)
      std::cout << "failed: " << what << "\n";
  };
  auto optionsOf = [](const CodeExample &example, const char *text) {
    Options options;
    if (example.place == CodeExample::CommandLine)
      options.settings.push_back(*parseAssignment(text));
    return options;
  };
  std::string seen;
  for (const CodeExample &example : codeExamples()) {
    std::string name(codeName(example.code)), said;
    seen += name + " ";
    bool good = false, found = false;
    for (const Diagnostic &d : diagnosed(programAround(example.wrong, example.place, true), good, optionsOf(example, example.wrong))) {
      found = found || d.code == example.code;
      said += "\n    " + std::string(codeName(d.code)) + ": " + d.message;
    }
    expect(found && good == (name[0] == 'W'), name + ": " + example.wrong + said);
    found = false;
    said.clear();
    for (const Diagnostic &d : diagnosed(programAround(example.right, example.place, false), good, optionsOf(example, example.right))) {
      found = found || d.code == example.code;
      said += "\n    " + std::string(codeName(d.code)) + ": " + d.message;
    }
    // Names of the program around it may go unused.
    expect(good && (!found || example.code == Code::W0101), name + ": " + example.right + " is not right" + said);
    expect(explainCode(name).find("\nWrong:\n") != std::string::npos, name + ": explain shows no example");
  }
  for (Code code : allCodes()) {
    std::string name(codeName(code));
    expect(seen.find(name) != std::string::npos, name + " has no example");
  }
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
