// NameUses.cpp: the names that expressions, types and settings mention, and the numbers of the calls among them; see NameWalk.h.
#include "compiler/frontend/NameWalk.h"

#include <algorithm>
#include <cctype>
#include <functional>

namespace cinch {

using namespace ast;

const std::vector<std::string> &implicitNames() {
  static const std::vector<std::string> names = {"training",
                                                 "pi",
                                                 "zeros",
                                                 "ones",
                                                 "constant",
                                                 "normal",
                                                 "truncated_normal",
                                                 "uniform",
                                                 "orthogonal",
                                                 "kaiming_normal",
                                                 "kaiming_uniform",
                                                 "xavier_normal",
                                                 "xavier_uniform",
                                                 "fan_in",
                                                 "fan_out",
                                                 "max",
                                                 "min",
                                                 "where"};
  return names;
}

bool isImplicitName(const std::string &name) {
  const std::vector<std::string> &names = implicitNames();
  return std::find(names.begin(), names.end(), name) != names.end();
}

const LayerItem *NameTables::find(const std::string &name, int file) const {
  if (file != 0) {
    auto found = fileLayers.find(name);
    if (found != fileLayers.end())
      return found->second;
  }
  auto found = preludeLayers.find(name);
  return found == preludeLayers.end() ? nullptr : found->second;
}

static bool isBracketCall(const std::string &name) {
  return name == "range" || name == "random_uniform" || name == "random_normal" || name == "random_int" ||
         name == "random_bool";
}

bool NameWalk::isIndex(const std::string &name) const {
  for (const std::vector<std::string> &scope : indexScopes)
    if (std::find(scope.begin(), scope.end(), name) != scope.end())
      return true;
  return false;
}

void NameWalk::mention(const std::string &name, Span span) {
  if (isIndex(name))
    return;
  auto own = body.find(name);
  if (own != body.end()) {
    own->second.mentioned = true;
    return;
  }
  auto outer = fileScope.find(name);
  if (outer != fileScope.end()) {
    outer->second.mentioned = true;
    bool ordered = outer->second.kind == Known::Dim || outer->second.kind == Known::Const;
    if (ordered && outer->second.span.begin > span.begin)
      diags.error(Code::E0103, span, "`" + name + "` is used before its definition")
          .label(outer->second.span, "defined here");
    if (const LayerItem *layer = tables.find(name, fileId))
      graph.mentions[current].insert(layer);
    return;
  }
  if (later.count(name)) {
    diags.error(Code::E0103, span, "`" + name + "` is used before its definition").label(later[name], "defined here");
    tables.unknown.insert({span.file, span.begin});
    return;
  }
  if (const LayerItem *layer = tables.find(name, fileId)) {
    graph.mentions[current].insert(layer);
    return;
  }
  if (isImplicitName(name))
    return;
  unknown(name, span, "name");
}

bool NameWalk::isDeviationOfNormalized(const std::string &name) const {
  return name == "std" && calling && calling->args.size() == 1 && calling->args[0].value->kind == ExprKind::Name &&
         normalized.count(calling->args[0].value->text);
}

void NameWalk::unknown(const std::string &name, Span span, const char *what) {
  tables.unknown.insert({span.file, span.begin});
  if (fieldsUnknown || !told.insert(name).second) // once a body
    return;
  Diagnostic &d = diags.error(Code::E0101, span, std::string("unknown ") + what + " `" + name + "`");
  if (isDeviationOfNormalized(name)) {
    const std::string &field = calling->args[0].value->text;
    d.help("`" + field + "` is normalized: what it was divided by is known when training begins, and saved as `" + normalized[field] +
           ".std` beside `" + normalized[field] + ".mean`; written as numbers, " + field + " * 1.7 + 5.2 is what the data have");
    d.helpStands = true;
  } else if (inSlot && !indexScopes.empty() && std::islower(static_cast<unsigned char>(name[0])))
    d.help("an index stands on the left or is bound by a reduction: `sum[" + name + "] ..`");
  else if (diags.errorCount() < 100) { // spelling among thousands of names takes its time
    std::vector<std::string> candidates = implicitNames();
    for (const auto &[known, info] : fileScope)
      candidates.push_back(known);
    for (const auto &[known, info] : body)
      candidates.push_back(known);
    for (const auto &[known, layer] : tables.preludeLayers)
      candidates.push_back(known);
    for (const std::vector<std::string> &scope : indexScopes)
      candidates.insert(candidates.end(), scope.begin(), scope.end());
    std::sort(candidates.begin(), candidates.end());
    std::string near = didYouMean(name, candidates);
    if (near.empty() && distribution && distribution->span.begin == span.begin)
      near = std::string("there are ") + distributionsText;
    d.help(near.empty() && inParameter ? "a size that is taken from the argument stands in the list with a `?`: " + current->name.text + "[.., " + name + "?]" : near);
  }
}

void NameWalk::args(const std::vector<Arg> &list) {
  for (const Arg &arg : list)
    if (arg.name.text == "init")
      initial(arg.value.get());
    else
      expr(arg.value.get());
}

void NameWalk::initial(const Expr *e) {
  distribution = e && e->kind == ExprKind::Call ? e->children[0].get() : e;
  expr(e);
  distribution = nullptr;
}

void NameWalk::slots(const std::vector<Slot> &list) {
  bool outer = inSlot;
  inSlot = true;
  for (const Slot &slot : list) {
    expr(slot.begin.get());
    expr(slot.end.get());
  }
  inSlot = outer;
}

bool NameWalk::isInstance(const std::string &name) const {
  auto own = body.find(name);
  return own != body.end() && own->second.kind == Known::Instance;
}

void NameWalk::callee(const Expr &name) {
  if (inDefault || isInstance(name.text))
    mention(name.text, name.span);
  else
    expr(&name);
}

void NameWalk::expr(const Expr *e) {
  if (!e)
    return;
  switch (e->kind) {
  case ExprKind::Number:
  case ExprKind::String:
  case ExprKind::Bool:
    return;
  case ExprKind::Name:
    if (numbering && isInstance(e->text))
      tables.callNumbers[e] = nextInstance();
    else if (numbering && isLayer(e->text))
      tables.callNumbers[e] = nextLayer();
    return mention(e->text, e->span);
  case ExprKind::Call:
    if (numbering)
      tables.callNumbers[e] = nextCall();
    if (e->children[0]->kind == ExprKind::Name) {
      calling = e;
      callee(*e->children[0]);
      calling = nullptr;
    } else if (e->children[0]->kind == ExprKind::Index && e->children[0]->children[0]->kind == ExprKind::Name) {
      callee(*e->children[0]->children[0]);
      slots(e->children[0]->slots);
    } else {
      expr(e->children[0].get());
    }
    return args(e->args);
  case ExprKind::Index:
    if (numbering && e->children[0]->kind == ExprKind::Name && isBracketCall(e->children[0]->text))
      tables.callNumbers[e] = nextCall();
    else if (numbering && e->children[0]->kind == ExprKind::Name && isLayer(e->children[0]->text))
      tables.callNumbers[e] = nextLayer();
    if (tables.callNumbers.count(e))
      callee(*e->children[0]);
    else
      expr(e->children[0].get());
    return slots(e->slots);
  case ExprKind::Reduction:
    return reduction(e);
  case ExprKind::Tuple:
  case ExprKind::Transpose:
  case ExprKind::Unary:
  case ExprKind::Binary:
  case ExprKind::If:
    for (const ExprPtr &child : e->children)
      expr(child.get());
    return;
  }
}

void NameWalk::reduction(const Expr *e) {
  bool sizes = true;
  for (const Place &place : e->places) {
    // Inside index notation a reduction names indices: what a definition further down is called was meant as one.
    bool isLater = !indexScopes.empty() && later.count(place.name.text);
    sizes &= place.dots || (maySize(place.name.text) && !isIndex(place.name.text) && !isLater);
  }
  std::vector<std::string> bound;
  for (const Place &place : e->places) {
    if (place.dots)
      continue;
    if (sizes || e->reduction == ReductionOp::Scan)
      mention(place.name.text, place.span);
    else
      bindIndex(bound, place);
  }
  if (e->reduction == ReductionOp::Scan || sizes)
    bound.clear();
  indexScopes.push_back(bound);
  expr(e->where.get());
  expr(e->children[0].get());
  indexScopes.pop_back();
}

void NameWalk::bindIndex(std::vector<std::string> &bound, const Place &place) {
  const std::string &name = place.name.text;
  if (std::find(bound.begin(), bound.end(), name) != bound.end() || isIndex(name)) {
    diags.error(Code::E0401, place.span, "index `" + name + "` is bound twice");
  } else if (known(name)) {
    auto own = body.find(name);
    const bool isLater = own == body.end() && !fileScope.count(name);
    Diagnostic &d = diags.error(Code::E0401, place.span,
                                isLater ? "index `" + name + "` is the name of a definition further down; an index is a new name"
                                        : "index `" + name + "` is a name already; an index is a new name");
    d.label(own != body.end() ? own->second.span : isLater ? later[name] : fileScope[name].span, "defined here");
    d.help("an index may not bear the name of what the body or the file defines: rename one of them");
    tables.unknown.insert({place.span.file, place.span.begin});
  }
  bound.push_back(name);
}

void NameWalk::type(const Type &t) {
  static const std::vector<std::string> dtypes = {"f32", "i32", "bool"};
  bool good = std::find(dtypes.begin(), dtypes.end(), t.dtype.text) != dtypes.end() ||
              (fileId == 0 && t.dtype.text == "tensor");
  if (!good && t.dtype)
    diags.error(Code::E0202, t.dtype.span, "unknown element type `" + t.dtype.text + "`; there are f32, i32 and bool")
        .help(t.dtype.text == "f64" || t.dtype.text == "bf16" || t.dtype.text == "tf32"
                  ? "storage is f32; write `precision " + t.dtype.text + "` in train"
                  : didYouMean(t.dtype.text, dtypes));
  int dots = 0;
  for (const Axis &axis : t.axes) {
    expr(axis.size.get());
    if (axis.kind == Axis::Dots && ++dots == 2)
      diags.error(Code::E0302, axis.span, "`..` stands twice in one type");
  }
  expr(t.below.get());
  expr(t.except.get());
}

void NameWalk::mentionWords(const Setting &setting) {
  std::function<void(const std::vector<Arg> &)> words = [&](const std::vector<Arg> &list) {
    for (const Arg &arg : list)
      if (arg.value)
        mentionQuietly(*arg.value);
  };
  words(setting.key.args);
  for (const SettingWord &word : setting.words) {
    if (word.kind == SettingWord::Name)
      touch(word.text);
    words(word.args);
  }
}

void NameWalk::touch(const std::string &name) {
  auto own = body.find(name);
  if (own != body.end())
    own->second.mentioned = true;
  auto outer = fileScope.find(name);
  if (outer != fileScope.end())
    outer->second.mentioned = true;
}

void NameWalk::mentionQuietly(const Expr &e) {
  if (e.kind == ExprKind::Name)
    touch(e.text);
  for (const ExprPtr &child : e.children)
    mentionQuietly(*child);
  for (const Arg &arg : e.args)
    mentionQuietly(*arg.value);
}

} // namespace cinch
