// LayerGraph.cpp: cycles by depth-first search; ownership as a least fixed point.
#include "compiler/frontend/LayerGraph.h"

#include <algorithm>
#include <functional>

namespace cinch {

using namespace ast;

// By place in the text, so that messages do not depend on addresses.
static std::vector<const LayerItem *> inOrder(const std::set<const LayerItem *> &items) {
  std::vector<const LayerItem *> list(items.begin(), items.end());
  std::sort(list.begin(), list.end(), [](const LayerItem *a, const LayerItem *b) {
    return std::make_pair(a->span.file, a->span.begin) < std::make_pair(b->span.file, b->span.begin);
  });
  return list;
}

void LayerGraph::findRecursion(NameTables &tables, Diagnostics &diags) {
  std::map<const LayerItem *, int> state;
  std::vector<const LayerItem *> path;
  std::function<void(const LayerItem *)> visit = [&](const LayerItem *item) {
    state[item] = 1;
    path.push_back(item);
    for (const LayerItem *next : inOrder(mentions[item])) {
      if (state[next] == 1) {
        std::string text;
        auto from = std::find(path.begin(), path.end(), next);
        for (auto it = from; it != path.end(); ++it) {
          text += "`" + (*it)->name.text + "` -> ";
          tables.recursive.insert(*it);
        }
        diags.error(Code::E0105, next->name.span,
                    "layer `" + next->name.text + "` contains itself: " + text + "`" + next->name.text + "`");
      } else if (state[next] == 0 && path.size() < 4000) {
        visit(next);
      }
    }
    path.pop_back();
    state[item] = 2;
  };
  std::set<const LayerItem *> items;
  for (const auto &[item, others] : mentions)
    if (item)
      items.insert(item);
  for (const LayerItem *item : inOrder(items))
    if (state[item] == 0)
      visit(item);
}

void LayerGraph::findOwners(NameTables &tables) {
  for (const auto *table : {&tables.preludeLayers, &tables.fileLayers})
    for (const auto &[name, item] : *table)
      for (const Statement &s : item->body)
        if (s.kind == StatementKind::Param || s.kind == StatementKind::State)
          tables.owning.insert(item);
  for (bool changed = true; changed;) {
    changed = false;
    for (const auto &[item, others] : uses)
      for (const LayerItem *other : others)
        if (item && tables.owning.count(other))
          changed |= tables.owning.insert(item).second;
  }
}

} // namespace cinch
