// Formation.cpp: which values are stored, and which kernels they share.
#include "compiler/analysis/Formation.h"
#include "compiler/analysis/Specs.h"

using namespace mlir;

namespace cinch::analysis {

using solve::Section;

// Work of one element, beside an addition.
static double weightOf(Operation *op) {
  if (auto cost = dyn_cast<nn::Cost>(op); cost && op->getNumResults() == 1)
    return cost.flops() / double(std::max<int64_t>(1, elementsOf(op->getResult(0))));
  return 1;
}

static bool isConstantLike(Operation *op) { return isa<nn::ConstantOp, nn::RangeOp>(op); }

Formation::Formation(func::FuncOp function) : function(function) {
  for (Operation &op : function.getBody().front().without_terminator())
    ops.push_back(&op);
}

bool Formation::accumulates(Value value) const {
  Operation *op = value.getDefiningOp();
  return op && isa<nn::ReduceOp, nn::ContractOp, nn::ScatterAddOp, nn::AttendGradOp>(op) && batchAxisOf(value) < 0 &&
         nn::touchesBatch(op);
}

LogicalResult Formation::internal(Value value, const char *what) {
  Location loc = value.getDefiningOp() ? value.getDefiningOp()->getLoc() : value.getLoc();
  emitError(loc) << "internal error: kernel formation: " << what;
  return failure();
}

// ---- Sections ----------------------------------------------------------------------------------------------------------
llvm::DenseMap<Operation *, Section> findSections(func::FuncOp function) {
  llvm::DenseMap<Operation *, Section> sections;
  llvm::SmallVector<Operation *> ops;
  for (Operation &op : function.getBody().front().without_terminator())
    ops.push_back(&op);
  for (Operation *op : ops) {
    Section section = nn::touchesBatch(op) ? Section::Loop : Section::Prologue;
    for (Value operand : op->getOperands()) {
      Operation *def = operand.getDefiningOp();
      if (section == Section::Prologue && def &&
          (sections[def] == Section::Epilogue || (sections[def] == Section::Loop && batchAxisOf(operand) < 0)))
        section = Section::Epilogue;
    }
    sections[op] = section;
  }
  // What nothing in the loop needs need not stand before it.
  llvm::DenseSet<Operation *> needed;
  for (Operation *op : llvm::reverse(ops)) {
    if (sections[op] == Section::Prologue && !needed.contains(op)) {
      sections[op] = Section::Epilogue;
      continue;
    }
    if (sections[op] != Section::Epilogue)
      for (Value operand : op->getOperands())
        if (Operation *def = operand.getDefiningOp())
          needed.insert(def);
  }
  return sections;
}

// ---- Stored values -----------------------------------------------------------------------------------------------------
void Formation::chooseStored() {
  auto force = [&](Value value) {
    // Views of what is stored need no copy by themselves; the kernels ask for one where they do.
    while (Operation *op = value.getDefiningOp()) {
      if (!isView(op))
        break;
      value = op->getOperand(0);
    }
    if (Operation *op = value.getDefiningOp(); op && !isConstantLike(op)) {
      stored.insert(value);
      forced.insert(value);
    }
  };
  auto terminator = function.getBody().front().getTerminator();
  for (Value value : terminator->getOperands())
    if (value.getDefiningOp()) {
      stored.insert(value);
      forced.insert(value);
    }

  struct Inline {
    llvm::SmallVector<Value, 4> leaves; // large values read if this one is computed on the spot
    double weight = 0;
  };
  llvm::DenseMap<Value, Inline> inlined;
  for (Operation *op : ops) {
    if (!isLoopOp(op)) {
      for (Value operand : op->getOperands())
        force(operand);
      for (Value result : op->getResults()) {
        stored.insert(result);
        forced.insert(result);
      }
      continue;
    }
    if (isa<nn::ScatterAddOp>(op) || (op->getNumResults() == 1 && accumulates(op->getResult(0)))) {
      stored.insert(op->getResult(0));
      forced.insert(op->getResult(0));
    }
    if (isa<nn::ReduceOp, nn::ArgMaxOp, nn::ArgMinOp>(op))
      stored.insert(op->getResult(0));
    if (isa<nn::GatherOp>(op)) {
      force(op->getOperand(0));
      // A few elements of a wide value of the examples (the scores of the labels): taken at once, it need not wait.
      if (batchAxisOf(op->getOperand(0)) >= 0 && elementsOf(op->getOperand(0)) >= 8 * elementsOf(op->getResult(0)))
        stored.insert(op->getResult(0));
    }
    if (isa<nn::PadOp, nn::ConcatOp>(op))
      for (Value operand : op->getOperands())
        if (!isa<BlockArgument>(operand)) {
          stored.insert(operand);
          forced.insert(operand);
        }
    for (Value operand : op->getOperands()) // crossing sections
      if (Operation *def = operand.getDefiningOp(); def && sections[def] != sections[op] && !isConstantLike(def)) {
        auto random = dyn_cast<nn::RandomOp>(def);
        Value base = operand;
        while (Operation *view = base.getDefiningOp())
          if (isView(view))
            base = view->getOperand(0);
          else
            break;
        if (random || !base.getDefiningOp() || isConstantLike(base.getDefiningOp()))
          continue;
        stored.insert(base);
        forced.insert(base);
      }
  }
  for (Operation *op : ops) {
    if (!isLoopOp(op) || op->getNumResults() != 1)
      continue;
    Value value = op->getResult(0);
    int64_t size = elementsOf(value);
    Inline here;
    here.weight = isView(op) ? 0 : weightOf(op);
    for (Value operand : op->getOperands()) {
      if (isa<BlockArgument>(operand) || stored.contains(operand)) {
        if (elementsOf(operand) * 2 >= size && !llvm::is_contained(here.leaves, operand))
          here.leaves.push_back(operand);
        continue;
      }
      const Inline &from = inlined[operand];
      here.weight += from.weight;
      for (Value leaf : from.leaves)
        if (elementsOf(leaf) * 2 >= size && !llvm::is_contained(here.leaves, leaf))
          here.leaves.push_back(leaf);
    }
    if (!isView(op) && !stored.contains(value)) {
      llvm::DenseSet<Operation *> users;
      bool grows = false;
      llvm::SmallVector<Value> pending{value};
      while (!pending.empty())
        for (Operation *user : pending.pop_back_val().getUsers()) {
          if (isView(user)) {
            grows |= elementsOf(user->getResult(0)) >= 4 * size;
            pending.push_back(user->getResult(0));
          } else {
            users.insert(user);
          }
        }
      bool shared = users.size() >= 2;
      if ((shared && (here.leaves.size() >= 2 || here.weight > 60)) || here.leaves.size() > 8 ||
          here.weight > 400 || (grows && here.weight >= 10))
        stored.insert(value);
    }
    inlined[value] = std::move(here);
  }
}

// ---- Groups ------------------------------------------------------------------------------------------------------------
bool Formation::tryGroup(KernelGroup &group, const LoopDomain &domain, ArrayRef<Value> stores, Value &blocker) {
  KernelGroup trial;
  llvm::DenseMap<Value, int> number;
  LoopTracer tracer(domain, [&](Value value) {
    if (llvm::is_contained(stores, value) || !inMemory(value))
      return -1;
    trial.reads.insert(value);
    auto [it, fresh] = number.try_emplace(value, int(number.size()));
    return it->second;
  });
  for (auto [i, value] : llvm::enumerate(stores))
    if (!tracer.store(value, int(1000 + i), accumulates(value))) {
      blocker = tracer.blocker;
      return false;
    }
  group.domain = domain;
  group.stores.assign(stores.begin(), stores.end());
  group.reads = std::move(trial.reads);
  group.ops = tracer.computed;
  return true;
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
  Section section = sections[op];
  bool backward = op->hasAttr(nn::kBackwardAttr);
  stored.insert(value);
  // Alone first: that says what it reads, and stores what stands in the way.
  KernelGroup alone;
  LoopDomain own = domainOf(value);
  while (true) {
    Value blocker;
    if (tryGroup(alone, own, {value}, blocker))
      break;
    if (!blocker || blocker == value || inMemory(blocker))
      return succeeded(internal(value, "a value cannot be computed in a loop"));
    if (!isLoopOp(blocker.getDefiningOp()) || !place(blocker))
      return succeeded(internal(value, "a value is needed before it is computed"));
  }
  int latest = -1;
  for (Value read : alone.reads)
    if (auto it = producer.find(read); it != producer.end())
      latest = std::max(latest, it->second);
  auto join = [&](int candidate) {
    KernelGroup &group = groups[candidate];
    if (group.kind != KernelGroup::Loop || group.section != section || group.backward != backward ||
        group.stores.size() >= 12 || isa<nn::ScatterAddOp>(op) ||
        isa<nn::ScatterAddOp>(group.stores.front().getDefiningOp()))
      return false;
    // Updates run behind the gate, and what the gate waits for may read anything else: they share no kernel.
    if (home.count(value) != home.count(group.stores.front()))
      return false;
    Shape shape = shapeOf(value);
    if (!(own == group.domain) && !(group.domain.chain.empty() && shape == group.domain.outer))
      return false;
    llvm::SmallVector<Value> stores = group.stores;
    stores.push_back(value);
    KernelGroup joined = group;
    Value blocker;
    if (!tryGroup(joined, group.domain, stores, blocker))
      return false;
    // Everything read must exist before the group runs.
    for (Value read : joined.reads)
      if (auto it = producer.find(read); it != producer.end() && it->second >= candidate)
        return false;
    group = joined;
    producer[value] = candidate;
    return true;
  };
  bool done = false;
  int64_t full = 1;
  for (int64_t size : own.sizes())
    full *= size;
  if (latest >= 0) {
    // A full tensor that the producer stores stays a border: recomputation wants to choose there.
    bool rowByRow = section != Section::Loop;
    if (!rowByRow) {
      rowByRow = true;
      for (Value read : alone.reads)
        if (auto it = producer.find(read); it != producer.end() && it->second == latest &&
                                           elementsOf(read) * 2 >= full && own.chain.empty())
          rowByRow = false;
    }
    done = rowByRow && join(latest);
  }
  bool reduces = isa<nn::ReduceOp, nn::ArgMaxOp, nn::ArgMinOp>(op);
  for (int candidate = int(groups.size()) - 1; !done && candidate > latest && candidate + 8 > int(groups.size());
       --candidate) {
    if (section == Section::Loop && !reduces)
      break;
    if (groups[candidate].section != section || !(groups[candidate].domain == own))
      continue;
    bool shares = false;
    for (Value read : alone.reads)
      shares |= groups[candidate].reads.contains(read) && elementsOf(read) * 2 >= full;
    done = shares && join(candidate);
  }
  if (!done) {
    alone.section = section;
    alone.backward = backward;
    producer[value] = int(groups.size());
    groups.push_back(std::move(alone));
  }
  --depth;
  return true;
}

bool Formation::placeOwn(Operation *op, KernelGroup::Kind kind) {
  KernelGroup group;
  group.kind = kind;
  group.section = sections[op];
  group.backward = op->hasAttr(nn::kBackwardAttr);
  while (true) {
    group.reads.clear();
    group.ops.clear();
    Value blocker;
    llvm::DenseMap<Value, int> number;
    auto bufferOf = [&](Value value) {
      bool result = value.getDefiningOp() == op;
      if (!result && !inMemory(value))
        return -1;
      if (!result)
        group.reads.insert(value);
      return number.try_emplace(value, int(number.size())).first->second;
    };
    bool good = false;
    if (kind == KernelGroup::Contract) {
      kernels::ContractSpec spec;
      good = contractSpec(cast<nn::ContractOp>(op), bufferOf, false, spec, blocker, &group.ops);
    } else if (kind == KernelGroup::Attend) {
      kernels::AttendSpec spec;
      good = attendSpec(cast<nn::AttendOp>(op), bufferOf, spec, blocker, &group.ops);
    } else {
      kernels::AttendGradSpec spec;
      good = attendGradSpec(cast<nn::AttendGradOp>(op), bufferOf, spec, blocker, &group.ops);
    }
    if (good)
      break;
    if (!blocker || inMemory(blocker) || !isLoopOp(blocker.getDefiningOp()) || !place(blocker))
      return succeeded(internal(op->getResult(0), "an operand cannot be brought into memory"));
  }
  group.ops.insert(op);
  for (Value result : op->getResults()) {
    group.stores.push_back(result);
    producer[result] = int(groups.size());
  }
  groups.push_back(std::move(group));
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
      if (group.kind != KernelGroup::Loop)
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
      if (tryGroup(smaller, group.domain, kept, blocker)) {
        group = smaller;
      } else {
        int index = int(&group - groups.data());
        for (Value value : dropped)
          producer[value] = index;
      }
    }
  }
}

// A kernel of the loop that writes far less than it reads runs as soon as it can: then what it read may die, or be written
// over. The forward and the backward sweep stay apart.
static void runNarrowEarly(std::vector<KernelGroup> &groups) {
  std::vector<KernelGroup> ordered;
  for (KernelGroup &group : groups) {
    int64_t written = 0, widest = 0;
    for (Value value : group.stores)
      written += elementsOf(value);
    for (Value value : group.reads)
      if (!isa<BlockArgument>(value) && batchAxisOf(value) >= 0)
        widest = std::max(widest, elementsOf(value));
    size_t at = ordered.size();
    if (group.kind == KernelGroup::Loop && group.section == Section::Loop && 8 * written <= widest) {
      auto needs = [&](const KernelGroup &other) {
        return other.section != Section::Loop || other.backward != group.backward ||
               llvm::any_of(other.stores, [&](Value value) { return group.reads.contains(value); });
      };
      auto narrow = [&](const KernelGroup &other) { // runs early itself: the order among them stays
        return other.kind == KernelGroup::Loop && other.stores.size() == group.stores.size() &&
               elementsOf(other.stores.front()) == elementsOf(group.stores.front());
      };
      while (at > 0 && !needs(ordered[at - 1]) && !narrow(ordered[at - 1]))
        --at;
    }
    ordered.insert(ordered.begin() + at, std::move(group));
  }
  groups = std::move(ordered);
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
          home[value] = byName.lookup((kind + name.getValue()).str());

  sections = findSections(function);
  // One loop over the micro-batches: what examples need cannot wait for a sum over all of them.
  for (Operation *op : ops)
    if (sections[op] == Section::Loop)
      for (Value operand : op->getOperands())
        if (Operation *def = operand.getDefiningOp(); def && batchAxisOf(operand) < 0 &&
                                                      (sections[def] == Section::Epilogue ||
                                                       (sections[def] == Section::Loop && accumulates(operand))))
          return emitError(op->getLoc()) << "work on single examples that needs a sum over the whole batch (such as a loss "
                                            "averaged over chosen elements only) is not there yet";
  chooseStored();
  for (Operation *op : ops) {
    bool good = true;
    if (isa<nn::ContractOp>(op))
      good = placeOwn(op, KernelGroup::Contract);
    else if (isa<nn::AttendOp>(op))
      good = placeOwn(op, KernelGroup::Attend);
    else if (isa<nn::AttendGradOp>(op))
      good = placeOwn(op, KernelGroup::AttendGrad);
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
      group.updates |= home.count(value) != 0;

  // Order: sections apart, in each the order of formation; then gate, updates, results.
  KernelGroup gate, results;
  gate.kind = KernelGroup::Gate;
  gate.section = Section::Epilogue;
  results.kind = KernelGroup::Results;
  bool batchResults = false;
  for (Value value : terminator->getOperands()) {
    if (home.count(value) || isa<BlockArgument>(value))
      continue;
    results.reads.insert(value);
    batchResults |= batchAxisOf(value) >= 0;
  }
  results.section = batchResults ? Section::Loop : Section::Epilogue;
  gate.reads = results.reads;
  std::vector<KernelGroup> ordered;
  auto take = [&](auto &&wanted) {
    for (KernelGroup &group : groups)
      if (wanted(group))
        ordered.push_back(group);
  };
  take([](KernelGroup &g) { return g.section == Section::Prologue; });
  take([](KernelGroup &g) { return g.section == Section::Loop; });
  if (batchResults)
    ordered.push_back(results);
  take([](KernelGroup &g) { return g.section == Section::Epilogue && !g.updates; });
  bool anyUpdate = llvm::any_of(groups, [](KernelGroup &g) { return g.updates; });
  if (anyUpdate)
    ordered.push_back(gate);
  take([](KernelGroup &g) { return g.section == Section::Epilogue && g.updates; });
  if (!batchResults && !results.reads.empty())
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
