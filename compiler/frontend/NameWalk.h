// NameWalk.h: one walk over every body with the scopes prelude < file < body < index statement, of which Names.h has the result. What stands in a body
// mentions names (NameUses.cpp); statements, layers and blocks define them (Names.cpp).
#ifndef CINCH_COMPILER_FRONTEND_NAMEWALK_H
#define CINCH_COMPILER_FRONTEND_NAMEWALK_H

#include "compiler/frontend/LayerGraph.h"
#include "compiler/frontend/Names.h"

#include <map>

namespace cinch {

struct NameWalk {
  struct Known {
    enum Kind { Dim, Const, Data, Layer, Size, Parameter, Definition, Owned, Instance, Field, Index } kind = Definition;
    Span span;
    bool mentioned = false;
  };
  using Scope = std::map<std::string, Known>;

  NameTables &tables;
  Diagnostics &diags;
  int fileId = 0;
  Scope fileScope, body;
  std::map<std::string, Span> later; // names of this body that come further down
  std::vector<std::vector<std::string>> indexScopes;
  LayerGraph graph;
  const ast::LayerItem *current = nullptr;
  int calls = 0;
  int layers = 0, predictLayers = 0; // called by their names alone
  int instances = 0;                 // so are these
  int defaults = 0;                  // calls in the default values of a layer's parameters
  std::map<std::string, std::string> normalized; // of `train`: each field that the data divide by its deviation, and what that is called in a file
  const ast::Expr *calling = nullptr;            // the call whose callee is looked at
  std::set<std::string> told; // unknown names of this body that were reported
  bool fieldsUnknown = false; // a `train` whose data does not exist
  bool numbering = false;
  // Calls in `predict` clauses have numbers of their own: such a clause changes no draw of the training.
  bool inPredict = false;
  bool inDefault = false;
  int predictCalls = 1 << 30;
  bool inSlot = false;                   // between the brackets of an operand
  bool inParameter = false;              // in the type of a layer's parameter
  const ast::Expr *distribution = nullptr; // the name that stands where a distribution does

  // ---- Names that are defined
  void define(Scope &scope, const ast::Name &name, Known::Kind kind);
  static void namesOf(const ast::Statement &s, std::vector<ast::Name> &names);
  void statement(const ast::Statement &s);
  void defineLater(const ast::Name &name, Known::Kind kind);
  void warnUnused(const Scope &scope);
  void statements(const std::vector<ast::Statement> &list);
  void layer(const ast::LayerItem &item);
  void trainBlock(const ast::TrainItem &item, const ast::File &file);
  void run(const ast::File &file);
  void defineFile(const ast::Name &name, Known::Kind kind);

  // ---- Names that are used
  bool isIndex(const std::string &name) const;
  void mention(const std::string &name, Span span);
  void unknown(const std::string &name, Span span, const char *what);
  bool isDeviationOfNormalized(const std::string &name) const; // `std(x)` of such a field
  bool known(const std::string &name) const { return body.count(name) || fileScope.count(name) || later.count(name); }
  // Whether it may be the size of an axis: of a file, layers and data are none.
  bool maySize(const std::string &name) const {
    auto outer = fileScope.find(name);
    const bool other = outer != fileScope.end() && outer->second.kind != Known::Dim && outer->second.kind != Known::Const;
    return known(name) && (body.count(name) || later.count(name) || !other);
  }
  void args(const std::vector<ast::Arg> &list);
  void initial(const ast::Expr *e); // a distribution
  void slots(const std::vector<ast::Slot> &list);
  // A layer that takes nothing, or an instance of one, is called without parentheses. Two such calls draw different numbers. They are counted apart,
  // so that they move no number of another call.
  bool isLayer(const std::string &name) { return !body.count(name) && tables.find(name, fileId); }
  bool isInstance(const std::string &name) const;
  int nextInstance() { return (1 << 27) + instances++; }
  int nextDefault() { return (1 << 26) + defaults++; }
  int nextLayer() { return inDefault ? nextDefault() : inPredict ? (1 << 29) + predictLayers++ : (1 << 20) + layers++; }
  int nextCall() { return inDefault ? nextDefault() : inPredict ? predictCalls++ : calls++; }
  // The name of what is called with something behind it, and so no call by itself. That of a layer takes a number of one all the same, since
  // recorded draws have the numbers that are left.
  void callee(const ast::Expr &name);
  void expr(const ast::Expr *e);
  // All names known: sizes. Otherwise index names, which must be new.
  void reduction(const ast::Expr *e);
  void bindIndex(std::vector<std::string> &bound, const ast::Place &place);
  void type(const ast::Type &t);
  void mentionWords(const ast::Setting &setting);
  void touch(const std::string &name);
  void mentionQuietly(const ast::Expr &e);
};

} // namespace cinch
#endif
