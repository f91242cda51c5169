// Names.h: what can be said about names before anything is evaluated: one definition a name, no unknown name, order of
// definition, no recursion, nothing owned that nobody mentions; and the number of every call in its body.
#ifndef CINCH_COMPILER_FRONTEND_NAMES_H
#define CINCH_COMPILER_FRONTEND_NAMES_H

#include "compiler/frontend/AST.h"
#include "compiler/frontend/Diagnostics.h"

#include <set>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace cinch {

struct NameTables {
  std::unordered_map<std::string, const ast::LayerItem *> preludeLayers, fileLayers; // builtins and models too
  std::unordered_map<const ast::Expr *, int> callNumbers; // Call; Index of a random built-in without parentheses; layers and instances called by name
  std::set<const ast::LayerItem *> owning;                // own parameters or states, themselves or by a `use`
  std::set<const ast::LayerItem *> recursive;             // not to be called
  std::set<std::pair<int, uint32_t>> unknown;             // places of names that were reported
  const ast::LayerItem *find(const std::string &name, int file) const;
};

NameTables checkNames(const ast::File &prelude, const ast::File &file, Diagnostics &diags);

// Words that are known everywhere without being declared: `training`, `pi`, initial distributions, `max`, `min`,
// `where`.
const std::vector<std::string> &implicitNames();
// The initial distributions, as a program writes them.
inline constexpr const char *distributionsText = "zeros, ones, constant(c), normal(s), truncated_normal(s), uniform(a), orthogonal(g), kaiming_normal(fan_in), "
                                                 "kaiming_uniform(fan_in), xavier_normal(fan_in) and xavier_uniform(fan_in), or of fan_out";
bool isImplicitName(const std::string &name);

} // namespace cinch
#endif
