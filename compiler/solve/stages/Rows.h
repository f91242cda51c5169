// Rows.h: into how many runs of rows the large ones of many tensors are cut, so that workers can share them.
//
// The largest piece is cut further until no worker has more than an eighth above an even share (as Pieces.h gives them out), or no cut helps.
// Every run is a kernel of its own, so that what is small stays whole.
#ifndef CINCH_COMPILER_SOLVE_STAGES_ROWS_H
#define CINCH_COMPILER_SOLVE_STAGES_ROWS_H

#include <cstdint>
#include <string>
#include <vector>

namespace cinch::solve {

struct RowsProblem {
  int workers = 1;
  int64_t least = 1; // bytes of a run
  struct Tensor {
    int64_t bytes = 0;
    int64_t rows = 1; // 1: it cannot be cut
  };
  std::vector<Tensor> tensors;
};

struct RowsSolution {
  std::vector<int64_t> parts; // of each tensor, all of as many rows
  int64_t most = 0;           // bytes of the worker that has most
};

RowsSolution solve(const RowsProblem &);

// Empty, or what is wrong with an answer.
std::string verify(const RowsProblem &, const RowsSolution &);

} // namespace cinch::solve
#endif
