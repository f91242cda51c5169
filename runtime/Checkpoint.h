// Checkpoint.h: parameters, optimizer state and position in one safetensors file a checkpoint, OUT/DIR/step-NNNNNNNN.
#ifndef CINCH_RUNTIME_CHECKPOINT_H
#define CINCH_RUNTIME_CHECKPOINT_H
#include "runtime/Files.h"
#include <stdint.h>

namespace cinch::rt {

// Makes the lists of tensors and the folders' names; before anything else here.
void prepareCheckpoints();

// From now on checkpoints say which data they were trained on, and only one with the same data is resumed from. The data
// set that the program trains on is open.
void markTrainingData();

// Saves the state of `run` in the folder of rule `rule` of meta.every (-1: the first of them, or `checkpoints`). A
// failure is a warning. `saved` (or null) takes the name.
bool saveCheckpoint(int rule, bool pending, Path *saved);
// The same for a rule that is due: deletes the old ones beyond `keep`; if `value` (NaN: none) is better than any
// before, the file is OUT/DIR/best.safetensors too.
bool saveWithBest(int rule, double value);
// An evaluation gave `value` to what rule `rule` with a `patience` looks at.
void countEvaluation(int rule, double value);
// A rule of meta.every whose last `patience` evaluations were none better than the one before; -1: none.
int ruleOutOfPatience();
// The step of the checkpoint that this process wrote or read last; -1: none.
int64_t lastSavedStep();
// What a training that fails without a fault of its own says behind the reason: " ..", or nothing outside of training.
const char *whatToGoOnFrom();

// Goes on from the newest sound checkpoint: fills arena, run.step and run.pending. False: there is none. Damaged ones
// are passed over with a warning; if all are, or the newest is of another program, or of data that was changed since, the
// run ends with kData.
bool resumeNewest(const char *&name);
// The parameters alone, of the newest sound checkpoint.
bool loadNewestParameters(const char *&name);
// The parameters and states of the program, where they lie in the arena.
struct TensorList &parameterTensors();
struct TensorList &allTensors(); // and the state of the optimizer behind them
// OUT/final.safetensors: the parameters and nothing else. Leaves with kResources if it cannot be written.
void writeFinal();
// What an earlier run left under OUT is moved to `.previous`; what else lies in its folders stays there.
void setEarlierRunAside();
// Leaves with kUsage if setEarlierRunAside would move `file` or remove it: the run after this one could no longer start from it.
void keepInitFile(const char *file);
// Leaves with kUsage if a run under OUT would move a data file of the program, remove it or write over it.
void keepDataFiles();
// That --resume found none: where it looked, and where others lie.
void sayNoCheckpoint();

} // namespace cinch::rt
#endif
