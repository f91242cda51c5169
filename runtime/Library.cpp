// Library.cpp: the functions of library.h. What ends the process in an executable comes back here as a code: `fail` jumps to the
// call that is running.
#include "runtime/library.h"
#include "runtime/Checking.h"
#include "runtime/Checkpoint.h"
#include "runtime/Cpu.h"
#include "runtime/Device.h"
#include "runtime/InitFile.h"
#include "runtime/Initialize.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/TensorFile.h"
#include "runtime/Values.h"
#include <errno.h>
#include <immintrin.h>
#include <pthread.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

char message[1024] = "";
jmp_buf place;
pthread_t caller;
bool described = false, prepared = false, ready = false; // the description was read; the memory is there; it has parameters
pid_t process = 0;                     // in which the memory and our threads are
bool busy = false;                     // a call is running
thread_local const char *turnedAway = nullptr; // why the last call of this thread was not begun: `message` may be another thread's
bool shown = false;                    // the caller was given the address of a parameter; on a GPU that is a copy's
bool reseeded = false;                 // the seed was changed, and nothing drawn with it yet
bool drawn = false;                    // the file of the program's `init` was not read, and nothing was loaded in its place

void takeFailure(int code, const char *text) {
  if (!pthread_equal(caller, pthread_self())) { // one of our own threads cannot give up alone
    (void)writeAll(2, text, strlen(text));
    _exit(code);
  }
  snprintf(message, sizeof message, "%s", text);
  longjmp(place, code);
}

void readDescription() {
  if (described)
    return;
  readMeta(run.meta, cinch_meta);
  run.options.quiet = true;
  applySettings();
  prepareNormals(run.meta, false);
  needCpu(run.meta);
  __atomic_store_n(&described, true, __ATOMIC_RELEASE);
}

void fill(cinch_value &value, const char *name, const char *dtype, const Shape &shape, void *data) {
  value.name = name;
  value.dtype = dtype;
  value.rank = shape.rank;
  for (int i = 0; i < 12; ++i)
    value.shape[i] = i < shape.rank ? shape.dims[i] : 0;
  value.data = data;
}

// Around each call of the program: what the caller may have written to parameters, and what it may read there. All work is done then.
void beginWork() {
  if (shown)
    parametersToDevice();
}
void endWork() {
  for (int64_t i = 0; device && i < workerCount; ++i)
    device->finish(workers[i]);
  if (shown)
    parametersFromDevice();
}

// The tensor of a parameter, as its caller sees it.
void show(const Tensor &tensor, cinch_value &value) {
  if (!shown)
    parametersFromDevice();
  shown = true;
  fill(value, tensor.name, nameOf(tensor.elem), *tensor.shape, tensor.data);
}

void needPointer(const void *pointer, const char *what) {
  if (!pointer)
    fail(kUsage, "the %s is NULL", what);
}

void needMemory() {
  if (!ready)
    fail(kUsage, "cinch_model_init has to be called first");
  if (reseeded)
    fail(kUsage, "the seed was changed; cinch_model_init has to be called again, which begins anew with it");
}

// Nobody works with drawn parameters where the program says that they come from a file.
void needParameters() {
  needMemory();
  if (drawn)
    fail(kData, "the parameters of this program start from %s, which cinch_model_init did not find in the current folder; bring it "
                "there and call it again, or call cinch_model_load with another file", run.meta.initFile);
}

// Whether the file of `init "file"` is in the current folder. A program that only loads what was trained elsewhere does without it.
bool hasInitFile() {
  Path path;
  joinPath(path, run.options.data, run.meta.initFile ? run.meta.initFile : "");
  return run.meta.initFile && exists(path.text);
}

// One call at a time, in the process that has our threads; the code if this one may not begin.
int enter() {
  turnedAway = nullptr;
  if (process && getpid() != process) // the flag may be set by a thread that is not here
    turnedAway = "this process was forked from the one that called cinch_model_init, and has none of the library's threads; start the other "
                 "process before that call, or by exec, and call cinch_model_init there";
  else if (__atomic_exchange_n(&busy, true, __ATOMIC_ACQUIRE))
    turnedAway = "another call is running; the functions of a model are called by one thread at a time";
  return turnedAway ? kUsage : 0;
}

// A limit on the size of files is a failed write and not the end of the process: the signal that says so waits while a call runs, and goes unseen.
class FileLimit {
public:
  FileLimit() {
    sigemptyset(&limit);
    sigaddset(&limit, SIGXFSZ);
    sigset_t pending;
    sigpending(&pending);
    waited = sigismember(&pending, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &limit, &before);
  }
  void leave() {
    const timespec now = {0, 0};
    while (!waited && sigtimedwait(&limit, nullptr, &now) == SIGXFSZ)
      continue;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
  }

private:
  sigset_t limit, before;
  bool waited; // it was there before the call: it is the caller's
};

// Runs `body` so that its failures are ours to return, with the floating-point mode and the GPU's context of the caller restored behind it.
template <typename Body> int guarded(Body body) {
  if (int code = enter())
    return code;
  unsigned mode = _mm_getcsr();
  FileLimit limit;
  setFloatingPointMode();
  caller = pthread_self();
  onFailure = takeFailure;
  if (device)
    device->enter();
  int code = setjmp(place);
  if (code == 0)
    body();
  onFailure = nullptr;
  if (device)
    device->leave();
  run.given = nullptr;
  run.givenResults = nullptr;
  _mm_setcsr(mode);
  limit.leave();
  __atomic_store_n(&busy, false, __ATOMIC_RELEASE);
  return code;
}

const DatasetSpec &trained() { return run.meta.datasets[run.meta.trainDataset]; }

template <typename Value> void checkFloats(const FieldSpec &field, const Value *values, int64_t count) {
  for (int64_t i = 0; i < count; ++i)
    if (!__builtin_isfinite(values[i]))
      fail(kData, "field `%s` has %g in example %lld; every value must be finite", field.name, double(values[i]),
           (long long)(i / field.shape.count()));
}

void checkIntegers(const FieldSpec &field, const int32_t *values, int64_t count) {
  for (int64_t i = 0; field.hasBelow && i < count; ++i)
    if ((values[i] < 0 || values[i] >= field.below) && !(field.hasExcept && values[i] == field.except))
      fail(kData, "field `%s` is declared below %lld, but has %d in example %lld", field.name, (long long)field.below, values[i],
           (long long)(i / field.shape.count()));
}

// What the entry reads, value by value: an index beyond its axis must not reach a kernel.
void checkFields(const Entry &entry, const void *const *fields, int64_t examples) {
  for (const EntryField &read : entry.fields) {
    const FieldSpec &field = trained().fields[read.index];
    const void *values = fields ? fields[read.index] : nullptr;
    int64_t count = examples * field.shape.count();
    if (!values)
      fail(kUsage, "field `%s` is NULL", field.name);
    if (field.elem == Elem::F32 && run.meta.f64)
      checkFloats(field, static_cast<const double *>(values), count);
    else if (field.elem == Elem::F32)
      checkFloats(field, static_cast<const float *>(values), count);
    else if (field.elem == Elem::F64)
      checkFloats(field, static_cast<const double *>(values), count);
    else if (field.elem == Elem::I32)
      checkIntegers(field, static_cast<const int32_t *>(values), count);
    else
      for (int64_t i = 0; i < count; ++i)
        if (static_cast<const unsigned char *>(values)[i] > 1)
          fail(kData, "field `%s` is bool, but has %d", field.name, static_cast<const unsigned char *>(values)[i]);
  }
}

const Entry &beginCall(const char *name, bool there, const void *const *fields, int64_t examples) {
  needParameters();
  const Entry *entry = run.meta.entry(name);
  if (!entry || !there)
    fail(kUsage, "this program has nothing to %s", name);
  if (examples < 1)
    fail(kUsage, "%lld examples are none", (long long)examples);
  checkFields(*entry, fields, examples);
  run.given = fields;
  run.examples = inWholeGroups(*entry, examples, "what is given", false);
  setWord(kFirstExample, 0);
  return *entry;
}

// No step can go on from what updates, or the caller, made infinite.
void needFiniteValues() {
  const int64_t bad = firstBadParameter(false);
  if (bad >= 0)
    fail(kNumeric, "`%s` is not finite any more; nothing was saved", run.meta.parameters[bad].path);
}

// A library is given fields that are normalized already: only its caller, or a file, knows with what.
void needNormals() {
  for (const Normal &normal : normals())
    for (int64_t i = 0; i < normal.shape.dims[0]; ++i)
      if (!__builtin_isfinite(normal.mean[i]) || !__builtin_isfinite(normal.deviation[i]) || !(normal.deviation[i] > 0))
        fail(kUsage, "nobody has said what field `%s` was normalized with: write all of `%s` and of `%s` where cinch_model_parameter shows them, or load "
                     "a file that has both; nothing was saved", normal.field, normal.meanName, normal.deviationName);
}

const char *typeOf(Elem elem) { return nameOf(elem == Elem::F32 && run.meta.f64 ? Elem::F64 : elem); }

} // namespace

} // namespace cinch::rt

using namespace cinch::rt;

const char *cinch_model_error(void) { return turnedAway ? turnedAway : message; }

int cinch_model_init(int64_t threads) {
  return guarded([&] {
    readDescription();
    if (threads < 0 || threads > run.meta.maxThreads)
      fail(kUsage, "%lld threads: this program was compiled for at most %lld", (long long)threads, (long long)run.meta.maxThreads);
    if (!prepared) {
      int64_t each = processors() / programWorkers();
      run.options.threads = threads ? threads : each < 1 ? 1 : each < run.meta.maxThreads ? each : run.meta.maxThreads;
      run.horizon = run.meta.steps;
      prepareArena(false);
      prepareCheckpoints();
      prepared = true;
      process = getpid();
    } else if (threads && threads != run.options.threads) {
      fail(kUsage, "%lld threads: the library works with %lld already", (long long)threads, (long long)run.options.threads);
    }
    const bool found = hasInitFile();
    if (found)
      checkInitFile(); // one that is refused leaves the model as it is
    ready = true;
    run.step = 0;
    reseeded = false;
    storeValues();
    initialize(run.meta);
    drawn = run.meta.initFile != nullptr; // as long as the file was not read
    if (found)
      loadInitFile();
    drawn &= !found;
    lookAtFirstParameters();
    stateToDevice();
  });
}

int cinch_model_set(const char *setting) {
  return guarded([&] {
    needPointer(setting, "setting");
    readDescription();
    const uint64_t seed = run.meta.seed;
    run.options.settings.size = 0;
    run.options.settings.add() = setting;
    applySettings();
    run.horizon = run.meta.steps;
    if (ready) {
      reseeded |= run.meta.seed != seed;
      storeValues();
      setWord(kHorizon, run.horizon);
    }
  });
}

int cinch_model_load(const char *path) {
  return guarded([&] {
    needPointer(path, "path");
    needMemory();
    loadParameterFile(path);
    drawn = false;
    lookAtFirstParameters();
    parametersToDevice();
  });
}

int cinch_model_save(const char *path) {
  return guarded([&] {
    needPointer(path, "path");
    needParameters();
    if (!shown) // else they are here, maybe changed
      parametersFromDevice();
    needFiniteValues();
    needNormals();
    if (!writeTensorFile(path, parameterTensors(), TensorFileInfo()))
      fail(kResources, "cannot write %s: %s", path, strerror(errno));
  });
}

int cinch_model_step(const void *const *fields, double *loss) {
  return guarded([&] {
    beginCall("train", cinch_train_step != nullptr, fields, run.meta.batch);
    if (!run.horizon)
      fail(kUsage, "the program's length is in epochs, and a library does not know how much data there is: "
                   "cinch_model_set(\"steps=..\") says how long it is");
    run.mode = Run::Training;
    setWord(kStep, run.step);
    beginWork();
    callWorkers(EntryCall::Train, 0);
    endWork();
    if (loss)
      *loss = run.loss;
    if (run.gateFailed)
      fail(kNumeric, "step %lld: the loss is %g and the norm of the gradient %g; the parameters are as they were",
           (long long)run.step + 1, run.loss, run.norm);
    ++run.step;
  });
}

int cinch_model_evaluate(const void *const *fields, int64_t examples, double *metrics) {
  return guarded([&] {
    needPointer(metrics, "place of the metrics");
    const Entry &entry = beginCall("eval", cinch_eval != nullptr, fields, examples);
    run.mode = Run::Reading;
    setWord(kStep, 0);
    beginWork();
    callWorkers(EntryCall::Eval, (run.examples + entry.microbatch - 1) / entry.microbatch);
    endWork();
    readMetrics(entry, metrics);
  });
}

int cinch_model_predict(const void *const *fields, int64_t examples, void *const *results) {
  return guarded([&] {
    needPointer(results, "list of results");
    const Entry &entry = beginCall("predict", cinch_predict != nullptr, fields, examples);
    run.mode = Run::Reading;
    run.givenResults = results;
    setWord(kStep, 0);
    beginWork();
    callWorkers(EntryCall::Predict, (examples + entry.microbatch - 1) / entry.microbatch);
    endWork();
  });
}

int64_t cinch_model_batch(void) {
  if (!__atomic_load_n(&described, __ATOMIC_ACQUIRE) && guarded([] { readDescription(); }) != 0)
    return 0;
  return run.meta.batch;
}

int64_t cinch_model_steps_done(void) { return run.step; }

int cinch_model_value(int kind, int64_t index, cinch_value *value) {
  return guarded([&] {
    needPointer(value, "place of the value");
    readDescription();
    if (kind == CINCH_PARAMETER) {
      needMemory();
      const TensorList &tensors = parameterTensors();
      if (index < 0 || index >= tensors.count)
        fail(kUsage, "there are %lld parameters", (long long)tensors.count);
      const Tensor &tensor = tensors.items[index];
      show(tensor, *value);
    } else if (kind == CINCH_FIELD) {
      if (index < 0 || index >= trained().fields.size)
        fail(kUsage, "there are %lld fields", (long long)trained().fields.size);
      const FieldSpec &field = trained().fields[index];
      fill(*value, field.name, typeOf(field.elem), field.shape, nullptr);
    } else if (kind == CINCH_METRIC || kind == CINCH_RESULT) {
      const Entry *entry = run.meta.entry(kind == CINCH_METRIC ? "eval" : "predict");
      const List<EntryValue> none, &list = !entry ? none : kind == CINCH_METRIC ? entry->scalars : entry->results;
      if (index < 0 || index >= list.size)
        fail(kUsage, "there are %lld of them", (long long)list.size);
      fill(*value, list[index].name, nameOf(list[index].elem), list[index].shape, nullptr);
    } else {
      fail(kUsage, "there is no kind %d", kind);
    }
  });
}

int cinch_model_parameter(const char *path, cinch_value *value) {
  return guarded([&] {
    needPointer(path, "path");
    needPointer(value, "place of the value");
    needMemory();
    const TensorList &tensors = parameterTensors();
    for (int64_t i = 0; i < tensors.count; ++i)
      if (strcmp(tensors.items[i].name, path) == 0) {
        show(tensors.items[i], *value);
        return;
      }
    fail(kUsage, "no parameter is called `%s`", path);
  });
}
