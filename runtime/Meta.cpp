// Meta.cpp: one small function an object of METADATA.md; names that it does not know are skipped.
#include "runtime/Meta.h"
#include "runtime/JsonObject.h"
#include <stdio.h>

namespace cinch::rt {

const char *nameOf(Elem elem) {
  switch (elem) {
  case Elem::F32: return "F32";
  case Elem::F64: return "F64";
  case Elem::I32: return "I32";
  case Elem::Bool: return "BOOL";
  case Elem::BF16: return "BF16";
  }
  return "?";
}

bool DatasetSpec::ofRows() const { return window > 0 && strcmp(source, "text") != 0 && strcmp(source, "tokens") != 0; }

Shape DatasetSpec::shapeOfRow(const FieldSpec &field) const {
  Shape shape = field.shape;
  if (!ofRows() || shape.rank == 0)
    return shape;
  --shape.rank;
  for (int axis = 0; axis < shape.rank; ++axis)
    shape.dims[axis] = field.shape.dims[axis + 1];
  return shape;
}

int64_t Shape::count() const {
  int64_t result = 1;
  for (int i = 0; i < rank; ++i)
    result *= dims[i];
  return result;
}

ShapeText describe(const Shape &shape) {
  ShapeText result;
  size_t n = size_t(snprintf(result.text, sizeof result.text, "["));
  for (int i = 0; i < shape.rank && n < sizeof result.text - 24; ++i)
    n += size_t(snprintf(result.text + n, sizeof result.text - n, i ? ", %lld" : "%lld", (long long)shape.dims[i]));
  snprintf(result.text + n, sizeof result.text - n, "]");
  return result;
}

const Entry *Meta::entry(const char *name) const {
  for (const Entry &entry : entries)
    if (strcmp(entry.name, name) == 0)
      return &entry;
  return nullptr;
}

void Entry::readNeeded() {
  List<EntryField> needed;
  for (EntryField &field : fields) {
    field.read = false;
    for (const char *name : field.neededBy)
      for (const EntryValue &result : results)
        field.read |= result.written && strcmp(result.name, name) == 0;
    (field.read ? needed : unread).add() = field;
  }
  fields = needed;
}

int64_t Stored::partAt(int64_t place) const {
  for (int64_t i = 0; i < copies.size; ++i)
    if (copies[i] == place)
      return (i + 1) % parts;
  return 0;
}

int64_t placeInPart(int64_t i, int64_t part, int64_t count, int64_t before, int64_t parts) {
  const int64_t rest = count / before / parts;
  return i / rest % parts == part ? i / (rest * parts) * rest + i % rest : -1;
}

int64_t Meta::parameterCount() const {
  int64_t result = 0;
  for (const Parameter &parameter : parameters)
    result += parameter.state ? 0 : parameter.shape.count();
  return result;
}

namespace {

void readStoredKeys(JsonReader &json, Object &object, Stored &stored) {
  object.read("path", stored.path);
  object.read("dtype", stored.elem);
  object.read("shape", stored.shape);
  object.read("offset", stored.offset);
  object.read("copies", stored.copies);
  if (object.is("split")) {
    Object split(json);
    while (split.next()) {
      split.read("before", stored.before);
      split.read("parts", stored.parts);
    }
  }
  object.read("own", stored.own);
  object.read("averaged", stored.averaged);
}

void readInitialValue(JsonReader &json, InitialValue &init) {
  Object object(json);
  while (object.next()) {
    object.read("a", init.a);
    if (!object.is("kind") || !json.readString())
      continue;
    static const char *names[] = {"constant", "normal", "truncated_normal", "uniform", "orthogonal"};
    int found = -1;
    for (int i = 0; i < 5; ++i)
      if (strcmp(json.text, names[i]) == 0)
        found = i;
    if (found < 0)
      failInternal("the program's description names initial values `%s`", json.text);
    init.kind = InitialValue::Kind(found);
  }
}

void readParameter(JsonReader &json, Parameter &parameter) {
  Object object(json);
  while (object.next()) {
    readStoredKeys(json, object, parameter);
    object.read("frozen", parameter.frozen);
    object.read("state", parameter.state);
    object.read("average_of", parameter.averageOf);
    if (object.is("init"))
      readInitialValue(json, parameter.init);
  }
}

void readSlot(JsonReader &json, Stored &slot) {
  Object object(json);
  while (object.next()) {
    readStoredKeys(json, object, slot);
    object.read("starts_as", slot.startsAs);
  }
}

void findStarts(Meta &meta) {
  for (Stored &slot : meta.slots)
    for (int64_t i = 0; i < meta.parameters.size; ++i)
      if (*slot.startsAs && strcmp(meta.parameters[i].path, slot.startsAs) == 0)
        slot.startsFrom = i;
}

void readField(JsonReader &json, FieldSpec &field) {
  Object object(json);
  while (object.next()) {
    object.read("name", field.name);
    object.read("dtype", field.elem);
    object.read("shape", field.shape);
    object.read("scale", field.scale);
    object.read("from", field.from);
    object.read("names", field.names);
    object.read("other", field.other);
    object.read("normalize", field.normalize);
    if (object.is("below"))
      field.hasBelow = json.readInteger(field.below);
    if (object.is("except"))
      field.hasExcept = json.readInteger(field.except);
    object.read("at", field.at);
  }
}

void readDataset(JsonReader &json, DatasetSpec &dataset) {
  Object object(json);
  while (object.next()) {
    object.read("name", dataset.name);
    object.read("source", dataset.source);
    object.read("files", dataset.files);
    object.read("window", dataset.window);
    object.read("stride", dataset.stride);
    object.read("header", dataset.header);
    object.read("token_bits", dataset.tokenBits);
    object.read("csv_header", dataset.csvHeader);
    object.read("separator", dataset.separator);
    if (object.is("missing"))
      dataset.hasMissing = json.readNumber(dataset.missing);
    object.read("missing_mean", dataset.missingMean);
    if (object.is("hold_out"))
      json.readNumber(dataset.holdOut);
    object.read("hold_seed", dataset.holdSeed);
    object.read("held", dataset.held);
    object.read("shuffle", dataset.shuffle);
    object.readEach("fields", dataset.fields, readField);
  }
}

void readRunValue(JsonReader &json, RunValue &value) {
  Object object(json);
  while (object.next()) {
    object.read("key", value.key);
    object.read("place", value.place);
    object.read("value", value.file);
    object.read("zero_decides", value.zeroDecides);
    if (!object.is("kind") || !json.readString())
      continue;
    static const char *names[] = {"at_least_0", "positive", "below_1", "count", "whole"};
    for (int i = 0; i < 5; ++i)
      if (strcmp(json.text, names[i]) == 0)
        value.kind = RunValue::Kind(i);
  }
  value.now = value.file;
}

void readDescribed(JsonReader &json, Described &described) {
  Object object(json);
  while (object.next()) {
    object.read("key", described.key);
    object.read("text", described.text);
    object.read("decides", described.decides);
    object.read("then", described.then);
  }
}

void readNameMapping(JsonReader &json, NameMapping &mapping) {
  Object object(json);
  while (object.next()) {
    object.read("ours", mapping.ours);
    object.read("theirs", mapping.theirs);
    object.read("transposed", mapping.transposed);
  }
}

void readNameMap(JsonReader &json, NameMap &map) {
  Object object(json);
  while (object.next()) {
    object.read("name", map.name);
    object.readEach("mappings", map.mappings, readNameMapping);
  }
}

void readInit(JsonReader &json, Meta &meta) {
  Object object(json);
  while (object.next()) {
    object.read("file", meta.initFile);
    object.read("names", meta.initNames);
  }
}

void readEvery(JsonReader &json, Every &every) {
  Object object(json);
  while (object.next()) {
    object.read("steps", every.steps);
    object.read("dataset", every.dataset);
    object.read("batches", every.batches);
    object.read("dir", every.dir);
    object.read("keep", every.keep);
    object.read("patience", every.patience);
    object.read("best", every.best);
    object.read("best_is_max", every.bestIsMax);
    object.read("csv", every.csv);
    object.read("jsonl", every.jsonl);
    object.read("tensorboard", every.tensorboard);
    object.read("html", every.html);
    if (object.is("kind") && json.readString())
      every.kind = strcmp(json.text, "eval") == 0         ? Every::Eval
                   : strcmp(json.text, "checkpoint") == 0 ? Every::Checkpoint
                                                          : Every::Log;
  }
}

void readEntryField(JsonReader &json, EntryField &field) {
  Object object(json);
  while (object.next()) {
    object.read("index", field.index);
    object.read("offset", field.offset);
    object.read("bytes", field.bytes);
    object.read("needed_by", field.neededBy);
  }
}

void readEntryValue(JsonReader &json, EntryValue &value) {
  Object object(json);
  while (object.next()) {
    object.read("name", value.name);
    object.read("dtype", value.elem);
    object.read("shape", value.shape);
    object.read("offset", value.offset);
    object.read("copies", value.copies);
  }
}

void readEntry(JsonReader &json, Entry &entry) {
  Object object(json);
  while (object.next()) {
    object.read("name", entry.name);
    object.read("microbatch", entry.microbatch);
    object.read("count", entry.count);
    object.read("valid", entry.valid);
    object.read("group", entry.group);
    if (object.is("valids")) {
      json.enterArray();
      while (json.nextItem())
        json.readInteger(entry.valids.add());
    }
    object.readEach("fields", entry.fields, readEntryField);
    object.readEach("scalars", entry.scalars, readEntryValue);
    object.readEach("results", entry.results, readEntryValue);
  }
}

void readTrain(JsonReader &json, Meta &meta) {
  Object object(json);
  while (object.next()) {
    object.read("dataset", meta.trainDataset);
    object.readEach("every", meta.every, readEvery);
  }
}

void readWorker(JsonReader &json, WorkerSpec &worker) {
  Object object(json);
  while (object.next()) {
    object.read("at", worker.at);
    object.read("bytes", worker.bytes);
    object.read("host_at", worker.hostAt);
    object.read("host_bytes", worker.hostBytes);
    object.read("shared", worker.shared);
  }
}

void readChannel(JsonReader &json, ChannelSpec &channel) {
  Object object(json);
  while (object.next()) {
    object.read("from", channel.from);
    object.read("to", channel.to);
    object.read("bytes", channel.bytes);
    object.read("boxes", channel.boxes);
    object.read("at", channel.at);
    object.read("staging", channel.staging);
    object.read("name", channel.name);
    object.read("action", channel.action);
    object.read("sums", channel.sums);
  }
}

void readWorkerGate(JsonReader &json, WorkerSpec &gate) {
  Object object(json);
  while (object.next()) {
    object.read("loss", gate.lossAt);
    object.read("norm", gate.normAt);
  }
}

void readGate(JsonReader &json, Meta &meta, List<WorkerSpec> &gates) {
  Object object(json);
  while (object.next()) {
    object.read("loss", meta.lossAt);
    object.read("norm", meta.normAt);
    object.read("lr", meta.learningRateAt);
    object.readEach("gates", gates, readWorkerGate);
    object.read("dtype", meta.gateElem);
  }
}

void readModelText(JsonReader &json, Meta &meta) {
  Object object(json);
  while (object.next()) {
    object.read("field", meta.textField);
    object.read("length", meta.textLength);
    object.read("vocab", meta.textVocabulary);
    object.read("result", meta.textResult);
  }
}

// Every tensor lies in the part of one worker.
void checkWorkers(const Meta &meta) {
  auto inside = [&](int64_t worker, int64_t offset, int64_t bytes, const char *what) {
    bool exists = worker >= 0 && worker < meta.workers.size;
    int64_t begin = exists ? meta.workers[worker].at : 0, end = exists ? begin + meta.workers[worker].bytes : 0;
    if (!exists || offset < begin || bytes < 0 || bytes > end - offset)
      failInternal("%s lies at %lld with %lld bytes, outside the part of worker %lld of %lld", what, (long long)offset,
                   (long long)bytes, (long long)worker, (long long)meta.workers.size);
  };
  auto owned = [&](const Stored &stored, int64_t offset) {
    for (const WorkerSpec &worker : meta.workers)
      if (worker.has(offset) && worker.has(offset + stored.partBytes() - 1))
        return;
    failInternal("%s lies at %lld with %lld bytes, in the part of no worker", stored.path, (long long)offset, (long long)stored.partBytes());
  };
  if (!meta.workers.size)
    return;
  int64_t end = 0;
  for (const WorkerSpec &worker : meta.workers) {
    if (worker.at < end || worker.bytes < 0 || worker.bytes > meta.arenaBytes - worker.at)
      failInternal("the part of a worker lies at %lld with %lld bytes", (long long)worker.at, (long long)worker.bytes);
    end = worker.at + worker.bytes;
    if (worker.hostBytes > 0 && (worker.hostAt < meta.hostAt || worker.hostAt % 4096 || worker.hostBytes > meta.hostAt + meta.hostBytes - worker.hostAt))
      failInternal("the pinned memory of a worker lies at %lld with %lld bytes", (long long)worker.hostAt, (long long)worker.hostBytes);
  }
  auto ownedEverywhere = [&](const Stored &stored) {
    owned(stored, stored.offset);
    for (int64_t copy : stored.copies)
      owned(stored, copy);
  };
  for (const Parameter &parameter : meta.parameters)
    ownedEverywhere(parameter);
  for (const Stored &slot : meta.slots)
    ownedEverywhere(slot);
  for (int64_t i = 0; i < meta.workers.size; ++i) {
    inside(i, meta.workers[i].lossAt, bytesOf(meta.gateElem), "a worker's loss");
    if (meta.normAt >= 0)
      inside(i, meta.workers[i].normAt, bytesOf(meta.gateElem), "a worker's norm");
  }
  for (const ChannelSpec &channel : meta.channels) {
    if (channel.boxes < 1 || channel.bytes < 1 || channel.from == channel.to)
      failInternal("the channel `%s` has %lld boxes of %lld bytes", channel.name, (long long)channel.boxes,
                   (long long)channel.bytes);
    inside(channel.to, channel.at, channel.boxes * channel.boxBytes(), channel.name);
    if (channel.staging >= 0)
      inside(channel.from, channel.staging, channel.bytes, channel.name);
  }
}

void checkMeta(const Meta &meta) {
  auto inside = [&](int64_t offset, int64_t bytes, int64_t end, const char *what) {
    if (offset < 0 || bytes < 0 || offset > end || bytes > end - offset)
      failInternal("%s lies at %lld with %lld bytes, outside its %lld bytes of the arena", what, (long long)offset,
                   (long long)bytes, (long long)end);
  };
  auto isSplitRight = [&](const Stored &stored) {
    if (stored.before < 1 || stored.parts < 1 || stored.shape.count() % stored.before || stored.shape.count() / stored.before % stored.parts ||
        (stored.copies.size + 1) % stored.parts)
      failInternal("%s is split into %lld parts behind %lld", stored.path, (long long)stored.parts, (long long)stored.before);
  };
  for (const Parameter &parameter : meta.parameters)
    isSplitRight(parameter);
  for (const Stored &slot : meta.slots)
    isSplitRight(slot);
  const int64_t persistent = meta.workers.size ? meta.arenaBytes : meta.persistentBytes; // each worker's part begins with its own
  for (const Parameter &parameter : meta.parameters)
    inside(parameter.offset, parameter.partBytes(), persistent, parameter.path);
  for (const Stored &slot : meta.slots)
    if (slot.offset < meta.hostAt || meta.hostBytes == 0)
      inside(slot.offset, slot.partBytes(), persistent, slot.path);
    else
      inside(slot.offset, slot.partBytes(), meta.hostAt + meta.hostBytes, slot.path);
  if (meta.hostBytes < 0 || (meta.hostBytes > 0 && (meta.hostAt < meta.arenaBytes || meta.hostAt % 4096)))
    failInternal("pinned memory begins at %lld, behind an arena of %lld bytes", (long long)meta.hostAt, (long long)meta.arenaBytes);
  for (const Entry &entry : meta.entries) {
    for (const EntryField &field : entry.fields)
      inside(field.offset, field.bytes, meta.arenaBytes, entry.name);
    for (const EntryValue &scalar : entry.scalars)
      inside(scalar.offset, scalar.shape.count() * bytesOf(scalar.elem), meta.arenaBytes, scalar.name);
    for (const EntryValue &result : entry.results)
      inside(result.offset, (result.copies - 1) * entry.copyBytes(result) + entry.microbatch * result.shape.count() * bytesOf(result.elem),
             meta.arenaBytes, result.name);
    if (entry.valid >= 0)
      inside(entry.valid, entry.microbatch, meta.arenaBytes, entry.name);
    for (int64_t valid : entry.valids)
      inside(valid, entry.microbatch, meta.arenaBytes, entry.name);
    if (entry.microbatch < 1)
      failInternal("the entry %s has a micro-batch of %lld", entry.name, (long long)entry.microbatch);
  }
  if (meta.trainDataset < 0 || meta.trainDataset >= meta.datasets.size)
    failInternal("the program trains on data set %d of %lld", meta.trainDataset, (long long)meta.datasets.size);
  for (const Entry &entry : meta.entries)
    for (const EntryField &field : entry.fields)
      if (field.index < 0 || field.index >= meta.datasets[meta.trainDataset].fields.size)
        failInternal("the entry %s reads field %d", entry.name, field.index);
  for (const RunValue &value : meta.values)
    if (value.place < 0 || value.place >= kRunValueWords)
      failInternal("the value `%s` has the place %lld", value.key, (long long)value.place);
  if (meta.initNames < -1 || meta.initNames >= meta.names.size)
    failInternal("the program starts from a file through name map %d of %lld", meta.initNames, (long long)meta.names.size);
  if (meta.batch < 1)
    failInternal("the program has a batch of %lld", (long long)meta.batch);
}

} // namespace

// A part that is read when it is needed.
static void skip(Object &object, const char *name, int64_t &at) {
  if (!object.is(name))
    return;
  at = object.json.position();
  object.json.skipValue();
}

void readMeta(Meta &meta, const char *text) {
  JsonReader json(text, int64_t(strlen(text)));
  Object object(json);
  List<WorkerSpec> gates; // one a worker
  while (object.next()) {
    object.read("program", meta.program);
    object.read("hash", meta.hash);
    object.read("source", meta.source);
    object.read("version", meta.version);
    object.read("seed", meta.seed);
    object.read("batch", meta.batch);
    object.read("steps", meta.steps);
    object.read("epochs", meta.epochs);
    object.read("arena_bytes", meta.arenaBytes);
    object.read("host_at", meta.hostAt);
    object.read("host_bytes", meta.hostBytes);
    object.read("budget", meta.budget);
    object.read("allowance", meta.allowance);
    object.read("max_threads", meta.maxThreads);
    object.read("persistent_bytes", meta.persistentBytes);
    if (object.is("precision") && json.readString()) {
      meta.f64 = strcmp(json.text, "f64") == 0;
      meta.bf16 = strcmp(json.text, "bf16") == 0;
    }
    object.readEach("parameters", meta.parameters, readParameter);
    object.readEach("slots", meta.slots, readSlot);
    object.readEach("datasets", meta.datasets, readDataset);
    object.readEach("entries", meta.entries, readEntry);
    object.read("plan", meta.plan);
    if (object.is("train"))
      readTrain(json, meta);
    if (object.is("gate"))
      readGate(json, meta, gates);
    if (object.is("model_text"))
      readModelText(json, meta);
    object.readEach("values", meta.values, readRunValue);
    object.readEach("described", meta.described, readDescribed);
    object.readEach("names", meta.names, readNameMap);
    if (object.is("init"))
      readInit(json, meta);
    object.readEach("workers", meta.workers, readWorker);
    object.readEach("channels", meta.channels, readChannel);
    object.read("transport_reserve", meta.transportReserve);
    object.read("step_seconds", meta.stepSeconds);
    object.read("costs", meta.costs);
    object.read("cpu", meta.cpu);
    object.read("needs", meta.needs);
    object.read("replicas", meta.replicas);
    object.read("shards", meta.shards);
    object.read("own_steps", meta.ownSteps);
    object.read("overlaps", meta.overlaps);
    skip(object, "launches", meta.launchesAt);
    skip(object, "prices", meta.pricesAt);
    skip(object, "bodies", meta.bodiesAt);
    skip(object, "operations", meta.operationsAt);
  }
  json.finish();
  if (json.failed())
    failInternal("the program's description is damaged at byte %lld: %s", (long long)json.position(), json.why());
  for (int64_t i = 0; i < gates.size && i < meta.workers.size; ++i) {
    meta.workers[i].lossAt = gates[i].lossAt;
    meta.workers[i].normAt = gates[i].normAt;
  }
  findStarts(meta);
  checkMeta(meta);
  checkWorkers(meta);
}

} // namespace cinch::rt
