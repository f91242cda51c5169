// Channels.cpp: the workers run side by side, each as far as it can, until none can go on.
#include "compiler/solve/stages/Channels.h"

#include <algorithm>
#include <deque>

namespace cinch::solve {
namespace {

class Runner {
public:
  Runner(const ChannelProblem &problem, const std::vector<int> &boxes) : p(problem) {
    workers.resize(p.actions.size());
    for (size_t w = 0; w < p.begin.size(); ++w)
      workers[w].now = p.begin[w];
    full.resize(p.travel.size()), empty.resize(p.travel.size());
    for (size_t channel = 0; channel < p.travel.size(); ++channel)
      empty[channel].assign(size_t(boxes[channel]), {});
  }

  ChannelRun run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (size_t w = 0; w < workers.size(); ++w)
        while (step(int(w)))
          moved = true;
    }
    ChannelRun result;
    result.finished = true;
    for (size_t w = 0; w < workers.size(); ++w) {
      result.finished &= workers[w].action == p.actions[w].size();
      result.makespan = std::max(result.makespan, workers[w].now);
      result.busy.push_back(workers[w].busy);
      result.work.push_back(std::move(workers[w].work));
    }
    followChain(result);
    return result;
  }

private:
  struct Worker {
    size_t action = 0, message = 0; // where it is
    double done = 0;                // share of the action's work
    bool begun = false;
    double now = 0, busy = 0;
    int last = -1;                  // the link of a chain that it waited for, or did
    std::vector<ChannelRun::Work> work;
  };
  // Of a chain: some of the work of a part, and what was before it; -1: nothing.
  struct Link {
    int before, worker, part;
    double share;
  };
  struct Moment {
    double at = 0;
    int link = -1; // what it waits for
  };

  // From the worker that ends last.
  void followChain(ChannelRun &result) const {
    size_t slowest = 0;
    for (size_t w = 0; w < workers.size(); ++w) {
      result.critical.emplace_back(p.seconds[w].size(), 0.0);
      slowest = workers[w].now > workers[slowest].now ? w : slowest;
    }
    for (int link = workers.empty() ? -1 : workers[slowest].last; link >= 0; link = links[size_t(link)].before)
      result.critical[size_t(links[size_t(link)].worker)][size_t(links[size_t(link)].part)] += links[size_t(link)].share;
  }

  // Until that share is done.
  void work(int w, int part, double share) {
    Worker &worker = workers[size_t(w)];
    if (share <= worker.done && (share < 1 || worker.begun))
      return;
    double seconds = p.seconds[size_t(w)][size_t(part)] * std::max(0.0, share - worker.done);
    if (!worker.begun)
      worker.work.push_back({worker.now, worker.now});
    worker.begun = true;
    links.push_back({worker.last, w, part, std::max(0.0, share - worker.done)});
    worker.last = int(links.size()) - 1;
    worker.done = share;
    worker.now += seconds;
    worker.busy += seconds;
    worker.work.back().end = worker.now;
  }

  // Is the message one of this micro-batch?
  bool isDue(int w, const ChannelProblem::Message &message) const {
    const std::vector<PartAction> &actions = p.actions[size_t(w)];
    int64_t microbatch = actions[workers[size_t(w)].action].microbatch;
    return message.when == ChannelProblem::Message::Always ||
           (message.when == ChannelProblem::Message::First ? microbatch == 0 : microbatch == lastOf(actions));
  }
  int64_t lastOf(const std::vector<PartAction> &actions) const {
    int64_t last = std::max<int64_t>(0, p.last);
    if (p.last >= 0)
      return last;
    for (const PartAction &action : actions)
      last = std::max(last, action.microbatch);
    return last;
  }

  // The next message of the worker, or the end of its action; false if it must wait.
  bool step(int w) {
    Worker &worker = workers[size_t(w)];
    if (worker.action == p.actions[size_t(w)].size())
      return false;
    int part = p.actions[size_t(w)][worker.action].part;
    const std::vector<ChannelProblem::Message> &messages = p.messages[size_t(w)][size_t(part)];
    if (worker.message == messages.size()) {
      work(w, part, 1);
      ++worker.action;
      worker.message = 0, worker.done = 0, worker.begun = false;
      return true;
    }
    const ChannelProblem::Message &message = messages[worker.message];
    if (!isDue(w, message)) {
      ++worker.message;
      return true;
    }
    auto [channel, sent] = std::pair(message.channel, message.sent);
    if (double share = message.share < 0 ? double(sent) : message.share; share > 0)
      work(w, part, share);
    std::deque<Moment> &from = sent ? empty[size_t(channel)] : full[size_t(channel)];
    if (from.empty())
      return false;
    if (from.front().at > worker.now)
      worker.now = from.front().at, worker.last = from.front().link;
    from.pop_front();
    if (sent)
      full[size_t(channel)].push_back({worker.now + p.travel[size_t(channel)], worker.last});
    else
      empty[size_t(channel)].push_back({worker.now, worker.last});
    ++worker.message;
    return true;
  }

  const ChannelProblem &p;
  std::vector<Worker> workers;
  std::vector<Link> links;
  std::vector<std::deque<Moment>> full, empty; // when its messages arrive; when its empty boxes became empty
};

} // namespace

ChannelRun run(const ChannelProblem &problem, const std::vector<int> &boxes) { return Runner(problem, boxes).run(); }

std::vector<int> findBoxes(const ChannelProblem &problem) {
  // A channel never holds more than all messages of a step.
  std::vector<int> boxes(problem.travel.size(), 1), sent(problem.travel.size(), 0);
  for (size_t w = 0; w < problem.actions.size(); ++w)
    for (const PartAction &action : problem.actions[w])
      for (const ChannelProblem::Message &message : problem.messages[w][size_t(action.part)])
        if (message.sent && (message.when == ChannelProblem::Message::Always || action.microbatch == 0)) // one alone is as many as the first
          boxes[size_t(message.channel)] = std::max(1, ++sent[size_t(message.channel)]);
  ChannelRun best = run(problem, boxes);
  if (!best.finished)
    return {};
  // Fewer boxes never end sooner, so each channel's number is found by halving.
  for (int &box : boxes) {
    int low = 1, high = box;
    while (low < high) {
      box = low + (high - low) / 2;
      ChannelRun tried = run(problem, boxes);
      bool good = tried.finished && tried.makespan <= best.makespan * (1 + 1e-9);
      (good ? high : low) = good ? box : box + 1;
    }
    box = low;
  }
  return boxes;
}

} // namespace cinch::solve
