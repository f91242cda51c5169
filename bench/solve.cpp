// solve.cpp: how good are `solve remat` and `solve arena`? Costs of schedules against the best known cost and against
// the proven bound, on graphs of training steps at budgets from 0.9 of the keep-all peak down to 1.05 of what any
// schedule needs; seconds for graphs of 1,000 and of 10,000 nodes; heights of arenas whose perfect height is known.
//
//   bench_solve [--quick] [--only TEXT] [--arena] [--work N] [--seconds S] [--seed N] [--best FILE] [--record METHOD]
//   bench_solve --without PART,..|all [--quick] [--only TEXT] [--work N]
//
// --without asks what a method of `solve remat` is worth: costs, bounds and budgets met with it left out beside those with all of them.
// The best known costs lie in solve_best.txt beside this file: one line `graph budget cost method` each. --record
// writes what this run improves into it.
#include "compiler/solve/Memory.h"
#include "test/unit/DagGraphs.h"
#include "test/unit/PerfectArenas.h"

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <sstream>

using namespace cinch::solve;

namespace {

struct Options {
  bool quick = false, remat = true, arena = true;
  std::string only, best = CINCH_BEST_KNOWN, record, without;
  int64_t work = -1;
  int64_t seed = 1; // of the arenas that are drawn
  double seconds = 0;
};

double cpuSeconds() { return double(std::clock()) / CLOCKS_PER_SEC; }
double wallSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

struct Known {
  double cost;
  std::string method;
};
using Table = std::map<std::pair<std::string, int64_t>, Known>;

Table readTable(const std::string &path) {
  Table table;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string graph, method;
    int64_t budget;
    double cost;
    if (line[0] != '#' && words >> graph >> budget >> cost && std::getline(words >> std::ws, method))
      table[{graph, budget}] = {cost, method};
  }
  return table;
}

void writeTable(const std::string &path, const Table &table) {
  std::ofstream file(path);
  file << "# graph budget cost method: the cheapest schedule ever found, by any method\n";
  for (auto &[key, known] : table)
    file << key.first << " " << key.second << " " << int64_t(known.cost) << " " << known.method << "\n";
}

// Ratios of many graphs.
struct Ratios {
  double logBest = 0, logBound = 0, worstBest = 1, worstBound = 1, slowest = 0;
  int found = 0, impossible = 0, total = 0;
};

// One graph at one budget: a line of the table. Returns the seconds it took by the clock.
double solveOne(const Options &o, Table &table, const Dag &d, const std::string &name, const std::string &label,
                int64_t budget, int64_t keepAll, Ratios &r) {
  DagLimits limits;
  if (o.work > 0)
    limits.work = o.work;
  else if (o.quick)
    limits.work = 200'000'000;
  if (o.seconds > 0)
    limits.seconds = o.seconds, limits.work = INT64_MAX / 4;
  double begin = cpuSeconds(), wall = wallSeconds();
  DagSolution s = solve(d, Order::Free, budget, limits);
  double took = cpuSeconds() - begin, base = detail::totalCost(d);
  wall = wallSeconds() - wall;
  r.slowest = std::max(r.slowest, wall);
  ++r.total;
  auto known = table.find({name, budget});
  bool has = s.status == DagSolution::Optimal || s.status == DagSolution::Feasible;
  if (has) {
    std::string wrong = verify(d, Order::Free, budget, withFrees(d, s.runs), s.cost);
    if (!wrong.empty()) {
      std::printf("WRONG %s: %s\n", label.c_str(), wrong.c_str());
      return wall;
    }
    if (!o.record.empty() && (known == table.end() || s.cost.cost < known->second.cost)) {
      table[{name, budget}] = {s.cost.cost, o.record};
      known = table.find({name, budget});
      writeTable(o.best, table);
    }
  }
  static const char *status[] = {"optimal", "feasible", "infeasible", "unknown"};
  double best = known != table.end() ? std::min(known->second.cost, has ? s.cost.cost : 1e300) : s.cost.cost;
  std::printf("%-18s %5d %6.3f %12lld %9.4f %9.4f %9.4f %9.4f %8.1f %8.1f %s\n", label.c_str(), d.size(),
              double(budget) / double(keepAll), (long long)budget, has ? s.cost.cost / base : 0, s.bound / base,
              has ? s.cost.cost / s.bound : 0, has ? s.cost.cost / best : 0, took, wall, status[s.status]);
  std::fflush(stdout);
  if (!has) {
    r.impossible += known == table.end();
    return wall;
  }
  ++r.found;
  r.logBest += std::log(s.cost.cost / best), r.logBound += std::log(s.cost.cost / s.bound);
  r.worstBest = std::max(r.worstBest, s.cost.cost / best);
  r.worstBound = std::max(r.worstBound, s.cost.cost / s.bound);
  return wall;
}

// The budgets of a graph: five from 0.9 of the keep-all peak down to 1.05 of what any schedule needs, or one if these cross.
std::vector<int64_t> budgetsOf(const Dag &d, int64_t keepAll) {
  double high = 0.9 * double(keepAll), low = 1.05 * double(detail::memoryBound(d));
  int steps = low < high ? 5 : 1;
  high = std::max(high, low);
  std::vector<int64_t> budgets;
  for (int k = 0; k < steps; ++k)
    budgets.push_back(int64_t(high * std::pow(low / high, double(k) / std::max(steps - 1, 1))));
  return budgets;
}

int64_t keepAllPeak(const Dag &d) {
  Runs all;
  for (int v = 0; v < d.size(); ++v)
    all.push_back(v);
  return simulate(d, all).peak;
}

// One graph at those of its budgets that are `chosen`. Returns the most seconds one took by the clock.
double solveGraph(const Options &o, Table &table, const std::string &family, int size, const std::vector<int> &chosen,
                  Ratios &r) {
  Dag d = trainingDag(family, size);
  std::string name = family + std::to_string(size);
  int64_t keepAll = keepAllPeak(d);
  double slowest = 0;
  std::vector<int64_t> budgets = budgetsOf(d, keepAll);
  for (int k : chosen) {
    std::string label = name + "/" + std::to_string(k);
    if (k < int(budgets.size()) && (o.only.empty() || label.find(o.only) != std::string::npos))
      slowest = std::max(slowest, solveOne(o, table, d, name, label, budgets[k], keepAll, r));
  }
  return slowest;
}

const std::vector<const char *> kFamilies = {"chain", "unet", "transformer", "dense", "residual"};

void benchRemat(const Options &o) {
  Table table = readTable(o.best);
  std::printf("%-18s %5s %6s %12s %9s %9s %9s %9s %8s %8s %s\n", "graph", "nodes", "budget", "bytes", "cost/base",
              "bound", "c/bound", "c/best", "cpu s", "wall s", "status");
  Ratios r, large;
  for (const char *family : kFamilies)
    for (int size : o.quick ? std::vector<int>{50, 100} : std::vector<int>{50, 100, 200, 400})
      solveGraph(o, table, family, size, {0, 1, 2, 3, 4}, r);
  double thousand = 0, tenThousand = 0;
  if (!o.quick) {
    for (const char *family : {"chain", "transformer", "residual"})
      thousand = std::max(thousand, solveGraph(o, table, family, 1000, {1, 3}, large));
    tenThousand = solveGraph(o, table, "transformer", 10000, {1, 3}, large);
  }
  if (r.total) {
    std::printf("found %d of %d; none is known for %d of the others\n", r.found, r.total, r.impossible);
    std::printf("RESULT solve.remat.best_ratio %.4f\nRESULT solve.remat.bound_ratio %.4f\n",
                std::exp(r.logBest / std::max(r.found, 1)), std::exp(r.logBound / std::max(r.found, 1)));
    std::printf("RESULT solve.remat.worst_best_ratio %.4f\nRESULT solve.remat.worst_bound_ratio %.4f\n", r.worstBest,
                r.worstBound);
    std::printf("RESULT solve.remat.found %.4f\nRESULT solve.remat.slowest %.1f\n",
                double(r.found) / std::max(r.total - r.impossible, 1), r.slowest);
  }
  if (thousand > 0)
    std::printf("RESULT solve.remat.nodes_1000.seconds %.1f\n", thousand);
  if (tenThousand > 0)
    std::printf("RESULT solve.remat.nodes_10000.seconds %.1f\n", tenThousand);
  if (large.total)
    std::printf("RESULT solve.remat.large.found %.4f\nRESULT solve.remat.large.bound_ratio %.4f\n",
                double(large.found) / large.total, std::exp(large.logBound / std::max(large.found, 1)));
}

// What one method is worth: the mean of many problems, and the one at which it is missed most.
struct Worth {
  double logCost = 0, worstCost = 1, logBound = 0, worstBound = 1;
  std::string worstCostAt = "-", worstBoundAt = "-";
  int both = 0, total = 0, lost = 0, unproved = 0; // lost: no schedule is found; unproved: optimal, but not known to be any longer

  void add(const std::string &label, const DagSolution &with, const DagSolution &without) {
    auto found = [](const DagSolution &s) { return s.status == DagSolution::Optimal || s.status == DagSolution::Feasible; };
    ++total;
    lost += found(with) && !found(without);
    unproved += with.status == DagSolution::Optimal && without.status != DagSolution::Optimal;
    double bound = with.bound / without.bound;
    logBound += std::log(bound);
    if (bound > worstBound)
      worstBound = bound, worstBoundAt = label;
    if (!found(with) || !found(without))
      return;
    ++both;
    double cost = without.cost.cost / with.cost.cost;
    logCost += std::log(cost);
    if (cost > worstCost)
      worstCost = cost, worstCostAt = label;
  }
};

// Graphs at their budgets, all methods beside all but one. Less work than the command has: this is many problems for every method.
int benchWithout(const Options &o) {
  std::map<std::string, Worth> worth;
  std::vector<DagPart> parts;
  for (size_t i = 0; i < std::size(kDagParts); ++i)
    if (o.without == "all" || ("," + o.without + ",").find("," + std::string(kDagParts[i]) + ",") != std::string::npos)
      parts.push_back(DagPart(i));
  if (parts.empty()) {
    std::fprintf(stderr, "--without takes some of");
    for (const char *part : kDagParts)
      std::fprintf(stderr, " %s", part);
    return std::fprintf(stderr, ", separated by commas, or all\n"), 2;
  }
  DagLimits limits;
  limits.work = o.work > 0 ? o.work : 400'000'000;
  for (const char *family : kFamilies)
    for (int size : o.quick ? std::vector<int>{50} : std::vector<int>{50, 100, 200}) {
      Dag d = trainingDag(family, size);
      std::vector<int64_t> budgets = budgetsOf(d, keepAllPeak(d));
      for (size_t k = 0; k < budgets.size(); ++k) {
        std::string label = family + std::to_string(size) + "/" + std::to_string(k);
        if (!o.only.empty() && label.find(o.only) == std::string::npos)
          continue;
        limits.without.reset();
        DagSolution all = solve(d, Order::Free, budgets[k], limits);
        for (DagPart part : parts) {
          limits.without = part;
          worth[kDagParts[int(part)]].add(label, all, solve(d, Order::Free, budgets[k], limits));
        }
        std::fprintf(stderr, "%s\n", label.c_str());
      }
    }
  std::printf("%-10s %9s %9s %-18s %9s %9s %-18s %6s %9s\n", "without", "cost", "worst", "at", "bound", "worst", "at", "lost", "unproved");
  std::string results;
  for (auto &[part, w] : worth) {
    double cost = std::exp(w.logCost / std::max(w.both, 1)), bound = std::exp(w.logBound / std::max(w.total, 1));
    std::printf("%-10s %9.4f %9.4f %-18s %9.4f %9.4f %-18s %6d %9d\n", part.c_str(), cost, w.worstCost, w.worstCostAt.c_str(), bound,
                w.worstBound, w.worstBoundAt.c_str(), w.lost, w.unproved);
    char line[200];
    std::snprintf(line, sizeof line, "RESULT solve.without.%s.cost %.5f\nRESULT solve.without.%s.bound %.5f\nRESULT solve.without.%s.lost %d\n",
                  part.c_str(), cost, part.c_str(), bound, part.c_str(), w.lost);
    results += line;
  }
  std::printf("%s", results.c_str());
  return 0;
}

// Perfect arenas of one kind: how many are packed without a gap, at worst how high, and how long the slowest took.
struct ArenaTally {
  int found = 0, total = 0;
  double worst = 1, slowest = 0;
  void add(const ArenaTally &o) {
    found += o.found, total += o.total, worst = std::max(worst, o.worst), slowest = std::max(slowest, o.slowest);
  }
  void print(const std::string &name) const {
    std::printf("RESULT solve.%s.found %.4f\nRESULT solve.%s.worst %.4f\nRESULT solve.%s.slowest %.2f\n", name.c_str(),
                double(found) / std::max(total, 1), name.c_str(), worst, name.c_str(), slowest);
  }
};

template <class Next> ArenaTally packPerfect(const Options &o, const std::string &label, int count, int64_t work, Next next) {
  ArenaTally tally;
  if (!o.only.empty() && label.find(o.only) == std::string::npos)
    return tally;
  for (int k = 0; k < count; ++k) {
    ArenaProblem p = next();
    ArenaLimits limits;
    limits.work = o.work > 0 ? o.work : work;
    limits.seconds = o.seconds;
    double begin = cpuSeconds();
    ArenaSolution s = solve(p, limits);
    tally.slowest = std::max(tally.slowest, cpuSeconds() - begin);
    ++tally.total;
    if (std::string wrong = verify(p, s); !wrong.empty()) {
      std::printf("WRONG %s: %s\n", label.c_str(), wrong.c_str());
      continue;
    }
    int64_t perfect = lowerBound(p);
    tally.found += s.height == perfect;
    tally.worst = std::max(tally.worst, double(s.height) / double(perfect));
  }
  std::printf("%-24s %8d %8d %8.4f %8.2f\n", label.c_str(), tally.found, count, tally.worst, tally.slowest);
  std::fflush(stdout);
  return tally;
}

void benchArena(const Options &o) {
  std::printf("%-24s %8s %8s %8s %8s\n", "perfect arenas", "found", "of", "worst", "cpu s");
  ArenaTally all;
  for (int buffers : {150, 250, 350, 450})
    for (int64_t ticks : {20, 30, 40, 100, 300, 1000}) {
      PerfectArenas make(uint64_t(buffers * 10007 + ticks));
      all.add(packPerfect(o, std::to_string(buffers) + "x" + std::to_string(ticks), o.quick ? 2 : 8, 2'500'000'000,
                          [&] { return make.next(buffers, ticks, 1 << 20); }));
    }
  if (all.total)
    all.print("arena");
  // Drawn from the seed, with the work of the command: nothing was tuned on them while the seed is a new one.
  ArenaTally drawn;
  for (int pinwheels : {0, 40})
    for (int buffers : {100, 150, 200, 250})
      for (int64_t ticks : {25, 50, 100, 200}) {
        PerfectArenas make(uint64_t(o.seed * 1000003 + buffers * 10007 + ticks * 17 + pinwheels));
        for (int warm = 0; warm < 8; ++warm)
          make.below(2);
        drawn.add(packPerfect(o, std::string(pinwheels ? "pinwheels " : "drawn ") + std::to_string(buffers) + "x" + std::to_string(ticks),
                              o.quick ? 1 : 4, kArenaCommandWork, [&] { return make.next(buffers, ticks, 1 << 20, 0, pinwheels); }));
      }
  if (drawn.total)
    drawn.print("drawn_arena");
}

} // namespace

int main(int argc, char **argv) {
  Options o;
  for (int i = 1; i < argc; ++i) {
    std::string flag = argv[i];
    auto value = [&] { return i + 1 < argc ? argv[++i] : ""; };
    if (flag == "--quick")
      o.quick = true;
    else if (flag == "--only")
      o.only = value();
    else if (flag == "--arena")
      o.remat = false;
    else if (flag == "--remat")
      o.arena = false;
    else if (flag == "--work")
      o.work = std::atoll(value());
    else if (flag == "--seconds")
      o.seconds = std::atof(value());
    else if (flag == "--seed")
      o.seed = std::atoll(value());
    else if (flag == "--without")
      o.without = value();
    else if (flag == "--best")
      o.best = value();
    else if (flag == "--record")
      o.record = value();
    else
      return std::fprintf(stderr, "unknown flag %s\n", argv[i]), 2;
  }
  if (!o.without.empty())
    return benchWithout(o);
  if (o.remat)
    benchRemat(o);
  if (o.arena)
    benchArena(o);
  return 0;
}
