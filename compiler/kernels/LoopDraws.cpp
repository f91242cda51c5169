// LoopDraws.cpp: draws of flags by a team of a GPU, each thread of which has eight neighbouring columns.
//
// Of 64 consecutive elements, those whose numbers are equal modulo 8 come from one block of random bits (Philox.cpp): eight blocks, of which
// an element needs an eighth. So each of eight threads makes one block, all eight flags of it, and the threads exchange flags as an
// 8 x 8 matrix of bits is turned: by squares of 4, 2 and 1.
//
//     thread i has of each j the flag of element 8 j + i     ->     thread j has of each i the flag of element 8 j + i
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/Simt.h"

#include "compiler/kernels/MathEmit.h"
#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>

using namespace mlir;

namespace cinch::kernels {

constexpr int64_t kThreads = 8, kElements = 64;

// A team's rounds of columns begin at multiples of 64 elements.
bool LoopEmitter::sharesDraw(int node, const Wide &wide) const {
  const LoopNode &n = spec.nodes[node];
  auto whole = [](int64_t number) { return number % kElements == 0; };
  return n.op == LoopOp::RandomBool && wide.together == kThreads && wide.aligned && plan.columnStride(n.view) == 1 &&
         !(n.usesExample && n.exampleStrides.back() != 0) && whole(n.view.offset) && whole(n.positionStride) &&
         std::all_of(n.view.strides.begin(), n.view.strides.end() - 1, whole);
}

// Flags of this thread's columns in a round that begins at `column`.
LoopEmitter::Values LoopEmitter::sharedDraw(int node, Value column) {
  const LoopNode &n = spec.nodes[node];
  Type i32 = b.getI32Type(), i64 = b.getI64Type();
  auto number = [&](int64_t value) { return emitInteger(b, loc, i32, value); };
  Value thread = arith::AndIOp::create(b, loc, lane, index(kThreads - 1));
  Value first = addIndex(base(n.view.offset, n.view.strides), column);
  if (n.positionStride != 0)
    first = addIndex(first, elementsBefore(n));
  // The round's first block, eight more for the upper half of the team, and this thread's.
  Value block = arith::ShRUIOp::create(b, loc, first, index(3));
  block = addIndex(addIndex(block, arith::AndIOp::create(b, loc, lane, index(kThreads))), thread);
  Values halves;
  for (Value word : emitDrawWords(b, loc, keys.at(keyName(n)), exampleNumber(n, nullptr), arith::IndexCastOp::create(b, loc, i64, block))) {
    halves.push_back(arith::TruncIOp::create(b, loc, b.getI16Type(), word));
    halves.push_back(arith::TruncIOp::create(b, loc, b.getI16Type(), arith::ShRUIOp::create(b, loc, word, number(16))));
  }
  Value bits = number(0);
  for (int64_t j = 0; j < kThreads; ++j)
    bits = arith::OrIOp::create(b, loc, bits, arith::SelectOp::create(b, loc, drawValue(node, halves[size_t(j)]), number(1 << j), number(0)));
  for (auto [distance, upper] : {std::pair(4, 0xf0), {2, 0xcc}, {1, 0xaa}}) {
    Value isUpper = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, arith::AndIOp::create(b, loc, thread, index(distance)), index(0));
    Value other = simt::fromBesideInTeam(b, loc, bits, distance), by = number(distance);
    Value moved = arith::SelectOp::create(b, loc, isUpper, arith::ShRUIOp::create(b, loc, other, by), arith::ShLIOp::create(b, loc, other, by));
    Value kept = arith::SelectOp::create(b, loc, isUpper, number(upper), number(0xff ^ upper));
    Value given = arith::XOrIOp::create(b, loc, kept, number(0xff));
    bits = arith::OrIOp::create(b, loc, arith::AndIOp::create(b, loc, bits, kept), arith::AndIOp::create(b, loc, moved, given));
  }
  Values flags;
  for (int64_t each = 0; each < kThreads; ++each)
    flags.push_back(arith::TruncIOp::create(b, loc, b.getI1Type(), arith::ShRUIOp::create(b, loc, bits, number(each))));
  return flags;
}

} // namespace cinch::kernels
