// Launcher.cpp: see Launcher.h.
#include "runtime/Launcher.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

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
    {Transport::Mpi, "Slurm's srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_TASKS_PER_NODE", "SLURM_STEP_ID"},
};

bool isSet(const char *name) {
  const char *text = getenv(name);
  return text && *text;
}

bool readCount(const char *name, int64_t &value) {
  const char *text = name ? getenv(name) : nullptr;
  char *end = nullptr;
  if (!text || !*text)
    return false;
  long long number = strtoll(text, &end, 10);
  if (end == text || (*end && strncmp(end, "(x", 2) != 0) || number < 0) // Slurm's 4(x2): on each of two machines
    return false;
  value = number;
  return true;
}

} // namespace

// Of "node[07-09,12],other" it is "node07".
bool findSlurmMaster(char (&host)[256], char (&port)[16]) {
  const char *nodes = getenv("SLURM_STEP_NODELIST");
  int64_t job = 0, step = 0;
  if (!nodes || !*nodes || !readCount("SLURM_JOB_ID", job) || !readCount("SLURM_STEP_ID", step))
    return false;
  size_t name = strcspn(nodes, ",["), digits = nodes[name] == '[' ? strcspn(nodes + name + 1, "-,]") : 0;
  int size = snprintf(host, sizeof host, "%.*s%.*s", int(name), nodes, int(digits), nodes + name + (digits ? 1 : 0));
  snprintf(port, sizeof port, "%d", int(20000 + (job * 64 + step) % 12000)); // below what systems give out by themselves
  return size > 0 && size < int(sizeof host);
}

Launcher findLauncher() {
  for (const Variables &variables : known) {
    Launcher found;
    const bool both = isSet(variables.rank) && isSet(variables.world);
    // Of those that people set by hand one is forgotten now and then. Others stand in the environment for other reasons, too.
    const bool byHand = variables.transport == Transport::Tcp && (isSet(variables.rank) || isSet(variables.world)) && (isSet("MASTER_ADDR") || isSet("MASTER_PORT"));
    if ((variables.needed && !getenv(variables.needed)) || (!both && !byHand))
      continue;
    found.transport = variables.transport;
    found.who = variables.who;
    if (!both)
      found.missing = isSet(variables.rank) ? variables.world : variables.rank;
    else if (!readCount(variables.rank, found.rank))
      found.wrong = variables.rank;
    else if (!readCount(variables.world, found.world) || found.world < 1)
      found.wrong = variables.world, found.least = 1;
    const bool said = readCount(variables.worldHere, found.worldHere) && found.worldHere >= 1; // Slurm's may be `2,1`, which counts as not said
    if (!said && !found.wrong && variables.transport == Transport::Tcp && isSet(variables.worldHere))
      found.wrong = variables.worldHere, found.least = 1;
    return found;
  }
  return Launcher();
}

} // namespace cinch::rt
