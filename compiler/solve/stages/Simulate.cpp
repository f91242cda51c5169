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

private:
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
  double send(int from, int to, int64_t bytes, double end) {
    int a = table.workerOf[from], b = table.workerOf[to];
    if (a == b)
      return end;
    double &link = links[a * size_t(workers) + b];
    link = std::max(link, end) + double(bytes) / costs.bandwidth;
    return link + costs.latency;
  }

  void finish(const Action &a, double end) {
    if (a.kind == Action::Forward) {
      forwardEnd[key(a.stage, a.microbatch)] = end;
      for (int t : outOf[a.stage]) {
        const Transfer &transfer = costs.transfers[t];
        if (transfer.to < known)
          arrivals[0][key(t, a.microbatch)] = send(transfer.from, transfer.to, transfer.bytes, end);
        else // beyond what is known: the gradient is there after `rest`
          arrivals[1][key(t, a.microbatch)] = transfer.from == known - 1 ? end + rest : 0;
      }
    }
    if (a.kind == Action::InputGradient || a.kind == Action::Backward)
      for (int t : into[a.stage])
        if (costs.transfers[t].gradientBytes >= 0)
          arrivals[1][key(t, a.microbatch)] =
              send(a.stage, costs.transfers[t].from, costs.transfers[t].gradientBytes, end);
    if (a.kind == Action::WeightGradient || a.kind == Action::Backward) {
      int step = a.microbatch / table.request.microbatches;
      --gradientsLeft[step];
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
    finish(a, end);
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
  std::vector<double> updateReady, links;
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

double makespanOfFirst(const ScheduleTable &table, const TableCosts &costs, int known, double rest) {
  return Run(table, costs, known, rest, nullptr).run();
}

} // namespace cinch::solve
