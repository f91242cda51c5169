// PrintProgram.cpp: a Program as text, one op a line, for tests and for people.
#include "compiler/frontend/Check.h"

#include <cstdio>

namespace cinch {

static const char *const sourceNames[] = {"idx", "npy", "npz", "csv", "safetensors", "text", "tokens", "records"};
static const char *const dtypeNames[] = {"f32", "i32", "bool"};

static std::string real(double value) {
  char buffer[40];
  snprintf(buffer, sizeof buffer, "%.9g", value);
  return buffer;
}

static std::string typeText(const TensorType &type) {
  std::string text = std::string(dtypeNames[static_cast<int>(type.dtype)]) + "[";
  for (size_t i = 0; i < type.shape.size(); ++i)
    text += (i ? ", " : "") + std::string(static_cast<int>(i) != type.batch ? "" : type.group > 1 ? std::to_string(type.group) + "*" : "*") + std::to_string(type.shape[i]);
  return text + "]";
}

static std::string real(int64_t value) { return std::to_string(value); }
template <typename T> static std::string listText(const std::vector<T> &values) {
  std::string text;
  for (const T &value : values)
    text += (text.empty() ? "" : ", ") + real(value);
  return "[" + text + "]";
}

// An attribute behind its name, which lists, choices and the number of a constant do without; those that say what is so anyway
// are left out.
static std::string attributeText(const AttrInfo &info, const AttrValue &value) {
  if (value == info.absent)
    return "";
  std::string text, name = info.key == Key::Number ? "" : std::string(" ") + info.name;
  switch (info.kind) {
  case AttrKind::Integer:
    return name + " " + real(std::get<int64_t>(value));
  case AttrKind::Number:
    return name + " " + real(std::get<double>(value));
  case AttrKind::Flag:
    return name;
  case AttrKind::Integers:
    return " " + listText(std::get<std::vector<int64_t>>(value));
  case AttrKind::Numbers:
    return " " + listText(std::get<std::vector<double>>(value));
  case AttrKind::Lists:
    for (const std::vector<int64_t> &list : std::get<Lists>(value))
      text += " " + listText(list);
    return text;
  case AttrKind::Choice:
    break;
  }
  return std::string(" ") + nameOf(info.choice, std::get<int64_t>(value));
}

static std::string opText(const Op &op, const Program &program, size_t number) {
  const OpInfo &info = infoOf(op.kind);
  std::string text = "  %" + std::to_string(number) + " = " + info.name;
  if (op.kind == OpKind::Parameter)
    text += " " + program.parameters[op.integer(Key::Index)].path;
  if (op.kind == OpKind::Field)
    text += " " + program.datasets[program.train.dataset].fields[op.integer(Key::Index)].name;
  auto attributes = [&](bool choices) { // choices stand before the operands
    for (size_t i = 0; i < info.attributes.size(); ++i)
      if (info.attributes[i].key != Key::Index && (info.attributes[i].kind == AttrKind::Choice) == choices)
        text += attributeText(info.attributes[i], op.attributes[i]);
  };
  attributes(true);
  for (size_t i = 0; i < op.operands.size(); ++i)
    if (op.operands[i] >= 0) {
      bool optional = i < info.operands.size() && info.operands[i].count == Count::Optional;
      text += (optional ? std::string(" ") + info.operands[i].name + " %" : i ? ", %" : " %") +
              std::to_string(op.operands[i]);
    }
  attributes(false);
  text += " : " + typeText(op.type);
  std::string marks = std::string(op.keep ? " keep" : "") + (op.recompute ? " recompute" : "");
  if (op.endsStage)
    marks += " stage " + (*op.endsStage < 0 ? std::string("auto") : std::to_string(*op.endsStage));
  static const char *shares[] = {"none", "column", "row"};
  if (op.shard)
    marks += std::string(" shard ") + shares[*op.shard];
  if (op.block >= 0)
    marks += " block " + std::to_string(op.block) + (op.blockEnd ? " end" : "");
  const Instance &instance = program.instances[op.instance];
  return text + marks + "  // " + instance.path + (instance.path.empty() ? "" : ": ") + instance.layer + "\n";
}

static std::string graphText(const char *name, const Graph &graph, const Program &program) {
  std::string text = std::string(name) + " {\n";
  for (size_t i = 0; i < graph.ops.size(); ++i)
    text += opText(graph.ops[i], program, i);
  return text + "}\n";
}

static std::string dataText(const Dataset &data) {
  std::string text = "data " + data.name + " = " + sourceNames[data.source];
  for (const std::string &file : data.files)
    text += " \"" + file + "\"";
  if (data.window)
    text += " window " + std::to_string(data.window) + " stride " + std::to_string(data.stride);
  if (data.source == Dataset::Tokens)
    text += " u" + std::to_string(data.tokenBits) + " header " + std::to_string(data.header);
  if (data.source == Dataset::Csv)
    text += std::string(" header ") + (data.csvHeader ? "true" : "false") + " separator \"" + data.separator + "\"";
  if (!data.shuffle)
    text += " in order";
  text += "\n";
  for (const Field &field : data.fields) {
    text += "  " + field.name + ": " + typeText(field.type);
    if (field.scale != 1)
      text += " scale " + real(field.scale);
    if (field.normalize)
      text += " normalize";
    if (field.at)
      text += " at " + std::to_string(field.at);
    for (const std::string &name : field.names)
      text += " \"" + name + "\"";
    if (field.other)
      text += " other";
    if (field.hasBelow)
      text += " below " + std::to_string(field.below);
    if (field.hasExcept)
      text += " except " + std::to_string(field.except);
    for (const std::string &from : field.from)
      text += " from \"" + from + "\"";
    text += "\n";
  }
  return text;
}

static std::string trainText(const Program &program) {
  const Train &train = program.train;
  std::string text = "train " + train.model + " on " + program.datasets[train.dataset].name + " seed " +
                     std::to_string(train.seed) + (train.f64 || train.bf16 || train.tf32 ? std::string(" ") + train.precision() : "") + "\n";
  for (const Optimizer &o : train.optimizers) {
    text += std::string("  optimizer ") + o.rule->name;
    for (const Hyperparameter &each : o.rule->hyperparameters) {
      size_t place = o.rule->placeOf(each.name);
      if (each.kind == Hyperparameter::Flag) {
        text += o.values[place] != 0 ? std::string(" ") + each.name : "";
        continue;
      }
      text += std::string(" ") + each.name;
      for (size_t i = 0; i < each.size(); ++i)
        text += " " + real(o.values[place + i]);
    }
    text += "\n";
  }
  const Schedule &s = train.schedule;
  text += std::string("  schedule ") + nameOf(s.kind) + " warmup " + real(s.warmup) + " end " + real(s.end) +
          " power " + real(s.power) + " factor " + real(s.factor) + " every " + real(s.every) + " decay " +
          real(s.decay);
  if (!s.at.empty())
    text += " at " + listText(s.at);
  text += "\n";
  if (train.steps)
    text += "  steps " + std::to_string(train.steps) + "\n";
  if (train.epochs)
    text += "  epochs " + std::to_string(train.epochs) + "\n";
  if (train.clipNorm > 0)
    text += "  clip norm " + real(train.clipNorm) + "\n";
  if (train.clipValue > 0)
    text += "  clip value " + real(train.clipValue) + "\n";
  if (train.hasEma)
    text += "  ema " + real(train.ema) + "\n";
  if (train.grain)
    text += "  grain " + std::to_string(train.grain) + "\n";
  if (train.shards > 1)
    text += "  shards " + std::to_string(train.shards) + "\n";
  if (train.combine != Combine::Exact)
    text += "  combine " + std::string(nameOf(train.combine)) + " " + std::to_string(train.combined) +
            (train.stale ? " delay " + std::to_string(train.stale) : "") + "\n";
  if (train.delay)
    text += "  delay " + std::to_string(train.delay) + "\n";
  for (const Every &e : train.every) {
    text += "  every " + (e.steps ? std::to_string(e.steps) : std::string("epoch"));
    if (e.kind == Every::Eval)
      text += " eval " + program.datasets[e.dataset].name + (e.batches ? " batches " + std::to_string(e.batches) : "") +
              (e.patience ? " patience " + std::to_string(e.patience) + (e.bestIsMax ? " best max " : " best min ") + e.best : "");
    else if (e.kind == Every::Checkpoint)
      text += " checkpoint \"" + e.dir + "\" keep " + std::to_string(e.keep) +
              (e.best.empty() ? "" : std::string(" best ") + (e.bestIsMax ? "max " : "min ") + e.best);
    else
      text += std::string(" log") + (e.csv ? " csv" : "") + (e.jsonl ? " jsonl" : "") +
              (e.tensorboard ? " tensorboard" : "") + (e.html ? " html" : "");
    text += "\n";
  }
  const PlanSettings &p = program.plan;
  text += "plan memory " + std::to_string(p.memory) + " microbatch " + std::to_string(p.microbatch) + " stages " +
          std::to_string(p.stages) + " schedule " + p.schedule + " remat " + p.remat + " offload " + p.offload + "\n";
  return text;
}

std::string printProgram(const Program &program) {
  std::string text =
      "model " + program.modelName + " batch " + program.batchName + " = " + std::to_string(program.batch) + "\n";
  int64_t total = 0;
  for (const Parameter &parameter : program.parameters) {
    int64_t size = 1;
    for (int64_t axis : parameter.type.shape)
      size *= axis;
    total += size;
    text += (parameter.state ? "state " : "parameter ") + parameter.path + ": " + typeText(parameter.type) + " ~ " + nameOf(parameter.init.kind) +
            " " + real(parameter.init.a) + " optimizer " + std::to_string(parameter.optimizer) +
            (parameter.decays ? "" : " no decay") + (parameter.frozen ? " frozen" : "") + "\n";
  }
  text += "parameters " + std::to_string(total) + "\n";
  for (const Dataset &data : program.datasets)
    text += dataText(data);
  text += trainText(program);
  text += graphText("step", program.step, program);
  text += "loss %" + std::to_string(program.loss) + "\n";
  for (const StateUpdate &update : program.updates)
    text += "update " + program.parameters[update.parameter].path + " %" + std::to_string(update.op) + "\n";
  text += graphText("evaluation", program.evaluation, program);
  for (const NamedValue &metric : program.metrics)
    text += "metric " + metric.name + " %" + std::to_string(metric.op) + "\n";
  text += graphText("prediction", program.prediction, program);
  for (const NamedValue &result : program.results)
    text += "result " + result.name + " %" + std::to_string(result.op) + "\n";
  return text;
}

} // namespace cinch
