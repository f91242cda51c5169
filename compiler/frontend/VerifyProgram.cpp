// VerifyProgram.cpp: shape rule, types and batch axis of every op of a Program, stated apart from the elaborator that
// made it.
#include "compiler/frontend/VerifyProgram.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace cinch {

const char *opKindName(OpKind kind) {
  static const char *const names[] = {
      "Parameter",    "Field",    "ValidRows", "Constant",  "Vector",       "Range",      "Neg",    "Exp",
      "Expm1",        "Log",      "Log1p",     "Sqrt",      "Sin",          "Cos",        "Tanh",   "Erf",
      "Sigmoid",      "Softplus", "Abs",       "Floor",     "StopGradient", "Not",        "And",    "Or",
      "Cast",         "Add",      "Sub",       "Mul",       "Div",          "Pow",        "Max",    "Min",
      "Compare",      "Where",    "Broadcast", "Transpose", "Reshape",      "Slice",      "Pad",    "Concat",
      "Reverse",      "Reduce",   "Contract",  "Gather",    "Softmax",      "LogSoftmax", "ArgMax", "ArgMin",
      "CrossEntropy", "Attend",   "Random"};
  static_assert(sizeof names / sizeof *names == static_cast<size_t>(OpKind::Random) + 1, "one name a kind");
  return names[static_cast<int>(kind)];
}

namespace {

using Shape = std::vector<int64_t>;

bool same(const TensorType &a, const TensorType &b) {
  return a.dtype == b.dtype && a.shape == b.shape && a.batch == b.batch;
}
bool sameShape(const TensorType &a, const TensorType &b) { return a.shape == b.shape && a.batch == b.batch; }

std::string text(const TensorType &type) {
  static const char *const dtypes[] = {"f32", "i32", "bool"};
  std::string result = std::string(dtypes[static_cast<int>(type.dtype)]) + "[";
  for (size_t i = 0; i < type.shape.size(); ++i)
    result += (i ? ", " : "") + std::string(static_cast<int>(i) == type.batch ? "batch " : "") +
              std::to_string(type.shape[i]);
  return result + "]";
}

// Type without one axis.
TensorType without(TensorType type, int64_t axis) {
  type.shape.erase(type.shape.begin() + axis);
  type.batch = type.batch == axis ? -1 : type.batch > axis ? type.batch - 1 : type.batch;
  return type;
}

class GraphVerifier {
public:
  GraphVerifier(const Program &program, const Graph &graph, const char *name, int dataset)
      : program(program), graph(graph), name(name), dataset(dataset) {}

  std::string run() {
    for (current = 0; current < graph.ops.size() && fault.empty(); ++current)
      verify(graph.ops[current]);
    return fault;
  }

private:
  bool require(bool ok, const std::string &what) {
    if (!ok && fault.empty()) {
      const Op &op = graph.ops[current];
      fault = std::string(name) + ", op " + std::to_string(current) + " (" + opKindName(op.kind) + "): " + what +
              "; result " + text(op.type);
      for (int operand : op.operands)
        if (operand >= 0 && static_cast<size_t>(operand) < current)
          fault += ", operand " + text(graph.ops[operand].type);
    }
    return fault.empty();
  }

  const TensorType &in(int i) const { return graph.ops[graph.ops[current].operands[i]].type; }
  int inputs() const { return static_cast<int>(graph.ops[current].operands.size()); }
  bool count(int wanted) {
    return require(inputs() == wanted,
                   "expected " + std::to_string(wanted) + " operands, got " + std::to_string(inputs()));
  }
  bool result(const TensorType &wanted) {
    return require(same(graph.ops[current].type, wanted), "expected the result " + text(wanted));
  }
  bool dtype(int operand, DType wanted) { return require(in(operand).dtype == wanted, "dtype of an operand"); }
  bool ints(size_t wanted) { return require(graph.ops[current].ints.size() == wanted, "number of integers"); }
  // ints[0] is an axis of operand 0, and not the batch's.
  bool axis() {
    const Op &op = graph.ops[current];
    return require(!op.ints.empty() && op.ints[0] >= 0 && op.ints[0] < static_cast<int64_t>(in(0).shape.size()),
                   "axis outside of the operand") &&
           require(op.ints[0] != in(0).batch, "works along the batch axis");
  }

  void verify(const Op &op) {
    for (int operand : op.operands)
      if (!require(operand >= 0 && static_cast<size_t>(operand) < current, "uses a value before it is defined"))
        return;
    if (!require(op.instance >= 0 && static_cast<size_t>(op.instance) < std::max<size_t>(program.instances.size(), 1),
                 "unknown instance"))
      return;
    int64_t elements = 1;
    for (int64_t size : op.type.shape) {
      if (!require(size >= 1 && size < (int64_t(1) << 31) && elements < (int64_t(1) << 46) / size, "size of an axis"))
        return;
      elements *= size;
    }
    if (!require(op.type.batch >= -1 && op.type.batch < static_cast<int>(op.type.shape.size()),
                 "the batch axis's number") ||
        !require(op.type.batch < 0 || op.type.shape[op.type.batch] == program.batch,
                 "the batch axis is not as long as the batch"))
      return;
    verifyKind(op);
  }

  void verifyKind(const Op &op) {
    const TensorType &type = op.type;
    switch (op.kind) {
    case OpKind::Parameter:
      if (count(0) && require(op.index >= 0 && op.index < int(program.parameters.size()), "unknown parameter"))
        result(program.parameters[op.index].type);
      return;
    case OpKind::Field:
      if (count(0) && require(dataset >= 0 && op.index >= 0 && op.index < int(program.datasets[dataset].fields.size()),
                              "unknown field"))
        result(program.datasets[dataset].fields[op.index].type);
      return;
    case OpKind::ValidRows:
      if (count(0) && require(&graph == &program.evaluation, "outside of the evaluation"))
        result({DType::Bool, {program.batch}, 0});
      return;
    case OpKind::Constant:
      count(0) && require(std::isfinite(op.number), "not finite");
      return;
    case OpKind::Vector:
      count(0) && require(type.shape.size() == 1 && type.dtype == DType::F32 && type.batch == -1 &&
                              static_cast<int64_t>(op.numbers.size()) == type.shape[0],
                          "as many numbers as elements");
      return;
    case OpKind::Range:
      count(0) && require(type.shape.size() == 1 && type.dtype == DType::I32 && type.batch == -1, "i32 of one axis");
      return;
    case OpKind::Exp: case OpKind::Expm1: case OpKind::Log: case OpKind::Log1p: case OpKind::Sqrt: case OpKind::Sin:
    case OpKind::Cos:
    case OpKind::Tanh:
    case OpKind::Erf:
    case OpKind::Sigmoid:
    case OpKind::Softplus:
    case OpKind::Floor:
    case OpKind::StopGradient:
      count(1) && dtype(0, DType::F32) && result(in(0));
      return;
    case OpKind::Neg: case OpKind::Abs:
      count(1) && require(in(0).dtype != DType::Bool, "arithmetic on bool") && result(in(0));
      return;
    case OpKind::Not:
      count(1) && dtype(0, DType::Bool) && result(in(0));
      return;
    case OpKind::Cast:
      count(1) && require(sameShape(in(0), type), "another shape") &&
          require((type.dtype == DType::F32 && in(0).dtype != DType::F32) ||
                      (type.dtype == DType::I32 && in(0).dtype == DType::Bool),
                  "only to f32 from i32 and bool, to i32 from bool");
      return;
    case OpKind::And: case OpKind::Or:
      count(2) && dtype(0, DType::Bool) && require(same(in(0), in(1)), "operands differ") && result(in(0));
      return;
    case OpKind::Add: case OpKind::Sub: case OpKind::Mul: case OpKind::Max: case OpKind::Min:
      count(2) && require(in(0).dtype != DType::Bool, "arithmetic on bool") &&
          require(same(in(0), in(1)), "operands differ") && result(in(0));
      return;
    case OpKind::Div: case OpKind::Pow:
      count(2) && dtype(0, DType::F32) && require(same(in(0), in(1)), "operands differ") && result(in(0));
      return;
    case OpKind::Compare:
      count(2) && require(same(in(0), in(1)), "operands differ") && result({DType::Bool, in(0).shape, in(0).batch});
      return;
    case OpKind::Where:
      count(3) && dtype(0, DType::Bool) && require(sameShape(in(0), in(1)) && same(in(1), in(2)), "operands differ") &&
          result(in(1));
      return;
    case OpKind::Broadcast:
      return broadcast(op);
    case OpKind::Transpose:
      return transpose(op);
    case OpKind::Reshape:
      return reshape(op);
    case OpKind::Slice:
      if (count(1) && ints(3) && axis() &&
          require(op.ints[1] >= 0 && op.ints[1] < op.ints[2] && op.ints[2] <= in(0).shape[op.ints[0]], "bounds"))
        resized(op, op.ints[2] - op.ints[1]);
      return;
    case OpKind::Pad:
      if (count(1) && ints(3) && axis() && require(op.ints[1] >= 0 && op.ints[2] >= 0, "negative padding"))
        resized(op, in(0).shape[op.ints[0]] + op.ints[1] + op.ints[2]);
      return;
    case OpKind::Concat:
      return concat(op);
    case OpKind::Reverse:
      count(1) && ints(1) && axis() && result(in(0));
      return;
    case OpKind::Reduce:
      return reduce(op);
    case OpKind::Contract:
      return contract(op);
    case OpKind::Gather:
      return gather(op);
    case OpKind::Softmax: case OpKind::LogSoftmax:
      count(1) && dtype(0, DType::F32) && ints(1) && axis() && result(in(0));
      return;
    case OpKind::ArgMax: case OpKind::ArgMin:
      if (count(1) && dtype(0, DType::F32) && ints(1) && axis()) {
        TensorType wanted = without(in(0), op.ints[0]);
        wanted.dtype = DType::I32;
        result(wanted);
      }
      return;
    case OpKind::CrossEntropy:
      if (count(2) && dtype(0, DType::F32) && dtype(1, DType::I32) && ints(1) && axis()) {
        TensorType wanted = without(in(0), op.ints[0]);
        require(sameShape(in(1), wanted), "the labels' shape") && result(wanted) &&
            require(op.number >= 0 && op.number < 1, "smoothing outside of [0, 1)");
      }
      return;
    case OpKind::Attend:
      return attend(op);
    case OpKind::Random:
      count(0) && require(type.dtype == (op.random == RandomKind::Int    ? DType::I32
                                         : op.random == RandomKind::Bool ? DType::Bool
                                                                         : DType::F32),
                          "dtype");
      return;
    }
  }

  void resized(const Op &op, int64_t size) {
    TensorType wanted = in(0);
    wanted.shape[op.ints[0]] = size;
    result(wanted);
  }

  void broadcast(const Op &op) {
    if (!count(1) || !ints(in(0).shape.size()) || !require(in(0).dtype == op.type.dtype, "another dtype"))
      return;
    int64_t last = -1;
    bool makesBatch = true;
    for (size_t i = 0; i < op.ints.size(); ++i) {
      int64_t axis = op.ints[i];
      if (!require(axis > last && axis < static_cast<int64_t>(op.type.shape.size()), "axes not increasing") ||
          !require(op.type.shape[axis] == in(0).shape[i], "an axis is stretched") ||
          !require(in(0).batch != static_cast<int>(i) || op.type.batch == axis, "moves the batch axis"))
        return;
      makesBatch &= op.type.batch != axis;
      last = axis;
    }
    require(in(0).batch >= 0 || op.type.batch == -1 || makesBatch, "an axis becomes the batch axis");
  }

  void transpose(const Op &op) {
    size_t rank = op.type.shape.size();
    if (!count(1) || !ints(rank) || !require(in(0).shape.size() == rank, "another rank"))
      return;
    TensorType wanted = in(0);
    std::set<int64_t> seen;
    for (size_t i = 0; i < rank; ++i) {
      int64_t from = op.ints[i];
      if (!require(from >= 0 && from < static_cast<int64_t>(rank) && seen.insert(from).second, "no permutation"))
        return;
      wanted.shape[i] = in(0).shape[from];
      if (in(0).batch == from)
        wanted.batch = static_cast<int>(i);
    }
    result(wanted);
  }

  void reshape(const Op &op) {
    if (!count(1))
      return;
    auto product = [](const Shape &shape, size_t end) {
      int64_t result = 1;
      for (size_t i = 0; i < end; ++i)
        result *= shape[i];
      return result;
    };
    const TensorType &from = in(0), &to = op.type;
    require(from.dtype == to.dtype, "another dtype") &&
        require(product(from.shape, from.shape.size()) == product(to.shape, to.shape.size()), "number of elements") &&
        require((from.batch < 0) == (to.batch < 0), "makes or loses the batch axis") &&
        require(from.batch < 0 || product(from.shape, from.batch) == product(to.shape, to.batch),
                "moves the batch axis");
  }

  void concat(const Op &op) {
    if (!require(inputs() >= 1, "no operands") || !ints(1) || !axis())
      return;
    int64_t size = 0;
    for (int i = 0; i < inputs(); ++i) {
      TensorType other = in(i);
      if (!require(other.shape.size() == in(0).shape.size(), "ranks differ"))
        return;
      size += other.shape[op.ints[0]];
      other.shape[op.ints[0]] = in(0).shape[op.ints[0]];
      if (!require(same(other, in(0)), "operands differ"))
        return;
    }
    resized(op, size);
  }

  void reduce(const Op &op) {
    if (!count(1) || !require(!op.ints.empty(), "no axes"))
      return;
    TensorType wanted = in(0);
    for (size_t i = op.ints.size(); i-- > 0;) {
      if (!require(op.ints[i] >= 0 && op.ints[i] < static_cast<int64_t>(in(0).shape.size()) &&
                       (i == 0 || op.ints[i - 1] < op.ints[i]),
                   "axes not increasing"))
        return;
      wanted = without(wanted, op.ints[i]);
    }
    bool logical = op.reduce == ReduceKind::Any || op.reduce == ReduceKind::All;
    bool floating = op.reduce == ReduceKind::Sum || op.reduce == ReduceKind::Mean;
    DType dtype = in(0).dtype;
    require(logical    ? dtype == DType::Bool
            : floating ? dtype == DType::F32
                       : dtype != DType::Bool,
            "dtype") &&
        result(wanted);
  }

  // Notes that label `label` runs over an axis of `type`.
  bool bind(std::vector<int64_t> &sizes, std::vector<int> &batches, int64_t label, const TensorType &type,
            size_t axis) {
    if (!require(label >= 0 && label < 64, "label"))
      return false;
    if (sizes.size() <= static_cast<size_t>(label)) {
      sizes.resize(label + 1, 0);
      batches.resize(label + 1, -1);
    }
    int isBatch = type.batch == static_cast<int>(axis);
    bool fresh = sizes[label] == 0;
    if (fresh) {
      sizes[label] = type.shape[axis];
      batches[label] = isBatch;
    }
    return require(sizes[label] == type.shape[axis], "a label runs over two sizes") &&
           require(batches[label] == isBatch, "a label runs over the batch and over another axis");
  }

  bool labelledResult(const Op &op, const std::vector<int64_t> &sizes, const std::vector<int> &batches) {
    TensorType wanted{op.type.dtype, {}, -1};
    for (size_t label = 0; label < op.type.shape.size(); ++label) {
      if (!require(label < sizes.size() && sizes[label] > 0, "a result axis that no operand has"))
        return false;
      wanted.shape.push_back(sizes[label]);
      if (batches[label] == 1)
        wanted.batch = static_cast<int>(label);
    }
    return result(wanted);
  }

  void contract(const Op &op) {
    if (!count(2) || !dtype(0, DType::F32) || !dtype(1, DType::F32) || !require(op.maps.size() == 2, "number of maps"))
      return;
    std::vector<int64_t> sizes;
    std::vector<int> batches;
    std::set<int64_t> seen[2];
    for (int i = 0; i < 2; ++i) {
      if (!require(op.maps[i].size() == in(i).shape.size(), "as many labels as axes"))
        return;
      for (size_t a = 0; a < op.maps[i].size(); ++a)
        if (!bind(sizes, batches, op.maps[i][a], in(i), a) ||
            !require(seen[i].insert(op.maps[i][a]).second, "a label twice in one operand"))
          return;
    }
    int64_t rank = static_cast<int64_t>(op.type.shape.size());
    for (int i = 0; i < 2; ++i)
      for (int64_t label : seen[i])
        if (!require(label < rank || seen[1 - i].count(label), "a summed label is in one operand only"))
          return;
    // The batch is summed slowest.
    for (size_t label = rank + 1; label < sizes.size(); ++label)
      if (!require(batches[label] != 1, "the batch is not the slowest label summed"))
        return;
    require(op.type.dtype == DType::F32, "dtype") && labelledResult(op, sizes, batches);
  }

  void gather(const Op &op) {
    if (!require(inputs() >= 2, "no index tensors") ||
        !require(static_cast<int>(op.maps.size()) == inputs(), "number of maps") ||
        !require(op.type.dtype == in(0).dtype, "another dtype"))
      return;
    std::vector<int64_t> sizes;
    std::vector<int> batches;
    std::set<int64_t> used;
    for (int i = 0; i < inputs(); ++i) {
      if (!require(op.maps[i].size() == in(i).shape.size(), "as many labels as axes") ||
          (i > 0 && !dtype(i, DType::I32)))
        return;
      for (size_t a = 0; a < op.maps[i].size(); ++a) {
        int64_t label = op.maps[i][a];
        if (i == 0 && label < 0) {
          if (!require(-label < inputs() && used.insert(label).second, "which index tensor") ||
              !require(in(0).batch != static_cast<int>(a), "gathers along the batch axis"))
            return;
        } else if (!bind(sizes, batches, label, in(i), a)) {
          return;
        }
      }
    }
    require(static_cast<int>(used.size()) == inputs() - 1, "an index tensor is not used") &&
        labelledResult(op, sizes, batches);
  }

  // q[.., A, T, K] k[.., G, S, K] v[.., G, S, E] keys[.., S] bias[A, T, S] -> [.., A, T, E]
  void attend(const Op &op) {
    int wanted = 3 + op.attend.hasKeys + op.attend.hasBias;
    if (!count(wanted) || !dtype(0, DType::F32) || !dtype(1, DType::F32) || !dtype(2, DType::F32))
      return;
    const TensorType &q = in(0), &k = in(1), &v = in(2);
    size_t rank = q.shape.size();
    if (!require(rank >= 3 && k.shape.size() == rank && v.shape.size() == rank, "ranks"))
      return;
    int leading = static_cast<int>(rank) - 3;
    auto lead = [&](const TensorType &type) { return Shape(type.shape.begin(), type.shape.begin() + leading); };
    auto dim = [&](const TensorType &type, int i) { return type.shape[leading + i]; };
    if (!require(lead(q) == lead(k) && lead(q) == lead(v) && q.batch == k.batch && q.batch == v.batch,
                 "leading axes") ||
        !require(q.batch < leading, "works along the batch axis") ||
        !require(dim(q, 2) == dim(k, 2) && dim(k, 0) == dim(v, 0) && dim(k, 1) == dim(v, 1), "sizes") ||
        !require(dim(q, 0) % dim(k, 0) == 0, "key heads do not divide query heads"))
      return;
    if (op.attend.hasKeys) {
      TensorType keys{DType::Bool, lead(q), q.batch};
      keys.shape.push_back(dim(k, 1));
      if (!require(same(in(3), keys), "keys: expected " + text(keys)))
        return;
    }
    if (op.attend.hasBias) {
      TensorType bias{DType::F32, {dim(q, 0), dim(q, 1), dim(k, 1)}, -1};
      if (!require(same(in(wanted - 1), bias), "bias: expected " + text(bias)))
        return;
    }
    TensorType out = q;
    out.shape.back() = dim(v, 2);
    result(out) && require(op.attend.dropout >= 0 && op.attend.dropout < 1, "dropout outside of [0, 1)");
  }

  const Program &program;
  const Graph &graph;
  const char *name;
  int dataset;
  size_t current = 0;
  std::string fault;
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
  if (!inside(program.loss, program.step) || !same(program.step.ops[program.loss].type, {DType::F32, {}, -1}))
    return "the loss is no f32[]";
  for (const NamedValue &metric : program.metrics)
    if (!inside(metric.op, program.evaluation) || program.evaluation.ops[metric.op].type.batch != -1)
      return "metric `" + metric.name + "` has the batch axis or is missing";
  for (const NamedValue &value : program.results)
    if (!inside(value.op, program.prediction) || program.prediction.ops[value.op].type.batch == -1)
      return "result `" + value.name + "` lacks the batch axis or is missing";
  return "";
}

} // namespace cinch
