// Exchanges.cpp: each worker goes as far as it can, until none can go on.
#include "compiler/solve/stages/Exchanges.h"

#include <algorithm>

namespace cinch::solve {

bool ExchangesEnd::isGood() const {
  return finished && std::all_of(unread.begin(), unread.end(), [](int64_t count) { return count == 0; });
}

ExchangesEnd run(const std::vector<std::vector<Exchange>> &workers, const std::vector<int> &boxes) {
  ExchangesEnd end;
  end.at.assign(workers.size(), 0), end.unread.assign(boxes.size(), 0);
  std::vector<int64_t> done(workers.size(), 0); // messages of the exchange that a worker stands in
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t w = 0; w < workers.size(); ++w)
      for (; end.at[w] < workers[w].size(); ++end.at[w], done[w] = 0) {
        const Exchange &exchange = workers[w][end.at[w]];
        int64_t &held = end.unread[size_t(exchange.channel)];
        int64_t possible = exchange.sent ? boxes[size_t(exchange.channel)] - held : held;
        int64_t now = std::min(possible, exchange.messages - done[w]);
        held += exchange.sent ? now : -now;
        done[w] += now;
        moved |= now > 0;
        if (done[w] < exchange.messages)
          break;
      }
  }
  end.finished = true;
  for (size_t w = 0; w < workers.size(); ++w)
    end.finished &= end.at[w] == workers[w].size();
  return end;
}

} // namespace cinch::solve
