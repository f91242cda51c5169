// DagLinear.cpp: primal-dual hybrid gradient steps with restarts and adaptive lengths (Applegate and others: Practical
// large-scale linear programming using primal-dual hybrid gradient) on the rescaled program. A step costs two products
// with the matrix, so programs with hundreds of thousands of rows are in reach.
//
// For prices z >= 0 of the rows no x within 0 and 1 costs less than right * z + sum of min(0, cost - z * column): that
// is what is claimed, in the program's own numbers.
#include "compiler/solve/dag/DagLinear.h"
#include "compiler/solve/Memory.h"

#include <algorithm>
#include <cmath>

namespace cinch::solve::detail {
namespace {

using Vector = std::vector<double>;

class Method {
public:
  Method(const Vector &cost, const Vector &right, const Vector &values, const std::vector<int> &first,
         const std::vector<int> &columns)
      : m(int(right.size())), n(int(cost.size())), cost(cost), right(right), first(first), columns(columns),
        value(values) {
    this->first.push_back(int(columns.size()));
    rescale();
    transpose();
  }

  double run(double target, int64_t perStep, int64_t &work, double deadline) {
    Vector x(n, 0), z(m, 0), xSum(n, 0), zSum(m, 0), xStart = x, zStart = z;
    Vector zA(n, 0), xNew(n), zNew(m), zANew(n), Ax(m, 0), AxNew(m), xMean(n), zMean(m), zAMean(n), AxMean(m);
    double best = 0, costNorm = std::max(norm(cost), 1e-12), rightNorm = std::max(norm(right), 1e-12);
    double weight = costNorm / rightNorm, step = 0, sum = 0, atRestart = 1e300, before = 1e300;
    for (double v : value)
      step = std::max(step, std::abs(v));
    step = 1 / std::max(step, 1e-12);
    int64_t sinceRestart = 0;
    for (int64_t k = 1; work > 0; ++k) {
      if ((k & 31) == 0 && deadline > 0 && secondsNow() > deadline)
        break;
      // One step, shortened until it is safe.
      for (;;) {
        work -= perStep;
        double tau = step / weight, sigma = step * weight, moveX = 0, moveZ = 0, across = 0;
        for (int j = 0; j < n; ++j) {
          xNew[j] = std::clamp(x[j] - tau * (cost[j] - zA[j]), 0.0, upper[j]);
          moveX += (xNew[j] - x[j]) * (xNew[j] - x[j]);
        }
        times(xNew, AxNew);
        for (int i = 0; i < m; ++i) {
          zNew[i] = std::max(0.0, z[i] + sigma * (right[i] - 2 * AxNew[i] + Ax[i]));
          double move = zNew[i] - z[i];
          moveZ += move * move, across += move * (AxNew[i] - Ax[i]);
        }
        double movement = 0.5 * weight * moveX + 0.5 * moveZ / weight;
        double limit = std::abs(across) > 0 ? movement / std::abs(across) : 1e300, used = step;
        double power = double(k + 1);
        step = std::min((1 - std::pow(power, -0.3)) * limit, (1 + std::pow(power, -0.6)) * step);
        if (used <= limit || work <= 0) {
          sum += used;
          for (int j = 0; j < n; ++j)
            xSum[j] += used * xNew[j];
          for (int i = 0; i < m; ++i)
            zSum[i] += used * zNew[i];
          break;
        }
      }
      std::swap(x, xNew), std::swap(z, zNew), std::swap(Ax, AxNew);
      timesTransposed(z, zA);
      ++sinceRestart;
      if (k % 40)
        continue;
      // Is the mean or the last point better; has it come far enough to start again from it.
      for (int j = 0; j < n; ++j)
        xMean[j] = xSum[j] / sum;
      for (int i = 0; i < m; ++i)
        zMean[i] = zSum[i] / sum;
      times(xMean, AxMean), timesTransposed(zMean, zAMean);
      work -= 2 * perStep;
      double low = bound(z, zA), lowMean = bound(zMean, zAMean);
      best = std::max({best, low, lowMean});
      if (best >= target)
        break;
      double last = error(x, Ax, low, weight), mean = error(xMean, AxMean, lowMean, weight);
      double now = std::min(last, mean);
      bool enough = now <= 0.2 * atRestart || (now <= 0.8 * atRestart && now > before) ||
                    double(sinceRestart) >= 0.36 * double(k);
      before = now;
      if (!enough)
        continue;
      if (mean < last)
        x = xMean, z = zMean, Ax = AxMean, zA = zAMean;
      double farX = distance(x, xStart), farZ = distance(z, zStart);
      if (farX > 1e-10 && farZ > 1e-10)
        weight = std::exp(0.5 * std::log(farZ / farX) + 0.5 * std::log(weight));
      xStart = x, zStart = z, atRestart = now, before = 1e300, sum = 0, sinceRestart = 0;
      std::fill(xSum.begin(), xSum.end(), 0), std::fill(zSum.begin(), zSum.end(), 0);
    }
    return std::min(best, target);
  }

private:
  static double norm(const Vector &v) {
    double s = 0;
    for (double x : v)
      s += x * x;
    return std::sqrt(s);
  }
  static double distance(const Vector &a, const Vector &b) {
    double s = 0;
    for (size_t i = 0; i < a.size(); ++i)
      s += (a[i] - b[i]) * (a[i] - b[i]);
    return std::sqrt(s);
  }

  // Rows and columns get largest entries near 1.
  void rescale() {
    upper.assign(n, 1);
    Vector rows(m), columnsMost(n);
    for (int pass = 0; pass < 10; ++pass) {
      std::fill(rows.begin(), rows.end(), 0), std::fill(columnsMost.begin(), columnsMost.end(), 0);
      for (int i = 0; i < m; ++i)
        for (int e = first[i]; e < first[i + 1]; ++e)
          rows[i] = std::max(rows[i], std::abs(value[e])),
          columnsMost[columns[e]] = std::max(columnsMost[columns[e]], std::abs(value[e]));
      for (double &r : rows)
        r = r > 0 ? 1 / std::sqrt(r) : 1;
      for (double &c : columnsMost)
        c = c > 0 ? 1 / std::sqrt(c) : 1;
      for (int i = 0; i < m; ++i) {
        right[i] *= rows[i];
        for (int e = first[i]; e < first[i + 1]; ++e)
          value[e] *= rows[i] * columnsMost[columns[e]];
      }
      for (int j = 0; j < n; ++j)
        cost[j] *= columnsMost[j], upper[j] /= columnsMost[j];
    }
  }

  void transpose() {
    firstOf.assign(n + 1, 0), rowOf.resize(value.size()), valueOf.resize(value.size());
    for (int c : columns)
      ++firstOf[c + 1];
    for (int j = 0; j < n; ++j)
      firstOf[j + 1] += firstOf[j];
    std::vector<int> at(firstOf.begin(), firstOf.end() - 1);
    for (int i = 0; i < m; ++i)
      for (int e = first[i]; e < first[i + 1]; ++e)
        rowOf[at[columns[e]]] = i, valueOf[at[columns[e]]++] = value[e];
  }

  void times(const Vector &x, Vector &result) const {
    for (int i = 0; i < m; ++i) {
      double s = 0;
      for (int e = first[i]; e < first[i + 1]; ++e)
        s += value[e] * x[columns[e]];
      result[i] = s;
    }
  }
  void timesTransposed(const Vector &z, Vector &result) const {
    for (int j = 0; j < n; ++j) {
      double s = 0;
      for (int e = firstOf[j]; e < firstOf[j + 1]; ++e)
        s += valueOf[e] * z[rowOf[e]];
      result[j] = s;
    }
  }

  // What the prices prove.
  double bound(const Vector &z, const Vector &zA) const {
    double s = 0;
    for (int i = 0; i < m; ++i)
      s += right[i] * z[i];
    for (int j = 0; j < n; ++j)
      s += std::min(0.0, cost[j] - zA[j]) * upper[j];
    return s;
  }
  // How far a point is from being optimal: what rows miss, and the gap in cost.
  double error(const Vector &x, const Vector &Ax, double low, double weight) const {
    double missing = 0, high = 0;
    for (int i = 0; i < m; ++i) {
      double r = std::max(0.0, right[i] - Ax[i]);
      missing += r * r;
    }
    for (int j = 0; j < n; ++j)
      high += cost[j] * x[j];
    return std::sqrt(weight * weight * missing + (high - low) * (high - low));
  }

  int m, n;
  Vector cost, right;
  std::vector<int> first, columns;
  Vector value, upper;
  std::vector<int> firstOf, rowOf;
  Vector valueOf;
};

} // namespace

double LinearProgram::bound(double target, int64_t &work, double deadline) const {
  if (right.empty() || cost_.empty())
    return 0;
  return Method(cost_, right, value, first, column).run(target, stepWork(), work, deadline);
}

} // namespace cinch::solve::detail
