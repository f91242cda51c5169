// Price.cpp: seconds and bytes of the stages of a layout.
#include "compiler/solve/cluster/Cluster.h"

#include <algorithm>
#include <cmath>
#include <tuple>

namespace cinch::solve {

double GptModel::parameters() const {
  double l = double(layers), h = double(hidden), V = double(vocabulary), s = double(sequence);
  return 12 * l * h * h * (1 + 13 / (12 * h) + (V + s) / (12 * l * h));
}

double GptModel::flops() const {
  double l = double(layers), h = double(hidden), V = double(vocabulary), s = double(sequence), B = double(batch);
  return 96 * B * s * l * h * h * (1 + s / (6 * h) + V / (16 * l * h));
}

const char *name(Recompute r) {
  static const char *names[] = {"none", "selective", "full"};
  return names[int(r)];
}

bool parseRecompute(const std::string &word, Recompute &r) {
  for (Recompute each : {Recompute::None, Recompute::Selective, Recompute::Full})
    if (word == name(each)) {
      r = each;
      return true;
    }
  return false;
}

namespace {

// Rates and seconds between these, of sizes as `check` admits them, make steps that end at a finite time.
constexpr double kMostSeconds = 1e100, kMostRate = 1e100;
bool isRate(double x) { return x >= 1 / kMostRate && x <= kMostRate; }
bool isShare(double x) { return x >= 1 / kMostRate && x <= 1; }
bool isLink(const NetworkLink &link) { return isRate(link.bandwidth) && link.latency >= 0 && link.latency <= kMostSeconds; }

// A device holds at most this much, and what takes more is counted as just above it: sums of a few such counts fit into 64 bits.
constexpr int64_t kMostBytes = int64_t(1) << 60;
int64_t wholeBytes(double bytes) { return bytes > double(kMostBytes) ? kMostBytes + 1 : int64_t(bytes); }

// The slowest and smallest of the groups.
DeviceGroup weakest(const Cluster &c) {
  DeviceGroup w = c.groups[0];
  for (const DeviceGroup &g : c.groups) {
    w.devices = std::min(w.devices, g.devices), w.memory = std::min(w.memory, g.memory);
    for (auto &[precision, rate] : w.flops)
      if (auto other = g.flops.find(precision); other != g.flops.end())
        rate = std::min(rate, other->second);
    w.efficiency = std::min(w.efficiency, g.efficiency), w.bandwidth = std::min(w.bandwidth, g.bandwidth);
    w.attentionEfficiency = std::min(w.attentionEfficiency, g.attentionEfficiency);
    w.trafficEfficiency = std::min(w.trafficEfficiency, g.trafficEfficiency);
    w.link.bandwidth = std::min(w.link.bandwidth, g.link.bandwidth), w.link.latency = std::max(w.link.latency, g.link.latency);
  }
  return w;
}

double allReduce(double bytes, int n, const NetworkLink &link) {
  return n > 1 ? 2 * (n - 1.0) / n * bytes / link.bandwidth + 2 * (n - 1) * link.latency : 0;
}

ScheduleRequest requestOf(const GptModel &m, const Layout &l) {
  return {l.schedule, l.stages, int(m.batch / (int64_t(l.replicas) * l.microbatch)), l.chunks, 1, true};
}

} // namespace

std::string check(const Cluster &c) {
  if (c.groups.empty())
    return "expected at least one group";
  int64_t all = 0;
  for (const DeviceGroup &g : c.groups) {
    if (g.nodes < 1 || g.devices < 1 || g.memory < 1)
      return "nodes, devices and memory of a group must be at least 1";
    if (g.memory > kMostBytes)
      return "a device has at most 2^60 bytes of memory";
    all += int64_t(g.nodes) * g.devices;
    if (all > int64_t(1) << 40)
      break; // too many, which is said below
    if (g.flops.empty() || !isRate(g.bandwidth) || !isLink(g.link))
      return "expected flops, bandwidth and link of a group, bandwidths from 1e-100 to 1e100, a latency from 0 to 1e100";
    for (auto &[precision, rate] : g.flops)
      if (!isRate(rate) || !c.groups[0].flops.count(precision) || g.flops.size() != c.groups[0].flops.size())
        return "expected flops from 1e-100 to 1e100 for the same precisions in every group";
    if (!isShare(g.efficiency) || !isShare(g.trafficEfficiency) || !(g.attentionEfficiency < 0 || isShare(g.attentionEfficiency)))
      return "an efficiency is at least 1e-100 and at most 1";
  }
  if (all > 1 << 20)
    return "more than " + std::to_string(1 << 20) + " devices";
  if (!isLink(c.network))
    return "expected a bandwidth of the network from 1e-100 to 1e100 and a latency from 0 to 1e100";
  return "";
}

std::string check(const GptModel &m, const Cluster &c) {
  for (int64_t size : {m.layers, m.hidden, m.heads, m.sequence, m.vocabulary, m.batch})
    if (size < 1 || size > 1 << 24)
      return "layers, hidden, heads, sequence, vocabulary and batch are at least 1 and at most 2^24";
  if (m.layers > 4096)
    return "more than 4096 layers";
  if (m.hidden % m.heads != 0)
    return "heads must divide hidden";
  for (auto [key, bytes, least] : {std::tuple<const char *, int, int>{"parameter_bytes", m.parameterBytes, 1},
                                   {"gradient_bytes", m.gradientBytes, 1},
                                   {"state_bytes", m.stateBytes, 0}})
    if (bytes < least || bytes > 1 << 20)
      return std::string(key) + " is at least " + std::to_string(least) + " and at most 2^20, got " + std::to_string(bytes);
  if (!c.groups[0].flops.count(m.precision))
    return "the cluster has no flops for precision " + m.precision;
  return "";
}

std::string check(const GptModel &m, const Cluster &c, const Layout &l) {
  if (l.stages < 1 || l.shards < 1 || l.replicas < 1 || l.microbatch < 1 || l.chunks < 1)
    return "stages, shards, replicas, microbatch and chunks are at least 1";
  if (int64_t(l.stages) * l.shards * l.replicas != c.devices())
    return "stages x shards x replicas is " + std::to_string(int64_t(l.stages) * l.shards * l.replicas) + ", the cluster has " +
           std::to_string(c.devices()) + " devices";
  if (weakest(c).devices % l.shards != 0)
    return "shards must divide the devices of a node";
  if (m.heads % l.shards != 0)
    return "shards must divide the heads";
  if (m.batch % (int64_t(l.replicas) * l.microbatch) != 0)
    return "replicas x microbatch must divide the batch";
  if (int64_t(l.stages) * l.chunks > m.layers)
    return "there are more stages than layers";
  return check(requestOf(m, l));
}

Priced price(const GptModel &model, const Cluster &cluster, const Layout &layout) {
  DeviceGroup device = weakest(cluster);
  double b = layout.microbatch, s = double(model.sequence), h = double(model.hidden), a = double(model.heads);
  double V = double(model.vocabulary), T = layout.shards, bytes = model.parameterBytes;
  double flops = device.flops.at(model.precision) * device.efficiency;
  double attention = device.attentionEfficiency < 0 ? 0.6 * flops
                                                    : device.flops.at(model.precision) * device.attentionEfficiency;
  double memory = device.bandwidth * device.trafficEfficiency;
  double wide = bytes / 2; // the counts of bytes below are for values of 16 bits

  // A layer.
  double dense = 24 * b * s * h * h / T / flops, scores = 4 * b * s * s * h / T / attention;
  double scoreTraffic = wide * 13 * b * a * s * s / T / memory;
  double traffic = wide * b * s * h * (22 + 28 / T) / memory + scoreTraffic;
  double messages = 2 * allReduce(bytes * b * s * h, layout.shards, device.link);
  double forward = dense + scores + traffic + messages;
  double again = layout.recompute == Recompute::Full        ? forward
                 : layout.recompute == Recompute::Selective ? scores + scoreTraffic
                                                            : 0;
  double input = dense + 2 * scores + 2 * traffic + messages + again, weight = dense;
  double everything = wide * b * s * h * (10 + 24 / T + 5 * a * s / (h * T)), lean = wide * b * s * h * (10 + 24 / T);
  double held = layout.recompute == Recompute::Full ? wide * 2 * b * s * h : layout.recompute == Recompute::Selective ? lean : everything;
  // W reads the gradients of the products' outputs, and what was computed again of their inputs.
  double late = bytes * b * s * h * (2 + 7 / T) + (layout.recompute == Recompute::Full ? bytes * b * s * h * (2 + 5 / T) : 0);
  // The vocabulary: one product forward, two backward; scores of all words written, read in f32, their gradients written.
  double words = 2 * b * s * h * V / T / flops, wordTraffic = wide * 10 * b * s * V / T / memory;
  double embedding = wide * 6 * b * s * h / memory + messages / 2;

  Priced p;
  int stages = layout.stages * layout.chunks;
  p.request = requestOf(model, layout);
  p.costs.stages.resize(stages);
  // What is left over goes to stages in the middle: the first and the last have an embedding and a loss.
  std::vector<int64_t> layers(stages, model.layers / stages);
  int64_t over = model.layers % stages;
  for (int64_t k = 0; k < over; ++k)
    ++layers[size_t((2 * k + 1) * stages / (2 * over))];
  int nodeMates = std::max(1, std::min(layout.replicas, device.devices / layout.shards)); // replicas in one node
  while (layout.replicas % nodeMates)
    --nodeMates;
  double bytesOfParameter = model.parameterBytes + model.gradientBytes + model.stateBytes;
  for (int k = 0; k < stages; ++k) {
    StageCost &c = p.costs.stages[k];
    double L = double(layers[k]), parameters = L * (12 * h * h + 13 * h) / T;
    c.forward = L * forward, c.input = L * input, c.weight = L * weight;
    if (k == 0)
      c.forward += embedding, c.input += embedding, parameters += (V / T + s) * h;
    if (k == stages - 1) {
      c.forward += words + wordTraffic, c.input += words + 2 * wordTraffic, c.weight += words;
      if (stages > 1)
        parameters += V * h / T; // tied with the embedding of the first stage
    }
    double gradients = parameters * model.gradientBytes;
    c.update = allReduce(gradients, nodeMates, device.link) +
               allReduce(gradients / nodeMates, layout.replicas / nodeMates, cluster.network) +
               parameters * (2 * model.stateBytes + model.gradientBytes + 2 * model.parameterBytes) / memory;
    c.fixed = wholeBytes(parameters * bytesOfParameter);
    c.held = wholeBytes(L * held), c.late = wholeBytes(L * late);
    c.backwardWork = wholeBytes(layout.recompute == Recompute::None ? 0 : everything - (layout.recompute == Recompute::Full ? 0 : lean));
    if (k == stages - 1)
      c.backwardWork += wholeBytes(wide * 6 * b * s * V / T);
  }
  // Between stages every shard sends its part; the parts are gathered inside the node.
  bool across = int64_t(layout.shards) * layout.replicas >= device.devices;
  const NetworkLink &hop = across ? cluster.network : device.link;
  double gather = layout.shards > 1 ? (T - 1) / T * bytes * b * s * h / device.link.bandwidth + (T - 1) * device.link.latency : 0;
  p.costs.transfers = chainTransfers(stages, wholeBytes(bytes * b * s * h / T));
  p.costs.bandwidth = hop.bandwidth, p.costs.latency = hop.latency + gather;

  std::vector<double> busy(layout.stages, 0);
  for (int k = 0; k < stages; ++k) {
    const StageCost &c = p.costs.stages[k];
    int worker = layout.schedule == Schedule::ZBV ? std::min(k, stages - 1 - k) : k % layout.stages;
    busy[worker] += p.request.microbatches * (c.forward + c.input + c.weight) + c.update;
  }
  p.work = *std::max_element(busy.begin(), busy.end());
  return p;
}

Prediction predict(const GptModel &model, const Cluster &cluster, const Layout &layout) {
  Priced p = price(model, cluster, layout);
  ScheduleTable table = generate(p.request);
  Prediction r;
  r.layout = layout;
  r.seconds = makespan(table, p.costs);
  double busy = 0;
  for (const StageCost &c : p.costs.stages) {
    busy += p.request.microbatches * (c.forward + c.input + c.weight);
    r.update = std::max(r.update, c.update);
  }
  for (int w = 0; w < layout.stages; ++w) {
    double bytes = 0, work = 0; // products of two counts may have more than 64 bits
    for (int k = 0; k < table.stages(); ++k)
      if (table.workerOf[k] == w) {
        const StageCost &c = p.costs.stages[k];
        bytes += double(c.fixed) + double(table.slots[k]) * double(c.held) + double(table.lateSlots[k]) * double(c.late);
        work = std::max(work, double(c.backwardWork));
      }
    r.bytes = std::max(r.bytes, wholeBytes(bytes + work));
  }
  // An update that takes nearly all of a step leaves few digits of the rest, or none.
  double running = r.seconds - r.update;
  r.bubble = running > 0 ? std::clamp(1 - busy / layout.stages / running, 0.0, 1.0) : 0;
  return r;
}

} // namespace cinch::solve
