// ParseStatements.cpp: the statements of a body, the clauses of `train`, settings.
#include "compiler/frontend/ParserImpl.h"

namespace cinch {

using namespace ast;

// statement = { hint } ( definition | "param" .. | "state" .. | "use" .. | "update" NAME "=" expr
//           | "return" expr { "," expr } )
Statement Parser::parseStatement() {
  Statement statement;
  uint32_t begin = here();
  while (at(TokenKind::At))
    statement.hints.push_back(parseHint());
  if (failReserved())
    return statement;
  switch (peek().kind) {
  case TokenKind::Name:
    parseDefinition(statement);
    break;
  case TokenKind::Param:
  case TokenKind::State:
    parseStored(statement);
    break;
  case TokenKind::Use:
    statement.kind = StatementKind::Use;
    take();
    do
      statement.uses.push_back(parseUse());
    while (accept(TokenKind::Comma));
    break;
  case TokenKind::Update:
    statement.kind = StatementKind::Update;
    take();
    statement.names.push_back(expectName("the name of the state to update"));
    expect(TokenKind::Assign, "after the state's name");
    statement.values.push_back(parseExpr());
    break;
  case TokenKind::Return:
    statement.kind = StatementKind::Return;
    take();
    do
      statement.values.push_back(parseExpr());
    while (accept(TokenKind::Comma));
    break;
  default:
    if (!statement.hints.empty() && !at(TokenKind::RBrace) && !at(TokenKind::End))
      failAt(Code::E0010, peek().span, "expected a statement after the hint",
             "a line that begins with `@` is a hint; in a product over two lines the `@` ends the first");
    else if (at(TokenKind::Metric) || at(TokenKind::Predict))
      failAt(Code::E0010, peek().span, describe(peek().kind) + " stands in `train` only");
    else
      fail("a statement: a definition, param, state, use, update or return");
  }
  statement.span = since(begin);
  return statement;
}

// hint = "@" NAME [ "(" args ")" ] [ NL ]
Hint Parser::parseHint() {
  Hint hint;
  uint32_t begin = here();
  take();
  hint.name = expectName("a hint's name: checkpoint, recompute, stage or shard");
  if (at(TokenKind::LPar))
    hint.args = parseParenthesizedArgs("");
  hint.span = since(begin);
  accept(TokenKind::NL);
  return hint;
}

// definition = NAME { "," NAME } "=" expr | NAME "[" place { "," place } "]" "=" expr
void Parser::parseDefinition(Statement &statement) {
  statement.names.push_back(expectName("a name"));
  if (at(TokenKind::LSquare)) {
    statement.kind = StatementKind::DefineIndex;
    open(TokenKind::LSquare, "");
    statement.places = parsePlaces();
    close(TokenKind::RSquare);
    expect(TokenKind::Assign, "after the indices");
  } else {
    statement.kind = StatementKind::Define;
    while (accept(TokenKind::Comma))
      statement.names.push_back(expectName("a name"));
    if (!panic && !accept(TokenKind::Assign)) {
      // A word of a statement, misspelt?
      std::string help;
      if (statement.names.size() == 1 && at(TokenKind::Name))
        help = didYouMean(statement.names[0].text, {"param", "state", "use", "update", "return", "metric", "predict"});
      if (!help.empty())
        failAt(Code::E0010, statement.names[0].span, "expected a statement, got `" + statement.names[0].text + "`",
               help);
      else if (statement.names.size() == 1 && at(TokenKind::Name) && at(TokenKind::Assign, 1))
        failAt(Code::E0010, statement.names[0].span, "expected a statement, got `" + statement.names[0].text + "`",
               "a definition has no word before it: `" + peek().text + " = ..`");
      else
        fail(statement.names.size() == 1 ? "`=`, `,` or `[` after the name" : "`=` after the names");
    }
  }
  statement.values.push_back(parseExpr());
}

// ( "param" | "state" ) NAME ":" type "~" expr
void Parser::parseStored(Statement &statement) {
  bool isParam = take().kind == TokenKind::Param;
  statement.kind = isParam ? StatementKind::Param : StatementKind::State;
  statement.names.push_back(expectName(isParam ? "a parameter's name" : "a state's name"));
  expect(TokenKind::Colon, "and a type after the name");
  statement.type = parseType();
  expect(TokenKind::Tilde, "and a distribution (zeros, normal(0.02), ..) after the type");
  statement.values.push_back(parseExpr());
}

// use = NAME "=" [ "repeat" count [ "shared" | "as" NAME ] ] NAME [ "[" slot { "," slot } "]" ] [ "(" args ")" ]
Use Parser::parseUse() {
  Use use;
  uint32_t begin = here();
  use.name = expectName("a name for the layer's instance");
  expect(TokenKind::Assign, "after the instance's name");
  if (accept(TokenKind::Repeat)) {
    use.repeat = parseCount();
    if (at(TokenKind::Name) && peek().text == "shared" && at(TokenKind::Name, 1)) { // before a layer's name, no reserved word
      take();
      use.shared = true;
    } else if (accept(TokenKind::As))
      use.index = expectName("a name for the number of the instance");
  }
  use.layer = expectName("a layer's name");
  if (at(TokenKind::LSquare)) {
    use.hasSlots = true;
    use.slots = parseSlots();
  }
  if (at(TokenKind::LPar)) {
    use.hasArgs = true;
    use.args = parseParenthesizedArgs("");
  }
  use.span = since(begin);
  return use;
}

// count = NUMBER | NAME | "(" expr ")"
ExprPtr Parser::parseCount() {
  uint32_t begin = here();
  if (at(TokenKind::LPar)) {
    open(TokenKind::LPar, "");
    ExprPtr count = parseExpr();
    close(TokenKind::RPar);
    if (count) {
      count->span = since(begin);
      count->parenthesized = true;
    }
    return count;
  }
  if (!at(TokenKind::Number) && !at(TokenKind::Name)) {
    fail("how many: a number, a name or an expression in parentheses");
    return nullptr;
  }
  ExprPtr count = node(at(TokenKind::Number) ? ExprKind::Number : ExprKind::Name, begin);
  Token token = take();
  count->text = std::move(token.text);
  count->unit = std::move(token.unit);
  return finish(std::move(count));
}

// clause = definition | ( "metric" | "predict" ) NAME "=" expr | setting
Statement Parser::parseClause() {
  Statement clause;
  uint32_t begin = here();
  if (failReserved())
    return clause;
  if (at(TokenKind::Metric) || at(TokenKind::Predict)) {
    bool isMetric = take().kind == TokenKind::Metric;
    clause.kind = isMetric ? StatementKind::Metric : StatementKind::Predict;
    clause.names.push_back(expectName(isMetric ? "a metric's name" : "a result's name"));
    expect(TokenKind::Assign, isMetric ? "after the metric's name" : "after the result's name");
    clause.values.push_back(parseExpr());
  } else if (at(TokenKind::Name) &&
             (at(TokenKind::Assign, 1) || at(TokenKind::Comma, 1) || at(TokenKind::LSquare, 1))) {
    parseDefinition(clause);
  } else {
    clause.kind = StatementKind::Setting;
    clause.setting = parseSetting();
  }
  clause.span = since(begin);
  return clause;
}

// setting = NAME [ "(" args ")" ] { NUMBER | STRING | NAME [ "(" args ")" ] }
Setting Parser::parseSetting() {
  Setting setting;
  uint32_t begin = here();
  if (!at(TokenKind::Name)) {
    TokenKind kind = peek().kind;
    if (kind >= TokenKind::Param && kind <= TokenKind::Return)
      failAt(Code::E0010, peek().span,
             describe(kind) + " cannot stand here: it belongs to the body of a layer or model");
    else
      fail("a setting's name");
    return setting;
  }
  setting.key = parseSettingWord();
  while (at(TokenKind::Number) || at(TokenKind::String) || at(TokenKind::Name))
    setting.words.push_back(parseSettingWord());
  if (at(TokenKind::Comma))
    failAt(Code::E0010, peek().span, "expected the end of the line, got `,`",
           "each `" + setting.key.text + "` is a line of its own, with its word in front");
  setting.span = since(begin);
  return setting;
}

SettingWord Parser::parseSettingWord() {
  SettingWord word;
  uint32_t begin = here();
  word.textSpan = peek().span;
  Token token = take();
  word.kind = token.kind == TokenKind::Number   ? SettingWord::Number
              : token.kind == TokenKind::String ? SettingWord::String
                                                : SettingWord::Name;
  word.text = std::move(token.text);
  word.unit = std::move(token.unit);
  if (word.kind == SettingWord::Name && at(TokenKind::LPar)) {
    word.hasArgs = true;
    word.args = parseParenthesizedArgs("");
  }
  word.span = since(begin);
  return word;
}

// place { "," place }
std::vector<Place> Parser::parsePlaces() {
  std::vector<Place> places;
  do
    places.push_back(parsePlace());
  while (accept(TokenKind::Comma));
  return places;
}

// place = ".." | NAME
Place Parser::parsePlace() {
  Place place;
  place.span = peek().span;
  if (accept(TokenKind::Dots))
    place.dots = true;
  else if (at(TokenKind::Number) && !peek().startsLine)
    failAt(Code::E0010, peek().span, "expected an index name or `..`, got `" + peek().text + "`",
           "axes have names, and one whose size is a number is given one: sum[i, j] x[i, j], or dim N = 3 and then [N]");
  else
    place.name = expectName("an index name or `..`");
  return place;
}

} // namespace cinch
