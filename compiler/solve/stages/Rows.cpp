// Rows.cpp: see Rows.h.
#include "compiler/solve/stages/Rows.h"

#include "compiler/solve/Evaluate.h"
#include "compiler/solve/stages/Pieces.h"

#include <algorithm>

namespace cinch::solve {
namespace {

int64_t mostWith(const RowsProblem &problem, const std::vector<int64_t> &parts) {
  PiecesProblem pieces{problem.workers, 1, {}};
  for (size_t i = 0; i < problem.tensors.size(); ++i)
    for (int64_t part = 0; part < parts[i]; ++part)
      pieces.pieces.push_back({-1, problem.tensors[i].bytes / parts[i]});
  return solve(pieces, 10'000).most;
}

// The least number of parts above `parts` that the rows can be cut into, a worker's each if that many do not suffice; 0: there is none.
int64_t nextParts(const RowsProblem &problem, const RowsProblem::Tensor &tensor, int64_t parts) {
  int64_t next = 0;
  for (int64_t divisor : divisors(tensor.rows))
    if (divisor > parts && divisor <= 4 * problem.workers && tensor.bytes / divisor >= problem.least && (next == 0 || next < problem.workers))
      next = divisor;
  return next;
}

} // namespace

RowsSolution solve(const RowsProblem &problem) {
  RowsSolution now{std::vector<int64_t>(problem.tensors.size(), 1), 0};
  int64_t all = 0;
  for (const RowsProblem::Tensor &tensor : problem.tensors)
    all += tensor.bytes;
  now.most = mostWith(problem, now.parts);
  RowsSolution best = now;
  std::vector<bool> done(problem.tensors.size(), false);
  while (best.most > all / problem.workers * 9 / 8) {
    size_t largest = problem.tensors.size();
    auto partOf = [&](size_t i) { return problem.tensors[i].bytes / now.parts[i]; };
    for (size_t i = 0; i < problem.tensors.size(); ++i)
      if (!done[i] && (largest == problem.tensors.size() || partOf(i) > partOf(largest)))
        largest = i;
    if (largest == problem.tensors.size())
      break;
    int64_t parts = nextParts(problem, problem.tensors[largest], now.parts[largest]);
    if (parts == 0) {
      done[largest] = true;
      continue;
    }
    now.parts[largest] = parts;
    now.most = mostWith(problem, now.parts);
    if (now.most < best.most) // of two like tensors the first cut alone gains nothing
      best = now;
  }
  return best;
}

std::string verify(const RowsProblem &problem, const RowsSolution &solution) {
  if (solution.parts.size() != problem.tensors.size())
    return "not every tensor has a number of parts";
  for (size_t i = 0; i < solution.parts.size(); ++i)
    if (solution.parts[i] < 1 || problem.tensors[i].rows % solution.parts[i] != 0)
      return "the parts of a tensor have not as many rows";
    else if (solution.parts[i] > 1 && problem.tensors[i].bytes / solution.parts[i] < problem.least)
      return "a part is too small";
  int64_t most = mostWith(problem, solution.parts);
  return most == solution.most ? "" : "the worker that has most has " + std::to_string(most) + " bytes, not " + std::to_string(solution.most);
}

} // namespace cinch::solve
