// Dag.h: rematerialization on any graph: the cheapest schedule whose bytes in use never exceed a budget.
//
// Every node is computed at least once. While it is computed its sources are held; bytes in use count it and
// everything held. A node may be freed and computed again. With `Order::Given` first computations follow the order of
// the nodes.
#ifndef CINCH_COMPILER_SOLVE_DAG_DAG_H
#define CINCH_COMPILER_SOLVE_DAG_DAG_H

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace cinch::solve {

struct Dag {
  struct Node {
    int64_t id = 0; // for the reader of the schedule
    std::string name;
    double cost = 0;
    int64_t bytes = 0;
    std::vector<int> sources, users;
    // Beside its own bytes, its sources' and what is held: what it needs while it is computed (scratch); below 0, bytes of
    // sources that die there and that it may take over. Known to the bounds alone: schedules of the command have neither.
    int64_t working = 0;
    int64_t needs() const { return bytes + working; }
    // Values of one kernel stand one behind the other in the list with the same number here: whenever one is computed, all are, in this order.
    // `cost` is a share of the kernel's. -1: a node of its own. Known to the bounds alone, as are the next two.
    int kernel = -1;
    // Nodes that are first computed before this one, and behind it, for another reason than that one reads the other.
    std::vector<int> earlier, later;
  };
  std::vector<Node> nodes;
  int size() const { return int(nodes.size()); }
  // The first of the values that are computed with a node, and the end of them.
  int firstOfKernel(int v) const {
    while (v > 0 && nodes[v].kernel >= 0 && nodes[v - 1].kernel == nodes[v].kernel)
      --v;
    return v;
  }
  int endOfKernel(int v) const {
    int end = v + 1;
    while (end < size() && nodes[v].kernel >= 0 && nodes[end].kernel == nodes[v].kernel)
      ++end;
    return end;
  }
};

enum class Order { Given, Free };

// Empty if the graph is sane (no cycle; with Order::Given the list is a topological order), else what is wrong.
std::string check(const Dag &, Order);

// A run of nodes; one that stands again is computed again. Frees are implied: a node is freed after its last use
// before it is computed again, which no other choice of frees beats.
using Runs = std::vector<int>;
struct Cost {
  double cost = 0;
  int64_t peak = 0;
};
// Exact bytes and cost of a run; peak is -1 if a source is missing.
Cost simulate(const Dag &, const Runs &);

// The schedule spelled out: >= 0 computes a node, ~node frees it.
std::vector<int> withFrees(const Dag &, const Runs &);
// Empty if the spelled-out schedule is right and needs no more than `budget`, else the first thing that is wrong.
std::string verify(const Dag &, Order, int64_t budget, const std::vector<int> &schedule, const Cost &claimed);

// The methods of the command, which may be left out one by one to see what each is worth (`bench/run solve --without PART`).
enum class DagPart { Orders, Nested, Evicting, Exact, Annealing, Polish, Cuts, Windows, Intervals };
constexpr const char *kDagParts[] = {"orders", "nested", "evicting", "exact", "annealing", "polish", "cuts", "windows", "intervals"};

struct DagLimits {
  int64_t work = 4'000'000'000; // elementary steps (some ten seconds on large graphs); deterministic
  double seconds = 0;         // > 0: also stop after this long
  // Cost that does not matter. > 0: the bounds are tried with a part of the work first, and with more only while they are farther than this from the
  // cost that is known and more work gains at least this.
  double near = 0;
  std::optional<DagPart> without; // the method that is left out
};
struct DagSolution {
  enum Status { Optimal, Feasible, Infeasible, Unknown } status = Unknown;
  Runs runs;
  Cost cost;
  double bound = 0;        // proven: no schedule at this budget costs less
  int64_t leastBudget = 0; // smallest for which a schedule is known
  int64_t memoryBound = 0; // proven: no schedule needs less
  std::string fault;       // not empty: what the methods found contradicts itself, and nothing else here is to be believed
};
DagSolution solve(const Dag &, Order, int64_t budget, const DagLimits & = {});

namespace detail {

// Status and bound of a schedule that was found. `bound`: cost below which no schedule was proven to exist; `complete`: an exact
// search says that nothing is cheaper. A bound above the cost, by more than rounding, is a fault.
void judge(DagSolution &, double bound, bool complete);

// Least bytes that computing any one node needs: its own and its sources'.
int64_t memoryBound(const Dag &);
double totalCost(const Dag &);

// Exact search over (computed, held) states, cheapest extra cost first. `upper`: extra cost already known to be
// reachable. Of graphs with Node::working or kernels of several values only what is proved counts.
struct ExactResult {
  bool complete = false; // the search was not cut off
  bool found = false;
  Runs runs;         // if found: cheaper than `upper`
  double proved = 0; // extra cost below which there is no schedule
};
ExactResult searchExact(const Dag &, Order, int64_t budget, double upper, int64_t &work, double deadline);

// The nodes that are first computed before `node` (`up`) or after it in every order: all of that side in a given one,
// else its ancestors or descendants. One mark a node.
std::vector<char> everBeside(const Dag &, Order, int node, bool up);

// The graph with its chains taken together whose inner values are never worth holding (in any order).
Dag merged(const Dag &);

// Lower bound on the extra cost by minimum cuts at single moments.
double cutBound(const Dag &, Order, int64_t budget, int64_t &work, double deadline);

// Lower bound on the extra cost from a few moments together; `target`: extra cost of a known schedule.
double windowBound(const Dag &, Order order, int64_t budget, double target, int64_t &work, double deadline);

// Lower bound on the extra cost from many moments and all intervals between them.
double intervalBound(const Dag &, Order order, int64_t budget, double target, int64_t &work, double deadline);

// Lower bound on the extra cost from the tightest computations, each time that they are done.
double gateBound(const Dag &, Order order, int64_t budget, double target, int64_t &work, double deadline);

// Lower bound on the extra cost by the exact search, with values that are small taken to be free to hold; 0 if too many are not.
double exactBound(const Dag &, Order order, int64_t budget, double target, int64_t &work, double deadline);

// The best of all of these, the quick ones first, for either order of first computations that leave each other's order open; `target`:
// extra cost of a known schedule, beyond which nothing is of use.
double repetitionBound(const Dag &, Order order, int64_t budget, double target, const DagLimits &);

// Nodes whose first computations follow each other in every order: all of them in a given one, else a longest path.
std::vector<int> longestPath(const Dag &, Order order);

// Local search over what is held from stage to stage, first computations in the order of `order`. Starts from
// `starts` (runs in that order) and returns the best runs found within the budget, empty if none; `smallest` becomes
// the least peak seen.
Runs searchRetention(const Dag &, const std::vector<int> &order, int64_t budget, const std::vector<Runs> &starts,
                     int64_t &work, double deadline, uint64_t seed, Runs &smallest);

// Takes out computations whose value can be held instead, best saving first, and those nobody reads. `inOrder`: the
// first computation of a node stays where it is, even if nobody reads that copy.
Runs polish(const Dag &, const Runs &, int64_t budget, bool inOrder);

// Topological orders worth trying when the order is free; the list's own is the first if it is one.
std::vector<std::vector<int>> orders(const Dag &, Order);
// Runs along an order that fit the budget: what is cheap to get back makes room, what is missing is computed again.
std::vector<Runs> evictingRuns(const Dag &, const std::vector<int> &order, int64_t budget, int64_t &work,
                               double deadline);

// Runs by the nested structure of a training graph along an order: the cheapest found that fits, then one that needs
// little memory. Empty if the order has no such structure, or nothing fits this way.
std::vector<Runs> nestedRuns(const Dag &, Order, const std::vector<int> &order, int64_t budget, int64_t &work,
                             double deadline);

} // namespace detail

// The commands `solve remat` and `solve arena`; the arguments follow these two words. Return the exit code.
int solveRematMain(const std::vector<std::string> &arguments);
int solveArenaMain(const std::vector<std::string> &arguments);

} // namespace cinch::solve
#endif
