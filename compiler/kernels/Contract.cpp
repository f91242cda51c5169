// Contract.cpp: the loops around the register tiles of a contraction, and their division among threads.
#include "compiler/kernels/Amx.h"
#include "compiler/kernels/ContractEmitter.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace cinch::kernels {

// ---- Threads --------------------------------------------------------------------------------------------------------

static int64_t unitsOf(int64_t outer, int64_t size, int64_t unit) { return outer * ((size + unit - 1) / unit); }

// What a part of the outputs takes for each step in k, in sixteenths of an FMA of sixteen lanes: an output, and to bring near one row
// of A or one column of B. Every part brings near for itself whatever it needs, so the operand that is dearer to pack is the one to cut. AMX
// computes 16 times as many outputs in the time of an FMA.
struct PartCost {
  int64_t output, row, column;
};
static PartCost costOfPart(const ContractPlan &plan) {
  constexpr int64_t kScalar = 48, kTurned = 16, kCopied = 8, kRead = 4, kBand = 2;
  bool gathersA = plan.packA == PackedA::Cols && plan.m.a != 1, turnsA = plan.packA == PackedA::Cols && plan.amx;
  int64_t row = gathersA                       ? kScalar
                : plan.packA == PackedA::No    ? kRead
                : plan.packA == PackedA::Band  ? kBand
                : turnsA                       ? kTurned
                                               : kCopied;
  int64_t column = plan.packB == PackedB::Gather      ? kScalar
                   : plan.packB == PackedB::Transpose ? kTurned
                   : plan.packB == PackedB::Copy      ? kCopied
                                                      : kRead;
  return plan.amx ? PartCost{1, 16 * row, 16 * column} : PartCost{16 / plan.lanes, row, column};
}

// Every thread gets a box of outputs: batches alone where there are enough of them, else a rectangle of tiles, of the shape that takes
// the longest part the least time.
void ContractEmitter::splitThreads(Value thread, Value threads, Range &batch, Range &m, Range &n) {
  int64_t batches = countOf(plan.batch);
  int64_t unitsM = unitsOf(countOf(plan.outerM), plan.m.size, plan.mr);
  int64_t unitsN = unitsOf(countOf(plan.outerN), plan.n.size, plan.nr());
  Value one = number(1);
  auto divide = [&](Value part, Value parts, int64_t units) {
    Value first = arith::DivUIOp::create(builder, loc, mul(part, number(units)), parts);
    Value last = arith::DivUIOp::create(builder, loc, mul(add(part, 1), number(units)), parts);
    return Range{first, last};
  };
  auto choose = [&](Value condition, Value yes, Value no) -> Value {
    return arith::SelectOp::create(builder, loc, condition, yes, no);
  };
  auto divides = [&](Value part, Value whole) -> Value {
    return arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::eq, arith::RemUIOp::create(builder, loc, whole, part), number(0));
  };

  Value partsBatch = one, rest = threads, within = thread, partBatch = number(0);
  if (batches > 1) {
    Value even = divides(threads, number(batches));
    Value many = less(mul(threads, int64_t(4)), number(batches + 1));
    Value byBatch = arith::OrIOp::create(builder, loc, even, many);
    partsBatch = choose(byBatch, threads, one);
    partBatch = choose(byBatch, thread, number(0));
    rest = choose(byBatch, one, threads);
    within = choose(byBatch, number(0), thread);
    batch = divide(partBatch, partsBatch, batches);
  } else {
    batch = {number(0), number(batches)};
  }

  // Outputs of the largest part, along one dim.
  auto largest = [&](int64_t units, int64_t unit, int64_t size, Value parts) {
    Value most = arith::DivUIOp::create(builder, loc, add(number(units - 1), parts), parts);
    return min(mul(most, unit), size);
  };
  const PartCost cost = costOfPart(plan);
  auto costOf = [&](Value partsN) {
    Value partsM = max(arith::DivUIOp::create(builder, loc, rest, partsN), one);
    Value rows = largest(unitsM, plan.mr, countOf(plan.outerM) * plan.m.size, partsM);
    Value columns = largest(unitsN, plan.nr(), countOf(plan.outerN) * plan.n.size, partsN);
    return add(mul(rows, add(mul(columns, cost.output), cost.row)), mul(columns, cost.column));
  };
  Value partsN = one, least = costOf(one);
  for (Value parts : {number(2), number(4), rest}) {
    Value other = costOf(parts);
    Value better = arith::AndIOp::create(builder, loc, divides(parts, rest), less(other, least));
    partsN = choose(better, parts, partsN);
    least = choose(better, other, least);
  }
  Value partsM = arith::DivUIOp::create(builder, loc, rest, partsN);
  Value partN = arith::RemUIOp::create(builder, loc, within, partsN);
  Value partM = arith::DivUIOp::create(builder, loc, within, partsN);
  m = divide(partM, partsM, unitsM);
  n = divide(partN, partsN, unitsN);
}

// Of units [first, second) over outer x (units of the inner dim): the part that lies in `outer`, in elements.
ContractEmitter::Range ContractEmitter::innerRange(Range units, Value outer, int64_t unitsPerOuter, int64_t unit,
                                                   int64_t size) {
  Value start = mul(outer, unitsPerOuter);
  Value first = max(sub(units.first, start), number(0));
  Value last = min(sub(units.second, start), unitsPerOuter);
  return {mul(first, unit), min(mul(last, unit), size)};
}

// To a place among these dims.
void ContractEmitter::moveA(Origin &origin, const ContractDims &dims, Value linear) {
  origin.a = add(origin.a, offsetIn(dims, &ContractDim::a, linear));
  int64_t ContractDim::*const strides[] = {&ContractDim::bound0, &ContractDim::bound1};
  for (size_t i = 0; i < plan.bounds.size(); ++i)
    origin.bound[i] = add(origin.bound[i], offsetIn(dims, strides[i], linear));
}

// ---- Loops ----------------------------------------------------------------------------------------------------------

void ContractEmitter::emitBody(Value arena, Value offsets, Value context, Value thread, Value threads, int64_t scratchBytes) {
  auto bufferAt = [&](int buffer, Elem elem) {
    Value bytes = memref::LoadOp::create(builder, loc, offsets, number(buffer));
    return viewOf(arena, arith::IndexCastOp::create(builder, loc, builder.getIndexType(), bytes), elem);
  };
  memA = bufferAt(plan.a.buffer, plan.a.elem);
  memB = bufferAt(plan.b.buffer, plan.b.elem);
  memC = bufferAt(plan.c.buffer, plan.c.elem);
  if (plan.nothing)
    return emitZeros(thread, threads);
  if (plan.overLanes)
    return emitLanes(thread, threads);
  if (plan.scratchElems() > 0) {
    scratch = bufferAt(3, plan.elem);
    if (plan.dots || plan.amx) {
      Value bytes = memref::LoadOp::create(builder, loc, offsets, number(3));
      bytes = arith::IndexCastOp::create(builder, loc, builder.getIndexType(), bytes);
      words = memref::ViewOp::create(builder, loc, MemRefType::get({kArenaBytes / 4}, builder.getI32Type()), arena, bytes, ValueRange{});
      halves = memref::ViewOp::create(builder, loc, MemRefType::get({kArenaBytes / 2}, builder.getI16Type()), arena, bytes, ValueRange{});
    }
    threadScratch = mul(thread, scratchBytes / plan.bytes);
  }
  if (plan.byWinograd)
    return plan.winograd.ofFilter ? emitWinogradOfFilter(thread, threads) : emitWinograd(context, thread, threads);

  if (plan.amx)
    Amx(builder, loc).configure();
  Range batches, m, n;
  splitThreads(thread, threads, batches, m, n);
  if (canBeInOrder(plan)) {
    const ContractPlan chain = inOrder(plan);
    ContractEmitter quick(builder, loc, chain);
    quick.memA = memA, quick.memB = memB, quick.memC = memC;
    quick.scratch = scratch, quick.words = words, quick.halves = halves, quick.threadScratch = threadScratch;
    Range rows{mul(m.first, plan.mr), min(mul(m.second, plan.mr), plan.m.size)}, columns{mul(n.first, plan.nr()), min(mul(n.second, plan.nr()), plan.n.size)};
    Origin origin;
    origin.a = number(plan.a.offset), origin.b = number(plan.b.offset), origin.c = number(plan.c.offset);
    ifElse(mayBeInOrder(origin, rows, columns), [&] { quick.emitParts(batches, m, n); }, [&] { emitParts(batches, m, n); });
  } else {
    emitParts(batches, m, n);
  }
  if (plan.amx)
    Amx(builder, loc).release();
}

// What a thread computes of the outputs.
void ContractEmitter::emitParts(Range batches, Range m, Range n) {
  int64_t unitsN = unitsOf(1, plan.n.size, plan.nr());
  forLoop(batches.first, batches.second, 1, [&](Value batch) {
    Origin origin;
    origin.a = number(plan.a.offset);
    for (size_t i = 0; i < plan.bounds.size(); ++i)
      origin.bound[i] = number(plan.bounds[i].offset);
    moveA(origin, plan.batch, batch);
    origin.b = add(offsetIn(plan.batch, &ContractDim::b, batch), plan.b.offset);
    origin.c = add(offsetIn(plan.batch, &ContractDim::c, batch), plan.c.offset);
    bool single = plan.outerN.empty();
    Value firstOuter = single ? number(0) : div(n.first, unitsN);
    Value lastOuter = single ? number(1) : div(add(n.second, unitsN - 1), unitsN);
    forLoop(firstOuter, lastOuter, 1, [&](Value outer) {
      Origin inner = origin;
      inner.b = add(inner.b, offsetIn(plan.outerN, &ContractDim::b, outer));
      inner.c = add(inner.c, offsetIn(plan.outerN, &ContractDim::c, outer));
      emitColumns(inner, innerRange(n, outer, unitsN, plan.nr(), plan.n.size), m);
    });
  });
}

void ContractEmitter::emitColumns(Origin origin, Range n, Range mUnits) {
  if (plan.rowsFirst)
    return emitReduction(origin, n, mUnits);
  forLoop(n.first, n.second, plan.nc, [&](Value column) {
    Range columns = {column, min(add(column, plan.nc), n.second)};
    if (!plan.grained)
      return emitReduction(origin, columns, mUnits);
    auto blocks = [&](Range band) {
      forLoop(number(0), number(plan.grain.size), 1, [&](Value grain) {
        Origin inner = origin;
        moveA(inner, {plan.grain}, grain);
        inner.b = add(inner.b, mul(grain, plan.grain.b));
        inner.unit = sub(number(0), band.first);
        emitReduction(inner, columns, band);
      });
    };
    if (plan.sumUnits == 0)
      return blocks(mUnits);
    forLoop(mUnits.first, mUnits.second, plan.sumUnits,
            [&](Value first) { blocks({first, min(add(first, plan.sumUnits), mUnits.second)}); });
  });
}

void ContractEmitter::emitReduction(Origin origin, Range n, Range mUnits) {
  int64_t blocks = plan.blocksK(), outer = countOf(plan.outerK), perRun = plan.blocksPerRun();
  forLoop(number(0), number(blocks), 1, [&](Value blockNumber) {
    KBlock block;
    if (perRun > 1) {
      block.firstRun = div(blockNumber, perRun);
      block.runs = number(1);
      block.start = mul(rem(blockNumber, perRun), plan.kc);
      block.length =
          plan.k.size % plan.kc == 0 ? number(plan.kc) : min(sub(number(plan.k.size), block.start), plan.kc);
    } else {
      block.firstRun = mul(blockNumber, plan.runs);
      block.runs = outer % plan.runs == 0 ? number(plan.runs) : min(sub(number(outer), block.firstRun), plan.runs);
      block.start = number(0);
      block.length = number(plan.k.size);
    }
    block.total = mul(block.runs, block.length);
    if (blocks > 1) {
      block.later = less(number(0), blockNumber);
      block.last = less(number(blocks - 2), blockNumber);
    }
    emitBlock(origin, n, mUnits, block);
  });
}

void ContractEmitter::emitBlock(Origin origin, Range n, Range mUnits, KBlock block) {
  if (plan.rowsFirst) {
    Range rows = innerRange(mUnits, number(0), unitsOf(1, plan.m.size, plan.mr), plan.mr, plan.m.size);
    packA(origin, rows, block);
    return forLoop(n.first, n.second, plan.nc, [&](Value column) {
      Range columns = {column, min(add(column, plan.nc), n.second)};
      packB(origin.b, columns, block);
      emitTiles(origin, rows, columns, block);
    });
  }
  packB(origin.b, n, block);
  if (plan.skipsOutside() || plan.sparesPlaces)
    block.finite = isFinite(n, block);
  if (plan.bands == Bands::Planar)
    return emitPlanar(origin, mUnits);
  if (plan.bands == Bands::OfM)
    return emitBands(origin, n, mUnits, block);
  if (plan.bands == Bands::OfK) {
    Origin first = origin;
    moveA(first, plan.outerK, block.firstRun);
    copyBand(first, block.runs);
  }
  int64_t units = unitsOf(1, plan.m.size, plan.mr);
  bool single = plan.outerM.empty();
  Value firstOuter = single ? number(0) : div(mUnits.first, units);
  Value lastOuter = single ? number(1) : div(add(mUnits.second, units - 1), units);
  forLoop(firstOuter, lastOuter, 1, [&](Value outer) {
    Origin inner = origin;
    moveA(inner, plan.outerM, outer);
    inner.c = add(inner.c, offsetIn(plan.outerM, &ContractDim::c, outer));
    if (plan.bands != Bands::No)
      inner.band = offsetIn(plan.outerM, &ContractDim::band, outer);
    if (plan.sumUnits > 0)
      inner.unit = add(inner.unit, mul(outer, units));
    Range m = innerRange(mUnits, outer, units, plan.mr, plan.m.size);
    forLoop(m.first, m.second, plan.mc, [&](Value row) {
      Range rows = {row, min(add(row, plan.mc), m.second)};
      packA(inner, rows, block);
      emitTiles(inner, rows, n, block);
    });
  });
}

ContractEmitter::Tile ContractEmitter::tileAt(const Origin &origin, Range m, Range n, KBlock block, Value row, Value column, int64_t rows,
                                              int64_t columns) {
  int64_t nr = plan.nr(), mr = plan.mr;
  Tile tile;
  tile.rows = rows;
  tile.columns = columns;
  tile.c = add(origin.c, add(mul(row, plan.m.c), mul(column, plan.n.c)));
  for (int i : {0, 1})
    tile.bound[i] = origin.bound[i];
  if (plan.packA == PackedA::No) {
    tile.memoryA = memA;
    tile.a = add(add(origin.a, mul(block.start, plan.k.a)), mul(row, plan.m.a));
    tile.strideMA = plan.m.a;
    tile.strideKA = plan.k.a;
  } else if (plan.packA == PackedA::Band) {
    const bool turned = plan.band.cell == Cell::Turned;
    tile.memoryA = turned ? halves : plan.dots || plan.amx ? words : scratch;
    Value start = plan.band.holdsPairs() ? div(block.start, 2) : block.start;
    tile.a = add(turned ? mul(threadScratch, 2) : threadScratch, mul(start, plan.k.band));
    Value ofRow = plan.rowsInTile ? number(0) : plan.band.squareStep ? mul(div(row, kSquare), plan.band.squareStep) : mul(row, plan.m.band);
    tile.a = add(add(tile.a, plan.band.before()), ofRow);
    if (origin.band)
      tile.a = add(tile.a, origin.band);
    tile.strideMA = plan.m.band;
    tile.strideKA = plan.k.band;
  } else {
    tile.memoryA = plan.dots || plan.amx ? words : scratch;
    tile.a = add(threadScratch, mul(div(sub(row, m.first), mr), plan.panelA()));
    tile.strideMA = plan.rowsInPanelA() ? plan.rowPitchA() : 1;
    tile.strideKA = plan.rowsInPanelA() ? 1 : mr;
  }
  if (plan.packB == PackedB::No) {
    tile.memoryB = memB;
    tile.b = add(add(origin.b, offsetOfRun(block, number(0), &ContractDim::b)), mul(column, plan.n.b));
    tile.strideKB = plan.wordsOfB ? 2 * plan.k.b : plan.k.b; // of a word
  } else {
    tile.memoryB = plan.dots || plan.amx ? words : scratch;
    Value panel = mul(div(sub(column, n.first), nr), plan.panelB());
    tile.b = add(add(threadScratch, plan.scratchB()), panel);
    tile.strideKB = nr;
  }
  if (plan.sumUnits > 0) {
    Value unit = add(origin.unit, div(row, mr)), panel = div(sub(column, n.first), nr);
    Value number = add(mul(unit, plan.tilesN()), panel);
    tile.sums = add(add(threadScratch, plan.scratchSums()), mul(number, mr * nr));
  }
  return tile;
}

void ContractEmitter::emitTileAt(const Origin &origin, Range m, Range n, KBlock block, Value row, Value column, int64_t rows,
                                 int64_t columns) {
  emitTile(tileAt(origin, m, n, block, row, column, rows, columns), block);
}

void ContractEmitter::emitTiles(Origin origin, Range m, Range n, KBlock block) {
  if (plan.amx)
    return amxTiles(origin, m, n, block);
  int64_t nr = plan.nr(), mr = plan.mr;
  int64_t fullM = plan.m.size / mr * mr, edgeM = plan.m.size % mr;
  int64_t fullN = plan.n.size / nr * nr, edgeN = plan.n.size % nr;
  auto column = [&](Value column, int64_t columns) {
    auto tile = [&](Value row, int64_t rows) { emitTileAt(origin, m, n, block, row, column, rows, columns); };
    auto edge = [&](Value row) { tile(row, edgeM); };
    forTiles(
        m.first, m.second, mr, fullM, [&](Value row) { tile(row, mr); }, edgeM ? Body(edge) : Body());
  };
  auto edge = [&](Value first) { column(first, edgeN); };
  forTiles(
      n.first, n.second, nr, fullN, [&](Value first) { column(first, nr); }, edgeN ? Body(edge) : Body());
}

// ---- Entry ----------------------------------------------------------------------------------------------------------

int64_t scratchBytesPerThread(const ContractSpec &spec, const TargetInfo &target) {
  ContractPlan plan = planContract(spec, target);
  return plan.scratchElems() * plan.bytes;
}

func::FuncOp contractFunction(OpBuilder &builder, ModuleOp module, const std::string &name, bool hasScratch) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToEnd(module.getBody());
  Location loc = builder.getUnknownLoc();
  Type index = builder.getIndexType(), word = builder.getI64Type();
  auto type = builder.getFunctionType(
      {MemRefType::get({kArenaBytes}, builder.getI8Type()), MemRefType::get({hasScratch ? 4 : 3}, word),
       MemRefType::get({kContextWords}, word), index, index},
      {});
  auto function = func::FuncOp::create(builder, loc, name, type);
  builder.setInsertionPointToStart(function.addEntryBlock());
  func::ReturnOp::create(builder, loc);
  return function;
}

func::FuncOp buildContract(OpBuilder &builder, ModuleOp module, const std::string &name, const ContractSpec &spec,
                           const TargetInfo &target) {
  OpBuilder::InsertionGuard guard(builder);
  ContractPlan plan = planContract(spec, target);
  func::FuncOp function = contractFunction(builder, module, name, plan.scratchElems() > 0);
  Block &entry = function.getBody().front();
  if (spec.pairs)
    function->setAttr(kFlushesAttr, builder.getUnitAttr());
  builder.setInsertionPoint(entry.getTerminator());
  ContractEmitter(builder, builder.getUnknownLoc(), plan)
      .emitBody(entry.getArgument(0), entry.getArgument(1), entry.getArgument(2), entry.getArgument(3), entry.getArgument(4),
                plan.scratchElems() * plan.bytes);
  return function;
}

} // namespace cinch::kernels
