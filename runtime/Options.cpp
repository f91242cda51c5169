// Options.cpp: one table of flags; help and "did you mean" are read off it.
#include "runtime/Options.h"
#include "runtime/Device.h"
#include "runtime/EditDistance.h"
#include "runtime/Output.h"
#include "runtime/TensorFile.h"
#include "runtime/Waiting.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

namespace {

enum Need { kFolder, kFile, kCount, kNumber, kText, kSinks, kNothing };
constexpr unsigned kTrain = 1, kEval = 2, kPredict = 4, kGenerate = 8, kInfo = 16, kRunning = 15;
constexpr unsigned kOfRun = 32; // of several processes worker 0 acts on it, for all

struct Flag {
  const char *name, *value, *help;
  Need need;
  unsigned commands;
};

const Flag flags[] = {
    {"--data", "DIR", "where the data files are (default: the current folder)", kFolder, kTrain | kEval | kPredict},
    {"--out", "DIR", "where checkpoints, logs and results go (default: out)", kFolder, kRunning},
    {"--steps", "N", "stop after N steps in all, earlier runs included", kCount, kTrain | kOfRun},
    {"--set", "KEY=VALUE", "another learning rate, seed, ..: `info` lists the keys and their values", kText, kTrain | kOfRun},
    {"--resume", nullptr, "go on from the newest checkpoint under --out, with the same data", kNothing, kTrain | kOfRun},
    {"--init", "FILE", "take the parameters from a safetensors file", kFile, kRunning | kOfRun},
    {"--partial", nullptr, "with --init: the file may lack parameters and have others; lists which", kNothing, kTrain | kOfRun},
    {"--names", "MAP", "with --init: what parameters are called in the file, by a `names` block of the program", kText, kRunning | kOfRun},
    {"--threads", "N", "work with N threads, each worker (default: the processors divided by the workers, at most what was compiled for)",
     kCount, kRunning},
    {"--transport", "NAME", "several workers: as threads, or one process each over tcp or mpi (default: what started it says)", kText,
     kRunning},
    {"--all-reduce", "NAME",
     "how sums of `combine reduce` replicas are added: ring, in the order of the replicas (the default), or mpi or, on GPUs, nccl, by the library", kText,
     kTrain},
    {"--gpu-messages", "NAME", "between GPUs of several processes: nccl, if it is there (the default), or host, through the memory of the hosts", kText,
     kTrain},
    {"--worker-timeout", "SECONDS", "how long a worker may be silent (default: the larger of 5 and 20 predicted steps)", kNumber, kRunning},
    {"--log", "LIST", "any of csv,jsonl,tensorboard,html, or none", kSinks, kTrain},
    {"--kernel-times", "FILE", "write how long each kernel took, a line each, when training ends", kFile, kTrain},
    {"--profile", nullptr, "where the time goes: a table, and OUT/profile.json for a viewer of traces, when training ends", kNothing,
     kTrain},
    {"--quiet", nullptr, "say only what is wrong and how it ended", kNothing, kRunning},
    {"--on", "NAME", "which data set (default: the one that training evaluates)", kText, kEval | kPredict | kOfRun},
    {"--data-file", "FILE", "read this file in the place of the data set's own; the set is called as the file is", kFile, kEval | kPredict | kOfRun},
    {"--only", "NAME", "write this result only (several: with commas, or the flag again), and read the fields that it needs", kText, kPredict | kOfRun},
    {"--parameters", nullptr, "list paths and shapes, as they stand in files and in a `names` block", kNothing, kInfo},
    {"--batches", "N", "the first N batches only", kCount, kEval | kPredict | kOfRun},
    {"--prompt", "TEXT", "the text to go on from (token models: numbers)", kText, kGenerate | kOfRun},
    {"--length", "N", "how many tokens to draw (default: 200)", kCount, kGenerate | kOfRun},
    {"--temperature", "X", "0 takes the likeliest, 1 draws as the model says (default: 1)", kNumber, kGenerate | kOfRun},
    {"--top-k", "N", "draw among the N likeliest only", kCount, kGenerate | kOfRun},
    {"--seed", "N", "another seed draws another text (default: 0)", kCount, kGenerate | kOfRun},
};

constexpr size_t kFlags = sizeof flags / sizeof *flags;

const struct {
  const char *name, *help;
  unsigned bit;
} commands[] = {
    {"train", "train the model (the default)", kTrain},
    {"eval", "print the metrics of a trained model, also as one JSON line", kEval},
    {"predict", "write the results: OUT/predict/SET/NAME.npy, SET being the data set", kPredict},
    {"generate", "let a text model write", kGenerate},
    {"info", "what this program is: model, parameters, memory", kInfo},
};

[[noreturn]] void help(const Meta &meta) {
  say("%s: a training program, compiled by Cinch from %s", meta.program, meta.source);
  say("%s", "");
  say("commands:");
  for (const auto &command : commands)
    say("  %-10s %s", command.name, command.help);
  say("%s", "");
  say("flags:");
  for (const Flag &flag : flags) {
    Text left;
    left.add("%s%s%s", flag.name, flag.value ? " " : "", flag.value ? flag.value : "");
    say("  %-21s %s", left.data, flag.help);
  }
  say("  %-21s %s", "--help", "this text");
  say("%s", "");
  say("Final parameters: OUT/final.safetensors. Stopping with Ctrl-C saves a checkpoint; --resume goes on from it,");
  say("with the same numbers, bit for bit, as if it had never been stopped.");
  say("Exit codes: 0 done, 2 wrong command line, 3 wrong data or checkpoint, 4 not a finite number,");
  say("5 out of memory or disk or a worker was lost, 70 internal error (the fault of Cinch), 75 saved on request.");
  needAllSaid();
  exit(kDone);
}

// The name among the candidates that is nearest to what was typed, or null.
struct Nearest {
  const char *typed, *name = nullptr;
  int distance = mostEdits(typed) + 1;
  void offer(const char *candidate) {
    int d = editDistance(typed, candidate);
    if (d < distance)
      distance = d, name = candidate;
  }
};

// A command that stands behind flags, where it is none, or null.
const char *lateCommand(int argc, char **argv) {
  if (argv[1][0] != '-')
    return nullptr;
  for (int i = 2; i < argc; ++i)
    for (const auto &command : commands)
      if (strcmp(argv[i], command.name) == 0)
        return command.name;
  return nullptr;
}

[[noreturn]] void unknown(const char *what, const char *typed, const char *nearest) {
  fail(kUsage, "unknown %s `%s`%s%s%s (--help lists them)", what, typed, nearest ? "; did you mean `" : "",
       nearest ? nearest : "", nearest ? "`?" : "");
}

// A value of the run that was written as a flag of its own: `--lr 0.1`.
void refuseValue(const Meta &meta, const char *name) {
  const char *key = name + strspn(name, "-");
  key = strcmp(key, "learning-rate") == 0 || strcmp(key, "learning_rate") == 0  ? "lr"
        : strcmp(key, "weight-decay") == 0 || strcmp(key, "weight_decay") == 0 ? "decay"
                                                                                : key;
  bool known = strcmp(key, "seed") == 0 || strcmp(key, "epochs") == 0;
  for (const RunValue &each : meta.values)
    known = known || strcmp(each.key, key) == 0;
  if (known)
    fail(kUsage, "unknown flag `%s`; did you mean `--set %s=..`? (`info` lists the values)", name, key);
}

void readSinks(Options &options, const char *list) {
  options.logGiven = true;
  while (*list) {
    size_t n = strcspn(list, ",");
    char name[32];
    snprintf(name, sizeof name, "%.*s", int(n < 31 ? n : 31), list);
    if (strcmp(name, "csv") == 0) {
      options.csv = true;
    } else if (strcmp(name, "jsonl") == 0) {
      options.jsonl = true;
    } else if (strcmp(name, "tensorboard") == 0) {
      options.tensorboard = true;
    } else if (strcmp(name, "html") == 0) {
      options.html = true;
    } else if (strcmp(name, "none") != 0) {
      Nearest nearest = {name};
      static const char *const sinks[] = {"csv", "jsonl", "tensorboard", "html", "none"};
      for (const char *known : sinks)
        nearest.offer(known);
      unknown("log", name, nearest.name);
    }
    list += n + (list[n] == ',');
  }
}

void readOnly(Options &options, const char *list) {
  for (;; ++list) {
    const size_t n = strcspn(list, ",");
    options.only.add() = copyText(list, n);
    list += n;
    if (!*list)
      return;
  }
}

void readTransport(Options &options, const char *name) {
  static const char *const names[] = {"threads", "tcp", "mpi"};
  Nearest nearest = {name};
  for (int i = 0; i < 3; ++i) {
    nearest.offer(names[i]);
    if (strcmp(names[i], name) == 0) {
      options.transport = Transport(i);
      options.transportGiven = true;
      return;
    }
  }
  unknown("transport", name, nearest.name);
}

void readAllReduce(Options &options, const char *name) {
  Nearest nearest = {name};
  nearest.offer("ring"), nearest.offer("mpi"), nearest.offer("nccl");
  options.sumsByMpi = strcmp(name, "mpi") == 0;
  options.sumsByNccl = strcmp(name, "nccl") == 0;
  if (!options.sumsByMpi && !options.sumsByNccl && strcmp(name, "ring") != 0)
    unknown("all-reduce", name, nearest.name);
}

void readGpuMessages(Options &options, const char *name) {
  Nearest nearest = {name};
  nearest.offer("nccl"), nearest.offer("host");
  options.hostMessages = strcmp(name, "host") == 0;
  if (!options.hostMessages && strcmp(name, "nccl") != 0)
    unknown("way of messages", name, nearest.name);
}

void checkAllReduce(const Options &options, const Meta &meta) {
  if (!options.sumsByMpi && !options.sumsByNccl)
    return;
  bool sums = false;
  for (const ChannelSpec &channel : meta.channels)
    sums |= channel.sums > 0;
  const char *name = options.sumsByMpi ? "mpi" : "nccl";
  if (!sums)
    fail(kUsage,
         "--all-reduce %s: the program does not let sums of replicas be added in any order (`combine reduce` in `train` asks for that)", name);
  if (options.sumsByMpi && options.transport != Transport::Mpi)
    fail(kUsage, "--all-reduce mpi: the workers do not meet by MPI; start the program with mpirun or srun");
  if (options.sumsByMpi && cinch_open_device)
    fail(kUsage, "--all-reduce mpi: it adds what lies in the memory of the hosts; sums of GPUs are added by --all-reduce nccl");
  if (options.sumsByNccl && !cinch_open_device)
    fail(kUsage, "--all-reduce nccl: it adds what lies on GPUs, and the program is for a CPU; compile with --target nvidia");
  if (options.sumsByNccl && options.transport == Transport::Threads)
    fail(kUsage, "--all-reduce nccl: all workers are in this process; start one process each, with torchrun, mpirun or srun");
  if (options.sumsByNccl && options.hostMessages)
    fail(kUsage, "--all-reduce nccl: --gpu-messages host says that NCCL is not to be used");
  if (options.sumsByNccl && meta.overlaps)
    fail(kUsage, "--all-reduce nccl: steps of this program overlap (--schedule 2bw), for which messages go through the hosts");
}

// Which worker this process is, and how it meets the others.
void chooseTransport(Options &options, const Meta &meta) {
  const int64_t count = meta.workers.size ? meta.workers.size : 1;
  options.workersHere = count;
  Launcher launcher = findLauncher();
  const bool alone = options.command == Options::Info || (options.transportGiven && options.transport == Transport::Threads);
  if (launcher.wrong && !alone)
    fail(kUsage, "%s is `%s`; expected a whole number from %lld, or --transport threads for a run of one process", launcher.wrong, getenv(launcher.wrong),
         (long long)launcher.least);
  if (launcher.missing && !alone) // each process would train the whole by itself, into one folder
    fail(kUsage, "%s is not set, but others of RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT are: every process needs all four, as torchrun sets them; "
                 "--transport threads makes this a run of one process",
         launcher.missing);
  if (launcher.who && launcher.rank >= launcher.world && !alone) // of a world of one it would train the whole, into the folder of the others
    fail(kUsage, "%s made this process number %lld of %lld; numbers begin at 0", launcher.who, (long long)launcher.rank, (long long)launcher.world);
  if (count == 1) {
    if (options.transportGiven && options.transport != Transport::Threads)
      fail(kUsage, "--transport: this program has one worker (compile with --stages for more)");
    // Each process would train the whole model by itself, and all of them would write into the same folder.
    if (!options.transportGiven && launcher.world > 1 && options.command != Options::Info)
      fail(kUsage, "the program has one worker, but %s started %lld processes; compile it with --stages or --replicas, start one, "
                   "or use --transport threads if these are to be runs of their own",
           launcher.who, (long long)launcher.world);
    return;
  }
  if (!options.transportGiven)
    options.transport = launcher.world > 1 ? launcher.transport : Transport::Threads;
  if (options.transport == Transport::Threads)
    return;
  if (!launcher.who && options.transport == Transport::Tcp)
    fail(kUsage, "--transport tcp: every process needs RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT, as torchrun sets them");
  if (!launcher.who)
    fail(kUsage, "--transport mpi: start the program with mpirun or srun, one process a worker: mpirun -np %lld ..", (long long)count);
  options.rank = launcher.rank;
  options.world = launcher.world;
  if (options.world != count && (options.transport == Transport::Mpi || options.command == Options::Info))
    failForWorld(options, meta);
  const char *master = getenv("MASTER_ADDR");
  bool oneMachine = master && (strcmp(master, "localhost") == 0 || strncmp(master, "127.", 4) == 0 || strcmp(master, "::1") == 0);
  options.workersHere = launcher.worldHere > 0 ? launcher.worldHere : oneMachine ? count : 1;
}

void take(Options &options, const Flag &flag, const char *value) {
  auto is = [&](const char *name) { return strcmp(flag.name, name) == 0; };
  int64_t count = 0;
  double number = 0;
  char *end = nullptr;
  errno = 0;
  const bool begins = *value >= '0' && *value <= '9'; // strtoll and strtod take blanks and a sign before it
  if (flag.need == kCount) {
    count = strtoll(value, &end, 10);
    const int least = is("--threads") || is("--batches") ? 1 : 0;
    if (!begins || *end || errno || count < least)
      fail(kUsage, "%s needs a whole number from %d to %lld, got `%s`", flag.name, least, (long long)INT64_MAX, value);
  } else if (flag.need == kNumber) {
    number = strtod(value, &end);
    if ((!begins && *value != '.') || strpbrk(value, "xX") || *end || !(number >= 0 && number < 1e9))
      fail(kUsage, "%s needs a number from 0 and below 1e9, got `%s`", flag.name, value);
  } else if ((flag.need == kFolder || flag.need == kFile) && !*value) {
    fail(kUsage, "%s needs a name, got an empty one", flag.name);
  }
  if (is("--data"))
    options.data = value;
  if (is("--out"))
    options.out = value;
  if (is("--steps"))
    options.steps = count;
  if (is("--resume"))
    options.resume = true;
  if (is("--init"))
    options.init = value;
  if (is("--set"))
    options.settings.add() = value;
  if (is("--parameters"))
    options.parameters = true;
  if (is("--only"))
    readOnly(options, value);
  if (is("--partial"))
    options.partial = true;
  if (is("--names"))
    options.names = value;
  if (is("--threads"))
    options.threads = count;
  if (is("--transport"))
    readTransport(options, value);
  if (is("--all-reduce"))
    readAllReduce(options, value);
  if (is("--gpu-messages"))
    readGpuMessages(options, value);
  if (is("--worker-timeout")) {
    if (number <= 0)
      fail(kUsage, "--worker-timeout needs a number of seconds above 0, got `%s`", value);
    options.workerTimeout = number;
  }
  if (is("--log"))
    readSinks(options, value);
  if (is("--kernel-times"))
    options.kernelTimes = value;
  if (is("--profile"))
    options.profile = true;
  if (is("--quiet"))
    options.quiet = true;
  if (is("--on"))
    options.on = value;
  if (is("--data-file"))
    options.dataFile = value;
  if (is("--batches"))
    options.batches = count;
  if (is("--prompt"))
    options.prompt = value;
  if (is("--length"))
    options.length = count;
  if (is("--temperature"))
    options.temperature = number;
  if (is("--top-k"))
    options.topK = count;
  if (is("--seed"))
    options.seed = uint64_t(count);
}

// What was given by a flag that may be given several times; null: it may not.
const List<const char *> *listOf(const Options &options, const Flag &flag) {
  return strcmp(flag.name, "--set") == 0 ? &options.settings : strcmp(flag.name, "--only") == 0 ? &options.only : nullptr;
}

// What is asked of the whole run, in the order of the table: the command, unless it is to train, and the flags on which worker 0 acts. A file may have
// another name on another machine.
const char *askedOf(const Options &options, const char *const *values) {
  Text words;
  auto add = [&](const char *name, const char *value) { words.add("%s%s%s%s", words.size ? " " : "", name, *value ? " " : "", value); };
  if (options.command != Options::Train)
    add(commands[int(options.command)].name, "");
  for (size_t i = 0; i < kFlags; ++i) {
    if (!values[i] || !(flags[i].commands & kOfRun))
      continue;
    const List<const char *> *list = listOf(options, flags[i]);
    if (!list)
      add(flags[i].name, flags[i].need == kFile ? "" : values[i]);
    for (int64_t k = 0; list && k < list->size; ++k)
      add(flags[i].name, (*list)[k]);
  }
  return copyText(words.data, words.size);
}

} // namespace

void failForWorld(const Options &options, const Meta &meta) {
  const int64_t count = meta.workers.size;
  fail(kUsage, "the program has %lld workers, but %s started %lld processes; start %lld, or use --transport threads in one", (long long)count,
       findLauncher().who, (long long)options.world, (long long)count);
}

void readOptions(Options &options, const Meta &meta, int argc, char **argv) {
  unsigned command = kTrain;
  int first = 1;
  if (argc > 1 && argv[1][0] != '-') {
    bool found = false;
    Nearest nearest = {argv[1]};
    for (int i = 0; i < 5; ++i) {
      nearest.offer(commands[i].name);
      if (strcmp(argv[1], commands[i].name) == 0) {
        options.command = Options::Command(i);
        command = commands[i].bit;
        found = true;
      }
    }
    if (!found && strcmp(argv[1], "help") == 0)
      help(meta);
    if (!found)
      unknown("command", argv[1], nearest.name);
    first = 2;
  }
  const char *values[kFlags] = {}; // of the flags that are given
  options.settings.reserve(argc);  // however many there are
  for (int i = first; i < argc; ++i) {
    if (strcmp(argv[i], "--help") == 0 || strcmp(argv[i], "-h") == 0)
      help(meta);
    char name[64];
    const char *equals = strchr(argv[i], '=');
    size_t length = equals ? size_t(equals - argv[i]) : strlen(argv[i]);
    snprintf(name, sizeof name, "%.*s", int(length < 63 ? length : 63), argv[i]);
    const Flag *found = nullptr;
    Nearest nearest = {name};
    for (const Flag &flag : flags) {
      nearest.offer(flag.name);
      if (strcmp(flag.name, name) == 0)
        found = &flag;
    }
    if (const char *late = lateCommand(argc, argv); late && (!found || !(found->commands & command)))
      fail(kUsage, "a command stands before its flags: %s %s %s ..", argv[0], late, argv[1]);
    if (!found) {
      if (name[0] == '-')
        refuseValue(meta, name);
      unknown(name[0] == '-' ? "flag" : "argument", argv[i], nearest.name);
    }
    if (!(found->commands & command))
      fail(kUsage, "%s has no meaning for `%s`%s", name, commands[int(options.command)].name,
           command == kTrain && strcmp(name, "--seed") == 0 ? "; the seed of a training is given with --set seed=N" : "");
    const char *&value = values[found - flags];
    if (found->need != kNothing && !listOf(options, *found) && value)
      fail(kUsage, "%s is given twice; give it once", name);
    if (found->need == kNothing && equals)
      fail(kUsage, "%s takes no value", name);
    if (found->need != kNothing && !equals && i + 1 == argc)
      fail(kUsage, "%s needs a value: %s %s", name, name, found->value);
    value = found->need == kNothing ? "" : equals ? equals + 1 : argv[++i];
    take(options, *found, value);
  }
  options.asked = askedOf(options, values);
  chooseTransport(options, meta);
  checkAllReduce(options, meta);
  if (options.threads > meta.maxThreads)
    fail(kUsage, "--threads %lld: this program was compiled for at most %lld (compile with --max-threads)",
         (long long)options.threads, (long long)meta.maxThreads);
  if (!options.threads) {
    int64_t each = processors() / options.workersHere;
    options.threads = each < meta.maxThreads ? each : meta.maxThreads;
    if (options.threads < 1)
      options.threads = 1;
  }
}

} // namespace cinch::rt
