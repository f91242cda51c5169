// AttendBlocks.cpp: attention on a GPU: what the threads of a block do together, whatever computes their products.
#include "compiler/kernels/AttendDevice.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include <cmath>
#include <limits>

using namespace mlir;

namespace cinch::kernels {

BlockAttend::BlockAttend(OpBuilder &builder, ModuleOp module, const std::string &name, const AttendSpec &spec, const TargetInfo &target,
                         int64_t buffers)
    : AttendEmitter(builder, module, name, spec, target, buffers, 0) {
  self = simt::threadOfBlock(b, loc);
}

void BlockAttend::allowRegisters(int count) {
  Attribute most = b.getStrArrayAttr({"nvvm.maxnreg", std::to_string(count)});
  function->setAttr("passthrough", b.getArrayAttr({most}));
}

// ---- Index arithmetic, control, memory ---------------------------------------------------------------------------------------

Value BlockAttend::rem(Value x, int64_t y) { return y == 1 ? index(0) : b.createOrFold<arith::RemUIOp>(loc, x, index(y)); }
Value BlockAttend::div(Value x, int64_t y) { return y == 1 ? x : b.createOrFold<arith::DivUIOp>(loc, x, index(y)); }
Value BlockAttend::below(Value x, Value y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, x, y); }
Value BlockAttend::atLeast(Value x, Value y) { return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::sge, x, y); }
Value BlockAttend::both(Value x, Value y) { return !x ? y : !y ? x : Value(arith::AndIOp::create(b, loc, x, y)); }
Value BlockAttend::max(Value x, Value y) { return arith::MaxSIOp::create(b, loc, x, y); }
void BlockAttend::sync() { simt::syncBlock(b, loc); }

void BlockAttend::when(Value condition, llvm::function_ref<void()> body) {
  if (!condition)
    return body();
  scf::IfOp::create(b, loc, condition, [&](OpBuilder &, Location) {
    body();
    scf::YieldOp::create(b, loc);
  });
}

Value BlockAttend::choose(Value condition, llvm::function_ref<Value()> value) {
  if (!condition)
    return value();
  auto branch = scf::IfOp::create(
      b, loc, condition, [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, value()); },
      [&](OpBuilder &, Location) { scf::YieldOp::create(b, loc, number(0)); });
  return branch.getResult(0);
}

void BlockAttend::forBlocks(int64_t items, llvm::function_ref<void(Value)> body) {
  scf::ForOp::create(b, loc, thread, index(items), threads, ValueRange(), [&](OpBuilder &, Location, Value item, ValueRange) {
    body(item);
    sync(); // the next one writes what this one reads
    scf::YieldOp::create(b, loc);
  });
}

Value BlockAttend::take(Value &number, int64_t size) {
  Value fastest = rem(number, size);
  number = div(number, size);
  return fastest;
}

Value BlockAttend::sharedMemory(const std::string &name, int64_t elements, Type type) {
  return simt::sharedMemory(b, loc, function, name, elements, type);
}
Value BlockAttend::read(Value memory, Value at) { return memref::LoadOp::create(b, loc, memory, ValueRange{at}); }
void BlockAttend::write(Value value, Value memory, Value at) { memref::StoreOp::create(b, loc, value, memory, ValueRange{at}); }

// ---- Heads -------------------------------------------------------------------------------------------------------------------

BlockAttend::Values BlockAttend::examplesFirst(Value linear) {
  Values lead(spec.lead.size());
  for (size_t dim = lead.size(); dim-- > 0;)
    if (int(dim) != spec.batchDim)
      lead[dim] = take(linear, spec.lead[dim]);
  if (spec.batchDim >= 0)
    lead[spec.batchDim] = linear;
  return lead;
}

BlockAttend::Located BlockAttend::headAt(const AttendGradSpec &grad, Values lead, Value head) {
  Located at(locate(lead, head));
  at.where = lead;
  at.where.push_back(head);
  at.o = place(spec.o, at.where), at.lse = place(spec.lse, at.where), at.dout = place(grad.dout, at.where);
  return at;
}

void BlockAttend::addToBiasGradient(const AttendGradSpec &grad, Value head, Value seen, llvm::function_ref<void(OfPlace)> forPlaces,
                                    llvm::function_ref<Values(const Located &)> slopesOf) {
  const int64_t examples = spec.batchDim >= 0 ? spec.lead[spec.batchDim] : 1, leads = headsOf(spec) / spec.A;
  Place to = place(grad.dbias, {head});
  Values sums;
  forPlaces([&](Value there, Value element) { sums.push_back(choose(there, [&] { return load(to, element); })); });
  auto plus = [&](ValueRange before, Values slopes) {
    for (auto [slope, sum] : llvm::zip_equal(slopes, before))
      slope = fadd(sum, slope);
    return slopes;
  };
  auto chain = [&](Value from, Value end, ValueRange start) {
    return loop(from, end, 1, start, [&](Value lead, ValueRange before) {
      Values next = plus(before, slopesOf(headAt(grad, examplesFirst(lead), head)));
      sync(); // the next one writes what this one reads
      return next;
    });
  };
  Value end = seen ? select(seen, index(leads), index(0)) : index(leads);
  const Values zeros(sums.size(), number(0));
  const int64_t block = grad.grain * (leads / examples);
  sums = grad.grain == 0 ? chain(index(0), end, sums) : loop(index(0), end, block, sums, [&](Value from, ValueRange before) {
    return plus(before, chain(from, add(from, block), zeros));
  });
  size_t number = 0;
  forPlaces([&](Value there, Value element) { when(there, [&] { store(sums[number++], to, element); }); });
}

// ---- Dropout -----------------------------------------------------------------------------------------------------------------

BlockAttend::Draws BlockAttend::drawsOf(const std::string &name, int64_t queries, int64_t bytes, int64_t pitch) {
  if (spec.dropout <= 0)
    return {};
  return {sharedMemory(name + "_kept", queries * pitch, b.getI8Type()), queries, bytes, pitch};
}

Value BlockAttend::firstDrawOf(const Head &head, Value query, Value firstKey) {
  return add(add(head.firstDraw, mul(query, spec.S)), firstKey);
}

BlockAttend::Values BlockAttend::keptOfBlock(const Head &head, Value block) {
  const int64_t heads = headsOf(spec) / spec.A * spec.allHeads() / (spec.batchDim >= 0 ? spec.lead[spec.batchDim] : 1);
  Value number = arith::IndexCastOp::create(b, loc, b.getI64Type(), block);
  // Queries of a tile beyond the last one may draw, too. Most blocks have numbers of 32 bits: their upper half is zero then.
  if ((heads * spec.T + 256) * spec.S / 8 <= std::numeric_limits<uint32_t>::max())
    number = arith::ExtUIOp::create(b, loc, b.getI64Type(), arith::TruncIOp::create(b, loc, b.getI32Type(), number));
  const int64_t constant = std::llround((1 - spec.dropout) * 65536);
  Value below = emitInteger(b, loc, b.getI32Type(), int32_t(uint32_t(constant) << 16));
  if (keptBelow)
    below = arith::ShLIOp::create(b, loc, arith::TruncIOp::create(b, loc, b.getI32Type(), keptBelow), emitInteger(b, loc, b.getI32Type(), 16));
  Values kept;
  for (Value word : emitDrawWords(b, loc, drawKey, head.example, number))
    for (bool upper : {false, true})
      kept.push_back(keptBelow || (constant > 0 && constant < 65536) ? emitKeptHalf(b, loc, word, upper, below)
                                                                     : emitInteger(b, loc, b.getI1Type(), constant > 0));
  return kept;
}

// A block of draws has eight numbers of a group of 64, eight apart (Philox.h): they become the bits of a byte.
void BlockAttend::drawTile(const Draws &draws, const Head &head, Value firstQuery, Value firstKey) {
  if (!draws.memory)
    return;
  auto drawByte = [&](Value place) {
    Value within = rem(place, draws.bytes), query = div(place, draws.bytes);
    Value group = add(div(firstDrawOf(head, add(firstQuery, query), firstKey), 64), div(within, 8));
    Value byte = emitInteger(b, loc, b.getI8Type(), 0);
    for (auto [bit, kept] : llvm::enumerate(keptOfBlock(head, add(mul(group, 8), rem(within, 8))))) {
      Value shifted = arith::ShLIOp::create(b, loc, arith::ExtUIOp::create(b, loc, b.getI8Type(), kept),
                                            emitInteger(b, loc, b.getI8Type(), int64_t(bit)));
      byte = arith::OrIOp::create(b, loc, byte, shifted);
    }
    write(byte, draws.memory, add(mul(draws.first ? add(query, draws.first) : query, draws.pitch), within));
  };
  const int64_t all = draws.queries * draws.bytes;
  if (!draws.together)
    return loop(self, index(all), kAttendThreads, drawByte);
  for (int64_t first = 0; first < all; first += kAttendThreads) {
    Value place = add(self, first);
    when(first + kAttendThreads > all ? below(place, index(all)) : Value(), [&] { drawByte(place); });
  }
}

} // namespace cinch::kernels
