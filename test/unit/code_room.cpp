// LINK: cinch_solve
// The part of a budget that is kept for code, in worlds that are drawn: a few plans, each with bytes, time and code of some length, and a first
// guess of it. A search in some room finds the fastest plan, and, where none fits, the smallest one. Seen: every compilation ends; a budget that is
// refused is smaller than the one that is named; what is named compiles, and so does every larger budget; where the guess is enough for the code of
// the smallest plan, no budget below compiles.
#include "test/unit/Expect.h"
#include "compiler/solve/Random.h"
#include "compiler/tools/CodeRoom.h"

#include <algorithm>
#include <string>
#include <vector>

using cinch::CodeRoom;

namespace {
struct Plan {
  int64_t arena, code;
  double seconds;
};
struct World {
  std::vector<Plan> plans;
  int64_t guess;
  // Bytes of the budget that the executable takes, or those that the refusal names, as a negative number. 0: it does not end.
  int64_t compile(int64_t budget) const {
    const Plan &smallest = *std::min_element(plans.begin(), plans.end(), [](const Plan &a, const Plan &b) { return a.arena < b.arena; });
    CodeRoom code;
    for (int tries = 0; tries < 20; ++tries) {
      const int64_t allowance = guess + code.granted(), room = std::max<int64_t>(0, budget - allowance);
      const Plan *best = code.leanestIn() && smallest.arena <= room ? &smallest : nullptr;
      for (const Plan &plan : plans)
        if (!code.leanestIn() && plan.arena <= room && (!best || plan.seconds < best->seconds))
          best = &plan;
      if (!best) {
        const int64_t needed = smallest.arena + smallest.code;
        if (code.refused(room, allowance - smallest.code, budget - needed) == CodeRoom::Next::Done)
          return -needed;
        continue;
      }
      const int64_t leftOver = allowance - best->code, spare = leftOver - (64 << 10);
      if (code.planned(leftOver, spare >= (64 << 10) ? spare : 0) == CodeRoom::Next::Done)
        return best->arena + best->code;
    }
    return 0;
  }
};
} // namespace

int main() {
  auto random = cinch::solve::Random::seeded(7);
  auto upTo = [&](int64_t most) { return random.below(most + 1); };
  int compiled = 0, refused = 0, enough = 0;
  for (int number = 0; number < 2000; ++number) {
    Case one;
    World world;
    const int64_t plans = 1 + upTo(5);
    for (int64_t i = 0; i < plans; ++i)
      world.plans.push_back({upTo(1 << 20), (16 + upTo(6)) << 16, double(1 + upTo(1000))});
    world.guess = (14 + upTo(10)) << 16;
    const int64_t named = -world.compile(0);
    const std::string name = "world " + std::to_string(number);
    expect(named > 0, name + ": no budget at all is refused");
    const Plan &smallest = *std::min_element(world.plans.begin(), world.plans.end(), [](const Plan &a, const Plan &b) { return a.arena < b.arena; });
    for (int64_t budget = named - (300 << 10); budget < named + (3 << 20); budget += 1 + upTo(40 << 10)) {
      const int64_t bytes = world.compile(budget);
      expect(bytes != 0, name + ": ends");
      expect(bytes < 0 ? -bytes > budget && budget < named : bytes <= budget, name + ": " + std::to_string(budget) + " gives " + std::to_string(bytes));
      expect(bytes > 0 || -bytes == named, name + ": all refusals name the same");
      expect(bytes < 0 || budget >= named || world.guess < smallest.code, name + ": none below compiles where the guess is enough");
      bytes > 0 ? ++compiled : ++refused;
      enough += world.guess >= smallest.code;
    }
    expect(world.compile(named) > 0, name + ": what is named compiles");
    expect(world.guess < smallest.code || world.compile(named - 1) < 0, name + ": a byte less does not");
  }
  expect(compiled > 1000 && refused > 1000 && enough > 1000, "there were some of each kind");
  return tally();
}
