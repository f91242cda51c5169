// ContractLanes.cpp: contractions whose C is contiguous along a batch dim and n together, such as a convolution of each channel by
// itself or in groups of four. A vector holds elements of both, a tile some rows of m and some vectors: one FMA chain an element, walked
// over k in plain loops. Operands come into the lanes as they lie, or spread:
//
//     y[o] of 4 groups of 4      0 1 2 3   4 5 6 7   8 9 a b   c d e f      n.c = 1
//     meets channel c of         c c c c   4+c ..    8+c ..    12+c ..      n.a = 4, lane.a = 0: one load for all c, one shuffle
//
// Also what is written where nothing is summed.
#include "compiler/kernels/ContractEmitter.h"

#include "mlir/Dialect/Math/IR/Math.h"
#include "llvm/ADT/STLExtras.h"
#include <array>
#include <map>

using namespace mlir;

namespace cinch::kernels {

ContractEmitter::Range ContractEmitter::share(Value thread, Value threads, int64_t items) {
  auto first = [&](Value part) -> Value {
    return arith::DivUIOp::create(builder, loc, mul(part, number(items)), threads);
  };
  return {first(thread), first(add(thread, 1))};
}

void ContractEmitter::emitZeros(Value thread, Value threads) {
  int64_t rows = countOf(plan.batch) * countOf(plan.outerM) * plan.m.size;
  ContractDims dims = plan.batch;
  dims.insert(dims.end(), plan.outerM.begin(), plan.outerM.end());
  if (plan.overLanes) // m is the product of these, and no range of C
    dims.insert(dims.end(), plan.rows.begin(), plan.rows.end());
  else
    dims.push_back(plan.m);
  Range mine = share(thread, threads, rows);
  forLoop(mine.first, mine.second, 1, [&](Value row) {
    Value at = add(offsetIn(dims, &ContractDim::c, row), plan.c.offset);
    forLoop(number(0), number(countOf(plan.outerN)), 1, [&](Value outer) {
      Value begin = add(at, offsetIn(plan.outerN, &ContractDim::c, outer));
      if (plan.n.c != 1) {
        Value zero = arith::ConstantOp::create(builder, loc, builder.getZeroAttr(elementType()));
        return forLoop(number(0), number(plan.n.size), 1,
                       [&](Value column) { storeScalar(zero, memC, add(begin, mul(column, plan.n.c))); });
      }
      int64_t full = plan.n.size / plan.lanes * plan.lanes;
      forLoop(number(0), number(full), plan.lanes,
              [&](Value column) { storeVector(zeros(plan.lanes), memC, add(begin, column), plan.lanes); });
      if (full < plan.n.size)
        storeVector(zeros(plan.lanes), memC, add(begin, full), plan.n.size - full);
    });
  });
}

// An index that may be read. A masked load of nothing from where no memory is takes a CPU as long as a hundred others do.
Value ContractEmitter::placeIfThere(Value index, Value there) {
  return there ? Value(arith::SelectOp::create(builder, loc, there, index, number(0))) : index;
}

// The first `count` lanes, if it is `there` (null: it is); null: all lanes.
Value ContractEmitter::laneMask(Value count, Value there) {
  VectorType type = VectorType::get({plan.lanes}, builder.getI1Type());
  Value first = count ? Value(vector::CreateMaskOp::create(builder, loc, type, count)) : Value();
  Value all = there ? Value(vector::BroadcastOp::create(builder, loc, type, there)) : Value();
  return first && all ? Value(arith::AndIOp::create(builder, loc, first, all)) : first ? first : all;
}

// One vector: lane l holds the element at index + (l / size of a group) * group. Where that is one of several channels of a group, all are loaded: a load does for
// all of them, and each is a shuffle of it.
Value ContractEmitter::laneSpread(Value memory, Value index, int64_t group, LaneChannel of, Value alive, Value there) {
  int64_t each = plan.lane.size, groups = plan.lanes / each;
  VectorType type = vectorType(plan.lanes);
  auto load = [&](Value at, Value count) -> Value {
    Value mask = laneMask(count, there);
    return mask ? loadMasked(memory, placeIfThere(at, there), mask) : loadVector(memory, at, plan.lanes, plan.lanes);
  };
  if (group == 0) {
    Value element = loadScalar(memory, placeIfThere(index, there));
    if (there)
      element = arith::SelectOp::create(builder, loc, there, element, arith::ConstantOp::create(builder, loc, builder.getZeroAttr(elementType())));
    return vector::BroadcastOp::create(builder, loc, type, element);
  }
  // Elements that the living lanes need: the last group's is the last.
  int64_t reach = (groups - 1) * group + of.channels;
  Value count;
  if (alive)
    count = add(mul(div(sub(min(alive, plan.lanes), number(1)), each), group), of.channels);
  if (each == 1 && group == 1)
    return load(index, count);
  Value result;
  for (int64_t begin = 0; begin < reach; begin += plan.lanes) {
    int64_t length = std::min<int64_t>(plan.lanes, reach - begin);
    Value left = count ? max(sub(count, number(begin)), number(0)) : length < plan.lanes ? number(length) : Value();
    Value part = load(add(index, begin - of.channel), left);
    SmallVector<int64_t> lanes;
    for (int64_t lane = 0; lane < plan.lanes; ++lane) {
      int64_t at = lane / each * group + of.channel - begin;
      bool here = at >= 0 && at < plan.lanes;
      lanes.push_back(result ? (here ? plan.lanes + at : lane) : here ? at : 0);
    }
    result = vector::ShuffleOp::create(builder, loc, result ? result : part, part, lanes);
  }
  return result;
}

// Lane l holds the element at index + (l / size of a group) * group + (l % size of a group) * within.
Value ContractEmitter::laneLoad(Value memory, Value index, int64_t group, int64_t within, LaneChannel of, Value alive, Value there) {
  int64_t each = plan.lane.size;
  if (within == 1 && group == each) {
    Value mask = laneMask(alive, there);
    return mask ? loadMasked(memory, placeIfThere(index, there), mask) : loadVector(memory, index, plan.lanes, plan.lanes);
  }
  if (each == 1 || within == 0)
    return laneSpread(memory, index, group, of, alive, there);
  Value result;
  for (int64_t i = 0; i < each; ++i) {
    Value part = laneSpread(memory, add(index, i * within), group, of, alive, there);
    SmallVector<int64_t> lanes;
    for (int64_t lane = 0; lane < plan.lanes; ++lane)
      lanes.push_back(lane % each == i ? plan.lanes + lane : lane);
    result = result ? Value(vector::ShuffleOp::create(builder, loc, result, part, lanes)) : part;
  }
  return result;
}

// Items are (batch, outer m, tile of rows, vectors of a tile); these fastest, so that neighbours read the same lines. Where k is longer than
// all rows are many, as for a filter's gradient, vectors are slower than rows: what an item has read of its vectors lies in a near cache for
// the next one.
void ContractEmitter::emitLanes(Value thread, Value threads) {
  int64_t vectors = (plan.n.size + plan.nr() - 1) / plan.nr(), tiles = (plan.m.size + plan.mr - 1) / plan.mr;
  int64_t edge = plan.m.size % plan.mr, outer = countOf(plan.outerM), groups = plan.nr() / plan.lane.size;
  bool rowsFastest = countOf(plan.outerK) > outer * plan.m.size;
  Range mine = share(thread, threads, countOf(plan.batch) * outer * tiles * vectors);
  forLoop(mine.first, mine.second, 1, [&](Value item) {
    Value rest = item;
    auto take = [&](int64_t count) {
      Value number = rem(rest, count);
      rest = div(rest, count);
      return number;
    };
    Value vector = rowsFastest ? Value() : take(vectors), tile = take(tiles), outerM = take(outer);
    if (rowsFastest)
      vector = take(vectors);
    Value batch = rest;
    auto tileAt = [&](Value row, int64_t rows) {
      Origin origin;
      origin.a = number(plan.a.offset);
      for (size_t i = 0; i < plan.bounds.size(); ++i)
        origin.bound[i] = number(plan.bounds[i].offset);
      moveA(origin, plan.batch, batch);
      moveA(origin, plan.outerM, outerM);
      if (tiles > 1)
        moveA(origin, plan.rows, row);
      origin.a = add(origin.a, mul(vector, groups * plan.n.a));
      origin.b = add(add(offsetIn(plan.batch, &ContractDim::b, batch), plan.b.offset), mul(vector, groups * plan.n.b));
      Value column = mul(vector, plan.nr());
      origin.c = add(add(offsetIn(plan.batch, &ContractDim::c, batch), plan.c.offset),
                     add(offsetIn(plan.outerM, &ContractDim::c, outerM), add(offsetIn(plan.rows, &ContractDim::c, row), column)));
      Value alive = plan.n.size % plan.lanes ? sub(number(plan.n.size), column) : Value();
      laneTile(origin, {rows, alive});
    };
    Value middle = mul(tile, int64_t(plan.mr));
    int64_t last = edge ? edge : plan.mr;
    bool ends = llvm::any_of(plan.rows, [](const ContractDim &dim) { return dim.isBounded(); });
    if (tiles == 1)
      return tileAt(number(0), last);
    if (!ends && edge == 0)
      return tileAt(middle, plan.mr);
    auto lastTile = [&] { tileAt(number((tiles - 1) * plan.mr), last); };
    auto fromSecond = [&] {
      if (ends && tiles == 2)
        return lastTile();
      ifElse(less(tile, number(tiles - 1)), [&] { tileAt(middle, plan.mr); }, lastTile);
    };
    // Tiles at the ends of a row have code of their own, in which it is known what lies outside.
    if (!ends)
      return fromSecond();
    ifElse(less(tile, number(1)), [&] { tileAt(number(0), plan.mr); }, fromSecond);
  });
}

// Chains of one vector each, those of a row beside each other.
void ContractEmitter::laneTile(const Origin &origin, LaneTile tile) {
  int64_t chains = tile.rows * plan.nv;
  auto placeOf = [&](int64_t chain) {
    return add(add(origin.c, offsetIn(plan.rows, &ContractDim::c, number(chain / plan.nv))), chain % plan.nv * plan.lanes);
  };
  Value mask = laneMask(tile.alive, {});
  SmallVector<Value> sums, fresh(chains, zeros(plan.lanes));
  if (plan.accumulate)
    for (int64_t chain = 0; chain < chains; ++chain)
      sums.push_back(mask ? loadMasked(memC, placeOf(chain), mask) : loadVector(memC, placeOf(chain), plan.lanes, plan.lanes));
  if (!plan.grained) {
    sums = laneChains(origin, tile, 0, plan.accumulate ? sums : fresh);
  } else {
    auto loop = scf::ForOp::create(builder, loc, number(0), number(plan.grain.size), number(1), sums);
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToStart(loop.getBody());
    Origin block = origin;
    moveA(block, {plan.grain}, loop.getInductionVar());
    block.b = add(block.b, mul(loop.getInductionVar(), plan.grain.b));
    SmallVector<Value> totals = laneChains(block, tile, 0, fresh);
    for (auto [total, sum] : llvm::zip_equal(totals, loop.getRegionIterArgs()))
      total = arith::AddFOp::create(builder, loc, sum, total);
    scf::YieldOp::create(builder, loc, totals);
    sums.assign(loop.getResults().begin(), loop.getResults().end());
  }
  auto storeRows = [&](int64_t alive) {
    for (int64_t chain = 0; chain < chains; ++chain)
      storeVector(sums[chain], memC, placeOf(chain), alive);
  };
  if (!tile.alive)
    return storeRows(plan.lanes);
  ifElse(
      less(tile.alive, number(plan.lanes)), [&] { storeRows(plan.n.size % plan.lanes); }, [&] { storeRows(plan.lanes); });
}

// From which dim of k on bounds are asked at once: of few elements from the first on that is bounded, of many (examples and places)
// at each.
size_t ContractEmitter::firstCheck() {
  constexpr int64_t kFew = 64;
  size_t dim = plan.outerK.size();
  for (int64_t elements = 1; dim > 0; --dim) {
    const ContractDim &k = plan.outerK[dim - 1];
    elements *= k.isBounded() ? k.size : 1;
    if (elements > kFew)
      break;
  }
  return dim;
}

static std::optional<int64_t> constantOf(Value value) {
  auto op = value.getDefiningOp<arith::ConstantIndexOp>();
  return op ? std::optional<int64_t>(op.value()) : std::nullopt;
}

// The last dim of k moves along one bound whose place is known otherwise: its steps between the first ones and the last ones, at which
// a row of the tile may lie outside. Nothing if those are many.
std::optional<ContractEmitter::LaneMiddle> ContractEmitter::middleOf(const Origin &origin, const LaneTile &tile) {
  constexpr int64_t kFew = 8;
  int64_t ContractDim::*const strides[] = {&ContractDim::bound0, &ContractDim::bound1};
  for (size_t i = 0; i < plan.bounds.size() && !plan.outerK.empty(); ++i) {
    const ContractDim &k = plan.outerK.back();
    std::optional<int64_t> place = constantOf(origin.bound[i]);
    int64_t step = k.*strides[i], least = 0, most = 0;
    if (!place || step <= 0)
      continue;
    for (const ContractDim &row : plan.rows) {
      int64_t reach = (std::min(row.size, tile.rows) - 1) * (row.*strides[i]);
      (reach < 0 ? least : most) += reach;
    }
    LaneMiddle middle;
    middle.bound = int(i);
    middle.first = std::max<int64_t>(0, -(*place + least) + step - 1) / step;
    int64_t room = plan.bounds[i].size - 1 - *place - most;
    middle.last = room < 0 ? 0 : std::min(k.size, room / step + 1);
    if (middle.first < middle.last && middle.first + k.size - middle.last <= kFew)
      return middle;
  }
  return std::nullopt;
}

// FMAs that may stand one behind the other. Neighbouring steps read the same elements, which stay in registers from one to the next if there are enough.
int64_t ContractEmitter::mostWritten() { return plan.manyRegisters || plan.n.a == 0 ? 400 : 100; }

// From which dim of k on a walk is written out, and nothing is asked any more.
size_t ContractEmitter::firstWritten(const LaneTile &tile) {
  size_t dim = plan.outerK.size();
  for (int64_t written = tile.rows * plan.nv; dim > firstCheck(); --dim)
    if ((written *= plan.outerK[dim - 1].size) > mostWritten())
      break;
  return dim;
}

// Whether all that a tile reads from dim `dim` of k on lies within the bounds that are not known anyway; null: those are all. Of a step that is written out
// it is known beside a bound whose place is.
Value ContractEmitter::isInside(const Origin &origin, const LaneTile &tile, size_t dim) {
  int64_t ContractDim::*const strides[] = {&ContractDim::bound0, &ContractDim::bound1};
  Value inside;
  std::optional<LaneMiddle> middle = middleOf(origin, tile);
  for (size_t i = 0; i < plan.bounds.size(); ++i) {
    if (middle && middle->bound == int(i)) // it is found out step by step
      continue;
    bool moves = std::any_of(plan.outerK.begin() + dim, plan.outerK.begin() + firstWritten(tile),
                             [&](const ContractDim &k) { return k.*strides[i] != 0 && k.size > 1; });
    if (constantOf(origin.bound[i]) && !moves)
      continue;
    int64_t least = 0, most = 0;
    auto reach = [&](int64_t distance) { (distance < 0 ? least : most) += distance; };
    for (size_t k = dim; k < plan.outerK.size(); ++k)
      reach((plan.outerK[k].size - 1) * (plan.outerK[k].*strides[i]));
    for (const ContractDim &row : plan.rows)
      reach((std::min(row.size, tile.rows) - 1) * (row.*strides[i]));
    int64_t room = plan.bounds[i].size - (most - least);
    Value here = room <= 0 ? Value(arith::ConstantIntOp::create(builder, loc, 0, 1))
                           : Value(arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, add(origin.bound[i], least), number(room)));
    inside = inside ? Value(arith::AndIOp::create(builder, loc, inside, here)) : here;
  }
  return inside;
}

// Nothing: outside for certain. Null: inside for certain. `inside`: of the bounds of which it is not known here.
std::optional<mlir::Value> ContractEmitter::isThere(const Origin &at, const LaneTile &tile) {
  Value there;
  for (size_t i = 0; i < plan.bounds.size(); ++i) {
    if (std::optional<int64_t> place = constantOf(at.bound[i])) {
      if (*place < 0 || *place >= plan.bounds[i].size)
        return std::nullopt;
      continue;
    }
    if (tile.inside || tile.within == int(i))
      continue;
    Value here = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, at.bound[i], number(plan.bounds[i].size));
    there = there ? Value(arith::AndIOp::create(builder, loc, there, here)) : here;
  }
  return there;
}

static int64_t offsetOf(const ContractDims &dims, int64_t ContractDim::*stride, int64_t linear) {
  int64_t offset = 0;
  for (size_t i = dims.size(); i-- > 0; linear /= dims[i].size)
    offset += linear % dims[i].size * (dims[i].*stride);
  return offset;
}

// Which channel of its group number `linear` is, if these dims end with all channels of one.
ContractEmitter::LaneChannel ContractEmitter::channelOf(const ContractDims &dims, int64_t ContractDim::*stride, int64_t group, int64_t linear) {
  if (plan.lane.size == 1 || dims.empty() || dims.back().*stride != 1 || dims.back().size != group || dims.back().isBounded())
    return {};
  return {linear % group, group};
}

// The same of a row of a tile, whose channels count from the tile's first one: a tile may begin in the middle of a group.
ContractEmitter::LaneChannel ContractEmitter::channelOfRow(const LaneTile &tile, int64_t row) {
  LaneChannel channel = channelOf(plan.rows, &ContractDim::a, plan.n.a, row);
  if (channel.channels == 1 || plan.m.size <= plan.mr || plan.mr % channel.channels == 0)
    return channel;
  if (plan.rows.size() > 1 || tile.rows > channel.channels) // a tile may go on with another group
    return {};
  return {row, tile.rows};
}

// All steps of `walk`, written out. What lies outside is +0.0 in the chain. Steps of several rows that read the same element of A, as those of neighbouring
// places do at neighbouring taps, stand together, as long as each chain keeps its order: it is spread into lanes once, and no register holds it for long.
SmallVector<Value> ContractEmitter::laneSteps(const Origin &origin, const LaneTile &tile, const ContractDims &walk, ValueRange accumulators) {
  using Element = std::array<int64_t, 3>;     // its place in A and beside both bounds
  using Reader = std::pair<int64_t, int64_t>; // row, step
  const int64_t groups = plan.lanes / plan.lane.size, steps = countOf(walk);
  auto elementOf = [&](int64_t row, int64_t step) {
    auto place = [&](int64_t ContractDim::*stride) { return offsetOf(plan.rows, stride, row) + offsetOf(walk, stride, step); };
    return Element{place(&ContractDim::a), place(&ContractDim::bound0), place(&ContractDim::bound1)};
  };
  std::map<Element, SmallVector<Reader>> readers;
  for (int64_t step = 0; step < steps; ++step)
    for (int64_t row = 0; row < tile.rows; ++row)
      readers[elementOf(row, step)].push_back({row, step});

  SmallVector<Value> chains(accumulators.begin(), accumulators.end());
  std::vector<SmallVector<Value>> vectorsOfB(steps);
  auto take = [&](ArrayRef<Reader> together) {
    auto [firstRow, firstStep] = together.front();
    Origin at = origin;
    moveA(at, walk, number(firstStep));
    moveA(at, plan.rows, number(firstRow));
    LaneChannel ofA = channelOf(walk, &ContractDim::a, plan.n.a, firstStep);
    if (ofA.channels == 1)
      ofA = channelOfRow(tile, firstRow);
    std::optional<Value> there = isThere(at, tile);
    SmallVector<Value> a;
    for (int v = 0; v < plan.nv; ++v)
      a.push_back(there ? laneLoad(memA, add(at.a, v * groups * plan.n.a), plan.n.a, plan.lane.a, ofA, tile.alive, *there) : zeros(plan.lanes));
    for (auto [row, step] : together) {
      SmallVector<Value> &b = vectorsOfB[step];
      Value ofStep = add(origin.b, offsetOf(walk, &ContractDim::b, step));
      LaneChannel ofB = channelOf(walk, &ContractDim::b, plan.n.b, step);
      for (int v = int(b.size()); v < plan.nv; ++v)
        b.push_back(laneLoad(memB, add(ofStep, v * groups * plan.n.b), plan.n.b, plan.lane.b, ofB, tile.alive, {}));
      for (int v = 0; v < plan.nv; ++v) {
        Value &chain = chains[row * plan.nv + v];
        chain = math::FmaOp::create(builder, loc, a[v], b[v], chain);
      }
    }
  };

  SmallVector<int64_t> next(tile.rows, 0);
  auto isNext = [&](const Reader &reader) { return next[reader.first] == reader.second; };
  for (int64_t left = tile.rows * steps; left > 0;) {
    // The row that is the furthest behind, among those whose element all of its readers need now.
    int64_t chosen = -1;
    bool isShared = false;
    for (int64_t row = 0; row < tile.rows; ++row) {
      if (next[row] == steps)
        continue;
      bool shared = llvm::all_of(readers[elementOf(row, next[row])], isNext);
      if (chosen < 0 || shared > isShared || (shared == isShared && next[row] < next[chosen]))
        chosen = row, isShared = shared;
    }
    SmallVector<Reader> &all = readers[elementOf(chosen, next[chosen])];
    SmallVector<Reader> together = isShared ? all : SmallVector<Reader>{{chosen, next[chosen]}};
    take(together);
    for (Reader reader : together) {
      ++next[reader.first];
      all.erase(llvm::find(all, reader));
    }
    left -= int64_t(together.size());
  }
  return chains;
}

// The chains over the dims of k from number `dim` on. A short walk is written out.
SmallVector<Value> ContractEmitter::laneChains(const Origin &origin, const LaneTile &tile, size_t dim, ValueRange accumulators) {
  if (!tile.checked && dim == firstCheck())
    if (Value inside = isInside(origin, tile, dim)) {
      auto branch = scf::IfOp::create(builder, loc, accumulators.getTypes(), inside, /*withElseRegion=*/true);
      OpBuilder::InsertionGuard guard(builder);
      for (bool yes : {true, false}) {
        builder.setInsertionPointToStart(yes ? branch.thenBlock() : branch.elseBlock());
        LaneTile known = tile;
        known.inside = yes;
        known.checked = true;
        scf::YieldOp::create(builder, loc, laneChains(origin, known, dim, accumulators));
      }
      return {branch.getResults().begin(), branch.getResults().end()};
    }
  ContractDims walk(plan.outerK.begin() + dim, plan.outerK.end());
  if (dim >= firstWritten(tile))
    return laneSteps(origin, tile, walk, accumulators);
  const ContractDim &k = plan.outerK[dim];
  LaneTile inner = tile;
  auto step = [&](Value i, ValueRange values) {
    Origin at = origin;
    moveA(at, {k}, i);
    at.b = add(at.b, mul(i, k.b));
    return laneChains(at, inner, dim + 1, values);
  };
  std::optional<LaneMiddle> middle = dim + 1 == plan.outerK.size() ? middleOf(origin, tile) : std::nullopt;
  int64_t first = middle ? middle->first : 0, last = middle ? middle->last : k.size;
  SmallVector<Value> values(accumulators.begin(), accumulators.end());
  for (int64_t i = 0; i < first; ++i)
    values = step(number(i), values);
  inner.within = middle ? middle->bound : tile.within;
  // As many steps in a row as may be written out, if a step's vectors fit the registers beside the chains.
  int64_t each = tile.rows * plan.nv * countOf(walk) / k.size, registers = plan.manyRegisters ? 32 : 16;
  int64_t most = 2 * each + plan.nv <= registers ? std::max<int64_t>(1, mostWritten() / each) : 1, trips = (last - first + most - 1) / most;
  int64_t together = trips > 0 ? (last - first) / trips : 1, end = first + trips * together;
  values = overRange(number(first), number(end), together, values, [&](Value i, Values values) {
    if (together == 1 || dim < firstCheck()) {
      for (int64_t next = 0; next < together; ++next)
        values = step(add(i, next), values);
      return values;
    }
    Origin at = origin;
    moveA(at, {k}, i);
    at.b = add(at.b, mul(i, k.b));
    walk[0].size = together;
    return laneSteps(at, inner, walk, values);
  });
  for (int64_t i = end; i < k.size; ++i) {
    inner.within = i < last ? inner.within : tile.within;
    values = step(number(i), values);
  }
  return values;
}

} // namespace cinch::kernels
