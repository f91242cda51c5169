// Pipeline.cpp: see Pipeline.h.
#include "compiler/target/Pipeline.h"

#include "llvm/IR/Module.h"
#include "llvm/Passes/PassBuilder.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Target/TargetMachine.h"

using namespace llvm;

namespace cinch::target {

// What LLVM's O2 does to a kernel of a CPU, in its order, without what changes none: inlining, work on globals, vectorisers, unrolling, and passes over
// a function without which the kernels of whole models came out the same to the instruction.
static constexpr const char *kPasses =
    "function("
    // The descriptors of memrefs go, and so do conditions that constant sizes decide.
    "simplifycfg,early-cse,sccp,instcombine<no-verify-fixpoint>,early-cse<memssa>,correlated-propagation,instcombine<no-verify-fixpoint>,"
    "simplifycfg<switch-range-to-icmp>,reassociate,constraint-elimination,"
    // Loops: tests at their ends, invariant work in front of them; those that clear memory become calls, those of one trip go.
    "loop-mssa(licm<no-allowspeculation>,loop-rotate<header-duplication>,licm),simplifycfg<switch-range-to-icmp>,instcombine<no-verify-fixpoint>,"
    "loop(loop-idiom,indvars,loop-deletion),"
    // What two blocks compute, and what the loops that went have left.
    "gvn,sccp,instcombine<no-verify-fixpoint>,jump-threading,correlated-propagation,dse,loop-mssa(licm),"
    "simplifycfg<switch-range-to-icmp;switch-to-arithmetic;keep-loops;hoist-common-insts;sink-common-insts>,instcombine<no-verify-fixpoint>,float2int,"
    "loop(loop-rotate<header-duplication>,loop-deletion),instcombine<no-verify-fixpoint>,"
    // From here on loops need not keep their form.
    "simplifycfg<forward-switch-cond;switch-range-to-icmp;switch-to-arithmetic;switch-to-lookup;no-keep-loops;hoist-common-insts;sink-common-insts>,"
    "vector-combine,instcombine<no-verify-fixpoint>,loop-mssa(licm),loop-sink,instsimplify,div-rem-pairs,"
    "simplifycfg<switch-range-to-icmp;switch-to-arithmetic;hoist-loads-stores-with-cond-faulting;speculate-unpredictables>)";

static PipelineTuningOptions tuning() {
  PipelineTuningOptions options;
  options.LoopVectorization = false;
  options.SLPVectorization = false;
  options.LoopInterleaving = false;
  return options;
}

struct Optimizer::State {
  explicit State(TargetMachine &machine) : builder(&machine, tuning()) {}
  PassBuilder builder;
  LoopAnalysisManager loops;
  FunctionAnalysisManager functions;
  CGSCCAnalysisManager sccs;
  ModuleAnalysisManager modules;
  ModulePassManager passes;
};

Optimizer::Optimizer(TargetMachine &machine, bool unrolls) : state(new State(machine)) {
  PassBuilder &builder = state->builder;
  builder.registerModuleAnalyses(state->modules);
  builder.registerCGSCCAnalyses(state->sccs);
  builder.registerFunctionAnalyses(state->functions);
  builder.registerLoopAnalyses(state->loops);
  builder.crossRegisterProxies(state->loops, state->functions, state->sccs, state->modules);
  if (unrolls)
    state->passes = builder.buildPerModuleDefaultPipeline(OptimizationLevel::O2);
  else if (Error error = builder.parsePassPipeline(state->passes, kPasses))
    report_fatal_error(std::move(error)); // of another LLVM, which has no such pass
}

Optimizer::~Optimizer() = default;

void Optimizer::run(Module &module) {
  state->passes.run(module, state->modules);
  // What is known of this module must not meet another one at its address.
  state->loops.clear();
  state->sccs.clear();
  state->functions.clear();
  state->modules.clear();
}

} // namespace cinch::target
