// Waiting.h: a line for people who wait.
#ifndef CINCH_COMPILER_TOOLS_WAITING_H
#define CINCH_COMPILER_TOOLS_WAITING_H

#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>

namespace cinch {

// While it lives, and from two seconds on, a terminal says how long `what` takes, in one line that is written again and
// again and wiped at the end. Where standard error is no terminal nothing is written: programs read it.
class Waiting {
public:
  explicit Waiting(std::string what);
  ~Waiting();

private:
  void watch();
  std::string what;
  std::mutex mutex;
  std::condition_variable ended;
  bool over = false;
  std::thread thread;
};

} // namespace cinch
#endif
