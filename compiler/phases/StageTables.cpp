// StageTables.cpp: from tables of actions to parts of loop bodies, from plans to seconds and bytes.
#include "compiler/phases/StageTables.h"

#include "dialects/plan/Plan.h"

using namespace mlir;

namespace cinch {

plan::MicrobatchesOp mainLoop(func::FuncOp function) {
  plan::MicrobatchesOp last;
  for (plan::MicrobatchesOp loop : function.getOps<plan::MicrobatchesOp>())
    last = loop;
  return last;
}

std::vector<std::vector<solve::ChannelProblem::Message>> messagesOf(func::FuncOp function, size_t first) {
  std::vector<std::vector<solve::ChannelProblem::Message>> parts(1);
  for (Operation &op : mainLoop(function).getBody().front()) {
    if (isa<plan::PartOp>(op))
      parts.emplace_back();
    if (auto send = dyn_cast<plan::SendOp>(op))
      parts.back().push_back({int(send.getChannel() - first), true});
    if (auto receive = dyn_cast<plan::ReceiveOp>(op))
      parts.back().push_back({int(receive.getChannel() - first), false});
  }
  return parts;
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
  int chunks = layout.chunks(worker), chunk = -1;
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

DenseI64ArrayAttr attributeOf(MLIRContext *context, ArrayRef<solve::PartAction> actions) {
  SmallVector<int64_t> numbers;
  for (const solve::PartAction &action : actions)
    numbers.append({action.part, action.microbatch});
  return DenseI64ArrayAttr::get(context, numbers);
}

PlanSeconds secondsOf(const DecideOutcome &outcome, size_t parts) {
  const solve::Decision &decision = outcome.result.plan.decision;
  const solve::StepGraph &graph = outcome.rows.graph;
  PlanSeconds seconds;
  seconds.parts.assign(parts, 0);
  size_t part = 0;
  for (int t = 0; t < int(decision.runs.size()); ++t) {
    const solve::Kernel &kernel = graph.kernels[size_t(decision.runs[size_t(t)].kernel)];
    double once = kernel.seconds.at(double(decision.microbatch));
    bool inLoop = t >= decision.loopBegin && t < decision.loopEnd;
    if (inLoop)
      part += kernel.newPart;
    if (inLoop)
      seconds.parts[part] += once;
    else
      (t < decision.loopBegin ? seconds.before : seconds.behind) += once * double(kernel.everyMicrobatch ? decision.count : 1);
  }
  return seconds;
}

solve::ChannelProblem channelProblem(const Divided &divided, const std::vector<std::vector<solve::PartAction>> &actions,
                                     std::vector<std::vector<double>> seconds) {
  solve::ChannelProblem problem;
  problem.actions = actions;
  problem.seconds = std::move(seconds);
  problem.travel.assign(divided.channels.size(), 0);
  for (func::FuncOp function : divided.functions)
    problem.messages.push_back(messagesOf(function, divided.first));
  return problem;
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
