// Mpi.cpp: see Mpi.h. The library that belongs to the launcher is taken: another one would think that it is alone.
#include "runtime/Mpi.h"
#include "runtime/Launcher.h"
#include "runtime/Output.h"
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

namespace {

struct Kind {
  const char *name, *word, *variable; // of the launcher's environment
  const char *libraries[3];
  const char *world, *byte, *f32, *f64, *sum; // symbols; null: numbers
  uintptr_t worldNumber, byteNumber, f32Number, f64Number, sumNumber, ignoreStatus, inPlace;
  int cells; // Debian's MPICH sends through UCX: UCX_SYSV_FIFO_SIZE buffers at each receiver
};
const Kind kinds[] = {
    {"Open MPI",
     "openmpi",
     "OMPI_COMM_WORLD_SIZE",
     {"libmpi.so.40", "libmpi.so.20", "libmpi.so"},
     "ompi_mpi_comm_world",
     "ompi_mpi_byte",
     "ompi_mpi_float",
     "ompi_mpi_double",
     "ompi_mpi_op_sum",
     0,
     0,
     0,
     0,
     0,
     0,
     1,
     0},
    {"MPICH",
     "mpich",
     "PMI_SIZE",
     {"libmpich.so.12", "libmpi.so.12", "libmpich.so"},
     nullptr,
     nullptr,
     nullptr,
     nullptr,
     nullptr,
     0x44000000,
     0x4c00010d,
     0x4c00040a,
     0x4c00080b,
     0x58000003,
     1,
     uintptr_t(-1),
     64},
};

template <typename F> void find(void *library, const Kind &kind, const char *name, F &function) {
  function = reinterpret_cast<F>(dlsym(library, name));
  if (!function)
    fail(kUsage, "the library of %s lacks %s", kind.name, name);
}

uintptr_t addressOf(void *library, const Kind &kind, const char *symbol) {
  void *found = dlsym(library, symbol);
  if (!found)
    fail(kUsage, "the library that should be %s's is another one: it lacks %s", kind.name, symbol);
  return reinterpret_cast<uintptr_t>(found);
}

bool open(Mpi &mpi, const Kind &kind, Text &why) {
  void *library = nullptr;
  for (const char *name : kind.libraries)
    if (!library && !(library = dlopen(name, RTLD_NOW | RTLD_GLOBAL)))
      why.add("%s%s", why.size ? "; " : "", dlerror());
  if (!library)
    return false;
  mpi.name = kind.name;
  mpi.cells = kind.cells;
  mpi.world = kind.world ? addressOf(library, kind, kind.world) : kind.worldNumber;
  mpi.byte = kind.byte ? addressOf(library, kind, kind.byte) : kind.byteNumber;
  mpi.f32 = kind.f32 ? addressOf(library, kind, kind.f32) : kind.f32Number;
  mpi.f64 = kind.f64 ? addressOf(library, kind, kind.f64) : kind.f64Number;
  mpi.sum = kind.sum ? addressOf(library, kind, kind.sum) : kind.sumNumber;
  mpi.ignoreStatus = reinterpret_cast<void *>(kind.ignoreStatus);
  mpi.inPlace = reinterpret_cast<void *>(kind.inPlace);
  find(library, kind, "MPI_Init_thread", mpi.initThread);
  find(library, kind, "MPI_Comm_size", mpi.commSize);
  find(library, kind, "MPI_Comm_rank", mpi.commRank);
  find(library, kind, "MPI_Isend", mpi.isend);
  find(library, kind, "MPI_Irecv", mpi.irecv);
  find(library, kind, "MPI_Test", mpi.test);
  find(library, kind, "MPI_Cancel", mpi.cancel);
  find(library, kind, "MPI_Wait", mpi.wait);
  find(library, kind, "MPI_Comm_split", mpi.commSplit);
  find(library, kind, "MPI_Iallreduce", mpi.iallreduce);
  find(library, kind, "MPI_Finalize", mpi.finalize);
  find(library, kind, "MPI_Abort", mpi.abort);
  return true;
}

} // namespace

void openMpi(Mpi &mpi) {
  Text why;
  const char *wanted = getenv("CINCH_MPI"); // srun starts programs of both
  for (const Kind &kind : kinds)
    if (wanted ? strcmp(wanted, kind.word) == 0 : getenv(kind.variable) != nullptr) {
      if (!open(mpi, kind, why))
        fail(kUsage, "%s started this program, but its library is not there: %s", kind.name, why.data);
      return;
    }
  if (wanted)
    fail(kUsage, "CINCH_MPI is `%s`; it is openmpi or mpich", wanted);
  for (const Kind &kind : kinds)
    if (open(mpi, kind, why))
      return;
  fail(kUsage, "no MPI library is there: %s", why.data);
}

} // namespace cinch::rt
