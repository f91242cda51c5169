// SolveMain.cpp: `solve remat` and `solve arena`: anybody's graphs and buffers from a file, answers on standard output.
#include "compiler/solve/CommandFlags.h"
#include "compiler/solve/dag/Dag.h"
#include "compiler/solve/Memory.h"
#include "compiler/solve/ParseJson.h"
#include "compiler/solve/ReadFile.h"
#include "compiler/solve/Units.h"

#include "llvm/ADT/DenseMap.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <map>

namespace cinch::solve {
namespace {

// Flags of both commands.
struct Flags {
  std::string file;
  int64_t budget = -1, capacity = -1, work = -1;
  double seconds = 0;
  Order order = Order::Free;
};

std::string parse(const std::vector<std::string> &arguments, bool remat, Flags &flags) {
  std::vector<CommandFlag> known;
  if (remat) {
    known.push_back({"--budget", countInto(flags.budget, 0)});
    known.push_back({"--order", [&](llvm::StringRef value) {
                       flags.order = value == "given" ? Order::Given : Order::Free;
                       return value == "free" || value == "given";
                     }});
  } else {
    known.push_back({"--capacity", countInto(flags.capacity, 0)});
  }
  known.push_back({"--time-limit", [&](llvm::StringRef value) {
                     return !value.getAsDouble(flags.seconds) && flags.seconds > 0 && std::isfinite(flags.seconds);
                   }});
  known.push_back({"--work-limit", countInto(flags.work, 0)});
  std::string error = parseFlags(arguments, known, flags.file);
  if (error.empty() && flags.file.empty())
    error = "expected a file";
  if (error.empty() && remat && flags.budget < 0)
    error = "expected --budget BYTES";
  return error;
}

// Node-link JSON to a graph; the message is empty if it is one.
std::string readDag(llvm::StringRef text, Dag &d) {
  llvm::Expected<llvm::json::Value> parsed = parseJson(text);
  if (!parsed)
    return llvm::toString(parsed.takeError());
  const llvm::json::Object *root = parsed->getAsObject();
  const llvm::json::Array *nodes = root ? root->getArray("nodes") : nullptr;
  const llvm::json::Array *edges = root ? root->getArray("edges") : nullptr;
  if (root && !edges)
    edges = root->getArray("links");
  if (!nodes || !edges)
    return "expected an object with the arrays `nodes` and `edges`";
  std::map<int64_t, int> at;
  for (const llvm::json::Value &value : *nodes) {
    const llvm::json::Object *o = value.getAsObject();
    std::string who = "node " + std::to_string(d.nodes.size()) + " of the list: ";
    if (!o || !o->getInteger("id"))
      return who + "expected an object with an integer `id`";
    Dag::Node node;
    node.id = *o->getInteger("id");
    std::optional<double> cost = o->getNumber("cost");
    std::optional<int64_t> bytes = o->getInteger("bytes");
    if (!cost || !bytes || *cost < 0 || *bytes < 0 || *bytes > (int64_t(1) << 53))
      return who + "expected a `cost` and integer `bytes`, neither negative";
    node.cost = *cost, node.bytes = *bytes;
    if (auto name = o->getString("name"))
      node.name = name->str();
    if (!at.insert({node.id, int(d.nodes.size())}).second)
      return "two nodes have the id " + std::to_string(node.id);
    d.nodes.push_back(std::move(node));
  }
  std::map<std::pair<int, int>, bool> seen;
  for (const llvm::json::Value &value : *edges) {
    const llvm::json::Object *o = value.getAsObject();
    auto source = o ? o->getInteger("source") : std::nullopt, target = o ? o->getInteger("target") : std::nullopt;
    if (!source || !target)
      return "expected every edge to have an integer `source` and `target`";
    if (!at.count(*source) || !at.count(*target))
      return "an edge names node " + std::to_string(at.count(*source) ? *target : *source) + ", which does not exist";
    int u = at[*source], v = at[*target];
    if (!seen.insert({{u, v}, true}).second)
      continue; // the same edge again
    d.nodes[v].sources.push_back(u), d.nodes[u].users.push_back(v);
  }
  return "";
}

std::string number(double value) {
  if (value == std::floor(value) && std::abs(value) < 9e15)
    return std::to_string(int64_t(value));
  return exactText(value, 15);
}

std::string quoted(const std::string &path) { return "`" + path + "`"; }

} // namespace

int solveRematMain(const std::vector<std::string> &arguments) {
  Flags flags;
  if (std::string error = parse(arguments, true, flags); !error.empty())
    return usageError(
        error +
        "\nusage: solve remat G.json --budget BYTES [--order free|given] [--time-limit SECONDS] [--work-limit N]");
  std::string text, error;
  if (!readFile(flags.file, text, error))
    return usageError("cannot read " + quoted(flags.file) + ": " + error);
  Dag d;
  error = readDag(text, d);
  if (error.empty())
    error = check(d, flags.order);
  if (!error.empty())
    return usageError(flags.file + ": " + error);

  double start = detail::secondsNow();
  DagLimits limits;
  if (flags.seconds > 0)
    limits.seconds = flags.seconds, limits.work = INT64_MAX / 4;
  if (flags.work >= 0)
    limits.work = flags.work;
  DagSolution s = solve(d, flags.order, flags.budget, limits);
  if (!s.fault.empty())
    llvm::report_fatal_error(llvm::Twine(s.fault));
  bool has = s.status == DagSolution::Optimal || s.status == DagSolution::Feasible;
  std::vector<int> schedule;
  if (has) {
    schedule = withFrees(d, s.runs);
    // The answer is checked by the verifier, which shares nothing with the search, before anybody sees it.
    if (std::string wrong = verify(d, flags.order, flags.budget, schedule, s.cost); !wrong.empty())
      llvm::report_fatal_error(llvm::Twine("the schedule found is wrong: ") + wrong);
  }
  static const char *names[] = {"optimal", "feasible", "infeasible", "unknown"};
  llvm::raw_ostream &out = llvm::outs();
  out << "{\"status\":\"" << names[s.status] << "\",\"budget\":" << flags.budget;
  out << ",\"cost\":" << (has ? number(s.cost.cost) : "null") << ",\"bound\":" << number(s.bound);
  out << ",\"peak\":" << (has ? std::to_string(s.cost.peak) : "null") << ",\"least_budget\":" << s.leastBudget;
  out << ",\"seconds\":" << llvm::format("%.3f", detail::secondsNow() - start);
  if (has) {
    out << ",\"schedule\":[";
    for (size_t i = 0; i < schedule.size(); ++i) {
      int v = schedule[i];
      out << (i ? "," : "") << (v < 0 ? "[\"free\"," : "[\"compute\",") << d.nodes[v < 0 ? ~v : v].id << "]";
    }
    out << "]";
  }
  out << "}\n";
  out.flush();
  return has ? kDone : kNone;
}

int solveArenaMain(const std::vector<std::string> &arguments) {
  Flags flags;
  if (std::string error = parse(arguments, false, flags); !error.empty())
    return usageError(error + "\nusage: solve arena B.csv [--capacity BYTES] [--time-limit SECONDS] [--work-limit N]");
  std::string text, error;
  if (!readFile(flags.file, text, error))
    return usageError("cannot read " + quoted(flags.file) + ": " + error);
  ArenaProblem p;
  std::vector<std::string> ids;
  llvm::SmallVector<llvm::StringRef> lines;
  llvm::StringRef rest = text;
  rest.consume_front("\xEF\xBB\xBF"); // a byte order mark is no part of the first column's name
  rest.split(lines, '\n');
  int columns[4] = {-1, -1, -1, -1}; // id, lower, upper, size
  size_t width = 0;                  // columns of the first line
  static const char *names[] = {"id", "lower", "upper", "size"};
  for (size_t i = 0; i < lines.size(); ++i) {
    llvm::StringRef line = lines[i].trim();
    if (line.empty())
      continue;
    llvm::SmallVector<llvm::StringRef> cells;
    line.split(cells, ',');
    std::string where = flags.file + ":" + std::to_string(i + 1) + ": ";
    if (columns[0] < 0) {
      for (size_t c = 0; c < cells.size(); ++c)
        for (int k = 0; k < 4; ++k)
          if (cells[c].trim() == names[k]) {
            if (columns[k] >= 0)
              return usageError(where + "two columns are called `" + names[k] + "`");
            columns[k] = int(c);
          }
      for (int k = 0; k < 4; ++k)
        if (columns[k] < 0)
          return usageError(where + "expected a first line with the columns id,lower,upper,size");
      width = cells.size();
      continue;
    }
    if (cells.size() > width)
      return usageError(where + std::to_string(cells.size()) + " cells, but the first line names " + std::to_string(width) + " columns");
    int64_t values[4];
    for (int k = 0; k < 4; ++k) {
      if (columns[k] >= int(cells.size()))
        return usageError(where + "expected a value for `" + names[k] + "`");
      if (k && cells[columns[k]].trim().getAsInteger(10, values[k]))
        return usageError(where + "expected an integer for `" + names[k] + "`, got `" + cells[columns[k]].trim().str() +
                          "`");
    }
    ids.push_back(cells[columns[0]].trim().str());
    p.buffers.push_back({values[3], values[1], values[2], -1});
  }
  if (columns[0] < 0)
    return usageError(flags.file + ": expected a first line with the columns id,lower,upper,size");
  if (error = check(p); !error.empty())
    return usageError(flags.file + ": " + error);
  ArenaLimits limits;
  if (flags.capacity >= 0)
    limits.capacity = flags.capacity;
  limits.work = flags.work >= 0 ? flags.work : flags.seconds > 0 ? INT64_MAX / 4 : kArenaCommandWork;
  limits.seconds = flags.seconds;
  ArenaSolution s = solve(p, limits);
  if (std::string wrong = verify(p, s); !wrong.empty())
    llvm::report_fatal_error(llvm::Twine("the placement found is wrong: ") + wrong);
  llvm::raw_ostream &out = llvm::outs();
  out << "id,lower,upper,size,offset\n";
  for (size_t i = 0; i < ids.size(); ++i)
    out << ids[i] << "," << p.buffers[i].lower << "," << p.buffers[i].upper << "," << p.buffers[i].size << ","
        << s.offsets[i] << "\n";
  out << "# height " << s.height << ", bound " << s.bound << "\n";
  out.flush();
  return flags.capacity >= 0 && s.height > flags.capacity ? kNone : kDone;
}

} // namespace cinch::solve
