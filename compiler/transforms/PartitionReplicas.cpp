// PartitionReplicas.cpp: what replicas hand on to one another: sums over the examples, and new parameters.
#include "compiler/transforms/Partitioner.h"

#include "dialects/nn/Versions.h"

using namespace mlir;

namespace cinch {

int Partitioner::channelOfPieces(int from, int to, int group, Value value, StringRef label) {
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

void Partitioner::findChains() {
  for (auto [i, part] : llvm::enumerate(step.parts))
    for (OpResult result : part.op->getResults()) {
      if (layout.replicas == 1 || layout.makesOwnSteps() || !isSum(result))
        continue;
      for (auto [w, loopPart] : at[i])
        for (int d = 0; d + 1 < layout.replicas; ++d) {
          bool added = isAdded(result);
          bool main = regionOf(int(i)) == mainLoop;
          int group = added ? kAdded - (main ? 2 * loopPart : regionOf(int(i))) : main ? loopPart : -regionOf(int(i));
          (added ? additions : chains)[{result, layout.numberOf(w, d)}] =
              channelOfPieces(layout.numberOf(w, d), layout.numberOf(w, d + 1), group, result, "sums");
        }
    }
}

bool Partitioner::isAdded(Value sum) const {
  auto reduce = named(sum).getDefiningOp<nn::ReduceOp>();
  return (layout.addsSums || layout.makesOwnSteps()) && isSum(sum) && (!reduce || reduce.getReduction() == nn::Reduction::Sum);
}

Value Partitioner::elementwise(OpBuilder &builder, ValueRange operands, StringRef label,
                               llvm::function_ref<Value(OpBuilder &, ValueRange)> write) {
  Location loc = operands.back().getLoc();
  auto kernel = plan::KernelOp::create(builder, loc, TypeRange{operands.back().getType()}, operands, UnitAttr(), plan::KernelKindAttr(), DenseBoolArrayAttr(),
                                       DenseI64ArrayAttr(), DenseI64ArrayAttr(), IntegerAttr(), builder.getStringAttr(label), IntegerAttr());
  OpBuilder::InsertionGuard guard(builder);
  Block *body = builder.createBlock(&kernel.getBody());
  for (Value operand : operands)
    body->addArgument(operand.getType(), operand.getLoc());
  builder.setInsertionPointToEnd(body);
  Value result = write(builder, body->getArguments());
  kernel.setDomain(uint64_t(std::distance(body->begin(), result.getDefiningOp()->getIterator())));
  plan::ReturnOp::create(builder, loc, ValueRange{result});
  return kernel.getResult(0);
}

void Partitioner::findReturns() {
  for (auto [i, part] : llvm::enumerate(step.parts))
    for (OpResult result : part.op->getResults()) {
      BlockArgument argument = parameterOf(result);
      if (layout.replicas == 1 || layout.makesOwnSteps() || !argument || !isOnAllReplicas(argument) || newerOf(argument))
        continue;
      for (int w : ownersOf(argument))
        for (int d = replicaOf[i], hops = 0; hops + 1 < layout.replicas; d = (d + 1) % layout.replicas, ++hops)
          returns[{result, layout.numberOf(w, d)}] =
              channelOfPieces(layout.numberOf(w, d), layout.numberOf(w, (d + 1) % layout.replicas), kReturned, result, "parameters");
    }
}

void Partitioner::cutIntoPieces() {
  for (auto &[key, all] : pieces) {
    if (std::get<2>(key) == kToNeighbours || std::get<2>(key) == kToNeighbours + 1)
      continue; // both send before they receive: there has to be room for the whole of it
    // Updates that are handed out have more channels, and shall free bytes.
    bool handed = layout.handsOut && (std::get<2>(key) == kHanded || std::get<2>(key) == kReturned);
    int64_t piece = std::max<int64_t>(handed ? 1 << 14 : 1 << 16, solve::roundUp(all.bytes / 64));
    channels[size_t(all.channel)].fixedBytes = std::min(channels[size_t(all.channel)].fixedBytes, piece);
  }
}

BlockArgument Partitioner::newerOf(BlockArgument previous) const {
  func::FuncOp function = step.function;
  auto slot = function.getArgAttrOfType<StringAttr>(previous.getArgNumber(), nn::kSlotAttr);
  for (BlockArgument argument : slot && nn::isVersion(slot.getValue()) ? function.getArguments() : Block::BlockArgListType())
    if (auto path = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kPathAttr))
      if (slot.getValue() == nn::previousOf(path.getValue()) && layout.worker(homes.ownerOf(argument)) == layout.worker(homes.ownerOf(previous)))
        return argument;
  return {};
}

void Partitioner::keepPrevious(OpBuilder &builder, Operation *op) {
  for (OpResult result : op->getResults())
    if (BlockArgument argument = step.homeOf(result), newer = argument ? newerOf(argument) : BlockArgument(); newer && isMine(argument))
      current[result] = elementwise(builder, {current.lookup(newer)}, "previous", [&](OpBuilder &b, ValueRange operands) -> Value {
        Value one = nn::ConstantOp::create(b, result.getLoc(), result.getType(), b.getF64FloatAttr(1));
        return nn::MulOp::create(b, result.getLoc(), result.getType(), operands[0], one);
      });
}

void Partitioner::receiveParameters(OpBuilder &builder, Operation *op) {
  for (OpResult result : op->getResults()) {
    int before = layout.numberOf(worker, (replica + layout.replicas - 1) % layout.replicas);
    auto from = returns.find({result, before});
    if (from == returns.end())
      continue;
    current[result] = plan::ReceiveOp::create(builder, named(result).getLoc(), result.getType(), firstChannel + uint64_t(from->second),
                                              builder.getStringAttr(analysis::nameOf(parameterOf(result))), IntegerAttr(), DenseI64ArrayAttr());
    sendParameter(builder, result);
  }
}

void Partitioner::sendParameter(OpBuilder &builder, OpResult result) {
  if (auto to = returns.find({result, number()}); to != returns.end())
    plan::SendOp::create(builder, result.getLoc(), current.lookup(result), firstChannel + uint64_t(to->second),
                         builder.getStringAttr(analysis::nameOf(parameterOf(result))), false, DenseI64ArrayAttr());
}

void Partitioner::beginSum(OpBuilder &builder, OpResult result) {
  if (auto from = chains.find({result, number() - layout.workers}); from != chains.end())
    receiveSum(builder, result, from->second, false);
}

void Partitioner::endSum(OpBuilder &builder, OpResult result) {
  if (auto from = additions.find({result, number() - layout.workers}); from != additions.end())
    receiveSum(builder, result, from->second, true);
  for (auto *way : {&chains, &additions})
    if (auto to = way->find({result, number()}); to != way->end())
      plan::SendOp::create(builder, result.getLoc(), current.lookup(result), firstChannel + uint64_t(to->second),
                           builder.getStringAttr(analysis::nameOf(named(result))), true, DenseI64ArrayAttr());
}

void Partitioner::receiveSum(OpBuilder &builder, OpResult result, int channel, bool adds) {
  plan::ReceiveOp::create(builder, named(result).getLoc(), result.getType(), firstChannel + uint64_t(channel),
                          builder.getStringAttr(analysis::nameOf(named(result))),
                          builder.getI64IntegerAttr(llvm::find(sums, Value(result)) - sums.begin()), DenseI64ArrayAttr(), adds);
}

} // namespace cinch
