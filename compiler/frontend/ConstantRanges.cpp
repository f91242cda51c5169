// ConstantRanges.cpp: where constants of the library's layers must lie, and the rate that dropout really has. Outside these ranges a layer would compute
// nonsense without a word: a `dropout` of -1 keeps everything.
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

static const ConstantRange kRate = {"rate", "in [0, 1)", "it is the share that is dropped: 0.1 drops one of ten, 0 none", 1, false};
static const ConstantRange kRanges[] = {
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
  if (parameter.name.text == kRate.name)
    return &kRate;
  for (const ConstantRange &range : kRanges)
    if (parameter.name.text == range.name)
      return &range;
  return nullptr;
}

// The rate, in [0, 1), that a mask drops with. A draw keeps a whole number of 65536 (random_bool), which for a rate near 1 is far from the share that
// was asked for. What is kept is divided by the share that is kept on average, so there the rate becomes that of the draw. A rate whose share is met
// to a thousandth stays as it is written: 0.1 divides by 0.9. Nothing if no draw keeps anything.
static std::optional<Number> drawnRate(const Number &rate) {
  const Number one(1), draws(65536);
  std::optional<Number> share = subtractNumbers(one, rate.bare());
  std::optional<Number> kept = share ? multiplyNumbers(*share, draws) : std::nullopt;
  kept = kept ? addNumbers(*kept, *divideNumbers(one, Number(2))) : std::nullopt;
  if (!kept)
    return rate;
  kept = divideNumbers(floorNumber(*kept), draws);
  if (kept->isZero())
    return std::nullopt;
  return std::abs(kept->real - share->real) <= share->real / 1000 ? rate : *subtractNumbers(one, *kept);
}

// Makes a rate of dropout that of the draws.
bool Elaborator::takeRate(Value &rate, const std::string &who, Span span, Frame &caller) {
  std::optional<Number> drawn = drawnRate(rate.number);
  if (!drawn) {
    report(Code::E0301, span, who + " is so near 1 that nothing is ever kept: " + describe(rate, dims), caller)
        .help("a mask keeps a multiple of 1/65536: 0.99998 keeps one of 65536 elements");
    return false;
  }
  if (compareNumbers(*drawn, rate.number) != 0)
    rate = Value::of(*drawn);
  return true;
}

bool Elaborator::checkRange(const ast::LayerItem &layer, const ast::Parameter &parameter, Argument &argument, Frame &caller) {
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
  if (good && range == &kRate)
    return takeRate(argument.value, "`" + parameter.name.text + "` of `" + layer.name.text + "`", argument.span, caller);
  return good;
}

} // namespace cinch
