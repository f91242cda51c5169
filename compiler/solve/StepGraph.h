// StepGraph.h: one training step as the planner sees it: kernels, the buffers they read and write, bytes and costs as
// functions of the micro-batch. Plain structs; every solver, the report and the plan checker read the same.
#ifndef CINCH_COMPILER_SOLVE_STEPGRAPH_H
#define CINCH_COMPILER_SOLVE_STEPGRAPH_H

#include "compiler/solve/Bytes.h"

#include <memory>
#include <string>
#include <vector>

namespace cinch::solve {

// A quantity at micro-batch b is fixed + perExample * b; a block of rows may be a part of an example.
struct Linear {
  double fixed = 0, perExample = 0;
  double at(double b) const { return fixed + perExample * b; }
  void add(const Linear &o, double times = 1) { fixed += times * o.fixed, perExample += times * o.perExample; }
};

// Predicted seconds. Where few examples are worked on at a time, what the kernel before has written is still in the caches: up to so many
// examples, each of them saves some time. At some numbers of examples the threads share the work unevenly, and it takes longer (or, where the
// line is of a number with which they do, less long).
struct Seconds : Linear {
  struct Saving {
    double most, perExample; // examples, seconds
  };
  struct Exactly {
    double examples, seconds;
  };
  std::vector<Saving> near; // of all kernels whose times were added up
  std::vector<Exactly> uneven; // what is added where they are so many
  Seconds(double fixed = 0, double perExample = 0) : Linear{fixed, perExample} {}
  double at(double b) const {
    double seconds = Linear::at(b);
    for (const Saving &saving : near)
      seconds -= b <= saving.most ? saving.perExample * b : 0;
    for (const Exactly &more : uneven)
      seconds += b == more.examples ? more.seconds : 0;
    return seconds;
  }
  void add(const Seconds &o, double times = 1) {
    Linear::add(o, times);
    for (const Saving &saving : o.near)
      near.push_back({saving.most, times * saving.perExample});
    for (const Exactly &more : o.uneven)
      uneven.push_back({more.examples, times * more.seconds});
  }
};

// Bytes that are known at each micro-batch that may be chosen, and follow no rule between them.
struct ByteTable {
  int64_t otherwise = 0;
  std::vector<std::pair<int64_t, int64_t>> exactly; // (micro-batch, bytes) where they differ from `otherwise`
  ByteTable(int64_t bytes = 0) : otherwise(bytes) {}
  int64_t at(int64_t microbatch) const {
    for (auto &[size, bytes] : exactly)
      if (size == microbatch)
        return bytes;
    return otherwise;
  }
};

struct Buffer {
  int64_t fixedBytes = 0, perExampleBytes = 0; // size at micro-batch b, before rounding up to 64
  // Persistent buffers live through the whole run (parameters, optimizer state, batch data), never freed or moved.
  // Accumulators live from the start of the loop that adds to them to their last reader behind it (to the end of the step if there is none).
  // In a step of one micro-batch they live from their first work on (StepGraph::sumsBeginLate).
  enum Kind { Value, Persistent, Accumulator } kind = Value;
  // The memory that it lies in: the arena, or pinned memory of the host beside a device, which only copies read and write. There lie persistent
  // buffers and values that a Store in the main loop has left for a Fetch there.
  enum Space { Arena, Host } space = Arena;
  int producer = -1;         // kernel that writes it; -1: input
  // Of what work on rows reads and writes: rows of an example (0: as many as an example has positions), and rows a position.
  int64_t rows = 0, rowScale = 1;
  std::string name;          // for people: "blocks.3.ff.up matmul"
  int line = 0;              // source line, 0: none
  int libraryLine = 0;       // line of the prelude, where the work is written there; 0: none
  int64_t bytes(int64_t b) const { return roundUp(fixedBytes + perExampleBytes * b); }
};

// A step is a list of loops over the micro-batches, and of what runs once before, between and behind them. These are its sections, numbered
// in their order: a loop has an odd number, what runs once an even one. With one loop: 0 before it, 1 its body, 2 behind it.
inline bool isLoop(int section) { return section % 2 != 0; }

// Row p of what a kernel makes needs rows (p * up + from) / down to (p * up + to) / down of an operand, those whose numbers are whole: the
// taps of a convolution meet rows around it. Without any, row p of the operand.
struct RowReach {
  int64_t up = 1, down = 1, from = 0, to = 0;
  bool operator==(const RowReach &o) const { return up == o.up && down == o.down && from == o.from && to == o.to; }
  bool isOwnRow() const { return *this == RowReach(); }
};

struct LoopBody;

struct Kernel {
  std::vector<int> reads, writes;   // buffers; an Accumulator that is read and written stands in `writes` only
  int section = 1;
  Seconds seconds;                  // the fixed part holds the launch
  Linear flops, traffic;            // what the prediction came from
  enum Work { Loop, Product, Attention, AttentionGrad, Nothing } work = Loop; // whose rate of the machine counts
  bool recomputable = true;         // false: writes an accumulator, or may run once only
  bool cheap = false;               // element-wise and row-wise work: what strategy `cheap` recomputes
  bool backward = false;            // belongs to the backward sweep (or after it)
  bool keepHint = false, recomputeHint = false; // @checkpoint, @recompute on what it writes
  // Independent for each row, an (example, position) pair: whatever it reads or writes that grows with the micro-batch is
  // read and written row by row, and accumulators are chains over the rows in their order (RowBlocks.h).
  bool rows = false;
  std::vector<RowReach> reach;        // of such work, one a read; empty: it needs its own rows only
  int64_t rowScale = 1;               // rows a position of what it makes, or of what it sums over
  int64_t rowsTogether = 1;           // rows that it makes are a multiple of this, and begin at one
  bool ownRows = false;               // it sums over rows, or draws for them: it may work on no row twice
  int block = -1;                   // block of a `repeat`; -1 outside
  bool blockEnd = false;
  // Write w may share bytes with read r when r dies here: element i of w depends on element i of r alone.
  // Pairs of buffers: (w, r).
  std::vector<std::pair<int, int>> inPlace;
  ByteTable scratch;                  // a thread
  // The kernel is a loop itself (over blocks of rows, along an axis): its scratch holds what a trip needs. Null: it is a leaf.
  std::shared_ptr<const LoopBody> body;
  bool newPart = false;               // no work: the next part of the main loop's body begins here
  bool message = false;               // no work: a value goes to another worker, or comes from one
  // No work of the device's cores, in the main loop or behind it: a copy from pinned memory (Fetch) or to it (Store) begins here, and goes on
  // beside the kernels that follow, until an Await of the value in the arena. In the main loop a Fetch writes a value anew that another kernel made.
  enum Copy { NoCopy, Fetch, Store, Await } copy = NoCopy;
  std::string name;
  int line = 0, libraryLine = 0; // as of a buffer
};

// One entry of the list that a worker goes through in a step: a part of the loop body, for one micro-batch.
struct PartAction {
  int part = 0;
  int64_t microbatch = 0;
  bool operator==(const PartAction &o) const { return part == o.part && microbatch == o.microbatch; }
};

// Copies between the arena and pinned memory: an engine for each direction, whose copies come one after the other.
struct HostLink {
  double in = 0, out = 0; // bytes a second to the device, and from it; 0: there is none
  double latency = 0;     // seconds a copy
  double seconds(Kernel::Copy copy, int64_t bytes) const {
    double rate = copy == Kernel::Fetch ? in : copy == Kernel::Store ? out : 0;
    return rate > 0 ? latency + double(bytes) / rate : 0;
  }
};

struct StepGraph {
  std::vector<Buffer> buffers;
  std::vector<Kernel> kernels;      // a valid order: every kernel after the producers of what it reads
  int loops = 1;                    // over the micro-batches; the planner chooses order and recomputation of the last one, the main loop
  int64_t batch = 1;                // B
  int64_t grain = 1;                // the micro-batch is a multiple of this and divides B: examples that belong together
  int64_t positions = 1;            // rows of an example
  int threads = 1;
  double secondsOfCopy = 0;         // a byte that one piece of work copies to another place
  // Empty: the main loop's body runs as a whole, once a micro-batch. Else a worker of several runs these, in this order; every part takes the
  // micro-batches in ascending order. They belong to one number of micro-batches (more, if the caller says how many there are): a
  // search must be told the micro-batch.
  std::vector<PartAction> actions;
  HostLink link;
  // May the sums of the main loop begin with the work that adds to them first, where the loop has one trip? Nothing of them is there before, so that
  // their bytes are free until then. Else they begin with the loop.
  bool sumsBeginLate = false;
  int64_t page = 0; // bytes that the system hands out at once: an arena that wastes no more is packed well
  int64_t rowsOf(const Buffer &buffer) const { return buffer.rows > 0 ? buffer.rows : positions; }
  int mainLoop() const { return 2 * loops - 1; } // section
  bool inMainLoop(int kernel) const { return kernels[size_t(kernel)].section == mainLoop(); }
  int64_t trips(int section, int64_t microbatch) const { return isLoop(section) ? batch / microbatch : 1; }
  // Scratch of all threads of a kernel at a micro-batch.
  int64_t scratchBytes(const Kernel &kernel, int64_t b) const { return roundUp(kernel.scratch.at(b) * threads); }
};

} // namespace cinch::solve
#endif
