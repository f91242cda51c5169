// PartitionStages.h: a function of kernels becomes one function a worker, with messages between them.
#ifndef CINCH_COMPILER_TRANSFORMS_PARTITIONSTAGES_H
#define CINCH_COMPILER_TRANSFORMS_PARTITIONSTAGES_H

#include "compiler/analysis/StageHomes.h"

namespace cinch {

// Replicas that make steps of their own (PartitionForms.cpp): each runs all of the step, with its examples for the batch.
enum class OwnSteps {
  None,
  RingAverage, // replicas have parameters and state of their own; new parameters are averaged with those of the neighbours in the ring
  Async,       // the first replica has parameters and state, which go round: each replica updates them in its turn
  Hogwild      // parameters and state are the same bytes of memory for all
};

// Which worker has which segments. A worker may have several stages, its chunks.
//
// Replicas have the same layout, and each its run of consecutive examples: worker w of replica d has the number d * workers + w. A sum over
// the examples is one chain through all of them: replica d goes on from where replica d - 1 stopped, so the last one has the finished sums. It
// updates the parameters and sends them around: to the first replica, from there to the second, and so on.
//
// Or each replica sums its own examples from zero, and the sums are added in the order of the replicas, each in the last micro-batch, right
// behind the work that finished it: while sums travel, the backward pass goes on. That is what a program asks for whose grains are what a
// replica has, and `combine reduce`. Replicas that make steps of their own have sums of their own alone.
//
// Or the updates are handed out (PartitionPieces.cpp): each replica has the optimizer's state of some of the parameters. The last one sends it the
// finished gradients of these before the gate, and from it the new parameters go around.
//
// Shards have a stage together: worker s * shards + t of a replica has shard t of what stage s's first worker would have. What belongs to no
// shard is done by all of them, each for itself, and parameters that are not split lie with all of them.
struct StageLayout {
  int workers = 1;           // of a replica
  int replicas = 1;
  std::vector<int> stageOf;  // of each segment (StageHomes), ascending
  std::vector<int> workerOf; // of each stage, were there no shards
  bool splitsBackward = false; // what only gradients of parameters need is a part of its own
  bool addsSums = false;       // of replicas: each has sums of its own
  bool isOneGrain = false;     // .. and its examples are one grain, which micro-batches may cut: they are summed without
  int shards = 1;
  bool handsOut = false;       // updates, and the state that lies once, are divided among the replicas
  OwnSteps ownSteps = OwnSteps::None;
  bool makesOwnSteps() const { return replicas > 1 && ownSteps != OwnSteps::None; }
  int numberOf(int worker, int replica) const { return replica * workers + worker; }
  int worker(int segment) const { return workerOf[size_t(stageOf[size_t(segment)])] * shards; } // the first of the shards
  int chunks(int worker) const;    // stages that it has
  int chunk(int segment) const;    // the how manieth stage of its worker
  // Of a training step: the part of its worker's loop body in which a stage's chunk runs.
  int forwardPart(int chunk) const { return chunk; }
  int backwardPart(int chunks, int chunk) const { return 2 * chunks - 1 - chunk; }
  int weightPart(int chunks, int chunk) const { return 3 * chunks - 1 - chunk; }
};

// From one worker to another, first in, first out.
struct Channel {
  int from = 0, to = 0;
  int64_t fixedBytes = 0, perExampleBytes = 0; // of a message
  bool inLoop = false;                         // a message each micro-batch, else one a call
  int fromPart = 0, toPart = 0;                // of the workers' loop bodies, if inLoop and in the main loop; -1: another loop
  int boxes = 1;                               // messages that may lie there unread
  int64_t messageBytes = 0;                    // once the micro-batch is chosen
  bool pieces = false;                         // many values, each in as many messages as it takes
  std::string label;
  std::string action;                          // of a training step's main loop: the stage and kind of what sends it ("2F"), message k of a
                                               // step in micro-batch k
  int64_t bytes(int64_t microbatch) const { return fixedBytes + perExampleBytes * microbatch; }
};

// Makes @NAME_0, @NAME_1 .. beside @NAME and adds its channels, numbered from `firstChannel` on. The parts of a worker's main loop are, with
// c chunks: forward of each, then backward of each, last chunk first, then, if the backward is split, the gradients of parameters of each,
// last chunk first. A function without a backward part has the forward parts; results that the loop hands out are one more of the first worker.
// Fails after an internal error was reported.
mlir::FailureOr<std::vector<mlir::func::FuncOp>> partitionStages(const analysis::Step &, const analysis::StageHomes &,
                                                                const StageLayout &, size_t firstChannel, std::vector<Channel> &channels);

} // namespace cinch
#endif
