// StageHomes.h: which work of a step belongs together when it is divided among several workers.
//
// The forward kernels of the main loop over the micro-batches, in their order, are *segments*: a model may be cut between any two. All
// other work follows them:
//
//   a parameter          lies with the first segment that reads it (tied weights: the others are sent it)
//   before the loop      with the first segment that reads what it makes
//   backward             as late as the gradients it reads allow, where its other operands are at hand and, for the gradient of a
//                        parameter, where that parameter is read
//   behind the loop      with the parameter; of single numbers alone, with those that are there before the loop, else with the first segment
//   from data alone      wherever it is read: every worker computes it anew
//
// So gradients go from later segments to earlier ones, other values from earlier to later, whatever the cut.
#ifndef CINCH_COMPILER_ANALYSIS_STAGEHOMES_H
#define CINCH_COMPILER_ANALYSIS_STAGEHOMES_H

#include "compiler/analysis/StepProblem.h"

#include "llvm/ADT/StringMap.h"

namespace cinch::analysis {

struct StageHomes {
  // For a training step; for another function of the same program with the step's `owners`.
  explicit StageHomes(const Step &, const llvm::StringMap<int> *owners = nullptr);

  static constexpr int kEverywhere = -1; // from data alone, or the gate
  std::vector<int> home;                 // of the step's parts: a segment, or kEverywhere
  std::vector<int> segments;             // of a training step: the part that each segment is
  std::vector<bool> onlyWeights;         // of the step's parts: backward work that gradients of parameters of its segment alone wait for
  llvm::StringMap<int> owners;           // paths of parameters, names of slots -> segments
  // The parts that read a value in memory, ascending; the part that writes it, -1: an argument.
  llvm::ArrayRef<int> readersOf(mlir::Value value) const;
  int writerOf(mlir::Value value) const;
  // The segment of a parameter or a slot; -1: another argument.
  int ownerOf(mlir::BlockArgument) const;
  bool isData(mlir::Value value) const;  // a field, or computed from fields alone
  // A slot that no work of the examples reads, so that of all replicas one needs it: the optimizer's state.
  bool liesOnce(mlir::BlockArgument) const;
  // The shard that does a part of the step; -1: all shards do, or it is no kernel.
  static int shardOf(mlir::Operation *part);
  // The run of a parameter's rows that a part updates; -1: none.
  static int pieceOf(mlir::Operation *part);

private:
  bool inMainLoop(int part) const { return step.parts[part].part == 2 * int(step.loops.size()) - 1; }
  bool isForwardSegment(int part) const;
  void findData();
  void findSegments();
  void placeOwners();
  void keepTogether();
  void keepVersions();
  void placeBefore();
  void placeEarlyLoops();
  void placeForward();
  void placeBackward();
  void placeBehind();
  void findOnlyWeights();
  int firstReader(int part) const;
  int latestOperand(int part) const;
  bool atHand(mlir::Value value, int segment) const;
  mlir::BlockArgument parameterOf(int part) const;
  void own(mlir::BlockArgument, int segment);

  const Step &step;
  bool training;
  std::vector<bool> data; // of parts
  llvm::DenseMap<mlir::Value, llvm::SmallVector<int>> readers;
  llvm::DenseMap<mlir::Value, int> writer;
};

} // namespace cinch::analysis
#endif
