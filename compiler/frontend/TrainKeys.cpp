// TrainKeys.cpp: the settings of `train`: optimizer, schedule, steps and so on, and what --set puts over them.
#include "compiler/frontend/TrainKeys.h"

#include <algorithm>
#include <functional>

namespace cinch {

using namespace ast;

bool Range::holds(const Number &number) const {
  switch (kind) {
  case Any:
    return true;
  case AtLeast0:
    return number.sign() >= 0;
  case Positive:
    return number.sign() > 0;
  case Below1:
    return number.sign() >= 0 && compareNumbers(number, Number(1)) < 0;
  case Count:
    return number.integer() && *number.integer() >= 1 && *number.integer() <= (int64_t(1) << 53);
  }
  return false;
}

const char *Range::text() const {
  switch (kind) {
  case Any:
    return "a number";
  case AtLeast0:
    return "a number of at least 0";
  case Positive:
    return "a number above 0";
  case Below1:
    return "a number in [0, 1)";
  case Count:
    return "a whole number from 1 to 2^53";
  }
  return "";
}

bool matchesPattern(std::string_view pattern, std::string_view text, char one) {
  size_t p = 0, t = 0, star = std::string_view::npos, mark = 0;
  while (t < text.size()) {
    if (p < pattern.size() && (pattern[p] == one || pattern[p] == text[t]) && pattern[p] != '*') {
      ++p, ++t;
    } else if (p < pattern.size() && pattern[p] == '*') {
      star = p++;
      mark = t;
    } else if (star != std::string_view::npos) {
      p = star + 1;
      t = ++mark;
    } else {
      return false;
    }
  }
  while (p < pattern.size() && pattern[p] == '*')
    ++p;
  return p == pattern.size();
}

namespace {
const Range any{Range::Any}, atLeast0{Range::AtLeast0}, positive{Range::Positive}, below1{Range::Below1},
    count{Range::Count};
}

std::optional<Number> Elaborator::settingNumber(const Expr &expr, const std::string &key, const Range &range,
                                                Frame &frame) {
  std::optional<Number> number = evalConstantNumber(expr, frame, ("`" + key + "`").c_str());
  if (!number)
    return std::nullopt;
  if (range.holds(*number))
    return number;
  report(Code::E0603, expr.span, "`" + key + "` must be " + range.text() + ", but this is " + sizeText(*number), frame);
  return std::nullopt;
}

std::optional<Number> Elaborator::wordNumber(const SettingWord &word, const std::string &key, const Range &range,
                                             Frame &frame) {
  std::optional<Number> number;
  if (word.kind == SettingWord::Number && word.unit.empty()) {
    number = parseNumber(word.text);
  } else if (word.kind == SettingWord::Name && !word.hasArgs) {
    Value value = lookup(word.text, word.span, frame);
    if (value.isError())
      return std::nullopt;
    if (value.isNumber())
      number = value.number;
  }
  if (number && range.holds(*number))
    return number;
  report(Code::E0603, word.span, "`" + key + "` must be " + range.text() + ", but this is `" + textOf(word.span) + "`",
         frame);
  return std::nullopt;
}

std::vector<int> Elaborator::matchPath(bool isString, const std::string &text, Span span, Frame &frame) {
  std::vector<int> found;
  for (size_t i = 0; i < program.parameters.size(); ++i)
    if (!program.parameters[i].state &&
        (isString ? matchesPattern(text, program.parameters[i].path) : program.parameters[i].path == text))
      found.push_back(static_cast<int>(i));
  if (found.empty() && parametersFixed)
    reportNoParameter(text, span, frame);
  return found;
}

// Takes the parameters of a path behind `except` out of those that are named before it.
void Elaborator::leaveOut(std::vector<int> &named, const Path &path, Frame &frame) {
  std::vector<int> spared = matchPath(path.isString, path.text, path.span, frame);
  size_t before = named.size();
  auto isSpared = [&](int parameter) { return std::find(spared.begin(), spared.end(), parameter) != spared.end(); };
  named.erase(std::remove_if(named.begin(), named.end(), isSpared), named.end());
  if (parametersFixed && !spared.empty() && named.size() == before)
    report(Code::E0607, path.span, "`except` leaves out some of the parameters before it, but `" + path.text + "` is none of these", frame)
        .help("take it away, or name it before `except`");
}

std::vector<int> Elaborator::matchPaths(const std::vector<Arg> &args, Frame &frame) {
  std::vector<int> found;
  for (const Arg &arg : args) {
    if (arg.name || (arg.value->kind != ExprKind::Name && arg.value->kind != ExprKind::String)) {
      report(Code::E0607, arg.span, "a parameter is a name or a string, but this is `" + textOf(arg.span) + "`", frame);
      continue;
    }
    std::vector<int> named = matchPath(arg.value->kind == ExprKind::String, arg.value->text, arg.value->span, frame);
    const bool any = !named.empty();
    for (const Path &path : arg.except)
      leaveOut(named, path, frame);
    if (parametersFixed && any && named.empty())
      report(Code::E0607, arg.span, "`except` leaves no parameter over", frame).help("name fewer behind `except`");
    found.insert(found.end(), named.begin(), named.end());
  }
  return found;
}

// `except` leaves out parameters. Where none are named, nothing would come of it.
void Elaborator::refuseExcept(const Arg &arg, Code code, Frame &frame) {
  if (!arg.except.empty())
    report(code, join(arg.except.front().span, arg.except.back().span), "`except` leaves out parameters, and none are named here", frame)
        .help("it stands behind the optimizer's `decay`, and behind the parameters of `on` and `freeze`");
}

void Elaborator::refuseExcept(const Setting &setting, Frame &frame) {
  const std::string &key = setting.key.text;
  for (const Arg &arg : setting.key.args)
    if (key != "freeze")
      refuseExcept(arg, Code::E0603, frame);
  for (const SettingWord &word : setting.words)
    for (const Arg &arg : word.args)
      if (key != "optimizer" || (word.text != "on" && arg.name.text != "decay"))
        refuseExcept(arg, Code::E0603, frame);
}

// The option that was meant, or all that there are.
static std::string optionsHelp(const std::string &given, const std::string &what, const std::vector<std::string> &names) {
  std::string help = didYouMean(given, names), all;
  if (!help.empty())
    return help;
  for (const std::string &name : names)
    all += (all.empty() ? "" : ", ") + name;
  return "`" + what + "` has " + (all.empty() ? "none" : all);
}

// Reads `name = value` arguments: one reader a key. Unknown and repeated keys, and required ones that are absent, are
// errors. So are arguments without a name, unless `plain` takes them.
bool Elaborator::readOptions(const std::string &what, const SettingWord &word,
                             const std::map<std::string, std::function<void(const Arg &)>> &readers,
                             const std::vector<std::string> &required, Frame &frame, std::vector<const Expr *> *plain) {
  std::set<std::string> given;
  std::vector<std::string> names;
  for (const auto &[name, reader] : readers)
    names.push_back(name);
  bool good = true;
  for (const Arg &arg : word.args) {
    auto reader = readers.find(arg.name.text);
    if (plain && !arg.name) {
      plain->push_back(arg.value.get());
    } else if (reader == readers.end()) {
      Diagnostic &d =
          arg.name ? report(Code::E0602, arg.name.span, "`" + what + "` has no option `" + arg.name.text + "`", frame)
                   : report(Code::E0603, arg.span, "options of `" + what + "` have names, as in lr = 0.1", frame);
      if (arg.name)
        d.help(optionsHelp(arg.name.text, what, names));
      good = false;
    } else if (!given.insert(arg.name.text).second) {
      report(Code::E0603, arg.name.span, "`" + arg.name.text + "` is given twice", frame);
      good = false;
    } else {
      reader->second(arg);
    }
  }
  for (const std::string &name : required)
    if (good && !given.count(name)) {
      report(Code::E0604, word.span, "`" + what + "` needs `" + name + " = ..`", frame);
      good = false;
    }
  return good;
}

// "a, b and c"
static std::string listed(const std::vector<std::string> &names, const char *behindEach, const char *last) {
  std::string text;
  for (size_t i = 0; i < names.size(); ++i)
    text += (i == 0 ? "" : i + 1 < names.size() ? ", " : last) + names[i] + behindEach;
  return text;
}

Range rangeOf(const Hyperparameter &hyperparameter) {
  return hyperparameter.kind == Hyperparameter::AtLeast0 ? atLeast0 : below1;
}

// The value of one hyperparameter; nothing is changed after an error.
void Elaborator::readHyperparameter(const Hyperparameter &wanted, const Expr &expr, Frame &frame, double *target) {
  std::string name = wanted.name;
  if (wanted.kind == Hyperparameter::AtLeast0 || wanted.kind == Hyperparameter::Below1) {
    if (std::optional<Number> number = settingNumber(expr, name, rangeOf(wanted), frame))
      *target = number->real;
    return;
  }
  Value value = evalWhole(expr, frame);
  if (value.isError())
    return;
  if (wanted.kind == Hyperparameter::Flag) {
    if (value.isBool())
      *target = value.flag;
    else
      report(Code::E0603, expr.span, "`" + name + "` is true or false, but this is " + describe(value, dims), frame);
    return;
  }
  bool good = value.kind == Value::Tuple && value.items.size() == 2;
  for (const Value &item : value.items)
    good = good && item.isNumber() && below1.holds(item.number);
  for (size_t i = 0; good && i < 2; ++i)
    target[i] = value.items[i].number.real;
  if (!good)
    report(Code::E0603, expr.span, "`" + name + "` is a pair of numbers in [0, 1), as in (0.9, 0.999)", frame);
}

void Elaborator::readOptimizer(const Setting &setting, Frame &frame) {
  std::vector<std::string> there;
  for (const OptimizerRule &rule : optimizerRules())
    there.push_back(rule.name);
  if (setting.words.empty() || setting.words[0].kind != SettingWord::Name) {
    report(Code::E0603, setting.span, "`optimizer` needs one, " + listed(there, "(..)", " or "), frame);
    return;
  }
  const SettingWord &word = setting.words[0];
  const OptimizerRule *rule = optimizerNamed(word.text);
  if (!rule) {
    report(Code::E0602, word.textSpan, "unknown optimizer `" + word.text + "`", frame)
        .help(meantOrAll(word.text, there));
    return;
  }
  Optimizer optimizer{rule, rule->defaults(), setting.span};
  std::vector<int> spared;
  std::vector<std::string> required;
  std::map<std::string, std::function<void(const Arg &)>> readers;
  for (const Hyperparameter &each : rule->hyperparameters) {
    if (each.value.empty())
      required.push_back(each.name);
    readers[each.name] = [&](const Arg &arg) {
      readHyperparameter(each, *arg.value, frame, &optimizer.values[rule->placeOf(each.name)]);
      for (const Path &path : arg.except) // of `decay` only
        for (int parameter : matchPath(path.isString, path.text, path.span, frame))
          spared.push_back(parameter);
    };
  }
  readOptions(word.text, word, readers, required, frame);

  int index = static_cast<int>(program.train.optimizers.size());
  program.train.optimizers.push_back(optimizer);
  bool on = setting.words.size() == 2 && setting.words[1].kind == SettingWord::Name && setting.words[1].text == "on";
  if (setting.words.size() > 1 && !on) {
    const SettingWord &unexpected = setting.words[setting.words.size() > 2 && setting.words[1].text == "on" ? 2 : 1];
    report(Code::E0603, unexpected.span, "unexpected `" + textOf(unexpected.span) + "`", frame)
        .help("write optimizer .. on (p) to choose parameters");
    unclearOptimizer = true;
    return;
  }
  std::vector<int> covered;
  if (on) {
    covered = matchPaths(setting.words[1].args, frame);
    if (setting.words[1].args.empty())
      report(Code::E0603, setting.words[1].span, "`on` needs parameters, on (p)", frame);
  }
  for (int parameter : covered) {
    if (optimizerOf[parameter] >= 0 && optimizerOf[parameter] != index)
      report(Code::E0603, setting.span, "parameter `" + program.parameters[parameter].path + "` has two optimizers",
             frame);
    optimizerOf[parameter] = index;
  }
  if (!on) {
    if (restOptimizer >= 0)
      report(Code::E0603, setting.span, "only one `optimizer` may stand without `on`", frame)
          .label(program.train.optimizers[restOptimizer].span, "the other one");
    restOptimizer = index;
  }
  for (int parameter : spared)
    sparedBy.insert({index, parameter});
}

// `at = (30, 60)`, the steps where a schedule goes on otherwise. False: they are none, which is reported.
bool Elaborator::readPlaces(const Arg &arg, std::vector<int64_t> &places, Frame &frame) {
  Value value = evalWhole(*arg.value, frame);
  std::vector<Value> items = value.kind == Value::Tuple ? value.items : std::vector<Value>{value};
  for (const Value &item : items) {
    if (item.isError())
      return false;
    if (!item.isNumber() || !count.holds(item.number) || (!places.empty() && places.back() >= *item.number.integer())) {
      report(Code::E0603, arg.value->span, "`at` takes increasing whole numbers of at least 1, as in (30, 60)", frame);
      return false;
    }
    places.push_back(*item.number.integer());
  }
  return true;
}

void Elaborator::readSchedule(const Setting &setting, Frame &frame) {
  std::vector<std::string> names;
  for (int kind = 0; const char *name = nameOf(ScheduleKind(kind)); ++kind)
    names.push_back(name);
  Schedule &schedule = program.train.schedule;
  if (setting.words.size() > 1 && setting.words[0].kind == SettingWord::Name) {
    report(Code::E0603, setting.words[1].span, "a schedule is one for all optimizers, and nothing stands behind it", frame);
    return;
  }
  if (setting.words.size() != 1 || setting.words[0].kind != SettingWord::Name) {
    report(Code::E0603, setting.span, "`schedule` needs one, as in cosine(warmup = 100, end = 0.1)", frame);
    return;
  }
  const SettingWord &word = setting.words[0];
  auto found = std::find(names.begin(), names.end(), word.text);
  if (found == names.end()) {
    report(Code::E0602, word.textSpan, "unknown schedule `" + word.text + "`", frame)
        .help(meantOrAll(word.text, names));
    return;
  }
  schedule.kind = static_cast<ScheduleKind>(found - names.begin());
  std::map<std::string, std::function<void(const Arg &)>> readers;
  std::vector<std::string> required;
  auto reads = [&](const char *name, double &target, const Range &range, bool needed) {
    readers[name] = [this, name, &target, &range, &frame, &schedule](const Arg &arg) {
      std::optional<Number> number = settingNumber(*arg.value, name, range, frame);
      if (number && &target == &schedule.warmup && !number->integer())
        report(Code::E0603, arg.value->span, "`warmup` counts steps, but this is " + valueOf(*number), frame);
      else if (number)
        target = number->real;
    };
    if (needed)
      required.push_back(name);
  };
  reads("warmup", schedule.warmup, atLeast0, false);
  bool badAt = false;
  auto places = [&](const Arg &arg) { badAt |= !readPlaces(arg, schedule.at, frame); };
  switch (schedule.kind) {
  case ScheduleKind::Linear:
    reads("end", schedule.end, atLeast0, true);
    break;
  case ScheduleKind::Cosine: // may begin anew
    reads("end", schedule.end, atLeast0, true);
    reads("every", schedule.every, count, false);
    readers["at"] = places;
    break;
  case ScheduleKind::Polynomial:
    reads("power", schedule.power, positive, true);
    reads("end", schedule.end, atLeast0, true);
    break;
  case ScheduleKind::Step:
    reads("factor", schedule.factor, atLeast0, true);
    reads("every", schedule.every, count, false);
    readers["at"] = places;
    break;
  case ScheduleKind::Exponential:
    reads("factor", schedule.factor, atLeast0, true);
    reads("every", schedule.every, count, true);
    break;
  case ScheduleKind::WSD:
    reads("decay", schedule.decay, count, true);
    reads("end", schedule.end, atLeast0, true);
    break;
  case ScheduleKind::Constant:
  case ScheduleKind::InverseSqrt:
    break;
  }
  bool good = readOptions(word.text, word, readers, required, frame);
  bool both = schedule.every > 0 && !schedule.at.empty(), neither = schedule.every == 0 && schedule.at.empty();
  if (good && !badAt && schedule.kind == ScheduleKind::Step && (both || neither))
    report(Code::E0604, word.span, "`step` needs either `every = n` or `at = (a, b, ..)`", frame);
  if (good && !badAt && schedule.kind == ScheduleKind::Cosine && both)
    report(Code::E0603, word.span, "`cosine` begins anew either `every = n` steps or `at = (a, b, ..)`", frame);
}

} // namespace cinch
