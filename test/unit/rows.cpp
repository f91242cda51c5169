// LINK: cinch_solve
// Into how many runs of rows large tensors are cut: shares against a lower bound, what cannot be cut, and wrong answers.
#include "compiler/solve/stages/Rows.h"
#include "test/unit/Expect.h"

#include <algorithm>
#include <random>

using namespace cinch::solve;

static int64_t all(const RowsProblem &p) {
  int64_t bytes = 0;
  for (const RowsProblem::Tensor &tensor : p.tensors)
    bytes += tensor.bytes;
  return bytes;
}

static void evenShares() {
  std::mt19937 random(7);
  for (int round = 0; round < 500; ++round) {
    Case one;
    RowsProblem p;
    p.workers = 2 + int(random() % 7);
    // Rows that every number of workers divides: whatever the sizes are, all can have alike.
    for (int tensors = 1 + int(random() % 6); tensors > 0; --tensors)
      p.tensors.push_back({840 * 64 * int64_t(1 + random() % 1000), 840});
    RowsSolution s = solve(p);
    expect(verify(p, s).empty(), verify(p, s));
    expect(s.most <= all(p) / p.workers * 9 / 8, std::to_string(s.most) + " bytes of " + std::to_string(all(p)) + " on one of " +
                                                       std::to_string(p.workers) + " workers");
  }
}

static void onlyWhatIsLarge() {
  Case one;
  RowsSolution s = solve({4, 1, {{4096, 4096}, {64, 64}, {64, 64}}});
  expect(s.parts == std::vector<int64_t>({4, 1, 1}), "small tensors are cut, or the large one is not cut in four");
  s = solve({2, 1, {{1000, 8}, {1000, 8}}});
  expect(s.parts == std::vector<int64_t>({1, 1}) && s.most == 1000, "what is even is cut");
  s = solve({4, 1, {{1000, 8}, {1000, 8}}});
  expect(s.parts == std::vector<int64_t>({4, 4}) && s.most == 500, "of two like tensors only one is cut");
  s = solve({4, 1, {{1000, 7}, {10, 1}}});
  expect(s.parts[0] == 7 && s.parts[1] == 1 && s.most == 2 * (1000 / 7), "seven rows are not cut into seven");
  s = solve({4, 1, {{1000, 1}, {100, 4}}});
  expect(s.parts == std::vector<int64_t>({1, 1}) && s.most == 1000, "a tensor is cut although another one, that cannot be cut, has more");
  s = solve({4, 500, {{1000, 8}}});
  expect(s.parts == std::vector<int64_t>({2}), "parts are smaller than what a part is at least");
  s = solve({3, 1, {}});
  expect(s.parts.empty() && s.most == 0, "no tensors");
}

static void wrongAnswers() {
  Case one;
  RowsProblem p{4, 1, {{1000, 8}, {10, 1}}};
  RowsSolution s = solve(p), wrong = s;
  wrong.parts[0] = 3;
  expect(!verify(p, wrong).empty(), "parts of unlike sizes are accepted");
  wrong = s;
  wrong.parts[1] = 0;
  expect(!verify(p, wrong).empty(), "no part is accepted");
  RowsProblem larger = p;
  larger.least = 900;
  expect(!verify(larger, s).empty(), "a part that is too small is accepted");
  wrong = s;
  wrong.most -= 1;
  expect(!verify(p, wrong).empty(), "a wrong number of bytes is accepted");
  wrong = s;
  wrong.parts.pop_back();
  expect(!verify(p, wrong).empty(), "a tensor without a number is accepted");
}

int main() {
  evenShares();
  onlyWhatIsLarge();
  wrongAnswers();
  return tally();
}
