// LoopSimplify.cpp: a loop kernel's domain with fewer dims, and the same numbers in the same order.
#include "compiler/kernels/LoopPlan.h"

#include <algorithm>
#include <optional>

namespace cinch::kernels {
namespace {

using Strides = std::vector<int64_t>;

// The dims of a spec as one list, with every list of strides that follows them.
class Domain {
public:
  explicit Domain(LoopSpec &spec) : spec(spec) {
    size_t rank = spec.outer.size() + spec.chain.size() + 1;
    for (LoopNode &node : spec.nodes) {
      node.view.strides.resize(rank);
      node.exampleStrides.resize(rank);
      all.push_back(&node.view.strides);
      all.push_back(&node.exampleStrides);
    }
    for (LoopStore &store : spec.stores) {
      store.view.strides.resize(rank);
      all.push_back(&store.view.strides);
    }
    spec.addAt.view.strides.resize(rank);
    all.push_back(&spec.addAt.view.strides);
  }

  size_t columnDim() const { return spec.outer.size() + spec.chain.size(); }

  void dropOnes() {
    for (size_t i = columnDim(); i-- > 0;)
      if (extent(i) == 1)
        erase(i);
    if (spec.cols == 1)
      for (Strides *strides : all)
        strides->back() = 0;
  }

  void chainBecomesOuter() {
    spec.outer.insert(spec.outer.end(), spec.chain.begin(), spec.chain.end());
    spec.chain.clear();
  }

  // Neighbours (i, i + 1) of one kind that all views walk as one dim.
  void mergeNeighbours() {
    for (size_t i = columnDim(); i-- > 1;) {
      bool sameKind = (i < spec.outer.size()) == (i - 1 < spec.outer.size());
      if (sameKind && walkedAsOne(i - 1, i))
        mergeInto(i - 1, i);
    }
  }
  void mergeOuterWithColumns() {
    size_t column = columnDim();
    while (!spec.outer.empty() && walkedAsOne(spec.outer.size() - 1, column)) {
      size_t last = spec.outer.size() - 1;
      spec.cols *= spec.outer[last];
      erase(last);
      column = columnDim();
    }
  }

  // For a domain with one column: the outer dim along which most views are contiguous takes the columns' place.
  void rotateOuterIntoColumns() {
    size_t best = spec.outer.size();
    int bestContiguous = -1;
    for (size_t i = spec.outer.size(); i-- > 0;) {
      int contiguous = int(std::count_if(all.begin(), all.end(), [&](Strides *s) { return (*s)[i] == 1; }));
      if (contiguous > bestContiguous)
        best = i, bestContiguous = contiguous;
    }
    if (best == spec.outer.size())
      return;
    spec.cols = spec.outer[best];
    for (Strides *strides : all)
      strides->back() = (*strides)[best];
    erase(best);
  }

private:
  int64_t &extent(size_t i) {
    return i < spec.outer.size() ? spec.outer[i] : i < columnDim() ? spec.chain[i - spec.outer.size()] : spec.cols;
  }
  bool walkedAsOne(size_t i, size_t next) {
    int64_t count = extent(next);
    return std::all_of(all.begin(), all.end(), [&](Strides *s) { return (*s)[i] == (*s)[next] * count; });
  }
  void mergeInto(size_t i, size_t next) {
    extent(i) *= extent(next);
    for (Strides *strides : all)
      (*strides)[i] = (*strides)[next];
    erase(next);
  }
  void erase(size_t i) {
    if (i < spec.outer.size())
      spec.outer.erase(spec.outer.begin() + i);
    else
      spec.chain.erase(spec.chain.begin() + (i - spec.outer.size()));
    for (Strides *strides : all)
      strides->erase(strides->begin() + i);
  }

  LoopSpec &spec;
  std::vector<Strides *> all;
};

// With one column a ReduceCols is its operand (-0.0 + x is x) and the index of the largest is 0.
void elideReductionsOfOneColumn(LoopSpec &spec) {
  std::vector<int> same(spec.nodes.size());
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    LoopNode &node = spec.nodes[n];
    for (int &arg : node.args)
      arg = same[arg];
    same[n] = int(n);
    if (node.op == LoopOp::ReduceCols) {
      same[n] = node.args[0];
    } else if (reducesColumns(node.op)) {
      node.op = LoopOp::Const;
      node.args.clear();
      node.number = 0;
    }
  }
  for (LoopStore &store : spec.stores)
    store.node = same[store.node];
  spec.addAt.node = spec.addAt.present ? same[spec.addAt.node] : 0;
  for (int &arg : spec.addAt.args)
    arg = same[arg];
}

// Every chain dim is walked by every store: nothing tells the chain from outer dims.
bool storesWalkChain(const LoopSpec &spec) {
  for (const LoopStore &store : spec.stores)
    for (size_t i = 0; i < spec.chain.size(); ++i)
      if (spec.chain[i] > 1 && store.view.strides[spec.outer.size() + i] == 0)
        return false;
  return true;
}

// Nodes that ask for the number of a column, and places of extremes, are of one row.
bool suitsSeveralRows(const LoopSpec &spec) {
  auto ofOneRow = [](LoopOp op) {
    switch (op) {
    case LoopOp::LoadAt: case LoopOp::Index: case LoopOp::RandomUniform: case LoopOp::RandomNormal: case LoopOp::RandomInt:
    case LoopOp::RandomBool: case LoopOp::ArgMaxCols: case LoopOp::ArgMinCols: return true;
    default: return false;
    }
  };
  static_assert(kLoopLanes == 16);
  bool chained = anyNode(spec, [](LoopOp op) { return op == LoopOp::ReduceChain; });
  bool isWhole = spec.cols == 16 && chained && anyNode(spec, reducesColumns); // several chains go on beside each other
  bool fits = spec.cols == 2 || spec.cols == 4 || spec.cols == 8 || isWhole;
  for (const LoopStore &store : spec.stores)
    fits = fits && store.copies == 1;
  return fits && !spec.addAt.present && !anyNode(spec, ofOneRow);
}

} // namespace

// A vector of 16 columns would hold one row of 4, and sixteen lanes would wait for one chain. Where the rows along the last outer dim
// lie side by side, they become columns: each row's lanes are added as the same tree, since lanes that a row lacks change nothing.
void joinRows(LoopPlan &plan) {
  LoopSpec &spec = plan.spec;
  if (!suitsSeveralRows(spec))
    return;
  using Kind = LoopPlan::Walk;
  struct Walk {
    Strides &strides;
    bool isLoad, isStore; // or nothing in memory; what a chain goes on from is neither, and walks columns
    Kind kind;
  };
  std::vector<Walk> walks;
  for (LoopNode &node : spec.nodes)
    walks.push_back({node.view.strides, node.op == LoopOp::Load, false, Kind::Columns});
  for (LoopStore &store : spec.stores)
    walks.push_back({store.view.strides, false, true, Kind::Columns});
  const int64_t row = spec.cols;
  while (!spec.outer.empty()) {
    const size_t last = spec.outer.size() - 1;
    bool isFirst = spec.cols == row;
    auto kindOf = [&](const Walk &walk) -> std::optional<Kind> {
      int64_t along = walk.strides[last], step = walk.strides.back();
      int64_t next = walk.kind == Kind::Columns ? step * spec.cols : walk.kind == Kind::Rows ? step * (spec.cols / row) : 0;
      if (along == next)
        return walk.kind;
      if (isFirst && step == 0 && (walk.isLoad || walk.isStore))
        return Kind::Rows;
      if (isFirst && along == 0 && walk.isLoad)
        return Kind::Again;
      return std::nullopt;
    };
    auto inMemory = [&](size_t i) { return walks[i].isLoad || walks[i].isStore || spec.nodes[i].hasInit; };
    std::vector<Kind> kinds;
    for (size_t i = 0; i < walks.size(); ++i) {
      std::optional<Kind> kind = inMemory(i) ? kindOf(walks[i]) : Kind::Columns;
      if (!kind)
        break;
      kinds.push_back(*kind);
    }
    if (kinds.size() < walks.size())
      break;
    for (size_t i = 0; i < walks.size(); ++i) {
      Strides &strides = walks[i].strides;
      walks[i].kind = kinds[i];
      if (kinds[i] == Kind::Rows && isFirst)
        strides.back() = strides[last];
      strides.erase(strides.begin() + last);
    }
    for (LoopNode &node : spec.nodes)
      node.exampleStrides.erase(node.exampleStrides.begin() + last);
    spec.addAt.view.strides.erase(spec.addAt.view.strides.begin() + last);
    spec.cols *= spec.outer[last];
    spec.outer.erase(spec.outer.begin() + last);
  }
  if (spec.cols == row)
    return;
  plan.rowColumns = row;
  for (size_t i = 0; i < walks.size(); ++i)
    (i < spec.nodes.size() ? plan.loadWalk : plan.storeWalk).push_back(walks[i].kind);
}

void simplifyLoop(LoopSpec &spec) {
  Domain domain(spec);
  if (spec.cols == 1)
    elideReductionsOfOneColumn(spec);
  bool chained = spec.addAt.present || anyNode(spec, [](LoopOp op) { return op == LoopOp::ReduceChain; });
  if (!chained && storesWalkChain(spec))
    domain.chainBecomesOuter();
  domain.dropOnes();
  domain.mergeNeighbours();
  if (anyNode(spec, reducesColumns))
    return;
  if (spec.cols == 1)
    domain.rotateOuterIntoColumns();
  domain.mergeOuterWithColumns();
}

} // namespace cinch::kernels
