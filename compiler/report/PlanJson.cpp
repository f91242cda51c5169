// PlanJson.cpp: everything comes from the decision that is shipped and the graph that it was made for.
#include "compiler/report/PlanJson.h"

#include "compiler/solve/Explain.h"
#include "compiler/solve/stages/Held.h"

#include "llvm/Support/FormatVariadic.h"

#include <set>

using llvm::json::Array;
using llvm::json::Object;

namespace cinch::report {

using namespace solve;

template <typename Range, typename Function> static Array column(const Range &range, Function &&of) {
  Array array;
  for (const auto &item : range)
    array.push_back(of(item));
  return array;
}
static Array numbers(const std::vector<int> &list) {
  return column(list, [](int n) { return n; });
}

// Of the main loop, of another one, or what runs once.
static const char *sectionOf(const StepGraph &graph, const Kernel &kernel) {
  if (kernel.section == graph.mainLoop())
    return "loop";
  return isLoop(kernel.section) ? "early loop" : kernel.section < graph.mainLoop() ? "before" : "behind";
}
static const char *str(Kernel::Work work) {
  switch (work) {
  case Kernel::Loop: return "loop";
  case Kernel::Product: return "product";
  case Kernel::Attention: return "attention";
  case Kernel::AttentionGrad: return "attention_grad";
  case Kernel::Nothing: return "nothing";
  }
  return "";
}
static const char *str(Buffer::Kind kind) {
  return kind == Buffer::Persistent ? "persistent" : kind == Buffer::Accumulator ? "accumulator" : "value";
}

static Array kernelArray(const StepGraph &graph, const Decision &decision) {
  std::vector<int> runs(graph.kernels.size(), 0);
  for (const Run &run : decision.runs)
    ++runs[run.kernel];
  Array kernels;
  for (size_t k = 0; k < graph.kernels.size(); ++k) {
    const Kernel &kernel = graph.kernels[k];
    int64_t b = decision.microbatch;
    kernels.push_back(Object{{"name", kernel.name}, {"line", kernel.line}, {"library_line", kernel.libraryLine}, {"section", sectionOf(graph, kernel)},
                             {"backward", kernel.backward}, {"block", kernel.block}, {"runs", runs[k]},
                             {"work", str(kernel.work)}, {"seconds", kernel.seconds.at(b)},
                             {"flops", Array{kernel.flops.fixed, kernel.flops.perExample}},
                             {"traffic", Array{kernel.traffic.fixed, kernel.traffic.perExample}}});
  }
  return kernels;
}

// Tables are objects of columns of the same length.
static void addTables(Object &object, const StepGraph &graph, const Decision &decision) {
  object["buffers"] = Object{{"name", column(graph.buffers, [](const Buffer &b) { return b.name; })},
                             {"line", column(graph.buffers, [](const Buffer &b) { return b.line; })},
                             {"library_line", column(graph.buffers, [](const Buffer &b) { return b.libraryLine; })},
                             {"kind", column(graph.buffers, [](const Buffer &b) { return str(b.kind); })},
                             {"kernel", column(graph.buffers, [](const Buffer &b) { return b.producer; })}};
  object["runs"] = Object{{"kernel", column(decision.runs, [](const Run &r) { return r.kernel; })},
                          {"recomputed", column(decision.runs, [](const Run &r) { return int(r.recomputed); })},
                          {"reads", column(decision.runs, [](const Run &r) { return numbers(r.reads); })},
                          {"writes", column(decision.runs, [](const Run &r) { return numbers(r.writes); })}};
  object["instances"] =
      Object{{"buffer", column(decision.instances, [](const solve::Instance &i) { return i.buffer; })},
             {"run", column(decision.instances, [](const solve::Instance &i) { return i.run; })},
             {"bytes", column(decision.instances, [](const solve::Instance &i) { return i.bytes; })},
             {"lower", column(decision.instances, [](const solve::Instance &i) { return i.lower; })},
             {"upper", column(decision.instances, [](const solve::Instance &i) { return i.upper; })},
             {"storage", column(decision.instances, [](const solve::Instance &i) { return i.storage; })},
             {"class", column(decision.instances, [&](const solve::Instance &i) { return int(classOf(graph, decision, i)); })}};
  object["storages"] = Object{{"bytes", column(decision.storages, [](const Storage &s) { return s.bytes; })},
                              {"lower", column(decision.storages, [](const Storage &s) { return s.lower; })},
                              {"upper", column(decision.storages, [](const Storage &s) { return s.upper; })},
                              {"offset", column(decision.storages, [](const Storage &s) { return s.offset; })}};
  auto at = occupancy(graph, decision);
  Object timeline;
  Array classes;
  for (int c = 0; c < kMemoryClasses; ++c) {
    classes.push_back(solve::str(MemoryClass(c)));
    timeline[solve::str(MemoryClass(c))] = column(at, [&](const auto &bytes) { return bytes[c]; });
  }
  object["timeline"] = std::move(timeline);
  object["classes"] = std::move(classes);
}

// Lines of a file that something in the plan names.
static Object linesOf(const std::set<int> &lines, const SourceList &sources, int file) {
  Object text;
  for (int line : lines)
    if (line > 0 && line <= sources.lineCount(file))
      text[std::to_string(line)] = llvm::json::fixUTF8(llvm::StringRef(sources.line(file, line)).trim());
  return text;
}

static void addLines(Object &object, const StepGraph &graph, const SourceList &sources) {
  std::set<int> lines, library;
  auto add = [&](const auto &named) { lines.insert(named.line), library.insert(named.libraryLine); };
  for (const Kernel &kernel : graph.kernels)
    add(kernel);
  for (const Buffer &buffer : graph.buffers)
    add(buffer);
  object["source_lines"] = linesOf(lines, sources, 1);
  object["library_lines"] = linesOf(library, sources, 0);
}

// What lies in pinned memory of the host, if anything does.
static void addHost(Object &object, const EntryPlan &entry) {
  const StepGraph &graph = entry.outcome.rows.graph;
  const Decision &decision = entry.outcome.result.plan.decision;
  if (decision.hostBytes == 0)
    return;
  Array values;
  for (const HostValue &value : hostValues(graph, decision))
    values.push_back(Object{{"name", graph.buffers[value.buffer].name}, {"line", graph.buffers[value.buffer].line},
                            {"library_line", graph.buffers[value.buffer].libraryLine}, {"buffer", value.buffer},
                            {"bytes", value.bytes}, {"seconds", value.seconds}});
  const CopyTimes &copies = entry.outcome.copies;
  object["host"] = Object{{"bytes", decision.hostBytes}, {"in_seconds", copies.in}, {"out_seconds", copies.out}, {"waited_seconds", copies.waited},
                          {"state", entry.outcome.stateOnHost}, {"copied", copies.bytes}, {"values", std::move(values)}};
}

// The plan of a worker's step.
static Object stepJson(const Compilation &compilation, const SourceList &sources, const EntryPlan &entry, int64_t arena) {
  const DecideOutcome &outcome = entry.outcome;
  const SearchResult &result = outcome.result;
  const Plan &plan = result.plan;
  const StepGraph &graph = outcome.rows.graph;
  const Decision &decision = plan.decision;
  int64_t allowance = compilation.allowance(), accumulators = 0;
  auto at = occupancy(graph, decision);
  if (plan.peakRun < int(at.size()))
    accumulators = at[plan.peakRun][int(MemoryClass::Accumulator)];

  Array holders, curve, named, kept, again, rows;
  for (const solve::RowKernel &range : outcome.rows.ranges) {
    solve::RowSummary summary = solve::summaryOf(range, outcome.rows, decision);
    rows.push_back(Object{{"name", summary.name}, {"line", summary.line}, {"kernel", range.kernel},
                          {"kernels", int64_t(range.range.kernels.size())}, {"again", range.range.again},
                          {"blocks", summary.blocks}, {"examples", outcome.rows.block.examples},
                          {"positions", outcome.rows.block.positions}, {"bytes", summary.bytes},
                          {"instead", summary.instead}, {"seconds", summary.seconds}});
  }
  std::vector<LiveBuffer> live = alive(graph, plan, plan.peakRun);
  for (const LiveBuffer &buffer : llvm::ArrayRef(live).take_front(10))
    holders.push_back(Object{{"name", buffer.name}, {"line", buffer.line}, {"bytes", buffer.bytes},
                             {"recomputed", buffer.recomputed}});
  auto point = [&](const LadderPoint &p) {
    return Object{{"bytes", p.arenaBytes + allowance}, {"seconds", p.seconds}, {"microbatch", p.microbatch},
                  {"name", p.name}};
  };
  for (const LadderPoint &p : outcome.tradeOff)
    curve.push_back(point(p));
  for (const LadderPoint &p : outcome.named)
    named.push_back(point(p));
  for (const KeptValue &value : keptValues(graph, decision))
    kept.push_back(Object{{"name", graph.buffers[value.buffer].name}, {"line", graph.buffers[value.buffer].line},
                          {"library_line", graph.buffers[value.buffer].libraryLine}, {"buffer", value.buffer},
                          {"bytes", value.bytes}, {"seconds", value.seconds}});
  for (const Recomputation &r : recomputations(graph, decision))
    again.push_back(Object{{"name", graph.kernels[r.kernel].name}, {"line", graph.kernels[r.kernel].line},
                           {"library_line", graph.kernels[r.kernel].libraryLine}, {"kernel", r.kernel}, {"times", r.times}, {"bytes", r.bytes}, {"seconds", r.seconds}});

  Object object{{"memory", arena + allowance},
                {"arena", arena},
                {"persistent", entry.persistentBytes},
                {"peak_live", plan.peakLive},
                {"peak_run", plan.peakRun},
                {"peak_accumulators", accumulators},
                {"bound", result.bound},
                {"remat", result.name},
                {"recomputed_runs", plan.recomputed},
                {"seconds", plan.seconds},
                {"seconds_bound", result.secondsBound},
                {"recompute_seconds", plan.recomputeSeconds},
                {"loop", Array{decision.loopBegin(), decision.loopEnd()}},
                {"turn", turnOf(graph, decision)},
                {"peak", std::move(holders)},
                {"kept", std::move(kept)},
                {"recomputed", std::move(again)},
                {"row_blocks", std::move(rows)},
                {"kernels", kernelArray(graph, decision)},
                {"trade_off", std::move(curve)},
                {"strategies", std::move(named)}};
  addHost(object, entry);
  addLines(object, graph, sources);
  addTables(object, graph, decision);
  return object;
}

static Object classBytes(llvm::ArrayRef<ClassBytes> list) {
  Object columns;
  for (int c = 0; c < kMemoryClasses; ++c)
    columns[solve::str(MemoryClass(c))] = column(list, [&](const ClassBytes &bytes) { return bytes[size_t(c)]; });
  return columns;
}

// What a worker does and holds in a step. The bytes: before the loop, then during and after each action, then behind the loop.
static Object workerJson(const Compilation &compilation, const SourceList &sources, size_t w) {
  const WorkersPlan::Worker &worker = compilation.workers.each[w];
  const EntryPlan &entry = compilation.entries[w];
  HeldBytes held = heldBytes(entry.outcome.rows.graph, entry.outcome.result.plan.decision);
  std::vector<ClassBytes> bytes{held.before};
  for (const HeldBytes::Action &action : held.actions)
    bytes.push_back(action.during), bytes.push_back(action.after);
  bytes.push_back(held.behind);
  using Done = WorkersPlan::Worker::Done;
  Object object{{"arena", worker.bytes}, {"messages", worker.messages}, {"state_once", worker.once}, {"busy", worker.busy},
                {"forward", worker.forward}, {"backward", worker.backward},
                {"before", worker.before}, {"behind", worker.behind},
                {"begins", worker.begins}, {"ends", worker.ends},
                {"actions", Object{{"name", column(worker.actions, [](const Done &done) { return text(done.action); })},
                                   {"stage", column(worker.actions, [](const Done &done) { return done.action.stage; })},
                                   {"microbatch", column(worker.actions, [](const Done &done) { return done.action.microbatch; })},
                                   {"begin", column(worker.actions, [](const Done &done) { return done.begin; })},
                                   {"end", column(worker.actions, [](const Done &done) { return done.end; })}}},
                {"held", classBytes(bytes)},
                {"plan", stepJson(compilation, sources, entry, worker.bytes)}};
  if (!compilation.workers.bounds.empty())
    object["seconds_bound"] = compilation.workers.bounds[w]; // of a micro-batch
  return object;
}

llvm::json::Object planJson(const Compilation &compilation, const SourceList &sources, int64_t budget) {
  const EntryPlan &entry = compilation.entries.front();
  const StepGraph &graph = entry.outcome.rows.graph;
  const Decision &decision = entry.outcome.result.plan.decision;
  Object object = stepJson(compilation, sources, entry, compilation.arenaBytes());
  object["source"] = std::string(sources.name(1));
  object["budget"] = budget;
  object["allowance"] = compilation.allowance();
  if (compilation.refused) // it is sought for a refusal only
    object["smallest_budget"] = compilation.smallestBudget();
  object["budget_bound"] = compilation.budgetBound();
  object["batch"] = graph.batch, object["microbatch"] = decision.microbatch, object["count"] = decision.count;
  object["threads"] = graph.threads;
  object["costs"] = compilation.machine().sourceOfRates();
  if (compilation.fixedBound)
    object["fixed_seconds_bound"] = *compilation.fixedBound;
  Array workers;
  for (size_t w = 0; w < compilation.workers.each.size(); ++w)
    workers.push_back(workerJson(compilation, sources, w));
  if (!workers.empty()) {
    const ScheduleRequest &request = compilation.workers.request;
    object["schedule"] = Object{{"name", name(request.schedule)}, {"workers", request.workers}, {"chunks", request.chunks},
                                {"microbatches", request.microbatches}, {"seconds", compilation.workers.seconds}};
    object["seconds"] = compilation.workers.seconds;
    object["persistent"] = compilation.persistentBytes();
  }
  object["workers"] = std::move(workers);
  return object;
}

void printObject(llvm::raw_ostream &out, const Object &object) {
  std::vector<llvm::StringRef> keys;
  for (const auto &entry : object)
    keys.push_back(entry.first);
  llvm::sort(keys);
  out << "{";
  for (size_t i = 0; i < keys.size(); ++i)
    out << (i ? ",\n" : "\n") << llvm::json::Value(keys[i]) << ": " << *object.get(keys[i]);
  out << "\n}\n";
}

} // namespace cinch::report
