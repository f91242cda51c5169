// AST.cpp: how operators are spelled, for messages.
#include "compiler/frontend/AST.h"

namespace cinch::ast {

const char *spelling(UnaryOp op) { return op == UnaryOp::Neg ? "-" : "not"; }

const char *spelling(BinaryOp op) {
  static const char *const words[] = {"+", "-", "*", "/", "@", "^", "==", "!=", "<", "<=", ">", ">=", "and", "or"};
  return words[static_cast<int>(op)];
}

const char *spelling(ReductionOp op) {
  static const char *const words[] = {"sum", "mean", "max", "min", "prod", "any", "all", "scan"};
  return words[static_cast<int>(op)];
}

} // namespace cinch::ast
