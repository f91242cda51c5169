// Optimizers.cpp: the update rules. The formulas are PyTorch's and define the bits: every operation is rounded, in the order
// written.
#include "dialects/ops/Optimizers.h"
#include <algorithm>
#include <cmath>

namespace cinch {

static Quantity sgd(Update &u) {
  Quantity g = u.g;
  if (u.has("decay"))
    g = g + u["decay"] * u.p;
  if (u.has("momentum")) {
    Quantity &v = u.state[0];
    v = u["momentum"] * v + g;
    g = u.has("nesterov") ? g + u["momentum"] * v : v;
  }
  return u.p - u.rate * g;
}

static Quantity adam(Update &u, bool decoupled) {
  Quantity beta1 = u("betas", 0), beta2 = u("betas", 1), decay = u["decay"];
  Quantity t = u.step + 1, rate = u.rate / (1 - pow(beta1, t)), root = sqrt(1 - pow(beta2, t));
  Quantity p = u.p, g = u.g, &m = u.state[0], &v = u.state[1];
  if (u.has("decay") && decoupled)
    p = p * (1 - u.rate * decay);
  else if (u.has("decay"))
    g = g + decay * p;
  m = beta1 * m + (1 - beta1) * g;
  v = beta2 * v + (1 - beta2) * g * g;
  return p - rate * (m / (sqrt(v) / root + u["eps"]));
}

// Rectified Adam: while too few gradients were seen for the variance of v to be known, which rho tells, steps do not divide by its root.
static Quantity radam(Update &u) {
  Quantity beta1 = u("betas", 0), beta2 = u("betas", 1);
  Quantity t = u.step + 1, kept = pow(beta2, t), most = 2 / (1 - beta2) - 1, rho = most - 2 * t * kept / (1 - kept);
  Quantity ratio = (rho - 4) * (rho - 2) * most / ((most - 4) * (most - 2) * rho);
  Quantity rectified = sqrt(max(ratio, 0)) * sqrt(1 - kept), rate = u.rate / (1 - pow(beta1, t));
  Quantity g = u.has("decay") ? u.g + u["decay"] * u.p : u.g, &m = u.state[0], &v = u.state[1];
  m = beta1 * m + (1 - beta1) * g;
  v = beta2 * v + (1 - beta2) * g * g;
  Quantity divisor = choose(Comparison::GT, rho, 5, sqrt(v) + u["eps"], 1);
  return u.p - rate * choose(Comparison::GT, rho, 5, rectified, 1) * (m / divisor);
}

static Quantity lion(Update &u) {
  Quantity beta1 = u("betas", 0), beta2 = u("betas", 1);
  Quantity &m = u.state[0], between = beta1 * m + (1 - beta1) * u.g;
  Quantity sign = choose(Comparison::GT, between, 0, 1, choose(Comparison::LT, between, 0, -1, 0));
  m = beta2 * m + (1 - beta2) * u.g;
  return u.p - u.rate * (u.has("decay") ? sign + u["decay"] * u.p : sign);
}

static Quantity rmsprop(Update &u) {
  Quantity alpha = u["alpha"], g = u.has("decay") ? u.g + u["decay"] * u.p : u.g, &v = u.state[0];
  v = alpha * v + (1 - alpha) * g * g;
  Quantity d = g / (sqrt(v) + u["eps"]);
  if (u.has("momentum"))
    d = u.state[1] = u["momentum"] * u.state[1] + d;
  return u.p - u.rate * d;
}

static Quantity adagrad(Update &u) {
  Quantity g = u.has("decay") ? u.g + u["decay"] * u.p : u.g, &sum = u.state[0];
  sum = sum + g * g;
  return u.p - u.rate * (g / (sqrt(sum) + u["eps"]));
}

// Five steps of the Newton-Schulz iteration x = a x + (b s + c s s) x, s = x x', which brings all singular values of x near 1. A
// matrix with more rows than columns goes as its transposed, by the labels of the products.
static Quantity orthogonalized(const Quantity &matrix) {
  constexpr double a = 3.4445, b = -4.775, c = 2.0315, least = 1e-7;
  bool tall = matrix.type.shape[0] > matrix.type.shape[1];
  Quantity x = matrix / max(sqrt(sum(sum(matrix * matrix, 1), 0)), least);
  for (int step = 0; step < 5; ++step) {
    Quantity s = tall ? contract(x, {2, 0}, x, {2, 1}) : contract(x, {0, 2}, x, {1, 2});
    Quantity t = b * s + c * contract(s, {0, 2}, s, {2, 1});
    x = a * x + (tall ? contract(x, {0, 2}, t, {2, 1}) : contract(t, {0, 2}, x, {2, 1}));
  }
  return x;
}

static Quantity muon(Update &u) {
  Quantity g = u.g, p = u.p;
  if (u.has("momentum")) {
    Quantity beta = u["momentum"], &m = u.state[0];
    m = beta * m + (1 - beta) * g;
    g = u.has("nesterov") ? (1 - beta) * g + beta * m : m;
  }
  int64_t rows = p.type.shape[0], columns = 1;
  for (size_t axis = 1; axis < p.type.shape.size(); ++axis)
    columns *= p.type.shape[axis];
  g = reshape(orthogonalized(reshape(g, {rows, columns})), p.type.shape);
  if (u.has("decay"))
    p = p * (1 - u.rate * u["decay"]);
  return p - u.rate * std::sqrt(std::max(1.0, double(rows) / double(columns))) * g;
}

const std::vector<OptimizerRule> &optimizerRules() {
  using H = Hyperparameter;
  static const H lr{"lr", H::AtLeast0, {}}, decay{"decay", H::AtLeast0, {0}}, betas{"betas", H::Pair, {0.9, 0.999}},
      eps{"eps", H::AtLeast0, {1e-8}};
  static const std::vector<OptimizerRule> rules = {
      {"sgd",
       {lr, {"momentum", H::Below1, {0}}, {"nesterov", H::Flag, {0}}, decay},
       {{"m", "momentum"}},
       6,
       sgd},
      {"adam", // the decay is part of the gradient
       {lr, betas, eps, decay},
       {{"m", nullptr}, {"v", nullptr}},
       24,
       [](Update &u) { return adam(u, false); }},
      {"adamw", // the decay is apart
       {lr, {"decay", H::AtLeast0, {}}, betas, eps},
       {{"m", nullptr}, {"v", nullptr}},
       24,
       [](Update &u) { return adam(u, true); }},
      {"radam", {lr, betas, eps, decay}, {{"m", nullptr}, {"v", nullptr}}, 24, radam},
      {"lion", {lr, {"betas", H::Pair, {0.9, 0.99}}, decay}, {{"m", nullptr}}, 10, lion},
      {"rmsprop",
       {lr, {"alpha", H::Below1, {0.99}}, {"momentum", H::Below1, {0}}, eps, decay},
       {{"v", nullptr}, {"m", "momentum"}},
       20,
       rmsprop},
      {"adagrad", {lr, {"eps", H::AtLeast0, {1e-10}}, decay}, {{"v", nullptr}}, 16, adagrad},
      {"muon",
       {lr, {"momentum", H::Below1, {0.95}}, {"nesterov", H::Flag, {1}}, decay},
       {{"m", "momentum"}},
       60, // and the products
       muon,
       2},
  };
  return rules;
}

// ---- Quantities ------------------------------------------------------------------------------------------------------------
static Quantity make(NodeMaker &maker, OpKind kind, std::vector<const void *> operands, const TensorType &type,
                 std::vector<AttrValue> attributes = {}) {
  return Quantity(maker, maker.make(kind, operands, attributes, type), type);
}

// x as a value of a type: of a number, or of an f64 scalar.
static Quantity brought(const Quantity &x, NodeMaker &maker, const TensorType &type) {
  if (!x.maker)
    return make(maker, OpKind::Constant, {}, type, {x.number});
  Quantity result = x;
  if (result.type.dtype != type.dtype)
    result = make(maker, OpKind::Cast, {x.node}, {type.dtype, {}, -1});
  if (result.type != type)
    result = make(maker, OpKind::Broadcast, {result.node}, type, {std::vector<int64_t>()});
  return result;
}

static Quantity binary(OpKind kind, const Quantity &a, const Quantity &b) {
  if (!a.maker && !b.maker) // 1 - beta
    return kind == OpKind::Add   ? a.number + b.number
           : kind == OpKind::Sub ? a.number - b.number
           : kind == OpKind::Mul ? a.number * b.number
           : kind == OpKind::Div ? a.number / b.number
           : kind == OpKind::Pow ? std::pow(a.number, b.number)
                                 : std::max(a.number, b.number);
  bool aIsWider = a.maker && (!b.maker || a.type != TensorType{DType::F64, {}, -1}); // not a number, not a scalar at a tensor
  const Quantity &wider = aIsWider ? a : b;
  Quantity x = brought(a, *wider.maker, wider.type), y = brought(b, *wider.maker, wider.type);
  return make(*wider.maker, kind, {x.node, y.node}, wider.type);
}
Quantity operator+(const Quantity &a, const Quantity &b) { return binary(OpKind::Add, a, b); }
Quantity operator-(const Quantity &a, const Quantity &b) { return binary(OpKind::Sub, a, b); }
Quantity operator*(const Quantity &a, const Quantity &b) { return binary(OpKind::Mul, a, b); }
Quantity operator/(const Quantity &a, const Quantity &b) { return binary(OpKind::Div, a, b); }
Quantity pow(const Quantity &base, const Quantity &exponent) { return binary(OpKind::Pow, base, exponent); }
Quantity max(const Quantity &a, const Quantity &b) { return binary(OpKind::Max, a, b); }
Quantity sqrt(const Quantity &x) { return make(*x.maker, OpKind::Sqrt, {x.node}, x.type); }

Quantity sum(const Quantity &x, int64_t axis) {
  TensorType type = x.type;
  type.shape.erase(type.shape.begin() + axis);
  return make(*x.maker, OpKind::Reduce, {x.node}, type, {int64_t(Reduction::Sum), std::vector<int64_t>{axis}});
}

Quantity reshape(const Quantity &x, std::vector<int64_t> shape) {
  if (x.type.shape == shape)
    return x;
  TensorType type{x.type.dtype, std::move(shape), -1};
  return make(*x.maker, OpKind::Reshape, {x.node}, type);
}

Quantity contract(const Quantity &a, const std::vector<int64_t> &aLabels, const Quantity &b, const std::vector<int64_t> &bLabels) {
  TensorType type{a.type.dtype, {0, 0}, -1};
  for (size_t i = 0; i < 2; ++i) {
    if (aLabels[i] < 2)
      type.shape[aLabels[i]] = a.type.shape[i];
    if (bLabels[i] < 2)
      type.shape[bLabels[i]] = b.type.shape[i];
  }
  return make(*a.maker, OpKind::Contract, {a.node, b.node}, type, {aLabels, bLabels});
}

Quantity choose(Comparison comparison, const Quantity &a, const Quantity &b, const Quantity &then, const Quantity &otherwise) {
  Quantity x = brought(a, *a.maker, a.type), y = brought(b, *a.maker, a.type);
  Quantity condition = make(*a.maker, OpKind::Compare, {x.node, y.node}, {DType::Bool, a.type.shape, a.type.batch},
                        {int64_t(comparison)});
  TensorType type = a.type; // a scalar may choose among tensors
  for (const Quantity &branch : {then, otherwise})
    if (branch.maker && branch.type.shape != a.type.shape)
      type = branch.type;
  if (type.shape != a.type.shape)
    condition = make(*a.maker, OpKind::Broadcast, {condition.node}, {DType::Bool, type.shape, type.batch}, {std::vector<int64_t>()});
  Quantity yes = brought(then, *a.maker, type), no = brought(otherwise, *a.maker, type);
  return make(*a.maker, OpKind::Where, {condition.node, yes.node, no.node}, type);
}

// ---- Look-ups ---------------------------------------------------------------------------------------------------------
bool Update::has(const char *hyperparameter) const { return values[rule.placeOf(hyperparameter)] != 0; }
const Quantity &Update::operator[](const char *hyperparameter) const { return (*this)(hyperparameter, 0); }
const Quantity &Update::operator()(const char *pair, size_t i) const { return hyperparameters[rule.placeOf(pair) + i]; }

size_t OptimizerRule::placeOf(std::string_view name) const {
  size_t place = 0;
  for (const Hyperparameter &each : hyperparameters) {
    if (each.name == name)
      return place;
    place += each.size();
  }
  return std::string::npos;
}

std::vector<double> OptimizerRule::defaults() const {
  std::vector<double> values;
  for (const Hyperparameter &each : hyperparameters)
    if (each.value.empty())
      values.insert(values.end(), each.size(), 0);
    else
      values.insert(values.end(), each.value.begin(), each.value.end());
  return values;
}

std::vector<StateSlot> OptimizerRule::slotsWith(const std::vector<double> &values) const {
  std::vector<StateSlot> there;
  for (const StateSlot &slot : slots)
    if (!slot.with || values[placeOf(slot.with)] != 0)
      there.push_back(slot);
  return there;
}

const OptimizerRule *optimizerNamed(std::string_view name) {
  for (const OptimizerRule &rule : optimizerRules())
    if (rule.name == name)
      return &rule;
  return nullptr;
}

} // namespace cinch
