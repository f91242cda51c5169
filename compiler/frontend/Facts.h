// Facts.h: what the checker found out about pieces of the text, for editors: the value of every expression that was evaluated.
#ifndef CINCH_COMPILER_FRONTEND_FACTS_H
#define CINCH_COMPILER_FRONTEND_FACTS_H

#include "compiler/frontend/Program.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace cinch {

struct Facts {
  // Of each piece (begin, end) of the user's file. A layer that is called with several sizes has several.
  std::map<std::pair<uint32_t, uint32_t>, std::vector<std::string>> values;

  void note(Span span, const std::string &text) {
    constexpr size_t kMost = 4;
    std::vector<std::string> &texts = values[{span.begin, span.end}];
    if (texts.size() < kMost && std::find(texts.begin(), texts.end(), text) == texts.end())
      texts.push_back(text);
  }
};

} // namespace cinch
#endif
