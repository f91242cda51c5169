// LoopTrace.h: from nn values to the spec of one kernel.
//
// A kernel stores some values and reads others from memory; everything between is computed on the way. The tracer walks from
// the stores back to what lies in memory, carrying the index of the element that is needed (IndexMap.h). Where the walk cannot
// go on (a reshape that is not linear there, a sum in the wrong place, a product), it names the value that has to be stored
// first: the *blocker*. The same walk serves to decide which values are stored and to build the kernels from the decision.
#ifndef CINCH_COMPILER_ANALYSIS_LOOPTRACE_H
#define CINCH_COMPILER_ANALYSIS_LOOPTRACE_H

#include "compiler/analysis/IndexMap.h"
#include "compiler/kernels/Kernels.h"

#include "mlir/IR/Value.h"
#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/SetVector.h"
#include "llvm/ADT/STLFunctionalExtras.h"

#include <functional>
#include <map>
#include <string>

namespace mlir {
class Operation;
}
namespace cinch::nn {
enum class Reduction : uint32_t;
class ConcatOp;
class GatherOp;
class PadOp;
class RandomOp;
class VectorOp;
}

namespace cinch::analysis {

// How much of a step a kernel works on: so many examples and, in blocks of rows, so many of the `of` positions of each (the second
// axis). A kernel is formed on the whole batch, and what it looks like on less is asked before anything is decided. An axis that
// is 0 here is as long as its type says.
struct Extent {
  int64_t examples = 0;
  int64_t positions = 0, of = 0;
  bool cutsPositions() const { return positions > 0 && positions < of; }
  bool operator==(const Extent &o) const { return examples == o.examples && positions == o.positions && of == o.of; }
};

Shape shapeOf(mlir::Value, const Extent & = {});
Shape shapeInMemory(mlir::Value, const Extent & = {}); // the last axis is as long as rows lie apart
int64_t elementsOf(mlir::Value);
int batchAxisOf(mlir::Value); // -1: none
kernels::Elem elemOf(mlir::Value);

// Marks a draw on some positions (axis 1) of an example, in a loop over blocks of rows.
inline constexpr char kPositionsAttr[] = "plan.positions";

// The domain a value is naturally computed over.
struct LoopDomain {
  Shape outer, chain;
  int64_t cols = 1;
  Shape sizes() const; // outer, chain, cols
  bool operator==(const LoopDomain &o) const { return outer == o.outer && chain == o.chain && cols == o.cols; }
};
LoopDomain domainOf(mlir::Value, const Extent & = {});

// How a reduction's axes fall apart: the run of reduced axes at the end, batch excepted, is summed in lanes; the other reduced
// axes are a chain, batch first. Without such a run the last kept axis is the columns.
struct ReductionAxes {
  std::vector<int64_t> outer, chain, run; // axes of the operand
  int64_t column = -1;                    // the kept axis that is the columns, if there is no run
};
kernels::LoopReduce reduceOf(nn::Reduction);
ReductionAxes splitReduction(mlir::Value operand, llvm::ArrayRef<int64_t> axes);

// An op that only says where elements lie: broadcast, transpose, reshape, slice, reverse.
bool isView(mlir::Operation *);
// An op whose result a loop kernel computes (views included); the others have kernels of their own.
bool isLoopOp(mlir::Operation *);

// The map of a view's operand, given the map of its result.
std::optional<IndexMap> throughView(mlir::Operation *view, const IndexMap &map, const Shape &domain, const Extent & = {});

kernels::Level join(kernels::Level, kernels::Level); // of a node that reads both

class LoopTracer {
public:
  // `bufferOf` says which buffer holds a value; -1: it is computed here.
  LoopTracer(const LoopDomain &domain, std::function<int(mlir::Value)> bufferOf, const Extent & = {});

  // Adds the store of `value` into buffer `buffer`. False: see `blocker`.
  bool store(mlir::Value value, int buffer, bool accumulate);

  kernels::LoopSpec spec;
  mlir::Value blocker;
  llvm::SetVector<mlir::Operation *> computed; // ops that the kernel computes
  std::vector<mlir::Operation *> origins;      // per node of `spec`: the op that it computes; null for a load
  int batchDim = -1, positionDim = -1;         // dims of the domain that count examples and their axis 1; -1: none
  int64_t examplesOfGroup = 1;                 // > 1: batchDim counts groups of so many examples, the chain the examples of one

private:
  int trace(mlir::Value value, const IndexMap &map);
  int traceOp(mlir::Operation *op, mlir::Value value, const IndexMap &map);
  int traceView(mlir::Operation *op, mlir::Value value, const IndexMap &map);
  int tracePlain(kernels::LoopOp plain, mlir::Operation *op, mlir::Value value, const IndexMap &map);
  int traceVector(nn::VectorOp, const IndexMap &map);
  int traceRandom(nn::RandomOp, const IndexMap &map);
  int traceGather(nn::GatherOp, const IndexMap &map);
  int tracePad(nn::PadOp, const IndexMap &map);
  int traceConcat(nn::ConcatOp, const IndexMap &map);
  int reduceCols(mlir::Operation *op, mlir::Value value, const IndexMap &map);
  int clampedLoad(mlir::Value operand, const IndexMap &map, int64_t axis, int index, int64_t shift);
  bool storeReduction(mlir::Operation *op, mlir::Value value, int buffer, bool accumulate);
  bool storeGroupMean(mlir::Operation *op, int buffer);
  bool storeScatter(mlir::Operation *op, int buffer, bool accumulate);
  bool setBlocks(int64_t grain, int64_t together);
  int add(kernels::LoopNode node);
  int binary(kernels::LoopOp op, kernels::Elem elem, int a, int b);
  int select(kernels::Elem elem, int condition, int yes, int no);
  int constant(kernels::Elem elem, double number);
  int ofStep(kernels::LoopOp op, double which = 0);
  int load(int buffer, mlir::Value value, const LinearIndex &at);
  int index(const LinearIndex &at);
  int spread(int node, bool overCols, bool overChain);
  kernels::Level levelOf(const std::vector<int64_t> &strides) const;
  kernels::View viewOf(int buffer, mlir::Value value, const LinearIndex &at) const;
  int fail(mlir::Value value);
  void claim(size_t firstNode, mlir::Operation *op);
  void findExamples(mlir::Value value, int64_t axis, int dim);

  LoopDomain domain;
  Extent extent;
  Shape sizes;
  std::function<int(mlir::Value)> bufferOf; // owned: the tracer outlives what it is made from
  std::map<std::pair<const void *, std::vector<int64_t>>, int> memo; // (value, where) -> node
  std::vector<kernels::Level> levels; // of nodes
};

// Is buffer `read` read only at the places where buffer `written` is written, element by element?
bool readsWhereItWrites(const kernels::LoopSpec &, int read, int written);

// Follows views from `value` to what lies in memory; `at` is its flat index for an index of `value` given by `map` over
// `domain`. Returns the value in memory, or nothing with `blocker` set.
std::optional<std::pair<mlir::Value, LinearIndex>> locate(mlir::Value value, const IndexMap &map, const Shape &domain,
                                                          llvm::function_ref<bool(mlir::Value)> inMemory,
                                                          mlir::Value &blocker,
                                                          llvm::SetVector<mlir::Operation *> *passed = nullptr,
                                                          const Extent & = {});

} // namespace cinch::analysis
#endif
