// Exchanges.h: do workers that send and receive in a fixed order come to their end?
//
// A worker goes through its exchanges in order. It waits before it sends into a full channel, and before it receives from an empty one. What
// happens depends on the order and on the channels' room alone, never on the timing (a Kahn network with bounded channels).
#ifndef CINCH_COMPILER_SOLVE_STAGES_EXCHANGES_H
#define CINCH_COMPILER_SOLVE_STAGES_EXCHANGES_H

#include <cstddef>
#include <cstdint>
#include <vector>

namespace cinch::solve {

struct Exchange {
  int channel = 0;
  bool sent = false;    // else received
  int64_t messages = 1; // one behind the other
};

struct ExchangesEnd {
  std::vector<size_t> at;     // of each worker: the exchange that it waits in; their number if it has come to its end
  std::vector<int64_t> unread; // of each channel: messages that nobody receives
  bool isGood() const;
  bool finished = false; // all workers
};

// `boxes`: messages that a channel holds, at least 1.
ExchangesEnd run(const std::vector<std::vector<Exchange>> &workers, const std::vector<int> &boxes);

} // namespace cinch::solve
#endif
