// ClusterMain.cpp: the commands `solve cluster` and `plan --cluster`.
#include "compiler/solve/CommandFlags.h"
#include "compiler/solve/cluster/Cluster.h"
#include "compiler/solve/stages/JsonFields.h"
#include "compiler/solve/ParseJson.h"
#include "compiler/solve/ReadFile.h"
#include "compiler/solve/Units.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Format.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

namespace cinch::solve {

namespace {

using detail::JsonFields;

constexpr const char *kUsageLine =
    "usage: solve cluster MODEL.json --cluster CLUSTER.json [--grid PxTxD] [--microbatch N] [--schedule NAME] [--chunks V] "
    "[--recompute none|selective|full] [--work-limit N]";
constexpr size_t kAlternatives = 12; // printed

// `80GB`, `80GiB`, or a number of bytes.
void readBytes(JsonFields &f, llvm::StringRef key, int64_t &to) {
  const llvm::json::Value *v = f.any(key);
  std::optional<llvm::StringRef> word = v ? v->getAsString() : std::nullopt;
  if (!word)
    return f.integer(key, to);
  static const std::pair<const char *, double> units[] = {{"TiB", double(int64_t(1) << 40)}, {"GiB", 1 << 30}, {"MiB", 1 << 20},
                                                          {"TB", 1e12}, {"GB", 1e9}, {"MB", 1e6}, {"B", 1}};
  for (auto &[unit, factor] : units) {
    double number;
    if (!word->ends_with(unit))
      continue;
    if (word->drop_back(std::string(unit).size()).trim().getAsDouble(number) || !(number > 0) || number * factor > 1e15)
      break;
    to = int64_t(number * factor);
    return;
  }
  f.fail("expected bytes for `" + key.str() + "`, such as \"80GB\", got `" + word->str() + "`");
}

void readLink(JsonFields &f, llvm::StringRef key, const std::string &place, NetworkLink &link, std::string &error) {
  f.require(key);
  JsonFields fields(f.any(key), place + key.str(), error);
  fields.require("bandwidth");
  fields.number("bandwidth", link.bandwidth), fields.number("latency", link.latency);
  fields.end();
}

std::string readCluster(const llvm::json::Value &value, Cluster &c) {
  std::string error;
  JsonFields f(&value, "", error);
  f.require("groups");
  if (const llvm::json::Array *groups = f.array("groups"))
    for (const llvm::json::Value &v : *groups) {
      DeviceGroup g;
      std::string place = "group " + std::to_string(c.groups.size());
      JsonFields fields(&v, place, error);
      for (const char *key : {"devices", "memory", "flops", "bandwidth"})
        fields.require(key);
      fields.integer("nodes", g.nodes), fields.integer("devices", g.devices);
      readBytes(fields, "memory", g.memory);
      const llvm::json::Value *flops = fields.any("flops");
      if (const llvm::json::Object *rates = flops ? flops->getAsObject() : nullptr) {
        for (auto &[precision, rate] : *rates)
          if (rate.getAsNumber())
            g.flops[precision.str()] = *rate.getAsNumber();
          else
            fields.fail("expected a number for the flops of " + precision.str());
      } else
        fields.fail("expected `flops` by precision, such as {\"bf16\": 312e12}");
      fields.number("efficiency", g.efficiency), fields.number("attention_efficiency", g.attentionEfficiency);
      fields.number("bandwidth", g.bandwidth), fields.number("traffic_efficiency", g.trafficEfficiency);
      if (g.devices > 1 || fields.has("link"))
        readLink(fields, "link", place + ", ", g.link, error);
      else
        g.link.bandwidth = 1; // one device a node: nothing travels inside
      fields.end();
      c.groups.push_back(g);
    }
  readLink(f, "network", "", c.network, error);
  f.end();
  return error;
}

std::string readModel(const llvm::json::Value &value, GptModel &m) {
  std::string error;
  JsonFields f(&value, "", error);
  for (const char *key : {"layers", "hidden", "heads", "sequence", "vocabulary", "batch"})
    f.require(key);
  f.integer("layers", m.layers), f.integer("hidden", m.hidden), f.integer("heads", m.heads), f.integer("sequence", m.sequence);
  f.integer("vocabulary", m.vocabulary), f.integer("batch", m.batch), f.text("precision", m.precision);
  if (m.precision == "f32")
    m.parameterBytes = m.gradientBytes = 4, m.stateBytes = 8; // Adam's two moments beside the parameter itself
  f.integer("parameter_bytes", m.parameterBytes), f.integer("gradient_bytes", m.gradientBytes);
  f.integer("state_bytes", m.stateBytes);
  f.end();
  return error;
}

template <typename T> std::string readJson(const std::string &file, T &to, std::string (*read)(const llvm::json::Value &, T &)) {
  std::string text, error;
  if (!readFile(file, text, error))
    return "cannot read `" + file + "`: " + error;
  llvm::Expected<llvm::json::Value> parsed = parseJson(text);
  error = parsed ? read(*parsed, to) : llvm::toString(parsed.takeError());
  return error.empty() ? "" : file + ": " + error;
}

struct Flags {
  std::string model, cluster;
  ClusterRequest request;
  int64_t work = 60'000'000;
};

std::string parse(const std::vector<std::string> &arguments, Flags &flags) {
  ClusterRequest &r = flags.request;
  auto count = [](int &to) { return countInto(to, 1, int64_t(1) << 31); };
  std::string error = parseFlags(
      arguments,
      {{"--cluster", [&](llvm::StringRef value) { return flags.cluster = value.str(), true; }},
       {"--grid",
        [&](llvm::StringRef value) {
          llvm::SmallVector<llvm::StringRef> parts;
          value.split(parts, 'x');
          return parts.size() == 3 && count(r.stages)(parts[0]) && count(r.shards)(parts[1]) && count(r.replicas)(parts[2]);
        }},
       {"--microbatch", count(r.microbatch)},
       {"--schedule",
        [&](llvm::StringRef value) {
          Schedule schedule;
          bool ok = parseSchedule(value.str(), schedule) && schedule != Schedule::TwoBW; // its gradients are late: another program
          r.schedules = {schedule};
          return ok;
        }},
       {"--chunks", count(r.chunks)},
       {"--recompute",
        [&](llvm::StringRef value) {
          Recompute recompute;
          bool ok = parseRecompute(value.str(), recompute);
          r.recomputes = {recompute};
          return ok;
        }},
       {"--work-limit", countInto(flags.work, 0)}},
      flags.model);
  if (!error.empty())
    return error;
  return flags.model.empty() ? "expected a model" : flags.cluster.empty() ? "expected --cluster CLUSTER.json" : "";
}

double teraflops(const GptModel &m, const Cluster &c, const Prediction &p) { return m.flops() / p.seconds / c.devices() / 1e12; }

void printPrediction(llvm::raw_ostream &out, const GptModel &m, const Cluster &c, const Prediction &p) {
  const Layout &l = p.layout;
  out << "{\"stages\":" << l.stages << ",\"shards\":" << l.shards << ",\"replicas\":" << l.replicas << ",\"microbatch\":"
      << l.microbatch << ",\"schedule\":\"" << name(l.schedule) << "\",\"chunks\":" << l.chunks << ",\"recompute\":\""
      << name(l.recompute) << "\""
      << llvm::format(",\"seconds\":%.9g,\"teraflops\":%.9g,\"tokens_per_second\":%.9g", p.seconds, teraflops(m, c, p),
                      double(m.batch) * double(m.sequence) / p.seconds)
      << llvm::format(",\"bubble\":%.6g,\"update\":%.6g,\"bytes\":%lld}", p.bubble, p.update, (long long)p.bytes);
}

void printJson(const GptModel &m, const Cluster &c, const ClusterPlan &plan, double seconds) {
  llvm::raw_ostream &out = llvm::outs();
  bool has = !plan.ranked.empty();
  out << "{\"status\":\"" << (!has ? "infeasible" : plan.proved ? "optimal" : "feasible") << "\",\"devices\":" << c.devices()
      << llvm::format(",\"parameters\":%.9g,\"flops\":%.9g", m.parameters(), m.flops()) << ",\"candidates\":" << plan.candidates
      << ",\"too_large\":" << plan.tooLarge << ",\"simulated\":" << plan.simulated
      << llvm::format(",\"search_seconds\":%.3f", seconds) << ",\"least_bytes\":" << plan.leastBytes;
  for (size_t i = 0; i < std::min(plan.ranked.size(), kAlternatives + 1); ++i) {
    out << (i == 0 ? ",\"best\":" : i == 1 ? ",\"alternatives\":[" : ",");
    printPrediction(out, m, c, plan.ranked[i]);
  }
  out << (plan.ranked.size() > 1 ? "]" : has ? ",\"alternatives\":[]" : "") << "}\n";
}

void printText(const GptModel &m, const Cluster &c, const ClusterPlan &plan) {
  llvm::raw_ostream &out = llvm::outs();
  out << llvm::format("model    %.3g parameters, ", m.parameters()) << m.layers << " layers of " << m.hidden << ", batch " << m.batch
      << " x " << m.sequence << ", " << m.precision << "\n";
  out << "cluster  " << c.devices() << " devices\n\n";
  out << "stages x shards x replicas  micro-batch  schedule        recompute    s a step  TFLOP/s a device  bytes a device  waited\n";
  for (size_t i = 0; i < std::min(plan.ranked.size(), kAlternatives + 1); ++i) {
    const Prediction &p = plan.ranked[i];
    std::string grid = std::to_string(p.layout.stages) + " x " + std::to_string(p.layout.shards) + " x " +
                       std::to_string(p.layout.replicas);
    std::string schedule = p.layout.stages == 1 ? "-" : name(p.layout.schedule);
    if (p.layout.schedule == Schedule::Interleaved && p.layout.stages > 1)
      schedule += "/" + std::to_string(p.layout.chunks);
    out << llvm::format("%-26s  %11d  %-14s  %-9s  %10.3f  %16.1f  %14s  %4.1f %%\n", grid.c_str(), p.layout.microbatch,
                        schedule.c_str(), name(p.layout.recompute), p.seconds, teraflops(m, c, p), bytesText(p.bytes).c_str(),
                        100 * p.bubble);
  }
  out << "\n" << plan.candidates << " layouts, " << plan.tooLarge << " of them too large, " << plan.simulated << " simulated; "
      << (plan.proved ? "none of the others can be faster than the first\n" : "the search was cut off: others may be faster\n");
  out << "TFLOP/s: 96 B s l h^2 (1 + s / 6h + V / 16 l h) a step, which counts one recomputation, whatever the layout does\n";
}

} // namespace

// A program in f32 for machines of which only the speed in 16 bits is known.
static void takePrecision(const Cluster &c, GptModel &m) {
  for (const DeviceGroup &group : c.groups)
    if (!group.flops.count(m.precision) && group.flops.count("bf16")) {
      llvm::errs() << "note: the cluster has no flops for " << m.precision << "; planned with bf16\n";
      m.precision = "bf16";
      m.parameterBytes = m.gradientBytes = GptModel().parameterBytes, m.stateBytes = GptModel().stateBytes;
    }
}

int solveClusterMain(const std::vector<std::string> &arguments, bool text, const GptModel *given) {
  Flags flags;
  if (std::string error = parse(arguments, flags); !error.empty())
    return usageError(error + "\n" + kUsageLine);
  Cluster c;
  GptModel m;
  std::string error = readJson(flags.cluster, c, readCluster);
  if (error.empty())
    if (error = check(c); !error.empty())
      error = flags.cluster + ": " + error;
  if (error.empty() && given)
    m = *given, takePrecision(c, m);
  else if (error.empty())
    error = readJson(flags.model, m, readModel);
  if (error.empty())
    if (error = check(m, c); !error.empty())
      error = flags.model + ": " + error;
  if (!error.empty())
    return usageError(error);
  auto begin = std::chrono::steady_clock::now();
  ClusterPlan best = plan(m, c, flags.request, flags.work);
  double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  if (best.candidates == 0)
    return usageError("no layout of " + std::to_string(c.devices()) + " devices fits the model's sizes and these flags");
  if (text && !best.ranked.empty())
    printText(m, c, best);
  else
    printJson(m, c, best, seconds);
  llvm::outs().flush();
  if (best.ranked.empty())
    llvm::errs() << "error: no layout fits into the devices' memory\n  the smallest found needs "
                 << bytesText(best.leastBytes) << " a device\n";
  return best.ranked.empty() ? kNone : kDone;
}

} // namespace cinch::solve
