// Warpgroups.cpp: wgmma and the barriers around it, as inline PTX: LLVM has no intrinsic of wgmma.mma_async, and what belongs together is
// written the same way. (PTX ISA, "Asynchronous warpgroup level matrix instructions", "mbarrier", "fence", "cp.async.bulk.tensor".)
#include "compiler/kernels/MathEmit.h"
#include "compiler/kernels/Simt.h"

#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"

using namespace mlir;

namespace cinch::kernels::simt {

// Nothing is moved across it.
static LLVM::InlineAsmOp assembly(OpBuilder &b, Location loc, TypeRange results, ValueRange operands, const std::string &text,
                                  const std::string &constraints) {
  return LLVM::InlineAsmOp::create(b, loc, results, operands, text, constraints + (constraints.empty() ? "" : ",") + "~{memory}",
                                   /*has_side_effects=*/true, /*is_align_stack=*/false, LLVM::tailcallkind::TailCallKind::None,
                                   LLVM::AsmDialectAttr(), ArrayAttr());
}

Value sharedOfLaunch(OpBuilder &b, Location loc, ModuleOp module) {
  constexpr const char *name = "cinch_shared_of_launch";
  auto global = module.lookupSymbol<LLVM::GlobalOp>(name);
  if (!global) {
    OpBuilder::InsertionGuard guard(b);
    b.setInsertionPointToStart(module.getBody());
    global = LLVM::GlobalOp::create(b, loc, LLVM::LLVMArrayType::get(b.getI8Type(), 0), false, LLVM::Linkage::External, name, Attribute(),
                                    /*alignment=*/1024, /*addrSpace=*/3);
  }
  return LLVM::AddressOfOp::create(b, loc, global);
}

void beginPhases(OpBuilder &b, Location loc, Value barrier, int64_t arrivals) {
  assembly(b, loc, {}, {barrier, emitInteger(b, loc, b.getI32Type(), arrivals)}, "mbarrier.init.shared::cta.b64 [$0], $1;", "l,r");
}
void arrive(OpBuilder &b, Location loc, Value barrier) {
  assembly(b, loc, {}, {barrier}, "mbarrier.arrive.shared::cta.b64 _, [$0];", "l");
}
void awaitPhase(OpBuilder &b, Location loc, Value barrier, Value parity) {
  assembly(b, loc, {}, {barrier, parity},
           "{\n.reg .pred done;\nAgain${:uid}:\nmbarrier.try_wait.parity.shared::cta.b64 done, [$0], $1;\n@!done bra Again${:uid}; }",
           "l,r");
}
void expectBytes(OpBuilder &b, Location loc, Value barrier, int64_t bytes) {
  assembly(b, loc, {}, {barrier, emitInteger(b, loc, b.getI32Type(), bytes)}, "mbarrier.expect_tx.relaxed.cta.shared::cta.b64 [$0], $1;", "l,r");
}
void copyBox(OpBuilder &b, Location loc, Value to, Value map, ValueRange begin, Value barrier) {
  SmallVector<Value> operands = {to, map, barrier};
  std::string text = "cp.async.bulk.tensor." + std::to_string(begin.size()) +
                     "d.shared::cluster.global.mbarrier::complete_tx::bytes [$0], [$1, {",
              constraints = "l,l,l";
  for (size_t i = 0; i < begin.size(); ++i) {
    operands.push_back(arith::IndexCastOp::create(b, loc, b.getI32Type(), begin[i]));
    text += (i == 0 ? "$" : ", $") + std::to_string(3 + i), constraints += ",r";
  }
  assembly(b, loc, {}, operands, text + "}], [$2];", constraints);
}
void showToProducts(OpBuilder &b, Location loc) { assembly(b, loc, {}, {}, "fence.proxy.async.shared::cta;", ""); }

void beginProducts(OpBuilder &b, Location loc) { assembly(b, loc, {}, {}, "wgmma.fence.sync.aligned;", ""); }
void endProducts(OpBuilder &b, Location loc) { assembly(b, loc, {}, {}, "wgmma.commit_group.sync.aligned;", ""); }
void awaitProducts(OpBuilder &b, Location loc, int groups) {
  assembly(b, loc, {}, {}, "wgmma.wait_group.sync.aligned " + std::to_string(groups) + ";", "");
}

Value foundHere(OpBuilder &b, Location loc, Value number) {
  return assembly(b, loc, {b.getI64Type()}, {number}, "mov.b64 $0, $1;", "=l,l").getResult(0);
}

static SmallVector<Value> members(OpBuilder &b, Location loc, Value structure, size_t count) {
  SmallVector<Value> each;
  for (size_t i = 0; i < count; ++i)
    each.push_back(LLVM::ExtractValueOp::create(b, loc, structure, int64_t(i)));
  return each;
}

// Takes sums in registers, or words, and returns them there: what uses them comes behind it, what made them before.
static SmallVector<Value> onSums(OpBuilder &b, Location loc, ValueRange sums, ValueRange others, const std::string &text,
                                 const std::string &constraints) {
  std::string all;
  for (size_t i = 0; i < sums.size(); ++i)
    all += std::string(i == 0 ? "=" : ",=") + (sums[i].getType().isF32() ? "f" : "r");
  for (size_t i = 0; i < sums.size(); ++i)
    all += "," + std::to_string(i);
  SmallVector<Value> operands(sums);
  operands.append(others.begin(), others.end());
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(sums.getTypes()));
  return members(b, loc, assembly(b, loc, {type}, operands, text, all + constraints).getResult(0), sums.size());
}
SmallVector<Value> preparedSums(OpBuilder &b, Location loc, ValueRange registers) {
  return onSums(b, loc, registers, {}, "wgmma.fence.sync.aligned;", "");
}
SmallVector<Value> finishedSums(OpBuilder &b, Location loc, ValueRange sums) {
  return onSums(b, loc, sums, {}, "wgmma.wait_group.sync.aligned 0;", "");
}

// PTX ISA, "Matrix Descriptor Format": the address, the distances of the next 64 rows (turned) and of the next eight lines in units of 16
// bytes, the swizzle of 128 bytes.
static Value describe(OpBuilder &b, Location loc, TileOfLines tile) {
  constexpr uint64_t kNextRows = 64 * 128 / 16, kNextLines = 8 * 128 / 16, kSwizzle128 = 1;
  const uint64_t fixed = (tile.turned ? kNextRows : 1) << 16 | kNextLines << 32 | kSwizzle128 << 62;
  auto number = [&](uint64_t n) { return emitInteger(b, loc, b.getI64Type(), int64_t(n)); };
  Value address = LLVM::AndOp::create(b, loc, tile.at, number(0x3ffff));
  Value begin = LLVM::OrOp::create(b, loc, LLVM::LShrOp::create(b, loc, address, number(4)), number(fixed));
  return b.createOrFold<arith::AddIOp>(loc, begin, number(uint64_t(tile.beside) / 16)); // of all tiles of a stage, `begin` is one
}

static std::string registers(size_t first, size_t count) {
  std::string text = "{";
  for (size_t i = 0; i < count; ++i)
    text += (i == 0 ? "$" : ", $") + std::to_string(first + i);
  return text + "}, ";
}
// Up to the left side. Operands are numbered: the sums as results, the sums as operands, then the others.
static std::string beginOfMultiply(size_t sums, bool adds = true) {
  return "{\n.reg .pred adds;\nsetp.ne.b32 adds, " + std::string(adds ? "1" : "0") + ", 0;\nwgmma.mma_async.sync.aligned.m64n" +
         std::to_string(sums * 2) + "k16.f32.bf16.bf16 " + registers(0, sums);
}

SmallVector<Value> multiplyTiles(OpBuilder &b, Location loc, TileOfLines x, TileOfLines y, ValueRange sums) {
  const size_t others = 2 * sums.size();
  std::string text = beginOfMultiply(sums.size()) + "$" + std::to_string(others) + ", $" + std::to_string(others + 1) + ", adds, 1, 1, " +
                     (x.turned ? "1, " : "0, ") + (y.turned ? "1" : "0") + "; }";
  return onSums(b, loc, sums, {describe(b, loc, x), describe(b, loc, y)}, text, ",l,l");
}

SmallVector<Value> firstTiles(OpBuilder &b, Location loc, TileOfLines x, TileOfLines y, int64_t columns) {
  const size_t count = size_t(columns / 2);
  std::string text = beginOfMultiply(count, false) + "$" + std::to_string(count) + ", $" + std::to_string(count + 1) + ", adds, 1, 1, " +
                     (x.turned ? "1, " : "0, ") + (y.turned ? "1" : "0") + "; }", results;
  for (size_t i = 0; i < count; ++i)
    results += "=f,";
  auto type = LLVM::LLVMStructType::getLiteral(b.getContext(), SmallVector<Type>(count, b.getF32Type()));
  return members(b, loc, assembly(b, loc, {type}, {describe(b, loc, x), describe(b, loc, y)}, text, results + "l,l").getResult(0), count);
}

SmallVector<Value> multiplyRows(OpBuilder &b, Location loc, ValueRange x, TileOfLines y, ValueRange sums) {
  const size_t others = 2 * sums.size();
  std::string text = beginOfMultiply(sums.size()) + registers(others, 4) + "$" + std::to_string(others + 4) + ", adds, 1, 1, " +
                     (y.turned ? "1" : "0") + "; }";
  return onSums(b, loc, sums, {x[0], x[1], x[2], x[3], describe(b, loc, y)}, text, ",r,r,r,r,l");
}

} // namespace cinch::kernels::simt
