// Verify.cpp: is a table right? Each invariant of Schedule.h is tested for itself, from the rows alone.
#include "compiler/solve/stages/Schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

namespace cinch::solve {

namespace {

std::string inRow(const Action &a, size_t worker) { return text(a) + " of worker " + std::to_string(worker); }

// 1: stages and workers.
std::string verifyPlacement(const ScheduleTable &t) {
  const ScheduleRequest &r = t.request;
  if (t.stages() != r.workers * r.chunks)
    return "expected " + std::to_string(r.workers * r.chunks) + " stages, got " + std::to_string(t.stages());
  if (int(t.rows.size()) != r.workers)
    return "expected " + std::to_string(r.workers) + " rows, got " + std::to_string(t.rows.size());
  std::vector<int> chunks(r.workers, 0);
  for (int s = 0; s < t.stages(); ++s) {
    if (t.workerOf[s] < 0 || t.workerOf[s] >= r.workers)
      return "stage " + std::to_string(s) + " lies on worker " + std::to_string(t.workerOf[s]) + ", which does not exist";
    ++chunks[t.workerOf[s]];
  }
  for (int w = 0; w < r.workers; ++w)
    if (chunks[w] != r.chunks)
      return "worker " + std::to_string(w) + " has " + std::to_string(chunks[w]) + " stages, expected " +
             std::to_string(r.chunks);
  return "";
}

// 2: each action once, in the row where it belongs.
std::string verifyActions(const ScheduleTable &t) {
  std::set<std::tuple<int, int, int>> seen; // kind, stage, micro-batch
  for (size_t w = 0; w < t.rows.size(); ++w)
    for (const Action &a : t.rows[w]) {
      if (a.kind == Action::Update) {
        if (a.microbatch < 0 || a.microbatch >= t.request.steps)
          return inRow(a, w) + ": there is no such step";
        continue;
      }
      if (a.stage < 0 || a.stage >= t.stages() || a.microbatch < 0 || a.microbatch >= t.microbatchesOfAllSteps())
        return inRow(a, w) + ": there is no such stage or micro-batch";
      if (t.workerOf[a.stage] != int(w))
        return inRow(a, w) + ": its stage lies on worker " + std::to_string(t.workerOf[a.stage]);
      if (!seen.insert({a.kind, a.stage, a.microbatch}).second)
        return inRow(a, w) + " stands twice";
    }
  for (int s = 0; s < t.stages(); ++s)
    for (int k = 0; k < t.microbatchesOfAllSteps(); ++k) {
      auto has = [&](Action::Kind kind) { return seen.count({kind, s, k}) > 0; };
      if (!has(Action::Forward))
        return text({Action::Forward, s, k}) + " is missing";
      bool both = has(Action::Backward), input = has(Action::InputGradient), weight = has(Action::WeightGradient);
      if (both ? input || weight : !input || !weight)
        return "stage " + std::to_string(s) + ", micro-batch " + std::to_string(k) +
               ": expected either B or one I and one W";
    }
  return "";
}

// 4: ascending micro-batches on every stage, for each kind of gradient; W behind I behind F.
std::string verifyOrder(const ScheduleTable &t) {
  struct Next {
    int forward = 0, input = 0, weight = 0;
  };
  std::vector<Next> next(t.stages());
  for (size_t w = 0; w < t.rows.size(); ++w)
    for (const Action &a : t.rows[w]) {
      if (a.kind == Action::Update)
        continue;
      Next &n = next[a.stage];
      bool input = a.kind == Action::InputGradient || a.kind == Action::Backward;
      bool weight = a.kind == Action::WeightGradient || a.kind == Action::Backward;
      auto wrong = [&](int expected) {
        return inRow(a, w) + " is out of order: expected micro-batch " + std::to_string(expected);
      };
      if (a.kind == Action::Forward && a.microbatch != n.forward++)
        return wrong(n.forward - 1);
      if (input && a.microbatch != n.input++)
        return wrong(n.input - 1);
      if (weight && a.microbatch != n.weight++)
        return wrong(n.weight - 1);
      if (n.input > n.forward || n.weight > n.input)
        return inRow(a, w) + " stands before what it reads";
    }
  return "";
}

// 5 and 6: updates, accumulators, versions. Step t reads version t, with `2bw` version t - 1; after u updates the versions
// u - versions + 1 .. u are there.
std::string verifyUpdates(const ScheduleTable &t) {
  bool delayed = t.request.schedule == Schedule::TwoBW;
  int m = t.request.microbatches;
  for (size_t w = 0; w < t.rows.size(); ++w) {
    int updates = 0;
    std::map<int, int> gradients; // of a step
    for (const Action &a : t.rows[w]) {
      if (a.kind == Action::Update) {
        if (a.microbatch != updates)
          return inRow(a, w) + " is out of order: expected U" + std::to_string(updates);
        if (gradients[a.microbatch] != m * t.request.chunks)
          return inRow(a, w) + " stands before the last gradient of its step";
        ++updates;
        continue;
      }
      int step = a.microbatch / m, version = delayed ? std::max(step - 1, 0) : step;
      if (version > updates)
        return inRow(a, w) + " reads version " + std::to_string(version) + " of the parameters before it exists";
      if (version <= updates - t.versions)
        return inRow(a, w) + " reads version " + std::to_string(version) + " of the parameters, which has been overwritten";
      if (a.kind == Action::WeightGradient || a.kind == Action::Backward) {
        if (step >= updates + t.accumulators)
          return inRow(a, w) + " adds into an accumulator that U" + std::to_string(step - t.accumulators) + " has not read yet";
        ++gradients[step];
      }
    }
    if (updates != t.request.steps)
      return "worker " + std::to_string(w) + " updates " + std::to_string(updates) + " times in " +
             std::to_string(t.request.steps) + " steps";
  }
  return "";
}

// 3: rows run in order; what is read must have been done by others. Names every worker that is stuck.
std::string verifyProgress(const ScheduleTable &t) {
  std::set<std::pair<int, int>> forward, input; // done
  std::map<int, int> gradients;                 // done, of a step
  std::vector<size_t> at(t.rows.size(), 0);
  bool gate = t.request.schedule != Schedule::TwoBW || t.request.gate;
  int m = t.request.microbatches, last = t.stages() - 1;
  // What the action waits for; empty if it can run.
  auto waitsFor = [&](const Action &a) -> std::string {
    bool gradient = a.kind == Action::InputGradient || a.kind == Action::Backward;
    if (a.kind == Action::Forward && a.stage > 0 && !forward.count({a.stage - 1, a.microbatch}))
      return text({Action::Forward, a.stage - 1, a.microbatch});
    if (gradient && a.stage < last && !input.count({a.stage + 1, a.microbatch}))
      return "the gradient of stage " + std::to_string(a.stage + 1) + ", micro-batch " + std::to_string(a.microbatch);
    if (a.kind == Action::Update && gate && gradients[a.microbatch] != m * t.stages())
      return "the last gradient of step " + std::to_string(a.microbatch);
    return "";
  };
  for (bool moved = true; moved;) {
    moved = false;
    for (size_t w = 0; w < t.rows.size(); ++w)
      for (; at[w] < t.rows[w].size() && waitsFor(t.rows[w][at[w]]).empty(); ++at[w]) {
        const Action &a = t.rows[w][at[w]];
        moved = true;
        if (a.kind == Action::Forward)
          forward.insert({a.stage, a.microbatch});
        if (a.kind == Action::InputGradient || a.kind == Action::Backward)
          input.insert({a.stage, a.microbatch});
        if (a.kind == Action::WeightGradient || a.kind == Action::Backward)
          ++gradients[a.microbatch / m];
      }
  }
  std::string stuck;
  for (size_t w = 0; w < t.rows.size(); ++w)
    if (at[w] < t.rows[w].size())
      stuck += (stuck.empty() ? "deadlock: " : "; ") + inRow(t.rows[w][at[w]], w) + " waits for " +
               waitsFor(t.rows[w][at[w]]);
  return stuck;
}

// 7: what is held along the rows is what the table declares.
std::string verifySlots(const ScheduleTable &t) {
  if (int(t.slots.size()) != t.stages() || int(t.lateSlots.size()) != t.stages())
    return "expected slots and late slots for every stage";
  std::vector<std::set<int>> held(t.stages()), late(t.stages());
  std::vector<size_t> most(t.stages(), 0), mostLate(t.stages(), 0);
  for (const std::vector<Action> &row : t.rows)
    for (const Action &a : row) {
      if (a.kind == Action::Update)
        continue;
      if (a.kind == Action::Forward)
        held[a.stage].insert(a.microbatch);
      if (a.kind == Action::InputGradient)
        late[a.stage].insert(a.microbatch);
      most[a.stage] = std::max(most[a.stage], held[a.stage].size());
      mostLate[a.stage] = std::max(mostLate[a.stage], late[a.stage].size());
      if (a.kind == Action::WeightGradient || a.kind == Action::Backward)
        held[a.stage].erase(a.microbatch), late[a.stage].erase(a.microbatch);
    }
  for (int s = 0; s < t.stages(); ++s)
    if (int(most[s]) != t.slots[s] || int(mostLate[s]) != t.lateSlots[s])
      return "stage " + std::to_string(s) + " declares " + std::to_string(t.slots[s]) + " slots and " +
             std::to_string(t.lateSlots[s]) + " late ones, its row needs " + std::to_string(most[s]) + " and " +
             std::to_string(mostLate[s]);
  return "";
}

} // namespace

std::string verify(const ScheduleTable &t) {
  for (auto *test : {verifyPlacement, verifyActions, verifyOrder, verifyUpdates, verifyProgress, verifySlots})
    if (std::string wrong = test(t); !wrong.empty())
      return wrong;
  return "";
}

} // namespace cinch::solve
