// LINK: cinch_frontend
// Every line of compiler/frontend/ForeignWords.def: its left side is refused with its help, its right side is a program. With
// --page the table of docs/from-pytorch.md; without it that page must hold the same table.
#include "compiler/frontend/ForeignWords.h"
#include "test/unit/Snippets.h"

#include "llvm/Support/FileSystem.h"

#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace cinch;

static std::string program(const ForeignWord &word, bool left) {
  return programAround(left ? word.left : word.right, CodeExample::Place(word.place), left);
}

static std::string quoted(const char *text) { return *text ? "`" + std::string(text) + "`" : "(nothing)"; }

static std::string table() {
  std::string text = "| what people write | in Cinch | what the compiler says |\n|---|---|---|\n";
  for (const ForeignWord &word : foreignWords()) {
    auto cell = [](std::string code) { // `|` ends a cell
      for (size_t at = 0; (at = code.find('|', at)) != std::string::npos; at += 2)
        code.insert(at, "\\");
      return code;
    };
    text += "| " + cell(quoted(word.left)) + " | " + cell(quoted(word.right)) + " | " + cell(word.help) + " |\n";
  }
  return text;
}

int main(int argc, char **argv) {
  if (argc > 1 && std::string(argv[1]) == "--page") {
    std::cout << table();
    return 0;
  }
  int passed = 0, failed = 0;
  auto expect = [&](bool good, const std::string &what) {
    ++(good ? passed : failed);
    if (!good)
      std::cout << "failed: " << what << "\n";
  };
  for (const ForeignWord &word : foreignWords()) {
    bool good = false, helped = false;
    std::string said;
    for (const Diagnostic &d : diagnosed(program(word, true), good)) {
      helped = helped || (d.code == word.code && d.helps == std::vector<std::string>{shortened(word.help)});
      if (d.code != Code::W0101)
        said += "\n    " + std::string(codeName(d.code)) + ": " + d.message + (d.helps.empty() ? "" : " | " + d.helps[0]);
    }
    expect(helped, std::string(word.left) + ": expected " + std::string(codeName(word.code)) + " with: " + word.help + said);
    bool isWarning = codeName(word.code)[0] == 'W';
    expect(good == isWarning, std::string(word.left) + (isWarning ? " is refused" : " is a program"));
    said.clear();
    for (const Diagnostic &d : diagnosed(program(word, false), good))
      if (d.severity == Severity::Error)
        said += "\n    " + std::string(codeName(d.code)) + ": " + d.message;
    expect(good, std::string(word.right) + " is refused:" + said);
  }
  // build/bin/foreign_words -> docs
  std::string self = llvm::sys::fs::getMainExecutable(argv[0], reinterpret_cast<void *>(&table));
  std::ifstream file(self.substr(0, self.rfind("/build/")) + "/docs/from-pytorch.md");
  std::stringstream page;
  page << file.rdbuf();
  expect(page.str().find(table()) != std::string::npos, "docs/from-pytorch.md has another table; foreign_words --page prints it");
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
