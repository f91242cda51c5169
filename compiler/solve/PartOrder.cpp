// PartOrder.cpp: what follows from the order in which a worker runs the parts of its loop body.
#include "compiler/solve/Timeline.h"

#include <algorithm>

namespace cinch::solve {

std::vector<int64_t> firstOfParts(const std::vector<PartAction> &actions) {
  std::vector<int64_t> first;
  for (const PartAction &action : actions) {
    first.resize(std::max(first.size(), size_t(action.part) + 1), INT64_MAX);
    first[size_t(action.part)] = std::min(first[size_t(action.part)], action.microbatch);
  }
  std::replace(first.begin(), first.end(), INT64_MAX, int64_t(0)); // a part that never runs
  return first;
}

int64_t overlapOf(const std::vector<PartAction> &actions) {
  std::vector<int64_t> first = firstOfParts(actions);
  bool ahead = std::any_of(first.begin(), first.end(), [](int64_t microbatch) { return microbatch > 0; });
  return ahead ? int64_t(actions.size() / first.size()) : 0;
}

std::vector<std::vector<int64_t>> copiesBetweenParts(const std::vector<PartAction> &actions) {
  std::vector<int64_t> next = firstOfParts(actions); // of each part: the micro-batch that it takes next
  int parts = int(next.size());
  int64_t overlap = overlapOf(actions);
  std::vector<std::vector<int64_t>> copies(parts, std::vector<int64_t>(parts, 1));
  for (const PartAction &action : actions) {
    for (int later = action.part + 1; later < parts; ++later)
      copies[action.part][later] = std::max(copies[action.part][later], next[action.part] + 1 - next[later]);
    ++next[action.part];
  }
  for (std::vector<int64_t> &row : copies)
    for (int64_t &count : row)
      while (overlap && count < overlap && overlap % count)
        ++count;
  // Parts in turns are the body as a whole.
  if (parts < 2 || (copies[0][parts - 1] == 1 && partsKeepOrder(actions)))
    copies.clear();
  return copies;
}

bool partsKeepOrder(const std::vector<PartAction> &actions) {
  std::vector<int64_t> first = firstOfParts(actions);
  std::vector<int> next; // of each micro-batch: the part that it runs next
  for (const PartAction &action : actions) {
    for (int64_t k = int64_t(next.size()); k <= action.microbatch; ++k) // parts that it ran with the step before
      next.push_back(int(std::count_if(first.begin(), first.end(), [&](int64_t begin) { return begin > k; })));
    if (action.part != next[size_t(action.microbatch)]++)
      return false;
  }
  return true;
}

std::vector<std::vector<char>> partsThatFind(const std::vector<PartAction> &actions) {
  if (partsKeepOrder(actions))
    return {};
  size_t parts = firstOfParts(actions).size();
  std::vector<std::vector<char>> finds(parts, std::vector<char>(parts, 1));
  std::vector<std::vector<char>> done; // of each micro-batch: the parts that it has run
  for (const PartAction &action : actions) {
    done.resize(std::max(done.size(), size_t(action.microbatch) + 1), std::vector<char>(parts, 0));
    std::vector<char> &mine = done[size_t(action.microbatch)];
    for (size_t from = 0; from < parts; ++from)
      finds[from][size_t(action.part)] &= mine[from];
    mine[size_t(action.part)] = 1;
  }
  return finds;
}

} // namespace cinch::solve
