// Pieces.h: which replica has which pieces of what replicas need once only: the optimizer's state, and the updates that read it.
//
// A stage has one worker a shard in every replica. A piece lies with one of these shards or with all of them, in one replica. No worker shall
// have much more than the others, because the budget is that of the one that has most.
#ifndef CINCH_COMPILER_SOLVE_STAGES_PIECES_H
#define CINCH_COMPILER_SOLVE_STAGES_PIECES_H

#include <cstdint>
#include <string>
#include <vector>

namespace cinch::solve {

struct PiecesProblem {
  int replicas = 1, shards = 1;
  struct Piece {
    int shard = -1; // -1: all of them
    int64_t bytes = 0;
  };
  std::vector<Piece> pieces;
};

struct PiecesSolution {
  std::vector<int> replica; // of each piece
  int64_t most = 0;         // bytes of the worker that has most
  bool exact = true;        // no other way has less there
};

// Empty, or what is wrong.
std::string check(const PiecesProblem &);

// The largest piece first, each to the replica that has least so far; then all ways, as far as `limit` tries go.
PiecesSolution solve(const PiecesProblem &, int64_t limit = 200'000);

// Empty, or what is wrong with an answer.
std::string verify(const PiecesProblem &, const PiecesSolution &);

} // namespace cinch::solve
#endif
