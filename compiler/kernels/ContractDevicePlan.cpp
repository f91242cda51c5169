// ContractDevicePlan.cpp: dims of a contraction on a GPU, its tiles, and which cores compute it.
#include "compiler/kernels/ContractDevice.h"
#include "compiler/kernels/ContractTensor.h"

#include <algorithm>
#include <cstdlib>

namespace cinch::kernels::device {

int64_t countOf(const Dims &dims) {
  int64_t count = 1;
  for (const Dim &dim : dims)
    count *= dim.size;
  return count;
}

bool isOfTensorCores(const ContractSpec &spec) { return (spec.pairs || spec.tf32) && int64_t(spec.k.size()) > spec.anew; }

// Neighbours that every operand walks as one become one.
static Dims merged(const Dims &dims) {
  Dims result;
  for (const Dim &dim : dims) {
    if (dim.size == 1)
      continue;
    auto joins = [&](int64_t outer, int64_t inner) { return outer == inner * dim.size; };
    if (!result.empty()) {
      Dim &last = result.back();
      if (joins(last.a, dim.a) && joins(last.b, dim.b) && joins(last.c, dim.c) && joins(last.bound[0], dim.bound[0]) &&
          joins(last.bound[1], dim.bound[1])) {
        int64_t size = last.size * dim.size;
        last = dim;
        last.size = size;
        continue;
      }
    }
    result.push_back(dim);
  }
  return result;
}

// Convolutions ask for each place whether it lies in the image: a warp's square of outputs leaves no registers for that.
int64_t threadsOf(const std::vector<ContractSpec> &parts) {
  bool plain = parts.size() == 1 && isOfTensorCores(parts[0]) && parts[0].bounds.empty();
  return plain ? kTensorThreads : kThreads;
}

bool isOfWarpgroups(const std::vector<ContractSpec> &parts, const TargetInfo &target) {
  return target.warpgroups && parts.size() == 1 && parts[0].pairs && isOfTensorCores(parts[0]) && parts[0].bounds.empty();
}

// Neighbouring outputs are to be those of one row: they are stored together. Of the transposed product the rows are columns, and the operands have
// changed places; what is added, and in which order, is the same.
static void turnOutputs(Plan &plan) {
  auto closest = [](const Dims &dims) { return dims.empty() ? int64_t(1) << 40 : std::abs(dims.back().c); };
  if (closest(plan.n) <= closest(plan.m))
    return;
  std::swap(plan.m, plan.n), std::swap(plan.M, plan.N), std::swap(plan.spec.a, plan.spec.b);
  for (Dims *dims : {&plan.batch, &plan.m, &plan.n, &plan.k, &plan.runs})
    for (Dim &dim : *dims)
      std::swap(dim.a, dim.b);
}

// The wider a tile, the less is read for each product; but multiprocessors should have as much to do as their neighbours. A step of a tile takes as
// long as its products or, in a narrow one, as shared memory does, 128 bytes a cycle: each warpgroup reads its 64 rows and all columns, both of which
// were written there. (An H200's steps take that, within 10 %.) With a grain a thread holds two numbers for each output.
//
// wgmma has any multiple of 8 columns. Copies of boxes bring any number of them; what comes through registers comes by 64. Rows of bf16 results are
// stored by 32 columns. Below 128 columns a step takes longer in shared memory than its products do: of these widths there is 64 alone, for small
// products.
static int64_t widthOf(const Plan &plan, int64_t processors) {
  constexpr int64_t kLeast = 64, kUsual = 128, kMost = 256;
  const GroupTiles tilesOfLeast(plan);
  const bool byBoxes = tilesOfLeast.isMapped(1);
  const int64_t step = !byBoxes ? 64 : outputsAreRows(plan) ? 32 : 16;
  int64_t best = 0, width = 0;
  for (int64_t side = kLeast; side <= kMost; side = std::max(side + step, kUsual)) {
    const int64_t tiles = countOf(plan.batch) * ((plan.M + 127) / 128) * ((plan.N + side - 1) / side);
    const int64_t products = 4 * side, lines = 2 * (64 + side) + 128 + tilesOfLeast.linesOf(1, side);
    const int64_t cycles = (tiles + processors - 1) / processors * std::max(products, lines);
    if (width == 0 || (cycles <= best && (side <= 128 || plan.spec.grain == 0)))
      best = cycles, width = side;
  }
  return width;
}

Plan::Plan(const ContractSpec &spec, int processors) : spec(spec) {
  size_t B = spec.batch.size(), S = spec.m.size(), T = spec.n.size(), R = spec.k.size();
  auto bounds = [&](Dim &dim, size_t at) {
    for (size_t i = 0; i < spec.bounds.size(); ++i)
      dim.bound[i] = spec.bounds[i].strides[at];
  };
  for (size_t i = 0; i < B; ++i) {
    batch.push_back({spec.batch[i], spec.a.strides[i], spec.b.strides[i], spec.c.strides[i]});
    bounds(batch.back(), i);
  }
  for (size_t i = 0; i < S; ++i) {
    m.push_back({spec.m[i], spec.a.strides[B + i], 0, spec.c.strides[B + i]});
    bounds(m.back(), B + i);
  }
  for (size_t i = 0; i < R; ++i) {
    Dims &to = isOfTensorCores(spec) && int64_t(i) < spec.anew ? runs : k;
    to.push_back({spec.k[i], spec.a.strides[B + S + i], spec.b.strides[B + i], 0});
    bounds(to.back(), B + S + i);
  }
  for (size_t i = 0; i < T; ++i)
    n.push_back({spec.n[i], 0, spec.b.strides[B + R + i], spec.c.strides[B + S + i]});
  batch = merged(batch), m = merged(m), n = merged(n), k = merged(k), runs = merged(runs);
  M = countOf(m), N = countOf(n), K = countOf(k);
  // Large tiles read less from shared memory for each product. On the cores of single FMAs those with bounds would not fit into registers.
  bool large = M >= 128 && N >= 128 && (isOfTensorCores(spec) || spec.bounds.empty());
  tileM = tileN = large ? 128 : 64;
  if (processors > 0) {
    turnOutputs(*this);
    tileM = 128, tileN = 64; // two warpgroups have 64 rows each
    tileN = widthOf(*this, processors);
  }
}

int64_t Plan::sharedBytes() const {
  return isOfTensorCores(spec) ? TensorTiles(*this).sharedBytes() : 2 * 16 * (tileM + 1) * bytesOf(spec.elem);
}

} // namespace cinch::kernels::device
