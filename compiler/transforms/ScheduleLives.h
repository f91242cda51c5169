// ScheduleLives.h: what the proof of a schedule (VerifySchedule.cpp) is made of: when values are alive, and four proofs that need no
// more than a part of the function.
#ifndef CINCH_COMPILER_TRANSFORMS_SCHEDULELIVES_H
#define CINCH_COMPILER_TRANSFORMS_SCHEDULELIVES_H

#include "compiler/analysis/KernelSpec.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/ADT/MapVector.h"

#include <map>

namespace cinch {

constexpr int64_t kForever = INT64_MAX;

struct Life {
  int64_t offset = 0, bytes = 0;
  int64_t begin = 0, end = 0; // alive in [begin, end], both included
  mlir::Value value;
  int part = 0;               // of the loop body in which it is written
};
using Lives = llvm::DenseMap<mlir::Value, Life>;

int64_t bytesOf(mlir::Value);

// VerifyTrip.cpp. Scratch has a place and a size, or neither. Whether the size is what the kernel needs is for its code to say, which is
// another one on each target: that is compared where it is generated (HostCode.cpp).
mlir::LogicalResult verifyScratch(plan::KernelOp);
// The trip of a loop along an axis, which the kernel is.
mlir::LogicalResult verifyTrip(plan::KernelOp, plan::LoopOp, analysis::KernelSpecs &);

// VerifySums.cpp. Bytes that an op clears before its work.
struct ClearedRange {
  mlir::Operation *op = nullptr;
  int64_t offset = 0, bytes = 0;
  bool isSum = false; // of the loop that the op is, or stands in
};
llvm::SmallVector<ClearedRange> clearedBy(mlir::Operation *);
bool clears(mlir::Operation *, int64_t offset); // does one of its ranges begin there?
// A sum of a loop over micro-batches, as the body yields it.
struct LoopSum {
  mlir::Value value;
  int64_t offset = 0, bytes = 0;
  bool beginsLate = false; // found: with its work, not with the loop
};
mlir::LogicalResult verifySums(plan::LoopOp, llvm::MutableArrayRef<LoopSum>);

// VerifyParts.cpp: in which order a worker runs the parts of a loop body. Every part takes the micro-batches one after the other.
bool overlaps(plan::LoopOp); // are there actions of the next step among those of the loop?
bool inTurns(plan::LoopOp);  // the parts take turns, so that they are the body as a whole
bool alwaysBehind(plan::LoopOp, int from, int to);   // every micro-batch runs part `to` behind part `from`
int64_t mostWaiting(plan::LoopOp, int from, int to); // micro-batches that have begun one part and not ended a later one, at most

// VerifyCopies.cpp. A state that lies on the host has bytes of pinned memory of its own, and so has a value of the loop that waits there. What is
// copied from there lives in the arena from the begin of the copy, and what is copied there to the end of it; it is awaited before anybody
// reads it. A state goes back where it came from, behind the gate, and a value is there before it is fetched.
class HostCopies {
public:
  // `lives`: of the function; copies become a part of them.
  HostCopies(mlir::func::FuncOp function, Lives &lives) : function(function), lives(lives) {
    for (auto op : function.getOps<plan::GateOp>())
      gate = op;
  }

  mlir::LogicalResult place(mlir::BlockArgument argument, int64_t offset); // an argument on the host
  // A copy begins, or is waited for. `value`: what a store copies, in the loop that makes it if there is one.
  mlir::LogicalResult number(mlir::Operation &op, int64_t time, mlir::Value value);
  mlir::LogicalResult verifyEnd();                                         // of a trip of a loop, of the function: nothing is under way
  bool isOnHost(mlir::Value value) const { return hostOffset.count(value); }
  bool isUnderWay(mlir::Value copy) const { return underWay.count(copy); }

private:
  const char *take(int64_t offset, int64_t bytes);
  mlir::func::FuncOp function;
  Lives &lives;
  plan::GateOp gate; // null: there is none
  llvm::DenseMap<mlir::Value, int64_t> hostOffset;  // of arguments on the host, and of values that were stored there
  std::map<int64_t, int64_t> hostEnds;              // of them: end -> begin
  llvm::DenseSet<int64_t> states;                   // offsets of arguments
  llvm::MapVector<mlir::Value, mlir::Value> underWay; // copies -> what they copy in the arena
  std::map<int64_t, int64_t> cameTo;                // of places on the host: where their last copy went
};

} // namespace cinch
#endif
