// Settings.cpp: the simple keys of `train`.
#include "compiler/frontend/RunValues.h"
#include "compiler/frontend/TrainKeys.h"

#include <algorithm>
#include <set>

namespace cinch {

using namespace ast;

bool Elaborator::oneWord(const Setting &setting, const char *form, Frame &frame) {
  if (setting.words.size() == 1 && !setting.key.hasArgs)
    return true;
  report(Code::E0603, setting.span, "write " + std::string(form), frame);
  return false;
}

// The first `clip norm` or `clip value`.
static const Setting *firstClip(const TrainItem &train, const std::string &kind) {
  for (const Statement &statement : train.clauses) {
    const Setting &setting = statement.setting;
    if (statement.kind == StatementKind::Setting && setting.key.text == "clip" && !setting.words.empty() && setting.words[0].text == kind)
      return &setting;
  }
  return nullptr;
}

void Elaborator::readClip(const Setting &setting, Frame &frame) {
  if (!oneWord(setting, "clip norm(x) or clip value(x)", frame))
    return;
  const SettingWord &word = setting.words[0];
  bool norm = word.text == "norm";
  if (word.kind != SettingWord::Name || (!norm && word.text != "value")) {
    report(Code::E0602, word.span, "unknown clipping `" + textOf(word.span) + "`; there are norm(x) and value(x)",
           frame)
        .help(didYouMean(word.text, {"norm", "value"}));
    return;
  }
  if (word.args.size() != 1 || word.args[0].name) {
    report(Code::E0603, word.span, "`" + word.text + "` takes one number", frame);
    return;
  }
  if (const Setting *first = firstClip(*train, word.text); first != &setting)
    report(Code::E0603, setting.span, "`clip " + word.text + "` is given twice", frame).label(first->span, "first here").help("leave one of them out");
  else if (std::optional<Number> number = settingNumber(*word.args[0].value, word.text, Range{Range::Positive}, frame))
    (norm ? program.train.clipNorm : program.train.clipValue) = number->real;
}

void Elaborator::readPrecision(const Setting &setting, Frame &frame) {
  if (!oneWord(setting, "precision f32, precision tf32, precision f64 or precision bf16(master = f32, accumulate = f32)", frame))
    return;
  const SettingWord &word = setting.words[0];
  if (word.text == "bf16") {
    program.train.bf16 = true;
    std::set<std::string> given;
    for (const Arg &arg : word.args) {
      const std::string name = arg.name ? arg.name.text : "";
      if ((name != "master" && name != "accumulate") || !given.insert(name).second || arg.value->kind != ExprKind::Name ||
          arg.value->text != "f32")
        report(Code::E0603, arg.span, "parameters and sums of `precision bf16` are f32", frame)
            .help("write bf16(master = f32, accumulate = f32)");
    }
  } else if (word.text == "f32" || word.text == "tf32" || word.text == "f64") {
    program.train.f64 = word.text == "f64", program.train.tf32 = word.text == "tf32";
    if (word.hasArgs)
      report(Code::E0603, word.span, "`precision " + word.text + "` takes nothing in parentheses", frame);
  } else
    report(Code::E0603, word.span, "unknown precision `" + textOf(word.span) + "`", frame)
        .help(meantOrAll(word.text, {"f32", "tf32", "f64", "bf16"}));
}

static constexpr int64_t kMostStale = 8;

const char *nameOf(Combine combine) {
  static const char *const names[] = {"exact", "reduce", "ring_average", "async", "hogwild"};
  return names[int(combine)];
}

void Elaborator::readCombine(const Setting &setting, Frame &frame) {
  if (!oneWord(setting, "combine exact, or a way with its number of replicas, as combine reduce(D)", frame))
    return;
  const SettingWord &word = setting.words[0];
  Train &train = program.train;
  if (word.text == "exact" && !word.hasArgs)
    return;
  std::optional<Combine> way;
  for (Combine each : {Combine::Reduce, Combine::RingAverage, Combine::Async, Combine::Hogwild})
    if (word.text == nameOf(each))
      way = each;
  if (!way) {
    report(Code::E0603, word.span, "replicas cannot combine their gradients by `" + textOf(word.span) + "`", frame)
        .help(meantOrAll(word.text, {"exact", "reduce", "ring_average", "async", "hogwild"}));
    return;
  }
  bool late = word.args.size() == 2 && way == Combine::Async && word.args[1].name && word.args[1].name.text == "delay";
  if (word.args.empty() || word.args[0].name || (word.args.size() != 1 && !late)) {
    report(Code::E0603, word.span, "`" + word.text + "` takes the number of replicas" + (way == Combine::Async ? ", and may take a delay" : ""), frame)
        .help("write " + word.text + (way == Combine::Async ? "(2, delay = 0)" : "(2)"));
    return;
  }
  std::optional<Number> number = settingNumber(*word.args[0].value, word.text, Range{Range::Count}, frame);
  std::optional<Number> delay = late ? settingNumber(*word.args[1].value, "delay", Range{Range::AtLeast0}, frame) : Number();
  if (!number || !delay)
    return;
  if (late && (!delay->integer() || *delay->integer() > kMostStale)) {
    report(Code::E0603, word.args[1].span, "`delay` is a whole number of a replica's turns, from 0 to " + std::to_string(kMostStale), frame);
    return;
  }
  train.combine = *way, train.combined = *number->integer(), train.stale = late ? *delay->integer() : 0;
  checkDelays(word.span, frame);
  if (program.batch % train.combined != 0)
    report(Code::E0603, word.span,
           "the replicas must divide the batch, but " + std::to_string(train.combined) + " does not divide " + std::to_string(program.batch), frame);
}

void Elaborator::readShards(const Setting &setting, Frame &frame) {
  std::optional<Number> number = readNumber(setting, "shards T", Range{Range::Count}, frame);
  if (!number)
    return;
  constexpr int64_t most = 64;
  program.train.shards = *number->integer();
  if (program.train.shards > most)
    report(Code::E0603, setting.words[0].span, "at most " + std::to_string(most) + " shards share a layer", frame);
}

void Elaborator::checkDelays(Span span, Frame &frame) {
  const Train &train = program.train;
  if (train.delay && (train.combine == Combine::Async || train.combine == Combine::Hogwild))
    report(Code::E0603, span, std::string("`combine ") + nameOf(train.combine) + "` has a delay of its own, so that there can be no `delay` beside it",
           frame)
        .help(train.combine == Combine::Async ? "async(D, delay = k) says how late its gradients are" : "");
}

// `epochs = 10` defines a name.
std::string Elaborator::settingWithEqual(const char *key, const char *other) const {
  for (const Statement &statement : train->clauses)
    if (statement.kind == StatementKind::Define && (statement.names[0].text == key || statement.names[0].text == other))
      return "settings have no `=`: write `" + statement.names[0].text + " " + textOf(statement.values[0]->span) + "`";
  return "";
}

// ---- The keys of train --------------------------------------------------------------------------------------------
void Elaborator::readSeed(Frame &frame) {
  std::optional<Fraction> seed = train->seedUnit.empty() ? Fraction::parse(train->seed) : std::nullopt;
  if (seed && seed->isWhole() && seed->sign() >= 0 &&
      compare(*seed, *Fraction::make(Fraction::Int(UINT64_MAX), 1)) <= 0)
    program.train.seed = static_cast<uint64_t>(seed->numerator());
  else
    report(Code::E0603, train->seedSpan, "the seed must be a whole number below 2^64", frame);
}

// A key with one number behind it; nothing after an error.
std::optional<Number> Elaborator::readNumber(const Setting &setting, const char *form, const Range &range, Frame &frame) {
  return oneWord(setting, form, frame) ? wordNumber(setting.words[0], setting.key.text, range, frame) : std::nullopt;
}

void Elaborator::readSteps(const Setting &setting, Frame &frame) {
  if (std::optional<Number> number = readNumber(setting, "steps N or epochs N", Range{Range::Count}, frame))
    (setting.key.text == "steps" ? program.train.steps : program.train.epochs) = *number->integer();
}

void Elaborator::readGrain(const Setting &setting, Frame &frame) {
  std::optional<Number> number = readNumber(setting, "grain N", Range{Range::Count}, frame);
  if (!number)
    return;
  int64_t grain = program.train.grain = *number->integer();
  if (program.batch % grain != 0)
    report(Code::E0603, setting.words[0].span,
           "`grain` must divide the batch, but " + std::to_string(grain) + " does not divide " + std::to_string(program.batch), frame);
}

void Elaborator::readDelay(const Setting &setting, Frame &frame) {
  std::optional<Number> number = readNumber(setting, "delay 1", Range{Range::Count}, frame);
  if (!number)
    return;
  int64_t delay = program.train.delay = *number->integer();
  if (delay != 1)
    report(Code::E0603, setting.words[0].span, "`delay` is 1: gradients one update late, but this is " + std::to_string(delay), frame)
        .help("without `delay` gradients are those at the parameters themselves");
  checkDelays(setting.span, frame);
}

void Elaborator::readFreeze(const Setting &setting, Frame &frame) {
  if (setting.key.args.empty() || !setting.words.empty())
    report(Code::E0603, setting.span, "write freeze(p)", frame);
  for (int parameter : matchPaths(setting.key.args, frame))
    program.parameters[parameter].frozen = true;
}

void Elaborator::readEma(const Setting &setting, Frame &frame) {
  if (std::optional<Number> number = readNumber(setting, "ema D", Range{Range::Below1}, frame)) {
    program.train.hasEma = true;
    program.train.ema = number->real;
  }
}

// Reads all settings; gives the place of the first of each key.
std::map<std::string, Span> Elaborator::readKeys(Frame &frame) {
  struct Key {
    bool many; // may be given several times
    void (Elaborator::*read)(const Setting &, Frame &);
  };
  static const std::map<std::string, Key> keys = {
      {"optimizer", {true, &Elaborator::readOptimizer}}, {"every", {true, &Elaborator::readEvery}},
      {"freeze", {true, &Elaborator::readFreeze}},       {"clip", {true, &Elaborator::readClip}},
      {"schedule", {false, &Elaborator::readSchedule}},  {"steps", {false, &Elaborator::readSteps}},
      {"epochs", {false, &Elaborator::readSteps}},       {"precision", {false, &Elaborator::readPrecision}},
      {"ema", {false, &Elaborator::readEma}},            {"grain", {false, &Elaborator::readGrain}},
      {"delay", {false, &Elaborator::readDelay}},        {"init", {false, &Elaborator::readInit}},
      {"combine", {false, &Elaborator::readCombine}},    {"shards", {false, &Elaborator::readShards}},
  };
  static const std::set<std::string> planKeys = {"memory", "microbatch", "stages", "remat", "offload"};
  std::map<std::string, Span> seen;
  for (const Statement &statement : train->clauses) {
    if (statement.kind != StatementKind::Setting)
      continue;
    const Setting &setting = statement.setting;
    const std::string &name = setting.key.text;
    auto key = keys.find(name);
    if (key == keys.end()) {
      std::vector<std::string> names;
      for (const auto &[known, reader] : keys)
        names.push_back(known);
      report(Code::E0602, setting.key.textSpan, "unknown key `" + name + "` in train", frame)
          .help(planKeys.count(name) ? "`" + name + "` belongs into `plan { .. }`" : meantOrAll(name, names));
      continue;
    }
    auto [first, isNew] = seen.try_emplace(name, setting.span);
    if (!isNew && !key->second.many) {
      report(Code::E0603, setting.span, "`" + name + "` is given twice", frame).label(first->second, "first here");
      continue;
    }
    refuseExcept(setting, frame);
    if (setting.key.hasArgs && name != "freeze")
      report(Code::E0603, setting.key.span, "`" + name + "` itself has nothing in parentheses", frame).help("its values stand behind it");
    else
      (this->*key->second.read)(setting, frame);
  }
  return seen;
}

// blocks.3.fc.weight -> blocks.*.fc.weight
static std::string blocksAsOne(const std::string &path) {
  std::string pattern;
  for (size_t begin = 0; begin <= path.size();) {
    size_t end = std::min(path.find('.', begin), path.size());
    std::string part = path.substr(begin, end - begin);
    bool number = !part.empty() && part.find_first_not_of("0123456789") == std::string::npos;
    pattern += (begin ? "." : "") + (number ? std::string("*") : part);
    begin = end + 1;
  }
  return pattern;
}

// What to write where `rule` was given parameters that have too few axes: those that it can take, blocks of a `repeat` as one pattern.
std::string Elaborator::exampleOfTaking(const OptimizerRule &rule, int optimizer) {
  constexpr size_t enough = 6;
  std::vector<std::string> patterns;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    const cinch::Parameter &parameter = program.parameters[i];
    int owner = optimizerOf[i] >= 0 ? optimizerOf[i] : restOptimizer;
    if (parameter.state || parameter.frozen || owner != optimizer || parameter.type.shape.size() < rule.leastAxes)
      continue;
    std::string pattern = blocksAsOne(parameter.path);
    if (std::find(patterns.begin(), patterns.end(), pattern) == patterns.end())
      patterns.push_back(pattern);
  }
  if (patterns.empty())
    return "give these parameters another optimizer";
  std::string list;
  for (size_t i = 0; i < patterns.size() && i < enough; ++i)
    list += (i ? ", \"" : "\"") + patterns[i] + "\"";
  return "write optimizer " + std::string(rule.name) + "(..) on (" + list + (patterns.size() > enough ? ", .." : "") +
         "), and give the others an optimizer in another line";
}

// Every parameter belongs to the optimizer that names it, or to the one that takes the rest.
void Elaborator::assignOptimizers(Frame &frame) {
  std::vector<Optimizer> &optimizers = program.train.optimizers;
  for (size_t i = 0; i < program.parameters.size(); ++i) {
    cinch::Parameter &parameter = program.parameters[i];
    if (parameter.state)
      continue;
    parameter.optimizer = optimizerOf[i] >= 0 ? optimizerOf[i] : restOptimizer;
    if (parameter.optimizer < 0 && parameter.frozen)
      parameter.optimizer = 0; // it is never asked
    if (parameter.optimizer < 0) {
      if (!unclearOptimizer)
        report(Code::E0604, optimizers[0].span, "parameter `" + parameter.path + "` has no optimizer", frame)
            .help("add an `optimizer` without `on` for the rest");
      parameter.optimizer = 0;
      break;
    }
    parameter.decays = !sparedBy.count({parameter.optimizer, static_cast<int>(i)});
    const OptimizerRule &rule = *optimizers[parameter.optimizer].rule;
    if (size_t axes = parameter.type.shape.size(); axes < rule.leastAxes && !parameter.frozen) {
      report(Code::E0603, optimizers[parameter.optimizer].span,
             "`" + std::string(rule.name) + "` is for parameters of " + std::to_string(rule.leastAxes) + " axes or more, but `" +
                 parameter.path + "` has " + std::to_string(axes),
             frame)
          .help(exampleOfTaking(rule, parameter.optimizer));
      break;
    }
  }
}

void Elaborator::checkKeys() {
  Frame frame = fileFrame;
  optimizerOf.assign(program.parameters.size(), -1);
  readSeed(frame);
  std::map<std::string, Span> seen = readKeys(frame);
  if (seen.count("steps") && seen.count("epochs"))
    report(Code::E0603, seen["epochs"], "`steps` and `epochs` exclude each other", frame)
        .label(seen["steps"], "steps are given here");
  applySettings();
  checkGrain();
  checkNameMaps();
  if (!diags.hasErrors()) // an evaluation that is wrong is not missing
    checkBest(frame);
  const Train &settings = program.train;
  if (!settings.steps && !settings.epochs && !seen.count("steps") && !seen.count("epochs"))
    report(Code::E0604, train->header, "`train` needs `steps N` or `epochs N`", frame).help(settingWithEqual("steps", "epochs"));
  if (!seen.count("optimizer"))
    report(Code::E0604, train->header, "`train` needs an `optimizer`", frame).help(settingWithEqual("optimizer", "optimizer"));
  if (!settings.optimizers.empty())
    assignOptimizers(frame);
}

} // namespace cinch
