// Pipeline.cpp: see Pipeline.h.
#include "compiler/target/Pipeline.h"

#include "llvm/IR/Module.h"
#include "llvm/IR/PassInstrumentation.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Target/TargetMachine.h"

using namespace llvm;

namespace cinch::target {

void optimize(Module &module, TargetMachine &machine, bool unrolls) {
  PipelineTuningOptions tuning;
  tuning.LoopVectorization = false;
  tuning.SLPVectorization = false;
  tuning.LoopInterleaving = false;
  if (!unrolls)
    tuning.LoopUnrolling = false;
  // Of what is left, one pass costs a twelfth of the whole and has never changed an instruction of a kernel: it looks for what a loop stores
  // and reads again in its next trip, which our loops keep in registers.
  PassInstrumentationCallbacks callbacks;
  callbacks.registerShouldRunOptionalPassCallback([&](StringRef pass, Any) { return unrolls || pass != "LoopLoadEliminationPass"; });
  PassBuilder builder(&machine, tuning, std::nullopt, &callbacks);
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager sccs;
  ModuleAnalysisManager modules;
  builder.registerModuleAnalyses(modules);
  builder.registerCGSCCAnalyses(sccs);
  builder.registerFunctionAnalyses(functions);
  builder.registerLoopAnalyses(loops);
  builder.crossRegisterProxies(loops, functions, sccs, modules);
  builder.buildPerModuleDefaultPipeline(OptimizationLevel::O2).run(module, modules);
}

} // namespace cinch::target
