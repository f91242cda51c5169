// Simulate.cpp: the rows run action by action.
#include "compiler/solve/stages/Simulate.h"

#include <algorithm>

namespace cinch::solve {

std::vector<Transfer> chainTransfers(int stages, int64_t bytes) {
  std::vector<Transfer> transfers;
  for (int s = 0; s + 1 < stages; ++s)
    transfers.push_back({s, s + 1, bytes, bytes});
  return transfers;
}

namespace {

constexpr double kNever = -1;

// One run of a table. `ends` holds when the forward and the input gradient of a (stage, micro-batch) ended; `arrivals` when
// what a transfer carries has arrived, forward and backward.
class Run {
public:
  Run(const ScheduleTable &table, const TableCosts &costs, int known, double rest, std::vector<std::vector<Span>> *spans)
      : table(table), costs(costs), known(known), rest(rest), spans(spans), count(table.microbatchesOfAllSteps()),
        workers(int(table.rows.size())), at(workers, 0), clock(workers, 0), into(table.stages()), outOf(table.stages()),
        forwardEnd(table.stages() * size_t(count), kNever), updateReady(table.request.steps, 0),
        links(workers * size_t(workers), 0) {
    for (size_t t = 0; t < costs.transfers.size(); ++t)
      if (costs.transfers[t].to < known || costs.transfers[t].from < known) {
        into[costs.transfers[t].to].push_back(int(t));
        outOf[costs.transfers[t].from].push_back(int(t));
      }
    arrivals[0].assign(costs.transfers.size() * size_t(count), kNever);
    arrivals[1] = arrivals[0];
    if (spans) {
      for (int back : {0, 1}) {
        behind[back].assign(arrivals[back].size(), kOwnSender);
        placeOf[back].assign(forwardEnd.size(), {0, -1});
      }
      last.assign(workers * size_t(workers), kOwnSender);
      lastGradient.assign(updateReady.size(), {0, -1});
    }
    gradientsLeft.assign(table.request.steps, std::min(known, table.stages()) * table.request.microbatches);
  }

  // The moment at which the last action ends.
  double run() {
    for (bool moved = true; moved;) {
      moved = false;
      for (int w = 0; w < workers; ++w)
        while (at[w] < table.rows[w].size() && step(w))
          moved = true;
    }
    return *std::max_element(clock.begin(), clock.end());
  }

  // Of a run with spans that came to its end: back from the last action to whatever each began after.
  CriticalChain critical() const {
    CriticalChain chain;
    for (std::vector<double> *counts : {&chain.forward, &chain.input, &chain.weight})
      counts->assign(table.stages(), 0);
    chain.update.assign(workers, 0);
    chain.sent.assign(costs.transfers.size(), 0), chain.returned = chain.sent;
    Place place{int(std::max_element(clock.begin(), clock.end()) - clock.begin()), 0};
    for (place.index = int(table.rows[place.worker].size()) - 1; place.index >= 0; place = before(place, chain)) {
      const Action &a = table.rows[place.worker][place.index];
      if (a.kind == Action::Update) {
        ++chain.update[place.worker];
        continue;
      }
      chain.forward[a.stage] += a.kind == Action::Forward;
      chain.input[a.stage] += a.kind == Action::InputGradient || a.kind == Action::Backward;
      chain.weight[a.stage] += a.kind == Action::WeightGradient || a.kind == Action::Backward;
    }
    return chain;
  }

private:
  struct Place { // of an action
    int worker, index;
  };
  struct Message {
    int transfer, microbatch;
    bool back;
  };
  static constexpr Message kOwnSender = {-1, -1, false};

  // The action at whose end this one, or a message that it waited for, began; index -1: it began at zero.
  Place before(const Place &place, CriticalChain &chain) const {
    double begin = (*spans)[place.worker][place.index].begin;
    if (begin == 0)
      return {place.worker, -1};
    if (place.index > 0 && (*spans)[place.worker][place.index - 1].end == begin)
      return {place.worker, place.index - 1};
    const Action &a = table.rows[place.worker][place.index];
    if (a.kind == Action::Update)
      return lastGradient[a.microbatch];
    bool back = a.kind != Action::Forward;
    for (int t : back ? outOf[a.stage] : into[a.stage])
      if ((!back || costs.transfers[t].gradientBytes >= 0) && arrivals[back][key(t, a.microbatch)] == begin)
        return senderOf({t, a.microbatch, back}, chain);
    return placeOf[0][key(a.stage, a.microbatch)];
  }

  // Along the messages before this one on its link, as far back as each waited for the one before.
  Place senderOf(Message message, CriticalChain &chain) const {
    ++chain.hops;
    for (;; message = behind[message.back][key(message.transfer, message.microbatch)]) {
      ++(message.back ? chain.returned : chain.sent)[message.transfer];
      if (behind[message.back][key(message.transfer, message.microbatch)].transfer < 0)
        break;
    }
    const Transfer &t = costs.transfers[message.transfer];
    return placeOf[message.back][key(message.back ? t.to : t.from, message.microbatch)];
  }

  size_t key(int line, int microbatch) const { return line * size_t(count) + microbatch; }
  bool gated() const { return table.request.schedule != Schedule::TwoBW || table.request.gate; }

  // When everything that the action reads is there; kNever if it is not known yet.
  double ready(const Action &a) const {
    double when = 0;
    auto need = [&](double moment) { when = moment == kNever || when == kNever ? kNever : std::max(when, moment); };
    switch (a.kind) {
    case Action::Forward:
      for (int t : into[a.stage])
        need(arrivals[0][key(t, a.microbatch)]);
      break;
    case Action::InputGradient:
    case Action::Backward:
      need(forwardEnd[key(a.stage, a.microbatch)]);
      for (int t : outOf[a.stage])
        if (costs.transfers[t].gradientBytes >= 0)
          need(arrivals[1][key(t, a.microbatch)]);
      break;
    case Action::WeightGradient:
      break; // behind its I in the same row
    case Action::Update:
      if (gated())
        need(gradientsLeft[a.microbatch] ? kNever : updateReady[a.microbatch]);
      break;
    }
    return when;
  }

  double seconds(const Action &a, int worker) const {
    if (a.kind == Action::Update) {
      double sum = 0;
      for (int s = 0; s < table.stages(); ++s)
        if (table.workerOf[s] == worker)
          sum += costs.stages[s].update;
      return sum;
    }
    const StageCost &c = costs.stages[a.stage];
    switch (a.kind) {
    case Action::Forward: return c.forward;
    case Action::InputGradient: return c.input;
    case Action::WeightGradient: return c.weight;
    default: return c.input + c.weight;
    }
  }

  // A message that leaves at `end` and arrives on the other worker.
  double send(const Message &message, double end) {
    const Transfer &t = costs.transfers[message.transfer];
    int a = table.workerOf[message.back ? t.to : t.from], b = table.workerOf[message.back ? t.from : t.to];
    if (a == b)
      return end;
    int64_t bytes = message.back ? t.gradientBytes : t.bytes;
    double &link = links[a * size_t(workers) + b];
    if (spans) {
      Message &previous = last[a * size_t(workers) + b];
      if (link > end)
        behind[message.back][key(message.transfer, message.microbatch)] = previous;
      previous = message;
    }
    link = std::max(link, end) + double(bytes) / costs.bandwidth;
    return link + costs.latency;
  }

  void finish(const Action &a, int worker, double end) {
    Place place{worker, int(at[worker])};
    bool makesGradients = a.kind == Action::WeightGradient || a.kind == Action::Backward;
    if (spans && (a.kind == Action::Forward || a.kind == Action::InputGradient || a.kind == Action::Backward))
      placeOf[a.kind != Action::Forward][key(a.stage, a.microbatch)] = place;
    if (a.kind == Action::Forward) {
      forwardEnd[key(a.stage, a.microbatch)] = end;
      for (int t : outOf[a.stage]) {
        const Transfer &transfer = costs.transfers[t];
        if (transfer.to < known)
          arrivals[0][key(t, a.microbatch)] = send({t, a.microbatch, false}, end);
        else // beyond what is known: the gradient is there after `rest`
          arrivals[1][key(t, a.microbatch)] = transfer.from == known - 1 ? end + rest : 0;
      }
    }
    if (a.kind == Action::InputGradient || a.kind == Action::Backward)
      for (int t : into[a.stage])
        if (costs.transfers[t].gradientBytes >= 0)
          arrivals[1][key(t, a.microbatch)] = send({t, a.microbatch, true}, end);
    if (makesGradients) {
      int step = a.microbatch / table.request.microbatches;
      --gradientsLeft[step];
      if (spans && end >= updateReady[step])
        lastGradient[step] = place;
      updateReady[step] = std::max(updateReady[step], end);
    }
  }

  bool step(int worker) {
    const Action &a = table.rows[worker][at[worker]];
    if (a.stage >= known) { // left out
      ++at[worker];
      return true;
    }
    double when = ready(a);
    if (when == kNever)
      return false;
    double begin = std::max(when, clock[worker]), end = begin + seconds(a, worker);
    clock[worker] = end;
    if (spans)
      (*spans)[worker].push_back({begin, end});
    finish(a, worker, end);
    ++at[worker];
    return true;
  }

  const ScheduleTable &table;
  const TableCosts &costs;
  int known;
  double rest;
  std::vector<std::vector<Span>> *spans;
  int count, workers;
  std::vector<size_t> at;
  std::vector<double> clock;
  std::vector<std::vector<int>> into, outOf; // transfers of a stage
  std::vector<double> forwardEnd, arrivals[2];
  std::vector<int> gradientsLeft;
  std::vector<double> updateReady, links; // links: when each is free again
  // With spans: the last message on each link; the message that one waited for on its link, or kOwnSender; where F and I (or B) of a (stage,
  // micro-batch) are, and the last gradient of each step.
  std::vector<Message> last, behind[2];
  std::vector<Place> placeOf[2], lastGradient;
};

// Bytes of one worker along its row.
void countBytes(const ScheduleTable &table, const TableCosts &costs, int worker, Simulation &s) {
  std::vector<std::pair<double, int64_t>> &line = s.bytes[worker];
  int64_t live = 0, &peak = s.peak[worker];
  for (int stage = 0; stage < table.stages(); ++stage)
    if (table.workerOf[stage] == worker)
      live += costs.stages[stage].fixed;
  auto at = [&](double when, int64_t bytes) {
    peak = std::max(peak, bytes);
    if (!line.empty() && line.back().first == when && line.size() > 1 && line[line.size() - 2].first == when)
      line.pop_back(); // two steps at one moment are enough: down, then up
    if (line.empty() || line.back().second != bytes)
      line.push_back({when, bytes});
  };
  at(0, live);
  for (size_t i = 0; i < table.rows[worker].size(); ++i) {
    const Action &a = table.rows[worker][i];
    if (a.kind == Action::Update)
      continue;
    const StageCost &c = costs.stages[a.stage];
    const Span &span = s.spans[worker][i];
    if (a.kind == Action::Forward)
      live += c.held;
    at(span.begin, live + (a.kind == Action::Forward ? c.forwardWork : c.backwardWork));
    if (a.kind == Action::InputGradient)
      live += c.late;
    if (a.kind == Action::WeightGradient)
      live -= c.late;
    if (a.kind == Action::WeightGradient || a.kind == Action::Backward)
      live -= c.held;
    at(span.end, live);
  }
}

} // namespace

Simulation simulate(const ScheduleTable &table, const TableCosts &costs) {
  Simulation s;
  int workers = int(table.rows.size());
  s.spans.resize(workers), s.busy.assign(workers, 0), s.bytes.resize(workers), s.peak.assign(workers, 0);
  s.makespan = Run(table, costs, table.stages(), 0, &s.spans).run();
  double busy = 0;
  for (int w = 0; w < workers; ++w) {
    for (const Span &span : s.spans[w])
      s.busy[w] += span.end - span.begin;
    busy += s.busy[w];
    countBytes(table, costs, w, s);
  }
  s.bubble = s.makespan > 0 ? std::max(0.0, 1 - busy / (s.makespan * workers)) : 0;
  return s;
}

double makespan(const ScheduleTable &table, const TableCosts &costs) {
  return Run(table, costs, table.stages(), 0, nullptr).run();
}

CriticalChain criticalChain(const ScheduleTable &table, const TableCosts &costs) {
  std::vector<std::vector<Span>> spans(table.rows.size());
  Run run(table, costs, table.stages(), 0, &spans);
  run.run();
  return run.critical();
}

double makespanOfFirst(const ScheduleTable &table, const TableCosts &costs, int known, double rest) {
  return Run(table, costs, known, rest, nullptr).run();
}

} // namespace cinch::solve
