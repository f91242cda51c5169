// Normalize.h: mean and deviation of the columns of fields that say `normalize`, one a value of an example: those of the data that the program trains on,
// whichever data set is read. They are saved with the parameters, as data.SET.FIELD.mean and .std.
#ifndef CINCH_RUNTIME_NORMALIZE_H
#define CINCH_RUNTIME_NORMALIZE_H
#include "runtime/Dataset.h"

namespace cinch::rt {

struct Normal {
  const char *field = "", *meanName = "", *deviationName = "";
  Shape shape; // [columns]
  double *mean = nullptr, *deviation = nullptr;
  bool found = false; // from data that this process reads
};

// Makes the list of `meta`: means 0 and deviations 1, or, if nobody has said them, NaN.
void prepareNormals(const Meta &meta, bool said);
List<Normal> &normals();
// Of the field of this name; null: it is not normalized.
const Normal *normalOf(const char *field);
// Fills them in from the data that is trained on: in f64, row by row, a 0 for the deviation being 1, without the cells that count as the mean. Leaves
// with kData if a column has no other.
// Fields that other processes read are left alone.
void findNormals(const Dataset &trained);
// All of them as one list of numbers, for other processes; of those, `onlyFound` takes what was found there.
int64_t normalNumbers();
void packNormals(double *numbers);
void unpackNormals(const double *numbers, bool onlyFound);

} // namespace cinch::rt
#endif
