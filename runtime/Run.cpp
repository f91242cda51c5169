// Run.cpp: what all commands of a trained binary need first.
#include "runtime/Channels.h"
#include "runtime/Checkpoint.h"
#include "runtime/Device.h"
#include "runtime/InitFile.h"
#include "runtime/Initialize.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/Run.h"
#include "runtime/Values.h"
#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

namespace cinch::rt {

Run run;

// What a budget leaves free has room for them, too. A budget of a GPU is for what lies there; `info` makes no arena.
void needRoomForArguments(char **argv) {
  const Meta &meta = run.meta;
  const bool together = run.options.transport == Transport::Threads;
  if (!meta.budget || cinch_open_device || (!together && run.number >= meta.workers.size)) // a process too many is refused by joinPeers
    return;
  const int64_t here = together ? programWorkers() : 1;
  const int64_t arena = run.options.command == Options::Info ? 0 : together ? meta.arenaBytes : meta.workers[run.number].bytes;
  const int64_t free = here * (meta.budget - meta.allowance) - arena;
  const int64_t room = here * kArgumentBytes + (free > 0 ? free : 0), taken = bytesOfArguments(argv);
  if (taken <= room)
    return;
  Text mend;
  if (together)
    mend.add("start it without variables that it does not need: env -i PATH=\"$PATH\" %.200s ..", argv[0]);
  else
    mend.add("start its processes with fewer variables");
  fail(kResources,
       "the arguments and the environment of this process take %lld bytes, but the memory budget has room for %lld of them; %s, or compile it with a "
       "--memory-budget of which the plan leaves %lld bytes more free",
       (long long)taken, (long long)room, mend.data, (long long)((taken - room + here - 1) / here));
}

static const FieldSpec *fieldNamed(const DatasetSpec &spec, const char *name) {
  for (const FieldSpec &field : spec.fields)
    if (strcmp(field.name, name) == 0)
      return &field;
  return nullptr;
}

// `tables`: both have columns.
static bool sameType(const FieldSpec &a, const FieldSpec &b, bool tables) {
  bool same = a.elem == b.elem && a.shape.rank == b.shape.rank && a.hasBelow == b.hasBelow && a.below == b.below &&
              a.hasExcept == b.hasExcept && a.except == b.except &&
              a.normalize == b.normalize && a.names.size == b.names.size && a.other == b.other;
  for (int64_t i = 0; same && i < a.names.size; ++i)
    same = strcmp(a.names[i], b.names[i]) == 0;
  for (int i = 0; same && i < a.shape.rank; ++i)
    same = a.shape.dims[i] == b.shape.dims[i];
  // Each column is brought to mean 0 by the mean of the one in its place.
  for (int64_t i = 0; same && a.normalize && tables && i < a.from.size; ++i)
    same = a.from.size == b.from.size && strcmp(a.from[i], b.from[i]) == 0;
  return same;
}

static void addType(Text &text, const FieldSpec &field, bool table) {
  text.add("%s%s", nameOf(field.elem), describe(field.shape).text);
  if (field.hasBelow)
    text.add(" below %lld", (long long)field.below);
  if (field.hasExcept)
    text.add(" except %lld", (long long)field.except);
  if (field.names.size)
    text.add(" with %lld names%s", (long long)field.names.size, field.other ? " and other" : "");
  if (field.normalize && table)
    text.add(" of the columns");
  for (int64_t i = 0; field.normalize && table && i < field.from.size && text.size < 200; ++i)
    text.add("%s\"%s\"", i ? ", " : " ", field.from[i]);
  if (field.normalize)
    text.add(", normalize");
}

// The first field of `entry` that the data set lacks or has with another type; null: it serves.
static const EntryField *lacking(const DatasetSpec &spec, const Entry &entry) {
  const DatasetSpec &trained = run.meta.datasets[run.meta.trainDataset];
  const bool tables = strcmp(spec.source, "csv") == 0 && strcmp(trained.source, "csv") == 0;
  for (const EntryField &field : entry.fields) {
    const FieldSpec *found = fieldNamed(spec, trained.fields[field.index].name);
    if (!found || !sameType(*found, trained.fields[field.index], tables))
      return &field;
  }
  return nullptr;
}

Text resultsWithout(const char *field) {
  Text names;
  const DatasetSpec &trained = run.meta.datasets[run.meta.trainDataset];
  const Entry *predict = run.options.command == Options::Predict ? run.meta.entry("predict") : nullptr;
  for (int64_t i = 0; predict && i < predict->results.size; ++i) {
    const EntryValue &result = predict->results[i];
    bool needs = !result.written, reads = false; // what reads nothing takes all fields, to count the examples
    for (const EntryField &read : predict->fields)
      for (const char *name : read.neededBy)
        if (strcmp(name, result.name) == 0)
          reads = true, needs |= strcmp(trained.fields[read.index].name, field) == 0;
    if (!needs && reads)
      names.add("%s%s", names.size ? "," : "", result.name);
  }
  return names;
}

[[noreturn]] static void refuseData(const DatasetSpec &spec, const Entry &entry, const EntryField &missing) {
  const FieldSpec &wanted = run.meta.datasets[run.meta.trainDataset].fields[missing.index];
  const FieldSpec *found = fieldNamed(spec, wanted.name);
  Text needs, type, other, serving;
  for (const char *name : missing.neededBy)
    needs.add("%s%s", needs.size ? ", " : " for ", name);
  for (const DatasetSpec &candidate : run.meta.datasets)
    if (!lacking(candidate, entry))
      serving.add("%s%s", serving.size ? ", " : "", candidate.name);
  addType(type, wanted, strcmp(run.meta.datasets[run.meta.trainDataset].source, "csv") == 0);
  if (found)
    addType(other, *found, strcmp(spec.source, "csv") == 0);
  const Text without = resultsWithout(wanted.name);
  if (without.size)
    serving.add("%s--only %s, which needs no `%s`", serving.size ? "; or write " : "none serves; write ", without.data, wanted.name);
  if (found)
    fail(kData, "field `%s` of data `%s` is %s, but %s needs %s%s; declare it so, or name another data set with --on: %s",
         wanted.name, spec.name, other.data, entry.name, type.data, needs.data, serving.data);
  fail(kData, "data `%s` has no field `%s`, which %s needs%s; declare it, or name another data set with --on: %s",
       spec.name, wanted.name, entry.name, needs.data, serving.data);
}

// With one process a worker: whether this one reads the field of a data set. What nobody reads, worker 0 opens.
static bool readsField(const FieldSpec &field, const Entry *only) {
  if (run.options.transport == Transport::Threads)
    return true;
  const DatasetSpec &trained = run.meta.datasets[run.meta.trainDataset];
  bool anybody = false;
  for (const Entry &entry : run.meta.entries)
    for (const EntryField &read : entry.fields) {
      if ((only && only->fields.size && only != &entry) || strcmp(trained.fields[read.index].name, field.name) != 0)
        continue;
      if (ownerOf(read.offset) == run.number)
        return true;
      anybody = true;
    }
  return !anybody && run.number == 0;
}

const Dataset &openFields(int index, const Entry *entry) {
  if (index < 0 || index >= run.meta.datasets.size)
    failInternal("there is no data set %d", index);
  if (!run.datasets)
    run.datasets = allocateArray<Dataset>(run.meta.datasets.size);
  Dataset &dataset = run.datasets[index];
  const DatasetSpec &spec = run.meta.datasets[index];
  if (!dataset.spec)
    beginDataset(dataset, spec, run.meta.datasets[run.meta.trainDataset], entry && strcmp(entry->name, "predict") == 0 ? entry : nullptr);
  if (!entry || entry->fields.size == 0) { // what reads nothing still counts the examples
    for (int64_t i = 0; i < spec.fields.size; ++i)
      if (readsField(spec.fields[i], entry))
        openField(dataset, int(i), run.options.data, run.options.out);
  } else if (const EntryField *missing = lacking(spec, *entry)) {
    refuseData(spec, *entry, *missing);
  } else {
    for (const EntryField &field : entry->fields)
      if (readsField(spec.fields[dataset.fieldOf[field.index]], entry))
        openField(dataset, dataset.fieldOf[field.index], run.options.data, run.options.out);
  }
  return dataset;
}

const Dataset &openData(int index, const Entry *entry) {
  static List<const Entry *> everywhere; // what all workers opened already: data set i with entry [i], null: none
  if (!peers)
    return openFields(index, entry);
  if (index < 0 || index >= run.meta.datasets.size)
    failInternal("there is no data set %d", index);
  while (everywhere.size < run.meta.datasets.size)
    everywhere.add() = nullptr;
  static const Entry all;
  if (entry && entry->fields.size)
    if (const EntryField *missing = lacking(run.meta.datasets[index], *entry))
      refuseData(run.meta.datasets[index], *entry, *missing);
  if (everywhere[index] != (entry ? entry : &all)) {
    peers->openData(index, entry);
    everywhere[index] = entry ? entry : &all;
  }
  return run.datasets[index];
}

void prepareArena(bool touch) {
  startWorkers(peers ? 0 : -1, run.options.threads, touch);
  prepareChannels();
  storeValues();
  setWord(kHorizon, run.horizon);
  if (peers)
    peers->prepareArena(touch);
}

void expectRun() {
  if (!run.options.init && !run.options.names && !exists(run.options.out))
    fail(kData, "no parameters: there is no folder %s; train first, name the folder of a run with --out, or a file with --init", run.options.out);
}

void loadParameters() {
  prepareCheckpoints();
  Path path;
  joinPath(path, run.options.out, "final.safetensors");
  const char *name = run.options.init ? run.options.init : path.text;
  if (run.options.init || run.options.names) {
    if (run.options.names) { // a part of the parameters may start as the program says
      initialize(run.meta);
      if (peers)
        peers->initialize();
    }
    loadInitFile();
  } else if (exists(path.text)) {
    loadParameterFile(name);
  } else if (!loadNewestParameters(name)) {
    fail(kData, "no parameters: neither %s nor a checkpoint is there; train first, or name a file with --init",
         path.text);
  }
  stateToDevice();
  if (!run.options.quiet && run.options.command != Options::Generate)
    say("parameters from %s", name);
}

void joinPeers() {
  if (!cinch_join_peers)
    failInternal("the program has %lld workers, but was linked for threads only", (long long)programWorkers());
  cinch_join_peers();
}

void prepareOut() {
  if (!makeFolders(run.options.out))
    fail(kResources, "cannot make the folder %s: %s", run.options.out, strerror(errno));
  Path lock;
  joinPath(lock, run.options.out, ".lock");
  int fd = open(lock.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666); // held until the process ends
  if (fd < 0)
    fail(kResources, "cannot write to %s: %s", run.options.out, strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(kResources, "another run is writing to %s; choose another folder with --out", run.options.out);
}

} // namespace cinch::rt
