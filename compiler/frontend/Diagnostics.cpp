// Diagnostics.cpp: collecting, sorting, codes, spelling. How they are printed: PrintDiagnostics.cpp.
#include "compiler/frontend/Diagnostics.h"
#include "compiler/frontend/CodeExamples.h"
#include "compiler/frontend/ForeignWords.h"

#include <algorithm>
#include <map>

namespace cinch {

namespace {
struct CodeText {
  const char *name, *title, *text;
};
const CodeText codeTexts[] = {
#define DIAGNOSTIC(NAME, TITLE, TEXT) {#NAME, TITLE, TEXT},
#include "compiler/frontend/ErrorCodes.def"
#undef DIAGNOSTIC
};
} // namespace

std::string_view codeName(Code code) { return codeTexts[static_cast<int>(code)].name; }
std::string_view codeTitle(Code code) { return codeTexts[static_cast<int>(code)].title; }

std::string explainCode(std::string_view name) {
  std::string wanted(name);
  for (char &c : wanted)
    c = (c >= 'a' && c <= 'z') ? c - 0x20 : c;
  if (!wanted.empty() && wanted[0] >= '0' && wanted[0] <= '9')
    wanted = "E" + std::string(wanted.size() < 4 ? 4 - wanted.size() : 0, '0') + wanted;
  for (Code code : allCodes()) {
    const CodeText &entry = codeTexts[static_cast<size_t>(code)];
    if (wanted != entry.name)
      continue;
    std::string example = exampleText(code);
    return std::string(entry.name) + ": " + entry.title + "\n\n" + entry.text + (example.empty() ? "" : "\n" + example);
  }
  return "";
}

std::vector<Code> allCodes() {
  return {
#define DIAGNOSTIC(NAME, TITLE, TEXT) Code::NAME,
#include "compiler/frontend/ErrorCodes.def"
#undef DIAGNOSTIC
  };
}

std::string listCodes() {
  std::string result;
  for (const CodeText &entry : codeTexts)
    result += std::string(entry.name) + "  " + entry.title + "\n";
  return result;
}

Diagnostic &Diagnostics::add(Severity severity, Code code, Span span, std::string message) {
  Diagnostic diagnostic;
  diagnostic.severity = severity;
  diagnostic.code = code;
  diagnostic.span = span;
  diagnostic.message = std::move(message);
  list.push_back(std::move(diagnostic));
  errors += severity == Severity::Error;
  return list.back();
}

static bool isInsideCharacter(std::string_view text, size_t at) {
  return at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;
}

std::string_view beginningOf(std::string_view text, size_t longest) {
  while (longest > 0 && isInsideCharacter(text, longest))
    --longest;
  return text.substr(0, longest);
}

// The first bytes and the last `tail`, so many together, and no half of a character.
static std::string abridged(std::string_view text, size_t longest, size_t tail) {
  if (text.size() <= longest)
    return std::string(text);
  size_t begin = text.size() - tail;
  while (isInsideCharacter(text, begin))
    ++begin;
  return std::string(beginningOf(text, longest - tail)) + " .. " + std::string(text.substr(begin));
}

std::string shortened(std::string_view text) {
  std::string result;
  while (!text.empty()) {
    size_t word = std::min(text.find_first_of(" \n"), text.size());
    result += abridged(text.substr(0, word), 120, 40);
    size_t next = std::min(text.find_first_not_of(" \n", word), text.size());
    result += text.substr(word, next - word);
    text.remove_prefix(next);
  }
  return abridged(result, 600, 100);
}

// Every text of it: whatever it echoes of the program or of the command line.
static void shorten(Diagnostic &d) {
  d.message = shortened(d.message);
  for (Label &label : d.labels)
    label.text = shortened(label.text), label.origin = shortened(label.origin);
  for (auto *list : {&d.paths, &d.notes, &d.helps})
    for (std::string &text : *list)
      text = shortened(text);
}

std::vector<Diagnostic> Diagnostics::sorted() const {
  std::vector<Diagnostic> result;
  std::map<std::tuple<int, int, uint32_t, uint32_t>, size_t> seen;
  for (const Diagnostic &diagnostic : list) {
    const Span &span = diagnostic.span;
    auto [it, isNew] =
        seen.try_emplace({static_cast<int>(diagnostic.code), span.file, span.begin, span.end}, result.size());
    if (isNew)
      result.push_back(diagnostic);
    else if (result[it->second].paths != diagnostic.paths)
      ++result[it->second].instances;
  }
  for (Diagnostic &diagnostic : result) {
    if (diagnostic.span.file > 0 && !diagnostic.helpStands) // the user's text
      if (const ForeignWord *word = foreignWord(diagnostic.code, sources.text(diagnostic.span.file), diagnostic.span.begin))
        diagnostic.helps = {word->help};
    shorten(diagnostic);
  }
  // The user's files before the prelude (file 0), each from the top.
  auto place = [](const Diagnostic &d) {
    return std::make_tuple(d.span.file == 0, d.span.file, d.span.begin, d.span.end);
  };
  std::stable_sort(result.begin(), result.end(),
                   [&](const Diagnostic &a, const Diagnostic &b) { return place(a) < place(b); });
  return result;
}

// Edit distance where a swap of two neighbours is one step.
static size_t distance(std::string_view a, std::string_view b) {
  std::vector<std::vector<size_t>> d(a.size() + 1, std::vector<size_t>(b.size() + 1));
  for (size_t i = 0; i <= a.size(); ++i)
    for (size_t j = 0; j <= b.size(); ++j) {
      if (i == 0 || j == 0) {
        d[i][j] = i + j;
        continue;
      }
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  return d[a.size()][b.size()];
}

static std::string lower(std::string_view s) {
  std::string result(s);
  for (char &c : result)
    c = (c >= 'A' && c <= 'Z') ? c + 0x20 : c;
  return result;
}

std::string nearestName(std::string_view name, const std::vector<std::string> &candidates) {
  // One step in three letters; a name of one or two letters is near to its other case only.
  size_t limit = std::min<size_t>(name.size() / 3, 4), best = limit + 1;
  std::string result;
  if (name.size() > 100)
    return result;
  for (const std::string &candidate : candidates) {
    if (candidate == name || candidate.size() > name.size() + 4 || name.size() > candidate.size() + 4)
      continue;
    size_t steps = lower(candidate) == lower(name) ? 0 : distance(name, candidate);
    if (steps < best) {
      best = steps;
      result = candidate;
    }
  }
  return result;
}

std::string didYouMean(std::string_view name, const std::vector<std::string> &candidates) {
  std::string nearest = nearestName(name, candidates);
  return nearest.empty() ? "" : "did you mean `" + nearest + "`?";
}

std::string meantOrAll(std::string_view name, const std::vector<std::string> &candidates) {
  std::string help = didYouMean(name, candidates), all;
  for (size_t i = 0; i < candidates.size(); ++i)
    all += (i == 0 ? "" : i + 1 < candidates.size() ? ", " : " and ") + candidates[i];
  return !help.empty() || all.empty() ? help : "there " + std::string(candidates.size() == 1 ? "is " : "are ") + all;
}

} // namespace cinch
