// KernelBody.h: one element of a kernel, computed again op by op on the host, to see where a bad number in it comes from.
//
// The kernel has not run yet: its operands are what it will see, and what it will store is computed here. The same IEEE
// operations in the same order give the same bits (HostOps.h).
#ifndef CINCH_RUNTIME_KERNELBODY_H
#define CINCH_RUNTIME_KERNELBODY_H
#include "compiler/kernels/HostOps.h"
#include "runtime/Memory.h"

namespace cinch::rt {

constexpr int kMaxDims = 24;

// Where bad numbers in memory come from: a set of causes, one bit each; 0 where they are legitimate, as an infinity that is
// written in the program.
typedef uint64_t Causes;
typedef Causes (*CausesAt)(int64_t byte);
// Where the host finds the element at this byte of the arena.
typedef const char *(*ElementAt)(int64_t byte);

// The op that made a bad number from good ones.
struct BadNode {
  int node = -1;
  kernels::LoopOp op = kernels::LoopOp::Const;
  kernels::LoopReduce reduce = kernels::LoopReduce::Sum;
  kernels::Elem elem = kernels::Elem::F32;
  double result = 0, args[3];
  int argCount = 0;
  bool gathered = false;   // a sum of many numbers
  bool ofInfinite = false; // some of its numbers are infinite, and no operation made them so: the program's text, a parameter or data
  int64_t at[kMaxDims];    // index of the element in the kernel's domain; -1: not in this dim, or there is but one
  int dims = 0, positionDim = -1;
  int64_t example = 0;     // inside the micro-batch or the block of rows
};

class KernelBody {
public:
  // False: the numbers are none of a body. `places`: per node, where its op stands in the program; read on while this is used.
  bool read(const List<int64_t> &numbers, const List<int64_t> &places);
  // Before the kernel runs: what its launch would see.
  void begin(ElementAt elementAt, const int64_t *offsets, const int64_t *context, CausesAt causesAt);

  // Why element `index` of the buffer at `word` will be bad: causes of what it reads, and the ops of this kernel that make a bad
  // number (`found`: the first of them in the program). Nothing: it is bad legitimately.
  bool explain(int64_t word, int64_t index, Causes &causes, BadNode &found);
  // The same for any element of the buffer, if the elements are independent.
  bool explainAny(int64_t word, Causes &causes, BadNode &found);
  // Where a node's op stands in the program.
  int64_t placeOf(int node) const { return node < places->size ? (*places)[node] : -1; }

private:
  struct View {
    int64_t word = 0, offset = 0;
    const int64_t *strides = nullptr;
  };
  struct Node {
    kernels::LoopOp op = kernels::LoopOp::Const;
    kernels::Elem elem = kernels::Elem::F32;
    bool variesRow = false, variesCol = false, hasInit = false, usesExample = false;
    kernels::LoopReduce reduce = kernels::LoopReduce::Sum;
    int argCount = 0;
    const int64_t *args = nullptr, *atStrides = nullptr, *exampleStrides = nullptr;
    View view;
    double number = 0;
    int64_t keyWord = 0, positionStride = 0;
    // The value at the place where it was asked for last.
    kernels::host::Cell value;
    int64_t row = -1, col = -1, outer = -1;
    // The same for `walk`.
    int64_t walkedRow = -1, walkedCol = -1, walkedOuter = -1;
    bool walkedFound = false;
  };
  struct Store {
    int node = 0;
    View view;
    int64_t copies = 1, copyStride = 0; // the same value at so many places, so many elements apart
  };

  int rank() const { return outerRank + chainRank + 1; }
  int64_t dim(int i) const { return i < outerRank ? outerDims[i] : i < outerRank + chainRank ? chainDims[i - outerRank] : cols; }
  int64_t indexOf(const View &view) const;
  void setRow(int64_t row);
  void setCol(int64_t col) { at[rank() - 1] = col; }
  kernels::host::Cell load(int64_t word, int64_t index, kernels::Elem elem) const;
  int64_t byteOf(int64_t word, int64_t index, kernels::Elem elem) const;
  kernels::host::Cell value(int node);
  kernels::host::Cell compute(Node &node);
  kernels::host::Cell reduceCols(const Node &node);
  kernels::host::Cell reduceChain(const Node &node);
  double number(int node);
  bool bad(int node) { return !__builtin_isfinite(number(node)); }
  bool walk(int node);
  bool walkOperands(int node);
  bool walkMany(int node, bool overCols);
  bool addCauses(int64_t byte);
  bool born(int node, bool gathered, bool ofInfinite);
  bool explainHere(int node);
  bool explainAdded(int64_t index);

  int outerRank = 0, chainRank = 0;
  const int64_t *outerDims = nullptr, *chainDims = nullptr;
  int64_t cols = 1, rows = 1, blockRows = 0;
  int64_t batchDim = -1, positionDim = -1, examplesOfGroup = 1;
  const List<int64_t> *places = nullptr;
  List<Node> nodes;
  List<Store> stores;
  bool adds = false;
  Store added;
  int addedArgCount = 0;
  const int64_t *addedArgs = nullptr, *addedStrides = nullptr;

  ElementAt elementAt = nullptr;
  const int64_t *offsets = nullptr, *context = nullptr;
  CausesAt causesAt = nullptr;
  int64_t at[kMaxDims]; // the point of the domain
  int64_t row = 0, outerNumber = 0;
  Causes causes = 0;
  BadNode first;
};

} // namespace cinch::rt
#endif
