// Optimizers.h: the update rules, each in one place: hyperparameters, state and formula (Optimizers.cpp). The checker reads what
// may be written, Differentiate what state there is, and `nn.update` is written out by the formula.
#ifndef CINCH_DIALECTS_OPS_OPTIMIZERS_H
#define CINCH_DIALECTS_OPS_OPTIMIZERS_H

#include "dialects/ops/Ops.h"

namespace cinch {

struct Hyperparameter {
  enum Kind { AtLeast0, Below1, Pair, Flag }; // Pair: two numbers in [0, 1); Flag: true or false
  const char *name;
  Kind kind;
  std::vector<double> value; // if it is not given; empty: it must be given
  size_t size() const { return kind == Pair ? 2 : 1; }
};

// Makes what a formula says: the nodes are the maker's.
class NodeMaker {
public:
  virtual ~NodeMaker() = default;
  virtual const void *make(OpKind, const std::vector<const void *> &operands, const std::vector<AttrValue> &attributes,
                           const TensorType &result) = 0;
};

// A value in a formula: a tensor like the parameter, an f64 scalar of the step, or a number, which becomes a constant of the type
// of what it meets. A scalar is rounded to the element type where it meets a tensor, and a number is rounded once.
struct Quantity {
  NodeMaker *maker = nullptr;
  const void *node = nullptr;
  TensorType type;
  double number = 0;
  Quantity(double number) : number(number) {}
  Quantity(NodeMaker &maker, const void *node, TensorType type) : maker(&maker), node(node), type(std::move(type)) {}
};
Quantity operator+(const Quantity &, const Quantity &);
Quantity operator-(const Quantity &, const Quantity &);
Quantity operator*(const Quantity &, const Quantity &);
Quantity operator/(const Quantity &, const Quantity &);
Quantity pow(const Quantity &base, const Quantity &exponent);
Quantity max(const Quantity &, const Quantity &);
Quantity sqrt(const Quantity &);
Quantity sum(const Quantity &, int64_t axis);
Quantity reshape(const Quantity &, std::vector<int64_t> shape);
// A sum of products of two matrices; labels 0 and 1 are the result's axes, 2 is summed.
Quantity contract(const Quantity &, const std::vector<int64_t> &labels, const Quantity &, const std::vector<int64_t> &otherLabels);
Quantity choose(Comparison, const Quantity &a, const Quantity &b, const Quantity &then, const Quantity &otherwise);

struct OptimizerRule;

// The update of one parameter. `g` is the gradient, clipped; `rate` the learning rate of this step; `step` counts from 0.
struct Update {
  const OptimizerRule &rule;
  const std::vector<double> &values;    // of the hyperparameters: which of them are 0 decides what the formula is
  std::vector<Quantity> hyperparameters; // the same as parts of the formula: numbers, or scalars that the run is given
  Quantity p, g, rate, step;
  std::vector<Quantity> state; // of the slots that there are: the old values, and in their place the new ones

  bool has(const char *hyperparameter) const; // it is not 0
  const Quantity &operator[](const char *hyperparameter) const;
  const Quantity &operator()(const char *pair, size_t i) const;
};

struct StateSlot {
  const char *name; // the state of parameter `p` is saved as `p.name`; it starts from zeros
  const char *with; // there only if this hyperparameter is not 0; nullptr: always
};
struct OptimizerRule {
  const char *name;
  std::vector<Hyperparameter> hyperparameters; // `lr` and `decay` among them
  std::vector<StateSlot> slots;
  double cost; // operations an element
  Quantity (*formula)(Update &); // the new parameter
  size_t leastAxes = 0;          // of a parameter that it can update

  size_t placeOf(std::string_view hyperparameter) const; // of its first value; std::string::npos: it has none
  std::vector<double> defaults() const;                  // 0 for those that must be given
  std::vector<StateSlot> slotsWith(const std::vector<double> &values) const;
};
const std::vector<OptimizerRule> &optimizerRules();
const OptimizerRule *optimizerNamed(std::string_view name);

} // namespace cinch
#endif
