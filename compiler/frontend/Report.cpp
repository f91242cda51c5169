// Report.cpp: the checker's messages: where a layer was reached from, where a size came from, and that one fault in a
// layer is told once and at a place in the user's own text.
#include "compiler/frontend/Elaborator.h"

namespace cinch {

std::string Elaborator::textOf(Span span) const {
  std::string text(sources.text(span));
  for (char &c : text)
    if (c == '\n')
      c = ' ';
  return text.size() > 40 ? std::string(beginningOf(text, 37)) + "..." : text;
}

// "in `ff = mlp` of `block`, reached from `blocks = repeat N block` (gpt.cinch:33)"
std::string Elaborator::pathOf(const Frame &frame) const {
  std::string text;
  int shown = 0;
  for (const Frame *f = &frame; f && f->caller && f->caller->layer; f = f->caller) {
    if (++shown > 5) {
      text += ", ..";
      break;
    }
    if (shown == 1)
      text = "in `" + f->via + "` of `" + f->caller->layer->name.text + "`";
    else
      text += ", reached from `" + f->via + "` (" + sources.place(f->viaSpan) + ")";
  }
  return text;
}

// A fault in the prelude's text is shown where the user called it.
Diagnostic &Elaborator::report(Code code, Span span, std::string message, const Frame &frame) {
  Span at = span;
  for (const Frame *f = &frame; at.file == 0 && f && f->caller; f = f->caller)
    at = f->callSpan;
  std::string key = std::to_string(static_cast<int>(code)) + ":" + std::to_string(at.file) + ":" +
                    std::to_string(at.begin) + ":" + std::to_string(span.begin) + ":" +
                    std::to_string(frame.node ? frame.node->instance : 0);
  if (!reported.insert(key).second) {
    sink = Diagnostic();
    return sink;
  }
  Diagnostic &diagnostic = diags.error(code, at, std::move(message));
  if (at.begin != span.begin || at.file != span.file)
    diagnostic.label(span, "here in the library");
  std::string path = pathOf(frame);
  if (!path.empty())
    diagnostic.path(path);
  return diagnostic;
}

Value Elaborator::failure(Code code, Span span, std::string message, const Frame &frame) {
  report(code, span, std::move(message), frame);
  return {};
}

// "D = 768 from gpt.cinch:3", for every name in the size.
std::string Elaborator::originOf(const Number &number) const {
  std::string text;
  if (const Abbreviation *abbreviation = dims.find(number.form))
    text = abbreviation->name + " = " + valueOf(number) + " from " + sources.place(abbreviation->span);
  std::set<int> seen;
  for (const Term &term : number.form)
    for (const auto &[dim, exponent] : term.names)
      if (seen.insert(dim).second)
        text += (text.empty() ? "" : ", ") + dims[dim].name + " = " + dims[dim].value.str() + " from " +
                sources.place(dims[dim].span);
  return text;
}

Value Elaborator::indexIsNoValue(const std::string &name, Span span, const Frame &frame) {
  report(Code::E0404, span, "index `" + name + "` is no value", frame).help("the numbers along an axis of size N are a tensor: r = range[N], then r[" + name + "]");
  return {};
}

// Two sizes have one value and different names.
std::string Elaborator::equalValuesHelp(const Number &a, const Number &b) const {
  auto isName = [](const Number &n) {
    return n.form.size() == 1 && n.form[0].factor == Fraction(1) && n.form[0].names.size() == 1 &&
           n.form[0].names[0].second == 1;
  };
  if (isBatch(a) || isBatch(b))
    return "the batch dim equals only itself";
  std::string first = formOf(a, dims), second = formOf(b, dims);
  if (isName(a) && isName(b)) // the later one by the earlier one
    return a.form[0].names[0].first < b.form[0].names[0].first
               ? "if they are one size, declare `dim " + second + " = " + first + "`"
               : "if they are one size, declare `dim " + first + " = " + second + "`";
  return "the values are equal but " + first + " and " + second +
         " are different sizes; declare one dim by the other if they are one";
}

// "x: f32[B, T, D]   (D = 768 from gpt.cinch:3)": `size` is the axis the message is about.
void Elaborator::labelOperand(Diagnostic &diagnostic, Span span, const Value &value, const Number *size) {
  std::string origin;
  if (const Parameter *parameter = parameterOf(value))
    origin = "declared " + sources.place(parameter->span);
  if (size && size->hasNames())
    origin += (origin.empty() ? "" : ", ") + originOf(*size);
  else if (size)
    origin += (origin.empty() ? "size written as " : ", size written as ") + valueOf(*size);
  diagnostic.label(span, textOf(span) + ": " + describe(value, dims), origin);
}

// The parameter that the value is, if it is one.
const Parameter *Elaborator::parameterOf(const Value &value) const {
  if (!value.isTensor() || value.tensor.op < 0)
    return nullptr;
  const Op &op = graph->at(value.tensor.op);
  return op.kind == OpKind::Parameter ? &program.parameters[op.integer(Key::Index)] : nullptr;
}

} // namespace cinch
