// Swap.cpp: see Swap.h.
#include "compiler/solve/Swap.h"

#include <algorithm>

namespace cinch::solve {

namespace {

class Swapper {
public:
  Swapper(const StepGraph &old, const std::vector<int> &loop, const std::vector<int> &before) : loop(loop), g(made.graph) {
    g = old;
    firstCopy = int(std::count_if(old.kernels.begin(), old.kernels.end(), [&](const Kernel &kernel) { return kernel.section <= old.mainLoop(); }));
    behind.assign(old.kernels.begin() + firstCopy, old.kernels.end());
    g.kernels.resize(size_t(firstCopy));
    for (int k = 0; k < int(old.kernels.size()); ++k)
      made.original.push_back(before.empty() ? k : before[size_t(k)]);
    for (Buffer &buffer : g.buffers)
      if (buffer.kind == Buffer::Value && buffer.producer >= firstCopy)
        movedProducers.push_back(&buffer - g.buffers.data());
    copies.resize(loop.size() + 1);
  }

  Swapped run(const std::vector<Swap> &swaps) {
    for (const Swap &swap : swaps)
      add(swap);
    int added = int(g.kernels.size()) - firstCopy;
    for (size_t b : movedProducers)
      g.buffers[b].producer += added;
    g.kernels.insert(g.kernels.end(), behind.begin(), behind.end());
    made.original.insert(made.original.begin() + firstCopy, size_t(added), kCopy);
    for (size_t t = 0; t <= loop.size(); ++t) {
      for (const std::vector<int> &list : copies[t].inTurn)
        made.loop.insert(made.loop.end(), list.begin(), list.end());
      if (t < loop.size())
        made.loop.push_back(loop[t]);
    }
    return std::move(made);
  }

private:
  // What stands before one run: copies out begin first, then what has left is waited for, so that what comes in finds its bytes free.
  enum Turn { Leaves, Gone, Comes, Here };
  struct Copies {
    std::vector<int> inTurn[4];
  };

  void add(const Swap &swap) {
    Buffer home = g.buffers[size_t(swap.buffer)];
    home.space = Buffer::Host, home.producer = int(g.kernels.size());
    const int slot = int(g.buffers.size());
    g.buffers.push_back(home);
    copy(Kernel::Store, {swap.buffer}, {slot}, swap.store, Leaves);
    copy(Kernel::Await, {swap.buffer}, {}, swap.gone, Gone);
    copy(Kernel::Fetch, {slot}, {swap.buffer}, swap.fetch, Comes);
    copy(Kernel::Await, {swap.buffer}, {}, swap.use, Here);
  }

  void copy(Kernel::Copy what, std::vector<int> reads, std::vector<int> writes, int before, Turn turn) {
    copies[size_t(before)].inTurn[turn].push_back(int(g.kernels.size()));
    g.kernels.push_back(copyKernel(g, what, g.mainLoop(), std::move(reads), std::move(writes)));
    g.kernels.back().backward = false; // the sweep turns at work
  }

  const std::vector<int> &loop;
  Swapped made;
  StepGraph &g;
  int firstCopy = 0;
  std::vector<Kernel> behind;
  std::vector<size_t> movedProducers; // buffers that are made behind the loop
  std::vector<Copies> copies;         // before each run of the loop
};

} // namespace

Swapped withSwaps(const StepGraph &g, const std::vector<int> &loop, const std::vector<Swap> &swaps, const std::vector<int> &before) {
  return Swapper(g, loop, before).run(swaps);
}

} // namespace cinch::solve
