// PlanChecker.cpp: symbolic execution of the graph and of the scheduled program, compared read by read.
#include "compiler/solve/CheckedPlan.h"

#include <algorithm>
#include <map>

namespace cinch::solve {

namespace {

using Symbol = uint64_t; // 0: nothing known is there

// Equal contents get equal symbols: hash-consing of (kernel, output, inputs, iteration where it matters).
class Symbols {
public:
  Symbol of(const std::vector<uint64_t> &key) {
    auto [it, fresh] = table.insert({key, table.size() + 1});
    return it->second;
  }

private:
  std::map<std::vector<uint64_t>, Symbol> table;
};

// Byte ranges and the symbols they hold.
class Memory {
public:
  void write(int64_t begin, int64_t end, Symbol symbol) {
    if (begin >= end)
      return;
    split(begin), split(end);
    ranges.erase(ranges.lower_bound(begin), ranges.lower_bound(end));
    ranges[begin] = {end, symbol};
  }
  // The symbol that all of the range holds as one written piece; 0 if it is not so.
  Symbol read(int64_t begin, int64_t end) const {
    auto it = ranges.find(begin);
    return it != ranges.end() && it->second.first == end ? it->second.second : 0;
  }

private:
  void split(int64_t at) {
    auto it = ranges.lower_bound(at);
    if (it == ranges.begin())
      return;
    --it;
    if (it->first < at && it->second.first > at) {
      // A piece of a value is no value: both parts lose their symbol.
      int64_t end = it->second.first;
      it->second = {at, 0};
      ranges[at] = {end, 0};
    }
  }
  std::map<int64_t, std::pair<int64_t, Symbol>> ranges;
};

// Runs the step as the graph lists it, then as the program says, and compares what every launch reads.
class SymbolicRun {
public:
  explicit SymbolicRun(const CheckedPlan &c) : c(c), g(c.g), p(c.p) {}

  std::string run() {
    runGraph();
    return runProgram();
  }

private:
  // A loop that runs for micro-batch after micro-batch is the same from the third on.
  int64_t roundsOf(int section) const { return section == g.mainLoop() ? c.rounds : std::min<int64_t>(p.count, 3); }

  // The result of a kernel: what it is, what it read, and in the loop for which micro-batch (a message or a draw reads nothing).
  Symbol resultOf(int kernel, size_t output, const std::vector<Symbol> &inputs, Symbol before, int64_t round) {
    const Kernel &k = g.kernels[kernel];
    if (k.copy != Kernel::NoCopy)
      return inputs.front();
    if (int newer = c.newerOf[k.writes[output]]; newer >= 0) // a copy
      return inputs[size_t(std::find(k.reads.begin(), k.reads.end(), newer) - k.reads.begin())];
    std::vector<uint64_t> key{1, uint64_t(kernel), output, before, uint64_t(round)};
    key.insert(key.end(), inputs.begin(), inputs.end());
    return symbols.of(key);
  }
  Symbol initial(int buffer) { return symbols.of({2, uint64_t(buffer)}); }
  Symbol data(int buffer, int64_t round) { return symbols.of({3, uint64_t(buffer), uint64_t(round)}); }
  Symbol zero() { return symbols.of({4}); }

  // The graph itself, every buffer in bytes of its own.
  void runGraph() {
    std::vector<Symbol> content(g.buffers.size(), 0);
    for (size_t b = 0; b < g.buffers.size(); ++b)
      if (c.isInput(int(b)))
        content[b] = c.isData(int(b)) ? data(int(b), 0) : initial(int(b));
    reads.assign(g.kernels.size(), {});
    for (int64_t step = 0; step < (c.overlaps ? kCalls : 1); ++step)
      runStep(step, content);
  }

  void runStep(int64_t step, std::vector<Symbol> &content) {
    for (auto &ofKernel : reads)
      ofKernel.resize(size_t((step + 1) * roundsOfStep()));
    std::vector<bool> begun(g.buffers.size(), false);
    for (const Kernel &k : g.kernels)
      for (int w : k.writes)
        begun[w] = begun[w] || k.section < c.summedIn[w];
    int64_t first = step * roundsOfStep();
    for (int section = 0; section <= 2 * g.loops; ++section) {
      if (!isLoop(section)) {
        runSection(section, first, content);
        continue;
      }
      for (size_t b = 0; b < g.buffers.size(); ++b)
        if (g.buffers[b].kind == Buffer::Accumulator && c.summedIn[b] == section && !begun[b])
          content[b] = zero();
      for (int64_t round = 0; round < roundsOf(section); ++round) {
        for (size_t b = 0; b < g.buffers.size(); ++b)
          if (c.isData(int(b)))
            content[b] = data(int(b), first + round);
        runSection(section, first + round, content);
      }
    }
    finals.push_back(content);
  }
  // Rounds are numbered from step to step.
  int64_t roundsOfStep() const { return std::max<int64_t>(c.rounds, 3); }

  void runSection(int section, int64_t round, std::vector<Symbol> &content) {
    for (size_t k = 0; k < g.kernels.size(); ++k) {
      const Kernel &kernel = g.kernels[k];
      if (kernel.section != section)
        continue;
      std::vector<Symbol> inputs, results;
      for (int r : kernel.reads)
        inputs.push_back(content[r]);
      for (size_t w = 0; w < kernel.writes.size(); ++w) {
        int to = kernel.writes[w];
        results.push_back(resultOf(int(k), w, inputs, g.buffers[to].kind == Buffer::Value ? 0 : content[to], round));
      }
      for (size_t w = 0; w < kernel.writes.size(); ++w)
        content[kernel.writes[w]] = results[w];
      reads[k][size_t(round)] = std::move(inputs);
    }
  }

  // What runs of a loop's body, in order: of a worker's main loop its actions, else all of it, micro-batch after micro-batch.
  std::vector<PartAction> actionsOf(int section) const {
    if (section == g.mainLoop() && !g.actions.empty())
      return g.actions;
    std::vector<PartAction> actions;
    for (int64_t round = 0; round < roundsOf(section); ++round)
      actions.push_back({0, round});
    return actions;
  }

  // What a launch is run for: a micro-batch of a step; `next`: of the step behind the one whose call it is.
  struct Moment {
    int64_t step = 0, round = 0;
    bool next = false;
  };
  // One to a step, not to a micro-batch.
  bool isOfStep(int buffer) const {
    const Buffer &b = g.buffers[buffer];
    return c.overlaps && (b.kind == Buffer::Accumulator || (!c.isInput(buffer) && g.kernels[b.producer].section < g.mainLoop()));
  }
  const Place &persistentPlace(int buffer) const {
    return *std::find_if(p.persistent.begin(), p.persistent.end(), [&](const Place &place) { return place.buffer == buffer; });
  }

  // Where a place lies at a moment.
  Place placeAt(Place place, const Moment &now) const {
    if (now.next && c.newerOf[place.buffer] >= 0)
      place.offset = persistentPlace(c.newerOf[place.buffer]).offset;
    else if (isOfStep(place.buffer))
      place.offset += now.next && place.copies > 1 ? place.bytes : 0;
    else
      place.offset += now.round % place.copies * place.bytes;
    return place;
  }

  std::string runLaunch(size_t at, const Moment &now) {
    const Launch &l = p.launches[at];
    int64_t round = now.step * roundsOfStep() + now.round;
    if (std::string e = checkUnderWay(at); !e.empty())
      return e;
    if (std::string e = clear(l.zeroed, c.who(at)); !e.empty())
      return e;
    std::vector<Symbol> inputs;
    for (size_t i = 0; i < l.reads.size(); ++i) {
      const Place r = placeAt(l.reads[i], now);
      Symbol expected = reads[l.kernel][size_t(round)][i];
      Symbol got = r.bytes ? memoryOf(r).read(r.offset, r.offset + r.bytes) : expected;
      if (got != expected)
        return c.who(at) + " reads " + g.buffers[r.buffer].name + " at bytes [" + std::to_string(r.offset) + ", " +
               std::to_string(r.offset + r.bytes) + "), which do not hold it (micro-batch " + std::to_string(now.round) +
               (c.overlaps ? " of step " + std::to_string(now.step) : "") + ")";
      inputs.push_back(got);
    }
    std::vector<Symbol> results;
    for (size_t w = 0; w < l.writes.size(); ++w) {
      const Place to = placeAt(l.writes[w], now);
      Symbol before = 0;
      if (g.buffers[to.buffer].kind != Buffer::Value) {
        before = memoryOf(to).read(to.offset, to.offset + to.bytes);
        if (to.bytes && !before)
          return c.who(at) + " goes on with " + g.buffers[to.buffer].name + ", which its bytes do not hold";
      }
      results.push_back(resultOf(l.kernel, w, inputs, to.bytes ? before : 0, round));
    }
    if (l.hasScratch)
      memory.write(l.scratch.offset, l.scratch.offset + l.scratch.bytes, 0);
    for (size_t w = 0; w < l.writes.size(); ++w) {
      const Place to = placeAt(l.writes[w], now);
      memoryOf(to).write(to.offset, to.offset + to.bytes, results[w]);
    }
    return beginOrEndCopy(at);
  }

  // Sums, before the work of a launch or of a loop.
  std::string clear(const std::vector<Place> &sums, const std::string &who) {
    for (const Place &sum : sums) {
      for (const UnderWay &copy : underWay)
        if (c.overlap(sum, copy.to) || c.overlap(sum, copy.from))
          return who + " clears " + g.buffers[sum.buffer].name + " where a copy is under way";
      memory.write(sum.offset, sum.offset + sum.bytes, zero());
    }
    return "";
  }

  // A copy between its begin and its Await.
  struct UnderWay {
    Place from, to;
    const Place &inArena(const CheckedPlan &c) const { return c.onHost(from) ? to : from; }
  };

  // What is copied may be read, but not written; where it goes neither.
  std::string checkUnderWay(size_t at) const {
    const Launch &l = p.launches[at];
    if (g.kernels[l.kernel].copy == Kernel::Await)
      return "";
    auto refused = [&](const Place &place, const char *does) {
      return c.who(at) + does + (place.buffer < 0 ? std::string("its scratch") : g.buffers[place.buffer].name) + " where a copy is under way";
    };
    for (const UnderWay &copy : underWay) {
      for (const Place &r : l.reads)
        if (c.overlap(r, copy.to))
          return refused(r, " reads ");
      for (const Place &w : l.writes)
        if (c.overlap(w, copy.to) || c.overlap(w, copy.from))
          return refused(w, " writes ");
      if (l.hasScratch && (c.overlap(l.scratch, copy.to) || c.overlap(l.scratch, copy.from)))
        return refused(l.scratch, " writes ");
    }
    return "";
  }

  std::string beginOrEndCopy(size_t at) {
    const Launch &l = p.launches[at];
    Kernel::Copy copy = g.kernels[l.kernel].copy;
    if (copy == Kernel::NoCopy)
      return "";
    const Place &read = l.reads.front();
    if (copy == Kernel::Await) {
      auto found = std::find_if(underWay.begin(), underWay.end(), [&](const UnderWay &one) {
        const Place &place = one.inArena(c);
        return place.buffer == read.buffer && place.offset == read.offset;
      });
      if (found == underWay.end())
        return c.who(at) + " waits for a copy that is not under way";
      underWay.erase(found);
      return "";
    }
    const Place &write = l.writes.front();
    underWay.push_back({read, write});
    const Place &host = copy == Kernel::Fetch ? read : write;
    if (!c.isInput(host.buffer)) // a value of the loop, whose symbol says whether it is the right one
      return "";
    if (copy == Kernel::Fetch)
      cameTo[read.buffer] = write.offset;
    else if (auto came = cameTo.find(write.buffer); came == cameTo.end() || came->second != read.offset)
      return c.who(at) + " takes " + g.buffers[write.buffer].name + " from elsewhere than it was copied to: where a gate is closed it would be lost";
    return "";
  }
  Memory &memoryOf(const Place &place) { return c.onHost(place) ? hostMemory : memory; }
  const Memory &memoryOf(const Place &place) const { return c.onHost(place) ? hostMemory : memory; }

  std::string runProgram() {
    for (const Place &place : p.persistent)
      memoryOf(place).write(place.offset, place.offset + place.bytes,
                            c.isData(place.buffer) ? data(place.buffer, 0) : initial(place.buffer));
    // Persistent buffers must not share bytes with each other.
    for (const Place &place : p.persistent)
      if (place.bytes && memoryOf(place).read(place.offset, place.offset + place.bytes) !=
                             (c.isData(place.buffer) ? data(place.buffer, 0) : initial(place.buffer)))
        return "persistent " + g.buffers[place.buffer].name + " shares bytes with another";
    if (!c.overlaps) {
      for (int section = 0; section <= 2 * g.loops; ++section)
        if (std::string e = isLoop(section) ? runLoop(section) : runLaunches(section, nullptr, {}); !e.empty())
          return e;
      return checkEnd(0);
    }
    for (int64_t call = 0; call < kCalls; ++call) {
      std::string e = runCall(call, call == 0, call + 1 < kCalls);
      if (e.empty())
        e = checkEnd(call);
      if (!e.empty())
        return e;
    }
    return "";
  }

  std::string checkEnd(int64_t step) const {
    const std::vector<Symbol> &final = finals[size_t(step)];
    if (!underWay.empty())
      return "the step ends while " + g.buffers[underWay.front().to.buffer].name + " is on its way";
    for (const Place &place : p.persistent)
      if (place.bytes && !(c.overlaps && c.isData(place.buffer)) && memoryOf(place).read(place.offset, place.offset + place.bytes) != final[place.buffer])
        return "persistent " + g.buffers[place.buffer].name + " does not hold its value at the end of the step";
    // Accumulators that nothing reads behind their loop are results read from outside.
    for (const Launch &l : p.launches)
      for (const Place &w : l.writes)
        if (g.buffers[w.buffer].kind == Buffer::Accumulator && w.bytes && !c.readBehind[w.buffer] &&
            memory.read(w.offset, w.offset + w.bytes) != final[w.buffer])
          return g.buffers[w.buffer].name + " does not hold its sum at the end of the step";
    return "";
  }

  // A step whose worker goes on with the next one, unless not `further`. `fresh`: nothing of it was done before.
  std::string runCall(int64_t step, bool fresh, bool further) {
    const std::vector<Place> &sums = p.loops.front().zeroed;
    if (!fresh)
      for (const Place &place : sums) {
        int64_t next = place.offset + place.bytes;
        Symbol sum = memory.read(next, next + place.bytes);
        if (place.bytes && (place.copies != 2 || !sum))
          return "what " + g.buffers[place.buffer].name + " has of the next step is lost";
        memory.write(place.offset, next, sum);
      }
    for (int64_t ahead = 0; ahead <= int64_t(further); ++ahead) {
      if (std::string e = runLaunches(0, nullptr, {step + ahead, 0, ahead > 0}); !e.empty())
        return e;
      for (const Place &place : sums)
        if (ahead || fresh)
          memory.write(place.offset + ahead * place.bytes, place.offset + (ahead + 1) * place.bytes, zero());
    }
    for (bool before : {true, false})
      for (const PartAction &action : g.actions) {
        bool ahead = action.microbatch >= c.rounds;
        if (before ? !fresh || !ahead : ahead && !further)
          continue;
        PartAction own{action.part, action.microbatch - (ahead ? c.rounds : 0)};
        if (std::string e = runAction(1, own, {step + (ahead && !before), own.microbatch, ahead && !before}); !e.empty())
          return e;
      }
    return runLaunches(2, nullptr, {step, 0, false});
  }

  std::string runLoop(int section) {
    if (std::string e = clear(p.loops[size_t(section / 2)].zeroed, "loop " + std::to_string(section / 2)); !e.empty())
      return e;
    for (const PartAction &action : actionsOf(section))
      if (std::string e = runAction(section, action, {0, action.microbatch, false}); !e.empty())
        return e;
    return "";
  }

  std::string runAction(int section, const PartAction &action, const Moment &now) {
    for (const Place &place : p.persistent)
      if (c.isData(place.buffer))
        memory.write(place.offset, place.offset + place.bytes, data(place.buffer, now.step * roundsOfStep() + now.round));
    return runLaunches(section, &action, now);
  }

  // Of a loop: the part of its body that the action names.
  std::string runLaunches(int section, const PartAction *action, const Moment &now) {
    int part = 0;
    for (size_t i = 0; i < p.launches.size(); ++i) {
      if (c.sectionOf[i] != section)
        continue;
      part += !g.actions.empty() && g.kernels[p.launches[i].kernel].newPart;
      if (!action || part == action->part)
        if (std::string e = runLaunch(i, now); !e.empty())
          return e;
    }
    return "";
  }

  const CheckedPlan &c;
  const StepGraph &g;
  const ScheduledProgram &p;
  static constexpr int64_t kCalls = 3;
  Symbols symbols;
  Memory memory, hostMemory;
  std::vector<UnderWay> underWay;
  std::map<int, int64_t> cameTo; // of buffers on the host: where the last copy of them went
  std::vector<std::vector<std::vector<Symbol>>> reads; // [kernel][round, from step to step]: symbols it must read
  std::vector<std::vector<Symbol>> finals;             // [step][buffer]
};

// The loop that adds to each accumulator.
std::vector<int> loopsOfSums(const StepGraph &g) {
  std::vector<int> loops(g.buffers.size(), g.mainLoop());
  std::vector<bool> found(g.buffers.size(), false);
  for (const Kernel &k : g.kernels)
    for (int w : k.writes)
      if (isLoop(k.section) && (!found[w] || k.section > loops[w]))
        loops[w] = k.section, found[w] = true;
  return loops;
}

} // namespace

CheckedPlan::CheckedPlan(const StepGraph &g, const ScheduledProgram &p)
    : g(g), p(p), rounds(std::min<int64_t>(p.count, 3)), newerOf(g.buffers.size(), -1), summedIn(loopsOfSums(g)),
      readBehind(g.buffers.size(), false) {
  if (!g.actions.empty())
    rounds = std::count_if(g.actions.begin(), g.actions.end(), [](const PartAction &action) { return action.part == 0; });
  for (const PartAction &action : g.actions)
    overlaps |= action.microbatch >= rounds;
  for (const Kernel &k : g.kernels)
    for (int r : k.reads)
      readBehind[r] = readBehind[r] || k.section > summedIn[r];
}

int CheckedPlan::parts() const {
  return 1 + int(std::count_if(p.launches.begin(), p.launches.end(), [&](const Launch &l) { return g.kernels[l.kernel].newPart; }));
}

std::string checkPlan(const StepGraph &g, const ScheduledProgram &p) {
  CheckedPlan plan(g, p);
  if (std::string e = checkShape(plan); !e.empty())
    return e;
  if (std::string e = SymbolicRun(plan).run(); !e.empty())
    return e;
  if (plan.touchedOnHost != p.hostBytes)
    return "expected " + std::to_string(p.hostBytes) + " bytes of pinned memory, the program touches " + std::to_string(plan.touchedOnHost);
  if (plan.touched != p.arenaBytes)
    return "expected an arena of " + std::to_string(p.arenaBytes) + " bytes, the program touches " + std::to_string(plan.touched);
  return checkPeak(plan);
}

} // namespace cinch::solve
