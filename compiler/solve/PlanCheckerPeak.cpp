// PlanCheckerPeak.cpp: the most bytes alive, from the launches of a scheduled program alone.
#include "compiler/solve/CheckedPlan.h"

#include <algorithm>
#include <map>

namespace cinch::solve {

namespace {

class PeakChecker {
public:
  explicit PeakChecker(const CheckedPlan &c) : c(c), g(c.g), p(c.p) {}

  std::string run() const {
    if (p.peakLive < 0)
      return "";
    int64_t peak = mostAlive(livesOfPlaces());
    if (peak != p.peakLive)
      return "expected a peak of " + std::to_string(p.peakLive) + " live bytes, got " + std::to_string(peak);
    return "";
  }

private:
  struct Life {
    int64_t offset, bytes;
    int lower, upper;
  };

  // Is what launch t of the loop writes there read in a later part of the loop body?
  bool waits(const Place &w, int t) const {
    bool later = false;
    for (int u = t + 1; u < int(p.launches.size()) && c.sectionOf[u] == g.mainLoop(); ++u) {
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

  // A place lives from the write to the last read before the next write.
  std::vector<Life> livesOfPlaces() const {
    int end = int(p.launches.size());
    std::vector<Life> lives;
    std::map<std::pair<int, int64_t>, int> current; // (buffer, offset) -> life
    for (const Place &place : p.persistent)
      if (!c.onHost(place))
        lives.push_back({place.offset, place.bytes, 0, std::max(end, 1)});
    for (const LaunchLoop &loop : p.loops)
      for (const Place &place : loop.zeroed) {
        current[{place.buffer, place.offset}] = int(lives.size());
        if (c.overlaps)
          lives.push_back({place.offset, place.bytes * place.copies, 0, std::max(end, 1)});
        else
          lives.push_back({place.offset, place.bytes, loop.begin, c.readBehind[place.buffer] ? loop.begin + 1 : std::max(end, loop.begin + 1)});
      }
    // Parts in turns are the body as a whole: nothing waits for other micro-batches.
    bool inTurns = true;
    size_t parts = size_t(c.parts());
    for (size_t i = 0; i < g.actions.size(); ++i)
      inTurns &= g.actions[i].part == int(i % parts) && g.actions[i].microbatch == g.actions[i - i % parts].microbatch;
    for (int t = 0; t < end; ++t) {
      const Launch &l = p.launches[t];
      const LaunchLoop *loop = isLoop(c.sectionOf[t]) ? &p.loops[size_t(c.sectionOf[t] / 2)] : nullptr;
      auto use = [&](const Place &place) {
        auto it = current.find({place.buffer, place.offset});
        if (it == current.end())
          return;
        Life &life = lives[it->second];
        bool outer = loop && (life.lower < loop->begin || g.buffers[place.buffer].kind == Buffer::Accumulator);
        life.upper = std::max(life.upper, outer ? loop->end : t + 1);
      };
      for (const Place &r : l.reads)
        if (!c.isInput(r.buffer))
          use(r);
      for (const Place &place : l.zeroed) {
        current[{place.buffer, place.offset}] = int(lives.size());
        lives.push_back({place.offset, place.bytes, t, c.readBehind[place.buffer] ? t + 1 : std::max(end, t + 1)});
      }
      for (const Place &w : l.writes) {
        if (c.isInput(w.buffer) || c.onHost(w))
          continue;
        bool accumulator = g.buffers[w.buffer].kind == Buffer::Accumulator;
        if (accumulator && current.count({w.buffer, w.offset})) {
          use(w);
          continue;
        }
        current[{w.buffer, w.offset}] = int(lives.size());
        if (!inTurns && c.sectionOf[t] == g.mainLoop() && waits(w, t)) // from part to part: through the whole loop
          lives.push_back({w.offset, w.bytes * w.copies, c.overlaps ? 0 : loop->begin, c.overlaps ? end : loop->end});
        else if (c.overlaps && c.sectionOf[t] < g.mainLoop() && w.copies > 1)
          lives.push_back({w.offset, w.bytes * w.copies, 0, t + 1});
        else
          lives.push_back({w.offset, w.bytes, t, accumulator && !c.readBehind[w.buffer] ? std::max(end, t + 1) : t + 1});
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

  const CheckedPlan &c;
  const StepGraph &g;
  const ScheduledProgram &p;
};

} // namespace

std::string checkPeak(const CheckedPlan &plan) { return PeakChecker(plan).run(); }

} // namespace cinch::solve
