// LINK: cinch_frontend
// Every line of compiler/frontend/ForeignWords.def: its left side is refused with its help, its right side is a program. With
// --page the table of docs/from-pytorch.md; without it that page must hold the same table.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/ForeignWords.h"
#include "compiler/frontend/Parser.h"

#include "llvm/Support/FileSystem.h"

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <sstream>

using namespace cinch;

static std::string lines(std::string statements, const char *indent) {
  std::string text = indent;
  for (size_t i = 0; i < statements.size(); ++i) {
    bool ends = statements[i] == ';' && std::count(statements.begin(), statements.begin() + long(i), '{') ==
                                            std::count(statements.begin(), statements.begin() + long(i), '}');
    text += ends ? std::string("\n") + indent : std::string(1, statements[i]);
  }
  return text + "\n";
}

// The program around one side of a line.
static std::string program(const ForeignWord &word, bool left) {
  std::string text = left ? word.left : word.right;
  std::string body = "  h = fc(x)\n", value, clause, optimizer = "  optimizer sgd(lr = 0.1)\n", items;
  switch (word.place) {
  case ForeignWord::Value: value = "  predict m = " + text + "\n"; break;
  case ForeignWord::Body: body = lines(text, "  "); break;
  case ForeignWord::Use: body = lines(text, "  ") + "  h = fc(d(x))\n"; break;
  case ForeignWord::Item: (left ? body : items) = lines(text, left ? "  " : ""); break;
  case ForeignWord::Clause: clause = lines(text, "  "); break;
  case ForeignWord::Optimizer: optimizer = lines(text, "  "); break;
  }
  return "dim B = 8 batch, T = 5, D = 4, H = 6, C = 10\n"
         "data train = npz(\"d.npz\") -> (x: f32[B, D], z: f32[B, D], s: f32[B, T, D], y: i32[B] below C)\n" + items +
         "model net(x: f32[B, D], z: f32[B, D]) -> f32[B, C] {\n  use fc = linear[C]\n" + body + "  return h\n}\n"
         "train net on train seed 1 {\n  logits = net(x, z)\n  loss = mean[B] cross_entropy(logits, y)\n" + clause + value + optimizer +
         "  steps 10\n}\n";
}

static std::vector<Diagnostic> diagnosed(const std::string &text, bool &good) {
  SourceList sources;
  int number = sources.add("word.cinch", text);
  Diagnostics diags(sources);
  ast::File prelude = parseFile(sources, 0, diags), file = parseFile(sources, number, diags);
  Options options;
  good = !diags.hasErrors() && check(sources, prelude, file, options, diags).has_value();
  return diags.sorted();
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
