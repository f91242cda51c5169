// ContractPack.cpp: copies blocks of A and B into panels in which the register tile reads forwards only. Packing moves
// elements and computes nothing; lanes past an edge may hold anything, their products are never stored.
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/Transpose.h"

#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace cinch::kernels {

Value ContractEmitter::offsetOfRun(KBlock block, Value run, int64_t ContractDim::*stride) {
  Value outer = offsetIn(plan.outerK, stride, add(block.firstRun, run));
  return add(outer, mul(block.start, plan.k.*stride));
}

// Steps of k lie far apart in A, where no hardware prefetcher follows: the line of a later one is asked for while this one is copied. So is
// the place in the panel, for the many panels are written side by side.
static constexpr int64_t kAheadInA = 16, kAheadInPanelsOfA = 8;
void ContractEmitter::askFor(Value memory, Value place, bool toWrite, unsigned hint) {
  memref::PrefetchOp::create(builder, loc, memory, place, toWrite, hint, /*isDataCache=*/true);
}

// ---- A --------------------------------------------------------------------------------------------------------------

void ContractEmitter::packA(const Origin &origin, Range m, KBlock block) {
  bool windows = !plan.bounds.empty();
  if (plan.packA == PackedA::No || plan.packA == PackedA::Band)
    return;
  if (plan.packA == PackedA::Rows)
    !windows                  ? packRowsA(origin, m, block)
    : runsFollow(plan.runs) ? packRowsOfTaps(origin, m, block)
                            : packWindowRows(origin, m, block);
  else if (plan.hasWords())
    packWordsA(origin, m, block);
  else if (plan.packA == PackedA::Cols)
    windows ? packWindowColumns(origin, m, block) : packColsA(origin, m, block);
}

// The last vector of a run starts earlier, so that it touches nothing behind it. A null `from`: zeros.
void ContractEmitter::copyRunA(Value from, Value to, Value length) {
  int64_t lanes = plan.lanes;
  bool isShort = plan.k.size < lanes; // and then a run is never cut
  forLoop(number(0), length, lanes, [&](Value step) {
    Value k = isShort || isMultiple(length, lanes) ? step : min(step, sub(length, number(lanes)));
    int64_t alive = isShort ? plan.k.size : lanes;
    storeVector(from ? loadVector(memA, add(from, k), lanes, alive) : zeros(lanes), rowMemory(), add(to, k), alive);
  });
}

// Rows are copied as they are.
void ContractEmitter::packRowsA(const Origin &origin, Range m, KBlock block) {
  forLoop(m.first, m.second, 1, [&](Value row) {
    Value target = rowTarget(sub(row, m.first));
    Value source = add(origin.a, mul(row, plan.m.a));
    forLoop(number(0), block.runs, 1, [&](Value run) {
      copyRunA(add(source, offsetOfRun(block, run, &ContractDim::a)), runTarget(target, block, run), block.length);
    });
    finishRow(target, block);
  });
}

void ContractEmitter::packColsA(const Origin &origin, Range m, KBlock block) {
  int64_t fullEnd = plan.m.size / plan.mr * plan.mr, edge = plan.m.size % plan.mr;
  forLoop(number(0), block.runs, 1, [&](Value run) {
    Value source = add(origin.a, offsetOfRun(block, run, &ContractDim::a));
    forLoop(number(0), block.length, 1, [&](Value k) {
      Value from = add(source, mul(k, plan.k.a));
      Value to = add(threadScratch, mul(add(mul(run, block.length), k), plan.mr));
      auto panel = [&](Value row, int64_t rows) {
        Value target = add(to, mul(div(sub(row, m.first), plan.mr), plan.panelA()));
        if (plan.m.a == 1) {
          askFor(memA, add(add(from, row), kAheadInA * plan.k.a));
          askFor(scratch, add(target, kAheadInPanelsOfA * plan.mr), /*toWrite=*/true);
          storeVector(loadVector(memA, add(from, row), rows, rows), scratch, target, rows);
          return;
        }
        forLoop(number(0), number(rows), 1, [&](Value i) {
          Value element = loadScalar(memA, add(from, mul(add(row, i), plan.m.a)));
          storeScalar(element, scratch, add(target, i));
        });
      };
      auto edgePanel = [&](Value row) { panel(row, edge); };
      forTiles(
          m.first, m.second, plan.mr, fullEnd, [&](Value row) { panel(row, plan.mr); },
          edge ? Body(edgePanel) : Body());
    });
  });
}

// ---- A with bounds --------------------------------------------------------------------------------------------------
Value ContractEmitter::exists(Value bound0, Value bound1) {
  Value inside;
  Value places[] = {bound0, bound1};
  for (size_t i = 0; i < plan.bounds.size(); ++i) {
    Value here = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, places[i], number(plan.bounds[i].size));
    inside = inside ? Value(arith::AndIOp::create(builder, loc, inside, here)) : here;
  }
  return inside;
}

void ContractEmitter::ifElse(Value condition, llvm::function_ref<void()> yes, llvm::function_ref<void()> no) {
  auto branch = scf::IfOp::create(builder, loc, condition, /*withElseRegion=*/true);
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(branch.thenBlock());
  yes();
  builder.setInsertionPointToStart(branch.elseBlock());
  no();
}

// Whether the runs of one dim around k follow each other in A, so that those of a row of taps are one run of which a part exists.
bool ContractEmitter::runsFollow(int64_t runs) {
  if (plan.outerK.empty() || plan.bounds.empty() || plan.k.size >= plan.lanes || plan.k.isBounded())
    return false;
  const ContractDim &taps = plan.outerK.back();
  int64_t around = countOf(plan.outerK);
  bool oneBound = taps.bound0 == 0 ? taps.bound1 == 1 : taps.bound0 == 1 && taps.bound1 == 0;
  if (plan.hasWords() && plan.stretches() % taps.size) // in the panel they do not
    return false;
  return taps.a == plan.k.size * plan.k.a && plan.k.a == 1 && oneBound && (runs % taps.size == 0 || runs >= around);
}

void ContractEmitter::packRowsOfTaps(const Origin &origin, Range m, KBlock block) {
  const ContractDim &taps = plan.outerK.back();
  size_t moving = taps.bound0 ? 0 : 1;
  int64_t length = taps.size * plan.k.size, lanes = plan.lanes;
  VectorType flags = VectorType::get({lanes}, builder.getI1Type());
  forLoop(m.first, m.second, 1, [&](Value row) {
    Origin ofRow = origin;
    moveA(ofRow, plan.rows, row);
    Value target = rowTarget(sub(row, m.first));
    forLoop(number(0), block.runs, taps.size, [&](Value run) {
      Origin at = ofRow;
      moveA(at, plan.outerK, add(block.firstRun, run));
      // Taps before `from` and from `to` on lie outside; all do if another bound says so.
      Value zero = number(0), place = plan.bounds.size() > moving ? at.bound[moving] : zero;
      int64_t size = plan.bounds.size() > moving ? plan.bounds[moving].size : taps.size;
      Value from = mul(max(sub(zero, place), zero), plan.k.size);
      Value to = mul(max(min(sub(number(size), place), taps.size), zero), plan.k.size);
      for (size_t i = 0; i < plan.bounds.size(); ++i)
        if (i != moving) {
          Value here = arith::CmpIOp::create(builder, loc, arith::CmpIPredicate::ult, at.bound[i], number(plan.bounds[i].size));
          to = arith::SelectOp::create(builder, loc, here, to, zero);
        }
      for (int64_t first = 0; first < length; first += lanes) {
        Value before = vector::CreateMaskOp::create(builder, loc, flags, max(sub(from, number(first)), zero));
        Value until = vector::CreateMaskOp::create(builder, loc, flags, max(sub(to, number(first)), zero));
        Value there = arith::AndIOp::create(builder, loc, until, arith::XOrIOp::create(builder, loc, before,
            arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(flags, true))));
        Value values = loadMasked(memA, add(at.a, first), there);
        storeVector(values, rowMemory(), add(runTarget(target, block, run), first), std::min(lanes, length - first));
      }
    });
    finishRow(target, block);
  });
}

// Runs of k exist as a whole or not at all.
void ContractEmitter::packWindowRows(const Origin &origin, Range m, KBlock block) {
  forLoop(m.first, m.second, 1, [&](Value row) {
    Origin ofRow = origin;
    moveA(ofRow, plan.rows, row);
    Value target = rowTarget(sub(row, m.first));
    forLoop(number(0), block.runs, 1, [&](Value run) {
      Origin at = ofRow;
      moveA(at, plan.outerK, add(block.firstRun, run));
      Value to = runTarget(target, block, run), from = add(at.a, block.start);
      ifElse(
          exists(at.bound[0], at.bound[1]), [&] { copyRunA(from, to, block.length); },
          [&] { copyRunA({}, to, block.length); });
    });
    finishRow(target, block);
  });
}

// Step by step of k: so do the rows of a panel, or each is asked for by itself.
void ContractEmitter::packWindowColumns(const Origin &origin, Range m, KBlock block) {
  int64_t fullEnd = plan.m.size / plan.mr * plan.mr, edge = plan.m.size % plan.mr;
  bool together = plan.m.a == 1 && !plan.m.isBounded();
  forLoop(number(0), block.runs, 1, [&](Value run) {
    Origin ofRun = origin;
    moveA(ofRun, plan.outerK, add(block.firstRun, run));
    forLoop(number(0), block.length, 1, [&](Value k) {
      Origin at = ofRun;
      moveA(at, {plan.k}, add(block.start, k));
      Value to = add(threadScratch, mul(add(mul(run, block.length), k), plan.mr));
      auto target = [&](Value row) { return add(to, mul(div(sub(row, m.first), plan.mr), plan.panelA())); };
      auto forPanels = [&](llvm::function_ref<void(Value, int64_t)> panel) {
        auto edgePanel = [&](Value row) { panel(row, edge); };
        forTiles(
            m.first, m.second, plan.mr, fullEnd, [&](Value row) { panel(row, plan.mr); },
            edge ? Body(edgePanel) : Body());
      };
      if (together) {
        auto panels = [&](bool there) {
          forPanels([&](Value row, int64_t rows) {
            Value values = there ? loadVector(memA, add(at.a, row), rows, rows) : zeros(rows);
            storeVector(values, scratch, target(row), rows);
          });
        };
        return ifElse(exists(at.bound[0], at.bound[1]), [&] { panels(true); }, [&] { panels(false); });
      }
      forPanels([&](Value row, int64_t rows) {
        Value panel = target(row);
        forLoop(number(0), number(rows), 1, [&](Value i) {
          Origin element = at;
          moveA(element, {plan.m}, add(row, i));
          ifElse(
              exists(element.bound[0], element.bound[1]),
              [&] { storeScalar(loadScalar(memA, element.a), scratch, add(panel, i)); },
              [&] { storeScalar(arith::ConstantOp::create(builder, loc, builder.getZeroAttr(elementType())), scratch, add(panel, i)); });
        });
      });
    });
  });
}

// ---- B --------------------------------------------------------------------------------------------------------------

// Calls `panel` with the first column and the place of every panel in scratch.
void ContractEmitter::forPanels(Range n, llvm::function_ref<void(Value, Value, int64_t)> panel) {
  int64_t fullEnd = plan.n.size / plan.nr() * plan.nr(), edge = plan.n.size % plan.nr();
  auto at = [&](Value column, int64_t columns) {
    Value target = mul(div(sub(column, n.first), plan.nr()), plan.panelB());
    panel(column, add(add(threadScratch, plan.scratchB()), target), columns);
  };
  auto edgePanel = [&](Value column) { at(column, edge); };
  forTiles(
      n.first, n.second, plan.nr(), fullEnd, [&](Value column) { at(column, plan.nr()); },
      edge ? Body(edgePanel) : Body());
}

// A few rows at a time, across all panels: long stretches are written, and what the panel beside takes of these rows is asked for meanwhile, and for the
// second cache what this panel takes of the rows that come next. Rows that lie a power of two apart share sets of the first cache, where few of them stay
// until they are copied.
static constexpr int64_t kRowsAtATime = 8;

void ContractEmitter::packB(Value base, Range n, KBlock block) {
  if (plan.packB == PackedB::No)
    return;
  if (plan.packB == PackedB::Transpose) {
    forPanels(n, [&](Value column, Value panel, int64_t columns) {
      plan.hasWords() ? transposeWords(base, column, panel, columns, block) : transposeIntoPanel(base, column, panel, columns, block);
    });
    return;
  }
  if (plan.hasWords())
    return packWordsB(base, n, block);
  forLoop(number(0), block.runs, 1, [&](Value run) {
    Value source = add(base, offsetOfRun(block, run, &ContractDim::b));
    forLoop(number(0), block.length, kRowsAtATime, [&](Value first) {
      Value end = min(add(first, kRowsAtATime), block.length);
      forPanels(n, [&](Value column, Value panel, int64_t columns) {
        Value ofColumn = add(source, mul(column, plan.n.b));
        forLoop(first, end, 1, [&](Value k) {
          Value row = mul(add(mul(run, block.length), k), plan.nr());
          copyRowB(add(ofColumn, mul(k, plan.k.b)), add(panel, row), columns);
        });
      });
    });
  });
}

void ContractEmitter::copyRowB(Value from, Value to, int64_t columns) {
  if (plan.packB == PackedB::Copy) {
    Value next = add(from, kRowsAtATime * plan.k.b);
    for (int64_t j = 0; j < columns; j += 64 / bytesOf(plan.b.elem)) {
      askFor(memB, add(from, columns + j));
      askFor(memB, add(next, j), /*toWrite=*/false, /*hint=*/2);
    }
    for (int64_t j = 0; j < columns; j += plan.lanes)
      storeVector(loadVector(memB, add(from, j), plan.lanes, columns - j), scratch, add(to, j), plan.lanes);
    return;
  }
  forLoop(number(0), number(columns), 1,
          [&](Value j) { storeScalar(loadScalar(memB, add(from, mul(j, plan.n.b))), scratch, add(to, j)); });
}

// Squares of lanes x lanes: loaded along k, transposed in registers, stored along n. A square at the end of a run
// starts earlier, so that it reads nothing behind it (a run is at least one square long); rows past the edge of n
// repeat the last.
void ContractEmitter::transposeIntoPanel(Value base, Value column, Value panel, int64_t columns, KBlock block) {
  int64_t lanes = plan.lanes;
  forLoop(number(0), block.runs, 1, [&](Value run) {
    Value source = add(base, offsetOfRun(block, run, &ContractDim::b));
    Value target = add(panel, mul(mul(run, block.length), plan.nr()));
    forLoop(number(0), number(columns), lanes, [&](Value j) {
      forLoop(number(0), block.length, lanes, [&](Value step) {
        Value k = isMultiple(block.length, lanes) ? step : min(step, sub(block.length, number(lanes)));
        SmallVector<Value> rows;
        for (int64_t i = 0; i < lanes; ++i) {
          Value row = add(column, add(j, i));
          if (columns % lanes != 0)
            row = min(row, plan.n.size - 1);
          rows.push_back(loadVector(memB, add(add(source, mul(row, plan.n.b)), k), lanes, lanes));
        }
        rows = emitTransposed(builder, loc, rows);
        for (int64_t i = 0; i < lanes; ++i)
          storeVector(rows[i], scratch, add(add(target, mul(add(k, i), plan.nr())), j), lanes);
      });
    });
  });
}

} // namespace cinch::kernels
