// Optimizers.cpp: the update rules. The formulas are PyTorch's and define the bits: every operation is rounded, in the order
// written.
#include "dialects/ops/Optimizers.h"

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

static Quantity lion(Update &u) {
  Quantity beta1 = u("betas", 0), beta2 = u("betas", 1);
  Quantity &m = u.state[0], between = beta1 * m + (1 - beta1) * u.g;
  Quantity sign = choose(Comparison::GT, between, 0, 1, choose(Comparison::LT, between, 0, -1, 0));
  m = beta2 * m + (1 - beta2) * u.g;
  return u.p - u.rate * (u.has("decay") ? sign + u["decay"] * u.p : sign);
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
      {"lion", {lr, {"betas", H::Pair, {0.9, 0.99}}, decay}, {{"m", nullptr}}, 10, lion},
  };
  return rules;
}

const std::vector<std::string> &optimizersToCome() {
  static const std::vector<std::string> names = {"rmsprop", "adagrad", "muon"};
  return names;
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
    return kind == OpKind::Add ? a.number + b.number : kind == OpKind::Sub ? a.number - b.number : a.number * b.number;
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
Quantity sqrt(const Quantity &x) { return make(*x.maker, OpKind::Sqrt, {x.node}, x.type); }

Quantity choose(Comparison comparison, const Quantity &a, const Quantity &b, const Quantity &then, const Quantity &otherwise) {
  Quantity x = brought(a, *a.maker, a.type), y = brought(b, *a.maker, a.type);
  Quantity condition = make(*a.maker, OpKind::Compare, {x.node, y.node}, {DType::Bool, a.type.shape, a.type.batch},
                        {int64_t(comparison)});
  Quantity yes = brought(then, *a.maker, a.type), no = brought(otherwise, *a.maker, a.type);
  return make(*a.maker, OpKind::Where, {condition.node, yes.node, no.node}, a.type);
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
