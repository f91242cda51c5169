// Generate.cpp: the tables of all schedules, a function each.
#include "compiler/solve/stages/Schedule.h"

#include <algorithm>

namespace cinch::solve {

namespace {

struct ScheduleName {
  Schedule schedule;
  const char *name;
};
const ScheduleName kNames[] = {
    {Schedule::Naive, "naive"},      {Schedule::GPipe, "gpipe"},   {Schedule::OneFOneB, "1f1b"},
    {Schedule::TwoBW, "2bw"},        {Schedule::Interleaved, "interleaved"},
    {Schedule::ZBH1, "zb-h1"},       {Schedule::ZBV, "zbv"},
};

} // namespace

const std::vector<Schedule> &allSchedules() {
  static const std::vector<Schedule> all = [] {
    std::vector<Schedule> list;
    for (const ScheduleName &n : kNames)
      list.push_back(n.schedule);
    return list;
  }();
  return all;
}

const char *name(Schedule schedule) {
  for (const ScheduleName &n : kNames)
    if (n.schedule == schedule)
      return n.name;
  return "?";
}

bool parseSchedule(const std::string &word, Schedule &schedule) {
  for (const ScheduleName &n : kNames)
    if (word == n.name) {
      schedule = n.schedule;
      return true;
    }
  return false;
}

std::string scheduleNames() {
  std::string list;
  for (const ScheduleName &n : kNames)
    list += (list.empty() ? "" : ", ") + std::string(n.name);
  return list;
}

bool splitsBackward(Schedule schedule) { return schedule == Schedule::ZBH1 || schedule == Schedule::ZBV; }

std::string text(const Action &a) {
  if (a.kind == Action::Update)
    return "U" + std::to_string(a.microbatch);
  return std::to_string(a.stage) + "FIWB"[a.kind] + std::to_string(a.microbatch);
}

std::string check(const ScheduleRequest &r) {
  std::string who = name(r.schedule);
  if (r.workers < 1 || r.microbatches < 1 || r.chunks < 1 || r.steps < 1)
    return "workers, micro-batches, chunks and steps are at least 1";
  // The product of the three is the size of the table: a limit far beyond any machine, so that nothing overflows.
  if (int64_t(r.workers) * r.chunks > 1 << 16 || int64_t(r.microbatches) * r.steps > 1 << 20 ||
      int64_t(r.workers) * r.chunks * r.microbatches * r.steps > int64_t(1) << 26)
    return "a table of " + std::to_string(int64_t(r.workers) * r.chunks) + " stages and " +
           std::to_string(int64_t(r.microbatches) * r.steps) + " micro-batches is too large";
  if (r.schedule == Schedule::Naive && r.microbatches != 1)
    return "naive runs the batch as one micro-batch, got " + std::to_string(r.microbatches);
  if (r.schedule == Schedule::ZBV ? r.chunks != 2 : r.schedule != Schedule::Interleaved && r.chunks != 1)
    return who + " has " + (r.schedule == Schedule::ZBV ? "two chunks" : "one chunk") + " a worker, got " +
           std::to_string(r.chunks);
  if (r.schedule == Schedule::TwoBW && r.microbatches < r.workers)
    return "2bw needs as many micro-batches as stages: expected at least " + std::to_string(r.workers) + ", got " +
           std::to_string(r.microbatches);
  if (r.schedule != Schedule::TwoBW && r.steps != 1)
    return who + " waits for the update: its table holds one step, got " + std::to_string(r.steps);
  return "";
}

namespace {

// Appends to one worker's row; each kind of action on a stage takes the next micro-batch by itself.
struct Row {
  std::vector<Action> &actions;
  int limit; // micro-batches; actions beyond are left out
  struct Counts {
    int stage, next[4] = {0, 0, 0, 0};
  };
  std::vector<Counts> counts;

  int &next(int stage, Action::Kind kind) {
    for (Counts &c : counts)
      if (c.stage == stage)
        return c.next[kind];
    counts.push_back({stage});
    return counts.back().next[kind];
  }
  void add(int stage, Action::Kind kind) {
    int k = next(stage, kind)++;
    if (k < limit)
      actions.push_back({kind, stage, k});
  }
  int done(int stage, Action::Kind kind) { return next(stage, kind); }
};

void fillGPipe(Row &row, int stage, int m) {
  for (int k = 0; k < m; ++k)
    row.add(stage, Action::Forward);
  for (int k = 0; k < m; ++k)
    row.add(stage, Action::Backward);
}

// Warm-up forwards, as many as there are workers behind; then a forward and a backward in turns; then what is left.
void fill1F1B(Row &row, int worker, int p, int m) {
  int warmUp = std::min(p - 1 - worker, m);
  for (int k = 0; k < warmUp; ++k)
    row.add(worker, Action::Forward);
  for (int k = warmUp; k < m; ++k)
    row.add(worker, Action::Forward), row.add(worker, Action::Backward);
  for (int k = 0; k < warmUp; ++k)
    row.add(worker, Action::Backward);
}

// As 1f1b without a flush between steps. The update of step t stands right after the step's last backward. With a gate, where all
// workers meet, it stands where all come to it at about the same time: the last worker is done with the step first, and goes on with
// the next one until the first worker is done, too. There a backward counts two thirds of a forward and a backward, as everywhere here.
void fill2BW(Row &row, int worker, const ScheduleRequest &r) {
  std::vector<Action> plain;
  Row steady{plain, r.microbatches * r.steps, {}};
  fill1F1B(steady, worker, r.workers, r.microbatches * r.steps);
  int updates = 0, ahead = r.gate ? (2 * worker + 1) / 3 : 0; // backwards of the next step before the update
  auto update = [&] { row.actions.push_back({Action::Update, -1, updates++}); };
  for (const Action &a : plain) {
    row.actions.push_back(a);
    if (a.kind == Action::Backward && a.microbatch == (updates + 1) * r.microbatches - 1 + ahead)
      update();
  }
  while (updates < r.steps)
    update();
}

// Micro-batches take turns on the chunks in groups. A group has at least p of them, so that a worker never waits for its own
// next chunk; a smaller rest than p would deadlock. The smallest legal group, or p if there are fewer micro-batches.
int groupOfInterleaved(int p, int m) {
  for (int g = p; g <= m; ++g)
    if (m % g == 0 || m % g >= p)
      return g;
  return p;
}

void fillInterleaved(Row &row, int worker, int p, int v, int m) {
  int g = groupOfInterleaved(p, m);
  std::vector<int> chunkOfTurn; // of the n-th forward; backwards take the chunks from the last
  for (int first = 0; first < m; first += g)
    for (int chunk = 0; chunk < v; ++chunk)
      for (int k = first; k < std::min(first + g, m); ++k)
        chunkOfTurn.push_back(chunk);
  int turns = m * v, warmUp = std::min(2 * (p - 1 - worker) + (v - 1) * g, turns);
  auto forward = [&](int n) { row.add(chunkOfTurn[n] * p + worker, Action::Forward); };
  auto backward = [&](int n) { row.add((v - 1 - chunkOfTurn[n]) * p + worker, Action::Backward); };
  for (int n = 0; n < warmUp; ++n)
    forward(n);
  for (int n = warmUp; n < turns; ++n)
    forward(n), backward(n - warmUp);
  for (int n = turns - warmUp; n < turns; ++n)
    backward(n);
}

// As 1f1b with I instead of B. Worker r leaves out the W of its first r turns, so that the stages before get their gradients
// sooner, and does them where it would wait at the end.
void fillZBH1(Row &row, int worker, int p, int m) {
  int warmUp = std::min(p - 1 - worker, m), gradients = 0;
  auto backward = [&] {
    row.add(worker, Action::InputGradient);
    if (gradients++ >= worker)
      row.add(worker, Action::WeightGradient);
  };
  for (int k = 0; k < warmUp; ++k)
    row.add(worker, Action::Forward);
  for (int k = warmUp; k < m; ++k)
    row.add(worker, Action::Forward), backward();
  for (int k = 0; k < warmUp; ++k)
    backward();
  while (row.done(worker, Action::WeightGradient) < m)
    row.add(worker, Action::WeightGradient);
}

// Two chunks a worker, one on the way down and one on the way up. The pattern is made for at least 2p - 1 micro-batches; what
// is beyond m is left out.
void fillZBV(Row &row, int worker, int p, int m) {
  int down = worker, up = 2 * p - 1 - worker, n = std::max(2 * p - 1, m);
  auto F = [&](int stage) { row.add(stage, Action::Forward); };
  auto I = [&](int stage) { row.add(stage, Action::InputGradient); };
  auto W = [&](int stage) { row.add(stage, Action::WeightGradient); };
  for (int k = 0; k < 2 * (p - worker) - 1; ++k)
    F(down);
  for (int k = 0; k < worker; ++k)
    F(up), F(down);
  for (int k = 0; k < p - worker; ++k)
    F(up), I(up), W(up);
  while (row.done(up, Action::Forward) < row.done(down, Action::Forward) || row.done(down, Action::Forward) < n) {
    if (row.done(down, Action::Forward) < n)
      F(down);
    I(down), W(down), F(up), I(up), W(up);
  }
  for (int k = 0; k < worker; ++k)
    I(down), I(up);
  for (int k = 0; k < p - worker; ++k)
    I(down), W(down);
  while (row.done(up, Action::WeightGradient) < row.done(up, Action::InputGradient))
    W(up);
  while (row.done(down, Action::WeightGradient) < row.done(down, Action::InputGradient))
    W(down);
}

// What `slots` and `lateSlots` of each stage must be for these rows.
void declareSlots(ScheduleTable &t) {
  std::vector<int> held(t.stages(), 0), late(t.stages(), 0);
  t.slots.assign(t.stages(), 0), t.lateSlots.assign(t.stages(), 0);
  for (const std::vector<Action> &row : t.rows)
    for (const Action &a : row) {
      if (a.kind == Action::Update)
        continue;
      if (a.kind == Action::Forward)
        t.slots[a.stage] = std::max(t.slots[a.stage], ++held[a.stage]);
      if (a.kind == Action::InputGradient)
        t.lateSlots[a.stage] = std::max(t.lateSlots[a.stage], ++late[a.stage]);
      if (a.kind == Action::WeightGradient)
        --late[a.stage];
      if (a.kind == Action::WeightGradient || a.kind == Action::Backward)
        --held[a.stage];
    }
}

} // namespace

ScheduleTable generate(const ScheduleRequest &r) {
  ScheduleTable t;
  t.request = r;
  int p = r.workers, v = r.chunks, m = r.microbatches;
  t.workerOf.resize(p * v);
  for (int s = 0; s < p * v; ++s)
    t.workerOf[s] = r.schedule == Schedule::ZBV ? std::min(s, 2 * p - 1 - s) : s % p;
  t.rows.resize(p);
  for (int w = 0; w < p; ++w) {
    Row row{t.rows[w], m, {}};
    switch (r.schedule) {
    case Schedule::Naive:
    case Schedule::GPipe: fillGPipe(row, w, m); break;
    case Schedule::OneFOneB: fill1F1B(row, w, p, m); break;
    case Schedule::TwoBW: fill2BW(row, w, r); break;
    case Schedule::Interleaved: fillInterleaved(row, w, p, v, m); break;
    case Schedule::ZBH1: fillZBH1(row, w, p, m); break;
    case Schedule::ZBV: fillZBV(row, w, p, m); break;
    }
    if (r.schedule != Schedule::TwoBW)
      t.rows[w].push_back({Action::Update, -1, 0});
  }
  if (r.schedule == Schedule::TwoBW)
    t.versions = 2, t.accumulators = r.gate ? 2 : 1;
  declareSlots(t);
  return t;
}

} // namespace cinch::solve
