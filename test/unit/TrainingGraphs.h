// TrainingGraphs.h: step graphs in the shape of real training programs, for the planner's tests: a chain of dense
// layers and a decoder-only transformer with AdamW, with bytes and a roofline's seconds as functions of the
// micro-batch.
#ifndef CINCH_TEST_UNIT_TRAININGGRAPHS_H
#define CINCH_TEST_UNIT_TRAININGGRAPHS_H

#include "compiler/solve/StepGraph.h"

#include <algorithm>

namespace cinch::solve {

class GraphBuilder {
public:
  StepGraph g;

  int value(const std::string &name, int64_t perExample, int64_t fixed = 0) {
    return buffer(Buffer::Value, name, fixed, perExample);
  }
  int persistent(const std::string &name, int64_t fixed, int64_t perExample = 0) {
    return buffer(Buffer::Persistent, name, fixed, perExample);
  }
  int accumulator(const std::string &name, int64_t fixed) { return buffer(Buffer::Accumulator, name, fixed, 0); }

  int kernel(const std::string &name, std::vector<int> reads, std::vector<int> writes, double flopsPerExample,
             bool cheap) {
    Kernel k;
    k.name = name, k.section = section, k.backward = backward, k.cheap = cheap, k.block = block;
    k.line = int(g.kernels.size()) + 1;
    double fixed = 0, perExample = 0;
    for (auto *list : {&reads, &writes})
      for (int b : *list)
        fixed += double(g.buffers[b].fixedBytes), perExample += double(g.buffers[b].perExampleBytes);
    k.traffic = {fixed, perExample}, k.flops = {0, flopsPerExample};
    k.seconds = {2e-6 + fixed / 2e10, std::max(flopsPerExample / 1e11, perExample / 2e10)};
    for (int w : writes)
      if (g.buffers[w].kind == Buffer::Value)
        g.buffers[w].producer = int(g.kernels.size());
      else
        k.recomputable = false;
    k.reads = std::move(reads), k.writes = std::move(writes);
    g.kernels.push_back(std::move(k));
    return int(g.kernels.size()) - 1;
  }
  void inPlace(int w, int r) { g.kernels.back().inPlace.push_back({w, r}); }

  int section = 1; // 0: before the loop, 2: behind it
  bool backward = false;
  int block = -1;

private:
  int buffer(Buffer::Kind kind, const std::string &name, int64_t fixed, int64_t perExample) {
    Buffer b;
    b.kind = kind, b.name = name, b.fixedBytes = fixed, b.perExampleBytes = perExample,
    b.line = int(g.buffers.size()) + 1;
    g.buffers.push_back(b);
    return int(g.buffers.size()) - 1;
  }
};

// Gradients are scaled by their norm, then AdamW updates each parameter.
inline void addUpdate(GraphBuilder &b, const std::vector<std::pair<int, int>> &parameters) {
  b.section = 2, b.backward = true, b.block = -1;
  int norm = b.value("norm", 0, 64);
  std::vector<int> gradients;
  for (auto &[p, d] : parameters)
    gradients.push_back(d);
  b.kernel("norm", gradients, {norm}, 0, true);
  for (auto &[p, d] : parameters) {
    int64_t bytes = b.g.buffers[p].fixedBytes;
    int m = b.persistent("m", bytes), v = b.persistent("v", bytes);
    b.kernel("adamw", {d, norm}, {p, m, v}, 0, true);
  }
}

// `layers` dense layers of width D with tanh between them, on B examples of one position.
inline StepGraph denseChain(int layers, int64_t batch, int64_t width, bool inPlace = true) {
  GraphBuilder b;
  b.g.batch = batch;
  double flops = 2.0 * double(width) * double(width);
  int64_t bytes = 4 * width;
  int x = b.persistent("x", 0, bytes), y = b.persistent("y", 0, bytes), lossSum = b.accumulator("loss", 64);
  std::vector<std::pair<int, int>> parameters;
  std::vector<int> inputs, outputs;
  int h = x;
  for (int i = 0; i < layers; ++i) {
    int w = b.persistent("w" + std::to_string(i), bytes * width);
    parameters.push_back({w, b.accumulator("dw" + std::to_string(i), bytes * width)});
    int z = b.value("z" + std::to_string(i), bytes), a = b.value("a" + std::to_string(i), bytes);
    inputs.push_back(h);
    b.kernel("matmul" + std::to_string(i), {h, w}, {z}, flops, false);
    b.kernel("tanh" + std::to_string(i), {z}, {a}, 0, true);
    if (inPlace)
      b.inPlace(a, z);
    outputs.push_back(a);
    h = a;
  }
  int residual = b.value("difference", bytes);
  b.kernel("difference", {h, y}, {residual}, 0, true);
  b.backward = true;
  int d = b.value("dh", bytes);
  b.kernel("loss", {residual}, {d, lossSum}, 0, true);
  for (int i = layers - 1; i >= 0; --i) {
    int dz = b.value("dz" + std::to_string(i), bytes);
    b.kernel("tanh.grad" + std::to_string(i), {d, outputs[i]}, {dz}, 0, true);
    if (inPlace)
      b.inPlace(dz, d);
    b.kernel("matmul.dw" + std::to_string(i), {inputs[i], dz}, {parameters[i].second}, flops, false);
    if (i > 0) {
      d = b.value("dh" + std::to_string(i), bytes);
      b.kernel("matmul.dx" + std::to_string(i), {dz, parameters[i].first}, {d}, flops, false);
    }
  }
  addUpdate(b, parameters);
  return b.g;
}

// A decoder-only transformer: `layers` blocks of width D, T positions, vocabulary V, tied embedding, AdamW, clipping.
inline StepGraph transformer(int layers, int64_t D, int64_t T, int64_t V, int64_t batch, int threads = 2) {
  GraphBuilder b;
  b.g.batch = batch, b.g.threads = threads;
  int64_t td = 4 * T * D;
  double mm = 2.0 * double(T) * double(D) * double(D), tt = double(T) * double(T) * double(D);
  std::vector<std::pair<int, int>> parameters;
  auto parameter = [&](const std::string &name, int64_t elements) {
    int p = b.persistent(name, 4 * elements);
    parameters.push_back({p, b.accumulator("d" + name, 4 * elements)});
    return int(parameters.size()) - 1;
  };
  auto P = [&](int i) { return parameters[i].first; };
  auto G = [&](int i) { return parameters[i].second; };
  int tokens = b.persistent("tokens", 0, 4 * T), targets = b.persistent("targets", 0, 4 * T);
  int lossSum = b.accumulator("loss", 64);
  int wte = parameter("wte", V * D), wpe = parameter("wpe", T * D);
  int head = b.accumulator("dwte.head", 4 * V * D);
  int x = b.value("embedding", td);
  b.kernel("embed", {tokens, P(wte), P(wpe)}, {x}, 0, true);

  struct Block {
    int x, y1, s1, qkv, o, lse, x1, y2, s2, up, gelu, p[6];
  };
  std::vector<Block> blocks;
  for (int l = 0; l < layers; ++l) {
    b.block = l;
    std::string n = "blocks." + std::to_string(l) + ".";
    Block k{};
    k.x = x;
    k.p[0] = parameter(n + "ln1", 2 * D), k.p[1] = parameter(n + "qkv", 3 * D * D),
    k.p[2] = parameter(n + "proj", D * D);
    k.p[3] = parameter(n + "ln2", 2 * D), k.p[4] = parameter(n + "up", 4 * D * D),
    k.p[5] = parameter(n + "down", 4 * D * D);
    k.y1 = b.value(n + "ln1.y", td), k.s1 = b.value(n + "ln1.stats", 8 * T);
    b.kernel(n + "ln1", {x, P(k.p[0])}, {k.y1, k.s1}, 0, true);
    k.qkv = b.value(n + "qkv.y", 3 * td);
    b.kernel(n + "qkv", {k.y1, P(k.p[1])}, {k.qkv}, 3 * mm, false);
    b.g.kernels.back().scratch = 256 * 1024;
    k.o = b.value(n + "attend.o", td), k.lse = b.value(n + "attend.lse", 48 * T);
    b.kernel(n + "attend", {k.qkv}, {k.o, k.lse}, 2 * tt, false);
    int proj = b.value(n + "proj.y", td);
    b.kernel(n + "proj", {k.o, P(k.p[2])}, {proj}, mm, false);
    b.g.kernels.back().scratch = 256 * 1024;
    k.x1 = b.value(n + "residual1", td);
    b.kernel(n + "add1", {x, proj}, {k.x1}, 0, true);
    b.inPlace(k.x1, proj), b.inPlace(k.x1, x);
    k.y2 = b.value(n + "ln2.y", td), k.s2 = b.value(n + "ln2.stats", 8 * T);
    b.kernel(n + "ln2", {k.x1, P(k.p[3])}, {k.y2, k.s2}, 0, true);
    k.up = b.value(n + "up.y", 4 * td);
    b.kernel(n + "up", {k.y2, P(k.p[4])}, {k.up}, 4 * mm, false);
    k.gelu = b.value(n + "gelu.y", 4 * td);
    b.kernel(n + "gelu", {k.up}, {k.gelu}, 0, true);
    b.inPlace(k.gelu, k.up);
    int down = b.value(n + "down.y", td);
    b.kernel(n + "down", {k.gelu, P(k.p[5])}, {down}, 4 * mm, false);
    x = b.value(n + "residual2", td);
    b.kernel(n + "add2", {k.x1, down}, {x}, 0, true);
    b.inPlace(x, down), b.inPlace(x, k.x1);
    b.g.kernels.back().blockEnd = true;
    blocks.push_back(k);
  }
  b.block = -1;
  int lnf = parameter("lnf", 2 * D);
  int yf = b.value("lnf.y", td), sf = b.value("lnf.stats", 8 * T), logits = b.value("logits", 4 * T * V);
  b.kernel("lnf", {x, P(lnf)}, {yf, sf}, 0, true);
  b.kernel("logits", {yf, P(wte)}, {logits}, 2.0 * double(T) * double(D) * double(V), false);
  int lse = b.value("loss.lse", 8 * T);
  b.kernel("cross_entropy", {logits, targets}, {lse, lossSum}, 0, true);
  b.backward = true;
  int dlogits = b.value("dlogits", 4 * T * V);
  b.kernel("cross_entropy.grad", {logits, targets, lse}, {dlogits}, 0, true);
  b.inPlace(dlogits, logits);
  b.kernel("logits.dw", {yf, dlogits}, {head}, 2.0 * double(T) * double(D) * double(V), false);
  int d = b.value("dlnf", td);
  b.kernel("logits.dx", {dlogits, P(wte)}, {d}, 2.0 * double(T) * double(D) * double(V), false);
  int dx = b.value("dx", td);
  b.kernel("lnf.grad", {d, x, sf, P(lnf)}, {dx, G(lnf)}, 0, true);
  b.inPlace(dx, d);
  for (int l = layers - 1; l >= 0; --l) {
    b.block = l;
    const Block &k = blocks[l];
    std::string n = "blocks." + std::to_string(l) + ".";
    int dg = b.value(n + "dgelu", 4 * td), du = b.value(n + "dup", 4 * td), dy2 = b.value(n + "dln2", td);
    b.kernel(n + "down.dw", {k.gelu, dx}, {G(k.p[5])}, 4 * mm, false);
    b.kernel(n + "down.dx", {dx, P(k.p[5])}, {dg}, 4 * mm, false);
    b.kernel(n + "gelu.grad", {dg, k.up}, {du}, 0, true);
    b.inPlace(du, dg);
    b.kernel(n + "up.dw", {k.y2, du}, {G(k.p[4])}, 4 * mm, false);
    b.kernel(n + "up.dx", {du, P(k.p[4])}, {dy2}, 4 * mm, false);
    int dx1 = b.value(n + "dresidual1", td);
    b.kernel(n + "ln2.grad", {dy2, k.x1, k.s2, P(k.p[3]), dx}, {dx1, G(k.p[3])}, 0, true);
    b.inPlace(dx1, dx);
    int dO = b.value(n + "do", td), dqkv = b.value(n + "dqkv", 3 * td), dy1 = b.value(n + "dln1", td);
    b.kernel(n + "proj.dw", {k.o, dx1}, {G(k.p[2])}, mm, false);
    b.kernel(n + "proj.dx", {dx1, P(k.p[2])}, {dO}, mm, false);
    b.kernel(n + "attend.grad", {dO, k.qkv, k.o, k.lse}, {dqkv}, 5 * tt, false);
    b.kernel(n + "qkv.dw", {k.y1, dqkv}, {G(k.p[1])}, 3 * mm, false);
    b.kernel(n + "qkv.dx", {dqkv, P(k.p[1])}, {dy1}, 3 * mm, false);
    dx = b.value(n + "dx", td);
    b.kernel(n + "ln1.grad", {dy1, k.x, k.s1, P(k.p[0]), dx1}, {dx, G(k.p[0])}, 0, true);
    b.inPlace(dx, dx1);
  }
  b.block = -1;
  b.kernel("embed.grad", {tokens, dx}, {G(wte), G(wpe)}, 0, true);
  parameters.push_back({P(wte), head});
  addUpdate(b, parameters);
  return b.g;
}

} // namespace cinch::solve
#endif
