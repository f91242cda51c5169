// LINK: cinch_solve
// Pieces that replicas hand out among them: against all ways, and wrong answers.
#include "compiler/solve/stages/Pieces.h"
#include "test/unit/Expect.h"

#include <algorithm>
#include <random>

using namespace cinch::solve;

// The bytes of the fullest worker, computed apart from the solver.
static int64_t mostOf(const PiecesProblem &p, const std::vector<int> &replica) {
  int64_t most = 0;
  for (int d = 0; d < p.replicas; ++d)
    for (int shard = 0; shard < p.shards; ++shard) {
      int64_t bytes = 0;
      for (size_t i = 0; i < p.pieces.size(); ++i)
        bytes += replica[i] == d && (p.pieces[i].shard < 0 || p.pieces[i].shard == shard) ? p.pieces[i].bytes : 0;
      most = std::max(most, bytes);
    }
  return most;
}

static int64_t bestOf(const PiecesProblem &p) {
  std::vector<int> replica(p.pieces.size(), 0);
  int64_t best = INT64_MAX;
  while (true) {
    best = std::min(best, mostOf(p, replica));
    size_t i = 0;
    while (i < replica.size() && ++replica[i] == p.replicas)
      replica[i++] = 0;
    if (i == replica.size())
      return best;
  }
}

static void againstAllWays() {
  std::mt19937 random(5);
  auto below = [&](int n) { return int(random() % unsigned(n)); };
  for (int round = 0; round < 2000; ++round) {
    Case one;
    PiecesProblem p;
    p.replicas = 1 + below(4), p.shards = 1 + below(3);
    for (int pieces = below(p.replicas > 3 ? 7 : 8); pieces > 0; --pieces)
      p.pieces.push_back({below(2) ? -1 : below(p.shards), below(round % 2 ? 8 : 1000)});
    expect(check(p).empty(), "a sane problem is refused: " + check(p));
    PiecesSolution s = solve(p);
    expect(verify(p, s).empty(), verify(p, s));
    expect(s.exact && s.most == bestOf(p), std::to_string(s.most) + " bytes at most, the best way has " + std::to_string(bestOf(p)));
    PiecesSolution quick = solve(p, 0);
    expect(verify(p, quick).empty() && (!quick.exact || quick.most == s.most), "the first way says that it is the best, and is not");
    if (p.pieces.empty())
      continue;
    PiecesSolution wrong = s;
    wrong.most += 1;
    expect(!verify(p, wrong).empty(), "a wrong number of bytes is accepted");
    wrong = s;
    wrong.replica.back() = p.replicas;
    expect(!verify(p, wrong).empty(), "a replica that is not there is accepted");
    wrong = s;
    wrong.replica.pop_back();
    expect(!verify(p, wrong).empty(), "a piece without a replica is accepted");
  }
}

// Many of them, as a deep model has: at most a third above an even share and the largest piece.
static void manyPieces() {
  Case one;
  std::mt19937 random(6);
  PiecesProblem p;
  p.replicas = 8;
  int64_t all = 0, largest = 0;
  for (int i = 0; i < 600; ++i) {
    p.pieces.push_back({-1, int64_t(random() % 4096)});
    all += p.pieces.back().bytes, largest = std::max(largest, p.pieces.back().bytes);
  }
  PiecesSolution s = solve(p);
  expect(verify(p, s).empty(), verify(p, s));
  expect(s.most <= all / 8 + largest / 3, "a replica has " + std::to_string(s.most) + " bytes of " + std::to_string(all));
}

static void notSane() {
  Case one;
  expect(!check({0, 1, {}}).empty() && !check({1, 0, {}}).empty(), "a problem without workers is accepted");
  expect(!check({2, 2, {{2, 1}}}).empty() && !check({2, 2, {{-2, 1}}}).empty(), "a shard that is not there is accepted");
  expect(!check({2, 2, {{0, -1}}}).empty(), "a piece of less than nothing is accepted");
}

int main() {
  againstAllWays();
  manyPieces();
  notSane();
  return tally();
}
