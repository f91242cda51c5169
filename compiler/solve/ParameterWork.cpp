// ParameterWork.cpp: which work on parameters may move into the main loop, and where it stands there.
#include "compiler/solve/ParameterWork.h"

#include "compiler/solve/Timeline.h"

#include <algorithm>
#include <functional>
#include <numeric>

namespace cinch::solve {
namespace {

class Mover {
public:
  explicit Mover(const StepGraph &g) : g(g), moves(g.kernels.size(), false), isRead(g.buffers.size(), false), changes(g.buffers.size(), false) {
    for (const Kernel &kernel : g.kernels) {
      for (int b : kernel.reads)
        isRead[size_t(b)] = true;
      for (int b : kernel.writes)
        changes[size_t(b)] = changes[size_t(b)] || (g.buffers[size_t(b)].kind != Buffer::Value && kernel.section <= g.mainLoop());
    }
    if (overlapOf(g.actions) > 0 || !partsKeepOrder(g.actions))
      return;
    std::vector<bool> ofParameters(g.kernels.size(), false);
    for (size_t k = 0; k < g.kernels.size(); ++k)
      moves[k] = ofParameters[k] = isOfParameters(g.kernels[k], ofParameters);
    keepWithReaders();
  }

  // Bytes that each of the movable kernels leaves, most first.
  std::vector<int64_t> bytes() const {
    std::vector<int64_t> bytes;
    for (size_t k = 0; k < moves.size(); ++k)
      if (moves[k])
        bytes.push_back(bytesOf(k));
    std::sort(bytes.begin(), bytes.end(), std::greater<>());
    return bytes;
  }
  // Only those that leave so much.
  void keepLarge(int64_t least) {
    for (size_t k = moves.size(); k-- > 0;)
      moves[k] = moves[k] && bytesOf(k) >= least;
    keepWithReaders();
  }

  RowBlocked moved(const RowBlocked &step) {
    RowBlocked out = step;
    out.graph.kernels.clear(), out.original.clear();
    out.movesParameterWork = true;
    std::vector<int> now(moves.size(), -1);
    auto add = [&](auto &&add, int k, bool isBackward) -> void {
      for (int b : g.kernels[size_t(k)].reads)
        if (int p = g.buffers[size_t(b)].producer; p >= 0 && moves[size_t(p)] && now[size_t(p)] < 0)
          add(add, p, isBackward);
      now[size_t(k)] = int(out.graph.kernels.size());
      out.original.push_back(step.original[size_t(k)]);
      out.graph.kernels.push_back(g.kernels[size_t(k)]);
      if (moves[size_t(k)])
        out.graph.kernels.back().section = g.mainLoop(), out.graph.kernels.back().backward = isBackward;
    };
    for (size_t k = 0; k < moves.size(); ++k)
      if (!moves[k])
        add(add, int(k), g.kernels[k].backward);
    for (Buffer &buffer : out.graph.buffers)
      if (buffer.producer >= 0)
        buffer.producer = now[size_t(buffer.producer)];
    for (RowKernel &range : out.ranges)
      range.kernel = now[size_t(range.kernel)];
    return out;
  }

private:
  // Work that runs once, and makes the same of the same operands: of parameters, or of other such work.
  bool isOfParameters(const Kernel &kernel, const std::vector<bool> &ofParameters) const {
    auto isOperand = [&](int b) {
      const Buffer &buffer = g.buffers[size_t(b)];
      if (buffer.perExampleBytes > 0 || changes[size_t(b)])
        return false;
      return buffer.kind == Buffer::Persistent || (buffer.kind == Buffer::Value && (buffer.producer < 0 || ofParameters[size_t(buffer.producer)]));
    };
    auto isResult = [&](int b) { return g.buffers[size_t(b)].kind == Buffer::Value && g.buffers[size_t(b)].perExampleBytes == 0 && isRead[size_t(b)]; };
    return !isLoop(kernel.section) && kernel.section < g.mainLoop() && kernel.recomputable && kernel.work != Kernel::Nothing && !kernel.writes.empty() &&
           std::all_of(kernel.reads.begin(), kernel.reads.end(), isOperand) && std::all_of(kernel.writes.begin(), kernel.writes.end(), isResult);
  }
  // What makes something for work that stays does so, too.
  void keepWithReaders() {
    for (size_t k = g.kernels.size(); k-- > 0;)
      if (!moves[k] && !g.inMainLoop(int(k)))
        for (int b : g.kernels[k].reads)
          if (int p = g.buffers[size_t(b)].producer; p >= 0 && g.buffers[size_t(b)].kind == Buffer::Value)
            moves[size_t(p)] = false;
  }
  int64_t bytesOf(size_t k) const {
    int64_t bytes = 0;
    for (int b : g.kernels[k].writes)
      bytes += g.buffers[size_t(b)].fixedBytes;
    return bytes;
  }

  const StepGraph &g;
  std::vector<bool> moves;           // of kernels
  std::vector<bool> isRead, changes; // of buffers: by anybody; parameters, state and sums that are written before the updates
};

} // namespace

std::vector<RowBlocked> withParameterWorkInLoop(const RowBlocked &step) {
  std::vector<RowBlocked> steps;
  Mover mover(step.graph);
  const std::vector<int64_t> bytes = mover.bytes();
  const int64_t all = std::accumulate(bytes.begin(), bytes.end(), int64_t(0));
  // Each step is planned. For little beside what stays from step to step that is too much work.
  constexpr int64_t kLeast = 256; // a part of that
  int64_t stays = 0;
  for (const Buffer &buffer : step.graph.buffers)
    stays += buffer.kind == Buffer::Persistent ? buffer.fixedBytes : 0;
  if (bytes.empty() || all * kLeast < stays)
    return steps;
  steps.push_back(mover.moved(step));
  size_t count = 0;
  for (int64_t large = 0; 2 * large < all; ++count)
    large += bytes[count];
  if (bytes[count - 1] > bytes.back()) {
    mover.keepLarge(bytes[count - 1]);
    if (!mover.bytes().empty())
      steps.push_back(mover.moved(step));
  }
  return steps;
}

} // namespace cinch::solve
