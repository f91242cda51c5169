// Page.cpp: puts style, script and data into the page's frame.
#include "compiler/report/Page.h"

#include "compiler/report/PageParts.h"

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

namespace cinch::report {

std::string page(const llvm::json::Object &plan) {
  std::string data;
  llvm::raw_string_ostream out(data);
  out << llvm::json::Value(llvm::json::Object(plan));
  // Inside a script element only `</` could end the text too early; in JSON a `<` stands in strings alone, where it may
  // be written by its number.
  std::string escaped;
  for (char c : data)
    if (c == '<')
      escaped += "\\u003c";
    else
      escaped += c;
  std::string text;
  llvm::StringRef rest = pageFrame();
  while (!rest.empty()) {
    auto [before, after] = rest.split("<!--cinch:");
    text += before;
    if (after.empty())
      break;
    auto [slot, behind] = after.split("-->");
    if (slot == "style")
      text += pageStyle();
    else if (slot == "script")
      text += pageScript();
    else if (slot == "data")
      text += escaped;
    rest = behind;
  }
  return text;
}

} // namespace cinch::report
