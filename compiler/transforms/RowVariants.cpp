// RowVariants.cpp: the graphs that the planner chooses among: the step as it is, and with its widest work, then also its
// second widest, and so on, in row blocks of several sizes.
#include "compiler/analysis/RowWise.h"
#include "compiler/transforms/Decision.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/TensorCores.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"

#include <cmath>

namespace cinch {

// The sizes of blocks that the program and the options allow. `error`: the one that was asked for is none of them.
static std::vector<solve::RowBlock> allowedBlocks(const analysis::Step &step, const solve::StepGraph &graph, const DecideOptions &options,
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
  // Sums in blocks of examples, or means of groups: no example may be cut, not even where a block is one example.
  std::string whole = "whole examples, since there is a grain or a group_mean";
  if (nn::grainOf(step.function) > 0 || graph.grain > 1)
    llvm::erase_if(sizes, [&](const solve::RowBlock &block) { return block.positions < graph.positions; });
  mlir::func::FuncOp function = step.function;
  if (nn::sumsBlocks(function) && !sizes.empty()) {
    llvm::erase_if(sizes, [&](const solve::RowBlock &block) { return block.positions < graph.positions && block.positions % nn::kRowsOfBlocks; });
    whole = "whole examples or a multiple of 32 positions, as products of bf16 and tf32 do";
  }
  if (sizes.empty() && options.rowBlocks > 0)
    error = "expected blocks of rows that hold " + whole + "; got " + std::to_string(options.rowBlocks) + " of the " +
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

std::vector<solve::Variant> rowVariants(const analysis::Step &step, const analysis::StepProblem &problem,
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
  const std::string noWork = "no work of this program can run in blocks of " + std::to_string(options.rowBlocks) +
                             " rows: it needs kernels that are independent for each position and share a value at least twice as wide as "
                             "what they read and leave; expected blocks of rows to be auto or none";
  if (options.rowBlocks > 0 && options.rowsAsked == 0 && classes.empty()) { // another micro-batch or size would not help
    error = noWork;
    return variants;
  }
  std::vector<solve::RowBlock> sizes = allowedBlocks(step, graph, options, error);
  if (!error.empty() || sizes.empty())
    return variants;
  if (options.rowBlocks > 0 && !classes.empty())
    classes.erase(classes.begin(), classes.end() - 1);
  bool images = llvm::any_of(graph.kernels, [](const solve::Kernel &kernel) { return !kernel.reach.empty(); });
  analysis::KernelSpecs specs;
  const kernels::TargetInfo target = options.target.kernels();
  for (const solve::RowBlock &block : sizes) {
    std::vector<int64_t> scratch = scratchOnBlock(step, graph, block, specs, target);
    auto runs = [&](const solve::RowRange &range) { return llvm::all_of(range.kernels, [&](int k) { return scratch[k] >= 0; }); };
    for (const std::vector<solve::RowRange> &ranges : classes) {
      if (!images && !llvm::all_of(ranges, runs))
        continue;
      solve::Variant variant;
      variant.rows = solve::withRowBlocks(graph, ranges, block, [&](int k, const solve::KernelRows *rows) {
        return rows && images ? scratchOnRows(step, problem, *rows, target) : scratch[size_t(k)];
      });
      if (!variant.rows.error.empty())
        continue;
      variant.name = std::to_string(ranges.size()) + (ranges.size() == 1 ? " range" : " ranges") +
                     " in blocks of " + std::to_string(block.examples * block.positions) + " rows";
      variants.push_back(std::move(variant));
    }
  }
  if (options.rowBlocks > 0 && variants.size() > 1)
    variants.erase(variants.begin());
  else if (options.rowBlocks > 0 && options.rowsAsked == 0)
    error = noWork;
  return variants;
}

} // namespace cinch
