// Fill.cpp: see Fill.h. The batch of a step is a function of its number, so it may be read again.
#include "runtime/Fill.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/Shuffle.h"
#include <errno.h>
#include <string.h>

namespace cinch::rt {

namespace {

struct FillCall {
  const Worker *worker;
  const Entry *entry;
  int64_t first;
  char *memory;         // null: the arena
  int failedField = -1; // written by at most a few threads, with equal meaning
  int error = 0;

  // Calls visit(field, where it goes) for each field of the worker; returns where it is told which rows count, null: nowhere.
  template <typename Visit> char *places(Visit visit) const {
    char *at = memory;
    entry->eachField([&](const EntryField &field) {
      if (!worker->has(field.offset))
        return;
      visit(field, memory ? at : arenaAt(field.offset));
      at += memory ? onLine(field.bytes) : 0;
    });
    const int64_t valid = validPlaceOf(*worker, *entry);
    return valid < 0 ? nullptr : memory ? at : arenaAt(valid);
  }
};

Elem elemOf(const EntryField &field, const Entry &entry, const FieldSpec &spec) {
  int64_t bytes = field.bytes / (entry.microbatch * spec.shape.count());
  return spec.elem == Elem::F32 && bytes == 8 ? Elem::F64 : spec.elem;
}

// The example at place `place` of the batch of step `step`, or -1 for a row that only fills the last batch of an evaluation.
int64_t exampleAt(int64_t place, int64_t step) {
  if (run.given && run.mode == Run::Training)
    return place;
  if (run.mode != Run::Training)
    return place < run.examples ? place : -1;
  const Dataset &source = *run.source;
  place += step * run.meta.batch;
  int64_t epoch = place / source.examples, within = place % source.examples;
  return source.spec->shuffle ? shuffled(run.meta.seed, epoch, source.examples, within) : within;
}

void fillRow(FillCall &call, int64_t row) {
  const Entry &entry = *call.entry;
  int64_t example = exampleAt(call.first + row, call.worker->context.words[kStep]);
  char *valid = call.places([&](const EntryField &field, char *place) {
    const int64_t rowBytes = field.bytes / entry.microbatch;
    const int index = run.given ? field.index : run.source->fieldOf[field.index];
    char *into = place + row * rowBytes;
    if (example < 0 || !field.read) // zeros are in every range
      memset(into, 0, size_t(rowBytes));
    else if (run.given)
      memcpy(into, static_cast<const char *>(run.given[index]) + example * rowBytes, size_t(rowBytes));
    else if (!readExample(*run.source, index, example, elemOf(field, entry, run.source->spec->fields[index]), into)) {
      call.error = errno;
      __atomic_store_n(&call.failedField, index, __ATOMIC_RELEASE);
    }
  });
  if (valid)
    valid[row] = example >= 0;
}

void runFill(void *closure, int64_t thread, int64_t threads) {
  FillCall &call = *static_cast<FillCall *>(closure);
  int64_t begin, end;
  share(call.entry->microbatch, thread, threads, begin, end);
  for (int64_t row = begin; row < end; ++row)
    fillRow(call, row);
}

void fillWindow(const FillCall &call) {
  const Entry &entry = *call.entry;
  char *valid = call.places([&](const EntryField &field, char *place) {
    memset(place, 0, size_t(field.bytes));
    if (field.index == run.meta.textField)
      memcpy(place, run.window, size_t(field.bytes / entry.microbatch));
  });
  if (valid) {
    memset(valid, 0, size_t(entry.microbatch));
    valid[0] = 1;
  }
}

} // namespace

int64_t validPlaceOf(const Worker &worker, const Entry &entry) {
  for (int64_t valid : entry.valids)
    if (worker.has(valid))
      return valid;
  return entry.valid >= 0 && worker.has(entry.valid) ? entry.valid : -1;
}

int64_t stagedBytes(const Worker &worker, const Entry &entry) {
  int64_t bytes = validPlaceOf(worker, entry) < 0 ? 0 : onLine(entry.microbatch);
  entry.eachField([&](const EntryField &field) { bytes += worker.has(field.offset) ? onLine(field.bytes) : 0; });
  return bytes;
}

void fillInto(Worker &worker, int32_t number, int64_t index, char *memory) {
  const Entry &entry = run.meta.entries[number];
  FillCall call = {&worker, &entry, index * entry.microbatch, memory};
  if (run.mode == Run::Generating)
    return fillWindow(call);
  worker.pool.run(runFill, &call);
  if (call.failedField >= 0)
    fail(kData, "cannot read %s: %s", run.source->fields[call.failedField].path.text,
         call.error ? strerror(call.error) : "it became shorter during the run");
}

} // namespace cinch::rt
