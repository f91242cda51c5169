// Options.h: the command line of a trained binary.
#ifndef CINCH_RUNTIME_OPTIONS_H
#define CINCH_RUNTIME_OPTIONS_H
#include "runtime/Launcher.h"
#include "runtime/Meta.h"

namespace cinch::rt {

struct Options {
  enum Command { Train, Eval, Predict, Generate, Info } command = Train;
  const char *data = ".", *out = "out", *init = nullptr, *names = nullptr, *on = nullptr, *dataFile = nullptr, *kernelTimes = nullptr, *prompt = "";
  List<const char *> settings; // of --set: KEY=VALUE
  List<const char *> only;     // of --only: names of results
  bool parameters = false;     // of info: each of them
  const char *asked = "";      // the command and flags on which worker 0 acts for all, for people and to be compared
  int64_t steps = -1, threads = 0, batches = 0, length = 200, topK = 0;
  Transport transport = Transport::Threads;
  bool transportGiven = false;
  bool sumsByMpi = false, sumsByNccl = false; // of replicas: by the library's all-reduce
  bool hostMessages = false;                  // between the GPUs of several processes
  double workerTimeout = 0; // seconds; 0: from the predicted time of a step
  int64_t rank = 0; // which worker this process is, with one process each
  int64_t world = 0; // how many processes were started then
  int64_t workersHere = 1; // that share this machine
  uint64_t seed = 0;
  double temperature = 1;
  bool resume = false, partial = false, quiet = false, profile = false;
  bool logGiven = false, csv = false, jsonl = false, tensorboard = false, html = false;
};

// Leaves with kUsage and a message if the line is wrong, with 0 after --help.
void readOptions(Options &, const Meta &, int argc, char **argv);
// Another number of processes was started than the program has workers. Over TCP readOptions leaves it to who joins them to say so.
[[noreturn]] void failForWorld(const Options &, const Meta &);

} // namespace cinch::rt
#endif
