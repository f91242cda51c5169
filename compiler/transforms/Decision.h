// Decision.h: the planner's decision as it is written on a function, for the passes that apply it.
#ifndef CINCH_COMPILER_TRANSFORMS_DECISION_H
#define CINCH_COMPILER_TRANSFORMS_DECISION_H

#include "compiler/analysis/StepProblem.h"
#include "compiler/analysis/Target.h"
#include "compiler/solve/Engines.h"
#include "compiler/solve/Variants.h"

namespace cinch {

inline constexpr llvm::StringLiteral kDecisionAttr = "plan.decision", kRunAttr = "plan.run", kArenaAttr = "plan.arena",
                                     kScratchBytesAttr = "plan.scratch_bytes", kZeroedAttr = "plan.zeroed", // (offset, bytes) pairs of sums that are cleared before the op
                                     // Of a kernel in a loop over blocks of rows: the first row that it makes, rows a trip, and rows of the
                                     // image, beyond which its results are cleared.
    kOutsideAttr = "plan.outside",
                                     kCopiesAttr = "plan.copies", // of what an op writes, if there are several
    kSlotsAttr = "plan.slots",                                    // of a loop along an axis, as plan.run has them
    kSpaceAttr = "plan.space",                                    // of an argument: "host": its offset counts in pinned memory
    kHostBytesAttr = "plan.host";                                 // of a function: bytes of pinned memory

// Tensors of examples hold so many of them from now on.
void setExamples(mlir::func::FuncOp, int64_t examples);

// The decision as plan.decision holds it (PlanOps.td). Kernels are numbered as analysis::Step numbers them.
struct DecidedRun {
  int64_t kernel = 0;
  bool recompute = false;
  llvm::SmallVector<int64_t> reads, writes; // byte offsets
  llvm::SmallVector<int64_t> copies;        // of each write; empty: one each
  int64_t scratch = -1, scratchBytes = 0;   // of all threads together
  solve::TripRows rows;                     // of images that it makes in a trip over blocks of rows; count 0: those of the block
  int64_t band = -1;                        // it copies a band for the run behind it, of that kernel's read of this number
  llvm::SmallVector<int64_t> slots;         // of a loop along an axis: two offsets for each carried value that is not stacked
  std::vector<DecidedRun> inside;           // its trip; an offset of -1: not in its scratch
  llvm::SmallVector<int64_t> zeroed;        // (offset, bytes) pairs of sums that begin with it
};
// Runs [first, last) work block by block on rows: `positions` of each of `examples` examples.
struct DecidedRows {
  int64_t first = 0, last = 0, examples = 1, positions = 1;
  llvm::SmallVector<int64_t> zeroed; // before the first block
};
// Runs [first, last) are the body of a loop over the micro-batches; what it sums up is cleared before it, or before the run it begins with.
struct DecidedLoop {
  int64_t first = 0, last = 0;
  llvm::SmallVector<int64_t> zeroed; // (offset, bytes) pairs
};
// Right before run `before`: a copy of an argument that lies on the host, or of a kernel's result that waits there.
struct DecidedMove {
  int64_t before = 0;
  solve::Kernel::Copy what = solve::Kernel::NoCopy;
  int64_t argument = -1, offset = 0;          // the argument's number, or -1; the place in the arena
  int64_t kernel = -1, result = -1, host = 0; // of a result: whose, which, and its place on the host
};
struct Decided {
  int64_t microbatch = 1, count = 1, batch = 1, arenaBytes = 0;
  llvm::SmallVector<DecidedLoop> loops;
  std::vector<DecidedRun> runs;
  llvm::SmallVector<DecidedRows> rows;
  int64_t rowPositions = 1; // of an example
  std::map<int64_t, int64_t> heights; // of images with several rows a position (RowWise.h)
  llvm::SmallVector<int64_t> arguments; // byte offset of each argument
  int64_t hostBytes = 0;                // of pinned memory
  std::vector<DecidedMove> moves;
};

void writeDecision(mlir::func::FuncOp, const Decided &);
// Fails with an error if the function carries no decision.
mlir::FailureOr<Decided> readDecision(mlir::func::FuncOp);

struct DecideOptions {
  solve::SearchOptions search;
  int64_t reservedBytes = 0;
  uint64_t orderSeed = 0; // Search.h
  analysis::Target target;
  int64_t rowBlocks = 0; // rows of a block; 0: the search chooses, < 0: no row blocks
  // > 0: rows of an example where `rowBlocks` was asked for. A worker whose part has no work on such rows has a plan as it is.
  int64_t rowsAsked = 0;
  bool callerCounts = false, tradeOff = false;
  // Bytes of pinned memory that state and values of the loop may take, where the machine's costs have a way there; none: nothing is moved.
  std::optional<int64_t> hostBudget;
  bool allStateOnHost = false; // of what may lie there
  bool hostAdvice = false; // what is refused says whether something on the host would help
  std::string planCache; // folder; empty: none
};
// What copies from and to the host take in a step, by simulation.
struct CopyTimes {
  double in = 0, out = 0, waited = 0; // seconds: of each direction, and those that no work hides
  int64_t bytes = 0;                  // copied in one direction
};
struct DecideOutcome {
  bool internal = false; // an internal error was reported
  solve::SearchResult result;
  solve::RowBlocked rows;  // the graph of the chosen variant, where a range in row blocks is one kernel, and how it came about
  CopyTimes copies;          // if anything lies on the host
  int64_t stateOnHost = 0;   // bytes of optimizer state there; the rest are values of the loop
  int valuesOnHost = 0;      // how many of these
  int copyRuns = 0;          // runs of the loop that are no work: their copies, and the waits for them
  int64_t hostWouldDo = 0; // refused, but so many bytes of pinned memory would be enough
  // If asked for: the curve of memory against time, and the strategies that have names.
  std::vector<solve::LadderPoint> tradeOff, named;
};
// The step as it is, with ranges in row blocks, and with work on parameters in the main loop.
std::vector<solve::Variant> planVariants(const analysis::Step &, const analysis::StepProblem &, const DecideOptions &, std::string &error);
// Bytes of the arena that no plan can do without in blocks of any size that somebody may ask for; INT64_MAX if there are none, or if a size was
// asked for: then the variants are all there is.
int64_t boundOfRowBlocks(const analysis::Step &, const analysis::StepProblem &, const DecideOptions &);
// For a function of kernels: searches a plan, has it checked, and writes it on the function if it is feasible.
DecideOutcome decidePlan(mlir::func::FuncOp function, const DecideOptions &);

} // namespace cinch
#endif
