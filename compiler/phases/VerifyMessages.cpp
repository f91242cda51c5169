// VerifyMessages.cpp: the workers of an entry come to their end, whatever their timing is.
//
// What a worker sends and receives, before, in and behind its loops, is written down as one list in the order of its code. The lists are run
// against the room of the channels. Workers that would wait for one another for ever, and messages that nobody receives, are internal errors
// here, instead of a program that stands still.
#include "compiler/analysis/Cost.h"
#include "compiler/phases/Compile.h"
#include "compiler/phases/StageTables.h"
#include "compiler/solve/stages/Exchanges.h"
#include "compiler/transforms/ScheduleLives.h"
#include "dialects/plan/Plan.h"

#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace cinch {
namespace {

// The list of one worker.
struct Listing {
  Listing(ArrayRef<Channel> channels, int64_t trips) : channels(channels), trips(trips) {}

  ArrayRef<Channel> channels;
  int64_t trips; // of loops that their caller counts
  std::vector<solve::Exchange> exchanges;
  std::vector<StringRef> labels; // of the exchanges

  void add(uint64_t number, bool sent, Value value, StringRef label) {
    const Channel &channel = channels[number];
    int64_t messages = channel.pieces ? (analysis::bytesOf(value) + channel.fixedBytes - 1) / channel.fixedBytes : 1;
    exchanges.push_back({int(number), sent, messages});
    labels.push_back(label);
  }

  // `first`, `last`: whether it is the first, the last micro-batch of its loop.
  void add(Operation &op, bool first, bool last) {
    if (auto send = dyn_cast<plan::SendOp>(op); send && (last || !send.getLast()))
      add(send.getChannel(), true, send.getValue(), send.getLabel());
    if (auto receive = dyn_cast<plan::ReceiveOp>(op); receive && (receive.getAdds() ? last : first || !receive.getBegins()))
      add(receive.getChannel(), false, receive.getValue(), receive.getLabel());
  }

  void addPart(plan::LoopOp loop, int64_t part, int64_t microbatch, int64_t count) {
    for (Operation &op : loop.block())
      if (isa<plan::PartOp>(op))
        --part;
      else if (part == 0)
        add(op, microbatch == 0, microbatch == count - 1);
  }

  void add(plan::LoopOp loop) {
    int64_t count = loop.getCount() ? int64_t(loop.getCount()) : trips;
    if (loop.getActions()) {
      for (const plan::Action &action : loop.getActionsAttr().getList())
        addPart(loop, action.part, action.microbatch, count);
      return;
    }
    for (int64_t trip = 0; trip < count; ++trip)
      addPart(loop, 0, trip, count);
  }

  // Several steps, in each of which a part of the next one is done; the last one goes no further than its own end.
  void addOverlapping(func::FuncOp function, plan::LoopOp loop) {
    constexpr int kSteps = 3;
    int64_t count = int64_t(loop.getCount());
    ArrayRef<plan::Action> actions = loop.getActionsAttr().getList();
    Block &block = function.getBody().front();
    auto addBefore = [&](int times) {
      for (int i = 0; i < times; ++i)
        for (Operation &op : llvm::make_range(block.begin(), loop->getIterator()))
          addOutside(op);
    };
    for (int step = 0; step < kSteps; ++step) {
      bool further = step + 1 < kSteps;
      addBefore(1 + further);
      for (const plan::Action &action : actions)
        if (step == 0 && action.microbatch >= count)
          addPart(loop, action.part, action.microbatch - count, count);
      for (const plan::Action &action : actions)
        if (further || action.microbatch < count)
          addPart(loop, action.part, action.microbatch % count, count);
      for (Operation &op : llvm::make_range(std::next(loop->getIterator()), block.end()))
        addOutside(op);
    }
  }

  void addOutside(Operation &op) {
    if (auto loop = dyn_cast<plan::LoopOp>(op); loop && loop.examples())
      add(loop);
    else
      add(op, true, true);
  }

  void add(func::FuncOp function) {
    Block &block = function.getBody().front();
    for (auto loop : block.getOps<plan::LoopOp>())
      if (overlaps(loop))
        return addOverlapping(function, loop);
    for (Operation &op : block)
      addOutside(op);
  }
};

// Of an evaluation's loop, which its caller counts: those that its list of actions is written for. Without lists a few show the order.
int64_t tripsOf(func::FuncOp function) {
  int64_t trips = 3;
  for (auto loop : function.getBody().front().getOps<plan::LoopOp>())
    if (loop.getActions() && loop.getCount() == 0)
      for (const plan::Action &action : loop.getActionsAttr().getList())
        trips = std::max(trips, action.microbatch + 1);
  return trips;
}

} // namespace

bool Compilation::verifyMessages() {
  if (workers.count == 1)
    return true;
  std::map<std::string, int64_t> trips; // of an entry
  for (EntryPlan &entry : entries)
    trips[entry.name] = std::max(trips[entry.name], tripsOf(functionOf(entry)));
  std::map<std::string, std::vector<Listing>> lists; // of an entry, by workers
  for (EntryPlan &entry : entries)
    lists[entry.name].emplace_back(workers.channels, trips[entry.name]).add(functionOf(entry));
  std::vector<int> boxes;
  for (const Channel &channel : workers.channels)
    boxes.push_back(channel.boxes);
  for (auto &[name, all] : lists) {
    std::vector<std::vector<solve::Exchange>> exchanges;
    for (const Listing &list : all)
      exchanges.push_back(list.exchanges);
    solve::ExchangesEnd end = solve::run(exchanges, boxes);
    if (end.isGood())
      continue;
    std::string text;
    for (auto [worker, list] : llvm::enumerate(all))
      if (size_t at = end.at[worker]; at < list.exchanges.size())
        text += llvm::formatv("; worker {0} waits to {1} `{2}` {3} worker {4}", worker, list.exchanges[at].sent ? "send" : "receive", list.labels[at],
                              list.exchanges[at].sent ? "to" : "from",
                              list.exchanges[at].sent ? workers.channels[size_t(list.exchanges[at].channel)].to
                                                      : workers.channels[size_t(list.exchanges[at].channel)].from);
    for (auto [channel, unread] : llvm::enumerate(end.unread))
      if (end.finished && unread > 0)
        text += llvm::formatv("; worker {0} never receives {1} messages of worker {2}", workers.channels[channel].to, unread, workers.channels[channel].from);
    emitError(UnknownLoc::get(&context)) << "internal error: phase 'scheduled': the workers of `" << name << "` do not come to their end" << text;
    return false;
  }
  return true;
}

} // namespace cinch
