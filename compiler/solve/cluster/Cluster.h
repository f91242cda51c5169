// Cluster.h: how a GPT of a given shape is best trained on a cluster of given machines: on which grid of stages, shards and replicas, in
// which micro-batches, by which schedule, recomputing what. A candidate is priced from the shape, the machines' rates and the
// simulated table of its schedule; nothing is measured.
//
// Symbols, as in Narayanan et al. 2021b: l layers, h hidden size, a heads, s positions, V words; P stages, T shards, D replicas, b examples
// a micro-batch, m = B / (D b) micro-batches, v chunks.
//
// Seconds of a layer's forward on one of T devices are the sum of
//
//   products    24 b s h^2 / T multiplications and additions (queries to values, projection, both of the feed-forward), at
//               `efficiency` x flops; and 4 b s^2 h / T of attention's, at `attentionEfficiency` x flops
//   traffic     of everything between products: b s h (22 + 28 / T) + 13 b a s^2 / T bytes at `trafficEfficiency` x bandwidth.
//               22: two norms (read, write), two additions with bias and dropout (two read, one written, a mask); 28: moving heads,
//               the activation of the feed-forward; 13: scores and probabilities written, masked, dropped out, read
//   messages    two all-reduces of b s h values over T devices of a node (Shoeybi et al. 2019)
//
// The backward takes twice the products and the traffic and the same messages; recomputation the forward again, of a layer (`full`)
// or of attention between its first and last product (`selective`). The last stage adds the product with the vocabulary and the loss.
//
// Bytes of a layer's activations, in 16 bits: b s h (10 + 24 / T + 5 a s / (h T)); without attention's inside b s h (10 + 24 / T)
// (Korthikanti et al. 2022, equations 1 and 4); its input alone 2 b s h.
//
// A ring all-reduce of S bytes over n devices takes 2 (n - 1) / n x S / bandwidth + 2 (n - 1) x latency. Ranks are numbered with shards
// fastest, then replicas, then stages; gradients are added up inside a node first, then across nodes, each device with its part.
#ifndef CINCH_COMPILER_SOLVE_CLUSTER_CLUSTER_H
#define CINCH_COMPILER_SOLVE_CLUSTER_CLUSTER_H

#include "compiler/solve/stages/Simulate.h"

#include <map>

namespace cinch::solve {

struct NetworkLink {
  double bandwidth = 0; // bytes a second of a device in one direction
  double latency = 0;   // seconds
};

struct DeviceGroup {
  int nodes = 1, devices = 1;          // of the group; of a node
  int64_t memory = 0;                  // bytes of a device
  std::map<std::string, double> flops; // of a device a second, by precision
  double efficiency = 0.7;             // share of flops that products reach
  double attentionEfficiency = -1;     // .. that attention's small products reach; negative: 0.6 of `efficiency`
  double bandwidth = 0;                // of a device's memory, bytes a second
  double trafficEfficiency = 0.9;      // share of it
  NetworkLink link;                    // between devices of a node
};

// Several groups: every device counts as the slowest and smallest of all.
struct Cluster {
  std::vector<DeviceGroup> groups;
  NetworkLink network; // between nodes
  int devices() const {
    int count = 0;
    for (const DeviceGroup &g : groups)
      count += g.nodes * g.devices;
    return count;
  }
};

struct GptModel {
  int64_t layers = 1, hidden = 1, heads = 1, sequence = 1, vocabulary = 1, batch = 1;
  std::string precision = "bf16";
  int parameterBytes = 2; // of a parameter as products read it
  int gradientBytes = 2;  // of its gradient, as it is accumulated and travels
  int stateBytes = 12;    // of the optimizer's state and the parameter in f32
  double parameters() const;
  // 96 B s l h^2 (1 + s / 6h + V / 16 l h): of a step, one recomputation of all layers included (Narayanan 2021b, equation 3).
  double flops() const;
};

enum class Recompute { None, Selective, Full };
const char *name(Recompute);
bool parseRecompute(const std::string &, Recompute &);

struct Layout {
  int stages = 1, shards = 1, replicas = 1; // P, T, D
  int microbatch = 1;                       // b
  Schedule schedule = Schedule::OneFOneB;
  int chunks = 1;
  Recompute recompute = Recompute::Full;
};

struct Prediction {
  Layout layout;
  double seconds = 0; // of a step
  double bubble = 0;  // share of the pipeline's time that is waited
  double update = 0;  // seconds of it for adding up gradients and the update
  int64_t bytes = 0;  // of the fullest device
};

std::string check(const Cluster &);
std::string check(const GptModel &, const Cluster &);
// Empty if the layout fits model and cluster, memory aside, else why not.
std::string check(const GptModel &, const Cluster &, const Layout &);

// The costs of a layout's stages; `work`: seconds of the busiest worker a step, without waiting.
struct Priced {
  ScheduleRequest request;
  TableCosts costs;
  double work = 0;
};
Priced price(const GptModel &, const Cluster &, const Layout &);
// The layout must pass `check`. Simulates the whole table.
Prediction predict(const GptModel &, const Cluster &, const Layout &);

// What is fixed beforehand; zero or empty: free.
struct ClusterRequest {
  int stages = 0, shards = 0, replicas = 0, microbatch = 0, chunks = 0;
  std::vector<Schedule> schedules;     // empty: all synchronous ones
  std::vector<Recompute> recomputes;   // empty: all
};
struct ClusterPlan {
  std::vector<Prediction> ranked; // those that fit, the fastest first; only the best of each grid
  int64_t candidates = 0, tooLarge = 0, simulated = 0;
  int64_t leastBytes = 0; // of a device, over all candidates
  bool proved = true;     // no candidate left out could be faster than the first of `ranked`
};
// Candidates in the order of their work, which no table beats: once that alone takes longer than the best, none can be faster. The rest of
// the actions goes to the best of every other grid.
ClusterPlan plan(const GptModel &, const Cluster &, const ClusterRequest &, int64_t actions = 60'000'000);

// The command `solve cluster`, and `plan --cluster` for people (`text`). Return the exit code. `given`: the model, whatever its file holds.
int solveClusterMain(const std::vector<std::string> &arguments, bool text = false, const GptModel *given = nullptr);

} // namespace cinch::solve
#endif
