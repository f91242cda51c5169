// Tune.cpp: first the tile in registers, then the blocks one by one, each measured beside the best so far.
#include "compiler/calibrate/Tune.h"

#include "compiler/analysis/KernelSpec.h"
#include "compiler/calibrate/Team.h"
#include "compiler/solve/Bytes.h"
#include "compiler/target/Object.h"

#include "llvm/ADT/STLExtras.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <unistd.h>

namespace cinch::calibrate {

using kernels::ContractSpec;
using kernels::Elem;
using kernels::Tiling;

namespace {

// A gain that is smaller than this is not told from chance on a busy machine.
constexpr double kWorthIt = 0.97;
// What takes so much longer than the best in one call is not called again.
constexpr double kHopeless = 1.5;
constexpr int kFewestCalls = 3, kMostCalls = 200, kPairs = 15;

int64_t count(const std::vector<int64_t> &sizes) {
  int64_t all = 1;
  for (int64_t size : sizes)
    all *= size;
  return all;
}

std::string sizes(const std::vector<int64_t> &dims) {
  std::string text;
  for (int64_t size : dims)
    text += (text.empty() ? "" : "x") + std::to_string(size);
  return text.empty() ? "1" : text;
}

double now() { return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(); }

// The operands of a product in memory of this process, all offsets 0.
class Operands {
public:
  Operands(const ContractSpec &spec, int64_t scratch) {
    add(spec.a, {&spec.batch, &spec.m, &spec.k});
    add(spec.b, {&spec.batch, &spec.k, &spec.n});
    add(spec.c, {&spec.batch, &spec.m, &spec.n});
    offsets[3] = end;
    // A process that takes more than there is would be killed.
    if (end + scratch > int64_t(sysconf(_SC_PHYS_PAGES)) * sysconf(_SC_PAGESIZE) / 2)
      return;
    storage.reset(new char[size_t(end + scratch + 64)]);
    arena = storage.get() + (64 - reinterpret_cast<uintptr_t>(storage.get()) % 64) % 64;
    for (const Region &region : regions)
      fill(region);
  }
  char *arena = nullptr; // null: the machine has no room for them
  int64_t offsets[4] = {};

private:
  struct Region {
    Elem elem;
    int64_t begin, bytes;
  };
  // Room for every element that the strides reach, whether a bound leaves it out or not.
  void add(const kernels::View &view, std::initializer_list<const std::vector<int64_t> *> groups) {
    int64_t least = 0, most = 0, width = kernels::bytesOf(view.elem);
    auto stride = view.strides.begin();
    for (const std::vector<int64_t> *group : groups)
      for (int64_t size : *group) {
        int64_t reach = (size - 1) * *stride++;
        (reach < 0 ? least : most) += reach;
      }
    int64_t before = solve::roundUp(-least * width), bytes = before + solve::roundUp((most + 1) * width);
    offsets[regions.size()] = end + before;
    regions.push_back({view.elem, end, bytes});
    end += bytes;
  }
  // Numbers between -1 and 1: none that a processor takes longer for.
  void fill(const Region &region) {
    int64_t width = kernels::bytesOf(region.elem);
    uint32_t state = 1;
    for (int64_t at = 0; at + width <= region.bytes; at += width) {
      state = state * 1664525u + 1013904223u;
      double wide = double(int32_t(state)) * 0x1p-31;
      float narrow = float(wide);
      char *to = arena + region.begin + at;
      if (region.elem == Elem::F64)
        std::memcpy(to, &wide, 8);
      else if (region.elem == Elem::BF16)
        std::memcpy(to, reinterpret_cast<const char *>(&narrow) + 2, 2);
      else
        std::memcpy(to, &narrow, 4);
    }
  }
  std::vector<Region> regions;
  int64_t end = 0;
  std::unique_ptr<char[]> storage;
};

struct Candidate {
  Tiling tiling;
  target::KernelFunction kernel = nullptr;
  double least = 0; // seconds of its quickest call
};

class Search {
public:
  Search(const Product &product, const std::string &cpu, int threads, double limit)
      : spec(product.spec), cpu(cpu), builtIn(target::infoOf(cpu)), end(now() + limit), team(threads),
        scratch(kernels::scratchBytesPerThread(spec, builtIn)), operands(spec, scratch * threads) {}

  bool run(Tuned &tuned);
  std::string error;

private:
  kernels::TargetInfo with(const Tiling &tiling) const {
    kernels::TargetInfo target = builtIn;
    auto table = std::make_shared<kernels::TileTable>();
    table->tilings[kernels::shapeText(spec, builtIn)] = tiling;
    target.tiles = table;
    return target;
  }
  bool compile(std::vector<Candidate> &candidates);
  double call(const Candidate &candidate) { return team.seconds(candidate.kernel, operands.arena, operands.offsets); }
  void measure(std::vector<Candidate> &candidates);
  bool consider(std::vector<Tiling> tilings, Candidate &best);

  const ContractSpec spec;
  std::string cpu;
  kernels::TargetInfo builtIn;
  double end;
  Team team;
  int64_t scratch;
  Operands operands;
  std::vector<Tiling> seen; // as they came out
  std::vector<std::unique_ptr<target::KernelJit>> code;
};

bool Search::compile(std::vector<Candidate> &candidates) {
  if (candidates.empty())
    return true;
  auto jit = std::make_unique<target::KernelJit>(cpu);
  auto builder = jit->builder();
  for (auto [i, candidate] : llvm::enumerate(candidates))
    kernels::buildContract(builder, jit->module(), "tiling" + std::to_string(i), spec, with(candidate.tiling));
  if (!jit->compile()) {
    error = jit->error();
    return false;
  }
  for (auto [i, candidate] : llvm::enumerate(candidates))
    if (!(candidate.kernel = jit->lookup("tiling" + std::to_string(i)))) {
      error = jit->error();
      return false;
    }
  code.push_back(std::move(jit));
  return true;
}

// In turns, so that what else the machine does takes from all of them; the quickest call counts.
void Search::measure(std::vector<Candidate> &candidates) {
  double slice = std::min(0.3, std::max(0.0, end - now())), begin = now();
  for (int round = 0; round < kMostCalls; ++round) {
    double best = 0;
    for (Candidate &candidate : candidates)
      if (candidate.least > 0 && (best == 0 || candidate.least < best))
        best = candidate.least;
    if (round >= kFewestCalls && now() - begin > slice)
      break;
    for (Candidate &candidate : candidates) {
      if (round > 0 && candidate.least > kHopeless * best)
        continue;
      double seconds = call(candidate);
      if (round == 0) // the first call finds nothing in the caches
        seconds = std::min(seconds, call(candidate));
      if (candidate.least == 0 || seconds < candidate.least)
        candidate.least = seconds;
    }
  }
}

// The best of these and of the best so far becomes the best.
bool Search::consider(std::vector<Tiling> tilings, Candidate &best) {
  std::vector<Candidate> candidates;
  for (const Tiling &tiling : tilings) {
    kernels::TilingChoice choice;
    kernels::TargetInfo target = with(tiling);
    if (!kernels::tilingOf(spec, target, choice) || llvm::is_contained(seen, choice.tiling) ||
        kernels::scratchBytesPerThread(spec, target) > scratch)
      continue;
    seen.push_back(choice.tiling);
    candidates.push_back({choice.tiling});
  }
  if (candidates.empty() || now() > end)
    return true;
  if (!compile(candidates))
    return false;
  candidates.push_back(best);
  measure(candidates);
  best = *std::min_element(candidates.begin(), candidates.end(), [](auto &a, auto &b) { return a.least < b.least; });
  return true;
}

bool Search::run(Tuned &tuned) {
  kernels::TilingChoice choice;
  tuned.tooLarge = !operands.arena;
  if (tuned.tooLarge || !kernels::tilingOf(spec, builtIn, choice))
    return true;
  std::vector<Candidate> first{{choice.tiling}};
  if (!compile(first))
    return false;
  measure(first);
  seen.push_back(choice.tiling);
  const Candidate standard = first.front();
  Candidate best = standard;
  auto varied = [&](auto change, auto values) {
    std::vector<Tiling> tilings;
    for (auto value : values) {
      tilings.push_back(best.tiling);
      change(tilings.back(), value);
    }
    return consider(std::move(tilings), best);
  };
  auto tile = [](Tiling &t, std::pair<int, int> value) { std::tie(t.rows, t.vectors) = value; };
  auto steps = [](Tiling &t, int64_t value) { t.steps = value; };
  auto near = [](Tiling &t, int64_t value) { t.near = value << 10; };
  auto far = [](Tiling &t, int64_t value) { t.far = value << 10; };
  const std::vector<int64_t> lengths{128, 192, 256, 384, 512, 768, 1024}, nearKiB{48, 96, 128, 192, 256, 384}, farKiB{256, 512, 768, 1024, 1280, 2048};
  if (!varied(tile, choice.tiles) || !varied(steps, lengths) || !varied(near, nearKiB) || !varied(far, farKiB))
    return false;
  // Beside the built-in one again, pair by pair: the quickest of many was chosen above, which flatters it.
  std::vector<double> ratios;
  std::vector<double> before, after;
  double begin = now();
  for (int pair = 0; pair < kPairs && !(best.tiling == standard.tiling) && (pair < kFewestCalls || now() - begin < 1); ++pair) {
    before.push_back(call(standard));
    after.push_back(call(best));
    ratios.push_back(after.back() / before.back());
  }
  auto median = [](std::vector<double> values) {
    std::nth_element(values.begin(), values.begin() + values.size() / 2, values.end());
    return values[values.size() / 2];
  };
  tuned.tiling = best.tiling;
  tuned.before = before.empty() ? standard.least : median(before);
  tuned.after = after.empty() ? standard.least : median(after);
  tuned.kept = !ratios.empty() && median(ratios) < kWorthIt;
  return true;
}

} // namespace

std::vector<Product> productsOf(mlir::ModuleOp scheduled) {
  std::map<std::string, Product> products; // by shape
  auto add = [&](const ContractSpec &given, const char *what) {
    ContractSpec spec = given;
    for (kernels::View *view : {&spec.a, &spec.b, &spec.c})
      view->offset = 0;
    double flops = 2.0 * double(count(spec.batch) * count(spec.m)) * double(count(spec.n) * count(spec.k));
    if (flops == 0)
      return;
    Product &product = products[kernels::shapeText(spec, {})];
    ++product.calls;
    product.flops = flops;
    product.text = std::string(what) + " " + (spec.batch.empty() ? "" : sizes(spec.batch) + " times ") + sizes(spec.m) + " by " + sizes(spec.n) +
                   ", sums of " + sizes(spec.k);
    product.spec = std::move(spec);
  };
  scheduled.walk([&](plan::KernelOp kernel) {
    std::optional<analysis::KernelSpec> spec = analysis::specOf(kernel);
    if (!spec) // a loop along an axis: the kernels of its body are walked, too
      return;
    if (auto *contract = std::get_if<ContractSpec>(&spec->work))
      add(*contract, "product");
    else if (auto *conv = std::get_if<kernels::ConvSpec>(&spec->work))
      for (const ContractSpec &part : conv->parts)
        add(part, "convolution");
  });
  std::vector<Product> sorted;
  for (auto &[shape, product] : products)
    sorted.push_back(std::move(product));
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Product &a, const Product &b) { return a.flops * a.calls > b.flops * b.calls; });
  return sorted;
}

bool tuneProduct(const Product &product, const std::string &cpu, int threads, double limit, Tuned &tuned, std::string &error) {
  Search search(product, cpu, threads, limit);
  bool good = search.run(tuned);
  error = search.error;
  return good;
}

} // namespace cinch::calibrate
