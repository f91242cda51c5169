// GraphIndex.cpp: what is the same for every schedule of a graph, and whether the graph is sane.
#include "compiler/solve/Timeline.h"
#include "compiler/solve/Engines.h"

#include <algorithm>

namespace cinch::solve {

GraphIndex::GraphIndex(const StepGraph &g) : graph(g) {
  if (g.batch < 1 || g.grain < 1 || g.batch % g.grain)
    error = "the grain " + std::to_string(g.grain) + " does not divide the batch " + std::to_string(g.batch);
  // A search may ask a graph with an error, too.
  persistent.assign(g.buffers.size(), false), bornIn.assign(g.buffers.size(), 0), values.assign(g.buffers.size(), 0);
  summedIn.assign(g.buffers.size(), g.mainLoop()), begun.assign(g.buffers.size(), false), mayBeginLate.assign(g.buffers.size(), false);
  mayRecompute.assign(g.kernels.size(), false);
  readers.assign(g.buffers.size(), {});
  listKernels();
  if (!error.empty())
    return;
  checkBuffers();
  checkCopies();
  if (!error.empty())
    return;
  findSums();
  copies = copiesBetweenParts(g.actions);
  finds = partsThatFind(g.actions);
  for (size_t from = 0; from < finds.size() && finds.size() <= 64; ++from) {
    findsOf.push_back(0);
    for (size_t to = from; to < finds.size(); ++to)
      findsOf.back() |= uint64_t(sees(int(from), int(to))) << to;
  }
  findRecomputable();
  overlaps = overlapOf(g.actions) > 0;
}

// Where kernels stand, who reads and writes what.
void GraphIndex::listKernels() {
  const StepGraph &g = graph;
  int section = 0;
  for (size_t k = 0; k < g.kernels.size(); ++k) {
    const Kernel &kernel = g.kernels[k];
    std::string who = "kernel " + std::to_string(k);
    if (kernel.section < section || kernel.section > g.mainLoop() + 1)
      error = who + " of section " + std::to_string(kernel.section) + " stands behind section " + std::to_string(section) +
              ", in a step of " + std::to_string(g.loops) + " loops";
    section = kernel.section;
    (section < g.mainLoop() ? before : section == g.mainLoop() ? loop : behind).push_back(int(k));
    firstRead.push_back(int(reads.size())), firstWrite.push_back(int(writes.size()));
    reads.insert(reads.end(), kernel.reads.begin(), kernel.reads.end());
    writes.insert(writes.end(), kernel.writes.begin(), kernel.writes.end());
    auto missing = [&](int b) { return b < 0 || b >= int(g.buffers.size()); };
    for (int b : kernel.reads)
      if (missing(b))
        error = who + " reads buffer " + std::to_string(b) + ", which does not exist";
      else
        readers[b].push_back(int(k));
    for (int b : kernel.writes)
      if (missing(b))
        error = who + " writes buffer " + std::to_string(b) + ", which does not exist";
      else if (g.buffers[b].kind == Buffer::Value && g.buffers[b].producer != int(k) && !(kernel.copy == Kernel::Fetch && section == g.mainLoop()))
        error = "buffer " + std::to_string(b) + " is written by kernel " + std::to_string(k) + ", but its producer is " +
                std::to_string(g.buffers[b].producer);
  }
  firstRead.push_back(int(reads.size())), firstWrite.push_back(int(writes.size()));
}

void GraphIndex::checkBuffers() {
  const StepGraph &g = graph;
  for (size_t b = 0; b < g.buffers.size(); ++b) {
    const Buffer &buffer = g.buffers[b];
    std::string who = "buffer " + std::to_string(b);
    if (buffer.fixedBytes < 0 || buffer.perExampleBytes < 0)
      error = who + " has a negative size";
    bool stays = buffer.kind == Buffer::Persistent && buffer.perExampleBytes == 0;
    bool stored = buffer.kind == Buffer::Value && buffer.producer >= 0 && buffer.producer < int(g.kernels.size()) &&
                  g.kernels[size_t(buffer.producer)].copy == Kernel::Store;
    if (buffer.space == Buffer::Host && !stays && !stored)
      error = who + " lies in the memory of the host, but neither stays there from step to step nor is stored there";
    if (buffer.producer >= int(g.kernels.size())) {
      error = who + " names kernel " + std::to_string(buffer.producer) + ", which does not exist";
      return;
    }
    persistent[b] = buffer.kind == Buffer::Persistent || (buffer.kind == Buffer::Value && buffer.producer < 0);
    values[b] = buffer.kind == Buffer::Value && !persistent[b];
    if (!persistent[b] && buffer.producer >= 0)
      bornIn[b] = g.kernels[buffer.producer].section;
  }
}

// What lies on the host goes to the arena and back by copies, in the main loop what it has made and behind it what stays; nothing else reads or
// writes it. What a loop fetches is a value of its own that it has stored.
void GraphIndex::checkCopies() {
  const StepGraph &g = graph;
  auto onHost = [&](int b) { return g.buffers[size_t(b)].space == Buffer::Host; };
  for (size_t k = 0; k < g.kernels.size() && error.empty(); ++k) {
    const Kernel &kernel = g.kernels[k];
    std::string who = "kernel " + std::to_string(k) + " (" + kernel.name + ")";
    if (kernel.copy == Kernel::NoCopy) {
      if (std::any_of(kernel.reads.begin(), kernel.reads.end(), onHost) || std::any_of(kernel.writes.begin(), kernel.writes.end(), onHost))
        error = who + " works on what lies in the memory of the host";
      continue;
    }
    const bool inLoop = kernel.section == g.mainLoop() && g.actions.empty();
    (inLoop ? swaps : offloads) = true;
    bool fetch = kernel.copy == Kernel::Fetch, awaits = kernel.copy == Kernel::Await;
    if (kernel.reads.size() != 1 || kernel.writes.size() != size_t(!awaits) || !(inLoop || kernel.section == g.mainLoop() + 1)) {
      error = who + " is a copy of more than one buffer, or stands neither in a main loop that runs as a whole nor behind it";
      return;
    }
    const Buffer &from = g.buffers[size_t(kernel.reads[0])], &to = g.buffers[size_t(awaits ? kernel.reads[0] : kernel.writes[0])];
    const Buffer &made = fetch ? to : from, &home = fetch ? from : to;
    if ((from.space == Buffer::Host) != fetch || (!awaits && (to.space == Buffer::Host) == fetch))
      error = who + " does not copy between the arena and the host";
    else if (from.fixedBytes != to.fixedBytes || from.perExampleBytes != to.perExampleBytes)
      error = who + " copies to a place of another size";
    else if (!awaits && (home.kind == Buffer::Value) != inLoop)
      error = who + (inLoop ? " copies in the loop what stays from step to step" : " copies behind the loop what does not stay");
    else if (inLoop && (made.kind != Buffer::Value || made.producer < 0 || !g.inMainLoop(made.producer)))
      error = who + " copies what the loop has not made";
  }
}

// The last loop that writes an accumulator adds it up; whatever writes it before that loop begins the sum.
void GraphIndex::findSums() {
  const StepGraph &g = graph;
  std::vector<int> first(g.buffers.size(), 2 * g.loops + 1), last(g.buffers.size(), -1);
  for (const Kernel &kernel : g.kernels)
    for (int b : kernel.writes) {
      first[b] = std::min(first[b], kernel.section);
      if (isLoop(kernel.section))
        last[b] = kernel.section;
    }
  for (size_t b = 0; b < g.buffers.size(); ++b) {
    if (last[b] >= 0)
      summedIn[b] = last[b];
    begun[b] = first[b] < summedIn[b];
    mayBeginLate[b] = g.sumsBeginLate && g.actions.empty() && g.buffers[b].kind == Buffer::Accumulator && last[b] == g.mainLoop() && !begun[b];
  }
}

void GraphIndex::findRecomputable() {
  const StepGraph &g = graph;
  std::vector<bool> changesInLoop(g.buffers.size(), false);
  for (int k : loop)
    for (int b : g.kernels[k].writes)
      changesInLoop[b] = changesInLoop[b] || g.buffers[b].kind != Buffer::Value;
  for (int k : loop) {
    const Kernel &kernel = g.kernels[k];
    bool may = kernel.recomputable && findsOf.size() == finds.size(); // else there are too many parts for sets of them
    for (int b : kernel.writes)
      may &= g.buffers[b].kind == Buffer::Value;
    for (int b : kernel.reads)
      may &= !changesInLoop[b];
    mayRecompute[k] = may;
  }
}

bool GraphIndex::livesThroughLoop(int buffer, int64_t microbatch) const {
  if (graph.buffers[size_t(buffer)].space == Buffer::Host || beginsLate(buffer, microbatch))
    return false;
  if (persistent[buffer] || (!values[buffer] && summedIn[buffer] == graph.mainLoop()))
    return true;
  int made = values[buffer] ? bornIn[buffer] : summedIn[buffer];
  return made < graph.mainLoop() && std::any_of(readers[buffer].begin(), readers[buffer].end(), [&](int k) {
           return graph.kernels[k].section >= graph.mainLoop();
         });
}

} // namespace cinch::solve
