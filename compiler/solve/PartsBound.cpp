// PartsBound.cpp: where the kernels of a loop body in parts may run, and what must be repeated behind each border of two parts.
#include "compiler/solve/PartsBound.h"
#include "compiler/solve/Timeline.h"
#include "compiler/solve/dag/DagFlow.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve {
namespace {

constexpr int kDoublings = 16; // of the price on bytes
constexpr int kHalvings = 24;  // of the interval in which the best price lies
constexpr double kEndless = 1e290;

class Body {
public:
  Body(const GraphIndex &index, int64_t b) : index(index), g(index.graph), b(b), earliest(g.kernels.size(), 0) {
    for (int k : index.loop) {
      for (int r : g.kernels[k].reads)
        if (int producer = madeInLoop(r); producer >= 0)
          earliest[k] = std::max(earliest[k], earliest[producer]);
      if (g.kernels[k].newPart)
        earliest[k] = ++last;
    }
    latest.assign(g.kernels.size(), last);
    for (size_t i = index.loop.size(); i-- > 0;) {
      int k = index.loop[i];
      for (int w : g.kernels[k].writes)
        for (int reader : index.values[w] ? index.readers[w] : std::vector<int>())
          if (g.inMainLoop(reader))
            latest[k] = std::min(latest[k], latest[reader] - int(g.kernels[reader].newPart));
      if (g.kernels[k].newPart)
        latest[k] = earliest[k];
    }
  }

  int parts() const { return last + 1; }

  std::vector<PartWork> once() const {
    std::vector<PartWork> work;
    for (int k : index.loop)
      work.push_back({g.kernels[k].seconds.at(double(b)), earliest[k], latest[k]});
    return work;
  }

  // Seconds that are repeated behind part p, at least.
  double repeatedBehind(int p, int64_t arenaBytes) {
    border = p;
    int64_t left = arenaBytes - mostBeside();
    for (size_t v = 0; v < g.buffers.size(); ++v)
      if (index.livesThroughLoop(int(v), b))
        left -= g.buffers[v].bytes(b);
    double costScale = 1e-300, byteScale = 1; // numbers near 1
    for (int k : index.loop)
      costScale = std::max(costScale, g.kernels[k].seconds.at(double(b)));
    for (const Buffer &buffer : g.buffers)
      byteScale = std::max(byteScale, double(buffer.bytes(b)));
    double room = double(left) / byteScale, best = 0, low = 0, high = 1e-3, bytes = 0;
    auto look = [&](double price) {
      best = std::max(best, (cut(price, costScale, byteScale, bytes) - price * room) * costScale);
      return bytes > room;
    };
    for (int i = 0; i < kDoublings && look(high); ++i)
      low = high, high *= 4;
    for (int i = 0; i < kHalvings; ++i) {
      double middle = low == 0 ? high / 4 : std::sqrt(low * high);
      (look(middle) ? low : high) = middle;
    }
    return std::max(0.0, best * (1 - 1e-9) - 1e-8 * costScale);
  }

  // What cannot wait at the border behind part p: values whose places leave too little room to some kernel of the body, all through the
  // loop. Such a value is computed again behind the border before anything reads it there, and so is what that reads, unless it can wait:
  // then it counts as if it were there, for no bytes.
  struct Apart {
    int border = -1;
    std::vector<char> gone, twin; // values; kernels that certainly run once more behind the border
    double seconds = 0;           // of those
  };
  Apart apartAt(int p, int64_t room) {
    border = p;
    Apart apart{p, std::vector<char>(g.buffers.size(), 0), std::vector<char>(g.kernels.size(), 0)};
    for (size_t v = 0; v < g.buffers.size(); ++v)
      apart.gone[v] = mayWait(int(v)) && index.mayRecompute[madeInLoop(int(v))] && !hasPlacesBeside(int(v), room);
    for (size_t i = index.loop.size(); i-- > 0;)
      if (int k = index.loop[i]; earliest[k] > border || apart.twin[k])
        for (int r : g.kernels[k].reads)
          if (apart.gone[r] && !apart.twin[madeInLoop(r)])
            apart.twin[madeInLoop(r)] = 1, apart.seconds += g.kernels[madeInLoop(r)].seconds.at(double(b));
    return apart;
  }

  // The graph of the loop with a twin behind the border of each such kernel, in its place to all that certainly runs there. What else of
  // the first parts is read behind it is there for nothing; what may run on either side reads neither.
  Dag withTwins(const Dag &dag, const Apart &apart) {
    border = apart.border;
    Dag result;
    std::vector<int> ofBuffer(g.buffers.size(), -1), twinOf = ofBuffer, nodeOf(g.kernels.size(), -1); // the latter in `dag`
    int next = 0, mark = -1; // of `dag`; the node at which what lies behind the border begins
    auto add = [&](int k, bool twin) {
      std::vector<int> written, sources;
      for (int w : g.kernels[k].writes)
        if (index.values[w])
          written.push_back(w);
      for (int r : g.kernels[k].reads) {
        bool behind = twin || earliest[k] > border, either = !behind && latest[k] > border;
        int from = !mayWait(r) ? ofBuffer[r] : behind ? (apart.gone[r] ? twinOf[r] : -1) : either ? -1 : ofBuffer[r];
        if (from >= 0)
          sources.push_back(from);
      }
      size_t count = std::max<size_t>(1, written.size());
      if (!twin)
        nodeOf[k] = next, next += int(count);
      for (size_t i = 0; i < count; ++i) {
        Dag::Node node = dag.nodes[size_t(nodeOf[k]) + i];
        node.id = result.size(), node.sources = sources, node.users.clear();
        if (twin) {
          node.kernel += node.kernel < 0 ? 0 : int(g.kernels.size());
          node.earlier = {mark}, result.nodes[size_t(mark)].later.push_back(result.size());
        }
        for (int s : sources)
          result.nodes[size_t(s)].users.push_back(result.size());
        if (!written.empty())
          (twin ? twinOf : ofBuffer)[size_t(written[i])] = result.size();
        result.nodes.push_back(std::move(node));
      }
    };
    for (int k : index.loop) {
      add(k, false);
      if (!g.kernels[k].newPart || earliest[k] != border + 1)
        continue;
      mark = result.size() - 1;
      for (int other : index.loop)
        if (apart.twin[other])
          add(other, true);
    }
    return result;
  }

private:
  // Is there room for all places of a value beside every kernel of the body? Where it is an operand it lies in one of them.
  bool hasPlacesBeside(int v, int64_t room) const {
    int64_t bytes = g.buffers[size_t(v)].bytes(b), places = copiesOf(madeInLoop(v)) * bytes;
    return std::all_of(index.loop.begin(), index.loop.end(), [&](int k) {
      int64_t beside = g.scratchBytes(g.kernels[k], b) - takenOver(index, g.kernels[k], b);
      for (auto *list : {&g.kernels[k].reads, &g.kernels[k].writes})
        for (int other : *list)
          beside += madeInLoop(other) >= 0 && other != v ? g.buffers[size_t(other)].bytes(b) : 0;
      return beside + places <= room;
    });
  }

  // The kernel that makes a value of the main loop; -1: it comes from elsewhere.
  int madeInLoop(int buffer) const {
    int producer = g.buffers[buffer].producer;
    return index.values[buffer] && producer >= 0 && g.inMainLoop(producer) ? producer : -1;
  }
  bool mayWait(int buffer) const {
    int producer = madeInLoop(buffer);
    return producer >= 0 && latest[producer] <= border;
  }

  // The most that a kernel of the body needs beside what waits at the border.
  int64_t mostBeside() const {
    int64_t most = 0;
    for (int k : index.loop) {
      int64_t bytes = g.scratchBytes(g.kernels[k], b) - takenOver(index, g.kernels[k], b);
      for (auto *list : {&g.kernels[k].reads, &g.kernels[k].writes})
        for (int v : *list)
          if (madeInLoop(v) >= 0 && !mayWait(v))
            bytes += g.buffers[v].bytes(b);
      most = std::max(most, bytes);
    }
    return most;
  }

  // Places of a value that waits at the border: as many as of any two parts on both sides of it that see each other.
  int64_t copiesOf(int kernel) const {
    int64_t copies = INT64_MAX;
    for (int from = earliest[kernel]; from <= border; ++from)
      for (int to = border + 1; to <= last; ++to)
        if (index.sees(from, to))
          copies = std::min(copies, index.copies.empty() ? 1 : index.copies[size_t(from)][size_t(to)]);
    return copies == INT64_MAX ? 1 : copies;
  }

  // At a price: which kernels run again behind the border, and which values wait there. `bytes`: of those that wait.
  double cut(double price, double costScale, double byteScale, double &bytes) {
    // A node for each value (it must be there behind the border), then one for each kernel (it runs again). The source's side means yes.
    int values = int(g.buffers.size()), source = values + int(g.kernels.size()), sink = source + 1;
    flow.reset(sink + 1);
    for (int k : index.loop) {
      if (latest[k] > border)
        continue;
      double places = double(copiesOf(k));
      for (int w : g.kernels[k].writes) {
        if (!index.values[w])
          continue;
        double waits = price * places * double(g.buffers[w].bytes(b)) / byteScale;
        flow.add(w, index.mayRecompute[k] ? values + k : sink, waits);
        if (readBehind(w))
          flow.add(source, w, kEndless);
      }
      if (!index.mayRecompute[k])
        continue;
      flow.add(values + k, sink, g.kernels[k].seconds.at(double(b)) / costScale);
      for (int r : g.kernels[k].reads)
        if (mayWait(r))
          flow.add(values + k, r, kEndless);
    }
    int64_t work = 0;
    double total = flow.run(source, sink, work);
    bytes = 0;
    for (int k : index.loop)
      for (int w : g.kernels[k].writes)
        if (latest[k] <= border && index.values[w] && flow.reached(w) && !flow.reached(values + k))
          bytes += double(copiesOf(k)) * double(g.buffers[w].bytes(b)) / byteScale;
    return total;
  }

  bool readBehind(int buffer) const {
    return std::any_of(index.readers[buffer].begin(), index.readers[buffer].end(),
                       [&](int k) { return g.inMainLoop(k) && earliest[k] > border; });
  }

  const GraphIndex &index;
  const StepGraph &g;
  int64_t b;
  int last = 0, border = 0;            // parts: the last one; the one before the border
  std::vector<int> earliest, latest;   // of kernels: parts in which they may run first
  detail::Flow flow;
};

// Seconds that are repeated in the body as a whole. Half of the work goes to the border behind which most is certainly repeated, for what
// is repeated beside that.
double repeatedInBody(Body &body, const LoopDag &loop, double target, DagLimits limits, bool nothingWaits) {
  Body::Apart most;
  for (int p = 0; p + 1 < body.parts() && !nothingWaits; ++p)
    if (Body::Apart apart = body.apartAt(p, loop.room); apart.seconds > most.seconds)
      most = std::move(apart);
  double again = most.seconds;
  if (again > 0 && again < target) {
    limits.work /= 2;
    again += detail::repetitionBound(body.withTwins(loop.dag, most), Order::Free, loop.room, target - again, limits);
  }
  if (again < target - limits.near)
    again = std::max(again, detail::repetitionBound(loop.dag, Order::Free, loop.room, target, limits));
  return again;
}

} // namespace

PartsBound partsBound(const StepGraph &g, int64_t b, std::optional<int64_t> arenaBytes, double known, const DagLimits &limits) {
  PartsBound result;
  GraphIndex index(g);
  Body body(index, b);
  result.work = body.once();
  double plain = 0;
  for (const PartWork &work : result.work)
    plain += work.seconds;
  result.seconds = plain;
  if (arenaBytes && known > plain) {
    // What is repeated in the parts behind a border is repeated in those behind the borders before it, too.
    LoopDag loop = loopDag(g, b, *arenaBytes);
    double proven = 0;
    for (int p = body.parts() - 2; p >= -1; --p) {
      double again = 0;
      if (p >= 0 && !index.copies.empty())
        again = std::max(body.repeatedBehind(p, *arenaBytes), body.apartAt(p, loop.room).seconds);
      if (p < 0)
        again = repeatedInBody(body, loop, known - plain, nearTo(known, limits), index.copies.empty());
      if (again > proven)
        result.work.push_back({again - proven, p + 1, body.parts() - 1}), proven = again;
    }
    result.seconds += proven;
  }
  constexpr double kRounding = 1e-9; // the same costs are added up in other orders
  if (result.seconds > known * (1 + kRounding) + 1e-15)
    result.fault = "a plan of " + std::to_string(known) + " s a micro-batch is known, and none below " + std::to_string(result.seconds) +
                   " s was proven to exist";
  return result;
}

} // namespace cinch::solve
