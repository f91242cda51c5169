// EveryKey.cpp: `every N action(..)` of `train`: evaluations, checkpoints, logs.
#include "compiler/frontend/TrainKeys.h"

#include <algorithm>
#include <utility>

namespace cinch {

using namespace ast;

void Elaborator::readBestMetric(const Expr &e, Every &every, Frame &frame) {
  bool good = e.kind == ExprKind::Call && e.children[0]->kind == ExprKind::Name &&
              (e.children[0]->text == "max" || e.children[0]->text == "min") && e.args.size() == 1 && !e.args[0].name && e.args[0].except.empty() &&
              e.args[0].value->kind == ExprKind::Name;
  if (!good) {
    report(Code::E0603, e.span, "`best` is max(m) or min(m) of a metric or the loss", frame);
    return;
  }
  every.best = e.args[0].value->text;
  every.bestSpan = e.span;
  every.bestIsMax = e.children[0]->text == "max";
  std::vector<std::string> metrics = {"loss"};
  for (const Statement &statement : train->clauses)
    if (statement.kind == StatementKind::Metric)
      metrics.push_back(statement.names[0].text);
  if (std::find(metrics.begin(), metrics.end(), every.best) == metrics.end())
    report(Code::E0101, e.args[0].value->span, "unknown metric `" + every.best + "`", frame)
        .help(meantOrAll(every.best, metrics));
  for (const NamedValue &metric : program.metrics)
    if (metric.name == every.best && metric.op >= 0 && !program.evaluation.ops[metric.op].type.shape.empty())
      report(Code::E0603, e.span, "`best` needs one number, but metric `" + every.best + "` has axes", frame);
}

std::function<void(const Arg &)> Elaborator::countReader(const char *name, int64_t &target, Frame &frame) {
  return [=, this, &target, &frame](const Arg &arg) {
    if (std::optional<Number> number = settingNumber(*arg.value, name, Range{Range::Count}, frame))
      target = *number->integer();
  };
}

bool Elaborator::readEval(const SettingWord &what, Every &every, Frame &frame) {
  every.kind = Every::Eval;
  bool hasBest = false;
  std::vector<const Expr *> plain;
  readOptions(what.text, what,
              {{"patience", countReader("patience", every.patience, frame)},
               {"batches", countReader("batches", every.batches, frame)},
               {"best", [&](const Arg &arg) { hasBest = true, readBestMetric(*arg.value, every, frame); }}},
              {}, frame, &plain);
  bool hasPatience = std::any_of(what.args.begin(), what.args.end(), [](const Arg &arg) { return arg.name.text == "patience"; });
  if (hasPatience != hasBest)
    report(Code::E0604, what.span, "`patience` and `best` of `eval` go together", frame)
        .help("eval(" + (plain.size() == 1 && plain[0]->kind == ExprKind::Name ? plain[0]->text : std::string("valid")) +
              ", patience = 5, best = min(loss)) ends training when five evaluations brought no better loss");
  if (plain.size() != 1 || plain[0]->kind != ExprKind::Name) {
    report(Code::E0603, what.span, "`eval` takes one dataset, eval(valid)", frame);
    return false;
  }
  const Expr &name = *plain[0];
  auto data = datasetIndex.find(name.text);
  if (data == datasetIndex.end()) {
    std::vector<std::string> names;
    for (const auto &[known, index] : datasetIndex)
      names.push_back(known);
    std::sort(names.begin(), names.end());
    report(Code::E0101, name.span, "unknown data `" + name.text + "`", frame).help(meantOrAll(name.text, names));
    return false;
  }
  every.dataset = data->second;
  checkSameFields(data->second, name.span, frame);
  return true;
}

// Without `.`, double slashes and one at the end.
static std::string plainPath(const std::string &path) {
  std::string plain = path.front() == '/' ? "/" : "";
  for (size_t at = 0; at < path.size();) {
    size_t end = std::min(path.find('/', at), path.size());
    const std::string piece = path.substr(at, end - at);
    if (!piece.empty() && piece != ".")
      plain += (plain.empty() || plain.back() == '/' ? "" : "/") + piece;
    at = end + 1;
  }
  return plain;
}

// A run moves the checkpoints of an earlier one out of its way, so their folder is one under OUT that nothing else is written to.
static std::string whyNoFolder(const std::string &dir, const std::vector<Every> &others) {
  auto isIn = [](const std::string &path, const std::string &folder) { return path.compare(0, folder.size() + 1, folder + "/") == 0; };
  if (dir.empty())
    return "other files lie there, too";
  if (dir.front() == '/')
    return "they lie in the folder of the run, and this is one of the machine";
  if (("/" + dir + "/").find("/../") != std::string::npos)
    return "they lie in the folder of the run, and `..` leads out of it";
  for (const char *own : {"final.safetensors", "log.csv", "log.jsonl", "log.html", "tensorboard", "predict"})
    if (dir == own || isIn(dir, own))
      return std::string("a run writes `") + own + "` itself";
  for (const Every &other : others)
    if (other.kind == Every::Checkpoint && (isIn(dir, other.dir) || isIn(other.dir, dir)))
      return "those of another rule lie in `" + other.dir + "`, and one folder is inside the other";
  return "";
}

bool Elaborator::readCheckpoint(const SettingWord &what, Every &every, Frame &frame) {
  every.kind = Every::Checkpoint;
  std::vector<const Expr *> plain;
  readOptions(what.text, what,
              {{"keep", countReader("keep", every.keep, frame)},
               {"best", [&](const Arg &arg) { readBestMetric(*arg.value, every, frame); }}},
              {"keep"}, frame, &plain);
  if (plain.size() != 1 || plain[0]->kind != ExprKind::String || plain[0]->text.empty()) {
    report(Code::E0603, what.span, "`checkpoint` takes a directory, checkpoint(\"run\", keep = 3)", frame);
    return false;
  }
  every.dir = plainPath(plain[0]->text);
  const std::string why = whyNoFolder(every.dir, program.train.every);
  if (!why.empty())
    report(Code::E0603, plain[0]->span, "checkpoints cannot lie in " + textOf(plain[0]->span) + ": " + why, frame)
        .help("name a folder for them alone, checkpoint(\"run\", keep = 3)");
  return why.empty();
}

bool Elaborator::readLog(const SettingWord &what, Every &every, Frame &frame) {
  static const std::map<std::string, bool Every::*> kinds = {
      {"csv", &Every::csv}, {"jsonl", &Every::jsonl}, {"tensorboard", &Every::tensorboard}, {"html", &Every::html}};
  every.kind = Every::Log;
  std::vector<const Expr *> plain;
  readOptions(what.text, what, {}, {}, frame, &plain);
  for (const Expr *expr : plain) {
    const std::string text = expr->kind == ExprKind::Name ? expr->text : "";
    if (auto kind = kinds.find(text); kind != kinds.end()) {
      if (std::exchange(every.*kind->second, true))
        report(Code::E0603, expr->span, "`" + text + "` is given twice", frame).help("write it once");
      continue;
    }
    std::vector<std::string> names;
    for (const auto &[name, kind] : kinds)
      names.push_back(name);
    report(Code::E0602, expr->span, "`log` takes csv, jsonl, tensorboard and html, but this is `" + textOf(expr->span) + "`", frame)
        .help(didYouMean(text, names));
  }
  if (plain.empty())
    report(Code::E0603, what.span, "`log` needs csv, jsonl, tensorboard or html in parentheses: log(csv)", frame);
  return true;
}

// `best` of a checkpoint goes by the first evaluation of the text.
void Elaborator::checkBest(Frame &frame) {
  const std::vector<Every> &rules = program.train.every;
  if (std::any_of(rules.begin(), rules.end(), [](const Every &rule) { return rule.kind == Every::Eval; }))
    return;
  for (const Every &rule : rules)
    if (rule.kind == Every::Checkpoint && !rule.best.empty())
      report(Code::E0604, rule.bestSpan, "`best` goes by an evaluation, and `train` has none", frame)
          .help("write every epoch eval(valid), with the data set that says how good a checkpoint is, or leave `best` out");
}

void Elaborator::readEvery(const Setting &setting, Frame &frame) {
  // `every 5 epoch eval(..)`: the unit is not said, and epochs are not counted.
  if (setting.words.size() == 3 && setting.words[0].kind == SettingWord::Number && setting.words[1].kind == SettingWord::Name && !setting.words[1].hasArgs) {
    const SettingWord &unit = setting.words[1];
    const std::string action = textOf(setting.words[2].span), number = setting.words[0].text;
    const bool isWhole = number.find_first_not_of("0123456789") == std::string::npos;
    report(Code::E0603, unit.span, "`every` takes a number of steps, or `epoch` alone, and then what is done", frame)
        .help(isWhole ? "write every " + number + " " + action + " to do it every " + number + " steps, or every epoch " + action +
                            " to do it at the end of each epoch"
                      : "write every epoch " + action + ", or the number of steps: an epoch has as many as the examples divided by " +
                            std::to_string(program.batch) + ", the batch");
    return;
  }
  if (setting.words.size() != 2 || setting.words[1].kind != SettingWord::Name) {
    report(Code::E0603, setting.span, "write every N eval(data), checkpoint(\"dir\", keep = n) or log(csv)", frame);
    return;
  }
  Every every;
  const SettingWord &when = setting.words[0], &what = setting.words[1];
  if (when.kind == SettingWord::Name && when.text == "epoch" && !when.hasArgs)
    every.steps = 0;
  else if (std::optional<Number> number = wordNumber(when, "every", Range{Range::Count}, frame))
    every.steps = *number->integer();
  else
    return;
  static const std::map<std::string, bool (Elaborator::*)(const SettingWord &, Every &, Frame &)> actions = {
      {"eval", &Elaborator::readEval}, {"checkpoint", &Elaborator::readCheckpoint}, {"log", &Elaborator::readLog}};
  auto action = actions.find(what.text);
  if (action == actions.end())
    report(Code::E0602, what.textSpan, "unknown action `" + what.text + "`", frame)
        .help(meantOrAll(what.text, {"eval", "checkpoint", "log"}));
  else if ((this->*action->second)(what, every, frame))
    program.train.every.push_back(every);
}

} // namespace cinch
