// Nccl.cpp: see Nccl.h.
#include "runtime/Nccl.h"
#include "runtime/Checkpoint.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <dlfcn.h>
#include <stdlib.h>

namespace cinch::rt {

Nccl nccl;

bool openNccl() {
  // NCCL need not prepare for calls that are under way beside a graph which holds others of the same communicator: here a step is done before
  // the next one begins. What it does for them costs time. No NCCL has run this yet.
  setenv("NCCL_GRAPH_MIXING_SUPPORT", "0", 0);
  void *library = dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (!library)
    return false;
  bool all = true;
#define F(NAME, SYMBOL, ARGUMENTS)                                                                                                 \
  nccl.NAME = reinterpret_cast<int(*) ARGUMENTS>(dlsym(library, SYMBOL));                                                          \
  all = all && nccl.NAME;
  CINCH_NCCL_FUNCTIONS(F)
#undef F
  nccl.errorText = reinterpret_cast<const char *(*)(int)>(dlsym(library, "ncclGetErrorString"));
  return all && nccl.errorText;
}

void expectNccl(int result, const char *what) {
  if (result != 0)
    fail(kResources, "NCCL failed to %s: %s (%d); NCCL_DEBUG=WARN in the environment makes it say more%s", what, nccl.errorText(result), result,
         whatToGoOnFrom());
}

} // namespace cinch::rt
