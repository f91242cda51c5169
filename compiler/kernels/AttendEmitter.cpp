// AttendEmitter.cpp: values, loops and memory of the attention kernels, and where a head lies.
#include "compiler/kernels/Amx.h"
#include "compiler/kernels/AttendEmitter.h"
#include "compiler/kernels/ElemFacts.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {

int64_t bufferCount(const AttendSpec &spec) {
  int last = std::max({spec.q.buffer, spec.k.buffer, spec.v.buffer, spec.o.buffer, spec.lse.buffer});
  if (spec.hasKeys)
    last = std::max(last, spec.keys.buffer);
  if (spec.hasBias)
    last = std::max(last, spec.bias.buffer);
  return last + 1;
}

int64_t bufferCount(const AttendGradSpec &spec) {
  int64_t count = bufferCount(spec.forward);
  for (const View *view : {&spec.dout, &spec.dq, &spec.dk, &spec.dv})
    count = std::max<int64_t>(count, view->buffer + 1);
  return spec.wantsBiasGrad ? std::max<int64_t>(count, spec.dbias.buffer + 1) : count;
}

int64_t headsOf(const AttendSpec &spec) {
  int64_t heads = spec.A;
  for (int64_t size : spec.lead)
    heads *= size;
  return heads;
}

int64_t queryBlockOf(const AttendSpec &spec) {
  int64_t lanes = logicalLanes(spec.elem);
  return std::min<int64_t>(64, (spec.T + lanes - 1) / lanes * lanes);
}

AttendEmitter::AttendEmitter(OpBuilder &builder, ModuleOp module, const std::string &name, const AttendSpec &spec,
                             const TargetInfo &target, int64_t buffers, int64_t ownScratch)
    : b(builder), loc(builder.getUnknownLoc()), spec(spec) {
  elem = valueType(b, spec.elem);
  lanes = logicalLanes(spec.elem);
  queryBlock = queryBlockOf(spec);
  vector = VectorType::get({lanes}, elem);
  // Accumulators that fit the registers: 6 x 4 of 32, or 6 x 2 halves of 16. Rows of bf16 have two chains, and those of a tile have the same
  // terms. By words, both chains and the sum are in registers at once.
  amx = spec.pairs && target.amx;
  dots = spec.pairs && target.dots && !amx;
  tileRows = dots ? 8 : spec.pairs ? 4 : 6;
  tileVectors = dots || target.lanes < 16 ? 1 : 4;

  Type indexType = b.getIndexType();
  auto arenaType = MemRefType::get({kArenaBytes}, b.getI8Type());
  auto offsetsType = MemRefType::get({buffers + 2 + std::max(spec.keyWord, spec.dropoutWord + 1)}, b.getI64Type());
  auto contextType = MemRefType::get({kContextWords}, b.getI64Type());
  b.setInsertionPointToEnd(module.getBody());
  function = func::FuncOp::create(b, loc, name,
                                  b.getFunctionType({arenaType, offsetsType, contextType, indexType, indexType}, {}));
  if (spec.pairs && !target.isDevice())
    function->setAttr(kFlushesAttr, b.getUnitAttr());
  Block *entry = function.addEntryBlock();
  arena = entry->getArgument(0);
  offsets = entry->getArgument(1);
  context = entry->getArgument(2);
  thread = entry->getArgument(3);
  threads = entry->getArgument(4);
  b.setInsertionPointToStart(entry);
  func::ReturnOp::create(b, loc);
  b.setInsertionPointToStart(entry);
  Value start = memref::LoadOp::create(b, loc, offsets, index(buffers));
  start = arith::IndexCastOp::create(b, loc, indexType, start);
  scratchStart = add(start, mul(thread, attendScratch(spec, ownScratch, target)));
  drawsAt = ownScratch;
  panelsAt = ownScratch + attendDrawBytes(spec);
  if (amx) {
    Amx(b, loc).release();
    b.setInsertionPoint(entry->getTerminator()->getPrevNode()); // all else goes in front of it
    Amx(b, loc).configure();
  }
  if (spec.dropout <= 0)
    return;
  auto word = [&](int number) -> Value { return memref::LoadOp::create(b, loc, offsets, index(buffers + 1 + number)); };
  drawKey = spec.keyWord < 0 ? emitDrawKey(b, loc, context, spec.key) : emitDrawKey(b, loc, context, word(spec.keyWord));
  if (spec.dropoutWord >= 0) {
    keptBelow = word(spec.dropoutWord);
    factorOfKept = emitNumberOfWord(b, loc, elem, word(spec.dropoutWord + 1));
  } else {
    factorOfKept = emitNumber(b, loc, elem, 1 / (1 - spec.dropout));
  }
}

// ---- Numbers --------------------------------------------------------------------------------------------------------

Value AttendEmitter::index(int64_t value) { return arith::ConstantIndexOp::create(b, loc, value); }
Value AttendEmitter::add(Value x, Value y) { return b.createOrFold<arith::AddIOp>(loc, x, y); }
Value AttendEmitter::add(Value x, int64_t y) { return y == 0 ? x : add(x, index(y)); }
Value AttendEmitter::sub(Value x, Value y) { return b.createOrFold<arith::SubIOp>(loc, x, y); }
Value AttendEmitter::mul(Value x, int64_t y) {
  if (y == 1)
    return x;
  return y == 0 ? index(0) : b.createOrFold<arith::MulIOp>(loc, x, index(y));
}
Value AttendEmitter::min(Value x, Value y) { return b.createOrFold<arith::MinSIOp>(loc, x, y); }
Value AttendEmitter::ceilDiv(Value x, int64_t y) {
  return b.createOrFold<arith::DivUIOp>(loc, add(x, y - 1), index(y));
}

Value AttendEmitter::number(double value) {
  return arith::ConstantOp::create(b, loc, cast<TypedAttr>(b.getFloatAttr(elem, value)));
}
Value AttendEmitter::splat(double value) {
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(vector, b.getFloatAttr(elem, value)));
}
Value AttendEmitter::splat(Value scalar) {
  return vector::BroadcastOp::create(b, loc, VectorType::get({lanes}, scalar.getType()), scalar);
}
Value AttendEmitter::fadd(Value x, Value y) { return arith::AddFOp::create(b, loc, x, y); }
Value AttendEmitter::fsub(Value x, Value y) { return arith::SubFOp::create(b, loc, x, y); }
Value AttendEmitter::fmul(Value x, Value y) { return arith::MulFOp::create(b, loc, x, y); }
Value AttendEmitter::fdiv(Value x, Value y) { return arith::DivFOp::create(b, loc, x, y); }
Value AttendEmitter::fma(Value x, Value y, Value z) { return math::FmaOp::create(b, loc, x, y, z); }
Value AttendEmitter::larger(Value x, Value y) {
  Value greater = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OGT, x, y);
  return arith::SelectOp::create(b, loc, greater, x, y);
}
Value AttendEmitter::isEqual(Value x, double value) {
  return arith::CmpFOp::create(b, loc, arith::CmpFPredicate::OEQ, x, splat(value));
}
Value AttendEmitter::select(Value condition, Value x, Value y) {
  return arith::SelectOp::create(b, loc, condition, x, y);
}

Value AttendEmitter::rounded(Value x) { return spec.pairs ? emitRounded(b, loc, x) : x; }
Value AttendEmitter::exp(Value x) { return emitElementwise(b, loc, LoopOp::Exp, spec.elem, {x}); }
Value AttendEmitter::log(Value x) { return emitElementwise(b, loc, LoopOp::Log, spec.elem, {x}); }

// ---- Loops ----------------------------------------------------------------------------------------------------------

void AttendEmitter::loop(Value from, Value to, int64_t step, llvm::function_ref<void(Value)> body) {
  auto loop = scf::ForOp::create(b, loc, from, to, index(step));
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  body(loop.getInductionVar());
}

SmallVector<Value> AttendEmitter::loop(Value from, Value to, int64_t step, ValueRange init,
                                       llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body) {
  auto loop = scf::ForOp::create(b, loc, from, to, index(step), init);
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToStart(loop.getBody());
  SmallVector<Value> results = body(loop.getInductionVar(), loop.getRegionIterArgs());
  if (!init.empty())
    scf::YieldOp::create(b, loc, results);
  return loop.getResults();
}

void AttendEmitter::forItems(int64_t items, llvm::function_ref<void(Value)> body) {
  Value all = index(items);
  Value from = arith::DivUIOp::create(b, loc, arith::MulIOp::create(b, loc, all, thread), threads);
  Value to = arith::DivUIOp::create(b, loc, arith::MulIOp::create(b, loc, all, add(thread, 1)), threads);
  loop(from, to, 1, body);
}

// ---- Memory ---------------------------------------------------------------------------------------------------------

static MemRefType memoryType(Type elem, int64_t bytes) { return MemRefType::get({kArenaBytes / bytes}, elem); }

Value AttendEmitter::bufferMemory(const View &view) {
  Value start = memref::LoadOp::create(b, loc, offsets, index(view.buffer));
  start = arith::IndexCastOp::create(b, loc, b.getIndexType(), start);
  const Elem of = view.elem == Elem::Bool || view.elem == Elem::BF16 ? view.elem : spec.elem;
  Type type = of == Elem::Bool ? Type(b.getI8Type()) : of == Elem::BF16 ? Type(b.getI16Type()) : elem;
  return memref::ViewOp::create(b, loc, memoryType(type, bytesOf(of)), arena, start, ValueRange());
}

Place AttendEmitter::scratch(int64_t byteOffset) {
  Value start = add(scratchStart, byteOffset);
  return {memref::ViewOp::create(b, loc, memoryType(elem, bytesOf(spec.elem)), arena, start, ValueRange()), index(0)};
}

Place AttendEmitter::place(const View &view, ValueRange leading) {
  Value at = index(view.offset);
  for (auto [i, value] : llvm::enumerate(leading))
    at = add(at, mul(value, view.strides[i]));
  return {bufferMemory(view), at};
}

// An operand of bf16 lies as that; whoever reads it gets the f32 that it stands for.
static Type typeInMemory(Place place) { return cast<MemRefType>(place.memory.getType()).getElementType(); }
bool AttendEmitter::isNarrow(Place place) { return typeInMemory(place).isInteger(16); }
Value AttendEmitter::widened(Value x) { return getElementTypeOrSelf(x.getType()).isInteger(16) ? emitWidened(b, loc, x) : x; }

Value AttendEmitter::load(Place place, Value offset) {
  return widened(memref::LoadOp::create(b, loc, place.memory, add(place.at, offset)));
}
Value AttendEmitter::loadVector(Place place, Value offset) { return loadSome(place, offset, lanes, vector); }
void AttendEmitter::store(Value value, Place place, Value offset) {
  memref::StoreOp::create(b, loc, value, place.memory, ValueRange{add(place.at, offset)});
}
void AttendEmitter::storeVector(Value value, Place place, Value offset) {
  vector::StoreOp::create(b, loc, value, place.memory, ValueRange{add(place.at, offset)});
}

static Value firstLanes(OpBuilder &b, Location loc, int64_t lanes, int64_t count) {
  SmallVector<bool> mask(lanes);
  std::fill_n(mask.begin(), count, true);
  auto type = VectorType::get({lanes}, b.getI1Type());
  return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(type, ArrayRef<bool>(mask)));
}

Value AttendEmitter::loadSome(Place place, Value offset, int64_t count, VectorType type) {
  Value at = add(place.at, offset);
  auto there = VectorType::get(type.getShape(), typeInMemory(place));
  if (count == type.getDimSize(0))
    return widened(vector::LoadOp::create(b, loc, there, place.memory, ValueRange{at}));
  Value zero = arith::ConstantOp::create(b, loc, b.getZeroAttr(there));
  return widened(vector::MaskedLoadOp::create(b, loc, there, place.memory, ValueRange{at},
                                              firstLanes(b, loc, type.getDimSize(0), count), zero));
}
void AttendEmitter::storeSome(Value value, Place place, Value offset, int64_t count) {
  Value at = add(place.at, offset);
  int64_t all = cast<VectorType>(value.getType()).getDimSize(0);
  if (count == all)
    vector::StoreOp::create(b, loc, value, place.memory, ValueRange{at});
  else
    vector::MaskedStoreOp::create(b, loc, place.memory, ValueRange{at}, firstLanes(b, loc, all, count), value);
}

// ---- Heads ----------------------------------------------------------------------------------------------------------

SmallVector<Value> AttendEmitter::leadIndices(Value linear) {
  SmallVector<Value> result(spec.lead.size());
  for (int64_t i = spec.lead.size() - 1; i >= 0; --i) {
    if (i == 0) {
      result[i] = linear;
      break;
    }
    Value size = index(spec.lead[i]);
    result[i] = arith::RemUIOp::create(b, loc, linear, size);
    linear = arith::DivUIOp::create(b, loc, linear, size);
  }
  return result;
}

AttendEmitter::Head AttendEmitter::locate(ValueRange lead, Value head) {
  Head result;
  result.lead.assign(lead.begin(), lead.end());
  result.head = head;
  SmallVector<Value> query(lead), key(lead);
  query.push_back(head);
  key.push_back(b.createOrFold<arith::DivUIOp>(loc, head, index(spec.A / spec.G)));
  result.q = place(spec.q, query);
  result.k = place(spec.k, key);
  result.v = place(spec.v, key);
  if (spec.hasBias)
    result.bias = place(spec.bias, {head});
  if (spec.hasKeys)
    result.keys = place(spec.keys, lead);
  // The draw counts what an example holds: the other leading axes, then head, query, key.
  Value within = index(0);
  for (size_t i = 0; i < spec.lead.size(); ++i)
    if (int64_t(i) != spec.batchDim)
      within = add(mul(within, spec.lead[i]), lead[i]);
  Value example = memref::LoadOp::create(b, loc, context, index(kFirstExample));
  if (spec.batchDim >= 0)
    example =
        arith::AddIOp::create(b, loc, example, arith::IndexCastOp::create(b, loc, b.getI64Type(), lead[spec.batchDim]));
  else
    example = arith::ConstantIntOp::create(b, loc, 0, 64);
  result.example = example;
  result.firstDraw = mul(add(add(mul(within, spec.allHeads()), head), spec.headsBefore), spec.T * spec.S);
  return result;
}

void AttendEmitter::fillRows(Place to, int64_t rowStride, Value rows, int64_t cols, double value) {
  Value filler = splat(value);
  loop(index(0), rows, 1, [&](Value row) {
    for (int64_t col = 0; col < cols; col += lanes)
      storeSome(filler, to, add(mul(row, rowStride), col), std::min(lanes, cols - col));
  });
}

} // namespace cinch::kernels
