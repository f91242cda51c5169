// LayerGraph.h: which layer mentions which: none may contain itself, and one that uses an owner of parameters owns
// them too.
#ifndef CINCH_COMPILER_FRONTEND_LAYERGRAPH_H
#define CINCH_COMPILER_FRONTEND_LAYERGRAPH_H

#include "compiler/frontend/Names.h"

#include <map>

namespace cinch {

struct LayerGraph {
  std::map<const ast::LayerItem *, std::set<const ast::LayerItem *>> mentions, uses; // by the layer; null: `train`

  void findRecursion(NameTables &tables, Diagnostics &diags); // reports, and fills `recursive`
  void findOwners(NameTables &tables);                        // fills `owning`
};

} // namespace cinch
#endif
