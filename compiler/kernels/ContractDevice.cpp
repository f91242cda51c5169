// ContractDevice.cpp: contractions on the cores of a GPU that compute one FMA a thread.
//
// A block of 256 threads computes a tile of outputs, 16 x 16 threads with `reach` x `reach` outputs each, in registers. It walks along
// k in steps of 16: all threads bring the step's part of A and B into shared memory, then each goes on with its chains. Every output is
// one chain of FMAs over k in order, as on the CPU: the last step has only the k that there are, and only rows and columns are padded.
#include "compiler/kernels/ContractDevice.h"
#include "compiler/kernels/ContractTensor.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace cinch::kernels {
using namespace device;

namespace {

constexpr int64_t kSide = 16, kStep = 16;

class DeviceContract {
public:
  // `tiles`: bytes of shared memory.
  DeviceContract(OpBuilder &b, Location loc, const Plan &plan, ValueRange arguments, Value tiles)
      : b(b), loc(loc), plan(plan), spec(plan.spec), element(valueType(b, spec.elem)), arguments(arguments), reach(plan.tileM / kSide) {
    memory[0] = open(spec.a), memory[1] = open(spec.b), memory[2] = open(spec.c);
    for (int64_t i : {0, 1})
      shared[i] = sharedTile(tiles, i * kStep * pitch() * bytesOf(spec.elem));
  }

  void emit() {
    Value thread = simt::threadOfBlock(b, loc);
    row = rem(thread, kSide); // of the 16 x 16 threads: `row` walks along n, so that neighbours write neighbours
    column = div(thread, kSide);
    Value worker = arguments[3], workers = arguments[4];
    scf::ForOp::create(b, loc, worker, index(plan.items()), workers, ValueRange(), [&](OpBuilder &, Location, Value item, ValueRange) {
      Value tileN = rem(item, plan.tilesN()), rest = div(item, plan.tilesN());
      emitTile(thread, div(rest, plan.tilesM()), mul(rem(rest, plan.tilesM()), plan.tileM), mul(tileN, plan.tileM));
      scf::YieldOp::create(b, loc);
    });
  }

private:
  using Values = SmallVector<Value>;

  // ---- Index arithmetic --------------------------------------------------------------------------------------------
  Value index(int64_t n) { return emitInteger(b, loc, b.getIndexType(), n); }
  Value add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
  Value mul(Value x, int64_t factor) { return b.createOrFold<arith::MulIOp>(loc, x, index(factor)); }
  Value div(Value x, int64_t by) { return b.createOrFold<arith::DivUIOp>(loc, x, index(by)); }
  Value rem(Value x, int64_t by) { return b.createOrFold<arith::RemUIOp>(loc, x, index(by)); }
  Value below(Value x, int64_t bound) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, index(bound)); }
  Value both(Value x, Value y) {
    return !x ? y : !y ? x : Value(arith::AndIOp::create(b, loc, x, y));
  }
  // What a place in a group adds: the number of the place is walked with the last index fastest.
  template <typename Stride> Value offsetOf(const Dims &dims, Value place, Stride stride) {
    Value sum = index(0);
    for (size_t i = dims.size(); i-- > 0;) {
      Value at = i == 0 ? place : rem(place, dims[i].size);
      place = i == 0 ? place : div(place, dims[i].size);
      sum = add(sum, mul(at, stride(dims[i])));
    }
    return sum;
  }

  // ---- Memory ------------------------------------------------------------------------------------------------------
  Value open(const View &view) {
    Type stored = view.elem == Elem::BF16 ? Type(b.getI16Type()) : element;
    Value byte = memref::LoadOp::create(b, loc, arguments[1], ValueRange{index(view.buffer)});
    auto type = MemRefType::get({kArenaBytes / bytesOf(view.elem)}, stored);
    return memref::ViewOp::create(b, loc, type, arguments[0], arith::IndexCastOp::create(b, loc, b.getIndexType(), byte), ValueRange());
  }
  // [k][row of the tile]; one element more a row keeps threads that walk along k out of each other's banks.
  int64_t pitch() const { return plan.tileM + 1; }
  Value sharedTile(Value tiles, int64_t byte) {
    auto type = MemRefType::get({kStep * pitch()}, element, MemRefLayoutAttrInterface(), b.getI64IntegerAttr(3));
    return memref::ViewOp::create(b, loc, type, tiles, index(byte), ValueRange());
  }
  static bool isNarrow(Value memory) { return cast<MemRefType>(memory.getType()).getElementType().isInteger(16); }
  // Of bf16 in memory, the f32 that it is; what becomes one is rounded.
  Value load(Value from, Value at) {
    Value stored = memref::LoadOp::create(b, loc, from, ValueRange{at});
    return isNarrow(from) ? emitWidened(b, loc, stored) : stored;
  }
  void store(Value value, Value to, Value at) {
    if (isNarrow(to))
      value = emitNarrowed(b, loc, emitRounded(b, loc, value));
    memref::StoreOp::create(b, loc, value, to, ValueRange{at});
  }
  // 0 where the condition does not hold.
  Value loadWhere(Value condition, Value from, Value at) {
    if (!condition)
      return load(from, at);
    auto branch = scf::IfOp::create(
        b, loc, condition, [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, load(from, at)); },
        [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, emitNumber(b, loc, element, 0)); });
    return branch.getResult(0);
  }

  // ---- Bringing a step of A or B -----------------------------------------------------------------------------------
  // Which elements of a tile this thread brings: tile * 16 / 256 of them. Threads walk first along what lies closer together.
  struct Share {
    bool alongK = false;
    Values places, outside, valid; // per element: place in the tile; element of the operand without k's part; whether there is such a row
    Values bounds[2];              // of A: where it is beside its bounds, likewise
    Values k;                      // within the step
  };
  int64_t elementsEach() const { return plan.tileM * kStep / kThreads; }

  Share shareOf(int operand, Value thread, Value batch, Value first) {
    const Dims &dims = operand == 0 ? plan.m : plan.n;
    const int64_t count = operand == 0 ? plan.M : plan.N;
    auto stride = [&](const Dim &dim) { return operand == 0 ? dim.a : dim.b; };
    auto closest = [&](const Dims &of) { return of.empty() ? int64_t(1) << 40 : std::abs(stride(of.back())); };
    const View &view = operand == 0 ? spec.a : spec.b;
    Share share;
    share.alongK = closest(plan.k) < closest(dims);
    for (int64_t e = 0; e < elementsEach(); ++e) {
      Value number = add(thread, index(e * kThreads));
      Value place = share.alongK ? div(number, kStep) : rem(number, plan.tileM);
      share.k.push_back(share.alongK ? rem(number, kStep) : div(number, plan.tileM));
      share.places.push_back(add(mul(share.k.back(), pitch()), place));
      Value at = add(first, place);
      bool whole = count % plan.tileM == 0;
      share.valid.push_back(whole ? Value() : below(at, count));
      share.outside.push_back(add(add(offsetOf(plan.batch, batch, stride), index(view.offset)), offsetOf(dims, at, stride)));
      for (size_t i = 0; operand == 0 && i < spec.bounds.size(); ++i) {
        auto bound = [&](const Dim &dim) { return dim.bound[i]; };
        share.bounds[i].push_back(
            add(add(offsetOf(plan.batch, batch, bound), index(spec.bounds[i].offset)), offsetOf(dims, at, bound)));
      }
    }
    return share;
  }

  // Elements [k, k + count) of the reduction; `count` is at most 16.
  void bring(int operand, const Share &share, Value k, int64_t count) {
    auto stride = [&](const Dim &dim) { return operand == 0 ? dim.a : dim.b; };
    for (size_t e = 0; e < share.places.size(); ++e) {
      Value valid = share.valid[e], at = add(k, share.k[e]);
      if (count < kStep)
        valid = both(valid, below(share.k[e], count));
      for (size_t i = 0; operand == 0 && i < spec.bounds.size(); ++i) {
        auto bound = [&](const Dim &dim) { return dim.bound[i]; };
        Value beside = add(share.bounds[i][e], offsetOf(plan.k, at, bound));
        valid = both(valid, both(below(beside, spec.bounds[i].size),
                                 arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, beside, index(0))));
      }
      Value element = loadWhere(valid, memory[operand], add(share.outside[e], offsetOf(plan.k, at, stride)));
      if ((spec.pairs || spec.rounds) && !isNarrow(memory[operand]))
        element = emitRounded(b, loc, element);
      store(element, shared[operand], share.places[e]);
    }
  }

  // ---- Chains ------------------------------------------------------------------------------------------------------
  Values loop(Value from, Value to, int64_t step, ValueRange carried, llvm::function_ref<Values(Value, ValueRange)> body) {
    auto loop = scf::ForOp::create(b, loc, from, to, index(step), carried, [&](OpBuilder &, Location, Value at, ValueRange values) {
      scf::YieldOp::create(b, loc, body(at, values));
    });
    return Values(loop.getResults());
  }

  Values step(const Share &a, const Share &bShare, Value k, int64_t count, ValueRange sums) {
    bring(0, a, k, count);
    bring(1, bShare, k, count);
    simt::syncBlock(b, loc);
    Values next = loop(index(0), index(count), 1, sums, [&](Value at, ValueRange carried) {
      Values rows, columns, result;
      Value base = mul(at, pitch());
      for (int64_t i = 0; i < reach; ++i) {
        rows.push_back(load(shared[0], add(add(base, mul(column, reach)), index(i))));
        columns.push_back(load(shared[1], add(add(base, row), index(i * kSide))));
      }
      for (int64_t i = 0; i < reach; ++i)
        for (int64_t j = 0; j < reach; ++j)
          result.push_back(math::FmaOp::create(b, loc, rows[i], columns[j], carried[i * reach + j]));
      return result;
    });
    simt::syncBlock(b, loc);
    return next;
  }

  // The chains over [first, first + count) of the reduction.
  Values chains(const Share &a, const Share &bShare, Value first, int64_t count, ValueRange start) {
    Values sums(start);
    int64_t whole = count / kStep * kStep;
    if (whole > 0)
      sums = loop(first, add(first, index(whole)), kStep, sums,
                  [&](Value k, ValueRange carried) { return step(a, bShare, k, kStep, carried); });
    if (count > whole)
      sums = step(a, bShare, add(first, index(whole)), count - whole, sums);
    return sums;
  }

  void emitTile(Value thread, Value batch, Value firstM, Value firstN) {
    auto ofC = [](const Dim &dim) { return dim.c; };
    Values places, valid, start;
    Value base = add(offsetOf(plan.batch, batch, ofC), index(spec.c.offset)), zero = emitNumber(b, loc, element, 0);
    for (int64_t i = 0; i < reach; ++i)
      for (int64_t j = 0; j < reach; ++j) {
        Value m = add(firstM, add(mul(column, reach), index(i))), n = add(firstN, add(row, index(j * kSide)));
        places.push_back(add(base, add(offsetOf(plan.m, m, ofC), offsetOf(plan.n, n, ofC))));
        valid.push_back(both(plan.M % plan.tileM ? below(m, plan.M) : Value(), plan.N % plan.tileN ? below(n, plan.N) : Value()));
        start.push_back(spec.accumulate && plan.K > 0 ? loadWhere(valid.back(), memory[2], places.back()) : zero);
      }
    Share a = shareOf(0, thread, batch, firstM), bShare = shareOf(1, thread, batch, firstN);
    Values sums = start;
    if (spec.grain > 0 && plan.K > 0) {
      int64_t block = plan.K / spec.k[0] * spec.grain;
      sums = loop(index(0), index(plan.K), block, start, [&](Value first, ValueRange totals) {
        Values next = chains(a, bShare, first, block, Values(start.size(), zero));
        for (size_t i = 0; i < next.size(); ++i)
          next[i] = arith::AddFOp::create(b, loc, totals[i], next[i]);
        return next;
      });
    } else {
      sums = chains(a, bShare, index(0), plan.K, start);
    }
    for (size_t i = 0; i < sums.size(); ++i) {
      if (!valid[i]) {
        store(sums[i], memory[2], places[i]);
        continue;
      }
      scf::IfOp::create(b, loc, valid[i], [&](OpBuilder &, Location) {
        store(sums[i], memory[2], places[i]);
        scf::YieldOp::create(b, loc);
      });
    }
  }

  OpBuilder &b;
  Location loc;
  const Plan &plan;
  const ContractSpec &spec;
  Type element;
  ValueRange arguments;
  const int64_t reach; // outputs of a thread along each side
  Value memory[3], shared[2];
  Value row, column; // of this thread among 16 x 16
};

} // namespace

// One block's tiles, for all parts: each leaves them behind a barrier.
static void emitParts(OpBuilder &b, Location loc, func::FuncOp function, const std::vector<ContractSpec> &parts) {
  int64_t bytes = 0;
  for (const ContractSpec &part : parts)
    bytes = std::max(bytes, Plan(part).sharedBytes());
  auto tilesType = MemRefType::get({bytes}, b.getI8Type(), MemRefLayoutAttrInterface(), b.getI64IntegerAttr(3));
  const std::string name = function.getName().str() + "_tiles";
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(function);
    memref::GlobalOp::create(b, loc, name, b.getStringAttr("private"), tilesType, b.getUnitAttr(), false, b.getI64IntegerAttr(16));
  }
  Value tiles = memref::GetGlobalOp::create(b, loc, tilesType, name);
  for (const ContractSpec &part : parts) {
    Plan plan(part);
    if (isOfTensorCores(part))
      emitOnTensorCores(b, loc, plan, function.getArguments(), tiles, threadsOf(parts));
    else
      DeviceContract(b, loc, plan, function.getArguments(), tiles).emit();
  }
}

// What a launch hands to the kernel beside its words.
static std::vector<TensorMap> mapsOf(const std::vector<ContractSpec> &parts, const TargetInfo &target) {
  std::vector<TensorMap> maps;
  if (isOfWarpgroups(parts, target)) {
    const Plan plan(parts[0], target.processors);
    const GroupTiles tiles(plan);
    for (int which : {0, 1})
      if (tiles.isMapped(which))
        maps.push_back(tiles.maps[which].map);
  }
  return maps;
}

func::FuncOp buildContractsOnDevice(OpBuilder &b, ModuleOp module, const std::string &name, const std::vector<ContractSpec> &parts,
                                    const TargetInfo &target) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  Location loc = b.getUnknownLoc();
  Type index = b.getIndexType(), word = b.getI64Type();
  SmallVector<Type> types = {MemRefType::get({kArenaBytes}, b.getI8Type()), MemRefType::get({3}, word), MemRefType::get({kContextWords}, word), index,
                             index};
  const std::vector<TensorMap> maps = mapsOf(parts, target);
  if (!maps.empty())
    types.push_back(MemRefType::get({int64_t(maps.size()) * kMapWords}, word));
  auto function = func::FuncOp::create(b, loc, name, b.getFunctionType(types, {}));
  if (!maps.empty())
    function->setAttr(kMapsAttr, b.getDenseI64ArrayAttr(wordsOf(maps)));
  Block *entry = function.addEntryBlock();
  b.setInsertionPointToStart(entry);
  auto end = func::ReturnOp::create(b, loc);
  b.setInsertionPoint(end);
  if (isOfWarpgroups(parts, target))
    emitOnWarpgroups(b, loc, Plan(parts[0], target.processors), entry->getArguments(), simt::sharedOfLaunch(b, loc, module));
  else
    emitParts(b, loc, function, parts);
  return function;
}

Grid gridOfContracts(const std::vector<ContractSpec> &parts, const TargetInfo &target) {
  if (isOfWarpgroups(parts, target)) { // a block fills a multiprocessor, and goes on to its next tile by itself
    Plan plan(parts[0], target.processors);
    Grid grid = {std::clamp<int64_t>(plan.items(), 1, target.processors), int(kGroupsThreads), int(kGroupsThreads)};
    grid.shared = GroupTiles(plan).sharedBytes();
    return grid;
  }
  int64_t items = 1;
  for (const ContractSpec &part : parts)
    items = std::max(items, Plan(part).items());
  return gridOfBlocks(items, threadsOf(parts), target);
}

} // namespace cinch::kernels
