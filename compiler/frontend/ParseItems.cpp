// ParseItems.cpp: the items of a file and their parts: dims, data, layers and their signatures, names, train, plan.
#include "compiler/frontend/ParserImpl.h"

#include <map>
#include <set>

namespace cinch {

using namespace ast;

// item = "dim" .. | "const" .. | "data" .. | [ "reversible" ] "layer" .. | "builtin" .. | "model" .. | "names" ..
//      | "train" .. | "plan" ..
std::unique_ptr<Item> Parser::parseItem() {
  uint32_t begin = here();
  std::unique_ptr<Item> item;
  if (atWord("dim"))
    item = parseDims();
  else if (atWord("const"))
    item = parseConst();
  else if (atWord("data"))
    item = parseData();
  else if (atWord("reversible") || atWord("layer") || atWord("builtin") || atWord("model"))
    item = parseLayer();
  else if (atWord("names"))
    item = parseNames();
  else if (atWord("train"))
    item = parseTrain();
  else if (atWord("plan"))
    item = parsePlan();
  else if (at(TokenKind::RBrace))
    failAt(Code::E0010, peek().span, "this `}` closes nothing");
  else if (at(TokenKind::Name))
    failAt(Code::E0010, peek().span,
           "expected dim, const, data, layer, model, names, train or plan, got `" + peek().text + "`",
           didYouMean(peek().text, itemWords()));
  else
    fail("dim, const, data, layer, model, names, train or plan");
  if (!panic && item)
    item->span = since(begin);
  return item;
}

// "dim" dim { "," dim }
std::unique_ptr<Item> Parser::parseDims() {
  auto item = std::make_unique<DimsItem>();
  take();
  do
    item->dims.push_back(parseDim());
  while (accept(TokenKind::Comma));
  return item;
}

// dim = NAME "=" expr [ "batch" ]
Dim Parser::parseDim() {
  Dim dim;
  uint32_t begin = here();
  dim.name = expectName("a dim's name");
  expect(TokenKind::Assign, "after the dim's name");
  dim.value = parseExpr();
  dim.batch = acceptWord("batch");
  dim.span = since(begin);
  return dim;
}

// "const" NAME "=" expr { "," NAME "=" expr }
std::unique_ptr<Item> Parser::parseConst() {
  auto item = std::make_unique<ConstItem>();
  take();
  do {
    Constant constant;
    uint32_t begin = here();
    constant.name = expectName("a constant's name");
    expect(TokenKind::Assign, "after the constant's name");
    constant.value = parseExpr();
    constant.span = since(begin);
    item->constants.push_back(std::move(constant));
  } while (accept(TokenKind::Comma));
  return item;
}

// "data" NAME "=" NAME "(" [ args ] ")" "->" "(" field { "," field } ")"
std::unique_ptr<Item> Parser::parseData() {
  auto item = std::make_unique<DataItem>();
  take();
  item->name = expectName("a dataset's name");
  expect(TokenKind::Assign, "after the dataset's name");
  item->source = expectName("a data source: idx, npy, npz, safetensors, csv, text, tokens or records");
  open(TokenKind::LPar, "after the data source");
  if (!at(TokenKind::RPar))
    item->args = parseArgs();
  close(TokenKind::RPar);
  expect(TokenKind::Arrow, "and the fields after the data source");
  open(TokenKind::LPar, "around the fields");
  do
    item->fields.push_back(parseField());
  while (accept(TokenKind::Comma));
  close(TokenKind::RPar);
  return item;
}

static std::optional<FieldModifier::Kind> modifierNamed(const std::string &word) {
  static const std::map<std::string, FieldModifier::Kind> kinds = {{"below", FieldModifier::Below}, {"scale", FieldModifier::Scale},
                                                                  {"from", FieldModifier::From},   {"names", FieldModifier::Names},
                                                                  {"normalize", FieldModifier::Normalize}, {"at", FieldModifier::At}};
  auto found = kinds.find(word);
  return found == kinds.end() ? std::nullopt : std::optional(found->second);
}

// field = NAME ":" tensor { "below" sum [ "except" sum ] | ( "scale" | "at" ) sum | ( "from" | "names" ) ( STRING | "(" args ")" ) | "normalize" }
ast::Field Parser::parseField() {
  ast::Field field;
  uint32_t begin = here();
  field.name = expectName("a field's name");
  expect(TokenKind::Colon, "and a type after the field's name");
  field.type = parseTensor();
  std::set<FieldModifier::Kind> given;
  for (std::optional<FieldModifier::Kind> kind; at(TokenKind::Name) && (kind = modifierNamed(peek().text));) {
    FieldModifier modifier;
    uint32_t start = here();
    std::string word = take().text;
    modifier.kind = *kind;
    modifier.again = !given.insert(*kind).second;
    if (*kind == FieldModifier::Below) {
      parseBounds(field.type);
    } else if (*kind == FieldModifier::Scale || *kind == FieldModifier::At) {
      modifier.number = parseSum();
    } else if (*kind != FieldModifier::Normalize) {
      if (at(TokenKind::String)) {
        Arg arg;
        arg.value = node(ExprKind::String, here());
        arg.value->text = take().text;
        arg.value = finish(std::move(arg.value));
        arg.span = arg.value->span;
        modifier.list.push_back(std::move(arg));
      } else if (at(TokenKind::LPar)) {
        modifier.list = parseParenthesizedArgs(word == "from" ? "after `from`" : "after `names`");
      } else {
        fail(word == "from" ? "a string or `(` after `from` (a name, or a number of a column, in quotes)" : "a string or `(` after `names`");
      }
    }
    modifier.span = since(start);
    field.modifiers.push_back(std::move(modifier));
  }
  if (at(TokenKind::Name))
    fail("`,` or `)`, or a word of a field (below, scale, from, names, normalize, at; except behind below)",
         didYouMean(peek().text, {"below", "except", "scale", "from", "names", "normalize", "at"}));
  field.span = since(begin);
  return field;
}

// [ "reversible" ] "layer" NAME [ sizes ] signature body
// | "builtin" NAME [ sizes ] signature | "model" NAME signature body
std::unique_ptr<Item> Parser::parseLayer() {
  auto item = std::make_unique<LayerItem>();
  uint32_t begin = here();
  if (acceptWord("reversible")) {
    item->form = LayerItem::ReversibleLayer;
    expectWord("layer", "after `reversible`");
  } else {
    std::string word = take().text;
    item->form = word == "layer" ? LayerItem::Layer : word == "model" ? LayerItem::Model : LayerItem::Builtin;
  }
  item->name = expectName(item->form == LayerItem::Model ? "a model's name" : "a layer's name");
  if (at(TokenKind::LSquare)) {
    if (item->form == LayerItem::Model)
      failAt(Code::E0010, peek().span, "expected `(` after the model's name, got `[`",
             "a model has no size list: its sizes are dims");
    item->sizes = parseSizes();
  }
  item->signature = parseSignature();
  item->header = since(begin);
  if (item->form == LayerItem::Builtin)
    return item;
  skipToBody();
  // body = "{" { statement NL } "}"
  braced("around the body", "an operator or the end of the line", [&] { item->body.push_back(parseStatement()); });
  return item;
}

// sizes = "[" size { "," size } "]"
std::vector<SizeParameter> Parser::parseSizes() {
  std::vector<SizeParameter> sizes;
  open(TokenKind::LSquare, "");
  do
    sizes.push_back(parseSize());
  while (accept(TokenKind::Comma));
  close(TokenKind::RSquare);
  return sizes;
}

// size = NAME [ "?" | "=" expr ]
SizeParameter Parser::parseSize() {
  SizeParameter size;
  uint32_t begin = here();
  size.name = expectName("a size's name");
  if (accept(TokenKind::Query))
    size.inferred = true;
  else if (accept(TokenKind::Assign))
    size.value = parseExpr();
  size.span = since(begin);
  return size;
}

// signature = "(" [ parameter { "," parameter } ] ")" "->" result
Signature Parser::parseSignature() {
  Signature signature;
  uint32_t begin = here();
  open(TokenKind::LPar, "and the parameters");
  if (!at(TokenKind::RPar)) {
    do
      signature.parameters.push_back(parseParameter());
    while (accept(TokenKind::Comma));
  }
  close(TokenKind::RPar);
  expect(TokenKind::Arrow, "and the result's type after the parameters");
  parseResult(signature);
  signature.span = since(begin);
  return signature;
}

// parameter = NAME [ ":" type ] [ "=" expr ]
ast::Parameter Parser::parseParameter() {
  ast::Parameter parameter;
  uint32_t begin = here();
  parameter.name = expectName("a parameter's name");
  if (accept(TokenKind::Colon))
    parameter.type = std::make_unique<Type>(parseType());
  if (accept(TokenKind::Assign))
    parameter.value = parseExpr();
  parameter.span = since(begin);
  return parameter;
}

// result = type | "(" type { "," type } ")"
void Parser::parseResult(Signature &signature) {
  if (!at(TokenKind::LPar)) {
    signature.results.push_back(parseType());
    return;
  }
  signature.parenthesized = true;
  open(TokenKind::LPar, "");
  do
    signature.results.push_back(parseType());
  while (accept(TokenKind::Comma));
  close(TokenKind::RPar);
}

// type = tensor [ "below" sum [ "except" sum ] ]
Type Parser::parseType() {
  uint32_t begin = here();
  Type type = parseTensor();
  if (acceptWord("below"))
    parseBounds(type);
  type.span = since(begin);
  return type;
}

// Behind "below".
void Parser::parseBounds(Type &type) {
  type.below = parseSum();
  if (acceptWord("except"))
    type.except = parseSum();
}

// tensor = NAME "[" [ axis { "," axis } ] "]"
Type Parser::parseTensor() {
  Type type;
  uint32_t begin = here();
  type.dtype = expectName("a type: f32, i32 or bool and its axes");
  open(TokenKind::LSquare, "and the axes of the type (`f32[]` is a scalar)");
  if (!at(TokenKind::RSquare)) {
    do
      type.axes.push_back(parseAxis());
    while (accept(TokenKind::Comma));
  }
  close(TokenKind::RSquare);
  type.span = since(begin);
  return type;
}

// axis = ".." | "?" | expr
Axis Parser::parseAxis() {
  Axis axis;
  uint32_t begin = here();
  if (accept(TokenKind::Dots))
    axis.kind = Axis::Dots;
  else if (accept(TokenKind::Query))
    axis.kind = Axis::Query;
  else
    axis.size = parseExpr();
  axis.span = since(begin);
  return axis;
}

// "names" NAME "{" { STRING "=" STRING [ "'" ] NL } "}"
std::unique_ptr<Item> Parser::parseNames() {
  auto item = std::make_unique<NamesItem>();
  take();
  item->name = expectName("the name map's name");
  skipToBody();
  braced("around the name map", "`'` or the end of the line", [&] {
    NameMapping mapping;
    uint32_t begin = here();
    if (!at(TokenKind::String))
      return fail("a string: the name of a parameter here");
    mapping.oursSpan = peek().span;
    mapping.ours = take().text;
    expect(TokenKind::Assign, "after the parameter's name");
    if (!at(TokenKind::String))
      return fail("a string: the name of the parameter in the file");
    mapping.theirsSpan = peek().span;
    mapping.theirs = take().text;
    mapping.transposed = accept(TokenKind::Prime);
    mapping.span = since(begin);
    item->mappings.push_back(std::move(mapping));
  });
  return item;
}

// "train" NAME "on" NAME "seed" NUMBER "{" { clause NL } "}"
std::unique_ptr<Item> Parser::parseTrain() {
  auto item = std::make_unique<TrainItem>();
  uint32_t begin = here();
  take();
  item->name = expectName("the name of the model to train");
  expectWord("on", "and a dataset after the model's name");
  item->data = expectName("a dataset's name");
  expectWord("seed", "and a number after the dataset's name");
  item->seedSpan = peek().span;
  if (at(TokenKind::Number)) {
    Token seed = take();
    item->seed = std::move(seed.text);
    item->seedUnit = std::move(seed.unit);
  } else {
    fail("a number after `seed`");
  }
  item->header = since(begin);
  skipToBody();
  braced("around the clauses of `train`", "an operator, a value or the end of the line",
         [&] { item->clauses.push_back(parseClause()); });
  return item;
}

// "plan" "{" { setting NL } "}"
std::unique_ptr<Item> Parser::parsePlan() {
  auto item = std::make_unique<PlanItem>();
  take();
  braced("after `plan`", "a value or the end of the line", [&] { item->settings.push_back(parseSetting()); });
  return item;
}

} // namespace cinch
