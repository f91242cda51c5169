// AST.h: what the parser makes of a file, as written: one struct a thing of the grammar (grammar.ebnf), nothing
// resolved. A node owns its children (unique_ptr), every node has the Span of all its text, and `kind` says which
// fields are in use. The height of every expression tree is bounded by the parser, so that walking it recursively
// cannot overflow the stack.
#ifndef CINCH_COMPILER_FRONTEND_AST_H
#define CINCH_COMPILER_FRONTEND_AST_H

#include "compiler/frontend/Program.h"

#include <memory>
#include <string>
#include <vector>

namespace cinch::ast {

struct Expr;
using ExprPtr = std::unique_ptr<Expr>;

// An identifier where it is written. Empty text: not given.
struct Name {
  std::string text;
  Span span;
  explicit operator bool() const { return !text.empty(); }
};

// place = ".." | NAME: the axes of an index definition or of a reduction.
struct Place {
  bool dots = false;
  Name name; // unless dots
  Span span;
};

// slot: what stands in brackets behind an expression or a layer's name.
struct Slot {
  enum Kind {
    Dots,  // ..
    At,    // e, or name = e
    Range, // [begin] : [end], or name = begin : [end]; `:` alone has neither
  } kind = At;
  Name name;
  ExprPtr begin; // At: the expression
  ExprPtr end;
  Span span;
};

// path = NAME | STRING: names parameters.
struct Path {
  bool isString = false; // then `*` and `?` may stand in it
  std::string text;
  Span span;
};

// arg = [ NAME "=" ] expr [ "except" paths ]
struct Arg {
  Name name;
  ExprPtr value;
  std::vector<Path> except;
  Span span;
};

enum class ExprKind {
  Number,    // text (digits as written), unit
  String,    // text (escapes resolved)
  Bool,      // flag
  Name,      // text
  Tuple,     // children, two or more: ( a, b )
  Call,      // children[0] = callee, args. `max(..)`, `min(..)`, `where(..)` have a Name callee too
  Index,     // children[0] = base, slots. A layer with sizes, `linear[H]`, is an Index of a Name
  Transpose, // children[0] '
  Unary,     // unary, children[0]
  Binary,    // binary, children[0], children[1]
  Reduction, // reduction, places, where (may be null), children[0] = the product after the brackets
  If,        // children: condition, then, else
};

enum class UnaryOp { Neg, Not };
enum class BinaryOp { Add, Sub, Mul, Div, MatMul, Pow, EQ, NE, LT, LE, GT, GE, And, Or };
enum class ReductionOp { Sum, Mean, Max, Min, Prod, Any, All, Scan };

struct Expr {
  ExprKind kind = ExprKind::Number;
  Span span;                 // parentheses around it included
  Span op;                   // the operator, the prime, the reduction's word, the opening bracket
  bool parenthesized = false;
  bool flag = false;
  UnaryOp unary = UnaryOp::Neg;
  BinaryOp binary = BinaryOp::Add;
  ReductionOp reduction = ReductionOp::Sum;
  int height = 1;            // of the tree, bounded by the parser
  std::string text;
  std::string unit;          // "", "KiB", "GB", ..
  std::vector<ExprPtr> children;
  std::vector<Arg> args;
  std::vector<Slot> slots;
  std::vector<Place> places;
  ExprPtr where;
};

// axis = ".." | "?" | expr
struct Axis {
  enum Kind { Dots, Query, Size } kind = Size;
  ExprPtr size;
  Span span;
};

// type = NAME "[" axes "]" [ "below" sum [ "except" sum ] ]
struct Type {
  Name dtype;
  std::vector<Axis> axes;
  ExprPtr below, except; // may be null
  Span span;
};

// size = NAME [ "?" | "=" expr ]
struct SizeParameter {
  Name name;
  bool inferred = false; // `?`
  ExprPtr value;         // the default; may be null
  Span span;
};

// parameter = NAME [ ":" type ] [ "=" expr ]. Without a type it is a constant.
struct Parameter {
  Name name;
  std::unique_ptr<Type> type; // null: a constant
  ExprPtr value;              // the default; may be null
  Span span;
};

struct Signature {
  std::vector<Parameter> parameters;
  std::vector<Type> results; // one or more
  bool parenthesized = false; // results written ( .. )
  Span span;
};

// hint = "@" NAME [ "(" args ")" ]
struct Hint {
  Name name;
  std::vector<Arg> args;
  Span span;
};

// use = NAME "=" [ "repeat" count [ "shared" | "as" NAME ] ] NAME [ "[" slots "]" ] [ "(" args ")" ]
struct Use {
  Name name;
  ExprPtr repeat;  // the count; null: no repeat
  bool shared = false; // one instance, run so many times
  Name index;      // `as i`
  Name layer;
  std::vector<Slot> slots;
  std::vector<Arg> args;
  bool hasSlots = false, hasArgs = false;
  Span span;
};

// setting = NAME [ "(" args ")" ] { NUMBER | STRING | NAME [ "(" args ")" ] }
struct SettingWord {
  enum Kind { Number, String, Name } kind = Name;
  std::string text, unit; // as in Expr
  std::vector<Arg> args;  // of a Name
  bool hasArgs = false;
  Span span;              // all
  Span textSpan;          // without the arguments
};
struct Setting {
  SettingWord key; // kind Name
  std::vector<SettingWord> words;
  Span span;
};

// A statement of a body, or a clause of `train`.
enum class StatementKind {
  Define,      // names = values[0]
  DefineIndex, // names[0] [ places ] = values[0]
  Param,       // names[0] : type ~ values[0]
  State,       // names[0] : type ~ values[0]
  Use,         // uses
  Update,      // names[0] = values[0]
  Return,      // values
  Metric,      // names[0] = values[0] (train only)
  Predict,     // names[0] = values[0] (train only)
  Setting,     // setting (train only)
};
struct Statement {
  StatementKind kind = StatementKind::Define;
  Span span;
  std::vector<Hint> hints;
  std::vector<Name> names;
  std::vector<Place> places;
  std::vector<ExprPtr> values;
  Type type;
  std::vector<Use> uses;
  Setting setting;
};

// ---- Items: `kind` says which struct it is; `switch` on it and static_cast, or llvm::cast ---------------------------
enum class ItemKind { Dims, Const, Data, Layer, Names, Train, Plan };
struct Item {
  const ItemKind kind;
  Span span;
  Name name; // what it defines; empty for Dims and Plan; the model's name for Train
  virtual ~Item() = default;

protected:
  explicit Item(ItemKind kind) : kind(kind) {}
};

struct Dim {
  Name name;
  ExprPtr value;
  bool batch = false;
  Span span;
};
struct DimsItem : Item {
  std::vector<Dim> dims;
  DimsItem() : Item(ItemKind::Dims) {}
  static bool classof(const Item *item) { return item->kind == ItemKind::Dims; }
};

struct Constant {
  Name name;
  ExprPtr value;
  Span span;
};
struct ConstItem : Item {
  std::vector<Constant> constants;
  ConstItem() : Item(ItemKind::Const) {}
  static bool classof(const Item *item) { return item->kind == ItemKind::Const; }
};

struct FieldModifier {
  enum Kind { Scale, From, Names, Normalize, Below, At } kind = Scale; // Below: its numbers are in the field's type
  bool again = false;       // the word stands before already
  ExprPtr number;           // Scale, At
  std::vector<Arg> list;    // From, Names: one argument that is a String, or what stands in the parentheses
  Span span;
};
struct Field {
  Name name;
  Type type;
  std::vector<FieldModifier> modifiers;
  Span span;
};
struct DataItem : Item {
  Name source;
  std::vector<Arg> args;
  std::vector<Field> fields;
  DataItem() : Item(ItemKind::Data) {}
  static bool classof(const Item *item) { return item->kind == ItemKind::Data; }
};

struct LayerItem : Item {    // layer, model and builtin
  enum Form { Layer, ReversibleLayer, Model, Builtin } form = Layer;
  std::vector<SizeParameter> sizes; // empty: no list (an empty list cannot be written)
  Signature signature;
  std::vector<Statement> body;      // none in a builtin
  Span header;                      // from the first word to the end of the signature
  LayerItem() : Item(ItemKind::Layer) {}
  static bool classof(const Item *item) { return item->kind == ItemKind::Layer; }
};

struct NameMapping {                // "ours" = "theirs" [ ' ]
  std::string ours, theirs;
  Span oursSpan, theirsSpan, span;
  bool transposed = false;
};
struct NamesItem : Item {
  std::vector<NameMapping> mappings;
  NamesItem() : Item(ItemKind::Names) {}
  static bool classof(const Item *item) { return item->kind == ItemKind::Names; }
};

struct TrainItem : Item {           // `name` is the model's
  Name data;
  std::string seed, seedUnit;       // as in Expr
  Span seedSpan;
  std::vector<Statement> clauses;
  Span header;
  TrainItem() : Item(ItemKind::Train) {}
  static bool classof(const Item *item) { return item->kind == ItemKind::Train; }
};

struct PlanItem : Item {
  std::vector<Setting> settings;
  PlanItem() : Item(ItemKind::Plan) {}
  static bool classof(const Item *item) { return item->kind == ItemKind::Plan; }
};

struct File {
  int id = -1;                      // in the SourceList
  std::vector<std::unique_ptr<Item>> items;
};

// The text from the beginning of `a` to the end of `b`; both in one file.
inline Span join(Span a, Span b) {
  return {a.file, a.begin < b.begin ? a.begin : b.begin, a.end > b.end ? a.end : b.end};
}

const char *spelling(UnaryOp op);     // "-", "not"
const char *spelling(BinaryOp op);    // "+", "@", "and"
const char *spelling(ReductionOp op); // "sum"

} // namespace cinch::ast
#endif
