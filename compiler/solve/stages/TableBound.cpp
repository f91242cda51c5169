// TableBound.cpp: chains of work and messages, and where the work lies best for them.
#include "compiler/solve/stages/TableBound.h"

#include <algorithm>

namespace cinch::solve {
namespace {

constexpr int kChains = 200; // the bound grows by little after some dozens

using Parts = std::vector<std::vector<double>>; // of each worker and part

class Chains {
public:
  Chains(const ChannelProblem &problem, const std::vector<int> &boxes, const std::vector<std::vector<PartWork>> &work)
      : problem(problem), boxes(boxes), work(work), mean(problem.seconds) {
    for (std::vector<double> &row : mean)
      std::fill(row.begin(), row.end(), 0.0);
  }

  double bound() {
    double best = 0;
    place(mean);
    for (int i = 0; i < kChains; ++i) {
      ChannelRun found = run(problem, boxes);
      if (!found.finished)
        return 0;
      double rest = found.makespan; // of the chain, that is no work
      for (size_t w = 0; w < mean.size(); ++w)
        for (size_t part = 0; part < mean[w].size(); ++part)
          rest -= found.critical[w][part] * problem.seconds[w][part];
      best = std::max(best, rest + place(found.critical)); // this chain alone
      double share = 1.0 / double(i + 1);
      restOfMean += (rest - restOfMean) * share;
      for (size_t w = 0; w < mean.size(); ++w)
        for (size_t part = 0; part < mean[w].size(); ++part)
          mean[w][part] += (found.critical[w][part] - mean[w][part]) * share;
      best = std::max(best, restOfMean + place(mean));
      if (best >= found.makespan * (1 - 1e-9)) // the run has no shorter one
        break;
    }
    return best * (1 - 1e-12);
  }

private:
  // Puts all work where it costs least if the parts stand so often on a chain; returns what it costs.
  double place(const Parts &times) {
    double sum = 0;
    for (size_t w = 0; w < work.size(); ++w) {
      std::vector<double> &seconds = problem.seconds[w];
      std::fill(seconds.begin(), seconds.end(), 0.0);
      for (const PartWork &piece : work[w]) {
        size_t part = size_t(std::min_element(times[w].begin() + piece.first, times[w].begin() + piece.last + 1) - times[w].begin());
        seconds[part] += piece.seconds;
        sum += piece.seconds * times[w][part];
      }
    }
    return sum;
  }

  ChannelProblem problem;
  const std::vector<int> &boxes;
  const std::vector<std::vector<PartWork>> &work;
  Parts mean;            // how often each part stands on the mean of the chains
  double restOfMean = 0; // seconds of that mean that are no work
};

} // namespace

double earliestEnd(const ChannelProblem &problem, const std::vector<int> &boxes, const std::vector<std::vector<PartWork>> &work) {
  return Chains(problem, boxes, work).bound();
}

} // namespace cinch::solve
