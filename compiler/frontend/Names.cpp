// Names.cpp: the names that bodies, blocks and files define, and in what order; see NameWalk.h.
#include "compiler/frontend/NameWalk.h"

namespace cinch {

using namespace ast;

void NameWalk::define(Scope &scope, const Name &name, Known::Kind kind) {
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

void NameWalk::namesOf(const Statement &s, std::vector<Name> &names) {
  if (s.kind == StatementKind::Update || s.kind == StatementKind::Metric || s.kind == StatementKind::Predict)
    return;
  for (const Name &name : s.names)
    names.push_back(name);
  for (const Use &use : s.uses)
    names.push_back(use.name);
}

void NameWalk::statement(const Statement &s) {
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
    initial(s.values[0].get());
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

void NameWalk::defineLater(const Name &name, Known::Kind kind) {
  later.erase(name.text);
  define(body, name, kind);
}

void NameWalk::warnUnused(const Scope &scope) {
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

void NameWalk::statements(const std::vector<Statement> &list) {
  std::vector<Name> names;
  for (const Statement &s : list)
    namesOf(s, names);
  later.clear();
  for (const Name &name : names)
    if (name.text != "_")
      later.try_emplace(name.text, name.span);
  for (const Statement &s : list)
    statement(s);
  later.clear();
}

void NameWalk::layer(const LayerItem &item) {
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
    Span where = item.name.span; // the second `return`
    for (const Statement &s : item.body)
      if (s.kind == StatementKind::Return && ++returns == 2)
        where = s.span;
    if (returns != 1 || item.body.back().kind != StatementKind::Return)
      diags.error(Code::E0303, where,
                  returns == 0  ? "`" + item.name.text + "` has no `return`"
                  : returns > 1 ? "`" + item.name.text + "` has more than one `return`"
                                : "`return` is not the last statement of `" + item.name.text + "`");
    warnUnused(body);
  }
  body.clear(); // a file's own names stand behind it
  current = nullptr;
}

void NameWalk::trainBlock(const TrainItem &item, const File &file) {
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
      for (const ast::Field &field : static_cast<const DataItem &>(*other).fields) {
        define(body, field.name, Known::Field);
        for (const FieldModifier &modifier : field.modifiers)
          if (modifier.kind == FieldModifier::Normalize)
            normalized[field.name.text] = "data." + item.data.text + "." + field.name.text;
      }
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
  normalized.clear();
  fieldsUnknown = false;
}

void NameWalk::run(const File &file) {
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
        later.try_emplace(dim.name.text, dim.name.span);
    } else if (item->kind == ItemKind::Const) {
      for (const Constant &constant : static_cast<const ConstItem &>(*item).constants)
        later.try_emplace(constant.name.text, constant.name.span);
    }
  for (const auto &[name, info] : fileScope)
    later.erase(name);
  for (const std::unique_ptr<Item> &item : file.items) {
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
          if (modifier.number)
            mentionQuietly(*modifier.number);
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

void NameWalk::defineFile(const Name &name, Known::Kind kind) {
  later.erase(name.text);
  define(fileScope, name, kind);
}

NameTables checkNames(const File &prelude, const File &file, Diagnostics &diags) {
  NameTables tables;
  NameWalk walk{tables, diags};
  walk.run(prelude);
  walk.run(file);
  walk.graph.findRecursion(tables, diags);
  walk.graph.findOwners(tables);
  return tables;
}

} // namespace cinch
