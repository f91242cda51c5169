// Timeline.cpp: lifetimes of instances, in-place sharing and the peak of live bytes.
#include "compiler/solve/Timeline.h"

#include <algorithm>

namespace cinch::solve {

std::vector<std::vector<int64_t>> copiesBetweenParts(const std::vector<PartAction> &actions) {
  int parts = 0;
  for (const PartAction &action : actions)
    parts = std::max(parts, action.part + 1);
  std::vector<std::vector<int64_t>> copies(parts, std::vector<int64_t>(parts, 1));
  std::vector<int64_t> ended(parts, 0);
  for (const PartAction &action : actions) {
    for (int later = action.part + 1; later < parts; ++later)
      copies[action.part][later] = std::max(copies[action.part][later], ended[action.part] + 1 - ended[later]);
    ++ended[action.part];
  }
  // Parts in turns are the body as a whole.
  if (parts < 2 || (copies[0][parts - 1] == 1 && partsKeepOrder(actions)))
    copies.clear();
  return copies;
}

bool partsKeepOrder(const std::vector<PartAction> &actions) {
  std::vector<int> next; // of each micro-batch: the part that it runs next
  for (const PartAction &action : actions) {
    next.resize(std::max(next.size(), size_t(action.microbatch) + 1), 0);
    if (action.part != next[size_t(action.microbatch)]++)
      return false;
  }
  return true;
}

GraphIndex::GraphIndex(const StepGraph &g) : graph(g) {
  size_t buffers = g.buffers.size(), kernels = g.kernels.size();
  mayRecompute.assign(kernels, false);
  persistent.assign(buffers, false);
  bornIn.assign(buffers, Section::Prologue);
  readers.assign(buffers, {});
  std::vector<bool> mutableInLoop(buffers, false);
  for (size_t k = 0; k < kernels; ++k) {
    const Kernel &kernel = g.kernels[k];
    (kernel.section == Section::Prologue ? prologue
     : kernel.section == Section::Loop   ? loop
                                         : epilogue)
        .push_back(int(k));
    for (int b : kernel.reads)
      if (b < 0 || b >= int(buffers)) {
        error = "kernel " + std::to_string(k) + " reads buffer " + std::to_string(b) + ", which does not exist";
        return;
      } else {
        readers[b].push_back(int(k));
      }
    for (int b : kernel.writes)
      if (b < 0 || b >= int(buffers)) {
        error = "kernel " + std::to_string(k) + " writes buffer " + std::to_string(b) + ", which does not exist";
        return;
      } else {
        if (g.buffers[b].kind != Buffer::Value && kernel.section == Section::Loop)
          mutableInLoop[b] = true;
        if (g.buffers[b].kind == Buffer::Value && g.buffers[b].producer != int(k)) {
          error = "buffer " + std::to_string(b) + " is written by kernel " + std::to_string(k) +
                  ", but its producer is " + std::to_string(g.buffers[b].producer);
          return;
        }
      }
  }
  for (size_t b = 0; b < buffers; ++b) {
    const Buffer &buffer = g.buffers[b];
    if (buffer.fixedBytes < 0 || buffer.perExampleBytes < 0) {
      error = "buffer " + std::to_string(b) + " has a negative size";
      return;
    }
    persistent[b] = buffer.kind == Buffer::Persistent || (buffer.kind == Buffer::Value && buffer.producer < 0);
    if (buffer.producer >= int(kernels)) {
      error =
          "buffer " + std::to_string(b) + " names kernel " + std::to_string(buffer.producer) + ", which does not exist";
      return;
    }
    if (!persistent[b] && buffer.producer >= 0)
      bornIn[b] = g.kernels[buffer.producer].section;
  }
  values.resize(buffers);
  for (size_t b = 0; b < buffers; ++b)
    values[b] = g.buffers[b].kind == Buffer::Value && !persistent[b];
  for (const Kernel &kernel : g.kernels) {
    firstRead.push_back(int(reads.size())), firstWrite.push_back(int(writes.size()));
    reads.insert(reads.end(), kernel.reads.begin(), kernel.reads.end());
    writes.insert(writes.end(), kernel.writes.begin(), kernel.writes.end());
  }
  firstRead.push_back(int(reads.size())), firstWrite.push_back(int(writes.size()));
  bool inOrder = partsKeepOrder(g.actions); // else a later read could find a copy that another micro-batch's order has not made yet
  for (size_t k = 0; k < kernels; ++k) {
    const Kernel &kernel = g.kernels[k];
    bool may = kernel.recomputable && kernel.section == Section::Loop && inOrder;
    for (int b : kernel.writes)
      may &= g.buffers[b].kind == Buffer::Value;
    for (int b : kernel.reads)
      may &= !mutableInLoop[b];
    mayRecompute[k] = may;
  }
  copies = copiesBetweenParts(g.actions);
  if (g.batch < 1 || g.grain < 1 || g.batch % g.grain)
    error = "the grain " + std::to_string(g.grain) + " does not divide the batch " + std::to_string(g.batch);
}

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
        persistentBytes += ofBuffer[i];
      }
  persistentCount = int(instances.size());
  for (size_t i = 0; i < g.buffers.size(); ++i)
    if (g.buffers[i].kind == Buffer::Accumulator) {
      startOf[i] = int(instances.size());
      instances.push_back({int(i), -1, 0, 0, startOf[i]});
    }
  accumulatorEnd = int(instances.size());
  // One storage each.
  for (const Life &life : instances)
    storageBytes.push_back(ofBuffer[life.buffer]);
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
      life.lower = loopBegin, life.upper = loopEnd;
      pinned[readInstances[r]] = 1;
    }
}

bool Timeline::heldBetweenParts(int instance) const {
  const Life &life = instances[instance];
  return !index.copies.empty() && life.run >= loopBegin && life.run < loopEnd && pinned[instance];
}

bool Timeline::build(int64_t b, const std::vector<int> &loop) {
  const StepGraph &g = index.graph;
  error = index.error;
  if (!error.empty())
    return false;
  microbatch = b;
  runs.assign(index.prologue.begin(), index.prologue.end());
  loopBegin = int(runs.size());
  runs.insert(runs.end(), loop.begin(), loop.end());
  loopEnd = int(runs.size());
  runs.insert(runs.end(), index.epilogue.begin(), index.epilogue.end());
  end = int(runs.size());
  int last = std::max(end, 1);

  if (started != b)
    startAt(b);
  instances.resize(accumulatorEnd), storageBytes.resize(accumulatorEnd);
  readInstances.clear(), writeInstances.clear();
  firstRead.assign(end + 1, 0), firstWrite.assign(end + 1, 0), scratch.assign(end, -1);
  current = startOf;
  for (int i = 0; i < persistentCount; ++i)
    instances[i].upper = last;
  for (int i = persistentCount; i < accumulatorEnd; ++i)
    instances[i].lower = loopBegin, instances[i].upper = -1;
  pinned.assign(accumulatorEnd, 1); // held to the end of the loop: read again by its next iteration

  for (int t = 0; t < end; ++t) {
    int k = runs[t];
    bool inLoop = t >= loopBegin && t < loopEnd;
    for (int i = index.firstRead[k]; i < index.firstRead[k + 1]; ++i) {
      int r = index.reads[i], at = current[r];
      if (at < 0) {
        error = "run " + std::to_string(t) + " (" + g.kernels[k].name + ") reads " + g.buffers[r].name + " before it exists";
        return false;
      }
      readInstances.push_back(at);
      Life &life = instances[at];
      if (at >= persistentCount) {
        if (inLoop && life.run < loopBegin) {
          life.upper = std::max(life.upper, loopEnd);
          pinned[at] = 1;
        }
        life.upper = std::max(life.upper, t + 1);
        if (t >= loopEnd && life.run >= loopBegin && life.run < loopEnd) {
          error = "run " + std::to_string(t) + " (" + g.kernels[k].name + ") after the loop reads " + g.buffers[r].name +
                  ", a value of the loop";
          return false;
        }
      }
    }
    firstRead[t + 1] = int(readInstances.size());
    for (int i = index.firstWrite[k]; i < index.firstWrite[k + 1]; ++i) {
      int w = index.writes[i];
      if (index.values[w]) {
        current[w] = int(instances.size());
        instances.push_back({w, t, t, t + 1, -1});
        pinned.push_back(0);
      } else if (g.buffers[w].kind == Buffer::Accumulator) {
        Life &life = instances[current[w]];
        life.lower = std::min(life.lower, t);
        life.upper = std::max(life.upper, inLoop ? loopEnd : t + 1);
      }
      writeInstances.push_back(current[w]);
    }
    firstWrite[t + 1] = int(writeInstances.size());
    if (g.kernels[k].scratch.at(b) > 0) {
      scratch[t] = int(instances.size());
      instances.push_back({-1, t, t, t + 1, -1});
      pinned.push_back(0);
    }
  }
  // An accumulator that no run reads after the loop may be read from outside at the end of the step.
  for (int i = persistentCount; i < accumulatorEnd; ++i) {
    bool readAfter = false;
    for (int k : index.readers[instances[i].buffer])
      readAfter |= g.kernels[k].section == Section::Epilogue;
    instances[i].upper = readAfter ? std::max(instances[i].upper, instances[i].lower + 1) : last;
  }

  if (!index.copies.empty())
    holdBetweenParts();

  // Storages: one an instance, but for in-place work.
  storageLower.clear(), storageUpper.clear();
  for (int i = 0; i < accumulatorEnd; ++i)
    storageLower.push_back(instances[i].lower), storageUpper.push_back(instances[i].upper);
  auto fresh = [&](int i) {
    instances[i].storage = int(storageBytes.size());
    storageBytes.push_back(bytes(i) * instances[i].copies);
    storageLower.push_back(instances[i].lower);
    storageUpper.push_back(instances[i].upper);
  };
  for (int t = 0; t < end; ++t) {
    const Kernel &kernel = g.kernels[runs[t]];
    for (size_t w = 0; w < kernel.writes.size(); ++w) {
      int i = writeInstances[firstWrite[t] + w];
      if (instances[i].storage >= 0)
        continue;
      for (auto &[to, from] : kernel.inPlace) {
        if (to != kernel.writes[w] || heldBetweenParts(i))
          continue;
        for (size_t r = 0; r < kernel.reads.size(); ++r) {
          int source = readInstances[firstRead[t] + r];
          if (kernel.reads[r] != from || source < persistentCount)
            continue;
          int s = instances[source].storage;
          // The value must die here: nobody reads it later, in the next iteration either, and no other write took its
          // bytes.
          bool heldByLoop = t < loopEnd && pinned[source];
          if (instances[source].upper == t + 1 && storageUpper[s] == t + 1 && !heldByLoop &&
              storageBytes[s] == bytes(i) && std::find(taken.begin(), taken.end(), s) == taken.end()) {
            instances[i].storage = s;
            storageUpper[s] = std::max(storageUpper[s], instances[i].upper);
            taken.push_back(s);
          }
        }
        if (instances[i].storage >= 0)
          break;
      }
      if (instances[i].storage < 0)
        fresh(i);
    }
    taken.clear();
    if (scratch[t] >= 0)
      fresh(scratch[t]);
  }

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
  return true;
}

std::vector<int64_t> Timeline::profile() const {
  std::vector<int64_t> live(delta.begin(), delta.end() - 1);
  for (size_t t = 1; t < live.size(); ++t)
    live[t] += live[t - 1];
  return live;
}

double predictedSeconds(const GraphIndex &index, int64_t microbatch, const std::vector<int> &loop) {
  const StepGraph &g = index.graph;
  double once = 0, body = 0;
  for (int k : index.prologue)
    once += g.kernels[k].seconds.at(microbatch) * double(g.kernels[k].everyMicrobatch ? g.batch / microbatch : 1);
  for (int k : index.epilogue)
    once += g.kernels[k].seconds.at(microbatch);
  for (int k : loop)
    body += g.kernels[k].seconds.at(microbatch);
  return once + body * double(g.batch / microbatch);
}

} // namespace cinch::solve
