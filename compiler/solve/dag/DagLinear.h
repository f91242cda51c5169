// DagLinear.h: a lower bound on a linear program whose variables lie between 0 and 1, by a first-order method.
#ifndef CINCH_COMPILER_SOLVE_DAG_DAGLINEAR_H
#define CINCH_COMPILER_SOLVE_DAG_DAGLINEAR_H

#include <cstdint>
#include <vector>

namespace cinch::solve::detail {

// Minimise cost * x subject to every row >= its right hand side and 0 <= x <= 1.
class LinearProgram {
public:
  int variable(double cost) { return cost_.push_back(cost), int(cost_.size()) - 1; }
  // Opens a row; the terms that follow belong to it.
  void row(double rightHandSide) { first.push_back(int(column.size())), right.push_back(rightHandSide); }
  void term(int variable, double factor) { column.push_back(variable), value.push_back(factor); }
  int64_t terms() const { return int64_t(column.size()); }
  // Elementary steps of one step of the method: it goes straight through memory, so they are short ones.
  int64_t stepWork() const { return (2 * terms() + 4 * int64_t(right.size() + cost_.size())) / 3; }

  // A lower bound on the least cost, at most `target`; ends when it has reached that or work runs out. It holds
  // whatever rounding does to the method, since any prices of the rows give one.
  double bound(double target, int64_t &work, double deadline) const;

private:
  std::vector<double> cost_, right, value;
  std::vector<int> first, column;
};

} // namespace cinch::solve::detail
#endif
