// CheckingReport.cpp: the message about a failed gate: what made the first bad number, where, on which example.
#include "runtime/Checking.h"
#include "runtime/Checkpoint.h"
#include "runtime/Device.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/Run.h"
#include "runtime/Times.h"
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

static Launch launch; // that is named

// The parts of it that lie in this process.
static bool isFinite(const Parameter &parameter) {
  LaunchBuffer values;
  values.count = parameter.partCount();
  values.elem = parameter.elem;
  for (int64_t part = 0; part < parameter.parts; ++part) {
    int64_t place = part == 0 ? parameter.offset : parameter.copies[part - 1];
    if (!isHere(place))
      continue;
    for (int64_t index : badPlaces(arenaAt(place), values).index)
      if (index >= 0)
        return false;
  }
  return true;
}

int64_t firstBadParameter(bool all) {
  for (int64_t i = 0; i < run.meta.parameters.size; ++i) {
    const Parameter &parameter = run.meta.parameters[i];
    const bool mayBeBad = parameter.frozen || parameter.state || parameter.startsInfinite;
    if ((all || !mayBeBad) && !isFinite(parameter))
      return i;
  }
  return -1;
}

void lookAtFirstParameters() {
  for (int64_t i = 0; i < run.meta.parameters.size; ++i)
    run.meta.parameters[i].startsInfinite = !isFinite(run.meta.parameters[i]);
}

static const char *badWord(double number) { return number != number ? "nan" : number > 0 ? "inf" : "-inf"; }

static void addNumber(Text &text, double number, bool single) {
  char buffer[40];
  text.add("%s", __builtin_isfinite(number) ? exact(buffer, number, single) : badWord(number));
}

// "log(0) = -inf".
static void addEquation(Text &text, const BadNode &node) {
  using kernels::LoopOp;
  static const char *const reductions[] = {"a sum", "a product", "a maximum", "a minimum", "any", "all"};
  struct Word {
    LoopOp op;
    const char *word;
  };
  static const Word words[] = {{LoopOp::Add, " + "},       {LoopOp::Sub, " - "},         {LoopOp::Mul, " * "},
                               {LoopOp::Div, " / "},       {LoopOp::Pow, " ^ "},         {LoopOp::Neg, "-"},
                               {LoopOp::Exp, "exp"},       {LoopOp::Expm1, "expm1"},     {LoopOp::Log, "log"},
                               {LoopOp::Log1p, "log1p"},   {LoopOp::Sqrt, "sqrt"},       {LoopOp::Sin, "sin"},
                               {LoopOp::Cos, "cos"},       {LoopOp::Tanh, "tanh"},       {LoopOp::Erf, "erf"},
                               {LoopOp::Sigmoid, "sigmoid"}, {LoopOp::Softplus, "softplus"}, {LoopOp::Abs, "abs"},
                               {LoopOp::Floor, "floor"},   {LoopOp::Max, "max"},         {LoopOp::Min, "min"},
                               {LoopOp::Cast, "f32"}};
  bool single = node.elem == kernels::Elem::F32;
  if (node.gathered) {
    text.add("%s of %s numbers", reductions[int(node.reduce)], node.ofInfinite ? "such" : "finite");
  } else {
    const char *word = "";
    for (const Word &known : words)
      if (known.op == node.op)
        word = known.word;
    bool infix = word[0] == ' ';
    if (!infix)
      text.add("%s(", word);
    for (int i = 0; i < node.argCount; ++i) {
      text.add("%s", i == 0 ? "" : infix ? word : ", ");
      addNumber(text, node.args[i], single);
    }
    if (!infix)
      text.add(")");
  }
  text.add(" = ");
  addNumber(text, node.result, single);
}

// Which example, and which element of the tensors of an example.
static void addPlace(Text &text, const Cause &cause) {
  const BadNode &node = cause.node;
  if (node.node < 0) {
    int64_t each = launch.examples ? launch.outputs[cause.output].count / launch.examples : 0;
    if (each)
      text.add(", example %lld of the batch", (long long)(cause.firstExample + cause.index / each));
    return;
  }
  text.add(", example %lld of the batch", (long long)(cause.firstExample + node.example));
  bool any = false;
  for (int i = 0; i < node.dims; ++i)
    if (node.at[i] >= 0) {
      text.add("%s%lld", any ? ", " : ", element [", (long long)(node.at[i] + (i == node.positionDim ? cause.firstPosition : 0)));
      any = true;
    }
  if (any)
    text.add("]");
}

static bool isFirstBad(const Cause &cause) {
  for (int64_t worker = 0; worker < programWorkers(); ++worker)
    if (&cause == &replayOf(worker).firstBad)
      return true;
  return false;
}

static void nameCause(const Cause &cause) {
  Text text;
  LaunchOperation operation;
  readLaunch(run.meta, cinch_meta, cause.launch, launch);
  bool described = launch.operations >= 0;
  int64_t number = 0;
  if (cause.node.node >= 0) {
    static List<int64_t> places;
    readNodeOperations(run.meta, cinch_meta, launch, places);
    number = cause.node.node < places.size ? places[cause.node.node] : -1;
  }
  described = described && !isFirstBad(cause) && readOperation(run.meta, cinch_meta, launch, number, operation);
  if (!described) {
    warn("%s:%lld: %s (kernel %s): value %lld of output %d is %s, the first number that is not finite; micro-batch from "
         "example %lld of the batch",
         launch.file[0] ? launch.file : run.meta.source, (long long)launch.line, launch.text, launch.kernel,
         (long long)cause.index, cause.output, badWord(cause.number), (long long)cause.firstExample);
    return;
  }
  text.add("%s:%lld: %s made %s: ", operation.file[0] ? operation.file : run.meta.source, (long long)operation.line, operation.name,
           cause.node.ofInfinite ? "a nan of infinite numbers that no operation made, but a constant, a parameter or data" : "the first number that is not finite");
  if (cause.node.node >= 0)
    addEquation(text, cause.node);
  else
    text.add("a value is %s, and what it read is finite", badWord(cause.number));
  if (operation.ofExamples)
    addPlace(text, cause);
  text.add(" (in kernel %s, %s)", launch.kernel, launch.text);
  warn("%s", text.data);
}

// Which of two comes first, in the order (micro-batch, program).
static bool isBefore(const Cause &a, int64_t workerOfA, const Cause &b, int64_t workerOfB) {
  const Entry *entry = run.meta.entry("train");
  int64_t microbatch = entry ? entry->microbatch : 1;
  int64_t ofA = a.firstExample / microbatch, ofB = b.firstExample / microbatch;
  if (ofA != ofB)
    return ofA < ofB;
  return a.clock != b.clock ? a.clock < b.clock : workerOfA < workerOfB;
}

// The causes that `reached` names of each worker, and of those that sent them messages: the first of them.
static const Cause *firstReached(Causes *reached) {
  const int64_t count = programWorkers();
  for (bool more = true; more;) {
    more = false;
    for (int64_t worker = 0; worker < count; ++worker)
      for (int64_t i = 0; i < replayOf(worker).causes.size; ++i) {
        const Cause &cause = replayOf(worker).causes[i];
        if (cause.from >= 0 && (reached[worker] >> i & 1) && (cause.passed & ~reached[cause.from])) {
          reached[cause.from] |= cause.passed;
          more = true;
        }
      }
  }
  const Cause *first = nullptr;
  int64_t its = 0;
  for (int64_t worker = 0; worker < count; ++worker)
    for (int64_t i = 0; i < replayOf(worker).causes.size; ++i) {
      const Cause &cause = replayOf(worker).causes[i];
      if (cause.from < 0 && (reached[worker] >> i & 1) && (!first || (count > 1 && isBefore(cause, worker, *first, its)))) {
        first = &cause;
        its = worker;
      }
    }
  return first;
}

// Of the causes that reached the loss or, if that is finite, the norm of the gradients: the one that came first.
static const Cause *firstCause() {
  const Meta &meta = run.meta;
  const int64_t count = programWorkers();
  int64_t at = __builtin_isfinite(run.loss) ? meta.normAt : meta.lossAt;
  Causes *reached = allocateArray<Causes>(count);
  reached[0] = at < 0 ? 0 : causesAt(replayOf(0), at - workers[0].at);
  if (const Cause *cause = firstReached(reached))
    return cause;
  for (int64_t i = 0; i < count; ++i)
    reached[i] = ~Causes(0);
  if (const Cause *cause = firstReached(reached))
    return cause;
  const Cause *first = nullptr;
  int64_t its = 0;
  for (int64_t worker = 0; worker < count; ++worker) {
    const Cause &bad = replayOf(worker).firstBad;
    if (bad.launch >= 0 && (!first || isBefore(bad, worker, *first, its))) {
      first = &bad;
      its = worker;
    }
  }
  return first;
}

// Where steps overlap: messages of the next one are on their way.
static void forgetNextStep() {
  if (run.ahead) {
    run.training = false;
    setWord(kStep, run.step + 1);
    setWord(kFresh, 0);
    setWord(kFurther, 0);
    callWorkers(EntryCall::Train, 0);
    run.training = true;
    setWord(kStep, run.step);
  }
  setWord(kFresh, 1);
  setWord(kFurther, 0);
}

// Of all workers.
static int64_t firstBadAnywhere(bool all) {
  stateFromDevice();
  const int64_t bad = firstBadParameter(all), elsewhere = peers ? peers->firstBadParameter(all) : -1;
  return elsewhere >= 0 && (bad < 0 || elsewhere < bad) ? elsewhere : bad;
}

void needFiniteParameters() {
  const int64_t bad = firstBadAnywhere(false);
  if (bad < 0)
    return;
  Text earlier;
  if (lastSavedStep() >= 0)
    earlier.add("; the checkpoint of step %lld is intact", (long long)lastSavedStep());
  fail(kNumeric,
       "step %lld: `%s` is not finite any more: an update overflowed or divided by zero (is the learning rate too high, or an `eps` 0?); it was not "
       "saved%s",
       (long long)run.step, run.meta.parameters[bad].path, earlier.data);
}

void reportFailedGate() {
  const Meta &meta = run.meta;
  char loss[40], norm[40];
  bool single = meta.gateElem == Elem::F32;
  exact(loss, run.loss, single);
  exact(norm, run.norm, single);
  forgetNextStep();
  for (int64_t i = 0; run.late && i < workerCount; ++i)
    device->restart(workers[i], run.step); // what is under way changes nothing
  run.restarted = run.late;
  setWord(kStep, run.step);
  const int64_t bad = firstBadAnywhere(run.step == 0);

  Text text;
  text.add("step %lld: the loss is %s", (long long)run.step + 1, loss); // as logs count: the first step is 1
  if (meta.normAt >= 0)
    text.add(" and the gradient norm is %s", norm);
  text.add("; the update was not made");
  warn("%s", text.data);
  // The replays take longer than two steps. What can be said and saved without them, does not wait for them.
  Path path;
  const bool saved = bad < 0 && run.step > 0 && saveCheckpoint(-1, false, &path);
  reportTimes(); // replays are no part of them
  replayStep(1);
  replayStep(2);
  if (peers)
    peers->fetchReplays();
  if (const Cause *cause = firstCause())
    nameCause(*cause);
  else
    warn("every kernel's outputs were finite when the step was replayed%s",
         meta.launchesAt < 0 ? " (none is described)" : "");
  if (bad >= 0 && run.step == 0) // no update was made yet
    fail(kNumeric, "`%s` was not finite before the first step: the file that parameters were read from has such numbers, or larger ones than f32 can hold",
         meta.parameters[bad].path);
  if (bad >= 0)
    fail(kNumeric,
         "`%s` was not finite before this step any more: an earlier update overflowed or divided by zero (is the learning rate too "
         "high, or an `eps` 0?); no checkpoint was written",
         meta.parameters[bad].path);
  if (saved)
    fail(kNumeric, "stopped behind step %lld; the parameters are intact, saved in %s", (long long)run.step, path.text);
  if (run.step > 0)
    fail(kNumeric, "stopped behind step %lld; the parameters are intact, but could not be saved", (long long)run.step);
  fail(kNumeric, "stopped before a step was made; the parameters are intact");
}

} // namespace cinch::rt
