// VerifyNumbers.cpp: reads every instruction of the optimised module; what it refuses are the leaks by which a plan, a
// vector width or a machine could change a bit.
#include "compiler/target/VerifyNumbers.h"

#include "llvm/ADT/StringSet.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/IntrinsicsX86.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Operator.h"
#include "llvm/Support/raw_ostream.h"

using namespace llvm;

namespace cinch::target {

// Mathematical functions: exact in no libm, so f32 ones must have been expanded; f64 (used to check gradients) may
// call.
static bool isMathIntrinsic(Intrinsic::ID id) {
  switch (id) {
  case Intrinsic::exp:
  case Intrinsic::exp2:
  case Intrinsic::exp10:
  case Intrinsic::log:
  case Intrinsic::log2:
  case Intrinsic::log10:
  case Intrinsic::sin:
  case Intrinsic::cos:
  case Intrinsic::tan:
  case Intrinsic::asin:
  case Intrinsic::acos:
  case Intrinsic::atan:
  case Intrinsic::atan2:
  case Intrinsic::sinh:
  case Intrinsic::cosh:
  case Intrinsic::tanh:
  case Intrinsic::pow:
  case Intrinsic::powi:
  case Intrinsic::sincos:
  case Intrinsic::ldexp:
    return true;
  default:
    return false;
  }
}

static std::string checkCall(const CallBase &call) {
  const Function *callee = call.getCalledFunction();
  if (!callee)
    return "";
  Type *type = call.getType()->getScalarType();
  Intrinsic::ID id = callee->getIntrinsicID();
  if (id == Intrinsic::fmuladd)
    return "llvm.fmuladd (fuses or not as it likes)";
  if (id == Intrinsic::minnum || id == Intrinsic::maxnum)
    return "minnum or maxnum (depends on the order of its operands)";
  if (id == Intrinsic::vector_reduce_fadd || id == Intrinsic::vector_reduce_fmul)
    return "a float reduction of no stated order";
  if (isMathIntrinsic(id) && !type->isDoubleTy())
    return "a mathematical function that was not expanded: " + callee->getName().str();
  if (id == Intrinsic::not_intrinsic && callee->isDeclaration() && type->isFloatTy())
    return "a call of " + callee->getName().str() + ", which returns f32";
  return "";
}

static std::string check(const Instruction &instruction) {
  if (auto *call = dyn_cast<CallBase>(&instruction)) {
    std::string fault = checkCall(*call);
    if (!fault.empty())
      return fault;
  }
  if (isa<FPMathOperator>(instruction) && instruction.getFastMathFlags().any())
    return "a fast-math flag";
  // Bits may be called bf16 where they are moved to the instruction that multiplies them, or come from the one that rounds.
  auto isBFloat = [](const Value *value) { return value->getType()->getScalarType()->isBFloatTy(); };
  bool moves = isa<LoadInst, StoreInst, BitCastInst, PHINode, SelectInst, ShuffleVectorInst, InsertElementInst, ExtractElementInst,
                   FreezeInst>(instruction);
  auto *call = dyn_cast<CallBase>(&instruction);
  Intrinsic::ID id = call ? call->getIntrinsicID() : Intrinsic::not_intrinsic;
  bool defined = id == Intrinsic::x86_avx512bf16_dpbf16ps_512 || id == Intrinsic::x86_avx512bf16_cvtne2ps2bf16_512 ||
                 id == Intrinsic::nvvm_ff2bf16x2_rn; // to the bit, by the instruction
  if (!moves && !defined && (isBFloat(&instruction) || any_of(instruction.operands(), [&](const Use &use) { return isBFloat(use.get()); })))
    return "arithmetic in bfloat";
  return "";
}

std::string verifyNumbers(const Module &module) {
  for (const Function &function : module) {
    if (function.hasFnAttribute("unsafe-fp-math") || function.hasFnAttribute("no-nans-fp-math"))
      return "function " + function.getName().str() + " carries a fast-math attribute";
    for (const Instruction &instruction : instructions(function)) {
      std::string fault = check(instruction);
      if (fault.empty())
        continue;
      std::string text;
      raw_string_ostream stream(text);
      stream << fault << " in " << function.getName() << ": " << instruction;
      return text;
    }
  }
  return "";
}

} // namespace cinch::target
