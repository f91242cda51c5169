// RematChain.cpp: dynamic programming over the units of the forward sweep (rotor: Beaumont, Eyraud-Dubois, Herrmann,
// Joly, Shilova 2019, with several ways to keep a unit as in Rockmate).
//
// opt(a, b, m): least time to go forward and backward through units a..b, given the input of a, with m bytes to
// spend. Either unit a keeps what one of its options says and the rest follows, or the sweep runs on to the input of
// unit j keeping that alone, finishes j..b, and then does a..j-1 again from the input of a:
//
//     opt(a, b, m) = min over options k   f(a) + r(a, k) + opt(a + 1, b, m - s(a, k))
//                    min over j in (a, b] f(a) + .. + f(j - 1) + opt(j, b, m - c(j)) + opt(a, j - 1, m)
//
// f: one forward run of a unit; r: what repeating the rest of it costs; s: bytes kept, c: bytes that cross into unit
// j. In levels (Remat.h) j is a cut; the right part goes on at the same level, since it is swept in the same run, the
// left part one deeper. Bytes are counted in slots, rounded up, and the exact timeline of what comes out decides
// whether it fits.
#include "compiler/solve/Remat.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace cinch::solve {
namespace {

struct ChainLimits {
  size_t units = 96; // the table grows with their cube; more are taken together evenly
  int slots = 200;   // of memory, rounded up for each unit: a hundred units lose half of them at worst; the table grows with them
  // Budgets up to these shares of what keeping everything takes: the smaller ones in finer slots, where every slot counts.
  double tops[3] = {1.0, 0.35, 0.12};
};
constexpr ChainLimits kLimits;

struct Option {
  double bytes = 0, repeat = 0; // kept bytes, seconds repeated in the backward sweep
  std::vector<int> keep;
};

struct Unit {
  int from = 0, to = 0; // forward positions
  double seconds = 0, crossing = 0, inside = 0, transient = 0, backward = 0;
  std::vector<Option> options;
};

class ChainProgram {
public:
  ChainProgram(const Sweep &sweep, int64_t microbatch, const std::vector<std::vector<int>> &orders)
      : sweep(sweep), g(sweep.index.graph), b(microbatch) {
    std::vector<int> cuts = sweep.units;
    size_t most = kLimits.units;
    if (cuts.size() + 1 > most) {
      std::vector<int> fewer;
      for (size_t i = 1; i < most; ++i)
        fewer.push_back(cuts[i * cuts.size() / most]);
      fewer.erase(std::unique(fewer.begin(), fewer.end()), fewer.end());
      cuts = fewer;
    }
    unitOf.resize(sweep.turn);
    for (size_t i = 0; i <= cuts.size(); ++i) {
      Unit u;
      u.from = i ? cuts[i - 1] : 0, u.to = i < cuts.size() ? cuts[i] : sweep.turn;
      if (u.from == u.to)
        continue;
      for (int p = u.from; p < u.to; ++p)
        unitOf[p] = int(units.size());
      units.push_back(u);
    }
    measure(orders);
  }

  // Fills the table for budgets up to `top` bytes.
  void solve(double top) {
    n = int(units.size());
    slot = std::max(top / (kSlots - 1), 1.0);
    table.assign(size_t(n) * n * kSlots, Cell{});
    std::vector<double> prefix(n + 1, 0);
    for (int i = 0; i < n; ++i)
      prefix[i + 1] = prefix[i] + units[i].seconds;
    for (int length = 1; length <= n; ++length)
      for (int a = 0; a + length <= n; ++a) {
        int last = a + length - 1;
        Cell *row = &cell(a, last, 0);
        if (length == 1) {
          for (int m = slots(units[a].inside + units[a].backward); m < kSlots; ++m)
            row[m] = {float(units[a].seconds), -1};
          continue;
        }
        int pass = slots(units[a].transient);
        for (int k = 0; k < int(units[a].options.size()); ++k) {
          const Option &o = units[a].options[k];
          int kept = slots(o.bytes + units[a + 1].crossing);
          int least = std::max(pass, slots(units[a].inside + units[a].backward));
          const Cell *rest = &cell(a + 1, last, 0);
          float add = float(units[a].seconds + o.repeat);
          for (int m = std::max(kept, least); m < kSlots; ++m)
            if (rest[m - kept].cost + add < row[m].cost)
              row[m] = {rest[m - kept].cost + add, short(-2 - k)};
        }
        for (int j = a + 1; j <= last; ++j) {
          pass = std::max(pass, slots(units[j - 1].transient));
          int kept = slots(units[j].crossing);
          float add = float(prefix[j] - prefix[a]);
          const Cell *right = &cell(j, last, 0), *left = &cell(a, j - 1, 0);
          for (int m = std::max(kept, pass); m < kSlots; ++m) {
            float cost = right[m - kept].cost + left[m].cost + add;
            if (cost < row[m].cost)
              row[m] = {cost, short(j)};
          }
        }
      }
  }

  // The policy for `share` of the largest budget; false if the table has none.
  bool policy(double share, Policy &p) {
    int m = std::min(kSlots - 1, int(share * (kSlots - 1)));
    if (!n || !(cell(0, n - 1, m).cost < 1e30f))
      return false;
    p.level.assign(g.buffers.size(), -1);
    emit(0, n - 1, m, 0, p);
    return true;
  }

  double mostBytes() const {
    double sum = 0, extra = 0;
    for (const Unit &u : units) {
      sum += u.crossing + (u.options.empty() ? u.inside : u.options.back().bytes);
      extra = std::max(extra, u.inside + u.backward + u.transient);
    }
    return sum + extra;
  }

private:
  static constexpr int kSlots = kLimits.slots;
  struct Cell {
    float cost = std::numeric_limits<float>::infinity();
    short choice = 0; // -1: a single unit; -2 - k: option k; else j
  };
  Cell &cell(int a, int last, int m) { return table[(size_t(a) * n + last) * kSlots + m]; }
  int slots(double bytes) const { return bytes <= 0 ? 0 : int(std::min(double(kSlots), std::ceil(bytes / slot))); }

  void emit(int a, int last, int m, int level, Policy &p) {
    for (;;) {
      short choice = cell(a, last, m).choice;
      if (choice == -1)
        return;
      if (choice <= -2) {
        const Option &o = units[a].options[-2 - choice];
        for (int v : o.keep)
          p.level[v] = level;
        p.cuts.push_back({units[a + 1].from, level});
        m -= slots(o.bytes + units[a + 1].crossing);
        ++a;
        continue;
      }
      int j = choice;
      p.cuts.push_back({units[j].from, level});
      emit(a, j - 1, m, level + 1, p);
      m -= slots(units[j].crossing);
      a = j;
    }
  }

  void measure(const std::vector<std::vector<int>> &orders) {
    // Kept inside a unit: what the backward sweep reads and does not cross its end anyway.
    std::vector<char> crosses(g.buffers.size(), 0);
    for (size_t v = 0; v < g.buffers.size(); ++v) {
      if (!sweep.forward[v])
        continue;
      int from = sweep.position[g.buffers[v].producer], to = sweep.lastForward[v], home = unitOf[from];
      crosses[v] = unitOf[to] != home;
      double bytes = double(g.buffers[v].bytes(b));
      for (int u = home + 1; u <= unitOf[to]; ++u)
        units[u].crossing += bytes;
      if (sweep.saved[v] && !crosses[v])
        units[home].inside += bytes;
    }
    for (Unit &u : units)
      for (int p = u.from; p < u.to; ++p)
        u.seconds += g.kernels[sweep.index.loop[p]].seconds.at(b);
    // What the plain run holds besides: passing through a unit, and in its part of the backward sweep.
    Timeline line(sweep.index);
    if (!line.build(b, sweep.index.loop))
      return;
    std::vector<int64_t> live = line.profile(), savedAt(line.end + 1, 0);
    int64_t through = INT64_MAX;
    for (int t = line.loopBegin; t < line.loopEnd; ++t)
      through = std::min(through, live[t]);
    for (const Timeline::Life &life : line.instances)
      if (life.buffer >= 0 && sweep.forward[life.buffer] && sweep.saved[life.buffer]) {
        savedAt[life.lower] += g.buffers[life.buffer].bytes(b);
        savedAt[life.upper] -= g.buffers[life.buffer].bytes(b);
      }
    for (int t = 1; t <= line.end; ++t)
      savedAt[t] += savedAt[t - 1];
    int home = int(units.size()) - 1;
    for (int t = line.loopBegin; t < line.loopEnd; ++t) {
      int p = t - line.loopBegin;
      double besides = std::max(0.0, double(live[t] - savedAt[t] - through));
      if (p < sweep.turn) {
        // Everything inside the unit that is alive, saved or not.
        Unit &u = units[unitOf[p]];
        u.transient = std::max(u.transient, besides + u.inside);
        continue;
      }
      int at = -1;
      for (int r : g.kernels[sweep.index.loop[p]].reads)
        if (sweep.forward[r])
          at = std::max(at, unitOf[sweep.position[g.buffers[r].producer]]);
      if (at >= 0)
        home = at;
      units[home].backward = std::max(units[home].backward, besides);
    }
    // Options: prefixes of the orders in which values are worth keeping, priced exactly inside the unit.
    for (const std::vector<int> &order : orders) {
      std::vector<std::vector<int>> mine(units.size());
      for (int v : order)
        if (!crosses[v])
          mine[unitOf[sweep.position[g.buffers[v].producer]]].push_back(v);
      for (size_t u = 0; u < units.size(); ++u)
        for (size_t k = 0; k <= mine[u].size(); ++k)
          if (k == mine[u].size() || mine[u].size() <= 8 || k % (mine[u].size() / 8 + 1) == 0)
            addOption(units[u], std::vector<int>(mine[u].begin(), mine[u].begin() + k), crosses);
    }
    for (Unit &u : units) {
      std::vector<int> everything;
      for (int p = u.from; p < u.to; ++p)
        for (int w : g.kernels[sweep.index.loop[p]].writes)
          if (sweep.forward[w] && sweep.saved[w] && !crosses[w])
            everything.push_back(w);
      addOption(u, everything, crosses);
      // Only those that no other beats in bytes and time.
      std::stable_sort(u.options.begin(), u.options.end(), [](const Option &x, const Option &y) {
        return x.bytes != y.bytes ? x.bytes < y.bytes : x.repeat < y.repeat;
      });
      std::vector<Option> front;
      for (Option &o : u.options)
        if (front.empty() || o.repeat < front.back().repeat - 1e-15)
          front.push_back(std::move(o));
      u.options = std::move(front);
    }
  }

  void addOption(Unit &u, std::vector<int> keep, const std::vector<char> &crosses) {
    Option o;
    std::vector<char> kept(g.buffers.size(), 0), ran(g.kernels.size(), 0);
    for (int v : keep)
      kept[v] = 1, o.bytes += double(g.buffers[v].bytes(b));
    std::vector<int> stack;
    auto need = [&](int v) {
      if (!sweep.forward[v] || crosses[v] || kept[v])
        return;
      int k = g.buffers[v].producer;
      if (sweep.position[k] < u.from || ran[k])
        return;
      ran[k] = 1, o.repeat += g.kernels[k].seconds.at(b);
      stack.push_back(k);
    };
    for (int p = u.from; p < u.to; ++p)
      for (int w : g.kernels[sweep.index.loop[p]].writes)
        if (sweep.forward[w] && sweep.saved[w])
          need(w);
    while (!stack.empty()) {
      int k = stack.back();
      stack.pop_back();
      for (int r : g.kernels[k].reads)
        need(r);
    }
    o.keep = std::move(keep);
    u.options.push_back(std::move(o));
  }

  const Sweep &sweep;
  const StepGraph &g;
  int64_t b;
  std::vector<Unit> units;
  std::vector<int> unitOf;
  int n = 0;
  double slot = 1;
  std::vector<Cell> table;
};

} // namespace

std::vector<Policy> chainPolicies(const Sweep &sweep, int64_t microbatch, const std::vector<std::vector<int>> &orders,
                                  int count) {
  std::vector<Policy> result;
  if (sweep.turn == 0)
    return result;
  ChainProgram program(sweep, microbatch, orders);
  for (double top : kLimits.tops) {
    program.solve(program.mostBytes() * top);
    for (int i = 1; i <= count; ++i) {
      Policy p;
      if (program.policy(double(i) / count, p))
        result.push_back(std::move(p));
    }
  }
  return result;
}

} // namespace cinch::solve
