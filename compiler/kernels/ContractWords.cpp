// ContractWords.cpp: panels of words, each of two elements of k.
//
// vdpbf16ps computes c = fma(low, low, fma(high, high, c)) lane by lane, subnormal numbers taken for zeros whatever MXCSR
// says (measured: no other result among 64,000,000). So its words hold two elements of one chain, the earlier one in the high half. Those of
// AMX hold one of either chain, the even one in the low half:
//
//     elements of k   0 1 2 3 | 4 5 6 7 | ..      words   (2,0) (3,1) | (6,4) (7,5) | ..     even, odd, even, odd
//                                                 of AMX  (0,1) (2,3) | (4,5) (6,7) | ..
//
// A run that ends within a group of four, with AMX of 32, is filled up by +0.0 in A and -0.0 in B: fma(+0.0, -0.0, c) is c.
#include "compiler/kernels/ContractEmitter.h"
#include "compiler/kernels/Transpose.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"

using namespace mlir;

namespace cinch::kernels {

static constexpr int16_t kMinusZero = int16_t(0x8000);

// Vectors of words of a B that lies as bf16 in rows along n: step `step`, of this chain, takes rows k and k + 2 of its group of four.
ContractEmitter::Values ContractEmitter::wordsInPlace(const Tile &tile, Value step, int64_t chain) {
  Value early = add(tile.b, mul(sub(mul(step, 2), number(chain)), tile.strideKB)), late = add(early, 2 * tile.strideKB);
  Values columns;
  for (int64_t j = 0; j < tile.columns;) {
    const int64_t count = std::min<int64_t>(2 * plan.lanes, tile.columns - j); // one or two vectors
    auto type = VectorType::get({count}, builder.getI16Type());
    auto row = [&](Value at) -> Value { return vector::LoadOp::create(builder, loc, type, tile.memoryB, ValueRange{add(at, j)}); };
    Value low = row(late), high = row(early);
    for (int64_t first = 0; first < count; first += plan.lanes) {
      SmallVector<int64_t> order;
      for (int64_t i = first; i < first + plan.lanes; ++i)
        order.append({i, count + i});
      Value both = vector::ShuffleOp::create(builder, loc, low, high, order);
      columns.push_back(vector::BitCastOp::create(builder, loc, VectorType::get({2 * plan.lanes}, builder.getBF16Type()), both));
    }
    j += count;
  }
  return columns;
}

// Two steps of every output's chain.
ContractEmitter::Values ContractEmitter::multiplyWords(const Tile &tile, Value step, ValueRange accumulators, int64_t chain) {
  auto numbers = VectorType::get({2 * plan.lanes}, builder.getBF16Type()), bits = VectorType::get({plan.lanes}, builder.getI32Type());
  auto asNumbers = [&](Value value) -> Value { return LLVM::BitcastOp::create(builder, loc, numbers, value); };
  Value atB = add(tile.b, mul(step, tile.strideKB)), atA = add(tile.a, offsetOfStep(tile, step));
  Values columns, results;
  if (plan.packB == PackedB::No)
    columns = wordsInPlace(tile, step, chain);
  for (int64_t j = 0; plan.packB != PackedB::No && j < tile.columns; j += plan.lanes)
    columns.push_back(asNumbers(vector::LoadOp::create(builder, loc, bits, words, add(atB, j))));
  size_t next = 0;
  for (int64_t i = 0; i < tile.rows; ++i) {
    Value element = memref::LoadOp::create(builder, loc, words, add(atA, i * tile.strideMA));
    Value row = asNumbers(vector::BroadcastOp::create(builder, loc, bits, element));
    for (Value column : columns)
      results.push_back(LLVM::CallIntrinsicOp::create(builder, loc, vectorType(plan.lanes),
                                                      builder.getStringAttr("llvm.x86.avx512bf16.dpbf16ps.512"),
                                                      ValueRange{accumulators[next++], column, row})
                            .getResult(0));
  }
  return results;
}

// Both chains of every output at once, beside its sum: three registers an output, and none of them in memory in between. The odd chain of a
// block of one element is +0.0, which only turns an even one of -0.0: so does the low half, +0.0 times +0.0, where panels hold an element a step.
ContractEmitter::Values ContractEmitter::wordBlock(const Tile &tile, Value first, int64_t count, Values accumulators) {
  const size_t size = accumulators.size();
  const int64_t groups = (count + 3) / 4, chains = count > 1 ? 2 : 1; // words of the even elements and of the odd ones take turns
  auto multiply = [&](Value group, Values values) {
    for (int64_t chain = 0; chain < chains; ++chain) {
      ValueRange before = ValueRange(values).slice(size_t(chain) * size, size);
      Values after = multiplyWords(tile, add(first, add(mul(group, 2), chain)), before, chain);
      std::copy(after.begin(), after.end(), values.begin() + chain * int64_t(size));
    }
    return values;
  };
  Values fresh(size_t(chains) * size, zeros(plan.lanes));
  // More groups at a time would only load words long before they are needed, and run out of registers.
  Values sums = groups == 1 ? multiply(number(0), fresh) : overRange(number(0), number(groups), 1, fresh, multiply);
  for (size_t i = 0; i < size; ++i) {
    Value odd = chains > 1 ? sums[size + i] : Value(zeros(plan.lanes));
    Value sum = plan.hasWords() ? Value(arith::AddFOp::create(builder, loc, sums[i], odd)) : sums[i];
    accumulators[i] = arith::AddFOp::create(builder, loc, accumulators[i], sum);
  }
  return accumulators;
}

// ---- Runs and groups ------------------------------------------------------------------------------------------------

Value ContractEmitter::lengthOfRun(KBlock block) { return plan.stretches() > 1 ? number(plan.runLength) : block.length; }

Value ContractEmitter::stepsOfRun(KBlock block) {
  int64_t group = plan.group();
  return mul(div(add(lengthOfRun(block), group - 1), group), group / 2);
}

// Calls `body` for the elements of each group of `size`, or of fewer at the end of a run, with the step of the first of its words.
void ContractEmitter::forGroups(KBlock block, int64_t size, llvm::function_ref<void(Value, llvm::ArrayRef<Element>)> body) {
  int64_t stretches = plan.stretches(), tail = (stretches > 1 ? plan.runLength : plan.k.size) % size;
  Value length = lengthOfRun(block), steps = stepsOfRun(block);
  forLoop(number(0), div(block.runs, stretches), 1, [&](Value run) {
    Value stretch = add(block.firstRun, mul(run, stretches));
    auto group = [&](Value first, int64_t count) {
      SmallVector<Element> elements;
      for (int64_t i = 0; i < count; ++i) {
        Value at = add(first, i);
        if (stretches > 1)
          elements.push_back({add(stretch, div(at, plan.k.size)), rem(at, plan.k.size)});
        else
          elements.push_back({stretch, add(block.start, at)});
      }
      body(add(mul(run, steps), div(first, 2)), elements);
    };
    Value end = mul(div(length, size), size);
    forLoop(number(0), end, size, [&](Value first) { group(first, size); });
    if (tail == 0 || isMultiple(length, size))
      return;
    forLoop(end, length, size, [&](Value first) { group(first, tail); }); // at most once
  });
}

// Calls `body` for the steps of each run behind its last group of `size` elements.
void ContractEmitter::forFillings(KBlock block, int64_t size, llvm::function_ref<void(Value step)> body) {
  if (size >= plan.group() || isMultiple(lengthOfRun(block), plan.group()))
    return;
  Value steps = stepsOfRun(block), first = mul(div(add(lengthOfRun(block), size - 1), size), size / 2);
  forLoop(number(0), div(block.runs, plan.stretches()), 1, [&](Value run) {
    forLoop(first, steps, 1, [&](Value step) { body(add(mul(run, steps), step)); });
  });
}

// Which elements of a group of four or two its words hold, low and high half.
llvm::ArrayRef<std::pair<size_t, size_t>> ContractEmitter::pairing() {
  static const std::pair<size_t, size_t> chains[] = {{2, 0}, {3, 1}}, neighbours[] = {{0, 1}}, chain[] = {{1, 0}};
  return plan.amx ? llvm::ArrayRef(neighbours) : plan.inOrder ? llvm::ArrayRef(chain) : llvm::ArrayRef(chains);
}

// The halves of a row of `count` elements in the order of its words.
SmallVector<int64_t> ContractEmitter::orderOfHalves(int64_t count) {
  SmallVector<int64_t> order;
  for (int64_t first = 0; first < count; first += int64_t(2 * pairing().size()))
    for (auto [low, high] : pairing())
      order.append({first + int64_t(low), first + int64_t(high)});
  return order;
}

// ---- Words ----------------------------------------------------------------------------------------------------------

// Of rounded f32.
Value ContractEmitter::halvesOf(Value values) { return emitNarrowed(builder, loc, values); }

// A vector of words of two vectors of halves; below, one of two of them, where an i32 is a half that is extended already.
Value ContractEmitter::wordsOf(Value low, Value high, int64_t count) {
  SmallVector<int64_t> order;
  for (int64_t i = 0; i < count; ++i) {
    order.push_back(i);
    order.push_back(count + i);
  }
  Value both = vector::ShuffleOp::create(builder, loc, low, high, order);
  return vector::BitCastOp::create(builder, loc, VectorType::get({count}, builder.getI32Type()), both);
}

Value ContractEmitter::word(Value low, Value high) {
  auto wide = [&](Value half) -> Value {
    return half.getType().isInteger(32) ? half : Value(arith::ExtUIOp::create(builder, loc, builder.getI32Type(), half));
  };
  Value shift = arith::ConstantIntOp::create(builder, loc, 16, 32);
  return arith::OrIOp::create(builder, loc, wide(low), arith::ShLIOp::create(builder, loc, wide(high), shift));
}

static Value splatOf(OpBuilder &builder, Location loc, int64_t count, int16_t half) {
  auto type = VectorType::get({count}, builder.getI16Type());
  return arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, half));
}
static Value zeroOf(OpBuilder &builder, Location loc) {
  return arith::ConstantOp::create(builder, loc, builder.getI16IntegerAttr(0));
}

// ---- A --------------------------------------------------------------------------------------------------------------

// Rows are copied as halves in their order, and then set in the order of the words.
Value ContractEmitter::rowTarget(Value row) {
  Value target = add(threadScratch, mul(row, plan.rowPitchA()));
  return plan.hasWords() ? mul(target, 2) : target;
}

Value ContractEmitter::runTarget(Value target, KBlock block, Value run) {
  if (!plan.hasWords())
    return add(target, mul(run, block.length));
  int64_t stretches = plan.stretches();
  Value start = mul(mul(div(run, stretches), stepsOfRun(block)), 2);
  return add(add(target, start), mul(rem(run, stretches), plan.k.size));
}

void ContractEmitter::finishRow(Value target, KBlock block) {
  if (!plan.hasWords())
    return;
  Value runs = div(block.runs, plan.stretches()), length = lengthOfRun(block), steps = stepsOfRun(block);
  int64_t tail = (plan.stretches() > 1 ? plan.runLength : plan.k.size) % plan.group();
  if (tail) // where a block ends with a whole group, this lies behind the row
    forLoop(number(0), runs, 1, [&](Value run) {
      Value end = add(add(target, mul(mul(run, steps), 2)), length);
      int64_t fill = plan.group() - tail; // at most the 32 halves of a vector
      Value zeros = splatOf(builder, loc, fill, 0);
      vector::StoreOp::create(builder, loc, zeros, halves, ValueRange{end});
    });
  if (plan.amx)
    return; // words of neighbours
  auto type = VectorType::get({2 * plan.lanes}, builder.getI16Type());
  SmallVector<int64_t> order = orderOfHalves(2 * plan.lanes);
  forLoop(number(0), mul(mul(runs, steps), 2), 2 * plan.lanes, [&](Value at) {
    Value row = vector::LoadOp::create(builder, loc, type, halves, ValueRange{add(target, at)});
    vector::StoreOp::create(builder, loc, vector::ShuffleOp::create(builder, loc, row, row, order), halves, ValueRange{add(target, at)});
  });
}

// The element of `rows` rows that follow each other in memory, as halves.
Value ContractEmitter::halfOfA(const Origin &origin, const Element &element, Value row, int64_t rows) {
  Origin at = origin;
  moveA(at, plan.outerK, element.stretch);
  moveA(at, {plan.k}, element.k);
  Value there = plan.bounds.empty() ? Value() : exists(at.bound[0], at.bound[1]);
  if (!there)
    return halvesOf(loadVector(memA, add(at.a, row), rows, rows));
  Value mask = vector::BroadcastOp::create(builder, loc, VectorType::get({rows}, builder.getI1Type()), there);
  return halvesOf(loadMasked(memA, add(at.a, row), mask));
}

// The element of one row.
Value ContractEmitter::elementOfA(const Origin &origin, const Element &element, Value row) {
  Origin at = origin;
  moveA(at, plan.outerK, element.stretch);
  moveA(at, {plan.k}, element.k);
  moveA(at, {plan.m}, row);
  if (plan.bounds.empty())
    return halvesOf(loadScalar(memA, at.a));
  Value there = exists(at.bound[0], at.bound[1]);
  Value half = halvesOf(loadScalar(memA, arith::SelectOp::create(builder, loc, there, at.a, number(0))));
  return arith::SelectOp::create(builder, loc, there, half, zeroOf(builder, loc));
}

void ContractEmitter::packWordsA(const Origin &origin, Range m, KBlock block) {
  if (plan.amx)
    return packRowsOfWords(origin, m, block);
  int64_t fullEnd = plan.m.size / plan.mr * plan.mr, edge = plan.m.size % plan.mr;
  bool together = plan.m.a == 1 && !plan.m.isBounded();
  forGroups(block, int64_t(2 * pairing().size()), [&](Value step, llvm::ArrayRef<Element> elements) {
    auto panel = [&](Value row, int64_t rows) {
      Value to = add(threadScratch, mul(div(sub(row, m.first), plan.mr), plan.panelA()));
      for (auto [which, halvesAt] : llvm::enumerate(pairing())) {
        auto [low, high] = halvesAt;
        Value target = add(to, mul(add(step, int64_t(which)), plan.mr));
        auto half = [&](size_t i, Value row, bool all) -> Value {
          if (i >= elements.size())
            return all ? splatOf(builder, loc, rows, 0) : zeroOf(builder, loc);
          return all ? halfOfA(origin, elements[i], row, rows) : elementOfA(origin, elements[i], row);
        };
        if (together) {
          Value all = wordsOf(half(low, row, true), half(high, row, true), rows);
          vector::StoreOp::create(builder, loc, all, words, ValueRange{target});
          continue;
        }
        forLoop(number(0), number(rows), 1, [&, low = low, high = high](Value i) {
          Value one = word(half(low, add(row, i), false), half(high, add(row, i), false));
          memref::StoreOp::create(builder, loc, one, words, ValueRange{add(target, i)});
        });
      }
    };
    auto edgePanel = [&](Value row) { panel(row, edge); };
    forTiles(
        m.first, m.second, plan.mr, fullEnd, [&](Value row) { panel(row, plan.mr); }, edge ? Body(edgePanel) : Body());
  });
}

// ---- B --------------------------------------------------------------------------------------------------------------

// Where a pair of panels is packed, few lines of a row follow each other and no hardware prefetcher does: those of a later row are asked for meanwhile.
static constexpr int64_t kAheadInB = 16; // elements of k
void ContractEmitter::packWordsB(Value base, Range n, KBlock block) {
  int64_t size = int64_t(2 * pairing().size());
  forGroups(block, size, [&](Value step, llvm::ArrayRef<Element> elements) {
    SmallVector<Value> places;
    for (const Element &element : elements)
      places.push_back(add(add(base, offsetIn(plan.outerK, &ContractDim::b, element.stretch)), mul(element.k, plan.k.b)));
    forPanels(n, [&](Value column, Value panel, int64_t columns) {
      for (auto [which, halvesAt] : llvm::enumerate(pairing())) {
        auto [low, high] = halvesAt;
        Value target = add(panel, mul(add(step, int64_t(which)), plan.nr()));
        auto at = [&](size_t i) { return add(places[i], mul(column, plan.n.b)); };
        if (plan.packB == PackedB::Copy) {
          for (size_t i : {low, high})
            for (int64_t j = 0; plan.pairOfPanels && i < places.size() && j < columns; j += 64 / bytesOf(plan.b.elem))
              askFor(memB, add(at(i), kAheadInB * plan.k.b + j));
          auto half = [&](size_t i, int64_t j) {
            return i < places.size() ? halvesOf(loadVector(memB, add(at(i), j), plan.lanes, columns - j))
                                     : splatOf(builder, loc, plan.lanes, kMinusZero);
          };
          for (int64_t j = 0; j < columns; j += plan.lanes)
            vector::StoreOp::create(builder, loc, wordsOf(half(low, j), half(high, j), plan.lanes), words, ValueRange{add(target, j)});
          continue;
        }
        forLoop(number(0), number(columns), 1, [&](Value j) {
          auto half = [&](size_t i) {
            return i < places.size() ? halvesOf(loadScalar(memB, add(at(i), mul(j, plan.n.b))))
                                     : Value(arith::ConstantIntOp::create(builder, loc, 0x8000, 32));
          };
          memref::StoreOp::create(builder, loc, word(half(low), half(high)), words, ValueRange{add(target, j)});
        });
      }
    });
  });
  forFillings(block, size, [&](Value step) {
    auto type = VectorType::get({plan.lanes}, builder.getI32Type());
    Value minusZeros = vector::BitCastOp::create(builder, loc, type, splatOf(builder, loc, 2 * plan.lanes, kMinusZero));
    forPanels(n, [&](Value, Value panel, int64_t) {
      for (int64_t j = 0; j < plan.nr(); j += plan.lanes)
        vector::StoreOp::create(builder, loc, minusZeros, words, ValueRange{add(add(panel, mul(step, plan.nr())), j)});
    });
  });
}

// Squares of words: loaded along k, set in the order of the words, transposed in registers, stored along n. Rows past the edge of n repeat
// the last.
void ContractEmitter::transposeWords(Value base, Value column, Value panel, int64_t columns, KBlock block) {
  int64_t lanes = plan.lanes, reach = 2 * lanes;
  bool narrow = plan.b.elem == Elem::BF16;
  auto type = VectorType::get({reach}, narrow ? Type(builder.getI16Type()) : elementType());
  auto minusZero = narrow ? splatOf(builder, loc, reach, kMinusZero)
                          : Value(arith::ConstantOp::create(builder, loc, DenseElementsAttr::get(type, builder.getF32FloatAttr(-0.0f))));
  SmallVector<int64_t> order = orderOfHalves(reach);
  forLoop(number(0), block.runs, 1, [&](Value run) {
    Value source = add(base, offsetOfRun(block, run, &ContractDim::b));
    Value target = add(panel, mul(mul(run, stepsOfRun(block)), plan.nr()));
    forLoop(number(0), number(columns), lanes, [&](Value j) {
      forLoop(number(0), block.length, reach, [&](Value k) {
        Value mask;
        if (!isMultiple(block.length, reach))
          mask = vector::CreateMaskOp::create(builder, loc, VectorType::get({reach}, builder.getI1Type()), sub(block.length, k));
        SmallVector<Value> rows;
        for (int64_t i = 0; i < lanes; ++i) {
          Value row = add(column, add(j, i));
          if (columns % lanes != 0)
            row = min(row, plan.n.size - 1);
          Value at = add(add(source, mul(row, plan.n.b)), k);
          Value values = mask ? Value(vector::MaskedLoadOp::create(builder, loc, type, memB, ValueRange{at}, mask, minusZero))
                              : Value(vector::LoadOp::create(builder, loc, type, memB, ValueRange{at}));
          if (!narrow)
            values = halvesOf(loaded(values, memB));
          values = vector::ShuffleOp::create(builder, loc, values, values, order);
          rows.push_back(vector::BitCastOp::create(builder, loc, VectorType::get({lanes}, builder.getI32Type()), values));
        }
        rows = emitTransposed(builder, loc, rows);
        for (int64_t i = 0; i < lanes; ++i)
          vector::StoreOp::create(builder, loc, rows[i], words, ValueRange{add(add(target, mul(add(div(k, 2), i), plan.nr())), j)});
      });
    });
  });
}

} // namespace cinch::kernels
