// SetFlag.cpp: --set KEY=VALUE, which lies over what the `train` block says.
#include "compiler/frontend/RunValues.h"
#include "compiler/frontend/TrainKeys.h"

#include <algorithm>

namespace cinch {

std::optional<std::pair<std::string, std::string>> parseAssignment(std::string_view text) {
  size_t equal = text.find('=');
  if (equal == std::string_view::npos || equal == 0)
    return std::nullopt;
  return std::make_pair(std::string(text.substr(0, equal)), std::string(text.substr(equal + 1)));
}

static Range rangeOf(RunValue::Kind kind) {
  switch (kind) {
  case RunValue::AtLeast0: case RunValue::Whole: return Range{Range::AtLeast0};
  case RunValue::Positive: return Range{Range::Positive};
  case RunValue::Below1: return Range{Range::Below1};
  case RunValue::Count: return Range{Range::Count};
  }
  return {};
}

namespace {
// What a key sets: the same number of several optimizers, or a whole number; neither if nothing in this file has it.
struct SetKey {
  std::vector<double *> reals;
  int64_t *integer;
  Range range;
  const char *absent = "no optimizer of this file has it"; // what is said then
};
} // namespace

static std::map<std::string, SetKey> setKeys(Train &t) {
  const Range whole{Range::Count}, least0{Range::AtLeast0};
  std::map<std::string, SetKey> keys = {
      {"train.steps", {{}, &t.steps, whole}},     {"train.epochs", {{}, &t.epochs, whole}},
      {"train.grain", {{}, &t.grain, whole}},     {"train.seed", {{}, nullptr, least0}},
      {"train.precision", {{}, nullptr, least0}},
  };
  // Numbers that an optimizer has; some other optimizer may have them.
  for (const OptimizerRule &rule : optimizerRules())
    for (const Hyperparameter &each : rule.hyperparameters)
      if (each.kind == Hyperparameter::AtLeast0 || each.kind == Hyperparameter::Below1)
        keys["train." + std::string(each.name)] = {{}, nullptr, rangeOf(each)};
  std::vector<RunValue> values = runValues(t);
  std::vector<double *> fields = runValueFields(t);
  for (size_t place = 0; place < values.size(); ++place) {
    if (values[place].key.empty())
      continue;
    const Range range = values[place].zeroDecides && values[place].kind == RunValue::Positive ? least0 : rangeOf(values[place].kind); // clip = 0: none
    SetKey &key = keys.try_emplace("train." + values[place].key, SetKey{{}, nullptr, range}).first->second;
    if (std::find(key.reals.begin(), key.reals.end(), fields[place]) == key.reals.end())
      key.reals.push_back(fields[place]);
    for (size_t i = 0; key.reals.size() > 1 && i < key.reals.size(); ++i) // `lr.2`: of the second optimizer that has one
      keys["train." + values[place].key + "." + std::to_string(i + 1)] = {{key.reals[i]}, nullptr, key.range};
  }
  for (const char *key : {"end", "power", "factor", "schedule.every", "schedule.decay"})
    keys.try_emplace("train." + std::string(key), SetKey{{}, nullptr, least0, "the schedule of this file does not have it"});
  keys.try_emplace("train.ema", SetKey{{}, nullptr, least0, "there is no `ema` in this file"});
  return keys;
}

// Takes the value of one setting; says what is wrong with it otherwise.
static std::string setValue(Train &t, const std::string &name, const SetKey &key, const std::string &text, int64_t batch) {
  if (name == "train.precision") {
    if (text != "f32" && text != "tf32" && text != "f64" && text != "bf16")
      return "there are f32, tf32, f64 and bf16";
    t.f64 = text == "f64", t.bf16 = text == "bf16", t.tf32 = text == "tf32";
    return "";
  }
  std::optional<Number> value = parseNumber(text);
  const bool isSeed = name == "train.seed";
  if (isSeed && (!value || !value->exact || !value->value.isWhole() || !key.range.holds(*value) ||
                 compare(value->value, *Fraction::make(Fraction::Int(UINT64_MAX), 1)) > 0))
    return "the seed must be a whole number below 2^64";
  if (!value || !key.range.holds(*value))
    return "`" + name + "` must be " + key.range.text() + (value ? "" : ", in digits: 0.01 or 1e-2");
  bool whole = value->exact && value->value.isWhole();
  if (name == "train.warmup" && !whole)
    return "`warmup` counts steps";
  if (isSeed) {
    t.seed = static_cast<uint64_t>(value->value.numerator());
    return "";
  }
  if (name == "train.grain" && batch % *value->integer() != 0)
    return "`grain` must divide the batch, " + std::to_string(batch);
  if (!key.integer && key.reals.empty())
    return key.absent;
  if (key.integer)
    *key.integer = *value->integer();
  for (double *target : key.reals)
    *target = value->real;
  if (name == "train.steps")
    t.epochs = 0;
  if (name == "train.epochs")
    t.steps = 0;
  return "";
}

void Elaborator::applySettings() {
  size_t values = runValues(program.train).size();
  if (values > kMostRunValues)
    report(Code::E0603, train->header,
           "the optimizers have " + std::to_string(values) + " numbers; there is room for " + std::to_string(kMostRunValues),
           fileFrame)
        .help("let one optimizer take more parameters");
  std::map<std::string, SetKey> keys = setKeys(program.train);
  std::vector<std::string> names;
  for (const auto &[name, key] : keys)
    names.push_back(name.substr(6)); // behind "train."
  Span none; // the command line
  for (const auto &[written, text] : options.settings) {
    const bool isWhole = written.rfind("train.", 0) == 0;
    const std::string name = isWhole ? written : "train." + written;
    const std::string given = "--set " + written + "=" + text;
    auto key = keys.find(name);
    if (key == keys.end()) {
      static const std::map<std::string, std::string> elsewhere = {{"learning_rate", "lr"}, {"weight_decay", "decay"}, {"max_lr", "lr"}, {"beta_1", "beta1"},
                                                                   {"beta_2", "beta2"}, {"clip_norm", "clip"}, {"max_steps", "steps"}, {"max_epochs", "epochs"}};
      const auto word = elsewhere.find(name.substr(6));
      const std::string nearest = word != elsewhere.end() && keys.count("train." + word->second) ? word->second : nearestName(name.substr(6), names);
      diags.error(Code::E0608, none, given + ": unknown key `" + written + "`")
          .help(fileFrame.names.count(written) ? "it is a size or a constant of the file: write -D " + written + "=" + text
                : nearest.empty()              ? ""
                                               : "did you mean `" + std::string(isWhole ? "train." : "") + nearest + "`?");
    } else if (std::string wrong = setValue(program.train, name, key->second, text, program.batch); !wrong.empty())
      diags.error(Code::E0608, none, given + ": " + wrong);
  }
}

} // namespace cinch
