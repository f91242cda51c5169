// ParseJson.h: JSON that people hand in. LLVM's parser calls itself for every bracket, so that a file of brackets alone would end the process.
#ifndef CINCH_COMPILER_SOLVE_PARSEJSON_H
#define CINCH_COMPILER_SOLVE_PARSEJSON_H

#include "llvm/Support/JSON.h"

#include <system_error>

namespace cinch {

inline bool isNestedTooDeeply(llvm::StringRef text) {
  constexpr int kDeepest = 1000;
  int depth = 0;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted)
      c == '\\' ? void(++i) : void(quoted = c != '"');
    else if (c == '"')
      quoted = true;
    else if (c == '[' || c == '{')
      ++depth;
    else if (c == ']' || c == '}')
      --depth;
    if (depth > kDeepest)
      return true;
  }
  return false;
}

// As llvm::json::parse.
inline llvm::Expected<llvm::json::Value> parseJson(llvm::StringRef text) {
  if (isNestedTooDeeply(text))
    return llvm::createStringError(std::errc::invalid_argument, "brackets more than 1000 deep");
  return llvm::json::parse(text);
}

} // namespace cinch
#endif
