// LINK: cinch_solve
// The commands `solve remat`, `solve arena` and `solve stages` as a program of their own, for tests of the planners alone. Without
// arguments it runs a few wrong command lines, each of which must be refused as a wrong usage.
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/stages/Split.h"

#include <cstdio>

int main(int argc, char **argv) {
  std::vector<std::string> arguments(argv + std::min(argc, 2), argv + argc);
  std::string command = argc > 1 ? argv[1] : "";
  if (command == "remat")
    return cinch::solve::solveRematMain(arguments);
  if (command == "stages")
    return cinch::solve::solveStagesMain(arguments);
  if (command == "arena")
    return cinch::solve::solveArenaMain(arguments);
  int failed = 0, passed = 0;
  std::vector<std::vector<std::string>> wrong = {{},
                                                 {"g.json"},
                                                 {"--budget", "1"},
                                                 {"no-such-file.json", "--budget", "1"},
                                                 {"g.json", "--budget", "1KiB"},
                                                 {"g.json", "--budget"},
                                                 {"g.json", "--budget", "-1"},
                                                 {"g.json", "--capacity", "5"},
                                                 {"a", "b", "--budget=1"}};
  for (auto &line : wrong)
    (cinch::solve::solveRematMain(line) == 2 ? passed : failed)++;
  wrong = {{},
           {"no-such-file.json"},
           {"c.json", "--stages"},
           {"c.json", "--stages", "-1"},
           {"c.json", "--schedule", "pipedream"},
           {"c.json", "--budget", "1MiB"},
           {"c.json", "--order", "free"},
           {"a", "b"}};
  for (auto &line : wrong)
    (cinch::solve::solveStagesMain(line) == 2 ? passed : failed)++;
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
