// Mpi.h: the functions of an MPI library that was found at run time. Open MPI's handles are addresses, MPICH's are numbers.
#ifndef CINCH_RUNTIME_MPI_H
#define CINCH_RUNTIME_MPI_H
#include <stdint.h>

namespace cinch::rt {

struct MpiRequest {
  alignas(8) char handle[8]; // of either kind
};

struct Mpi {
  const char *name = "";     // "Open MPI"
  int cells = 0;             // pieces of shared memory that a process hands small messages over in, by turns; 0: taken when it starts
  uintptr_t world = 0, byte = 0;
  void *ignoreStatus = nullptr;
  // Of an all-reduce alone, which has to know what it adds.
  uintptr_t f32 = 0, f64 = 0, sum = 0;
  void *inPlace = nullptr;
  int (*initThread)(int *, char ***, int wanted, int *given);
  int (*commSize)(uintptr_t, int *);
  int (*commRank)(uintptr_t, int *);
  int (*isend)(const void *, int count, uintptr_t type, int to, int tag, uintptr_t comm, void *request);
  int (*irecv)(void *, int count, uintptr_t type, int from, int tag, uintptr_t comm, void *request);
  int (*test)(void *request, int *done, void *status);
  int (*cancel)(void *request);
  int (*wait)(void *request, void *status);
  int (*commSplit)(uintptr_t comm, int color, int key, void *made);
  int (*iallreduce)(const void *, void *, int count, uintptr_t type, uintptr_t operation, uintptr_t comm, void *request);
  int (*finalize)();
  int (*abort)(uintptr_t, int code);
};

// Opens the library of the launcher; leaves with kUsage if it is not there.
void openMpi(Mpi &);

} // namespace cinch::rt
#endif
