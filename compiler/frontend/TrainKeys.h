// TrainKeys.h: reads `key value ..` settings of `train` and `plan`: every key is known, every value lies in its
// range, and nothing is given twice.
#ifndef CINCH_COMPILER_FRONTEND_TRAINKEYS_H
#define CINCH_COMPILER_FRONTEND_TRAINKEYS_H

#include "compiler/frontend/Elaborator.h"

namespace cinch {

// A range of allowed numbers, and how it reads.
struct Range {
  enum Kind { Any, AtLeast0, Positive, Below1, Count } kind = Any;
  bool holds(const Number &number) const;
  const char *text() const;
};

Range rangeOf(const Hyperparameter &); // of one number

// "*.bias" and "blocks.?.w": `*` stands for any text, `?` for one character.
bool matchesPattern(std::string_view pattern, std::string_view text, char one = '?');
// In a name map only `*` is special.
inline bool matchesStars(std::string_view pattern, std::string_view text) { return matchesPattern(pattern, text, '*'); }

} // namespace cinch
#endif
