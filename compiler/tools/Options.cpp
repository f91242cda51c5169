// Options.cpp: reads the command line with LLVM's library.
#include "compiler/tools/Options.h"

#include "compiler/frontend/Diagnostics.h"
#include "compiler/phases/Version.h"
#include "compiler/solve/stages/Schedule.h"
#include "compiler/solve/Remat.h"
#include "compiler/tools/Complain.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Config/llvm-config.h"
#include "llvm/Support/CommandLine.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Regex.h"
#include "llvm/Support/raw_ostream.h"


using namespace llvm;

namespace cinch {

// Made after the options of the linked libraries are forgotten: some of ours have their names.
namespace {
struct Flags {
  cl::OptionCategory category{"cinch options"};
  cl::SubCommand planCommand{"plan", "print the plan and its price, generate no code"};
  cl::SubCommand checkCommand{"check", "report errors in the program, nothing else"};
  cl::SubCommand calibrateCommand{"calibrate", "measure this machine's kernels once, store a cost profile"};
  cl::SubCommand fmtCommand{"fmt", "format programs in their place"};
  cl::SubCommand lspCommand{"lsp", "serve an editor: the language server protocol on standard input and output"};
  cl::SubCommand explainCommand{"explain", "print the long text of an error code"};
  cl::SubCommand solveCommand{"solve", "the planners on anybody's problem (compiler/solve/README.md)"};
  // By their names: "" compiles.
  std::vector<std::pair<StringRef, cl::SubCommand *>> commands{{"", &cl::SubCommand::getTopLevel()},
                                                               {"plan", &planCommand},
                                                               {"check", &checkCommand},
                                                               {"fmt", &fmtCommand},
                                                               {"lsp", &lspCommand},
                                                               {"explain", &explainCommand},
                                                               {"solve", &solveCommand},
                                                               {"calibrate", &calibrateCommand}};

#define COMPILING cl::cat(category), cl::sub(cl::SubCommand::getTopLevel()), cl::sub(planCommand)
#define READING COMPILING, cl::sub(checkCommand)
// What decides which kernels a program has: calibrate --tune compiles it, too.
#define PLANNING COMPILING, cl::sub(calibrateCommand)

  cl::opt<std::string> input{cl::Positional, cl::desc("FILE.cinch"), READING};
  cl::opt<std::string> code{cl::Positional, cl::desc("CODE"), cl::cat(category), cl::sub(explainCommand)};
  cl::list<std::string> files{cl::Positional, cl::desc("FILE.cinch .. (-: standard input to standard output)"), cl::cat(category),
                              cl::sub(fmtCommand)};
  cl::opt<bool> fmtCheck{"check", cl::desc("write nothing; name the files that would change, and exit with 1 if there are any"),
                         cl::cat(category), cl::sub(fmtCommand)};
  cl::opt<std::string> output{"o", cl::desc("executable to write (default a.out)"), cl::value_desc("EXE"),
                                     cl::init("a.out"), cl::cat(category)};
  cl::opt<std::string> profileOutput{"o", cl::desc("profile to write (default: $XDG_CONFIG_HOME/cinch/profile.json)"),
                                     cl::value_desc("FILE"), cl::cat(category), cl::sub(calibrateCommand)};
  cl::opt<std::string> tune{"tune", cl::desc("time other tiles of this program's products, too; those that are quicker go into the profile"),
                            cl::value_desc("FILE.cinch"), cl::cat(category), cl::sub(calibrateCommand)};
  cl::opt<std::string> tuneTime{"time-limit", cl::desc("of --tune (120)"), cl::value_desc("SECONDS"), cl::cat(category), cl::sub(calibrateCommand)};
  cl::opt<std::string> profile{"profile", cl::desc("costs measured by `cinch calibrate`; none: the built-in ones (default: the "
                                                   "stored profile of this CPU, if there is one)"),
                               cl::value_desc("FILE|none"), COMPILING};
  cl::opt<std::string> budget{"memory-budget", cl::desc("most bytes the whole process may use: 3GiB, 512MiB; a number without a unit counts bytes"),
                                     cl::value_desc("SIZE"), PLANNING};
  cl::opt<std::string> hostBudget{"host-memory-budget",
                                  cl::desc("with --target nvidia: most bytes of pinned memory of the host (of several workers: of each), where the optimizer's state may lie between its "
                                           "updates, and values of the forward sweep until the backward sweep reads them, if the GPU's "
                                           "budget is short (without it, nothing lies there)"),
                                  cl::value_desc("SIZE"), COMPILING};
  cl::opt<std::string> remat{"remat",
                                    cl::desc("none, all, sqrt, every:N, marked, cheap, optimal or auto (the default)"),
                                    cl::value_desc("STRATEGY"), PLANNING};
  cl::opt<std::string> microbatch{"microbatch", cl::desc("examples at a time, a divisor of the batch, or auto"),
                                         cl::value_desc("N|auto"), PLANNING};
  cl::opt<std::string> orderSeed{"order-seed",
                              cl::desc("start from a random legal order of the kernels (for tests: no bit changes)"),
                              cl::value_desc("N"), COMPILING};
  cl::opt<std::string> rowBlocks{"row-blocks",
                                 cl::desc("rows that work on single positions runs on at a time, none, or auto (the default)"),
                                 cl::value_desc("N|none|auto"), PLANNING};
  cl::opt<std::string> stages{"stages", cl::desc("workers that share a step, each with a part of the model (1); budget and threads are a worker's; auto: "
                                                 "as few as fit the budget"),
                              cl::value_desc("P|auto"), COMPILING};
  cl::opt<std::string> replicas{"replicas", cl::desc("copies of these, each with its part of every batch (1); changes no bit"), cl::value_desc("D"),
                                COMPILING};
  cl::opt<std::string> shards{"shards", cl::desc("workers that share every layer, in the place of the program's `shards`"), cl::value_desc("T"), COMPILING};
  cl::opt<std::string> schedule{"schedule", cl::desc("in which order they work: naive, gpipe, 1f1b (the default), 2bw, interleaved, zb-h1 or zbv"),
                                cl::value_desc("NAME"), COMPILING};
  cl::opt<std::string> chunks{"chunks", cl::desc("stages of a worker: interleaved any number (default 2), zbv 2, else 1"), cl::value_desc("V"), COMPILING};
  cl::opt<std::string> transportReserve{"transport-reserve",
                                        cl::desc("bytes of a worker's budget for an MPI library (without it, its memory is beside the budget)"),
                                        cl::value_desc("SIZE"), COMPILING};
  cl::opt<std::string> target{"target", cl::desc("cpu (the default), or nvidia, nvidia:a100, nvidia:h100 ..; the budget is then the GPU's"),
                              cl::value_desc("NAME"), cl::init("cpu"), COMPILING};
  cl::opt<std::string> ptxas{"ptxas", cl::desc("NVIDIA's assembler, for machine code beside the PTX of --target nvidia (default: the one on the PATH, if any)"),
                             cl::value_desc("FILE|none"), cl::cat(category)};
  cl::opt<std::string> cpu{"cpu", cl::desc("CPU to generate code for, by LLVM's name (default: this one)"),
                                  cl::value_desc("NAME"), COMPILING};
  cl::opt<std::string> maxThreads{"max-threads",
                                         cl::desc("most threads the program may run on (default: this machine's, at least 4)"),
                                         cl::value_desc("N"), PLANNING};
  cl::list<std::string> defines{"D", cl::Prefix, cl::desc("set a dim or a const of the file"),
                                       cl::value_desc("NAME=VALUE"), READING, cl::sub(calibrateCommand)};
  cl::list<std::string> settings{"set", cl::desc("set a key of the train block: train.steps=100"),
                                        cl::value_desc("KEY=VALUE"), READING, cl::sub(calibrateCommand)};
  cl::opt<std::string> stopAfter{"stop-after",
                                        cl::desc("print the program after a phase: parsed, differentiated, planned, scheduled, "
                                                 "lowered, llvm"),
                                        cl::value_desc("PHASE"), cl::cat(category)};
  cl::opt<std::string> saveNvvm{"save-nvvm", cl::desc("write what --emit nvvm would print, beside the executable or the library"),
                                cl::value_desc("FILE"), cl::cat(category)};
  cl::opt<std::string> emit{"emit", cl::desc("nn, plan, kernels, llvm, asm, nvvm, ptx, obj, lib (-o DIR/NAME: libNAME.a, libNAME.so, NAME.h) or exe (the default)"),
                                   cl::value_desc("KIND"), cl::init("exe"), cl::cat(category)};
  cl::opt<bool> noKernelCache{"no-kernel-cache", cl::desc("generate all code anew, keep nothing in $XDG_CACHE_HOME/cinch/kernels"),
                              cl::cat(category)};
  cl::opt<bool> noPlanCache{"no-plan-cache", cl::desc("search anew, keep nothing in $XDG_CACHE_HOME/cinch"), COMPILING};
  cl::opt<std::string> report{"report", cl::desc("write a page about the plan: what is kept, recomputed, alive when"),
                              cl::value_desc("FILE.html"), COMPILING};
  cl::opt<bool> json{"json", cl::desc("print the plan as JSON"), cl::cat(category), cl::sub(planCommand)};
  cl::opt<bool> bound{"bound", cl::desc("prove how fast a plan with this micro-batch and these blocks of rows can be; takes seconds to minutes"),
                      cl::cat(category), cl::sub(planCommand)};
  cl::opt<std::string> format{"diagnostics-format", cl::desc("text or json"), cl::value_desc("FORMAT"),
                                     cl::init("text"), READING};
  cl::opt<std::string> remarks{"remarks",
                               cl::desc("say why, on standard error: plan, remat, kernels or all (a regular expression)"),
                               cl::value_desc("REGEX"), COMPILING};
  cl::opt<std::string> cluster{"cluster", cl::desc("plan for these machines; FILE is the program of a GPT, or JSON with its sizes (compiler/solve/README.md)"),
                               cl::value_desc("CLUSTER.json"), cl::cat(category), cl::sub(planCommand)};
  // `solve` reads these itself, each of its commands apart.
#define SOLVING cl::cat(category), cl::sub(solveCommand)
  cl::list<std::string> problem{cl::Positional, cl::desc("remat G.json | arena B.csv | stages C.json | cluster MODEL.json"), SOLVING};
  cl::opt<std::string> solveBudget{"budget", cl::desc("remat: most bytes in use; stages: of each worker"), cl::value_desc("BYTES"),
                                   SOLVING};
  cl::opt<std::string> solveOrder{"order", cl::desc("remat: of first computations, free or given"), cl::value_desc("ORDER"),
                                  SOLVING};
  cl::opt<std::string> solveCapacity{"capacity", cl::desc("arena: its height"), cl::value_desc("BYTES"), SOLVING};
  cl::opt<std::string> solveTime{"time-limit", cl::desc("for the search"), cl::value_desc("SECONDS"), SOLVING};
  cl::opt<std::string> solveWork{"work-limit", cl::desc("elementary steps of the search; deterministic"), cl::value_desc("N"),
                                 SOLVING};
  cl::opt<std::string> solveSchedule{"schedule", cl::desc("stages, cluster: naive, gpipe, 1f1b, 2bw, interleaved, zb-h1 or zbv"),
                                     cl::value_desc("NAME"), SOLVING};
  cl::opt<std::string> solveStages{"stages", cl::desc("stages: workers"), cl::value_desc("P"), SOLVING};
  cl::opt<std::string> solveChunks{"chunks", cl::desc("stages, cluster: stages of a worker"), cl::value_desc("V"), SOLVING};
  cl::opt<std::string> solveMicrobatches{"microbatches", cl::desc("stages: of a step"), cl::value_desc("M"), SOLVING};
  cl::opt<std::string> solveCluster{"cluster", cl::desc("cluster: the machines"), cl::value_desc("CLUSTER.json"), SOLVING};
  cl::opt<std::string> solveGrid{"grid", cl::desc("cluster: stages x shards x replicas"), cl::value_desc("PxTxD"), SOLVING};
  cl::opt<std::string> solveMicrobatch{"microbatch", cl::desc("cluster: examples"), cl::value_desc("N"), SOLVING};
  cl::opt<std::string> solveRecompute{"recompute", cl::desc("cluster: none, selective or full"), cl::value_desc("WHAT"), SOLVING};
  cl::opt<bool> solveTable{"table", cl::desc("stages: print the table for people"), SOLVING};
  cl::opt<std::string> color{"color", cl::desc("auto, always or never"), cl::value_desc("WHEN"), cl::init("auto"),
                                    READING, cl::sub(fmtCommand)};
};
} // namespace

[[noreturn]] static void usage(const Twine &message) {
  complain("cinch: " + shortened(message.str()) + "\n", "usage");
  exit(2);
}

static std::string joined(ArrayRef<std::string> names, const char *last) {
  std::string text = names.front();
  for (size_t i = 1; i < names.size(); ++i)
    text += (i + 1 < names.size() ? ", " : last) + names[i];
  return text;
}

// The flag of a command that a word without its dashes begins with: `memory-budget=3GiB`, or `DN=3`.
static cl::Option *flagOf(cl::SubCommand &command, StringRef word) {
  auto &known = cl::getRegisteredOptions(command);
  if (auto it = known.find(word.split('=').first); it != known.end())
    return it->second;
  for (auto &[name, option] : known)
    if (option->getFormattingFlag() == cl::Prefix && word.starts_with(name))
      return option;
  return nullptr;
}

static void refuseFlag(const Flags &flags, StringRef command, StringRef written) {
  StringRef word = written.ltrim('-'), name = word.split('=').first;
  std::string flag = "`" + written.split('=').first.str() + "`";
  std::vector<std::string> owners, beginSo, holdIt, all;
  for (auto &[of, sub] : flags.commands) {
    if (flagOf(*sub, word))
      owners.push_back(of.empty() ? "`cinch FILE`" : "`cinch " + of.str() + "`");
    if (of != command)
      continue;
    for (auto &[own, option] : cl::getRegisteredOptions(*sub))
      if (option->getOptionHiddenFlag() == cl::NotHidden) {
        all.push_back(own.str());
        if (own.starts_with(name))
          beginSo.push_back("`--" + own.str() + "`");
        else if (name.size() > 3 && own.contains(name)) // --budget
          holdIt.push_back("`--" + own.str() + "`");
      }
  }
  // The shortest flag that holds it: `--memory-budget` for --budget.
  std::string holds = holdIt.empty() ? "" : *std::min_element(holdIt.begin(), holdIt.end(), [](const std::string &a, const std::string &b) {
    return std::pair(a.size(), a) < std::pair(b.size(), b);
  });
  std::string self = command.empty() ? "`cinch FILE`" : "`cinch " + command.str() + "`";
  if (!owners.empty())
    usage(flag + " is no flag of " + self + "; " + joined(owners, " and ") + (owners.size() == 1 ? " has it" : " have it") +
          (holds.empty() ? "" : "; did you mean " + holds + "?"));
  sort(beginSo);
  sort(all);
  // What a program says of its training is no flag of a command that reads one.
  for (StringRef key : {"lr", "learning-rate", "learning_rate", "decay", "weight-decay", "weight_decay", "momentum", "epochs", "steps", "seed", "clip", "warmup"}) {
    if (name != key || all.empty() || !is_contained(all, "set"))
      continue;
    StringRef own = key.starts_with("learning") ? "lr" : key.starts_with("weight") ? "decay" : key;
    usage("unknown flag " + flag + "; did you mean `--set " + own + "=..`?");
  }
  if (is_contained(all, "set") && (name == "batch-size" || name == "batch_size" || name == "batch"))
    usage("unknown flag " + flag + "; the batch is a size of the program, `dim B = 32 batch`: -D B=32");
  std::string nearest = nearestName(name.str(), all);
  if (nearest.empty() && beginSo.empty() && !holds.empty())
    beginSo.push_back(holds);
  if (beginSo.empty() && !nearest.empty())
    beginSo.push_back("`--" + nearest + "`");
  usage("unknown flag " + flag + (beginSo.empty() ? "" : "; did you mean " + joined(beginSo, " or ") + "?") + "\n  help: " +
        (command.empty() ? "cinch" : "cinch " + command.str()) + " --help lists the flags");
}

// What the command takes beside flags.
static void checkWords(const Flags &flags, StringRef command, ArrayRef<StringRef> words) {
  if (command == "solve" || command == "fmt" || words.empty())
    return;
  if (command == "calibrate" || command == "lsp")
    usage(command + " takes no file, got `" + words[0] + "`");
  if (command == "explain") {
    if (words.size() > 1)
      usage("explain takes one code, got `" + words[0] + "` and `" + words[1] + "`");
    return;
  }
  std::vector<std::string> commands;
  for (auto &[name, sub] : flags.commands)
    if (!name.empty())
      commands.push_back(name.str());
  auto isCommand = [&](StringRef word) { return is_contained(commands, word.str()); };
  StringRef first = words[0];
  if (command.empty() && isCommand(first))
    usage("a command stands before all flags: cinch " + first + " ..");
  static const char *ofTheBinary[] = {"train", "eval", "predict", "generate", "info"};
  bool isFile = sys::fs::exists(first) && !(words.size() > 1 && is_contained(ofTheBinary, first)); // what -o has written, say
  if (command.empty() && !isFile && first.find_first_not_of("abcdefghijklmnopqrstuvwxyz-") == StringRef::npos) {
    std::string help = didYouMean(first.str(), commands);
    if (is_contained(ofTheBinary, first))
      help = ("it is one of the executable that cinch writes: cinch FILE -o EXE && ./EXE " + first).str();
    if (first == "import")
      help = "a program that torch.export has saved becomes a program by PYTHONPATH=tools python -m cinch_import net.pt2: docs/from-pytorch.md";
    usage("`" + first + "` is no command of cinch, and no program; there are " + joined(commands, " and ") +
          ", and cinch FILE compiles" + (help.empty() ? "" : "\n  help: ") + help);
  }
  if (words.size() > 1)
    usage(isCommand(words[1]) ? "a command stands first: cinch " + words[1] + " " + first
                              : "one program at a time, got `" + first + "` and `" + words[1] + "`");
}

// Every command takes its own flags and no others. LLVM's parser would also take those of the command that compiles.
static void checkArguments(const Flags &flags, ArrayRef<const char *> arguments) {
  StringRef command;
  cl::SubCommand *sub = flags.commands[0].second;
  for (auto &[name, each] : flags.commands)
    if (!arguments.empty() && !name.empty() && arguments[0] == name)
      command = name, sub = each;
  std::vector<StringRef> words;
  bool flagsEnded = false;
  for (size_t i = command.empty() ? 0 : 1; i < arguments.size(); ++i) {
    StringRef argument = arguments[i];
    if (flagsEnded || !argument.starts_with("-") || argument == "-") {
      words.push_back(argument);
      continue;
    }
    flagsEnded = argument == "--";
    if (flagsEnded)
      continue;
    cl::Option *option = flagOf(*sub, argument.ltrim('-'));
    if (!option)
      refuseFlag(flags, command, argument);
    // What LLVM's parser would say of values, it would say as text.
    StringRef word = argument.ltrim('-');
    bool takesOne = option->getValueExpectedFlag() == cl::ValueRequired;
    if (takesOne && word == option->ArgStr && ++i == arguments.size()) // its value
      usage("`" + argument + "` expects a value\n  help: " + argument + " " + option->ValueStr);
    if (!takesOne && option->getFormattingFlag() != cl::Prefix && word.contains('='))
      usage("`" + argument.split('=').first + "` takes no value, got `" + word.split('=').second + "`");
  }
  checkWords(flags, command, words);
}

static int64_t positive(const std::string &text, const char *flag) {
  int64_t number = 0;
  if (StringRef(text).getAsInteger(10, number) || number < 1)
    usage(Twine("--") + flag + " expects a whole number of at least 1, got '" + text + "'");
  return number;
}

static int positiveUpTo(int most, const std::string &text, const char *flag) {
  int64_t number = positive(text, flag);
  if (number > most)
    usage(Twine("--") + flag + " expects a number up to " + Twine(most) + ", got '" + text + "'");
  return int(number);
}

// --stages, --replicas, --shards, --schedule, --chunks.
static void readStages(const Flags &f, CommandLine &line) {
  if (f.stages.getNumOccurrences())
    line.stages = f.stages == "auto" ? 0 : positiveUpTo(kMostWorkers, f.stages, "stages");
  if (f.replicas.getNumOccurrences())
    line.replicas = positiveUpTo(kMostWorkers, f.replicas, "replicas");
  if (f.shards.getNumOccurrences()) {
    line.shards = positiveUpTo(kMostWorkers, f.shards, "shards");
    if (line.shards > 64)
      usage("--shards: at most 64 shards share a layer");
  }
  if (f.schedule.getNumOccurrences()) {
    line.schedule = f.schedule;
    solve::Schedule known;
    if (!solve::parseSchedule(line.schedule, known))
      usage("--schedule: nothing is called '" + line.schedule + "'; these are: " + solve::scheduleNames());
  }
  if (f.transportReserve.getNumOccurrences()) {
    auto bytes = parseBytes(f.transportReserve);
    if (!bytes || *bytes < 1 || *bytes > int64_t(1) << 50)
      usage("--transport-reserve expects a number of bytes with a unit (16MiB), got '" + f.transportReserve + "'");
    line.transportReserve = *bytes;
  }
  if (f.chunks.getNumOccurrences())
    line.chunks = positiveUpTo(1 << 10, f.chunks, "chunks");
}

// -D and --set.
static void readAssignments(const Flags &f, CommandLine &line) {
  for (const std::string &text : f.defines) {
    auto pair = parseAssignment(text);
    if (!pair)
      usage("-D expects NAME=VALUE, got '" + text + "'");
    line.check.defines.push_back(*pair);
  }
  for (const std::string &text : f.settings) {
    auto pair = parseAssignment(text);
    if (!pair)
      usage("--set expects KEY=VALUE, got '" + text + "'");
    line.check.settings.push_back(*pair);
  }
}

// LLVM's parser reads the words; what it finds wrong ends the compiler.
static void parseFlags(Flags &f, int argc, char **argv) {
  for (auto &[name, sub] : f.commands)
    cl::HideUnrelatedOptions(f.category, *sub);
  cl::SetVersionPrinter([](raw_ostream &out) { out << "cinch " << kVersion << "\nLLVM " << LLVM_VERSION_STRING << "\n"; });
  checkArguments(f, ArrayRef<const char *>(argv, argc).drop_front(std::min(argc, 1)));
  std::string problems;
  raw_string_ostream errors(problems);
  if (!cl::ParseCommandLineOptions(argc, argv,
                                   "cinch: compiles a training program to an executable that keeps a memory budget\n\n"
                                   "  cinch gpt.cinch --memory-budget 3GiB -o train && ./train\n",
                                   &errors)) {
    complain(problems, "usage");
    exit(2);
  }
}

static Command commandOf(Flags &f) {
  std::pair<cl::SubCommand *, Command> commands[] = {
      {&f.planCommand, Command::Plan},     {&f.checkCommand, Command::Check},         {&f.explainCommand, Command::Explain}, {&f.lspCommand, Command::Serve},
      {&f.fmtCommand, Command::Format},    {&f.calibrateCommand, Command::Calibrate}, {&f.solveCommand, Command::Solve}};
  for (auto [sub, command] : commands)
    if (*sub)
      return command;
  return Command::Compile;
}

// plan --cluster: nothing is compiled, so that only what describes the program goes with it.
static void readCluster(Flags &f, CommandLine &line) {
  if (f.cluster.empty())
    usage("--cluster expects the name of a file");
  for (cl::Option *option :
       std::initializer_list<cl::Option *>{&f.budget, &f.hostBudget, &f.remat, &f.microbatch, &f.rowBlocks, &f.report, &f.stages, &f.replicas, &f.shards, &f.schedule, &f.chunks})
    if (option->getNumOccurrences())
      usage("--" + option->ArgStr + " does not go with --cluster");
  line.cluster = f.cluster, line.json = f.json;
  readAssignments(f, line);
}

// What the planner may use, and what it is told to do.
static void readPlanning(const Flags &f, CommandLine &line) {
  auto readBytes = [](const cl::opt<std::string> &flag, std::optional<int64_t> &into) {
    if (!flag.getNumOccurrences())
      return;
    into = parseBytes(flag);
    int64_t bytes = 0; // as messages print them
    if (!into && !llvm::StringRef(flag).getAsInteger(10, bytes) && bytes >= 0)
      into = bytes;
    if (!into)
      usage("--" + flag.ArgStr + " expects a number with a unit (512MiB, 3GiB, 2GB) or of bytes, at most " + mostBytesText + ", got '" + flag + "'");
  };
  readBytes(f.budget, line.budget);
  if (line.budget && *line.budget > 0 && *line.budget < 1 << 20 && !parseBytes(f.budget)) {
    std::string number = std::to_string(*line.budget);
    line.withoutUnit = "  help: a number alone counts bytes; a unit stands behind it: " + number + "MiB, " + number + "GiB\n";
  }
  readBytes(f.hostBudget, line.hostBudget);
  line.remat = f.remat;
  solve::Strategy strategy;
  std::string problem;
  if (f.remat.getNumOccurrences() && !solve::parseStrategy(line.remat, strategy, problem))
    usage("--remat: " + problem);
  if (f.microbatch.getNumOccurrences())
    line.microbatch = f.microbatch == "auto" ? 0 : positive(f.microbatch, "microbatch");
  line.check.microbatchGiven = line.microbatch.has_value();
  if (f.orderSeed.getNumOccurrences() && StringRef(f.orderSeed).getAsInteger(10, line.orderSeed))
    usage("--order-seed expects a whole number, got '" + f.orderSeed + "'");
  if (f.rowBlocks.getNumOccurrences())
    line.rowBlocks = f.rowBlocks == "auto" ? 0 : f.rowBlocks == "none" ? -1 : positive(f.rowBlocks, "row-blocks");
  readStages(f, line);
  if (f.maxThreads.getNumOccurrences()) {
    constexpr int64_t kMost = 1024;
    if (positive(f.maxThreads, "max-threads") > kMost)
      usage("--max-threads: a worker has at most " + std::to_string(kMost) + " threads, got `" + f.maxThreads + "`");
    line.maxThreads = int(positive(f.maxThreads, "max-threads"));
  }
  line.profile = f.profile;
  if (f.profile.getNumOccurrences() && line.profile.empty())
    usage("--profile expects the name of a file, or none");
  line.planCache = !f.noPlanCache;
  line.kernelCache = !f.noKernelCache;
  line.ptxas = f.ptxas;
  line.saveNvvm = f.saveNvvm;
  line.bound = f.bound;
}

// The machine that the program is for, and what is made for it.
static void readProduct(const Flags &f, CommandLine &line) {
  std::string problem;
  if (auto target = analysis::parseTarget(f.target, problem))
    line.target = *target;
  else
    usage("--target: " + problem);
  line.cpu = f.cpu;
  if (f.stopAfter.getNumOccurrences()) {
    std::string names;
    for (Phase phase : {Phase::Parsed, Phase::Differentiated, Phase::Planned, Phase::Scheduled, Phase::Lowered, Phase::LLVM}) {
      names += (names.empty() ? "" : ", ") + std::string(phaseName(phase));
      if (f.stopAfter == phaseName(phase))
        line.stopAfter = phase;
    }
    if (!line.stopAfter)
      usage("--stop-after: no phase is called '" + f.stopAfter + "' (" + names + ")");
  }
  line.emit = f.emit;
  static const char *kinds[] = {"nn", "plan", "kernels", "llvm", "asm", "nvvm", "ptx", "obj", "lib", "exe"};
  if (!is_contained(kinds, StringRef(line.emit)))
    usage("--emit: nothing is called '" + f.emit + "' (nn, plan, kernels, llvm, asm, nvvm, ptx, obj, lib, exe)");
  if ((line.emit == "ptx" || line.emit == "nvvm") && !line.target.isDevice())
    usage("--emit " + line.emit + " is about a GPU; it needs --target nvidia");
  if (!line.saveNvvm.empty() && !line.target.isDevice())
    usage("--save-nvvm is about a GPU; it needs --target nvidia");
  if (f.report.getNumOccurrences() && (line.stopAfter ? *line.stopAfter < Phase::Planned : line.emit == "nn"))
    usage("--report is about a plan, and " + (line.stopAfter ? "--stop-after " + f.stopAfter : "--emit nn") + " ends before there is one");
  line.output = f.output;
  line.hasOutput = f.output.getNumOccurrences() > 0;
}

// What is said, and how.
static void readMessages(const Flags &f, CommandLine &line) {
  line.json = f.json;
  line.report = f.report;
  if (f.report.getNumOccurrences() && line.report.empty())
    usage("--report expects the name of a file");
  if (f.format != "text" && f.format != "json")
    usage("--diagnostics-format is text or json, not '" + f.format + "'");
  line.jsonDiagnostics = f.format == "json";
  line.remarks = f.remarks == "all" ? ".*" : std::string(f.remarks);
  if (f.remarks.getNumOccurrences() && !Regex(line.remarks).isValid())
    usage("--remarks expects plan, remat, kernels, all or a regular expression, got '" + f.remarks + "'");
  line.color = f.color;
}

// Equal for two paths to one file, whether it is there or not yet.
static std::string placeOf(const std::string &path) {
  SmallString<256> whole(path), real;
  sys::fs::make_absolute(whole);
  if (!sys::fs::real_path(whole, real))
    return real.str().str();
  if (!sys::fs::real_path(sys::path::parent_path(whole), real)) {
    sys::path::append(real, sys::path::filename(whole));
    return real.str().str();
  }
  sys::path::remove_dots(whole, true);
  return whole.str().str();
}

LibraryFiles libraryFiles(const CommandLine &line, const std::string &modelName) {
  SmallString<256> folder(line.hasOutput ? line.output : modelName);
  if (folder.ends_with("/")) // a folder is named, and nothing in it
    folder += modelName;
  StringRef last = sys::path::filename(folder);
  if (last.consume_back(".so") || last.consume_back(".a")) // the library itself was named, not what it is called in it
    last.consume_front("lib");
  const std::string name = last.empty() ? modelName : last.str();
  sys::path::remove_filename(folder);
  auto in = [&](const std::string &file) {
    SmallString<256> path(folder);
    sys::path::append(path, file);
    return path.str().str();
  };
  return {in("lib" + name + ".a"), in("lib" + name + ".so"), in(name + ".h")};
}

static bool makesLibrary(const CommandLine &line) { return line.command == Command::Compile && !line.stopAfter && line.emit == "lib"; }

std::vector<Output> outputsOf(const CommandLine &line, const std::string &modelName) {
  std::vector<Output> outputs;
  if (makesLibrary(line)) {
    LibraryFiles files = libraryFiles(line, modelName);
    outputs = {{"-o", files.archive}, {"-o", files.shared}, {"-o", files.header}};
  } else if (line.command == Command::Compile) {
    outputs = {{"-o", line.output}};
  }
  for (const Output &other : {Output{"--report", line.report}, Output{"--save-nvvm", line.saveNvvm}})
    if (!other.file.empty())
      outputs.push_back(other);
  return outputs;
}

// What is written takes the place of nothing that is read, which would be lost, nor of one another.
void keepInputs(const CommandLine &line, const std::string &modelName) {
  const std::vector<Output> outputs = outputsOf(line, modelName);
  for (const Output &output : outputs)
    for (const std::string &input : {line.input, line.profile})
      if (!input.empty() && sys::fs::equivalent(output.file, input))
        usage(Twine(output.flag) + " " + output.file + " would be written over " + input + ", which is read; choose another name");
  for (const Output &one : outputs)
    for (const Output &other : outputs)
      if (&one < &other && placeOf(one.file) == placeOf(other.file))
        usage(Twine(one.flag) + " " + one.file + " and " + other.flag + " " + other.file + " name one file");
}

// A product is a file of its own: its last step is a rename.
static void checkProductName(const CommandLine &line) {
  if (line.command != Command::Compile || line.stopAfter || !line.hasOutput || (line.emit != "lib" && line.emit != "exe"))
    return;
  if (line.output == "-")
    usage("-o -: " + Twine(line.emit == "lib" ? "a library" : "an executable") + " is not written to standard output; name a file (./- is one)");
  StringRef last = sys::path::filename(line.output);
  if (line.emit == "lib" && !StringRef(line.output).ends_with("/") && (last == "." || last == ".."))
    usage("-o " + line.output + " names a folder, and no library; " + line.output + "/ is one in it that is called as the model is, " + line.output + "/NAME another one");
}

// Flags of a program go with --tune, which names one.
static void readCalibrate(Flags &f, CommandLine &line) {
  line.output = f.profileOutput;
  line.input = f.tune;
  if (f.tune.getNumOccurrences() && line.input.empty())
    usage("--tune expects the name of a program");
  for (cl::Option *option : std::initializer_list<cl::Option *>{&f.budget, &f.remat, &f.microbatch, &f.rowBlocks, &f.maxThreads, &f.tuneTime,
                                                                std::addressof(f.defines), std::addressof(f.settings)}) // `&` of a list is its strings
    if (line.input.empty() && option->getNumOccurrences())
      usage("--" + option->ArgStr + " of calibrate goes with --tune FILE.cinch");
  readPlanning(f, line);
  readAssignments(f, line);
  if (f.tuneTime.getNumOccurrences() && (StringRef(f.tuneTime).getAsDouble(line.tuneSeconds) || !(line.tuneSeconds > 0) || line.tuneSeconds > 1e6))
    usage("--time-limit expects a number of seconds above 0, got '" + f.tuneTime + "'");
}

CommandLine parseCommandLine(int argc, char **argv) {
  CommandLine line;
  cl::ResetCommandLineParser();
  auto known = cl::getRegisteredOptions();
  if (auto it = known.find("color"); it != known.end())
    it->second->removeArgument();
  static Flags f; // lives on: lld reads options of its own later
  parseFlags(f, argc, argv);
  line.command = commandOf(f);
  switch (line.command) {
  case Command::Serve:
    return line;
  case Command::Solve:
    line.rest.assign(argv + 2, argv + argc);
    return line;
  case Command::Calibrate:
    readCalibrate(f, line);
    return line;
  case Command::Format:
    line.rest.assign(f.files.begin(), f.files.end());
    line.formatCheck = f.fmtCheck;
    line.color = f.color;
    if (line.rest.empty())
      usage("fmt expects programs, or - for standard input");
    return line;
  case Command::Explain:
    line.input = f.code;
    if (line.input.empty())
      usage("explain expects an error code, such as E0203");
    break;
  default:
    line.input = f.input;
    if (line.input.empty())
      usage("no input file (cinch --help says what to write)");
  }
  if (f.cluster.getNumOccurrences()) {
    readCluster(f, line);
    return line;
  }
  readPlanning(f, line);
  readProduct(f, line);
  readAssignments(f, line);
  readMessages(f, line);
  checkProductName(line);
  if (!makesLibrary(line)) // that of a library may be the model's
    keepInputs(line, "");
  return line;
}

} // namespace cinch
