// SymbolicStages.h: a table executed on symbols. Every value is a hash of the operation and of what it read, so two runs end with the same
// accumulators only if they did the same operations on the same values in the same order.
#ifndef CINCH_TEST_UNIT_SYMBOLICSTAGES_H
#define CINCH_TEST_UNIT_SYMBOLICSTAGES_H

#include "compiler/solve/stages/Schedule.h"

#include <algorithm>
#include <map>
#include <tuple>

namespace symbolic {

using Symbol = uint64_t;

inline Symbol combine(std::initializer_list<Symbol> parts) {
  Symbol h = 0x9e3779b97f4a7c15ull;
  for (Symbol part : parts) {
    h ^= part + 0x9e3779b97f4a7c15ull + (h << 6) + (h >> 2);
    h *= 0xff51afd7ed558ccdull, h ^= h >> 33;
  }
  return h;
}

inline Symbol forward(int stage, Symbol parameters, Symbol input) { return combine({1, Symbol(stage), parameters, input}); }
inline Symbol inputGradient(int stage, Symbol parameters, Symbol input, Symbol gradient) {
  return combine({2, Symbol(stage), parameters, input, gradient});
}
inline Symbol add(int stage, Symbol sum, Symbol input, Symbol gradient) {
  return combine({3, Symbol(stage), sum, input, gradient});
}
inline Symbol update(Symbol parameters, Symbol sum) { return combine({4, parameters, sum}); }
inline Symbol example(int microbatch) { return combine({5, Symbol(microbatch)}); }
inline Symbol lossGradient(Symbol output) { return combine({6, output}); }
inline Symbol initial(int stage) { return combine({7, Symbol(stage)}); }

// One worker, one micro-batch after the other. `delay`: W(t+1) = W(t) - update(gradient at W(t-1)), W(-1) = W(0).
inline std::vector<Symbol> sequential(int stages, int microbatches, int steps, bool delay) {
  std::vector<std::vector<Symbol>> versions(stages);
  for (int s = 0; s < stages; ++s)
    versions[s] = {initial(s)};
  for (int t = 0; t < steps; ++t) {
    int version = delay ? std::max(t - 1, 0) : t;
    std::vector<Symbol> sums(stages, 0);
    for (int k = t * microbatches; k < (t + 1) * microbatches; ++k) {
      std::vector<Symbol> inputs = {example(k)};
      for (int s = 0; s < stages; ++s)
        inputs.push_back(forward(s, versions[s][version], inputs[s]));
      Symbol gradient = lossGradient(inputs[stages]);
      for (int s = stages - 1; s >= 0; --s) {
        sums[s] = add(s, sums[s], inputs[s], gradient);
        gradient = inputGradient(s, versions[s][version], inputs[s], gradient);
      }
    }
    for (int s = 0; s < stages; ++s)
      versions[s].push_back(update(versions[s].back(), sums[s]));
  }
  std::vector<Symbol> result;
  for (int s = 0; s < stages; ++s)
    result.push_back(versions[s].back());
  return result;
}

// The table, with memory as the table declares it: micro-batch k of a stage lies in slot k mod slots, its late gradient in late
// slot k mod late slots, version t of the parameters at t mod versions, sums of step t at t mod accumulators. Workers take
// turns as `seed` says. Empty if the rows do not come to their end.
inline std::vector<Symbol> execute(const cinch::solve::ScheduleTable &table, uint64_t seed) {
  using cinch::solve::Action;
  int stages = table.stages(), m = table.request.microbatches;
  bool delay = table.request.schedule == cinch::solve::Schedule::TwoBW, gate = !delay || table.request.gate;
  struct Stage {
    std::vector<Symbol> inputs, late, parameters, sums;
  };
  std::vector<Stage> memory(stages);
  for (int s = 0; s < stages; ++s) {
    memory[s].inputs.assign(std::max(1, table.slots[s]), 0);
    memory[s].late.assign(std::max(1, table.lateSlots[s]), 0);
    memory[s].parameters.assign(table.versions, initial(s));
    memory[s].sums.assign(table.accumulators, 0);
  }
  std::map<std::tuple<bool, int, int>, Symbol> messages; // (backward, receiving stage, micro-batch)
  std::map<int, int> gradientsOf;                        // step
  std::vector<int> updates(table.rows.size(), 0);
  std::vector<size_t> at(table.rows.size(), 0);
  auto step = [&](size_t w) {
    const Action &a = table.rows[w][at[w]];
    int k = a.microbatch;
    if (a.kind == Action::Update) {
      if (gate && gradientsOf[k] < m * stages)
        return false;
      for (int s = 0; s < stages; ++s)
        if (table.workerOf[s] == int(w)) {
          Stage &own = memory[s];
          Symbol newest = own.parameters[k % table.versions];
          own.parameters[(k + 1) % table.versions] = update(newest, own.sums[k % table.accumulators]);
          own.sums[k % table.accumulators] = 0;
        }
      return true;
    }
    Stage &own = memory[a.stage];
    int version = delay ? std::max(k / m - 1, 0) : k / m;
    Symbol parameters = own.parameters[version % table.versions];
    Symbol &input = own.inputs[k % own.inputs.size()];
    if (a.kind == Action::Forward) {
      auto message = messages.find({false, a.stage, k});
      if (a.stage > 0 && message == messages.end())
        return false;
      input = a.stage ? message->second : example(k);
      messages[{false, a.stage + 1, k}] = forward(a.stage, parameters, input);
      return true;
    }
    if (a.kind != Action::WeightGradient) {
      bool last = a.stage == stages - 1;
      auto message = messages.find({last ? false : true, last ? stages : a.stage, k});
      if (message == messages.end())
        return false;
      Symbol gradient = last ? lossGradient(message->second) : message->second;
      messages[{true, a.stage - 1, k}] = inputGradient(a.stage, parameters, input, gradient);
      own.late[k % own.late.size()] = gradient;
    }
    if (a.kind != Action::InputGradient) {
      Symbol &sum = own.sums[k / m % table.accumulators];
      sum = add(a.stage, sum, input, own.late[k % own.late.size()]);
      ++gradientsOf[k / m];
    }
    return true;
  };
  for (size_t idle = 0, w = 0; idle < 4 * table.rows.size();) {
    seed = seed * 6364136223846793005ull + 1442695040888963407ull;
    w = idle < table.rows.size() ? (seed >> 33) % table.rows.size() : (w + 1) % table.rows.size();
    if (at[w] < table.rows[w].size() && step(w))
      ++at[w], idle = 0;
    else
      ++idle;
  }
  std::vector<Symbol> result;
  for (size_t w = 0; w < table.rows.size(); ++w)
    if (at[w] < table.rows[w].size())
      return {};
  for (int s = 0; s < stages; ++s)
    result.push_back(memory[s].parameters[table.request.steps % table.versions]);
  return result;
}

} // namespace symbolic
#endif
