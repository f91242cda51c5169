// PlanCheckerShape.cpp: what of a scheduled program can be seen to be right without running it.
#include "compiler/solve/CheckedPlan.h"
#include "compiler/solve/LoopBody.h"

#include <algorithm>

namespace cinch::solve {

namespace {

class ShapeChecker {
public:
  explicit ShapeChecker(CheckedPlan &c) : c(c), g(c.g), p(c.p) {}

  std::string run() {
    if (p.microbatch < 1 || p.count < 1 || p.microbatch * p.count != g.batch)
      return "micro-batch " + std::to_string(p.microbatch) + " times " + std::to_string(p.count) +
             " is not the batch of " + std::to_string(g.batch);
    if (p.microbatch % g.grain)
      return "micro-batch " + std::to_string(p.microbatch) + " is no multiple of " + std::to_string(g.grain) +
             ", the examples that belong together";
    if (p.arenaBytes > p.arenaBudget)
      return "the plan has an arena of " + std::to_string(p.arenaBytes) + " bytes, which may have " + std::to_string(p.arenaBudget);
    if (p.hostBytes > p.hostBudget)
      return "the plan has " + std::to_string(p.hostBytes) + " bytes of pinned memory, which may have " + std::to_string(p.hostBudget);
    for (auto check : {&ShapeChecker::checkLoops, &ShapeChecker::checkLaunches, &ShapeChecker::checkPersistent, &ShapeChecker::checkZeroed,
                       &ShapeChecker::checkActions, &ShapeChecker::checkBodies, &ShapeChecker::checkOverlap})
      if (std::string e = (this->*check)(); !e.empty())
        return e;
    return "";
  }

private:
  std::string checkLoops() {
    if (int(p.loops.size()) != g.loops)
      return "expected " + std::to_string(g.loops) + " loops, got " + std::to_string(p.loops.size());
    c.sectionOf.assign(p.launches.size(), 2 * g.loops);
    int last = 0;
    for (size_t l = 0; l < p.loops.size(); ++l) {
      const LaunchLoop &loop = p.loops[l];
      if (loop.begin < last || loop.end < loop.begin || loop.end > int(p.launches.size()))
        return "loop " + std::to_string(l) + " has the launches [" + std::to_string(loop.begin) + ", " + std::to_string(loop.end) + ") of " +
               std::to_string(p.launches.size()) + ", behind " + std::to_string(last);
      std::fill(c.sectionOf.begin() + last, c.sectionOf.begin() + loop.begin, 2 * int(l));
      std::fill(c.sectionOf.begin() + loop.begin, c.sectionOf.begin() + loop.end, 2 * int(l) + 1);
      last = loop.end;
    }
    return "";
  }

  // Kernels that are loops: the work of a trip, and that it finds room in the scratch.
  std::string checkBodies() {
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
    if (!c.overlaps)
      return p.newer.empty() ? "" : "newer buffers are named, but the steps do not overlap";
    if (g.loops != 1)
      return "steps overlap, but have " + std::to_string(g.loops) + " loops";
    auto isKept = [&](int b) { return b >= 0 && b < int(g.buffers.size()) && g.buffers[b].kind == Buffer::Persistent && !c.isData(b); };
    for (auto [older, newer] : p.newer) {
      if (!isKept(older) || !isKept(newer) || c.newerOf[older] >= 0 || g.buffers[older].fixedBytes != g.buffers[newer].fixedBytes)
        return "buffer " + std::to_string(newer) + " cannot be what buffer " + std::to_string(older) + " is in the next step";
      c.newerOf[older] = newer;
    }
    for (const Kernel &kernel : g.kernels)
      for (int w : kernel.writes)
        if (c.newerOf[w] >= 0 && std::find(kernel.reads.begin(), kernel.reads.end(), c.newerOf[w]) == kernel.reads.end())
          return g.buffers[w].name + " is not left as " + g.buffers[c.newerOf[w]].name + " was";
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
    bool host = c.onHost(place);
    int64_t there = host ? p.hostBytes : p.arenaBytes;
    if (place.bytes < 0 || place.copies < 1 || end > there)
      return where + ": bytes [" + std::to_string(place.offset) + ", " + std::to_string(end) + ") lie outside the " +
             (host ? "pinned memory" : "arena") + " of " + std::to_string(there);
    if (int64_t &touched = host ? c.touchedOnHost : c.touched; place.bytes > 0)
      touched = std::max(touched, end);
    return "";
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
    return checkOverlaps(l, where);
  }

  // Nothing is written where the launch reads, has its scratch or writes something else, but for declared in-place work.
  std::string checkOverlaps(const Launch &l, const std::string &where) const {
    const Kernel &k = g.kernels[l.kernel];
    for (size_t i = 0; i < l.writes.size(); ++i) {
      const Place &w = l.writes[i];
      if (l.hasScratch && c.overlap(w, l.scratch))
        return where + " writes " + g.buffers[w.buffer].name + " into its scratch";
      for (size_t j = 0; j < i; ++j)
        if (c.overlap(w, l.writes[j]))
          return where + " writes " + g.buffers[w.buffer].name + " over " + g.buffers[l.writes[j].buffer].name;
      for (const Place &r : l.reads) {
        if (!c.overlap(w, r) ||
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
        if (c.overlap(r, l.scratch))
          return where + " reads " + g.buffers[r.buffer].name + " from its scratch";
    return "";
  }

  // What the planner may move: work of the main loop, but neither messages nor the beginnings of its parts.
  bool mayMove(const Kernel &k) const { return k.section == g.mainLoop() && !k.message && !k.newPart; }

  std::string checkLaunches() {
    std::vector<int> runs(g.kernels.size(), 0);
    int behind = -1; // the last kernel that may not move
    for (size_t i = 0; i < p.launches.size(); ++i) {
      const Launch &l = p.launches[i];
      if (l.kernel < 0 || l.kernel >= int(g.kernels.size()))
        return "launch " + std::to_string(i) + " names kernel " + std::to_string(l.kernel) + ", which does not exist";
      std::string where = c.who(i);
      if (std::string e = checkLaunch(l, c.sectionOf[i], where); !e.empty())
        return e;
      const Kernel &k = g.kernels[l.kernel];
      if (!mayMove(k) && l.kernel < behind)
        return where + " runs behind " + g.kernels[behind].name + ", before which it stands";
      if (!mayMove(k))
        behind = l.kernel;
      bool once = !k.recomputable || k.section != g.mainLoop();
      for (int w : k.writes)
        once |= g.buffers[w].kind != Buffer::Value;
      if (runs[l.kernel]++ && once)
        return where + " runs again, but it may run only once";
    }
    for (size_t k = 0; k < g.kernels.size(); ++k)
      if (!runs[k])
        return "kernel " + std::to_string(k) + " (" + g.kernels[k].name + ") never runs";
    return "";
  }

  std::string checkPersistent() {
    std::vector<int> placed(g.buffers.size(), 0);
    for (const Place &place : p.persistent) {
      if (place.buffer < 0 || place.buffer >= int(g.buffers.size()) || !c.isInput(place.buffer))
        return "buffer " + std::to_string(place.buffer) + " is listed as persistent, but is not";
      if (placed[place.buffer]++)
        return "persistent " + g.buffers[place.buffer].name + " is placed twice";
      if (std::string e = checkPlace(place, place.buffer, "persistent " + g.buffers[place.buffer].name); !e.empty())
        return e;
    }
    for (size_t b = 0; b < g.buffers.size(); ++b)
      if (c.isInput(int(b)) && !placed[b])
        return "persistent " + g.buffers[b].name + " has no place";
    return "";
  }

  std::string checkZeroed() {
    std::vector<int> zeros(g.buffers.size(), 0);
    std::vector<const std::vector<Place> *> all;
    for (const LaunchLoop &loop : p.loops)
      all.push_back(&loop.zeroed);
    for (const Launch &launch : p.launches)
      all.push_back(&launch.zeroed);
    for (const std::vector<Place> *zeroed : all)
      for (const Place &place : *zeroed) {
        if (place.buffer < 0 || place.buffer >= int(g.buffers.size()) || g.buffers[place.buffer].kind != Buffer::Accumulator)
          return "buffer " + std::to_string(place.buffer) + " is zeroed, but is no accumulator";
        if (zeros[place.buffer]++)
          return g.buffers[place.buffer].name + " is zeroed twice";
        if (std::string e = checkPlace(place, place.buffer, "zeroed " + g.buffers[place.buffer].name); !e.empty())
          return e;
      }
    return "";
  }

  // Every part runs once for each micro-batch, in ascending order. That what a part reads is there then, the symbols show.
  std::string checkActions() {
    if (g.actions.empty())
      return "";
    int parts = c.parts();
    std::vector<int64_t> first(size_t(parts), c.overlaps ? INT64_MAX : 0);
    for (const PartAction &action : g.actions)
      if (c.overlaps && action.part >= 0 && action.part < parts)
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
      if (int64_t count = ended[part] - first[part]; count != c.rounds || c.rounds < p.count || first[part] < 0 || first[part] > c.rounds)
        return "a part of the loop body runs for " + std::to_string(count) + " of " + std::to_string(std::max(c.rounds, p.count)) +
               " micro-batches";
    return "";
  }

  CheckedPlan &c;
  const StepGraph &g;
  const ScheduledProgram &p;
};

} // namespace

std::string checkShape(CheckedPlan &plan) { return ShapeChecker(plan).run(); }

} // namespace cinch::solve
