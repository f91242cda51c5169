// PlanChecker.cpp: symbolic execution of the graph and of the scheduled program, compared read by read.
#include "compiler/solve/LoopBody.h"
#include "compiler/solve/PlanChecker.h"

#include <algorithm>
#include <map>
#include <unordered_map>

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

bool isInput(const Buffer &b) { return b.kind == Buffer::Persistent || (b.kind == Buffer::Value && b.producer < 0); }

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

class Checker {
public:
  Checker(const StepGraph &g, const ScheduledProgram &p) : g(g), p(p), rounds(std::min<int64_t>(p.count, 3)) {
    if (!g.actions.empty())
      rounds = std::count_if(g.actions.begin(), g.actions.end(), [](const PartAction &action) { return action.part == 0; });
    for (const PartAction &action : g.actions)
      overlaps |= action.microbatch >= rounds;
    newerOf.assign(g.buffers.size(), -1);
  }

  std::string run() {
    if (p.microbatch < 1 || p.count < 1 || p.microbatch * p.count != g.batch)
      return "micro-batch " + std::to_string(p.microbatch) + " times " + std::to_string(p.count) +
             " is not the batch of " + std::to_string(g.batch);
    if (p.microbatch % g.grain)
      return "micro-batch " + std::to_string(p.microbatch) + " is no multiple of " + std::to_string(g.grain) +
             ", the examples that belong together";
    if (std::string e = checkLoops(); !e.empty())
      return e;
    if (std::string e = checkShape(); !e.empty())
      return e;
    if (std::string e = checkActions(); !e.empty())
      return e;
    if (std::string e = checkBodies(); !e.empty())
      return e;
    if (std::string e = checkOverlap(); !e.empty())
      return e;
    runGraph();
    if (std::string e = runProgram(); !e.empty())
      return e;
    if (touched != p.arenaBytes)
      return "expected an arena of " + std::to_string(p.arenaBytes) + " bytes, the program touches " +
             std::to_string(touched);
    return checkPeak();
  }

private:
  std::string who(size_t at) const { return "launch " + std::to_string(at) + " (" + g.kernels[p.launches[at].kernel].name + ")"; }

  std::string checkLoops() {
    if (int(p.loops.size()) != g.loops)
      return "expected " + std::to_string(g.loops) + " loops, got " + std::to_string(p.loops.size());
    sectionOf.assign(p.launches.size(), 2 * g.loops);
    int last = 0;
    for (size_t l = 0; l < p.loops.size(); ++l) {
      const LaunchLoop &loop = p.loops[l];
      if (loop.begin < last || loop.end < loop.begin || loop.end > int(p.launches.size()))
        return "loop " + std::to_string(l) + " has the launches [" + std::to_string(loop.begin) + ", " + std::to_string(loop.end) + ") of " +
               std::to_string(p.launches.size()) + ", behind " + std::to_string(last);
      std::fill(sectionOf.begin() + last, sectionOf.begin() + loop.begin, 2 * int(l));
      std::fill(sectionOf.begin() + loop.begin, sectionOf.begin() + loop.end, 2 * int(l) + 1);
      last = loop.end;
    }
    return "";
  }

  // Kernels that are loops: the work of a trip, and that it finds room in the scratch.
  std::string checkBodies() const {
    for (const Kernel &kernel : g.kernels) {
      if (!kernel.body)
        continue;
      int64_t there = kernel.scratch.at(p.microbatch) * g.threads, needed = kernel.body->scratchBytes(p.microbatch);
      if (there < needed)
        return "a trip of " + kernel.name + " needs " + std::to_string(needed) + " bytes, its scratch has " + std::to_string(there);
      if (std::string e = checkTrip(*kernel.body, p.microbatch); !e.empty())
        return "in a trip of " + kernel.name + ": " + e;
    }
    return "";
  }

  // Where steps overlap there is one loop, and what has a newer one is as large, and left as that was by one kernel.
  std::string checkOverlap() {
    if (!overlaps)
      return p.newer.empty() ? "" : "newer buffers are named, but the steps do not overlap";
    if (g.loops != 1)
      return "steps overlap, but have " + std::to_string(g.loops) + " loops";
    auto isKept = [&](int b) { return b >= 0 && b < int(g.buffers.size()) && g.buffers[b].kind == Buffer::Persistent && !isData(b); };
    for (auto [older, newer] : p.newer) {
      if (!isKept(older) || !isKept(newer) || newerOf[older] >= 0 || g.buffers[older].fixedBytes != g.buffers[newer].fixedBytes)
        return "buffer " + std::to_string(newer) + " cannot be what buffer " + std::to_string(older) + " is in the next step";
      newerOf[older] = newer;
    }
    for (const Kernel &kernel : g.kernels)
      for (int w : kernel.writes)
        if (newerOf[w] >= 0 && std::find(kernel.reads.begin(), kernel.reads.end(), newerOf[w]) == kernel.reads.end())
          return g.buffers[w].name + " is not left as " + g.buffers[newerOf[w]].name + " was";
    return "";
  }

  std::string checkPlace(const Place &place, int buffer, const std::string &where) {
    if (place.buffer != buffer)
      return where + ": expected buffer " + std::to_string(buffer) + ", got " + std::to_string(place.buffer);
    int64_t bytes = g.buffers[buffer].bytes(p.microbatch);
    if (place.bytes != bytes)
      return where + ": " + g.buffers[buffer].name + " has " + std::to_string(bytes) + " bytes, got " +
             std::to_string(place.bytes);
    return checkRange(place, where);
  }

  std::string checkRange(const Place &place, const std::string &where) {
    if (place.offset < 0 || place.offset % 64)
      return where + ": offset " + std::to_string(place.offset) + " is no multiple of 64";
    int64_t end = place.offset + place.bytes * place.copies;
    if (place.bytes < 0 || place.copies < 1 || end > p.arenaBytes)
      return where + ": bytes [" + std::to_string(place.offset) + ", " + std::to_string(end) + ") lie outside the arena of " +
             std::to_string(p.arenaBytes);
    if (place.bytes > 0)
      touched = std::max(touched, end);
    return "";
  }

  static bool overlap(const Place &a, const Place &b) {
    return a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes * b.copies && b.offset < a.offset + a.bytes * a.copies;
  }

  std::string checkLaunch(const Launch &l, int section, const std::string &where) {
    const Kernel &k = g.kernels[l.kernel];
    if (k.section != section)
      return where + " stands in the wrong section";
    if (l.reads.size() != k.reads.size() || l.writes.size() != k.writes.size())
      return where + ": expected " + std::to_string(k.reads.size()) + " reads and " + std::to_string(k.writes.size()) +
             " writes, got " + std::to_string(l.reads.size()) + " and " + std::to_string(l.writes.size());
    for (size_t i = 0; i < k.reads.size(); ++i)
      if (std::string e = checkPlace(l.reads[i], k.reads[i], where); !e.empty())
        return e;
    for (size_t i = 0; i < k.writes.size(); ++i)
      if (std::string e = checkPlace(l.writes[i], k.writes[i], where); !e.empty())
        return e;
    int64_t scratch = k.scratch.at(p.microbatch) * g.threads;
    if (l.hasScratch != (scratch > 0))
      return where + (l.hasScratch ? " has scratch it does not need" : " lacks its scratch");
    if (l.hasScratch) {
      if (l.scratch.bytes < scratch)
        return where + ": expected scratch of at least " + std::to_string(scratch) +
               " bytes, got " + std::to_string(l.scratch.bytes);
      if (std::string e = checkRange(l.scratch, where); !e.empty())
        return e;
    }
    for (size_t i = 0; i < l.writes.size(); ++i) {
      const Place &w = l.writes[i];
      if (l.hasScratch && overlap(w, l.scratch))
        return where + " writes " + g.buffers[w.buffer].name + " into its scratch";
      for (size_t j = 0; j < i; ++j)
        if (overlap(w, l.writes[j]))
          return where + " writes " + g.buffers[w.buffer].name + " over " + g.buffers[l.writes[j].buffer].name;
      for (const Place &r : l.reads) {
        if (!overlap(w, r) ||
            (w.buffer == r.buffer && g.buffers[w.buffer].kind != Buffer::Value && w.offset == r.offset))
          continue;
        bool declared =
            w.offset == r.offset && w.bytes == r.bytes &&
            std::find(k.inPlace.begin(), k.inPlace.end(), std::make_pair(w.buffer, r.buffer)) != k.inPlace.end();
        if (!declared)
          return where + " writes " + g.buffers[w.buffer].name + " over " + g.buffers[r.buffer].name +
                 ", which it reads";
      }
    }
    if (l.hasScratch)
      for (const Place &r : l.reads)
        if (overlap(r, l.scratch))
          return where + " reads " + g.buffers[r.buffer].name + " from its scratch";
    return "";
  }

  // Whatever can be seen without running: sizes, places, which kernels run how often and in which order.
  std::string checkShape() {
    std::vector<int> runs(g.kernels.size(), 0);
    for (size_t i = 0; i < p.launches.size(); ++i) {
      const Launch &l = p.launches[i];
      if (l.kernel < 0 || l.kernel >= int(g.kernels.size()))
        return "launch " + std::to_string(i) + " names kernel " + std::to_string(l.kernel) + ", which does not exist";
      std::string where = who(i);
      if (std::string e = checkLaunch(l, sectionOf[i], where); !e.empty())
        return e;
      const Kernel &k = g.kernels[l.kernel];
      bool once = !k.recomputable || k.section != g.mainLoop();
      for (int w : k.writes)
        once |= g.buffers[w].kind != Buffer::Value;
      if (runs[l.kernel]++ && once)
        return where + " runs again, but it may run only once";
    }
    for (size_t k = 0; k < g.kernels.size(); ++k)
      if (!runs[k])
        return "kernel " + std::to_string(k) + " (" + g.kernels[k].name + ") never runs";

    std::vector<int> placed(g.buffers.size(), 0);
    for (const Place &place : p.persistent) {
      if (place.buffer < 0 || place.buffer >= int(g.buffers.size()) || !isInput(g.buffers[place.buffer]))
        return "buffer " + std::to_string(place.buffer) + " is listed as persistent, but is not";
      if (placed[place.buffer]++)
        return "persistent " + g.buffers[place.buffer].name + " is placed twice";
      if (std::string e = checkPlace(place, place.buffer, "persistent " + g.buffers[place.buffer].name); !e.empty())
        return e;
    }
    for (size_t b = 0; b < g.buffers.size(); ++b)
      if (isInput(g.buffers[b]) && !placed[b])
        return "persistent " + g.buffers[b].name + " has no place";
    std::vector<int> zeros(g.buffers.size(), 0);
    for (const LaunchLoop &loop : p.loops)
      for (const Place &place : loop.zeroed) {
        if (place.buffer < 0 || place.buffer >= int(g.buffers.size()) || g.buffers[place.buffer].kind != Buffer::Accumulator)
          return "buffer " + std::to_string(place.buffer) + " is zeroed, but is no accumulator";
        if (zeros[place.buffer]++)
          return g.buffers[place.buffer].name + " is zeroed twice";
        if (std::string e = checkPlace(place, place.buffer, "zeroed " + g.buffers[place.buffer].name); !e.empty())
          return e;
      }
    return "";
  }

  // The loop that adds to each accumulator: the last that writes it; the main one, if none does.
  std::vector<int> loopsOfSums() const {
    std::vector<int> loops(g.buffers.size(), g.mainLoop());
    std::vector<bool> found(g.buffers.size(), false);
    for (const Kernel &k : g.kernels)
      for (int w : k.writes)
        if (isLoop(k.section) && (!found[w] || k.section > loops[w]))
          loops[w] = k.section, found[w] = true;
    return loops;
  }
  bool readBehindItsLoop(int buffer) const {
    return std::any_of(g.kernels.begin(), g.kernels.end(), [&](const Kernel &k) {
      return k.section > summedIn[buffer] && std::find(k.reads.begin(), k.reads.end(), buffer) != k.reads.end();
    });
  }
  // A loop that runs for micro-batch after micro-batch is the same from the third on.
  int64_t roundsOf(int section) const { return section == g.mainLoop() ? rounds : std::min<int64_t>(p.count, 3); }

  // The result of a kernel: what it is, what it read, and in the loop for which micro-batch (a message or a draw reads nothing).
  Symbol resultOf(int kernel, size_t output, const std::vector<Symbol> &inputs, Symbol before, int64_t round) {
    const Kernel &k = g.kernels[kernel];
    if (int newer = newerOf[k.writes[output]]; newer >= 0) // a copy
      return inputs[size_t(std::find(k.reads.begin(), k.reads.end(), newer) - k.reads.begin())];
    std::vector<uint64_t> key{1, uint64_t(kernel), output, before, uint64_t(round)};
    key.insert(key.end(), inputs.begin(), inputs.end());
    return symbols.of(key);
  }
  Symbol initial(int buffer) { return symbols.of({2, uint64_t(buffer)}); }
  // Persistent buffers that grow with the micro-batch are data: filled anew for each micro-batch.
  Symbol data(int buffer, int64_t round) { return symbols.of({3, uint64_t(buffer), uint64_t(round)}); }
  Symbol zero() { return symbols.of({4}); }
  bool isData(int b) const { return isInput(g.buffers[b]) && g.buffers[b].perExampleBytes != 0; }

  // The graph itself, every buffer in bytes of its own.
  void runGraph() {
    summedIn = loopsOfSums();
    std::vector<Symbol> content(g.buffers.size(), 0);
    for (size_t b = 0; b < g.buffers.size(); ++b)
      if (isInput(g.buffers[b]))
        content[b] = isData(int(b)) ? data(int(b), 0) : initial(int(b));
    reads.assign(g.kernels.size(), {});
    for (int64_t step = 0; step < (overlaps ? kCalls : 1); ++step)
      runStep(step, content);
  }

  void runStep(int64_t step, std::vector<Symbol> &content) {
    for (auto &ofKernel : reads)
      ofKernel.resize(size_t((step + 1) * roundsOfStep()));
    std::vector<bool> begun(g.buffers.size(), false);
    for (const Kernel &k : g.kernels)
      for (int w : k.writes)
        begun[w] = begun[w] || k.section < summedIn[w];
    int64_t first = step * roundsOfStep();
    for (int section = 0; section <= 2 * g.loops; ++section) {
      if (!isLoop(section)) {
        runSection(section, first, content);
        continue;
      }
      for (size_t b = 0; b < g.buffers.size(); ++b)
        if (g.buffers[b].kind == Buffer::Accumulator && summedIn[b] == section && !begun[b])
          content[b] = zero();
      for (int64_t round = 0; round < roundsOf(section); ++round) {
        for (size_t b = 0; b < g.buffers.size(); ++b)
          if (isData(int(b)))
            content[b] = data(int(b), first + round);
        runSection(section, first + round, content);
      }
    }
    finals.push_back(content);
  }
  // Rounds are numbered from step to step.
  int64_t roundsOfStep() const { return std::max<int64_t>(rounds, 3); }

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

  // Every part runs once for each micro-batch, in ascending order. That what a part reads is there then, the symbols show.
  std::string checkActions() const {
    if (g.actions.empty())
      return "";
    int parts = 1;
    for (const Launch &l : p.launches)
      parts += g.kernels[l.kernel].newPart;
    std::vector<int64_t> first(size_t(parts), overlaps ? INT64_MAX : 0);
    for (const PartAction &action : g.actions)
      if (overlaps && action.part >= 0 && action.part < parts)
        first[action.part] = std::min(first[action.part], action.microbatch);
    std::vector<int64_t> ended = first;
    for (const PartAction &action : g.actions) {
      std::string who = "the action of part " + std::to_string(action.part) + " on micro-batch " + std::to_string(action.microbatch);
      if (action.part < 0 || action.part >= parts)
        return who + ": the loop body has " + std::to_string(parts) + " parts";
      if (action.microbatch != ended[action.part]++)
        return who + " is out of order";
    }
    for (int part = 0; part < parts; ++part)
      if (int64_t count = ended[part] - first[part]; count != rounds || rounds < p.count || first[part] < 0 || first[part] > rounds)
        return "a part of the loop body runs for " + std::to_string(count) + " of " + std::to_string(std::max(rounds, p.count)) +
               " micro-batches";
    return "";
  }

  // What a launch is run for: a micro-batch of a step; `next`: of the step behind the one whose call it is.
  struct Moment {
    int64_t step = 0, round = 0;
    bool next = false;
  };
  // One to a step, not to a micro-batch.
  bool isOfStep(int buffer) const {
    const Buffer &b = g.buffers[buffer];
    return overlaps && (b.kind == Buffer::Accumulator || (!isInput(b) && g.kernels[b.producer].section < g.mainLoop()));
  }
  const Place &persistentPlace(int buffer) const {
    return *std::find_if(p.persistent.begin(), p.persistent.end(), [&](const Place &place) { return place.buffer == buffer; });
  }

  // Where a place lies at a moment.
  Place placeAt(Place place, const Moment &now) const {
    if (now.next && newerOf[place.buffer] >= 0)
      place.offset = persistentPlace(newerOf[place.buffer]).offset;
    else if (isOfStep(place.buffer))
      place.offset += now.next && place.copies > 1 ? place.bytes : 0;
    else
      place.offset += now.round % place.copies * place.bytes;
    return place;
  }

  std::string runLaunch(const Launch &l, const Moment &now, const std::string &where) {
    int64_t round = now.step * roundsOfStep() + now.round;
    std::vector<Symbol> inputs;
    for (size_t i = 0; i < l.reads.size(); ++i) {
      const Place r = placeAt(l.reads[i], now);
      Symbol expected = reads[l.kernel][size_t(round)][i];
      Symbol got = r.bytes ? memory.read(r.offset, r.offset + r.bytes) : expected;
      if (got != expected)
        return where + " reads " + g.buffers[r.buffer].name + " at bytes [" + std::to_string(r.offset) + ", " +
               std::to_string(r.offset + r.bytes) + "), which do not hold it (micro-batch " + std::to_string(now.round) +
               (overlaps ? " of step " + std::to_string(now.step) : "") + ")";
      inputs.push_back(got);
    }
    std::vector<Symbol> results;
    for (size_t w = 0; w < l.writes.size(); ++w) {
      const Place to = placeAt(l.writes[w], now);
      Symbol before = 0;
      if (g.buffers[to.buffer].kind != Buffer::Value) {
        before = memory.read(to.offset, to.offset + to.bytes);
        if (to.bytes && !before)
          return where + " goes on with " + g.buffers[to.buffer].name + ", which its bytes do not hold";
      }
      results.push_back(resultOf(l.kernel, w, inputs, to.bytes ? before : 0, round));
    }
    if (l.hasScratch)
      memory.write(l.scratch.offset, l.scratch.offset + l.scratch.bytes, 0);
    for (size_t w = 0; w < l.writes.size(); ++w) {
      const Place to = placeAt(l.writes[w], now);
      memory.write(to.offset, to.offset + to.bytes, results[w]);
    }
    return "";
  }

  std::string runProgram() {
    for (const Place &place : p.persistent)
      memory.write(place.offset, place.offset + place.bytes,
                   isData(place.buffer) ? data(place.buffer, 0) : initial(place.buffer));
    // Persistent buffers must not share bytes with each other.
    for (const Place &place : p.persistent)
      if (place.bytes && memory.read(place.offset, place.offset + place.bytes) !=
                             (isData(place.buffer) ? data(place.buffer, 0) : initial(place.buffer)))
        return "persistent " + g.buffers[place.buffer].name + " shares bytes with another";
    if (!overlaps) {
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
    for (const Place &place : p.persistent)
      if (place.bytes && !(overlaps && isData(place.buffer)) && memory.read(place.offset, place.offset + place.bytes) != final[place.buffer])
        return "persistent " + g.buffers[place.buffer].name + " does not hold its value at the end of the step";
    // Accumulators that nothing reads behind their loop are results read from outside.
    for (const Launch &l : p.launches)
      for (const Place &w : l.writes)
        if (g.buffers[w.buffer].kind == Buffer::Accumulator && w.bytes && !readBehindItsLoop(w.buffer) &&
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
        bool ahead = action.microbatch >= rounds;
        if (before ? !fresh || !ahead : ahead && !further)
          continue;
        PartAction own{action.part, action.microbatch - (ahead ? rounds : 0)};
        if (std::string e = runAction(1, own, {step + (ahead && !before), own.microbatch, ahead && !before}); !e.empty())
          return e;
      }
    return runLaunches(2, nullptr, {step, 0, false});
  }

  std::string runLoop(int section) {
    for (const Place &place : p.loops[size_t(section / 2)].zeroed)
      memory.write(place.offset, place.offset + place.bytes, zero());
    for (const PartAction &action : actionsOf(section))
      if (std::string e = runAction(section, action, {0, action.microbatch, false}); !e.empty())
        return e;
    return "";
  }

  std::string runAction(int section, const PartAction &action, const Moment &now) {
    for (const Place &place : p.persistent)
      if (isData(place.buffer))
        memory.write(place.offset, place.offset + place.bytes, data(place.buffer, now.step * roundsOfStep() + now.round));
    return runLaunches(section, &action, now);
  }

  // Of a loop: the part of its body that the action names.
  std::string runLaunches(int section, const PartAction *action, const Moment &now) {
    int part = 0;
    for (size_t i = 0; i < p.launches.size(); ++i) {
      if (sectionOf[i] != section)
        continue;
      part += !g.actions.empty() && g.kernels[p.launches[i].kernel].newPart;
      if (!action || part == action->part)
        if (std::string e = runLaunch(p.launches[i], now, who(i)); !e.empty())
          return e;
    }
    return "";
  }

  // Is what launch t of the loop writes there read in a later part of the loop body?
  bool waits(const Place &w, int t) const {
    bool later = false;
    for (int u = t + 1; u < int(p.launches.size()) && sectionOf[u] == g.mainLoop(); ++u) {
      later |= g.kernels[p.launches[u].kernel].newPart;
      for (const Place &r : p.launches[u].reads)
        if (later && r.buffer == w.buffer && r.offset == w.offset)
          return true;
      for (const Place &other : p.launches[u].writes)
        if (other.buffer == w.buffer && other.offset == w.offset)
          return false;
    }
    return false;
  }

  struct Life {
    int64_t offset, bytes;
    int lower, upper;
  };

  // Bytes alive, from the launches alone: a place lives from the write to the last read before the next write.
  std::string checkPeak() {
    if (p.peakLive < 0)
      return "";
    int64_t peak = mostAlive(livesOfPlaces());
    if (peak != p.peakLive)
      return "expected a peak of " + std::to_string(p.peakLive) + " live bytes, got " + std::to_string(peak);
    return "";
  }

  std::vector<Life> livesOfPlaces() const {
    int end = int(p.launches.size());
    std::vector<Life> lives;
    std::map<std::pair<int, int64_t>, int> current; // (buffer, offset) -> life
    for (const Place &place : p.persistent)
      lives.push_back({place.offset, place.bytes, 0, std::max(end, 1)});
    for (const LaunchLoop &loop : p.loops)
      for (const Place &place : loop.zeroed) {
        current[{place.buffer, place.offset}] = int(lives.size());
        if (overlaps)
          lives.push_back({place.offset, place.bytes * place.copies, 0, std::max(end, 1)});
        else
          lives.push_back({place.offset, place.bytes, loop.begin, readBehindItsLoop(place.buffer) ? loop.begin + 1 : std::max(end, loop.begin + 1)});
      }
    // Parts in turns are the body as a whole: nothing waits for other micro-batches.
    bool inTurns = true;
    size_t parts = 1;
    for (const Launch &l : p.launches)
      parts += g.kernels[l.kernel].newPart;
    for (size_t i = 0; i < g.actions.size(); ++i)
      inTurns &= g.actions[i].part == int(i % parts) && g.actions[i].microbatch == g.actions[i - i % parts].microbatch;
    for (int t = 0; t < end; ++t) {
      const Launch &l = p.launches[t];
      const LaunchLoop *loop = isLoop(sectionOf[t]) ? &p.loops[size_t(sectionOf[t] / 2)] : nullptr;
      auto use = [&](const Place &place) {
        auto it = current.find({place.buffer, place.offset});
        if (it == current.end())
          return;
        Life &life = lives[it->second];
        bool outer = loop && (life.lower < loop->begin || g.buffers[place.buffer].kind == Buffer::Accumulator);
        life.upper = std::max(life.upper, outer ? loop->end : t + 1);
      };
      for (const Place &r : l.reads)
        if (!isInput(g.buffers[r.buffer]))
          use(r);
      for (const Place &w : l.writes) {
        if (isInput(g.buffers[w.buffer]))
          continue;
        bool accumulator = g.buffers[w.buffer].kind == Buffer::Accumulator;
        if (accumulator && current.count({w.buffer, w.offset})) {
          use(w);
          continue;
        }
        current[{w.buffer, w.offset}] = int(lives.size());
        if (!inTurns && sectionOf[t] == g.mainLoop() && waits(w, t)) // from part to part: through the whole loop
          lives.push_back({w.offset, w.bytes * w.copies, overlaps ? 0 : loop->begin, overlaps ? end : loop->end});
        else if (overlaps && sectionOf[t] < g.mainLoop() && w.copies > 1)
          lives.push_back({w.offset, w.bytes * w.copies, 0, t + 1});
        else
          lives.push_back({w.offset, w.bytes, t, accumulator && !readBehindItsLoop(w.buffer) ? std::max(end, t + 1) : t + 1});
      }
      if (l.hasScratch)
        lives.push_back({l.scratch.offset, l.scratch.bytes, t, t + 1});
    }
    return lives;
  }

  // In-place work shares bytes: the union of the byte ranges alive at each launch is counted, by sweeping over time.
  int64_t mostAlive(const std::vector<Life> &lives) const {
    int end = int(p.launches.size());
    std::vector<std::vector<int>> starts(end + 2), ends(end + 2);
    for (size_t i = 0; i < lives.size(); ++i) {
      starts[std::min(lives[i].lower, end)].push_back(int(i));
      ends[std::min(lives[i].upper, end + 1)].push_back(int(i));
    }
    std::map<int64_t, std::pair<int, int64_t>> ranges; // offset -> (lives, bytes)
    int64_t live = 0, peak = 0;
    for (int t = 0; t < std::max(end, 1); ++t) {
      for (int i : ends[t])
        if (lives[i].bytes && --ranges[lives[i].offset].first == 0) {
          live -= ranges[lives[i].offset].second;
          ranges.erase(lives[i].offset);
        }
      for (int i : starts[t])
        if (lives[i].bytes && ranges[lives[i].offset].first++ == 0) {
          ranges[lives[i].offset].second = lives[i].bytes;
          live += lives[i].bytes;
        }
      peak = std::max(peak, live);
    }
    return peak;
  }

  const StepGraph &g;
  const ScheduledProgram &p;
  static constexpr int64_t kCalls = 3;
  int64_t rounds;
  bool overlaps = false; // the worker's steps
  std::vector<int> newerOf; // of persistent buffers: the one in whose place the next step finds it; -1: its own
  int64_t touched = 0;
  Symbols symbols;
  Memory memory;
  std::vector<std::vector<std::vector<Symbol>>> reads; // [kernel][round, from step to step]: symbols it must read
  std::vector<int> sectionOf;                          // of launches
  std::vector<int> summedIn;                           // of accumulators: section of the loop that adds to them
  std::vector<std::vector<Symbol>> finals;             // [step][buffer]
};

} // namespace

std::string checkPlan(const StepGraph &g, const ScheduledProgram &p) { return Checker(g, p).run(); }

} // namespace cinch::solve
