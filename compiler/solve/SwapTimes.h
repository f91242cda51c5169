// SwapTimes.h: when the copies of given values begin and are waited for, and how long the loop takes then, by simulation of kernels and copies
// (Engines.h).
//
// A copy out begins behind the kernel that makes the value, or behind its last use before the gap. It is waited for when it has ended anyway, or when its
// bytes are needed. Copies in begin in the order of their uses, each as soon as its direction is free and there is room until the use, or, if so
// asked, no earlier than all need to be in time.
#ifndef CINCH_COMPILER_SOLVE_SWAPTIMES_H
#define CINCH_COMPILER_SOLVE_SWAPTIMES_H

#include "compiler/solve/Swap.h"

namespace cinch::solve {

// A value that nobody uses between two runs of the loop.
struct IdleValue {
  int buffer = -1;
  int made = 0, from = 0, to = 0; // runs of the loop: that makes it, the last use before the gap, the first behind it
  int64_t bytes = 0;
};

// A schedule of a main loop.
struct SwapLoop {
  HostLink link;
  std::vector<double> seconds; // of runs
  std::vector<double> begins;  // of runs, without waiting; one more for the end
  std::vector<int64_t> alive;  // bytes during runs, if nothing leaves
  std::vector<IdleValue> idle;
};

// A value that leaves. `late`: the copy out begins behind the last use.
struct Away {
  int value = 0;
  bool late = false;
};

class SwapTimes {
public:
  static constexpr double kNever = 1e300;
  // The loop must outlive this.
  explicit SwapTimes(const SwapLoop &);
  // Seconds of the body with these values away, in `room` bytes; kNever: too much is alive.
  double run(const std::vector<Away> &, bool inTime, int64_t room, std::vector<Swap> *moments = nullptr);

private:
  void start(const std::vector<Away> &);
  bool findNeeded(int64_t room);
  void findLatest(bool inTime);
  void store(int t);
  bool leave(int t, int64_t room);
  void leaveNow(size_t at, int t);
  void leaveIfEnded(int t);
  void fetchAhead(int t, int64_t room);
  bool hasRoom(int i, int t, int64_t room);
  void fetch(int i, int t);

  // A value on its way. Moments as in Swap, -1: not yet.
  struct Trip {
    const IdleValue *value = nullptr;
    Swap when;
    double storeEnd = 0, fetchEnd = 0;
    double latest = 0; // begin of the copy in
    int blocked = -1;  // a run at which there is no room for it, whatever leaves
  };

  const SwapLoop &loop;
  std::vector<Trip> trips;
  std::vector<std::vector<int>> storesAt, gapsAt, usesAt; // before each run: trips
  std::vector<int> order;                                 // of the copies in
  std::vector<int64_t> needed, early;                     // bytes during runs: at least, and of what has come back before its use
  std::vector<int> leaving;
  int64_t leavingBytes = 0;
  double now = 0, freeOut = 0, freeIn = 0;
  size_t next = 0; // of `order`
};

} // namespace cinch::solve
#endif
