// StageTables.cpp: from tables of actions to parts of loop bodies, from plans to seconds and bytes.
#include "compiler/phases/StageTables.h"

#include "compiler/analysis/Cost.h"
#include "compiler/solve/Timeline.h"
#include "dialects/plan/Plan.h"

#include <deque>
#include <map>

using namespace mlir;

namespace cinch {

plan::LoopOp mainLoop(func::FuncOp function) {
  plan::LoopOp last;
  for (plan::LoopOp loop : function.getOps<plan::LoopOp>())
    last = loop;
  return last;
}

size_t partsOf(func::FuncOp function) {
  auto marks = mainLoop(function).block().getOps<plan::PartOp>();
  return 1 + size_t(std::distance(marks.begin(), marks.end()));
}

using Message = solve::ChannelProblem::Message;

// Messages of each part of a worker's main loop, in order; `shares`: PlanSeconds of it, or none.
static std::vector<std::vector<Message>> messagesOf(func::FuncOp function, const Divided &divided, const PlanSeconds *shares) {
  std::vector<std::vector<Message>> parts(1);
  size_t number = 0; // among the part's messages
  auto add = [&](uint64_t channel, Value value, bool sent, Message::When when) {
    Message message{int(channel - divided.first), sent, when};
    if (shares)
      message.share = shares->shares[parts.size() - 1][number++];
    const Channel &through = divided.channels[size_t(message.channel)];
    int64_t times = through.pieces ? (analysis::bytesOf(value) + through.fixedBytes - 1) / through.fixedBytes : 1;
    parts.back().insert(parts.back().end(), size_t(times), message);
  };
  for (Operation &op : mainLoop(function).block()) {
    if (isa<plan::PartOp>(op))
      parts.emplace_back(), number = 0;
    if (auto send = dyn_cast<plan::SendOp>(op))
      add(send.getChannel(), send.getValue(), true, send.getLast() ? Message::Last : Message::Always);
    if (auto receive = dyn_cast<plan::ReceiveOp>(op))
      add(receive.getChannel(), receive.getValue(), false, receive.getAdds()     ? Message::Last
                                                                        : receive.getBegins() ? Message::First
                                                                                              : Message::Always);
  }
  return parts;
}

static bool isBackward(const solve::Action &action) {
  return action.kind == solve::Action::Backward || action.kind == solve::Action::InputGradient;
}

// Of a row: the gradients of inputs as they stand, those of parameters in the same order, later. Where steps overlap, micro-batches from `count`
// on are of the next step: their gradients wait for the next row, but no micro-batch begins a part before the same one of the step before has
// ended all of them. So what waits has a place for each micro-batch of a step at most (solve::copiesBetweenParts).
static std::vector<solve::Action> withLateGradients(const std::vector<solve::Action> &row, size_t late, int count) {
  using Kind = solve::Action;
  std::vector<solve::Action> out;
  std::deque<solve::Action> waiting;
  auto runUntil = [&](size_t left) {
    for (; waiting.size() > left && (late == 0 || waiting.front().microbatch < count); waiting.pop_front())
      out.push_back(waiting.front());
  };
  for (const solve::Action &action : row)
    if (late > 0 && isBackward(action) && action.microbatch >= count)
      waiting.push_back({Kind::WeightGradient, action.stage, action.microbatch - count});
  for (const solve::Action &action : row) {
    if (action.kind == Kind::WeightGradient)
      continue; // waits since its inputs' gradients
    if (action.kind == Kind::Update)
      runUntil(0);
    while (late > 0 && action.kind != Kind::Update && !waiting.empty() && waiting.front().microbatch <= action.microbatch - count)
      runUntil(waiting.size() - 1);
    out.push_back({isBackward(action) ? Kind::InputGradient : action.kind, action.stage, action.microbatch});
    if (isBackward(action))
      waiting.push_back({Kind::WeightGradient, action.stage, action.microbatch});
    runUntil(late);
  }
  runUntil(0);
  return out;
}

solve::ScheduleTable withLateGradients(const solve::ScheduleTable &table, int late) {
  solve::ScheduleTable out = table;
  for (std::vector<solve::Action> &row : out.rows)
    row = withLateGradients(row, size_t(late) * size_t(table.request.chunks), table.request.microbatches);
  return out;
}

solve::ScheduleTable steadyStep(const solve::ScheduleTable &table) {
  solve::ScheduleTable out = table;
  for (auto [row, whole] : llvm::zip(out.rows, table.rows)) {
    row.clear();
    auto updateOf = [&](int step) { return llvm::find(whole, solve::Action{solve::Action::Update, -1, step}); };
    for (solve::Action action : llvm::make_range(std::next(updateOf(0)), std::next(updateOf(1)))) {
      action.microbatch -= action.kind == solve::Action::Update ? 1 : table.request.microbatches;
      row.push_back(action);
    }
  }
  return out;
}

std::vector<solve::PartAction> actionsOf(const solve::ScheduleTable &table, const StageLayout &layout, int worker) {
  std::vector<int> chunkOf(table.workerOf.size(), 0);
  int chunks = 0;
  for (size_t stage = 0; stage < table.workerOf.size(); ++stage)
    if (table.workerOf[stage] == worker)
      chunkOf[stage] = chunks++;
  std::vector<solve::PartAction> actions;
  for (const solve::Action &action : table.rows[size_t(worker)]) {
    if (action.kind == solve::Action::Update)
      continue;
    int chunk = chunkOf[size_t(action.stage)];
    int part = action.kind == solve::Action::Forward          ? layout.forwardPart(chunk)
               : action.kind == solve::Action::WeightGradient ? layout.weightPart(chunks, chunk)
                                                              : layout.backwardPart(chunks, chunk);
    actions.push_back({part, action.microbatch});
  }
  return actions;
}

std::string actionOfPart(const StageLayout &layout, int worker, int part) {
  int chunks = layout.chunks(worker * layout.shards), chunk = -1;
  for (size_t stage = 0; stage < layout.workerOf.size(); ++stage) {
    chunk += layout.workerOf[stage] == worker;
    if (layout.workerOf[stage] != worker)
      continue;
    for (auto [kind, at] : {std::pair{"F", layout.forwardPart(chunk)},
                            std::pair{layout.splitsBackward ? "I" : "B", layout.backwardPart(chunks, chunk)},
                            std::pair{"W", layout.weightPart(chunks, chunk)}})
      if (at == part && (at < 2 * chunks || layout.splitsBackward))
        return std::to_string(stage) + kind;
  }
  return "";
}

std::vector<int64_t> lagsOf(int parts, int workers) {
  std::vector<int64_t> lags;
  for (int part = 0; part < parts; ++part)
    lags.push_back(int64_t(part) * workers);
  return lags;
}

std::vector<solve::PartAction> actionsOfLags(ArrayRef<int64_t> lags, int64_t count) {
  std::vector<solve::PartAction> actions;
  for (int64_t tick = 0; tick < count + lags.back(); ++tick)
    for (auto [part, lag] : llvm::enumerate(lags))
      if (tick >= lag && tick - lag < count)
        actions.push_back({int(part), tick - lag});
  return actions;
}

plan::ActionsAttr attributeOf(MLIRContext *context, ArrayRef<solve::PartAction> actions) {
  return plan::ActionsAttr::get(context, llvm::map_to_vector(actions, [](const solve::PartAction &action) {
                                  return plan::Action{action.part, action.microbatch};
                                }));
}

// When the messages of a loop body come, in seconds from its begin. A sum is waited for and sent where its work stands (AssignMemory.cpp).
namespace {
struct MessageTimes {
  struct Entry {
    size_t part = 0;
    double at = 0;      // as the plan has it
    double wanted = 0;  // begin of the work that goes on from it; end of the work that made it
    enum { Other, Begins, Ends } kind = Other;
  };
  std::vector<Entry> entries;
  std::vector<double> ends; // of the parts

  void move(bool inTurns) {
    double next = ends.back();
    for (Entry &entry : llvm::reverse(entries)) {
      double limit = inTurns ? next : std::min(next, ends[entry.part]);
      next = entry.at = entry.kind == Entry::Begins ? std::max(entry.at, std::min(entry.wanted, limit)) : entry.at;
    }
    double last = 0;
    for (Entry &entry : entries) {
      double limit = inTurns || entry.part == 0 ? last : std::max(last, ends[entry.part - 1]);
      last = entry.at = entry.kind == Entry::Ends ? std::min(entry.at, std::max(entry.wanted, limit)) : entry.at;
    }
    for (const Entry &entry : entries) // parts in turns have no border but that of their messages
      for (size_t part = entry.part; inTurns && part < ends.size(); ++part)
        ends[part] = std::max(ends[part], entry.at);
    for (const Entry &entry : entries)
      for (size_t part = 0; inTurns && part < entry.part; ++part)
        ends[part] = std::min(ends[part], entry.at);
  }
};
} // namespace

PlanSeconds secondsOf(const DecideOutcome &outcome, size_t parts) {
  const solve::Decision &decision = outcome.result.plan.decision;
  const solve::StepGraph &graph = outcome.rows.graph;
  auto isSum = [&](int buffer) { return graph.buffers[size_t(buffer)].kind == solve::Buffer::Accumulator; };
  PlanSeconds seconds;
  seconds.parts.assign(parts, 0), seconds.shares.resize(parts);
  MessageTimes messages;
  messages.ends.assign(parts, 0);
  std::map<int, std::pair<double, double>> work; // of sums: when the work that adds to it begins and ends
  size_t part = 0;
  double now = 0; // in the loop body
  auto kernelOf = [&](int t) -> const solve::Kernel & { return graph.kernels[size_t(decision.runs[size_t(t)].kernel)]; };
  for (int t = 0; t < int(decision.runs.size()); ++t) {
    const solve::Kernel &kernel = kernelOf(t);
    double once = kernel.seconds.at(double(decision.microbatch));
    if (kernel.section != graph.mainLoop()) {
      (kernel.section < graph.mainLoop() ? seconds.before : seconds.behind) += once * double(graph.trips(kernel.section, decision.microbatch));
      continue;
    }
    part += kernel.newPart;
    if (kernel.message)
      messages.entries.push_back({part, now});
    for (int buffer : kernel.writes)
      if (!kernel.message && isSum(buffer))
        work[buffer] = {now, now + once};
    now += once;
    messages.ends[part] = now;
  }
  if (solve::GraphIndex index(graph); index.offloads) // copies run beside the kernels
    seconds.behind = solve::runEngines(graph, index.behind, decision.microbatch).end;
  for (size_t p = 1; p < parts; ++p)
    messages.ends[p] = std::max(messages.ends[p], messages.ends[p - 1]);
  size_t i = 0;
  for (int t = decision.loopBegin(); t < decision.loopEnd(); ++t) {
    const solve::Kernel &kernel = kernelOf(t);
    if (!kernel.message)
      continue;
    MessageTimes::Entry &entry = messages.entries[i++];
    if (auto begun = work.find(kernel.writes.front()); begun != work.end() && entry.at < begun->second.second)
      entry.kind = MessageTimes::Entry::Begins, entry.wanted = begun->second.first;
    else if (begun != work.end()) // it is added to what the work has made
      entry.kind = MessageTimes::Entry::Ends, entry.wanted = begun->second.second;
    else if (auto ended = kernel.reads.empty() ? work.end() : work.find(kernel.reads.front()); ended != work.end())
      entry.kind = MessageTimes::Entry::Ends, entry.wanted = ended->second.second;
  }
  messages.move(solve::copiesBetweenParts(graph.actions).empty());
  for (size_t p = 0; p < parts; ++p)
    seconds.parts[p] = messages.ends[p] - (p ? messages.ends[p - 1] : 0);
  for (const MessageTimes::Entry &entry : messages.entries) {
    double begin = entry.part ? messages.ends[entry.part - 1] : 0;
    seconds.shares[entry.part].push_back(std::clamp((entry.at - begin) / std::max(seconds.parts[entry.part], 1e-12), 0.0, 1.0));
  }
  return seconds;
}

solve::ChannelProblem channelProblem(const Divided &divided, const std::vector<std::vector<solve::PartAction>> &actions,
                                     std::vector<std::vector<double>> seconds, ArrayRef<PlanSeconds> shares) {
  solve::ChannelProblem problem;
  problem.actions = actions;
  problem.seconds = std::move(seconds);
  problem.travel.assign(divided.channels.size(), 0);
  for (auto [w, function] : llvm::enumerate(divided.functions))
    problem.messages.push_back(messagesOf(function, divided, shares.empty() ? nullptr : &shares[w]));
  return problem;
}

OverlappingSteps::OverlappingSteps(const solve::ChannelProblem &one, double between) : problem(one), channels(one.travel.size()) {
  size_t workers = one.actions.size();
  int64_t count = solve::overlapOf(one.actions.front());
  problem.last = count - 1;
  auto toFirst = [&](size_t w) { return int(channels + 2 * (w - 1)); }; // and back
  problem.travel.resize(channels + 2 * (workers - 1), 0);
  for (size_t w = 0; w < workers; ++w) {
    int meeting = int(one.messages[w].size());
    std::vector<Message> messages;
    for (size_t other = 1; other < workers; ++other)
      if (w == 0)
        messages.push_back({toFirst(other), false});
    for (size_t other = 1; other < workers; ++other)
      if (w == 0)
        messages.push_back({toFirst(other) + 1, true});
    if (w > 0)
      messages = {{toFirst(w), true}, {toFirst(w) + 1, false}};
    problem.messages[w].push_back(messages);
    problem.seconds[w].resize(size_t(meeting));
    problem.seconds[w].push_back(w == 0 ? between : 0);
    std::vector<solve::PartAction> &all = problem.actions[w];
    all.clear();
    for (int call = 0; call < 4; ++call) {
      for (const solve::PartAction &action : one.actions[w])
        if (call == 0 && action.microbatch >= count)
          all.push_back({action.part, action.microbatch - count});
      for (const solve::PartAction &action : one.actions[w])
        if (call < 3 || action.microbatch < count)
          all.push_back(action);
      if (call == 1)
        steadyBegin.push_back(all.size());
      all.push_back({meeting, 0});
    }
  }
}

std::vector<int> OverlappingSteps::withMeetings(ArrayRef<int> boxes) const {
  std::vector<int> all(boxes);
  all.resize(problem.travel.size(), 1);
  return all;
}

solve::ChannelRun OverlappingSteps::steady(const solve::ChannelRun &run) const {
  solve::ChannelRun out;
  out.finished = run.finished;
  double begin = run.work.front()[steadyBegin.front()].end;
  for (auto [w, work] : llvm::enumerate(run.work)) {
    int meeting = problem.actions[w].back().part;
    out.work.emplace_back();
    out.busy.push_back(0);
    for (size_t i = steadyBegin[w] + 1; i < work.size(); ++i) {
      if (problem.actions[w][i].part == meeting) {
        if (w == 0)
          out.makespan = work[i].end - begin;
        break;
      }
      out.work.back().push_back({work[i].begin - begin, work[i].end - begin});
      out.busy.back() += problem.seconds[w][size_t(problem.actions[w][i].part)];
    }
  }
  return out;
}

int64_t messageBytes(const std::vector<Channel> &channels, ArrayRef<int> boxes, int worker, int64_t microbatch) {
  int64_t bytes = 0;
  for (auto [channel, box] : llvm::zip(channels, boxes)) {
    int64_t message = solve::roundUp(channel.bytes(microbatch));
    bytes += channel.to == worker ? message * box : 0;
    bytes += channel.from == worker ? message : 0;
  }
  return bytes;
}

} // namespace cinch
