// Partitioner.h: how PartitionStages.h is done. What runs where (PartitionPlaces.cpp), who sends what to whom (PartitionMessages.cpp,
// PartitionReplicas.cpp, PartitionPieces.cpp, PartitionForms.cpp), and the functions of the workers (PartitionStages.cpp).
#ifndef CINCH_COMPILER_TRANSFORMS_PARTITIONER_H
#define CINCH_COMPILER_TRANSFORMS_PARTITIONER_H

#include "compiler/transforms/PartitionStages.h"

#include "compiler/analysis/Cost.h"
#include "compiler/transforms/Decision.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Pieces.h"
#include "dialects/plan/Plan.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace cinch {

class Partitioner {
public:
  Partitioner(const analysis::Step &step, const analysis::StageHomes &homes, const StageLayout &layout, size_t firstChannel,
              std::vector<Channel> &channels)
      : step(step), homes(homes), layout(layout), firstChannel(firstChannel), channels(channels), mainLoop(2 * int(step.loops.size()) - 1) {}
  mlir::FailureOr<std::vector<mlir::func::FuncOp>> run();

private:
  struct Message {
    int channel = 0;
    int from = 0, to = 0;
    int before = 0; // received before this part of the step
    bool handed = false; // it is sent there, too, and not where it was made
  };
  int regionOf(int part) const { return step.parts[size_t(part)].part; }
  bool isLoop(int region) const { return region % 2 == 1; }
  int lastReplica() const { return layout.replicas - 1; }
  bool runsOn(int part, int replica) const {
    mlir::Operation *op = step.parts[size_t(part)].op;
    if (mlir::isa<plan::GateOp>(op) || regionOf(part) <= mainLoop || isAnywhere(part) || isJoin(part))
      return true;
    if (layout.makesOwnSteps())
      return !mlir::isa<plan::ResultsOp>(op) || replica == 0;
    return replica == (mlir::isa<plan::ResultsOp>(op) ? 0 : replicaOf[size_t(part)]);
  }
  // The workers of a replica that have a segment's work: all shards, or the one that does it (-1: all).
  llvm::SmallVector<int> workersOf(int segment, int shard) const;
  llvm::SmallVector<int> ownersOf(mlir::BlockArgument argument) const; // of a parameter or a slot
  static int shardOf(mlir::Operation *op) { return analysis::StageHomes::shardOf(op); }
  // On which workers of a replica each part of the step runs, and in which part of their loop bodies.
  void placeParts();
  // Sums of the forward sweep wait for the replica before as the gradients of parameters do.
  bool onlySums(int part) const;
  void placeLate(int part);
  // The parts of this worker's main loop.
  int partsOfLoop() const;
  // The part of a worker's loop body in which an operand of work in `loopPart` must be there. The gradients of parameters of one chunk may
  // run before or behind the input gradients of another, but always behind those of their own.
  int readyFor(int loopPart, int w) const;
  // What is computed from data alone is computed by each worker that reads it.
  void placeWhereRead(int part);
  // Where worker `to` (of all) gets a value from; itself, if it has it.
  int sourceOf(mlir::Value value, int to) const;
  int nearest(llvm::ArrayRef<int> places, int w) const; // of workers of a replica
  void findMessages();
  void findMessagesOf(mlir::Value value);
  // A channel for many values, which come in one order: `group` tells apart what may not.
  int channelOfPieces(int from, int to, int group, mlir::Value value, llvm::StringRef label);
  // Sums go on from replica to replica, or are added.
  void findChains();
  bool isAdded(mlir::Value sum) const;
  // Who hands a new parameter on to whom: the replica that updates it to the next one, the last to the first, and so on until all have it.
  void findReturns();
  // A message has 1/64 of what goes through its channel at most, so that what the mailboxes take is little.
  void cutIntoPieces();
  // Parameters, and state that the examples' work reads (`delay 1`: the previous parameters). Other state is with one replica.
  bool isOnAllReplicas(mlir::BlockArgument argument) const { return !homes.liesOnce(argument); }
  // Which replica does what behind the main loop: the last one, or, if the updates are handed out, each its pieces (PartitionPieces.cpp).
  void findPieces();
  // Arguments that are updated together: of each, the number of their group; none: it is in no group that is handed out.
  llvm::DenseMap<mlir::Value, int> findGroups(std::vector<mlir::BlockArgument> &firstOf) const;
  void placeGroups(const llvm::DenseMap<mlir::Value, int> &groups);
  // Updates in runs of rows: such a run; what makes one parameter of them; what takes rows of the gradient for one.
  bool isRun(int part) const { return analysis::StageHomes::pieceOf(step.parts[size_t(part)].op) >= 0; }
  bool isJoin(int part) const;
  bool takesRows(int part) const;
  // The parameter or state whose new value, or some rows of it, a part hands on; null: it makes something else.
  mlir::BlockArgument parameterOf(mlir::OpResult result) const;
  bool isSingle(mlir::Value value) const { return analysis::elementsOf(value) == 1; }
  // If updates are handed out, each replica computes for itself what comes from data and constants alone behind the main loop. Of sums
  // over the examples it has the finished ones.
  bool isAnywhere(int part) const;
  bool isFinished(mlir::Value value) const; // a sum of the loop, or made behind it
  bool isHanded(mlir::Value value, const Message &message) const; // to another replica, behind the main loop
  // What another replica goes on with is sent right before it does so: all workers then send and receive in one order, so that small
  // mailboxes do.
  void sendHanded(mlir::OpBuilder &builder, int part);
  // New parameters are sent around behind all updates, so that nobody's updates wait for those of others.
  void passParameters(mlir::OpBuilder &builder);
  // `delay 1`: of a previous parameter, the parameter on the same worker, with whose value every replica leaves it; else null.
  mlir::BlockArgument newerOf(mlir::BlockArgument previous) const;
  // In place of an update on another replica: previous parameters are kept, the new ones come.
  void keepPrevious(mlir::OpBuilder &builder, mlir::Operation *op);
  void receiveParameters(mlir::OpBuilder &builder, mlir::Operation *op);
  void sendParameter(mlir::OpBuilder &builder, mlir::OpResult result);
  // A sum begins with what the replica before has, or that is added to it; its end goes to the next.
  void beginSum(mlir::OpBuilder &builder, mlir::OpResult result);
  void endSum(mlir::OpBuilder &builder, mlir::OpResult result);
  void receiveSum(mlir::OpBuilder &builder, mlir::OpResult result, int channel, bool adds);
  // Replicas that make steps of their own (PartitionForms.cpp). Sums over their examples stand for those over the batch.
  void scaleSum(mlir::OpBuilder &builder, mlir::Value sum);
  // What the gate looks at, and the logs: the mean of the replicas.
  void findMeans();
  mlir::Value meanOf(mlir::OpBuilder &builder, mlir::Value value);
  // New parameters are averaged with those of the neighbours.
  bool isAveraged(mlir::OpResult result) const;
  std::vector<int> neighbours(int replica) const; // before, behind
  void findNeighbours();
  void averageWithNeighbours(mlir::OpBuilder &builder, mlir::OpResult result);
  // Parameters and state go round: those of a unit together, from before its first kernel to behind its last one.
  struct Unit {
    int first = 0, last = 0; // parts of the step
    std::vector<mlir::BlockArgument> arguments;
    std::vector<mlir::OpResult> results;
  };
  bool goesRound(mlir::BlockArgument argument) const;
  mlir::LogicalResult findUnits();
  void receiveUnit(mlir::OpBuilder &builder, int part);
  void sendUnit(mlir::OpBuilder &builder, int part);
  int number() const { return layout.numberOf(worker, replica); }
  // One kernel of element-wise ops on operands of one type.
  static mlir::Value elementwise(mlir::OpBuilder &builder, mlir::ValueRange operands, llvm::StringRef label,
                                 llvm::function_ref<mlir::Value(mlir::OpBuilder &, mlir::ValueRange)> body);
  static mlir::Value named(mlir::Value value) {
    auto result = mlir::dyn_cast<mlir::OpResult>(value);
    return result && mlir::isa<plan::KernelOp>(result.getOwner()) ? analysis::computedBy(result) : value;
  }
  mlir::FailureOr<mlir::func::FuncOp> write();
  // The examples of a replica.
  void takeExamples(mlir::func::FuncOp function);
  // The worker has its parameters, on one replica their state, and the data that it reads.
  bool isMine(mlir::BlockArgument argument) const;
  bool isOnReplica(mlir::BlockArgument argument) const;
  void send(mlir::OpBuilder &builder, mlir::Value value);
  void receiveBefore(mlir::OpBuilder &builder, int part);
  void receive(mlir::OpBuilder &builder, llvm::ArrayRef<mlir::Value> values);
  // The kernels of a part of the step that belong to a part of the loop body.
  mlir::LogicalResult writeParts(mlir::OpBuilder &builder, int region, int loopPart);
  // A value of a loop that is read behind it.
  bool isSum(mlir::Value value) const;
  bool findWhetherSum(mlir::Value value) const;
  mlir::LogicalResult writeLoop(mlir::OpBuilder &builder, int region);
  // The new parameters and their state.
  mlir::FailureOr<mlir::func::FuncOp> finish(mlir::OpBuilder &builder, mlir::func::FuncOp function, llvm::ArrayRef<mlir::Attribute> argumentAttributes);
  const analysis::Step &step;
  const analysis::StageHomes &homes;
  const StageLayout &layout;
  size_t firstChannel;
  std::vector<Channel> &channels;
  int mainLoop; // the region of the last loop
  int worker = 0, replica = 0; // that is written
  bool training = false, resultsInLoop = false;
  std::vector<int> replicaOf;         // .. that does a part behind the main loop
  std::vector<int> groupOf;           // .. of what is updated together; negative: none
  llvm::DenseMap<mlir::Value, int> keeperOf; // arguments that lie once -> their replica, if it is not the last one
  // (Worker of all, part of the step) -> what it sends right before it, and the channels.
  std::map<std::pair<int, int>, std::vector<std::pair<mlir::Value, int>>> handed;
  std::vector<std::map<int, int>> at; // of the step's parts: worker -> part of its loop body
  llvm::DenseMap<mlir::Value, llvm::SmallVector<Message>> messages;
  std::map<std::pair<int, int>, llvm::SmallVector<mlir::Value>> due; // (worker, part of the step) -> what is received right before it
  llvm::DenseMap<std::pair<int, int>, llvm::SmallVector<mlir::Value>> dueAtEnd; // (worker, part of its main loop) -> what is received at its end
  struct Pieces {
    int channel = 0;
    int64_t bytes = 0; // of all values
  };
  // Groups of their own: the second less a number of the loop, or of the part of its body.
  static constexpr int kReturned = INT_MIN, kAdded = INT_MAX, kMeans = INT_MIN + 1, kMeansBack = INT_MIN + 2, kRound = INT_MIN + 3,
                       kToNeighbours = INT_MIN + 4, // and one on for the other neighbour
                       kHanded = INT_MIN + 6;
  std::map<std::tuple<int, int, int>, Pieces> pieces;  // from, to, group
  llvm::DenseMap<std::pair<mlir::Value, int>, int> chains, additions, returns; // what a worker (of all) sends -> the channel
  llvm::DenseMap<std::pair<mlir::Value, int>, int> means, meansBack; // likewise
  std::map<std::tuple<int, int>, int> round; // from, to -> the channel
  llvm::DenseMap<std::tuple<mlir::Value, int, int>, int> exchanged; // new parameter, from, to -> the channel
  std::vector<std::vector<Unit>> units;      // of each worker of a replica
  llvm::DenseMap<mlir::Value, mlir::Value> averaged; // in the function that is being written: of what the gate looks at
  llvm::DenseMap<mlir::Value, mlir::Value> finals;   // .. what a result is in the end, where kernels behind it read something else
  llvm::SmallVector<mlir::Value> sums;                               // of the loop that is written
  mutable llvm::DenseMap<mlir::Value, bool> knownSums;
  llvm::DenseMap<mlir::Value, mlir::Value> current;                  // values in memory -> in the function that is being written
};

} // namespace cinch
#endif
