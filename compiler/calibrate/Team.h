// Team.h: threads that run a kernel together, as the pool of a trained program does, and the seconds that it takes.
#ifndef CINCH_COMPILER_CALIBRATE_TEAM_H
#define CINCH_COMPILER_CALIBRATE_TEAM_H

#include "compiler/target/KernelJit.h"

#include <atomic>
#include <thread>
#include <vector>

namespace cinch::calibrate {

class Team {
public:
  explicit Team(int threads);
  ~Team();
  Team(const Team &) = delete;

  // The caller is one of the threads.
  double seconds(target::KernelFunction kernel, char *arena, const int64_t *offsets);

private:
  void follow(int thread);

  int threads;
  std::vector<std::thread> others;
  std::atomic<uint64_t> call{0};
  std::atomic<int> done{0};
  std::atomic<bool> stop{false};
  target::KernelFunction kernel = nullptr; // of the call
  char *arena = nullptr;
  const int64_t *offsets = nullptr;
};

} // namespace cinch::calibrate
#endif
