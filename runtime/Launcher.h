// Launcher.h: whether this process is one of several, and which, as whoever started it says.
#ifndef CINCH_RUNTIME_LAUNCHER_H
#define CINCH_RUNTIME_LAUNCHER_H
#include <stdint.h>

namespace cinch::rt {

enum class Transport { Threads, Tcp, Mpi };

struct Launcher {
  Transport transport = Transport::Threads;
  const char *who = nullptr;     // that says so: "torchrun (RANK, WORLD_SIZE)"; null: nobody
  int64_t rank = 0, world = 1;
  int64_t worldHere = 0;         // processes on this machine; 0: not said
  const char *wrong = nullptr;   // the name of a variable that should be a number of at least `least`, and is none
  int64_t least = 0;
  const char *missing = nullptr; // the name of a variable without which the others that are set say nothing
};
// Where worker 0 can be called, if Slurm says it: the first machine of the step, and a port that other steps do not have. False: it does
// not.
bool findSlurmMaster(char (&host)[256], char (&port)[16]);
// The first of torchrun's variables, Open MPI's, MPICH's, Slurm's that are set.
Launcher findLauncher();

} // namespace cinch::rt
#endif
