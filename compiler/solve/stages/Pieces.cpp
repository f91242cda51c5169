// Pieces.cpp: see Pieces.h.
#include "compiler/solve/stages/Pieces.h"

#include <algorithm>
#include <numeric>

namespace cinch::solve {
namespace {

// Bytes of every worker: [replica][shard].
using Loads = std::vector<std::vector<int64_t>>;

int64_t mostOf(const std::vector<int64_t> &shards) { return *std::max_element(shards.begin(), shards.end()); }

void add(std::vector<int64_t> &shards, const PiecesProblem::Piece &piece, int64_t bytes) {
  for (int shard = 0; shard < int(shards.size()); ++shard)
    if (piece.shard < 0 || piece.shard == shard)
      shards[size_t(shard)] += bytes;
}

class Search {
public:
  Search(const PiecesProblem &problem, int64_t limit) : problem(problem), left(limit), order(problem.pieces.size()) {
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return problem.pieces[a].bytes > problem.pieces[b].bytes; });
    Loads all(1, std::vector<int64_t>(size_t(problem.shards), 0));
    for (const PiecesProblem::Piece &piece : problem.pieces) {
      add(all.front(), piece, piece.bytes);
      least = std::max(least, piece.bytes);
    }
    least = std::max(least, (mostOf(all.front()) + problem.replicas - 1) / problem.replicas);
  }

  PiecesSolution run() {
    Loads loads(size_t(problem.replicas), std::vector<int64_t>(size_t(problem.shards), 0));
    replica.assign(problem.pieces.size(), 0);
    for (size_t i : order) {
      int to = 0;
      int64_t lowest = INT64_MAX;
      for (int d = 0; d < problem.replicas; ++d) {
        std::vector<int64_t> with = loads[size_t(d)];
        add(with, problem.pieces[i], problem.pieces[i].bytes);
        if (mostOf(with) < lowest)
          lowest = mostOf(with), to = d;
      }
      add(loads[size_t(to)], problem.pieces[i], problem.pieces[i].bytes);
      replica[i] = to;
    }
    best.replica = replica;
    for (const std::vector<int64_t> &shards : loads)
      best.most = std::max(best.most, mostOf(shards));
    for (std::vector<int64_t> &shards : loads)
      std::fill(shards.begin(), shards.end(), 0);
    place(0, loads);
    best.exact = best.most == least || left > 0;
    return std::move(best);
  }

private:
  void place(size_t at, Loads &loads) {
    if (best.most == least || left <= 0)
      return;
    if (at == order.size()) {
      best.replica = replica, best.most = 0;
      for (const std::vector<int64_t> &shards : loads)
        best.most = std::max(best.most, mostOf(shards));
      return;
    }
    const PiecesProblem::Piece &piece = problem.pieces[order[at]];
    for (int d = 0; d < problem.replicas; ++d) {
      std::vector<int64_t> &shards = loads[size_t(d)];
      if (std::find(loads.begin(), loads.begin() + d, shards) != loads.begin() + d) // a replica that has as much was tried
        continue;
      --left;
      add(shards, piece, piece.bytes);
      replica[order[at]] = d;
      if (mostOf(shards) < best.most)
        place(at + 1, loads);
      add(shards, piece, -piece.bytes);
    }
  }

  const PiecesProblem &problem;
  int64_t left;
  int64_t least = 0; // no way is below
  std::vector<size_t> order;
  std::vector<int> replica;
  PiecesSolution best;
};

} // namespace

std::string check(const PiecesProblem &problem) {
  if (problem.replicas < 1 || problem.shards < 1)
    return "there are no workers";
  for (const PiecesProblem::Piece &piece : problem.pieces)
    if (piece.bytes < 0 || piece.shard < -1 || piece.shard >= problem.shards)
      return "a piece has a negative size, or a shard that is not there";
  return "";
}

PiecesSolution solve(const PiecesProblem &problem, int64_t limit) { return Search(problem, limit).run(); }

std::string verify(const PiecesProblem &problem, const PiecesSolution &solution) {
  if (solution.replica.size() != problem.pieces.size())
    return "not every piece has a replica";
  Loads loads(size_t(problem.replicas), std::vector<int64_t>(size_t(problem.shards), 0));
  for (size_t i = 0; i < problem.pieces.size(); ++i) {
    if (solution.replica[i] < 0 || solution.replica[i] >= problem.replicas)
      return "a piece lies with a replica that is not there";
    add(loads[size_t(solution.replica[i])], problem.pieces[i], problem.pieces[i].bytes);
  }
  int64_t most = 0;
  for (const std::vector<int64_t> &shards : loads)
    most = std::max(most, mostOf(shards));
  return most == solution.most ? "" : "the worker that has most has " + std::to_string(most) + " bytes, not " + std::to_string(solution.most);
}

} // namespace cinch::solve
