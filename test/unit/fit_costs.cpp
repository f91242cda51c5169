// LINK: cinch_calibrate
// fit_costs.cpp: from times made with known rates, noise added, the fit finds the rates again.
#include "compiler/calibrate/Fit.h"

#include <cmath>
#include <cstdio>

using namespace cinch;
using calibrate::Sample;
using solve::Kernel;

static int passed = 0, failed = 0;
static void expect(bool ok, const char *what, double expected, double got) {
  ok ? ++passed : ++failed;
  if (!ok)
    std::printf("FAILED: %s: expected %g, got %g\n", what, expected, got);
}

static uint64_t state = 1;
static double uniform() {
  state = state * 6364136223846793005u + 1442695040888963407u;
  return double(state >> 11) / double(1ull << 53);
}

static std::vector<Sample> samples(const analysis::MachineRates &rates, double noise, bool attention) {
  std::vector<Sample> all;
  for (int i = 0; i < 400; ++i) {
    Sample s;
    s.work = attention ? Kernel::Work(i % 4) : i % 2 ? Kernel::Product : Kernel::Loop;
    double bytes = std::pow(10, 3.5 + 4.5 * uniform());
    // Products and attention do much with a byte, loops from little to some.
    double each = s.work == Kernel::Loop ? std::pow(10, -1 + 2 * uniform()) : std::pow(10, 1.2 + uniform());
    (i % 3 ? s.bytes : s.fixedBytes) = bytes;
    (i % 3 ? s.flops : s.fixedFlops) = bytes * each;
    s.seconds = calibrate::predict(rates, s) * std::exp(noise * (2 * uniform() - 1));
    all.push_back(s);
  }
  return all;
}

int main() {
  const analysis::MachineRates start = {85e9, 40e9, 40e9, 8e9, 14e9, 0, 0, 4e-6};
  const analysis::MachineRates machines[] = {
      {170e9, 60e9, 45e9, 20e9, 30e9, 0, 0, 2e-6}, {20e9, 9e9, 6e9, 3e9, 12e9, 0, 0, 1e-5}, {2e12, 900e9, 700e9, 300e9, 200e9, 0, 0, 2e-5}};
  const std::pair<const char *, double analysis::MachineRates::*> fields[] = {
      {"products", &analysis::MachineRates::product},    {"attention", &analysis::MachineRates::attend},
      {"its gradient", &analysis::MachineRates::attendGrad}, {"loops", &analysis::MachineRates::loop},
      {"memory", &analysis::MachineRates::bytes},        {"start", &analysis::MachineRates::launch}};
  for (const analysis::MachineRates &machine : machines)
    for (double noise : {0.0, 0.2}) {
      auto measured = samples(machine, noise, true);
      analysis::MachineRates found = calibrate::fit(measured, start);
      for (auto &[name, field] : fields) {
        double off = std::fabs(std::log(found.*field / machine.*field));
        expect(off < (noise > 0 ? 0.2 : 0.02), name, machine.*field, found.*field);
      }
      calibrate::Quality good = calibrate::quality(found, measured);
      expect(std::fabs(good.ratio - 1) < 0.05, "predicted over measured", 1, good.ratio);
      expect(good.factor < std::exp(noise * 0.6 + 0.01), "the mean factor", std::exp(noise * 0.5), good.factor);
      // The same samples in another order give the same rates, nearly: nothing hangs on the order.
      std::vector<Sample> turned(measured.rbegin(), measured.rend());
      expect(std::fabs(std::log(calibrate::fit(turned, start).product / found.product)) < 0.01, "order", found.product,
             calibrate::fit(turned, start).product);
    }
  auto without = samples(machines[0], 0, false);
  analysis::MachineRates found = calibrate::fit(without, start);
  expect(std::fabs(std::log(found.product / machines[0].product)) < 0.02, "products alone", machines[0].product, found.product);
  expect(found.attendGrad == found.attend, "what was not measured", found.attend, found.attendGrad);
  expect(calibrate::fit({}, start).product > 0, "no samples", 1, 0);
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
