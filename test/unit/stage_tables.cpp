// LINK: cinch_solve
// Tables of schedules: the published ones, makespans and slots; every table of up to 8 workers, 24 micro-batches and 4
// chunks is right and, run on symbols, does what one worker does; mutated tables are rejected, and what the verifier
// accepts computes the right values.
#include "compiler/solve/stages/Simulate.h"
#include "test/unit/Expect.h"
#include "test/unit/SymbolicStages.h"

#include <cmath>
#include <functional>

using namespace cinch::solve;

static ScheduleRequest request(Schedule schedule, int p, int m, int v = 1, int steps = 1, bool gate = true) {
  return {schedule, p, m, v, steps, gate};
}

static std::string who(const ScheduleRequest &r) {
  return std::string(name(r.schedule)) + " p=" + std::to_string(r.workers) + " m=" + std::to_string(r.microbatches) +
         " v=" + std::to_string(r.chunks) + " steps=" + std::to_string(r.steps) + (r.gate ? "" : " without gate");
}

static std::string rowText(const ScheduleTable &t, int worker, bool stages = false) {
  std::string line;
  for (const Action &a : t.rows[worker]) {
    std::string word = text(a);
    if (a.kind != Action::Update)
      line += (line.empty() ? "" : " ") + (stages ? word : word.substr(std::to_string(a.stage).size()));
  }
  return line;
}

// A worker's share of the model takes F, I and W seconds; its chunks take equal parts.
static TableCosts costs(const ScheduleTable &t, double forward, double input, double weight, double latency = 0) {
  TableCosts c;
  c.stages.assign(t.stages(), {});
  for (StageCost &s : c.stages)
    s.forward = forward / t.request.chunks, s.input = input / t.request.chunks, s.weight = weight / t.request.chunks;
  c.transfers = chainTransfers(t.stages());
  c.latency = latency;
  return c;
}

static bool near(double a, double b) { return std::abs(a - b) < 1e-9 * std::max(1.0, std::abs(b)); }

static void expectSpan(const ScheduleRequest &r, const TableCosts &c, const ScheduleTable &t, double golden) {
  double span = makespan(t, c);
  expect(near(span, golden), who(r) + ": makespan " + std::to_string(span) + ", expected " + std::to_string(golden));
}

static void goldenRows() {
  ScheduleTable zb = generate(request(Schedule::ZBH1, 4, 6));
  expect(rowText(zb, 1) == "F0 F1 F2 I0 F3 I1 W0 F4 I2 W1 F5 I3 W2 I4 W3 I5 W4 W5", "zb-h1 row: " + rowText(zb, 1));
  ScheduleTable fb = generate(request(Schedule::OneFOneB, 4, 5));
  expect(rowText(fb, 1) == "F0 F1 F2 B0 F3 B1 F4 B2 B3 B4", "1f1b row: " + rowText(fb, 1));
  ScheduleTable pipe = generate(request(Schedule::GPipe, 2, 3));
  expect(rowText(pipe, 0) == "F0 F1 F2 B0 B1 B2", "gpipe row: " + rowText(pipe, 0));
  // Four workers, four micro-batches, two chunks: the table drawn in Narayanan 2021b, figure 4, first worker of four.
  ScheduleTable inter = generate(request(Schedule::Interleaved, 4, 4, 2));
  expect(rowText(inter, 0, true) == "0F0 0F1 0F2 0F3 4F0 4F1 4F2 4F3 4B0 4B1 4B2 4B3 0B0 0B1 0B2 0B3",
         "interleaved row: " + rowText(inter, 0, true));
  ScheduleTable zbv = generate(request(Schedule::ZBV, 2, 3, 2));
  expect(rowText(zbv, 0, true) == "0F0 0F1 0F2 3F0 3I0 3W0 3F1 3I1 3W1 0I0 0W0 3F2 3I2 3W2 0I1 0W1 0I2 0W2",
         "zbv row: " + rowText(zbv, 0, true));
  // DeepSpeed's closed form: at tick t a worker of the same parity runs a forward, else a backward; equal to 1f1b's order.
  for (int p = 1; p <= 5; ++p)
    for (int m = 1; m <= 8; ++m) {
      ScheduleTable t = generate(request(Schedule::OneFOneB, p, m));
      for (int r = 0; r < p; ++r) {
        std::string line;
        for (int tick = 0; tick < 2 * (m + p - 1); ++tick) {
          bool even = tick % 2 == 0, isForward = (tick + r) % 2 == 0;
          int k = isForward ? (even ? tick / 2 - r / 2 : (tick - 1) / 2 - r / 2)
                            : (even ? tick / 2 - p + (r + 1) / 2 : (tick - 1) / 2 - p + 1 + r / 2);
          if (k >= 0 && k < m)
            line += (line.empty() ? "" : " ") + std::string(isForward ? "F" : "B") + std::to_string(k);
        }
        expect(rowText(t, r) == line, who(t.request) + " worker " + std::to_string(r) + ": " + rowText(t, r) + ", closed form " + line);
      }
    }
}

static void goldenSpans() {
  struct Golden {
    int p, m;
    double synchronous, two, four, zbh1, zbv;
    std::vector<int> slots; // 1f1b, of each worker
    std::vector<int> halves; // interleaved with two chunks, of each worker
  };
  const Golden golden[] = {{2, 4, 15, 13.5, 12.75, 13, 12.5, {2, 1}, {5, 3}},
                           {4, 4, 21, 16.5, 14.25, 15, 15, {4, 3, 2, 1}, {8, 8, 7, 5}},
                           {4, 8, 33, 28.5, 26.25, 27, 25.5, {4, 3, 2, 1}, {11, 9, 7, 5}},
                           {8, 16, 69, 58.5, 53.25, 55, 51.5, {8, 7, 6, 5, 4, 3, 2, 1}, {23, 21, 19, 17, 15, 13, 11, 9}}};
  auto span = [&](Schedule schedule, int p, int m, int v, double expected) {
    ScheduleRequest r = request(schedule, p, m, v);
    ScheduleTable t = generate(r);
    expectSpan(r, costs(t, 1, 1, 1), t, expected);
  };
  // Slots that are taken at once by all stages of a worker: bytes, if every chunk holds one byte a slot.
  auto slots = [&](Schedule schedule, int p, int m, int v, const std::vector<int> &expected) {
    ScheduleTable t = generate(request(schedule, p, m, v));
    TableCosts c = costs(t, 1, 1, 1);
    for (StageCost &s : c.stages)
      s.held = 1;
    Simulation simulation = simulate(t, c);
    for (int w = 0; w < p; ++w)
      expect(simulation.peak[w] == expected[w], who(t.request) + " worker " + std::to_string(w) + " holds " +
                                                    std::to_string(simulation.peak[w]) + ", expected " +
                                                    std::to_string(expected[w]));
  };
  for (const Golden &g : golden) {
    span(Schedule::GPipe, g.p, g.m, 1, g.synchronous);
    span(Schedule::OneFOneB, g.p, g.m, 1, g.synchronous);
    span(Schedule::Interleaved, g.p, g.m, 2, g.two);
    span(Schedule::Interleaved, g.p, g.m, 4, g.four);
    span(Schedule::ZBH1, g.p, g.m, 1, g.zbh1);
    span(Schedule::ZBV, g.p, g.m, 2, g.zbv);
    slots(Schedule::OneFOneB, g.p, g.m, 1, g.slots);
    slots(Schedule::GPipe, g.p, g.m, 1, std::vector<int>(g.p, g.m));
    slots(Schedule::Interleaved, g.p, g.m, 2, g.halves);
    if (g.m >= g.p)
      slots(Schedule::ZBH1, g.p, g.m, 1, std::vector<int>(g.p, std::min(g.p, g.m)));
    if (g.m >= 2 * g.p)
      slots(Schedule::ZBV, g.p, g.m, 2, std::vector<int>(g.p, 2 * g.p));
  }
  span(Schedule::Naive, 4, 1, 1, 12);
  span(Schedule::OneFOneB, 4, 1, 1, 12);
  // Unequal times, F = 1, I = 2, W = 1: 32 + (p - 1)(F + I - W), and 1f1b's 32 + (p - 1)(F + B).
  ScheduleRequest zb = request(Schedule::ZBH1, 4, 8), fb = request(Schedule::OneFOneB, 4, 8);
  expectSpan(zb, costs(generate(zb), 1, 2, 1), generate(zb), 38);
  expectSpan(fb, costs(generate(fb), 1, 2, 1), generate(fb), 44);
  // A tenth a message: 1f1b pays it in its steady state too.
  ScheduleRequest gp = request(Schedule::GPipe, 4, 8), in = request(Schedule::Interleaved, 4, 8, 2);
  expectSpan(gp, costs(generate(gp), 1, 1, 1, 0.1), generate(gp), 33.6);
  expectSpan(fb, costs(generate(fb), 1, 1, 1, 0.1), generate(fb), 34.6);
  expectSpan(in, costs(generate(in), 1, 1, 1, 0.1), generate(in), 29.9);
  // Bubbles of the closed forms, for all sizes: (p - 1)(F + B), a v-th of it, (p - 1)(F + I - W).
  for (int p = 1; p <= 8; ++p)
    for (int m = 1; m <= 24; ++m) {
      double F = 3, I = 4, W = 2;
      for (Schedule s : {Schedule::GPipe, Schedule::OneFOneB}) {
        ScheduleTable t = generate(request(s, p, m));
        expectSpan(t.request, costs(t, F, I, W), t, (m + p - 1) * (F + I + W));
      }
      for (int v = 1; v <= 4; ++v)
        if (m % p == 0) {
          ScheduleTable t = generate(request(Schedule::Interleaved, p, m, v));
          expectSpan(t.request, costs(t, F, I, W), t, m * (F + I + W) + (p - 1) * (F + I + W) / v);
        }
      if (m >= 2 * p) {
        ScheduleTable t = generate(request(Schedule::ZBH1, p, m));
        expectSpan(t.request, costs(t, F, I, W), t, m * (F + I + W) + (p - 1) * (F + I - W));
      }
      // GPipe with any times: sum F + (m - 1) max F + sum B + (m - 1) max B.
      ScheduleTable t = generate(request(Schedule::GPipe, p, m));
      TableCosts c = costs(t, 0, 0, 0);
      double sums[2] = {0, 0}, most[2] = {0, 0};
      for (int s = 0; s < p; ++s) {
        StageCost &cost = c.stages[s];
        cost.forward = 1 + (s * 7 + m) % 5, cost.input = 1 + (s * 3 + m) % 4, cost.weight = (s + 2 * m) % 3;
        double B = cost.input + cost.weight;
        sums[0] += cost.forward, sums[1] += B, most[0] = std::max(most[0], cost.forward), most[1] = std::max(most[1], B);
      }
      expectSpan(t.request, c, t, sums[0] + sums[1] + (m - 1) * (most[0] + most[1]));
    }
}

// Calls `with` for every table there is up to these sizes.
static void everyTable(int workers, int microbatches, const std::function<void(const ScheduleTable &)> &with) {
  for (Schedule schedule : allSchedules())
    for (int p = 1; p <= workers; ++p)
      for (int m = 1; m <= microbatches; ++m)
        for (int v = 1; v <= 4; ++v)
          for (int steps : {1, 2, 4})
            for (bool gate : {true, false}) {
              ScheduleRequest r = request(schedule, p, m, v, steps, gate);
              if ((gate || schedule == Schedule::TwoBW) && check(r).empty())
                with(generate(r));
            }
}

static void everyTableIsRight() {
  int count = 0;
  everyTable(8, 24, [&](const ScheduleTable &t) {
    ++count;
    std::string wrong = verify(t);
    if (!wrong.empty())
      return expect(false, who(t.request) + ": " + wrong);
    bool delay = t.request.schedule == Schedule::TwoBW;
    std::vector<symbolic::Symbol> one = symbolic::sequential(t.stages(), t.request.microbatches, t.request.steps, delay);
    expect(symbolic::execute(t, count) == one, who(t.request) + ": on symbols it differs from one worker");
  });
  // naive 8; gpipe, 1f1b, zb-h1, zbv 192 each; interleaved 768; 2bw: p <= m, three numbers of steps, with and without gate.
  expect(count == 8 + 4 * 192 + 768 + 6 * 164, "there are " + std::to_string(count) + " tables");
}

static void refusals() {
  auto refused = [](ScheduleRequest r, const std::string &why) {
    std::string error = check(r);
    expect(error.find(why) != std::string::npos, who(r) + ": expected a refusal with `" + why + "`, got `" + error + "`");
  };
  refused(request(Schedule::Naive, 2, 2), "one micro-batch");
  refused(request(Schedule::GPipe, 2, 2, 2), "one chunk");
  refused(request(Schedule::ZBV, 2, 2, 1), "two chunks");
  refused(request(Schedule::TwoBW, 4, 3), "as many micro-batches");
  refused(request(Schedule::OneFOneB, 4, 3, 1, 2), "one step");
  refused(request(Schedule::GPipe, 0, 3), "at least 1");
  refused(request(Schedule::GPipe, 1 << 20, 1 << 10), "too large");
}

static Action *find(ScheduleTable &t, const std::string &word) {
  for (std::vector<Action> &row : t.rows)
    for (Action &a : row)
      if (text(a) == word)
        return &a;
  return nullptr;
}

static void mutations() {
  ScheduleTable fb = generate(request(Schedule::OneFOneB, 4, 6)), zb = generate(request(Schedule::ZBH1, 4, 6));
  ScheduleTable bw = generate(request(Schedule::TwoBW, 2, 4, 1, 3)), in = generate(request(Schedule::Interleaved, 2, 4, 2));
  auto rejects = [](const std::string &what, ScheduleTable t, const std::string &why, auto change) {
    change(t);
    std::string error = verify(t);
    expect(error.find(why) != std::string::npos, what + ": expected `" + why + "`, got `" + error + "`");
  };
  auto drop = [](ScheduleTable &t, const std::string &word) {
    for (std::vector<Action> &row : t.rows)
      for (size_t i = 0; i < row.size(); ++i)
        if (text(row[i]) == word)
          return void(row.erase(row.begin() + i));
  };
  auto exchange = [](ScheduleTable &t, const std::string &a, const std::string &b) { std::swap(*find(t, a), *find(t, b)); };
  rejects("a forward left out", fb, "1F3 is missing", [&](ScheduleTable &t) { drop(t, "1F3"); });
  rejects("a backward left out", fb, "either B or one I and one W", [&](ScheduleTable &t) { drop(t, "2B5"); });
  rejects("a weight gradient left out", zb, "either B or one I and one W", [&](ScheduleTable &t) { drop(t, "2W5"); });
  rejects("an action twice", fb, "stands twice", [&](ScheduleTable &t) { t.rows[1].push_back({Action::Forward, 1, 2}); });
  rejects("B beside I and W", zb, "either B or one I and one W",
          [&](ScheduleTable &t) { t.rows[1].push_back({Action::Backward, 1, 2}); });
  rejects("an action of another worker", fb, "lies on worker 1", [&](ScheduleTable &t) {
    drop(t, "1F0");
    t.rows[0].insert(t.rows[0].begin(), {Action::Forward, 1, 0});
  });
  rejects("a micro-batch beyond the last", fb, "no such stage or micro-batch",
          [&](ScheduleTable &t) { find(t, "0F5")->microbatch = 6; });
  rejects("backward before forward", fb, "before what it reads", [&](ScheduleTable &t) { exchange(t, "3F0", "3B0"); });
  rejects("weight gradient before input gradient", zb, "before what it reads",
          [&](ScheduleTable &t) { exchange(t, "0I0", "0W0"); });
  rejects("gradients in descending order", generate(request(Schedule::GPipe, 2, 3)), "out of order", [&](ScheduleTable &t) {
    exchange(t, "0B0", "0B2"), exchange(t, "1B0", "1B2");
  });
  rejects("weight gradients out of order, inputs in order", zb, "out of order",
          [&](ScheduleTable &t) { exchange(t, "1W4", "1W5"); });
  rejects("workers that wait for each other", fb, "1B0 of worker 1 waits for", [&](ScheduleTable &t) {
    // Worker 2 has its second forward before its first backward; worker 1 now has it the other way round.
    drop(t, "1B0");
    t.rows[1].insert(t.rows[1].begin() + 1, {Action::Backward, 1, 0});
  });
  rejects("chunks in an order that deadlocks", in, "deadlock", [&](ScheduleTable &t) {
    // Worker 0 begins with its second chunk, which needs what worker 1 makes of the first.
    std::stable_sort(t.rows[0].begin(), t.rows[0].end() - 1, [](const Action &a, const Action &b) {
      return a.kind == Action::Forward && b.kind == Action::Forward && a.stage > b.stage;
    });
  });
  rejects("too few slots", fb, "declares 3 slots", [&](ScheduleTable &t) { t.slots[0] = 3; });
  rejects("too many slots", fb, "declares 5 slots", [&](ScheduleTable &t) { t.slots[0] = 5; });
  rejects("too few late slots", zb, "late ones", [&](ScheduleTable &t) { --t.lateSlots[3]; });
  rejects("a stage on two workers", fb, "has 2 stages", [&](ScheduleTable &t) { t.workerOf[1] = 0; });
  rejects("a stage on no worker", fb, "does not exist", [&](ScheduleTable &t) { t.workerOf[1] = 4; });
  rejects("a row too many", fb, "rows", [&](ScheduleTable &t) { t.rows.emplace_back(); });
  rejects("an early update", fb, "before the last gradient", [&](ScheduleTable &t) {
    std::swap(t.rows[2][t.rows[2].size() - 1], t.rows[2][t.rows[2].size() - 2]);
  });
  rejects("no update", fb, "updates 0 times", [&](ScheduleTable &t) { t.rows[3].pop_back(); });
  rejects("an update twice", fb, "out of order", [&](ScheduleTable &t) { t.rows[3].push_back({Action::Update, -1, 0}); });
  rejects("one version of the parameters", bw, "overwritten", [&](ScheduleTable &t) { t.versions = 1; });
  rejects("one accumulator where two are needed", bw, "has not read yet", [&](ScheduleTable &t) { t.accumulators = 1; });
  rejects("an update too late for its reader", bw, "before it exists", [&](ScheduleTable &t) {
    std::vector<Action> &row = t.rows[0];
    auto update = std::find(row.begin(), row.end(), Action{Action::Update, -1, 0});
    auto reader = std::find(update, row.end(), Action{Action::Forward, 0, 2 * t.request.microbatches});
    std::rotate(update, update + 1, reader + 1);
  });
}

// Random changes of a row: the verifier may reject what would still be right (the order of the forwards), but what it
// accepts must compute what one worker computes.
static void whatIsAcceptedIsRight() {
  uint64_t state = 88172645463325252ull;
  auto below = [&](size_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return size_t((state >> 33) % n);
  };
  int accepted = 0, rejected = 0;
  everyTable(4, 6, [&](const ScheduleTable &original) {
    bool delay = original.request.schedule == Schedule::TwoBW;
    std::vector<symbolic::Symbol> one =
        symbolic::sequential(original.stages(), original.request.microbatches, original.request.steps, delay);
    for (int trial = 0; trial < 8; ++trial) {
      ScheduleTable t = original;
      for (size_t changes = 1 + below(2); changes > 0; --changes) {
        std::vector<Action> &row = t.rows[below(t.rows.size())];
        size_t i = below(row.size()), j = std::min(row.size() - 1, i + 1 + below(3));
        std::rotate(row.begin() + i, row.begin() + j, row.begin() + j + 1);
      }
      bool same = t.rows == original.rows;
      if (!verify(t).empty()) {
        ++rejected;
        expect(!same, who(t.request) + ": unchanged, but rejected");
        continue;
      }
      accepted += !same;
      expect(symbolic::execute(t, trial) == one, who(t.request) + ": accepted after a change, but wrong");
    }
  });
  expect(accepted > 100 && rejected > 1000, "of the changed tables " + std::to_string(accepted) + " were accepted and " +
                                                std::to_string(rejected) + " rejected: too few to tell");
}

// With 2bw there is no flush: each step more takes m (F + B) more. At a gate all workers meet; whatever their number, one of them has then
// waited for a backward at most (1f1b: for (p - 1) (F + B)).
static void steadyState() {
  for (int p = 1; p <= 6; ++p)
    for (bool gate : {false, true})
      for (int m : {2 * p, 3 * p, 4 * p}) {
        double spans[2];
        for (int i = 0; i < 2; ++i) {
          ScheduleTable t = generate(request(Schedule::TwoBW, p, m, 1, 4 + i, gate));
          spans[i] = makespan(t, costs(t, 1, 1, 1));
        }
        double more = spans[1] - spans[0] - 3 * m;
        expect(gate ? more > -1e-9 && more < (p == 1 ? 0 : 2) + 1e-9 : near(more, 0), "2bw p=" + std::to_string(p) + " m=" + std::to_string(m) + ": a step more takes " +
                                                    std::to_string(spans[1] - spans[0]));
      }
}

static void printed() {
  auto prints = [](const ScheduleRequest &r, int width, const std::string &expected) {
    std::string got = print(generate(r), width);
    expect(got == expected, who(r) + " is printed as\n" + got);
  };
  prints(request(Schedule::OneFOneB, 2, 3), 120,
         "worker 0  0F0 0F1 .   .   0B0 0B0 0F2 0B1 0B1 .   0B2 0B2 U\n"
         "worker 1  .   1F0 1B0 1B0 1F1 1B1 1B1 1F2 1B2 1B2 .   .   U\n");
  prints(request(Schedule::ZBH1, 2, 2), 40,
         "worker 0  0F0 0F1 .   0I0 0W0 0I1 0W1\n"
         "worker 1  .   1F0 1I0 1F1 1I1 1W0 1W1\n\n"
         "worker 0  U\n"
         "worker 1  U\n");
}

// Messages: a link carries one after the other; a chunk's value for the same worker costs nothing; skips go directly.
static void messages() {
  ScheduleTable t = generate(request(Schedule::GPipe, 2, 3));
  TableCosts c = costs(t, 1, 1, 0);
  c.bandwidth = 10, c.latency = 0.5, c.transfers = {{0, 1, 20, -1}};
  // F0 ends at 1; 20 bytes take 2 a message, so they arrive at 3.5, 5.5, 7.5; F2 ends at 8.5, then three B; no gradient goes back.
  expect(near(makespan(t, c), 11.5), "three messages on one link: " + std::to_string(makespan(t, c)));
  c.transfers = {{0, 1, 20, 0}};
  // B0 of worker 1 ends at 9.5: gradients arrive at 10, 11, 12, the last B ends at 13.
  expect(near(makespan(t, c), 13), "gradients of no bytes: " + std::to_string(makespan(t, c)));
  ScheduleTable three = generate(request(Schedule::GPipe, 3, 1));
  c = costs(three, 1, 1, 0);
  c.bandwidth = 1, c.transfers = {{0, 1, 0, 0}, {1, 2, 0, 0}, {0, 2, 7, 3}};
  // The skip arrives at 8; B of stage 2 ends at 10, of stage 1 at 11; its gradient of three bytes is back at 13.
  expect(near(makespan(three, c), 14), "a skip over a stage: " + std::to_string(makespan(three, c)));
  ScheduleTable v = generate(request(Schedule::ZBV, 1, 2, 2));
  c = costs(v, 1, 1, 1, 100);
  expect(near(makespan(v, c), 6), "chunks of one worker: " + std::to_string(makespan(v, c)));
}

int main() {
  goldenRows();
  goldenSpans();
  everyTableIsRight();
  refusals();
  mutations();
  whatIsAcceptedIsRight();
  steadyState();
  messages();
  printed();
  return tally();
}
