// Diagnostics.h: errors and warnings for the user, collected during a run and printed at its end: sorted by place,
// equal ones once, as text with source frames or as JSON. An error is written in one expression:
//
//   diags.error(Code::E0203, at, "`@` needs equal inner sizes, but D = 768 meets 512")
//       .label(left, "x: f32[B, T, D]", "D = 768 from gpt.cinch:3")
//       .label(right, "w: f32[512, F]", "declared gpt.cinch:22, size written as 512")
//       .path("in `ff = mlp` of `block`, reached from `blocks = repeat N block` (gpt.cinch:33)")
//       .help("write `param w: f32[D, F]`");
//
// Messages are lower case and end without a period. Faults of the compiler itself are not diagnostics: they are fatal
// errors.
#ifndef CINCH_COMPILER_FRONTEND_DIAGNOSTICS_H
#define CINCH_COMPILER_FRONTEND_DIAGNOSTICS_H

#include "compiler/frontend/Source.h"

#include <deque>
#include <string>
#include <string_view>
#include <vector>

namespace llvm {
class raw_ostream;
}

namespace cinch {

// All codes, and the long text of each, stand in ErrorCodes.def.
enum class Code {
#define DIAGNOSTIC(NAME, TITLE, TEXT) NAME,
#include "compiler/frontend/ErrorCodes.def"
#undef DIAGNOSTIC
};
std::string_view codeName(Code code);  // "E0203"
std::string_view codeTitle(Code code); // one line
// What `cinch explain` prints for "E0203" (or "e203", "203"); empty if there is no such code.
std::string explainCode(std::string_view name);
std::vector<Code> allCodes();
std::string listCodes(); // every code with its title, a line each

enum class Severity { Error, Warning };

struct Label {
  Span span;
  std::string text;
  std::string origin; // why the text is so; printed in parentheses, all origins in one column
};

struct Diagnostic {
  Severity severity = Severity::Error;
  Code code{};
  Span span;
  std::string message;
  std::vector<Label> labels;
  std::vector<std::string> paths, notes, helps;
  int instances = 0; // further places of instantiation with the same error

  // A label at the primary span stands behind its `^`.
  Diagnostic &label(Span at, std::string text, std::string origin = "") {
    labels.push_back({at, std::move(text), std::move(origin)});
    return *this;
  }
  // How the layer that holds the error was reached.
  Diagnostic &path(std::string text) { return paths.push_back(std::move(text)), *this; }
  Diagnostic &note(std::string text) { return notes.push_back(std::move(text)), *this; }
  bool helpStands = false; // it says more than the line of ForeignWords.def for that place
  // One fix. An empty text is no help: `help(didYouMean(..))` needs no test.
  Diagnostic &help(std::string text) {
    if (!text.empty())
      helps.push_back(std::move(text));
    return *this;
  }
};

// The longest beginning of a UTF-8 text that has at most `longest` bytes and no half of a character.
std::string_view beginningOf(std::string_view text, size_t longest);

// A text for people that may echo what they wrote: of a word of more than 120 bytes the beginning and the end stay, and so of a
// text of more than 600.
std::string shortened(std::string_view text);

struct PrintOptions {
  bool json = false;  // one object a line
  bool color = false; // see wantsColor
  int limit = 20;     // errors shown, and warnings shown; 0: all
};

// What is said of no place in a file, as the object that a diagnostic would be: `error: message`, then lines `  help: ..`, `  note: ..` and
// others, which are notes. `code` says of what kind it is: "budget", "input".
std::string messageAsJson(std::string_view text, std::string_view code);

// Whether text for this stream is to be coloured: a terminal, and NO_COLOR unset. `choice`: "auto", "always" or
// "never".
bool wantsColor(llvm::raw_ostream &os, std::string_view choice = "auto");

class Diagnostics {
public:
  explicit Diagnostics(const SourceList &sources) : sources(sources) {}

  // The reference is good until the engine dies.
  Diagnostic &error(Code code, Span span, std::string message) {
    return add(Severity::Error, code, span, std::move(message));
  }
  Diagnostic &warning(Code code, Span span, std::string message) {
    return add(Severity::Warning, code, span, std::move(message));
  }

  bool hasErrors() const { return errors > 0; }
  int errorCount() const { return errors; } // as reported, equal ones included
  const SourceList &sourceList() const { return sources; }
  // Those reported so far, and one of them to add to, in the order of the reports.
  size_t size() const { return list.size(); }
  Diagnostic &operator[](size_t i) { return list[i]; }

  // Sorted by place, one of each code and place (which counts the others as `instances`), all texts shortened.
  std::vector<Diagnostic> sorted() const;
  void print(llvm::raw_ostream &os, const PrintOptions &options = {}) const;

private:
  void printTo(llvm::raw_ostream &os, const PrintOptions &options) const;
  Diagnostic &add(Severity severity, Code code, Span span, std::string message);

  const SourceList &sources;
  std::deque<Diagnostic> list;
  int errors = 0;
};

// The candidate nearest to `name` by edit distance (a swap of neighbours counts one), or "" if none is near.
std::string nearestName(std::string_view name, const std::vector<std::string> &candidates);
// "did you mean `gelu`?", or "".
std::string didYouMean(std::string_view name, const std::vector<std::string> &candidates);
// The same, or, if none is near, "there are a, b and c".
std::string meantOrAll(std::string_view name, const std::vector<std::string> &candidates);

} // namespace cinch
#endif
