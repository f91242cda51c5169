// Main.cpp: the entry of a trained binary. A library (Library.cpp) has none.
#include "runtime/Cpu.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/Run.h"
#include "runtime/Values.h"
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

using namespace cinch::rt;

// Whoever started the run may have closed the standard descriptors. A file or a connection would get one of their numbers, and what is said would be
// written into it. For reading: so what has to be written to standard output still fails.
static void keepStandardDescriptors() {
  int descriptor;
  while ((descriptor = open("/dev/null", O_RDONLY)) >= 0 && descriptor <= STDERR_FILENO)
    continue;
  if (descriptor >= 0)
    close(descriptor);
}

int main(int argc, char **argv) {
  keepStandardDescriptors();
  setFloatingPointMode();
  signal(SIGPIPE, SIG_IGN); // whoever reads the output may go away; the run goes on
  signal(SIGXFSZ, SIG_IGN); // a limit on file sizes is a failed write, not the end
  readMeta(run.meta, cinch_meta);
  readOptions(run.options, run.meta, argc, argv);
  run.number = run.options.rank;
  needRoomForArguments(argv);
  applySettings();
  prepareNormals(run.meta, true);
  run.horizon = run.meta.steps;
  if (run.options.command != Options::Info)
    needCpu(run.meta);
  if (run.options.command == Options::Train && run.number == 0)
    catchSignals();
  if (run.options.transport != Transport::Threads && run.options.command != Options::Info)
    joinPeers();
  if (peers)
    answerSignals();
  switch (run.options.command) {
  case Options::Train: train(); break;
  case Options::Eval: evalCommand(); break;
  case Options::Predict: predictCommand(); break;
  case Options::Generate: generateCommand(); break;
  case Options::Info:
    if (run.number == 0) // of several processes one says it
      infoCommand();
    break;
  }
  if (run.options.command != Options::Train && run.options.command != Options::Predict) // these write files
    needAllSaid();
  leave(kDone);
}
