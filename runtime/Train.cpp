// Train.cpp: the command `train`: where to start, the step loop, and what is due after a step.
#include "runtime/Checking.h"
#include "runtime/Checkpoint.h"
#include "runtime/Device.h"
#include "runtime/InitFile.h"
#include "runtime/Initialize.h"
#include "runtime/Logs.h"
#include "runtime/LossMeans.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/Progress.h"
#include "runtime/Run.h"
#include "runtime/Times.h"
#include "runtime/Values.h"
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

namespace {

double *evaluated;  // values of the last evaluation, all rules in turn
bool *evaluatedNow; // one a rule: at this very step
int *firstColumn;   // one a data set: where its metrics stand in the logs, 0: nowhere
unsigned everySink; // of any rule
int64_t plainEvery; // without a rule for logs, a line every so many steps

// An epoch ends with the last step that has none of the next one's examples, as the number of steps of `epochs` is counted.
bool isDue(int64_t steps, int64_t step) {
  if (steps > 0)
    return step % steps == 0;
  int64_t examples = run.datasets[run.meta.trainDataset].examples, batch = run.meta.batch;
  return ((step + 1) * batch - 1) / examples > (step * batch - 1) / examples;
}
bool isDue(int64_t steps) { return isDue(steps, run.step); }

// Where steps overlap: whether this one may go on with the next. An evaluation takes the bytes in which a step that was begun waits.
bool goesFurther() {
  const int64_t behind = run.step + 1;
  bool further = run.meta.overlaps && behind < run.total;
  for (const Every &every : run.meta.every)
    if (every.kind == Every::Eval || (every.kind == Every::Checkpoint && every.best[0]))
      further = further && !isDue(every.steps, behind);
  return further;
}

// Whether somebody looks at parameters after so many steps: then no further step may have changed them.
bool looksAtParameters(int64_t steps) {
  for (const Every &every : run.meta.every)
    if (every.kind != Every::Log && isDue(every.steps, steps))
      return true;
  return steps == run.total;
}

// Where the device has the gate: whether a step may begin after `asked` steps, the last of which is not known to be good.
bool goesAhead(int64_t asked) {
  return run.late && !timing && asked - run.step < 2 && asked < run.total && !looksAtParameters(asked) && !stopRequested();
}

// Begins step number `step`; without a device's gate it is done then.
void beginStep(int64_t step) {
  run.mode = Run::Training;
  run.source = &run.datasets[run.meta.trainDataset];
  setWord(kStep, step);
  setWord(kFirstExample, 0);
  const bool further = goesFurther();
  setWord(kFresh, !run.ahead);
  setWord(kFurther, further);
  callWorkers(EntryCall::Train, 0);
  run.ahead = further;
}

// What step number run.step left, as soon as it is known.
void settleStep() {
  if (!run.late) {
    for (int64_t i = 0; device && timing && i < workerCount; ++i)
      device->finish(workers[i]);
    if (!run.gateFailed)
      run.learningRate = learningRate();
    return;
  }
  for (int64_t i = 0; i < workerCount; ++i) {
    StepResult result;
    device->settle(workers[i], result);
    if (timing)
      device->finish(workers[i]);
    if (i > 0 && result.gateFailed != run.gateFailed)
      failInternal("the workers 0 and %lld differ in whether the step's loss and norm are finite", (long long)i);
    run.gateFailed = result.gateFailed;
    if (result.learningRate == result.learningRate)
      run.learningRate = result.learningRate;
    if (i == 0)
      run.loss = result.loss, run.norm = result.norm;
  }
}

// The device counts steps from here.
void beginLateSteps() {
  run.late = device && !run.meta.overlaps && (run.options.transport == Transport::Threads || device->connected());
  run.learningRate = run.meta.learningRateAt < 0 ? __builtin_nan("") : run.learningRate;
  for (int64_t i = 0; run.late && i < workerCount; ++i)
    device->restart(workers[i], run.step);
  run.restarted = run.late;
}

unsigned sinksOf(const Every &every) {
  const Options &options = run.options;
  if (options.logGiven)
    return (options.csv ? kCsv : 0) | (options.jsonl ? kJsonl : 0) | (options.tensorboard ? kTensorBoard : 0) |
           (options.html ? kHtml : 0);
  return (every.csv ? kCsv : 0) | (every.jsonl ? kJsonl : 0) | (every.tensorboard ? kTensorBoard : 0) |
         (every.html ? kHtml : 0);
}

// Lengths: `steps` of the file, or epochs of whole batches.
void findLength() {
  run.horizon = programSteps(run.datasets[run.meta.trainDataset].examples);
  run.total = run.options.steps >= 0 && run.options.steps < run.horizon ? run.options.steps : run.horizon;
  setWord(kHorizon, run.horizon);
}

void findStart() {
  const char *name = "";
  keepDataFiles();
  if (run.options.resume) {
    if (resumeNewest(name)) {
      if (!run.options.quiet)
        say("resumed at step %lld from %s", (long long)run.step, name);
      if (programSteps(run.datasets[run.meta.trainDataset].examples) != run.horizon)
        findLength(); // as long as the checkpoint's run
      if (run.options.init)
        warn("--init %s is not used: the run goes on with the parameters of the checkpoint", run.options.init);
      storeValues();
      return;
    }
    sayNoCheckpoint();
  }
  initialize(run.meta);
  if (peers)
    peers->initialize();
  if (const char *file = loadInitFile())
    keepInitFile(file);
  setEarlierRunAside(); // behind the reading: a file that is refused moves nothing
}

void findState() {
  findStart();
  if (run.options.steps > run.horizon)
    warn("--steps %lld: the run ends after %lld steps", (long long)run.options.steps, (long long)run.horizon);
  lookAtFirstParameters();
  stateToDevice();
}

// The rules that have a line at this step, as numbers of their means: those that are due, and all at the end.
struct Lines {
  bool *now = nullptr, any = false;
  int64_t plain() const { return run.meta.every.size; }
  unsigned sinks(int64_t rule) const { return sinksOf(rule == plain() ? Every() : run.meta.every[rule]); }
  bool isLog(int64_t rule) const { return rule == plain() ? plainEvery > 0 : run.meta.every[rule].kind == Every::Log; }
  // A line that is there because --steps stops here ends no mean: that goes on in the resumed run.
  bool endsMean(int64_t rule) const { return now[rule] && (rule == plain() || isDue(run.meta.every[rule].steps)); }

  void find() {
    any = false;
    for (int64_t rule = 0; rule <= plain(); ++rule) {
      const bool last = run.step == run.total;
      now[rule] = isLog(rule) && (last || (rule == plain() ? run.step % plainEvery == 0 || run.step == 1 : isDue(run.meta.every[rule].steps)));
      any |= now[rule];
    }
  }

  // The mean of a row in one of these sinks: of the rules that write there now or, if there are none, that ever do, the one whose last line is the
  // latest.
  double mean(unsigned into) const {
    int64_t found = -1;
    for (int64_t rule = 0; rule <= plain(); ++rule) {
      if (!isLog(rule) || (into && !(sinks(rule) & into)))
        continue;
      const bool nearer = found < 0 || stepsInMean(rule) < stepsInMean(found);
      if (found < 0 || now[rule] > now[found] || (now[rule] == now[found] && nearer))
        found = rule;
    }
    return found < 0 ? run.loss : meanOf(found);
  }
};
Lines lines;

void prepareColumns() {
  const Meta &meta = run.meta;
  const Entry *eval = meta.entry("eval");
  evaluatedNow = allocateArray<bool>(meta.every.size);
  lines.now = allocateArray<bool>(meta.every.size + 1);
  firstColumn = allocateArray<int>(meta.datasets.size);
  evaluated = allocateArray<double>(meta.every.size * evalValueCount());
  bool anyLog = false;
  for (const Every &every : meta.every) {
    if (every.kind == Every::Log) {
      anyLog = true;
      everySink |= sinksOf(every);
    }
    if (every.kind != Every::Eval || !eval || every.dataset < 0 || every.dataset >= meta.datasets.size ||
        firstColumn[every.dataset])
      continue;
    for (const EntryValue &scalar : eval->scalars) {
      if (scalar.shape.count() != 1)
        continue;
      Text column;
      column.add("%s.%s", meta.datasets[every.dataset].name, scalar.name);
      int number = addColumn(copyText(column.data, column.size));
      if (!firstColumn[every.dataset])
        firstColumn[every.dataset] = number;
    }
  }
  if (!anyLog)
    everySink |= sinksOf(Every());
  plainEvery = anyLog ? 0 : run.total > 40 ? run.total / 20 : 1;
}

// Rules that evaluate as many batches of one data set are served by one evaluation, that of the first of them.
int64_t firstAlike(int64_t rule) {
  const Every &wanted = run.meta.every[rule];
  for (int64_t i = 0; i < rule; ++i) {
    const Every &every = run.meta.every[i];
    if (every.kind == Every::Eval && every.dataset == wanted.dataset && every.batches == wanted.batches)
      return i;
  }
  return rule;
}

double *valuesOf(int64_t rule) { return evaluated + firstAlike(rule) * evalValueCount(); }

// Whether another rule evaluates more or fewer batches of the same data set.
bool hasOthers(const Every &rule) {
  bool any = false;
  for (const Every &every : run.meta.every)
    any |= every.kind == Every::Eval && every.dataset == rule.dataset && every.batches != rule.batches;
  return any;
}

// Of two such rules, the one with more batches says what stands in the row of a step.
bool isCoarser(const Every &rule) {
  for (int64_t i = 0; i < run.meta.every.size; ++i) {
    const Every &every = run.meta.every[i];
    if (evaluatedNow[i] && every.dataset == rule.dataset && rule.batches > 0 && (every.batches <= 0 || every.batches > rule.batches))
      return true;
  }
  return false;
}

void evaluateNow(int64_t rule) {
  rule = firstAlike(rule);
  if (evaluatedNow[rule])
    return;
  const Every &every = run.meta.every[rule];
  evaluate(every.dataset, every.batches, valuesOf(rule));
  evaluatedNow[rule] = true;
  const Entry &eval = *run.meta.entry("eval");
  Text line;
  line.add("step %lld/%lld  %s", (long long)run.step, (long long)run.total, run.meta.datasets[every.dataset].name);
  if (every.batches > 0 && hasOthers(every))
    line.add(", %lld batch%s", (long long)every.batches, every.batches == 1 ? "" : "es");
  line.add(":");
  int column = isCoarser(every) ? 0 : firstColumn[every.dataset];
  int64_t at = 0;
  for (const EntryValue &scalar : eval.scalars) {
    char number[40];
    double value = valuesOf(rule)[at];
    at += scalar.shape.count();
    if (scalar.shape.count() != 1)
      continue;
    line.add("  %s %s", scalar.name, exact(number, value, scalar.elem == Elem::F32));
    if (column)
      setColumn(column++, value);
  }
  if (!run.options.quiet)
    say("%s", line.data);
}

// A metric of the last evaluation of a rule; null: no metric is called so.
const double *metricOf(int64_t rule, const char *name) {
  int64_t at = 0;
  for (const EntryValue &scalar : run.meta.entry("eval")->scalars) {
    if (strcmp(scalar.name, name) == 0)
      return valuesOf(rule) + at;
    at += scalar.shape.count();
  }
  return nullptr;
}

// What `best` of a checkpoint goes by: the metric as the first rule that evaluates finds it, now; NaN if there is none.
double bestValue(const Every &rule) {
  for (int64_t i = 0; i < run.meta.every.size; ++i) {
    if (run.meta.every[i].kind != Every::Eval || !run.meta.entry("eval"))
      continue;
    evaluateNow(i);
    if (const double *value = metricOf(i, rule.best))
      return *value;
  }
  return strcmp(rule.best, "loss") == 0 ? run.loss : __builtin_nan("");
}

// For `patience`: behind all evaluations of this step, so that a run that is stopped in one of them counts them once.
void countEvaluations() {
  for (int64_t i = 0; i < run.meta.every.size; ++i) {
    const Every &every = run.meta.every[i];
    if (every.kind == Every::Eval && every.patience && run.meta.entry("eval") && isDue(every.steps))
      if (const double *value = metricOf(i, every.best))
        countEvaluation(int(i), *value);
  }
}

// Whether a rule's patience is at its end; says so.
bool stopsEarly() {
  int rule = ruleOutOfPatience();
  if (rule < 0 || run.step >= run.total)
    return false;
  const Every &every = run.meta.every[rule];
  say("step %lld: the last %lld evaluations of %s brought no better %s: training stops early", (long long)run.step,
      (long long)every.patience, run.meta.datasets[every.dataset].name, every.best);
  return true;
}

void fillLine() {
  const double speed = speedSinceMark();
  setColumn(kLoss, run.loss);
  if (run.learningRate == run.learningRate)
    setColumn(kLearningRate, run.learningRate);
  if (run.meta.normAt >= 0)
    setColumn(kNorm, run.norm);
  setColumn(kSpeed, speed);
  setColumn(kSeconds, secondsSoFar());
  if (!onTerminal())
    printLine(lines.mean(0), speed);
}

void writeRows(unsigned sinks) {
  static const unsigned files[] = {kCsv | kHtml, kJsonl, kTensorBoard};
  for (unsigned into : files) {
    if (!(sinks & into))
      continue;
    if (lines.any)
      setColumn(kMeanLoss, lines.mean(into));
    writeRow(run.step, sinks & into, !run.meta.f64);
  }
  endRow();
}

// Evaluation first, then the row of the logs, then the checkpoint: a resumed run finds what was written before it.
void doWhatIsDue() {
  const Meta &meta = run.meta;
  unsigned sinks = 0;
  run.pending = true;
  memset(evaluatedNow, 0, size_t(meta.every.size));
  lines.find();
  for (int64_t rule = 0; rule <= lines.plain(); ++rule)
    sinks |= lines.now[rule] ? lines.sinks(rule) : 0;
  if (lines.any)
    fillLine();
  for (int64_t i = 0; i < meta.every.size; ++i)
    if (meta.every[i].kind == Every::Eval && meta.entry("eval") && isDue(meta.every[i].steps))
      evaluateNow(i);
  for (const Every &every : meta.every)
    if (every.kind == Every::Checkpoint && every.best[0] && isDue(every.steps))
      (void)bestValue(every); // before the row: it may evaluate
  for (int64_t i = 0; i < meta.every.size; ++i)
    if (evaluatedNow[i]) // an evaluation stands in the row of its step
      sinks |= everySink;
  countEvaluations();
  if (sinks)
    writeRows(sinks);
  for (int64_t rule = 0; rule <= lines.plain(); ++rule)
    if (lines.endsMean(rule)) // behind the evaluations: a run that is stopped in one of them comes here again
      beginMean(rule);
  run.pending = false;
  bool saves = false;
  for (const Every &every : meta.every)
    saves |= every.kind == Every::Checkpoint && isDue(every.steps);
  if (saves)
    needFiniteParameters();
  for (int64_t i = 0; i < meta.every.size; ++i)
    if (meta.every[i].kind == Every::Checkpoint && isDue(meta.every[i].steps))
      saveWithBest(int(i), meta.every[i].best[0] ? bestValue(meta.every[i]) : __builtin_nan(""));
}

void sayStart() {
  const Meta &meta = run.meta;
  if (int64_t examples = run.datasets[meta.trainDataset].examples; examples < meta.batch)
    warn("data `%s` has %lld example%s, fewer than the batch of %lld: a batch holds some of them more than once",
         meta.datasets[meta.trainDataset].name, (long long)examples, examples == 1 ? "" : "s", (long long)meta.batch);
  for (const RunValue &value : meta.values)
    if (strcmp(value.key, "warmup") == 0 && value.now > double(run.horizon) && run.horizon > 0)
      warn("the schedule warms up for %.0f steps, but the run has %lld: lr never gets to its value; --set warmup=N makes it shorter", value.now,
           (long long)run.horizon);
  char arena[40];
  Text who;
  if (programWorkers() > 1)
    who.add("%lld workers with ", (long long)programWorkers());
  if (device)
    device->describe(who), who.add(", fed by ");
  who.add("%lld thread%s%s", (long long)run.options.threads, run.options.threads == 1 ? "" : "s", programWorkers() > 1 ? " each" : "");
  if (!run.options.quiet)
    say("%s: %lld parameters, batch %lld, %lld examples, steps %lld to %lld, %s, arena %s", meta.program,
        (long long)meta.parameterCount(), (long long)meta.batch, (long long)run.datasets[meta.trainDataset].examples,
        (long long)run.step, (long long)run.total, who.data, humanBytes(arena, meta.arenaBytes));
  if (strcmp(meta.ownSteps, "hogwild") == 0)
    warn("combine hogwild: %lld replicas update the same parameters without locks, so that two runs may differ", (long long)meta.replicas);
  if ((run.options.sumsByMpi || run.options.sumsByNccl) && !run.options.quiet)
    say("sums of the replicas are added by %s, in an order of its choice: that two runs leave the same bits is its promise, not ours",
        run.options.sumsByNccl ? "NCCL" : "the MPI library");
  if (run.transportBytes && !run.options.quiet)
    say("the MPI library takes %lld bytes (%s) of this process, %s the budget; every link has carried its largest message",
        (long long)run.transportBytes, humanBytes(arena, run.transportBytes), meta.transportReserve ? "inside" : "beside");
}

// The budget is a worker's: a process of all workers may hold that of each.
void sayPeak(const char *whose, int64_t peak, int64_t arena, int64_t workersInIt, int64_t transportBytes) {
  const Meta &meta = run.meta;
  char human[40], budget[40];
  const int64_t allowed = meta.budget * workersInIt;
  Text line;
  line.add("%speak memory %lld bytes (%s), arena %lld, allowance %lld", whose, (long long)peak, humanBytes(human, peak),
           (long long)arena, (long long)(meta.allowance * workersInIt));
  if (allowed)
    line.add(", budget %lld (%s)", (long long)allowed, humanBytes(budget, allowed));
  if (transportBytes)
    line.add(", %s %lld of the MPI library", meta.transportReserve ? "among it" : "beside it", (long long)transportBytes);
  say("%s", line.data);
  if (allowed && peak - (meta.transportReserve ? 0 : transportBytes) > allowed)
    warn("the peak of memory was above the budget");
}

void sayEnd() {
  if (device)
    return device->describeMemory();
  sayPeak("", peakMemory(), peers ? workers[0].bytes : run.meta.arenaBytes, peers ? 1 : programWorkers(), run.transportBytes);
  for (int64_t i = 1; peers && i < programWorkers(); ++i) {
    Text whose;
    whose.add("worker %lld: ", (long long)i);
    int64_t transportBytes = 0, peak = peers->peakMemory(i, transportBytes);
    sayPeak(whose.data, peak, run.meta.workers[i].bytes, 1, transportBytes);
  }
}

} // namespace

void train() {
  if (!cinch_train_step)
    failInternal("the program has no training step");
  prepareOut();
  findNormals(openData(run.meta.trainDataset, nullptr));
  if (peers)
    peers->findNormals();
  for (const Every &every : run.meta.every)
    if (every.kind == Every::Eval)
      openData(every.dataset, nullptr);
  findLength();
  prepareArena(run.total > 0);
  prepareCheckpoints();
  markTrainingData();
  prepareMeans();
  findState();
  prepareColumns();
  openLogs(everySink, run.pending ? run.step - 1 : run.step);
  answerSignals();
  sayStart();
  beginProgress();
  run.training = true;
  beginLateSteps();
  timing = run.options.kernelTimes || run.options.profile;
  bool worked = false;
  if (run.step > run.total)
    say("step %lld of %lld is reached already: there is nothing to do", (long long)run.step, (long long)run.total);
  if (run.pending && run.step <= run.total)
    doWhatIsDue();
  int64_t asked = run.step; // steps that were begun
  while (run.step < run.total && (asked > run.step || !stopsEarly())) {
    int64_t begin = timing ? nanoseconds() : 0;
    if (asked == run.step)
      beginStep(asked++);
    if (goesAhead(asked))
      beginStep(asked++);
    settleStep();
    if (timing)
      addStepTime(begin, nanoseconds() - begin);
    if (run.gateFailed)
      reportFailedGate();
    ++run.step;
    addLoss(run.loss);
    worked = true;
    doWhatIsDue();
    drawBar();
    if (stopRequested() && asked == run.step)
      saveAndLeave();
  }
  wipeBar();
  closeLogs();
  run.training = false;
  reportTimes();
  if (worked && lastSavedStep() != run.step)
    needFiniteParameters();
  // Going on later (another --steps) needs the optimizer's state, and a resumed run that is over must see that it is.
  bool saved = !worked || lastSavedStep() == run.step || saveCheckpoint(-1, false, nullptr);
  if (run.step <= run.total)
    writeFinal();
  sayEnd();
  if (!saved)
    fail(kResources, "the checkpoint of the last step was not written, as said above: make room, and train %s",
         lastSavedStep() < 0 ? "anew: there is no earlier one" : "on from an earlier one with --resume");
}

} // namespace cinch::rt
