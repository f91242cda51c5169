// Timeline.cpp: lifetimes of instances, in-place sharing and the peak of live bytes.
#include "compiler/solve/Timeline.h"
#include "compiler/solve/Engines.h"

#include <algorithm>

namespace cinch::solve {

int64_t Timeline::bytes(int instance) const {
  const Life &life = instances[instance];
  if (life.buffer < 0) {
    const Kernel &kernel = index.graph.kernels[runs[life.run]];
    return index.graph.scratchBytes(kernel, microbatch);
  }
  return ofBuffer[life.buffer];
}

// What is the same for every schedule at this micro-batch.
void Timeline::startAt(int64_t b) {
  const StepGraph &g = index.graph;
  started = b;
  instances.clear(), storageBytes.clear(), ofBuffer.clear();
  startOf.assign(g.buffers.size(), -1);
  for (const Buffer &buffer : g.buffers)
    ofBuffer.push_back(buffer.bytes(b));
  // Persistent buffers first, those that do not grow with the micro-batch before the rest.
  persistentBytes = 0;
  for (int grows = 0; grows < 2; ++grows)
    for (size_t i = 0; i < g.buffers.size(); ++i)
      if (index.persistent[i] && (g.buffers[i].perExampleBytes != 0) == bool(grows)) {
        startOf[i] = int(instances.size());
        instances.push_back({int(i), -1, 0, 0, startOf[i]});
        persistentBytes += g.buffers[i].space == Buffer::Arena ? ofBuffer[i] : 0;
      }
  persistentCount = int(instances.size());
  for (size_t i = 0; i < g.buffers.size(); ++i)
    if (g.buffers[i].kind == Buffer::Accumulator) {
      startOf[i] = int(instances.size());
      instances.push_back({int(i), -1, 0, 0, startOf[i], index.overlaps ? 2 : 1});
    }
  accumulatorEnd = int(instances.size());
  // One storage each.
  for (const Life &life : instances)
    storageBytes.push_back(g.buffers[size_t(life.buffer)].space == Buffer::Arena ? ofBuffer[life.buffer] * life.copies : 0);
}

// What is written in one part of the loop body and read in a later one waits while other micro-batches run: it has its places from the
// begin of the loop to its end.
void Timeline::holdBetweenParts() {
  std::vector<int> partOf(size_t(end), 0);
  for (int t = loopBegin, part = 0; t < loopEnd; ++t)
    partOf[t] = part += index.graph.kernels[runs[t]].newPart;
  for (int t = loopBegin; t < loopEnd; ++t)
    for (int r = firstRead[t]; r < firstRead[t + 1]; ++r) {
      Life &life = instances[readInstances[r]];
      if (readInstances[r] < accumulatorEnd || life.run < loopBegin || partOf[life.run] == partOf[t])
        continue;
      life.copies = std::max(life.copies, index.copies[partOf[life.run]][partOf[t]]);
      life.lower = index.overlaps ? 0 : loopBegin, life.upper = index.overlaps ? end : loopEnd;
      pinned[readInstances[r]] = life.upper;
    }
}

void Timeline::holdTwoSteps() {
  for (int i = persistentCount; i < accumulatorEnd; ++i) {
    instances[i].lower = 0, instances[i].upper = std::max(end, 1);
    pinned[i] = instances[i].upper;
  }
  for (size_t i = size_t(accumulatorEnd); i < instances.size(); ++i) {
    Life &life = instances[i];
    if (life.buffer < 0 || life.run >= loopBegin || life.upper <= loopBegin)
      continue;
    life.copies = 2, life.lower = 0;
    pinned[i] = life.upper;
  }
}

bool Timeline::heldBetweenParts(int instance) const {
  const Life &life = instances[instance];
  return !index.copies.empty() && life.run >= loopBegin && life.run < loopEnd && pinned[instance];
}

bool Timeline::build(int64_t b, const std::vector<int> &loop) {
  error = index.error;
  if (!error.empty())
    return false;
  microbatch = b;
  listRuns(loop);
  if (started != b)
    startAt(b);
  instances.resize(accumulatorEnd), storageBytes.resize(accumulatorEnd);
  readInstances.clear(), writeInstances.clear();
  firstRead.assign(end + 1, 0), firstWrite.assign(end + 1, 0), scratch.assign(end, -1);
  current = startOf;
  for (int i = 0; i < persistentCount; ++i)
    instances[i].upper = std::max(end, 1);
  pinned.assign(accumulatorEnd, 0);
  for (int i = persistentCount; i < accumulatorEnd; ++i) {
    const Span &span = spanOf(index.summedIn[instances[i].buffer]);
    instances[i].lower = index.beginsLate(instances[i].buffer, b) ? span.end : span.begin, instances[i].upper = -1;
    pinned[i] = span.end; // its next trip goes on with it
  }
  part = 0, madeIn.assign(accumulatorEnd, -1), older.assign(accumulatorEnd, -1);
  for (int t = 0; t < end; ++t) {
    part += t >= loopBegin && t < loopEnd && index.graph.kernels[runs[t]].newPart;
    if (!read(t) || !write(t))
      return false;
  }
  endSums();
  if (!index.copies.empty())
    holdBetweenParts();
  if (index.overlaps)
    holdTwoSteps();
  share();
  findPeak();
  return true;
}

void Timeline::listRuns(const std::vector<int> &loop) {
  runs.assign(index.before.begin(), index.before.end());
  loopBegin = int(runs.size());
  runs.insert(runs.end(), loop.begin(), loop.end());
  loopEnd = int(runs.size());
  runs.insert(runs.end(), index.behind.begin(), index.behind.end());
  end = int(runs.size());
  // Loops before the main one are the same for every schedule.
  if (spans.empty()) {
    spans.resize(size_t(index.graph.loops));
    int t = 0;
    for (size_t l = 0; l < spans.size(); ++l) {
      auto standsBefore = [&](int section) { return t < loopBegin && index.graph.kernels[runs[t]].section < section; };
      for (; standsBefore(2 * int(l) + 1); ++t)
        ;
      spans[l].begin = t;
      for (; standsBefore(2 * int(l) + 2); ++t)
        ;
      spans[l].end = t;
    }
  }
  if (!spans.empty())
    spans.back() = {loopBegin, loopEnd};
}

int Timeline::found(int buffer) const {
  int at = current[buffer];
  if (!index.finds.empty())
    while (at >= accumulatorEnd && madeIn[at] >= 0 && !index.reaches(buffer, madeIn[at], part))
      at = older[at];
  return at;
}

// What run t reads lives at least until then; what a loop reads and did not make itself, to the end of the loop.
bool Timeline::read(int t) {
  const StepGraph &g = index.graph;
  int k = runs[t], section = g.kernels[k].section;
  for (int i = index.firstRead[k]; i < index.firstRead[k + 1]; ++i) {
    int r = index.reads[i], at = found(r);
    if (at < 0) {
      error = "run " + std::to_string(t) + " (" + g.kernels[k].name + ") reads " + g.buffers[r].name + " before it exists";
      return false;
    }
    readInstances.push_back(at);
    if (at < persistentCount)
      continue;
    Life &life = instances[at];
    int made = life.run < 0 ? -1 : g.kernels[runs[life.run]].section;
    if (isLoop(made) && life.run >= 0 && made != section) {
      error = "run " + std::to_string(t) + " (" + g.kernels[k].name + ") after the loop reads " + g.buffers[r].name + ", a value of the loop";
      return false;
    }
    if (isLoop(section) && made != section) {
      int last = spanOf(section).end;
      life.upper = std::max(life.upper, last);
      pinned[at] = std::max(pinned[at], last);
    }
    life.upper = std::max(life.upper, t + 1);
  }
  firstRead[t + 1] = int(readInstances.size());
  return true;
}

bool Timeline::write(int t) {
  const StepGraph &g = index.graph;
  int k = runs[t], section = g.kernels[k].section;
  for (int i = index.firstWrite[k]; i < index.firstWrite[k + 1]; ++i) {
    int w = index.writes[i];
    if (index.values[w]) {
      if (!index.finds.empty()) {
        madeIn.resize(instances.size(), -1), older.resize(instances.size(), -1); // scratch among them
        madeIn.push_back(section == g.mainLoop() ? part : -1), older.push_back(current[w]);
      }
      current[w] = int(instances.size());
      instances.push_back({w, t, t, t + 1, -1});
      pinned.push_back(0);
    } else if (g.buffers[w].kind == Buffer::Accumulator) {
      Life &life = instances[current[w]];
      life.lower = std::min(life.lower, t);
      life.upper = std::max(life.upper, isLoop(section) ? spanOf(section).end : t + 1);
    }
    writeInstances.push_back(current[w]);
  }
  firstWrite[t + 1] = int(writeInstances.size());
  if (g.kernels[k].scratch.at(microbatch) > 0) {
    scratch[t] = int(instances.size());
    instances.push_back({-1, t, t, t + 1, -1});
    pinned.push_back(0);
  }
  return true;
}

// An accumulator that no run reads behind its loop may be read from outside at the end of the step.
void Timeline::endSums() {
  for (int i = persistentCount; i < accumulatorEnd; ++i) {
    int buffer = instances[i].buffer;
    bool readAfter = false;
    for (int k : index.readers[buffer])
      readAfter |= index.graph.kernels[k].section > index.summedIn[buffer];
    instances[i].upper = readAfter ? std::max(instances[i].upper, instances[i].lower + 1) : std::max(end, 1);
  }
}

// Storages: one an instance, but for in-place work.
void Timeline::share() {
  storageLower.clear(), storageUpper.clear();
  for (int i = 0; i < accumulatorEnd; ++i)
    storageLower.push_back(instances[i].lower), storageUpper.push_back(instances[i].upper);
  auto fresh = [&](int i) {
    instances[i].storage = int(storageBytes.size());
    bool onHost = instances[i].buffer >= 0 && index.graph.buffers[size_t(instances[i].buffer)].space == Buffer::Host;
    storageBytes.push_back(onHost ? 0 : bytes(i) * instances[i].copies);
    storageLower.push_back(instances[i].lower);
    storageUpper.push_back(instances[i].upper);
  };
  for (int t = 0; t < end; ++t) {
    const Kernel &kernel = index.graph.kernels[runs[t]];
    for (size_t w = 0; w < kernel.writes.size(); ++w) {
      int i = writeInstances[firstWrite[t] + w];
      if (instances[i].storage >= 0)
        continue;
      takeOver(t, kernel.writes[w], i);
      if (instances[i].storage < 0)
        fresh(i);
    }
    taken.clear();
    if (scratch[t] >= 0)
      fresh(scratch[t]);
  }
}

// Gives instance i, which run t writes, the bytes of a value that dies there, if it may have them: nobody reads that value later, in the
// next trip either, and no other write took its bytes.
void Timeline::takeOver(int t, int written, int i) {
  const Kernel &kernel = index.graph.kernels[runs[t]];
  for (auto &[to, from] : kernel.inPlace) {
    if (to != written || heldBetweenParts(i) || instances[i].copies > 1)
      continue;
    for (size_t r = 0; r < kernel.reads.size(); ++r) {
      int source = readInstances[firstRead[t] + r];
      if (kernel.reads[r] != from || source < persistentCount)
        continue;
      int s = instances[source].storage;
      if (instances[source].upper == t + 1 && storageUpper[s] == t + 1 && t >= pinned[source] && storageBytes[s] == bytes(i) &&
          std::find(taken.begin(), taken.end(), s) == taken.end()) {
        instances[i].storage = s;
        storageUpper[s] = std::max(storageUpper[s], instances[i].upper);
        taken.push_back(s);
      }
    }
    if (instances[i].storage >= 0)
      return;
  }
}

void Timeline::findPeak() {
  int last = std::max(end, 1);
  delta.assign(last + 1, 0);
  for (size_t s = 0; s < storageBytes.size(); ++s) {
    delta[storageLower[s]] += storageBytes[s];
    delta[storageUpper[s]] -= storageBytes[s];
  }
  peak = 0, peakRun = 0;
  int64_t live = 0;
  for (int t = 0; t < last; ++t) {
    live += delta[t];
    if (live > peak)
      peak = live, peakRun = t;
  }
}

std::vector<int64_t> Timeline::profile() const {
  std::vector<int64_t> live(delta.begin(), delta.end() - 1);
  for (size_t t = 1; t < live.size(); ++t)
    live[t] += live[t - 1];
  return live;
}

double predictedSeconds(const GraphIndex &index, int64_t microbatch, const std::vector<int> &loop) {
  const StepGraph &g = index.graph;
  double seconds = 0, body = 0;
  auto add = [&](int k) { seconds += g.kernels[k].seconds.at(microbatch) * double(g.trips(g.kernels[k].section, microbatch)); };
  std::for_each(index.before.begin(), index.before.end(), add);
  if (index.offloads)
    seconds += runEngines(g, index.behind, microbatch).end;
  else
    std::for_each(index.behind.begin(), index.behind.end(), add);
  if (index.swaps)
    body = runEngines(g, loop, microbatch).end;
  else
    for (int k : loop)
      body += g.kernels[k].seconds.at(microbatch);
  return seconds + body * double(g.batch / microbatch);
}

} // namespace cinch::solve
