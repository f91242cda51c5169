// PartitionStages.cpp: every worker gets copies of its kernels, in the order of the function. A value that another worker makes is
// received right before its first reader, and sent right after it was made: the order of the function is one in which all messages
// come before they are waited for. Nothing is received behind the gate that was sent before it: if the gate is closed, nothing may be
// left in a channel.
#include "compiler/transforms/PartitionStages.h"

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
    std::vector<func::FuncOp> functions;
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

  // On which workers each part of the step runs, and in which part of their loop bodies.
  void placeParts() {
    at.resize(step.parts.size());
    onlyWeights.assign(step.parts.size(), false);
    for (int part = int(step.parts.size()); part-- > 0;)
      onlyWeights[size_t(part)] = regionOf(part) == mainLoop && isBackward(step.parts[size_t(part)].op) && feedsOnlyWeights(part);
    for (int part = int(step.parts.size()); part-- > 0;) {
      Operation *op = step.parts[size_t(part)].op;
      int home = homes.home[size_t(part)];
      if (isa<plan::GateOp>(op)) {
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

  int workerOf(Value value) const {
    if (int from = homes.writerOf(value); from >= 0)
      return at[size_t(from)].begin()->first;
    return layout.worker(homes.ownerOf(cast<BlockArgument>(value)));
  }

  void findMessages() {
    func::FuncOp function = step.function;
    for (BlockArgument argument : function.getArguments())
      if (!homes.isData(argument))
        findMessagesOf(argument);
    for (const analysis::Step::Part &part : step.parts)
      for (OpResult result : part.op->getResults())
        if (!homes.isData(result))
          findMessagesOf(result);
  }

  void findMessagesOf(Value value) {
    int from = workerOf(value), writer = homes.writerOf(value), gate = -1;
    for (auto [i, part] : llvm::enumerate(step.parts))
      if (isa<plan::GateOp>(part.op))
        gate = int(i);
    llvm::MapVector<int, SmallVector<int>> readers;
    for (int reader : homes.readersOf(value))
      for (auto [w, loopPart] : at[size_t(reader)])
        if (w != from)
          readers[w].push_back(reader);
    for (auto &[to, list] : readers) {
      Channel channel;
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
          part = std::min(part, readyFor(at[size_t(reader)][to], to));
        auto first = llvm::find_if(list, [&](int reader) { return at[size_t(reader)][to] == part; });
        message.before = first == list.end() ? -1 : *first;
        bool main = regionOf(writer) == mainLoop;
        channel.fromPart = main ? at[size_t(writer)][from] : -1;
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

  static Value named(Value value) {
    auto result = dyn_cast<OpResult>(value);
    return result && isa<plan::KernelOp>(result.getOwner()) ? analysis::computedBy(result) : value;
  }

  // ---- One worker ------------------------------------------------------------------------------------------------------
  FailureOr<func::FuncOp> write() {
    func::FuncOp source = step.function;
    OpBuilder builder(source.getContext());
    builder.setInsertionPointAfter(source);
    auto function = func::FuncOp::create(builder, source.getLoc(), (source.getName() + "_" + Twine(worker)).str(),
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
    return finish(builder, function, argumentAttributes);
  }

  // The worker has its parameters, their state, and the data that it reads.
  bool isMine(BlockArgument argument) const {
    if (!homes.isData(argument))
      return layout.worker(homes.ownerOf(argument)) == worker;
    return llvm::any_of(homes.readersOf(argument), [&](int reader) { return at[size_t(reader)].count(worker) > 0; });
  }

  void send(OpBuilder &builder, Value value) {
    for (const Message &message : messages.lookup(value))
      if (message.from == worker)
        plan::SendOp::create(builder, value.getLoc(), current.lookup(value), firstChannel + uint64_t(message.channel),
                             builder.getStringAttr(channels[size_t(message.channel)].label), DenseI64ArrayAttr());
  }

  void receiveBefore(OpBuilder &builder, int part) {
    if (auto found = due.find({worker, part}); found != due.end())
      receive(builder, found->second);
  }

  void receive(OpBuilder &builder, ArrayRef<Value> values) {
    for (Value value : values)
      for (const Message &message : messages.lookup(value))
        if (message.to == worker)
          current[value] = plan::ReceiveOp::create(builder, named(value).getLoc(), value.getType(),
                                                   firstChannel + uint64_t(message.channel),
                                                   builder.getStringAttr(channels[size_t(message.channel)].label), DenseI64ArrayAttr());
  }

  // The kernels of a part of the step that belong to a part of the loop body.
  LogicalResult writeParts(OpBuilder &builder, int region, int loopPart) {
    for (int part = 0; part < int(step.parts.size()); ++part) {
      if (regionOf(part) != region)
        continue;
      auto mine = at[size_t(part)].find(worker);
      if (mine == at[size_t(part)].end() || mine->second != loopPart)
        continue;
      receiveBefore(builder, part);
      Operation *op = step.parts[size_t(part)].op;
      IRMapping operands;
      for (Value operand : op->getOperands()) {
        Value here = current.lookup(step.inMemory(operand));
        if (!here)
          return op->emitError("internal error: stages: worker ") << worker << " lacks an operand";
        operands.map(operand, here);
      }
      Operation *copy = builder.clone(*op, operands);
      for (auto [old, now] : llvm::zip(op->getResults(), copy->getResults())) {
        current[old] = now;
        if (!isSum(old))
          send(builder, old);
      }
    }
    return success();
  }

  // A value of a loop that is read behind it.
  bool isSum(Value value) const {
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
      if (auto found = due.find({worker, part}); found != due.end()) {
        SmallVector<Value> outside, inside;
        for (Value value : found->second) {
          int writer = homes.writerOf(value);
          (writer >= 0 && regionOf(writer) == region ? inside : outside).push_back(value);
        }
        found->second = outside;
        receiveBefore(builder, part);
        found->second = inside;
      }
    SmallVector<Value> sums, yielded;
    for (int part : mine)
      for (OpResult result : step.parts[size_t(part)].op->getResults())
        if (isSum(result))
          sums.push_back(result);
    plan::MicrobatchesOp old = step.loops[size_t(region / 2)];
    auto loop = plan::MicrobatchesOp::create(builder, old.getLoc(), ValueRange(sums).getTypes(), old.getCount(), old.getSize(),
                                             DenseI64ArrayAttr(), DenseI64ArrayAttr());
    {
      OpBuilder::InsertionGuard guard(builder);
      builder.setInsertionPointToEnd(builder.createBlock(&loop.getBody()));
      for (int loopPart = 0; loopPart < parts; ++loopPart) {
        if (loopPart > 0)
          plan::PartOp::create(builder, old.getLoc());
        if (failed(writeParts(builder, region, loopPart)))
          return failure();
        if (region == mainLoop)
          receive(builder, dueAtEnd.lookup({worker, loopPart}));
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
      if (!place || layout.worker(homes.ownerOf(place)) != worker)
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
  int worker = 0;
  bool training = false, resultsInLoop = false;
  std::vector<bool> onlyWeights;      // of the step's parts
  std::vector<std::map<int, int>> at; // of the step's parts: worker -> part of its loop body
  llvm::DenseMap<Value, SmallVector<Message>> messages;
  std::map<std::pair<int, int>, SmallVector<Value>> due; // (worker, part of the step) -> what is received right before it
  llvm::DenseMap<std::pair<int, int>, SmallVector<Value>> dueAtEnd; // (worker, part of its main loop) -> what is received at its end
  llvm::DenseMap<Value, Value> current;                  // values in memory -> in the function that is being written
};

} // namespace

FailureOr<std::vector<func::FuncOp>> partitionStages(const analysis::Step &step, const analysis::StageHomes &homes,
                                                     const StageLayout &layout, size_t firstChannel, std::vector<Channel> &channels) {
  return Partitioner(step, homes, layout, firstChannel, channels).run();
}

} // namespace cinch
