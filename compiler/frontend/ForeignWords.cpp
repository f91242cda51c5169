// ForeignWords.cpp: the table, and what its words match.
#include "compiler/frontend/ForeignWords.h"

#include <algorithm>
#include <cctype>

namespace cinch {

const std::vector<ForeignWord> &foreignWords() {
  static const std::vector<ForeignWord> words = {
#define FOREIGN(CODE, PLACE, WORD, LEFT, RIGHT, HELP) {ForeignWord::PLACE, Code::CODE, WORD, LEFT, RIGHT, HELP},
#include "compiler/frontend/ForeignWords.def"
#undef FOREIGN
  };
  return words;
}

static bool isWordLetter(char c) { return std::isalnum(static_cast<unsigned char>(c)) || c == '_'; }

// Whether `pattern` matches the beginning of `text`, which is the rest of a line.
static bool matchesAhead(std::string_view pattern, std::string_view text) {
  size_t p = 0, t = 0;
  for (; p < pattern.size(); ++p) {
    if (pattern[p] == '*' && p > 0 && (pattern[p - 1] == '(' || pattern[p - 1] == '[')) {
      for (size_t skip = t; skip <= text.size(); ++skip)
        if (matchesAhead(pattern.substr(p + 1), text.substr(skip)))
          return true;
      return false;
    }
    if (pattern[p] == ' ') {
      while (t < text.size() && (text[t] == ' ' || text[t] == '\t'))
        ++t;
    } else if (t == text.size() || !(pattern[p] == '#' ? std::isdigit(static_cast<unsigned char>(text[t])) : pattern[p] == text[t])) {
      return false;
    } else {
      ++t;
    }
  }
  bool endsInWord = !pattern.empty() && isWordLetter(pattern.back());
  return !endsInWord || t == text.size() || !isWordLetter(text[t]);
}

// Whether `text` ends in `pattern`; a word begins where it begins.
static bool matchesBehind(std::string_view pattern, std::string_view text) {
  size_t t = text.size();
  for (size_t p = pattern.size(); p-- > 0;) {
    if (pattern[p] == '*' && p > 0 && (pattern[p - 1] == '(' || pattern[p - 1] == ' ')) {
      for (size_t skip = t;; --skip) {
        if (matchesBehind(pattern.substr(0, p), text.substr(0, skip)))
          return true;
        if (skip == 0 || text[skip - 1] == '(' || text[skip - 1] == ')')
          return false;
      }
    }
    if (pattern[p] == ' ') {
      if (t == 0 || (text[t - 1] != ' ' && text[t - 1] != '\t'))
        return false;
      while (t > 0 && (text[t - 1] == ' ' || text[t - 1] == '\t'))
        --t;
    } else if (t == 0 || text[--t] != pattern[p]) {
      return false;
    }
  }
  return pattern.empty() || !isWordLetter(pattern.front()) || t == 0 || !isWordLetter(text[t - 1]);
}

const ForeignWord *foreignWord(Code code, std::string_view text, size_t at) {
  if (at > text.size())
    return nullptr;
  // Of the line as much as people read; some have thousands of names, each with a message.
  constexpr size_t kAround = 1000;
  std::string_view before = text.substr(at > kAround ? at - kAround : 0, std::min(at, kAround)), after = text.substr(at, kAround);
  if (size_t end = before.rfind('\n'); end != std::string_view::npos)
    before.remove_prefix(end + 1);
  after = after.substr(0, after.find('\n'));
  for (const ForeignWord &each : foreignWords()) {
    if (each.code != code)
      continue;
    std::string_view word = each.word;
    size_t here = word.find('^');
    if (here == word.npos)
      continue;
    if (matchesAhead(word.substr(here + 1), after) && matchesBehind(word.substr(0, here), before))
      return &each;
  }
  return nullptr;
}

} // namespace cinch
