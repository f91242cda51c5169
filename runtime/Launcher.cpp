// Launcher.cpp: see Launcher.h.
#include "runtime/Launcher.h"
#include <stdlib.h>

namespace cinch::rt {

namespace {

struct Variables {
  Transport transport;
  const char *who, *rank, *world, *worldHere, *needed;
};
// `needed` is set only in processes of the launcher: Slurm's others stand in the environment of batch scripts, too.
const Variables known[] = {
    {Transport::Tcp, "RANK and WORLD_SIZE, as torchrun sets them,", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE", nullptr},
    {Transport::Mpi, "Open MPI's mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", nullptr},
    {Transport::Mpi, "MPICH's mpirun", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS", nullptr},
    {Transport::Mpi, "Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", nullptr, "SLURM_STEP_ID"},
};

bool readCount(const char *name, int64_t &value) {
  const char *text = name ? getenv(name) : nullptr;
  char *end = nullptr;
  if (!text || !*text)
    return false;
  long long number = strtoll(text, &end, 10);
  if (*end || number < 0)
    return false;
  value = number;
  return true;
}

} // namespace

Launcher findLauncher() {
  for (const Variables &variables : known) {
    Launcher found;
    if ((variables.needed && !getenv(variables.needed)) || !readCount(variables.rank, found.rank) ||
        !readCount(variables.world, found.world))
      continue;
    found.transport = variables.transport;
    found.who = variables.who;
    readCount(variables.worldHere, found.worldHere);
    return found;
  }
  return Launcher();
}

} // namespace cinch::rt
