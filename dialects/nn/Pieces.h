// Pieces.h: what ops say of an update that is done in runs of rows (compiler/transforms/CutUpdates.h), by discardable attributes.
#ifndef CINCH_DIALECTS_NN_PIECES_H
#define CINCH_DIALECTS_NN_PIECES_H

#include "dialects/nn/Shards.h"

namespace cinch::nn {

inline constexpr llvm::StringLiteral kPieceAttr = "nn.piece", // of an op: it updates the run of rows of this number; absent: it updates none
    kJoinsAttr = "nn.joins", // of a concat: its operands are the runs of rows of a new parameter
    kRowsAttr = "nn.rows";   // of a function: it has such updates

// The number of the run of rows that an op updates; -1: none.
inline int pieceOf(mlir::Operation *op) {
  auto piece = op->getAttrOfType<mlir::IntegerAttr>(kPieceAttr);
  return piece ? int(piece.getInt()) : -1;
}

// Two ops that different workers may do: of different shards, or of different pieces. They share no kernel.
inline bool areApart(mlir::Operation *a, mlir::Operation *b) { return shardOf(a) != shardOf(b) || pieceOf(a) != pieceOf(b); }

} // namespace cinch::nn
#endif
