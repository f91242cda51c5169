// Main.cpp: the entry of a trained binary, and what all commands need first.
#include "runtime/Checkpoint.h"
#include "runtime/Output.h"
#include "runtime/Pool.h"
#include "runtime/Run.h"
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

namespace cinch::rt {

Run run;

const Dataset &openData(int index) {
  if (index < 0 || index >= run.meta.datasets.size)
    failInternal("there is no data set %d", index);
  if (!run.datasets)
    run.datasets = allocateArray<Dataset>(run.meta.datasets.size);
  Dataset &dataset = run.datasets[index];
  if (!dataset.spec) {
    openDataset(dataset, run.meta.datasets[index], run.options.data, run.options.out);
    checkValues(dataset, exists(run.options.out) ? run.options.out : nullptr);
  }
  return dataset;
}

int64_t examplesOf(int index) { return openData(index).examples; }

void prepareArena(bool touch) {
  run.context.arena = makeArena(run.meta.arenaBytes, touch);
  run.context.threads = int32_t(run.options.threads);
  run.context.words[kSeed] = int64_t(run.meta.seed);
  run.context.words[kHorizon] = run.horizon;
  startPool(int(run.options.threads));
}

void loadParameters() {
  prepareCheckpoints();
  Path path;
  joinPath(path, run.options.out, "final.safetensors");
  const char *name = run.options.init ? run.options.init : path.text;
  if (run.options.init || exists(path.text)) {
    loadParameterFile(name);
  } else if (!loadNewestParameters(name)) {
    fail(kData, "no parameters: neither %s nor a checkpoint is there; train first, or name a file with --init",
         path.text);
  }
  if (!run.options.quiet && run.options.command != Options::Generate)
    say("parameters from %s", name);
}

void prepareOut() {
  if (!makeFolders(run.options.out))
    fail(kResources, "cannot make the folder %s: %s", run.options.out, strerror(errno));
  Path lock;
  joinPath(lock, run.options.out, ".lock");
  int fd = open(lock.text, O_RDWR | O_CREAT | O_CLOEXEC, 0666); // held until the process ends
  if (fd < 0)
    fail(kResources, "cannot write to %s: %s", run.options.out, strerror(errno));
  if (flock(fd, LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK)
    fail(kResources, "another run is writing to %s; choose another folder with --out", run.options.out);
}

} // namespace cinch::rt

using namespace cinch::rt;

int main(int argc, char **argv) {
  setFloatingPointMode();
  signal(SIGPIPE, SIG_IGN); // whoever reads the output may go away; the run goes on
  signal(SIGXFSZ, SIG_IGN); // a limit on file sizes is a failed write, not the end
  readMeta(run.meta, cinch_meta);
  run.horizon = run.meta.steps;
  readOptions(run.options, run.meta, argc, argv);
  switch (run.options.command) {
  case Options::Train: train(); break;
  case Options::Eval: evalCommand(); break;
  case Options::Predict: predictCommand(); break;
  case Options::Generate: generateCommand(); break;
  case Options::Info: infoCommand(); break;
  }
  return kDone;
}
