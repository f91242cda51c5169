// PartitionPieces.cpp: replicas share the updates. All arguments that are updated together are a group (a parameter, the optimizer's state
// of it, its average), and a group that has state which one replica needs is a piece: it goes to one of the replicas, where the update
// runs and the state lies. The finished gradients are with the last replica, which sends each to the one that has its piece, before the
// gate. There its squares are summed, so that the norm needs single numbers from everywhere, added in the order of the program.
#include "compiler/transforms/Partitioner.h"

#include "compiler/solve/stages/Pieces.h"

#include "llvm/ADT/EquivalenceClasses.h"

using namespace mlir;

namespace cinch {

bool Partitioner::isFinished(Value value) const {
  int writer = homes.writerOf(value);
  return writer >= 0 && !isAnywhere(writer) && (regionOf(writer) > mainLoop || isSum(value));
}

bool Partitioner::isAnywhere(int part) const {
  return layout.handsOut && regionOf(part) > mainLoop && homes.home[size_t(part)] == analysis::StageHomes::kEverywhere;
}

bool Partitioner::isHanded(Value value, const Message &message) const {
  return layout.handsOut && isFinished(value) && !isSingle(value) && regionOf(message.before) > mainLoop &&
         message.from / layout.workers != message.to / layout.workers;
}

DenseMap<Value, int> Partitioner::findGroups(std::vector<BlockArgument> &firstOf) const {
  func::FuncOp function = step.function;
  llvm::EquivalenceClasses<unsigned> together;
  std::map<unsigned, bool> updated;
  // An update may read a state through values of other kernels, as products of a momentum: what a kernel behind the loop has read of state goes
  // with its results, but for single numbers.
  std::vector<SmallVector<BlockArgument>> reached(step.parts.size());
  for (auto [number, part] : llvm::enumerate(step.parts)) {
    SmallVector<BlockArgument> touched;
    for (OpResult result : part.op->getResults())
      if (BlockArgument argument = step.homeOf(result); argument && part.part > mainLoop)
        touched.push_back(argument);
    for (BlockArgument argument : touched)
      updated[argument.getArgNumber()] = true;
    bool updates = !touched.empty();
    for (Value operand : part.op->getOperands()) {
      Value value = step.inMemory(operand);
      auto argument = dyn_cast<BlockArgument>(value);
      BlockArgument place = argument ? argument : step.homeOf(value);
      if (place && !homes.isData(place) && (updates || homes.liesOnce(place)))
        touched.push_back(place);
      if (int writer = homes.writerOf(value); writer >= 0 && part.part > mainLoop && !isSingle(value))
        llvm::append_range(touched, reached[size_t(writer)]);
    }
    if (part.part > mainLoop)
      llvm::copy_if(touched, std::back_inserter(reached[number]), [&](BlockArgument argument) { return homes.liesOnce(argument); });
    for (BlockArgument argument : touched)
      together.unionSets(touched.front().getArgNumber(), argument.getArgNumber());
  }
  std::map<unsigned, bool> hasState; // of a group's leader
  for (auto [number, is] : updated)
    hasState[together.getLeaderValue(number)] |= homes.liesOnce(function.getArgument(number));
  DenseMap<Value, int> groups;
  std::map<unsigned, int> numbers;
  for (auto [number, is] : updated)
    if (unsigned leader = together.getLeaderValue(number); hasState[leader]) {
      auto [known, fresh] = numbers.try_emplace(leader, int(firstOf.size()));
      if (fresh)
        firstOf.push_back(function.getArgument(number));
      groups[function.getArgument(number)] = known->second;
    }
  return groups;
}

// What reads a group's state belongs to it. So does what only the group reads, and what is made of such values for others, as the squares
// of a gradient. What adds up several large values that nothing else reads is made where these are, so that less is sent.
void Partitioner::placeGroups(const DenseMap<Value, int> &groups) {
  constexpr int kOpen = -2, kSeveral = -1;
  groupOf.assign(step.parts.size(), kOpen);
  auto operands = [&](int part) { return step.parts[size_t(part)].op->getOperands(); };
  auto results = [&](int part) { return step.parts[size_t(part)].op->getResults(); };
  auto isBehind = [&](int part) { return part >= 0 && regionOf(part) > mainLoop && isa<plan::KernelOp>(step.parts[size_t(part)].op); };
  auto makesSingles = [&](int part) { return llvm::all_of(results(part), [&](Value result) { return isSingle(result); }); };
  auto include = [](int &known, int group) { known = group == kOpen || known == group ? known : known == kOpen ? group : kSeveral; };
  // The group that a part's arguments have it in.
  auto ownGroup = [&](int part) {
    int group = kOpen;
    auto consider = [&](BlockArgument argument) {
      auto found = groups.find(argument);
      include(group, found == groups.end() ? kSeveral : found->second);
    };
    for (OpResult result : results(part))
      if (BlockArgument argument = step.homeOf(result))
        consider(argument);
    for (Value operand : operands(part))
      if (auto argument = dyn_cast<BlockArgument>(step.inMemory(operand)); argument && homes.liesOnce(argument))
        consider(argument);
    return group;
  };
  // Single numbers are sent to whoever reads them.
  auto groupThatReads = [&](Value value) {
    int group = kOpen;
    for (int reader : homes.readersOf(value))
      if (isBehind(reader) && (groupOf[size_t(reader)] >= 0 || !makesSingles(reader)))
        include(group, groupOf[size_t(reader)]);
    return group;
  };
  int count = int(step.parts.size());
  for (int part = count; part-- > 0;) {
    if (!isBehind(part))
      continue;
    int &group = groupOf[size_t(part)];
    group = ownGroup(part);
    if (group == kOpen)
      for (Value result : results(part))
        include(group, groupThatReads(result));
  }
  for (int part = 0; part < count; ++part) {
    if (!isBehind(part) || ownGroup(part) != kOpen)
      continue;
    int group = kOpen;
    int64_t comes = 0, goes = 0;
    for (Value operand : operands(part)) {
      Value value = step.inMemory(operand);
      if (isSingle(value) || homes.isData(value))
        continue;
      int writer = homes.writerOf(value);
      bool made = isBehind(writer) && groupOf[size_t(writer)] >= 0;
      include(group, made ? groupOf[size_t(writer)] : groupThatReads(value));
      comes += writer >= 0 && !made && homes.readersOf(value).size() == 1 ? analysis::bytesOf(value) : 0;
    }
    for (Value result : results(part))
      goes += analysis::bytesOf(result);
    if (makesSingles(part) || groupOf[size_t(part)] == kOpen)
      groupOf[size_t(part)] = group;
    else if (comes > goes)
      groupOf[size_t(part)] = kSeveral;
  }
}

void Partitioner::findPieces() {
  replicaOf.assign(step.parts.size(), lastReplica());
  if (!layout.handsOut)
    return;
  func::FuncOp function = step.function;
  std::vector<BlockArgument> firstOf;
  DenseMap<Value, int> groups = findGroups(firstOf);
  placeGroups(groups);
  // The state, and the gradient that comes for the parameter.
  std::vector<int64_t> bytes(firstOf.size(), 0);
  for (BlockArgument argument : function.getArguments())
    if (auto group = groups.find(argument); group != groups.end())
      bytes[size_t(group->second)] += analysis::bytesOf(argument);
  std::map<int, std::vector<size_t>> ofStage; // by the first of its workers
  for (size_t group = 0; group < firstOf.size(); ++group)
    ofStage[layout.worker(homes.ownerOf(firstOf[group]))].push_back(group);
  std::vector<int> replicas(firstOf.size(), lastReplica());
  for (auto &[stage, members] : ofStage) {
    solve::PiecesProblem problem{layout.replicas, layout.shards, {}};
    for (size_t group : members) {
      SmallVector<int> owners = ownersOf(firstOf[group]);
      problem.pieces.push_back({owners.size() == 1 ? owners.front() - stage : -1, bytes[group]});
    }
    solve::PiecesSolution solution = solve::solve(problem);
    for (auto [group, replica] : llvm::zip_equal(members, solution.replica))
      replicas[group] = replica;
  }
  for (size_t part = 0; part < step.parts.size(); ++part)
    if (groupOf[part] >= 0)
      replicaOf[part] = replicas[size_t(groupOf[part])];
  for (auto [argument, group] : groups)
    keeperOf[argument] = replicas[size_t(group)];
}

void Partitioner::sendHanded(OpBuilder &builder, int part) {
  if (auto found = handed.find({number(), part}); found != handed.end())
    for (auto [value, channel] : found->second)
      plan::SendOp::create(builder, value.getLoc(), current.lookup(value), firstChannel + uint64_t(channel),
                           builder.getStringAttr(analysis::nameOf(named(value))), false, DenseI64ArrayAttr());
}

void Partitioner::passParameters(OpBuilder &builder) {
  for (int part = 0; part < int(step.parts.size()); ++part) {
    if (regionOf(part) <= mainLoop || !at[size_t(part)].count(worker))
      continue;
    Operation *op = step.parts[size_t(part)].op;
    if (!runsOn(part, replica))
      receiveParameters(builder, op);
    else
      for (OpResult result : op->getResults())
        sendParameter(builder, result);
  }
}

} // namespace cinch
