// ContractPlan.cpp: merging of dims, and the plan of a contraction, put together from the choices of its parts.
//
// Nothing here can change a result: every choice only regroups whole chains (design of the numbers: one FMA chain an
// element).
#include "compiler/kernels/ContractPlan.h"
#include "compiler/solve/Bytes.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace cinch::kernels {

int64_t countOf(const ContractDims &dims) {
  int64_t count = 1;
  for (const ContractDim &dim : dims)
    count *= dim.size;
  return count;
}

// Columns of neighbouring panels do not share one set of the first cache, for they are written side by side.
int64_t ContractPlan::panelA() const { return rowsInPanelA() ? mr * rowPitchA() : mr * blockSteps() + lanes; }

int64_t ContractPlan::blockSteps() const {
  if (!hasWords())
    return blockK();
  return stretches() > 1 ? runs / stretches() * wordsOf(runLength) : runs * wordsOf(kc);
}

int64_t ContractPlan::blocksK() const {
  int64_t outer = countOf(outerK);
  return kc < k.size ? outer * blocksPerRun() : (outer + runs - 1) / runs;
}

using solve::roundUp;

int64_t ContractPlan::scratchB() const {
  if (byWinograd)
    return kWinogradProducts * winograd.imageOfProduct();
  if (packA == PackedA::Band)
    return roundUp(band.elems(), 16);
  return packA == PackedA::No ? 0 : roundUp((mc + mr - 1) / mr * panelA() + lanes, 16);
}
int64_t ContractPlan::scratchTile() const {
  if (byWinograd)
    return scratchB() + kWinogradProducts * winograd.depth * nc;
  return scratchB() + (packB == PackedB::No ? 0 : roundUp((nc + nr() - 1) / nr() * panelB(), 16));
}
int64_t ContractPlan::scratchSums() const {
  if (byWinograd)
    return scratchTile() + kWinogradProducts * winograd.tileRows * nr();
  return scratchTile() + (hasTile() ? roundUp(mr * nr(), 16) : 0);
}
int64_t ContractPlan::scratchElems() const {
  return overLanes || nothing ? 0 : scratchSums() + sumUnits * tilesN() * mr * nr();
}

// ---- Dims -----------------------------------------------------------------------------------------------------------

static ContractDims groupOf(const std::vector<int64_t> &sizes, const View *a, size_t atA, const View *b, size_t atB,
                            const View *c, size_t atC, const std::vector<Bound> &bounds) {
  ContractDims dims;
  for (size_t i = 0; i < sizes.size(); ++i) {
    ContractDim dim;
    dim.size = sizes[i];
    dim.a = a ? a->strides[atA + i] : 0;
    dim.b = b ? b->strides[atB + i] : 0;
    dim.c = c ? c->strides[atC + i] : 0;
    dim.bound0 = a && bounds.size() > 0 ? bounds[0].strides[atA + i] : 0;
    dim.bound1 = a && bounds.size() > 1 ? bounds[1].strides[atA + i] : 0;
    dims.push_back(dim);
  }
  return dims;
}

static bool continues(const ContractDim &outer, const ContractDim &inner) {
  return outer.a == inner.a * inner.size && outer.b == inner.b * inner.size && outer.c == inner.c * inner.size &&
         outer.bound0 == inner.bound0 * inner.size && outer.bound1 == inner.bound1 * inner.size;
}

// Drops dims of size 1 and merges neighbours that are one range in every operand.
static void merge(ContractDims &dims) {
  ContractDims merged;
  for (const ContractDim &dim : dims) {
    if (dim.size == 1)
      continue;
    if (!merged.empty() && continues(merged.back(), dim)) {
      ContractDim both = dim;
      both.size *= merged.back().size;
      merged.back() = both;
    } else {
      merged.push_back(dim);
    }
  }
  dims = merged;
}

// Dims of outputs have no order: sorts them by their stride in C, largest first, before merging.
static void sortAndMerge(ContractDims &dims) {
  std::stable_sort(dims.begin(), dims.end(),
                   [](const ContractDim &x, const ContractDim &y) { return std::llabs(x.c) > std::llabs(y.c); });
  merge(dims);
}

static ContractDim takeAt(ContractDims &dims, size_t at) {
  ContractDim taken = dims[at];
  dims.erase(dims.begin() + at);
  return taken;
}

// The dim that is tiled: for n the one that is contiguous in C, if it is long enough for vectors; for m one that lies inside of the longest
// in both A and C, if it has rows for a tile, since rows that are pages apart share few places of a cache; else the longest.
ContractDim takeInner(ContractDims &dims, bool contiguousInC) {
  constexpr int64_t kRows = 16;
  if (dims.empty())
    return {};
  size_t best = 0;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (dims[i].size > dims[best].size)
      best = i;
  }
  if (!contiguousInC) {
    size_t longest = best;
    auto inside = [&](const ContractDim &x, const ContractDim &y) {
      return std::llabs(x.c) < std::llabs(y.c) && std::llabs(x.a) < std::llabs(y.a);
    };
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].size >= kRows && inside(dims[i], dims[longest]) && (best == longest || inside(dims[i], dims[best])))
        best = i;
    }
  }
  if (contiguousInC) {
    for (size_t i = 0; i < dims.size(); ++i) {
      if (dims[i].c == 1 && dims[i].size * 16 >= dims[best].size)
        best = i;
    }
  }
  return takeAt(dims, best);
}

static void exchangeOperands(ContractDims &dims) {
  for (ContractDim &dim : dims)
    std::swap(dim.a, dim.b);
}

// True if C would be written by vectors along this group.
static int64_t contiguousRun(const ContractDims &dims) {
  int64_t run = 0;
  for (const ContractDim &dim : dims) {
    if (dim.c == 1)
      run = std::max(run, dim.size);
  }
  return run;
}

static void dropOnes(ContractDims &dims) {
  dims.erase(std::remove_if(dims.begin(), dims.end(), [](const ContractDim &dim) { return dim.size == 1; }), dims.end());
}

// Windows: k and m end with the dim that is copied as a run, even if it is one element long; k is not merged further.
static void formWindows(ContractPlan &plan, ContractDims m, ContractDims n, ContractDims k) {
  auto endsWithRun = [](const ContractDims &dims) {
    return !dims.empty() && !dims.back().isBounded() && (dims.back().a == 1 || dims.back().size == 1);
  };
  auto take = [&](ContractDims &dims, bool run) {
    ContractDim last;
    if (run) {
      last = takeAt(dims, dims.size() - 1);
      if (last.size == 1)
        last.a = 1;
      dropOnes(dims);
      return last;
    }
    dropOnes(dims);
    return dims.empty() ? last : takeAt(dims, dims.size() - 1);
  };
  bool runsOfK = endsWithRun(k), runsOfM = !runsOfK && endsWithRun(m);
  plan.k = take(k, runsOfK);
  plan.outerK = k;
  plan.m = take(m, runsOfM);
  plan.rows = {plan.m};
  while (runsOfK && !m.empty() && m.back().c == plan.m.c * plan.m.size) {
    plan.m.size *= m.back().size;
    plan.rows.insert(plan.rows.begin(), takeAt(m, m.size() - 1));
  }
  plan.outerM = m;
  plan.n = takeInner(n, /*contiguousInC=*/true);
  plan.outerN = n;
}

// The rows of a tile over lanes: the inner dims of m while all of them fit into one tile, else a part of the last one.
static void formLaneRows(ContractPlan &plan, ContractDims m, int64_t most) {
  plan.rows = {m.empty() ? ContractDim() : takeAt(m, m.size() - 1)};
  plan.m = plan.rows[0];
  while (!m.empty() && plan.m.size * m.back().size <= most) {
    plan.m.size *= m.back().size;
    plan.rows.insert(plan.rows.begin(), takeAt(m, m.size() - 1));
  }
  plan.outerM = m;
  plan.mr = int(std::min(plan.m.size, most));
  for (int64_t rows = plan.mr; rows * 2 > most && plan.m.size % plan.mr; --rows) // without an edge, if a tile stays large
    if (plan.m.size % rows == 0)
      plan.mr = int(rows);
}

// The tile over lanes. Where each vector has elements of A of its own, two vectors beside each other are quicker than one with twice the
// rows: they read whole lines of the cache and neighbours of these. Where the rows, such as the taps of a filter's gradient, are too few
// to keep FMAs busy with two, four are taken. Groups of several channels have rows for each of them, which share what is loaded.
static void formLaneTile(ContractPlan &plan, const ContractDims &m) {
  constexpr int kBusy = 8; // chains: an FMA takes four cycles, and two of them begin in each
  auto form = [&](int vectors, int64_t chains) {
    plan.nv = vectors;
    formLaneRows(plan, m, chains / vectors);
    return plan.mr * plan.nv >= kBusy;
  };
  if (plan.lane.size == 1 && plan.n.a != 0)
    for (int vectors : {2, 4})
      if (plan.n.size % (vectors * plan.lanes) == 0 && form(vectors, plan.manyRegisters ? 24 : 12))
        return;
  form(1, plan.manyRegisters ? 24 : plan.lane.size > 1 ? 12 : 10);
}

// A filter's gradient of few channels: its rows are too short to be worth copying into panels. B is read once for each row of taps and
// each vector of n, so it should stay in a near cache.
static bool isBetterInPlace(const ContractPlan &plan, const ContractDims &m, const ContractDim &n, const ContractDims &k) {
  constexpr int64_t kFewChannels = 4, kCache = 1536 * 1024;
  bool ofFilter = !m.empty() && m.back().a == 1 && !m.back().isBounded() && m.back().size <= kFewChannels;
  return !plan.bounds.empty() && n.b == 1 && n.size > 1 && ofFilter && countOf(k) * n.size * plan.bytes <= kCache;
}

// Lanes: C is contiguous along n and a batch dim around it, in vectors of whole groups; or n alone is.
static bool formLanes(ContractPlan &plan, ContractDims batch, ContractDims m, ContractDims n, ContractDims k) {
  if (n.size() > 1)
    return false;
  ContractDim inner = n.empty() ? ContractDim{1, 0, 0, 1} : n[0];
  auto around = [&](const ContractDim &dim) { return dim.c == inner.size && !dim.isBounded(); };
  auto group = std::find_if(batch.begin(), batch.end(), around);
  if (inner.c != 1 || inner.isBounded())
    return false;
  // What one vector needs of an operand comes by a few loads that lie together.
  auto near = [&](int64_t stride) { return stride >= 0 && stride * (plan.lanes / inner.size - 1) < 4 * plan.lanes; };
  if (group != batch.end() && inner.size < plan.lanes && plan.lanes % inner.size == 0 && near(group->a) && near(group->b)) {
    plan.n = *group;
    plan.n.size *= inner.size;
    plan.n.c = 1;
    plan.lane = inner;
    batch.erase(group);
  } else if (isBetterInPlace(plan, m, inner, k)) {
    plan.n = inner;
    plan.lane = {};
  } else {
    return false;
  }
  plan.overLanes = true;
  plan.batch = batch;
  formLaneTile(plan, m);
  plan.outerK = k;
  return true;
}

// Blocks do not reach over the end of the inner dim if it is a multiple of them.
static int64_t lengthOfRuns(const ContractDims &run) {
  return run.empty() ? 1 : run.back().size % kPairBlock == 0 ? run.back().size : countOf(run);
}

// k in reduction order, no dim of the first `anew` merged with one behind them.
static void formRuns(ContractPlan &plan, ContractDims &k, size_t anew) {
  ContractDims starts(k.begin(), k.begin() + anew), run(k.begin() + anew, k.end());
  merge(starts);
  merge(run);
  plan.runLength = lengthOfRuns(run);
  k = starts;
  k.insert(k.end(), run.begin(), run.end());
}

static void formDims(ContractPlan &plan, const ContractSpec &spec) {
  size_t nb = spec.batch.size(), nm = spec.m.size(), nk = spec.k.size();
  ContractDims m = groupOf(spec.m, &spec.a, nb, nullptr, 0, &spec.c, nb, spec.bounds);
  ContractDims n = groupOf(spec.n, nullptr, 0, &spec.b, nb + nk, &spec.c, nb + nm, spec.bounds);
  ContractDims k = groupOf(spec.k, &spec.a, nb + nm, &spec.b, nb, nullptr, 0, spec.bounds);
  ContractDims batch, windowsM = m, windowsK = k;
  // A batch dim that one operand lacks belongs to the other's rows.
  for (const ContractDim &dim : groupOf(spec.batch, &spec.a, 0, &spec.b, 0, &spec.c, 0, spec.bounds))
    (dim.b == 0 ? m : dim.a == 0 ? n : batch).push_back(dim);
  sortAndMerge(batch);
  sortAndMerge(m);
  sortAndMerge(n);
  plan.grained = spec.grain > 0;
  if (plan.grained) {
    plan.grain = {k[0].size / spec.grain, k[0].a * spec.grain, k[0].b * spec.grain, 0};
    k[0].size = spec.grain;
    windowsK = k;
  }
  if (spec.pairs) {
    formRuns(plan, k, size_t(spec.anew));
  } else {
    merge(k); // in reduction order
  }
  // With few registers a tile in place has one vector, each FMA a load of its own; bands have tiles of two.
  ContractPlan lanes = plan, banded = plan;
  if (!spec.pairs && formLanes(lanes, batch, m, n, k)) {
    bool inPlace = lanes.lane.size == 1 && lanes.n.a == 0;
    if (plan.manyRegisters || !inPlace || !formBands(banded, windowsM, n, windowsK, 0)) {
      plan = lanes;
      return;
    }
  }
  if (!plan.bounds.empty()) {
    plan.batch = batch;
    ContractPlan examples = plan, planar = plan, bands = plan;
    if (spec.pairs) {
      ContractDims run(windowsK.begin() + spec.anew, windowsK.end());
      dropOnes(run);
      plan.runLength = lengthOfRuns(run);
    }
    if (formBands(bands, windowsM, n, windowsK, size_t(spec.anew)))
      plan = bands;
    else
      formWindows(plan, windowsM, n, windowsK);
    if (formExamples(examples, windowsM, n, windowsK) && takesExamples(plan, examples))
      plan = examples;
    if (formPlanar(planar, windowsM, n, windowsK) && takesPlanar(plan, planar))
      plan = planar;
    if (plan.n.size == 1)
      plan.n.b = plan.n.c = 1;
    plan.directC = plan.n.c == 1 || plan.bands == Bands::Planar;
    return;
  }

  int64_t alongM = contiguousRun(m), alongN = contiguousRun(n);
  bool exchange = alongM > alongN && (alongN == 0 || alongM >= 4 * alongN);
  if (alongM == 0 && alongN == 0)
    exchange = countOf(m) > 4 * countOf(n);
  if (exchange) {
    std::swap(m, n);
    std::swap(plan.a, plan.b);
    exchangeOperands(m);
    exchangeOperands(n);
    exchangeOperands(k);
    exchangeOperands(batch);
    std::swap(plan.grain.a, plan.grain.b);
  }
  plan.batch = batch;
  plan.n = takeInner(n, /*contiguousInC=*/true);
  plan.m = takeInner(m, /*contiguousInC=*/false);
  plan.k = k.empty() ? ContractDim{1, 0, 0, 0} : takeAt(k, k.size() - 1);
  plan.outerM = m;
  plan.outerN = n;
  plan.outerK = k;
  if (plan.n.size == 1)
    plan.n.b = plan.n.c = 1; // a range of one is contiguous
  plan.directC = plan.n.c == 1;
}

// ---- Plans ----------------------------------------------------------------------------------------------------------

// Of C alone.
static ContractSpec withoutSum(ContractSpec spec) {
  spec.bounds.clear();
  spec.k = {1};
  spec.anew = 0;
  spec.a.strides.assign(spec.batch.size() + spec.m.size() + 1, 0);
  spec.b.strides.assign(spec.batch.size() + 1 + spec.n.size(), 0);
  for (View *view : {&spec.a, &spec.b}) // a batch dim stays one
    std::fill(view->strides.begin(), view->strides.begin() + spec.batch.size(), 1);
  return spec;
}

// Whole blocks of k under whole squares of columns: then nothing of B has to be filled up. k is one range from here on.
static void findWordsOfB(ContractPlan &plan) {
  if (!plan.bounds.empty() || plan.b.elem != Elem::BF16 || plan.outerK.size() != 1 || plan.k.size != 2 || plan.k.b != 1 || plan.n.b != 2)
    return;
  const ContractDim pairs = plan.outerK.front();
  const int64_t steps = 2 * pairs.size;
  if (pairs.a != 2 * plan.k.a || pairs.b % 2 || plan.runLength != steps || steps % kPairBlock || plan.n.size % 16)
    return;
  plan.k = {steps, plan.k.a, pairs.b / 2, 0};
  plan.outerK.clear();
  plan.wordsOfB = true;
}

ContractPlan planContract(const ContractSpec &given, const TargetInfo &target) {
  ContractPlan plan;
  plan.nothing = std::find(given.k.begin(), given.k.end(), 0) != given.k.end();
  const ContractSpec &spec = plan.nothing ? withoutSum(given) : given;
  plan.elem = spec.elem;
  plan.pairs = spec.pairs;
  plan.rounds = spec.pairs || spec.rounds;
  plan.bytes = bytesOf(spec.elem);
  plan.lanes = std::max(1, target.lanes * 4 / int(plan.bytes));
  plan.dots = spec.pairs && target.dots;
  plan.accumulate = spec.accumulate;
  plan.a = spec.a;
  plan.b = spec.b;
  plan.c = spec.c;
  plan.bounds = spec.bounds;
  plan.manyRegisters = target.lanes >= 16;
  plan.prefersFewLoads = target.fewLoads;
  if (spec.winograd && !plan.nothing) {
    plan.byWinograd = true;
    planWinograd(plan, spec);
    return plan;
  }
  ContractPlan byAmx = plan;
  formDims(plan, spec);
  if (plan.nothing || plan.overLanes)
    return plan;
  if (plan.pairs && target.amx) {
    byAmx.amx = true, byAmx.dots = false;
    formDims(byAmx, spec);
    findWordsOfB(byAmx);
    if (byAmx.wordsOfB || isQuickerByAmx(byAmx))
      plan = byAmx;
  }
  chooseSkips(plan);
  chooseSpares(plan);
  chooseTiling(plan, given, target);
  plan.mr = plan.tiling.rows;
  plan.nv = plan.tiling.vectors;
  chooseBlocks(plan);
  return plan;
}

} // namespace cinch::kernels
