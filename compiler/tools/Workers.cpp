// Workers.cpp: numbers of workers are tried in turn; those for which the proven bound is above the budget are not planned.
#include "compiler/tools/Workers.h"

#include "compiler/tools/Complain.h"

#include "llvm/Support/MathExtras.h"

#include <algorithm>
#include <thread>
#include <vector>

namespace cinch {

static int usage(const std::string &text) {
  complain("cinch: " + text + "\n", "usage");
  return 2;
}

static int threadsOf(const CommandLine &line, int workers) {
  int processors = int(std::thread::hardware_concurrency());
  return line.maxThreads > 0 ? line.maxThreads : workers > 1 ? std::max(2, processors / workers) : std::max(4, processors);
}

// A schedule says in which order stages take the micro-batches: of one stage alone it says nothing, whatever other workers there are.
void setStages(const CommandLine &line, const Program &program, int stages, CompileOptions &options) {
  options.stages = stages, options.target.cpu.threads = threadsOf(line, options.workers());
  std::string schedule = !line.schedule.empty() ? line.schedule : program.plan.schedule;
  if (stages == 1 || schedule == "auto")
    schedule = "1f1b";
  solve::parseSchedule(schedule, options.schedule);
  options.chunks = stages == 1 ? 1 : line.chunks > 0 ? line.chunks : schedule == "interleaved" || schedule == "zbv" ? 2 : 1;
  options.transportReserve = options.workers() > 1 ? line.transportReserve : 0;
}

int readWorkers(const CommandLine &line, const Program &program, CompileOptions &options) {
  options.stages = line.stages ? *line.stages : int(std::min<int64_t>(kMostWorkers, program.plan.stages));
  if (options.stages == 0 && !options.budget) {
    if (line.stages)
      return usage("--stages auto takes as few workers as fit the budget, and there is none: --memory-budget says it");
    options.stages = 1;
  }
  options.replicas = line.replicas ? *line.replicas : int(std::min<int64_t>(kMostWorkers, program.train.combined));
  options.shards = line.shards ? *line.shards : int(program.train.shards);
  if (line.shards && program.train.shards == 1)
    return usage("--shards is for programs that ask for shards, because their number changes last digits; write `shards " + std::to_string(*line.shards) +
                 "` into `train`");
  if (int64_t workers = int64_t(std::max(1, options.stages)) * options.replicas; workers > kMostWorkers || workers * options.shards > kMostWorkers)
    return usage("stages times replicas times shards are " + std::to_string(workers * options.shards) + " workers; at most " + std::to_string(kMostWorkers) + " share a step");
  setStages(line, program, options.stages, options);
  if (options.stages == 1 && (!line.schedule.empty() || line.chunks > 0))
    return usage("--schedule and --chunks are for several stages, and there is one; --stages P says how many there are");
  if (options.workers() == 1) {
    if (line.transportReserve > 0)
      return usage("--transport-reserve is for an MPI library, which a program of one worker does not use; --stages P says how many there are");
    return 0;
  }
  if (line.emit == "lib")
    return usage("--emit lib makes a library of one worker; --stages, --replicas and shards need an executable");
  return 0;
}

namespace {
enum class Trial { Fits, Refused, Impossible }; // impossible: so many stages cannot be made of the model
} // namespace

// A refused number of workers, with what it says of a worker's budget.
struct Need {
  int workers = 0;
  int64_t bound = 0, smallest = 0; // smallest: only without onlyFits
};

static Trial tryWorkers(mlir::MLIRContext &context, const Program &program, const SourceList &sources, const CompileOptions &options, Need &need) {
  Compilation compilation(context, program, sources, options);
  if (!compilation.parse() || !compilation.differentiate() || !compilation.decide() || !compilation.refusal.empty())
    return Trial::Impossible;
  if (!compilation.refused)
    return Trial::Fits;
  need = {options.stages, compilation.budgetBound(), options.onlyFits ? 0 : compilation.smallestBudget()};
  return Trial::Refused;
}

// The first number that fits, or 0; `refused`: those that do not.
static int firstThatFits(const CommandLine &line, mlir::MLIRContext &context, const Program &program, const SourceList &sources,
                         CompileOptions options, int from, std::vector<Need> &refused) {
  options.onlyFits = true, options.tradeOff = false, options.bound = false;
  for (int workers = from; workers <= kMostTried; ++workers) {
    setStages(line, program, workers, options);
    Need need;
    Trial trial = tryWorkers(context, program, sources, options, need);
    if (trial == Trial::Fits)
      return workers;
    if (trial == Trial::Refused)
      refused.push_back(need);
  }
  return 0;
}

bool areChosen(const CommandLine &line, const Program &program) { return (line.stages ? *line.stages : program.plan.stages) == 0; }

// The number whose smallest budget is the least: in the order of their bounds, until no bound is below what was found.
static int leastNeed(const CommandLine &line, mlir::MLIRContext &context, const Program &program, const SourceList &sources, CompileOptions options,
                     std::vector<Need> refused) {
  options.tradeOff = false, options.bound = false;
  std::stable_sort(refused.begin(), refused.end(), [](const Need &a, const Need &b) { return a.bound < b.bound; });
  Need least{1, 0, INT64_MAX};
  for (const Need &next : refused) {
    if (next.bound >= least.smallest)
      break;
    setStages(line, program, next.workers, options);
    Need need;
    if (tryWorkers(context, program, sources, options, need) == Trial::Refused && need.smallest < least.smallest)
      least = need;
  }
  return least.workers;
}

int fewestWorkers(const CommandLine &line, mlir::MLIRContext &context, const Program &program, const SourceList &sources,
                  const CompileOptions &options) {
  std::vector<Need> refused;
  int found = firstThatFits(line, context, program, sources, options, 1, refused);
  return found ? found : leastNeed(line, context, program, sources, options, std::move(refused));
}

int moreWorkers(const CommandLine &line, mlir::MLIRContext &context, const Program &program, const SourceList &sources,
                const CompileOptions &options, int64_t bound) {
  // As many stages share what these share. No fewer are tried than that leaves.
  int64_t budget = std::max<int64_t>(1, options.budget.value_or(INT64_MAX)), fewest = (bound * options.stages + budget - 1) / budget;
  std::vector<Need> refused;
  return firstThatFits(line, context, program, sources, options, int(std::clamp<int64_t>(fewest, options.stages + 1, kMostTried + 1)), refused);
}

int64_t hostMemoryThatFits(mlir::MLIRContext &context, const Program &program, const SourceList &sources, CompileOptions options) {
  options.onlyFits = true, options.tradeOff = false, options.bound = false;
  auto most = [&](int64_t hostBudget) -> int64_t { // of a worker; -1: it does not fit
    options.hostBudget = hostBudget;
    Compilation compilation(context, program, sources, options);
    if (!compilation.parse() || !compilation.differentiate() || !compilation.decide() || compilation.refused)
      return -1;
    int64_t bytes = 0;
    for (const WorkersPlan::Worker &worker : compilation.workers.each)
      bytes = std::max(bytes, worker.hostBytes);
    return bytes;
  };
  constexpr int64_t kUnit = 1 << 20;
  int64_t bytes = llvm::alignTo(uint64_t(std::max<int64_t>(0, most(INT64_MAX))), kUnit);
  return bytes > 0 && most(bytes) >= 0 ? bytes : 0; // with less room other state may be chosen
}

} // namespace cinch
