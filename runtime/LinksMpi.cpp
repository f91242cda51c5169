// LinksMpi.cpp: frames over MPI.
#include "runtime/Links.h"
#include "runtime/Output.h"

namespace cinch::rt {

void joinByMpi() { fail(kUsage, "--transport mpi is not there yet; use tcp"); }

} // namespace cinch::rt
