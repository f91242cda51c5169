// Refusal.cpp: budgets that cannot be met, and plans, for people and programs.
#include "compiler/tools/Refusal.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

namespace cinch {

static std::string size(int64_t bytes) {
  return llvm::formatv("{0} bytes ({1:F1} MiB)", bytes, double(bytes) / (1 << 20));
}

static void printLive(llvm::raw_ostream &out, const SourceList &sources, const std::vector<solve::LiveBuffer> &live) {
  for (const solve::LiveBuffer &buffer : live) {
    out << llvm::formatv("  {0,10:F1} MiB  {1}", double(buffer.bytes) / (1 << 20), buffer.name);
    if (buffer.line > 0)
      out << " (" << sources.name(1) << ":" << buffer.line << ")";
    if (buffer.recomputed)
      out << " [recomputed]";
    out << "\n";
  }
}

void printRefusal(llvm::raw_ostream &out, const Compilation &compilation, const SourceList &sources, int64_t budget) {
  const solve::SearchResult &result = compilation.entries.front().outcome.result;
  int64_t smallest = compilation.smallestBudget();
  out << "error: the program does not fit into a memory budget of " << size(budget) << "\n";
  out << "  smallest budget that compiles: " << smallest << " bytes ("
      << llvm::formatv("{0:F1}", double(smallest) / (1 << 20)) << " MiB)\n";
  out << "  proven lower bound:            " << size(compilation.budgetBound()) << "\n";
  out << "  of these for code, stacks and runtime: " << size(compilation.allowance()) << "\n";
  out << "  largest at the peak of the smallest plan:\n";
  printLive(out, sources, result.holders);
  if (!result.advice.empty())
    out << "  help: " << result.advice << " would fit\n";
  out << "  help: --memory-budget " << (smallest + (1 << 20) - 1) / (1 << 20) << "MiB\n";
}

void printPlan(llvm::raw_ostream &out, const Compilation &compilation, const SourceList &sources, bool json,
               int64_t budget) {
  const EntryPlan &step = compilation.entries.front();
  const solve::SearchResult &result = step.outcome.result;
  const solve::Plan &plan = result.plan;
  const solve::StepGraph &graph = step.outcome.graph;
  const solve::Decision &decision = plan.decision;
  std::vector<int> runs(graph.kernels.size(), 0);
  for (const solve::Run &run : decision.runs)
    ++runs[run.kernel];
  auto live = solve::largestLive(graph, plan, plan.peakRun, 10);
  if (json) {
    llvm::json::Array kernels, holders, curve;
    int64_t accumulators = 0; // alive at the peak
    for (const solve::Instance &instance : decision.instances)
      if (instance.buffer >= 0 && graph.buffers[instance.buffer].kind == solve::Buffer::Accumulator &&
          instance.lower <= plan.peakRun && plan.peakRun < instance.upper)
        accumulators += instance.bytes;
    for (size_t k = 0; k < graph.kernels.size(); ++k)
      kernels.push_back(llvm::json::Object{{"name", graph.kernels[k].name}, {"line", graph.kernels[k].line}, {"runs", runs[k]},
                                           {"seconds", graph.kernels[k].seconds.at(decision.microbatch)}});
    for (const solve::LiveBuffer &buffer : live)
      holders.push_back(llvm::json::Object{{"name", buffer.name}, {"line", buffer.line}, {"bytes", buffer.bytes},
                                           {"recomputed", buffer.recomputed}});
    for (const solve::LadderPoint &point : step.outcome.tradeOff)
      curve.push_back(llvm::json::Object{{"bytes", point.arenaBytes + compilation.allowance()}, {"seconds", point.seconds},
                                         {"microbatch", point.microbatch}, {"name", point.name}});
    llvm::json::Object object{
        {"budget", budget}, {"memory", compilation.arenaBytes() + compilation.allowance()},
        {"arena", compilation.arenaBytes()}, {"allowance", compilation.allowance()},
        {"persistent", compilation.persistentBytes()}, {"peak_live", plan.peakLive}, {"peak_accumulators", accumulators},
        {"bound", result.bound},
        {"smallest_budget", compilation.smallestBudget()}, {"budget_bound", compilation.budgetBound()},
        {"microbatch", decision.microbatch}, {"count", decision.count}, {"remat", result.name},
        {"recomputed_runs", plan.recomputed}, {"seconds", plan.seconds}, {"seconds_bound", result.secondsBound},
        {"recompute_seconds", plan.recomputeSeconds}, {"peak", std::move(holders)}, {"kernels", std::move(kernels)},
        {"trade_off", std::move(curve)}};
    out << llvm::formatv("{0:2}", llvm::json::Value(std::move(object))) << "\n";
    return;
  }
  for (const std::string &line : compilation.summary())
    out << line << "\n";
  out << "\nlargest alive at the peak\n";
  printLive(out, sources, live);
  if (plan.recomputed > 0) {
    out << "\nrecomputed\n";
    std::map<std::string, std::pair<int, double>> byName; // how often, seconds of a micro-batch
    for (size_t k = 0; k < graph.kernels.size(); ++k)
      if (graph.kernels[k].section == solve::Section::Loop && runs[k] > 1) {
        auto &entry = byName[llvm::formatv("{0} ({1}:{2})", graph.kernels[k].name, sources.name(1), graph.kernels[k].line)];
        entry.first += runs[k] - 1;
        entry.second += (runs[k] - 1) * graph.kernels[k].seconds.at(decision.microbatch);
      }
    std::vector<std::pair<double, std::string>> lines;
    for (auto &[name, entry] : byName)
      lines.push_back({entry.second * decision.count, llvm::formatv("  {0,8:F3} ms a step  {1} x  {2}",
                                                                   1e3 * entry.second * decision.count, entry.first, name)});
    std::sort(lines.rbegin(), lines.rend());
    for (size_t i = 0; i < lines.size() && i < 20; ++i)
      out << lines[i].second << "\n";
    if (lines.size() > 20)
      out << "  and " << lines.size() - 20 << " more\n";
  }
  if (!step.outcome.tradeOff.empty()) {
    out << "\nbudget against predicted time\n";
    for (const solve::LadderPoint &point : step.outcome.tradeOff)
      out << llvm::formatv("{0} {1,10:F1} MiB  {2,9:F4} s  {3} x {4}  {5}\n",
                           point.arenaBytes == decision.arenaBytes && point.microbatch == decision.microbatch ? " >" : "  ",
                           double(point.arenaBytes + compilation.allowance()) / (1 << 20), point.seconds,
                           graph.batch / point.microbatch, point.microbatch, point.name);
  }
}

} // namespace cinch
