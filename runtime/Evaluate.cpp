// Evaluate.cpp: `eval` and `predict`: every example once, in file order; rows that fill the last micro-batch do not
// count.
#include "runtime/Device.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cinch::rt {

int64_t inWholeGroups(const Entry &entry, int64_t examples, const char *source, bool warns) {
  int64_t over = examples % entry.group;
  if (over == examples)
    fail(kData, "%s has %lld examples, but %s compares groups of %lld", source, (long long)examples, entry.name, (long long)entry.group);
  static bool said = false;
  if (over && !said && warns)
    warn("%s has %lld examples, and %s compares groups of %lld: the last %lld are left out", source, (long long)examples, entry.name,
         (long long)entry.group, (long long)over);
  said |= over > 0 && warns;
  return examples - over;
}

// How many micro-batches hold the first `batches` batches (0: all examples); sets what cinch_fill reads.
static int64_t beginReading(const Entry &entry, int dataset, int64_t batches) {
  const Dataset &source = openData(dataset, &entry);
  run.mode = Run::Reading;
  run.source = &source;
  run.examples = source.examples;
  if (batches > 0 && batches < (source.examples + run.meta.batch - 1) / run.meta.batch)
    run.examples = batches * run.meta.batch;
  run.examples = inWholeGroups(entry, run.examples, run.meta.datasets[dataset].name);
  setWord(kStep, 0); // randomness of an evaluation does not depend on when it happens
  setWord(kFirstExample, 0);
  return (run.examples + entry.microbatch - 1) / entry.microbatch;
}

int64_t evalValueCount() {
  int64_t count = 0;
  if (const Entry *eval = run.meta.entry("eval"))
    for (const EntryValue &scalar : eval->scalars)
      count += scalar.shape.count();
  return count;
}

static double valueAt(const EntryValue &value, int64_t offset, int64_t i) {
  const char *at = arenaAt(offset);
  switch (value.elem) {
  case Elem::F64: return reinterpret_cast<const double *>(at)[i];
  case Elem::F32: return double(reinterpret_cast<const float *>(at)[i]);
  case Elem::I32: return double(reinterpret_cast<const int32_t *>(at)[i]);
  case Elem::Bool: return double(at[i]);
  case Elem::BF16: break; // what a program reports is f32
  }
  return 0;
}

void readMetrics(const Entry &eval, double *values) {
  for (const EntryValue &scalar : eval.scalars)
    fromDevice(scalar.offset, scalar.shape.count() * bytesOf(scalar.elem));
  for (const EntryValue &scalar : eval.scalars)
    for (int64_t i = 0; i < scalar.shape.count(); ++i)
      *values++ = valueAt(scalar, scalar.offset, i);
}

void evaluate(int dataset, int64_t batches, double *values) {
  const Entry *eval = run.meta.entry("eval");
  if (!eval || !cinch_eval)
    failInternal("the program has no evaluation");
  int64_t microbatches = beginReading(*eval, dataset, batches);
  callWorkers(EntryCall::Eval, microbatches);
  readMetrics(*eval, values);
}

// --on, else the data set that training evaluates, else the one it trains on.
static int chosenDataset() {
  const Meta &meta = run.meta;
  if (run.options.on) {
    for (int64_t i = 0; i < meta.datasets.size; ++i)
      if (strcmp(meta.datasets[i].name, run.options.on) == 0)
        return int(i);
    Text names;
    for (const DatasetSpec &spec : meta.datasets)
      names.add("%s%s", names.size ? ", " : "", spec.name);
    fail(kUsage, "--on %s: there is no such data set; the program has %s", run.options.on, names.data);
  }
  for (const Every &every : meta.every)
    if (every.kind == Every::Eval)
      return every.dataset;
  return meta.trainDataset;
}

// What a data set is called that is read from this file: as the file is, without its ending. If a set of the program has that name, the
// ending stays, so that neither's results take the place of the other's: names of sets have no dots.
static const char *nameOfFile(const char *file) {
  const char *slash = strrchr(file, '/');
  const char *base = slash ? slash + 1 : file, *dot = strrchr(base, '.');
  size_t length = dot && dot > base ? size_t(dot - base) : strlen(base);
  if (length == 0)
    fail(kUsage, "--data-file %s: it is not the name of a file", file);
  if (length <= 2 && strspn(base, ".") >= length)
    fail(kUsage, "--data-file %s: results lie in a folder that is called as the file is, without its ending, and no folder can be called `%.*s`: "
                 "give the file another name", file, int(length), base);
  for (const DatasetSpec &spec : run.meta.datasets) {
    if (strlen(spec.name) != length || memcmp(spec.name, base, length) != 0)
      continue;
    if (base[length])
      return copyText(base, strlen(base));
    Text name;
    name.add("%s.file", base); // it has no ending
    return copyText(name.data, name.size);
  }
  return copyText(base, length);
}

// The results of `predict` that each need one field: one file, of a set that has a file for each.
static Text resultsOfOneFile(const Entry &entry) {
  Text names;
  for (const EntryValue &result : entry.results) {
    const char *needed = nullptr;
    bool several = !result.written;
    for (const EntryField &field : entry.fields)
      for (const char *name : field.neededBy) {
        if (strcmp(name, result.name) != 0)
          continue;
        const char *own = run.meta.datasets[run.meta.trainDataset].fields[field.index].name;
        several |= needed && strcmp(needed, own) != 0; // each worker lists the fields that it reads
        needed = own;
      }
    if (needed && !several)
      names.add("%s%s", names.size ? ", " : "", result.name);
  }
  return names;
}

// --data-file: that file in the place of the one that `entry` reads of the data set, which is called by nameOfFile.
void takeDataFile(int dataset, const Entry &entry) {
  const char *file = run.options.dataFile;
  if (!file)
    return;
  DatasetSpec &spec = run.meta.datasets[dataset];
  if (takesFilesInOrder(spec))
    spec.files.size = 1; // each of them holds all fields
  int64_t read = 0, count = 0; // the file that is read, and how many are
  for (int64_t own = 0; own < spec.fields.size && spec.files.size > 1; ++own) {
    bool isRead = false; // by any worker, of which each lists its fields
    for (const EntryField &field : entry.fields)
      isRead |= strcmp(spec.fields[own].name, run.meta.datasets[run.meta.trainDataset].fields[field.index].name) == 0;
    if (isRead)
      read = own, ++count;
  }
  if (spec.files.size > 1 && count != 1) {
    Text files;
    for (const char *each : spec.files)
      files.add("%s%s", files.size ? ", " : "", each);
    const Text alone = resultsOfOneFile(entry);
    fail(kUsage,
         "--data-file %s: %s reads more than one file of data `%s` (%s); put files of these names into a folder, and name "
         "that with --data%s%s",
         file, entry.name, spec.name, files.data, alone.size ? "; or name a result that needs one of them with --only: " : "", alone.data);
  }
  const char *name = nameOfFile(file);
  spec.files[read] = file;
  spec.folder = ""; // from where we are
  spec.holdOut = 0; // all of its rows
  spec.held = false;
  spec.name = name;
}

// Standard output in pieces: a metric may have any number of values.
namespace {
// As people read it: JSON has no numbers that are not finite.
const char *textOf(char (&buffer)[40], double value, bool single) {
  if (__builtin_isfinite(value))
    return exact(buffer, value, single);
  return value != value ? "nan" : value > 0 ? "inf" : "-inf";
}

struct LongLine {
  bool json;
  Text text;
  void flush() {
    put(text.data, text.size);
    text = Text();
  }
  void number(double value, bool single) {
    char number[40];
    const char *written = textOf(number, value, single);
    text.add("%s", json && !__builtin_isfinite(value) ? "null" : written);
    if (text.size > 3000)
      flush();
  }
  // A metric of any shape as nested JSON lists; returns what follows its values.
  const double *values(const EntryValue &metric, const double *at, int axis) {
    if (axis == metric.shape.rank) {
      number(*at, metric.elem == Elem::F32);
      return at + 1;
    }
    text.add("[");
    for (int64_t i = 0; i < metric.shape.dims[axis]; ++i) {
      if (i)
        text.add(",");
      at = values(metric, at, axis + 1);
    }
    text.add("]");
    return at;
  }
};
} // namespace

void evalCommand() {
  const Entry *eval = run.meta.entry("eval");
  if (!eval)
    fail(kUsage, "this program has no metrics to evaluate");
  expectRun();
  int dataset = chosenDataset();
  takeDataFile(dataset, *eval);
  openData(dataset, eval);
  prepareArena(false);
  loadParameters();
  double *values = allocateArray<double>(evalValueCount());
  evaluate(dataset, run.options.batches, values);
  LongLine line = {false, {}};
  const double *at = values;
  if (!run.options.quiet) {
    line.text.add("%s: %lld examples\n", run.meta.datasets[dataset].name, (long long)run.examples);
    for (const EntryValue &scalar : eval->scalars) {
      line.text.add("  %-12s ", scalar.name);
      at = line.values(scalar, at, 0);
      line.text.add("\n");
    }
  }
  at = values;
  line.json = true;
  line.text.add("{\"data\":");
  line.text.addQuoted(run.meta.datasets[dataset].name);
  line.text.add(",\"examples\":%lld", (long long)run.examples);
  for (const EntryValue &scalar : eval->scalars) {
    line.text.add(",\"%s\":", scalar.name);
    at = line.values(scalar, at, 0);
  }
  line.text.add("}\n");
  line.flush();
}

// ---- predict
// -------------------------------------------------------------------------------------------------------------------

static AtomicFile *resultFiles;

// --only: the other results are not written, and what they alone are computed from is not read.
static void takeOnly(Entry &predict) {
  const List<const char *> &only = run.options.only;
  if (!only.size)
    return;
  for (EntryValue &result : predict.results)
    result.written = false;
  for (const char *name : only) {
    bool found = false;
    Text names;
    for (EntryValue &result : predict.results) {
      const bool same = strcmp(result.name, name) == 0;
      result.written |= same;
      found |= same;
      names.add("%s%s", names.size ? ", " : "", result.name);
    }
    if (!found)
      fail(kUsage, "--only: there is no result `%s`; the program has %s", name, names.data);
  }
  predict.readNeeded();
}

// Numbers of a result that are not finite: how many, and the first one.
struct NotFinite {
  int64_t count = 0, example = 0;
  double first = 0;
};
static NotFinite *notFinite; // one a result

[[noreturn]] static void resultFailed(const AtomicFile &file) {
  int error = errno;
  for (int64_t i = 0; i < run.meta.entry("predict")->results.size; ++i)
    abandonFile(resultFiles[i]);
  fail(kResources, "cannot write %s: %s", file.path.text, strerror(error));
}

static void beginResult(int64_t i, const EntryValue &result, const char *folder) {
  char name[160], header[512];
  snprintf(name, sizeof name, "%.120s.npy", result.name);
  Path path;
  joinPath(path, folder, name);
  if (!beginFile(resultFiles[i], path.text))
    resultFailed(resultFiles[i]);
  const char *type = result.elem == Elem::F32   ? "<f4"
                     : result.elem == Elem::F64 ? "<f8"
                     : result.elem == Elem::I32 ? "<i4"
                                                : "|b1";
  Text dictionary;
  dictionary.add("{'descr': '%s', 'fortran_order': False, 'shape': (%lld,", type, (long long)run.examples);
  for (int axis = 0; axis < result.shape.rank; ++axis)
    dictionary.add("%s%lld", axis ? ", " : " ", (long long)result.shape.dims[axis]);
  dictionary.add("), }");
  size_t length = size_t(onLine(int64_t(10 + dictionary.size + 1)));
  if (length > sizeof header)
    failInternal("the header of %s has %zu bytes", path.text, length);
  memset(header, ' ', sizeof header);
  memcpy(header, "\x93NUMPY\x01\x00", 8);
  header[8] = char((length - 10) & 255);
  header[9] = char((length - 10) >> 8);
  memcpy(header + 10, dictionary.data, dictionary.size);
  header[length - 1] = '\n';
  if (!writeAll(resultFiles[i].fd, header, length))
    resultFailed(resultFiles[i]);
}

void writeResults(const Entry &entry, int64_t index) {
  int64_t first = index * entry.microbatch;
  int64_t rows = run.examples - first < entry.microbatch ? run.examples - first : entry.microbatch;
  for (int64_t i = 0; i < entry.results.size && rows > 0; ++i) {
    const EntryValue &result = entry.results[i];
    if (!result.written)
      continue;
    int64_t rowBytes = result.shape.count() * bytesOf(result.elem), at = result.offset + index % result.copies * entry.copyBytes(result);
    fromDevice(at, rows * rowBytes);
    if (run.givenResults) {
      if (run.givenResults[i])
        memcpy(static_cast<char *>(run.givenResults[i]) + first * rowBytes, arenaAt(at), size_t(rows * rowBytes));
      continue;
    }
    for (int64_t k = 0; k < rows * result.shape.count(); ++k)
      if (double value = valueAt(result, at, k); !__builtin_isfinite(value) && notFinite[i].count++ == 0)
        notFinite[i].example = first + k / result.shape.count(), notFinite[i].first = value;
    if (!writeAll(resultFiles[i].fd, arenaAt(at), size_t(rows * rowBytes)))
      resultFailed(resultFiles[i]);
  }
}

void predictCommand() {
  Entry *predict = nullptr;
  for (Entry &entry : run.meta.entries)
    if (strcmp(entry.name, "predict") == 0)
      predict = &entry;
  if (!predict || !cinch_predict)
    fail(kUsage, "this program has no results to write");
  takeOnly(*predict);
  expectRun();
  int dataset = chosenDataset();
  takeDataFile(dataset, *predict);
  openData(dataset, predict);
  prepareArena(false);
  loadParameters();
  int64_t microbatches = beginReading(*predict, dataset, run.options.batches);
  char name[160];
  snprintf(name, sizeof name, "predict/%.120s", run.meta.datasets[dataset].name);
  Path folder;
  joinPath(folder, run.options.out, name);
  if (!makeFolders(folder.text))
    fail(kResources, "cannot make the folder %s: %s", folder.text, strerror(errno));
  resultFiles = allocateArray<AtomicFile>(predict->results.size);
  for (int64_t i = 0; i < predict->results.size; ++i)
    resultFiles[i] = AtomicFile();
  notFinite = allocateArray<NotFinite>(predict->results.size);
  for (int64_t i = 0; i < predict->results.size; ++i)
    notFinite[i] = NotFinite();
  for (int64_t i = 0; i < predict->results.size; ++i)
    if (predict->results[i].written)
      beginResult(i, predict->results[i], folder.text);
  callWorkers(EntryCall::Predict, microbatches);
  for (int64_t i = 0; i < predict->results.size; ++i) {
    if (!predict->results[i].written)
      continue;
    if (!commitFile(resultFiles[i]))
      resultFailed(resultFiles[i]);
    if (!run.options.quiet)
      say("%s: %lld examples of shape %s", resultFiles[i].path.text, (long long)run.examples,
          describe(predict->results[i].shape).text);
    char number[40];
    if (notFinite[i].count)
      warn("predict %s: %lld of %lld numbers are not finite; the first is %s, of example %lld (counted from 0)", predict->results[i].name,
           (long long)notFinite[i].count, (long long)(run.examples * predict->results[i].shape.count()), textOf(number, notFinite[i].first, false),
           (long long)notFinite[i].example);
  }
}

} // namespace cinch::rt
