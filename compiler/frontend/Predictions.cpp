// Predictions.cpp: the third graph, what `predict` of the trained binary writes: the `predict` clauses of `train` or, where
// there are none, the results of the model's calls in the loss and the metrics.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

using namespace ast;

// The first reduction over the batch that an op depends on, or -1.
static int batchReduction(const GraphBuilder &graph, int op) {
  std::vector<bool> reached(size_t(op) + 1);
  reached[op] = true;
  for (int i = op; i >= 0; --i) {
    if (!reached[i])
      continue;
    for (int operand : graph.at(i).operands) {
      if (operand < 0)
        continue;
      if (graph.at(i).kind == OpKind::Reduce && graph.at(operand).type.batch >= 0 && graph.at(i).type.batch < 0)
        return i;
      reached[operand] = true;
    }
  }
  return -1;
}

// Files hold one example behind another, so the batch axis comes first.
Tensor Elaborator::examplesFirst(const Tensor &tensor, Span span, Frame &frame) {
  std::vector<int64_t> order{batchAxis(tensor.axes)};
  for (int64_t axis = 0; axis < int64_t(tensor.axes.size()); ++axis)
    if (axis != order[0])
      order.push_back(axis);
  return transposed(tensor, order, span, frame);
}

// By the names that the results have in `train`.
std::vector<NamedValue> Elaborator::modelResults(Frame &frame) {
  std::vector<NamedValue> found;
  std::set<int> seen;
  std::set<std::string> names;
  for (const Expr *site : std::vector<const Expr *>(modelSites)) {
    const Statement *definition = nullptr;
    for (const Statement &statement : train->clauses)
      if (statement.kind == StatementKind::Define && statement.values[0].get() == site)
        definition = &statement;
    evaluateInOrder(train->clauses, {site}, frame);
    Value value = eval(*site, frame);
    std::vector<Value> results = value.kind == Value::Tuple ? value.items : std::vector<Value>{value};
    for (size_t i = 0; i < results.size(); ++i) {
      if (!results[i].isTensor() || batchAxis(results[i].tensor.axes) < 0)
        continue;
      int op = examplesFirst(results[i].tensor, site->span, frame).op;
      if (!seen.insert(op).second)
        continue;
      std::string name = definition && i < definition->names.size() ? definition->names[i].text : "_";
      if (name == "_" || (definition && results.size() != definition->names.size()))
        name = train->name.text + (results.size() > 1 ? "." + std::to_string(i) : "");
      std::string unique = name;
      for (int n = 2; !names.insert(unique).second; ++n)
        unique = name + "." + std::to_string(n);
      found.push_back({unique, op});
    }
  }
  return found;
}

// One `predict` clause, added to the results.
void Elaborator::predictClause(const Statement &statement, Frame &frame) {
  const Expr &expr = *statement.values[0];
  const std::string what = "`predict " + statement.names[0].text + "`";
  evaluateInOrder(train->clauses, {&expr}, frame);
  Value value = eval(expr, frame);
  if (value.isError())
    return;
  if (!value.isTensor()) {
    Diagnostic &d = report(Code::E0609, expr.span, what + " is one tensor, but this is " + describe(value, dims), frame);
    if (value.kind == Value::Tuple)
      d.help("name the results, `a, b = ..`, and predict each of them");
    return;
  }
  if (isFromExcept(value.tensor)) {
    checkMaskEnd(value.tensor, expr.span, frame, "a result of `predict`");
    return;
  }
  int reduction = batchReduction(*graph, value.tensor.op);
  if (reduction >= 0) {
    report(Code::E0609, expr.span,
           what + " depends on the other examples of the batch: what is predicted of an example may depend on it alone",
           frame)
        .label(graph->at(reduction).span, "over the batch here")
        .help("a value of the whole data set is a `metric`");
    return;
  }
  if (batchAxis(value.tensor.axes) < 0) {
    report(Code::E0609, expr.span,
           what + " has no batch axis, so it says nothing of an example: it is " + typeOf(value.tensor), frame)
        .help("a value of the whole data set is a `metric`");
    return;
  }
  program.results.push_back({statement.names[0].text, examplesFirst(value.tensor, expr.span, frame).op});
}

void Elaborator::elaboratePrediction() {
  GraphBuilder builder;
  graph = &builder;
  mode = GraphMode::Prediction;
  training = false;
  Frame frame;
  startTrain(frame);
  std::vector<NamedValue> ofModel = modelResults(frame); // first, so that random draws are those of `eval`
  bool clauses = false;
  for (const Statement &statement : train->clauses)
    if (statement.kind == StatementKind::Predict) {
      clauses = true;
      predictClause(statement, frame);
    }
  if (!clauses)
    program.results = ofModel;
  for (size_t i = 0; i < program.results.size() && ofModel.size() == 1; ++i)
    if (program.results[i].op == ofModel[0].op)
      program.modelResult = static_cast<int>(i);
  std::vector<int *> ops;
  for (NamedValue &result : program.results)
    ops.push_back(&result.op);
  program.prediction = builder.finish(ops);
}

} // namespace cinch
