// Simt.cpp: teams of 16 threads, in the NVVM dialect.
#include "compiler/kernels/Simt.h"
#include "compiler/kernels/Device.h"
#include "compiler/kernels/MathEmit.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/IR/BuiltinTypes.h"

#include <algorithm>

using namespace mlir;

namespace cinch::kernels::simt {

static Value thread(OpBuilder &b, Location loc) { return NVVM::ThreadIdXOp::create(b, loc, b.getI32Type()); }
static Value number(OpBuilder &b, Location loc, int64_t n) { return emitInteger(b, loc, b.getI32Type(), n); }

Value threadOfBlock(OpBuilder &b, Location loc) {
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), thread(b, loc));
}

Value lane(OpBuilder &b, Location loc) {
  Value within = arith::AndIOp::create(b, loc, thread(b, loc), number(b, loc, kTeam - 1));
  return arith::IndexCastOp::create(b, loc, b.getIndexType(), within);
}

// The threads of the warp that the team has: the lower or the upper half.
static Value team(OpBuilder &b, Location loc) {
  Value upper = arith::AndIOp::create(b, loc, thread(b, loc), number(b, loc, kTeam));
  return arith::ShLIOp::create(b, loc, number(b, loc, 0xffff), upper);
}

void syncTeam(OpBuilder &b, Location loc) { NVVM::SyncWarpOp::create(b, loc, team(b, loc)); }
void syncBlock(OpBuilder &b, Location loc) { NVVM::Barrier0Op::create(b, loc); }

Value sharedMemory(OpBuilder &b, Location loc, Operation *function, const std::string &name, int64_t elements, Type type) {
  auto memory = MemRefType::get({elements}, type, MemRefLayoutAttrInterface(), b.getI64IntegerAttr(3));
  {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPoint(function);
    memref::GlobalOp::create(b, loc, name, b.getStringAttr("private"), memory, b.getUnitAttr(), false, b.getI64IntegerAttr(16));
  }
  return memref::GetGlobalOp::create(b, loc, memory, name);
}

// The shuffle has 32 bits at a time; segments of 16 lanes (PTX ISA, shfl.sync: bits 8 to 12 of c are the mask of the segment).
static Value word(OpBuilder &b, Location loc, Value value, NVVM::ShflKind kind, int operand) {
  return NVVM::ShflOp::create(b, loc, b.getI32Type(), team(b, loc), value, number(b, loc, operand), number(b, loc, (kTeam << 8) | 31),
                              kind, UnitAttr());
}

static Value shuffle(OpBuilder &b, Location loc, Value value, NVVM::ShflKind kind, int operand) {
  Type type = value.getType(), i32 = b.getI32Type(), i64 = b.getI64Type();
  unsigned bits = type.getIntOrFloatBitWidth();
  if (bits < 32) {
    Value wide = word(b, loc, arith::ExtUIOp::create(b, loc, i32, value), kind, operand);
    return arith::TruncIOp::create(b, loc, type, wide);
  }
  if (bits == 32) {
    Value plain = type.isInteger() ? value : Value(arith::BitcastOp::create(b, loc, i32, value));
    plain = word(b, loc, plain, kind, operand);
    return type.isInteger() ? plain : Value(arith::BitcastOp::create(b, loc, type, plain));
  }
  Value plain = type.isInteger() ? value : Value(arith::BitcastOp::create(b, loc, i64, value));
  Value half = emitInteger(b, loc, i64, 32);
  Value low = word(b, loc, arith::TruncIOp::create(b, loc, i32, plain), kind, operand);
  Value high = word(b, loc, arith::TruncIOp::create(b, loc, i32, arith::ShRUIOp::create(b, loc, plain, half)), kind, operand);
  plain = arith::OrIOp::create(b, loc, arith::ExtUIOp::create(b, loc, i64, low),
                               arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, i64, high), half));
  return type.isInteger() ? plain : Value(arith::BitcastOp::create(b, loc, type, plain));
}

Value fromBehind(OpBuilder &b, Location loc, Value value, int distance) {
  return shuffle(b, loc, value, NVVM::ShflKind::down, distance);
}
Value fromBeside(OpBuilder &b, Location loc, Value value, int distance) {
  Value plain = arith::BitcastOp::create(b, loc, b.getI32Type(), value);
  Value other = NVVM::ShflOp::create(b, loc, b.getI32Type(), number(b, loc, -1), plain, number(b, loc, distance), number(b, loc, 31),
                                     NVVM::ShflKind::bfly, UnitAttr());
  return arith::BitcastOp::create(b, loc, value.getType(), other);
}
Value fromFour(OpBuilder &b, Location loc, Value value, Value place) {
  return NVVM::ShflOp::create(b, loc, b.getI32Type(), number(b, loc, -1), value, place, number(b, loc, 28 << 8 | 31), NVVM::ShflKind::idx, UnitAttr());
}
Value fromBesideInTeam(OpBuilder &b, Location loc, Value value, int distance) { return word(b, loc, value, NVVM::ShflKind::bfly, distance); }
Value fromThread(OpBuilder &b, Location loc, Value value, int number) { return shuffle(b, loc, value, NVVM::ShflKind::idx, number); }
Value fromFirst(OpBuilder &b, Location loc, Value value) { return fromThread(b, loc, value, 0); }

} // namespace cinch::kernels::simt

namespace cinch::kernels {

Grid gridOfBlocks(int64_t items, int64_t threads, const TargetInfo &target) {
  constexpr int64_t kBlocksOfProcessor = 16;
  return {std::clamp<int64_t>(items, 1, target.processors * kBlocksOfProcessor), int(threads), int(threads)};
}

} // namespace cinch::kernels
