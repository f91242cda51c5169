// PlanCache.cpp: an entry is a line with the checksum of the rest, then JSON.
#include "compiler/solve/PlanCache.h"
#include "compiler/solve/UserFolder.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Chrono.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <algorithm>
#include <cstring>

namespace cinch::solve {

namespace fs = llvm::sys::fs;
using llvm::json::Array;
using llvm::json::Object;

namespace {
// Everything that decides the search, as bytes. Structured bindings name every field, so that one that is added later
// cannot be forgotten here: this file stops compiling.
struct Bytes {
  std::string text;
  template <typename T> void put(const T &value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    text.append(reinterpret_cast<const char *>(&value), sizeof value);
  }
  void put(const Linear &linear) {
    const auto &[fixed, perExample] = linear;
    put(fixed), put(perExample);
  }
  void put(const Seconds &seconds) {
    put(static_cast<const Linear &>(seconds)), put(seconds.near.size());
    for (auto &[most, perExample] : seconds.near)
      put(most), put(perExample);
    put(seconds.uneven.size());
    for (auto &[examples, more] : seconds.uneven)
      put(examples), put(more);
  }
  void put(const ByteTable &bytes) {
    const auto &[otherwise, exactly] = bytes;
    put(otherwise), put(exactly.size());
    for (auto &[microbatch, count] : exactly)
      put(microbatch), put(count);
  }
  void put(const std::vector<int> &list) {
    put(list.size());
    for (int item : list)
      put(item);
  }
  void put(const Buffer &buffer) { // names and lines change nothing
    const auto &[fixedBytes, perExampleBytes, kind, space, producer, rows, rowScale, name, line, libraryLine] = buffer;
    (void)name, (void)line, (void)libraryLine;
    put(fixedBytes), put(perExampleBytes), put(kind), put(space), put(producer), put(rows), put(rowScale);
  }
  void put(const Kernel &kernel) {
    const auto &[reads, writes, section, seconds, flops, traffic, work, recomputable, cheap, backward, keepHint, recomputeHint, rows, reach,
                 rowScale, rowsTogether, ownRows, block, blockEnd, inPlace, scratch, body, newPart, message, copy, name, line,
                 libraryLine] = kernel;
    (void)flops, (void)traffic, (void)work, (void)body, (void)name, (void)line, (void)libraryLine;
    put(reads), put(writes), put(section), put(seconds), put(recomputable), put(cheap), put(backward);
    put(keepHint), put(recomputeHint), put(rows), put(block), put(blockEnd), put(inPlace.size()), put(scratch), put(newPart), put(message), put(copy);
    for (auto &[to, from] : inPlace)
      put(to), put(from);
    put(reach.size()), put(rowScale), put(rowsTogether), put(ownRows);
    for (const auto &[up, down, from, to] : reach)
      put(up), put(down), put(from), put(to);
  }
  void put(const StepGraph &graph) {
    const auto &[buffers, kernels, loops, batch, grain, positions, threads, secondsOfCopy, actions, link, sumsBeginLate, page] = graph;
    const auto &[in, out, latency] = link;
    put(buffers.size()), put(kernels.size()), put(loops), put(batch), put(grain), put(positions), put(threads), put(actions.size()), put(sumsBeginLate), put(page),
        put(in), put(out), put(latency), put(secondsOfCopy);
    for (const auto &[part, microbatch] : actions)
      put(part), put(microbatch);
    for (const Buffer &buffer : buffers)
      put(buffer);
    for (const Kernel &kernel : kernels)
      put(kernel);
  }
  void put(const SearchOptions &options) {
    const auto &[arenaBudget, microbatch, strategy, fasterThan, smallerThan, smallest, ship, deep, packsWell, advises] = options;
    const auto &[kind, every] = strategy;
    put(arenaBudget.has_value()), put(arenaBudget.value_or(0)), put(microbatch), put(kind), put(every), put(fasterThan), put(smallerThan), put(smallest), put(ship), put(deep),
        put(packsWell), put(advises);
  }
};

Array arrayOf(const std::vector<int> &list) {
  Array array;
  for (int item : list)
    array.push_back(item);
  return array;
}

Object choiceObject(const Choice &choice) {
  const auto &[microbatch, loop] = choice;
  return Object{{"microbatch", microbatch}, {"loop", arrayOf(loop)}};
}

bool readChoice(const Object &object, Choice &choice) {
  auto &[microbatch, loop] = choice;
  auto number = object.getInteger("microbatch");
  const Array *list = object.getArray("loop");
  if (!number || !list)
    return false;
  microbatch = *number;
  for (const llvm::json::Value &item : *list) {
    auto kernel = item.getAsInteger();
    if (!kernel || *kernel < 0 || *kernel > INT32_MAX)
      return false;
    loop.push_back(int(*kernel));
  }
  return true;
}

std::string checksum(llvm::StringRef text) { return llvm::utohexstr(llvm::xxh3_64bits(text), true, 16); }
} // namespace

std::string PlanCache::keyOf(const Graphs &graphs, const SearchOptions &options, uint64_t orderSeed) {
  Bytes bytes;
  for (const StepGraph *graph : graphs)
    bytes.put(*graph);
  bytes.put(options);
  bytes.put(orderSeed);
  bytes.text += solverVersion();
  llvm::XXH128_hash_t hash = llvm::xxh3_128bits(llvm::arrayRefFromStringRef(bytes.text));
  return llvm::utohexstr(hash.high64, true, 16) + llvm::utohexstr(hash.low64, true, 16);
}

std::string PlanCache::defaultFolder() { return userFolder("XDG_CACHE_HOME", ".cache"); }

std::string PlanCache::pathOf(const std::string &key) const {
  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, key + ".plan");
  return path.str().str();
}

std::optional<CachedSearch> PlanCache::find(const Graphs &graphs, const SearchOptions &options,
                                            uint64_t orderSeed) const {
  if (folder.empty())
    return std::nullopt;
  std::string key = keyOf(graphs, options, orderSeed), path = pathOf(key);
  auto file = llvm::MemoryBuffer::getFile(path);
  if (!file)
    return std::nullopt;
  auto [sum, text] = (*file)->getBuffer().split('\n');
  if (sum != checksum(text))
    return std::nullopt;
  auto parsed = llvm::json::parse(text);
  if (!parsed) {
    llvm::consumeError(parsed.takeError());
    return std::nullopt;
  }
  const Object *object = parsed->getAsObject();
  const Object *choice = object ? object->getObject("choice") : nullptr;
  CachedSearch found;
  SearchResult &result = found.result;
  if (!choice || object->getString("key") != llvm::StringRef(key) || !readChoice(*choice, result.choice))
    return std::nullopt;
  auto name = object->getString("name");
  auto smallest = object->getInteger("smallest"), bound = object->getInteger("bound");
  auto secondsBound = object->getNumber("seconds_bound"), deeperBound = object->getNumber("deeper_bound");
  auto variant = object->getInteger("variant");
  if (!variant || *variant < 0 || size_t(*variant) >= graphs.size())
    return std::nullopt;
  found.variant = int(*variant);
  if (!name || !smallest || !bound || !secondsBound || !deeperBound)
    return std::nullopt;
  result.name = name->str();
  result.smallestArena = *smallest;
  result.bound = *bound;
  result.secondsBound = *secondsBound, result.deeperBound = *deeperBound;
  if (const Array *points = object->getArray("trade_off"))
    for (const llvm::json::Value &value : *points) {
      const Object *point = value.getAsObject();
      if (!point)
        return std::nullopt;
      found.tradeOff.push_back({point->getInteger("arena").value_or(0), point->getInteger("peak").value_or(0),
                                point->getNumber("seconds").value_or(0), point->getInteger("microbatch").value_or(1),
                                point->getString("name").value_or("").str()});
    }
  // Packed as the search packs what it ships.
  auto arena = object->getInteger("arena");
  result.plan = evaluateWell(GraphIndex(*graphs[found.variant]), result.choice);
  result.feasible = result.plan.error.empty() && result.plan.decision.arenaBytes == arena &&
                    (!options.arenaBudget || result.plan.decision.arenaBytes <= *options.arenaBudget) &&
                    (options.microbatch <= 0 || options.microbatch == result.choice.microbatch);
  if (!result.feasible)
    return std::nullopt;
  // Found again: the youngest entries stay.
  if (int fd; !fs::openFileForReadWrite(path, fd, fs::CD_OpenExisting, fs::OF_None)) {
    (void)fs::setLastAccessAndModificationTime(fd, std::chrono::system_clock::now());
    llvm::sys::fs::file_t handle = fs::convertFDToNativeFile(fd);
    (void)fs::closeFile(handle);
  }
  return found;
}

void PlanCache::keep(const Graphs &graphs, const SearchOptions &options, uint64_t orderSeed,
                     const CachedSearch &found) const {
  const SearchResult &result = found.result;
  if (folder.empty() || !result.feasible || fs::create_directories(folder))
    return;
  std::string key = keyOf(graphs, options, orderSeed);
  Array points;
  for (const LadderPoint &point : found.tradeOff) {
    const auto &[arenaBytes, peakLive, seconds, microbatch, name] = point;
    points.push_back(Object{{"arena", arenaBytes}, {"peak", peakLive}, {"seconds", seconds}, {"microbatch", microbatch},
                            {"name", name}});
  }
  Object object{{"key", key},
                {"variant", found.variant},
                {"choice", choiceObject(result.choice)},
                {"name", result.name},
                {"arena", result.plan.decision.arenaBytes},
                {"smallest", result.smallestArena},
                {"bound", result.bound},
                {"seconds_bound", result.secondsBound},
                {"deeper_bound", result.deeperBound},
                {"trade_off", std::move(points)}};
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(std::move(object)) << "\n";

  // Under a name of its own first: who reads at the same time finds the old entry or the new one.
  llvm::SmallString<256> model(folder), temporary;
  llvm::sys::path::append(model, ".new-%%%%%%%%%%");
  int fd = -1;
  if (fs::createUniqueFile(model, fd, temporary))
    return;
  llvm::raw_fd_ostream out(fd, true);
  out << checksum(text) << "\n" << text;
  out.close();
  bool good = !out.has_error();
  out.clear_error();
  if (!good || fs::rename(temporary, pathOf(key)))
    (void)fs::remove(temporary);
  makeRoom();
}

void PlanCache::makeRoom() const {
  struct Entry {
    std::string path;
    llvm::sys::TimePoint<> time;
    uint64_t bytes;
  };
  std::vector<Entry> entries;
  std::error_code error;
  auto now = std::chrono::system_clock::now();
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    fs::file_status status;
    if (fs::status(it->path(), status, false) || status.type() != fs::file_type::regular_file)
      continue;
    llvm::StringRef name = llvm::sys::path::filename(it->path());
    if (name.ends_with(".plan"))
      entries.push_back({it->path(), status.getLastModificationTime(), status.getSize()});
    else if (name.starts_with(".new-") && now - status.getLastModificationTime() > std::chrono::hours(1))
      (void)fs::remove(it->path()); // whoever wrote it was ended
  }
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.time > b.time; });
  uint64_t bytes = 0;
  for (size_t i = 0; i < entries.size(); ++i) {
    bytes += entries[i].bytes;
    if (i >= size_t(kMostEntries) || bytes > uint64_t(kMostBytes))
      (void)fs::remove(entries[i].path);
  }
}

} // namespace cinch::solve
