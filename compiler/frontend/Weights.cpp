// Weights.cpp: `weight("fc.weight")` in `train`: a parameter of the model by its path, for penalties.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

using namespace ast;

// Calls of the model that the value of `expr` certainly needs: not those in the branches of an `if`.
static void modelCalls(const Expr &expr, const std::string &model, std::vector<const Expr *> &found) {
  if (expr.kind == ExprKind::If)
    return modelCalls(*expr.children[0], model, found);
  if (expr.kind == ExprKind::Call && expr.children[0]->kind == ExprKind::Name && expr.children[0]->text == model)
    found.push_back(&expr);
  for (const ExprPtr &child : expr.children)
    modelCalls(*child, model, found);
  for (const Arg &arg : expr.args)
    modelCalls(*arg.value, model, found);
  for (const Slot &slot : expr.slots)
    for (const Expr *bound : {slot.begin.get(), slot.end.get()})
      if (bound)
        modelCalls(*bound, model, found);
  if (expr.where)
    modelCalls(*expr.where, model, found);
}

int Elaborator::parameterAt(const std::string &path) const {
  for (size_t i = 0; i < program.parameters.size(); ++i)
    if (program.parameters[i].path == path)
      return static_cast<int>(i);
  return -1;
}

// A parameter exists once a call of the model has reached it, and the text may read it before that call. Equal calls in `train` are
// one, so making the calls now changes nothing.
void Elaborator::meetModel(Frame &frame) {
  std::vector<const Expr *> calls;
  for (const Statement &statement : train->clauses)
    if (statement.kind == StatementKind::Define || statement.kind == StatementKind::DefineIndex)
      modelCalls(*statement.values[0], train->name.text, calls);
  IndexScope *outer = frame.index;
  frame.index = nullptr;
  for (const Expr *call : calls)
    eval(*call, frame);
  frame.index = outer;
}

void Elaborator::reportNoParameter(const std::string &text, Span span, Frame &frame) {
  std::vector<std::string> paths;
  std::string inside; // what a part of the model was named for
  for (const cinch::Parameter &parameter : program.parameters)
    if (!parameter.state) {
      paths.push_back(parameter.path);
      if (inside.empty() && parameter.path.rfind(text + ".", 0) == 0)
        inside = "did you mean `" + parameter.path + "`?";
    }
  report(Code::E0607, span, "no parameter is named `" + text + "`", frame)
      .help(inside.empty() ? didYouMean(text, paths) : inside)
      .note(paths.empty() ? "`train` has no parameters: it calls no model that declares one"
                          : "the parameters are " + paths[0] + (paths.size() > 2 ? ", .." : "") +
                                (paths.size() > 1 ? ", " + paths.back() : ""));
}

Value Elaborator::builtinWeight(const std::vector<Argument> &args, Span span, Frame &frame) {
  if (!frame.isTrain) {
    report(Code::E0305, span, "`weight` is called in `train` only", frame)
        .help("in a layer a parameter is read by its name: param w: f32[..] ~ .., then w");
    return {};
  }
  std::vector<const Argument *> taken;
  if (!takeArguments("weight", args, {"path"}, 1, span, frame, taken))
    return {};
  const Value &path = taken[0]->value;
  if (path.kind != Value::String) {
    report(Code::E0202, taken[0]->span, "`weight` takes the path of a parameter, but this is " + describe(path, dims), frame)
        .help("write it in quotes: weight(\"fc.weight\")");
    return {};
  }
  int bad = badOps;
  if (parameterAt(path.text) < 0)
    meetModel(frame);
  int found = parameterAt(path.text);
  if (bad != badOps)
    return {};
  if (found < 0) {
    if (!diags.hasErrors()) // a model with an error in it lacks what stands behind the error
      reportNoParameter(path.text, taken[0]->span, frame);
    return {};
  }
  if (program.parameters[found].state)
    return failure(Code::E0607, taken[0]->span, "`" + path.text + "` is a state, not a parameter", frame);
  Op op(OpKind::Parameter, {}, {{Key::Index, int64_t(found)}});
  Value weight = Value::of(emit(std::move(op), DType::F32, parameterAxes[found], span, frame));
  return frame.index ? requireScalar(std::move(weight), span, frame) : weight; // what is indexed is read outside of index notation
}

} // namespace cinch
