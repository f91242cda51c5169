// LINK:
// launch_times: medians of what launches and steps took, from nanoseconds to days, and of more calls than are remembered.
#include "runtime/LaunchTime.h"
#include "test/unit/Expect.h"

#include <algorithm>
#include <cmath>
#include <random>
#include <string>
#include <vector>

using namespace cinch;

int main() {
  std::mt19937_64 draw(7);
  for (int64_t most : {int64_t(1), int64_t(900), int64_t(80'000), int64_t(3'000'000'000), int64_t(200'000'000'000'000)})
    for (int calls : {1, 2, 3, 30, 31, 32, 100}) {
      rt::LaunchTime time;
      std::vector<int64_t> all;
      for (int i = 0; i < calls; ++i) {
        all.push_back(int64_t(draw() % uint64_t(most)) + most);
        time.add(all.back());
      }
      int64_t sum = 0;
      for (int64_t one : all)
        sum += one;
      std::string name = std::to_string(calls) + " calls of " + std::to_string(most) + " ns and more";
      expect(time.sum == sum && time.calls == calls && time.least == *std::min_element(all.begin(), all.end()), name + ": sum and least");
      std::vector<int64_t> latest(all.end() - std::min<int64_t>(calls, rt::LaunchTime::kRecent), all.end());
      std::sort(latest.begin(), latest.end());
      int64_t median = latest[latest.size() / 2];
      expect(std::fabs(double(time.median() - median)) <= 1e-6 * double(median), name + ": median");
    }
  return tally();
}
