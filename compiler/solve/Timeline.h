// Timeline.h: a schedule of the main loop becomes instances with exact lifetimes: what `evaluate` and every search
// use to count bytes, so that there is one count. Flat arrays, reused from call to call: a search builds thousands of
// timelines.
#ifndef CINCH_COMPILER_SOLVE_TIMELINE_H
#define CINCH_COMPILER_SOLVE_TIMELINE_H

#include "compiler/solve/StepGraph.h"

namespace cinch::solve {

// Where the steps of a worker overlap (2bw), its list of a step's m micro-batches has actions of the next step, too, with the numbers m, m + 1 ..;
// what it leaves out at the begin was done with the step before. Returns m; 0: the steps do not overlap.
int64_t overlapOf(const std::vector<PartAction> &);
// The micro-batch with which each part begins in the list.
std::vector<int64_t> firstOfParts(const std::vector<PartAction> &);
// GraphIndex::copies for a list of actions. Where steps overlap they divide the micro-batches of a step, so that the next step's take turns
// on the same copies.
std::vector<std::vector<int64_t>> copiesBetweenParts(const std::vector<PartAction> &);
// Does every micro-batch run the parts in the order in which they stand in the loop body? (With zbv some gradients of parameters come
// before the input gradients of another chunk, and some behind them.)
bool partsKeepOrder(const std::vector<PartAction> &);
// Which parts find what an earlier one has left, if not all do: those that every micro-batch runs behind it. Empty: the parts keep their order.
std::vector<std::vector<char>> partsThatFind(const std::vector<PartAction> &);

// What never changes about a graph, computed once.
struct GraphIndex {
  explicit GraphIndex(const StepGraph &);
  const StepGraph &graph;
  std::vector<int> before, loop, behind;     // kernels before the main loop (other loops among them), in it and behind it, in order
  std::vector<bool> mayRecompute;            // of kernels: running it again gives the same bytes
  std::vector<bool> persistent;              // of buffers (unread inputs that are nobody's value count too)
  std::vector<int> bornIn;                   // of buffers: section of the producer (persistent: 0)
  // Of accumulators: the loop that adds to them, and whether a section before it has begun the sum. Else it is zeroed before the loop.
  std::vector<int> summedIn;
  std::vector<bool> begun;
  // Does the sum of a loop of one trip begin with its first work (StepGraph::sumsBeginLate)?
  bool beginsLate(int buffer, int64_t microbatch) const { return microbatch == graph.batch && mayBeginLate[size_t(buffer)]; }
  std::vector<std::vector<int>> readers;     // of buffers
  std::vector<char> values;                  // of buffers: made by a kernel, neither persistent nor an accumulator
  // copies[f][t]: micro-batches at most that have begun part f of the loop body and not ended part t; what waits from f to t needs so
  // many places. Empty: the loop body runs as a whole.
  std::vector<std::vector<int64_t>> copies;
  // finds[f][t]: does part t find what part f has left? Empty: each finds what those before it have left.
  std::vector<std::vector<char>> finds;
  bool sees(int from, int to) const { return from == to || (from < to && (finds.empty() || finds[size_t(from)][size_t(to)])); }
  // .. and a value of it? One without bytes orders kernels alone, whatever micro-batches do.
  bool reaches(int buffer, int from, int to) const { return sees(from, to) || hasNoBytes(buffer); }
  bool hasNoBytes(int buffer) const { return graph.buffers[size_t(buffer)].fixedBytes == 0 && graph.buffers[size_t(buffer)].perExampleBytes == 0; }
  // Sets of parts: all that find what a part leaves, and a part alone. Where all find each other it is one set.
  uint64_t seenBy(int part) const { return findsOf.empty() ? ~uint64_t(0) : findsOf[size_t(part)]; }
  uint64_t bitOf(int part) const { return findsOf.empty() ? 1 : uint64_t(1) << part; }
  // Steps overlap: what waits between parts lives from one call to the next, and what is one to a step is there twice (Timeline::holdTwoSteps).
  bool overlaps = false;
  bool offloads = false; // what is behind the main loop copies from and to the host
  bool swaps = false;    // what is in it does
  // What kernel k reads and writes: entries [first[k], first[k + 1]). A search walks these very often.
  std::vector<int> firstRead, reads, firstWrite, writes;
  std::string error;                         // empty if the graph is sane

  // Is the buffer there all through the main loop, in whatever order it runs?
  bool livesThroughLoop(int buffer, int64_t microbatch) const;

private:
  std::vector<uint64_t> findsOf; // `finds` as sets
  std::vector<char> mayBeginLate; // of buffers
  void listKernels();
  void checkBuffers();
  void checkCopies();
  void findSums();
  void findRecomputable();
};

class Timeline {
public:
  struct Life {
    int buffer, run, lower, upper, storage;
    int64_t copies = 1; // places one behind the other, taken in turns by the micro-batches
  };
  explicit Timeline(const GraphIndex &index) : index(index) {}

  // `loop`: kernels in the order they run; one that stands twice is recomputed. Every read takes the latest run's
  // value (of those in parts that the reader's finds) and an instance dies after its last read. Returns false, with `error`, if something is read that does not
  // exist.
  bool build(int64_t microbatch, const std::vector<int> &loop);

  const GraphIndex &index;
  int64_t microbatch = 1;
  int loopBegin = 0, loopEnd = 0, end = 0;
  std::vector<int> runs;                  // kernels
  std::vector<int> firstRead, firstWrite; // of runs: where their instances start in the two arrays below
  std::vector<int> readInstances, writeInstances;
  std::vector<int> scratch; // of runs: instance or -1
  std::vector<Life> instances;
  std::vector<int64_t> storageBytes;
  std::vector<int> storageLower, storageUpper;
  int64_t persistentBytes = 0;
  int64_t peak = 0; // most bytes alive at one run, persistent ones included
  int peakRun = 0;
  std::string error;

  int64_t bytes(int instance) const; // of one copy
  int64_t bufferBytes(int buffer) const { return ofBuffer[buffer]; }
  // Bytes alive during each run.
  std::vector<int64_t> profile() const;

  struct Span {
    int begin = 0, end = 0;
  };
  std::vector<Span> spans; // runs of each loop; the last is the main one
private:
  void startAt(int64_t microbatch);
  void listRuns(const std::vector<int> &loop);
  bool read(int run);
  bool write(int run);
  // The instance of a buffer that the run at hand finds; -1: none.
  int found(int buffer) const;
  void endSums();
  void holdBetweenParts();
  // Where steps overlap: sums over the micro-batches, and what is computed before the loop for work in or behind it, are there for this step
  // and for the next one. Work before the loop runs once for each, so that what it leaves has its places from the begin.
  void holdTwoSteps();
  bool heldBetweenParts(int instance) const;
  void share();
  void takeOver(int run, int written, int instance);
  void findPeak();
  // An accumulator that no loop adds to counts as one of the main loop; so does one of a step without loops.
  const Span &spanOf(int section) const {
    static const Span none;
    return section >= 0 ? spans[size_t(section / 2)] : none;
  }

  int64_t started = 0;                             // the micro-batch of the following
  std::vector<int64_t> ofBuffer;                   // bytes
  int persistentCount = 0, accumulatorEnd = 0;     // the first instances: persistent buffers, then accumulators
  std::vector<int> startOf;                        // of buffers: the instance that is there before the first run
  std::vector<int> current, taken;
  int part = 0;                   // of the run at hand
  std::vector<int> madeIn, older; // of instances, where not all parts find each other: the part; the instance of the same buffer before it
  std::vector<int> pinned; // of instances: nothing may be written over it before this run
  std::vector<int64_t> delta;
};

// Predicted seconds of one step: the loop body runs batch / microbatch times. It takes as long as its kernels, and so does what is behind it, or,
// where they copy from and to the host, as the copies beside them let them (Engines.h).
double predictedSeconds(const GraphIndex &, int64_t microbatch, const std::vector<int> &loop);

} // namespace cinch::solve
#endif
