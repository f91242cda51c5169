// Compile.cpp: the phases, in order. What each leaves behind stands in Phase.h and in the README's table.
#include "compiler/phases/Compile.h"
#include "compiler/phases/Allowance.h"
#include "compiler/phases/ProgramHash.h"
#include "compiler/solve/StepBound.h"

#include "compiler/target/Assemble.h"
#include "compiler/target/Link.h"
#include "compiler/target/LowerKernels.h"
#include "compiler/target/Object.h"
#include "compiler/transforms/Approximate.h"
#include "compiler/transforms/CutLoops.h"
#include "compiler/transforms/EmitNN.h"
#include "compiler/transforms/CutUpdates.h"
#include "compiler/transforms/HoldSums.h"
#include "compiler/transforms/NarrowOperands.h"
#include "compiler/transforms/NarrowWeights.h"
#include "compiler/transforms/Passes.h"
#include "compiler/transforms/ShardValues.h"
#include "compiler/transforms/SumInBlocks.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/Held.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/AttrTypeSubElements.h"
#include "mlir/IR/OperationSupport.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "llvm/ADT/DenseSet.h"
#include "llvm/ADT/StringSet.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/Module.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

using namespace mlir;

namespace cinch {
// Ops and phase are checked here and nowhere between: the passes of a phase run without MLIR's check behind each of them,
// which costs a deep program more than the passes do.
bool Compilation::verify(Phase phase) {
  if (failed(mlir::verify(*module)))
    return false;
  PassManager manager(&context);
  manager.enableVerifier(false);
  VerifyPhaseOptions verifyOptions;
  verifyOptions.phase = phase;
  manager.addPass(createVerifyPhase(verifyOptions));
  return succeeded(manager.run(*module));
}

bool Compilation::parse() {
  module = emitNN(context, program, sources);
  return module && verify(Phase::Parsed);
}

static LogicalResult differentiateModule(ModuleOp module) {
  PassManager manager(module.getContext());
  manager.enableVerifier(false);
  manager.addPass(createSinkGroups()); // products of the examples of a group are products, and their gradients too
  manager.addPass(createChooseLayouts()); // gradients are of the layouts that are chosen
  manager.addPass(createRoundValues());
  manager.addPass(createDifferentiate());
  return manager.run(module);
}

// Shards are no part of what a program computes: its hash is that of the program of one worker.
bool Compilation::share() {
  OwningOpRef<ModuleOp> plain = module->clone();
  if (failed(differentiateModule(*plain)))
    return false;
  programHash = hashOfTraining(*plain, program);
  ShardedProgram sharded = shardValues(*module, options.shards);
  if (!sharded.fault.empty()) {
    emitError(UnknownLoc::get(&context)) << "internal error: shards: " << sharded.fault;
    return false;
  }
  workers.shardNotes = std::move(sharded.notes);
  refusal = std::move(sharded.wrong);
  refused = !refusal.empty();
  return refused || verify(Phase::Parsed);
}

bool Compilation::differentiate() {
  if (options.shards > 1 && !share())
    return false;
  if (refused)
    return true;
  if (failed(differentiateModule(*module)) || !verify(Phase::Differentiated))
    return false;
  if (options.shards == 1)
    programHash = hashOfTraining(*module, program);
  narrowOperands(*module, options.target.isDevice());
  PassManager decompose(&context);
  decompose.enableVerifier(false);
  if (options.target.isDevice() && options.workers() == 1) // of several, each has some of the gradients
    decompose.addPass(createJoinSquares());
  decompose.addPass(createHoistRoundings());
  decompose.addPass(createCrossLoops());
  decompose.addPass(createDecomposeOps());
  decompose.addPass(createSinkSplits());
  decompose.addPass(createReadMaxima());
  if (failed(decompose.run(*module)))
    return false;
  if (options.target.isDevice() && program.train.bf16) {
    sumInBlocks(module->lookupSymbol<func::FuncOp>(nn::kTrainName));
    approximate(*module);
  }
  if (options.shards > 1) {
    markShards(*module);
    spreadSums(*module);
    countAllReduces();
  }
  countOperations(nn::kTrainName);
  return true;
}

// Of the work on examples.
void Compilation::countAllReduces() {
  auto train = module->lookupSymbol<func::FuncOp>(nn::kTrainName);
  train.walk([&](Operation *op) {
    if (op->hasAttr(nn::kAllReduceAttr) && nn::touchesBatch(op))
      ++workers.allReduces[op->hasAttr(nn::kBackwardAttr)];
  });
}

int64_t WorkersPlan::mostOnce(bool handedOut) const {
  std::vector<int64_t> bytes(handedOut ? each.size() : each.size() / size_t(replicas), 0);
  for (size_t w = 0; w < each.size(); ++w)
    bytes[w % bytes.size()] += each[w].once;
  return *std::max_element(bytes.begin(), bytes.end());
}

int64_t WorkersPlan::bytesToShards() const {
  std::vector<int64_t> sent(each.size(), 0);
  for (const Channel &channel : channels)
    if (channel.inLoop && !channel.action.empty() && channel.from / shards == channel.to / shards)
      sent[size_t(channel.from)] += channel.messageBytes;
  return *std::max_element(sent.begin(), sent.end());
}

// How large the executable will be is guessed from these. Of the steps that may be planned, the one of this name counts.
void Compilation::countOperations(StringRef step) {
  operations = {};
  llvm::DenseSet<llvm::hash_code> different;
  module->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto function = dyn_cast<func::FuncOp>(op); function && function.getName().starts_with(nn::kTrainName) && function.getName() != step)
      return WalkResult::skip();
    ++operations.all;
    bool isNew = different
                     .insert(OperationEquivalence::computeHash(op, OperationEquivalence::ignoreHashValue,
                                                               OperationEquivalence::ignoreHashValue,
                                                               OperationEquivalence::IgnoreLocations))
                     .second;
    operations.different += isNew;
    operations.differentWindows += isNew && isa<nn::ConvOp, nn::MaxPoolOp, nn::SumPoolOp>(op);
    bool ofPairs = isa<nn::ContractOp>(op) && (op->hasAttr(nn::kBF16Attr) || llvm::any_of(op->getOperands(), [](Value value) {
                                                 return nn::tensorOf(value).getElementType().isBF16();
                                               }));
    operations.differentPairs += isNew && ofPairs;
    return WalkResult::advance();
  });
}

int64_t Compilation::allowance() const {
  if (options.target.isDevice())
    return 0;
  int64_t libraries = options.workers() > 1 ? target::kLibraryBytes - kLibraryInBinary : 0;
  int64_t binary = guessedBinaryBytes(operations, options.stages, options.replicas, options.shards) + libraries;
  return options.target.allowance(binary) + options.granted + options.transportReserve;
}

int64_t Compilation::allowanceOfSeveral() const {
  analysis::Target target = options.target;
  target.cpu.threads = std::min(target.cpu.threads, 2); // each has its part of them
  return target.allowance(guessedBinaryBytes(operations, 2, 1, 1) + target::kLibraryBytes - kLibraryInBinary);
}

static int64_t bytesOfArguments(func::FuncOp function, StringRef kind) {
  int64_t bytes = 0;
  for (BlockArgument argument : function.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), kind)) {
      auto type = nn::tensorOf(argument);
      bytes += solve::roundUp(type.getNumElements() * int64_t(type.getElementTypeBitWidth() / 8));
    }
  return bytes;
}

int64_t Compilation::persistentBytes() const {
  int64_t bytes = 0;
  for (const EntryPlan &entry : entries)
    if (entry.name == "train")
      bytes += persistentBytes(entry);
  return bytes;
}

int64_t Compilation::persistentBytes(const EntryPlan &entry) const {
  return persistentBytes(mlir::ModuleOp(module.get()).lookupSymbol<func::FuncOp>(entry.function));
}

int64_t Compilation::persistentBytes(func::FuncOp function) {
  return bytesOfArguments(function, nn::kPathAttr) + bytesOfArguments(function, nn::kSlotAttr);
}

int64_t Compilation::bytesOfState(StringRef function) const {
  return bytesOfArguments(mlir::ModuleOp(module.get()).lookupSymbol<func::FuncOp>(function), nn::kSlotAttr);
}

// What loops along an axis keep for their backward loops: every trip, states before runs of trips, before runs of runs. And of replicas that
// have several grains, what waits for the replica before: the operands of gradients, or the grains' sums. And large updates whole, or in runs of
// rows that replicas share. Each is a step of its own to the planner. On a GPU all of them have copies of weights, and behind them come those without,
// for budgets that have no room for the copies.
std::vector<func::FuncOp> Compilation::waysToTrain(const solve::Strategy &strategy) {
  std::vector<func::FuncOp> ways{module->lookupSymbol<func::FuncOp>(nn::kTrainName)};
  bool free = strategy.kind == solve::Strategy::Auto || strategy.kind == solve::Strategy::Optimal;
  for (int levels : {1, 2}) {
    if (!free || ways.front().getOps<nn::ScanOp>().empty())
      break;
    auto copy = cast<func::FuncOp>(ways.front()->clone());
    copy.setName((nn::kTrainName + "_in_runs_" + Twine(levels)).str());
    module->push_back(copy);
    if (cutLoops(copy, levels))
      ways.push_back(copy);
    else
      copy.erase();
  }
  int64_t grain = nn::grainOf(func::FuncOp(ways.front()));
  // On a GPU another kernel may serve a product of grains, with other bits.
  if (free && options.replicas > 1 && !options.target.isDevice() && grain > 0 && program.batch / options.replicas > grain) {
    auto copy = cast<func::FuncOp>(ways.front()->clone());
    copy.setName((nn::kTrainName + "_held").str());
    module->push_back(copy);
    if (holdSums(copy))
      ways.push_back(copy);
    else
      copy.erase();
  }
  bool shareUpdates = program.train.combine == Combine::Exact || program.train.combine == Combine::Reduce;
  if (options.replicas > 1 && options.shards == 1 && shareUpdates) {
    auto copy = cast<func::FuncOp>(ways.front()->clone());
    copy.setName((nn::kTrainName + "_rows").str());
    module->push_back(copy);
    if (cutUpdates(copy, options.replicas * options.stages)) {
      ways.push_back(copy);
      countOperations(copy.getName()); // it has most
    } else {
      copy.erase();
    }
  }
  for (size_t i = 0, count = ways.size(); options.target.isDevice() && options.workers() == 1 && i < count; ++i) {
    auto plain = cast<func::FuncOp>(ways[i]->clone());
    plain.setName((ways[i].getName() + "_wide").str());
    if (narrowWeights(ways[i])) {
      module->push_back(plain);
      ways.push_back(plain);
    } else {
      plain.erase();
    }
  }
  return ways;
}

// The ladders of several steps together: the plans that no other beats.
static void join(std::vector<solve::LadderPoint> &ladder, const std::vector<solve::LadderPoint> &other) {
  ladder.insert(ladder.end(), other.begin(), other.end());
  llvm::stable_sort(ladder, [](const solve::LadderPoint &a, const solve::LadderPoint &b) {
    return std::tie(a.arenaBytes, a.seconds) < std::tie(b.arenaBytes, b.seconds);
  });
  std::vector<solve::LadderPoint> kept;
  for (const solve::LadderPoint &point : ladder)
    if (kept.empty() || point.seconds < kept.back().seconds)
      kept.push_back(point);
  ladder = std::move(kept);
}

DecideOutcome Compilation::decideTraining(std::vector<func::FuncOp> ways, const DecideOptions &wanted) {
  DecideOutcome best = decidePlan(ways.front(), wanted);
  size_t chosen = 0;
  for (size_t i = 1; i < ways.size() && !best.internal && best.result.error.empty(); ++i) {
    // Computing trips again costs time: nothing beats a plan that no plan of the plain step beats.
    bool fastest = best.result.feasible && best.result.plan.seconds <= best.result.secondsBound;
    bool wide = ways[i].getName().ends_with("_wide"); // worth it only where no other fits
    if ((fastest || (wide && best.result.feasible)) && !wanted.tradeOff)
      break;
    DecideOutcome other = decidePlan(ways[i], wanted);
    if (other.internal)
      return other;
    bool better = other.result.feasible != best.result.feasible ? other.result.feasible
                  : best.result.feasible ? !wide && other.result.plan.seconds < best.result.plan.seconds
                                         : other.result.smallestArena < best.result.smallestArena;
    if (!other.result.error.empty())
      continue;
    if (better)
      std::swap(best, other), chosen = i;
    best.result.smallestArena = std::min(best.result.smallestArena, other.result.smallestArena);
    best.result.bound = std::min(best.result.bound, other.result.bound);
    best.result.secondsBound = std::min(best.result.secondsBound, other.result.secondsBound);
    join(best.tradeOff, other.tradeOff);
  }
  loopLevels = ways[chosen].getName().ends_with("_wide") ? int(chosen - ways.size() / 2) : int(chosen);
  for (size_t i = 0; i < ways.size(); ++i)
    if (i != chosen)
      ways[i].erase();
  ways[chosen].setName(nn::kTrainName);
  return best;
}

bool Compilation::decide() {
  if (refused)
    return true;
  solve::Strategy strategy;
  if (!solve::parseStrategy(options.remat, strategy, refusal)) {
    refused = true;
    return true;
  }
  std::vector<func::FuncOp> ways = waysToTrain(strategy);
  FormKernelsOptions forming;
  forming.joinsMore = options.target.isDevice();
  if (!runPasses([&](OpPassManager &functions) { functions.addPass(createFormKernels(forming)); }))
    return false;
  auto train = module->lookupSymbol<func::FuncOp>(nn::kTrainName);
  stateBytes = bytesOfArguments(train, nn::kSlotAttr);
  std::optional<int64_t> room; // for the arena
  if (options.budget)
    room = std::max<int64_t>(0, *options.budget - allowance());
  DecideOptions base;
  base.orderSeed = options.orderSeed;
  base.rowBlocks = options.rowBlocks;
  base.target = options.target;
  if (options.workers() > 1)
    return decideStages(base, strategy, std::move(ways));

  EntryPlan step{"train", nn::kTrainName.str(), {}, 0, 0};
  DecideOptions forTrain = base;
  forTrain.search.arenaBudget = room;
  forTrain.search.microbatch = options.microbatch;
  forTrain.hostBudget = options.hostBudget;
  forTrain.hostAdvice = options.target.isDevice();
  forTrain.tradeOff = options.tradeOff;
  forTrain.planCache = options.planCache;
  forTrain.search.strategy = strategy;
  step.outcome = decideTraining(std::move(ways), forTrain);
  if (step.outcome.internal)
    return false;
  step.arenaBytes = step.outcome.result.plan.decision.arenaBytes;
  if (!step.outcome.result.error.empty()) {
    refusal = step.outcome.result.error;
    refused = true;
    return true;
  }
  refused = !step.outcome.result.feasible;
  if (options.bound && !refused && !findBound(step.outcome, room))
    return false;
  int64_t chosen = step.outcome.result.plan.decision.microbatch;
  int64_t roomForOthers = refused ? step.outcome.result.smallestArena : step.arenaBytes;
  entries.push_back(std::move(step));
  const bool fits = !refused;
  if (!decideOthers(base, chosen, roomForOthers, room))
    return false;
  return !(fits && refused && options.hostBudget) || moveAllState(base, forTrain);
}

bool Compilation::findBound(const DecideOutcome &outcome, std::optional<int64_t> room) {
  const solve::Plan &plan = outcome.result.plan;
  if (outcome.valuesOnHost > 0) { // then what the budget has no room for need not be computed again
    fixedBound = outcome.result.secondsBound;
    return true;
  }
  solve::StepBound bound = solve::stepBound(outcome.rows.graph, plan.decision.microbatch, room, plan.seconds);
  if (!bound.fault.empty()) {
    emitError(UnknownLoc::get(&context)) << "internal error: the bound on the time: " << bound.fault;
    return false;
  }
  fixedBound = bound.seconds;
  return true;
}

// Evaluation and prediction share the arena: the largest micro-batch, up to that of training, that fits what training needs.
bool Compilation::decideOthers(const DecideOptions &base, int64_t chosen, int64_t roomForOthers, std::optional<int64_t> room) {
  const std::vector<int64_t> sizes = solve::divisors(program.batch);
  for (auto [name, function] : {std::pair{"eval", nn::kEvaluationName}, std::pair{"predict", nn::kPredictionName}}) {
    auto func = module->lookupSymbol<func::FuncOp>(function);
    if (!func)
      continue;
    EntryPlan entry{name, function.str(), {}, 0, 0};
    int64_t examples = nn::batchOf(func); // 1: it reads none
    int64_t least = nn::examplesTogether(func);
    for (int64_t size : llvm::reverse(sizes)) {
      if (size > chosen || examples % size != 0 || size % least != 0)
        continue;
      DecideOptions forEntry = base;
      forEntry.search.microbatch = size;
      forEntry.search.strategy.kind = solve::Strategy::None;
      forEntry.reservedBytes = stateBytes - entries.front().outcome.stateOnHost;
      forEntry.callerCounts = true;
      forEntry.search.arenaBudget = roomForOthers;
      entry.outcome = decidePlan(func, forEntry);
      if (!entry.outcome.internal && !entry.outcome.result.error.empty()) { // blocks of more examples than these
        forEntry.rowBlocks = -1;
        entry.outcome = decidePlan(func, forEntry);
      }
      if (!entry.outcome.internal && !entry.outcome.result.feasible && size == least) {
        forEntry.search.arenaBudget = entry.outcome.result.smallestArena; // then the arena, or the refusal, is its
        entry.outcome = decidePlan(func, forEntry);
      }
      if (entry.outcome.internal)
        return false;
      entry.arenaBytes = entry.outcome.result.plan.decision.arenaBytes;
      if (entry.arenaBytes <= roomForOthers)
        break;
    }
    refused |= room && entry.arenaBytes > *room;
    entries.push_back(std::move(entry));
  }
  return true;
}

int64_t Compilation::arenaBytes() const {
  if (!workers.each.empty())
    return workers.each.back().at + workers.each.back().bytes;
  int64_t bytes = 64;
  for (const EntryPlan &entry : entries)
    bytes = std::max(bytes, entry.arenaBytes);
  return bytes;
}

int64_t Compilation::smallestBudget() const {
  if (workers.count > 1) // a worker's
    return workers.smallest + allowance();
  int64_t arena = entries.front().outcome.result.smallestArena;
  for (size_t i = 1; i < entries.size(); ++i)
    arena = std::max(arena, entries[i].arenaBytes);
  return arena + allowance();
}

int64_t Compilation::budgetBound() const {
  if (workers.count > 1)
    return workers.bound + allowance();
  return entries.front().outcome.result.bound + allowance();
}

bool Compilation::runPasses(llvm::function_ref<void(OpPassManager &)> onFunctions) {
  PassManager manager(&context);
  manager.enableVerifier(false);
  onFunctions(manager.nest<func::FuncOp>());
  return succeeded(manager.run(*module));
}

bool Compilation::applyPlan(Phase upTo) {
  // The decisions are written on the functions: the graphs in which they were found serve nobody any longer.
  for (EntryPlan &entry : entries) {
    entry.outcome.rows = {};
    solve::Decision &decision = entry.outcome.result.plan.decision;
    std::vector<solve::Run>().swap(decision.runs);
    std::vector<solve::Instance>().swap(decision.instances);
  }
  if (!runPasses([](OpPassManager &functions) {
        functions.addPass(createFormMicrobatches());
        functions.addPass(createRematerialize());
        functions.addPass(createFormRowBlocks());
      }) ||
      !verify(Phase::Planned))
    return false;
  if (upTo == Phase::Planned)
    return true;
  return runPasses([](OpPassManager &functions) {
           functions.addPass(createAssignMemory());
         }) &&
         verify(Phase::Scheduled) && verifyMessages();
}

bool Compilation::lower() {
  kernels = ModuleOp::create(UnknownLoc::get(&context));
  host = std::make_unique<HostCode>(*kernels, options.target);
  for (EntryPlan &entry : entries)
    if (failed(host->addKernels(functionOf(entry))))
      return false;
  return succeeded(target::verifyKernelNumbers(*kernels));
}

bool Compilation::generateDeviceCode() {
  deviceCode = target::compileForDevice(*kernels, host->deviceKernels, options.target.arch);
  if (deviceCode.error.empty()) {
    std::string names;
    for (const target::DeviceKernel &kernel : host->deviceKernels)
      names += kernel.name + " " + std::to_string(kernel.shared) + "\n";
    addText(*kernels, "cinch_device_code", deviceCode.ptx);
    addText(*kernels, "cinch_device_kernels", names);
    requireSymbol(*kernels, "cinch_open_device"); // the runtime's part for GPUs is linked where somebody asks for it
    if (!options.assembler.empty()) {
      target::Assembled made = target::assemble(options.assembler, deviceCode.ptx, options.target.arch);
      assembled = made.error.empty() ? "code         PTX, and machine code for " + options.target.arch + " by " + options.assembler
                                     : "code         PTX alone: " + options.assembler + ": " + made.error;
      if (made.error.empty())
        addText(*kernels, "cinch_device_cubin", made.cubin);
    }
    return true;
  }
  emitError(UnknownLoc::get(&context)) << "internal error: phase 'llvm': " << deviceCode.error;
  return false;
}

bool Compilation::compileKernels(int threads) {
  if (options.target.isDevice()) // one text, in the program's object
    return true;
  kernelObjects = target::compileKernels(*kernels, options.target.cpu.name, target::KernelCache(options.kernelCache), threads);
  if (kernelObjects.error.empty())
    return true;
  emitError(UnknownLoc::get(&context)) << "internal error: phase 'llvm': " << kernelObjects.error;
  return false;
}

// Kernels that have objects of their own are declared, under the names that they have there.
static void declareKernels(ModuleOp module, const target::KernelObjects &objects) {
  if (objects.symbolOf.empty())
    return;
  MLIRContext *context = module.getContext();
  OpBuilder builder(context);
  auto pointer = LLVM::LLVMPointerType::get(context);
  Type i64 = builder.getI64Type();
  auto type = LLVM::LLVMFunctionType::get(LLVM::LLVMVoidType::get(context), {pointer, pointer, pointer, i64, i64});
  builder.setInsertionPointToStart(module.getBody());
  llvm::StringSet<> declared;
  for (const target::KernelObjects::Object &object : objects.objects)
    if (declared.insert(object.symbol).second)
      LLVM::LLVMFuncOp::create(builder, module.getLoc(), object.symbol, type);
  AttrTypeReplacer replacer;
  replacer.addReplacement([&](FlatSymbolRefAttr reference) -> std::optional<Attribute> {
    auto found = objects.symbolOf.find(reference.getValue());
    if (found == objects.symbolOf.end())
      return std::nullopt;
    return FlatSymbolRefAttr::get(context, found->second);
  });
  replacer.recursivelyReplaceElementsIn(module);
}

bool Compilation::lowerToLLVM() {
  if (options.target.isDevice() ? !generateDeviceCode() : failed(target::lowerKernels(*kernels)))
    return false;
  host->addTables();
  for (size_t i = 0, entry = 0; i < entries.size(); ++entry) {
    std::string name = entries[i].name;
    SmallVector<func::FuncOp> functions(size_t(workers.count)); // null: a worker has nothing to do
    for (; i < entries.size() && entries[i].name == name; ++i)
      functions[size_t(entries[i].worker)] = functionOf(entries[i]);
    host->addEntry(functions, name == "train" ? "cinch_train_step" : "cinch_" + name, int(entry), name != "train");
  }
  const std::string text = metadata();
  metadataBytes = int64_t(text.size());
  said = summary();
  // All that the object needs is in `kernels` and this text now: LLVM takes the memory of the rest.
  host.reset();
  module = nullptr;
  for (EntryPlan &entry : entries)
    entry.outcome = {};
  addText(*kernels, "cinch_meta", text);
  declareKernels(*kernels, kernelObjects);
  llvm::StringSet<> apart;
  for (const target::KernelObjects::Object &object : kernelObjects.objects)
    apart.insert(object.symbol);
  // The only outside calls are those of runtime.h.
  static const char *known[] = {"cinch_launch", "cinch_zero", "cinch_copy", "cinch_set", "cinch_fill", "cinch_emit", "cinch_gate", "cinch_send", "cinch_receive", "cinch_receive_sum",
                                "cinch_await_sums", "cinch_fetch", "cinch_store", "cinch_await"};
  for (auto function : kernels->getOps<LLVM::LLVMFuncOp>())
    if (function.isExternal() && !llvm::is_contained(known, function.getName()) && !apart.contains(function.getName())) {
      emitError(function.getLoc()) << "internal error: phase 'llvm': a call of '" << function.getName()
                                   << "', which is not in runtime.h";
      return false;
    }
  return true;
}

LogicalResult Compilation::emitObject(llvm::SmallVectorImpl<char> &object, bool assembly) {
  std::string error;
  auto machine = target::createMachine(options.target.cpu.name, &error);
  if (!machine)
    return emitError(UnknownLoc::get(&context)) << error;
  llvm::LLVMContext llvmContext;
  auto llvmModule = target::optimizeForMachine(*kernels, llvmContext, *machine);
  if (!llvmModule)
    return failure();
  return target::emitCode(*llvmModule, *machine, assembly ? target::CodeFile::Assembly : target::CodeFile::Object,
                          object);
}

int64_t Compilation::outgrownBy(int64_t fileBytes) {
  if (options.target.isDevice())
    return 0;
  int64_t missing = options.target.allowance(fileBytes + metadataBytes) + options.transportReserve - allowance();
  return missing > 0 ? missing + analysis::Cpu::kAllowanceStep : missing; // the binary of another plan may be a little larger
}

std::string Compilation::metadata() {
  return metadataText({program, sources, *module, entries, *host, workers,
                       workers.count > 1 ? workers.seconds : entries.front().outcome.result.plan.seconds, options.target.sourceOfRates(),
                       options.target.isDevice() ? "" : options.target.cpu.name.empty() ? "native" : options.target.cpu.name, arenaBytes(), hostBytes(), options.budget.value_or(0), allowance(),
                       persistentBytes(), options.target.cpu.threads, programHash, summary()});
}

} // namespace cinch
