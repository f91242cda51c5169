// Refusal.cpp: budgets that cannot be met.
#include "compiler/tools/Refusal.h"

#include "compiler/report/PlanTable.h"
#include "compiler/solve/Units.h"
#include "compiler/tools/Workers.h"

#include "llvm/Support/raw_ostream.h"

namespace cinch {

static std::string size(int64_t bytes) {
  std::string exact = std::to_string(bytes) + " bytes", text = solve::bytesText(bytes);
  return text == exact ? exact : exact + " (" + text + ")";
}

// The smallest budget, as it may be typed.
static std::string sizeUp(int64_t bytes) {
  std::string exact = std::to_string(bytes) + " bytes", text = solve::bytesTextUp(bytes);
  return text == exact ? exact : exact + " (" + text + ")";
}

void printRefusal(llvm::raw_ostream &out, const Compilation &compilation, const SourceList &sources, int64_t budget, int enough, int64_t host, bool automatic) {
  const solve::SearchResult &result = compilation.entries.front().outcome.result;
  int64_t smallest = compilation.smallestBudget();
  bool several = compilation.workers.count > 1;
  out << "error: the program does not fit into a memory budget of " << size(budget);
  if (several)
    out << " for each of " << compilation.workers.count << " workers";
  out << "\n  smallest budget that compiles: " << sizeUp(smallest) << "\n";
  const int64_t bound = compilation.budgetBound();
  out << "  proven lower bound:            " << (bound == smallest ? sizeUp(bound) : size(bound)) << "\n";
  out << "  of these for code, stacks and runtime: " << size(compilation.allowance()) << "\n";
  if (!several)
    out << "  of these for parameters and state:     " << size(compilation.persistentBytes()) << "\n";
  out << (several ? "  largest at the peak of the worker that needs most:\n" : "  largest at the peak of the smallest plan:\n");
  report::printLive(out, sources, result.holders, 10);
  if (!result.advice.empty())
    out << "  help: " << result.advice << " would fit\n";
  if (host > 0)
    out << "  help: --host-memory-budget " << (host + (1 << 20) - 1) / (1 << 20) << "MiB would fit: "
        << (several ? "the optimizer's state then lies" : "state, or values that wait for the backward sweep, then lie")
        << " in pinned memory of the host\n";
  if (enough > 0)
    out << "  help: --stages " << enough << " would fit: each of its workers keeps this budget\n";
  else if (automatic)
    out << "  note: no number of workers up to " << kMostTried << " fits; " << (several ? "this one needs" : "one worker needs") << " least\n";
  else if (several)
    out << "  help: more workers, up to " << kMostTried << ", do not fit either\n";
  else if (budget > compilation.allowanceOfSeveral()) // what every worker needs beside its part of the model
    out << "  help: several workers need less each: --stages auto takes as few as fit\n";
  out << "  help: --memory-budget " << (smallest + (1 << 20) - 1) / (1 << 20) << "MiB\n";
}

} // namespace cinch
