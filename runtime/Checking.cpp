// Checking.cpp: the replay after a failed gate. The step is the same to the bit, so the value that spoiled it appears
// again; the outputs of every launch are looked at, and the first that is not finite is named.
#include "runtime/Checkpoint.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

static bool found = false;
static Launch launch;
static int badOutput;
static int64_t badValue, badExample;
static double badNumber;

static int64_t firstBad(const char *at, const LaunchOutput &output, double &number) {
  for (int64_t i = 0; i < output.count; ++i) {
    double value = output.elem == Elem::F64 ? reinterpret_cast<const double *>(at)[i]
                                            : double(reinterpret_cast<const float *>(at)[i]);
    if (!__builtin_isfinite(value)) {
      number = value;
      return i;
    }
  }
  return -1;
}

void checkLaunch(int32_t number, const int64_t *offsets) {
  if (found || !readLaunch(run.meta, cinch_meta, number, launch))
    return;
  for (int i = 0; i < launch.outputCount; ++i) {
    const LaunchOutput &output = launch.outputs[i];
    if (output.elem != Elem::F32 && output.elem != Elem::F64)
      continue;
    int64_t offset = output.word >= 0 ? offsets[output.word] : output.offset;
    badValue = firstBad(run.context.arena + offset, output, badNumber);
    if (badValue < 0)
      continue;
    found = true;
    badOutput = i;
    badExample = run.context.words[kFirstExample];
    return;
  }
}

static bool parametersAreFinite(const char *&path) {
  for (const Parameter &parameter : run.meta.parameters) {
    LaunchOutput all = {parameter.offset, parameter.shape.count(), parameter.elem};
    double ignored;
    if (firstBad(run.context.arena + parameter.offset, all, ignored) >= 0) {
      path = parameter.path;
      return false;
    }
  }
  return true;
}

void reportFailedGate() {
  const Meta &meta = run.meta;
  char loss[40], norm[40];
  bool single = meta.gateElem == Elem::F32;
  exact(loss, run.loss, single);
  exact(norm, run.norm, single);
  const char *path = "";
  bool sound = parametersAreFinite(path);
  run.context.checking = 1;
  cinch_train_step(&run.context);
  run.context.checking = 0;

  Text text;
  text.add("step %lld: the loss is %s", (long long)run.step, loss);
  if (meta.normAt >= 0)
    text.add(" and the gradient norm is %s", norm);
  text.add("; the update was not made");
  warn("%s", text.data);
  if (found)
    warn(
        "%s:%lld: %s (kernel %s): value %lld of output %d is %s, the first number that is not finite; micro-batch from "
        "example %lld of the batch",
        launch.file[0] ? launch.file : meta.source, (long long)launch.line, launch.text, launch.kernel, (long long)badValue, badOutput,
        badNumber != badNumber ? "nan"
        : badNumber > 0        ? "inf"
                               : "-inf",
        (long long)badExample);
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
