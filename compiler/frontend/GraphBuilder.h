// GraphBuilder.h: collects the ops of one graph. Equal ops are one op (equal kind, operands and attributes; a Random
// with an equal key draws equal numbers), and at the end only what the results need stays. Beside each op stand facts
// about where its value comes from, which the rules for the loss and for metrics ask for.
#ifndef CINCH_COMPILER_FRONTEND_GRAPHBUILDER_H
#define CINCH_COMPILER_FRONTEND_GRAPHBUILDER_H

#include "compiler/frontend/Program.h"

#include <string>
#include <unordered_map>
#include <vector>

namespace cinch {

enum Fact : uint8_t {
  FromParameter = 1, // depends on a parameter
  FromRandom = 2,
  FromExcept = 4, // the `except` value of the data may be among the elements, or what was computed from it
};

class GraphBuilder {
public:
  // Adds an op, or finds the equal one that is there.
  int add(Op op);
  Op &at(int op) { return graph.ops[op]; }
  const Op &at(int op) const { return graph.ops[op]; }
  uint8_t facts(int op) const { return known[op]; }
  void dropFacts(int op, uint8_t wrong) { known[op] &= ~wrong; }
  void addFacts(int op, uint8_t more) { known[op] |= more; }
  int size() const { return static_cast<int>(graph.ops.size()); }

  // Keeps what `roots` need and renumbers; the roots are updated.
  Graph finish(const std::vector<int *> &roots);

private:
  uint8_t factsOf(const Op &op) const;
  bool takesExcept(const Op &op) const;

  Graph graph;
  std::vector<uint8_t> known;
  std::unordered_map<std::string, int> seen;
};

} // namespace cinch
#endif
