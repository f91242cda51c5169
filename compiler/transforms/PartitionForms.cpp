// PartitionForms.cpp: replicas that make steps of their own: each runs all of the step, with its examples for the batch. D times a sum over
// them stands for the sum over the batch. All meet at the gate, which looks at the means of the losses and of the norms.
#include "compiler/transforms/Partitioner.h"

#include "dialects/nn/Versions.h"

#include <set>

using namespace mlir;

namespace cinch {

static Value number(OpBuilder &builder, Value like, double value) {
  return nn::ConstantOp::create(builder, like.getLoc(), like.getType(), builder.getF64FloatAttr(value));
}

void Partitioner::scaleSum(OpBuilder &builder, Value sum) {
  if (!layout.makesOwnSteps() || !isAdded(sum))
    return;
  current[sum] = elementwise(builder, {current.lookup(sum)}, "times the replicas", [&](OpBuilder &b, ValueRange operands) -> Value {
    Value factor = cinch::number(b, operands[0], layout.replicas);
    return nn::MulOp::create(b, sum.getLoc(), sum.getType(), operands[0], factor);
  });
}

// ---- What the gate looks at --------------------------------------------------------------------------------------------
// A chain through the replicas, and the mean back, the last one to the first one and on from there.
void Partitioner::findMeans() {
  for (auto [i, part] : llvm::enumerate(step.parts)) {
    if (!isa<plan::GateOp>(part.op))
      continue;
    for (Value operand : part.op->getOperands())
      for (auto [w, loopPart] : at[i])
        for (int d = 0; d < layout.replicas; ++d) {
          Value value = step.inMemory(operand);
          int from = layout.numberOf(w, d), to = layout.numberOf(w, (d + 1) % layout.replicas);
          if (d < lastReplica())
            means[{value, from}] = channelOfPieces(from, to, kMeans, value, "losses");
          if (d != lastReplica() - 1)
            meansBack[{value, from}] = channelOfPieces(from, to, kMeansBack, value, "losses");
        }
  }
}

Value Partitioner::meanOf(OpBuilder &builder, Value value) {
  if (!means.contains({value, layout.numberOf(worker, 0)}))
    return current.lookup(value);
  Value &mean = averaged[value];
  if (mean)
    return mean;
  mean = current.lookup(value);
  int before = layout.numberOf(worker, (replica + layout.replicas - 1) % layout.replicas);
  StringAttr label = builder.getStringAttr("losses");
  auto receive = [&](int channel) -> Value {
    return plan::ReceiveOp::create(builder, value.getLoc(), value.getType(), firstChannel + uint64_t(channel), label, IntegerAttr(), DenseI64ArrayAttr());
  };
  auto send = [&](int channel) {
    plan::SendOp::create(builder, value.getLoc(), mean, firstChannel + uint64_t(channel), label, false, DenseI64ArrayAttr());
  };
  if (replica > 0)
    mean = elementwise(builder, {receive(means.at({value, before})), mean}, "add (replicas)", [](OpBuilder &b, ValueRange operands) -> Value {
      return nn::AddOp::create(b, operands[1].getLoc(), operands[1].getType(), operands[0], operands[1]);
    });
  if (replica < lastReplica()) {
    send(means.at({value, number()}));
    mean = receive(meansBack.at({value, before}));
  } else {
    mean = elementwise(builder, {mean}, "mean (replicas)", [&](OpBuilder &b, ValueRange operands) -> Value {
      Value count = cinch::number(b, operands[0], layout.replicas);
      return nn::DivOp::create(b, operands[0].getLoc(), operands[0].getType(), operands[0], count);
    });
  }
  if (auto on = meansBack.find({value, number()}); on != meansBack.end())
    send(on->second);
  return mean;
}

// ---- The ring of neighbours ----------------------------------------------------------------------------------------------
bool Partitioner::isAveraged(OpResult result) const {
  BlockArgument argument = step.homeOf(result);
  if (!layout.makesOwnSteps() || layout.ownSteps != OwnSteps::RingAverage || !argument)
    return false;
  func::FuncOp function = step.function;
  return function.getArgAttr(argument.getArgNumber(), nn::kPathAttr) && !function.getArgAttr(argument.getArgNumber(), nn::kStateAttr);
}

std::vector<int> Partitioner::neighbours(int d) const {
  int before = (d + lastReplica()) % layout.replicas, behind = (d + 1) % layout.replicas;
  return before == behind ? std::vector<int>{before} : std::vector<int>{before, behind};
}

void Partitioner::findNeighbours() {
  for (const analysis::Step::Part &part : step.parts)
    for (OpResult result : part.op->getResults()) {
      if (!isAveraged(result))
        continue;
      int w = layout.worker(homes.ownerOf(step.homeOf(result)));
      for (int d = 0; d < layout.replicas; ++d)
        for (int other : neighbours(d)) {
          int from = layout.numberOf(w, d), to = layout.numberOf(w, other);
          exchanged[{result, from, to}] = channelOfPieces(from, to, kToNeighbours + (other == (d + 1) % layout.replicas), result, "parameters");
        }
    }
}

// A message is a whole parameter, and its box is free: the one of the parameter before was taken before the neighbour sent its own.
void Partitioner::averageWithNeighbours(OpBuilder &builder, OpResult result) {
  if (!isAveraged(result))
    return;
  StringAttr label = builder.getStringAttr(analysis::nameOf(step.homeOf(result)));
  for (int other : neighbours(replica))
    plan::SendOp::create(builder, result.getLoc(), current.lookup(result),
                         firstChannel + uint64_t(exchanged.at({result, number(), layout.numberOf(worker, other)})), label, false, DenseI64ArrayAttr());
  SmallVector<Value> all;
  for (int other : neighbours(replica))
    all.push_back(plan::ReceiveOp::create(builder, named(result).getLoc(), result.getType(),
                                          firstChannel + uint64_t(exchanged.at({result, layout.numberOf(worker, other), number()})), label, IntegerAttr(),
                                          DenseI64ArrayAttr()));
  all.insert(all.begin() + 1, current.lookup(result)); // before, own, behind
  finals[result] = elementwise(builder, all, "average (neighbours)", [&](OpBuilder &b, ValueRange operands) -> Value {
    Value sum = operands[0];
    for (Value next : operands.drop_front())
      sum = nn::AddOp::create(b, result.getLoc(), result.getType(), sum, next);
    Value count = cinch::number(b, operands[0], double(operands.size()));
    return nn::DivOp::create(b, result.getLoc(), result.getType(), sum, count);
  });
}

// ---- Parameters and state that go round ----------------------------------------------------------------------------------
bool Partitioner::goesRound(BlockArgument argument) const {
  if (!layout.makesOwnSteps() || layout.ownSteps != OwnSteps::Async)
    return false;
  func::FuncOp function = step.function;
  if (auto slot = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kSlotAttr); slot && nn::isVersion(slot.getValue()))
    return false;
  return llvm::any_of(function.getBody().front().getTerminator()->getOperands(), [&](Value operand) {
    return step.homeOf(step.inMemory(operand)) == argument;
  });
}

// Kernels that touch the same of them, or stand between such, are one unit: units follow one another on every replica, so that nobody waits
// for what stands behind something that waits for him.
LogicalResult Partitioner::findUnits() {
  units.assign(size_t(layout.workers), {});
  if (layout.ownSteps != OwnSteps::Async)
    return success();
  std::map<unsigned, Unit> each; // of single arguments
  for (int part = 0; part < int(step.parts.size()); ++part) {
    Operation *op = step.parts[size_t(part)].op;
    auto touch = [&](BlockArgument argument, OpResult result) {
      if (!argument || !goesRound(argument))
        return true;
      if (!at[size_t(part)].count(layout.worker(homes.ownerOf(argument))) || regionOf(part) <= mainLoop)
        return false;
      Unit &unit = each.try_emplace(argument.getArgNumber(), Unit{part, part, {argument}, {}}).first->second;
      unit.last = part;
      if (result)
        unit.results.push_back(result);
      return true;
    };
    bool good = true;
    for (Value operand : op->getOperands())
      good &= touch(dyn_cast<BlockArgument>(step.inMemory(operand)), {});
    for (OpResult result : op->getResults())
      good &= touch(step.homeOf(result), result);
    if (!good)
      return op->emitError("internal error: stages: what goes round the replicas is read elsewhere");
  }
  std::vector<Unit> sorted;
  for (auto &[argument, unit] : each)
    sorted.push_back(unit);
  llvm::stable_sort(sorted, [](const Unit &a, const Unit &b) { return a.first < b.first; });
  for (Unit &unit : sorted) {
    int w = layout.worker(homes.ownerOf(unit.arguments.front()));
    std::vector<Unit> &list = units[size_t(w)];
    if (list.empty() || unit.first > list.back().last) {
      list.push_back(unit);
    } else {
      list.back().last = std::max(list.back().last, unit.last);
      list.back().arguments.push_back(unit.arguments.front());
      list.back().results.push_back(unit.results.front());
    }
    for (int d = 0; d < layout.replicas; ++d) {
      int from = layout.numberOf(w, d), to = layout.numberOf(w, (d + 1) % layout.replicas);
      round[{from, to}] = channelOfPieces(from, to, kRound, unit.arguments.front(), "parameters");
    }
  }
  return success();
}

void Partitioner::receiveUnit(OpBuilder &builder, int part) {
  if (units.empty() || replica == 0 || !layout.makesOwnSteps())
    return;
  for (const Unit &unit : units[size_t(worker)])
    for (BlockArgument argument : unit.first == part ? ArrayRef<BlockArgument>(unit.arguments) : ArrayRef<BlockArgument>())
      current[argument] = plan::ReceiveOp::create(builder, argument.getLoc(), argument.getType(),
                                                  firstChannel + uint64_t(round.at({number() - layout.workers, number()})),
                                                  builder.getStringAttr(analysis::nameOf(argument)), IntegerAttr(), DenseI64ArrayAttr());
}

void Partitioner::sendUnit(OpBuilder &builder, int part) {
  if (units.empty() || !layout.makesOwnSteps())
    return;
  for (const Unit &unit : units[size_t(worker)]) {
    if (unit.last != part)
      continue;
    int next = layout.numberOf(worker, (replica + 1) % layout.replicas), last = layout.numberOf(worker, lastReplica());
    for (auto [argument, result] : llvm::zip_equal(unit.arguments, unit.results))
      plan::SendOp::create(builder, result.getLoc(), current.lookup(result), firstChannel + uint64_t(round.at({number(), next})),
                           builder.getStringAttr(analysis::nameOf(argument)), false, DenseI64ArrayAttr());
    for (auto [argument, result] : llvm::zip_equal(unit.arguments, unit.results))
      if (replica == 0)
        finals[result] = plan::ReceiveOp::create(builder, argument.getLoc(), argument.getType(),
                                                 firstChannel + uint64_t(round.at({last, number()})),
                                                 builder.getStringAttr(analysis::nameOf(argument)), IntegerAttr(), DenseI64ArrayAttr());
  }
}

} // namespace cinch
