// Compile.h: a checked program through the phases, up to an executable.
#ifndef CINCH_COMPILER_PHASES_COMPILE_H
#define CINCH_COMPILER_PHASES_COMPILE_H

#include "compiler/analysis/Target.h"
#include "compiler/frontend/Program.h"
#include "compiler/frontend/Source.h"
#include "compiler/phases/Allowance.h"
#include "compiler/phases/HostCode.h"
#include "compiler/transforms/Phase.h"
#include "compiler/target/KernelObjects.h"
#include "compiler/solve/stages/Schedule.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/PartitionStages.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/OwningOpRef.h"
#include "mlir/Pass/PassManager.h"

#include <optional>

namespace cinch {

struct CompileOptions {
  std::optional<int64_t> budget; // bytes of the whole process; none: no limit
  std::optional<int64_t> hostBudget; // of a GPU: bytes of pinned memory for state; none: nothing lies there
  int64_t microbatch = 0;   // 0: the search chooses
  std::string remat = "auto";
  uint64_t orderSeed = 0;   // > 0: a random order of the kernels to start from
  int64_t rowBlocks = 0;    // rows of a block; 0: the search chooses, < 0: no row blocks
  analysis::Target target;  // the machine
  int stages = 1;           // workers of a replica; each has a stage of the model, or several (schedules with chunks)
  int replicas = 1;         // each has its part of the batch
  int shards = 1;           // workers that share every layer of a stage
  int workers() const { return stages * replicas * shards; }
  solve::Schedule schedule = solve::Schedule::OneFOneB;
  int chunks = 1;           // stages a worker
  int64_t transportReserve = 0; // of several workers: bytes of the budget that are an MPI library's
  bool onlyFits = false;    // of several workers: only whether they fit the budget is asked
  bool tradeOff = false;    // the curve of budget against time is wanted
  bool bound = false;       // the bound on the time of the step's plan is wanted
  std::optional<int64_t> leanestIn; // of one worker: the smallest plan of all, as the search in an arena of so many bytes, where nothing fits, finds it
  int64_t granted = 0;      // bytes beside the arena beyond what is guessed; negative: fewer
  std::string planCache;    // folder of found plans; "": none
  std::string kernelCache;  // folder of objects; "": none
  bool deviceIr = false;    // of a GPU: the code behind the PTX is asked for, too
  std::string assembler;    // of a GPU's code (target/Assemble.h); "": none
};

// One of the functions of a program, and its place in the runtime's list. With several workers an entry is a function each, one behind
// the other.
struct EntryPlan {
  std::string name;     // "train", "eval", "predict"
  std::string function; // @train, @evaluation, @prediction; @train_0 ..
  DecideOutcome outcome;
  int64_t arenaBytes = 0;
  int worker = 0;
  int64_t persistentBytes = 0; // parameters and state; from `decide` on
};

// How several workers share a step. The whole arena holds theirs one behind the other; behind what its plans need, a worker has the
// boxes of the channels that it reads, and room for one message of each channel that it writes. The entries take turns there.
struct WorkersPlan {
  int count = 1, replicas = 1, shards = 1; // worker (d * stages + s) * shards + t has shard t of stage s of replica d
  std::vector<std::string> shardNotes;
  int allReduces[2] = {};        // of a micro-batch, forward and backward
  bool addsSums = false;         // each replica sums its own examples from zero
  bool handsOut = false;         // each replica has the state of some parameters, and updates these
  OwnSteps ownSteps = OwnSteps::None;
  int late = 0;                  // micro-batches that gradients of parameters wait for, on all replicas but the first
  solve::ScheduleRequest request; // of the step's table
  std::vector<Channel> channels; // of all entries, as the code numbers them
  struct Place {
    int64_t boxes = 0, staging = 0; // offsets in the whole arena
  };
  std::vector<Place> places; // of the channels
  struct Worker {
    int64_t at = 0, bytes = 0;                  // its part of the whole arena
    int64_t planned = 0, messages = 0;          // of them for plans; for channels
    int64_t once = 0;                           // of them for state that other replicas do not have
    int64_t hostAt = 0, hostBytes = 0;          // pinned memory beside its device; offsets go on behind the whole arena
    int64_t shared = 0;                         // the first of them, in whole pages, which are those of the same worker of the first replica
    double busy = 0;                            // seconds of a step
    double before = 0, behind = 0;              // of them before and behind the loop
    struct Done {
      solve::Action action;
      double begin = 0, end = 0;                // seconds from the begin of the step
    };
    std::vector<Done> actions;                  // of the table, in order
    double forward = 0, backward = 0;           // of a micro-batch
    std::string begins, ends;                   // the work of its stages, for people
  };
  std::vector<Worker> each;
  double seconds = 0;        // of a step, by running the tables with the plans' seconds
  std::vector<double> bounds; // if asked for, of each worker: seconds of a micro-batch that no plan of its stages goes below
  int64_t transportReserve = 0; // bytes of each worker's allowance for an MPI library
  int64_t mostOnce(bool handedOut) const; // state that one replica has: of the worker that has most; if the last replica had all of it
  int64_t bytesToShards() const; // that a worker sends at most to the other shards of its stage, a micro-batch of training
  int64_t bound = 0;         // proven: some worker's arena has so many bytes, wherever the model is cut
  int64_t smallest = 0;      // if the budget is refused: bytes of the arena of the neediest worker in the smallest plan found
};

// What compilation knows of a program, phase by phase.
class Compilation {
public:
  Compilation(mlir::MLIRContext &context, const Program &program, const SourceList &sources, CompileOptions options)
      : context(context), program(program), sources(sources), options(options) {}

  // Each returns false after it reported an internal error. They run in this order.
  bool parse();         // -> parsed
  bool differentiate(); // -> differentiated
  // Decides the plans of all entries. Afterwards `refused` says whether the budget can be met; false is an internal error.
  bool decide();
  bool applyPlan(Phase upTo); // -> planned, scheduled
  bool lower();         // -> lowered: kernels and host code
  // Kernels become objects, on so many threads; without this they stay in the module of `lowerToLLVM`. Those of a GPU become PTX there, on as many.
  bool compileKernels(int threads);
  bool lowerToLLVM();   // -> llvm dialect; plans and functions are gone then
  mlir::LogicalResult emitObject(llvm::SmallVectorImpl<char> &object, bool assembly);

  // Bytes that the budget grants to code, stacks and the runtime beside the arena.
  int64_t columnBytes() const;
  int64_t allowance() const;
  int64_t allowanceOfSeveral() const; // at least, of a program of one worker, if it were divided among several
  // Bytes of the allowance that an executable of so many bytes leaves over; < 0: so many are missing.
  int64_t leftOverBy(int64_t fileBytes) const;
  // Of those that are left over, how many the plan may have, if they are worth planning anew: of one worker's program.
  int64_t spareOf(int64_t leftOver) const;
  // The allowance is what the executable of the smallest plan needs: from here on the smallest budget is one that has been measured.
  void giveBack(int64_t leftOver) { options.granted -= leftOver; }
  // Until the plan is applied: without the budget the step may be faster.
  bool isLimited() const;
  int64_t arenaBytes() const;
  // Pinned memory, where the plan has state and values of the loop: bytes, and the offset at which it begins, behind the arena, on a whole page.
  int64_t hostBytes() const;
  int64_t hostAt() const;
  // The smallest --memory-budget under these options, and a proven lower bound.
  int64_t smallestBudget() const;
  int64_t budgetBound() const;
  std::vector<std::string> summary() const; // the plan in a few lines
  int64_t persistentBytes() const;
  static int64_t persistentBytes(mlir::func::FuncOp);
  const analysis::Target &machine() const { return options.target; }

  mlir::OwningOpRef<mlir::ModuleOp> module;  // nn, then plan
  mlir::OwningOpRef<mlir::ModuleOp> kernels; // from `lower` on
  std::vector<EntryPlan> entries;
  WorkersPlan workers;
  bool refused = false;
  std::string refusal;      // why, if it is not the budget
  std::optional<double> fixedBound; // if asked for: seconds that no plan with this micro-batch and these blocks of rows (of several workers:
                                    // with their cut, table and mailboxes) goes below
  std::unique_ptr<HostCode> host;
  target::KernelObjects kernelObjects; // of compileKernels
  std::string programHash;
  target::DeviceCode deviceCode; // of a GPU: from lowerToLLVM on
  std::string assembled;         // likewise: whether there is machine code, too, in a line; "": nothing was tried

private:
  bool decideEntries();
  bool runPasses(llvm::function_ref<void(mlir::OpPassManager &)> onFunctions);
  bool generateDeviceCode();
  bool verify(Phase phase);
  bool verifyMessages(); // between workers; phase scheduled
  std::vector<mlir::func::FuncOp> waysToTrain(const solve::Strategy &);
  static bool lacksCopies(mlir::func::FuncOp way); // of weights, which others have
  static void makeDearerWithoutCopies(llvm::ArrayRef<mlir::func::FuncOp> ways, size_t way, const DecideOptions &wanted);
  static int levelsOf(llvm::ArrayRef<mlir::func::FuncOp> ways, size_t way); // of runs, as loopLevels
  bool moveAllState(const DecideOptions &base, DecideOptions forTrain);
  // The best of the ways; the others are erased.
  DecideOutcome decideTraining(std::vector<mlir::func::FuncOp> ways, const DecideOptions &);
  friend class StagePlanner;
  bool decideOthers(const DecideOptions &base, int64_t chosen, int64_t roomForOthers, std::optional<int64_t> room);
  bool findBound(const DecideOutcome &, std::optional<int64_t> room);
  bool decideStages(const DecideOptions &base, const solve::Strategy &, std::vector<mlir::func::FuncOp> ways);
  bool share();
  int64_t bytesOfState(llvm::StringRef function) const; // optimizer state among its arguments
  mlir::func::FuncOp functionOf(const EntryPlan &entry) { return module->lookupSymbol<mlir::func::FuncOp>(entry.function); }
  std::string metadata();
  std::vector<std::string> summaryOfWorkers() const;
  void addHostLineOfWorkers(std::vector<std::string> &) const;
  void countOperations(llvm::StringRef step);
  void countAllReduces();

  mlir::MLIRContext &context;
  const Program &program;
  const SourceList &sources;
  CompileOptions options;
  int64_t stateBytes = 0;   // optimizer state, behind the parameters
  int deviceThreads = 1;    // that generate PTX
  int loopLevels = 0;       // of runs in which loops along an axis compute trips again
  int64_t metadataBytes = 0; // from lowerToLLVM on
  std::vector<std::string> said; // the summary, likewise
  OperationCounts operations; // how large the executable will be is guessed from these
};

// The JSON text of METADATA.md.
struct MetadataInput {
  const Program &program;
  const SourceList &sources;
  mlir::ModuleOp module; // scheduled
  const std::vector<EntryPlan> &entries;
  const HostCode &host;
  const WorkersPlan &workers;
  double seconds;    // of a training step, predicted
  std::string costs; // with whose costs
  std::string cpu;   // whose instructions kernels have; empty: they are a GPU's
  int64_t arenaBytes, hostAt, hostBytes, budget, allowance, persistentBytes;
  int maxThreads;
  std::string hash;
  std::vector<std::string> planLines;
};
std::string metadataText(const MetadataInput &);

} // namespace cinch
#endif
