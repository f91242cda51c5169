// PartitionMessages.cpp: values that a worker reads and another one makes.
#include "compiler/transforms/Partitioner.h"

using namespace mlir;

namespace cinch {

// Itself, or the one of its shard.
int Partitioner::nearest(ArrayRef<int> places, int w) const {
  if (llvm::is_contained(places, w))
    return w;
  for (int place : places)
    if (place % layout.shards == w % layout.shards)
      return place;
  return places.front();
}

int Partitioner::sourceOf(Value value, int to) const {
  int w = to % layout.workers, d = to / layout.workers;
  int writer = homes.writerOf(value);
  if (writer < 0)
    return homes.isData(value) ? to : layout.numberOf(nearest(ownersOf(cast<BlockArgument>(value)), w), d);
  SmallVector<int> places;
  for (auto [place, loopPart] : at[size_t(writer)])
    places.push_back(place);
  int replica = layout.makesOwnSteps() || !isFinished(value) ? d : isSum(value) ? lastReplica() : replicaOf[size_t(writer)];
  return layout.numberOf(nearest(places, w), replica);
}

void Partitioner::findMessages() {
  func::FuncOp function = step.function;
  for (BlockArgument argument : function.getArguments())
    findMessagesOf(argument);
  for (const analysis::Step::Part &part : step.parts)
    for (OpResult result : part.op->getResults())
      if (step.homeOf(result) || !parameterOf(result)) // rows of a new parameter go around with the parameters
        findMessagesOf(result);
}

void Partitioner::findMessagesOf(Value value) {
  int writer = homes.writerOf(value), gate = -1;
  for (auto [i, part] : llvm::enumerate(step.parts))
    if (isa<plan::GateOp>(part.op))
      gate = int(i);
  llvm::MapVector<int, SmallVector<int>> readers;
  for (int reader : homes.readersOf(value))
    for (auto [w, loopPart] : at[size_t(reader)])
      for (int d = 0; d < layout.replicas; ++d)
        if (int to = layout.numberOf(w, d); runsOn(reader, d) && sourceOf(value, to) != to)
          readers[to].push_back(reader);
  for (auto &[to, list] : readers) {
    Channel channel;
    int from = sourceOf(value, to), w = to % layout.workers;
    channel.from = from, channel.to = to;
    solve::Buffer bytes = analysis::bufferFor(value, named(value), step.batch);
    channel.fixedBytes = bytes.fixedBytes, channel.perExampleBytes = bytes.perExampleBytes;
    channel.label = bytes.name;
    channel.inLoop = writer >= 0 && isLoop(regionOf(writer)) && regionOf(list.front()) == regionOf(writer);
    Message message{int(channels.size()), from, to, list.front()};
    if (channel.inLoop) {
      // Before the first reader of the part in which it must be there, or at that part's end.
      // What is made with the gradients of parameters goes to shards of the same stage alone, which have the same actions: it comes where it
      // is read. Were it awaited before, each shard would wait for what the others make later.
      int part = INT_MAX, made = at[size_t(writer)][from % layout.workers];
      bool late = regionOf(writer) == mainLoop && made >= 2 * layout.chunks(from % layout.workers);
      for (int reader : list)
        part = std::min(part, late ? at[size_t(reader)][w] : readyFor(at[size_t(reader)][w], w));
      auto first = llvm::find_if(list, [&, w = w](int reader) { return at[size_t(reader)][w] == part; });
      message.before = first == list.end() ? -1 : *first;
      bool main = regionOf(writer) == mainLoop;
      channel.fromPart = main ? at[size_t(writer)][from % layout.workers] : -1;
      channel.toPart = main ? part : -1;
      if (message.before < 0)
        dueAtEnd[{to, part}].push_back(value);
    } else if (writer < gate && gate < message.before) {
      message.before = gate;
    }
    if (isHanded(value, message)) {
      message.channel = channelOfPieces(from, to, kHanded, value, "gradients");
      message.handed = true;
      messages[value].push_back(message);
      due[{to, message.before}].push_back(value);
      handed[{from, message.before}].push_back({value, message.channel});
      continue;
    }
    // By the action whose result it is a lost worker is named (runtime/Links.cpp); those of the loop have theirs by the layout.
    if (!channel.inLoop && gate >= 0 && regionOf(message.before) > mainLoop)
      channel.action = message.before <= gate ? "gate" : "update";
    channels.push_back(channel);
    messages[value].push_back(message);
    if (message.before >= 0)
      due[{to, message.before}].push_back(value);
  }
}

} // namespace cinch
