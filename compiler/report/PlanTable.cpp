// PlanTable.cpp: equal lines of the blocks of a `repeat` are printed as one.
#include "compiler/report/PlanTable.h"

#include "compiler/solve/Explain.h"
#include "compiler/solve/Units.h"

#include "llvm/ADT/STLExtras.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <map>

namespace cinch::report {
using solve::bytesText, solve::secondsText;

// "blocks.3.ff: mul" -> "blocks.*.ff: mul".
static std::string general(llvm::StringRef name) {
  auto [path, rest] = name.split(": ");
  std::string text;
  for (llvm::StringRef part : llvm::split(path, '.')) {
    unsigned number;
    text += (text.empty() ? "" : ".") + (part.getAsInteger(10, number) ? part.str() : std::string("*"));
  }
  return rest.empty() ? text : text + ": " + rest.str();
}

void printLive(llvm::raw_ostream &out, const SourceList &sources, const std::vector<solve::LiveBuffer> &live, size_t shown) {
  struct Line {
    std::string name; // of the first
    int64_t bytes = 0;
    int count = 0;
  };
  std::vector<Line> lines;
  std::map<std::string, size_t> known;
  for (const solve::LiveBuffer &buffer : live) {
    auto text = [&](const std::string &name) {
      std::string all = name;
      if (buffer.line > 0)
        all += " (" + std::string(sources.name(1)) + ":" + std::to_string(buffer.line) + ")";
      return all + (buffer.recomputed ? " [recomputed]" : "");
    };
    auto [place, fresh] = known.try_emplace(text(general(buffer.name)), lines.size());
    if (fresh)
      lines.push_back({text(buffer.name)});
    Line &line = lines[place->second];
    line.bytes += buffer.bytes;
    if (++line.count == 2)
      line.name = place->first;
  }
  llvm::stable_sort(lines, [](const Line &a, const Line &b) { return a.bytes > b.bytes; });
  int64_t rest = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i >= shown) {
      rest += lines[i].bytes;
      continue;
    }
    out << llvm::formatv("  {0,14}  {1}", bytesText(lines[i].bytes), lines[i].name);
    if (lines[i].count > 1)
      out << ", " << lines[i].count << " of them";
    out << "\n";
  }
  if (rest > 0)
    out << llvm::formatv("  {0,14}  {1} others\n", bytesText(rest), lines.size() - shown);
}

namespace {
struct Row {
  std::string name;
  int count = 0, times = 0;
  int64_t bytes = 0;
  double seconds = 0;
};
} // namespace

// The rows that `key` puts first; the others are summed up in one line.
template <typename Entries, typename NameOf, typename Key>
static void printRows(llvm::raw_ostream &out, const SourceList &sources, const Entries &entries, NameOf &&nameOf,
                      Key &&key, const char *verb) {
  std::map<std::string, Row> byName;
  for (const auto &entry : entries) {
    auto [name, line, times] = nameOf(entry);
    std::string text = general(name);
    if (line > 0)
      text += llvm::formatv(" ({0}:{1})", sources.name(1), line);
    Row &row = byName[text];
    row.name = text;
    ++row.count;
    row.times += times;
    row.bytes += entry.bytes;
    row.seconds += entry.seconds;
  }
  std::vector<Row> rows;
  for (auto &entry : byName)
    rows.push_back(entry.second);
  llvm::stable_sort(rows, [&](const Row &a, const Row &b) { return key(a) > key(b); });
  constexpr size_t shown = 12;
  Row rest;
  for (size_t i = 0; i < rows.size(); ++i) {
    const Row &row = rows[i];
    if (i >= shown) {
      rest.count += row.count, rest.bytes += row.bytes, rest.seconds += row.seconds;
      continue;
    }
    out << llvm::formatv("  {0,13}  {1,10} {2}  {3,4} x  {4}\n", bytesText(row.bytes), secondsText(row.seconds), verb, row.times, row.name);
  }
  if (rest.count > 0)
    out << llvm::formatv("  {0,13}  {1,10} {2}  {3} others\n", bytesText(rest.bytes), secondsText(rest.seconds), verb, rest.count);
}

// Several workers: what each holds, and who does what when.
static void printWorkers(llvm::raw_ostream &out, const Compilation &compilation, const SourceList &sources) {
  const WorkersPlan &workers = compilation.workers;
  for (int w = 0; w < workers.count; ++w) {
    const DecideOutcome &outcome = compilation.entries[size_t(w)].outcome;
    const solve::Plan &plan = outcome.result.plan;
    out << llvm::formatv("\nworker {0}: arena {1}, {2} of it for messages; largest alive at the peak\n", w,
                         bytesText(workers.each[size_t(w)].bytes), bytesText(workers.each[size_t(w)].messages));
    printLive(out, sources, solve::alive(outcome.rows.graph, plan, plan.peakRun), 5);
  }
  // A long table is shown with fewer micro-batches: its middle repeats itself.
  solve::ScheduleRequest request = workers.request;
  int shown = std::min(request.microbatches, 4 * request.workers);
  bool overlaps = request.schedule == solve::Schedule::TwoBW;
  request.steps = overlaps ? 2 : 1;
  out << "\nschedule of " << (overlaps ? "two steps" : "a step") << ", if forward and backward of every stage took one and two units of time";
  if (shown < request.microbatches)
    out << " (" << shown << " of the " << request.microbatches << " micro-batches of a step)";
  request.microbatches = shown;
  out << "\n" << (solve::check(request).empty() ? solve::print(solve::generate(request)) : std::string());
}

// By how many percent a plan is above a bound; they may differ in the last bits.
static double percentAbove(double plan, double bound) { return 100 * std::max(0.0, plan / std::max(bound, 1e-300) - 1); }

// What was proven about several workers.
static void printBounds(llvm::raw_ostream &out, const Compilation &compilation) {
  const WorkersPlan &workers = compilation.workers;
  out << llvm::formatv("bound        {0:F4} s proven for this cut, table and micro-batch, these mailboxes and blocks of rows; the plan takes {1:F2} % more\n",
                       *compilation.fixedBound, percentAbove(workers.seconds, *compilation.fixedBound));
  for (auto [w, bound] : llvm::enumerate(workers.bounds))
    out << llvm::formatv("             worker {0}: {1} a micro-batch proven; its plan takes {2:F2} % more\n", w, secondsText(bound),
                         percentAbove(workers.each[w].forward + workers.each[w].backward, bound));
}

// What other budgets would give.
static void printTradeOff(llvm::raw_ostream &out, const Compilation &compilation) {
  const EntryPlan &step = compilation.entries.front();
  const solve::Decision &decision = step.outcome.result.plan.decision;
  const std::vector<solve::LadderPoint> &curve = step.outcome.tradeOff;
  if (curve.empty())
    return;
  out << "\nbudget against predicted time\n";
  auto isThis = [&](const solve::LadderPoint &point) {
    return point.microbatch == decision.microbatch && (point.arenaBytes == decision.arenaBytes || point.seconds == step.outcome.result.plan.seconds);
  };
  // What is shown is quicker than the one before by a sixteenth of the way from the slowest to the quickest, in ratios.
  double least = std::pow(curve.front().seconds / curve.back().seconds, 1.0 / 16), last = 0;
  std::vector<solve::LadderPoint> shown;
  for (size_t i = 0; i < curve.size(); ++i) {
    const solve::LadderPoint &point = curve[i];
    if (i > 0 && i + 1 < curve.size() && !isThis(point) && last < point.seconds * least)
      continue;
    last = point.seconds;
    shown.push_back(point);
  }
  auto budgetText = [&](const solve::LadderPoint &point, int digits) { return bytesText(point.arenaBytes + compilation.allowance(), digits); };
  int digits = 1; // as many as tell neighbours apart
  for (size_t i = 1; i < shown.size(); ++i)
    while (digits < 4 && shown[i].arenaBytes != shown[i - 1].arenaBytes && budgetText(shown[i], digits) == budgetText(shown[i - 1], digits))
      ++digits;
  for (const solve::LadderPoint &point : shown)
    out << llvm::formatv("{0} {1,14}  {2,10}  {3} x {4}  {5}\n", isThis(point) ? " >" : "  ",
                         budgetText(point, digits), secondsText(point.seconds), step.outcome.rows.graph.batch / point.microbatch, point.microbatch, point.name);
}

void printPlan(llvm::raw_ostream &out, const Compilation &compilation, const SourceList &sources) {
  if (compilation.workers.count > 1) {
    for (const std::string &line : compilation.summary())
      out << line << "\n";
    if (compilation.fixedBound)
      printBounds(out, compilation);
    return printWorkers(out, compilation, sources);
  }
  const EntryPlan &step = compilation.entries.front();
  const solve::Plan &plan = step.outcome.result.plan;
  const solve::StepGraph &graph = step.outcome.rows.graph;
  const solve::Decision &decision = plan.decision;
  for (const std::string &line : compilation.summary())
    out << line << "\n";
  if (compilation.fixedBound)
    out << llvm::formatv("bound        {0:F4} s proven for this micro-batch and these blocks of rows; the plan takes {1:F2} % more\n",
                         *compilation.fixedBound, percentAbove(plan.seconds, *compilation.fixedBound));
  out << "\nlargest alive at the peak\n";
  printLive(out, sources, solve::alive(graph, plan, plan.peakRun), 10);
  auto kept = solve::keptValues(graph, decision);
  if (!kept.empty()) {
    out << "\nkept for the backward sweep (bytes, what computing it again would cost a step, how many)\n";
    printRows(
        out, sources, kept,
        [&](const solve::KeptValue &value) {
          return std::tuple(graph.buffers[value.buffer].name, graph.buffers[value.buffer].line, 1);
        },
        [](const Row &row) { return double(row.bytes); }, "would be");
  }
  if (auto away = solve::hostValues(graph, decision); !away.empty()) {
    out << "\nwaiting in pinned memory of the host (bytes there, what copies take a step beside work, how many)\n";
    printRows(
        out, sources, away,
        [&](const solve::HostValue &value) {
          return std::tuple(graph.buffers[value.buffer].name, graph.buffers[value.buffer].line, 1);
        },
        [](const Row &row) { return double(row.bytes); }, "copying");
  }
  auto again = solve::recomputations(graph, decision);
  if (!again.empty()) {
    out << "\nrecomputed (bytes not kept, what it costs a step, how often in a micro-batch)\n";
    printRows(
        out, sources, again,
        [&](const solve::Recomputation &r) {
          return std::tuple(graph.kernels[r.kernel].name, graph.kernels[r.kernel].line, r.times);
        },
        [](const Row &row) { return row.seconds; }, "a step");
  }
  const solve::RowBlocked &rows = step.outcome.rows;
  if (!rows.ranges.empty()) {
    out << llvm::formatv("\nin blocks of {0} x {1} rows (bytes of a block, what it costs a step, blocks of a micro-batch)\n",
                         rows.block.examples, rows.block.positions);
    std::vector<solve::RowSummary> summaries;
    for (const solve::RowKernel &range : rows.ranges)
      summaries.push_back(solve::summaryOf(range, rows, decision));
    printRows(
        out, sources, summaries,
        [](const solve::RowSummary &s) { return std::tuple(s.name, s.line, int(s.blocks)); },
        [](const Row &row) { return double(row.bytes); }, "a step");
  }
  printTradeOff(out, compilation);
}

} // namespace cinch::report
