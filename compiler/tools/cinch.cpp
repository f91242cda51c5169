// cinch: from a .cinch file to an executable. Reads options, runs the phases, writes what was asked for.
//
// Exit codes: 0; 1 the program has errors or its budget cannot be met; 2 usage; 5 resources (an output cannot be written); 70 an
// internal error, which is the compiler's fault.
#include "compiler/analysis/Profile.h"
#include "compiler/calibrate/Calibrate.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"
#include "compiler/phases/Compile.h"
#include "compiler/phases/InternalError.h"
#include "compiler/report/Page.h"
#include "compiler/report/PlanJson.h"
#include "compiler/report/PlanTable.h"
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/PlanCache.h"
#include "compiler/solve/cluster/Cluster.h"
#include "compiler/solve/stages/Split.h"
#include "compiler/target/Assemble.h"
#include "compiler/target/LowerKernels.h"
#include "compiler/target/Object.h"
#include "compiler/tools/Complain.h"
#include "compiler/tools/Fmt.h"
#include "compiler/tools/GptShape.h"
#include "compiler/tools/LanguageServer.h"
#include "compiler/tools/Options.h"
#include "compiler/tools/Product.h"
#include "compiler/tools/Refusal.h"
#include "compiler/tools/Waiting.h"
#include "compiler/tools/Workers.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/MLIRContext.h"
#include "mlir/IR/Remarks.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <cmath>
#include <malloc.h>
#include <sched.h>

using namespace cinch;

// Prints to -o FILE, or to standard output.
static int printText(const CommandLine &line, const std::string &text) {
  if (line.hasOutput)
    return writeOutput(line.output, text);
  llvm::outs() << text;
  return 0;
}

static int printModule(const CommandLine &line, mlir::ModuleOp module) {
  std::string text;
  llvm::raw_string_ostream out(text);
  mlir::OpPrintingFlags flags;
  module->print(out, flags);
  return printText(line, text);
}

// Threads that can run at once.
static int processors() {
  cpu_set_t allowed;
  return sched_getaffinity(0, sizeof allowed, &allowed) == 0 ? CPU_COUNT(&allowed) : 1;
}

// The costs to plan with, and measured tilings of products: of the profile that was named, of the stored one if it was measured on the CPU that is compiled
// for, or the built-in ones. False after a message.
static bool chooseCosts(const CommandLine &line, CompileOptions &options) {
  if (line.profile == "none")
    return true;
  std::string path = line.profile.empty() ? analysis::defaultProfilePath() : line.profile;
  if (path.empty() || (line.profile.empty() && !llvm::sys::fs::exists(path)))
    return true;
  std::string text, problem;
  if (!readFile(path, text, problem)) {
    complain("cinch: cannot read the profile '" + path + "': " + problem + "\n", "input");
    return false;
  }
  analysis::Profile profile;
  if (!analysis::parseProfile(text, profile, problem)) {
    complain("cinch: the profile '" + path + "' cannot be used: " + problem +
                 "\n  help: cinch calibrate writes it anew; --profile none plans with built-in costs\n",
             "input");
    return false;
  }
  std::string cpu = line.cpu.empty() || line.cpu == "native" ? llvm::sys::getHostCPUName().str() : line.cpu;
  if (line.profile.empty() && profile.cpu != cpu)
    return true;
  options.target.cpu.costs.source = "costs measured on " + profile.cpu;
  options.target.cpu.costs.measured = std::move(profile.measured);
  if (!profile.tiles.tilings.empty())
    options.target.cpu.kernels.tiles = std::make_shared<kernels::TileTable>(std::move(profile.tiles));
  return true;
}

// The status of a phase that failed: its errors tell why, and the driver says them.
constexpr int kInternal = 70;

// Why a compilation has to be done once more, if it has.
struct Again {
  int64_t missing = 0;  // bytes by which the executable has outgrown what its plan allows for it: it is not kept
  bool leanest = false; // with what was missing nothing fits, but the smallest plan of all may: its code may be shorter
  bool fitted = false;  // so far: some plan has fitted until its code was known
  int64_t spare = 0;    // bytes that were planned for the executable, which it does not need: a plan with them may be faster
  bool spared = false;  // so far: that was tried
  bool any() const { return missing > 0 || leanest || spare > 0; }
};
static int compileOnce(const CommandLine &line, const Program &program, const SourceList &sources, const char *self,
                       mlir::MLIRContext &context, const CompileOptions &options, Again &again);

static int compile(const CommandLine &line, const Program &program, const SourceList &sources, const char *self) {
  mlir::DialectRegistry registry;
  registry.insert<nn::NNDialect, plan::PlanDialect, mlir::func::FuncDialect>();
  target::registerKernelDialects(registry);
  // There are few functions, and kernels are compiled by threads with contexts of their own. Caches of threads would take 12 MB of a deep program.
  mlir::MLIRContext context(registry, mlir::MLIRContext::Threading::DISABLED);
  context.loadAllAvailableDialects();
  PassErrors errors(context, !line.remarks.empty());

  if (!line.remarks.empty()) {
    mlir::remark::RemarkCategories categories{line.remarks, line.remarks, std::nullopt, std::nullopt, std::nullopt};
    if (failed(mlir::remark::enableOptimizationRemarks(
            context, nullptr, std::make_unique<mlir::remark::RemarkEmittingPolicyAll>(), categories, true)))
      return internalError("remarks cannot be printed");
  }

  CompileOptions options;
  options.budget = line.budget;
  if (!options.budget && program.plan.memory > 0)
    options.budget = program.plan.memory;
  options.hostBudget = line.hostBudget;
  if (options.hostBudget && !line.target.isDevice()) {
    complain("cinch: --host-memory-budget is for a program on a GPU (--target nvidia); what a CPU computes lies in its memory anyway\n", "usage");
    return 2;
  }
  options.microbatch = line.microbatch ? *line.microbatch : program.plan.microbatch;
  options.remat = line.remat.empty() ? program.plan.remat : line.remat;
  options.rowBlocks = line.rowBlocks;
  options.orderSeed = line.orderSeed;
  options.target = line.target;
  options.target.cpu.name = line.cpu;
  options.target.cpu.kernels = target::infoOf(line.cpu);
  options.tradeOff = line.command == Command::Plan || !line.report.empty();
  options.bound = line.bound;
  if (!chooseCosts(line, options))
    return 2;
  if (line.planCache)
    options.planCache = solve::PlanCache::defaultFolder();
  if (std::string folder = solve::PlanCache::defaultFolder(); line.kernelCache && !folder.empty())
    options.kernelCache = folder + "/kernels";
  options.deviceIr = !line.saveNvvm.empty() || line.emit == "nvvm";
  if (line.target.isDevice() && line.command == Command::Compile && !line.stopAfter && (line.emit == "exe" || line.emit == "lib"))
    options.assembler = line.ptxas == "none" ? "" : line.ptxas.empty() ? target::findAssembler() : line.ptxas;
  if (int status = readWorkers(line, program, options))
    return status;
  if (options.target.isDevice() && options.shards > 1) {
    complain("error: shards with a GPU are not there yet\n  help: --shards 1, or --target cpu\n", "refused");
    return 1;
  }
  if (options.stages == 0) {
    Waiting waiting("planning " + line.input);
    setStages(line, program, fewestWorkers(line, context, program, sources, options), options);
  }
  int status = 0;
  Again again;
  std::optional<int64_t> sure; // what was granted to an executable with bytes to spare
  do {
    options.leanest |= again.leanest;
    if (again.spare > 0 && again.fitted)
      sure = options.granted;
    const int64_t wanted = options.granted + std::max<int64_t>(again.missing, 0) - again.spare;
    options.granted = again.leanest ? 0 : again.missing > 0 && sure ? *sure : wanted; // the code of the plan with spare bytes may have been longer
    again = {0, false, again.fitted, 0, again.spared || again.spare > 0};
    status = compileOnce(line, program, sources, self, context, options, again);
  } while (status == 0 && again.any());
  if (status == kInternal || !errors.text.empty())
    return internalError(errors.text.empty() ? "a phase failed and does not say why" : errors.text);
  return status;
}

// What was decided, as far as it is asked for: the refusal, the report, the plan. A status if nothing is left to be done.
static std::optional<int> showDecision(const CommandLine &line, const Program &program, const SourceList &sources, mlir::MLIRContext &context,
                                       const CompileOptions &options, Compilation &compilation, llvm::raw_ostream &refusal) {
  if (!compilation.refusal.empty()) {
    complain("error: " + compilation.refusal + "\n", "refused");
    return 1;
  }
  int64_t budget = options.budget.value_or(0);
  if (compilation.refused) {
    bool chosen = areChosen(line, program); // all numbers were tried
    int enough = options.workers() > 1 && !chosen ? moreWorkers(line, context, program, sources, options, compilation.workers.bound) : 0;
    int64_t host = compilation.entries.front().outcome.hostWouldDo;
    if (options.workers() > 1 && options.target.isDevice() && !options.hostBudget)
      host = hostMemoryThatFits(context, program, sources, options);
    printRefusal(refusal, compilation, sources, budget, enough, host, chosen);
    refusal << line.withoutUnit;
  }
  if (!line.report.empty()) // of what is refused: the smallest plan
    if (int status = writeOutput(line.report, report::page(report::planJson(compilation, sources, budget))))
      return status;
  if (compilation.refused)
    return 1;
  if (compilation.workers.ownSteps == OwnSteps::Hogwild)
    complain("warning: combine hogwild: the replicas update the same parameters without locks, so that two runs may differ\n", "hogwild");
  if (line.command != Command::Plan)
    return std::nullopt;
  if (line.json)
    report::printObject(llvm::outs(), report::planJson(compilation, sources, budget));
  else
    report::printPlan(llvm::outs(), compilation, sources);
  if (!line.json && compilation.isLimited() && compilation.spareOf(compilation.allowance() / 8) > 0)
    llvm::outs() << "\nnote: `plan` guesses how long the code is; compiling measures it, and what it needs less goes to the plan\n";
  return 0;
}

// The code of the plan: the kernels, and the object of all else.
static bool generate(const CommandLine &line, Compilation &compilation, llvm::SmallVectorImpl<char> &object) {
  Waiting waiting("generating code for " + line.input);
  malloc_trim(0); // of what the passes held
  if (!compilation.compileKernels(processors()) || !compilation.lowerToLLVM())
    return false;
  malloc_trim(0); // of what the planned program held; LLVM asks for blocks of other sizes
  return succeeded(compilation.emitObject(object, /*assembly=*/false));
}

// The budget that a refusal names holds a guess of the size of the code. So the smallest plan is compiled before it is named, and nothing is
// written; kernels that are kept serve whoever compiles it then. `missing`: as in linkProduct.
static int measureRefused(const CommandLine &line, Compilation &compilation, const char *self, const CompileOptions &options, int64_t &missing) {
  llvm::SmallVector<char> object;
  if (!compilation.applyPlan(Phase::Scheduled) || !compilation.lower() || !generate(line, compilation, object))
    return kInternal;
  compilation.kernels = nullptr;
  return measureProduct(compilation, {object.data(), object.size()}, self, options, missing);
}

// Of several workers the smallest plans are made once more, as they are for the budget that is named: a refusal has none of them left.
static int measureRefusedWorkers(const CommandLine &line, const Program &program, const SourceList &sources, mlir::MLIRContext &context,
                                 CompileOptions options, int64_t named, const char *self, int64_t &missing) {
  options.budget = named, options.tradeOff = false, options.bound = false;
  Compilation compilation(context, program, sources, options);
  if (!compilation.parse() || !compilation.differentiate() || !compilation.decide())
    return kInternal;
  return compilation.refused || !compilation.refusal.empty() ? 0 : measureRefused(line, compilation, self, options, missing);
}

static bool makesExecutable(const CommandLine &line) {
  return line.command == Command::Compile && !line.stopAfter && (line.emit == "exe" || line.emit == "lib");
}

// Says that the budget cannot be met, with the smallest one as it is measured. Nothing is said where what was measured lets all be planned again.
static int refuse(const CommandLine &line, const Program &program, const SourceList &sources, mlir::MLIRContext &context, const CompileOptions &options,
                  const char *self, Compilation &compilation, std::string said, Again &again) {
  const bool executable = makesExecutable(line), ofExecutable = executable || (line.command == Command::Plan && line.emit == "exe");
  again.leanest = again.fitted && options.workers() == 1 && !options.leanest;
  if (again.leanest)
    return 0;
  int failed = 0;
  if (ofExecutable && !options.target.isDevice()) {
    if (options.workers() == 1)
      failed = measureRefused(line, compilation, self, options, again.missing);
    else if (executable)
      failed = measureRefusedWorkers(line, program, sources, context, options, compilation.smallestBudget(), self, again.missing);
    else // compiling the code of many workers takes many times as long as planning them
      said += "  note: `plan` guesses how long the code of several workers is; compiling without `plan` measures it\n";
  }
  if (failed || again.missing > 0)
    return failed;
  again.spare = again.spared ? 0 : compilation.spareOf(-again.missing);
  if (again.spare > 0)
    return 0;
  complain(said, "budget");
  return 1;
}

static int compileOnce(const CommandLine &line, const Program &program, const SourceList &sources, const char *self,
                       mlir::MLIRContext &context, const CompileOptions &options, Again &again) {
  Compilation compilation(context, program, sources, options);
  auto stops = [&](Phase phase) { return line.stopAfter && *line.stopAfter == phase; };
  const bool executable = makesExecutable(line);
  if (!compilation.parse())
    return kInternal;
  if (stops(Phase::Parsed) || (line.emit == "nn" && !line.stopAfter))
    return printModule(line, *compilation.module);
  if (!compilation.differentiate())
    return kInternal;
  if (!compilation.refusal.empty()) {
    complain("error: " + compilation.refusal + "\n", "refused");
    return 1;
  }
  if (stops(Phase::Differentiated))
    return printModule(line, *compilation.module);
  {
    Waiting waiting("planning " + line.input);
    if (!compilation.decide())
      return kInternal;
  }
  std::string said;
  llvm::raw_string_ostream refusal(said);
  if (std::optional<int> status = showDecision(line, program, sources, context, options, compilation, refusal)) {
    if (said.empty())
      return *status;
    const int refused = refuse(line, program, sources, context, options, self, compilation, said, again);
    return refused == 1 ? *status : refused; // the report may not have been written
  }
  const bool isLimited = compilation.isLimited();
  malloc_trim(0); // of what the search held: the ops of the plan are of other sizes
  if (!compilation.applyPlan(stops(Phase::Planned) ? Phase::Planned : Phase::Scheduled))
    return kInternal;
  if (line.command == Command::Calibrate)
    return calibrate::tune(*compilation.module, line.output, processors(), line.tuneSeconds);
  if (stops(Phase::Planned) || stops(Phase::Scheduled) || (line.emit == "plan" && !line.stopAfter))
    return printModule(line, *compilation.module);
  if (!compilation.lower())
    return kInternal;
  if (stops(Phase::Lowered) || (line.emit == "kernels" && !line.stopAfter))
    return printModule(line, *compilation.kernels);
  llvm::SmallVector<char> object;
  if (executable ? !generate(line, compilation, object) : !compilation.lowerToLLVM())
    return kInternal;
  if (!line.saveNvvm.empty())
    if (int status = writeOutput(line.saveNvvm, compilation.deviceCode.ir))
      return status;
  if (line.emit == "ptx" || line.emit == "nvvm")
    return printText(line, line.emit == "ptx" ? compilation.deviceCode.ptx : compilation.deviceCode.ir);
  if (stops(Phase::LLVM) || line.emit == "llvm")
    return printModule(line, *compilation.kernels);
  if (!executable && failed(compilation.emitObject(object, line.emit == "asm")))
    return kInternal;
  llvm::StringRef text(object.data(), object.size());
  if (line.emit == "asm" || line.emit == "obj")
    return writeOutput(line.output, text);
  compilation.kernels = nullptr;
  malloc_trim(0); // the linker maps what it reads and writes
  if (const int status = linkProduct(line, program, compilation, text, self, options, again.missing))
    return status;
  again.fitted = true;
  again.spare = again.missing < 0 && isLimited && !again.spared ? compilation.spareOf(-again.missing) : 0;
  if (!again.any() && line.emit != "lib") // a library's stands beside its files
    printSummary(compilation);
  return 0;
}

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
  return compile(line, *program, sources, argv[0]);
}
