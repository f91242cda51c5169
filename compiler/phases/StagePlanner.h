// StagePlanner.h: how Compilation::decideStages is done. Which cuts and micro-batches are tried (Stages.cpp), what cannot be divided
// (StageRefusals.cpp), the plans and the price of one (StagePlans.cpp), what is shipped and the other entries of the program (StageEntries.cpp).
#ifndef CINCH_COMPILER_PHASES_STAGEPLANNER_H
#define CINCH_COMPILER_PHASES_STAGEPLANNER_H

#include "compiler/phases/Compile.h"
#include "compiler/phases/StageHints.h"
#include "compiler/phases/StageTables.h"

#include "compiler/analysis/StageProblem.h"
#include "compiler/solve/Evaluate.h"
#include "compiler/solve/Search.h"
#include "compiler/transforms/PlanProblem.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "llvm/Support/FormatVariadic.h"

#include <limits>
#include <map>
#include <memory>

namespace cinch {

// Bytes of a worker's arena: of its plans, and for messages.
struct Need {
  int64_t planned = 0, messages = 0;
  int64_t total() const { return planned + messages; }
  void include(const Need &other) {
    planned = std::max(planned, other.planned);
    messages = std::max(messages, other.messages);
  }
};

// The program cut at one layout.
struct Division {
  StageLayout layout;
  Divided train;
  std::vector<Divided> others;  // evaluation and prediction
  std::vector<Need> othersNeed; // of each worker, at one example at a time
};

// A plan of all workers for one micro-batch.
struct Candidate {
  size_t division = 0;
  int64_t microbatch = 1;
  int late = 0; // micro-batches that a replica's gradients of parameters wait for
  bool deeply = true; // its workers' plans were searched as deeply as they can be
  std::vector<std::vector<solve::Action>> rows;        // of each worker
  std::vector<std::vector<solve::PartAction>> actions; // the same, by the parts of its loop
  std::vector<int> boxes;                              // of each channel
  std::vector<int64_t> messages;                       // of each worker: bytes for them
  std::vector<int64_t> needs;                          // of each worker: bytes of its arena; none: some worker provably needs more than is of interest
  std::vector<DecideOutcome> outcomes;
  std::vector<mlir::Attribute> decisions;
  std::vector<PlanSeconds> seconds;
  solve::ChannelRun run;
  double makespan = 0;
};

class StagePlanner {
public:
  StagePlanner(Compilation &compilation, const DecideOptions &base, const solve::Strategy &strategy, mlir::func::FuncOp train)
      : c(compilation), options(compilation.options), base(base), strategy(strategy),
        train(train), step(train), homes(step),
        problem(analysis::buildStepProblem(step, 0, base.target)) {
    if (options.budget)
      room = std::max<int64_t>(0, *options.budget - c.allowance()) / (sharesPages() ? kPage : 1) * (sharesPages() ? kPage : 1);
  }
  // In this order. False after an internal error was reported.
  bool prepare();
  // `least`: cuts that need least, whatever the budget is. What cannot end before `fastest` seconds is not planned.
  bool search(bool least, double fastest);
  // The best candidate's division takes the place of the program.
  bool choose();
  // Or all of them are forgotten.
  void discard();
  // What a cut needs is guessed before it is planned. So cuts near the one that needs least are planned, as long as one of them needs less or fits.
  // Behind `search` for those that need least.
  bool searchNearLeast();
  // Nothing fits.
  void refuseAll();
  // The updates take so much of the best step that sharing them may be worth the messages.
  bool updatesMatter() const { return updatesMatter(*best); }
  // Something did not fit, or would be faster if there were more room.
  bool roomMatters() const { return lacksRoom; }
  double makespan() const { return best ? best->makespan : std::numeric_limits<double>::infinity(); }
  bool isOf(mlir::func::FuncOp function) const { return train == function; }

private:
  int stages() const { return options.stages * options.chunks; }
  int workers() const { return options.workers(); }
  int workersOfReplica() const { return options.stages * options.shards; }
  int stageWorker(int w) const { return w / options.shards % options.stages; } // were there no shards
  int64_t examples() const { return problem.graph.batch / options.replicas; } // of a replica
  int segments() const { return int(homes.segments.size()); }
  bool internal(const llvm::Twine &what) {
    train.emitError() << "internal error: stages: " << what;
    return false;
  }
  bool refuse(std::string why) {
    c.refusal = std::move(why);
    return c.refused = true;
  }
  std::vector<int64_t> sizesToTry();
  std::vector<int64_t> sizesInGrain() const;
  // Of these, those of whose number the schedule has a table; they ascend, and are not none.
  std::vector<int64_t> sizesWithTable(std::vector<int64_t> sizes);
  solve::ScheduleRequest requestOf(int64_t microbatches) const;
  // Of these, those that blocks of so many rows do not cut. What is wrong with the blocks is refused.
  std::vector<int64_t> sizesOfBlocks(std::vector<int64_t> sizes);
  // A step that overlaps with the next one. Empty: the program can have such.
  bool overlaps() const { return options.schedule == solve::Schedule::TwoBW; }
  std::string wrongOverlap() const;
  // The schedule has so many chunks a worker, and each stage a kernel of the forward pass; empty: that is so.
  std::string wrongStages() const;
  // Why the micro-batch that is asked for is none of these.
  std::string wrongMicrobatch(const std::vector<int64_t> &sizes) const;
  // What keeps the examples of a micro-batch together, for a message: " (grain 4, groups of 2)"; empty: nothing does.
  std::string whatKeepsTogether() const;
  // Every replica has as many examples, whole micro-batches, grains and groups; empty: these do.
  std::string wrongReplicas() const;
  // Where the user's `@stage` hints have stages begin. What no hint can mean is refused.
  bool readHints();
  // Parameters, their state and sums that live through the loop lie somewhere: on one worker a P-th of them at least.
  int64_t boundOfAnyCut() const;
  bool tryMicrobatch(int64_t microbatch, bool least);
  // .. with the updates handed out among the replicas, or with all of them on the last one. Where state may lie on the host, the cut that is best if all
  // of it does is tried, too; and where room is short, the one that needs least.
  bool tryCuts(const solve::ScheduleTable &table, int64_t microbatch, bool handsOut, bool least, bool &fits);
  // The table of a step, or the part of it that comes again and again where steps overlap.
  bool tableOf(int64_t microbatch, solve::ScheduleTable &table);
  // Which cut is tried: the best one by the kernels' bytes, with or without the state, or the one that needs least by them.
  struct AskedCut {
    bool handsOut = false;
    bool stateLeaves = false, leastNeeded = false;
    std::vector<std::pair<int, int>> begins; // SplitProblem::forced, in segments
  };
  struct NeediestCut { // the cut of the smallest plan
    int64_t microbatch = 0;
    bool handsOut = false;
    int worker = 0; // of the schedule's table: the one that needs most
    std::vector<int> stageOf;
  };
  // How many cuts near it are planned: a refusal should not take much longer for that.
  static constexpr int kCutsNearLeast = 8;
  std::vector<std::vector<int>> cutsNear(const NeediestCut &, const solve::ScheduleTable &) const;
  // `stageOf`: of the cut that was tried before, which is not tried once more; and of this one then.
  bool tryCut(const solve::ScheduleTable &table, int64_t microbatch, const AskedCut &asked, bool least, std::vector<int> &stageOf, bool &fits);
  // Replicas can share the updates: there is state that one of them needs.
  bool mayHandOut() const { return options.replicas > 1 && ownSteps() == OwnSteps::None && bytesOnce() > 0; }
  // The updates take so much of a step that sharing them may be worth the messages.
  bool updatesMatter(const Candidate &candidate) const;
  int64_t bytesOnce() const; // of state that one of the replicas needs
  // May each replica have sums of its own? With `combine reduce` it has. Otherwise where its examples are one grain: then the bits are those
  // of one worker, and the micro-batches may be smaller than the grain.
  bool mayAddSums() const;
  bool isOneGrain() const;
  // May micro-batches cut that grain? Where each replica sums its own examples from zero, that sum is the grain's.
  bool mayCutGrain() const;
  // What is computed of several examples is a sum; no largest value, no product.
  bool onlyAdds() const;
  // Grains are summed at once, and only these sums wait for the replica before.
  bool holdsSums() const;
  bool sumsPairs() const;
  // Each replica makes steps of its own, if the program asks for that; what cannot be then.
  OwnSteps ownSteps() const;
  std::string wrongOwnSteps() const;
  // `combine hogwild`: the pages of parameters and state are the same memory for all replicas, and nothing else lies in them.
  static constexpr int64_t kPage = solve::kPage;
  bool sharesPages() const { return options.replicas > 1 && ownSteps() == OwnSteps::Hogwild; }
  int64_t inPages(int64_t bytes) const { return sharesPages() ? (bytes + kPage - 1) / kPage * kPage : bytes; }
  int64_t bytesToFillPage(mlir::func::FuncOp step) const;
  bool tryTable(const solve::ScheduleTable &table, const StageLayout &layout, int late, int64_t microbatch,
                const std::vector<std::vector<double>> &seconds, bool least, bool &fits);
  // The best cut by the kernels' seconds and bytes, under the budget or under the least for which there is one.
  solve::SplitSolution splitInto(analysis::StageProblem &stageProblem, bool least) const;
  // The program divided by this layout, once.
  bool divide(const StageLayout &layout, Candidate &candidate);
  bool divideFunction(llvm::StringRef name, const analysis::Step &whole, const analysis::StageHomes &wholeHomes, const StageLayout &layout,
                      size_t first, Divided &divided);
  // Seconds of the parts of each worker's loop, before there are plans.
  std::vector<std::vector<double>> guessedSeconds(const solve::ScheduleTable &table, const StageLayout &layout,
                                                  const solve::SplitProblem &split, const solve::Split &cuts) const;
  // What other entries need of a worker's arena where the plan of its step has state on the host.
  static Need without(Need, const DecideOutcome &);
  // Bytes of a worker's arena above which a plan changes nothing: it neither fits nor needs less than the smallest one.
  int64_t mostOfInterest(bool least) const;
  // Of a worker: bytes for messages, and what the other entries need.
  Need messagesOf(const Candidate &candidate, int w) const;
  // Does a worker have the plan of the one of the next replica? Replicas are alike, but for the first one and the last two, if each has updates of its own,
  // and where messages leave other room.
  bool isAsTheNext(const Candidate &candidate, int w) const;
  // The planner's problem of a worker; none if it has the plan of another, or one from before.
  struct Posed {
    DecideOptions options;
    std::optional<PlanProblem> problem;
  };
  // What was planned before: how long a replica's gradients wait does not matter to the first one.
  struct Planned {
    size_t division = 0;
    int worker = 0;
    int64_t microbatch = 0;
    bool deeply = true;
    std::vector<solve::PartAction> actions;
    std::optional<int64_t> arenaBudget;
    DecideOutcome outcome;
    mlir::Attribute decision;
  };
  const Planned *plannedBefore(const Candidate &candidate, int w) const;
  std::optional<int64_t> arenaBudgetOf(const Candidate &candidate, int w) const;
  // The problems of all workers; false: some worker provably needs more than `most` bytes, so that nothing needs to be planned.
  bool pose(Candidate &candidate, int64_t most, std::vector<Posed> &problems);
  // `fits`: within the budget.
  bool plan(Candidate &candidate, bool least, bool &fits);
  // The plans of all workers, up to one that needs more than `most` bytes; and, if they fit, when the table ends with their seconds.
  bool planWorkers(Candidate &candidate, int64_t most, bool &fits);
  // When the table ends with the seconds of these plans.
  void price(Candidate &candidate) const;
  void runTable(Candidate &candidate) const;
  // Plans of all workers are made quickly first, and deeply where they may be the fastest (StageDeepen.cpp)?
  bool searchesTwice() const { return room && !options.hostBudget && !options.onlyFits; }
  void keepToDeepen(const Candidate &candidate);
  bool deepen();
  // How early it could end (StageBound.cpp).
  bool findBound();
  bool takeStep(Divided &divided);
  // Do two workers have parameters and state at the same bytes of their arenas?
  static bool liesAlike(mlir::func::FuncOp function, mlir::Attribute decision, mlir::func::FuncOp first, mlir::Attribute itsDecision);
  // Its function gets the name that it keeps.
  void take(EntryPlan plan, const Divided &divided, int64_t microbatch);
  void addChannels(const Divided &divided, int64_t microbatch);
  void describeStages(const Division &division);
  // Evaluation and prediction have their own functions, with the parameters where the step has them: the largest micro-batch, up to that
  // of training, that fits where the step lies. One example at a time, or one group, decides itself what it needs.
  bool chooseEntry(Divided &divided, llvm::ArrayRef<mlir::func::FuncOp> steps);
  // One, or a group of those that an entry compares.
  static int64_t leastExamples(const Divided &divided);
  static std::vector<int> boxesOf(const Divided &divided);
  // Plans of all workers for `size` examples at a time. `within`: no worker may need more; empty: each as little as it can. No plans: they
  // do not fit.
  bool planEntry(Divided &divided, llvm::ArrayRef<mlir::func::FuncOp> steps, int64_t size, llvm::ArrayRef<Need> within, std::vector<EntryPlan> &plans);
  // The order in which the workers run their parts, and the boxes that it needs.
  bool setLags(Divided &divided, int64_t size);
  // Where the workers' arenas lie in the whole one, and the channels in them. Entries take turns in the bytes for messages.
  void placeWorkers();
  Compilation &c;
  const CompileOptions &options;
  const DecideOptions &base;
  const solve::Strategy &strategy;
  mlir::func::FuncOp train;
  analysis::Step step;
  analysis::StageHomes homes;
  analysis::StepProblem problem;
  std::vector<int64_t> sizes;  // micro-batches to try
  bool hasCut = false;         // with some of them there is a cut
  std::optional<int64_t> room; // for a worker's arena
  bool lacksRoom = false;
  double rival = std::numeric_limits<double>::infinity(); // seconds of another step's best plan
  std::vector<std::pair<int, int>> forced; // (segment, stage): what the user's hints ask for
  std::vector<Division> divisions;
  std::vector<Planned> planned;
  std::map<std::tuple<std::vector<int>, bool, bool, bool>, size_t> divisionOf;
  std::optional<Candidate> best;
  // Planned quickly, without what the plans are.
  struct Waiting {
    Candidate candidate;
    std::vector<PlanSeconds> least; // of each worker, if its plan were as fast as one of a deeper search could be
  };
  std::vector<Waiting> waiting;
  DecideOutcome neediest;          // of the smallest plan, if none fits
  std::optional<NeediestCut> neediestCut;
  std::vector<Need> needs;         // of each worker, as far as the entries are chosen
  std::vector<size_t> lastOfEntry; // channels: behind which the next entry's begin
};

} // namespace cinch
#endif
