// Calls.cpp: the functions that the compiled program calls (runtime.h).
#include "runtime/Channels.h"
#include "runtime/Device.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/Shuffle.h"
#include "runtime/Times.h"
#include <errno.h>
#include <string.h>

namespace cinch::rt {

namespace {

struct LaunchCall {
  cinch_ctx *context;
  cinch_kernel kernel;
  const int64_t *offsets;
};

void runKernel(void *closure, int64_t thread, int64_t threads) {
  const LaunchCall &call = *static_cast<LaunchCall *>(closure);
  call.kernel(call.context->arena, call.offsets, call.context->words, thread, threads);
}

struct ZeroCall {
  char *at;
  int64_t bytes;
};

void runZero(void *closure, int64_t thread, int64_t threads) {
  const ZeroCall &call = *static_cast<ZeroCall *>(closure);
  int64_t begin, end;
  share((call.bytes + 4095) / 4096, thread, threads, begin, end);
  begin *= 4096;
  end = end * 4096 < call.bytes ? end * 4096 : call.bytes;
  if (begin < end)
    memset(call.at + begin, 0, size_t(end - begin));
}

struct FillCall {
  const Worker *worker;
  const Entry *entry;
  int64_t first;
  char *valid; // null: not of this worker
  int failedField = -1; // written by at most a few threads, with equal meaning
  int error = 0;
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

void runFill(void *closure, int64_t thread, int64_t threads) {
  FillCall &call = *static_cast<FillCall *>(closure);
  const Entry &entry = *call.entry;
  int64_t begin, end;
  share(entry.microbatch, thread, threads, begin, end);
  for (int64_t row = begin; row < end; ++row) {
    int64_t example = exampleAt(call.first + row, call.worker->context.words[kStep]);
    if (call.valid)
      call.valid[row] = example >= 0;
    for (const EntryField &field : entry.fields) {
      if (!call.worker->has(field.offset))
        continue;
      const int64_t rowBytes = field.bytes / entry.microbatch;
      const int index = run.given ? field.index : run.source->fieldOf[field.index];
      char *into = arenaAt(field.offset) + row * rowBytes;
      if (example < 0)
        memset(into, 0, size_t(rowBytes));
      else if (run.given)
        memcpy(into, static_cast<const char *>(run.given[index]) + example * rowBytes, size_t(rowBytes));
      else if (!readExample(*run.source, index, example, elemOf(field, entry, run.source->spec->fields[index]), into)) {
        call.error = errno;
        __atomic_store_n(&call.failedField, index, __ATOMIC_RELEASE);
      }
    }
  }
}

void fillWindow(const Worker &worker, const Entry &entry, char *valid) {
  for (const EntryField &field : entry.fields) {
    if (!worker.has(field.offset))
      continue;
    memset(arenaAt(field.offset), 0, size_t(field.bytes));
    if (field.index == run.meta.textField)
      memcpy(arenaAt(field.offset), run.window, size_t(field.bytes / entry.microbatch));
  }
  if (valid) {
    memset(valid, 0, size_t(entry.microbatch));
    valid[0] = 1;
  }
}

// What a fill brought, on its way to the device.
void sendFill(const Worker &worker, const Entry &entry, char *valid) {
  if (!device)
    return;
  for (const EntryField &field : entry.fields)
    if (worker.has(field.offset))
      toDevice(field.offset, field.bytes);
  if (valid)
    toDevice(valid - arenaAt(0), entry.microbatch);
}

// Where the worker is told which rows count; null: it does not ask.
char *validOf(const Worker &worker, const Entry &entry) {
  for (int64_t valid : entry.valids)
    if (worker.has(valid))
      return arenaAt(valid);
  return entry.valid >= 0 && worker.has(entry.valid) ? arenaAt(entry.valid) : nullptr;
}

double readScalar(int64_t offset, Elem elem) {
  fromDevice(offset, elem == Elem::F64 ? 8 : 4);
  if (elem == Elem::F64) {
    double value;
    memcpy(&value, arenaAt(offset), 8);
    return value;
  }
  float value;
  memcpy(&value, arenaAt(offset), 4);
  return double(value);
}

} // namespace

double learningRate() {
  return run.meta.learningRateAt < 0 ? __builtin_nan("") : readScalar(run.meta.learningRateAt, Elem::F64);
}

} // namespace cinch::rt

using namespace cinch::rt;

void cinch_launch(cinch_ctx *context, int32_t launch, cinch_kernel kernel, const int64_t *offsets) {
  if (__builtin_expect(context->checking, 0))
    checkBefore(workerOf(context), launch, offsets);
  LaunchCall call = {context, kernel, offsets};
  int64_t begin = __builtin_expect(timing, 0) ? nanoseconds() : 0;
  if (device)
    device->launch(launch, reinterpret_cast<const int64_t *>(kernel), offsets, context->words);
  else
    workerOf(context).pool.run(runKernel, &call);
  if (__builtin_expect(timing, 0) && device)
    device->finish();
  if (__builtin_expect(timing, 0))
    addTime(launch, workerOf(context).number, begin, nanoseconds() - begin);
  if (__builtin_expect(context->checking, 0))
    checkAfter(workerOf(context), launch, offsets);
}

void cinch_zero(cinch_ctx *context, int64_t offset, int64_t bytes) {
  if (device)
    return device->zero(offset, bytes);
  ZeroCall call = {context->arena + offset, bytes};
  if (bytes >= int64_t(1) << 18)
    workerOf(context).pool.run(runZero, &call);
  else
    memset(call.at, 0, size_t(bytes));
}

void cinch_copy(cinch_ctx *context, int64_t to, int64_t from, int64_t bytes) {
  copyMessage(workerOf(context), context->arena + to, context->arena + from, bytes);
}

void cinch_set(cinch_ctx *context, int64_t offset, int64_t bytes, int64_t word) {
  char *at = context->arena + offset;
  for (int64_t i = 0; i < bytes; i += 8)
    memcpy(at + i, &word, size_t(bytes - i < 8 ? bytes - i : 8));
  toDevice(offset, bytes);
}

void cinch_fill(cinch_ctx *context, int32_t number, int64_t index) {
  Worker &worker = workerOf(context);
  const Entry &entry = run.meta.entries[number];
  char *valid = validOf(worker, entry);
  context->words[kFirstExample] = index * entry.microbatch;
  if (run.mode == Run::Generating) {
    fillWindow(worker, entry, valid);
    sendFill(worker, entry, valid);
    return;
  }
  if (run.training && worker.number == 0 && stopRequested() && !context->checking)
    saveAndLeave();
  FillCall call = {&worker, &entry, index * entry.microbatch, valid};
  worker.pool.run(runFill, &call);
  if (call.failedField >= 0)
    fail(kData, "cannot read %s: %s", run.source->fields[call.failedField].path.text,
         call.error ? strerror(call.error) : "it became shorter during the run");
  sendFill(worker, entry, valid);
}

void cinch_emit(cinch_ctx *, int32_t number, int64_t index) {
  if (run.mode == Run::Reading)
    writeResults(run.meta.entries[number], index);
}

int32_t cinch_gate(cinch_ctx *context) {
  const Meta &meta = run.meta;
  Worker &worker = workerOf(context);
  if (meta.overlaps && !run.training) // what was begun of a step is brought to its end and forgotten
    return !(worker.gateFailed = true);
  bool several = meta.workers.size != 0; // each looks at its own copies, which hold the same bits
  int64_t lossAt = several ? meta.workers[worker.number].lossAt : meta.lossAt;
  int64_t normAt = several ? meta.workers[worker.number].normAt : meta.normAt;
  double loss = readScalar(lossAt, meta.gateElem), norm = normAt < 0 ? 0 : readScalar(normAt, meta.gateElem);
  worker.gateFailed = !__builtin_isfinite(loss) || !__builtin_isfinite(norm);
  if (worker.number == 0) {
    run.loss = loss;
    run.norm = norm;
    run.gateFailed = worker.gateFailed;
  }
  return !worker.gateFailed;
}
