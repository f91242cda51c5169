// DagNestWays.cpp: everything one block of a training graph can do, by regression. A state is the set of values that
// must be held at a moment. Going back in time over the computation of v, the set loses v and gains its sources; no
// other value needs to be there, so frees are no decision at all. A value that is lost and gained again is computed
// twice. From the set that the block hands out, one search by rising cost finds for every set of forward values how
// dear and how large the backward part is when it starts from them: all pairs of peak and cost of which none is better
// in both. The forward part is searched the same way from what it must leave.
#include "compiler/solve/dag/DagNest.h"

#include <algorithm>
#include <cmath>
#include <queue>
#include <unordered_map>

namespace cinch::solve::detail {
namespace {

struct WayLimits {
  int labels = 200'000;        // of one search through a block: memory; most take some hundreds
  int forwardLabels = 5'000;   // of one that only goes forward: there are as many searches as sets that may be kept
  size_t options = 64;         // a block, the best of them: the lists across the blocks grow with it
  int prices = 16;             // on bytes, at which each block of a row chooses for itself
};
constexpr WayLimits kWays;

int lowest(uint64_t set) { return __builtin_ctzll(set); }
uint64_t bit(int v) { return uint64_t(1) << v; }

// What must be there in the end of what came in.
uint64_t stays(const Block &b, int keeps) { return keeps == 0 ? 0 : keeps == 1 ? b.passed : b.in; }

class Regression {
public:
  struct Label {
    uint64_t set;
    int64_t peak;
    double cost;
    int ceiling; // in order: backward nodes from here on have all been computed; else 0
    int parent, action;
  };

  Regression(const Block &b, bool inOrder, int64_t budget, int64_t &work)
      : b(b), inOrder(inOrder), budget(budget), work(work) {}

  // `firsts`: in order, these nodes are computed for the first time, in the order of their numbers; otherwise those
  // among them that nobody reads. `allowed`: nodes that may be computed. False if the search was cut off.
  bool run(uint64_t goal, uint64_t firsts, uint64_t allowed, int most, const Refetch *refetch = nullptr) {
    labels.clear(), best.clear(), closed.clear();
    queue = {};
    this->firsts = firsts;
    int ceiling = inOrder && firsts ? 64 - __builtin_clzll(firsts) : 0;
    add({inOrder ? goal : goal | (firsts & b.sinks), b.bytesOf(goal), 0, ceiling, -1, -1});
    while (!queue.empty()) {
      int at = queue.top().label;
      queue.pop();
      Label l = labels[at];
      int64_t &known = best[{l.set, l.ceiling}];
      if (l.peak >= known)
        continue; // a cheaper label with this set needs no more
      known = l.peak;
      closed.push_back(at);
      if (int(labels.size()) > most || (work -= 40) < 0)
        return false;
      if (refetch && (l.set & b.in)) {
        uint64_t before = l.set & ~b.in;
        int64_t peak = std::max(l.peak, b.bytesOf(before & ~waiting(before)) + refetch->peak);
        if (peak <= budget)
          add({before, peak, l.cost + refetch->cost, l.ceiling, at, -1});
      }
      if (inOrder && l.ceiling) {
        int first = 63 - __builtin_clzll(firsts & (bit(l.ceiling) - 1));
        uint64_t lower = firsts & (bit(first) - 1);
        step(at, l, first, lower ? 64 - __builtin_clzll(lower) : 0);
        for (uint64_t rest = l.set & allowed & ~firsts; rest; rest &= rest - 1)
          step(at, l, lowest(rest), l.ceiling);
        for (uint64_t rest = l.set & lower; rest; rest &= rest - 1)
          step(at, l, lowest(rest), l.ceiling);
      } else {
        for (uint64_t rest = l.set & allowed & ~(inOrder ? firsts : 0); rest; rest &= rest - 1)
          step(at, l, lowest(rest), 0);
      }
    }
    return true;
  }

  std::vector<int> path(int label) const {
    std::vector<int> result;
    for (; labels[label].parent >= 0; label = labels[label].parent)
      result.push_back(labels[label].action);
    return result;
  }

  std::vector<Label> labels;
  std::vector<int> closed;

private:
  struct Entry {
    double cost;
    int64_t peak;
    int label;
    bool operator<(const Entry &o) const {
      return cost != o.cost ? cost > o.cost : peak != o.peak ? peak > o.peak : label > o.label;
    }
  };
  struct Key {
    uint64_t set;
    int ceiling;
    bool operator==(const Key &o) const { return set == o.set && ceiling == o.ceiling; }
  };
  struct Hash {
    size_t operator()(const Key &k) const {
      uint64_t h = (k.set ^ uint64_t(k.ceiling) << 57) * 0x9e3779b97f4a7c15ull;
      return size_t(h ^ h >> 31);
    }
  };
  struct Least {
    int64_t value = INT64_MAX;
    operator int64_t &() { return value; }
  };

  void step(int from, const Label &l, int v, int ceiling) {
    uint64_t before = (l.set & ~bit(v)) | b.sources[v];
    int64_t use = b.bytesOf(before & ~waiting(before)) + b.bytes[v];
    int64_t peak = std::max(l.peak, use);
    if (peak <= budget)
      add({before, peak, l.cost + b.cost[v], ceiling, from, v});
  }
  // Sinks in a set are only those still to be computed: they hold nothing.
  uint64_t waiting(uint64_t set) const { return set & b.sinks; }

  void add(const Label &l) {
    auto it = best.find({l.set, l.ceiling});
    if (it != best.end() && l.peak >= it->second.value)
      return;
    labels.push_back(l);
    queue.push({l.cost, l.peak, int(labels.size()) - 1});
  }

  const Block &b;
  bool inOrder;
  int64_t budget;
  int64_t &work;
  uint64_t firsts = 0;
  std::unordered_map<Key, Least, Hash> best;
  std::priority_queue<Entry> queue;
};

// Options that none beats: in what follows the forward part first, then with it.
bool beats(const BlockOption &a, const BlockOption &c) {
  return a.beside <= c.beside && a.insideKeeps <= c.insideKeeps && a.forward.peak <= c.forward.peak &&
         a.backward.peak <= c.backward.peak && a.cost() <= c.cost();
}
void leaveUnbeaten(std::vector<BlockOption> &list, int64_t &work) {
  std::stable_sort(list.begin(), list.end(), [](const BlockOption &a, const BlockOption &c) {
    return a.cost() != c.cost() ? a.cost() < c.cost() : a.beside < c.beside;
  });
  std::vector<BlockOption> left;
  for (BlockOption &o : list)
    if (std::none_of(left.begin(), left.end(), [&](const BlockOption &k) { return beats(k, o); }))
      left.push_back(std::move(o));
  work -= int64_t(list.size()) * int64_t(left.size()) / 4;
  list = std::move(left);
}
// Too many: those that are alike go, the cheapest and the smallest stay.
void leaveSpread(std::vector<BlockOption> &list, size_t most) {
  if (list.size() <= most)
    return;
  std::vector<BlockOption> fewer;
  for (size_t i = 0; i < most; ++i)
    fewer.push_back(std::move(list[i * (list.size() - 1) / (most - 1)]));
  list = std::move(fewer);
}

class WaySearch {
public:
  WaySearch(const Block &b, bool inOrder, int64_t budget, int64_t &work)
      : b(b), work(work), hasInner(b.inner || b.innerIn || b.forward), search(b, inOrder, budget, work) {}

  BlockWays find() {
    BlockWays w;
    if (hasInner) {
      w.forward[0] = forwardTo(b.innerIn);
      if (w.forward[0].peak >= 0)
        w.forward[1] = forwardTo(b.innerIn | b.in);
      if (w.forward[0].peak < 0 || w.forward[1].peak < 0)
        w.forward[0].peak = w.forward[1].peak = -1;
    }
    for (int keeps = 0; keeps < 3; ++keeps) {
      uint64_t stay = stays(b, keeps);
      if (keeps && stay == stays(b, keeps - 1)) {
        w.alone[keeps] = w.alone[keeps - 1], w.options[keeps] = w.options[keeps - 1];
        continue;
      }
      searchBackward(stay, w.alone[keeps], w.options[keeps]);
      thin(w.alone[keeps]);
      if (hasInner)
        addForward(w.options[keeps]);
    }
    w.possible = !w.alone[0].empty();
    return w;
  }

private:
  // The forward part that leaves `goal`: the cheapest that fits; its peak is -1 if none does.
  const Passage &forwardTo(uint64_t goal) {
    auto [it, isNew] = known.try_emplace(goal);
    if (!isNew)
      return it->second;
    it->second.peak = -1;
    search.run(goal, b.forward, b.forward, kWays.forwardLabels);
    for (int at : search.closed)
      if (const Regression::Label &l = search.labels[at]; !(l.set & ~b.in) && !l.ceiling) {
        it->second = {l.peak, l.cost, search.path(at)};
        break;
      }
    return it->second;
  }
  // Backward parts from each set of forward values: of one set they come by rising cost and falling peak.
  void searchBackward(uint64_t stay, std::vector<Passage> &alone, std::vector<BlockOption> &options) {
    search.run(b.out | stay, b.backward, b.forward | b.backward, kWays.labels);
    for (int label : search.closed) {
      const Regression::Label &l = search.labels[label];
      if ((l.set & b.backward) || l.ceiling)
        continue;
      uint64_t kept = l.set & (b.in | b.forward);
      if (!(kept & b.forward))
        alone.push_back({l.peak, l.cost, search.path(label)});
      if (!hasInner)
        continue;
      BlockOption o;
      o.kept = kept | stay;
      o.beside = b.bytesOf(o.kept & ~b.innerIn);
      uint64_t inside = o.kept & b.innerIn;
      o.insideKeeps = !inside ? 0 : inside & b.forward ? 2 : 1;
      o.backward = {l.peak, l.cost, search.path(label)};
      options.push_back(std::move(o));
    }
  }
  // The best of the options whose forward part fits, too.
  void addForward(std::vector<BlockOption> &options) {
    leaveUnbeaten(options, work);
    std::vector<BlockOption> fit;
    for (BlockOption &o : options)
      if (o.forward = forwardTo(b.innerIn | o.kept); o.forward.peak >= 0)
        fit.push_back(std::move(o));
    leaveUnbeaten(fit, work);
    leaveSpread(fit, kWays.options);
    options = std::move(fit);
  }

  const Block &b;
  int64_t &work;
  bool hasInner;
  Regression search;
  std::unordered_map<uint64_t, Passage> known; // by what the forward part leaves
};

} // namespace

void thin(std::vector<Passage> &list, size_t most) {
  std::stable_sort(list.begin(), list.end(), [](const Passage &a, const Passage &c) {
    return a.peak != c.peak ? a.peak < c.peak : a.cost < c.cost;
  });
  std::vector<Passage> front;
  for (Passage &p : list)
    if (front.empty() || p.cost < front.back().cost)
      front.push_back(std::move(p));
  list.clear();
  size_t count = std::min(front.size(), most);
  for (size_t i = 0; i < count; ++i)
    list.push_back(std::move(front[count == front.size() ? i : i * (front.size() - 1) / (count - 1)]));
}

int64_t Block::bytesOf(uint64_t set) const {
  int64_t sum = 0;
  for (; set; set &= set - 1)
    sum += bytes[lowest(set)];
  return sum;
}

bool Block::sameAs(const Block &o) const {
  return values == o.values && bytes == o.bytes && cost == o.cost && sources == o.sources && in == o.in &&
         forward == o.forward && backward == o.backward && inner == o.inner && innerIn == o.innerIn && out == o.out &&
         passed == o.passed && sinks == o.sinks;
}

BlockWays waysOf(const Block &b, bool inOrder, int64_t budget, int64_t &work) {
  return WaySearch(b, inOrder, budget, work).find();
}

void addRefetching(BlockWays &w, const Block &b, bool inOrder, const Refetch &refetch, int64_t budget, int64_t &work) {
  Regression search(b, inOrder, budget, work);
  for (int keeps = 0; keeps < 3; ++keeps) {
    search.run(b.out | stays(b, keeps), b.backward, b.forward | b.backward, kWays.labels, &refetch);
    for (int label : search.closed)
      if (const auto &l = search.labels[label]; !(l.set & ~(b.in | b.inner)) && !l.ceiling)
        w.alone[keeps].push_back({l.peak, l.cost, search.path(label)});
    thin(w.alone[keeps]);
  }
  w.possible = !w.alone[0].empty();
}

BlockWays waysOfRow(const std::vector<const BlockWays *> &row, int64_t budget) {
  BlockWays w;
  auto append = [](std::vector<int> &to, const std::vector<int> &runs, int block) {
    for (int v : runs)
      to.push_back(v < 0 ? v - block : v + Passage::kBlock * block);
  };
  for (size_t i = 0; i < row.size(); ++i) {
    const Passage &step = row[i]->forward[0];
    w.forward[0].peak = std::max(w.forward[0].peak, step.peak), w.forward[0].cost += step.cost;
    append(w.forward[0].runs, step.runs, int(i));
  }
  // Each block keeps what is worth it at a price on bytes: no price, then from the dearest byte of any block down to
  // the cheapest.
  double high = 0, low = 1e300;
  for (const BlockWays *block : row)
    for (const BlockOption &a : block->options[0])
      for (const BlockOption &b : block->options[0])
        if (a.cost() < b.cost() && a.beside > b.beside) {
          double price = (b.cost() - a.cost()) / double(a.beside - b.beside);
          high = std::max(high, price), low = std::min(low, price);
        }
  for (int keeps = 0; keeps < 3; ++keeps)
    for (int k = 0; k <= kWays.prices; ++k) {
      double price = k == 0 || high <= 0 ? 0 : 0.9 * low * std::pow(1.2 * high / low, double(k - 1) / (kWays.prices - 1));
      BlockOption whole;
      std::vector<const BlockOption *> chosen;
      int inside = keeps;
      for (const BlockWays *block : row) {
        const BlockOption *best = nullptr;
        for (const BlockOption &o : block->options[inside])
          if (!best || o.cost() + price * double(o.beside) < best->cost() + price * double(best->beside))
            best = &o;
        if (!best)
          break;
        whole.forward.peak = std::max(whole.forward.peak, whole.beside + best->forward.peak);
        whole.backward.peak = std::max(whole.backward.peak, whole.beside + best->backward.peak);
        whole.forward.cost += best->forward.cost, whole.backward.cost += best->backward.cost;
        whole.beside += best->beside, whole.insideKeeps = inside = best->insideKeeps;
        chosen.push_back(best);
      }
      if (chosen.size() < row.size() || std::max(whole.forward.peak, whole.backward.peak) > budget)
        continue;
      for (size_t i = 0; i < chosen.size(); ++i)
        append(whole.forward.runs, chosen[i]->forward.runs, int(i));
      for (size_t i = chosen.size(); i-- > 0;)
        append(whole.backward.runs, chosen[i]->backward.runs, int(i));
      std::vector<BlockOption> &options = w.options[keeps];
      if (std::none_of(options.begin(), options.end(), [&](const BlockOption &o) {
            return o.cost() <= whole.cost() && o.beside <= whole.beside && o.forward.peak <= whole.forward.peak &&
                   o.backward.peak <= whole.backward.peak && o.insideKeeps <= whole.insideKeeps;
          }))
        options.push_back(std::move(whole));
    }
  return w;
}

} // namespace cinch::solve::detail
