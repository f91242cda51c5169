// Names.cpp: one walk over every body with the scopes prelude < file < body < index statement.
#include "compiler/frontend/LayerGraph.h"
#include "compiler/frontend/Names.h"

#include <algorithm>
#include <cctype>
#include <functional>
#include <map>

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

namespace {

struct Known {
  enum Kind { Dim, Const, Data, Layer, Size, Parameter, Definition, Owned, Instance, Field, Index } kind = Definition;
  Span span;
  bool mentioned = false;
};
using Scope = std::map<std::string, Known>;

bool isBracketCall(const std::string &name) {
  return name == "range" || name == "random_uniform" || name == "random_normal" || name == "random_int" ||
         name == "random_bool";
}

struct Checker {
  NameTables &tables;
  Diagnostics &diags;
  int fileId = 0;
  Scope fileScope, body;
  std::set<std::string> later; // names of this body that come further down
  std::vector<std::vector<std::string>> indexScopes;
  LayerGraph graph;
  const LayerItem *current = nullptr;
  int calls = 0;
  int layers = 0, predictLayers = 0; // called by their names alone
  int instances = 0;                 // so are these
  int defaults = 0;                  // calls in the default values of a layer's parameters
  std::set<std::string> told; // unknown names of this body that were reported
  bool fieldsUnknown = false; // a `train` whose data does not exist
  bool numbering = false;
  // Calls in `predict` clauses have numbers of their own: such a clause changes no draw of the training.
  bool inPredict = false;
  bool inDefault = false;
  int predictCalls = 1 << 30;
  bool inSlot = false;                   // between the brackets of an operand
  bool inParameter = false;              // in the type of a layer's parameter

  // ---- Definitions
  void define(Scope &scope, const Name &name, Known::Kind kind) {
    if (name.text == "_" || !name)
      return;
    auto [entry, isNew] = scope.try_emplace(name.text, Known{kind, name.span});
    if (!isNew) {
      diags.error(Code::E0102, name.span, "`" + name.text + "` is defined twice")
          .label(entry->second.span, "first defined here");
      return;
    }
    if (&scope == &fileScope || fileId == 0) // names of a body may hide the prelude's
      return;
    auto outer = fileScope.find(name.text);
    if (outer == fileScope.end() || (kind == Known::Size && outer->second.kind == Known::Dim))
      return;
    diags.error(Code::E0106, name.span, "`" + name.text + "` is a name of the file already and may not be hidden")
        .label(outer->second.span, "defined here")
        .help("choose another name; only a layer's size list may hide a dim");
  }

  // ---- Uses
  bool isIndex(const std::string &name) const {
    for (const std::vector<std::string> &scope : indexScopes)
      if (std::find(scope.begin(), scope.end(), name) != scope.end())
        return true;
    return false;
  }

  void mention(const std::string &name, Span span) {
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
      diags.error(Code::E0103, span, "`" + name + "` is used before its definition");
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

  void unknown(const std::string &name, Span span, const char *what) {
    tables.unknown.insert({span.file, span.begin});
    if (fieldsUnknown || !told.insert(name).second) // once a body
      return;
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
    Diagnostic &d = diags.error(Code::E0101, span, std::string("unknown ") + what + " `" + name + "`");
    if (inSlot && !indexScopes.empty() && std::islower(static_cast<unsigned char>(name[0])))
      d.help("an index stands on the left or is bound by a reduction: `sum[" + name + "] ..`");
    else if (diags.errorCount() < 100) { // spelling among thousands of names takes its time
      std::string near = didYouMean(name, candidates);
      d.help(near.empty() && inParameter ? "a size that is taken from the argument stands in the list with a `?`: " + current->name.text + "[.., " + name + "?]" : near);
    }
  }

  bool known(const std::string &name) const { return body.count(name) || fileScope.count(name) || later.count(name); }

  void args(const std::vector<Arg> &list) {
    for (const Arg &arg : list)
      expr(arg.value.get());
  }
  void slots(const std::vector<Slot> &list) {
    bool outer = inSlot;
    inSlot = true;
    for (const Slot &slot : list) {
      expr(slot.begin.get());
      expr(slot.end.get());
    }
    inSlot = outer;
  }

  // A layer that takes nothing, or an instance of one, is called without parentheses. Two such calls draw different numbers. They are counted apart,
  // so that they move no number of another call.
  bool isLayer(const std::string &name) { return !body.count(name) && tables.find(name, fileId); }
  bool isInstance(const std::string &name) const {
    auto own = body.find(name);
    return own != body.end() && own->second.kind == Known::Instance;
  }
  int nextInstance() { return (1 << 27) + instances++; }
  int nextDefault() { return (1 << 26) + defaults++; }
  int nextLayer() { return inDefault ? nextDefault() : inPredict ? (1 << 29) + predictLayers++ : (1 << 20) + layers++; }
  int nextCall() { return inDefault ? nextDefault() : inPredict ? predictCalls++ : calls++; }

  // The name of what is called with something behind it, and so no call by itself. That of a layer takes a number of one all the same, since
  // recorded draws have the numbers that are left.
  void callee(const Expr &name) {
    if (inDefault || isInstance(name.text))
      mention(name.text, name.span);
    else
      expr(&name);
  }

  void expr(const Expr *e) {
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
        callee(*e->children[0]);
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

  // All names known: sizes. Otherwise index names, which must be new.
  void reduction(const Expr *e) {
    bool sizes = true;
    for (const Place &place : e->places)
      sizes &= place.dots || (known(place.name.text) && !isIndex(place.name.text));
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

  void bindIndex(std::vector<std::string> &bound, const Place &place) {
    const std::string &name = place.name.text;
    if (std::find(bound.begin(), bound.end(), name) != bound.end() || isIndex(name)) {
      diags.error(Code::E0401, place.span, "index `" + name + "` is bound twice");
    } else if (known(name)) {
      auto own = body.find(name);
      Diagnostic &d =
          diags.error(Code::E0401, place.span, "index `" + name + "` is a name already; an index is a new name");
      if (own != body.end())
        d.label(own->second.span, "defined here");
      else if (fileScope.count(name))
        d.label(fileScope[name].span, "defined here");
    }
    bound.push_back(name);
  }

  void type(const Type &t) {
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

  // ---- Bodies
  static void namesOf(const Statement &s, std::vector<Name> &names) {
    if (s.kind == StatementKind::Update || s.kind == StatementKind::Metric || s.kind == StatementKind::Predict)
      return;
    for (const Name &name : s.names)
      names.push_back(name);
    for (const Use &use : s.uses)
      names.push_back(use.name);
  }

  void statement(const Statement &s) {
    for (const Hint &hint : s.hints)
      if (s.kind != StatementKind::Define && s.kind != StatementKind::DefineIndex)
        diags.error(Code::E0308, hint.span, "a hint stands before a definition");
    switch (s.kind) {
    case StatementKind::Define:
      numbering = true;
      expr(s.values[0].get());
      numbering = false;
      for (const Name &name : s.names)
        defineLater(name, Known::Definition);
      return;
    case StatementKind::DefineIndex: {
      std::vector<std::string> bound;
      bool dots = false;
      for (const Place &place : s.places) {
        if (place.dots && dots)
          diags.error(Code::E0401, place.span, "`..` stands twice on the left");
        dots |= place.dots;
        if (!place.dots)
          bindIndex(bound, place);
      }
      indexScopes.push_back(bound);
      numbering = true;
      expr(s.values[0].get());
      numbering = false;
      indexScopes.pop_back();
      return defineLater(s.names[0], Known::Definition);
    }
    case StatementKind::Param:
    case StatementKind::State:
      type(s.type);
      expr(s.values[0].get());
      return defineLater(s.names[0], Known::Owned);
    case StatementKind::Use:
      for (const Use &use : s.uses) {
        expr(use.repeat.get());
        if (use.index) {
          if (known(use.index.text))
            diags.error(Code::E0106, use.index.span, "`" + use.index.text + "` is a name already");
          indexScopes.push_back({use.index.text}); // seen in the sizes and constants only
        }
        if (const LayerItem *layer = tables.find(use.layer.text, fileId)) {
          graph.mentions[current].insert(layer);
          graph.uses[current].insert(layer);
          auto outer = fileScope.find(use.layer.text);
          if (outer != fileScope.end())
            outer->second.mentioned = true;
        } else {
          unknown(use.layer.text, use.layer.span, "layer");
        }
        slots(use.slots);
        args(use.args);
        if (use.index)
          indexScopes.pop_back();
        defineLater(use.name, Known::Instance);
      }
      return;
    case StatementKind::Update:
    case StatementKind::Return:
    case StatementKind::Metric:
    case StatementKind::Predict:
      inPredict = s.kind == StatementKind::Predict;
      if (s.kind == StatementKind::Update)
        mention(s.names[0].text, s.names[0].span);
      numbering = true;
      for (const ExprPtr &value : s.values)
        expr(value.get());
      numbering = inPredict = false;
      return;
    case StatementKind::Setting:
      mentionWords(s.setting);
      return;
    }
  }

  void mentionWords(const Setting &setting) {
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
  void touch(const std::string &name) {
    auto own = body.find(name);
    if (own != body.end())
      own->second.mentioned = true;
    auto outer = fileScope.find(name);
    if (outer != fileScope.end())
      outer->second.mentioned = true;
  }
  void mentionQuietly(const Expr &e) {
    if (e.kind == ExprKind::Name)
      touch(e.text);
    for (const ExprPtr &child : e.children)
      mentionQuietly(*child);
    for (const Arg &arg : e.args)
      mentionQuietly(*arg.value);
  }

  void defineLater(const Name &name, Known::Kind kind) {
    later.erase(name.text);
    define(body, name, kind);
  }

  void warnUnused(const Scope &scope) {
    if (fileId == 0)
      return;
    for (const auto &[name, info] : scope) {
      if (info.mentioned || info.kind == Known::Field || info.kind == Known::Data) // data: Elaborator::warnUnusedData
        continue;
      if (info.kind == Known::Owned || info.kind == Known::Instance)
        diags.error(Code::E0104, info.span, "`" + name + "` is owned but mentioned nowhere")
            .help("remove it, or use it in a result");
      else
        diags.warning(Code::W0101, info.span, "`" + name + "` is never used");
    }
  }

  void statements(const std::vector<Statement> &list) {
    std::vector<Name> names;
    for (const Statement &s : list)
      namesOf(s, names);
    later.clear();
    for (const Name &name : names)
      if (name.text != "_")
        later.insert(name.text);
    for (const Statement &s : list)
      statement(s);
    later.clear();
  }

  void layer(const LayerItem &item) {
    current = &item;
    calls = layers = instances = defaults = 0;
    told.clear();
    body.clear();
    for (const SizeParameter &size : item.sizes)
      define(body, size.name, Known::Size);
    for (const ast::Parameter &parameter : item.signature.parameters)
      define(body, parameter.name, parameter.type ? Known::Parameter : Known::Definition);
    bool constants = false;
    for (const ast::Parameter &parameter : item.signature.parameters) {
      inParameter = item.form == LayerItem::Layer;
      if (parameter.type)
        type(*parameter.type);
      inParameter = false;
      numbering = inDefault = true;
      expr(parameter.value.get());
      numbering = inDefault = false;
      if (parameter.type && constants)
        diags
            .error(Code::E0301, parameter.span,
                   "tensor parameter `" + parameter.name.text + "` stands behind a constant")
            .help("write the tensors first");
      constants |= !parameter.type;
    }
    for (const SizeParameter &size : item.sizes)
      expr(size.value.get());
    for (const Type &result : item.signature.results)
      type(result);
    statements(item.body);
    if (item.form != LayerItem::Builtin) {
      int returns = 0;
      for (const Statement &s : item.body)
        returns += s.kind == StatementKind::Return;
      if (returns != 1 || item.body.back().kind != StatementKind::Return)
        diags.error(Code::E0303, item.name.span,
                    returns == 0  ? "`" + item.name.text + "` has no `return`"
                    : returns > 1 ? "`" + item.name.text + "` has more than one `return`"
                                  : "`return` is not the last statement of `" + item.name.text + "`");
      warnUnused(body);
    }
    body.clear(); // a file's own names stand behind it
    current = nullptr;
  }

  void trainBlock(const TrainItem &item, const File &file) {
    calls = layers = instances = 0;
    told.clear();
    body.clear();
    auto data = fileScope.find(item.data.text);
    if (data != fileScope.end())
      data->second.mentioned = true;
    fieldsUnknown = data == fileScope.end() || data->second.kind != Known::Data;
    auto model = fileScope.find(item.name.text);
    if (model != fileScope.end())
      model->second.mentioned = true;
    for (const std::unique_ptr<Item> &other : file.items)
      if (other->kind == ItemKind::Data && other->name.text == item.data.text)
        for (const ast::Field &field : static_cast<const DataItem &>(*other).fields)
          define(body, field.name, Known::Field);
    std::map<std::string, Span> metrics, results;
    for (const Statement &s : item.clauses)
      if (s.kind == StatementKind::Metric) {
        auto [entry, isNew] = metrics.try_emplace(s.names[0].text, s.names[0].span);
        if (!isNew || s.names[0].text == "loss")
          diags.error(Code::E0102, s.names[0].span, "metric `" + s.names[0].text + "` is defined twice");
      } else if (s.kind == StatementKind::Predict) {
        auto [entry, isNew] = results.try_emplace(s.names[0].text, s.names[0].span);
        if (!isNew)
          diags.error(Code::E0102, s.names[0].span, "two results of `predict` are called `" + s.names[0].text + "`")
              .label(entry->second, "the other one");
      }
    statements(item.clauses);
    auto loss = body.find("loss");
    if (loss != body.end())
      loss->second.mentioned = true;
    warnUnused(body);
    body.clear();
    fieldsUnknown = false;
  }

  void run(const File &file) {
    fileId = file.id;
    fileScope.clear();
    auto &layers = fileId == 0 ? tables.preludeLayers : tables.fileLayers;
    for (const std::unique_ptr<Item> &item : file.items) { // known in the whole file
      if (item->kind == ItemKind::Layer) {
        define(fileScope, item->name, Known::Layer);
        layers.try_emplace(item->name.text, static_cast<const LayerItem *>(item.get()));
      } else if (item->kind == ItemKind::Data) {
        define(fileScope, item->name, Known::Data);
      }
    }
    for (const std::unique_ptr<Item> &item : file.items) // dims and consts: after their definition
      if (item->kind == ItemKind::Dims) {
        for (const Dim &dim : static_cast<const DimsItem &>(*item).dims)
          later.insert(dim.name.text);
      } else if (item->kind == ItemKind::Const) {
        for (const Constant &constant : static_cast<const ConstItem &>(*item).constants)
          later.insert(constant.name.text);
      }
    std::set<std::string> all = later;
    for (const std::unique_ptr<Item> &item : file.items) {
      later = all;
      for (const auto &[name, info] : fileScope)
        later.erase(name);
      switch (item->kind) {
      case ItemKind::Dims:
        for (const Dim &dim : static_cast<const DimsItem &>(*item).dims) {
          expr(dim.value.get());
          defineFile(dim.name, Known::Dim);
        }
        break;
      case ItemKind::Const:
        for (const Constant &constant : static_cast<const ConstItem &>(*item).constants) {
          expr(constant.value.get());
          defineFile(constant.name, Known::Const);
        }
        break;
      default:
        break;
      }
    }
    later.clear();
    for (const std::unique_ptr<Item> &item : file.items) {
      if (item->kind == ItemKind::Layer)
        layer(static_cast<const LayerItem &>(*item));
      else if (item->kind == ItemKind::Data)
        for (const ast::Field &field : static_cast<const DataItem &>(*item).fields) {
          type(field.type);
          for (const FieldModifier &modifier : field.modifiers)
            if (modifier.scale)
              mentionQuietly(*modifier.scale);
        }
      else if (item->kind == ItemKind::Plan)
        for (const Setting &setting : static_cast<const PlanItem &>(*item).settings)
          mentionWords(setting);
      else if (item->kind == ItemKind::Train)
        trainBlock(static_cast<const TrainItem &>(*item), file);
      if (item->kind == ItemKind::Data)
        for (const Arg &arg : static_cast<const DataItem &>(*item).args)
          mentionQuietly(*arg.value);
    }
    warnUnused(fileScope);
  }

  void defineFile(const Name &name, Known::Kind kind) {
    later.erase(name.text);
    define(fileScope, name, kind);
  }
};

} // namespace

NameTables checkNames(const File &prelude, const File &file, Diagnostics &diags) {
  NameTables tables;
  Checker checker{tables, diags};
  checker.run(prelude);
  checker.run(file);
  checker.graph.findRecursion(tables, diags);
  checker.graph.findOwners(tables);
  return tables;
}

} // namespace cinch
