// Page.h: the page of `--report`: one HTML file that needs nothing else.
#ifndef CINCH_COMPILER_REPORT_PAGE_H
#define CINCH_COMPILER_REPORT_PAGE_H

#include "llvm/Support/JSON.h"

#include <string>

namespace cinch::report {

// The page's parts (page/*.html, *.css, *.js, embedded when the compiler is built) around the plan's JSON.
std::string page(const llvm::json::Object &plan);

} // namespace cinch::report
#endif
