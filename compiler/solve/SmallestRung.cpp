// SmallestRung.cpp: loops brought down to fewer bytes, and packings that must keep their room.
#include "compiler/solve/SmallestRung.h"

namespace cinch::solve {

Loops startsOf(Refiner &refiner, std::vector<int> own, const Loops &above, int64_t target, int steps, size_t most) {
  Loops starts{std::move(own)};
  for (size_t i = above.size(); i-- > 0 && starts.size() < most;)
    if (std::vector<int> loop = refiner.lowered(above[i], target, target, steps); !loop.empty())
      starts.push_back(std::move(loop));
  return starts;
}

PackedInto::PackedInto(const GraphIndex &index, int64_t b, int64_t room, double fastest, int64_t placings, int64_t work)
    : index(index), microbatch(b), room(room), fastest(fastest), left(placings) {
  int64_t persistent = 0;
  for (size_t v = 0; v < index.graph.buffers.size(); ++v)
    persistent += index.persistent[v] ? index.graph.buffers[v].bytes(b) : 0;
  limits.work = work, limits.capacity = room - persistent, limits.onlyWithin = true;
}

Serves PackedInto::operator()(const std::vector<int> &loop) {
  double seconds = predictedSeconds(index, microbatch, loop);
  if (best && seconds >= best->seconds) // on the way to something faster
    return Serves::Yes;
  if (left <= 0)
    return Serves::NoneWill;
  if (seconds < fastest)
    return Serves::No;
  Plan plan = evaluate(index, {microbatch, loop}, limits);
  left -= int64_t(plan.decision.storages.size());
  if (!plan.error.empty() || plan.decision.arenaBytes > room)
    return Serves::No;
  best = std::make_shared<Plan>(std::move(plan)), bestLoop = loop;
  return Serves::Yes;
}

} // namespace cinch::solve
