// PartitionReplicas.cpp: what replicas hand on to one another: sums over the examples, and new parameters.
#include "compiler/transforms/Partitioner.h"

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
      if (layout.replicas == 1 || !isSum(result))
        continue;
      for (auto [w, loopPart] : at[i])
        for (int d = 0; d + 1 < layout.replicas; ++d) {
          bool added = isAdded(result);
          int group = added ? kAdded - regionOf(int(i)) : regionOf(int(i)) == mainLoop ? loopPart : -regionOf(int(i));
          (added ? additions : chains)[{result, layout.numberOf(w, d)}] =
              channelOfPieces(layout.numberOf(w, d), layout.numberOf(w, d + 1), group, result, "sums");
        }
    }
}

bool Partitioner::isAdded(Value sum) const {
  auto reduce = named(sum).getDefiningOp<nn::ReduceOp>();
  return layout.addsSums && isSum(sum) && (!reduce || reduce.getReduction() == nn::Reduction::Sum);
}

// before + own, and + 0.0: of summands that are all -0.0 (underflow) one chain from zero makes 0.0.
static Value addKernel(OpBuilder &builder, Value before, Value own) {
  auto type = cast<RankedTensorType>(own.getType());
  bool real = isa<FloatType>(type.getElementType());
  auto kernel = plan::KernelOp::create(builder, own.getLoc(), TypeRange{type}, ValueRange{before, own}, UnitAttr(), DenseBoolArrayAttr(),
                                       DenseI64ArrayAttr(), DenseI64ArrayAttr(), IntegerAttr(), builder.getStringAttr("add (replicas)"),
                                       builder.getI64IntegerAttr(real ? 2 : 0));
  OpBuilder::InsertionGuard guard(builder);
  Block *body = builder.createBlock(&kernel.getBody());
  for (Value operand : {before, own})
    body->addArgument(type, operand.getLoc());
  builder.setInsertionPointToEnd(body);
  Value sum = nn::AddOp::create(builder, own.getLoc(), type, body->getArgument(0), body->getArgument(1));
  if (real)
    sum = nn::AddOp::create(builder, own.getLoc(), type, sum,
                            nn::ConstantOp::create(builder, own.getLoc(), type, builder.getF64FloatAttr(0)));
  plan::ReturnOp::create(builder, own.getLoc(), ValueRange{sum});
  return kernel.getResult(0);
}

void Partitioner::addSums(OpBuilder &builder, Value sum) {
  StringAttr label = builder.getStringAttr(analysis::nameOf(named(sum)));
  if (auto from = additions.find({sum, number() - layout.workers}); from != additions.end()) {
    Value before = plan::ReceiveOp::create(builder, named(sum).getLoc(), sum.getType(), firstChannel + uint64_t(from->second), label,
                                           IntegerAttr(), DenseI64ArrayAttr());
    current[sum] = addKernel(builder, before, current.lookup(sum));
  }
  if (auto to = additions.find({sum, number()}); to != additions.end())
    plan::SendOp::create(builder, sum.getLoc(), current.lookup(sum), firstChannel + uint64_t(to->second), label, false, DenseI64ArrayAttr());
}

void Partitioner::findReturns() {
  for (const analysis::Step::Part &part : step.parts)
    for (OpResult result : part.op->getResults()) {
      BlockArgument argument = step.homeOf(result);
      if (layout.replicas == 1 || !argument || !isOnAllReplicas(argument))
        continue;
      for (int w : ownersOf(argument))
        for (int d = lastReplica(), hops = 0; hops + 1 < layout.replicas; d = (d + 1) % layout.replicas, ++hops)
          returns[{result, layout.numberOf(w, d)}] =
              channelOfPieces(layout.numberOf(w, d), layout.numberOf(w, (d + 1) % layout.replicas), kReturned, result, "parameters");
    }
}

void Partitioner::cutIntoPieces() {
  for (auto &[key, all] : pieces) {
    int64_t piece = std::max<int64_t>(1 << 16, solve::roundUp(all.bytes / 64));
    channels[size_t(all.channel)].fixedBytes = std::min(channels[size_t(all.channel)].fixedBytes, piece);
  }
}

bool Partitioner::isOnAllReplicas(BlockArgument argument) const {
  return func::FuncOp(step.function).getArgAttr(argument.getArgNumber(), nn::kPathAttr) ||
         llvm::any_of(homes.readersOf(argument), [&](int reader) { return regionOf(reader) <= mainLoop; });
}

void Partitioner::receiveParameters(OpBuilder &builder, Operation *op) {
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

void Partitioner::sendParameter(OpBuilder &builder, OpResult result) {
  if (auto to = returns.find({result, number()}); to != returns.end())
    plan::SendOp::create(builder, result.getLoc(), current.lookup(result), firstChannel + uint64_t(to->second),
                         builder.getStringAttr(analysis::nameOf(step.homeOf(result))), false, DenseI64ArrayAttr());
}

void Partitioner::beginSum(OpBuilder &builder, OpResult result) {
  if (auto from = chains.find({result, number() - layout.workers}); from != chains.end())
    plan::ReceiveOp::create(builder, named(result).getLoc(), result.getType(), firstChannel + uint64_t(from->second),
                            builder.getStringAttr(analysis::nameOf(named(result))),
                            builder.getI64IntegerAttr(llvm::find(sums, Value(result)) - sums.begin()), DenseI64ArrayAttr());
}

void Partitioner::endSum(OpBuilder &builder, OpResult result) {
  if (auto to = chains.find({result, number()}); to != chains.end())
    plan::SendOp::create(builder, result.getLoc(), current.lookup(result), firstChannel + uint64_t(to->second),
                         builder.getStringAttr(analysis::nameOf(named(result))), true, DenseI64ArrayAttr());
}

} // namespace cinch
