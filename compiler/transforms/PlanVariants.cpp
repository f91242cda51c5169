// PlanVariants.cpp: the graphs that the planner chooses among: the step as it is, and with its widest work, then also its
// second widest, and so on, in row blocks of several sizes; each of them also with work on parameters in the main loop.
#include "compiler/analysis/RowWise.h"
#include "compiler/solve/MemoryBound.h"
#include "compiler/solve/ParameterWork.h"
#include "compiler/transforms/Decision.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/TensorCores.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/StringExtras.h"
#include <cmath>

namespace cinch {

namespace {
// Blocks that a program allows.
class BlockRules {
public:
  BlockRules(mlir::func::FuncOp function, const solve::StepGraph &graph)
      : positions(graph.positions), whole(nn::grainOf(function) > 0 || graph.grain > 1), together(nn::sumsBlocks(function) ? nn::kRowsOfBlocks : 1) {}
  bool allow(const solve::RowBlock &block) const { return block.positions == positions || (!whole && block.positions % together == 0); }
  std::string expected() const {
    return whole ? "whole examples, since there is a grain or a group_mean" : "whole examples or a multiple of 32 positions, as products of bf16 and tf32 do";
  }

private:
  int64_t positions;
  bool whole; // sums in blocks of examples, or means of groups: no example may be cut, not even where a block is one example
  int64_t together;
};
} // namespace

// The sizes of blocks that the program and the options allow. `error`: the one that was asked for is none of them.
static std::vector<solve::RowBlock> allowedBlocks(const BlockRules &rules, const solve::StepGraph &graph, const DecideOptions &options,
                                                  std::string &error) {
  std::vector<solve::RowBlock> sizes = solve::rowBlockSizes(graph);
  if (options.rowBlocks > 0) {
    sizes.assign(1, {});
    if (!solve::rowBlockOf(graph, options.rowBlocks, sizes.front(), error))
      return {};
    // Blocks of whole examples: what cuts them is told in the words of the two settings. A micro-batch that the batch does not
    // allow is refused by the search.
    int64_t asked = options.search.microbatch, examples = sizes.front().examples;
    bool allowed = asked <= 0 || (graph.batch % asked == 0 && asked % graph.grain == 0);
    if (asked > 0 && allowed && asked % examples != 0)
      error = "a block of " + std::to_string(options.rowBlocks) + " rows holds " + std::to_string(examples) +
              " examples, of which a micro-batch of " + std::to_string(asked) +
              " is no multiple; expected a micro-batch that divides the batch of " + std::to_string(graph.batch) +
              " and is a multiple of " + std::to_string(examples) + ", or blocks of at most " +
              std::to_string(asked * graph.positions) + (asked * graph.positions == 1 ? " row" : " rows");
    if (!allowed || !error.empty())
      return {};
  }
  llvm::erase_if(sizes, [&](const solve::RowBlock &block) { return !rules.allow(block); });
  if (sizes.empty() && options.rowBlocks > 0)
    error = "expected blocks of rows that hold " + rules.expected() + "; got " + std::to_string(options.rowBlocks) + " of the " +
            std::to_string(graph.positions) + " rows of an example";
  return sizes;
}

// Each class is planned at each size of blocks.
static constexpr size_t kMostClasses = 4;

// How much wider the widest work of a class may be than the narrowest. Work as wide as other work goes with it: the same layer, again and again.
// Of more widths than there may be classes, those go together that are near one another.
static double spreadOfClass(const std::vector<solve::RowWork> &work) {
  size_t widths = 0;
  for (size_t i = 0; i < work.size(); ++i)
    widths += i == 0 || work[i].width != work[i - 1].width;
  if (widths <= kMostClasses)
    return 1;
  return std::pow(double(work.front().width) / double(work.back().width), 1.0 / double(kMostClasses)) * (1 + 1e-9);
}

// What may run in blocks: the widest work, then also the second widest, and so on.
static std::vector<std::vector<solve::RowRange>> rangesByWidth(const solve::StepGraph &graph) {
  std::vector<solve::RowWork> work = solve::findRowWork(graph);
  const double spread = spreadOfClass(work);
  std::vector<std::vector<solve::RowRange>> classes;
  double widest = 0; // of the class
  for (size_t i = 0; i < work.size(); ++i) {
    if (i == 0 || double(work[i].width) * spread < widest) {
      classes.push_back(classes.empty() ? std::vector<solve::RowRange>() : classes.back());
      widest = double(work[i].width);
    }
    classes.back().insert(classes.back().end(), work[i].ranges.begin(), work[i].ranges.end());
  }
  return classes;
}

static int64_t rowsOf(const solve::RowBlock &block) { return block.examples * block.positions; }

// Of a kernel that makes rows around the block: a copy of it that does.
static int64_t scratchOnRows(const analysis::Step &step, const analysis::StepProblem &problem, const solve::KernelRows &rows,
                             const kernels::TargetInfo &target) {
  plan::KernelOp kernel = step.parts[size_t(rows.kernel)].kernel();
  const std::vector<int> &reads = problem.graph.kernels[size_t(rows.kernel)].reads;
  const analysis::RowSpace space{problem.graph.positions, problem.heights};
  auto part = llvm::cast<plan::KernelOp>(kernel->clone());
  analysis::takeSlices(part, space);
  llvm::SmallVector<solve::TripRows> read;
  for (mlir::Value input : part.getInputs())
    read.push_back(rows.read[size_t(llvm::find(reads, problem.buffer.lookup(step.inMemory(input))) - reads.begin())]);
  analysis::takeRows(part, space, rows.made, read);
  auto spec = analysis::specOf(part);
  int64_t bytes = spec ? spec->scratchBytesPerThread(target) : -1;
  part->erase();
  return bytes;
}

// What each kernel needs on a block, bytes a thread; -1 where it is none there.
static std::vector<int64_t> scratchOnBlock(const analysis::Step &step, const solve::StepGraph &graph, const solve::RowBlock &block,
                                           analysis::KernelSpecs &specs, const kernels::TargetInfo &target) {
  std::vector<int64_t> scratch(graph.kernels.size(), 0);
  for (size_t k = 0; k < graph.kernels.size(); ++k)
    if (graph.kernels[k].rows) {
      const analysis::KernelSpec *spec = specs.find(step.parts[k].kernel(), {block.examples, block.positions, graph.positions});
      scratch[k] = spec ? spec->scratchBytesPerThread(target) : -1;
    }
  return scratch;
}

namespace {
// The step with work in blocks.
class BlockedSteps {
public:
  BlockedSteps(const analysis::Step &step, const analysis::StepProblem &problem, const analysis::Target &target)
      : step(step), problem(problem), target(target.kernels()),
        images(llvm::any_of(problem.graph.kernels, [](const solve::Kernel &kernel) { return !kernel.reach.empty(); })) {}

  // With each class of ranges, where it can be so.
  std::vector<solve::Variant> of(const solve::RowBlock &block, llvm::ArrayRef<std::vector<solve::RowRange>> classes) {
    std::vector<solve::Variant> variants;
    std::vector<int64_t> scratch = scratchOnBlock(step, problem.graph, block, specs, target);
    auto runs = [&](const solve::RowRange &range) { return llvm::all_of(range.kernels, [&](int k) { return scratch[k] >= 0; }); };
    for (const std::vector<solve::RowRange> &ranges : classes) {
      if (!images && !llvm::all_of(ranges, runs))
        continue;
      solve::Variant variant;
      variant.rows = solve::withRowBlocks(problem.graph, ranges, block, [&](int k, const solve::KernelRows *rows) {
        return rows && images ? scratchOnRows(step, problem, *rows, target) : scratch[size_t(k)];
      });
      if (!variant.rows.error.empty())
        continue;
      variant.name = std::to_string(ranges.size()) + (ranges.size() == 1 ? " range" : " ranges") + " in blocks of " + std::to_string(rowsOf(block)) + " rows";
      variants.push_back(std::move(variant));
    }
    return variants;
  }

private:
  const analysis::Step &step;
  const analysis::StepProblem &problem;
  analysis::KernelSpecs specs;
  const kernels::TargetInfo target;
  const bool images;
};
} // namespace

// The variants, and those of them in which work on parameters stands in the main loop. The step as it is stays the first.
// A named strategy says what of the loop of training is kept, and leaves work before it there.
static std::vector<solve::Variant> withParameterWork(std::vector<solve::Variant> variants, const DecideOptions &options) {
  const solve::Strategy::Kind strategy = options.search.strategy.kind;
  if (!options.callerCounts && strategy != solve::Strategy::Auto && strategy != solve::Strategy::Optimal)
    return variants;
  std::vector<solve::Variant> moved;
  for (const solve::Variant &variant : variants)
    for (solve::RowBlocked &rows : solve::withParameterWorkInLoop(variant.rows))
      moved.push_back({(variant.name.empty() ? "" : variant.name + ", ") + "copies of parameters made where they are read", std::move(rows)});
  const size_t first = std::min<size_t>(1, variants.size());
  variants.insert(variants.begin() + ptrdiff_t(first), std::make_move_iterator(moved.begin()), std::make_move_iterator(moved.end()));
  return variants;
}

// Bytes that are proven of work in such blocks at the micro-batch that needs least; INT64_MAX where there can be no such blocks.
static int64_t boundOf(BlockedSteps &blocked, const solve::RowBlock &block, llvm::ArrayRef<std::vector<solve::RowRange>> classes,
                       const DecideOptions &options, int64_t asked) {
  int64_t least = INT64_MAX;
  std::vector<solve::Variant> variants = classes.empty() ? std::vector<solve::Variant>() : withParameterWork(blocked.of(block, classes.take_back()), options);
  for (const solve::Variant &variant : variants)
    for (int64_t microbatch : solve::microbatches(variant.rows.graph))
      if (asked <= 0 || asked == microbatch)
        least = std::min(least, solve::memoryBound(variants, microbatch));
  return least;
}

// Where memory is short there may be blocks smaller than those that are worth trying elsewhere: those of which the fewest bytes are proven, of
// equals the largest. They are slow, so that what is proven of them rules them out where there is more memory.
static std::optional<solve::RowBlock> leanestBlock(BlockedSteps &blocked, const BlockRules &rules, const solve::StepGraph &graph,
                                                   llvm::ArrayRef<solve::RowBlock> tried, llvm::ArrayRef<std::vector<solve::RowRange>> classes,
                                                   const DecideOptions &options) {
  const int64_t below = tried.empty() ? graph.batch * graph.positions : rowsOf(tried.front());
  std::optional<solve::RowBlock> leanest;
  int64_t least = INT64_MAX;
  for (const solve::RowBlock &block : solve::possibleRowBlocks(graph)) {
    if (!rules.allow(block) || rowsOf(block) >= below)
      continue;
    if (int64_t bytes = boundOf(blocked, block, classes, options, 0); bytes < INT64_MAX && bytes <= least)
      least = bytes, leanest = block;
  }
  return leanest;
}

// Rows of the blocks in which work can be, for a message; empty: there are none.
static std::string possibleSizes(BlockedSteps &blocked, const BlockRules &rules, const solve::StepGraph &graph,
                                 llvm::ArrayRef<std::vector<solve::RowRange>> classes) {
  llvm::SmallVector<std::string> sizes;
  for (const solve::RowBlock &block : solve::possibleRowBlocks(graph))
    if (rules.allow(block) && !blocked.of(block, classes).empty())
      sizes.push_back(std::to_string(rowsOf(block)));
  if (sizes.size() < 2)
    return sizes.empty() ? "" : sizes.front();
  std::string last = sizes.pop_back_val();
  return llvm::join(sizes, ", ") + " or " + last;
}

static std::vector<solve::Variant> blockedVariants(const analysis::Step &step, const analysis::StepProblem &problem,
                                                   const DecideOptions &options, std::string &error) {
  const solve::StepGraph &graph = problem.graph;
  solve::Variant plain;
  plain.rows.graph = graph;
  for (size_t k = 0; k < graph.kernels.size(); ++k)
    plain.rows.original.push_back(int(k));
  std::vector<solve::Variant> variants;
  variants.push_back(std::move(plain));
  if (options.rowBlocks < 0 || (options.rowsAsked > 0 && (graph.positions != options.rowsAsked || solve::findRowWork(graph).empty())))
    return variants;
  std::vector<std::vector<solve::RowRange>> classes = rangesByWidth(graph);
  const std::string rows = std::to_string(options.rowBlocks) + (options.rowBlocks == 1 ? " row" : " rows");
  const std::string noWork = "no work of this program can run in blocks of " + rows +
                             ": it needs kernels that are independent for each position and share a value at least twice as wide as "
                             "what they read and leave; expected blocks of rows to be auto or none";
  if (options.rowBlocks > 0 && options.rowsAsked == 0 && classes.empty()) { // another micro-batch or size would not help
    error = noWork;
    return variants;
  }
  const BlockRules rules(step.function, graph);
  std::vector<solve::RowBlock> sizes = allowedBlocks(rules, graph, options, error);
  if (!error.empty() || (options.rowBlocks > 0 && sizes.empty())) // something else is wrong, and will be said
    return variants;
  if (options.rowBlocks > 0 && !classes.empty())
    classes.erase(classes.begin(), classes.end() - 1);
  BlockedSteps blocked(step, problem, options.target);
  auto add = [&](const solve::RowBlock &block) { llvm::append_range(variants, blocked.of(block, classes)); };
  if (std::optional<solve::RowBlock> block = options.rowBlocks == 0 ? leanestBlock(blocked, rules, graph, sizes, classes, options) : std::nullopt)
    add(*block);
  for (const solve::RowBlock &block : sizes)
    add(block);
  if (options.rowBlocks > 0 && variants.size() > 1)
    variants.erase(variants.begin());
  else if (options.rowBlocks > 0 && options.rowsAsked == 0) {
    std::string others = possibleSizes(blocked, rules, graph, classes);
    error = others.empty() ? noWork : "no work of this program can run in blocks of " + rows + ", since some kernels need more rows together; expected " + others + " rows";
  }
  return variants;
}

std::vector<solve::Variant> planVariants(const analysis::Step &step, const analysis::StepProblem &problem, const DecideOptions &options, std::string &error) {
  return withParameterWork(blockedVariants(step, problem, options, error), options);
}

int64_t boundOfRowBlocks(const analysis::Step &step, const analysis::StepProblem &problem, const DecideOptions &options) {
  const solve::StepGraph &graph = problem.graph;
  int64_t least = INT64_MAX;
  std::vector<std::vector<solve::RowRange>> classes = options.rowBlocks == 0 ? rangesByWidth(graph) : std::vector<std::vector<solve::RowRange>>();
  if (classes.empty())
    return least;
  const BlockRules rules(step.function, graph);
  BlockedSteps blocked(step, problem, options.target);
  for (const solve::RowBlock &block : solve::possibleRowBlocks(graph))
    if (rules.allow(block))
      least = std::min(least, boundOf(blocked, block, classes, options, options.search.microbatch));
  return least;
}

} // namespace cinch
