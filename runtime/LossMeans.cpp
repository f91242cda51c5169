// LossMeans.cpp: see LossMeans.h.
#include "runtime/LossMeans.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

struct LossMean {
  double sum = 0;
  int64_t steps = 0;
};
static List<LossMean> means;

void prepareMeans() {
  while (means.size <= run.meta.every.size)
    means.add();
}

void addLoss(double loss) {
  for (LossMean &mean : means)
    mean.sum += loss, ++mean.steps;
}

double meanOf(int64_t rule) { return means[rule].steps ? means[rule].sum / double(means[rule].steps) : run.loss; }
int64_t stepsInMean(int64_t rule) { return means[rule].steps; }
void beginMean(int64_t rule) { means[rule] = LossMean(); }

static bool isKept(int64_t rule) { return rule == run.meta.every.size || run.meta.every[rule].kind == Every::Log; }
static int64_t periodOf(int64_t rule) { return rule == run.meta.every.size ? 0 : run.meta.every[rule].steps; }

static void keyOf(int64_t rule, char (&key)[64]) { snprintf(key, sizeof key, "mean_loss.%lld", (long long)rule); }

void takeMeans(List<Note> &notes) {
  for (int64_t rule = 0; rule < means.size; ++rule) {
    if (!isKept(rule))
      continue;
    Note &note = notes.add();
    char sum[40];
    keyOf(rule, note.key);
    snprintf(note.text, sizeof note.text, "%lld %lld %s", (long long)periodOf(rule), (long long)means[rule].steps, exact(sum, means[rule].sum, false));
  }
}

void adoptMeans(const List<Note> &notes) {
  for (int64_t rule = 0; rule < means.size; ++rule) {
    char key[64];
    keyOf(rule, key);
    for (const Note &note : notes) {
      char *steps = nullptr, *sum = nullptr;
      if (!isKept(rule) || strcmp(note.key, key) != 0 || strtoll(note.text, &steps, 10) != periodOf(rule) || steps == note.text)
        continue;
      means[rule].steps = strtoll(steps, &sum, 10);
      means[rule].sum = strtod(sum, nullptr);
    }
  }
}

} // namespace cinch::rt
