// NNUpdates.cpp: random numbers, the learning rate and the update rules, written from their formulas and not from the
// rules of dialects/ops/Optimizers.cpp.
#include "dialects/ops/Optimizers.h"
#include "test/oracle/NNSums.h"
#include "llvm/ADT/StringSwitch.h"
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
  case nn::ScheduleKind::Cosine:
    if (!schedule.getAt().empty()) {
      double begin = w, finish = n;
      for (int64_t at : schedule.getAt())
        if (at <= run.step)
          begin = std::max(double(at), w);
      if (const int64_t *next = llvm::find_if(schedule.getAt(), [&](int64_t at) { return at > run.step; }); next != schedule.getAt().end())
        finish = double(*next);
      t = std::min(std::max((s - begin) / std::max(finish - begin, 1.0), 0.0), 1.0);
    } else if (every > 0) {
      t = std::fmod(s - w, every) / every;
    }
    return lr * (end + (1 - end) * (0.5 * (1 + std::cos(M_PI * t))));
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

// One element: the parameter, its gradient, the state; a hyperparameter by its name.
using Element = void (*)(nn::OptimizerAttr h, double lr, double t, double &p, double g, ArrayRef<double *> state);

static void sgd(nn::OptimizerAttr h, double lr, double, double &p, double g, ArrayRef<double *> state) {
  double d = g + h.value("decay") * p, momentum = h.value("momentum");
  if (momentum != 0) {
    *state[0] = momentum * *state[0] + d;
    d = h.value("nesterov") ? d + momentum * *state[0] : *state[0];
  }
  p -= lr * d;
}

static void adam(bool decoupled, nn::OptimizerAttr h, double lr, double t, double &p, double g, double &m, double &v) {
  size_t betas = h.rule().placeOf("betas");
  double beta1 = h.getValues()[betas], beta2 = h.getValues()[betas + 1];
  if (decoupled)
    p *= 1 - lr * h.value("decay");
  else
    g += h.value("decay") * p;
  m = beta1 * m + (1 - beta1) * g;
  v = beta2 * v + (1 - beta2) * g * g;
  p -= lr * (m / (1 - std::pow(beta1, t))) / (std::sqrt(v / (1 - std::pow(beta2, t))) + h.value("eps"));
}

static void radam(nn::OptimizerAttr h, double lr, double t, double &p, double g, ArrayRef<double *> state) {
  size_t betas = h.rule().placeOf("betas");
  double beta1 = h.getValues()[betas], beta2 = h.getValues()[betas + 1], d = g + h.value("decay") * p, &m = *state[0], &v = *state[1];
  m = beta1 * m + (1 - beta1) * d;
  v = beta2 * v + (1 - beta2) * d * d;
  double most = 2 / (1 - beta2) - 1, rho = most - 2 * t / (std::pow(beta2, -t) - 1), step = m / (1 - std::pow(beta1, t));
  if (rho > 5)
    step *= std::sqrt((1 - std::pow(beta2, t)) * ((rho - 4) / (most - 4)) * ((rho - 2) / (most - 2)) * (most / rho)) /
            (std::sqrt(v) + h.value("eps"));
  p -= lr * step;
}

static void lion(nn::OptimizerAttr h, double lr, double, double &p, double g, ArrayRef<double *> state) {
  size_t betas = h.rule().placeOf("betas");
  double beta1 = h.getValues()[betas], beta2 = h.getValues()[betas + 1];
  double between = beta1 * *state[0] + (1 - beta1) * g;
  p -= lr * (double(between > 0) - double(between < 0) + h.value("decay") * p);
  *state[0] = beta2 * *state[0] + (1 - beta2) * g;
}

static void rmsprop(nn::OptimizerAttr h, double lr, double, double &p, double g, ArrayRef<double *> state) {
  double d = g + h.value("decay") * p, alpha = h.value("alpha"), momentum = h.value("momentum");
  *state[0] = alpha * *state[0] + (1 - alpha) * d * d;
  d /= std::sqrt(*state[0]) + h.value("eps");
  if (momentum != 0)
    d = *state[1] = momentum * *state[1] + d;
  p -= lr * d;
}

static void adagrad(nn::OptimizerAttr h, double lr, double, double &p, double g, ArrayRef<double *> state) {
  double d = g + h.value("decay") * p;
  *state[0] += d * d;
  p -= lr * d / (std::sqrt(*state[0]) + h.value("eps"));
}

// The whole matrix: x + (b s + c s s) x with s = x x', written for rows of x as they are, however many there are.
static void orthogonalize(std::vector<double> &x, int64_t rows, int64_t columns) {
  auto product = [](const std::vector<double> &a, const std::vector<double> &b, int64_t n, int64_t k, int64_t m) {
    std::vector<double> r(size_t(n * m), 0);
    for (int64_t i = 0; i < n; ++i)
      for (int64_t l = 0; l < k; ++l)
        for (int64_t j = 0; j < m; ++j)
          r[size_t(i * m + j)] += a[size_t(i * k + l)] * b[size_t(l * m + j)];
    return r;
  };
  double squares = 0;
  for (double v : x)
    squares += v * v;
  for (double &v : x)
    v /= std::max(std::sqrt(squares), 1e-7);
  for (int step = 0; step < 5; ++step) {
    std::vector<double> transposed(x.size());
    for (int64_t i = 0; i < rows; ++i)
      for (int64_t j = 0; j < columns; ++j)
        transposed[size_t(j * rows + i)] = x[size_t(i * columns + j)];
    std::vector<double> s = product(x, transposed, rows, columns, rows), ss = product(s, s, rows, rows, rows);
    std::vector<double> sx = product(s, x, rows, rows, columns), ssx = product(ss, x, rows, rows, columns);
    for (size_t i = 0; i < x.size(); ++i)
      x[i] = 3.4445 * x[i] - 4.775 * sx[i] + 2.0315 * ssx[i];
  }
}

static void muon(nn::OptimizerAttr h, double lr, Array &p, Array g, Array *m) {
  double momentum = h.value("momentum");
  for (int64_t i = 0; i < p.size() && m; ++i) {
    m->data[i] = momentum * m->data[i] + (1 - momentum) * g.data[i];
    g.data[i] = h.value("nesterov") ? (1 - momentum) * g.data[i] + momentum * m->data[i] : m->data[i];
  }
  int64_t rows = p.shape[0], columns = p.size() / rows;
  orthogonalize(g.data, rows, columns);
  for (int64_t i = 0; i < p.size(); ++i)
    p.data[i] = p.data[i] * (1 - lr * h.value("decay")) - lr * std::sqrt(std::max(1.0, double(rows) / columns)) * g.data[i];
}

static Element elementOf(StringRef rule) {
  return llvm::StringSwitch<Element>(rule)
      .Case("sgd", sgd)
      .Case("rmsprop", rmsprop)
      .Case("adagrad", adagrad)
      .Case("lion", lion)
      .Case("radam", radam)
      .Case("adam", [](nn::OptimizerAttr h, double lr, double t, double &p, double g,
                       ArrayRef<double *> s) { adam(false, h, lr, t, p, g, *s[0], *s[1]); })
      .Case("adamw", [](nn::OptimizerAttr h, double lr, double t, double &p, double g,
                        ArrayRef<double *> s) { adam(true, h, lr, t, p, g, *s[0], *s[1]); })
      .Default(nullptr);
}

Arrays updateOf(nn::UpdateOp op, ArrayRef<const Array *> x, const RunState &run) {
  Element update = elementOf(op.getOptimizer().getName());
  bool wholeMatrix = op.getOptimizer().getName() == "muon";
  if (!update && !wholeMatrix)
    return {};
  size_t firstState = op.getFactor() ? 4 : 3;
  double factor = op.getFactor() ? x[3]->data[0] : 1;
  Arrays results{*x[0]};
  for (size_t i = firstState; i < x.size(); ++i)
    results.push_back(*x[i]);
  if (wholeMatrix) {
    Array gradient = *x[1];
    for (double &each : gradient.data)
      each *= factor;
    muon(op.getOptimizer(), x[2]->data[0], results[0], gradient, results.size() > 1 ? &results[1] : nullptr);
    return results;
  }
  for (int64_t i = 0; i < results[0].size(); ++i) {
    SmallVector<double *> state;
    for (size_t s = 1; s < results.size(); ++s)
      state.push_back(&results[s].data[i]);
    update(op.getOptimizer(), x[2]->data[0], double(run.step + 1), results[0].data[i], x[1]->data[i] * factor, state);
  }
  return results;
}

} // namespace cinch::oracle
