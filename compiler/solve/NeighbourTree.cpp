// NeighbourTree.cpp: sets of leaves become neighbours, from the node that has all of them down.
#include "compiler/solve/NeighbourTree.h"

#include <algorithm>

namespace cinch::solve::detail {

NeighbourTree::NeighbourTree(const std::vector<int> &leaves) {
  std::vector<int> children;
  for (int leaf : leaves) {
    children.push_back(add({}, false));
    nodes.back().leaf = leaf;
  }
  root = join(std::move(children));
}

int NeighbourTree::add(std::vector<int> children, bool fixed) {
  Node node;
  node.fixed = fixed;
  for (int child : children)
    node.marked += nodes[child].marked, node.leaves += nodes[child].leaves;
  node.children = std::move(children);
  nodes.push_back(std::move(node));
  return int(nodes.size()) - 1;
}

int NeighbourTree::join(std::vector<int> children) { return children.size() == 1 ? children[0] : add(std::move(children), false); }

void NeighbourTree::count(int id, const std::vector<bool> &marks) {
  nodes[id].marked = nodes[id].leaves = 0;
  if (nodes[id].leaf >= 0) {
    nodes[id].leaves = 1;
    nodes[id].marked = size_t(nodes[id].leaf) < marks.size() && marks[nodes[id].leaf];
  }
  for (int child : nodes[id].children) {
    count(child, marks);
    nodes[id].leaves += nodes[child].leaves, nodes[id].marked += nodes[child].marked;
  }
}

NeighbourTree::Full NeighbourTree::fullness(int id) const {
  const Node &node = nodes[id];
  return node.marked == 0 ? Full::None : node.marked == node.leaves ? Full::All : Full::Part;
}

// The parts of a node in a fixed order in which everything marked comes last. False if there is none.
bool NeighbourTree::fromEmptyToFull(int id, std::vector<int> &sequence) {
  if (fullness(id) != Full::Part) {
    sequence.push_back(id);
    return true;
  }
  std::vector<int> children = nodes[id].children, empty, full;
  int part = -1;
  if (nodes[id].fixed && (fullness(children.front()) == Full::All || fullness(children.back()) == Full::None))
    std::reverse(children.begin(), children.end());
  for (int child : children) {
    Full how = fullness(child);
    if (nodes[id].fixed && ((how == Full::None && (part >= 0 || !full.empty())) || (how == Full::Part && !full.empty())))
      return false;
    if (how == Full::Part) {
      if (part >= 0)
        return false;
      part = child;
    } else {
      (how == Full::None ? empty : full).push_back(child);
    }
  }
  // Children of a free node that stay together are a node of their own.
  if (!nodes[id].fixed) {
    for (std::vector<int> *list : {&empty, &full})
      if (!list->empty())
        *list = {join(*list)};
  }
  sequence.insert(sequence.end(), empty.begin(), empty.end());
  if (part >= 0 && !fromEmptyToFull(part, sequence))
    return false;
  sequence.insert(sequence.end(), full.begin(), full.end());
  return true;
}

// The node that has all marked leaves, not all of them in one child: it gets children among which those with marks stand beside each other,
// each wholly marked; `holder`, `begin` and `end` say where.
bool NeighbourTree::makeFixed(int id) {
  std::vector<int> empty, full, parts;
  if (!nodes[id].fixed) {
    for (int child : nodes[id].children)
      (fullness(child) == Full::None ? empty : fullness(child) == Full::All ? full : parts).push_back(child);
    if (parts.size() > 2)
      return false;
    if (parts.empty()) {
      int joined = join(full);
      empty.push_back(joined);
      nodes[id].children = empty;
      holder = id, begin = int(empty.size()) - 1, end = begin + 1;
      return true;
    }
    std::vector<int> sequence, reversed;
    if (!fromEmptyToFull(parts[0], sequence))
      return false;
    if (!full.empty())
      sequence.push_back(join(full));
    if (parts.size() > 1) {
      if (!fromEmptyToFull(parts[1], reversed))
        return false;
      sequence.insert(sequence.end(), reversed.rbegin(), reversed.rend());
    }
    int at = id;
    if (empty.empty()) {
      nodes[id].children = std::move(sequence), nodes[id].fixed = true;
    } else {
      at = add(std::move(sequence), true);
      empty.push_back(at);
      nodes[id].children = empty;
    }
    holder = at;
  } else {
    std::vector<int> sequence;
    int state = 0; // before the marked ones, among them, behind them
    for (int child : std::vector<int>(nodes[id].children)) {
      Full how = fullness(child);
      if (how == Full::None) {
        state = state == 1 ? 2 : state;
        sequence.push_back(child);
      } else if (state == 2) {
        return false;
      } else if (how == Full::All) {
        state = 1;
        sequence.push_back(child);
      } else {
        std::vector<int> parts;
        if (!fromEmptyToFull(child, parts))
          return false;
        if (state == 1)
          sequence.insert(sequence.end(), parts.rbegin(), parts.rend());
        else
          sequence.insert(sequence.end(), parts.begin(), parts.end());
        state = state == 1 ? 2 : 1;
      }
    }
    nodes[id].children = std::move(sequence);
    holder = id;
  }
  begin = end = -1;
  const std::vector<int> &children = nodes[holder].children;
  for (int i = 0; i < int(children.size()); ++i)
    if (nodes[children[i]].marked) {
      begin = begin < 0 ? i : begin;
      end = i + 1;
    }
  return true;
}

bool NeighbourTree::makeNeighbours(const std::vector<int> &leaves) {
  std::vector<bool> marks;
  for (int leaf : leaves) {
    if (size_t(leaf) >= marks.size())
      marks.resize(size_t(leaf) + 1);
    marks[leaf] = true;
  }
  count(root, marks);
  int at = root;
  for (bool deeper = true; deeper;) {
    deeper = false;
    for (int child : nodes[at].children)
      if (nodes[child].marked == int(leaves.size())) {
        at = child, deeper = true;
        break;
      }
  }
  if (fullness(at) == Full::All) {
    holder = at, begin = end = 0;
    return true;
  }
  return makeFixed(at);
}

void NeighbourTree::replace(const std::vector<int> &leaves) {
  std::vector<int> children;
  for (int leaf : leaves) {
    children.push_back(add({}, false));
    nodes.back().leaf = leaf;
  }
  int joined = join(std::move(children));
  if (begin == end) { // the holder is all of them
    Node copy = nodes[joined];
    nodes[holder] = std::move(copy);
    return;
  }
  std::vector<int> &list = nodes[holder].children;
  list.erase(list.begin() + begin, list.begin() + end);
  list.insert(list.begin() + begin, joined);
  if (list.size() == 1) {
    Node copy = nodes[joined];
    nodes[holder] = std::move(copy);
  }
}

int64_t NeighbourTree::sumOfRanks(int id, const std::vector<int> &rank, int64_t &leaves) const {
  if (nodes[id].leaf >= 0) {
    ++leaves;
    return rank[nodes[id].leaf];
  }
  int64_t sum = 0;
  for (int child : nodes[id].children)
    sum += sumOfRanks(child, rank, leaves);
  return sum;
}

void NeighbourTree::appendOrder(int id, const std::vector<int> &rank, std::vector<int> &to) const {
  if (nodes[id].leaf >= 0) {
    to.push_back(nodes[id].leaf);
    return;
  }
  // The ranks below each child are a range, and ranges meet at their ends only: means tell them apart.
  std::vector<std::pair<double, int>> children;
  for (int child : nodes[id].children) {
    int64_t leaves = 0, sum = sumOfRanks(child, rank, leaves);
    children.push_back({double(sum) / double(leaves), child});
  }
  if (!nodes[id].fixed)
    std::stable_sort(children.begin(), children.end(), [](auto &x, auto &y) { return x.first < y.first; });
  else if (children.front().first > children.back().first)
    std::reverse(children.begin(), children.end());
  for (auto &[mean, child] : children)
    appendOrder(child, rank, to);
}

std::vector<int> NeighbourTree::order(const std::vector<int> &rank) const {
  std::vector<int> leaves;
  appendOrder(root, rank, leaves);
  return leaves;
}

} // namespace cinch::solve::detail
