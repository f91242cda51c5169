// TrainBlock.cpp: training and evaluation, and the rules for the loss and the metrics.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>

namespace cinch {

using namespace ast;

static constexpr long maxOps = 250000; // of one graph; GPT-2 XL has some 4000

void Elaborator::startTrain(Frame &frame) {
  frame.file = file.id;
  frame.isTrain = true;
  frame.node = &root;
  blocks = 0;
  blockChains.clear();
  opsLeft = maxOps;
  allBytes = 0;
  const Dataset &data = program.datasets[program.train.dataset];
  for (size_t i = 0; i < data.fields.size(); ++i) {
    const cinch::Field &field = data.fields[i];
    Op op(OpKind::Field, {}, {{Key::Index, int64_t(i)}});
    Binding binding;
    binding.span = field.span;
    Tensor tensor = emit(std::move(op), field.type.dtype, fieldAxes[program.train.dataset][i], field.span, frame);
    if (field.hasBelow)
      tensor.range = Interval::below(field.below);
    tensor.hasExcept = field.hasExcept;
    tensor.except = field.except;
    if (field.hasExcept)
      graph->addFacts(tensor.op, FromExcept);
    binding.value = Value::of(tensor);
    frame.names[field.name] = binding;
  }
  defineBody(train->clauses, frame);
}

// As what stands behind a reduction, which takes the product there.
std::string Elaborator::asProduct(const ast::Expr &expr) const {
  using ast::BinaryOp;
  const bool isProduct = expr.binary == BinaryOp::Mul || expr.binary == BinaryOp::Div || expr.binary == BinaryOp::MatMul || expr.binary == BinaryOp::Pow;
  const bool isWeaker = (expr.kind == ast::ExprKind::Binary && !isProduct) || expr.kind == ast::ExprKind::If || expr.kind == ast::ExprKind::Unary;
  const std::string text = textOf(expr.span);
  return isWeaker && !expr.parenthesized ? "(" + text + ")" : text;
}

// The loss as a scalar f32 op, or -1.
int Elaborator::evalLoss(Frame &frame) {
  auto found = frame.names.find("loss");
  if (found == frame.names.end() || found->second.kind != Binding::Definition) {
    report(Code::E0604, train->header, "`train` needs `loss = ..`", frame);
    return -1;
  }
  const Expr &expr = *found->second.statement->values[0];
  evaluateInOrder(train->clauses, {&expr}, frame);
  Value value = force(found->second, "loss", expr.span, frame);
  if (value.isError())
    return -1;
  if (!value.isTensor() || value.tensor.dtype != DType::F32 || !value.tensor.axes.empty()) {
    Diagnostic &d =
        report(Code::E0605, expr.span, "the loss is one number, f32[], but this is " + describe(value, dims), frame);
    if (value.isTensor() && batchAxis(value.tensor.axes) >= 0)
      d.help("average it, mean[" + dims[batchDim].name + ", ..] " + asProduct(expr));
    return -1;
  }
  return value.tensor.op;
}

void Elaborator::checkLoss(int op, Frame &frame) {
  const Expr &expr = *frame.names["loss"].statement->values[0];
  if (!(graph->facts(op) & FromParameter))
    report(Code::E0605, expr.span, "the loss does not depend on any parameter", frame);
  checkReductions(op, frame);
}

// Over the batch a loss has sums and means, which its gradient can be seeded from; `max`, `min` and `prod` are a metric's.
void Elaborator::checkReductions(int loss, Frame &frame) {
  std::vector<bool> needed(size_t(loss) + 1, false);
  needed[size_t(loss)] = true;
  for (int op = loss; op >= 0; --op) {
    if (!needed[size_t(op)])
      continue;
    const Op &reduce = graph->at(op);
    for (int operand : reduce.operands)
      if (operand >= 0)
        needed[size_t(operand)] = true;
    if (reduce.kind != OpKind::Reduce)
      continue;
    auto kind = Reduction(reduce.integer(Key::Reduction));
    int64_t batch = graph->at(reduce.operands[0]).type.batch;
    const auto &axes = reduce.integers(Key::Axes);
    if (kind == Reduction::Sum || batch < 0 || std::find(axes.begin(), axes.end(), batch) == axes.end())
      continue;
    const char *name = kind == Reduction::Max ? "max" : kind == Reduction::Min ? "min" : "prod";
    report(Code::E0605, reduce.span, std::string("the loss depends on `") + name + "` over the batch axis " + dims[batchDim].name, frame)
        .note("over the batch a loss takes sum, mean, any and all")
        .help("this may be a metric");
    return;
  }
}

// A power whose exponent is 0 is 1, whatever its base is.
static bool isOne(const Program &program, const Op &op) {
  if (op.kind != OpKind::Pow)
    return false;
  const Op *exponent = &program.step.ops[size_t(op.operands[1])];
  while (exponent->kind == OpKind::Broadcast || exponent->kind == OpKind::Reshape)
    exponent = &program.step.ops[size_t(exponent->operands[0])];
  return exponent->kind == OpKind::Constant && exponent->number(Key::Number) == 0;
}

// Whether a gradient of the loss reaches a parameter, which a state is not; `frozen`: those that are frozen count.
static bool reachesParameter(const Program &program, bool frozen) {
  std::vector<bool> active;
  for (const Op &op : program.step.ops) {
    const cinch::Parameter *parameter = op.kind == OpKind::Parameter ? &program.parameters[op.integer(Key::Index)] : nullptr;
    bool reached = parameter && !parameter->state && (frozen || !parameter->frozen);
    for (int operand : op.operands)
      reached = reached || (operand >= 0 && active[operand]);
    active.push_back(reached && op.type.dtype == DType::F32 && !infoOf(op.kind).noGradient && !isOne(program, op));
  }
  return active[program.loss];
}

// Once it is known what is frozen.
void Elaborator::checkTrained() {
  if (reachesParameter(program, false))
    return;
  const Setting *freeze = nullptr;
  for (const Statement &statement : train->clauses) {
    if (statement.kind == StatementKind::Define && statement.names[0].text == "loss" && !reachesParameter(program, true)) {
      report(Code::E0605, statement.values[0]->span,
             "no derivative leads from the loss to a parameter, so nothing can be trained", fileFrame)
          .note("floor, argmax, argmin, comparisons, stop_gradient and x ^ 0 have none")
          .help("this may be a metric");
      return;
    }
    if (statement.kind == StatementKind::Setting && statement.setting.key.text == "freeze")
      freeze = &statement.setting;
  }
  if (freeze)
    report(Code::E0605, freeze->span, "every parameter that the loss depends on is frozen, so nothing can be trained",
           fileFrame)
        .help("freeze fewer parameters");
}

void Elaborator::elaborateStep() {
  GraphBuilder builder;
  graph = &builder;
  mode = GraphMode::Step;
  training = true;
  Frame frame;
  startTrain(frame);
  int loss = evalLoss(frame);
  if (loss >= 0 && !diags.hasErrors())
    checkLoss(loss, frame);
  program.loss = loss;
  std::vector<int *> ops{&program.loss};
  for (StateUpdate &update : program.updates)
    ops.push_back(&update.op);
  program.step = builder.finish(ops);
  parametersFixed = loss >= 0 && !diags.hasErrors();
}

void Elaborator::elaborateEvaluation() {
  GraphBuilder builder;
  graph = &builder;
  mode = GraphMode::Evaluation;
  training = false;
  Frame frame;
  startTrain(frame);
  program.metrics.push_back({"loss", evalLoss(frame)});
  for (const Statement &statement : train->clauses) {
    if (statement.kind != StatementKind::Metric)
      continue;
    const Expr &expr = *statement.values[0];
    const std::string &name = statement.names[0].text;
    evaluateInOrder(train->clauses, {&expr}, frame);
    Value value = eval(expr, frame);
    int op = -1;
    if (value.isTensor()) {
      const Tensor &tensor = value.tensor;
      if (batchAxis(tensor.axes) >= 0) {
        report(Code::E0606, expr.span, "a metric has no batch axis, but `" + name + "` is " + typeOf(tensor), frame)
            .help("reduce it, mean[" + dims[batchDim].name + "] " + asProduct(expr));
      } else if (checkMaskEnd(tensor, expr.span, frame, "a metric")) {
        op = tensor.op;
        if (tensor.dtype != DType::F32) {
          op = emit(Op(OpKind::Cast, {op}), DType::F32, tensor.axes, expr.span, frame).op;
        }
      }
    } else if (!value.isError()) {
      report(Code::E0606, expr.span, "metric `" + name + "` is a constant, " + describe(value, dims), frame);
    }
    program.metrics.push_back({name, op});
  }
  std::vector<int *> ops;
  for (NamedValue &metric : program.metrics)
    ops.push_back(&metric.op);
  program.evaluation = builder.finish(ops);
}

void Elaborator::checkTrain() {
  auto data = datasetIndex.find(train->data.text);
  const LayerItem *model = findLayer(train->name.text, file.id);
  if (!model || model->form != LayerItem::Model) {
    std::vector<std::string> models;
    for (const auto &[name, item] : tables.fileLayers)
      if (item->form == LayerItem::Model)
        models.push_back(name);
    report(Code::E0101, train->name.span,
           model ? "`" + train->name.text + "` is a layer, not a model" : "unknown model `" + train->name.text + "`",
           fileFrame)
        .help(didYouMean(train->name.text, models));
    return;
  }
  if (data == datasetIndex.end()) {
    std::vector<std::string> names;
    for (const std::unique_ptr<Item> &item : file.items)
      if (item->kind == ItemKind::Data)
        names.push_back(item->name.text);
    bool declared = std::find(names.begin(), names.end(), train->data.text) != names.end();
    if (!declared)
      report(Code::E0101, train->data.span, "unknown data `" + train->data.text + "`", fileFrame)
          .help(didYouMean(train->data.text, names));
    return;
  }
  program.modelName = program.train.model = train->name.text;
  program.train.dataset = data->second;
  if (!dataComplete[data->second])
    return;
  elaborateStep();
  elaborateEvaluation();
  if (diags.hasErrors())
    return checkKeys();
  elaboratePrediction();
  checkKeys();
  if (!diags.hasErrors())
    checkTrained();
  if (!diags.hasErrors())
    warnUnusedData();
}

std::optional<Program> Elaborator::run() {
  tables = checkNames(prelude, file, diags);
  GraphBuilder constants; // constants make no ops, but a faulty file may
  graph = &constants;
  opsLeft = maxOps;
  allBytes = 0;
  program.instances.push_back({"", "train", -1, Span{file.id, 0, 0}});
  fileFrame.node = preludeFrame.node = &root;
  for (const std::unique_ptr<Item> &item : file.items) {
    bool isTrain = item->kind == ItemKind::Train, isPlan = item->kind == ItemKind::Plan;
    if ((isTrain && train) || (isPlan && plan))
      report(Code::E0102, item->span, std::string("a file has one `") + (isTrain ? "train" : "plan") + "` block",
             fileFrame);
    else if (isTrain)
      train = static_cast<const TrainItem *>(item.get());
    else if (isPlan)
      plan = static_cast<const PlanItem *>(item.get());
  }
  defineDims();
  checkOverrides();
  for (const std::unique_ptr<Item> &item : file.items) {
    if (item->kind == ItemKind::Data)
      checkData(static_cast<const DataItem &>(*item));
    else if (item->kind == ItemKind::Names)
      checkNamesBlock(static_cast<const NamesItem &>(*item));
  }
  if (plan)
    checkPlan();
  if (!train)
    report(Code::E0604, Span{file.id, 0, 0}, "the file has no `train` block", fileFrame);
  else
    checkTrain();
  if (diags.hasErrors())
    return std::nullopt;
  describeText();
  orderParameters();
  if (program.train.hasEma)
    addAverages();
  return std::move(program);
}

std::optional<Program> check(const SourceList &sources, const File &prelude, const File &file, const Options &options,
                             Diagnostics &diags) {
  return Elaborator(sources, prelude, file, options, diags).run();
}

} // namespace cinch
