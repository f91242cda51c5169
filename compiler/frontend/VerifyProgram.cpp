// VerifyProgram.cpp: every op of a Program against the table and its shape rule, apart from the elaborator that made it.
#include "compiler/frontend/VerifyProgram.h"
#include "dialects/ops/Shapes.h"

#include <algorithm>
#include <set>

namespace cinch {

namespace {

class GraphVerifier {
public:
  GraphVerifier(const Program &program, const Graph &graph, const char *name, int dataset)
      : program(program), graph(graph), name(name), dataset(dataset) {}

  std::string run() {
    for (size_t i = 0; i < graph.ops.size(); ++i) {
      const Op &op = graph.ops[i];
      std::string fault = faultOf(op, i);
      if (fault.empty())
        continue;
      fault = std::string(name) + ", op " + std::to_string(i) + " (" + infoOf(op.kind).name + "): " + fault +
              "; result " + typeText(op.type);
      for (int operand : op.operands)
        if (operand >= 0 && static_cast<size_t>(operand) < i)
          fault += ", operand " + typeText(graph.ops[operand].type);
      return fault;
    }
    return "";
  }

private:
  std::string faultOf(const Op &op, size_t place) {
    OpView view{op.kind, {}, op.attributes};
    for (int operand : op.operands) {
      if (operand < -1 || operand >= static_cast<int>(place))
        return "uses a value before it is defined";
      view.operands.push_back(operand < 0 ? nullptr : &graph.ops[operand].type);
    }
    if (op.instance < 0 || static_cast<size_t>(op.instance) >= std::max<size_t>(program.instances.size(), 1))
      return "unknown instance";
    if (std::string fault = faultOf(op.type); !fault.empty())
      return fault;
    if (std::string fault = checkForm(view); !fault.empty())
      return fault;
    std::vector<TensorType> results;
    if (!infersTypes(op.kind))
      results.push_back(op.type);
    if (std::string fault = applyShapeRule(view, results); !fault.empty())
      return fault;
    if (op.kind <= OpKind::ValidRows)
      if (std::string fault = typeOfInput(op, results[0]); !fault.empty())
        return fault;
    if (op.kind > OpKind::ValidRows && op.kind <= OpKind::LoopFinal)
      if (std::string fault = typeInLoop(op, results[0]); !fault.empty())
        return fault;
    if (results[0] != op.type)
      return "expected the result " + typeText(results[0]);
    return bit(op.type.dtype) & infoOf(op.kind).results[0].types ? "" : "the result's element type";
  }

  std::string faultOf(const TensorType &type) {
    int64_t elements = 1;
    for (int64_t size : type.shape) {
      if (size < 1 || size >= (int64_t(1) << 31) || elements >= (int64_t(1) << 46) / size)
        return "size of an axis";
      elements *= size;
    }
    if (type.batch < -1 || type.batch >= static_cast<int>(type.shape.size()))
      return "the batch axis's number";
    if (type.batch >= 0 && (type.group < 1 || type.shape[type.batch] * type.group != program.batch))
      return "the batch axis is not as long as the batch";
    return "";
  }

  std::string typeOfInput(const Op &op, TensorType &type) {
    if (op.kind == OpKind::ValidRows) {
      type = {DType::Bool, {program.batch}, 0};
      return &graph == &program.evaluation ? "" : "outside of the evaluation";
    }
    int64_t index = op.integer(Key::Index);
    if (op.kind == OpKind::Parameter) {
      if (index < 0 || index >= int64_t(program.parameters.size()))
        return "unknown parameter";
      type = program.parameters[index].type;
      return "";
    }
    if (dataset < 0 || index < 0 || index >= int64_t(program.datasets[dataset].fields.size()))
      return "unknown field";
    type = program.datasets[dataset].fields[index].type;
    return "";
  }

  std::string typeInLoop(const Op &op, TensorType &type) {
    int64_t trips = op.integer(Key::Trips);
    if (trips < 1)
      return "a loop of no trips";
    int64_t place = infoOf(op.kind).has(Key::Place) && op.kind != OpKind::LoopState ? op.integer(Key::Place) : 0;
    if (place < 0 || place >= int64_t(op.operands.size()))
      return "a loop has no such state";
    type = graph.ops[op.operands[place]].type;
    if (op.kind == OpKind::LoopSlice) {
      if (type.shape.empty() || type.shape[0] != trips || type.batch == 0)
        return "the first axis is not that of the trips";
      type.shape.erase(type.shape.begin());
      type.batch -= type.batch > 0;
    } else if (op.kind == OpKind::LoopStack) {
      type.shape.insert(type.shape.begin(), trips);
      type.batch += type.batch >= 0;
    }
    return "";
  }

  const Program &program;
  const Graph &graph;
  const char *name;
  int dataset;
};

std::string verifyTrain(const Program &program) {
  const Train &train = program.train;
  int datasets = static_cast<int>(program.datasets.size());
  if (train.dataset < 0 || train.dataset >= datasets)
    return "train: unknown dataset";
  if ((train.steps > 0) == (train.epochs > 0))
    return "train: one of steps and epochs";
  if (train.optimizers.empty())
    return "train: no optimizer";
  for (const Every &every : train.every) {
    if (every.kind == Every::Eval && (every.dataset < 0 || every.dataset >= datasets))
      return "train: an evaluation of an unknown dataset";
    if (every.steps < 0 || every.batches < 0 || every.keep < 0)
      return "train: a negative number in `every`";
  }
  std::set<std::string> paths;
  for (const Parameter &parameter : program.parameters) {
    if (parameter.path.empty() || !paths.insert(parameter.path).second)
      return "two parameters with the path `" + parameter.path + "`";
    if (parameter.type.batch != -1)
      return "parameter `" + parameter.path + "` has the batch axis";
    if (parameter.averageOf >= 0 &&
        (!parameter.state || parameter.averageOf >= int(program.parameters.size()) ||
         program.parameters[parameter.averageOf].type != parameter.type))
      return "`" + parameter.path + "` is an average of another type";
    if (parameter.optimizer < 0 || parameter.optimizer >= static_cast<int>(train.optimizers.size()))
      return "parameter `" + parameter.path + "`: unknown optimizer";
  }
  for (const Dataset &data : program.datasets)
    for (const Field &field : data.fields)
      if (field.type.batch != 0 || field.type.shape.empty() || field.type.shape[0] != program.batch)
        return "field `" + field.name + "`: the batch axis is not the first";
  for (size_t i = 0; i < program.instances.size(); ++i)
    if (program.instances[i].parent >= static_cast<int>(i))
      return "an instance before its parent";
  return "";
}

} // namespace

std::string verifyProgram(const Program &program) {
  if (program.batch < 1)
    return "no batch";
  if (std::string fault = verifyTrain(program); !fault.empty())
    return fault;
  int evaluated = program.train.dataset; // all evaluated datasets have the same fields
  for (const Every &every : program.train.every)
    if (every.kind == Every::Eval)
      evaluated = every.dataset;
  const struct {
    const Graph &graph;
    const char *name;
    int dataset;
  } graphs[] = {{program.step, "step", program.train.dataset},
                {program.evaluation, "evaluation", evaluated},
                {program.prediction, "prediction", evaluated}};
  for (const auto &[graph, name, dataset] : graphs)
    if (std::string fault = GraphVerifier(program, graph, name, dataset).run(); !fault.empty())
      return fault;

  auto inside = [](int op, const Graph &graph) { return op >= 0 && op < static_cast<int>(graph.ops.size()); };
  if (!inside(program.loss, program.step) || program.step.ops[program.loss].type != TensorType{DType::F32, {}, -1})
    return "the loss is no f32[]";
  int last = -1;
  for (const StateUpdate &update : program.updates) {
    bool known = update.parameter > last && update.parameter < static_cast<int>(program.parameters.size());
    if (!known || !program.parameters[update.parameter].state)
      return "an update of what is no state, or not in order";
    last = update.parameter;
    if (!inside(update.op, program.step) || program.step.ops[update.op].type != program.parameters[last].type)
      return "the update of `" + program.parameters[last].path + "` is of another type or missing";
  }
  for (const NamedValue &metric : program.metrics)
    if (!inside(metric.op, program.evaluation) || program.evaluation.ops[metric.op].type.batch != -1)
      return "metric `" + metric.name + "` has the batch axis or is missing";
  for (const NamedValue &value : program.results)
    if (!inside(value.op, program.prediction) || program.prediction.ops[value.op].type.batch == -1)
      return "result `" + value.name + "` lacks the batch axis or is missing";
  return "";
}

} // namespace cinch
