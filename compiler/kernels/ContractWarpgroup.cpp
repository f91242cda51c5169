// ContractWarpgroup.cpp: a contraction of bf16 by wgmma.m64nNk16 (PTX ISA, "Asynchronous warpgroup level matrix instructions").
//
// A block is three warpgroups. Two multiply: each has 64 rows of a tile of outputs in its registers, and reads both operands from shared
// memory by itself. The third one brings steps of 64 of k there, as many as there are stages, and is ahead of the others:
//
//   brings      await empty[s]   copy into s ..   (some steps later: copies have ended)   show, arrive at full[s]
//   multiplies  await full[s]    multiply s ..    (the next step's are under way: these have ended)   arrive at empty[s]
//
// What memory holds as bf16 side by side comes by copies of boxes, which one thread asks for: the barrier counts their bytes. The rest comes by
// the threads of the third warpgroup, which has only that one thread if there is no rest.
// Stages go round, from tile to tile too, so that the next tile's are brought while a tile's outputs are stored. Which products an
// instruction adds depends on their places in the run of k alone, as in ContractTensor.cpp: runs begin anew, and what lacks is zero.
#include "compiler/kernels/ContractTensorTile.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"

using namespace mlir;

namespace cinch::kernels::device {
namespace {

class GroupContract : TensorTile {
public:
  GroupContract(OpBuilder &b, Location loc, const Plan &plan, ValueRange arguments, Value shared)
      : TensorTile(b, loc, plan, arguments, 1, plan.tileN / 8), tiles(plan), shared(shared), total(countOf(plan.runs) * tiles.steps) {}

  void emit() {
    Value self = simt::threadOfBlock(b, loc), number = div(self, kGroupThreads), lane = rem(self, 32);
    ofGroup = rem(self, kGroupThreads);
    leads = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, lane, index(0));
    warpM = mul(div(self, 32), 16), warpN = index(0);
    group = div(lane, 4), pair = mul(rem(lane, 4), 2);
    when(arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, self, index(0)), [&] {
      for (int64_t stage = 0; stage < tiles.stages; ++stage) {
        simt::beginPhases(b, loc, barrier(kFull, index(stage)), tiles.bringing());
        simt::beginPhases(b, loc, barrier(kEmpty, index(stage)), kMultiplying * kGroupThreads / 32);
      }
      simt::showToProducts(b, loc);
    });
    simt::syncBlock(b, loc);
    auto body = [&](auto work) {
      return [this, work](OpBuilder &, Location) {
        work();
        scf::YieldOp::create(b, loc);
      };
    };
    scf::IfOp::create(b, loc, below(number, index(kMultiplying)), body([&] { multiplyAll(number); }), body([&] {
      when(tiles.bringing() < kGroupThreads ? isFirst() : Value(), [&] { bringAll(); });
    }));
  }

private:
  static constexpr int64_t kMultiplying = 2; // warpgroups

  // ---- Stages ----------------------------------------------------------------------------------------------------------------
  enum { kFull, kEmpty };
  Value barrier(int which, Value stage) {
    return simt::at(b, loc, shared, word(add(mul(stage, 16), tiles.stages * tiles.stageBytes() + which * 8)));
  }
  Value beginOf(Value stage) { return simt::at(b, loc, shared, word(mul(stage, tiles.stageBytes()))); }
  Value isLast(Value stage) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, stage, index(tiles.stages - 1)); }
  Value behind(Value stage) { return arith::SelectOp::create(b, loc, isLast(stage), index(0), add(stage, 1)); }
  Value before(Value stage) {
    Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, stage, index(0));
    return arith::SelectOp::create(b, loc, first, index(tiles.stages - 1), arith::SubIOp::create(b, loc, stage, index(1)));
  }
  // A stage, and the phase of its barrier that is awaited.
  struct Ring {
    Value stage, parity;
  };
  Value bit(int64_t n) { return emitInteger(b, loc, b.getI32Type(), n); }
  Ring behind(Ring at) {
    Value turned = arith::XOrIOp::create(b, loc, at.parity, bit(1));
    return {behind(at.stage), arith::SelectOp::create(b, loc, isLast(at.stage), turned, at.parity)};
  }

  // Calls `body` for the grains of a tile, or once: the first element of k.
  Values forGrains(ValueRange carried, llvm::function_ref<Values(Value, ValueRange)> body) {
    return spec.grain > 0 && plan.K > 0 ? loop(index(0), index(plan.K), tiles.length, carried, body) : body(index(0), carried);
  }

  // ---- Bringing --------------------------------------------------------------------------------------------------------------
  struct Bringing { // carried: the stage that is filled; the oldest that nobody was told of, and how many these are
    Ring ring;
    Value oldest, untold;
    explicit Bringing(ValueRange values) : ring{values[0], values[1]}, oldest(values[2]), untold(values[3]) {}
    Values values() const { return {ring.stage, ring.parity, oldest, untold}; }
  };

  void bringAll() {
    Bringing at(forTiles({index(0), bit(1), index(0), index(0)}, [&](Value batch, Value firstM, Value firstN, ValueRange carried) {
      return forGrains(carried, [&](Value first, ValueRange values) {
        Values begin(values);
        begin.append(loadedAhead(batch, firstM, first, index(0)));
        Values ended = loop(index(0), index(total), 1, begin, [&](Value step, ValueRange state) {
          Values ahead(state.drop_front(values.size()));
          Values next = bringStep(batch, firstM, firstN, first, step, Bringing(state), ahead).values();
          next.append(ahead);
          return next;
        });
        ended.truncate(values.size());
        return ended;
      });
    }));
    endCopies(0);
    loop(index(0), at.untold, 1, {at.oldest}, [&](Value, ValueRange oldest) {
      simt::arrive(b, loc, barrier(kFull, oldest[0]));
      return Values{behind(oldest[0])};
    });
  }

  Value isFirst() { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, ofGroup, index(0)); }

  // What this thread has brought is there, but for so many steps.
  void endCopies(int ahead) {
    if (tiles.bringing() < kGroupThreads)
      return;
    if (tiles.operand[0].copied || tiles.operand[1].copied)
      simt::waitForCopies(b, loc, ahead);
    simt::showToProducts(b, loc);
  }

  // `ahead`: what was loaded of A, if anything is; then what was loaded of the next step.
  Bringing bringStep(Value batch, Value firstM, Value firstN, Value first, Value step, Bringing at, Values &ahead) {
    simt::awaitPhase(b, loc, barrier(kEmpty, at.ring.stage), at.ring.parity);
    Value stage = beginOf(at.ring.stage);
    const int64_t mapped = (tiles.isMapped(0) ? tiles.operand[0].bytes : 0) + (tiles.isMapped(1) ? tiles.operand[1].bytes : 0);
    if (mapped > 0)
      when(tiles.bringing() < kGroupThreads ? Value() : isFirst(), [&] {
        simt::expectBytes(b, loc, barrier(kFull, at.ring.stage), mapped);
        bringBoxes(0, batch, firstM, first, step, stage, at.ring.stage);
        bringBoxes(1, batch, firstN, first, step, simt::at(b, loc, stage, constant(tiles.operand[0].bytes)), at.ring.stage);
      });
    if (ahead.empty()) {
      bring(0, batch, firstM, first, step, stage);
    } else {
      Value next = arith::MinSIOp::create(b, loc, add(step, 1), index(total - 1));
      ahead = bringLoaded(partOf(0, batch, firstM, first, step), partOf(0, batch, firstM, first, next), ahead, stage);
    }
    bring(1, batch, firstN, first, step, simt::at(b, loc, stage, constant(tiles.operand[0].bytes)));
    if (tiles.operand[0].copied || tiles.operand[1].copied)
      simt::endOfCopies(b, loc);
    Value tells = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, at.untold, index(tiles.ahead));
    when(tells, [&] {
      endCopies(tiles.ahead);
      simt::arrive(b, loc, barrier(kFull, at.oldest));
    });
    at.oldest = arith::SelectOp::create(b, loc, tells, behind(at.oldest), at.oldest);
    at.untold = arith::SelectOp::create(b, loc, tells, at.untold, add(at.untold, 1));
    at.ring = behind(at.ring);
    return at;
  }

  // The boxes of an operand of a step, if a map brings it: one, or one for each 64 rows.
  void bringBoxes(int which, Value batch, Value firstRow, Value firstK, Value step, Value to, Value stage) {
    if (!tiles.isMapped(which))
      return;
    const OperandMap &o = tiles.maps[which];
    auto placeIn = [&](const Dims &dims, Value place, size_t dim) {
      for (size_t i = dims.size(); --i > dim;)
        place = div(place, dims[i].size);
      return dim == 0 ? place : rem(place, dims[dim].size);
    };
    const int64_t tile = which == 0 ? plan.tileM : plan.tileN, together = tiles.operand[which].alongK ? tile : 64;
    Value map = simt::at(b, loc, simt::pointerTo(b, loc, arguments[5], 0), constant(which * tiles.isMapped(0) * kMapWords * 8));
    for (int64_t beside = 0; beside < tile; beside += together) {
      Values begin;
      for (const OperandMap::Walk &walk : o.walks)
        switch (walk.group) {
        case OperandMap::kAlong:
          begin.push_back(mul(rem(step, tiles.steps), kGroupStep));
          break;
        case OperandMap::kGrain:
          begin.push_back(div(firstK, tiles.length));
          break;
        case OperandMap::kRow:
          begin.push_back(add(firstRow, beside));
          break;
        case OperandMap::kBatch:
          begin.push_back(placeIn(plan.batch, batch, walk.dim));
          break;
        case OperandMap::kRun:
          begin.push_back(placeIn(plan.runs, div(step, tiles.steps), walk.dim));
          break;
        }
      simt::copyBox(b, loc, simt::at(b, loc, to, constant(beside * kGroupStep * 2)), map, begin, barrier(kFull, stage));
    }
  }

  // An operand of a step as this thread sees it.
  struct Part {
    int which;
    Value outside, firstRow, firstK, within; // element without row and k; of the tile; of the grain; of the step in its run
    Value along, line;                       // this thread's first element of a line, its first line
  };
  // Elements `row` of the tile, `k` of the step: whether they are there (null: they are), and which element of the operand that is.
  Value validAt(const Part &part, Value row, Value k) {
    const int64_t count = part.which == 0 ? plan.M : plan.N, tile = part.which == 0 ? plan.tileM : plan.tileN;
    Value valid = count % tile ? below(add(part.firstRow, row), index(count)) : Value();
    return both(valid, tiles.length % kGroupStep ? below(add(part.within, k), index(tiles.length)) : Value());
  }
  Value elementAt(const Part &part, Value row, Value k) {
    auto stride = [&](const Dim &dim) { return strideOf(dim, part.which); };
    Value ofRow = offsetOf(part.which == 0 ? plan.m : plan.n, add(part.firstRow, row), stride);
    return add(part.outside, add(ofRow, offsetOf(plan.k, add(part.firstK, add(part.within, k)), stride)));
  }

  Part partOf(int which, Value batch, Value firstRow, Value firstK, Value step) {
    const TensorOperand &o = tiles.operand[which];
    auto stride = [&](const Dim &dim) { return strideOf(dim, which); };
    Value outside = add(add(offsetOf(plan.batch, batch, stride), o.view->offset), offsetOf(plan.runs, div(step, tiles.steps), stride));
    const int64_t across = kGroupStep / o.chunk();
    return {which,  outside, firstRow, firstK, mul(rem(step, tiles.steps), kGroupStep), mul(rem(ofGroup, across), o.chunk()),
            div(ofGroup, across)};
  }

  void bring(int which, Value batch, Value firstRow, Value firstK, Value step, Value to) {
    if (tiles.isMapped(which))
      return;
    const TensorOperand &o = tiles.operand[which];
    const Part part = partOf(which, batch, firstRow, firstK, step);
    if (o.shifted)
      bringShifted(part, to);
    else if (o.wide)
      bringWide(part, to);
    else
      bringSingly(part, to);
  }

  // Sixteen bytes at a time: sixteen lines, then the next ones, whose parts have the same place in them.
  void bringWide(const Part &part, Value to) {
    const TensorOperand &o = tiles.operand[part.which];
    const Dims &rows = part.which == 0 ? plan.m : plan.n;
    const int64_t tile = part.which == 0 ? plan.tileM : plan.tileN, lines = kGroupThreads / (kGroupStep / 8), size = bytesOf(o.view->elem);
    constexpr int64_t kTogether = 4; // loads before their stores
    const bool even = rows.size() <= 1 && plan.k.size() <= 1; // distances are the same everywhere
    auto step = [&](const Dims &dims) { return dims.empty() ? 0 : strideOf(dims[0], part.which); };
    Value chunk = arith::XOrIOp::create(b, loc, div(part.along, 8), rem(part.line, 8)), element, from;
    to = simt::at(b, loc, to, word(add(mul(part.line, 128), mul(chunk, 16))));
    Values loaded, places;
    for (int64_t beside = 0; beside < tile; beside += lines) {
      const int64_t besideRow = o.alongK ? beside : beside / 64 * 64, besideK = o.alongK ? 0 : beside % 64;
      const int64_t distance = besideRow * step(rows) + besideK * step(plan.k);
      Value row = add(o.alongK ? part.line : part.along, besideRow), k = add(o.alongK ? part.along : part.line, besideK);
      Value valid = validAt(part, row, k), place = simt::at(b, loc, to, constant(beside * 128)), pointer;
      const bool near = even && beside > 0;
      if (near && (o.copied || !valid)) { // a copy that is not valid has no bytes, and may point anywhere
        pointer = simt::at(b, loc, from, constant(distance * size));
      } else {
        Value here = near ? add(element, distance) : elementAt(part, row, k);
        element = beside == 0 ? here : element;
        const bool needed = valid && !o.copied;
        pointer = pointerTo(part.which, needed ? Value(arith::SelectOp::create(b, loc, valid, here, index(o.view->offset))) : here);
        from = beside == 0 ? (needed && even ? pointerTo(part.which, here) : pointer) : from;
      }
      if (o.copied) {
        simt::copyLater(b, loc, place, pointer, valid);
        continue;
      }
      loaded.push_back(simt::loadEightRounded(b, loc, pointer, valid)), places.push_back(place);
      if (int64_t(loaded.size()) == kTogether || beside + lines >= tile) {
        for (auto [value, place] : llvm::zip_equal(loaded, places))
          simt::store(b, loc, value, place, 16);
        loaded.clear(), places.clear();
      }
    }
  }

  // Eight elements at a time that begin anywhere, one such for each sixteenth line. What lies in the 16 bytes where they begin and in the 16 behind is
  // loaded, and shifted into their place. No 16 bytes are read of which nothing is needed.
  static constexpr int64_t kShiftedLines = kGroupThreads / (kGroupStep / 8), kShiftedTogether = 4;
  struct Shifted {
    Value pointer, within; // the 16 bytes where this thread's first eight begin, and where in them: lines sixteen apart begin at the same place
  };
  int64_t sideOf(const Part &part) { return part.which == 0 ? plan.tileM : plan.tileN; }
  std::pair<int64_t, int64_t> besideOf(const Part &part, int64_t number) { // row and k of eight number `number`, from the first eight on
    const int64_t beside = number * kShiftedLines;
    return tiles.operand[part.which].alongK ? std::pair(beside, int64_t(0)) : std::pair(beside / 64 * 64, beside % 64);
  }
  Shifted shiftedOf(const Part &part) {
    const bool alongK = tiles.operand[part.which].alongK;
    Value element = elementAt(part, alongK ? part.line : part.along, alongK ? part.along : part.line);
    Value within = rem(add(element, behindSixteen(part.which)), 8);
    return {pointerTo(part.which, arith::SubIOp::create(b, loc, element, within)), within};
  }
  // How many of the eight there are; null: all of them.
  Value countOfEight(const Part &part, int64_t number) {
    const bool alongK = tiles.operand[part.which].alongK;
    const int64_t count = part.which == 0 ? plan.M : plan.N;
    auto [besideRow, besideK] = besideOf(part, number);
    Value row = add(part.firstRow, add(alongK ? part.line : part.along, besideRow)), k = add(part.within, add(alongK ? part.along : part.line, besideK));
    Value left = arith::SubIOp::create(b, loc, index(alongK ? tiles.length : count), alongK ? k : row);
    Value there = alongK ? (count % sideOf(part) ? below(row, index(count)) : Value()) : (tiles.length % kGroupStep ? below(k, index(tiles.length)) : Value());
    const bool ends = alongK ? tiles.length % kGroupStep != 0 : count % sideOf(part) != 0;
    if (!ends && !there)
      return Value();
    Value some = ends ? Value(arith::MinSIOp::create(b, loc, left, index(8))) : index(8);
    return there ? Value(arith::SelectOp::create(b, loc, there, some, index(0))) : some;
  }
  void loadShifted(const Part &part, const Shifted &from, int64_t number, Values &loaded) {
    const Dims &rows = part.which == 0 ? plan.m : plan.n;
    auto above = [&](Value x, int64_t y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, x, index(y)); };
    auto [besideRow, besideK] = besideOf(part, number);
    const int64_t distance = besideRow * strideOf(rows[0], part.which) + besideK * strideOf(plan.k[0], part.which);
    Value pointer = simt::at(b, loc, from.pointer, constant(distance * 2)), behind = above(from.within, 0);
    if (Value count = countOfEight(part, number)) {
      Value first = index(tiles.operand[part.which].view->offset); // of the operand: it is there
      first = arith::SubIOp::create(b, loc, first, rem(add(first, behindSixteen(part.which)), 8));
      pointer = arith::SelectOp::create(b, loc, above(count, 0), pointer, pointerTo(part.which, first));
      behind = above(add(count, from.within), 8);
    }
    loaded.push_back(simt::loadEight(b, loc, pointer));
    loaded.push_back(simt::loadEight(b, loc, simt::at(b, loc, pointer, arith::SelectOp::create(b, loc, behind, constant(16), constant(0)))));
  }
  void storeShifted(const Part &part, Value within, int64_t number, Value low, Value high, Value to) {
    Value chunk = arith::XOrIOp::create(b, loc, div(part.along, 8), rem(part.line, 8)), count = countOfEight(part, number);
    auto narrow = [&](Value n) { return n ? Value(arith::IndexCastOp::create(b, loc, b.getI32Type(), n)) : n; };
    to = simt::at(b, loc, simt::at(b, loc, to, word(add(mul(part.line, 128), mul(chunk, 16)))), constant(number * kShiftedLines * 128));
    simt::store(b, loc, simt::firstOf(b, loc, simt::eightFrom(b, loc, low, high, narrow(within)), narrow(count)), to, 16);
  }

  void bringShifted(const Part &part, Value to) {
    const Shifted from = shiftedOf(part);
    for (int64_t first = 0; first < sideOf(part) / kShiftedLines; first += kShiftedTogether) {
      Values loaded;
      for (int64_t i = 0; i < kShiftedTogether; ++i)
        loadShifted(part, from, first + i, loaded);
      for (int64_t i = 0; i < kShiftedTogether; ++i)
        storeShifted(part, from.within, first + i, loaded[size_t(2 * i)], loaded[size_t(2 * i + 1)], to);
    }
  }

  // Of A, whose part of a step fits into registers, the next step is loaded while this one is stored: where it begins within 16 bytes, and all of it.
  Values loadedAhead(Value batch, Value firstRow, Value firstK, Value step) {
    Values loaded;
    if (!tiles.operand[0].shifted || total == 0)
      return loaded;
    const Part part = partOf(0, batch, firstRow, firstK, step);
    const Shifted from = shiftedOf(part);
    loaded.push_back(from.within);
    for (int64_t number = 0; number < sideOf(part) / kShiftedLines; ++number)
      loadShifted(part, from, number, loaded);
    return loaded;
  }
  Values bringLoaded(const Part &part, const Part &next, ValueRange loaded, Value to) {
    const Shifted from = shiftedOf(next);
    Values ahead = {from.within};
    for (int64_t first = 0; first < sideOf(part) / kShiftedLines; first += kShiftedTogether) {
      for (int64_t i = first; i < first + kShiftedTogether; ++i)
        storeShifted(part, loaded[0], i, loaded[size_t(1 + 2 * i)], loaded[size_t(2 + 2 * i)], to);
      for (int64_t i = first; i < first + kShiftedTogether; ++i)
        loadShifted(next, from, i, ahead);
    }
    return ahead;
  }

  // One element at a time, some lines together. Where these are there all or none, and lie at equal distances, what is none of the operand
  // is read from its first row or at its first k.
  void bringSingly(const Part &part, Value to) {
    const TensorOperand &o = tiles.operand[part.which];
    const Dims &rows = part.which == 0 ? plan.m : plan.n;
    const int64_t tile = part.which == 0 ? plan.tileM : plan.tileN, count = part.which == 0 ? plan.M : plan.N;
    constexpr int64_t kTogether = 8, kLines = kGroupThreads / kGroupStep;
    const bool alike = rows.size() <= 1 && plan.k.size() <= 1 && (o.alongK ? count % tile == 0 : tiles.length % kGroupStep == 0);
    const Dims &walked = o.alongK ? rows : plan.k;
    const int64_t distance = walked.empty() ? 0 : kLines * strideOf(walked[0], part.which) * bytesOf(o.view->elem);
    loop(index(0), index(tile), kLines * kTogether, {}, [&](Value first, ValueRange) {
      Values loaded, places;
      Value valid, pointer;
      for (int64_t e = 0; e < kTogether; ++e) {
        Value line = add(add(part.line, first), e * kLines);
        Value row = o.alongK ? line : add(mul(div(first, 64), 64), part.along), k = o.alongK ? part.along : rem(line, 64);
        if (e == 0 || !alike) {
          valid = validAt(part, row, k);
          Value element = elementAt(part, row, k);
          if (valid) {
            Part there = part; // the first row, the first k
            there.firstRow = o.alongK ? there.firstRow : index(0), there.within = o.alongK ? index(0) : there.within;
            Value other = alike ? elementAt(there, o.alongK ? row : index(0), o.alongK ? index(0) : k) : index(o.view->offset);
            element = arith::SelectOp::create(b, loc, valid, element, other);
          }
          pointer = pointerTo(part.which, element);
        } else {
          pointer = simt::at(b, loc, pointer, constant(distance));
        }
        loaded.push_back(simt::loadOneRounded(b, loc, pointer, o.view->elem == Elem::BF16, valid));
        // Groups of lines begin at multiples of eight.
        Value chunk = arith::XOrIOp::create(b, loc, div(part.along, 8), rem(add(part.line, e * kLines), 8));
        places.push_back(simt::at(b, loc, to, word(add(add(mul(line, 128), mul(chunk, 16)), mul(rem(part.along, 8), 2)))));
      }
      for (auto [value, place] : llvm::zip_equal(loaded, places))
        simt::store(b, loc, value, place, 2);
      return Values();
    });
  }

  // ---- Multiplying -----------------------------------------------------------------------------------------------------------
  void multiplyAll(Value number) {
    forTiles({index(0), bit(0)}, [&](Value batch, Value firstM, Value firstN, ValueRange carried) {
      Ring ring = {carried[0], carried[1]};
      emitOutputs(batch, firstM, firstN, [&](ValueRange start) {
        Values state(start);
        state.append({ring.stage, ring.parity});
        const bool grained = spec.grain > 0 && plan.K > 0;
        state = forGrains(state, [&](Value, ValueRange values) {
          ring = {values[start.size()], values[start.size() + 1]};
          ValueRange totals = values.take_front(start.size());
          Values next = chains(number, grained ? ValueRange(zeros()) : totals, ring);
          next = grained ? added(totals, next) : next;
          next.append({ring.stage, ring.parity});
          return next;
        });
        ring = {state[start.size()], state[start.size() + 1]};
        state.truncate(start.size());
        return state;
      });
      return Values{ring.stage, ring.parity};
    });
  }

  // All steps from `ring` on, which is then behind them.
  Values chains(Value number, ValueRange start, Ring &ring) {
    if (total == 0)
      return Values(start);
    const size_t count = start.size();
    Values carried = simt::preparedSums(b, loc, start);
    carried.append({ring.stage, ring.parity});
    carried = loop(index(0), index(total), 1, carried, [&](Value step, ValueRange values) {
      Ring at = {values[count], values[count + 1]};
      simt::awaitPhase(b, loc, barrier(kFull, at.stage), at.parity);
      simt::beginProducts(b, loc);
      Values next = multiply(number, at.stage, values.take_front(count));
      simt::endProducts(b, loc);
      simt::awaitProducts(b, loc, 1);
      Value first = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sgt, step, index(0));
      when(both(leads, first), [&] { simt::arrive(b, loc, barrier(kEmpty, before(at.stage))); });
      at = behind(at);
      next.append({at.stage, at.parity});
      return next;
    });
    ring = {carried[count], carried[count + 1]};
    carried.truncate(count);
    Values sums = simt::finishedSums(b, loc, carried);
    when(leads, [&] { simt::arrive(b, loc, barrier(kEmpty, before(ring.stage))); });
    return sums;
  }

  Values multiply(Value number, Value stage, ValueRange sums) {
    Values next(sums);
    Value begin = LLVM::PtrToIntOp::create(b, loc, b.getI64Type(), beginOf(stage));
    Value a = arith::AddIOp::create(b, loc, begin, word(mul(number, 64 * 128))); // 64 rows, or 64 k of 64 rows
    for (int64_t k = 0; k < kGroupStep; k += 16) {
      auto tile = [&](int which, Value from) {
        const TensorOperand &o = tiles.operand[which];
        const int64_t byte = which * tiles.operand[0].bytes + (o.alongK ? k * 2 : k * 128);
        return simt::TileOfLines{from, byte, !o.alongK};
      };
      next = simt::multiplyTiles(b, loc, tile(0, a), tile(1, begin), next);
    }
    return next;
  }

  const GroupTiles tiles;
  Value shared;
  const int64_t total; // steps
  Value ofGroup, leads; // the number of this thread in its warpgroup; whether it is the first one of its warp
};

} // namespace

void emitOnWarpgroups(OpBuilder &b, Location loc, const Plan &plan, ValueRange arguments, Value shared) {
  GroupContract(b, loc, plan, arguments, shared).emit();
}

} // namespace cinch::kernels::device
