// Pool.cpp: the largest or the sum of each window of an image, and their gradients. Vectors run over the channels; the loops
// over a window visit only what lies inside, in the order of its numbers.
#include "compiler/kernels/Device.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/Builders.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/STLFunctionalExtras.h"
#include <limits>

using namespace mlir;

namespace cinch::kernels {
namespace {

int64_t countOf(const std::vector<int64_t> &dims) {
  int64_t count = 1;
  for (int64_t size : dims)
    count *= size;
  return count;
}
int64_t elementsOf(const PoolSpec &spec) {
  const int64_t *size = spec.gradient() ? spec.image : spec.places;
  return countOf(spec.lead) * size[0] * size[1] * spec.C;
}

class PoolEmitter {
public:
  PoolEmitter(OpBuilder &b, const PoolSpec &spec, const TargetInfo &target, func::FuncOp function)
      : b(b), loc(b.getUnknownLoc()), spec(spec), function(function) {
    bool wide = spec.elem == Elem::F64;
    elem = wide ? Type(b.getF64Type()) : Type(b.getF32Type());
    onDevice = target.isDevice();
    lanes = onDevice ? 1 : wide ? target.lanes / 2 : target.lanes;
  }

  // Items are rows of the result; on a GPU its elements, neighbours in neighbouring threads.
  void emit() {
    Block &entry = function.getBody().front();
    x = memoryOf(spec.x, storedType(spec.x));
    y = memoryOf(spec.y, storedType(spec.y));
    if (spec.hasPlace())
      place = memoryOf(spec.place, b.getI32Type());
    const int64_t *size = spec.gradient() ? spec.image : spec.places;
    if (onDevice)
      return elements();
    const int64_t items = itemsOf(spec);
    auto first = [&](Value part) -> Value {
      return arith::DivUIOp::create(b, loc, mul(part, items), entry.getArgument(4));
    };
    Value thread = entry.getArgument(3);
    loop(first(thread), first(add(thread, index(1))), 1, [&](Value item) {
      Value row = arith::RemUIOp::create(b, loc, item, index(size[0]));
      Value lead = arith::DivUIOp::create(b, loc, item, index(size[0]));
      loop(index(0), index(size[1]), 1, [&](Value column) { spec.gradient() ? scatter(lead, row, column) : window(lead, row, column); });
    });
  }

private:
  void elements() {
    Block &entry = function.getBody().front();
    const int64_t *size = spec.gradient() ? spec.image : spec.places;
    auto each = scf::ForOp::create(b, loc, entry.getArgument(3), index(elementsOf(spec)), entry.getArgument(4));
    b.setInsertionPointToStart(each.getBody());
    Value rest = each.getInductionVar();
    auto take = [&](int64_t size) {
      Value at = arith::RemUIOp::create(b, loc, rest, index(size));
      rest = arith::DivUIOp::create(b, loc, rest, index(size));
      return at;
    };
    onlyChannel = take(spec.C);
    Value column = take(size[1]), row = take(size[0]);
    spec.gradient() ? scatter(rest, row, column) : window(rest, row, column);
  }

  struct Taps { // of one direction: numbers in the window, and where the first of them lies
    Value first, end, at;
  };

  Value index(int64_t number) { return arith::ConstantIndexOp::create(b, loc, number); }
  Value add(Value x, Value y) { return arith::AddIOp::create(b, loc, x, y); }
  Value sub(Value x, Value y) { return arith::SubIOp::create(b, loc, x, y); }
  Value mul(Value x, int64_t y) { return arith::MulIOp::create(b, loc, x, index(y)); }
  Value least(Value x, Value y) { return arith::MinSIOp::create(b, loc, x, y); }
  Value largest(Value x, Value y) { return arith::MaxSIOp::create(b, loc, x, y); }

  void loop(Value from, Value to, int64_t step, llvm::function_ref<void(Value)> body) {
    auto made = scf::ForOp::create(b, loc, from, to, index(step));
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(made.getBody());
    body(made.getInductionVar());
  }
  SmallVector<Value> loop(Value from, Value to, int64_t step, ValueRange init,
                          llvm::function_ref<SmallVector<Value>(Value, ValueRange)> body) {
    auto made = scf::ForOp::create(b, loc, from, to, index(step), init);
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(made.getBody());
    scf::YieldOp::create(b, loc, body(made.getInductionVar(), made.getRegionIterArgs()));
    return {made.getResults().begin(), made.getResults().end()};
  }

  // Elements of bf16 are kept as their bits.
  Type storedType(const View &view) { return view.elem == Elem::BF16 ? Type(b.getI16Type()) : elem; }
  Value memoryOf(const View &view, Type type) {
    Block &entry = function.getBody().front();
    Value byte = memref::LoadOp::create(b, loc, entry.getArgument(1), index(view.buffer));
    byte = arith::IndexCastOp::create(b, loc, b.getIndexType(), byte);
    auto memory = MemRefType::get({kArenaBytes / (type.getIntOrFloatBitWidth() / 8)}, type);
    return memref::ViewOp::create(b, loc, memory, entry.getArgument(0), byte, ValueRange{});
  }
  // Element (lead, row, column, 0).
  Value placeOf(const View &view, Value lead, Value row, Value column) {
    size_t leads = spec.lead.size();
    Value at = add(index(view.offset), add(mul(row, view.strides[leads]), mul(column, view.strides[leads + 1])));
    for (size_t i = leads; i-- > 0; lead = arith::DivUIOp::create(b, loc, lead, index(spec.lead[i])))
      at = add(at, mul(arith::RemUIOp::create(b, loc, lead, index(spec.lead[i])), view.strides[i]));
    return at;
  }

  Value splat(Type type, double number) {
    auto vector = VectorType::get({lanes}, type);
    Attribute value = isa<FloatType>(type) ? Attribute(b.getFloatAttr(type, number))
                                           : Attribute(b.getIntegerAttr(type, int64_t(number)));
    return arith::ConstantOp::create(b, loc, DenseElementsAttr::get(vector, value));
  }
  static bool isNarrow(Value memory) { return cast<MemRefType>(memory.getType()).getElementType().isInteger(16); }
  Value load(Value memory, Value at, Value mask) {
    Type type = cast<MemRefType>(memory.getType()).getElementType();
    auto vector = VectorType::get({lanes}, type);
    Value loaded = mask ? Value(vector::MaskedLoadOp::create(b, loc, vector, memory, at, mask, splat(type, 0)))
                        : Value(vector::LoadOp::create(b, loc, vector, memory, at));
    return isNarrow(memory) ? emitWidened(b, loc, loaded) : loaded;
  }
  void store(Value value, Value memory, Value at, Value mask) {
    bool narrow = isNarrow(memory);
    if (narrow) // the largest of bf16 is one of them
      value = emitNarrowed(b, loc, value);
    if (mask && narrow && spec.C % lanes == 1) // LLVM 22 makes a scalar store of the wide type of such a masked one (its issue 179489)
      memref::StoreOp::create(b, loc, vector::ExtractOp::create(b, loc, value, ArrayRef<int64_t>{0}), memory, at);
    else if (mask)
      vector::MaskedStoreOp::create(b, loc, memory, at, mask, value);
    else
      vector::StoreOp::create(b, loc, value, memory, at);
  }
  // The channels: whole vectors, then what is left; on a GPU that of the thread.
  void forChannels(llvm::function_ref<void(Value channel, Value mask)> body) {
    if (onDevice)
      return body(onlyChannel, Value());
    int64_t full = spec.C / lanes * lanes;
    if (full > 0)
      loop(index(0), index(full), lanes, [&](Value channel) { body(channel, Value()); });
    if (full < spec.C) {
      Value mask = vector::ConstantMaskOp::create(b, loc, VectorType::get({lanes}, b.getI1Type()),
                                                  b.getDenseI64ArrayAttr({spec.C - full}));
      body(index(full), mask);
    }
  }

  Value numberOf(Value r, Value s) { // in the window, in every lane
    Value number = add(mul(r, spec.window[1]), s);
    number = arith::IndexCastOp::create(b, loc, b.getI32Type(), number);
    return vector::BroadcastOp::create(b, loc, VectorType::get({lanes}, b.getI32Type()), number);
  }

  // Of window number `at` along an axis: those inside the image.
  Taps inside(Value at, int axis) {
    Value begin = sub(mul(at, spec.stride[axis]), index(spec.pad[axis]));
    return {largest(index(0), sub(index(0), begin)), least(index(spec.window[axis]), sub(index(spec.image[axis]), begin)), begin};
  }
  void window(Value lead, Value row, Value column) {
    Taps rows = inside(row, 0), columns = inside(column, 1);
    size_t leads = spec.lead.size();
    Value from = placeOf(spec.x, lead, rows.at, columns.at), to = placeOf(spec.y, lead, row, column);
    bool max = spec.kind == PoolKind::Max;
    Value toPlace = max ? placeOf(spec.place, lead, row, column) : Value();
    forChannels([&](Value channel, Value mask) {
      SmallVector<Value> init{splat(elem, max ? -std::numeric_limits<double>::infinity() : 0)};
      if (max)
        init.push_back(numberOf(rows.first, columns.first));
      SmallVector<Value> found = loop(rows.first, rows.end, 1, init, [&](Value r, ValueRange outer) {
        Value ofRow = add(add(from, channel), mul(r, spec.x.strides[leads]));
        return loop(columns.first, columns.end, 1, outer, [&](Value s, ValueRange so) -> SmallVector<Value> {
          Value element = load(x, add(ofRow, mul(s, spec.x.strides[leads + 1])), mask);
          if (!max)
            return {arith::AddFOp::create(b, loc, so[0], element)};
          // Larger or a NaN, unless there is a NaN already.
          Value larger = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::UGT, element, so[0]);
          Value ordered = arith::CmpFOp::create(b, loc, arith::CmpFPredicate::ORD, so[0], so[0]);
          Value takes = arith::AndIOp::create(b, loc, larger, ordered);
          return {arith::SelectOp::create(b, loc, takes, element, so[0]),
                  arith::SelectOp::create(b, loc, takes, numberOf(r, s), so[1])};
        });
      });
      store(found[0], y, add(to, channel), mask);
      if (max)
        store(found[1], place, add(toPlace, channel), mask);
    });
  }

  // Of row or column `at` of the image: its numbers in the windows that it lies in, ascending, every stride-th.
  Taps windowsOf(Value at, int axis) {
    Value shifted = add(at, index(spec.pad[axis]));
    Value remainder = arith::RemUIOp::create(b, loc, shifted, index(spec.stride[axis]));
    Value first = largest(remainder, sub(shifted, index((spec.places[axis] - 1) * spec.stride[axis])));
    return {first, least(index(spec.window[axis]), add(shifted, index(1))), shifted};
  }
  void scatter(Value lead, Value row, Value column) {
    Taps rows = windowsOf(row, 0), columns = windowsOf(column, 1);
    Value to = placeOf(spec.y, lead, row, column);
    auto windowAt = [&](Value shifted, Value number, int axis) -> Value {
      return arith::DivUIOp::create(b, loc, sub(shifted, number), index(spec.stride[axis]));
    };
    forChannels([&](Value channel, Value mask) {
      SmallVector<Value> sum = loop(rows.first, rows.end, spec.stride[0], {splat(elem, 0)}, [&](Value r, ValueRange outer) {
        Value p = windowAt(rows.at, r, 0);
        return loop(columns.first, columns.end, spec.stride[1], outer, [&](Value s, ValueRange so) -> SmallVector<Value> {
          Value q = windowAt(columns.at, s, 1);
          Value more = arith::AddFOp::create(b, loc, so[0], load(x, add(placeOf(spec.x, lead, p, q), channel), mask));
          if (!spec.hasPlace())
            return {more};
          Value places = load(place, add(placeOf(spec.place, lead, p, q), channel), mask);
          Value here = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, places, numberOf(r, s));
          return {arith::SelectOp::create(b, loc, here, more, so[0])};
        });
      });
      store(sum[0], y, add(to, channel), mask);
    });
  }

  OpBuilder &b;
  Location loc;
  const PoolSpec &spec;
  func::FuncOp function;
  Type elem;
  int64_t lanes;
  bool onDevice;
  Value x, y, place, onlyChannel;
};

} // namespace

Grid gridOf(const PoolSpec &spec, const TargetInfo &target) {
  return {std::clamp<int64_t>(elementsOf(spec), 1, target.processors * kThreadsOfProcessor), 1, 128};
}

int64_t itemsOf(const PoolSpec &spec) { return countOf(spec.lead) * (spec.gradient() ? spec.image : spec.places)[0]; } // rows of the result

func::FuncOp buildPool(OpBuilder &b, ModuleOp module, const std::string &name, const PoolSpec &spec, const TargetInfo &target) {
  OpBuilder::InsertionGuard guard(b);
  b.setInsertionPointToEnd(module.getBody());
  Location loc = b.getUnknownLoc();
  Type index = b.getIndexType(), word = b.getI64Type();
  int64_t buffers = spec.hasPlace() ? 3 : 2;
  auto type = b.getFunctionType({MemRefType::get({kArenaBytes}, b.getI8Type()), MemRefType::get({buffers}, word),
                                 MemRefType::get({kContextWords}, word), index, index},
                                {});
  auto function = func::FuncOp::create(b, loc, name, type);
  b.setInsertionPointToStart(function.addEntryBlock());
  func::ReturnOp::create(b, loc);
  b.setInsertionPointToStart(&function.getBody().front());
  PoolEmitter(b, spec, target, function).emit();
  return function;
}

} // namespace cinch::kernels
