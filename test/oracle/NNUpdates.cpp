// NNUpdates.cpp: random numbers, the learning rate and the update rules, written from their formulas and not from the
// decompositions of dialects/nn/Updates.cpp.
#include "test/oracle/NNSums.h"
#include <array>
#include <cmath>

using namespace mlir;

namespace cinch::oracle {

// ---- Philox4x32-10
// ----------------------------------------------------------------------------------------------------
using Words = std::array<uint32_t, 4>;

static Words philox(Words c, uint32_t key0, uint32_t key1) {
  for (int round = 0; round < 10; ++round) {
    uint64_t product0 = uint64_t(0xD2511F53u) * c[0], product1 = uint64_t(0xCD9E8D57u) * c[2];
    c = {uint32_t(product1 >> 32) ^ c[1] ^ key0, uint32_t(product1), uint32_t(product0 >> 32) ^ c[3] ^ key1,
         uint32_t(product0)};
    key0 += 0x9E3779B9u;
    key1 += 0xBB67AE85u;
  }
  return c;
}

static Words split(uint64_t low, uint64_t high) {
  return {uint32_t(low), uint32_t(low >> 32), uint32_t(high), uint32_t(high >> 32)};
}

// The block of words that holds an element, `perBlock` elements a group of eight blocks.
static Words blockOf(const RunState &run, uint64_t key, int64_t example, int64_t element, int64_t group) {
  Words derived = philox(split(key, uint64_t(run.step)), uint32_t(run.seed), uint32_t(run.seed >> 32));
  return philox(split(uint64_t(element / group * 8 + element % 8), uint64_t(example)), derived[0], derived[1]);
}

static uint32_t wordOf(const RunState &run, uint64_t key, int64_t example, int64_t element) {
  return blockOf(run, key, example, element, 32)[element % 32 / 8];
}

double drawUniform(const RunState &run, uint64_t key, int64_t example, int64_t element) {
  return double(wordOf(run, key, example, element) >> 8) / 16777216.0;
}

double drawNormal(const RunState &run, uint64_t key, int64_t example, int64_t element) {
  Words words = blockOf(run, key, example, element, 32);
  int64_t j = element % 32 / 8;
  double u1 = double((words[j & 2] >> 8) + 1) / 16777216.0, u2 = double(words[(j & 2) | 1] >> 8) / 16777216.0;
  double radius = std::sqrt(-2 * std::log(u1)), angle = 2 * M_PI * u2;
  return radius * (j % 2 ? std::sin(angle) : std::cos(angle));
}

double drawBelow(const RunState &run, uint64_t key, int64_t example, int64_t element, int64_t n) {
  return double(uint64_t(wordOf(run, key, example, element)) * uint64_t(n) >> 32);
}

bool drawBool(const RunState &run, uint64_t key, int64_t example, int64_t element, double probability) {
  int64_t j = element % 64 / 8;
  uint32_t word = blockOf(run, key, example, element, 64)[j / 2];
  uint32_t bits = j % 2 ? word >> 16 : word & 0xffff;
  return int64_t(bits) < std::llround(probability * 65536);
}

// ---- Learning rate and updates
// ----------------------------------------------------------------------------------------
double learningRateOf(nn::LearningRateOp op, const RunState &run) {
  nn::ScheduleAttr schedule = op.getSchedule();
  double lr = op.getLr().convertToDouble(), s = double(run.step), w = schedule.getWarmup().convertToDouble();
  double n = double(op.getHorizon() ? int64_t(op.getHorizon()) : run.totalSteps);
  double end = schedule.getEnd().convertToDouble(), decay = schedule.getDecay().convertToDouble();
  double factor = schedule.getFactor().convertToDouble(), every = schedule.getEvery().convertToDouble();
  if (s < w)
    return lr * ((s + 1) / w);
  double t = std::min(std::max((s - w) / std::max(n - w, 1.0), 0.0), 1.0);
  switch (schedule.getKind()) {
  case nn::ScheduleKind::Constant: return lr;
  case nn::ScheduleKind::Linear: return lr * (1 - (1 - end) * t);
  case nn::ScheduleKind::Cosine: return lr * (end + (1 - end) * (0.5 * (1 + std::cos(M_PI * t))));
  case nn::ScheduleKind::Polynomial:
    return lr * (end + (1 - end) * std::pow(1 - t, schedule.getPower().convertToDouble()));
  case nn::ScheduleKind::Inverse_Sqrt: return lr * std::sqrt(std::max(w, 1.0) / std::max(s + 1, std::max(w, 1.0)));
  case nn::ScheduleKind::Step: {
    int64_t passed = llvm::count_if(schedule.getAt(), [&](int64_t at) { return at <= run.step; });
    return lr * std::pow(factor, schedule.getAt().empty() ? std::floor(s / every) : double(passed));
  }
  case nn::ScheduleKind::Exponential: return lr * std::pow(factor, s / every);
  case nn::ScheduleKind::WSD: break;
  }
  return s < n - decay ? lr : lr * (1 - (1 - end) * ((s - (n - decay)) / decay));
}

Arrays sgdOf(nn::SgdOp op, ArrayRef<const Array *> x) {
  Array p = *x[0], g = *x[1], v = op.getVelocity() ? *x[3] : Array();
  double lr = x[2]->data[0], factor = op.getFactor() ? x.back()->data[0] : 1;
  double momentum = op.getMomentum().convertToDouble(), decay = op.getDecay().convertToDouble();
  for (int64_t i = 0; i < p.size(); ++i) {
    double d = g.data[i] * factor + decay * p.data[i];
    if (op.getVelocity()) {
      v.data[i] = momentum * v.data[i] + d;
      d = op.getNesterov() ? d + momentum * v.data[i] : v.data[i];
    }
    p.data[i] -= lr * d;
  }
  return op.getVelocity() ? Arrays{p, v} : Arrays{p};
}

Arrays adamOf(nn::AdamOp op, ArrayRef<const Array *> x) {
  Array p = *x[0], g = *x[1], m = *x[2], v = *x[3];
  double lr = x[4]->data[0], t = x[5]->data[0] + 1, factor = op.getFactor() ? x[6]->data[0] : 1;
  double beta1 = op.getBeta1().convertToDouble(), beta2 = op.getBeta2().convertToDouble();
  double eps = op.getEps().convertToDouble(), decay = op.getDecay().convertToDouble();
  for (int64_t i = 0; i < p.size(); ++i) {
    double gradient = g.data[i] * factor;
    if (op.getDecoupled())
      p.data[i] *= 1 - lr * decay;
    else
      gradient += decay * p.data[i];
    m.data[i] = beta1 * m.data[i] + (1 - beta1) * gradient;
    v.data[i] = beta2 * v.data[i] + (1 - beta2) * gradient * gradient;
    double corrected = m.data[i] / (1 - std::pow(beta1, t));
    p.data[i] -= lr * corrected / (std::sqrt(v.data[i] / (1 - std::pow(beta2, t))) + eps);
  }
  return {p, m, v};
}

} // namespace cinch::oracle
