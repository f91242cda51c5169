// LoopShares.cpp: additions at places that the data name (a gather's gradient), on a GPU: places are shared among many teams.
//
// Whatever is added at one place is added in the order of the rows, and nobody else may do it meanwhile. One team that walks all rows waits for
// memory at each. Here a team has every so-many-th place: it looks at the places of all rows, 64 at a time, and does the rows whose place is its
// own. So the order at each place is that of a single walk.
#include "compiler/kernels/LoopEmitter.h"
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/SCF/IR/SCF.h"

using namespace mlir;

namespace cinch::kernels {

static constexpr int64_t kAhead = 4; // rows that a lane looks at, before the first of them is done
static constexpr int64_t kRowsAtOnce = kAhead * simt::kTeam;

// Whether the place of a row (this lane's) is of the item's share.
Value LoopEmitter::isOfShare(Value number) {
  std::vector<Value> kept = scalars;
  chainIndex = split(number, spec.chain);
  Work work;
  work.needed.assign(spec.nodes.size(), false);
  for (int arg : spec.addAt.args)
    need(work, arg);
  measure(work);
  emitScalars(work, 0);
  Value place = index(0);
  for (size_t i = 0; i < spec.addAt.args.size(); ++i) {
    Value at = arith::IndexCastOp::create(b, loc, b.getIndexType(), scalars[spec.addAt.args[i]]);
    place = addIndex(arith::MulIOp::create(b, loc, place, index(spec.addAt.atSizes[i])), at);
  }
  scalars = kept;
  chainIndex.clear();
  return arith::CmpIOp::create(b, loc, arith::CmpIPredicate::eq, arith::RemUIOp::create(b, loc, place, index(plan.shares)), share);
}

void LoopEmitter::forRowsOfShare(llvm::function_ref<void()> body) {
  Type i64 = b.getI64Type();
  auto word = [&](int64_t number) { return emitInteger(b, loc, i64, number); };
  scf::ForOp::create(b, loc, index(0), index(plan.rows), index(kRowsAtOnce), ValueRange(), [&](OpBuilder &, Location, Value first, ValueRange) {
    Value mine = word(0);
    for (int64_t u = 0; u < kAhead; ++u) {
      Value within = addIndex(lane, index(u * simt::kTeam)), row = addIndex(first, within);
      Value exists = arith::CmpIOp::create(b, loc, arith::CmpIPredicate::slt, row, index(plan.rows));
      Value last = arith::MinSIOp::create(b, loc, row, index(plan.rows - 1));
      Value done = arith::AndIOp::create(b, loc, exists, isOfShare(last));
      Value bit = arith::ShLIOp::create(b, loc, word(1), arith::IndexCastOp::create(b, loc, i64, within));
      mine = arith::OrIOp::create(b, loc, mine, arith::SelectOp::create(b, loc, done, bit, word(0)));
    }
    for (int distance = simt::kTeam / 2; distance > 0; distance /= 2)
      mine = arith::OrIOp::create(b, loc, mine, simt::fromBehind(b, loc, mine, distance));
    mine = simt::fromFirst(b, loc, mine); // a bit a row
    scf::WhileOp::create(
        b, loc, TypeRange{i64}, ValueRange{mine},
        [&](OpBuilder &, Location, ValueRange bits) {
          scf::ConditionOp::create(b, loc, arith::CmpIOp::create(b, loc, arith::CmpIPredicate::ne, bits[0], word(0)), bits);
        },
        [&](OpBuilder &, Location, ValueRange bits) {
          std::vector<Value> kept = scalars;
          Value within = LLVM::CountTrailingZerosOp::create(b, loc, i64, bits[0], /*is_zero_poison=*/true);
          chainIndex = split(addIndex(first, arith::IndexCastOp::create(b, loc, b.getIndexType(), within)), spec.chain);
          body();
          scalars = kept;
          chainIndex.clear();
          Value others = arith::AndIOp::create(b, loc, bits[0], arith::SubIOp::create(b, loc, bits[0], word(1)));
          scf::YieldOp::create(b, loc, others);
        });
    scf::YieldOp::create(b, loc);
  });
}

} // namespace cinch::kernels
