// EvaluatedData.cpp: data beside that which is trained on: whether its fields are the same, and what differs without being wrong.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

using namespace ast;

static std::string namesText(const cinch::Field &field) {
  std::string text;
  for (const std::string &name : field.names)
    text += (text.empty() ? "(\"" : ", \"") + name + "\"";
  return text.empty() ? "no names" : "names " + text + (field.other ? ", other)" : ")");
}

static std::string columnsText(const std::vector<std::string> &columns) {
  std::string text;
  for (const std::string &column : columns)
    text += (text.empty() ? "\"" : ", \"") + column + "\"";
  return text;
}

// In what two fields differ, first of the data set that is trained on, then of the other: "is f32[B, 3], and i32[B, 3]". Empty: in nothing
// that a program reads them by. Columns of a normalized field count: each is brought to mean 0 by the mean of the column in its place.
std::string Elaborator::fieldDifference(size_t field, int dataset, size_t other) const {
  const cinch::Field &a = program.datasets[program.train.dataset].fields[field], &b = program.datasets[dataset].fields[other];
  const auto &axesA = fieldAxes[program.train.dataset][field], &axesB = fieldAxes[dataset][other];
  bool sameAxes = axesA.size() == axesB.size();
  for (size_t k = 0; sameAxes && k < axesA.size(); ++k)
    sameAxes = a.type.shape[k] == b.type.shape[k] && sameSize(axesA[k], axesB[k]);
  auto differs = [&](const std::string &mine, const std::string &theirs) { return mine + " there, and " + theirs + " here"; };
  if (a.type.dtype != b.type.dtype || !sameAxes)
    return "is " + differs(typeText(a.type.dtype, axesA, dims), typeText(b.type.dtype, axesB, dims));
  if (a.names != b.names || a.other != b.other)
    return "has " + differs(namesText(a), namesText(b));
  auto belowText = [](const cinch::Field &f) { return f.hasBelow ? "`below " + std::to_string(f.below) + "`" : "no `below`"; };
  if (a.hasBelow != b.hasBelow || a.below != b.below)
    return "has " + differs(belowText(a), belowText(b));
  auto exceptText = [](const cinch::Field &f) { return f.hasExcept ? "`except " + std::to_string(f.except) + "`" : "no `except`"; };
  if (a.hasExcept != b.hasExcept || a.except != b.except)
    return "has " + differs(exceptText(a), exceptText(b));
  if (a.normalize != b.normalize)
    return a.normalize ? "is normalized there, and not here" : "is not normalized there, and is here";
  const bool tables = program.datasets[program.train.dataset].source == Dataset::Csv && program.datasets[dataset].source == Dataset::Csv;
  if (a.normalize && tables && a.from != b.from)
    return "takes the columns " + differs(columnsText(a.from), columnsText(b.from)) + ", and each is normalized by the mean of the one in its place";
  return "";
}

// The field of the data set that is trained on, and one of another data set.
bool Elaborator::sameField(size_t field, int dataset, size_t other) const {
  const cinch::Field &a = program.datasets[program.train.dataset].fields[field], &b = program.datasets[dataset].fields[other];
  return a.name == b.name && fieldDifference(field, dataset, other).empty();
}

void Elaborator::checkSameFields(int dataset, Span span, Frame &frame) {
  const Dataset &ours = program.datasets[program.train.dataset], &other = program.datasets[dataset];
  for (size_t i = 0; i < std::max(ours.fields.size(), other.fields.size()); ++i) {
    std::string what;
    bool has = i < ours.fields.size(), both = has && i < other.fields.size();
    if (!both)
      what = "`" + (has ? ours : other).fields[i].name + "` is a field of `" + (has ? ours : other).name + "` only";
    else if (ours.fields[i].name != other.fields[i].name)
      what = "field " + std::to_string(i + 1) + " of `" + ours.name + "` is `" + ours.fields[i].name + "`, of `" + other.name + "` it is `" +
             other.fields[i].name + "`";
    else if (std::string difference = fieldDifference(i, dataset, i); !difference.empty())
      what = "`" + ours.fields[i].name + "` " + difference;
    if (what.empty())
      continue;
    report(Code::E0601, span, "`eval` needs data with the same fields as `" + ours.name + "`: " + what, frame)
        .label(i < ours.fields.size() ? ours.fields[i].span : ours.span, "there")
        .label(i < other.fields.size() ? other.fields[i].span : other.span, "here");
    return;
  }
  warnOfOtherValues(dataset);
}

// Where an option of a data set is written; else its name.
Span Elaborator::optionSpan(const Dataset &data, const char *option) const {
  for (const std::unique_ptr<Item> &item : file.items) {
    if (item->kind != ItemKind::Data || item->name.text != data.name)
      continue;
    for (const Arg &arg : static_cast<const DataItem &>(*item).args)
      if (arg.name.text == option)
        return arg.span;
    return item->name.span;
  }
  return data.span;
}

// Whether both take a row of the same file: which rows are held out is a draw for each row with `hold_seed`, compared with `hold_out`; of windows the
// last ones are.
static bool drawsRows(const Dataset &data) { return data.window == 0; }
static bool shareRows(const Dataset &a, const Dataset &b) {
  if (a.holdOut > 0 && b.holdOut > 0 && (a.holdSeed != b.holdSeed || drawsRows(a) != drawsRows(b)))
    return true;
  double beginA = a.held ? 0 : a.holdOut, endA = a.held ? a.holdOut : 1, beginB = b.held ? 0 : b.holdOut, endB = b.held ? b.holdOut : 1;
  return beginA < endB && beginB < endA;
}

// An evaluation of data whose values mean something else than those of the training data compiles, and measures nothing.
void Elaborator::warnOfOtherValues(int dataset) {
  if (dataset == program.train.dataset)
    return;
  const Dataset &ours = program.datasets[program.train.dataset], &other = program.datasets[dataset];
  for (size_t i = 0; i < ours.fields.size(); ++i) {
    const cinch::Field &a = ours.fields[i], &b = other.fields[i];
    const char *differs = a.scale != b.scale ? "has another `scale`" : a.at != b.at ? "is another part of a window" : nullptr;
    if (differs)
      diags
          .warning(Code::W0103, b.span, "`" + b.name + "` " + differs + " in `" + other.name + "`, which is evaluated, than in `" + ours.name +
                                            "`, which is trained on")
          .label(a.span, "trained on");
  }
  if (ours.source == other.source && ours.files == other.files && (ours.holdOut > 0 || other.holdOut > 0) && shareRows(ours, other))
    diags
        .warning(Code::W0103, optionSpan(other, other.holdOut > 0 ? "hold_out" : "file"),
                 "`" + other.name + "`, which is evaluated, has rows that `" + ours.name + "` is trained on: both read \"" + ours.files[0] +
                     "\", and what they hold out differs")
        .label(optionSpan(ours, ours.holdOut > 0 ? "hold_out" : "file"), "trained on")
        .help(!drawsRows(ours) ? "give both the same hold_out, and one of them held = true"
                            : "give both the same hold_out and hold_seed, and one of them held = true");
  if (ours.source != Dataset::Csv || other.source != Dataset::Csv)
    return;
  const cinch::Field *real = nullptr;
  for (const cinch::Field &field : other.fields)
    if (!real && field.type.dtype == DType::F32 && (field.normalize || !other.missingMean))
      real = &field;
  const bool same = ours.missingMean == other.missingMean && ours.hasMissing == other.hasMissing && ours.missing == other.missing;
  if (real && (other.hasMissing || other.missingMean) && !same)
    diags
        .warning(Code::W0103, optionSpan(other, "missing"),
                 "an empty cell of `" + real->name + "` counts as another number in `" + other.name + "`, which is evaluated, than in `" +
                     ours.name + "`, which is trained on")
        .label(optionSpan(ours, "missing"), ours.hasMissing || ours.missingMean ? "trained on" : "has no `missing`");
}

// The number of a field that the graph reads and the data set does not have in its type; -1: there is none.
int Elaborator::lackingField(const Graph &reader, int dataset) const {
  for (const Op &op : reader.ops) {
    bool found = op.kind != OpKind::Field;
    for (size_t i = 0; !found && i < program.datasets[dataset].fields.size(); ++i)
      found = sameField(op.integer(Key::Index), dataset, i);
    if (!found)
      return int(op.integer(Key::Index));
  }
  return -1;
}

// Data that `train` does not name is there for `--on` of the trained binary, if the model or the metrics can read it.
void Elaborator::warnUnusedData() {
  std::set<int> named = {program.train.dataset};
  for (const Every &every : program.train.every)
    named.insert(every.dataset);
  for (const auto &[name, number] : datasetIndex) {
    int lacking = lackingField(program.prediction, number);
    if (named.count(number) || lacking < 0 || lackingField(program.evaluation, number) < 0)
      continue;
    const cinch::Field &field = program.datasets[program.train.dataset].fields[lacking];
    for (const std::unique_ptr<Item> &item : file.items)
      if (item->kind == ItemKind::Data && item->name.text == name)
        diags
            .warning(Code::W0101, item->name.span,
                     "`" + name + "` is never used: `train` does not name it, and it has no field `" + field.name +
                         "` of the type that `predict --on " + name + "` needs")
            .label(field.span, "needed");
  }
}

} // namespace cinch
