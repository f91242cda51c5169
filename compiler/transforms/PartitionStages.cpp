// PartitionStages.cpp: every worker gets copies of its kernels, in the order of the function. A value that another worker makes is
// received right before its first reader, and sent right after it was made: the order of the function is one in which all messages
// come before they are waited for. Nothing is received behind the gate that was sent before it: if the gate is closed, nothing may be
// left in a channel.
//
// With replicas, what belongs to single examples and what stands before the main loop runs on every replica, what stands behind it on the
// last one. A sum of a loop begins, on replica d, with what replica d - 1 sends in its last micro-batch.
#include "compiler/transforms/PartitionStages.h"

#include "compiler/analysis/Cost.h"
#include "compiler/transforms/Decision.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

#include <map>

using namespace mlir;

namespace cinch {

int StageLayout::chunks(int worker) const { return int(llvm::count(workerOf, worker)); }

int StageLayout::chunk(int segment) const {
  int stage = stageOf[size_t(segment)], number = 0;
  for (int s = 0; s < stage; ++s)
    number += workerOf[size_t(s)] == workerOf[size_t(stage)];
  return number;
}

namespace {

class Partitioner {
public:
  Partitioner(const analysis::Step &step, const analysis::StageHomes &homes, const StageLayout &layout, size_t firstChannel,
              std::vector<Channel> &channels)
      : step(step), homes(homes), layout(layout), firstChannel(firstChannel), channels(channels), mainLoop(2 * int(step.loops.size()) - 1) {}

  FailureOr<std::vector<func::FuncOp>> run() {
    placeParts();
    findMessages();
    findChains();
    findReturns();
    cutIntoPieces();
    std::vector<func::FuncOp> functions;
    for (replica = 0; replica < layout.replicas; ++replica)
      for (worker = 0; worker < layout.workers; ++worker) {
        FailureOr<func::FuncOp> function = write();
        if (failed(function))
          return failure();
        functions.push_back(*function);
      }
    return functions;
  }

private:
  struct Message {
    int channel = 0;
    int from = 0, to = 0;
    int before = 0; // received before this part of the step
  };

  int regionOf(int part) const { return step.parts[size_t(part)].part; }
  bool isLoop(int region) const { return region % 2 == 1; }

  int lastReplica() const { return layout.replicas - 1; }
  bool runsOn(int part, int replica) const {
    Operation *op = step.parts[size_t(part)].op;
    if (isa<plan::GateOp>(op) || regionOf(part) <= mainLoop)
      return true;
    return replica == (isa<plan::ResultsOp>(op) ? 0 : lastReplica());
  }

  // On which workers of a replica each part of the step runs, and in which part of their loop bodies.
  void placeParts() {
    at.resize(step.parts.size());
    onlyWeights.assign(step.parts.size(), false);
    for (int part = int(step.parts.size()); part-- > 0;)
      onlyWeights[size_t(part)] = regionOf(part) == mainLoop && isBackward(step.parts[size_t(part)].op) && feedsOnlyWeights(part);
    for (int part = int(step.parts.size()); part-- > 0;) {
      Operation *op = step.parts[size_t(part)].op;
      int home = homes.home[size_t(part)];
      if (layout.replicas > 1 && layout.splitsBackward && onlySums(part)) {
        placeLate(part);
      } else if (isa<plan::GateOp>(op)) {
        for (int w = 0; w < layout.workers; ++w)
          at[part][w] = 0;
      } else if (home == analysis::StageHomes::kEverywhere) {
        placeWhereRead(part);
      } else if (isa<plan::ResultsOp>(op)) {
        at[part][0] = regionOf(part) == mainLoop ? layout.chunks(0) : 0;
      } else {
        int w = layout.worker(home), chunk = layout.chunk(home);
        int chunks = layout.chunks(w);
        at[part][w] = regionOf(part) != mainLoop                          ? 0
                      : !isBackward(op)                                   ? layout.forwardPart(chunk)
                      : layout.splitsBackward && onlyWeights[size_t(part)] ? layout.weightPart(chunks, chunk)
                                                                          : layout.backwardPart(chunks, chunk);
      }
      training |= regionOf(part) == mainLoop && isBackward(op);
      resultsInLoop |= regionOf(part) == mainLoop && isa<plan::ResultsOp>(op);
    }
  }

  // Sums of the forward sweep wait for the replica before as the gradients of parameters do.
  bool onlySums(int part) const {
    Operation *op = step.parts[size_t(part)].op;
    return regionOf(part) == mainLoop && op->getNumResults() > 0 && llvm::all_of(op->getResults(), [&](Value result) {
             return isSum(result) && llvm::none_of(homes.readersOf(result), [&](int reader) { return regionOf(reader) == mainLoop; });
           });
  }
  void placeLate(int part) {
    int home = homes.home[size_t(part)];
    if (home == analysis::StageHomes::kEverywhere)
      placeWhereRead(part);
    else
      at[part][layout.worker(home)] = 0;
    for (auto &[w, loopPart] : at[part])
      loopPart = layout.weightPart(layout.chunks(w), home < 0 ? 0 : layout.chunk(home));
  }

  // Is what a backward kernel makes read by gradients of parameters of the same segment only?
  bool feedsOnlyWeights(int part) const {
    for (Value result : step.parts[size_t(part)].op->getResults())
      for (int reader : homes.readersOf(result))
        if (regionOf(reader) == mainLoop &&
            (!onlyWeights[size_t(reader)] || homes.home[size_t(reader)] != homes.home[size_t(part)]))
          return false;
    return true;
  }

  // The parts of this worker's main loop.
  int partsOfLoop() const {
    int chunks = layout.chunks(worker);
    if (training)
      return chunks * (layout.splitsBackward ? 3 : 2);
    return chunks + (resultsInLoop && worker == 0);
  }

  static bool isBackward(Operation *op) {
    auto kernel = dyn_cast<plan::KernelOp>(op);
    return kernel && analysis::computedBy(kernel->getResult(0)).getDefiningOp()->hasAttr(nn::kBackwardAttr);
  }

  // The part of a worker's loop body in which an operand of work in `loopPart` must be there. The gradients of parameters of one chunk may
  // run before or behind the input gradients of another, but always behind those of their own.
  int readyFor(int loopPart, int w) const {
    int chunks = layout.chunks(w);
    return loopPart < 2 * chunks ? loopPart : layout.backwardPart(chunks, 3 * chunks - 1 - loopPart);
  }

  // What is computed from data alone is computed by each worker that reads it.
  void placeWhereRead(int part) {
    for (Value result : step.parts[size_t(part)].op->getResults())
      for (int reader : homes.readersOf(result))
        for (auto [w, loopPart] : at[reader]) {
          int here = regionOf(reader) == regionOf(part) ? readyFor(loopPart, w) : 0;
          auto [known, fresh] = at[part].try_emplace(w, here);
          if (!fresh)
            known->second = std::min(known->second, here);
        }
    if (at[part].empty())
      at[part][0] = 0;
  }

  // Where worker `to` (of all) gets a value from; itself, if it has it.
  int sourceOf(Value value, int to) const {
    int w = to % layout.workers, d = to / layout.workers;
    int writer = homes.writerOf(value);
    if (writer < 0)
      return homes.isData(value) ? to : layout.numberOf(layout.worker(homes.ownerOf(cast<BlockArgument>(value))), d);
    const std::map<int, int> &places = at[size_t(writer)];
    bool finished = regionOf(writer) > mainLoop || isSum(value); // on the last replica
    return layout.numberOf(places.count(w) ? w : places.begin()->first, finished ? lastReplica() : d);
  }

  void findMessages() {
    func::FuncOp function = step.function;
    for (BlockArgument argument : function.getArguments())
      findMessagesOf(argument);
    for (const analysis::Step::Part &part : step.parts)
      for (OpResult result : part.op->getResults())
        findMessagesOf(result);
  }

  void findMessagesOf(Value value) {
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
        int part = INT_MAX;
        for (int reader : list)
          part = std::min(part, readyFor(at[size_t(reader)][w], w));
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
      channels.push_back(channel);
      messages[value].push_back(message);
      if (message.before >= 0)
        due[{to, message.before}].push_back(value);
    }
  }

  // ---- Replicas --------------------------------------------------------------------------------------------------------
  // A channel for many values, which come in one order: `group` tells apart what may not.
  int channelOfPieces(int from, int to, int group, Value value, StringRef label) {
    auto [known, fresh] = pieces.try_emplace({from, to, group}, Pieces{int(channels.size())});
    if (fresh) {
      Channel &channel = channels.emplace_back();
      channel.from = from, channel.to = to, channel.pieces = true;
      channel.label = label.str();
    }
    int number = known->second.channel;
    int64_t bytes = solve::roundUp(analysis::bytesOf(value));
    channels[size_t(number)].fixedBytes = std::max(channels[size_t(number)].fixedBytes, bytes);
    known->second.bytes += bytes;
    return number;
  }

  // Sums go on from replica to replica.
  void findChains() {
    for (auto [i, part] : llvm::enumerate(step.parts))
      for (OpResult result : part.op->getResults()) {
        if (layout.replicas == 1 || !isSum(result))
          continue;
        for (auto [w, loopPart] : at[i])
          for (int d = 0; d + 1 < layout.replicas; ++d) {
            int group = regionOf(int(i)) == mainLoop ? loopPart : -regionOf(int(i));
            chains[{result, layout.numberOf(w, d)}] =
                channelOfPieces(layout.numberOf(w, d), layout.numberOf(w, d + 1), group, result, "sums");
          }
      }
  }

  // Who hands a new parameter on to whom: the last replica to the first, and so on until all have it.
  void findReturns() {
    for (const analysis::Step::Part &part : step.parts)
      for (OpResult result : part.op->getResults()) {
        BlockArgument argument = step.homeOf(result);
        if (layout.replicas == 1 || !argument || !isParameter(argument))
          continue;
        int w = layout.worker(homes.ownerOf(argument));
        for (int d = lastReplica(), hops = 0; hops + 1 < layout.replicas; d = (d + 1) % layout.replicas, ++hops)
          returns[{result, layout.numberOf(w, d)}] =
              channelOfPieces(layout.numberOf(w, d), layout.numberOf(w, (d + 1) % layout.replicas), kReturned, result, "parameters");
      }
  }

  // A message has 1/64 of what goes through its channel at most, so that what the mailboxes take is little.
  void cutIntoPieces() {
    for (auto &[key, all] : pieces) {
      int64_t piece = std::max<int64_t>(1 << 16, solve::roundUp(all.bytes / 64));
      channels[size_t(all.channel)].fixedBytes = std::min(channels[size_t(all.channel)].fixedBytes, piece);
    }
  }

  bool isParameter(BlockArgument argument) const {
    return bool(func::FuncOp(step.function).getArgAttr(argument.getArgNumber(), nn::kPathAttr));
  }

  // In place of an update on the last replica: the new parameters come.
  void receiveParameters(OpBuilder &builder, Operation *op) {
    for (OpResult result : op->getResults()) {
      int before = layout.numberOf(worker, (replica + layout.replicas - 1) % layout.replicas);
      auto from = returns.find({result, before});
      if (from == returns.end())
        continue;
      current[result] = plan::ReceiveOp::create(builder, named(result).getLoc(), result.getType(), firstChannel + uint64_t(from->second),
                                                builder.getStringAttr(analysis::nameOf(step.homeOf(result))), IntegerAttr(), DenseI64ArrayAttr());
      sendParameter(builder, result);
    }
  }
  void sendParameter(OpBuilder &builder, OpResult result) {
    if (auto to = returns.find({result, number()}); to != returns.end())
      plan::SendOp::create(builder, result.getLoc(), current.lookup(result), firstChannel + uint64_t(to->second),
                           builder.getStringAttr(analysis::nameOf(step.homeOf(result))), false, DenseI64ArrayAttr());
  }

  // A sum begins with what the replica before has, and its end goes to the next.
  void beginSum(OpBuilder &builder, OpResult result) {
    if (auto from = chains.find({result, number() - layout.workers}); from != chains.end())
      plan::ReceiveOp::create(builder, named(result).getLoc(), result.getType(), firstChannel + uint64_t(from->second),
                              builder.getStringAttr(analysis::nameOf(named(result))),
                              builder.getI64IntegerAttr(llvm::find(sums, Value(result)) - sums.begin()), DenseI64ArrayAttr());
  }
  void endSum(OpBuilder &builder, OpResult result) {
    if (auto to = chains.find({result, number()}); to != chains.end())
      plan::SendOp::create(builder, result.getLoc(), current.lookup(result), firstChannel + uint64_t(to->second),
                           builder.getStringAttr(analysis::nameOf(named(result))), true, DenseI64ArrayAttr());
  }

  int number() const { return layout.numberOf(worker, replica); }

  static Value named(Value value) {
    auto result = dyn_cast<OpResult>(value);
    return result && isa<plan::KernelOp>(result.getOwner()) ? analysis::computedBy(result) : value;
  }

  // ---- One worker ------------------------------------------------------------------------------------------------------
  FailureOr<func::FuncOp> write() {
    func::FuncOp source = step.function;
    OpBuilder builder(source.getContext());
    builder.setInsertionPointAfter(source);
    auto function = func::FuncOp::create(builder, source.getLoc(), (source.getName() + "_" + Twine(number())).str(),
                                         FunctionType::get(source.getContext(), {}, {}));
    for (NamedAttribute attribute : source->getDiscardableAttrs())
      function->setAttr(attribute.getName(), attribute.getValue());
    Block *body = function.addEntryBlock();
    current.clear();
    SmallVector<Attribute> argumentAttributes;
    for (BlockArgument argument : source.getArguments())
      if (isMine(argument)) {
        current[argument] = body->addArgument(argument.getType(), argument.getLoc());
        argumentAttributes.push_back(source.getArgAttrDict(argument.getArgNumber()));
      }
    builder.setInsertionPointToEnd(body);
    for (BlockArgument argument : source.getArguments())
      if (current.contains(argument))
        send(builder, argument);
    for (int region = 0; region <= mainLoop + 1; ++region)
      if (failed(isLoop(region) ? writeLoop(builder, region) : writeParts(builder, region, 0)))
        return failure();
    FailureOr<func::FuncOp> finished = finish(builder, function, argumentAttributes);
    if (succeeded(finished) && layout.replicas > 1)
      takeExamples(*finished);
    return finished;
  }

  // The examples of a replica.
  void takeExamples(func::FuncOp function) {
    int64_t examples = step.batch / layout.replicas;
    setExamples(function, examples);
    for (plan::MicrobatchesOp loop : function.getOps<plan::MicrobatchesOp>()) {
      loop.setSize(uint64_t(examples));
      loop.setFirst(uint64_t(replica * examples));
    }
  }

  // The worker has its parameters, on the last replica their state, and the data that it reads.
  bool isMine(BlockArgument argument) const {
    if (!homes.isData(argument))
      return layout.worker(homes.ownerOf(argument)) == worker && (isParameter(argument) || replica == lastReplica());
    return llvm::any_of(homes.readersOf(argument),
                        [&](int reader) { return at[size_t(reader)].count(worker) > 0 && runsOn(reader, replica); });
  }

  void send(OpBuilder &builder, Value value) {
    for (const Message &message : messages.lookup(value))
      if (message.from == number())
        plan::SendOp::create(builder, value.getLoc(), current.lookup(value), firstChannel + uint64_t(message.channel),
                             builder.getStringAttr(channels[size_t(message.channel)].label), false, DenseI64ArrayAttr());
  }

  void receiveBefore(OpBuilder &builder, int part) {
    if (auto found = due.find({number(), part}); found != due.end())
      receive(builder, found->second);
  }

  void receive(OpBuilder &builder, ArrayRef<Value> values) {
    for (Value value : values)
      for (const Message &message : messages.lookup(value))
        if (message.to == number())
          current[value] = plan::ReceiveOp::create(builder, named(value).getLoc(), value.getType(),
                                                   firstChannel + uint64_t(message.channel),
                                                   builder.getStringAttr(channels[size_t(message.channel)].label), IntegerAttr(),
                                                   DenseI64ArrayAttr());
  }

  // The kernels of a part of the step that belong to a part of the loop body.
  LogicalResult writeParts(OpBuilder &builder, int region, int loopPart) {
    for (int part = 0; part < int(step.parts.size()); ++part) {
      if (regionOf(part) != region)
        continue;
      auto mine = at[size_t(part)].find(worker);
      if (mine == at[size_t(part)].end() || mine->second != loopPart)
        continue;
      Operation *op = step.parts[size_t(part)].op;
      if (!runsOn(part, replica)) {
        receiveParameters(builder, op);
        continue;
      }
      receiveBefore(builder, part);
      IRMapping operands;
      for (Value operand : op->getOperands()) {
        Value here = current.lookup(step.inMemory(operand));
        if (!here)
          return op->emitError("internal error: stages: worker ") << worker << " lacks an operand";
        operands.map(operand, here);
      }
      for (OpResult result : op->getResults())
        beginSum(builder, result);
      Operation *copy = builder.clone(*op, operands);
      for (auto [old, now] : llvm::zip(op->getResults(), copy->getResults())) {
        current[old] = now;
        if (!isSum(old))
          send(builder, old);
      }
      for (OpResult result : op->getResults()) {
        endSum(builder, result);
        sendParameter(builder, result);
      }
    }
    return success();
  }

  // A value of a loop that is read behind it.
  bool isSum(Value value) const {
    auto [known, fresh] = knownSums.try_emplace(value, false);
    return fresh ? known->second = findWhetherSum(value) : known->second;
  }
  bool findWhetherSum(Value value) const {
    int writer = homes.writerOf(value);
    if (writer < 0 || !isLoop(regionOf(writer)))
      return false;
    Operation *exit = func::FuncOp(step.function).getBody().front().getTerminator();
    if (llvm::any_of(exit->getOperands(), [&](Value operand) { return step.inMemory(operand) == value; }))
      return true;
    return llvm::any_of(homes.readersOf(value), [&](int reader) {
             return regionOf(reader) > regionOf(writer);
           });
  }

  LogicalResult writeLoop(OpBuilder &builder, int region) {
    SmallVector<int> mine;
    int parts = region == mainLoop ? partsOfLoop() : 1;
    for (int part = 0; part < int(step.parts.size()); ++part)
      if (regionOf(part) == region && at[size_t(part)].count(worker))
        mine.push_back(part);
    if (mine.empty() && region != mainLoop)
      return success();
    // What comes from before the loop.
    for (int part : mine)
      if (auto found = due.find({number(), part}); found != due.end()) {
        SmallVector<Value> outside, inside;
        for (Value value : found->second) {
          int writer = homes.writerOf(value);
          (writer >= 0 && regionOf(writer) == region ? inside : outside).push_back(value);
        }
        found->second = outside;
        receiveBefore(builder, part);
        found->second = inside;
      }
    SmallVector<Value> yielded;
    sums.clear();
    for (int part : mine)
      for (OpResult result : step.parts[size_t(part)].op->getResults())
        if (isSum(result))
          sums.push_back(result);
    plan::MicrobatchesOp old = step.loops[size_t(region / 2)];
    auto loop = plan::MicrobatchesOp::create(builder, old.getLoc(), ValueRange(sums).getTypes(), old.getCount(), old.getSize(),
                                             DenseI64ArrayAttr(), DenseI64ArrayAttr(), IntegerAttr());
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToEnd(builder.createBlock(&loop.getBody()));
      for (int loopPart = 0; loopPart < parts; ++loopPart) {
        if (loopPart > 0)
          plan::PartOp::create(builder, old.getLoc());
        if (failed(writeParts(builder, region, loopPart)))
          return failure();
        if (region == mainLoop)
          receive(builder, dueAtEnd.lookup({number(), loopPart}));
      }
      for (Value sum : sums)
        yielded.push_back(current.lookup(sum));
      plan::YieldOp::create(builder, old.getLoc(), yielded);
    }
    for (auto [sum, result] : llvm::zip(sums, loop.getSums())) {
      current[sum] = result;
      send(builder, sum);
    }
    return success();
  }

  // The new parameters and their state.
  FailureOr<func::FuncOp> finish(OpBuilder &builder, func::FuncOp function, ArrayRef<Attribute> argumentAttributes) {
    func::FuncOp source = step.function;
    SmallVector<Value> returned;
    SmallVector<Attribute> attributes;
    for (auto [i, operand] : llvm::enumerate(source.getBody().front().getTerminator()->getOperands())) {
      Value value = step.inMemory(operand);
      BlockArgument place = isa<BlockArgument>(value) ? cast<BlockArgument>(value) : step.homeOf(value);
      if (!place || !isMine(place))
        continue;
      Value here = current.lookup(value);
      if (!here)
        return source.emitError("internal error: stages: a parameter is not updated where it lies");
      returned.push_back(here);
      attributes.push_back(source.getResultAttrDict(unsigned(i)));
    }
    func::ReturnOp::create(builder, source.getLoc(), returned);
    function.setFunctionType(FunctionType::get(source.getContext(), function.getBody().getArgumentTypes(), ValueRange(returned).getTypes()));
    function.setAllArgAttrs(llvm::map_to_vector(argumentAttributes, [&](Attribute attribute) {
      return attribute ? cast<DictionaryAttr>(attribute) : builder.getDictionaryAttr({});
    }));
    function.setResAttrsAttr(builder.getArrayAttr(attributes));
    return function;
  }

  const analysis::Step &step;
  const analysis::StageHomes &homes;
  const StageLayout &layout;
  size_t firstChannel;
  std::vector<Channel> &channels;
  int mainLoop; // the region of the last loop
  int worker = 0, replica = 0; // that is written
  bool training = false, resultsInLoop = false;
  std::vector<bool> onlyWeights;      // of the step's parts
  std::vector<std::map<int, int>> at; // of the step's parts: worker -> part of its loop body
  llvm::DenseMap<Value, SmallVector<Message>> messages;
  std::map<std::pair<int, int>, SmallVector<Value>> due; // (worker, part of the step) -> what is received right before it
  llvm::DenseMap<std::pair<int, int>, SmallVector<Value>> dueAtEnd; // (worker, part of its main loop) -> what is received at its end
  struct Pieces {
    int channel = 0;
    int64_t bytes = 0; // of all values
  };
  static constexpr int kReturned = INT_MIN;            // a group of its own
  std::map<std::tuple<int, int, int>, Pieces> pieces;  // from, to, group
  llvm::DenseMap<std::pair<Value, int>, int> chains, returns; // what a worker (of all) sends -> the channel
  SmallVector<Value> sums;                               // of the loop that is written
  mutable llvm::DenseMap<Value, bool> knownSums;
  llvm::DenseMap<Value, Value> current;                  // values in memory -> in the function that is being written
};

} // namespace

FailureOr<std::vector<func::FuncOp>> partitionStages(const analysis::Step &step, const analysis::StageHomes &homes,
                                                     const StageLayout &layout, size_t firstChannel, std::vector<Channel> &channels) {
  return Partitioner(step, homes, layout, firstChannel, channels).run();
}

} // namespace cinch
