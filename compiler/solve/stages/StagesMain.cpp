// StagesMain.cpp: the command `solve stages`: a chain or graph of segments from a file, the split and its table on standard output.
#include "compiler/solve/CommandFlags.h"
#include "compiler/solve/stages/JsonFields.h"
#include "compiler/solve/stages/Split.h"
#include "compiler/solve/ParseJson.h"
#include "compiler/solve/ReadFile.h"
#include "compiler/solve/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"

namespace cinch::solve {

namespace {

using detail::JsonFields;

constexpr int64_t kUnlimited = int64_t(1) << 60; // no budget: as much as it takes
constexpr const char *kUsageLine = "usage: solve stages C.json [--schedule NAME] [--stages P] [--chunks V] [--microbatches M] "
                                   "[--budget BYTES] [--work-limit N] [--table]\n"
                                   "       solve stages --table [--schedule NAME] [--stages P] [--chunks V] [--microbatches M]";

Segment readSegment(const llvm::json::Value &value, size_t index, int64_t &output, std::string &error) {
  Segment s;
  JsonFields f(&value, "segment " + std::to_string(index), error);
  s.name = std::to_string(index);
  f.text("name", s.name);
  f.require("forward");
  f.number("forward", s.forward), f.number("input", s.input), f.number("weight", s.weight), f.number("update", s.update);
  f.integer("fixed", s.fixed), f.integer("parameters", s.parameters), f.integer("late", s.late), f.integer("output", output);
  if (const llvm::json::Array *ways = f.array("ways")) {
    s.ways.clear();
    for (const llvm::json::Value &w : *ways) {
      Segment::Way way;
      JsonFields fields(&w, "segment " + std::to_string(index) + ", way " + std::to_string(s.ways.size()), error);
      fields.number("seconds", way.seconds), fields.integer("held", way.held), fields.integer("work", way.work);
      fields.end();
      s.ways.push_back(way);
    }
  }
  f.end();
  return s;
}

// The problem of the file's text; `budget`: bytes of every worker, negative if the file does not say.
std::string readProblem(llvm::StringRef text, SplitProblem &p, int64_t &budget) {
  llvm::Expected<llvm::json::Value> parsed = parseJson(text);
  if (!parsed)
    return llvm::toString(parsed.takeError());
  std::string error, schedule = "1f1b";
  JsonFields f(&*parsed, "", error);
  f.text("schedule", schedule);
  if (!parseSchedule(schedule, p.request.schedule))
    f.fail("expected one of " + scheduleNames() + ", got `" + schedule + "`");
  f.integer("stages", p.request.workers), f.integer("chunks", p.request.chunks), f.integer("steps", p.request.steps);
  f.integer("microbatches", p.request.microbatches), f.flag("gate", p.request.gate);
  f.number("latency", p.latency), f.number("bandwidth", p.bandwidth);
  if (const llvm::json::Value *v = f.any("budget"); v && v->getAsArray())
    f.integers("budget", p.budgets);
  else if (v && v->getAsNumber() && *v->getAsNumber() < 0)
    f.fail("expected `budget` to be at least 0");
  else
    f.integer("budget", budget);
  std::vector<int64_t> outputs;
  f.require("segments");
  if (const llvm::json::Array *segments = f.array("segments"))
    for (const llvm::json::Value &value : *segments) {
      outputs.push_back(0);
      p.segments.push_back(readSegment(value, p.segments.size(), outputs.back(), error));
    }
  if (const llvm::json::Array *values = f.array("values")) {
    for (const llvm::json::Value &value : *values) {
      SegmentValue v;
      JsonFields fields(&value, "value " + std::to_string(p.values.size()), error);
      fields.require("source"), fields.require("targets");
      fields.integer("source", v.source), fields.integers("targets", v.targets), fields.integer("bytes", v.bytes);
      v.gradientBytes = v.bytes;
      fields.integer("gradient", v.gradientBytes);
      fields.end();
      p.values.push_back(v);
    }
  } else {
    for (int k = 0; k + 1 < p.size(); ++k)
      p.values.push_back({k, {k + 1}, outputs[k], outputs[k]});
  }
  if (const llvm::json::Array *shared = f.array("shared"))
    for (const llvm::json::Value &value : *shared) {
      SplitProblem::Shared s;
      JsonFields fields(&value, "shared " + std::to_string(p.shared.size()), error);
      fields.integer("bytes", s.bytes), fields.integers("segments", s.segments);
      fields.end();
      p.shared.push_back(s);
    }
  f.end();
  return error;
}

struct Flags {
  std::string file, schedule;
  int64_t stages = -1, chunks = -1, microbatches = -1, budget = -1, work = -1;
  bool table = false;
};

std::string parse(const std::vector<std::string> &arguments, Flags &flags) {
  constexpr int64_t kMostCount = int64_t(1) << 52;
  std::string error = parseFlags(arguments,
                                 {{"--schedule",
                                   [&](llvm::StringRef value) {
                                     Schedule schedule;
                                     flags.schedule = value.str();
                                     return parseSchedule(flags.schedule, schedule);
                                   }},
                                  {"--stages", countInto(flags.stages, 1, 1 << 16)},
                                  {"--chunks", countInto(flags.chunks, 1, 1 << 16)},
                                  {"--microbatches", countInto(flags.microbatches, 1, 1 << 20)},
                                  {"--budget", countInto(flags.budget, 0, kMostCount)},
                                  {"--work-limit", countInto(flags.work, 0, kMostCount)},
                                  {"--table", [&](llvm::StringRef) { return flags.table = true; }, true}},
                                 flags.file);
  return error.empty() && flags.file.empty() && !flags.table ? "expected a file" : error;
}

// Without a file: a segment a stage, each worker's share of the model takes one second for F, I and W each.
std::string unitProblem(const Flags &flags, SplitProblem &p) {
  ScheduleRequest &r = p.request;
  r.schedule = Schedule::OneFOneB;
  if (!flags.schedule.empty())
    parseSchedule(flags.schedule, r.schedule);
  r.workers = int(flags.stages > 0 ? flags.stages : 1), r.microbatches = int(flags.microbatches > 0 ? flags.microbatches : 1);
  r.chunks = int(flags.chunks > 0 ? flags.chunks : r.schedule == Schedule::ZBV ? 2 : 1);
  if (std::string wrong = check(r); !wrong.empty())
    return wrong;
  Segment s;
  s.forward = s.input = s.weight = 1.0 / r.chunks;
  for (int k = 0; k < r.workers * r.chunks; ++k) {
    s.name = std::to_string(k);
    p.segments.push_back(s);
    if (k)
      p.values.push_back({k - 1, {k}, 0, 0});
  }
  return "";
}

std::string number(double value) { return std::isfinite(value) ? exactText(value, 12) : "null"; }

const char *statusName(SplitSolution::Status status) {
  static const char *names[] = {"optimal", "feasible", "infeasible", "unknown"};
  return names[status];
}

// First segment of stages 0, 1, .. and the number of segments.
std::vector<int> borders(const SplitProblem &p, const SplitSolution &s) {
  std::vector<int> list = {0};
  list.insert(list.end(), s.split.cuts.begin(), s.split.cuts.end());
  list.push_back(p.size());
  return list;
}

void printJson(const SplitProblem &p, const SplitSolution &s, const ScheduleTable &table) {
  llvm::raw_ostream &out = llvm::outs();
  bool has = s.status == SplitSolution::Optimal || s.status == SplitSolution::Feasible;
  out << "{\"status\":\"" << statusName(s.status) << "\",\"schedule\":\"" << name(p.request.schedule) << "\",\"stages\":"
      << p.request.workers << ",\"chunks\":" << p.request.chunks << ",\"microbatches\":" << p.request.microbatches;
  out << ",\"makespan\":" << (has ? number(s.makespan) : "null") << ",\"bound\":" << number(s.bound);
  out << ",\"least_budget\":" << s.leastBudget << ",\"least_budget_proved\":" << (s.leastProved ? "true" : "false");
  if (has) {
    TableCosts costs = costsOf(p, table, s.split);
    Simulation simulation = simulate(table, costs);
    std::vector<int> from = borders(p, s);
    out << ",\"bubble\":" << number(simulation.bubble) << ",\"cuts\":[";
    for (size_t i = 0; i < s.split.cuts.size(); ++i)
      out << (i ? "," : "") << s.split.cuts[i];
    out << "],\"ways\":[";
    for (size_t i = 0; i < s.split.ways.size(); ++i)
      out << (i ? "," : "") << s.split.ways[i];
    out << "],\"workers\":[";
    for (int w = 0; w < p.request.workers; ++w) {
      out << (w ? "," : "") << "{\"bytes\":" << bytesOf(table, costs, w) << ",\"peak\":" << simulation.peak[w]
          << ",\"budget\":" << (p.budgets[w] < kUnlimited ? std::to_string(p.budgets[w]) : "null")
          << ",\"busy\":" << number(simulation.busy[w]) << ",\"stages\":[";
      bool first = true;
      for (int stage = 0; stage < table.stages(); ++stage)
        if (table.workerOf[stage] == w) {
          out << (first ? "" : ",") << "{\"stage\":" << stage << ",\"first\":" << from[stage] << ",\"end\":" << from[stage + 1]
              << ",\"slots\":" << table.slots[stage] << ",\"late_slots\":" << table.lateSlots[stage] << "}";
          first = false;
        }
      out << "]}";
    }
    out << "],\"table\":[";
    for (size_t w = 0; w < table.rows.size(); ++w) {
      out << (w ? "," : "") << "[";
      for (size_t i = 0; i < table.rows[w].size(); ++i)
        out << (i ? "," : "") << "[\"" << text(table.rows[w][i]) << "\"," << number(simulation.spans[w][i].begin) << ","
            << number(simulation.spans[w][i].end) << "]";
      out << "]";
    }
    out << "]";
  }
  out << "}\n";
}

void printText(const SplitProblem &p, const SplitSolution &s, const ScheduleTable &table) {
  llvm::raw_ostream &out = llvm::outs();
  TableCosts costs = costsOf(p, table, s.split);
  Simulation simulation = simulate(table, costs);
  std::vector<int> from = borders(p, s);
  out << print(table) << "\n";
  for (int stage = 0; stage < table.stages(); ++stage) {
    out << "stage " << stage << "  worker " << table.workerOf[stage] << "  " << p.segments[from[stage]].name;
    if (from[stage + 1] - from[stage] > 1)
      out << " .. " << p.segments[from[stage + 1] - 1].name;
    int again = 0;
    for (int k = from[stage]; k < from[stage + 1]; ++k)
      again += p.segments[k].ways[s.split.ways[k]].seconds > 0;
    out << "  " << from[stage + 1] - from[stage] << " segments, " << again << " computed again, " << table.slots[stage]
        << " micro-batches in flight\n";
  }
  for (int w = 0; w < p.request.workers; ++w)
    out << "worker " << w << "  " << bytesOf(table, costs, w)
        << (p.budgets[w] < kUnlimited ? " of " + std::to_string(p.budgets[w]) : "") << " bytes, busy "
        << llvm::formatv("{0:f1} %", s.makespan > 0 ? 100 * simulation.busy[w] / s.makespan : 0.0) << "\n";
  out << "makespan " << llvm::format("%.6g s, ", s.makespan);
  if (s.status == SplitSolution::Optimal)
    out << "proved: no split ends sooner";
  else
    out << "not proved: no split ends before " << llvm::format("%.6g s, ", s.bound)
        << (s.bound > 0 ? llvm::formatv("so this one is at most {0:f1} % above the best", 100 * (s.makespan / s.bound - 1)).str() : "which tells nothing");
  out << llvm::format("; %.1f %% of the workers' time is waited\n", 100 * simulation.bubble);
}

// The next larger number of stages whose smallest budget is at most this one; 0 if there is none, or budgets differ.
int stagesThatFit(SplitProblem p) {
  int64_t budget = p.budgets[0];
  for (int64_t other : p.budgets)
    if (other != budget)
      return 0;
  SplitLimits quick;
  quick.work = 1'000'000;
  for (int stages = p.request.workers + 1; stages * p.request.chunks <= p.size() && stages <= 64; ++stages) {
    p.request.workers = stages, p.budgets.assign(stages, budget);
    if (check(p).empty() && solve(p, quick).leastBudget <= budget)
      return stages;
  }
  return 0;
}

} // namespace

int solveStagesMain(const std::vector<std::string> &arguments) {
  Flags flags;
  if (std::string error = parse(arguments, flags); !error.empty())
    return usageError(error + "\n" + kUsageLine);
  SplitProblem p;
  int64_t budget = -1;
  std::string error;
  if (flags.file.empty()) {
    error = unitProblem(flags, p);
  } else {
    std::string text;
    if (!readFile(flags.file, text, error))
      return usageError("cannot read `" + flags.file + "`: " + error);
    error = readProblem(text, p, budget);
  }
  if (!flags.schedule.empty())
    parseSchedule(flags.schedule, p.request.schedule);
  for (auto [flag, field] : {std::pair<int64_t, int *>{flags.stages, &p.request.workers},
                             {flags.chunks, &p.request.chunks},
                             {flags.microbatches, &p.request.microbatches}})
    if (flag > 0)
      *field = int(flag);
  if (flags.budget >= 0)
    budget = flags.budget, p.budgets.clear();
  if (p.budgets.empty() && p.request.workers > 0 && p.request.workers <= 1 << 16)
    p.budgets.assign(p.request.workers, budget >= 0 ? budget : kUnlimited);
  if (error.empty())
    error = check(p);
  if (!error.empty())
    return usageError(flags.file.empty() ? error : flags.file + ": " + error);

  SplitLimits limits;
  if (flags.work >= 0)
    limits.work = flags.work;
  SplitSolution s = solve(p, limits);
  // Table and split are checked by the verifiers, which share nothing with the search, before anybody sees them.
  ScheduleTable table = generate(p.request);
  if (std::string wrong = verify(table); !wrong.empty())
    llvm::report_fatal_error(llvm::Twine("the table is wrong: ") + wrong);
  if (std::string wrong = verify(p, s); !wrong.empty())
    llvm::report_fatal_error(llvm::Twine("the split found is wrong: ") + wrong);
  bool has = s.status == SplitSolution::Optimal || s.status == SplitSolution::Feasible;
  if (flags.table && has)
    printText(p, s, table);
  else
    printJson(p, s, table);
  llvm::outs().flush();
  if (!has) {
    llvm::errs() << "error: no split keeps the budgets\n  smallest budget for which a split is known: " << s.leastBudget
                 << " bytes a worker" << (s.leastProved ? " (there is none below)" : "") << "\n";
    if (int stages = stagesThatFit(p))
      llvm::errs() << "  with this budget --stages " << stages << " fits\n";
  }
  return has ? kDone : kNone;
}

} // namespace cinch::solve
