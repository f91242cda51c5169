// RowBlocks.cpp: a range of kernels becomes one kernel that works block by block.
#include "compiler/solve/RowBlocks.h"

#include <algorithm>
#include <functional>
#include <numeric>
#include <queue>

namespace cinch::solve {
namespace {

// What a kernel does in a trip, of what it would do on the rows of the block alone.
double shareOfRows(const TripRows &rows) { return rows.count > 0 ? double(rows.count) / double(rows.step) : 1; }

bool contains(const std::vector<int> &list, int x) { return std::find(list.begin(), list.end(), x) != list.end(); }

void addOnce(std::vector<int> &list, int x) {
  if (!contains(list, x))
    list.push_back(x);
}

// Which range a kernel belongs to (its own run, not one again), and which values leave their range.
struct Ownership {
  std::vector<int> rangeOf;   // of kernels; -1: none
  std::vector<bool> exported; // of buffers that a range writes: read by something that does not compute it itself

  Ownership(const StepGraph &g, const std::vector<RowRange> &ranges) {
    rangeOf.assign(g.kernels.size(), -1);
    exported.assign(g.buffers.size(), false);
    for (size_t r = 0; r < ranges.size(); ++r)
      for (size_t i = size_t(ranges[r].again); i < ranges[r].kernels.size(); ++i)
        rangeOf[ranges[r].kernels[i]] = int(r);
    for (size_t k = 0; k < g.kernels.size(); ++k)
      for (int b : g.kernels[k].reads) {
        int producer = g.buffers[b].producer;
        if (producer < 0 || rangeOf[producer] < 0 || g.buffers[b].kind != Buffer::Value)
          continue;
        int reader = rangeOf[k];
        exported[b] = exported[b] || reader < 0 || !contains(ranges[reader].kernels, producer);
      }
  }
};

// The work of one block as a graph of its own.
class BlockBuilder {
public:
  BlockBuilder(const StepGraph &g, const Ownership &own, const RowBlock &block, const ScratchOfRows &scratch, RowKernel &out)
      : g(g), own(own), block(block), scratch(scratch), out(out), number(g.buffers.size(), -1), bandOf(g.buffers.size(), -1) {}

  // Empty if it can be built.
  std::string build() {
    out.trip.threads = g.threads;
    if (block.positions < g.positions)
      rows = rowsOfRange(g, out.range, block, own.exported);
    if (!rows.error.empty())
      return rows.error;
    for (size_t i = 0; i < out.range.kernels.size(); ++i)
      if (!add(i))
        return g.kernels[out.range.kernels[i]].name + " is no kernel on such rows";
    bool plain = rows.bands.empty();
    for (size_t i = 0; i < rows.kernels.size(); ++i)
      plain &= g.kernels[out.range.kernels[i]].reach.empty() && rows.kernels[i] == TripRows{0, block.positions, block.positions};
    if (plain)
      out.rows.clear();
    return "";
  }

private:
  size_t placeOf(int kernel) const {
    return size_t(std::find(out.range.kernels.begin(), out.range.kernels.end(), kernel) - out.range.kernels.begin());
  }
  // Of so many rows, or of a block's share of an example.
  int64_t bytesOf(const Buffer &buffer, const TripRows *band) const {
    int64_t of = band ? g.rowsOf(buffer) : g.positions, count = band ? band->count : block.positions;
    return buffer.fixedBytes + buffer.perExampleBytes * count / of * block.examples;
  }

  int add(const Buffer &from, int b, bool local) {
    Buffer buffer;
    buffer.name = from.name, buffer.line = from.line, buffer.libraryLine = from.libraryLine;
    out.trip.buffers.push_back(buffer);
    out.buffers.push_back(b);
    out.local.push_back(local);
    return int(out.trip.buffers.size()) - 1;
  }

  int bufferOf(int b) {
    if (number[b] >= 0)
      return number[b];
    const Buffer &from = g.buffers[b];
    size_t place = placeOf(from.producer);
    bool inside = from.kind == Buffer::Value && from.producer >= 0 && place < out.range.kernels.size();
    bool local = inside && (int(place) < out.range.again || !own.exported[b]);
    number[b] = add(from, b, local);
    Buffer &buffer = out.trip.buffers[number[b]];
    if (inside)
      buffer.producer = tripKernel(place);
    else
      buffer.kind = Buffer::Persistent;
    if (local)
      buffer.fixedBytes = bytesOf(from, rows.kernels.empty() ? nullptr : &rows.kernels[place]);
    return number[b];
  }
  // A range that is out of order is refused when it is packed.
  int tripKernel(size_t place) const {
    auto it = std::find(out.work.begin(), out.work.end(), int(place));
    return it == out.work.end() ? int(place) : int(it - out.work.begin());
  }

  // What a kernel reads; of a band, the copy.
  int readOf(int b) {
    auto band = rows.bands.find(b);
    if (band == rows.bands.end())
      return bufferOf(b);
    if (bandOf[b] >= 0)
      return bandOf[b];
    Kernel copy;
    copy.name = "rows of " + g.buffers[b].name;
    copy.reads = {bufferOf(b)};
    copy.recomputable = false;
    bandOf[b] = add(g.buffers[b], b, true);
    Buffer &buffer = out.trip.buffers[bandOf[b]];
    buffer.fixedBytes = bytesOf(g.buffers[b], &band->second);
    buffer.producer = int(out.trip.kernels.size());
    copy.writes = {bandOf[b]};
    copy.section = out.trip.mainLoop();
    copy.seconds.fixed = double(buffer.fixedBytes) * g.secondsOfCopy;
    copy.traffic.fixed = 2 * double(buffer.fixedBytes);
    copy.scratch = 0;
    out.work.push_back(-1);
    out.rows.push_back(band->second);
    out.trip.kernels.push_back(std::move(copy));
    return bandOf[b];
  }

  bool add(size_t i) {
    const Kernel &from = g.kernels[out.range.kernels[i]];
    Kernel kernel = from;
    kernel.reads.clear(), kernel.writes.clear(), kernel.inPlace.clear();
    KernelRows known{out.range.kernels[i], {}, {}};
    for (int b : from.reads) {
      kernel.reads.push_back(readOf(b));
      known.read.push_back(rowsRead(b));
    }
    if (!rows.kernels.empty())
      known.made = rows.kernels[i];
    out.work.push_back(int(i));
    out.rows.push_back(known.made);
    for (int b : from.writes)
      kernel.writes.push_back(bufferOf(b));
    for (auto &[to, source] : from.inPlace) {
      int at = bandOf[source] >= 0 ? bandOf[source] : number[source];
      if (out.local[number[to]] && out.local[at] && out.trip.buffers[number[to]].fixedBytes == out.trip.buffers[at].fixedBytes)
        kernel.inPlace.push_back({number[to], at});
    }
    kernel.section = out.trip.mainLoop();
    kernel.recomputable = false;
    double share = double(block.examples) * double(block.positions) / double(g.positions) * shareOfRows(known.made); // of an example
    kernel.seconds = from.seconds.at(share);
    kernel.flops = {from.flops.at(share), 0}, kernel.traffic = {from.traffic.at(share), 0};
    kernel.reach.clear();
    int64_t bytes = scratch(out.range.kernels[i], rows.kernels.empty() ? nullptr : &known);
    kernel.scratch = std::max<int64_t>(0, bytes);
    out.trip.kernels.push_back(std::move(kernel));
    return bytes >= 0;
  }

  // The rows of a buffer that lie where a kernel finds them.
  TripRows rowsRead(int b) const {
    const Buffer &buffer = g.buffers[b];
    if (rows.kernels.empty() || buffer.perExampleBytes == 0)
      return {};
    if (auto band = rows.bands.find(b); band != rows.bands.end())
      return band->second;
    if (size_t place = placeOf(buffer.producer); buffer.producer >= 0 && place < rows.kernels.size())
      return rows.kernels[place];
    int64_t step = block.positions * buffer.rowScale;
    return {0, step, step};
  }

  const StepGraph &g;
  const Ownership &own;
  const RowBlock &block;
  const ScratchOfRows &scratch;
  RowKernel &out;
  RangeRows rows;
  std::vector<int> number, bandOf; // buffers of the graph -> of the trip, and the copies of their bands
};

// What the rest of the step sees of it.
Kernel summarize(const StepGraph &g, const Ownership &own, const RowKernel &part, const RowBlock &block) {
  Kernel kernel;
  kernel.section = g.mainLoop();
  const std::vector<int> &kernels = part.range.kernels;
  double blocks = double(g.positions) / (double(block.examples) * double(block.positions)); // an example
  std::vector<double> shares(kernels.size(), 1);
  for (size_t t = 0; t < part.rows.size(); ++t)
    if (part.work[t] >= 0)
      shares[part.work[t]] = shareOfRows(part.rows[t]);
    else
      kernel.seconds.perExample += part.trip.kernels[t].seconds.fixed * blocks,
          kernel.traffic.perExample += part.trip.kernels[t].traffic.fixed * blocks;
  for (size_t i = 0; i < kernels.size(); ++i) {
    const Kernel &from = g.kernels[kernels[i]];
    auto add = [&](Linear &to, const Linear &from) { to.perExample += from.perExample * shares[i] + from.fixed * blocks; };
    bool again = int(i) < part.range.again;
    for (int b : from.reads)
      if (g.buffers[b].kind != Buffer::Value || g.buffers[b].producer < 0 || !contains(kernels, g.buffers[b].producer))
        addOnce(kernel.reads, b);
    for (int b : from.writes)
      if (!again && (g.buffers[b].kind != Buffer::Value || own.exported[b]))
        addOnce(kernel.writes, b);
    kernel.seconds.perExample += from.seconds.at(shares[i] / blocks) * blocks;
    add(kernel.flops, from.flops), add(kernel.traffic, from.traffic);
    kernel.recomputable &= from.recomputable;
    if (again)
      continue;
    kernel.backward |= from.backward;
    kernel.keepHint |= from.keepHint, kernel.recomputeHint |= from.recomputeHint;
    kernel.blockEnd |= from.blockEnd;
    if (kernel.block < 0)
      kernel.block = from.block;
    if (kernel.name.empty())
      kernel.name = "rows of " + from.name, kernel.line = from.line, kernel.libraryLine = from.libraryLine;
  }
  if (part.packed)
    kernel.scratch = part.scratchBytesPerThread(1);
  return kernel;
}

// An order of the kernels in which every range stands together: kernel numbers, -1 - r for range r. Empty: there is none.
// Items arrive in the order of the graph, a range with the first of its kernels; of those that can run, the one that
// arrived first does.
std::vector<int> orderOf(const StepGraph &g, const Ownership &own, const std::vector<Kernel> &summaries) {
  size_t kernels = g.kernels.size(), items = kernels + summaries.size(); // the ranges stand behind the kernels
  auto kernelOf = [&](size_t item) -> const Kernel & { return item < kernels ? g.kernels[item] : summaries[item - kernels]; };
  std::vector<std::vector<int>> readers(g.buffers.size());
  std::vector<int> missing(items, 0), arrival(items, -1), order;
  std::vector<char> there(g.buffers.size(), 0);
  for (size_t b = 0; b < g.buffers.size(); ++b)
    there[b] = g.buffers[b].kind != Buffer::Value || g.buffers[b].producer < 0;
  for (size_t item = 0; item < items; ++item)
    if (item >= kernels || own.rangeOf[item] < 0)
      for (int b : kernelOf(item).reads)
        if (!there[b])
          ++missing[item], readers[b].push_back(int(item));
  using Arrived = std::pair<int, int>; // when, what
  std::priority_queue<Arrived, std::vector<Arrived>, std::greater<Arrived>> ready;
  int arrived = 0;
  for (int section = 0; section <= 2 * g.loops; ++section) {
    for (size_t k = 0; k < kernels; ++k) {
      size_t item = own.rangeOf[k] < 0 ? k : kernels + size_t(own.rangeOf[k]);
      if (g.kernels[k].section != section || arrival[item] >= 0)
        continue;
      arrival[item] = arrived++;
      if (missing[item] == 0)
        ready.push({arrival[item], int(item)});
      while (!ready.empty()) {
        size_t next = size_t(ready.top().second);
        ready.pop();
        order.push_back(next < kernels ? int(next) : -1 - int(next - kernels));
        for (int b : kernelOf(next).writes) {
          if (there[b])
            continue;
          there[b] = 1;
          for (int reader : readers[b])
            if (--missing[reader] == 0 && arrival[reader] >= 0)
              ready.push({arrival[reader], reader});
        }
      }
    }
    if (int(order.size()) != arrived)
      return {};
  }
  return order;
}

} // namespace

bool canStandTogether(const StepGraph &g, const std::vector<RowRange> &ranges) {
  Ownership own(g, ranges);
  if (g.positions > 1)
    for (const RowRange &range : ranges)
      if (!rowsOfRange(g, range, {1, 1}, own.exported).error.empty())
        return false;
  std::vector<Kernel> summaries;
  for (const RowRange &range : ranges) {
    RowKernel part;
    part.range = range;
    summaries.push_back(summarize(g, own, part, {1, g.positions}));
  }
  return !orderOf(g, own, summaries).empty();
}

RowBlocked withRowBlocks(const StepGraph &g, const std::vector<RowRange> &ranges, RowBlock block, const ScratchOfRows &scratch) {
  RowBlocked out;
  out.block = block;
  auto bad = [&](std::string why) {
    out.error = std::move(why);
    return out;
  };
  if (block.positions < 1 || g.positions % block.positions || block.examples < 1 ||
      (block.positions < g.positions && (block.examples > 1 || g.grain > 1)) ||
      (g.grain > 1 && block.examples % g.grain) || g.batch % block.examples)
    return bad("a block of " + std::to_string(block.examples) + " x " + std::to_string(block.positions) +
               " rows does not divide the batch");
  std::vector<int> owned(g.kernels.size(), 0);
  for (const RowRange &range : ranges)
    for (size_t i = 0; i < range.kernels.size(); ++i) {
      int k = range.kernels[i];
      if (k < 0 || k >= int(g.kernels.size()) || !g.kernels[k].rows || !g.inMainLoop(k))
        return bad("kernel " + std::to_string(k) + " is no work on rows");
      bool again = int(i) < range.again;
      if (again && !g.kernels[k].recomputable)
        return bad(g.kernels[k].name + " may run only once");
      if (!again && owned[k]++)
        return bad(g.kernels[k].name + " stands in two ranges");
    }
  Ownership own(g, ranges);

  std::vector<RowKernel> parts(ranges.size());
  for (size_t r = 0; r < ranges.size(); ++r) {
    parts[r].range = ranges[r];
    if (std::string why = BlockBuilder(g, own, block, scratch, parts[r]).build(); !why.empty())
      return bad(why);
    for (size_t i = size_t(ranges[r].again); i < ranges[r].kernels.size(); ++i)
      parts[r].whole.add(g.kernels[ranges[r].kernels[i]].seconds);
    parts[r].packed = evaluate(parts[r].trip, {1, plainLoop(parts[r].trip)});
    if (!parts[r].packed->error.empty())
      return bad(parts[r].packed->error);
  }
  // Kernels that stand alone keep their place; a range runs as soon as everything it reads is there.
  std::vector<Kernel> summaries;
  for (const RowKernel &part : parts)
    summaries.push_back(summarize(g, own, part, block));
  std::vector<int> order = orderOf(g, own, summaries);
  if (order.empty())
    return bad("no order of the kernels keeps the ranges together");
  out.graph = g;
  out.graph.kernels.clear();
  out.graph.grain = std::lcm(g.grain, block.examples);
  for (size_t b = 0; b < g.buffers.size(); ++b)
    if (int p = g.buffers[b].producer; p >= 0 && own.rangeOf[p] >= 0 && g.buffers[b].kind == Buffer::Value &&
                                       !own.exported[b])
      out.graph.buffers[b].fixedBytes = out.graph.buffers[b].perExampleBytes = 0;
  for (int item : order) {
    int number = int(out.graph.kernels.size());
    if (item < 0)
      parts[-item - 1].kernel = number;
    const Kernel &kernel = item < 0 ? summaries[-item - 1] : g.kernels[item];
    for (int b : kernel.writes)
      if (g.buffers[b].producer >= 0)
        out.graph.buffers[b].producer = number;
    out.original.push_back(std::max(item, -1));
    out.graph.kernels.push_back(kernel);
    if (item < 0)
      out.graph.kernels.back().body = std::make_shared<RowKernel>(parts[-item - 1]);
  }
  // Values that are nowhere whole: their range makes them.
  for (size_t b = 0; b < g.buffers.size(); ++b)
    if (int p = g.buffers[b].producer; p >= 0 && own.rangeOf[p] >= 0 && g.buffers[b].kind == Buffer::Value)
      out.graph.buffers[b].producer = parts[own.rangeOf[p]].kernel;
  out.ranges = std::move(parts);
  return out;
}

RowSummary summaryOf(const RowKernel &part, const RowBlocked &rows, const Decision &decision) {
  RowSummary summary;
  const RowBlock &block = rows.block;
  summary.blocks = decision.microbatch * rows.graph.positions / (block.examples * block.positions);
  int64_t widest = 0;
  for (size_t b = 0; b < part.trip.buffers.size(); ++b) {
    const Buffer &buffer = part.trip.buffers[b];
    if (!part.local[b] || part.work[buffer.producer] < 0)
      continue;
    summary.bytes += buffer.fixedBytes;
    double own = part.rows.empty() ? 1 : 1 / shareOfRows(part.rows[buffer.producer]); // of its rows, those that no other block has
    summary.instead += int64_t(double(buffer.fixedBytes) * own) * summary.blocks;
    if (buffer.fixedBytes > widest)
      widest = buffer.fixedBytes, summary.name = buffer.name, summary.line = buffer.line;
  }
  summary.seconds = double(decision.count) *
                    (rows.graph.kernels[part.kernel].seconds.at(decision.microbatch) - part.whole.at(decision.microbatch));
  return summary;
}

std::vector<RowBlock> possibleRowBlocks(const StepGraph &g) {
  std::vector<RowBlock> blocks;
  if (g.grain == 1)
    for (int64_t p : divisors(g.positions))
      if (p < g.positions)
        blocks.push_back({1, p});
  for (int64_t e : microbatches(g))
    blocks.push_back({e, g.positions});
  return blocks;
}

bool rowBlockOf(const StepGraph &g, int64_t rows, RowBlock &block, std::string &error) {
  int64_t below = 0, above = 0;
  for (const RowBlock &possible : possibleRowBlocks(g)) {
    int64_t size = possible.examples * possible.positions;
    if (size <= rows && size > below)
      below = size;
    if (size >= rows && (above == 0 || size < above))
      above = size;
    if (size == rows)
      block = possible;
  }
  if (below == rows)
    return true;
  error = "expected blocks of rows that " +
          (g.grain == 1 ? "divide the " + std::to_string(g.positions) + " positions of an example, or of whole examples that "
                        : std::string("are whole examples") + (g.positions > 1 ? " of " + std::to_string(g.positions) + " rows each" : "") + ", a multiple of " + std::to_string(g.grain) +
                              ", the examples that belong together (grain, groups), and ") +
          "divide the batch of " + std::to_string(g.batch) + ", got " + std::to_string(rows) + "; nearest: " + (below ? std::to_string(below) : "") +
          (below && above ? " and " : "") + (above ? std::to_string(above) : "");
  return false;
}

std::vector<RowBlock> rowBlockSizes(const StepGraph &g) {
  std::vector<RowBlock> sizes;
  std::vector<int64_t> ofPositions = divisors(g.positions), ofExamples = microbatches(g);
  auto largest = [](const std::vector<int64_t> &list, int64_t most) -> int64_t { // 0: none
    auto above = std::upper_bound(list.begin(), list.end(), most);
    return above == list.begin() ? 0 : *std::prev(above);
  };
  int64_t all = g.batch * g.positions;
  // A row of an image is wide: few of them are a block.
  bool images = std::any_of(g.kernels.begin(), g.kernels.end(), [](const Kernel &kernel) { return !kernel.reach.empty(); });
  if (images && g.grain == 1)
    for (int64_t part : {16, 8, 4, 2})
      if (int64_t rows = largest(ofPositions, std::max<int64_t>(1, g.positions / part)); rows < g.positions)
        if (sizes.empty() || sizes.back().positions != rows)
          sizes.push_back({1, rows});
  if (images && g.batch > 1)
    sizes.push_back({g.grain, g.positions});
  if (images)
    return sizes;
  for (int64_t rows = std::min<int64_t>(64, std::max<int64_t>(1, all / 4)); rows * 2 <= all && sizes.size() < 4;
       rows *= 4) {
    RowBlock block{1, g.positions};
    if (rows < g.positions && g.grain == 1)
      block.positions = largest(ofPositions, rows);
    else if ((block.examples = largest(ofExamples, std::max<int64_t>(1, rows / g.positions))) == 0)
      continue;
    bool again = false;
    for (const RowBlock &other : sizes)
      again |= other.examples == block.examples && other.positions == block.positions;
    if (!again)
      sizes.push_back(block);
  }
  return sizes;
}

} // namespace cinch::solve
