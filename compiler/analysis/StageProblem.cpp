// StageProblem.cpp: seconds, bytes and values of segments.
#include "compiler/analysis/StageProblem.h"

#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"

#include <algorithm>
#include <numeric>
#include <set>

using namespace mlir;

namespace cinch::analysis {
namespace {

// More units would not change the cut by more than the time of one: under a hundredth of the step.
constexpr int kMostUnits = 128;

class Builder {
public:
  Builder(const Step &step, const StepProblem &problem, const StageHomes &homes, int64_t microbatch, int shards, int holders,
          bool stateLeaves, const std::vector<std::pair<int, int>> &forced)
      : step(step), graph(problem.graph), problem(problem), homes(homes), microbatch(microbatch), shards(shards), holders(holders),
        stateLeaves(stateLeaves), forced(forced) {}

  StageProblem build(int units) {
    size_t count = homes.segments.size();
    segments.resize(count);
    // What runs for the examples before the main loop belongs to no segment.
    partOf.resize(graph.kernels.size());
    for (size_t k = 0; k < graph.kernels.size(); ++k)
      partOf[k] = solve::isLoop(graph.kernels[k].section) && !graph.inMainLoop(int(k)) ? -1 : int(k);
    for (size_t k = 0; k < graph.kernels.size(); ++k)
      addKernel(k);
    for (size_t b = 0; b < graph.buffers.size(); ++b)
      addBuffer(int(b));
    func::FuncOp function = step.function;
    for (BlockArgument argument : function.getArguments())
      if (int owner = homes.ownerOf(argument); owner >= 0 && !(stateLeaves && function.getArgAttr(argument.getArgNumber(), nn::kSlotAttr)))
        segments[size_t(owner)].fixed += int64_t(graph.buffers[problem.buffer.lookup(argument)].bytes(microbatch) / partsOf(argument));
    return merge(units);
  }

private:
  // Of how many workers' parts a value or a kernel is one: then it counts for so much less on each.
  int partsOf(BlockArgument argument) const {
    func::FuncOp function = step.function;
    int once = homes.liesOnce(argument) ? holders : 1;
    for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
      if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind); name && nn::shardOfName(name.getValue()))
        return shards * once;
    return once;
  }
  int shardOf(size_t kernel) const { return partOf[kernel] < 0 ? -1 : StageHomes::shardOf(step.parts[size_t(partOf[kernel])].op); }
  int partsOf(size_t kernel) const { return shardOf(kernel) < 0 ? 1 : shards; }

  void addKernel(size_t k) {
    int part = partOf[k];
    if (part < 0 || homes.home[size_t(part)] < 0) // an early loop, or done everywhere
      return;
    const solve::Kernel &kernel = graph.kernels[k];
    solve::Segment &segment = segments[size_t(homes.home[size_t(part)])];
    double seconds = kernel.seconds.at(double(microbatch)) / partsOf(k);
    if (!graph.inMainLoop(int(k)))
      segment.update += seconds / holders;
    else if (kernel.backward)
      (homes.onlyWeights[size_t(part)] ? segment.weight : segment.input) += seconds;
    else
      segment.forward += seconds;
  }

  // What later segments and the backward sweep read.
  void addBuffer(int b) {
    const solve::Buffer &buffer = graph.buffers[size_t(b)];
    if (buffer.producer < 0 || partOf[size_t(buffer.producer)] < 0)
      return;
    int home = homes.home[size_t(partOf[size_t(buffer.producer)])];
    const solve::Kernel &producer = graph.kernels[size_t(buffer.producer)];
    if (home < 0 || !graph.inMainLoop(buffer.producer))
      return;
    int64_t bytes = buffer.bytes(microbatch) / partsOf(size_t(buffer.producer));
    solve::Segment &segment = segments[size_t(home)];
    if (buffer.kind == solve::Buffer::Accumulator) {
      segment.fixed += bytes;
      return;
    }
    // What a shard sends to others and, of as many values of theirs, what it gets from them. It waits for these once: all shards send their
    // values, or the pieces of one, at the same time.
    if (int others = othersThatRead(b))
      (producer.backward ? segment.input : segment.forward) +=
          2 * others * double(bytes) * problem.secondsOfMessageByte() +
          problem.secondsOfMessage() * others / (shards - 1) / partsOf(size_t(buffer.producer));
    if (producer.backward)
      return;
    solve::SegmentValue value;
    value.source = home;
    bool saved = false;
    for (size_t k = 0; k < graph.kernels.size(); ++k)
      if (llvm::is_contained(graph.kernels[k].reads, b)) {
        saved |= graph.kernels[k].backward;
        int reader = partOf[k] < 0 ? -1 : homes.home[size_t(partOf[k])];
        if (reader > home && !llvm::is_contained(value.targets, reader))
          value.targets.push_back(reader);
      }
    if (saved)
      segment.ways.front().held += bytes;
    if (value.targets.empty())
      return;
    llvm::sort(value.targets);
    value.bytes = value.gradientBytes = bytes;
    values.push_back(value);
  }

  // Shards beside the one that makes a value.
  int othersThatRead(int b) const {
    int maker = shardOf(size_t(graph.buffers[size_t(b)].producer));
    std::set<int> readers;
    for (size_t k = 0; maker >= 0 && k < graph.kernels.size(); ++k)
      if (llvm::is_contained(graph.kernels[k].reads, b))
        for (int t = 0; t < shards; ++t)
          if (int reader = shardOf(k); t != maker && (reader < 0 || reader == t))
            readers.insert(t);
    return int(readers.size());
  }

  // Where each shard has done as much as the others: a cut elsewhere would have some of them idle in either stage.
  std::vector<bool> evenPlaces() const {
    std::vector<bool> even(segments.size() + 1, true);
    std::vector<int> done(size_t(shards), 0); // segments since one that all have
    for (size_t i = 0; i < segments.size(); ++i) {
      even[i] = llvm::all_equal(done);
      int shard = StageHomes::shardOf(step.parts[size_t(homes.segments[i])].op);
      if (shard < 0)
        done.assign(done.size(), 0);
      else
        ++done[size_t(shard)];
    }
    return even;
  }

  bool isForced(size_t segment) const {
    return llvm::any_of(forced, [&](auto &f) { return f.first == int(segment); });
  }

  // The step's time is divided into windows; a cut is offered in each, where least crosses, and wherever one has to be.
  StageProblem merge(int units) {
    size_t count = segments.size();
    std::vector<int64_t> crossing(count + 1, 0); // before segment i
    for (const solve::SegmentValue &value : values)
      for (int i = value.source + 1; i <= value.targets.back(); ++i)
        crossing[size_t(i)] += value.bytes;
    double all = 0, before = 0;
    for (const solve::Segment &segment : segments)
      all += segment.forward + segment.input + segment.weight;
    int windows = std::max(kMostUnits, units);
    StageProblem out;
    out.split.latency = problem.secondsOfMessage();
    out.first.assign(1, 0);
    int last = -1; // window of the last cut
    std::vector<bool> even = evenPlaces();
    for (size_t i = 1; i < count; ++i) {
      before += segments[i - 1].forward + segments[i - 1].input + segments[i - 1].weight;
      if (!even[i] && !isForced(i))
        continue;
      int window = int(count) <= windows ? int(i) : std::min(windows - 1, int(before / std::max(all, 1e-12) * windows));
      if (window != last || isForced(i))
        out.first.push_back(int(i));
      else if (!isForced(size_t(out.first.back())) && crossing[i] < crossing[size_t(out.first.back())])
        out.first.back() = int(i);
      last = window;
    }
    if (int(out.first.size()) < units) { // very uneven segments: everywhere
      out.first.resize(count);
      std::iota(out.first.begin(), out.first.end(), 0);
    }
    std::vector<int> unitOf(count, 0);
    for (size_t u = 0; u < out.first.size(); ++u)
      for (size_t i = size_t(out.first[u]); i < (u + 1 < out.first.size() ? size_t(out.first[u + 1]) : count); ++i)
        unitOf[i] = int(u);
    for (auto [segment, stage] : forced)
      out.split.forced.push_back({unitOf[size_t(segment)], stage});
    out.split.segments.resize(out.first.size());
    for (size_t i = 0; i < count; ++i) {
      solve::Segment &unit = out.split.segments[size_t(unitOf[i])];
      unit.forward += segments[i].forward, unit.input += segments[i].input, unit.weight += segments[i].weight;
      unit.update += segments[i].update, unit.fixed += segments[i].fixed;
      unit.ways.front().held += segments[i].ways.front().held;
    }
    for (solve::Segment &unit : out.split.segments) {
      solve::Segment::Way keep = unit.ways.front();
      if (keep.held > 0) // computed again from what the stage received
        unit.ways.push_back({unit.forward, 0, keep.held});
    }
    for (solve::SegmentValue value : values) {
      value.source = unitOf[size_t(value.source)];
      std::vector<int> targets;
      for (int target : value.targets)
        if (unitOf[size_t(target)] > value.source && (targets.empty() || targets.back() != unitOf[size_t(target)]))
          targets.push_back(unitOf[size_t(target)]);
      value.targets = std::move(targets);
      if (!value.targets.empty())
        out.split.values.push_back(std::move(value));
    }
    return out;
  }

  const Step &step;
  const solve::StepGraph &graph;
  const StepProblem &problem;
  const StageHomes &homes;
  int64_t microbatch;
  int shards, holders;
  bool stateLeaves;
  const std::vector<std::pair<int, int>> &forced;
  std::vector<int> partOf; // of the graph's kernels
  std::vector<solve::Segment> segments;
  std::vector<solve::SegmentValue> values;
};

} // namespace

std::vector<int> StageProblem::stagesOf(const solve::Split &cuts, int segments) const {
  std::vector<int> stages(size_t(segments), 0);
  for (int cut : cuts.cuts)
    for (int i = first[size_t(cut)]; i < segments; ++i)
      ++stages[size_t(i)];
  return stages;
}

StageProblem buildStageProblem(const Step &step, const StepProblem &problem, const StageHomes &homes, int64_t microbatch, int units, int shards,
                               int holders, bool stateLeaves, const std::vector<std::pair<int, int>> &forced) {
  return Builder(step, problem, homes, microbatch, shards, holders, stateLeaves, forced).build(units);
}

} // namespace cinch::analysis
