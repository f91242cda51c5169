// Calls.cpp: calls of instances, layers, the model and built-ins; chains of a `repeat`.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>
#include <cstdio>

namespace cinch {

using namespace ast;

Value Elaborator::evalCall(const Expr &expr, Frame &frame) {
  const Expr &callee = *expr.children[0];
  if (callee.kind == ExprKind::Name)
    return callNamed(expr, callee, nullptr, expr.args, frame);
  if (callee.kind == ExprKind::Index && callee.children[0]->kind == ExprKind::Name)
    return callNamed(expr, *callee.children[0], &callee.slots, expr.args, frame);
  return failure(Code::E0307, callee.span, "only a layer or an instance of one can be called", frame);
}

bool Elaborator::evalArgs(const std::vector<Arg> &args, Frame &frame, std::vector<Argument> &values) {
  bool good = true;
  for (const Arg &arg : args) {
    refuseExcept(arg, Code::E0301, frame);
    good &= arg.except.empty();
    Argument value;
    value.name = arg.name.text;
    value.span = arg.span;
    value.expr = arg.value.get();
    value.value = eval(*arg.value, frame);
    if (value.value.kind == Value::Tuple && !value.value.isConstant()) {
      report(Code::E0301, arg.span,
             "an argument is one value, but this call gives " + std::to_string(value.value.items.size()), frame)
          .help("write `a, b = ..` first");
      good = false;
    }
    good &= !value.value.isError();
    values.push_back(std::move(value));
  }
  return good;
}

bool Elaborator::evalSizes(const std::vector<Slot> &slots, Frame &frame, std::vector<Argument> &values, bool &dots) {
  bool good = true;
  for (size_t i = 0; i < slots.size(); ++i) {
    const Slot &slot = slots[i];
    if (slot.kind == Slot::Dots && i == 0) {
      dots = true;
      continue;
    }
    if (slot.kind != Slot::At) {
      report(Code::E0304, slot.span, "sizes stand in these brackets, but this is `" + textOf(slot.span) + "`", frame);
      good = false;
      continue;
    }
    Argument value;
    value.name = slot.name.text;
    value.span = slot.span;
    value.expr = slot.begin.get();
    std::optional<Number> number = evalConstantNumber(*slot.begin, frame, "a size");
    good &= number.has_value();
    if (number)
      value.value = Value::of(*number);
    values.push_back(std::move(value));
  }
  return good;
}

// A number with its normal form: sizes of one value and different forms are different sizes.
static void identify(const Number &number, std::string &text) {
  char buffer[64];
  snprintf(buffer, sizeof buffer, "%a", number.real);
  text += buffer;
  if (number.exact)
    text += "=" + number.value.str();
  for (const Term &term : number.form) {
    text += "+" + term.factor.str();
    for (const auto &[dim, exponent] : term.names)
      text += "." + std::to_string(dim) + "^" + std::to_string(exponent);
  }
}

// What decides the value of a call, as text.
static void identify(const Value &value, std::string &text) {
  char buffer[64];
  switch (value.kind) {
  case Value::Tensor:
    text += "t" + std::to_string(value.tensor.op);
    for (const Number &axis : value.tensor.axes) { // `reshape` may give one op two shapes
      text += ",";
      identify(axis, text);
    }
    break;
  case Value::Number:
    identify(value.number, text);
    break;
  case Value::Distribution:
    snprintf(buffer, sizeof buffer, "~%d:%a:%d", value.distribution.kind, value.distribution.a,
             value.distribution.fanOut);
    text += buffer;
    break;
  case Value::Bool:
    text += value.flag ? "true" : "false";
    break;
  default:
    text += "\"" + value.text;
    for (const Value &item : value.items)
      identify(item, text);
    break;
  }
}

bool Elaborator::callable(const LayerItem &layer, Span span, Frame &frame) {
  if (tables.recursive.count(&layer)) // told by the names pass
    return false;
  if (frame.depth > 150) {
    report(Code::E0207, span, "layers nest too deeply", frame);
    return false;
  }
  return true;
}

// A layer, or an instance of one, that takes nothing: its name alone is a call.
bool Elaborator::isCalledByName(const std::string &name, Frame &frame) {
  const LayerItem *layer = nullptr;
  if (auto own = frame.names.find(name); own != frame.names.end())
    layer = own->second.kind == Binding::Use ? findLayer(own->second.use->layer.text, frame.file) : nullptr;
  else if (!(frame.file != 0 && fileFrame.names.count(name)))
    layer = findLayer(name, frame.file);
  if (!layer || (layer->form != LayerItem::Layer && layer->form != LayerItem::ReversibleLayer))
    return false;
  const auto &parameters = layer->signature.parameters;
  return std::all_of(parameters.begin(), parameters.end(), [](const ast::Parameter &parameter) { return parameter.value != nullptr; });
}

Value Elaborator::callNamed(const Expr &site, const Expr &callee, const std::vector<Slot> *slots,
                            const std::vector<Arg> &args, Frame &frame) {
  const std::string &name = callee.text;
  std::vector<Argument> sizes, values;
  bool dots = false;
  if (frame.index && frame.index->find(name) >= 0)
    return indexIsNoValue(name, callee.span, frame);
  auto own = frame.names.find(name);
  bool outer = own == frame.names.end() && frame.file != 0 && fileFrame.names.count(name);
  const LayerItem *layer = own == frame.names.end() && !outer ? findLayer(name, frame.file) : nullptr;
  bool good = evalArgs(args, frame, values);
  if (slots)
    good &= evalSizes(*slots, frame, sizes, dots);
  if (own != frame.names.end()) {
    if (own->second.kind != Binding::Use) {
      Diagnostic &d = report(Code::E0307, callee.span, "`" + name + "` is not a layer and cannot be called", frame);
      if (isImplicitName(name) || findLayer(name, frame.file))
        d.help("what is called `" + name + "` here hides the one of the language: give it another name, a field of a named source too, as in w: f32[B] from \"" + name + "\"");
      return {};
    }
    if (slots)
      return failure(Code::E0304, callee.span, "`" + name + "` is an instance; its sizes stand behind `use`", frame);
    return good ? callUse(*own->second.use, site, values, frame) : Value();
  }
  if (outer)
    return failure(Code::E0307, callee.span, "`" + name + "` is not a layer and cannot be called", frame);
  if (!layer) {
    if (isImplicitName(name))
      return good ? callImplicit(name, site, values, frame) : Value();
    if (datasetIndex.count(name))
      return failure(Code::E0307, callee.span, "`" + name + "` is a dataset and cannot be called", frame);
    if (tables.unknown.count({callee.span.file, callee.span.begin}))
      return {};
    return failure(Code::E0101, callee.span, "unknown name `" + name + "`", frame);
  }
  if (!good)
    return {};
  auto number = tables.callNumbers.find(&site);
  uint64_t key = extend(frame.key, number == tables.callNumbers.end() ? 0 : number->second);
  bool remembers = frame.isTrain && !frame.index;
  std::string identity;
  if (remembers) { // two equal calls in `train` are one
    identity = name + (dots ? "[.." : "[");
    for (const std::vector<Argument> *list : {&sizes, &values}) {
      for (const Argument &value : *list) {
        identity += "," + value.name + ":";
        identify(value.value, identity);
      }
      identity += "](";
    }
    auto known = frame.calls.find(identity);
    if (known != frame.calls.end())
      return known->second;
  }
  Value result;
  if (layer->form == LayerItem::Builtin)
    result = callBuiltin(*layer, site, sizes, dots, values, key, frame);
  else if (dots)
    result = failure(Code::E0304, callee.span, "`..` is no size of `" + name + "`", frame);
  else
    result = callDirect(*layer, site, std::move(sizes), std::move(values), frame);
  if (remembers)
    frame.calls[identity] = result;
  return result;
}

Value Elaborator::callDirect(const LayerItem &layer, const Expr &site, std::vector<Argument> sizes,
                             std::vector<Argument> args, Frame &frame) {
  bool model = layer.form == LayerItem::Model;
  Span span = site.span;
  if (model && !frame.isTrain)
    return failure(Code::E0305, span, "a model is called in `train` only", frame);
  if (model && (!train || train->name.text != layer.name.text))
    return failure(Code::E0305, span,
                   "`train " + (train ? train->name.text : std::string()) + "` calls another model, `" +
                       layer.name.text + "`",
                   frame);
  if (!callable(layer, span, frame))
    return {};
  if (!model && tables.owning.count(&layer)) {
    report(Code::E0305, span, "`" + layer.name.text + "` owns parameters, so it is not called directly", frame)
        .help(frame.isTrain ? "put it into the model" : "write `use name = " + layer.name.text + "..` and call `name`");
    return {};
  }
  if (model && std::find(modelSites.begin(), modelSites.end(), &site) == modelSites.end())
    modelSites.push_back(&site);
  auto number = tables.callNumbers.find(&site);
  int siteNumber = number == tables.callNumbers.end() ? 0 : number->second;
  Node *node =
      model ? child(*frame.node, "model", "", layer.name.text, span, 0, -1)
            : child(*frame.node, "@" + std::to_string(siteNumber), frame.node->path, layer.name.text, span, 0, -1);
  Call call{layer};
  call.sizes = std::move(sizes);
  call.args = std::move(args);
  call.direct = true;
  call.node = node;
  call.span = call.viaSpan = span;
  call.via = layer.name.text + "(..)";
  call.key = extend(frame.key, siteNumber);
  call.block = frame.block;
  if (!frame.index)
    return callLayer(call, frame);

  // From index notation: the layer works on whatever axes its scalars run over.
  for (const ast::Parameter &parameter : layer.signature.parameters)
    if (parameter.type && !(parameter.type->axes.size() == 1 && parameter.type->axes[0].kind == Axis::Dots))
      return failure(Code::E0405, span,
                     "`" + layer.name.text + "` may not be called in index notation: its parameter `" +
                         parameter.name.text + "` is not of type [..]",
                     frame);
  std::vector<Tensor> tensors;
  std::vector<Span> spans;
  for (const Argument &arg : call.args)
    if (arg.value.isTensor()) {
      tensors.push_back(arg.value.tensor);
      spans.push_back(arg.span);
    }
  if (!align(tensors, spans, span, frame, nullptr))
    return {};
  std::vector<int> labels = tensors.empty() ? std::vector<int>() : tensors[0].labels;
  size_t next = 0;
  for (Argument &arg : call.args)
    if (arg.value.isTensor()) {
      arg.value.tensor = tensors[next++];
      arg.value.tensor.labels.clear();
    }
  IndexScope *scope = frame.index;
  frame.index = nullptr;
  ++drawsForbidden;
  Value value = callLayer(call, frame);
  --drawsForbidden;
  frame.index = scope;
  if (value.isTensor() && value.tensor.axes.size() == labels.size())
    value.tensor.labels = labels;
  else if (!value.isError())
    return failure(Code::E0405, span,
                   "`" + layer.name.text + "` may not be called in index notation: it gives " + describe(value, dims),
                   frame);
  return value;
}

// How often a `use` runs its layer; nothing if its count is none.
std::optional<int64_t> Elaborator::repeatCount(const Use &use, Frame &frame) {
  if (!use.repeat)
    return 1;
  std::optional<Number> number = evalConstantNumber(*use.repeat, frame, "the count of a `repeat`");
  if (!number)
    return std::nullopt;
  std::optional<int64_t> whole = number->integer();
  if (!whole || *whole < 1 || *whole > 100000) {
    report(Code::E0501, use.repeat->span, "the count of a `repeat` must be a whole number from 1 to 100000, but this is " + sizeText(*number), frame);
    return std::nullopt;
  }
  return whole;
}

// The call of an instance, but for its arguments. `block`: which one of a `repeat` with parameters of their own; -1: the only one.
bool Elaborator::callOfInstance(const Use &use, const Expr &site, int64_t block, Call &call, Frame &frame) {
  bool dots = false, good = true;
  if (use.index && !use.shared) {
    Binding index;
    index.value = Value::of(Number(std::max<int64_t>(block, 0)));
    index.span = use.index.span;
    frame.names[use.index.text] = index;
  }
  good &= evalSizes(use.slots, frame, call.sizes, dots);
  good &= evalArgs(use.args, frame, call.constants);
  if (use.index && !use.shared)
    frame.names.erase(use.index.text);
  if (dots)
    report(Code::E0304, use.layer.span, "`..` is no size of `" + use.layer.text + "`", frame);
  if (dots || !good)
    return false;
  std::string suffix = block >= 0 ? "." + std::to_string(block) : "";
  std::string path = (frame.node->path.empty() ? use.name.text : frame.node->path + "." + use.name.text) + suffix;
  call.node = child(*frame.node, use.name.text + suffix, path, call.layer.name.text, use.span, static_cast<int>(use.span.begin), static_cast<int>(block));
  call.span = site.span;
  call.via = use.name.text + " = " + (use.repeat ? "repeat " + textOf(use.repeat->span) + (use.shared ? " shared " : " ") : "") + call.layer.name.text;
  call.viaSpan = use.span;
  auto number = tables.callNumbers.find(&site);
  uint64_t key = extend(frame.key, number == tables.callNumbers.end() ? 0 : number->second);
  call.key = block >= 0 ? extend(key, static_cast<uint64_t>(block)) : key;
  call.block = block >= 0 ? blocks++ : frame.block;
  return true;
}

// The results of one block are the first arguments of the next.
bool Elaborator::feedNextBlock(const Use &use, const LayerItem &layer, const Expr &site, const std::vector<Value> &results,
                               std::vector<Argument> &args, Frame &frame) {
  std::vector<std::string> names;
  for (const ast::Parameter &parameter : layer.signature.parameters)
    if (parameter.type)
      names.push_back(parameter.name.text);
  if (results.size() > names.size()) {
    report(Code::E0501, use.span, "`" + layer.name.text + "` cannot be repeated: it has more results than parameters", frame);
    return false;
  }
  for (size_t r = 0; r < results.size(); ++r) {
    bool placed = false;
    for (size_t a = 0; a < args.size(); ++a)
      if (args[a].name == names[r] || (args[a].name.empty() && a == r)) {
        args[a].value = results[r];
        placed = true;
      }
    if (!placed) {
      report(Code::E0501, site.span, "the first parameters of a `repeat` must be given, but `" + names[r] + "` is not", frame);
      return false;
    }
  }
  return true;
}

Value Elaborator::callUse(const Use &use, const Expr &site, const std::vector<Argument> &args, Frame &frame) {
  const LayerItem *layer = findLayer(use.layer.text, frame.file);
  if (!layer)
    return {};
  if (frame.index)
    return failure(Code::E0405, site.span, "an instance may not be called in index notation", frame);
  if (layer->form == LayerItem::Builtin || layer->form == LayerItem::Model) {
    report(Code::E0305, use.layer.span,
           "`" + use.layer.text + "` is a " + (layer->form == LayerItem::Model ? "model" : "built-in") + " and has no instances", frame)
        .help(layer->form == LayerItem::Model ? "a model is called in `train`; what is used in another one is a layer"
                                              : "call it where its value is wanted: " + use.layer.text + "(..)");
    return {};
  }
  if (!callable(*layer, use.layer.span, frame))
    return {};
  std::optional<int64_t> count = repeatCount(use, frame);
  if (!count)
    return {};
  auto run = [&](const std::vector<Argument> &given, int64_t block, int &number) -> Value {
    Call call{*layer};
    if (!callOfInstance(use, site, block, call, frame))
      return {};
    call.args = given;
    number = call.block;
    return callLayer(call, frame);
  };
  int block = 0; // its number in the program
  if (use.shared)
    return callShared(use, *layer, *count, site, args, frame, [&](const std::vector<Argument> &given) { return run(given, -1, block); });
  if (!use.repeat)
    return run(args, -1, block);
  std::vector<Argument> current = args;
  std::vector<int> ends;
  Value result;
  for (int64_t i = 0; i < *count; ++i) {
    result = run(current, i, block);
    if (result.isError())
      return result;
    std::vector<Value> results = result.kind == Value::Tuple ? result.items : std::vector<Value>{result};
    for (const Value &value : results) {
      Op &op = graph->at(value.tensor.op);
      if (op.block == block) {
        op.blockEnd = true;
        ends.push_back(value.tensor.op);
      }
    }
    if (i + 1 < *count && !feedNextBlock(use, *layer, site, results, current, frame))
      return {};
  }
  for (const Value &value : result.kind == Value::Tuple ? result.items : std::vector<Value>{result})
    blockChains[value.tensor.op] = ends;
  return result;
}

// Stands for the result of a layer whose body has errors.
Value Elaborator::declaredResult(const Type &type, Frame &callee) {
  std::optional<DType> dtype = typeDtype(type, callee);
  std::optional<std::vector<Number>> axes = typeAxes(type, callee);
  Interval range;
  if (!diags.hasErrors() || !dtype || !axes || !boundsInLayer(type, callee, range))
    return {};
  Tensor tensor = emit(Op(OpKind::Constant, {}, {{Key::Number, 0.0}}), *dtype, *axes, type.span, callee);
  tensor.range = range;
  return Value::of(tensor);
}

static Frame frameOf(const Call &call, const Frame &caller) {
  Frame callee;
  callee.file = call.layer.span.file;
  callee.layer = &call.layer;
  callee.node = call.node;
  callee.caller = &caller;
  callee.callSpan = call.span;
  callee.via = call.via;
  callee.viaSpan = call.viaSpan;
  callee.key = call.key;
  callee.depth = caller.depth + 1;
  callee.block = call.block;
  return callee;
}

// What the body returns, each value with the text that it comes from.
void Elaborator::evalReturn(const Call &call, const Statement &last, Frame &callee, std::vector<Value> &values, std::vector<Span> &spans) {
  std::vector<const Expr *> roots;
  for (const ExprPtr &value : last.values)
    roots.push_back(value.get());
  evaluateInOrder(call.layer.body, roots, callee);
  for (const ExprPtr &expr : last.values) {
    Value value = eval(*expr, callee);
    bool several = value.kind == Value::Tuple && last.values.size() == 1; // `return f(x)` hands on several results
    for (const Value &item : several ? value.items : std::vector<Value>{value}) {
      values.push_back(item);
      spans.push_back(expr->span);
    }
  }
}

// Makes the values what the layer declares its results to be. False if one of them has errors.
bool Elaborator::checkReturn(const Call &call, std::vector<Value> &values, const std::vector<Span> &spans, Frame &callee) {
  for (size_t i = 0; i < values.size(); ++i) {
    values[i] = checkResult(call.layer.signature.results[i], values[i], spans[i], callee);
    if (values[i].isError())
      return false;
  }
  return call.layer.form != LayerItem::ReversibleLayer || checkCoupling(call, values, spans, callee);
}

// A layer of the library counts the axes of its argument from the end. Of one that has too few, the batch would be a size of the layer's parameters.
bool Elaborator::tooFewAxes(const Call &call, Frame &callee, Frame &caller) {
  const ast::Parameter &first = call.layer.signature.parameters.front();
  auto argument = callee.names.find(first.name.text);
  for (const Statement &statement : call.layer.body) {
    if (statement.kind != StatementKind::Param || argument == callee.names.end() || !argument->second.value.isTensor() || !first.type)
      continue;
    for (const Axis &axis : statement.type.axes) {
      auto size = axis.kind == Axis::Size && axis.size->kind == ExprKind::Name ? callee.names.find(axis.size->text) : callee.names.end();
      if (size == callee.names.end() || !size->second.isSize || !size->second.value.isNumber() || batchAxis({size->second.value.number}) < 0)
        continue;
      const std::string &name = call.layer.name.text;
      report(Code::E0503, call.span,
             "`" + name + "` takes " + textOf(first.type->span) + ", but this is " + describe(argument->second.value, dims) + ", whose batch would be its " +
                 axis.size->text,
             caller)
          .help(findLayer(name + "_seq", 0) ? "of sequences, [.., C, T], it is `" + name + "_seq`" : "");
      return true;
    }
  }
  return false;
}

Value Elaborator::callLayer(const Call &call, Frame &caller) {
  Frame callee = frameOf(call, caller);
  if (!bindCall(call, callee, caller))
    return {};
  bool reversible = call.layer.form == LayerItem::ReversibleLayer;
  if (reversible && !enterCoupling(call, callee, caller))
    return {};
  if (callee.file == 0 && caller.file != 0 && tooFewAxes(call, callee, caller))
    return {};
  defineBody(call.layer.body, callee);
  const Statement *last = nullptr;
  for (const Statement &statement : call.layer.body)
    if (statement.kind == StatementKind::Return)
      last = &statement;
  std::vector<Value> values;
  std::vector<Span> spans;
  if (last)
    evalReturn(call, *last, callee, values, spans);
  reversibleDepth -= reversible;
  if (!last)
    return {};
  if (mode == GraphMode::Step)
    for (const Statement &statement : call.layer.body)
      if (statement.kind == StatementKind::Update)
        evalUpdate(statement, callee);
  const std::vector<Type> &types = call.layer.signature.results;
  bool bad = std::any_of(values.begin(), values.end(), [](const Value &value) { return value.isError(); });
  if (!bad && values.size() != types.size()) {
    report(Code::E0303, last->span,
           "`" + call.layer.name.text + "` declares " + std::to_string(types.size()) + " results but returns " +
               std::to_string(values.size()),
           callee);
    return {};
  }
  if (bad || !checkReturn(call, values, spans, callee)) { // the caller sees the declared types, so that it can be checked all the same
    values.clear();
    for (const Type &type : types) {
      values.push_back(declaredResult(type, callee));
      if (values.back().isError())
        return {};
    }
  }
  if (caller.file != 0)
    for (const Value &value : values)
      noteNamed(value);
  if (values.size() == 1)
    return values[0];
  Value result;
  result.kind = Value::Tuple;
  result.items = std::move(values);
  return result;
}

} // namespace cinch
