// LossMeans.h: means of the losses between lines of the logs. Every rule `every N log(..)` has its own, over the steps since its own last line, and so
// have the lines of a run without such a rule.
#ifndef CINCH_RUNTIME_LOSSMEANS_H
#define CINCH_RUNTIME_LOSSMEANS_H
#include "runtime/Values.h"

namespace cinch::rt {

// A rule is its number among those of the program; behind the last one stand the lines that no rule asks for.
void prepareMeans();
void addLoss(double loss); // of a step, to the means of all
double meanOf(int64_t rule); // of no step yet: the loss of the last one
int64_t stepsInMean(int64_t rule);
void beginMean(int64_t rule); // behind a line of this rule

// What a checkpoint holds of them. A rule that the checkpoint does not know, or knows with another period, begins anew.
void takeMeans(List<Note> &);
void adoptMeans(const List<Note> &);

} // namespace cinch::rt
#endif
