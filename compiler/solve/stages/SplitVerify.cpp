// SplitVerify.cpp: is a problem sane, what does a split cost, is an answer right? From the definitions in Split.h alone.
#include "compiler/solve/stages/Split.h"

#include <algorithm>
#include <cmath>
#include <set>

namespace cinch::solve {

namespace {

constexpr double kMostSeconds = 1e100; // a table of so many actions as there may be ends at a finite time
bool isTime(double seconds) { return seconds >= 0 && seconds <= kMostSeconds; }
constexpr int64_t kMostBytes = int64_t(1) << 50; // of one thing
bool isSize(int64_t bytes) { return bytes >= 0 && bytes <= kMostBytes; }
constexpr double kMostTogether = double(int64_t(1) << 60);

// No fewer bytes than all workers hold together, whatever the cuts and ways are and however many micro-batches wait: sums of less than kMostTogether
// are exact in 64 bits.
double mostBytes(const SplitProblem &p) {
  const double waiting = double(p.request.microbatches) * p.request.steps + 1, stages = double(p.request.workers) * p.request.chunks;
  double bytes = 0;
  for (const Segment &s : p.segments) {
    double held = 0, work = 0;
    for (const Segment::Way &way : s.ways)
      held = std::max(held, double(way.held)), work = std::max(work, double(way.work));
    bytes += double(s.fixed) + 4 * double(s.parameters) + waiting * (held + double(s.late)) + work;
  }
  for (const SegmentValue &v : p.values) {
    const double gradient = std::max<double>(0, double(v.gradientBytes)), readers = std::min(double(v.targets.size()), stages);
    bytes += waiting * readers * double(v.bytes) + 2 * stages * (double(v.bytes) + gradient);
  }
  for (const SplitProblem::Shared &s : p.shared)
    bytes += double(s.bytes) * stages;
  return bytes;
}

} // namespace

bool SplitProblem::allows(int i, int j, int stage) const {
  for (auto [segment, wanted] : forced) {
    bool begins = segment == i;
    if ((segment > i && segment < j) || (begins && stage == 0) || (wanted != kAnyStage && begins != (wanted == stage)))
      return false;
  }
  return true;
}

// From the first stage on: the segments at which the next stage may begin.
bool SplitProblem::cutExists(int stages) const {
  std::vector<char> reached(segments.size() + 1, 0);
  reached[0] = 1;
  for (int stage = 0; stage < stages; ++stage) {
    std::vector<char> next(reached.size(), 0);
    for (int i = 0; i < size(); ++i)
      for (int j = i + 1; reached[size_t(i)] && j <= size(); ++j)
        next[size_t(j)] |= allows(i, j, stage);
    reached = std::move(next);
  }
  return reached[segments.size()];
}

std::string check(const SplitProblem &p) {
  if (std::string wrong = check(p.request); !wrong.empty())
    return wrong;
  int stages = p.request.workers * p.request.chunks;
  if (p.size() > 1024)
    return "more than 1024 segments: take several as one";
  if (p.size() < stages)
    return std::to_string(p.size()) + " segments cannot be cut into " + std::to_string(stages) +
           " stages: a stage is never empty";
  for (const Segment &s : p.segments) {
    std::string who = "segment " + s.name + ": ";
    if (!isTime(s.forward) || !isTime(s.input) || !isTime(s.weight) || !isTime(s.update))
      return who + "seconds must be at most 1e100 and not negative";
    if (!isSize(s.fixed) || !isSize(s.parameters) || !isSize(s.late))
      return who + "bytes must be at most 2^50 and not negative";
    if (s.ways.empty())
      return who + "expected at least one way";
    for (const Segment::Way &way : s.ways)
      if (!isTime(way.seconds) || !isSize(way.held) || !isSize(way.work))
        return who + "a way's seconds must be at most 1e100, its bytes at most 2^50, and neither negative";
  }
  for (const SegmentValue &v : p.values) {
    std::string who = "value of segment " + std::to_string(v.source) + ": ";
    if (v.source < 0 || v.source >= p.size() || v.targets.empty())
      return who + "expected a source that exists, and targets";
    for (int target : v.targets)
      if (target <= v.source || target >= p.size())
        return who + "segment " + std::to_string(target) + " cannot read it: expected a later one that exists";
    if (!isSize(v.bytes) || v.gradientBytes > kMostBytes)
      return who + "bytes must be at most 2^50 and not negative";
  }
  for (const SplitProblem::Shared &s : p.shared) {
    if (!isSize(s.bytes))
      return "shared bytes must be at most 2^50 and not negative";
    for (int k : s.segments)
      if (k < 0 || k >= p.size())
        return "segment " + std::to_string(k) + ", which shares, does not exist";
  }
  for (size_t i = 0; i < p.forced.size(); ++i) {
    auto [segment, stage] = p.forced[i];
    if (segment <= (i ? p.forced[i - 1].first : 0) || segment >= p.size())
      return "stages begin at segments in ascending order, from 1 on";
    if (stage != SplitProblem::kAnyStage && (stage < 1 || stage >= stages))
      return "stage " + std::to_string(stage) + " does not exist: expected at most " + std::to_string(stages - 1);
  }
  if (!p.cutExists(stages))
    return "no cut has its stages begin where they are told to: a stage is never empty";
  if (int(p.budgets.size()) != p.request.workers)
    return "expected a budget for each of " + std::to_string(p.request.workers) + " workers, got " +
           std::to_string(p.budgets.size());
  for (int64_t budget : p.budgets)
    if (budget < 0)
      return "a budget must not be negative";
  if (!isTime(p.latency) || !(p.bandwidth >= 1 / kMostSeconds))
    return "expected a latency from 0 to 1e100 and a bandwidth of at least 1e-100";
  if (mostBytes(p) > kMostTogether)
    return "segments, values and what waits of all micro-batches may take more than 2^60 bytes together";
  return "";
}

TableCosts costsOf(const SplitProblem &p, const ScheduleTable &table, const Split &split) {
  TableCosts costs;
  costs.latency = p.latency, costs.bandwidth = p.bandwidth;
  auto stageOf = [&](int segment) {
    return int(std::upper_bound(split.cuts.begin(), split.cuts.end(), segment) - split.cuts.begin());
  };
  costs.stages.resize(table.stages());
  for (int k = 0; k < p.size(); ++k) {
    const Segment &s = p.segments[k];
    const Segment::Way &way = s.ways[split.ways[k]];
    StageCost &c = costs.stages[stageOf(k)];
    c.forward += s.forward, c.input += s.input + way.seconds, c.weight += s.weight, c.update += s.update;
    c.fixed += s.fixed + (table.versions + table.accumulators - 2) * s.parameters;
    c.held += way.held, c.late += s.late;
    c.backwardWork = std::max(c.backwardWork, way.work);
  }
  for (const SplitProblem::Shared &shared : p.shared) {
    std::set<int> on;
    for (int k : shared.segments)
      on.insert(stageOf(k));
    for (int s : on)
      costs.stages[s].fixed += shared.bytes;
  }
  costs.transfers = chainTransfers(table.stages());
  for (Transfer &t : costs.transfers)
    t.gradientBytes = -1;
  for (const SegmentValue &v : p.values) {
    std::set<int> readers;
    for (int k : v.targets)
      readers.insert(stageOf(k));
    // Received by every stage after the source's up to the last reader's: held where it is read, else passed on.
    for (int s = stageOf(v.source) + 1; s <= *readers.rbegin(); ++s) {
      Transfer &t = costs.transfers[s - 1];
      t.bytes += v.bytes;
      if (v.gradientBytes >= 0)
        t.gradientBytes = std::max<int64_t>(t.gradientBytes, 0) + v.gradientBytes;
      if (readers.count(s)) {
        costs.stages[s].held += v.bytes;
        if (table.slots[s] < table.microbatchesOfAllSteps())
          costs.stages[s].fixed += v.bytes;
      }
    }
  }
  for (const Transfer &t : costs.transfers) {
    int64_t gradient = std::max<int64_t>(t.gradientBytes, 0);
    costs.stages[t.from].fixed += t.bytes + gradient;
    costs.stages[t.to].fixed += gradient;
  }
  return costs;
}

int64_t bytesOf(const ScheduleTable &table, const TableCosts &costs, int worker) {
  int64_t bytes = 0, work = 0;
  for (int s = 0; s < table.stages(); ++s)
    if (table.workerOf[s] == worker) {
      const StageCost &c = costs.stages[s];
      bytes += c.fixed + table.slots[s] * c.held + table.lateSlots[s] * c.late;
      work = std::max({work, c.forwardWork, c.backwardWork});
    }
  return bytes + work;
}

std::string verify(const SplitProblem &p, const SplitSolution &s) {
  if (s.status == SplitSolution::Infeasible || s.status == SplitSolution::Unknown)
    return "";
  ScheduleTable table = generate(p.request);
  if (std::string wrong = verify(table); !wrong.empty())
    return wrong;
  if (int(s.split.cuts.size()) != table.stages() - 1)
    return "expected " + std::to_string(table.stages() - 1) + " cuts, got " + std::to_string(s.split.cuts.size());
  for (size_t i = 0; i < s.split.cuts.size(); ++i)
    if (s.split.cuts[i] <= (i ? s.split.cuts[i - 1] : 0) || s.split.cuts[i] >= p.size())
      return "cut " + std::to_string(i) + " leaves an empty stage";
  for (auto [segment, stage] : p.forced) {
    auto cut = std::find(s.split.cuts.begin(), s.split.cuts.end(), segment);
    if (cut == s.split.cuts.end() || (stage != SplitProblem::kAnyStage && cut - s.split.cuts.begin() + 1 != stage))
      return "no stage begins at segment " + std::to_string(segment) + ", or another one";
  }
  if (int(s.split.ways.size()) != p.size())
    return "expected a way for each segment";
  for (int k = 0; k < p.size(); ++k)
    if (s.split.ways[k] < 0 || s.split.ways[k] >= int(p.segments[k].ways.size()))
      return "segment " + std::to_string(k) + " has no way " + std::to_string(s.split.ways[k]);
  TableCosts costs = costsOf(p, table, s.split);
  Simulation simulation = simulate(table, costs);
  for (int w = 0; w < p.request.workers; ++w) {
    int64_t bytes = bytesOf(table, costs, w);
    if (bytes > p.budgets[w])
      return "worker " + std::to_string(w) + " needs " + std::to_string(bytes) + " bytes, its budget is " +
             std::to_string(p.budgets[w]);
    if (simulation.peak[w] > bytes)
      return "worker " + std::to_string(w) + " holds " + std::to_string(simulation.peak[w]) + " bytes, declared are " +
             std::to_string(bytes);
  }
  double slack = 1e-9 * std::max(1.0, simulation.makespan);
  if (std::abs(simulation.makespan - s.makespan) > slack)
    return "the table ends after " + std::to_string(simulation.makespan) + " s, claimed are " + std::to_string(s.makespan);
  if (s.bound > s.makespan + slack || (s.status == SplitSolution::Optimal && s.bound < s.makespan - slack))
    return "the bound contradicts the makespan";
  return "";
}

} // namespace cinch::solve
