// Elaborator.cpp: the file's dims and consts, and the life of a definition: when it is evaluated, and in what order.
#include "compiler/frontend/Elaborator.h"

#include <algorithm>
#include <cmath>

namespace cinch {

using namespace ast;

int IndexScope::find(const std::string &name) const {
  for (int i = static_cast<int>(indices.size()) - 1; i >= 0; --i)
    if (indices[i].visible && indices[i].name == name)
      return i;
  return -1;
}

Elaborator::Elaborator(const SourceList &sources, const File &prelude, const File &file, const Options &options,
                       Diagnostics &diags)
    : sources(sources), prelude(prelude), file(file), options(options), diags(diags) {
  preludeFrame.file = 0;
  fileFrame.file = file.id;
}

// ---- File level ---------------------------------------------------------------------------------------------------
std::optional<Number> Elaborator::overridden(const std::string &name, Span span) {
  std::optional<Number> result;
  for (const auto &[key, text] : options.defines) {
    if (key != name)
      continue;
    usedOverrides.insert(key);
    bool negative = !text.empty() && text[0] == '-';
    std::optional<Fraction> value = Fraction::parse(std::string_view(text).substr(negative));
    if (value && negative)
      value = subtract(Fraction(), *value);
    if (value)
      result = Number(*value);
    else
      report(Code::E0608, span, "-D " + name + "=" + text + ": `" + text + "` is not a number", fileFrame);
  }
  return result;
}

void Elaborator::defineDim(const Dim &dim) {
  std::optional<Number> value = evalConstantNumber(*dim.value, fileFrame, "a dim");
  std::optional<Number> given = overridden(dim.name.text, dim.name.span);
  if (given && value && value->hasNames())
    report(Code::E0608, dim.name.span,
           "-D " + dim.name.text + "=..: `" + dim.name.text + "` is an abbreviation of " + formOf(*value, dims) +
               ", not a name of its own",
           fileFrame);
  else if (given)
    value = given;
  Binding &binding = fileFrame.names[dim.name.text];
  binding.isSize = true;
  binding.span = dim.name.span;
  if (dim.batch && batchDim >= 0)
    report(Code::E0504, dim.span,
           "`" + dim.name.text + "` cannot be the batch dim: `" + dims[batchDim].name + "` is it already", fileFrame)
        .label(dims[batchDim].span, "the batch dim");
  if (!value)
    return;
  bool whole = checkAxis(*value, dim.value->span, fileFrame);
  if (dim.batch && value->hasNames())
    report(Code::E0504, dim.span, "the batch dim must have a number of its own, not " + formOf(*value, dims),
           fileFrame);
  if (!value->hasNames() && whole) {
    dims.dims.push_back({dim.name.text, dim.name.span, value->value, dim.batch});
    int number = static_cast<int>(dims.dims.size()) - 1;
    value = Number::ofDim(number, value->value);
    if (dim.batch && batchDim < 0) {
      batchDim = number;
      program.batch = *value->integer();
      program.batchName = dim.name.text;
    }
  }
  bool renames = value->form.size() == 1 && value->form[0].factor == Fraction(1) && value->form[0].names.size() == 1 &&
                 value->form[0].names[0].second == 1; // `dim H = D`: they are one, and read as D
  if (whole && value->hasNames() && !renames)
    dims.abbreviations.push_back({dim.name.text, dim.name.span, value->form});
  if (whole)
    binding.value = Value::of(*value);
  noteFact(dim.name.span, binding.value);
}

void Elaborator::defineConst(const Constant &item) {
  Value value = eval(*item.value, fileFrame);
  if (value.isTensor()) {
    report(Code::E0207, item.value->span, "a const must be a constant, but this is a tensor", fileFrame);
    value = {};
  }
  if (std::optional<Number> given = overridden(item.name.text, item.name.span)) {
    if (value.isNumber())
      value = Value::of(*given);
    else
      report(Code::E0608, item.name.span, "-D " + item.name.text + "=..: `" + item.name.text + "` is not a number",
             fileFrame);
  }
  Binding &binding = fileFrame.names[item.name.text];
  binding.span = item.name.span;
  binding.value = value;
  noteFact(item.name.span, value);
}

void Elaborator::defineDims() {
  for (const std::unique_ptr<Item> &item : file.items) {
    if (item->kind == ItemKind::Dims)
      for (const Dim &dim : static_cast<const DimsItem &>(*item).dims)
        defineDim(dim);
    else if (item->kind == ItemKind::Const)
      for (const Constant &constant : static_cast<const ConstItem &>(*item).constants)
        defineConst(constant);
  }
}

void Elaborator::checkOverrides() {
  std::vector<std::string> names;
  for (const auto &[name, binding] : fileFrame.names)
    names.push_back(name);
  std::sort(names.begin(), names.end());
  for (const auto &[key, text] : options.defines)
    if (!usedOverrides.count(key))
      diags.error(Code::E0608, Span(), "-D " + key + "=" + text + ": the file has no dim or const `" + key + "`")
          .help(didYouMean(key, names));
}

// ---- Names --------------------------------------------------------------------------------------------------------
Value Elaborator::lookup(const std::string &name, Span span, Frame &frame) {
  auto own = frame.names.find(name);
  if (own != frame.names.end())
    return force(own->second, name, span, frame);
  if (frame.file != 0 && &frame != &fileFrame) {
    auto outer = fileFrame.names.find(name);
    if (outer != fileFrame.names.end())
      return outer->second.value;
  }
  if (name == "training")
    return Value::ofBool(training);
  if (name == "pi")
    return Value::of(Number::inexact(3.14159265358979323846));
  if (name == "zeros" || name == "ones") {
    Distribution distribution;
    distribution.a = name == "ones";
    return Value::of(distribution);
  }
  if (name == "fan_in" || name == "fan_out")
    return Value::ofText(Value::Word, name);
  if (tables.unknown.count({span.file, span.begin}))
    return {};
  if (isImplicitName(name) && !findLayer(name, frame.file))
    return plainImplicit(name, span, frame);
  if (findLayer(name, frame.file))
    return failure(Code::E0307, span, "`" + name + "` is a layer and has no value; call it", frame);
  if (datasetIndex.count(name))
    return failure(Code::E0307, span, "`" + name + "` is a dataset and has no value", frame);
  std::vector<std::string> candidates;
  for (const auto &[known, binding] : frame.names)
    candidates.push_back(known);
  for (const auto &[known, binding] : fileFrame.names)
    candidates.push_back(known);
  std::sort(candidates.begin(), candidates.end());
  report(Code::E0101, span, "unknown name `" + name + "`", frame).help(didYouMean(name, candidates));
  return {};
}

Value Elaborator::force(Binding &binding, const std::string &name, Span span, Frame &frame) {
  switch (binding.kind) {
  case Binding::Ready:
    return binding.value;
  case Binding::Parameter:
  case Binding::State:
    return parameter(binding, name, frame);
  case Binding::Use:
    return failure(Code::E0307, span, "`" + name + "` is an instance of a layer and has no value; call it", frame);
  case Binding::Definition:
    break;
  }
  if (binding.done)
    return binding.value;
  if (binding.busy) // the names pass has refused it
    return {};
  if (definitionDepth > 200)
    return failure(Code::E0207, binding.span, "definitions depend on one another too deeply", frame);
  binding.busy = true;
  ++definitionDepth;
  IndexScope *outer = frame.index;
  bool inUpdate = frame.inUpdate;
  frame.index = nullptr;
  frame.inUpdate = false;
  runDefinition(*binding.statement, frame);
  frame.index = outer;
  frame.inUpdate = inUpdate;
  --definitionDepth;
  return frame.names[name].value;
}

void Elaborator::runDefinition(const Statement &statement, Frame &frame) {
  int bad = badOps;
  Value value = statement.kind == StatementKind::DefineIndex ? defineByIndex(statement, frame)
                                                             : eval(*statement.values[0], frame);
  if (bad != badOps)
    value = {};
  size_t count = statement.names.size();
  if (count > 1 && !value.isError() && (value.kind != Value::Tuple || value.items.size() != count)) {
    report(Code::E0301, statement.names[0].span,
           std::to_string(count) + " names for " +
               (value.kind == Value::Tuple ? std::to_string(value.items.size()) + " values" : std::string("one value")),
           frame);
    value = {};
  }
  if (count == 1 && value.kind == Value::Tuple && !value.isConstant()) {
    report(Code::E0301, statement.names[0].span, "one name for " + std::to_string(value.items.size()) + " values",
           frame)
        .help("write `a, b = ..`; `_` takes a value that nobody wants");
    value = {};
  }
  applyHints(statement, value, frame);
  if (frame.layer && frame.file != 0)
    noteNamed(value);
  for (size_t i = 0; i < count; ++i) {
    if (statement.names[i].text == "_")
      continue;
    Binding &binding = frame.names[statement.names[i].text];
    if (binding.kind != Binding::Definition || binding.statement != &statement)
      continue;
    binding.value = count == 1 ? value : value.kind == Value::Tuple ? value.items[i] : Value();
    binding.done = true;
    binding.busy = false;
    noteFact(statement.names[i].span, binding.value);
  }
}

// What `precision bf16` rounds; loops take it back from the values that they carry.
void Elaborator::noteNamed(const Value &value) {
  if (value.isTensor() && value.tensor.dtype == DType::F32)
    graph->at(value.tensor.op).named = true;
  for (const Value &item : value.items)
    noteNamed(item);
}

// Whether a hint may stand beside those before it, which are given. False after an error.
bool Elaborator::mayStand(const Hint &hint, std::set<std::string> &given, Frame &frame) {
  const std::string &name = hint.name.text;
  for (const Arg &arg : hint.args)
    refuseExcept(arg, Code::E0308, frame);
  if (name == "offload") {
    report(Code::E0710, hint.span, "`@offload` is not there yet", frame)
        .help("leave it out; with `--target nvidia --host-memory-budget SIZE` the planner chooses what waits in the memory of the host");
    return false;
  }
  if (!given.insert(name).second) {
    report(Code::E0308, hint.span, "`@" + name + "` is given twice", frame).help("write it once");
    return false;
  }
  if (given.count("checkpoint") && given.count("recompute")) {
    report(Code::E0308, hint.span, "`@checkpoint` keeps this value and `@recompute` does not", frame).help("write one of them");
    return false;
  }
  return true;
}

// Nothing computes a transposition: it becomes a part of those who read it (a loop's results have theirs behind them). So what is said of it is
// said of what is transposed, if that is computed.
Op &Elaborator::hinted(int op) {
  auto isGiven = [](OpKind kind) {
    return kind == OpKind::Parameter || kind == OpKind::Field || kind == OpKind::LoopState || kind == OpKind::LoopSlice;
  };
  while (graph->at(op).kind == OpKind::Transpose && !isGiven(graph->at(graph->at(op).operands[0]).kind))
    op = graph->at(op).operands[0];
  return graph->at(op);
}

// Says how the products of an op are shared, and those of every block if it is the result of a `repeat`. False after an error.
bool Elaborator::shareAs(int op, int share, const Hint &hint, Frame &frame) {
  std::vector<int> all{op};
  if (auto chain = blockChains.find(op); chain != blockChains.end())
    all.insert(all.end(), chain->second.begin(), chain->second.end());
  for (int each : all) {
    std::optional<int> &known = hinted(each).shard;
    if (known && *known != share) {
      report(Code::E0308, hint.span, "another `@shard` of the same value says something else", frame).help("write one of them");
      return false;
    }
    known = share;
  }
  return true;
}

void Elaborator::applyHints(const Statement &statement, const Value &value, Frame &frame) {
  static const std::vector<std::string> known = {"checkpoint", "recompute", "stage", "shard"};
  static const std::vector<std::string> shares = {"none", "column", "row"}; // in the order of nn::ShardHint
  std::set<std::string> given;
  for (const Hint &hint : statement.hints) {
    const std::string &name = hint.name.text;
    if (!mayStand(hint, given, frame))
      continue;
    if (std::find(known.begin(), known.end(), name) == known.end()) {
      report(Code::E0308, hint.name.span, "unknown hint `@" + name + "`", frame).help(didYouMean(name, known));
      continue;
    }
    bool stage = name == "stage";
    bool shard = name == "shard";
    bool good = stage || shard ? hint.args.size() == 1 && !hint.args[0].name : hint.args.empty();
    int stageNumber = -1;
    size_t share = shares.size();
    if (good && shard) {
      share = size_t(std::find(shares.begin(), shares.end(), hint.args[0].value->text) - shares.begin());
      good = hint.args[0].value->kind == ExprKind::Name && share < shares.size();
    }
    if (good && stage) {
      const Expr &arg = *hint.args[0].value;
      if (arg.kind != ExprKind::Name || arg.text != "auto") {
        constexpr int64_t most = 1 << 20;
        std::optional<Number> number = evalConstantNumber(arg, frame, "a stage");
        good = !number || (number->integer() && *number->integer() >= 0 && *number->integer() <= most);
        stageNumber = good && number ? int(*number->integer()) : 0;
      }
    }
    if (!good)
      report(Code::E0308, hint.span,
             stage   ? "`@stage` takes a number or `auto`"
             : shard ? "`@shard` takes `column`, `row` or `none`"
                     : "`@" + name + "` takes nothing",
             frame);
    if (!good)
      continue;
    std::vector<int> ops;
    if (value.isTensor())
      ops.push_back(value.tensor.op);
    for (const Value &item : value.items)
      if (item.isTensor())
        ops.push_back(item.tensor.op);
    if (shard) {
      for (int op : ops)
        if (!shareAs(op, int(share), hint, frame))
          break;
      continue;
    }
    if (stage) { // of several values the last one
      if (ops.empty())
        continue;
      int last = *std::max_element(ops.begin(), ops.end());
      hinted(last).endsStage = stageNumber;
      if (auto chain = blockChains.find(last); chain != blockChains.end() && stageNumber < 0)
        for (int end : chain->second)
          hinted(end).endsStage = stageNumber;
      continue;
    }
    // The result of a `repeat`: every block's end.
    for (size_t i = 0; i < ops.size(); ++i) {
      Op &op = hinted(ops[i]);
      (name == "checkpoint" ? op.keep : op.recompute) = true;
      auto chain = blockChains.find(ops[i]);
      if (chain != blockChains.end())
        for (int end : chain->second)
          (name == "checkpoint" ? hinted(end).keep : hinted(end).recompute) = true;
    }
  }
}

// ---- Bodies -------------------------------------------------------------------------------------------------------
void Elaborator::defineBody(const std::vector<Statement> &body, Frame &frame) {
  for (const Statement &statement : body) {
    auto bind = [&](const Name &name, Binding::Kind kind, const Use *use = nullptr) {
      if (name.text == "_" || (frame.names.count(name.text) && statement.kind != StatementKind::Use &&
                               frame.names[name.text].kind == Binding::Ready))
        return;
      Binding binding;
      binding.kind = kind;
      binding.statement = &statement;
      binding.use = use;
      binding.span = name.span;
      frame.names[name.text] = std::move(binding);
    };
    switch (statement.kind) {
    case StatementKind::Define:
    case StatementKind::DefineIndex:
      for (const Name &name : statement.names)
        bind(name, Binding::Definition);
      break;
    case StatementKind::Param:
      bind(statement.names[0], Binding::Parameter);
      break;
    case StatementKind::State:
      bind(statement.names[0], Binding::State);
      break;
    case StatementKind::Use:
      for (const Use &use : statement.uses)
        bind(use.name, Binding::Use, &use);
      break;
    default:
      break;
    }
  }
}

// The names that an expression certainly evaluates: not those in the branches of an `if`.
static void certainNames(const Expr &expr, std::set<std::string> &names) {
  if (expr.kind == ExprKind::Name) {
    names.insert(expr.text);
    return;
  }
  if (expr.kind == ExprKind::If) {
    certainNames(*expr.children[0], names);
    return;
  }
  for (const ExprPtr &child : expr.children)
    certainNames(*child, names);
  for (const Arg &arg : expr.args)
    certainNames(*arg.value, names);
  for (const Slot &slot : expr.slots) {
    if (slot.begin)
      certainNames(*slot.begin, names);
    if (slot.end)
      certainNames(*slot.end, names);
  }
  if (expr.where)
    certainNames(*expr.where, names);
}

// Definitions that the roots certainly need are evaluated in the order of the text; all others when they are asked for.
void Elaborator::evaluateInOrder(const std::vector<Statement> &body, const std::vector<const Expr *> &roots,
                                 Frame &frame) {
  std::set<std::string> needed;
  for (const Expr *root : roots)
    certainNames(*root, needed);
  std::vector<const Statement *> order;
  for (size_t i = body.size(); i-- > 0;) {
    const Statement &statement = body[i];
    if (statement.kind != StatementKind::Define && statement.kind != StatementKind::DefineIndex)
      continue;
    bool wanted = false;
    for (const Name &name : statement.names)
      wanted |= needed.count(name.text) != 0;
    if (!wanted)
      continue;
    order.push_back(&statement);
    certainNames(*statement.values[0], needed);
  }
  for (size_t i = order.size(); i-- > 0;)
    for (const Name &name : order[i]->names)
      if (name.text != "_" && needed.count(name.text)) {
        auto binding = frame.names.find(name.text);
        if (binding != frame.names.end() && binding->second.kind == Binding::Definition)
          force(binding->second, name.text, name.span, frame);
      }
}

Node *Elaborator::child(Node &parent, const std::string &key, const std::string &path, const std::string &layer,
                        Span span, int order, int block) {
  std::unique_ptr<Node> &slot = parent.children[key];
  if (!slot) {
    slot = std::make_unique<Node>();
    slot->path = path;
    slot->order = parent.order;
    slot->order.push_back(order);
    if (block >= 0)
      slot->order.push_back(block);
    slot->instance = static_cast<int>(program.instances.size());
    program.instances.push_back({path, layer, parent.instance, span});
  }
  return slot.get();
}

uint64_t Elaborator::extend(uint64_t key, uint64_t number) const {
  uint64_t z = key + 0x9e3779b97f4a7c15ull + number;
  z ^= z >> 30;
  z *= 0xbf58476d1ce4e5b9ull;
  z ^= z >> 27;
  z *= 0x94d049bb133111ebull;
  return z ^ (z >> 31);
}

const LayerItem *Elaborator::findLayer(const std::string &name, int from) const { return tables.find(name, from); }

} // namespace cinch
