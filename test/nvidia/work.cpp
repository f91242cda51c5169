// work.cpp: copies, launches and graphs of the stand-in's driver.
#include "driver.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

using namespace standin;

bool standin::isOn(const Device &device, uint64_t at, size_t bytes) {
  for (const auto *ranges : {&device.allocations, &device.globals})
    for (const Range &range : *ranges)
      if (range.has(reinterpret_cast<void *>(at), bytes))
        return true;
  return false;
}

namespace {

uint64_t executed = 0; // kernels

// As the kernel number N fails that STANDIN_FAIL names.
int plantedInKernel() {
  const char *fail = setting("STANDIN_FAIL");
  ++executed;
  if (!fail)
    return 0;
  if (!strncmp(fail, "launch:", 7) && strtoull(fail + 7, nullptr, 10) == executed)
    return kLaunchFailed;
  return !strncmp(fail, "ecc:", 4) && strtoull(fail + 4, nullptr, 10) == executed ? kEccError : 0;
}

bool isPinned(const void *at, size_t bytes) {
  return std::any_of(pinned.begin(), pinned.end(), [&](const Range &range) { return range.has(at, bytes); });
}

// Copies from and to the host: memory that is not pinned has no place in a graph.
int copyWithHost(Stream &stream, uint64_t at, const void *host, size_t bytes, std::function<int()> run) {
  if (current != stream.device)
    return current ? kInvalidHandle : kInvalidContext;
  if (!isOn(*stream.device, at, bytes))
    return kInvalidValue;
  if (stream.capture && !isPinned(host, bytes)) {
    stream.capture->invalidated = true;
    return kCaptureUnsupported;
  }
  return ask(stream, {std::move(run)});
}

// The first branch has waited for all of the others, itself or through one that it has waited for.
bool isJoined(const Graph &graph) {
  std::vector<uint64_t> needed(graph.branches.size(), 0), looked(graph.branches.size(), 0); // of each branch
  needed[0] = graph.branches.front().size();
  for (bool more = true; more;) {
    more = false;
    for (size_t branch = 0; branch < graph.branches.size(); ++branch)
      for (; looked[branch] < needed[branch]; ++looked[branch])
        if (const Op &op = graph.branches[branch][looked[branch]]; op.waits) {
          uint64_t &other = needed[graph.branchOf(op.waits)];
          other = std::max(other, op.count), more = true;
        }
  }
  for (size_t branch = 0; branch < graph.branches.size(); ++branch)
    if (needed[branch] < graph.branches[branch].size())
      return false;
  return true;
}

// Goes through the first branch of a graph; the others do what they have to when that waits for it, or, if they are eager or it is busy, as early as
// they may.
class GraphRun {
public:
  explicit GraphRun(const Graph &graph) : graph(graph), done(graph.branches.size(), 0) {}
  // Where it is busy, the next call goes on.
  int run() {
    int result = 0;
    while (done[0] < graph.branches.front().size() && !result) {
      result = upTo(0, done[0] + 1);
      for (size_t branch = 1; branch < done.size() && (!result || result == kBusy); ++branch)
        while ((result == kBusy || isEager(*graph.streams[branch])) && mayGoOn(branch)) {
          int its = upTo(branch, done[branch] + 1);
          if (its)
            result = its;
          if (its == kBusy)
            break;
        }
    }
    return result;
  }

private:
  bool mayGoOn(size_t branch) const {
    if (done[branch] == graph.branches[branch].size())
      return false;
    const Op &op = graph.branches[branch][done[branch]];
    return !op.waits || done[graph.branchOf(op.waits)] >= op.count;
  }
  int upTo(size_t branch, uint64_t count) {
    int result = 0;
    while (done[branch] < count && !result) {
      const Op &op = graph.branches[branch][done[branch]];
      result = op.waits ? upTo(graph.branchOf(op.waits), op.count) : op.run();
      if (result != kBusy)
        ++done[branch];
    }
    return result;
  }
  const Graph &graph;
  std::vector<uint64_t> done; // of each branch
};

int setMemory(Stream &stream, uint64_t at, size_t bytes, std::function<int()> run) {
  if (current != stream.device)
    return current ? kInvalidHandle : kInvalidContext;
  if (!isOn(*stream.device, at, bytes))
    return kInvalidValue;
  return ask(stream, {std::move(run)});
}

} // namespace

extern "C" {
int cuMemcpyHtoDAsync_v2(uint64_t to, const void *from, size_t bytes, void *stream) {
  Lock lock(mutex);
  return copyWithHost(*static_cast<Stream *>(stream), to, from, bytes, [=] { return memcpy(reinterpret_cast<void *>(to), from, bytes), 0; });
}
int cuMemcpyDtoHAsync_v2(void *to, uint64_t from, size_t bytes, void *stream) {
  Lock lock(mutex);
  note(("from " + std::to_string(bytes)).c_str());
  return copyWithHost(*static_cast<Stream *>(stream), from, to, bytes, [=] { return memcpy(to, reinterpret_cast<void *>(from), bytes), 0; });
}
int cuMemcpyDtoDAsync_v2(uint64_t to, uint64_t from, size_t bytes, void *handle) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (!isOn(*stream->device, to, bytes) || !isOn(*stream->device, from, bytes))
    return kInvalidValue;
  return ask(*stream, {[=] { return memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes), 0; }});
}
int cuMemcpyPeerAsync(uint64_t to, void *toContext, uint64_t from, void *fromContext, size_t bytes, void *handle) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (!isOn(*static_cast<Device *>(toContext), to, bytes) || !isOn(*static_cast<Device *>(fromContext), from, bytes))
    return kInvalidValue;
  note("peer");
  return ask(*stream, {[=] { return memcpy(reinterpret_cast<void *>(to), reinterpret_cast<void *>(from), bytes), 0; }});
}
int cuMemsetD8Async(uint64_t at, unsigned char value, size_t count, void *stream) {
  Lock lock(mutex);
  return setMemory(*static_cast<Stream *>(stream), at, count, [=] { return memset(reinterpret_cast<void *>(at), value, count), 0; });
}
int cuMemsetD16Async(uint64_t at, unsigned short value, size_t count, void *stream) {
  Lock lock(mutex);
  return setMemory(*static_cast<Stream *>(stream), at, 2 * count,
                   [=] { return std::fill_n(reinterpret_cast<unsigned short *>(at), count, value), 0; });
}
int cuMemsetD32Async(uint64_t at, unsigned value, size_t count, void *stream) {
  Lock lock(mutex);
  return setMemory(*static_cast<Stream *>(stream), at, 4 * count, [=] { return std::fill_n(reinterpret_cast<unsigned *>(at), count, value), 0; });
}
int cuMemsetD2D32Async(uint64_t at, size_t pitch, unsigned value, size_t width, size_t height, void *stream) {
  Lock lock(mutex);
  return setMemory(*static_cast<Stream *>(stream), at, height ? pitch * (height - 1) + 4 * width : 0, [=] {
    for (size_t row = 0; row < height; ++row)
      std::fill_n(reinterpret_cast<unsigned *>(at + row * pitch), width, value);
    return 0;
  });
}
int cuLaunchKernel(void *function, unsigned blocks, unsigned, unsigned, unsigned threads, unsigned, unsigned, unsigned shared,
                   void *handle, void **arguments, void **) {
  std::unique_lock<std::recursive_mutex> lock(mutex);
  if (int result = planted("cuLaunchKernel", 701))
    return result;
  if (!blocks || !threads || threads > 1024)
    return kInvalidValue;
  auto *kernel = static_cast<Kernel *>(function);
  auto *stream = static_cast<Stream *>(handle);
  if (current != stream->device)
    return current ? kInvalidHandle : kInvalidContext;
  if (int64_t(shared) > kernel->shared)
    return kInvalidValue;
  if (static_cast<Module *>(kernel->module)->device != stream->device)
    return kInvalidHandle;
  auto *arena = *static_cast<char **>(arguments[0]);
  Range range = {nullptr, nullptr};
  for (const Range &each : stream->device->allocations)
    if (each.begin == arena)
      range = each;
  if (!range.begin)
    return kInvalidValue;
  auto *words = static_cast<int64_t *>(arguments[1]), *context = static_cast<int64_t *>(arguments[2]);
  std::vector<int64_t> wordsNow(words, words + kernel->words), contextNow(context, context + 128);
  // Maps begin at 64 bytes there, as a parameter's alignment says.
  struct alignas(64) MapWords {
    int64_t words[16];
  };
  std::vector<MapWords> mapsNow(size_t(kernel->maps) / 16);
  if (kernel->maps)
    memcpy(mapsNow.data(), arguments[3], size_t(kernel->maps) * 8);
  note(stream->capture ? "captured" : "launch");
  int result = ask(*stream, {[=]() mutable {
    if (int failure = plantedInKernel())
      return failure;
    void *each[4] = {arena, wordsNow.data(), contextNow.data(), mapsNow.data()};
    arenaBegin = range.begin, arenaEnd = range.end;
    for (unsigned i = 0; i < blocks; ++i)
      runBlock(*kernel, each, i, threads);
    return 0;
  }});
  static const char *blocking = setting("CUDA_LAUNCH_BLOCKING");
  if (!result && !stream->capture && blocking && !strcmp(blocking, "1"))
    result = finish(*stream, stream->asked, lock);
  return result;
}
int cuStreamBeginCapture_v2(void *handle, int) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (int result = planted("cuStreamBeginCapture_v2", kNotSupported))
    return result;
  if (stream->capture)
    return kInvalidValue;
  stream->capture = new Graph();
  stream->capture->streams.push_back(stream);
  stream->capture->branches.emplace_back();
  return 0;
}
int cuStreamEndCapture(void *handle, void **graph) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (!stream->capture)
    return kInvalidValue;
  Graph *captured = stream->capture;
  for (Stream *each : captured->streams)
    each->capture = nullptr;
  int result = captured->invalidated ? kCaptureInvalidated : isJoined(*captured) ? 0 : kCaptureUnjoined;
  return *graph = result ? nullptr : captured, result;
}
int cuGraphInstantiateWithFlags(void **made, void *graph, unsigned long long) {
  Lock lock(mutex);
  note("instantiation");
  if (int result = planted("cuGraphInstantiateWithFlags", kOutOfMemory))
    return result;
  return *made = new Graph(*static_cast<Graph *>(graph)), 0;
}
int cuGraphDestroy(void *graph) { return delete static_cast<Graph *>(graph), 0; }
int cuGraphLaunch(void *graph, void *handle) {
  Lock lock(mutex);
  auto *stream = static_cast<Stream *>(handle);
  if (stream->capture)
    return kCaptureUnsupported;
  note("graph");
  auto *launched = static_cast<Graph *>(graph);
  if (launched->branches.size() > 1)
    return ask(*stream, {[run = std::make_shared<GraphRun>(*launched)] { return run->run(); }});
  int result = 0;
  for (const Op &op : launched->branches.front())
    result = ask(*stream, op);
  return result;
}
}
