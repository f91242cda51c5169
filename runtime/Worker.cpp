// Worker.cpp: see Worker.h.
#include "runtime/Worker.h"
#include "runtime/Channels.h"
#include "runtime/Device.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/Run.h"
#include <new>
#include <string.h>

namespace cinch::rt {

static Worker onlyWorker; // nothing is allocated for a program of one
static Pool team;         // thread i runs worker i
static char *wholeArena;  // where offset 0 of the whole arena lies, or would lie

const Peers *peers = nullptr;
Worker *workers = &onlyWorker;
int64_t workerCount = 1;

int64_t programWorkers() { return run.meta.workers.size ? run.meta.workers.size : 1; }

static void makeWorkers(int64_t number) {
  const Meta &meta = run.meta;
  onlyWorker.bytes = meta.arenaBytes;
  onlyWorker.hostAt = meta.hostAt, onlyWorker.hostBytes = meta.hostBytes;
  if (!meta.workers.size)
    return;
  if (number < 0) {
    workerCount = meta.workers.size;
    uintptr_t space = reinterpret_cast<uintptr_t>(allocate(size_t(workerCount) * sizeof(Worker) + 64));
    workers = reinterpret_cast<Worker *>(onLine(int64_t(space)));
  }
  for (int64_t i = 0; i < workerCount; ++i) {
    Worker *worker = number < 0 ? new (&workers[i]) Worker() : &onlyWorker;
    worker->number = number < 0 ? i : number;
    worker->at = meta.workers[worker->number].at;
    worker->bytes = meta.workers[worker->number].bytes;
    worker->hostAt = meta.workers[worker->number].hostAt, worker->hostBytes = meta.workers[worker->number].hostBytes;
    worker->context.words[kWorker] = worker->number;
  }
}

// Workers whose parts begin with the same bytes as that of the first replica's worker.
static void shareParts() {
  const Meta &meta = run.meta;
  const int64_t stages = meta.workers.size / (meta.replicas > 0 ? meta.replicas : 1);
  char **places = allocateArray<char *>(meta.replicas);
  for (int64_t stage = 0; stage < stages; ++stage) {
    if (!meta.workers[stage].shared)
      continue;
    for (int64_t d = 0; d < meta.replicas; ++d)
      places[d] = wholeArena + meta.workers[d * stages + stage].at;
    shareMemory(places, meta.replicas, meta.workers[stage].shared);
  }
}

void startWorkers(int64_t number, int64_t threads, bool touch) {
  makeWorkers(number);
  bool all = !run.meta.workers.size || number < 0;
  if (cinch_open_device)
    cinch_open_device();
  const int64_t mirrored = run.meta.hostBytes ? run.meta.hostAt + run.meta.hostBytes : run.meta.arenaBytes;
  wholeArena = device ? makeMirror(mirrored) : all ? makeArena(run.meta.arenaBytes, touch) : makeArena(workers[0].bytes, touch) - workers[0].at;
  if (device)
    device->open();
  if (strcmp(run.meta.ownSteps, "hogwild") == 0)
    shareParts();
  const int64_t here = run.options.workersHere > workerCount ? run.options.workersHere : workerCount;
  allowSpinning(here * (threads + !all)); // and a thread for messages, where workers have processes
  for (int64_t i = 0; i < workerCount; ++i) {
    workers[i].context.arena = wholeArena + workers[i].at;
    workers[i].context.threads = int32_t(threads);
    workers[i].pool.start(threads);
  }
  team.start(workerCount, Pool::Parts::WaitForOneAnother);
}

int64_t Worker::placeOf(const Stored &stored) const {
  for (int64_t copy : stored.copies)
    if (has(copy))
      return copy;
  return has(stored.offset) ? stored.offset : -1;
}

char *arenaAt(int64_t offset) { return wholeArena + offset; }

bool isHere(int64_t offset) {
  for (int64_t i = 0; i < workerCount; ++i)
    if (workers[i].has(offset))
      return true;
  return false;
}

int64_t ownerOf(int64_t offset) {
  for (int64_t i = 0; i < run.meta.workers.size; ++i)
    if (run.meta.workers[i].has(offset))
      return i;
  return 0;
}

void setWord(int word, int64_t value) {
  for (int64_t i = 0; i < workerCount; ++i)
    workers[i].context.words[word] = value;
}

int64_t wordOf(int word) { return workers[0].context.words[word]; }

void runWorkers(Job job, void *closure) { team.run(job, closure); }

namespace {
struct Call {
  EntryCall entry;
  int64_t microbatches;
};
} // namespace

// Slots that start as a parameter: when the first step begins, wherever that parameter came from.
static void startSlots(Worker &worker) {
  for (const Stored &slot : run.meta.slots)
    if (int64_t at = worker.placeOf(slot); slot.startsFrom >= 0 && at >= 0) {
      const int64_t from = worker.placeOf(run.meta.parameters[slot.startsFrom]);
      if (from < 0)
        failInternal("%s starts as a parameter that another worker has", slot.path);
      memcpy(arenaAt(at), arenaAt(from), size_t(slot.partBytes()));
      toDevice(at, slot.partBytes());
    }
}

static void runEntry(void *closure, int64_t worker, int64_t) {
  const Call &call = *static_cast<Call *>(closure);
  cinch_ctx *context = &workers[worker].context;
  if (call.entry == EntryCall::Train && context->words[kStep] == 0)
    startSlots(workers[worker]);
  switch (call.entry) {
  case EntryCall::Train: run.late && !context->checking ? device->step(workers[worker]) : cinch_train_step(context); break;
  case EntryCall::Eval: cinch_eval(context, call.microbatches); break;
  case EntryCall::Predict: cinch_predict(context, call.microbatches); break;
  }
}

void callWorkers(EntryCall entry, int64_t microbatches) {
  Call call = {entry, microbatches};
  if (peers)
    peers->beginCall(entry, microbatches);
  if (entry == EntryCall::Train && run.meta.channels.size)
    beginStepOfChannels();
  team.run(runEntry, &call);
  stepPhase = entry == EntryCall::Train && !workers[0].gateFailed ? StepPhase::Behind : StepPhase::None;
  if (run.meta.channels.size && !(entry == EntryCall::Train && wordOf(kFurther)))
    checkChannelsEmpty();
  for (int64_t i = 1; i < workerCount; ++i)
    if (entry == EntryCall::Train && workers[i].gateFailed != workers[0].gateFailed)
      failInternal("the workers 0 and %lld differ in whether the step's loss and norm are finite", (long long)i);
  if (peers)
    peers->endCall();
  stepPhase = StepPhase::None;
}

} // namespace cinch::rt
