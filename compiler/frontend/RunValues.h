// RunValues.h: numbers of the `train` block that the trained binary reads when it starts, so that another one needs no
// compilation: the learning rate, decay, warm-up, clipping. Kernels find them by their number in one list (nn.run_value).
#ifndef CINCH_COMPILER_FRONTEND_RUNVALUES_H
#define CINCH_COMPILER_FRONTEND_RUNVALUES_H

#include "compiler/frontend/Program.h"

namespace cinch {

struct RunValue {
  enum Kind { AtLeast0, Positive, Below1, Count, Whole }; // Count: whole, from 1; Whole: from 0
  std::string key;  // of --set: "lr"; "": the program has no use for this place of the list
  Kind kind = AtLeast0;
  double value = 0; // of the file
  bool zeroDecides = false; // whether it is 0 decides which kernels there are
};

// Where the values of each part begin in the list.
struct RunValuePlaces {
  std::vector<int64_t> optimizers; // those of its hyperparameters, in the order of the rule
  int64_t schedule = 0;            // warmup, end, power, factor, every, decay
  int64_t clipNorm = 0, clipValue = 0, ema = 0;
};

constexpr size_t kMostRunValues = 120; // as many as a kernel's context has words for

std::vector<RunValue> runValues(const Train &);
// Where Train holds them, in the order of the list.
std::vector<double *> runValueFields(Train &);
RunValuePlaces runValuePlaces(const Train &);

} // namespace cinch
#endif
