// Checking.cpp: the replays after a failed gate. The step is the same to the bit, so the values that spoiled it appear again, as
// often as it is run.
//
// The first replay notes which launches store numbers that are not finite. A launch may write where it reads, so only the second
// one can say why: before such a launch runs, its bad elements are computed op by op (KernelBody.h). A bad number comes from bad
// numbers that were read, from an op that made it of good ones (a *cause*, a bit), or from nothing to blame: an infinity that is
// written in the program, as in a mask. The causes of what a launch stores are kept, so that in the end those of the loss and of
// the norm are known: what a later op ignored or masked is not among them.
#include "runtime/Checkpoint.h"
#include "runtime/KernelBody.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

namespace {

// A bad number that a launch will store. Of an output, the first NaN and the first infinity of each sign are noted.
struct Suspect {
  int64_t call = 0; // number of the launch in the step, repetitions counted
  int output = 0;
  int64_t index = 0;
  double number = 0;
};
// Bytes of the arena that a bad launch wrote.
struct Spoiled {
  int64_t begin = 0, end = 0;
  Causes causes = 0;
};
struct Cause {
  int32_t launch = -1;
  BadNode node; // node.node < 0: the kernel is not described inside
  int output = 0;
  int64_t index = 0, firstExample = 0, firstPosition = 0;
  double number = 0;
};

constexpr int64_t kMostSuspects = 4096; // more are hardly ever of use: the first causes come first
constexpr int kMostCauses = 64;

List<Suspect> suspects;
List<Spoiled> spoiled;
List<Cause> causes;
Cause firstBad; // the first bad number that was stored, for the case that no cause is found
int64_t calls, nextSuspect;
Launch launch;
KernelBody body;

int64_t offsetOf(const LaunchBuffer &buffer, const int64_t *offsets) {
  return buffer.word >= 0 ? offsets[buffer.word] : buffer.offset;
}

struct BadPlaces {
  int64_t index[3] = {-1, -1, -1}; // of the first NaN, inf, -inf
  double number[3];
};

BadPlaces badPlaces(int64_t offset, const LaunchBuffer &buffer) {
  BadPlaces bad;
  if (buffer.elem != Elem::F32 && buffer.elem != Elem::F64)
    return bad;
  const char *at = run.context.arena + offset;
  for (int64_t i = 0; i < buffer.count; ++i) {
    double value = buffer.elem == Elem::F64 ? reinterpret_cast<const double *>(at)[i]
                                            : double(reinterpret_cast<const float *>(at)[i]);
    if (__builtin_isfinite(value))
      continue;
    int kind = value != value ? 0 : value > 0 ? 1 : 2;
    if (bad.index[kind] < 0) {
      bad.index[kind] = i;
      bad.number[kind] = value;
    }
  }
  return bad;
}

Causes causesAt(int64_t byte) {
  for (int64_t i = spoiled.size; i-- > 0;)
    if (spoiled[i].begin <= byte && byte < spoiled[i].end)
      return spoiled[i].causes;
  return 0;
}

Causes newCause(const Cause &cause) {
  if (causes.size == kMostCauses)
    return 0;
  causes.add() = cause;
  return Causes(1) << (causes.size - 1);
}

Cause causeOf(int32_t number, const Suspect &suspect) {
  Cause cause;
  cause.launch = number;
  cause.output = suspect.output;
  cause.index = suspect.index;
  cause.number = suspect.number;
  cause.firstExample = run.context.words[kFirstExample];
  cause.firstPosition = run.context.words[kFirstPosition];
  return cause;
}

Causes explainBody(int32_t number, const int64_t *offsets, int64_t begin, int64_t end) {
  static List<int64_t> numbers, places;
  if (!readBody(run.meta, cinch_meta, launch, numbers) || !readNodeOperations(run.meta, cinch_meta, launch, places) ||
      !body.read(numbers, places))
    return 0;
  body.begin(run.context.arena, offsets, run.context.words, causesAt);
  Causes found = 0;
  BadNode node;
  bool any = false;
  for (int64_t i = begin; i < end; ++i)
    any |= body.explain(launch.outputs[suspects[i].output].word, suspects[i].index, found, node);
  // Legitimate infinities may hide others.
  for (int64_t i = begin; i < end && !any; ++i)
    if (i == begin || suspects[i].output != suspects[i - 1].output)
      any = body.explainAny(launch.outputs[suspects[i].output].word, found, node);
  if (node.node >= 0) {
    Cause cause = causeOf(number, suspects[begin]);
    cause.node = node;
    found |= newCause(cause);
  }
  return found;
}

// A kernel that is one op: it is to blame, unless something bad came in.
Causes explainWhole(int32_t number, const int64_t *offsets, int64_t begin) {
  Causes found = 0;
  for (int i = 0; i < launch.inputCount; ++i) {
    const LaunchBuffer &input = launch.inputs[i];
    int64_t offset = offsetOf(input, offsets);
    BadPlaces bad = badPlaces(offset, input);
    for (int64_t index : bad.index)
      if (index >= 0)
        found |= causesAt(offset + index * bytesOf(input.elem));
  }
  return found ? found : newCause(causeOf(number, suspects[begin]));
}

} // namespace

void checkBefore(int32_t number, const int64_t *offsets) {
  if (run.context.checking != 2 || nextSuspect == suspects.size || suspects[nextSuspect].call != calls)
    return;
  int64_t begin = nextSuspect;
  while (nextSuspect < suspects.size && suspects[nextSuspect].call == calls)
    ++nextSuspect;
  if (!readLaunch(run.meta, cinch_meta, number, launch) || launch.operations < 0)
    return;
  Causes found = launch.body >= 0 ? explainBody(number, offsets, begin, nextSuspect) : explainWhole(number, offsets, begin);
  for (int64_t i = begin; i < nextSuspect; ++i) {
    const LaunchBuffer &output = launch.outputs[suspects[i].output];
    if (i > begin && suspects[i].output == suspects[i - 1].output)
      continue;
    Spoiled &bytes = spoiled.add();
    bytes.begin = offsetOf(output, offsets);
    bytes.end = bytes.begin + output.count * bytesOf(output.elem);
    bytes.causes = found;
  }
}

void checkAfter(int32_t number, const int64_t *offsets) {
  int64_t call = calls++;
  if (run.context.checking != 1 || suspects.size >= kMostSuspects || !readLaunch(run.meta, cinch_meta, number, launch))
    return;
  bool first = suspects.size == 0;
  for (int i = 0; i < launch.outputCount; ++i) {
    BadPlaces bad = badPlaces(offsetOf(launch.outputs[i], offsets), launch.outputs[i]);
    for (int kind = 0; kind < 3; ++kind) {
      if (bad.index[kind] < 0)
        continue;
      Suspect &suspect = suspects.add();
      suspect.call = call;
      suspect.output = i;
      suspect.index = bad.index[kind];
      suspect.number = bad.number[kind];
      if (first && (firstBad.launch < 0 || (firstBad.output == i && suspect.index < firstBad.index)))
        firstBad = causeOf(number, suspect);
    }
  }
}

// ---- The message --------------------------------------------------------------------------------------------------------
static bool parametersAreFinite(const char *&path) {
  for (const Parameter &parameter : run.meta.parameters) {
    LaunchBuffer all;
    all.count = parameter.shape.count();
    all.elem = parameter.elem;
    for (int64_t index : badPlaces(parameter.offset, all).index)
      if (index >= 0) {
        path = parameter.path;
        return false;
      }
  }
  return true;
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
    text.add("%s of finite numbers", reductions[int(node.reduce)]);
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
  described = described && &cause != &firstBad && readOperation(run.meta, cinch_meta, launch, number, operation);
  if (!described) {
    warn("%s:%lld: %s (kernel %s): value %lld of output %d is %s, the first number that is not finite; micro-batch from "
         "example %lld of the batch",
         launch.file[0] ? launch.file : run.meta.source, (long long)launch.line, launch.text, launch.kernel,
         (long long)cause.index, cause.output, badWord(cause.number), (long long)cause.firstExample);
    return;
  }
  text.add("%s:%lld: %s made the first number that is not finite: ", operation.file[0] ? operation.file : run.meta.source,
           (long long)operation.line, operation.name);
  if (cause.node.node >= 0)
    addEquation(text, cause.node);
  else
    text.add("a value is %s, and what it read is finite", badWord(cause.number));
  if (operation.ofExamples)
    addPlace(text, cause);
  text.add(" (in kernel %s, %s)", launch.kernel, launch.text);
  warn("%s", text.data);
}

// Of the causes that reached the loss or, if that is finite, the norm of the gradients: the one that came first.
static const Cause *firstCause() {
  const Meta &meta = run.meta;
  int64_t at = __builtin_isfinite(run.loss) ? meta.normAt : meta.lossAt;
  Causes reached = at < 0 ? 0 : causesAt(at);
  if (reached)
    return &causes[__builtin_ctzll(reached)];
  return causes.size ? &causes[0] : firstBad.launch >= 0 ? &firstBad : nullptr;
}

static void replay(int checking) {
  calls = nextSuspect = 0;
  run.context.checking = checking;
  cinch_train_step(&run.context);
  run.context.checking = 0;
}

void reportFailedGate() {
  const Meta &meta = run.meta;
  char loss[40], norm[40];
  bool single = meta.gateElem == Elem::F32;
  exact(loss, run.loss, single);
  exact(norm, run.norm, single);
  const char *path = "";
  bool sound = parametersAreFinite(path);
  replay(1);
  replay(2);

  Text text;
  text.add("step %lld: the loss is %s", (long long)run.step, loss);
  if (meta.normAt >= 0)
    text.add(" and the gradient norm is %s", norm);
  text.add("; the update was not made");
  warn("%s", text.data);
  if (const Cause *cause = firstCause())
    nameCause(*cause);
  else
    warn("every kernel's outputs were finite when the step was replayed%s",
         meta.launchesAt < 0 ? " (none is described)" : "");
  if (!sound)
    fail(kNumeric,
         "`%s` was not finite before this step any more: an earlier update overflowed (is the learning rate too "
         "high?); no checkpoint was written",
         path);
  Path saved;
  if (run.step > 0 && saveCheckpoint(-1, false, &saved))
    fail(kNumeric, "stopped at step %lld; the parameters are intact, saved in %s", (long long)run.step, saved.text);
  fail(kNumeric, "stopped at step %lld; the parameters are intact%s", (long long)run.step,
       run.step > 0 ? ", but could not be saved" : "");
}

} // namespace cinch::rt
