// Options.h: the command line of cinch.
#ifndef CINCH_COMPILER_TOOLS_OPTIONS_H
#define CINCH_COMPILER_TOOLS_OPTIONS_H

#include "compiler/analysis/Target.h"
#include "compiler/frontend/Check.h"
#include "compiler/transforms/Phase.h"

#include <optional>
#include <string>
#include <vector>

namespace cinch {

constexpr int kMostWorkers = 1 << 16; // that share a step; more are no plan, but a slip

enum class Command { Compile, Plan, Check, Format, Explain, Solve, Calibrate, Serve };

struct CommandLine {
  Command command = Command::Compile;
  std::string input;               // the file, or the code to explain; calibrate: the program to tune, "": none
  double tuneSeconds = 120;        // calibrate --tune: --time-limit
  std::vector<std::string> rest;   // solve: its own arguments; fmt: the files
  bool formatCheck = false;        // fmt --check
  std::string output = "a.out";
  bool hasOutput = false;          // -o was given; else texts go to standard output, and a library is called as the model is
  std::optional<int64_t> budget;   // --memory-budget
  std::string withoutUnit;         // what to say if it is so few bytes that a unit may be missing, and no plan fits
  std::optional<int64_t> hostBudget; // --host-memory-budget
  std::string remat;               // "": as the file says
  std::optional<int64_t> microbatch; // 0: auto
  uint64_t orderSeed = 0;          // --order-seed; 0: the best order found
  int64_t rowBlocks = 0;           // rows of a block; 0: auto, -1: none
  int maxThreads = 0;              // --max-threads; 0: by processors and workers
  std::optional<int> stages;       // --stages; 0: auto
  std::optional<int> replicas;     // --replicas; none: as the file says
  std::optional<int> shards;       // --shards; none: as the file says
  std::string schedule;            // --schedule; "": as the file says
  int chunks = 0;                  // --chunks; 0: by the schedule
  int64_t transportReserve = 0;    // --transport-reserve
  std::string cpu;
  analysis::Target target;         // --target
  std::optional<Phase> stopAfter;
  std::string emit = "exe";
  Options check;                   // -D, --set
  bool json = false;               // plan --json
  bool bound = false;              // plan --bound
  std::string cluster;             // plan --cluster: a file; "": this machine
  bool planCache = true, kernelCache = true;
  std::string ptxas; // NVIDIA's assembler; "": the one that is found, "none"
  std::string saveNvvm;            // the file; "": none
  std::string profile;             // --profile: a file, "none", or "": the stored one if there is one
  std::string report;              // page to write; "": none
  bool jsonDiagnostics = false;
  std::string color = "auto";
  std::string remarks;             // which remarks are printed; "": none
};

// Exits with 2 on what is no valid command line, with 0 after --help.
CommandLine parseCommandLine(int argc, char **argv);

// The static library, the shared one and the header that --emit=lib writes: -o DIR/NAME is DIR/libNAME.a, DIR/libNAME.so, DIR/NAME.h. Without a
// name it is the model's.
struct LibraryFiles {
  std::string archive, shared, header;
};
LibraryFiles libraryFiles(const CommandLine &, const std::string &modelName);

// A file that is written, and the flag that names it.
struct Output {
  const char *flag;
  std::string file;
};
// All that the command writes.
std::vector<Output> outputsOf(const CommandLine &, const std::string &modelName);
// Exits with 2 if one of them would be written over what is read, or over another. Done by parseCommandLine where no name is the model's.
void keepInputs(const CommandLine &, const std::string &modelName);

} // namespace cinch
#endif
