// Loops.cpp: `scan[T] c(s.., x..)` and `repeat N shared L`: one instance, run trip after trip, whose results are the states of the next
// trip. The ops of a trip stand once in the graph, computed from loop_state and loop_slice; what is the same in every trip does not
// depend on these, and so stands outside of the loop by itself.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>

namespace cinch {

using namespace ast;

// The instance or layer that a `scan` calls.
struct Elaborator::Looped {
  const LayerItem *layer = nullptr;
  const Use *use = nullptr;
  std::vector<Argument> sizes; // of a layer that is called directly
};

bool Elaborator::findLooped(const Expr &call, Frame &frame, Looped &looped) {
  const Expr *callee = call.kind == ExprKind::Call ? call.children[0].get() : nullptr;
  const Expr *sized = callee && callee->kind == ExprKind::Index ? callee : nullptr;
  if (sized)
    callee = sized->children[0].get();
  if (!callee || callee->kind != ExprKind::Name) {
    report(Code::E0702, call.span, "`scan` takes a call of a layer, scan[T] cell(h, x)", frame);
    return false;
  }
  auto own = frame.names.find(callee->text);
  if (own != frame.names.end() && own->second.kind == Binding::Use) {
    looped.use = own->second.use;
    if (looped.use->repeat) {
      report(Code::E0702, callee->span, "`scan` takes one layer, but `" + callee->text + "` is a `repeat`", frame)
          .help("write a layer that calls it");
      return false;
    }
    if (sized) {
      report(Code::E0304, callee->span, "`" + callee->text + "` is an instance; its sizes stand behind `use`", frame);
      return false;
    }
    looped.layer = findLayer(looped.use->layer.text, frame.file);
    return looped.layer != nullptr;
  }
  looped.layer = own == frame.names.end() ? findLayer(callee->text, frame.file) : nullptr;
  if (!looped.layer || looped.layer->form != LayerItem::Layer) {
    if (!tables.unknown.count({callee->span.file, callee->span.begin}))
      report(Code::E0702, callee->span, "`scan` takes a call of a layer, but `" + callee->text + "` is none", frame);
    return false;
  }
  bool dots = false;
  return !sized || evalSizes(sized->slots, frame, looped.sizes, dots);
}

// The tensor parameter that an argument is for, counted among the tensor parameters; -1: none.
static int tensorParameter(const LayerItem &layer, const std::vector<Argument> &args, size_t at, bool direct) {
  int ordinal = -1, position = 0;
  for (const ast::Parameter &parameter : layer.signature.parameters) {
    ordinal += parameter.type != nullptr;
    bool counts = direct || parameter.type;
    bool here = args[at].name.empty() ? counts && position == int(at) : args[at].name == parameter.name.text;
    position += counts;
    if (here)
      return parameter.type ? ordinal : -1;
  }
  return -1;
}

// Whether each state has the type of the result that feeds it, and all of them the batch axis or none.
bool Elaborator::keepsTypes(const std::vector<Argument> &args, const std::vector<int> &states, const std::vector<Tensor> &before,
                            const std::vector<Tensor> &after, Span span, Frame &frame) {
  bool withBatch = false, without = false;
  for (size_t i = 0; i < states.size(); ++i) {
    bool same = before[i].dtype == after[i].dtype && before[i].axes.size() == after[i].axes.size();
    for (size_t a = 0; same && a < before[i].axes.size(); ++a)
      same = sameSize(before[i].axes[a], after[i].axes[a]);
    if (!same) {
      report(Code::E0702, args[states[i]].span,
             "result " + std::to_string(i + 1) + " is " + typeOf(after[i]) + ", but the state that it feeds is " + typeOf(before[i]), frame)
          .help("a state has one type in every trip");
      return false;
    }
    (batchAxis(before[i].axes) >= 0 ? withBatch : without) = true;
  }
  if (withBatch && without) {
    report(Code::E0702, span, "some states of this loop have the batch axis and others have not", frame)
        .help("give all of them the batch axis");
    return false;
  }
  return true;
}

// Runs the body on types and leaves its results after one trip in `after`. `states`: the places in `args` of what the results feed.
bool Elaborator::runLoop(const ActiveLoop &loop, std::vector<Argument> args, const std::vector<int> &states, Span span, Frame &frame,
                         const std::function<Value(const std::vector<Argument> &)> &body, std::vector<Tensor> &after) {
  if (reversibleDepth > 0) {
    report(Code::E0710, span, "a loop inside of a reversible layer is not there yet", frame);
    return false;
  }
  activeLoops.push_back(loop);
  auto leave = [&](bool good) {
    activeLoops.pop_back();
    return good;
  };
  auto run = [&] {
    Value result = body(args);
    std::vector<Value> items = result.kind == Value::Tuple ? result.items : std::vector<Value>{result};
    after.clear();
    for (const Value &item : items)
      if (item.isTensor())
        after.push_back(item.tensor);
    return after.size() == states.size() && items.size() == states.size();
  };
  // A state that is given as a number is a tensor of what the first trip makes of it; an integer holds what any trip leaves.
  auto isOpen = [&](int state) { return !args[state].value.isTensor() || args[state].value.tensor.dtype == DType::I32; };
  std::vector<int> numbers; // states that are given as numbers
  if (std::any_of(states.begin(), states.end(), isOpen)) {
    if (!run())
      return leave(false);
    for (size_t i = 0; i < states.size(); ++i) {
      Argument &arg = args[states[i]];
      if (!arg.value.isTensor()) {
        std::optional<Tensor> filled = fill(arg.value, after[i].dtype, after[i].axes, arg.span, frame);
        if (!filled)
          return leave(false);
        arg.value = Value::of(*filled);
        numbers.push_back(int(i));
      }
      Tensor &state = arg.value.tensor; // no longer the data itself, which it may begin with
      state.range = joinIntervals(openRange(state), openRange(after[i]));
      state.hasExcept = false;
    }
  }
  std::vector<Tensor> before;
  for (size_t i = 0; i < states.size(); ++i) {
    Tensor &state = args[states[i]].value.tensor;
    Op op(OpKind::LoopState, {state.op},
          {{Key::Index, int64_t(loop.number)}, {Key::Place, int64_t(i)}, {Key::Trips, loop.count}});
    state.op = emit(std::move(op), state.dtype, state.axes, span, frame).op;
    before.push_back(state);
  }
  // From the trip on in which a result has the `except` value of the data, the state that it feeds has it, too. The body is then checked again.
  for (bool grows = true; grows;) {
    const int firstLoop = loopsMade, firstBlock = blocks;
    const size_t known = diags.size();
    if (!run()) {
      // A number has no type of its own: what does not fit the state is the result.
      for (int i : numbers)
        if (const Span &number = args[states[i]].span; known < diags.size() && diags[known].span.file == number.file && diags[known].span.begin == number.begin) {
          diags[known].message = "result " + std::to_string(i + 1) + " is " + typeOf(before[i]) + ", which is no type of the state that it feeds";
          diags[known].helps.assign(1, "a state has one type in every trip: let the layer return what it takes");
        }
      return leave(false);
    }
    grows = false;
    for (size_t i = 0; i < states.size(); ++i)
      if (mayBeExcept(after[i]) && !mayBeExcept(before[i])) {
        graph->addFacts(before[i].op, FromExcept);
        grows = true;
      }
    if (grows)
      loopsMade = firstLoop, blocks = firstBlock;
  }
  for (const Tensor &carried : after)
    graph->at(carried.op).named = false; // stays f32 in `precision bf16`
  return leave(keepsTypes(args, states, before, after, span, frame));
}

Value Elaborator::loopResults(OpKind kind, const ActiveLoop &loop, const std::vector<Tensor> &after, size_t axis, Span span, Frame &frame) {
  std::vector<int> operands;
  for (const Tensor &tensor : after)
    operands.push_back(tensor.op);
  Value results;
  results.kind = Value::Tuple;
  for (size_t i = 0; i < after.size(); ++i) {
    Op op(kind, operands, {{Key::Index, int64_t(loop.number)}, {Key::Place, int64_t(i)}, {Key::Trips, loop.count}});
    std::vector<Number> axes = after[i].axes;
    if (kind == OpKind::LoopStack)
      axes.insert(axes.begin(), loop.trips);
    Tensor result = after[i];
    result.axes = axes;
    result.op = emit(std::move(op), after[i].dtype, axes, span, frame).op;
    if (kind == OpKind::LoopStack) { // the axis goes where the slices have it
      std::vector<int64_t> order;
      for (size_t a = 1; a < axes.size(); ++a)
        order.push_back(int64_t(a));
      order.insert(order.begin() + std::min(axis, order.size()), 0);
      result = transposed(result, order, span, frame);
    }
    results.items.push_back(Value::of(result));
  }
  return results.items.size() == 1 ? results.items[0] : results;
}

// Cuts a tensor along the one axis that has the loop's size. False after an error.
bool Elaborator::cutAlong(const ActiveLoop &loop, Argument &arg, std::optional<size_t> &firstAxis, Frame &frame) {
  if (!arg.value.isTensor())
    return true;
  Tensor tensor = arg.value.tensor;
  std::vector<size_t> found;
  for (size_t i = 0; i < tensor.axes.size(); ++i)
    if (sameForm(tensor.axes[i], loop.trips))
      found.push_back(i);
  if (found.empty())
    return true;
  if (found.size() > 1) {
    Diagnostic &d = report(Code::E0702, arg.span, "more than one axis of " + typeOf(tensor) + " has the size " + sizeText(loop.trips), frame);
    labelOperand(d, arg.span, arg.value);
    d.help("give the axes different names");
    return false;
  }
  if (!firstAxis)
    firstAxis = found[0];
  std::vector<int64_t> order{int64_t(found[0])};
  for (size_t i = 0; i < tensor.axes.size(); ++i)
    if (i != found[0])
      order.push_back(int64_t(i));
  Tensor front = transposed(tensor, order, arg.span, frame);
  std::vector<Number> axes(front.axes.begin() + 1, front.axes.end());
  Op op(OpKind::LoopSlice, {front.op}, {{Key::Index, int64_t(loop.number)}, {Key::Trips, loop.count}});
  Tensor slice = tensor;
  slice.axes = axes;
  slice.op = emit(std::move(op), tensor.dtype, axes, arg.span, frame).op;
  arg.value = Value::of(slice);
  return true;
}

// An argument that was cut may have been meant as a whole, as a memory that happens to have the loop's length.
void Elaborator::explainSlice(Diagnostic &d, const Tensor &whole, const Argument &arg, const std::string &name, const ActiveLoop &loop) const {
  const std::string other = name + "2", text = textOf(arg.span);
  std::string sizes;
  for (const Number &axis : whole.axes)
    sizes += (sizes.empty() ? "" : ", ") + (sameForm(axis, loop.trips) ? other : formOf(axis, dims));
  d.note("inside of `scan[" + name + "]` an argument with the axis " + name + " is its slice of one trip: `" + text + "` is " + typeOf(whole) + ", its slice " +
         typeOf(arg.value.tensor));
  d.help("if every trip is to see all of it, give the axis another name: dim " + other + " = " + std::to_string(loop.count) + ", reshape[" + sizes + "](" + text +
         ") here, and " + other + " in the layer");
}

// Of a layer with several results: an argument that was meant to be cut may have become a state.
static std::string manyStates(const LayerItem &layer) {
  const std::string count = std::to_string(layer.signature.results.size());
  return "`" + layer.name.text + "` has " + count + " results, so the first " + count +
         " arguments of this `scan` are states, which it does not cut; a result that no trip reads has a state, too, such as 0";
}

Value Elaborator::evalScan(const Expr &expr, Frame &frame) {
  if (frame.index)
    return failure(Code::E0702, expr.op, "`scan` works on whole tensors, it does not stand in index notation", frame);
  if (expr.where || expr.places.size() != 1 || expr.places[0].dots)
    return failure(Code::E0702, expr.op, "`scan` names the size of one axis, scan[T] cell(h, x)", frame);
  const Place &place = expr.places[0];
  Value size = lookup(place.name.text, place.span, frame);
  if (size.isError())
    return {};
  if (!size.isNumber())
    return failure(Code::E0702, place.span, "`scan` names a size, but `" + place.name.text + "` is " + describe(size, dims), frame);
  if (!checkAxis(size.number, place.span, frame))
    return {};
  if (isBatch(size.number))
    return failure(Code::E0502, place.span, "`scan` may not run along the batch axis: examples do not depend on one another", frame);
  const Expr &call = *expr.children[0];
  Looped looped;
  if (!findLooped(call, frame, looped) || !callable(*looped.layer, call.span, frame))
    return {};
  std::vector<Argument> args;
  if (!evalArgs(call.args, frame, args))
    return {};
  ActiveLoop loop{loopsMade++, *size.number.integer(), size.number};
  size_t count = looped.layer->signature.results.size();
  std::vector<int> states(count, -1);
  std::optional<size_t> axis;
  const std::vector<Argument> whole = args;
  for (size_t i = 0; i < args.size(); ++i) {
    int parameter = tensorParameter(*looped.layer, args, i, looped.use == nullptr);
    if (parameter >= 0 && parameter < int(count))
      states[parameter] = int(i);
    else if (parameter >= 0 && !cutAlong(loop, args[i], axis, frame))
      return {};
  }
  for (int state : states)
    if (state < 0) {
      report(Code::E0702, call.span,
             "`" + looped.layer->name.text + "` has " + std::to_string(count) +
                 (count == 1 ? " result, so its first argument is the state" : " results, so its first arguments are the states") + " before the first trip",
             frame)
          .help("every result is a state that the next trip gets: a result that no trip needs has a parameter, too, called `_`, and 0 to begin with");
      return {};
    }
  if (!axis) {
    Diagnostic &d = report(Code::E0702, call.span, "no argument behind the states has an axis of the size " + sizeText(size.number), frame);
    auto hasAxis = [&](int state) {
      const Value &value = args[state].value;
      return value.isTensor() && std::any_of(value.tensor.axes.begin(), value.tensor.axes.end(), [&](const Number &axis) { return sameForm(axis, size.number); });
    };
    std::string asLong;
    for (size_t i = 0; i < args.size() && asLong.empty(); ++i)
      if (args[i].value.isTensor() && std::find(states.begin(), states.end(), int(i)) == states.end())
        asLong = sameLength(args[i].value.tensor, size.number);
    if (!asLong.empty())
      d.help(asLong);
    else if (count > 1 && std::any_of(states.begin(), states.end(), hasAxis))
      d.help(manyStates(*looped.layer));
    else
      d.help("`scan` cuts arguments along this axis; to run a layer on its own result, write `use b = repeat N shared L`");
    return {};
  }
  std::vector<Tensor> after;
  auto body = [&](const std::vector<Argument> &given) {
    return looped.use ? callUse(*looped.use, call, given, frame) : callDirect(*looped.layer, call, looped.sizes, given, frame);
  };
  size_t known = diags.size();
  if (!runLoop(loop, args, states, expr.span, frame, body, after)) {
    // An argument that does not fit was often meant to be cut, where it is a state.
    auto isOfArgument = [&](const Argument &arg) { return known < diags.size() && diags[known].span.begin == arg.span.begin; };
    if (count > 1 && std::any_of(args.begin(), args.end(), isOfArgument))
      diags[known].help(manyStates(*looped.layer));
    for (size_t d = known; d < diags.size(); ++d)
      for (size_t i = 0; i < args.size(); ++i)
        if (diags[d].span.file == args[i].span.file && diags[d].span.begin == args[i].span.begin && whole[i].value.isTensor() && whole[i].value.tensor.op != args[i].value.tensor.op)
          explainSlice(diags[d], whole[i].value.tensor, args[i], place.name.text, loop);
    return {};
  }
  return loopResults(OpKind::LoopStack, loop, after, *axis, expr.span, frame);
}

// `use b = repeat N shared L`: a chain of one instance. Its states are its first arguments, as those of any `repeat`.
Value Elaborator::callShared(const Use &use, const LayerItem &layer, int64_t count, const Expr &site, const std::vector<Argument> &args,
                             Frame &frame, const std::function<Value(const std::vector<Argument> &)> &body) {
  ActiveLoop loop{loopsMade++, count, Number(count)};
  std::vector<int> states(layer.signature.results.size(), -1);
  for (size_t i = 0; i < args.size(); ++i)
    if (int parameter = tensorParameter(layer, args, i, false); parameter >= 0 && parameter < int(states.size()))
      states[parameter] = int(i);
  if (std::count(states.begin(), states.end(), -1))
    return failure(Code::E0501, site.span, "the first parameters of a `repeat` must be given, one for each result", frame);
  std::vector<Tensor> after;
  if (!runLoop(loop, args, states, site.span, frame, body, after))
    return {};
  return loopResults(OpKind::LoopFinal, loop, after, 0, site.span, frame);
}

} // namespace cinch
