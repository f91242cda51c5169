// cinch: from a .cinch file to an executable. Reads options, and hands each command to its part.
//
// Exit codes: 0; 1 the program has errors or its budget cannot be met; 2 usage; 5 resources (an output cannot be written); 70 an
// internal error, which is the compiler's fault.
#include "compiler/analysis/Profile.h"
#include "compiler/calibrate/Calibrate.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"
#include "compiler/phases/InternalError.h"
#include "compiler/solve/cluster/Cluster.h"
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/stages/Split.h"
#include "compiler/target/Object.h"
#include "compiler/tools/CompileProgram.h"
#include "compiler/tools/Complain.h"
#include "compiler/tools/Fmt.h"
#include "compiler/tools/GptShape.h"
#include "compiler/tools/LanguageServer.h"
#include "compiler/tools/Options.h"
#include "compiler/tools/Product.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <cmath>
#include <malloc.h>

using namespace cinch;

// A GPT's program on a cluster.
static int planCluster(const CommandLine &line, const Program &program) {
  solve::GptModel model;
  if (std::string why = gptShape(program, model); !why.empty()) {
    complain("error: plan --cluster is for GPTs, and " + line.input + " is none: " + why + "\n", "refused");
    return 1;
  }
  if (double own = parametersOf(program), taken = model.parameters(); std::abs(own - taken) > 0.1 * taken)
    llvm::errs() << llvm::format("note: the program has %.4g parameters, a GPT of its sizes %.4g; planned as the latter\n", own, taken);
  return solve::solveClusterMain({line.input, "--cluster", line.cluster}, !line.json, &model);
}

// What is written takes the place of no data file that the program names; an executable was written by us, or is no data.
static bool keepsData(const CommandLine &line, const Program &program) {
  std::vector<std::string> read;
  for (const Dataset &data : program.datasets)
    read.insert(read.end(), data.files.begin(), data.files.end());
  if (!program.train.initFile.empty())
    read.push_back(program.train.initFile);
  for (const auto &[flag, output] : outputsOf(line, program.modelName))
    for (const std::string &file : read)
      if ((output == file || llvm::StringRef(output).ends_with("/" + file)) && llvm::sys::fs::exists(output) && !llvm::sys::fs::can_execute(output)) {
        complain("cinch: " + std::string(flag) + " " + output + " would be written over a data file of the program; choose another name\n", "output");
        return false;
      }
  return true;
}

// `calibrate` alone is done here. With --tune nothing is returned: the program is read and compiled like any other.
static std::optional<int> prepareCalibrate(CommandLine &line, const char *program) {
  if (line.output.empty()) {
    line.output = analysis::defaultProfilePath(); // nothing but profiles lies there
  } else if (!calibrate::mayReplace(line.output)) {
    complain("cinch: '" + line.output + "' is there, and it is no profile of `cinch calibrate`; choose another name, or remove it first\n", "output");
    return 2;
  }
  if (line.input.empty())
    return calibrate::calibrate(ownFile(program), line.output, processors());
  line.profile = line.output; // the plan is the one that a compilation makes with it
  return std::nullopt;
}

// Tilings are added to a profile: a machine that has none is measured first.
static int provideProfile(const CommandLine &line, const char *program) {
  std::string problem;
  bool has = calibrate::hasProfile(line.output, problem);
  if (!problem.empty()) {
    llvm::errs() << "cinch: the profile '" << line.output << "' cannot be used: " << problem << "\n  help: cinch calibrate writes it anew\n";
    return 2;
  }
  return has ? 0 : calibrate::calibrate(ownFile(program), line.output, processors());
}

int main(int argc, char **argv) {
  catchFatalErrors();
  // Passes over several functions run side by side, and none takes bytes that another arena has freed: few arenas keep the peak low. With one,
  // the threads that generate kernels wait for one another.
  mallopt(M_ARENA_MAX, 2);
  chooseFormat(argc, argv);
  CommandLine line = parseCommandLine(argc, argv);
  if (line.command == Command::Solve) {
    std::vector<std::string> arguments(line.rest.begin() + (line.rest.empty() ? 0 : 1), line.rest.end());
    if (!line.rest.empty() && line.rest[0] == "remat")
      return solve::solveRematMain(arguments);
    if (!line.rest.empty() && line.rest[0] == "arena")
      return solve::solveArenaMain(arguments);
    if (!line.rest.empty() && line.rest[0] == "stages")
      return solve::solveStagesMain(arguments);
    if (!line.rest.empty() && line.rest[0] == "cluster")
      return solve::solveClusterMain(arguments);
    llvm::errs() << "cinch: solve expects remat, arena, stages or cluster\n";
    return 2;
  }
  if (line.command == Command::Plan && !line.cluster.empty() && !llvm::StringRef(line.input).ends_with(".cinch"))
    return solve::solveClusterMain({line.input, "--cluster", line.cluster}, !line.json);
  if (line.command == Command::Calibrate)
    if (std::optional<int> status = prepareCalibrate(line, argv[0]))
      return *status;
  if (line.command == Command::Serve)
    return serveLanguage();
  if (line.command == Command::Format)
    return formatFiles(line.rest, line.formatCheck, line.color);
  if (line.command == Command::Explain) {
    std::string text = explainCode(line.input);
    if (text.empty()) {
      llvm::errs() << "cinch: no error has the code '" << shortened(line.input) << "'; these exist:\n" << listCodes();
      return 2;
    }
    llvm::outs() << text << "\n";
    return 0;
  }
  SourceList sources;
  std::string error;
  int file = sources.addFile(line.input, error);
  if (file < 0) {
    complain("cinch: cannot read '" + shortened(line.input) + "': " + error + "\n", "input");
    return 2;
  }
  Diagnostics diagnostics(sources);
  ast::File prelude = parseFile(sources, 0, diagnostics);
  ast::File tree = parseFile(sources, file, diagnostics);
  std::optional<Program> program;
  if (!diagnostics.hasErrors())
    program = check(sources, prelude, tree, line.check, diagnostics);
  PrintOptions print;
  print.json = line.jsonDiagnostics;
  print.color = wantsColor(llvm::errs(), line.color);
  diagnostics.print(llvm::errs(), print);
  if (!program || diagnostics.hasErrors())
    return 1;
  if (std::string fault = verifyProgram(*program); !fault.empty())
    return internalError("the checker's program breaks a rule: " + fault);
  if (line.command == Command::Check)
    return 0;
  keepInputs(line, program->modelName);
  if (!keepsData(line, *program))
    return 2;
  if (line.command == Command::Plan && !line.cluster.empty())
    return planCluster(line, *program);
  std::string unknown;
  if (!target::createMachine(line.cpu, &unknown)) {
    complain("cinch: --cpu: " + unknown + "\n", "usage");
    return 2;
  }
  if (line.command == Command::Calibrate)
    if (int status = provideProfile(line, argv[0]))
      return status;
  return compileProgram(line, *program, sources, argv[0]);
}
