// Run.h: the state of one run of a trained binary, and what the commands share.
#ifndef CINCH_RUNTIME_RUN_H
#define CINCH_RUNTIME_RUN_H
#include "runtime/Dataset.h"
#include "runtime/Meta.h"
#include "runtime/Options.h"
#include "runtime/Worker.h"
#include "runtime/runtime.h"

extern "C" {
extern const char cinch_meta[];
void cinch_train_step(cinch_ctx *) __attribute__((weak));
void cinch_eval(cinch_ctx *, int64_t microbatches) __attribute__((weak));
void cinch_predict(cinch_ctx *, int64_t microbatches) __attribute__((weak));
}

namespace cinch::rt {

// Words of cinch_ctx.
enum ContextWord { kStep = 0, kFirstExample = 1, kSeed = 2, kHorizon = 3, kFirstPosition = 4, kWorker = 5, kFresh = 6, kBehindGate = 6, kFurther = 7, kRunValues = 8 };

struct Run {
  Meta meta;
  Options options;
  int64_t number = 0; // of this process's worker, if every worker has a process
  int64_t transportBytes = 0; // that an MPI library took
  Dataset *datasets = nullptr;

  // What cinch_fill reads from.
  enum Mode { Training, Reading, Generating } mode = Training;
  const Dataset *source = nullptr;
  int64_t examples = 0;            // Reading: so many, then rows that do not count
  const void *const *given = nullptr;   // of a library: the values of each field, in the place of `source`
  void *const *givenResults = nullptr;  // and where results go
  const int32_t *window = nullptr; // Generating: the text so far

  // Training.
  bool training = false; // `step` is a place that a checkpoint can go on from
  int64_t step = 0, total = 0, horizon = 0;
  bool pending = false;                        // what is due after `step` is not done yet
  double loss = 0, norm = 0, learningRate = 0; // of the step done last; learningRate NaN: the program has none
  bool gateFailed = false;
  bool ahead = false; // where steps overlap: a part of the step `step` is done
  bool late = false;  // the device has the gate; what a step left is known after the next one was asked for
  bool restarted = false; // it counts steps anew, which workers in other processes do not know yet
};
extern Run run;

// Leaves with kResources if arguments and environment of the process take more than a budget has room for.
void needRoomForArguments(char **argv);
// Opens what `entry` reads of a data set (null: all of it), unless it is open, and checks its values. Leaves with kData
// if the data set lacks some of it, or something is wrong with the files.
const Dataset &openData(int index, const Entry *entry);
// The same for what this process reads itself.
const Dataset &openFields(int index, const Entry *entry);
// Allocates the arena, starts the pool.
void prepareArena(bool touch);
// For eval and predict, before data is looked at, of which something may be kept there: ends the run if there is neither --init nor a folder of a run.
void expectRun();
// Brings parameters in for eval, predict and generate: --init, else the final ones, else the newest checkpoint.
void loadParameters();
// With one process a worker: finds the others; only worker 0 returns.
void joinPeers();
// Lays claim to the folder for results: exists, can be written, no other run writes there.
void prepareOut();

// The learning rate of the step just done; NaN if the program has none.
double learningRate();

// A request to stop (SIGINT, SIGTERM).
void catchSignals();  // of worker 0: from the start on
void answerSignals(); // from here on they are requests, which the training loop looks for; before, the process leaves
void ignoreSignals(); // worker 0 decides for all
bool stopRequested();
// Saves what was reached and leaves with 75.
[[noreturn]] void saveAndLeave();

// Numbers of `eval` over one data set: one array over all scalars of the entry, in order.
void readMetrics(const Entry &eval, double *values);
// `examples`, less those behind the last whole group that `entry` compares; says so once. Fails if there is no group.
int64_t inWholeGroups(const Entry &entry, int64_t examples, const char *source, bool warns = true);
void evaluate(int dataset, int64_t batches, double *values);
int64_t evalValueCount();
void takeDataFile(int dataset, const Entry &); // of --data-file
// The results that `predict` writes here and that are not computed from the field, as --only takes them: "a,b". Empty: none, or it is another command.
Text resultsWithout(const char *field);

void train();
void evalCommand();
void predictCommand();
void generateCommand();
void infoCommand();

// Called by cinch_emit and cinch_launch.
void writeResults(const Entry &, int64_t index);
void checkBefore(Worker &, int32_t launch, const int64_t *offsets);
void checkAfter(Worker &, int32_t launch, const int64_t *offsets);
// Replays the step in checking mode, says what is wrong, saves what is sound and leaves with 4.
[[noreturn]] void reportFailedGate();
// Leaves with kNumeric if the updates so far made a number that is not finite: before parameters are saved. The gate sees only what a loss is made of.
void needFiniteParameters();

} // namespace cinch::rt
#endif
