// NeighbourTree.h: all orders of some leaves in which given sets of them stand beside each other (a PQ-tree: Booth and Lueker, 1976).
//
// The children of a free node stand in any order, those of a fixed node in the order given or in its reverse.
#ifndef CINCH_COMPILER_SOLVE_NEIGHBOURTREE_H
#define CINCH_COMPILER_SOLVE_NEIGHBOURTREE_H

#include <cstdint>
#include <vector>

namespace cinch::solve::detail {

class NeighbourTree {
public:
  // Any order of these leaves.
  explicit NeighbourTree(const std::vector<int> &leaves);

  // Keeps the orders in which these leaves are neighbours; false if there is none, then the tree is of no further use.
  bool makeNeighbours(const std::vector<int> &leaves);
  // In their place, right after makeNeighbours, come these, in any order.
  void replace(const std::vector<int> &leaves);

  // One of the orders: the one in which the leaves stand by rising `rank`, which some order of the tree must allow. Leaves of equal rank are
  // neighbours and stand in any order that the tree allows.
  std::vector<int> order(const std::vector<int> &rank) const;
  int64_t size() const { return int64_t(nodes.size()); }

private:
  struct Node {
    int leaf = -1;
    bool fixed = false;
    std::vector<int> children;
    int marked = 0, leaves = 0; // below it, while neighbours are made
  };
  enum class Full { None, Part, All };

  int add(std::vector<int> children, bool fixed);
  int join(std::vector<int> children); // the only one, or a free node of them
  void count(int node, const std::vector<bool> &marks);
  Full fullness(int node) const;
  bool fromEmptyToFull(int node, std::vector<int> &sequence);
  bool makeFixed(int node);
  void appendOrder(int node, const std::vector<int> &rank, std::vector<int> &to) const;
  int64_t sumOfRanks(int node, const std::vector<int> &rank, int64_t &leaves) const;

  std::vector<Node> nodes;
  int root = -1;
  int holder = -1;             // the node whose children include the neighbours, or which is all of them
  int begin = 0, end = 0;      // which of its children
};

} // namespace cinch::solve::detail
#endif
