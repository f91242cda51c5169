// Fill.h: the data of a micro-batch, read from the files of a data set, from a caller's memory, or from the text that is generated.
#ifndef CINCH_RUNTIME_FILL_H
#define CINCH_RUNTIME_FILL_H
#include "runtime/Meta.h"
#include "runtime/Worker.h"

namespace cinch::rt {

// Where a worker is told which rows count, in the whole arena; -1: it does not ask.
int64_t validPlaceOf(const Worker &, const Entry &);

// On its way to a device, a micro-batch has its fields one behind the other, each on 64 bytes, then which rows count.
int64_t stagedBytes(const Worker &, const Entry &);

// Brings the worker's fields of micro-batch `index` into its arena or, if `memory` is not null, there. Leaves with kData if a file cannot
// be read.
void fillInto(Worker &, int32_t entry, int64_t index, char *memory);

} // namespace cinch::rt
#endif
