// ParseExpressions.cpp: expressions, slots and arguments. A function may return null after an error.
#include "compiler/frontend/ParserImpl.h"

#include <algorithm>

namespace cinch {

using namespace ast;

ExprPtr Parser::node(ExprKind kind, uint32_t begin) {
  auto expr = std::make_unique<Expr>();
  expr->kind = kind;
  expr->span = {file, begin, begin};
  return expr;
}

ExprPtr Parser::finish(ExprPtr expr) {
  int height = 0;
  auto part = [&](const ExprPtr &child) { height = child ? std::max(height, child->height) : height; };
  for (const ExprPtr &child : expr->children)
    part(child);
  for (const Arg &arg : expr->args)
    part(arg.value);
  for (const Slot &slot : expr->slots)
    part(slot.begin), part(slot.end);
  part(expr->where);
  expr->height = height + 1;
  expr->span = since(expr->span.begin);
  if (expr->height > maxHeight)
    failAt(Code::E0012, expr->span, "this expression is more than " + std::to_string(maxHeight) + " operators high",
           "give a part of it a name");
  return expr;
}

ExprPtr Parser::binary(BinaryOp op, Span at, ExprPtr left, ExprPtr right) {
  ExprPtr expr = node(ExprKind::Binary, left ? left->span.begin : at.begin);
  expr->binary = op;
  expr->op = at;
  expr->children.push_back(std::move(left));
  expr->children.push_back(std::move(right));
  return finish(std::move(expr));
}

// expr = "if" expr "then" expr "else" expr | either
ExprPtr Parser::parseExpr() {
  Nesting level(*this);
  if (!at(TokenKind::If))
    return parseEither();
  ExprPtr expr = node(ExprKind::If, here());
  expr->op = take().span;
  expr->children.push_back(parseExpr());
  expect(TokenKind::Then, "after the condition of `if`");
  expr->children.push_back(parseExpr());
  expect(TokenKind::Else, "and another value: `if c then a else b`");
  expr->children.push_back(parseExpr());
  return finish(std::move(expr));
}

// either = both { "or" both }
ExprPtr Parser::parseEither() {
  ExprPtr left = parseBoth();
  while (at(TokenKind::Or)) {
    Span op = take().span;
    left = binary(BinaryOp::Or, op, std::move(left), parseBoth());
  }
  return left;
}

// both = negation { "and" negation }
ExprPtr Parser::parseBoth() {
  ExprPtr left = parseNegation();
  while (at(TokenKind::And)) {
    Span op = take().span;
    left = binary(BinaryOp::And, op, std::move(left), parseNegation());
  }
  return left;
}

// negation = "not" negation | comparison
ExprPtr Parser::parseNegation() {
  if (!at(TokenKind::Not))
    return parseComparison();
  Nesting level(*this);
  ExprPtr expr = node(ExprKind::Unary, here());
  expr->unary = UnaryOp::Not;
  expr->op = take().span;
  expr->children.push_back(parseNegation());
  return finish(std::move(expr));
}

static bool isComparison(TokenKind kind) { return kind >= TokenKind::EQ && kind <= TokenKind::GE; }

// comparison = sum [ ( "==" | "!=" | "<" | "<=" | ">" | ">=" ) sum ]
ExprPtr Parser::parseComparison() {
  ExprPtr left = parseSum();
  if (!isComparison(peek().kind))
    return left;
  Token op = take();
  auto kind = static_cast<BinaryOp>(static_cast<int>(BinaryOp::EQ) + static_cast<int>(op.kind) -
                                    static_cast<int>(TokenKind::EQ));
  ExprPtr expr = binary(kind, op.span, std::move(left), parseSum());
  if (isComparison(peek().kind))
    failAt(Code::E0015, peek().span, "comparisons cannot be chained", "write `a < b and b < c`");
  return expr;
}

// sum = product { ( "+" | "-" ) product }
ExprPtr Parser::parseSum() {
  ExprPtr left = parseProduct();
  while (at(TokenKind::Plus) || at(TokenKind::Minus)) {
    Token op = take();
    left = binary(op.kind == TokenKind::Plus ? BinaryOp::Add : BinaryOp::Sub, op.span, std::move(left), parseProduct());
  }
  return left;
}

bool Parser::startsReduction() const {
  TokenKind kind = peek().kind;
  if (kind == TokenKind::Max || kind == TokenKind::Min)
    return !at(TokenKind::LPar, 1);
  return kind >= TokenKind::Sum && kind <= TokenKind::Scan;
}

// product = reduction | "-" product | power [ ( "*" | "/" | "@" ) product ]         grouped from the left
// A reduction takes the rest of the product, so no operator is left behind it.
ExprPtr Parser::parseProduct() {
  ExprPtr left = parseFactor(true);
  while (at(TokenKind::Star) || at(TokenKind::Slash) || at(TokenKind::At)) {
    Token op = take();
    BinaryOp kind = op.kind == TokenKind::Star    ? BinaryOp::Mul
                    : op.kind == TokenKind::Slash ? BinaryOp::Div
                                                  : BinaryOp::MatMul;
    left = binary(kind, op.span, std::move(left), parseFactor(true));
  }
  return left;
}

// reduction = ( "sum" | "mean" | "max" | "min" | "prod" | "any" | "all" | "scan" )
//             "[" place { "," place } [ "where" expr ] "]" product
ExprPtr Parser::parseReduction() {
  Nesting level(*this);
  ExprPtr expr = node(ExprKind::Reduction, here());
  Token word = take();
  expr->op = word.span;
  expr->reduction =
      static_cast<ReductionOp>(static_cast<int>(word.kind) - static_cast<int>(TokenKind::Sum));
  if (!at(TokenKind::LSquare)) {
    bool callable = word.kind == TokenKind::Max || word.kind == TokenKind::Min;
    const bool missing = word.kind == TokenKind::Mean && pos >= 3 && tokens[pos - 2].kind == TokenKind::Assign && tokens[pos - 3].text == "missing";
    fail(callable ? "`(` or the axes in `[ ]` after `" + word.text + "`"
                  : "the axes in `[ ]` after `" + word.text + "`",
         missing ? "of csv(..), write missing = \"mean\": in normalized fields empty cells count as the mean of their column" : "");
  }
  open(TokenKind::LSquare, "");
  expr->places = parsePlaces();
  if (accept(TokenKind::Where))
    expr->where = parseExpr();
  close(TokenKind::RSquare);
  expr->children.push_back(parseProduct());
  return finish(std::move(expr));
}

// factor = "-" factor | power, and in a product a reduction, too: a minus belongs to the factor or the reduction behind it.
ExprPtr Parser::parseFactor(bool inProduct) {
  if (inProduct && startsReduction())
    return parseReduction();
  if (!at(TokenKind::Minus))
    return parsePower();
  Nesting level(*this);
  ExprPtr expr = node(ExprKind::Unary, here());
  expr->op = take().span;
  expr->children.push_back(parseFactor(inProduct));
  return finish(std::move(expr));
}

// power = postfix [ "^" factor ]
ExprPtr Parser::parsePower() {
  Nesting level(*this);
  ExprPtr base = parsePostfix();
  if (!at(TokenKind::Caret))
    return base;
  Span op = take().span;
  return binary(BinaryOp::Pow, op, std::move(base), parseFactor(false));
}

// postfix = primary { "'" | "[" slot { "," slot } "]" | "(" args ")" }
ExprPtr Parser::parsePostfix() {
  ExprPtr expr = parsePrimary();
  while (expr && (at(TokenKind::Prime) || at(TokenKind::LSquare) || at(TokenKind::LPar))) {
    TokenKind kind = peek().kind;
    ExprPtr outer = node(kind == TokenKind::Prime     ? ExprKind::Transpose
                         : kind == TokenKind::LSquare ? ExprKind::Index
                                                      : ExprKind::Call,
                         expr->span.begin);
    outer->op = peek().span;
    outer->children.push_back(std::move(expr));
    if (kind == TokenKind::Prime)
      take();
    else if (kind == TokenKind::LSquare)
      outer->slots = parseSlots();
    else
      outer->args = parseParenthesizedArgs("");
    expr = finish(std::move(outer));
  }
  return expr;
}

// primary = NUMBER | STRING | "true" | "false" | NAME | "(" expr { "," expr } ")"
//         | ( "max" | "min" | "where" ) "(" args ")"
ExprPtr Parser::parsePrimary() {
  uint32_t begin = here();
  ExprPtr expr;
  switch (peek().kind) {
  case TokenKind::Number: {
    expr = node(ExprKind::Number, begin);
    Token token = take();
    expr->text = std::move(token.text);
    expr->unit = std::move(token.unit);
    return finish(std::move(expr));
  }
  case TokenKind::String:
  case TokenKind::Name:
    expr = node(at(TokenKind::Name) ? ExprKind::Name : ExprKind::String, begin);
    expr->text = take().text;
    return finish(std::move(expr));
  case TokenKind::True:
  case TokenKind::False:
    expr = node(ExprKind::Bool, begin);
    expr->flag = take().kind == TokenKind::True;
    return finish(std::move(expr));
  case TokenKind::LPar: {
    open(TokenKind::LPar, "");
    ExprPtr first = parseExpr();
    if (!at(TokenKind::Comma)) {
      close(TokenKind::RPar);
      if (first) {
        first->span = since(begin);
        first->parenthesized = true;
      }
      return first;
    }
    expr = node(ExprKind::Tuple, begin);
    expr->children.push_back(std::move(first));
    while (accept(TokenKind::Comma))
      expr->children.push_back(parseExpr());
    close(TokenKind::RPar);
    return finish(std::move(expr));
  }
  case TokenKind::Max:
  case TokenKind::Min:
  case TokenKind::Where:
    if (at(TokenKind::LPar, 1)) {
      ExprPtr callee = node(ExprKind::Name, begin);
      callee->text = take().text;
      callee = finish(std::move(callee));
      expr = node(ExprKind::Call, begin);
      expr->op = peek().span;
      expr->children.push_back(std::move(callee));
      expr->args = parseParenthesizedArgs("");
      return finish(std::move(expr));
    }
    break;
  default:
    break;
  }
  if (startsReduction())
    failAt(Code::E0014, peek().span, "a reduction cannot stand here", "put it in parentheses");
  else if (at(TokenKind::Where))
    failAt(Code::E0010, peek().span, "expected `where(condition, a, b)`");
  else if (at(TokenKind::If) || at(TokenKind::Not))
    failAt(Code::E0010, peek().span, describe(peek().kind) + " cannot stand here", "put it in parentheses");
  else
    fail("an expression");
  return nullptr;
}

// "[" slot { "," slot } "]"
std::vector<Slot> Parser::parseSlots() {
  std::vector<Slot> slots;
  open(TokenKind::LSquare, "");
  do
    slots.push_back(parseSlot());
  while (accept(TokenKind::Comma));
  if (at(TokenKind::Colon))
    failAt(Code::E0010, peek().span, "a slice has no step", "cut the axis, and take one place of each part: reshape[B, D / 2, 2](x)[.., 0]");
  close(TokenKind::RSquare);
  return slots;
}

// slot = ".." | ":" [ expr ] | [ NAME "=" ] expr [ ":" [ expr ] ]
Slot Parser::parseSlot() {
  Slot slot;
  uint32_t begin = here();
  auto atEnd = [&] { return at(TokenKind::Comma) || at(TokenKind::RSquare); };
  if (accept(TokenKind::Dots)) {
    slot.kind = Slot::Dots;
  } else if (accept(TokenKind::Colon)) {
    slot.kind = Slot::Range;
    if (!atEnd())
      slot.end = parseExpr();
  } else {
    if (at(TokenKind::Name) && at(TokenKind::Assign, 1)) {
      slot.name = expectName("");
      take();
    }
    slot.begin = parseExpr();
    if (accept(TokenKind::Colon)) {
      slot.kind = Slot::Range;
      if (!atEnd())
        slot.end = parseExpr();
    }
  }
  slot.span = since(begin);
  return slot;
}

// "(" args ")"
std::vector<Arg> Parser::parseParenthesizedArgs(const char *where) {
  open(TokenKind::LPar, where);
  if (at(TokenKind::RPar))
    failAt(Code::E0010, peek().span, "expected an argument, got `)`", "give the arguments; what takes none is written without parentheses");
  std::vector<Arg> args = parseArgs();
  close(TokenKind::RPar);
  return args;
}

// args = arg { "," arg }
std::vector<Arg> Parser::parseArgs() {
  std::vector<Arg> args;
  do
    args.push_back(parseArg());
  while (accept(TokenKind::Comma));
  return args;
}

// arg = [ NAME "=" ] expr [ "except" ( path | "(" path { "," path } ")" ) ]
Arg Parser::parseArg() {
  Arg arg;
  uint32_t begin = here();
  if (at(TokenKind::Name) && at(TokenKind::Assign, 1)) {
    arg.name = expectName("");
    take();
  }
  arg.value = parseExpr();
  if (acceptWord("except")) {
    if (at(TokenKind::LPar)) {
      open(TokenKind::LPar, "");
      do
        arg.except.push_back(parsePath());
      while (accept(TokenKind::Comma));
      close(TokenKind::RPar);
    } else {
      arg.except.push_back(parsePath());
    }
  }
  arg.span = since(begin);
  return arg;
}

// path = NAME | STRING
Path Parser::parsePath() {
  Path path;
  path.span = peek().span;
  path.isString = at(TokenKind::String);
  if (!at(TokenKind::Name) && !at(TokenKind::String)) {
    fail("the name of a parameter, or a string with `*` and `?`");
    return path;
  }
  path.text = take().text;
  return path;
}

} // namespace cinch
