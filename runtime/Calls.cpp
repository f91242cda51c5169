// Calls.cpp: the functions that the compiled program calls (runtime.h).
#include "runtime/Channels.h"
#include "runtime/Device.h"
#include "runtime/Fill.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/Times.h"
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

// Reads it into pinned memory, from where it is sent to where the arena has it.
void fillOnDevice(Worker &worker, int32_t number, int64_t index) {
  const Entry &entry = run.meta.entries[number];
  char *memory = device->stage(worker, number, index);
  fillInto(worker, number, index, memory);
  auto send = [&](int64_t offset, int64_t bytes) {
    device->send(worker, offset - worker.at, memory, bytes);
    memory += onLine(bytes);
  };
  entry.eachField([&](const EntryField &field) {
    if (worker.has(field.offset))
      send(field.offset, field.bytes);
  });
  if (int64_t valid = validPlaceOf(worker, entry); valid >= 0)
    send(valid, entry.microbatch);
  device->endStaging(worker);
}

} // namespace

double learningRate() {
  return run.meta.learningRateAt < 0 ? __builtin_nan("") : readScalar(run.meta.learningRateAt, Elem::F64);
}

} // namespace cinch::rt

using namespace cinch::rt;

void cinch_launch(cinch_ctx *context, int32_t launch, cinch_kernel kernel, const int64_t *offsets, int32_t alone) {
  Worker &worker = workerOf(context);
  if (__builtin_expect(context->checking, 0))
    checkBefore(worker, launch, offsets);
  if (device) {
    device->launch(worker, launch, reinterpret_cast<const int64_t *>(kernel), offsets);
  } else {
    LaunchCall call = {context, kernel, offsets};
    int64_t begin = __builtin_expect(timing, 0) ? nanoseconds() : 0;
    if (alone)
      runKernel(&call, 0, 1);
    else
      worker.pool.run(runKernel, &call);
    if (__builtin_expect(timing, 0))
      addTime(launch, worker.number, run.mode == Run::Training, begin, nanoseconds() - begin);
  }
  if (__builtin_expect(context->checking, 0))
    checkAfter(worker, launch, offsets);
}

void cinch_zero(cinch_ctx *context, int64_t offset, int64_t bytes) {
  if (device)
    return device->zero(workerOf(context), offset, bytes);
  ZeroCall call = {context->arena + offset, bytes};
  if (bytes >= int64_t(1) << 18)
    workerOf(context).pool.run(runZero, &call);
  else
    memset(call.at, 0, size_t(bytes));
}

void cinch_copy(cinch_ctx *context, int64_t to, int64_t from, int64_t bytes) {
  if (device)
    return device->copy(workerOf(context), to, from, bytes);
  copyMessage(workerOf(context), context->arena + to, context->arena + from, bytes);
}

void cinch_set(cinch_ctx *context, int64_t offset, int64_t bytes, int64_t word) {
  if (device)
    return device->set(workerOf(context), offset, bytes, word);
  char *at = context->arena + offset;
  for (int64_t i = 0; i < bytes; i += 8)
    memcpy(at + i, &word, size_t(bytes - i < 8 ? bytes - i : 8));
}

// A program with such copies is one for a GPU.
void cinch_fetch(cinch_ctx *context, int32_t copy, int64_t offset, int64_t host, int64_t bytes) {
  if (!device)
    failInternal("state is copied to a device, and there is none");
  device->fetch(workerOf(context), copy, offset, host, bytes);
}

void cinch_store(cinch_ctx *context, int32_t copy, int64_t offset, int64_t host, int64_t bytes) {
  if (!device)
    failInternal("state is copied from a device, and there is none");
  device->store(workerOf(context), copy, offset, host, bytes);
}

void cinch_await(cinch_ctx *context, int32_t copy) {
  if (device)
    device->await(workerOf(context), copy);
}

void cinch_fill(cinch_ctx *context, int32_t number, int64_t index) {
  Worker &worker = workerOf(context);
  context->words[kFirstExample] = index * run.meta.entries[number].microbatch;
  // In the middle of a step, if none is under way before it whose end is not known.
  const bool between = !device || !run.late || (device->mayStop && device->mayStop(worker));
  if (run.training && run.mode != Run::Generating && worker.number == 0 && between && stopRequested() && !context->checking)
    saveAndLeave();
  if (device && !device->stage)
    return;
  if (device)
    fillOnDevice(worker, number, index);
  else
    fillInto(worker, number, index, nullptr);
}

void cinch_emit(cinch_ctx *, int32_t number, int64_t index) {
  if (run.mode == Run::Reading)
    writeResults(run.meta.entries[number], index);
}

int32_t cinch_gate(cinch_ctx *context) {
  const Meta &meta = run.meta;
  Worker &worker = workerOf(context);
  if (run.late && !context->checking) { // what follows is asked for, and the device knows whether to do it
    device->gate(worker);
    return !(worker.gateFailed = false);
  }
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
