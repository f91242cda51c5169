// Formation.cpp: which kernels the stored values share (FormationStores.cpp says what is stored, FormationOwn.cpp forms kernels of one op).
#include "compiler/analysis/Formation.h"
#include "compiler/analysis/KernelSpec.h"
#include "compiler/solve/Evaluate.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Pieces.h"
#include "dialects/nn/Versions.h"

using namespace mlir;

namespace cinch::analysis {

Formation::Formation(func::FuncOp function, Sweeps given, bool joinsMore)
    : function(function), sweeps(std::move(given)), joinsMore(joinsMore) {
  for (Operation &op : function.getBody().front().without_terminator())
    ops.push_back(&op);
  solve::StepGraph sizes;
  sizes.batch = nn::batchOf(function);
  sizes.grain = nn::examplesTogether(function);
  extents.push_back({});
  for (int64_t examples : solve::microbatches(sizes))
    if (examples < sizes.batch)
      extents.push_back({examples});
}

bool Formation::accumulates(Value value) const {
  Operation *op = value.getDefiningOp();
  return op && isa<nn::ReduceOp, nn::ContractOp, nn::ConvOp, nn::ScatterAddOp, nn::AttendGradOp>(op) && batchAxisOf(value) < 0 &&
         nn::touchesBatch(op);
}

LogicalResult Formation::internal(Value value, const char *what) {
  Location loc = value.getDefiningOp() ? value.getDefiningOp()->getLoc() : value.getLoc();
  emitError(loc) << "internal error: kernel formation: " << what;
  return failure();
}

// Stores are buffers of a trial from here on; below it are those read.
constexpr int kFirstStore = 1 << 20;

// ---- Groups ------------------------------------------------------------------------------------------------------------
// At every extent, the whole batch first: it says what is read and computed.
bool Formation::tryGroup(KernelGroup &group, Value anchor, ArrayRef<Value> stores, Value &blocker, int at) {
  KernelGroup trial = group;
  for (const Extent &extent : extents) {
    llvm::SetVector<Value> reads;
    llvm::DenseMap<Value, int> number;
    auto inputOf = [&](Value value) {
      // What updates a parameter or a state is written behind the gate. A kernel before the gate that needs it computes it again from the
      // old one.
      bool isLater = isBehindGate(value) && !isBehindGate(stores.front());
      if (llvm::is_contained(stores, value) || !inMemory(value) || isLater)
        return -1;
      reads.insert(value);
      return number.try_emplace(value, int(number.size())).first->second;
    };
    TracedWork traced;
    auto sums = [&](size_t store) { return accumulates(stores[store]); };
    if (!traceWork({plan::KernelKind::Loop, stores, anchor, inputOf, sums, kFirstStore}, extent, traced)) {
      blocker = traced.blocker;
      return false;
    }
    if (extent.examples == 0) {
      // The anchor has to be there when the kernel is built.
      if (!traced.ops.contains(anchor.getDefiningOp()))
        return false;
      blocker = readTooLate(stores, at, traced, reads.getArrayRef());
      if (blocker)
        return false;
      trial.reads = std::move(reads);
      trial.ops = std::move(traced.ops);
    }
  }
  trial.anchor = anchor;
  trial.stores.assign(stores.begin(), stores.end());
  group = std::move(trial);
  return true;
}

Value Formation::readTooLate(ArrayRef<Value> stores, int at, const TracedWork &traced, ArrayRef<Value> reads) {
  if (!isBehindGate(stores.front()))
    return {};
  SmallVector<std::pair<BlockArgument, int>> arguments; // that are read, and which buffers they are
  for (auto [buffer, value] : llvm::enumerate(reads))
    if (auto argument = dyn_cast<BlockArgument>(value); argument && updated.contains(argument))
      arguments.push_back({argument, int(buffer)});
  llvm::sort(arguments, [](auto &a, auto &b) { return a.first.getArgNumber() < b.first.getArgNumber(); });
  for (auto [argument, buffer] : arguments) {
    Value next = updated.lookup(argument);
    const Value *own = llvm::find(stores, next);
    auto written = producer.find(next);
    if (own != stores.end() ? readsWhereItWrites(std::get<kernels::LoopSpec>(traced.spec.work), buffer, kFirstStore + int(own - stores.begin()))
                            : written == producer.end() || written->second >= at)
      continue;
    for (Operation *op : traced.ops) {
      Value copied = isa<nn::NewStateOp>(op) ? op->getOperand(0) : Value();
      while (copied && copied.getDefiningOp() && isView(copied.getDefiningOp()))
        copied = copied.getDefiningOp()->getOperand(0);
      if (copied == Value(argument)) // nothing is computed on the way: what is read is copied
        return op->getOperand(0);
      if (!isView(op) && llvm::any_of(op->getOperands(), [&](Value operand) {
            while (operand.getDefiningOp() && isView(operand.getDefiningOp()))
              operand = operand.getDefiningOp()->getOperand(0);
            return operand == Value(argument);
          }) && !llvm::is_contained(stores, op->getResult(0)))
        return op->getResult(0);
    }
  }
  return {};
}

bool Formation::sameDomain(Value a, Value b) const {
  return llvm::all_of(extents, [&](const Extent &extent) { return domainOf(a, extent) == domainOf(b, extent); });
}

// One element for each row of the anchor's domain, which has no chain.
bool Formation::rowsOf(Value rows, Value anchor) const {
  return llvm::all_of(extents, [&](const Extent &extent) {
    LoopDomain domain = domainOf(anchor, extent);
    return domain.chain.empty() && shapeOf(rows, extent) == domain.outer;
  });
}

// The kernel that computes a value alone: that says what it reads, and stores what stands in the way.
bool Formation::formAlone(Value value, KernelGroup &alone, int at) {
  while (true) {
    Value blocker;
    if (tryGroup(alone, value, {value}, blocker, at))
      return true;
    if (!blocker || blocker == value || inMemory(blocker))
      return succeeded(internal(value, "a value cannot be computed in a loop (run decompose-ops first, if its op is one that is written out)"));
    if (!isLoopOp(blocker.getDefiningOp()) || !place(blocker))
      return succeeded(internal(value, "a value is needed before it is computed"));
  }
}

// Lets group `candidate` compute the value, too, if it can.
bool Formation::join(Value value, int candidate, bool late) {
  Operation *op = value.getDefiningOp();
  KernelGroup &group = groups[candidate];
  if (!group.isLoop() || group.part != partOf(op) || group.backward != op->hasAttr(nn::kBackwardAttr) || group.stores.size() >= 12 ||
      isa<nn::ScatterAddOp>(op) || isa<nn::ScatterAddOp>(group.stores.front().getDefiningOp()))
    return false;
  // Chains over groups are no chains over the batch, which a grain would cut.
  if (isa<nn::GroupMeanOp>(op) != isa<nn::GroupMeanOp>(group.stores.front().getDefiningOp()))
    return false;
  // What the gate waits for and what runs behind it share no kernel; nor do updates and what only serves them.
  if (home.count(value) != home.count(group.stores.front()) || isBehindGate(value) != isBehindGate(group.stores.front()) ||
      nn::areApart(op, group.stores.front().getDefiningOp()))
    return false;
  if (!sameDomain(value, group.anchor) && !rowsOf(value, group.anchor))
    return false;
  // Groups behind it still read what the value overwrites.
  for (size_t later = size_t(candidate) + 1; home.count(value) && later < groups.size(); ++later)
    if (groups[later].behindGate && groups[later].reads.contains(home.lookup(value)))
      return false;
  llvm::SmallVector<Value> stores = group.stores;
  stores.push_back(value);
  // Updates that have no kernel yet may compute with what the value overwrites, and could come to stand behind this group. Then the value stays
  // out of it, unless it reads itself what the group overwrites.
  auto readsOld = [&](Value store) {
    auto argument = home.find(store);
    return argument != home.end() && llvm::is_contained(readersOfOld.lookup(argument->second), value);
  };
  if (auto argument = home.find(value); argument != home.end() && llvm::none_of(group.stores, readsOld))
    if (auto readers = readersOfOld.find(argument->second); readers != readersOfOld.end() &&
        llvm::any_of(readers->second, [&](Value reader) { return !inMemory(reader) && !llvm::is_contained(stores, reader); }))
      return false;
  KernelGroup joined = group;
  Value blocker;
  if (!tryGroup(joined, group.anchor, stores, blocker, candidate))
    return false;
  // Everything read must exist before the group runs.
  for (Value read : joined.reads)
    if (auto it = producer.find(read); it != producer.end() && it->second >= candidate && !(late && isBeforeGate(it->second, value)))
      return false;
  group = joined;
  producer[value] = candidate;
  return true;
}

static int64_t sizeOf(const LoopDomain &domain) {
  int64_t product = 1;
  for (int64_t size : domain.sizes())
    product *= size;
  return product;
}

// Joins the last group that computes something which the value's own kernel reads, or one behind it that reads the same large tensor.
bool Formation::joinSome(Value value, const KernelGroup &alone, bool late) {
  int latest = -1;
  for (Value read : alone.reads)
    if (auto it = producer.find(read); it != producer.end() && !(late && isBeforeGate(it->second, value)))
      latest = std::max(latest, it->second);
  Operation *op = value.getDefiningOp();
  int part = partOf(op);
  LoopDomain own = domainOf(value);
  const int64_t full = sizeOf(own);
  // In a sweep a full tensor that the producer stores stays a border: recomputation wants to choose there. A GPU computes much faster than
  // its memory moves: there a row's numbers are no border, so that a norm is one kernel, nor is a gradient, which is read soon and by few.
  auto isBorder = [&](Value read) {
    auto it = producer.find(read);
    if (it == producer.end() || it->second != latest || !own.chain.empty())
      return false;
    int64_t around = full;
    if (joinsMore && groups[latest].isLoop())
      around = std::max(around, sizeOf(domainOf(groups[latest].anchor)));
    return elementsOf(read) * 2 >= around && !(joinsMore && op->hasAttr(nn::kBackwardAttr));
  };
  if (latest >= 0 && !(isSweep(part) && llvm::any_of(alone.reads, isBorder)) && join(value, latest, late))
    return true;
  if (isSweep(part) && !isa<nn::ReduceOp, nn::ArgMaxOp, nn::ArgMinOp>(op))
    return false;
  for (int candidate = int(groups.size()) - 1; candidate > latest && candidate + 8 > int(groups.size()); --candidate) {
    if (!groups[candidate].isLoop() || groups[candidate].part != part || !sameDomain(value, groups[candidate].anchor))
      continue;
    bool shares = llvm::any_of(alone.reads, [&](Value read) { return groups[candidate].reads.contains(read) && elementsOf(read) * 2 >= full; });
    if (shares && join(value, candidate, late))
      return true;
  }
  return false;
}

bool Formation::place(Value value) {
  if (inMemory(value))
    return true;
  if (++depth > 10000)
    return succeeded(internal(value, "stored values depend on one another"));
  Operation *op = value.getDefiningOp();
  if (!isLoopOp(op)) {
    --depth;
    return true; // its own turn comes
  }
  stored.insert(value);
  // An update may read what an earlier kernel overwrites. That kernel can compute the update, too: there the old value is still read.
  KernelGroup alone;
  bool isUpdate = isBehindGate(value);
  if (!formAlone(value, alone, isUpdate ? -1 : INT_MAX))
    return false;
  bool joined = joinSome(value, alone);
  Value blocker;
  if (KernelGroup last; !joined && isUpdate && !tryGroup(last, value, {value}, blocker)) // behind all that are there it reads too late
    joined = joinSome(value, alone, /*late=*/true);
  if (!joined && isUpdate) {
    if (!formAlone(value, alone, INT_MAX))
      return false;
    joined = joinSome(value, alone);
  }
  if (!joined) {
    alone.part = partOf(op);
    alone.backward = op->hasAttr(nn::kBackwardAttr);
    alone.behindGate = isBehindGate(value);
    producer[value] = int(groups.size());
    groups.push_back(std::move(alone));
  }
  --depth;
  return true;
}

// Drops stores that only their own kernel reads, and kernels that then store nothing.
void Formation::prune() {
  for (int pass = 0; pass < 2; ++pass) {
    llvm::DenseSet<Value> read;
    for (const KernelGroup &group : groups)
      for (Value value : group.reads)
        read.insert(value);
    for (KernelGroup &group : groups) {
      if (!group.isLoop())
        continue;
      llvm::SmallVector<Value> kept;
      for (Value value : group.stores)
        if (forced.contains(value) || read.contains(value))
          kept.push_back(value);
      if (kept.size() == group.stores.size() || kept.empty())
        continue;
      Value blocker;
      KernelGroup smaller = group;
      llvm::SmallVector<Value> dropped;
      for (Value value : group.stores)
        if (!llvm::is_contained(kept, value))
          dropped.push_back(value);
      for (Value value : dropped)
        producer.erase(value);
      // What a later kernel stores was computed here, and still has to be.
      horizon = int(&group - groups.data());
      // The anchor itself may be dropped: what is kept over the same domain takes its place.
      llvm::SmallVector<Value> anchors{group.anchor};
      llvm::copy_if(kept, std::back_inserter(anchors), [&](Value value) { return sameDomain(value, group.anchor); });
      if (llvm::any_of(anchors, [&](Value anchor) { return tryGroup(smaller, anchor, kept, blocker, horizon); })) {
        group = smaller;
      } else {
        for (Value value : dropped)
          producer[value] = horizon;
      }
      horizon = INT_MAX;
    }
  }
}

// A kernel of the loop that writes far less than it reads runs as soon as it can: then what it read may die, or be written
// over. The forward and the backward sweep stay apart.
static void runNarrowEarly(std::vector<KernelGroup> &groups) {
  std::vector<KernelGroup> ordered;
  ordered.reserve(groups.size());
  for (KernelGroup &group : groups) {
    int64_t written = 0, widest = 0;
    for (Value value : group.stores)
      written += elementsOf(value);
    for (Value value : group.reads)
      if (!isa<BlockArgument>(value) && batchAxisOf(value) >= 0)
        widest = std::max(widest, elementsOf(value));
    size_t at = ordered.size();
    if (group.isLoop() && isSweep(group.part) && 8 * written <= widest) {
      auto needs = [&](const KernelGroup &other) {
        return other.part != group.part || other.backward != group.backward ||
               llvm::any_of(other.stores, [&](Value value) { return group.reads.contains(value); });
      };
      auto narrow = [&](const KernelGroup &other) { // runs early itself: the order among them stays
        return other.isLoop() && other.stores.size() == group.stores.size() &&
               elementsOf(other.stores.front()) == elementsOf(group.stores.front());
      };
      while (at > 0 && !needs(ordered[at - 1]) && !narrow(ordered[at - 1]))
        --at;
    }
    ordered.insert(ordered.begin() + at, std::move(group));
  }
  groups = std::move(ordered);
}

// What is computed of optimizer state serves updates alone, as the products of muon's momentum: it runs with them, behind the gate, where the new
// state lies in memory. What the results with names need stands before, whatever it reads.
void Formation::findBehindGate() {
  auto terminator = function.getBody().front().getTerminator();
  llvm::DenseSet<Value> needed;
  for (auto [i, value] : llvm::enumerate(terminator->getOperands()))
    if (function.getResultAttr(unsigned(i), nn::kNameAttr))
      needed.insert(value);
  for (Operation *op : llvm::reverse(ops))
    if (llvm::any_of(op->getResults(), [&](Value result) { return needed.contains(result); }))
      needed.insert(op->operand_begin(), op->operand_end());
  auto isState = [&](Value value) {
    auto argument = dyn_cast<BlockArgument>(value);
    return argument && function.getArgAttr(argument.getArgNumber(), nn::kSlotAttr);
  };
  for (auto [value, argument] : home)
    behindGate.insert(value);
  for (Operation *op : ops)
    if (partOf(op) == sweeps.last() &&
        llvm::any_of(op->getOperands(), [&](Value operand) { return behindGate.contains(operand) || isState(operand); }))
      for (Value result : op->getResults())
        if (!needed.contains(result))
          behindGate.insert(result);
}

void Formation::findReadersOfOld() {
  for (auto [value, own] : home) {
    // Back through what is computed for it, to arguments; whether something was computed on the way, and not copied.
    SmallVector<std::pair<Value, bool>> pending{{value, false}};
    llvm::DenseSet<Value> seen[2];
    while (!pending.empty()) {
      auto [reached, isComputed] = pending.pop_back_val();
      const bool isThere = home.count(reached) || (stored.contains(reached) && !isBehindGate(reached));
      if (!seen[isComputed].insert(reached).second || (reached != value && isThere))
        continue;
      if (auto argument = dyn_cast<BlockArgument>(reached)) {
        auto slot = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kSlotAttr);
        const bool isState = slot && !nn::isVersion(slot.getValue());
        if (isComputed && isState && argument != own && updated.contains(argument) && !llvm::is_contained(readersOfOld[argument], value))
          readersOfOld[argument].push_back(value);
        continue;
      }
      Operation *op = reached.getDefiningOp();
      if (isLoopOp(op) && partOf(op) == sweeps.last())
        for (Value operand : op->getOperands())
          pending.push_back({operand, isComputed || !(isView(op) || isa<nn::NewStateOp>(op))});
    }
  }
}

LogicalResult Formation::form() {
  // Results update the arguments of the same path or slot.
  llvm::StringMap<BlockArgument> byName;
  for (BlockArgument argument : function.getArguments())
    for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
      if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind))
        byName[(kind + name.getValue()).str()] = argument;
  auto terminator = function.getBody().front().getTerminator();
  for (auto [i, value] : llvm::enumerate(terminator->getOperands()))
    for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
      if (auto name = function.getResultAttrOfType<StringAttr>(unsigned(i), kind))
        if (value.getDefiningOp())
          updated[home[value] = byName.lookup((kind + name.getValue()).str())] = value;
  for (Value value : terminator->getOperands()) // runs of a new parameter's rows are updates, too
    if (Operation *joins = value.getDefiningOp(); joins && joins->hasAttr(nn::kJoinsAttr))
      for (Value run : joins->getOperands())
        home[run] = home.lookup(value);

  findBehindGate();
  chooseStored();
  findReadersOfOld();
  groups.reserve(ops.size()); // moving them all as the list grows would copy them: of a deep step they are much
  for (Operation *op : ops) {
    bool good = true;
    if (plan::KernelKind kind = plan::kindOf(op); kind != plan::KernelKind::Loop)
      good = placeOwn(op, kind);
    else
      for (Value result : op->getResults())
        if (stored.contains(result))
          good &= place(result);
    if (!good)
      return failure();
  }
  prune();
  for (KernelGroup &group : groups)
    for (Value value : group.stores)
      group.behindGate |= isBehindGate(value);

  // Order: parts apart, in each the order of formation; then gate, updates, results.
  KernelGroup gate, results;
  gate.marker = KernelGroup::Gate;
  gate.part = sweeps.last();
  results.marker = KernelGroup::Results;
  bool batchResults = false, named = false;
  for (auto [i, value] : llvm::enumerate(terminator->getOperands())) {
    if (!function.getResultAttr(unsigned(i), nn::kNameAttr))
      continue;
    named = true;
    batchResults |= batchAxisOf(value) >= 0;
    if (!isa<BlockArgument>(value))
      results.reads.insert(value);
  }
  results.part = batchResults ? sweeps.lastSweep() : sweeps.last();
  gate.reads = results.reads;
  std::vector<KernelGroup> ordered;
  ordered.reserve(groups.size() + 2);
  auto take = [&](auto &&wanted) { // each group is wanted once
    for (KernelGroup &group : groups)
      if (wanted(group))
        ordered.push_back(std::move(group));
  };
  for (int part = 0; part < sweeps.last(); ++part)
    take([&](KernelGroup &g) { return g.part == part; });
  if (batchResults)
    ordered.push_back(results);
  take([&](KernelGroup &g) { return g.part == sweeps.last() && !g.behindGate; });
  bool anyUpdate = llvm::any_of(groups, [](KernelGroup &g) { return g.behindGate; });
  if (anyUpdate)
    ordered.push_back(gate);
  take([&](KernelGroup &g) { return g.part == sweeps.last() && g.behindGate; });
  if (!batchResults && named)
    ordered.push_back(results);
  groups = std::move(ordered);
  runNarrowEarly(groups);
  producer.clear();
  for (auto [i, group] : llvm::enumerate(groups))
    for (Value value : group.stores)
      producer[value] = int(i);
  return success();
}

} // namespace cinch::analysis
