// PartitionStages.cpp: every worker gets copies of its kernels, in the order of the function. A value that another worker makes is
// received right before its first reader, and sent right after it was made: the order of the function is one in which all messages
// come before they are waited for. Nothing is received behind the gate that was sent before it: if the gate is closed, nothing may be
// left in a channel.
//
// With replicas, what belongs to single examples and what stands before the main loop runs on every replica, what stands behind it on the
// last one, or where it was handed to (PartitionPieces.cpp). A sum of a loop begins, on replica d, with what replica d - 1 sends in its last
// micro-batch. Replicas that make steps of their own run all of it (PartitionForms.cpp).
#include "compiler/transforms/Partitioner.h"

using namespace mlir;

namespace cinch {

int StageLayout::chunks(int worker) const { return int(llvm::count(workerOf, worker / shards)); }

int StageLayout::chunk(int segment) const {
  int stage = stageOf[size_t(segment)], number = 0;
  for (int s = 0; s < stage; ++s)
    number += workerOf[size_t(s)] == workerOf[size_t(stage)];
  return number;
}

FailureOr<std::vector<func::FuncOp>> Partitioner::run() {
  placeParts();
  findPieces();
  findMessages();
  findChains();
  findReturns();
  if (layout.makesOwnSteps()) {
    findMeans();
    findNeighbours();
    if (failed(findUnits()))
      return failure();
  }
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

int Partitioner::partsOfLoop() const {
  int chunks = layout.chunks(worker);
  if (training)
    return chunks * (layout.splitsBackward ? 3 : 2);
  return chunks + (resultsInLoop && worker == 0);
}

FailureOr<func::FuncOp> Partitioner::write() {
  func::FuncOp source = step.function;
  OpBuilder builder(source.getContext());
  builder.setInsertionPointAfter(source);
  auto function = func::FuncOp::create(builder, source.getLoc(), (source.getName() + "_" + Twine(number())).str(),
                                       FunctionType::get(source.getContext(), {}, {}));
  for (NamedAttribute attribute : source->getDiscardableAttrs())
    function->setAttr(attribute.getName(), attribute.getValue());
  Block *body = function.addEntryBlock();
  current.clear(), averaged.clear(), finals.clear();
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

void Partitioner::takeExamples(func::FuncOp function) {
  int64_t examples = step.batch / layout.replicas;
  if (layout.isOneGrain)
    function->removeAttr(nn::kGrainAttr);
  setExamples(function, examples);
  for (plan::LoopOp loop : function.getOps<plan::LoopOp>())
    loop.setOverAttr(plan::ExamplesAttr::get(function.getContext(), examples, replica * examples));
}

bool Partitioner::isOnReplica(BlockArgument argument) const {
  if (layout.makesOwnSteps())
    return replica == 0 || !goesRound(argument);
  auto keeper = keeperOf.find(argument);
  return isOnAllReplicas(argument) || replica == (keeper == keeperOf.end() ? lastReplica() : keeper->second);
}

bool Partitioner::isMine(BlockArgument argument) const {
  if (!homes.isData(argument))
    return isOnReplica(argument) && llvm::is_contained(ownersOf(argument), worker);
  return llvm::any_of(homes.readersOf(argument),
                      [&](int reader) { return at[size_t(reader)].count(worker) > 0 && runsOn(reader, replica); });
}

void Partitioner::send(OpBuilder &builder, Value value) {
  for (const Message &message : messages.lookup(value))
    if (message.from == number() && !message.handed)
      plan::SendOp::create(builder, value.getLoc(), current.lookup(value), firstChannel + uint64_t(message.channel),
                           builder.getStringAttr(channels[size_t(message.channel)].label), false, DenseI64ArrayAttr());
}

void Partitioner::receiveBefore(OpBuilder &builder, int part) {
  if (auto found = due.find({number(), part}); found != due.end())
    receive(builder, found->second);
}

void Partitioner::receive(OpBuilder &builder, ArrayRef<Value> values) {
  for (Value value : values)
    for (const Message &message : messages.lookup(value))
      if (message.to == number())
        current[value] = plan::ReceiveOp::create(builder, named(value).getLoc(), value.getType(),
                                                 firstChannel + uint64_t(message.channel),
                                                 builder.getStringAttr(channels[size_t(message.channel)].label), IntegerAttr(),
                                                 DenseI64ArrayAttr());
}

LogicalResult Partitioner::writeParts(OpBuilder &builder, int region, int loopPart) {
  bool passed = false;
  for (int part = 0; part < int(step.parts.size()); ++part) {
    if (regionOf(part) != region)
      continue;
    // What the results are stays where it is to the end of the step: rows that come behind them could lie there.
    bool isEnd = region > mainLoop && isa<plan::ResultsOp>(step.parts[size_t(part)].op);
    if (layout.handsOut && isEnd && !std::exchange(passed, true))
      passParameters(builder);
    sendHanded(builder, part);
    auto mine = at[size_t(part)].find(worker);
    if (mine == at[size_t(part)].end() || mine->second != loopPart || isJoin(part)) // new parameters come behind all updates
      continue;
    Operation *op = step.parts[size_t(part)].op;
    if (!runsOn(part, replica)) {
      keepPrevious(builder, op);
      if (!layout.handsOut)
        receiveParameters(builder, op);
      continue;
    }
    receiveBefore(builder, part);
    receiveUnit(builder, part);
    bool looksAtMeans = layout.makesOwnSteps() && isa<plan::GateOp, plan::ResultsOp>(op);
    IRMapping operands;
    for (Value operand : op->getOperands()) {
      Value value = step.inMemory(operand), here = looksAtMeans ? meanOf(builder, value) : current.lookup(value);
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
      if (!layout.handsOut)
        sendParameter(builder, result);
      averageWithNeighbours(builder, result);
    }
    sendUnit(builder, part);
  }
  if (layout.handsOut && region > mainLoop && !passed)
    passParameters(builder);
  return success();
}

bool Partitioner::isSum(Value value) const {
  auto [known, fresh] = knownSums.try_emplace(value, false);
  if (fresh)
    known->second = findWhetherSum(value);
  return known->second;
}

bool Partitioner::findWhetherSum(Value value) const {
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

LogicalResult Partitioner::writeLoop(OpBuilder &builder, int region) {
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
  plan::LoopOp old = step.loops[size_t(region / 2)];
  auto loop = plan::LoopOp::create(builder, old.getLoc(), ValueRange(sums).getTypes(), old.getCount(), old.examples());
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
    scaleSum(builder, sum);
    send(builder, sum);
  }
  return success();
}

FailureOr<func::FuncOp> Partitioner::finish(OpBuilder &builder, func::FuncOp function, ArrayRef<Attribute> argumentAttributes) {
  func::FuncOp source = step.function;
  SmallVector<Value> returned;
  SmallVector<Attribute> attributes;
  for (auto [i, operand] : llvm::enumerate(source.getBody().front().getTerminator()->getOperands())) {
    Value value = step.inMemory(operand);
    BlockArgument place = isa<BlockArgument>(value) ? cast<BlockArgument>(value) : step.homeOf(value);
    if (!place || !isMine(place))
      continue;
    Value last = finals.lookup(value), here = last ? last : current.lookup(value);
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

FailureOr<std::vector<func::FuncOp>> partitionStages(const analysis::Step &step, const analysis::StageHomes &homes,
                                                     const StageLayout &layout, size_t firstChannel, std::vector<Channel> &channels) {
  return Partitioner(step, homes, layout, firstChannel, channels).run();
}

} // namespace cinch
