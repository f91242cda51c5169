// PartBodies.h: tables of several workers as their channels see them, and random loop bodies in parts as a worker of several runs them.
#ifndef CINCH_TEST_UNIT_PARTBODIES_H
#define CINCH_TEST_UNIT_PARTBODIES_H

#include "compiler/solve/Random.h"
#include "compiler/solve/StepGraph.h"
#include "compiler/solve/stages/Channels.h"
#include "compiler/solve/stages/Schedule.h"

#include <algorithm>

namespace cinch::solve {

// A chain of stages: every forward takes a message from the stage before and sends one to the stage behind, backward the other way round.
inline ChannelProblem chainOf(const ScheduleTable &table, double forward, double backward) {
  int p = table.request.workers, v = table.request.chunks, stages = table.stages();
  bool split = splitsBackward(table.request.schedule);
  std::vector<int> chunk(size_t(stages), 0), seen(size_t(p), 0);
  for (int s = 0; s < stages; ++s)
    chunk[s] = seen[table.workerOf[s]]++;
  ChannelProblem problem;
  problem.actions.resize(p), problem.messages.resize(p), problem.seconds.resize(p);
  for (int w = 0; w < p; ++w) {
    problem.messages[w].resize(size_t(3 * v));
    problem.seconds[w].resize(size_t(3 * v));
    for (int c = 0; c < v; ++c) {
      problem.seconds[w][c] = forward / v;
      problem.seconds[w][2 * v - 1 - c] = (split ? backward / 2 : backward) / v;
      problem.seconds[w][3 * v - 1 - c] = backward / 2 / v;
    }
    for (const Action &action : table.rows[w]) {
      if (action.kind == Action::Update)
        continue;
      int c = chunk[action.stage];
      int part = action.kind == Action::Forward ? c : action.kind == Action::WeightGradient ? 3 * v - 1 - c : 2 * v - 1 - c;
      problem.actions[w].push_back({part, action.microbatch});
    }
  }
  for (bool back : {false, true})
    for (int s = 0; s + 1 < stages; ++s) {
      int from = back ? s + 1 : s, to = back ? s : s + 1, a = table.workerOf[from], b = table.workerOf[to];
      if (a == b)
        continue;
      auto part = [&](int stage) { return back ? 2 * v - 1 - chunk[stage] : chunk[stage]; };
      int channel = int(problem.travel.size());
      problem.travel.push_back(0);
      problem.messages[a][part(from)].push_back({channel, true});
      auto &received = problem.messages[b][part(to)];
      received.insert(received.begin(), {channel, false});
    }
  return problem;
}

// A chain of forward kernels, a part, and backward kernels that read some of what the forward ones made and add into sums.
inline StepGraph randomBody(Random &random, std::vector<PartAction> actions, int layers = 0) {
  StepGraph g;
  g.batch = 0;
  for (const PartAction &action : actions)
    g.batch = std::max(g.batch, action.microbatch + 1);
  g.actions = std::move(actions);
  auto buffer = [&](Buffer::Kind kind, int producer) {
    Buffer b;
    b.kind = kind, b.producer = producer, b.fixedBytes = kind == Buffer::Value ? 0 : 64;
    b.perExampleBytes = kind == Buffer::Value ? int64_t(64) * (1 + int64_t(random.below(4))) : 0;
    b.name = "b" + std::to_string(g.buffers.size());
    g.buffers.push_back(b);
    return int(g.buffers.size()) - 1;
  };
  std::vector<int> values;
  int n = layers ? layers : 2 + int(random.below(4));
  for (int i = 0; i < n; ++i) {
    Kernel k;
    k.name = "f" + std::to_string(i), k.seconds.perExample = 1 + double(random.below(5));
    if (!values.empty())
      k.reads.push_back(values.back());
    if (values.size() > 1 && random.below(2))
      k.reads.push_back(values[size_t(random.below(int64_t(values.size()) - 1))]);
    k.writes.push_back(buffer(Buffer::Value, i));
    values.push_back(k.writes.back());
    g.kernels.push_back(k);
  }
  Kernel part;
  part.newPart = true, part.recomputable = false, part.work = Kernel::Nothing, part.name = "part";
  part.reads.push_back(values.back()); // as a message of the first part would keep the work before it there
  part.writes.push_back(buffer(Buffer::Value, n));
  g.buffers.back().perExampleBytes = 0;
  g.kernels.push_back(part);
  int mark = part.writes.front(), gradient = -1;
  for (int i = n; i-- > 0;) {
    Kernel k;
    k.backward = true, k.name = "b" + std::to_string(i), k.seconds.perExample = 1;
    k.reads = {mark, values[i]};
    if (gradient >= 0) {
      k.reads.push_back(gradient);
    }
    k.recomputable = false;
    int producer = int(g.kernels.size());
    k.writes.push_back(buffer(Buffer::Value, producer));
    if (gradient >= 0 && g.buffers[gradient].perExampleBytes == g.buffers[k.writes.front()].perExampleBytes)
      k.inPlace.push_back({k.writes.front(), gradient});
    gradient = k.writes.front();
    k.writes.push_back(buffer(Buffer::Accumulator, producer));
    g.kernels.push_back(k);
  }
  return g;
}

inline std::vector<PartAction> twoParts(int64_t count, int64_t ahead) {
  std::vector<PartAction> actions;
  for (int64_t tick = 0; tick < count + ahead; ++tick) {
    if (tick < count)
      actions.push_back({0, tick});
    if (tick >= ahead)
      actions.push_back({1, tick - ahead});
  }
  return actions;
}

// A worker with two stages whose backward passes are split (zbv): forward of both, gradients of inputs, gradients of parameters, the later
// stage first. All work stays in its part, since micro-batches differ in the order of the parts. `joined`: the second stage goes on from the
// first one's last value; else that goes to another worker, and a message comes.
class ChunkBody {
public:
  ChunkBody(Random &random, std::vector<PartAction> actions, bool joined) : random(random) {
    for (const PartAction &action : actions)
      g.batch = std::max(g.batch, action.microbatch + 1);
    g.actions = std::move(actions);
    std::vector<int> inputs[2], gradients[2];
    int gradient = -1;
    for (int chunk = 0; chunk < 2; ++chunk) {
      beginPart(chunk > 0);
      int value = chunk && joined ? inputs[0].back() : message();
      inputs[chunk] = {value};
      for (int i = 0, n = 2 + int(random.below(3)); i < n; ++i)
        inputs[chunk].push_back(kernel({inputs[chunk].back()}, false, {Buffer::Value}).front());
    }
    for (int chunk = 1; chunk >= 0; --chunk) {
      beginPart(true);
      if (gradient < 0 || !joined)
        gradient = message();
      for (size_t i = inputs[chunk].size(); i-- > 1;) {
        gradients[chunk].push_back(gradient);
        gradient = kernel({gradient, inputs[chunk][i]}, true, {Buffer::Value}).front();
      }
    }
    for (int chunk = 1; chunk >= 0; --chunk) {
      beginPart(true);
      for (size_t i = 0; i < gradients[chunk].size(); ++i)
        kernel({gradients[chunk][i], inputs[chunk][inputs[chunk].size() - 2 - i]}, true, {Buffer::Accumulator});
    }
  }
  StepGraph g;

private:
  int buffer(Buffer::Kind kind, int64_t bytes) {
    Buffer b;
    b.kind = kind, b.producer = int(g.kernels.size());
    (kind == Buffer::Value ? b.perExampleBytes : b.fixedBytes) = bytes;
    b.name = "b" + std::to_string(g.buffers.size());
    g.buffers.push_back(b);
    return int(g.buffers.size()) - 1;
  }
  std::vector<int> kernel(std::vector<int> reads, bool backward, std::vector<Buffer::Kind> kinds) {
    Kernel k;
    k.name = "k" + std::to_string(g.kernels.size()), k.backward = backward, k.seconds.perExample = 1 + double(random.below(5));
    k.reads = std::move(reads);
    if (part >= 0)
      k.reads.push_back(part);
    for (Buffer::Kind kind : kinds)
      k.writes.push_back(buffer(kind, 64 * (1 + int64_t(random.below(4))))), k.recomputable &= kind == Buffer::Value;
    std::vector<int> written = k.writes;
    k.writes.push_back(buffer(Buffer::Value, 0));
    marks.push_back(k.writes.back());
    g.kernels.push_back(k);
    return written;
  }
  int message() {
    int value = kernel({}, false, {Buffer::Value}).front();
    g.kernels.back().recomputable = false, g.kernels.back().message = true;
    return value;
  }
  void beginPart(bool behindAnother) {
    if (!behindAnother)
      return;
    Kernel k;
    k.newPart = true, k.recomputable = false, k.work = Kernel::Nothing, k.name = "part";
    k.reads = std::move(marks);
    k.writes = {part = buffer(Buffer::Value, 0)};
    marks = {part};
    g.kernels.push_back(k);
  }

  Random &random;
  int part = -1;          // the mark of the part at hand
  std::vector<int> marks; // of its kernels
};

} // namespace cinch::solve
#endif
