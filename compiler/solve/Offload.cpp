// Offload.cpp: see Offload.h.
#include "compiler/solve/Offload.h"
#include "compiler/solve/Engines.h"

#include <algorithm>
#include <deque>

namespace cinch::solve {

std::vector<UpdateState> movableState(const StepGraph &g, const std::vector<bool> &allowed) {
  std::vector<int> user(g.buffers.size(), -1);
  std::vector<bool> several(g.buffers.size(), false);
  for (size_t k = 0; k < g.kernels.size(); ++k) {
    auto use = [&](int b) {
      several[size_t(b)] = several[size_t(b)] || (user[size_t(b)] >= 0 && user[size_t(b)] != int(k));
      user[size_t(b)] = int(k);
    };
    std::for_each(g.kernels[k].reads.begin(), g.kernels[k].reads.end(), use);
    std::for_each(g.kernels[k].writes.begin(), g.kernels[k].writes.end(), use);
  }
  std::vector<UpdateState> states;
  for (size_t k = 0; k < g.kernels.size(); ++k) {
    const Kernel &kernel = g.kernels[k];
    if (kernel.section != g.mainLoop() + 1 || kernel.copy != Kernel::NoCopy || kernel.work == Kernel::Nothing)
      continue;
    UpdateState state{int(k), {}, 0};
    for (int b : kernel.writes) {
      const Buffer &buffer = g.buffers[size_t(b)];
      bool mayMove = !several[size_t(b)] && (allowed.empty() || (size_t(b) < allowed.size() && allowed[size_t(b)]));
      if (mayMove && buffer.kind == Buffer::Persistent && buffer.space == Buffer::Arena && buffer.perExampleBytes == 0 && buffer.fixedBytes > 0)
        state.buffers.push_back(b), state.bytes += buffer.bytes(1);
    }
    if (!state.buffers.empty())
      states.push_back(std::move(state));
  }
  return states;
}

std::vector<UpdateState> stateOfGraph(const StepGraph &g, const std::vector<UpdateState> &moved, const std::vector<bool> &allowed) {
  std::vector<UpdateState> same;
  for (UpdateState &state : movableState(g, allowed))
    if (std::any_of(moved.begin(), moved.end(), [&](const UpdateState &one) { return one.buffers == state.buffers; }))
      same.push_back(std::move(state));
  return same;
}

Kernel copyKernel(const StepGraph &g, Kernel::Copy what, int section, std::vector<int> reads, std::vector<int> writes) {
  static const char *const names[] = {"", "fetch ", "store ", "await "};
  Kernel kernel;
  kernel.section = section;
  kernel.copy = what;
  kernel.work = Kernel::Nothing, kernel.recomputable = false, kernel.backward = true;
  const Buffer &buffer = g.buffers[size_t(reads.front())];
  kernel.name = names[what] + buffer.name, kernel.line = buffer.line, kernel.libraryLine = buffer.libraryLine;
  kernel.reads = std::move(reads), kernel.writes = std::move(writes);
  return kernel;
}

namespace {

// Writes the section behind the main loop anew, with the copies in it.
class Mover {
public:
  Mover(const StepGraph &old, const Offload &offload, const std::vector<int> &before) : old(old), offload(offload), before(before) {
    made.graph = old;
    made.graph.kernels.clear();
  }

  Offloaded run() {
    StepGraph &g = made.graph;
    for (const UpdateState &state : offload.moved) {
      largest = std::max(largest, state.bytes);
      for (int b : state.buffers)
        g.buffers[size_t(b)].space = Buffer::Host;
    }
    int k = 0;
    while (k < int(old.kernels.size()) && old.kernels[size_t(k)].section <= old.mainLoop())
      take(k++);
    for (; k < int(old.kernels.size()); ++k) {
      // What is updated stands behind the gate: a step that fails there has begun nothing.
      updates = updates || std::any_of(old.kernels[size_t(k)].writes.begin(), old.kernels[size_t(k)].writes.end(),
                                       [&](int b) { return old.buffers[size_t(b)].kind == Buffer::Persistent; });
      if (updates)
        fetchAhead();
      if (done < offload.moved.size() && offload.moved[done].kernel == k)
        update(k);
      else
        take(k);
    }
    while (!leaving.empty())
      awaitOldest();
    for (size_t k = 0; k < g.kernels.size(); ++k)
      for (int b : g.kernels[k].writes)
        if (g.buffers[size_t(b)].kind == Buffer::Value)
          g.buffers[size_t(b)].producer = int(k);
    return std::move(made);
  }

private:
  void take(int k) {
    made.graph.kernels.push_back(old.kernels[size_t(k)]);
    made.original.push_back(before.empty() ? k : before[size_t(k)]);
  }
  void copy(Kernel::Copy what, std::vector<int> reads, std::vector<int> writes) {
    made.graph.kernels.push_back(copyKernel(made.graph, what, old.mainLoop() + 1, std::move(reads), std::move(writes)));
    made.original.push_back(kCopy);
  }
  int value(int home) {
    Buffer buffer = old.buffers[size_t(home)];
    buffer.kind = Buffer::Value;
    made.graph.buffers.push_back(std::move(buffer));
    return int(made.graph.buffers.size()) - 1;
  }

  // As many as the window lets in; what leaves it is waited for as soon as its room is asked for.
  void fetchAhead() {
    while (next < offload.moved.size()) {
      const UpdateState &state = offload.moved[next];
      if (held > 0 && held + state.bytes > std::max(offload.window, largest)) {
        if (leaving.empty())
          return;
        awaitOldest();
        continue;
      }
      held += state.bytes;
      inside.push_back({});
      for (int home : state.buffers) {
        int to = value(home);
        copy(Kernel::Fetch, {home}, {to});
        inside.back().push_back(to);
      }
      ++next;
    }
  }

  void update(int k) {
    const UpdateState &state = offload.moved[done];
    if (next == done)
      fetchAhead();
    std::vector<int> came = std::move(inside.front());
    inside.pop_front();
    for (size_t i = 0; i < came.size(); ++i)
      copy(Kernel::Await, {came[i]}, {});
    std::vector<int> results;
    for (int home : state.buffers)
      results.push_back(value(home));
    take(k);
    Kernel &kernel = made.graph.kernels.back();
    for (size_t i = 0; i < came.size(); ++i) {
      kernel.reads.erase(std::remove(kernel.reads.begin(), kernel.reads.end(), state.buffers[i]), kernel.reads.end());
      kernel.reads.push_back(came[i]);
      std::replace(kernel.writes.begin(), kernel.writes.end(), state.buffers[i], results[i]);
      kernel.inPlace.push_back({results[i], came[i]}); // as it was
    }
    for (size_t i = 0; i < results.size(); ++i)
      copy(Kernel::Store, {results[i]}, {state.buffers[i]});
    leaving.push_back({done, std::move(results)});
    ++done;
  }

  void awaitOldest() {
    auto [number, values] = std::move(leaving.front());
    leaving.pop_front();
    const UpdateState &state = offload.moved[number];
    for (size_t i = 0; i < values.size(); ++i)
      copy(Kernel::Await, {values[i]}, {});
    held -= state.bytes;
  }

  const StepGraph &old;
  const Offload &offload;
  const std::vector<int> &before;
  Offloaded made;
  bool updates = false;                     // the first of them has come
  size_t next = 0, done = 0;                // of `moved`: the next that is copied in, that is updated
  int64_t held = 0, largest = 0;
  std::deque<std::vector<int>> inside;      // copied in, or on their way
  std::deque<std::pair<size_t, std::vector<int>>> leaving; // on their way out
};

} // namespace

Offloaded withOffload(const StepGraph &g, const Offload &offload, const std::vector<int> &before) { return Mover(g, offload, before).run(); }

// ---- Choices -----------------------------------------------------------------------------------------------------------

static double secondsBehind(const StepGraph &g) {
  std::vector<int> behind;
  for (size_t k = 0; k < g.kernels.size(); ++k)
    if (g.kernels[k].section > g.mainLoop())
      behind.push_back(int(k));
  return runEngines(g, behind, g.grain).end;
}

std::vector<int64_t> windowsFor(const StepGraph &g, const std::vector<UpdateState> &moved) {
  constexpr size_t kMostAhead = 8; // states: both engines are busy with two of them already, if they are of one size
  struct Way {
    int64_t window;
    double seconds;
  };
  std::vector<Way> ways;
  for (size_t ahead = 1; ahead <= std::min(kMostAhead, moved.size()); ++ahead) {
    int64_t window = 0;
    for (size_t i = 0; i + ahead <= moved.size(); ++i) {
      int64_t bytes = 0;
      for (size_t j = i; j < i + ahead; ++j)
        bytes += moved[j].bytes;
      window = std::max(window, bytes);
    }
    double seconds = secondsBehind(withOffload(g, {moved, window}).graph);
    if (ways.empty() || (window > ways.back().window && seconds < 0.999 * ways.back().seconds))
      ways.push_back({window, seconds});
  }
  std::vector<int64_t> windows;
  for (size_t i = ways.size(); i-- > 0;)
    windows.push_back(ways[i].window);
  return windows;
}

std::vector<UpdateState> stateOf(const std::vector<UpdateState> &movable, int64_t bytes) {
  std::vector<UpdateState> rest = movable, chosen;
  std::stable_sort(rest.begin(), rest.end(), [](const UpdateState &a, const UpdateState &b) { return a.bytes > b.bytes; });
  int64_t left = bytes;
  while (left > 0 && !rest.empty()) {
    size_t pick = 0;
    while (pick + 1 < rest.size() && rest[pick + 1].bytes >= left)
      ++pick;
    left -= rest[pick].bytes;
    chosen.push_back(std::move(rest[pick]));
    rest.erase(rest.begin() + int64_t(pick));
  }
  if (left > 0)
    return {};
  std::stable_sort(chosen.begin(), chosen.end(), [](const UpdateState &a, const UpdateState &b) { return a.kernel < b.kernel; });
  return chosen;
}

} // namespace cinch::solve
