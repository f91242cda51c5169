// ConstantRanges.cpp: where constants of the library's layers must lie. Outside, a layer would compute nonsense without a word: a
// `dropout` of -1 keeps everything.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

namespace {
// A constant of the prelude means the same in each of its layers, so that its name tells its range: from 0 up to `most`, if there is one.
struct ConstantRange {
  const char *name, *range, *help;
  std::optional<int> most;
  bool hasMost; // `most` itself is allowed
};
} // namespace

static const ConstantRange kRanges[] = {
    {"rate", "in [0, 1)", "it is the share that is dropped: 0.1 drops one of ten, 0 none", 1, false},
    {"momentum", "in [0, 1]", "it is the share of the batch's statistics in the running ones: 0.1, say", 1, true},
    {"eps", "at least 0", "it is added to a variance, so that nothing is divided by 0: 1e-5, say", std::nullopt, false},
    {"deviation", "at least 0", "it is the standard deviation of the noise; 0 is none", std::nullopt, false},
    {"delta", "at least 0", "it is the error from which on the loss grows linearly: 1, say", std::nullopt, false},
};
// Every example may have a square erased.
static const ConstantRange kErased = {"rate", "in [0, 1]", "it is the share of the examples that have a square erased", 1, true};

static const ConstantRange *rangeOf(const ast::LayerItem &layer, const ast::Parameter &parameter) {
  if (layer.span.file != 0 || parameter.type) // what the constants of a program's own layers mean, its author knows
    return nullptr;
  if (layer.name.text == "random_erase")
    return parameter.name.text == kErased.name ? &kErased : nullptr;
  for (const ConstantRange &range : kRanges)
    if (parameter.name.text == range.name)
      return &range;
  return nullptr;
}

bool Elaborator::checkRange(const ast::LayerItem &layer, const ast::Parameter &parameter, const Argument &argument, Frame &caller) {
  const ConstantRange *range = rangeOf(layer, parameter);
  if (!range)
    return true;
  const Value &value = argument.value;
  bool good = value.isNumber() && value.number.sign() >= 0;
  if (good && range->most) {
    int order = compareNumbers(value.number, Number(*range->most));
    good = order < 0 || (order == 0 && range->hasMost);
  }
  if (!good)
    report(Code::E0301, argument.span,
           "`" + parameter.name.text + "` of `" + layer.name.text + "` must be " + range->range + ", but this is " + describe(value, dims), caller)
        .help(range->help);
  return good;
}

} // namespace cinch
