// Complain.cpp: messages to standard error, as text or as objects of JSON.
#include "compiler/tools/Complain.h"

#include "compiler/frontend/Diagnostics.h"

#include "llvm/Support/raw_ostream.h"

namespace cinch {

static bool asJson = false;

void chooseFormat(int argc, const char *const *argv) {
  for (int i = 1; i < argc; ++i) {
    llvm::StringRef word = argv[i];
    if (word == "--")
      return;
    if (!word.consume_front("--"))
      word.consume_front("-");
    if (!word.consume_front("diagnostics-format"))
      continue;
    asJson = word == "=json" || (word.empty() && i + 1 < argc && llvm::StringRef(argv[i + 1]) == "json");
  }
}

void complain(llvm::StringRef text, const char *code) {
  if (asJson && !text.empty())
    llvm::errs() << messageAsJson({text.data(), text.size()}, code);
  else
    llvm::errs() << text;
}

} // namespace cinch
