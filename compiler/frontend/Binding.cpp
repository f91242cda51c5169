// Binding.cpp: arguments against a signature: places, size parameters (given, inferred, default), constants, and then
// every declared type.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>

namespace cinch {

using namespace ast;

// ---- Types of a signature -----------------------------------------------------------------------------------------
std::optional<DType> Elaborator::typeDtype(const Type &type, Frame &frame) {
  if (type.dtype.text == "f32")
    return DType::F32;
  if (type.dtype.text == "i32")
    return DType::I32;
  if (type.dtype.text == "bool")
    return DType::Bool;
  return std::nullopt; // told by the names pass
}

std::optional<std::vector<Number>> Elaborator::typeAxes(const Type &type, Frame &frame) {
  std::vector<Number> axes;
  bool good = true, dots = false;
  for (const Axis &axis : type.axes) {
    if (axis.kind == Axis::Dots) {
      if (dots || !frame.hasDots) {
        report(Code::E0302, axis.span,
               dots ? "`..` stands twice in one type" : "`..` is not known here: no parameter has it", frame);
        good = false;
      } else {
        axes.insert(axes.end(), frame.dots.begin(), frame.dots.end());
      }
      dots = true;
      continue;
    }
    if (axis.kind == Axis::Query) {
      report(Code::E0302, axis.span, "`?` as an axis stands in built-ins only", frame);
      good = false;
      continue;
    }
    std::optional<Number> size = evalConstantNumber(*axis.size, frame, "a size");
    good &= size && checkAxis(*size, axis.span, frame);
    if (good)
      axes.push_back(*size);
  }
  if (!good)
    return std::nullopt;
  return axes;
}

bool Elaborator::boundsInLayer(const Type &type, Frame &frame, Interval &range) {
  if (type.except) {
    report(Code::E0204, type.except->span, "`except` belongs to a field of data", frame)
        .help("leave out `below` and `except` here: without them a layer takes what the field may hold, its `except` value, too");
    return false;
  }
  bool hasExcept = false;
  int64_t except = 0;
  return typeBounds(type, frame, range, hasExcept, except);
}

bool Elaborator::typeBounds(const Type &type, Frame &frame, Interval &range, bool &hasExcept, int64_t &except) {
  if (!type.below)
    return true;
  std::optional<Number> end = evalConstantNumber(*type.below, frame, "`below`");
  if (!end)
    return false;
  std::optional<int64_t> value = end->integer();
  if (type.dtype.text != "i32" || !value || *value < 1 || *value > INT32_MAX) {
    report(Code::E0204, type.below->span,
           type.dtype.text != "i32" ? "`below` bounds i32 only"
                                    : "`below` must be a whole number of at least 1 and below 2^31, but this is " + sizeText(*end),
           frame);
    return false;
  }
  range = Interval::below(*value);
  if (!type.except)
    return true;
  std::optional<Number> other = evalConstantNumber(*type.except, frame, "`except`");
  if (!other)
    return false;
  std::optional<int64_t> exception = other->integer();
  if (!exception || *exception < INT32_MIN || *exception > INT32_MAX) {
    report(Code::E0204, type.except->span, "`except` must be a whole number within i32", frame);
    return false;
  }
  hasExcept = true;
  except = *exception;
  return true;
}

// ---- Places
// -----------------------------------------------------------------------------------------------------------------
// Help for an argument that is not among `names`: an instance has its constants behind `use`, its tensors in the call.
static std::string otherwisePlaced(const LayerItem &layer, const std::string &name, bool behindUse, const std::vector<std::string> &names) {
  for (const ast::Parameter &parameter : layer.signature.parameters)
    if (parameter.name.text == name)
      return behindUse ? "`" + name + "` is a tensor: it is given in the call of the instance"
                       : "`" + name + "` is a constant: it is given where the instance is made, `use .. = " + layer.name.text + "(" + name + " = ..)`";
  return didYouMean(name, names);
}

// Direct: all parameters in order. An instance: constants behind `use`, tensors in the call.
bool Elaborator::placeArguments(const Call &call, Frame &caller, std::vector<std::optional<Argument>> &placed) {
  const std::vector<ast::Parameter> &parameters = call.layer.signature.parameters;
  placed.assign(parameters.size(), std::nullopt);
  bool good = true;
  auto place = [&](const std::vector<Argument> &args, bool tensors, bool constants) {
    size_t next = 0;
    bool named = false;
    for (const Argument &arg : args) {
      size_t at = parameters.size();
      if (arg.name.empty()) {
        if (named) {
          report(Code::E0301, arg.span, "an argument in order stands behind one by name", caller);
          good = false;
          continue;
        }
        while (next < parameters.size() && (parameters[next].type ? !tensors : !constants))
          ++next;
        at = next++;
        if (at >= parameters.size()) {
          size_t count = 0;
          for (const ast::Parameter &parameter : parameters)
            count += parameter.type ? tensors : constants;
          Diagnostic &d = report(Code::E0301, arg.span,
                                 "`" + call.layer.name.text + "` takes " + std::to_string(count) +
                                     (tensors && constants ? " arguments"
                                      : tensors            ? " tensors"
                                                           : " constants") +
                                     ", but " + std::to_string(args.size()) + " are given",
                                 caller);
          d.label(call.layer.name.span, "declared here");
          good = false;
          return;
        }
      } else {
        named = true;
        std::vector<std::string> names;
        for (size_t i = 0; i < parameters.size(); ++i) {
          if (parameters[i].type ? tensors : constants) {
            names.push_back(parameters[i].name.text);
            if (parameters[i].name.text == arg.name)
              at = i;
          }
        }
        if (at == parameters.size()) {
          Diagnostic &d = report(Code::E0301, arg.span,
                                 "`" + call.layer.name.text + "` has no " +
                                     (tensors && constants ? "parameter"
                                      : tensors            ? "tensor"
                                                           : "constant") +
                                     " `" + arg.name + "`",
                                 caller);
          d.help(otherwisePlaced(call.layer, arg.name, constants, names));
          good = false;
          continue;
        }
      }
      if (placed[at]) {
        report(Code::E0301, arg.span, "`" + parameters[at].name.text + "` is given twice", caller);
        good = false;
        continue;
      }
      placed[at] = arg;
    }
  };
  if (call.direct) {
    place(call.args, true, true);
  } else {
    place(call.constants, false, true);
    place(call.args, true, false);
  }
  return good;
}

// ---- Sizes --------------------------------------------------------------------------------------------------------
bool Elaborator::bindSizes(const Call &call, Frame &callee, Frame &caller, std::set<std::string> &open) {
  const std::vector<SizeParameter> &parameters = call.layer.sizes;
  bool good = true, named = false;
  size_t next = 0;
  std::set<std::string> given;
  for (const Argument &arg : call.sizes) {
    const SizeParameter *found = nullptr;
    std::vector<std::string> names;
    for (const SizeParameter &parameter : parameters) {
      names.push_back(parameter.name.text);
      if (!arg.name.empty() && parameter.name.text == arg.name)
        found = &parameter;
    }
    if (arg.name.empty() && !named && next < parameters.size())
      found = &parameters[next++];
    named |= !arg.name.empty();
    if (!found || !given.insert(found->name.text).second) {
      Diagnostic &d =
          report(Code::E0304, arg.span,
                 found              ? "size `" + found->name.text + "` is given twice"
                 : arg.name.empty() ? "`" + call.layer.name.text + "` has " + std::to_string(parameters.size()) +
                                          " sizes, but " + std::to_string(call.sizes.size()) + " are given"
                                    : "`" + call.layer.name.text + "` has no size `" + arg.name + "`",
                 caller);
      d.help(didYouMean(arg.name, names));
      good = false;
      continue;
    }
    std::optional<int64_t> whole = arg.value.number.integer();
    if (!whole || *whole < 0) {
      report(Code::E0204, arg.span,
             "size `" + found->name.text + "` must be a whole number of at least 0 and below 2^63, but this is " +
                 sizeText(arg.value.number),
             caller);
      good = false;
      continue;
    }
    Binding binding;
    binding.value = arg.value;
    binding.isSize = true;
    binding.span = found->name.span;
    callee.names[found->name.text] = binding;
  }
  for (const SizeParameter &parameter : parameters) {
    if (callee.names.count(parameter.name.text))
      continue;
    if (parameter.inferred) {
      open.insert(parameter.name.text);
    } else if (!parameter.value && good) {
      report(Code::E0304, call.viaSpan, "`" + call.layer.name.text + "` needs the size `" + parameter.name.text + "`",
             caller)
          .label(parameter.span, "declared here")
          .help("write " + call.layer.name.text + "[" + parameter.name.text + " = ..]");
      good = false;
    }
  }
  return good;
}

// Axes left of `..` from the left, right of it from the right; an open `?` name alone as an axis is bound at its
// first sight.
bool Elaborator::inferSizes(const Type &type, const Argument &arg, const std::string &name, std::set<std::string> &open,
                            Frame &callee, Frame &caller, const Call &call) {
  const Tensor &tensor = arg.value.tensor;
  size_t rank = tensor.axes.size(), fixed = 0, left = 0;
  bool dots = false;
  for (const Axis &axis : type.axes) {
    dots |= axis.kind == Axis::Dots;
    fixed += axis.kind != Axis::Dots;
    left += !dots;
  }
  size_t many = type.axes.size() - fixed;
  if (many > 1) // told by the names pass
    return false;
  if (dots ? rank < fixed : rank != fixed) {
    Diagnostic &d = report(Code::E0302, arg.span,
                           "`" + name + "` of `" + call.layer.name.text + "` has " + (dots ? "at least " : "") +
                               std::to_string(fixed) + (fixed == 1 ? " axis" : " axes") + ", but the argument has " +
                               std::to_string(rank),
                           caller);
    d.label(arg.span, textOf(arg.span) + ": " + describe(arg.value, dims));
    d.label(type.span, "declared as " + textOf(type.span));
    return false;
  }
  size_t middle = rank - fixed;
  if (dots) {
    std::vector<Number> sizes(tensor.axes.begin() + left, tensor.axes.begin() + left + middle);
    if (!callee.hasDots) {
      callee.hasDots = true;
      callee.dots = sizes;
    } else {
      bool equal = callee.dots.size() == sizes.size();
      for (size_t i = 0; equal && i < sizes.size(); ++i)
        equal = sameSize(callee.dots[i], sizes[i]);
      if (!equal) {
        Diagnostic &d = report(Code::E0302, arg.span,
                               "`..` stands for the same axes in all parameters of `" + call.layer.name.text +
                                   "`, but `" + name + "` has other ones",
                               caller);
        for (const Argument &other : call.args)
          labelOperand(d, other.span, other.value);
        return false;
      }
    }
  }
  bool past = false;
  for (size_t i = 0; i < type.axes.size(); ++i) {
    const Axis &axis = type.axes[i];
    if (axis.kind == Axis::Dots) {
      past = true;
      continue;
    }
    if (axis.kind != Axis::Size || axis.size->kind != ExprKind::Name || !open.count(axis.size->text))
      continue;
    Binding binding;
    binding.value = Value::of(tensor.axes[past ? i - 1 + middle : i]);
    binding.isSize = true;
    callee.names[axis.size->text] = binding;
    open.erase(axis.size->text);
  }
  return true;
}

// The size that the axis `fromRight` of a parameter's type names, if arguments decide it and the call gives it nevertheless.
static const SizeParameter *takenFromArgument(const Call &call, const ast::Type &type, size_t fromRight) {
  if (fromRight > type.axes.size())
    return nullptr;
  const Axis &axis = type.axes[type.axes.size() - fromRight];
  for (size_t i = 0; i < call.layer.sizes.size(); ++i) {
    const SizeParameter &size = call.layer.sizes[i];
    bool given = i < call.sizes.size();
    if (given && size.inferred && axis.size && axis.size->kind == ExprKind::Name && axis.size->text == size.name.text)
      return &size;
  }
  return nullptr;
}

struct Elaborator::Declared {
  const ast::Parameter &parameter;
  const Call &call;
  std::vector<Number> axes;
  Interval range; // of its elements, if it is known

  const Type &type() const { return *parameter.type; }
  std::string text() const { return "`" + parameter.name.text + "` of `" + call.layer.name.text + "`"; }
};

bool Elaborator::checkArgument(const ast::Parameter &parameter, const Argument &arg, Frame &callee, Frame &caller,
                               const Call &call) {
  const Type &type = *parameter.type;
  std::optional<std::vector<Number>> axes = typeAxes(type, callee);
  Declared declared{parameter, call, {}, {}};
  if (!axes || !boundsInLayer(type, callee, declared.range))
    return false;
  declared.axes = std::move(*axes);
  std::optional<DType> dtype = typeDtype(type, callee);
  Tensor tensor;
  if (arg.value.isTensor()) {
    tensor = arg.value.tensor;
    if (!checkElements(declared, dtype, tensor, arg, caller) || !checkAxes(declared, tensor, arg, caller) ||
        !checkBounds(declared, tensor, arg, caller))
      return false;
  } else if (std::optional<Tensor> filled = dtype ? fillArgument(declared, *dtype, arg, caller) : std::nullopt) {
    tensor = *filled;
  } else {
    return false;
  }
  Binding binding;
  binding.span = parameter.name.span;
  binding.value = Value::of(tensor);
  callee.names[parameter.name.text] = binding;
  return true;
}

// A constant: a tensor filled with it.
std::optional<Tensor> Elaborator::fillArgument(const Declared &declared, DType dtype, const Argument &arg, Frame &caller) {
  std::optional<Tensor> filled = fill(arg.value, dtype, declared.axes, arg.span, caller);
  if (!filled || !declared.range.known || filled->range.within(declared.range.low, declared.range.high))
    return filled;
  report(Code::E0209, arg.span,
         declared.text() + " lies in " + intervalText(declared.range) + ", but this is " + describe(arg.value, dims), caller);
  return std::nullopt;
}

bool Elaborator::checkElements(const Declared &declared, std::optional<DType> dtype, const Tensor &tensor, const Argument &arg, Frame &caller) {
  if (!dtype || *dtype == tensor.dtype)
    return true;
  Diagnostic &d = report(Code::E0302, arg.span,
                         declared.text() + " is " + dtypeName(*dtype) + ", but the argument is " + dtypeName(tensor.dtype), caller);
  d.label(declared.type().span, "declared as " + textOf(declared.type().span));
  if (*dtype == DType::F32)
    d.help("write f32(" + textOf(arg.expr ? arg.expr->span : arg.span) + ")");
  return false;
}

// Of sizes that are the same, the tensor's get the names that say more.
bool Elaborator::checkAxes(const Declared &declared, Tensor &tensor, const Argument &arg, Frame &caller) {
  const std::vector<Number> &axes = declared.axes;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (sameSize(axes[i], tensor.axes[i])) {
      tensor.axes[i] = betterName(axes[i], tensor.axes[i]);
      continue;
    }
    Diagnostic &d = report(Code::E0302, arg.span,
                           declared.text() + " must be " + typeText(tensor.dtype, axes, dims) + ", but " + sizeText(axes[i]) +
                               " meets " + sizeText(tensor.axes[i]),
                           caller);
    labelOperand(d, arg.span, arg.value, &tensor.axes[i]);
    d.label(declared.type().span, "declared as " + textOf(declared.type().span), originOf(axes[i]));
    if (compareNumbers(axes[i], tensor.axes[i]) == 0)
      d.help(equalValuesHelp(axes[i], tensor.axes[i]));
    else if (const SizeParameter *size = takenFromArgument(declared.call, declared.type(), axes.size() - i))
      d.help("leave `" + size->name.text + "` out: what comes in is taken from the argument");
    else if (declared.type().span.file == 0) // the library's own signature is nobody's to change
      d.help(arg.expr && arg.expr->kind == ExprKind::Name
                 ? "give `" + arg.expr->text + "` the type " + typeText(tensor.dtype, axes, dims) + " where it is declared or computed"
                 : "pass a tensor of that type");
    else
      d.help("declare `" + declared.parameter.name.text + ": " + typeOf(tensor) + "`, or pass a tensor of the declared type");
    return false;
  }
  return true;
}

bool Elaborator::checkBounds(const Declared &declared, Tensor &tensor, const Argument &arg, Frame &caller) {
  const Interval &range = declared.range;
  if (!range.known)
    return true;
  if (mayBeExcept(tensor)) {
    report(Code::E0211, arg.span, declared.text() + " may not hold the `except` value of the data", caller)
        .help("write where(c, y, 0)");
    return false;
  }
  if (!tensor.range.within(range.low, range.high)) {
    Diagnostic &d = report(Code::E0209, arg.span,
                           declared.text() + " must lie in " + intervalText(range) + ", but the argument lies in " +
                               intervalText(tensor.range),
                           caller);
    labelOperand(d, arg.span, arg.value);
    d.label(declared.type().span, "declared as " + textOf(declared.type().span));
    if (!tensor.range.known)
      d.help("a field of the data says what it holds, i32[..] below N; what is computed is bounded: min(max(" + textOf(arg.span) + ", " + std::to_string(range.low) +
             "), " + std::to_string(range.high) + ")");
    const bool low = tensor.range.known && tensor.range.low < range.low, high = tensor.range.known && tensor.range.high > range.high;
    if (low || high) {
      const std::string at = low ? "max(" : "min(", last = std::to_string(range.high) + ")";
      d.help("bound it: " + (low && high ? "min(max(" : at) + textOf(arg.span) + ", " + (low ? std::to_string(range.low) + (high ? "), " + last : ")") : last));
    }
    return false;
  }
  tensor.range = range;
  return true;
}

// ---- A call -------------------------------------------------------------------------------------------------------
// Is each parameter given or has a default, and is what is given of its kind: a constant, or a tensor?
bool Elaborator::checkPlaced(const Call &call, std::vector<std::optional<Argument>> &placed, Frame &caller, bool good) {
  const std::vector<ast::Parameter> &parameters = call.layer.signature.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) {
    const ast::Parameter &parameter = parameters[i];
    if (!placed[i] && !parameter.value && good) {
      Diagnostic &d = report(Code::E0301, parameter.type ? call.span : call.viaSpan,
                             "`" + call.layer.name.text + "` needs `" + parameter.name.text + "`", caller);
      d.label(parameter.span, "declared here");
      if (!parameter.type && !call.direct)
        d.help("constants are given where the instance is made, " + call.layer.name.text + "(" + parameter.name.text +
               " = ..)");
      good = false;
    }
    if (!placed[i])
      continue;
    const Value &value = placed[i]->value;
    std::string who = "`" + parameter.name.text + "` of `" + call.layer.name.text + "`";
    if (value.isError()) {
      good = false;
    } else if (!parameter.type && value.isTensor()) {
      report(Code::E0301, placed[i]->span, who + " is a constant, but this is a tensor, " + typeOf(value.tensor), caller);
      good = false;
    } else if (parameter.type && !value.isTensor() && !value.isNumber() && !value.isBool()) {
      report(Code::E0301, placed[i]->span, who + " is a tensor, but this is " + kindName(value), caller);
      good = false;
    } else if (!checkRange(call.layer, parameter, *placed[i], caller)) {
      good = false;
    }
  }
  return good;
}

// Sizes that neither the call nor its arguments give have their defaults.
bool Elaborator::bindDefaultSizes(const Call &call, Frame &callee, Frame &caller) {
  for (const SizeParameter &parameter : call.layer.sizes) {
    if (callee.names.count(parameter.name.text))
      continue;
    std::string who = "`" + parameter.name.text + "` of `" + call.layer.name.text + "`";
    if (!parameter.value) {
      report(Code::E0304, call.span, "the size " + who + " does not follow from the arguments", caller)
          .help("give it, " + call.layer.name.text + "[" + parameter.name.text + " = ..]");
      return false;
    }
    std::optional<Number> value = evalConstantNumber(*parameter.value, callee, "a size");
    if (!value)
      return false;
    std::optional<int64_t> whole = value->integer();
    if (!whole || *whole < 0) {
      report(Code::E0204, parameter.value->span,
             "size " + who + " must be a whole number of at least 0 and below 2^63, but its default is " + sizeText(*value), callee);
      return false;
    }
    Binding binding;
    binding.value = Value::of(*value);
    binding.isSize = true;
    binding.span = parameter.name.span;
    callee.names[parameter.name.text] = binding;
  }
  return true;
}

bool Elaborator::bindConstants(const Call &call, const std::vector<std::optional<Argument>> &placed, Frame &callee) {
  const std::vector<ast::Parameter> &parameters = call.layer.signature.parameters;
  for (size_t i = 0; i < parameters.size(); ++i) { // a default may use those before it
    if (parameters[i].type)
      continue;
    Binding binding;
    binding.span = parameters[i].name.span;
    binding.value = placed[i] ? placed[i]->value : eval(*parameters[i].value, callee);
    if (binding.value.isError())
      return false;
    callee.names[parameters[i].name.text] = binding;
  }
  return true;
}

bool Elaborator::bindTensors(const Call &call, const std::vector<std::optional<Argument>> &placed, Frame &callee, Frame &caller) {
  const std::vector<ast::Parameter> &parameters = call.layer.signature.parameters;
  bool good = true;
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (!parameters[i].type)
      continue;
    Argument arg;
    if (placed[i]) {
      arg = *placed[i];
    } else {
      arg.value = eval(*parameters[i].value, callee);
      arg.span = parameters[i].value->span;
      if (arg.value.isError())
        return false;
    }
    good &= checkArgument(parameters[i], arg, callee, caller, call);
  }
  return good;
}

bool Elaborator::bindCall(const Call &call, Frame &callee, Frame &caller) {
  const std::vector<ast::Parameter> &parameters = call.layer.signature.parameters;
  std::vector<std::optional<Argument>> placed;
  std::set<std::string> open;
  bool good = placeArguments(call, caller, placed);
  good &= bindSizes(call, callee, caller, open);
  if (!checkPlaced(call, placed, caller, good))
    return false;
  for (size_t i = 0; i < parameters.size(); ++i)
    if (parameters[i].type && placed[i] && placed[i]->value.isTensor())
      good &= inferSizes(*parameters[i].type, *placed[i], parameters[i].name.text, open, callee, caller, call);
  return good && bindDefaultSizes(call, callee, caller) && bindConstants(call, placed, callee) && bindTensors(call, placed, callee, caller);
}

Value Elaborator::checkResult(const Type &type, Value value, Span span, Frame &callee) {
  const std::string &layer = callee.layer->name.text;
  std::optional<DType> dtype = typeDtype(type, callee);
  std::optional<std::vector<Number>> axes = typeAxes(type, callee);
  Interval range;
  if (!dtype || !axes || !boundsInLayer(type, callee, range))
    return {};
  std::string declared = typeText(*dtype, *axes, dims);
  auto mismatch = [&](const std::string &what, const Number *size = nullptr) {
    Diagnostic &d =
        report(Code::E0303, span, "`" + layer + "` declares its result " + declared + ", but " + what, callee);
    labelOperand(d, span, value, size);
    d.label(type.span, "declared as " + textOf(type.span));
    return &d;
  };
  if (!value.isTensor()) {
    mismatch("this is " + std::string(kindName(value)));
    return {};
  }
  Tensor &tensor = value.tensor;
  if (tensor.dtype != *dtype || tensor.axes.size() != axes->size()) {
    mismatch("returns " + typeOf(tensor));
    return {};
  }
  for (size_t i = 0; i < axes->size(); ++i)
    if (!sameSize((*axes)[i], tensor.axes[i])) {
      Diagnostic *d = mismatch(sizeText((*axes)[i]) + " meets " + sizeText(tensor.axes[i]), &tensor.axes[i]);
      if (compareNumbers((*axes)[i], tensor.axes[i]) == 0)
        d->help(equalValuesHelp((*axes)[i], tensor.axes[i]));
      return {};
    }
  if (range.known && mayBeExcept(tensor)) {
    Diagnostic &d = report(Code::E0211, span, "`" + layer + "` declares where its result lies, but this may hold the `except` value of the data", callee);
    labelOperand(d, span, value);
    d.label(type.span, "declared as " + textOf(type.span));
    d.help("write where(c, y, 0)");
    return {};
  }
  if (range.known && !tensor.range.within(range.low, range.high)) {
    mismatch("its values lie in " + intervalText(tensor.range));
    return {};
  }
  if (*dtype == DType::I32)
    tensor.range = range;
  tensor.axes = *axes;
  return value;
}

} // namespace cinch
