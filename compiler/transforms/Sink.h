// Sink.h: the walk of a pass that moves one kind of op down to the readers of its result.
#ifndef CINCH_COMPILER_TRANSFORMS_SINK_H
#define CINCH_COMPILER_TRANSFORMS_SINK_H

#include "mlir/IR/Builders.h"
#include "mlir/Interfaces/SideEffectInterfaces.h"

namespace cinch {

// Calls `visit` with each op that `block` had at first, in their order, with `builder` in front of it.
template <typename Visit>
void visitForward(mlir::Block &block, mlir::OpBuilder &builder, Visit visit) {
  llvm::SmallVector<mlir::Operation *> ops;
  for (mlir::Operation &op : block.without_terminator())
    ops.push_back(&op);
  for (mlir::Operation *op : ops) {
    builder.setInsertionPoint(op);
    visit(op);
  }
}

// Erases the ops of `block` that nothing reads any longer, readers before what they read.
inline void eraseDead(mlir::Block &block) {
  for (mlir::Operation &op : llvm::make_early_inc_range(llvm::reverse(block)))
    if (isOpTriviallyDead(&op))
      op.erase();
}

} // namespace cinch
#endif
