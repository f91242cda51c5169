// LoopEmitter.cpp: the loops around the nodes: items, stages, sweeps, passes over the columns.
//
// Values that do not vary over the columns are computed before a loop over the columns is opened: a store might
// alias any load, so nobody after us could move them. Stores come last, after every load of the same columns: a buffer
// may be updated in place.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

LoopEmitter::LoopEmitter(OpBuilder &builder, Location loc, const LoopPlan &plan, ValueRange arguments)
    : b(builder), loc(loc), plan(plan), spec(plan.spec), arena(arguments[0]), offsets(arguments[1]),
      context(arguments[2]), thread(arguments[3]), threads(arguments[4]), scalars(spec.nodes.size()),
      draws(spec.nodes.size()) {}

// ---- Buffers --------------------------------------------------------------------------------------------------------

static Value byteOffset(OpBuilder &b, Location loc, Value offsets, int64_t number) {
  Value at = emitInteger(b, loc, b.getIndexType(), number);
  Value offset = memref::LoadOp::create(b, loc, offsets, ValueRange{at});
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), offset);
}

Value LoopEmitter::buffer(int number, Elem elem) { return buffers.at({number, elem}); }

void LoopEmitter::openBuffers() {
  auto open = [&](int number, Elem elem) {
    Value &view = buffers[{number, elem}], &byte = bufferBytes[number];
    if (!byte)
      byte = byteOffset(b, loc, offsets, number);
    if (!view)
      view = viewAt(byte, elem);
  };
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    bool reads =
        node.op == LoopOp::Load || node.op == LoopOp::LoadAt || (node.op == LoopOp::ReduceChain && node.hasInit);
    if (plan.needed[n] && reads)
      open(node.view.buffer, node.elem);
  }
  for (const LoopStore &store : spec.stores)
    open(store.view.buffer, spec.nodes[store.node].elem);
  if (spec.addAt.present)
    open(spec.addAt.view.buffer, spec.nodes[spec.addAt.node].elem);
  if (plan.scratchBytes > 0)
    scratchAt = addIndex(byteOffset(b, loc, offsets, plan.buffers), mulIndex(thread, plan.scratchBytes));
  if (plan.tableAt >= 0) {
    Elem elem = spec.nodes[spec.addAt.node].elem;
    buffers[{kTable, elem}] = viewAt(addIndex(scratchAt, index(plan.tableAt)), elem);
  }
}

// Where in the arena, counted in elements, the columns of a contiguous load begin.
Value LoopEmitter::addressOf(int node) {
  const LoopNode &n = spec.nodes[node];
  if (n.op == LoopOp::Select)
    return arith::SelectOp::create(b, loc, scalars[n.args[0]], addressOf(n.args[1]), addressOf(n.args[2]));
  Value begin = arith::DivUIOp::create(b, loc, bufferBytes.at(n.view.buffer), index(bytesOf(n.elem)));
  return addIndex(begin,
                  n.op == LoopOp::LoadAt ? basePlus(n.view, n.args, n.atStrides) : base(n.view.offset, n.view.strides));
}

Value LoopEmitter::viewAt(Value byte, Elem elem) {
  Type element = elem == Elem::Bool   ? Type(b.getI8Type())
                 : elem == Elem::BF16 ? Type(b.getI16Type())
                                      : valueType(b, elem);
  auto memref = MemRefType::get({kArenaBytes / bytesOf(elem)}, element);
  return memref::ViewOp::create(b, loc, memref, arena, byte, ValueRange{});
}

Value LoopEmitter::scratchByte(int node) { return addIndex(scratchAt, index(plan.scratchOf[node])); }

// ---- Work of a context ----------------------------------------------------------------------------------------------

void LoopEmitter::need(Work &work, int node) {
  if (work.needed[node] || scalars[node])
    return;
  work.needed[node] = true;
  if (spec.nodes[node].op == LoopOp::ReduceChain)
    return;
  if (plan.isReduction(node))
    work.reductions.push_back(node);
  for (int arg : spec.nodes[node].args)
    need(work, arg);
}

void LoopEmitter::measure(Work &work) {
  work.depth.assign(spec.nodes.size(), 0);
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (!work.needed[n] || spec.nodes[n].op == LoopOp::ReduceChain)
      continue;
    for (int arg : spec.nodes[n].args)
      work.depth[n] = std::max(work.depth[n], work.depth[arg]);
    if (plan.isReduction(int(n))) {
      work.vectorPass = std::max(work.vectorPass, work.depth[n]);
      ++work.depth[n];
    }
    work.lastDepth = std::max(work.lastDepth, work.depth[n]);
  }
  for (int chain : work.chains)
    if (plan.variesCol[chain])
      work.vectorPass = std::max(work.vectorPass, work.depth[spec.nodes[chain].args[0]]);
  for (int store : work.stores)
    if (plan.storeVector[store])
      work.vectorPass = std::max(work.vectorPass, work.depth[spec.stores[store].node]);
  if (work.addAt && plan.addAtVector) {
    work.vectorPass = std::max(work.vectorPass, work.depth[spec.addAt.node]);
    for (int arg : spec.addAt.args)
      work.vectorPass = std::max(work.vectorPass, work.depth[arg]);
  }
}

LoopEmitter::Work LoopEmitter::stageWork(int stage) {
  Work work;
  work.needed.assign(spec.nodes.size(), false);
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (plan.needed[n] && !plan.variesRow[n] && !plan.variesCol[n] && plan.sweep[n] == stage)
      need(work, int(n));
  if (stage == plan.sweeps) {
    for (size_t i = 0; i < spec.stores.size(); ++i) {
      if (plan.storeInRow[i])
        continue;
      work.stores.push_back(int(i));
      need(work, spec.stores[i].node);
    }
  }
  measure(work);
  return work;
}

LoopEmitter::Work LoopEmitter::rowWork(int sweep) {
  Work work;
  work.row = true;
  work.needed.assign(spec.nodes.size(), false);
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    if (plan.needed[n] && spec.nodes[n].op == LoopOp::ReduceChain && plan.sweep[n] == sweep + 1) {
      work.chains.push_back(int(n));
      need(work, spec.nodes[n].args[0]);
    }
  }
  if (sweep == plan.sweeps - 1) {
    for (size_t i = 0; i < spec.stores.size(); ++i) {
      if (!plan.storeInRow[i])
        continue;
      work.stores.push_back(int(i));
      need(work, spec.stores[i].node);
    }
    if (spec.addAt.present) {
      work.addAt = true;
      if (addAtWalk == AddAtWalk::Add || addAtWalk == AddAtWalk::Sum)
        need(work, spec.addAt.node);
      for (int arg : spec.addAt.args)
        need(work, arg);
    }
  }
  measure(work);
  return work;
}

void LoopEmitter::emitScalars(const Work &work, int pass) {
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (work.needed[n] && !plan.variesCol[n] && !scalars[n] && work.depth[n] == pass && !plan.isReduction(int(n)))
      scalars[n] = evaluateScalar(int(n));
}

// chainScalars: per node, the accumulators of chains without columns; updated.
void LoopEmitter::runContext(Work &work, std::vector<Value> &chainScalars) {
  for (pass = 0; pass <= work.lastDepth; ++pass) {
    emitScalars(work, pass);
    std::vector<int> reductions, chains, stores;
    for (int node : work.reductions)
      if (work.depth[node] == pass + 1)
        reductions.push_back(node);
    for (int chain : work.chains)
      if (plan.variesCol[chain] && work.depth[spec.nodes[chain].args[0]] == pass)
        chains.push_back(chain);
    bool last = pass == work.vectorPass;
    for (int store : work.stores)
      if (last && plan.storeVector[store])
        stores.push_back(store);
    bool addAt = last && work.addAt && plan.addAtVector;
    if (!reductions.empty() || !chains.empty() || !stores.empty() || addAt)
      runColumns(reductions, chains, stores, addAt);
  }
  for (int chain : work.chains)
    if (!plan.variesCol[chain])
      chainScalars[chain] = combine(spec.nodes[chain].reduce, chainScalars[chain], scalars[spec.nodes[chain].args[0]]);
  for (int i : work.stores) {
    const LoopStore &target = spec.stores[i];
    if (!plan.storeVector[i])
      store(target, base(target.view.offset, target.view.strides), scalars[target.node], nullptr);
  }
  if (work.addAt && !plan.addAtVector)
    emitAddAt(basePlus(spec.addAt.view, spec.addAt.args, spec.addAt.atStrides), tableBase(), nullptr, nullptr);
}

// ---- The kernel -----------------------------------------------------------------------------------------------------

std::vector<Value> LoopEmitter::split(Value flat, const std::vector<int64_t> &dims) {
  std::vector<Value> indices(dims.size());
  for (size_t i = dims.size(); i-- > 1;) {
    Value extent = index(dims[i]);
    indices[i] = arith::RemUIOp::create(b, loc, flat, extent);
    flat = arith::DivUIOp::create(b, loc, flat, extent);
  }
  if (!dims.empty())
    indices[0] = flat;
  return indices;
}

std::pair<Value, Value> LoopEmitter::itemsOfThread(int64_t items) {
  auto share = [&](Value number) -> Value { return arith::DivUIOp::create(b, loc, mulIndex(number, items), threads); };
  return {share(thread), share(addIndex(thread, index(1)))};
}

void LoopEmitter::runItem(Value item) {
  if (plan.shares > 1) {
    share = arith::RemUIOp::create(b, loc, item, index(plan.shares));
    item = arith::DivUIOp::create(b, loc, item, index(plan.shares));
  }
  columnBegin = index(0);
  columnEnd = index(spec.cols);
  if (plan.blocks > 1) {
    Value blocks = index(plan.blocks);
    columnBegin = mulIndex(arith::RemUIOp::create(b, loc, item, blocks), plan.blockCols);
    columnEnd = arith::MinSIOp::create(b, loc, addIndex(columnBegin, index(plan.blockCols)), index(spec.cols));
    item = arith::DivUIOp::create(b, loc, item, blocks);
  }
  outerIndex = split(item, spec.outer);
  std::vector<Value> none;
  for (int stage = 0; stage <= plan.sweeps; ++stage) {
    if (stage == plan.sweeps && plan.directVectors > 0)
      return;
    Work work = stageWork(stage);
    runContext(work, none);
    if (stage == plan.sweeps)
      return;
    if (plan.directVectors > 0) {
      runDirect();
    } else {
      runSweep(stage);
    }
    std::fill(draws.begin(), draws.end(), std::pair<Value, Value>());
  }
}

Value LoopEmitter::wordOfLaunch(int number) {
  return memref::LoadOp::create(b, loc, offsets, ValueRange{index(plan.buffers + 1 + number)});
}

void LoopEmitter::emit() {
  openBuffers();
  auto word = [&](int number) -> Value { return memref::LoadOp::create(b, loc, context, ValueRange{index(number)}); };
  bool usesStep = false, usesTotal = false, usesExample = false, usesPosition = false;
  for (size_t n = 0; n < spec.nodes.size(); ++n) {
    const LoopNode &node = spec.nodes[n];
    if (!plan.needed[n])
      continue;
    usesStep = usesStep || node.op == LoopOp::Step;
    usesTotal = usesTotal || node.op == LoopOp::TotalSteps;
    usesExample = usesExample || (plan.isDraw(int(n)) && node.usesExample);
    usesPosition = usesPosition || (plan.isDraw(int(n)) && node.positionStride != 0);
    if (plan.isDraw(int(n)) && !keys.count(keyName(node)))
      keys[keyName(node)] =
          node.keyWord < 0 ? emitDrawKey(b, loc, context, node.key) : emitDrawKey(b, loc, context, wordOfLaunch(node.keyWord));
    if (node.op == LoopOp::RandomBool && node.numberWord >= 0)
      thresholds[int(n)] = wordOfLaunch(node.numberWord);
  }
  if (usesStep)
    step = word(kStep);
  if (usesTotal)
    totalSteps = word(kTotalSteps);
  if (usesExample)
    firstExample = word(kFirstExample);
  if (usesPosition)
    firstPosition = word(kFirstPosition);
  if (plan.teams)
    lane = simt::lane(b, loc);
  if (plan.teams && spec.cols % kLoopLanes != 0) {
    tailMask = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, lane, index(spec.cols % kLoopLanes));
  } else if (spec.cols % kLoopLanes != 0) {
    SmallVector<bool> live;
    for (int64_t lane = 0; lane < kLoopLanes; ++lane)
      live.push_back(lane < spec.cols % kLoopLanes);
    tailMask = arith::ConstantOp::create(b, loc, DenseElementsAttr::get(cast<VectorType>(lanesOf(b.getI1Type())), ArrayRef<bool>(live)));
  }
  for (size_t n = 0; n < spec.nodes.size(); ++n)
    if (plan.needed[n] && plan.constant[n])
      scalars[n] = evaluateScalar(int(n));
  if (plan.transposition.found())
    return emitSquares();
  if (plan.gang.teams > 0)
    openGang();
  auto [begin, end] = itemsOfThread(plan.items());
  scf::ForOp::create(b, loc, begin, end, index(1), ValueRange(), [&](OpBuilder &, Location, Value item, ValueRange) {
    runItem(item);
    scf::YieldOp::create(b, loc);
  });
}

} // namespace cinch::kernels
