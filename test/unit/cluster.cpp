// LINK: cinch_solve
// Plans for clusters: sizes and work of the published models; predictions by hand on one device; the best layout equal to the best of
// all layouts, each predicted; what is refused.
#include "compiler/solve/cluster/Cluster.h"
#include "test/unit/Expect.h"

#include <array>
#include <cmath>
#include <limits>

using namespace cinch::solve;

static Cluster a100(int nodes) {
  DeviceGroup g;
  g.nodes = nodes, g.devices = 8, g.memory = 80'000'000'000, g.flops = {{"bf16", 312e12}}, g.efficiency = 0.7, g.bandwidth = 2.039e12;
  g.link = {3e11, 5e-6};
  Cluster c;
  c.groups = {g}, c.network = {2.5e10, 1e-5};
  return c;
}

static GptModel gpt(int64_t layers, int64_t hidden, int64_t heads, int64_t batch) {
  GptModel m;
  m.layers = layers, m.hidden = hidden, m.heads = heads, m.sequence = 2048, m.vocabulary = 51200, m.batch = batch;
  return m;
}

// Parameters and seconds of a step as the paper's table 1 has them, from its formulas.
static void publishedSizes() {
  struct Row {
    double billions;
    int64_t layers, hidden, heads;
  };
  for (const Row &r : {Row{1.7, 24, 2304, 24}, Row{3.6, 30, 3072, 32}, Row{7.5, 36, 4096, 32}, Row{18.4, 40, 6144, 48},
                       Row{39.1, 48, 8192, 64}, Row{76.1, 60, 10240, 80}, Row{145.6, 80, 12288, 96}, Row{310.1, 96, 16384, 128},
                       Row{529.6, 105, 20480, 128}, Row{1008.0, 128, 25600, 160}}) {
    double parameters = gpt(r.layers, r.hidden, r.heads, 512).parameters() / 1e9;
    expect(std::abs(parameters - r.billions) < 0.0501 + 1e-4 * r.billions,
           std::to_string(r.billions) + "B parameters, computed " + std::to_string(parameters));
  }
  // GPT-3 on 1024 GPUs: 300e9 tokens at 140 TFLOP/s in 34 days (section 5.1, with 8 T P / (n X) for T tokens and P parameters).
  GptModel gpt3 = gpt(96, 12288, 96, 1536);
  double steps = 300e9 / (1536.0 * 2048), days = steps * gpt3.flops() / (1024 * 140e12) / 86400;
  expect(std::abs(days - 34) < 1, "GPT-3 on 1024 GPUs: " + std::to_string(days) + " days");
}

// One device, one layer, no recomputation: every term by hand.
static void oneDevice() {
  Cluster c = a100(1);
  c.groups[0].devices = 1, c.groups[0].attentionEfficiency = 0.5, c.groups[0].trafficEfficiency = 0.8;
  GptModel m = gpt(1, 1024, 16, 4);
  m.sequence = 512, m.vocabulary = 1000;
  Layout l;
  l.microbatch = 2, l.recompute = Recompute::None;
  expect(check(c).empty() && check(m, c).empty() && check(m, c, l).empty(), "one device: " + check(m, c, l));
  double b = 2, s = 512, h = 1024, a = 16, V = 1000;
  double dense = 24 * b * s * h * h / (312e12 * 0.7), scores = 4 * b * s * s * h / (312e12 * 0.5);
  double traffic = (50 * b * s * h + 13 * b * a * s * s) / (2.039e12 * 0.8);
  double words = 6 * b * s * h * V / (312e12 * 0.7) + 30 * b * s * V / (2.039e12 * 0.8);
  double embedding = 12 * b * s * h / (2.039e12 * 0.8);
  double parameters = 12 * h * h + 13 * h + (V + s) * h;
  double step = 2 * (3 * dense + 3 * scores + 3 * traffic + words + embedding) + parameters * (24 + 2 + 4) / (2.039e12 * 0.8);
  Prediction p = predict(m, c, l);
  expect(std::abs(p.seconds / step - 1) < 1e-12, "a step takes " + std::to_string(p.seconds) + ", by hand " + std::to_string(step));
  double bytes = parameters * 16 + b * s * h * (34 + 5 * a * s / h) + 6 * b * s * V;
  expect(std::abs(double(p.bytes) - bytes) < 8, "bytes " + std::to_string(p.bytes) + ", by hand " + std::to_string(bytes));
  // Recomputation of everything takes one forward more and leaves only the layer's input and one layer's work.
  l.recompute = Recompute::Full;
  Prediction full = predict(m, c, l);
  expect(std::abs(full.seconds - p.seconds - 2 * (dense + scores + traffic)) < 1e-12, "recomputation takes a forward");
  expect(full.bytes == p.bytes + int64_t(2 * b * s * h), "with one layer it only costs memory");
}

// All-reduces and messages: replicas and shards inside a node and across.
static void messages() {
  GptModel m = gpt(8, 1024, 16, 64);
  auto step = [&](int nodes, Layout l) {
    Cluster c = a100(nodes);
    std::string wrong = check(m, c, l);
    expect(wrong.empty(), wrong);
    return predict(m, c, l);
  };
  Layout l;
  l.replicas = 8, l.microbatch = 4;
  Prediction one = step(1, l);
  l.replicas = 16;
  Prediction two = step(2, l);
  // 16 replicas: half the micro-batches; the sum of gradients also crosses the network, an eighth of it a device.
  double gradients = 2 * (8 * (12.0 * 1024 * 1024 + 13 * 1024) + (51200 + 2048) * 1024.0);
  expect(std::abs(two.update - one.update - (gradients / 8 / 2.5e10 + 2e-5)) < 1e-9, "gradients across two nodes");
  expect(two.seconds - two.update < 0.51 * (one.seconds - one.update), "twice the replicas, half the work");
}

// The plan is the best of all layouts.
static void best() {
  int feasible = 0, none = 0;
  for (int nodes : {1, 2})
    for (int64_t layers : {3, 8})
      for (int64_t hidden : {1024, 4096})
        for (int64_t memory : {int64_t(4e8), int64_t(2e9), int64_t(80e9)}) {
          Cluster c = a100(nodes);
          c.groups[0].memory = memory;
          GptModel m = gpt(layers, hidden, 16, 32);
          ClusterPlan found = plan(m, c, {});
          double seconds = std::numeric_limits<double>::infinity();
          int64_t count = 0;
          for (int P = 1; P <= 16; ++P)
            for (int T = 1; T <= 16; ++T)
              for (int D = 1; D <= 16; ++D)
                for (int b = 1; b <= 32; ++b)
                  for (Schedule schedule : {Schedule::OneFOneB, Schedule::Interleaved, Schedule::ZBH1, Schedule::ZBV, Schedule::GPipe})
                    for (int v = 1; v <= 8; ++v)
                      for (Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
                        if (P * T * D != c.devices() || 32 % (D * b))
                          continue;
                        Layout l = {P, T, D, b, schedule, v, recompute};
                        if (!check(m, c, l).empty())
                          continue;
                        ++count;
                        Prediction p = predict(m, c, l);
                        if (p.bytes <= memory)
                          seconds = std::min(seconds, p.seconds);
                      }
          std::string who = std::to_string(nodes) + " nodes, " + std::to_string(layers) + " x " + std::to_string(hidden) + ", " +
                            std::to_string(memory / 1000000) + " MB";
          bool exists = !std::isinf(seconds);
          exists ? ++feasible : ++none;
          expect(found.ranked.empty() == !exists && found.proved, who + ": a layout " + (exists ? "exists" : "does not exist"));
          if (exists && !found.ranked.empty()) {
            const Prediction &p = found.ranked[0];
            expect(std::abs(p.seconds / seconds - 1) < 1e-12, who + ": " + std::to_string(p.seconds) + " s, the best of " +
                                                                   std::to_string(count) + " takes " + std::to_string(seconds));
            expect(p.bytes <= memory && predict(m, c, p.layout).seconds == p.seconds, who + ": the layout does what it says");
          }
        }
  expect(feasible >= 8 && none >= 2, std::to_string(feasible) + " fit and " + std::to_string(none) + " do not: too few to tell");
}

static void bounds() {
  Cluster c = a100(8);
  GptModel m = gpt(24, 4096, 32, 256);
  for (int P : {1, 2, 4, 8})
    for (Schedule schedule : {Schedule::OneFOneB, Schedule::ZBH1, Schedule::GPipe}) {
      Layout l = {P, 8, 8 / P, 2, schedule, 1, Recompute::Full};
      expect(check(m, c, l).empty() && price(m, c, l).work <= predict(m, c, l).seconds * (1 + 1e-12), "work bounds the step from below");
    }
}

// Whatever is accepted is priced in numbers: the slowest and the quickest machines, the largest models, latencies beside which all else
// is rounded away.
static void extremes() {
  GptModel largest = gpt(4096, 1 << 24, 1 << 24, 1 << 24);
  largest.sequence = largest.vocabulary = 1 << 24, largest.parameterBytes = largest.gradientBytes = largest.stateBytes = 1 << 20;
  for (const GptModel &m : {gpt(4, 64, 4, 16), largest})
    for (double rate : {1e-100, 1e100})
      for (double network : {1e-100, 1e100})
        for (double latency : {0.0, 1e100})
          for (double share : {1e-100, 1.0}) {
            Cluster c = a100(2);
            DeviceGroup &g = c.groups[0];
            g.devices = 2, g.memory = int64_t(1) << 60;
            g.flops["bf16"] = g.bandwidth = rate, g.efficiency = g.attentionEfficiency = g.trafficEfficiency = share;
            g.link = {rate, latency}, c.network = {network, latency};
            expect(check(c).empty() && check(m, c).empty(), "the outermost values are accepted: " + check(c) + check(m, c));
            for (Recompute recompute : {Recompute::None, Recompute::Selective, Recompute::Full}) {
              Prediction p = predict(m, c, {2, 2, 1, int(m.batch / 4), Schedule::ZBH1, 1, recompute});
              std::string who = std::to_string(p.seconds) + " s, bubble " + std::to_string(p.bubble) + ", " + std::to_string(p.bytes) + " bytes";
              expect(p.seconds > 0 && std::isfinite(p.seconds) && std::isfinite(m.flops() / p.seconds) && std::isfinite(p.update), who);
              expect(p.bubble >= 0 && p.bubble <= 1, who);
              expect(p.bytes > 0 && (m.layers != largest.layers || p.bytes > g.memory), who);
            }
          }
  for (double wrong : {0.0, 1e-308, 1e-101, 1e101, std::numeric_limits<double>::infinity(), std::nan("")})
    for (int which = 0; which < 5; ++which) {
      Cluster c = a100(2);
      DeviceGroup &g = c.groups[0];
      *std::array<double *, 5>{&g.flops["bf16"], &g.bandwidth, &g.link.bandwidth, &c.network.bandwidth, &g.efficiency}[which] = wrong;
      expect(!check(c).empty(), std::to_string(wrong) + " as value " + std::to_string(which) + " is refused");
    }
}

static void refusals() {
  Cluster c = a100(1);
  GptModel m = gpt(8, 1024, 16, 64);
  auto refused = [&](Layout l, const std::string &why) {
    std::string wrong = check(m, c, l);
    expect(wrong.find(why) != std::string::npos, "expected a refusal with `" + why + "`, got `" + wrong + "`");
  };
  refused({1, 8, 2, 1, Schedule::OneFOneB, 1, Recompute::Full}, "the cluster has 8 devices");
  refused({8, 1, 1, 3, Schedule::OneFOneB, 1, Recompute::Full}, "divide the batch");
  refused({8, 1, 1, 1, Schedule::Interleaved, 2, Recompute::Full}, "more stages than layers");
  refused({4, 2, 1, 1, Schedule::OneFOneB, 2, Recompute::Full}, "one chunk");
  m.heads = 4;
  refused({1, 8, 1, 1, Schedule::OneFOneB, 1, Recompute::Full}, "divide the heads");
  m.heads = 5;
  expect(!check(m, c).empty(), "heads that do not divide the hidden size");
  m.heads = 16, m.precision = "f32";
  expect(check(m, c).find("no flops for precision f32") != std::string::npos, "a precision without flops");
  c.groups[0].efficiency = 1.5;
  expect(!check(c).empty(), "an efficiency above 1");
}

int main() {
  publishedSizes();
  oneDevice();
  messages();
  best();
  bounds();
  extremes();
  refusals();
  return tally();
}
