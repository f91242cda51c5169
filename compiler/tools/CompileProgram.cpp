// CompileProgram.cpp: runs the phases, measures the code that comes out, and plans anew where that changes the budget's parts.
#include "compiler/tools/CompileProgram.h"

#include "compiler/analysis/Profile.h"
#include "compiler/calibrate/Calibrate.h"
#include "compiler/phases/Compile.h"
#include "compiler/phases/InternalError.h"
#include "compiler/report/Page.h"
#include "compiler/report/PlanJson.h"
#include "compiler/report/PlanTable.h"
#include "compiler/solve/Evaluate.h"
#include "compiler/solve/PlanCache.h"
#include "compiler/target/Assemble.h"
#include "compiler/target/LowerKernels.h"
#include "compiler/target/Object.h"
#include "compiler/tools/CodeRoom.h"
#include "compiler/tools/Complain.h"
#include "compiler/tools/Product.h"
#include "compiler/tools/Refusal.h"
#include "compiler/tools/Waiting.h"
#include "compiler/tools/Workers.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <malloc.h>
#include <sched.h>

namespace cinch {

// Prints to -o FILE, or to standard output.
static int printText(const CommandLine &line, const std::string &text) {
  if (line.hasOutput)
    return writeOutput(line.output, text);
  llvm::outs() << text;
  return 0;
}

static int printModule(const CommandLine &line, mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  mlir::OpPrintingFlags flags;
  module->print(out, flags);
  return printText(line, text);
}

// Threads that can run at once.
int processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

// The costs to plan with, and measured tilings of products: of the profile that was named, of the stored one if it was measured on the CPU that is compiled
// for, or the built-in ones. False after a message.
static bool chooseCosts(const CommandLine &line, CompileOptions &options) {
  if (line.profile == "none")
    return true;
  std::string path = line.profile.empty() ? analysis::defaultProfilePath() : line.profile;
  if (path.empty() || (line.profile.empty() && !llvm::sys::fs::exists(path)))
    return true;
  std::string text, problem;
  if (!readFile(path, text, problem)) {
    complain("cinch: cannot read the profile '" + path + "': " + problem + "\n", "input");
    return false;
  }
  analysis::Profile profile;
  if (!analysis::parseProfile(text, profile, problem)) {
    complain("cinch: the profile '" + path + "' cannot be used: " + problem +
                 "\n  help: cinch calibrate writes it anew; --profile none plans with built-in costs\n",
             "input");
    return false;
  }
  std::string cpu = line.cpu.empty() || line.cpu == "native" ? llvm::sys::getHostCPUName().str() : line.cpu;
  if (line.profile.empty() && profile.cpu != cpu)
    return true;
  options.target.cpu.costs.source = "costs measured on " + profile.cpu;
  options.target.cpu.costs.measured = std::move(profile.measured);
  if (!profile.tiles.tilings.empty())
    options.target.cpu.kernels.tiles = std::make_shared<kernels::TileTable>(std::move(profile.tiles));
  return true;
}

// The status of a phase that failed: its errors tell why, and the driver says them.
constexpr int kInternal = 70;

// A compilation of one grant to the code: what is asked for, and whether all is planned once more, with another.
struct Attempt {
  const CommandLine &line;
  const Program &program;
  const SourceList &sources;
  const char *self;
  mlir::MLIRContext &context;
  CompileOptions options;
  CodeRoom room;
  bool again = false;
};
static int compileOnce(Attempt &);

int compileProgram(const CommandLine &line, const Program &program, const SourceList &sources, const char *self) {
  mlir::DialectRegistry registry;
  registry.insert<nn::NNDialect, plan::PlanDialect, mlir::func::FuncDialect>();
  target::registerKernelDialects(registry);
  // There are few functions, and kernels are compiled by threads with contexts of their own. Caches of threads would take 12 MB of a deep program.
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  PassErrors errors(context, !line.remarks.empty());

  if (!line.remarks.empty()) {
    mlir::remark::RemarkCategories categories{line.remarks, line.remarks, std::nullopt, std::nullopt, std::nullopt};
    if (failed(mlir::remark::enableOptimizationRemarks(
            context, nullptr, std::make_unique<mlir::remark::RemarkEmittingPolicyAll>(), categories, true)))
      return internalError("remarks cannot be printed");
  }

  CompileOptions options;
  options.budget = line.budget;
  if (!options.budget && program.plan.memory > 0)
    options.budget = program.plan.memory;
  options.hostBudget = line.hostBudget;
  if (options.hostBudget && !line.target.isDevice()) {
    complain("cinch: --host-memory-budget is for a program on a GPU (--target nvidia); what a CPU computes lies in its memory anyway\n", "usage");
    return 2;
  }
  options.microbatch = line.microbatch ? *line.microbatch : program.plan.microbatch;
  options.remat = line.remat.empty() ? program.plan.remat : line.remat;
  options.rowBlocks = line.rowBlocks;
  options.orderSeed = line.orderSeed;
  options.target = line.target;
  options.target.cpu.name = line.cpu;
  options.target.cpu.kernels = target::infoOf(line.cpu);
  options.tradeOff = line.command == Command::Plan || !line.report.empty();
  options.bound = line.bound;
  if (!chooseCosts(line, options))
    return 2;
  if (line.planCache)
    options.planCache = solve::PlanCache::defaultFolder();
  if (std::string folder = solve::PlanCache::defaultFolder(); line.kernelCache && !folder.empty())
    options.kernelCache = folder + "/kernels";
  options.deviceIr = !line.saveNvvm.empty() || line.emit == "nvvm";
  if (line.target.isDevice() && line.command == Command::Compile && !line.stopAfter && (line.emit == "exe" || line.emit == "lib"))
    options.assembler = line.ptxas == "none" ? "" : line.ptxas.empty() ? target::findAssembler() : line.ptxas;
  if (int status = readWorkers(line, program, options))
    return status;
  if (options.target.isDevice() && options.shards > 1) {
    complain("error: shards with a GPU are not there yet\n  help: --shards 1, or --target cpu\n", "refused");
    return 1;
  }
  if (options.stages == 0) {
    Waiting waiting("planning " + line.input);
    setStages(line, program, fewestWorkers(line, context, program, sources, options), options);
  }
  Attempt attempt{line, program, sources, self, context, options, {}};
  int status = 0;
  do {
    attempt.options.granted = attempt.room.granted();
    attempt.options.leanestIn = attempt.room.leanestIn();
    attempt.again = false;
    status = compileOnce(attempt);
  } while (status == 0 && attempt.again);
  if (status == kInternal || !errors.text.empty())
    return internalError(errors.text.empty() ? "a phase failed and does not say why" : errors.text);
  return status;
}

static int writeReport(const Attempt &attempt, const Compilation &compilation) {
  if (attempt.line.report.empty())
    return 0;
  return writeOutput(attempt.line.report, report::page(report::planJson(compilation, attempt.sources, attempt.options.budget.value_or(0))));
}

// The plan that was decided, as far as it is asked for. A status if nothing is left to be done.
static std::optional<int> showPlan(const Attempt &attempt, const Compilation &compilation) {
  const CommandLine &line = attempt.line;
  if (int status = writeReport(attempt, compilation))
    return status;
  if (compilation.workers.ownSteps == OwnSteps::Hogwild)
    complain("warning: combine hogwild: the replicas update the same parameters without locks, so that two runs may differ\n", "hogwild");
  if (line.command != Command::Plan)
    return std::nullopt;
  if (line.json)
    report::printObject(llvm::outs(), report::planJson(compilation, attempt.sources, attempt.options.budget.value_or(0)));
  else
    report::printPlan(llvm::outs(), compilation, attempt.sources);
  if (!line.json && compilation.isLimited() && compilation.spareOf(compilation.allowance() / 8) > 0)
    llvm::outs() << "\nnote: `plan` guesses how long the code is; compiling measures it, and what it needs less goes to the plan\n";
  return 0;
}

// The code of the plan: the kernels, and the object of all else.
static bool generate(const CommandLine &line, Compilation &compilation, llvm::SmallVectorImpl<char> &object) {
  Waiting waiting("generating code for " + line.input);
  malloc_trim(0); // of what the passes held
  if (!compilation.compileKernels(processors()) || !compilation.lowerToLLVM())
    return false;
  malloc_trim(0); // of what the planned program held; LLVM asks for blocks of other sizes
  return succeeded(compilation.emitObject(object, /*assembly=*/false));
}

// The plan is compiled, and nothing is written; kernels that are kept serve whoever compiles it then. What is known of the plan stays.
// `leftOver`: as in linkProduct.
static int measureCode(const Attempt &attempt, Compilation &compilation, int64_t &leftOver) {
  llvm::SmallVector<char> object;
  std::vector<EntryPlan> decided = compilation.entries; // code leaves little of it
  if (!compilation.applyPlan(Phase::Scheduled) || !compilation.lower() || !generate(attempt.line, compilation, object))
    return kInternal;
  compilation.entries = std::move(decided);
  compilation.kernels = nullptr;
  return measureProduct(compilation, {object.data(), object.size()}, attempt.self, attempt.options, leftOver);
}

// Of several workers the smallest plans are made once more, as they are for the budget that is named: a refusal has none of them left. They may take less
// than was named, and with a byte less others may be found. What is named in the end is the smallest budget of these for which all workers had a plan.
static int measureWorkers(const Attempt &attempt, Compilation &refused, int64_t &leftOver) {
  constexpr int kTries = 5;
  CompileOptions options = attempt.options;
  options.tradeOff = false, options.bound = false;
  int64_t asked = refused.smallestBudget();
  for (int tries = 0; tries < kTries; ++tries) {
    options.budget = asked;
    Compilation compilation(attempt.context, attempt.program, attempt.sources, options);
    if (!compilation.parse() || !compilation.differentiate() || !compilation.decide())
      return kInternal;
    if (compilation.refused || !compilation.refusal.empty())
      break;
    int64_t bytes = 0;
    for (const WorkersPlan::Worker &worker : compilation.workers.each)
      bytes = std::max(bytes, worker.bytes);
    if (const int failed = measureCode(attempt, compilation, leftOver))
      return failed;
    refused.workers.smallest = asked - refused.allowance();
    asked = std::min(asked - 1, bytes + refused.allowance());
  }
  return 0;
}

// By how much the allowance of the smallest plan is made smaller (< 0: larger) when its code is known. A little that the guess leaves over stays: with a few
// bytes more of the budget the guess would hold.
static int64_t changeOf(const Attempt &attempt, const Compilation &compilation, int64_t leftOver) {
  if (leftOver < 0)
    return leftOver;
  return std::max(compilation.spareOf(leftOver), std::min(leftOver, attempt.options.granted));
}

// What an executable for so many bytes would take, by the same steps, with nothing written. `found` stays empty where it would be refused.
static int tryBudget(const Attempt &asked, int64_t budget, std::unique_ptr<Compilation> &found) {
  Attempt attempt{asked.line, asked.program, asked.sources, asked.self, asked.context, asked.options, {}};
  attempt.options.budget = budget, attempt.options.tradeOff = false, attempt.options.bound = false;
  for (;;) {
    attempt.options.granted = attempt.room.granted();
    attempt.options.leanestIn = attempt.room.leanestIn();
    auto compilation = std::make_unique<Compilation>(attempt.context, attempt.program, attempt.sources, attempt.options);
    int64_t leftOver = 0;
    if (!compilation->parse() || !compilation->differentiate() || !compilation->decide())
      return kInternal;
    if (!compilation->refusal.empty())
      return 0;
    if (const int failed = measureCode(attempt, *compilation, leftOver))
      return failed;
    const int64_t room = std::max<int64_t>(0, budget - compilation->allowance());
    const int64_t change = compilation->refused ? changeOf(attempt, *compilation, leftOver) : leftOver;
    compilation->giveBack(change);
    if (compilation->refused && attempt.room.refused(room, change, budget - compilation->smallestBudget()) == CodeRoom::Next::Done)
      return 0;
    if (!compilation->refused && attempt.room.planned(leftOver, 0) == CodeRoom::Next::Done) {
      found = std::move(compilation);
      return 0;
    }
  }
}

// The code of the smallest plan is `longer` bytes longer than it was guessed. So with less than `named`, what both take, a larger plan with shorter code may
// compile. Brings what takes the fewest bytes of that, if there is any. Where nothing compiles, the room is too small for any plan. What lies between is
// halved, as long as there is a thousandth of the budget to gain; else single bytes less are tried.
static int findShorterCode(const Attempt &attempt, int64_t named, int64_t longer, std::unique_ptr<Compilation> &best) {
  constexpr int64_t kLine = 64, kWorth = 1024; // plans take whole lines of so many bytes; a part of the budget
  constexpr int kTries = 16;
  int64_t refused = named - longer - 1, tried = named - 1;
  for (int tries = 0; tries < kTries; ++tries) {
    std::unique_ptr<Compilation> found;
    if (const int failed = tryBudget(attempt, tried, found))
      return failed;
    if (found) {
      named = found->arenaBytes() + found->allowance();
      best = std::move(found);
    } else {
      refused = tried;
    }
    if (named - refused <= kLine)
      break;
    tried = named - refused > named / kWorth ? refused + (named - refused) / 2 : named - 1;
  }
  std::unique_ptr<Compilation> same;
  if (best && tryBudget(attempt, named, same)) // what is named is a budget that was tried
    return kInternal;
  if (!same)
    best = nullptr;
  return 0;
}

static bool makesExecutable(const CommandLine &line) {
  return line.command == Command::Compile && !line.stopAfter && (line.emit == "exe" || line.emit == "lib");
}

// No plan fits with what was granted to the code. The code of the smallest plan is measured, and the budget that is named is what both take. If that
// is not more than there is, all is planned again, and nothing is said.
static int refuse(Attempt &attempt, Compilation &compilation) {
  const CommandLine &line = attempt.line;
  const CompileOptions &options = attempt.options;
  const int64_t budget = options.budget.value_or(0);
  const bool executable = makesExecutable(line), ofExecutable = executable || (line.command == Command::Plan && line.emit == "exe");
  const bool several = options.workers() > 1;
  int64_t leftOver = 0;
  int failed = 0;
  if (ofExecutable && !options.target.isDevice()) {
    if (!several)
      failed = measureCode(attempt, compilation, leftOver);
    else if (executable)
      failed = measureWorkers(attempt, compilation, leftOver);
  }
  if (failed)
    return failed;
  const int64_t room = std::max<int64_t>(0, budget - compilation.allowance());
  leftOver = changeOf(attempt, compilation, leftOver);
  compilation.giveBack(leftOver);
  attempt.again = attempt.room.refused(room, leftOver, budget - compilation.smallestBudget()) == CodeRoom::Next::Again;
  if (attempt.again)
    return 0;
  std::unique_ptr<Compilation> better;
  if (const int64_t longer = options.granted - leftOver; longer > 0 && !several)
    if (const int status = findShorterCode(attempt, compilation.smallestBudget(), longer, better))
      return status;
  if (better) {
    const int64_t named = better->arenaBytes() + better->allowance();
    if (named < budget) { // a larger one may be planned with longer code, and is then refused
      attempt.options.budget = named;
      attempt.room = CodeRoom();
      attempt.again = true;
      return 0;
    }
    EntryPlan &step = better->entries.front(), &refused = compilation.entries.front();
    solve::SearchResult &result = step.outcome.result;
    result.holders = solve::alive(step.outcome.rows.graph, result.plan, result.plan.peakRun);
    result.advice = refused.outcome.result.advice;
    result.smallestArena = better->arenaBytes();
    step.outcome.hostWouldDo = refused.outcome.hostWouldDo;
    better->refused = true;
  }
  const Compilation &smallest = better ? *better : compilation;

  std::string said;
  llvm::raw_string_ostream refusal(said);
  const bool chosen = areChosen(line, attempt.program); // all numbers were tried
  const int enough = several && !chosen ? moreWorkers(line, attempt.context, attempt.program, attempt.sources, options, compilation.workers.bound) : 0;
  int64_t host = smallest.entries.front().outcome.hostWouldDo;
  if (several && options.target.isDevice() && !options.hostBudget)
    host = hostMemoryThatFits(attempt.context, attempt.program, attempt.sources, options);
  printRefusal(refusal, smallest, attempt.sources, budget, enough, host, chosen);
  refusal << line.withoutUnit;
  if (several && ofExecutable && !executable && !options.target.isDevice()) // compiling the code of many workers takes many times as long as planning them
    refusal << "  note: `plan` guesses how long the code of several workers is; compiling without `plan` measures it\n";
  complain(said, "budget");
  const int status = writeReport(attempt, smallest);
  return status ? status : 1;
}

// `plan` guesses how long the code is. Where little is left above the smallest plan, the code is measured, since the guess may decide whether the budget can
// be met. False: all is planned anew, or something failed.
static bool planHolds(Attempt &attempt, Compilation &compilation, int &status) {
  constexpr int64_t kWrong = 2 * analysis::Cpu::kAllowanceStep; // by so much a guess may be wrong
  const CommandLine &line = attempt.line;
  const CompileOptions &options = attempt.options;
  if (line.command != Command::Plan || line.emit != "exe" || !options.budget || options.target.isDevice() || options.workers() > 1)
    return true;
  int64_t least = INT64_MAX;
  for (const solve::LadderPoint &point : compilation.entries.front().outcome.tradeOff)
    least = std::min(least, point.arenaBytes);
  if (*options.budget - compilation.allowance() >= least + kWrong)
    return true;
  int64_t leftOver = 0;
  if ((status = measureCode(attempt, compilation, leftOver)))
    return false;
  attempt.again = attempt.room.planned(leftOver, 0) == CodeRoom::Next::Again;
  return !attempt.again;
}

static int compileOnce(Attempt &attempt) {
  const CommandLine &line = attempt.line;
  Compilation compilation(attempt.context, attempt.program, attempt.sources, attempt.options);
  auto stops = [&](Phase phase) { return line.stopAfter && *line.stopAfter == phase; };
  const bool executable = makesExecutable(line);
  if (!compilation.parse())
    return kInternal;
  if (stops(Phase::Parsed) || (line.emit == "nn" && !line.stopAfter))
    return printModule(line, *compilation.module);
  if (!compilation.differentiate())
    return kInternal;
  if (!compilation.refusal.empty()) {
    complain("error: " + compilation.refusal + "\n", "refused");
    return 1;
  }
  if (stops(Phase::Differentiated))
    return printModule(line, *compilation.module);
  {
    Waiting waiting("planning " + line.input);
    if (!compilation.decide())
      return kInternal;
  }
  if (!compilation.refusal.empty()) {
    complain("error: " + compilation.refusal + "\n", "refused");
    return 1;
  }
  if (compilation.refused)
    return refuse(attempt, compilation);
  if (int status = 0; !planHolds(attempt, compilation, status))
    return status;
  if (std::optional<int> status = showPlan(attempt, compilation))
    return *status;
  const bool isLimited = compilation.isLimited();
  malloc_trim(0); // of what the search held: the ops of the plan are of other sizes
  if (!compilation.applyPlan(stops(Phase::Planned) ? Phase::Planned : Phase::Scheduled))
    return kInternal;
  if (line.command == Command::Calibrate)
    return calibrate::tune(*compilation.module, line.output, processors(), line.tuneSeconds);
  if (stops(Phase::Planned) || stops(Phase::Scheduled) || (line.emit == "plan" && !line.stopAfter))
    return printModule(line, *compilation.module);
  if (!compilation.lower())
    return kInternal;
  if (stops(Phase::Lowered) || (line.emit == "kernels" && !line.stopAfter))
    return printModule(line, *compilation.kernels);
  llvm::SmallVector<char> object;
  if (executable ? !generate(line, compilation, object) : !compilation.lowerToLLVM())
    return kInternal;
  if (!line.saveNvvm.empty())
    if (int status = writeOutput(line.saveNvvm, compilation.deviceCode.ir))
      return status;
  if (line.emit == "ptx" || line.emit == "nvvm")
    return printText(line, line.emit == "ptx" ? compilation.deviceCode.ptx : compilation.deviceCode.ir);
  if (stops(Phase::LLVM) || line.emit == "llvm")
    return printModule(line, *compilation.kernels);
  if (!executable && failed(compilation.emitObject(object, line.emit == "asm")))
    return kInternal;
  llvm::StringRef text(object.data(), object.size());
  if (line.emit == "asm" || line.emit == "obj")
    return writeOutput(line.output, text);
  compilation.kernels = nullptr;
  malloc_trim(0); // the linker maps what it reads and writes
  int64_t leftOver = 0;
  if (const int status = linkProduct(line, attempt.program, compilation, text, attempt.self, attempt.options, leftOver))
    return status;
  attempt.again = attempt.room.planned(leftOver, isLimited ? compilation.spareOf(leftOver) : 0) == CodeRoom::Next::Again;
  if (!attempt.again && line.emit != "lib") // a library's stands beside its files
    printSummary(compilation);
  return 0;
}

} // namespace cinch
