// Values.h: numbers of the program that a run may be given other ones for: the learning rate, the seed, the number of steps.
// A run that is resumed goes on with those that the checkpoint was saved with.
#ifndef CINCH_RUNTIME_VALUES_H
#define CINCH_RUNTIME_VALUES_H
#include "runtime/Memory.h"
#include <stdint.h>

namespace cinch::rt {

// A line of a checkpoint's metadata: "run.lr" = "0.001".
struct Note {
  char key[64] = "", text[192] = ""; // what does not fit is cut, in the same way each time
};

// --set of the command line, checked; leaves with kUsage.
void applySettings();
// The values, where kernels read them.
void storeValues();
// How many steps the program's `steps` or `epochs` are.
// Leaves with kData if epochs are less than one batch, unless --steps 0 asks for no step.
int64_t programSteps(int64_t examples);

// What a checkpoint says of this run: values as they are, values of the program, what its hash is made of.
void takeNotes(List<Note> &);
// Takes the values of a checkpoint of the same program, unless --set gives others; says what differs. Leaves with kData, naming
// them, if values of the program itself have changed since and --set does not decide, or if the seed differs.
void adoptValues(const char *checkpoint, const List<Note> &);
// Leaves with kData: a checkpoint of another program. Names what differs; `problem`: why its tensors do not fit, or "".
[[noreturn]] void refuseProgram(const char *checkpoint, const List<Note> &, const char *problem);
void listValues(); // for `info`

} // namespace cinch::rt
#endif
