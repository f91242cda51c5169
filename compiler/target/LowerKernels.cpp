// LowerKernels.cpp: the fixed pipeline from kernels to the LLVM dialect.
//
// Only conversions stand here: the order of every sum, the tiling and the mathematics are the builders'
// (compiler/kernels). The check in front refuses what would let a later stage decide numbers: vector.fma (it becomes
// llvm.fmuladd, which may or may not fuse), vector.contract and its relatives (lowered as multiply and add), fast-math
// flags.
#include "compiler/target/LowerKernels.h"
#include "compiler/kernels/Kernels.h"

#include "mlir/Conversion/Passes.h"
#include "mlir/Dialect/Arith/IR/Arith.h"
#include "mlir/Dialect/ControlFlow/IR/ControlFlow.h"
#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/Dialect/LLVMIR/NVVMDialect.h"
#include "mlir/Dialect/Math/IR/Math.h"
#include "mlir/Dialect/MemRef/IR/MemRef.h"
#include "mlir/Dialect/SCF/IR/SCF.h"
#include "mlir/Dialect/Vector/IR/VectorOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "mlir/IR/DialectRegistry.h"
#include "mlir/IR/Verifier.h"
#include "mlir/Pass/PassManager.h"
#include "mlir/Target/LLVMIR/Dialect/Builtin/BuiltinToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/LLVMIR/LLVMToLLVMIRTranslation.h"
#include "mlir/Target/LLVMIR/Dialect/NVVM/NVVMToLLVMIRTranslation.h"
#include "mlir/Transforms/Passes.h"

using namespace mlir;

namespace cinch::target {

void registerKernelDialects(DialectRegistry &registry) {
  registry.insert<arith::ArithDialect, cf::ControlFlowDialect, func::FuncDialect, LLVM::LLVMDialect, math::MathDialect, memref::MemRefDialect,
                  scf::SCFDialect, NVVM::NVVMDialect, vector::VectorDialect>();
  registerBuiltinDialectTranslation(registry);
  registerLLVMDialectTranslation(registry);
  registerNVVMDialectTranslation(registry);
}

LogicalResult verifyKernelNumbers(ModuleOp module) {
  WalkResult result = module.walk([](Operation *op) {
    if (isa<vector::FMAOp, vector::ContractionOp, vector::OuterProductOp, vector::MultiDimReductionOp>(op) ||
        op->getName().getDialectNamespace() == "linalg") {
      op->emitError("its lowering would choose between fused and separate rounding; expected math.fma");
      return WalkResult::interrupt();
    }
    if (auto fastMath = dyn_cast<arith::ArithFastMathInterface>(op)) {
      auto flags = fastMath.getFastMathFlagsAttr();
      if (flags && flags.getValue() != arith::FastMathFlags::none) {
        op->emitError("fast-math flags are forbidden in kernels");
        return WalkResult::interrupt();
      }
    }
    if (auto reduction = dyn_cast<vector::ReductionOp>(op)) {
      if (isa<FloatType>(reduction.getDest().getType()) &&
          (reduction.getKind() == vector::CombiningKind::ADD || reduction.getKind() == vector::CombiningKind::MUL)) {
        op->emitError("the order of a float reduction must be written out as shuffles");
        return WalkResult::interrupt();
      }
    }
    return WalkResult::advance();
  });
  return failure(result.wasInterrupted());
}

// A kernel that flushes becomes a body that no inliner touches, and a caller that sets MXCSR around it and computes nothing itself:
// LLVM moves arithmetic across the instruction that sets it, but not across a call.
static void surroundFlushing(LLVM::LLVMFuncOp function) {
  constexpr int kFlush = 0x9fc0, kUsual = 0x1f80; // flush to zero, denormals are zeros; what every entry of a binary sets
  OpBuilder b(function);
  auto *context = function.getContext();
  Location loc = function.getLoc();
  std::string name = function.getName().str();
  function->removeAttr(kernels::kFlushesAttr);
  auto caller = LLVM::LLVMFuncOp::create(b, loc, name, function.getFunctionType());
  function.setName(name + "_flushed");
  function.setLinkage(LLVM::Linkage::Internal);
  auto pair = [&](StringRef key, StringRef value) -> Attribute {
    return ArrayAttr::get(context, {StringAttr::get(context, key), StringAttr::get(context, value)});
  };
  function.setPassthroughAttr(ArrayAttr::get(context, {StringAttr::get(context, "noinline"),
                                                       pair("denormal-fp-math", "preserve-sign,preserve-sign")}));
  Block *entry = caller.addEntryBlock(b);
  b.setInsertionPointToStart(entry);
  Value one = LLVM::ConstantOp::create(b, loc, b.getI64Type(), b.getI64IntegerAttr(1));
  Value word = LLVM::AllocaOp::create(b, loc, LLVM::LLVMPointerType::get(context), b.getI32Type(), one);
  auto set = [&](int control) {
    Value number = LLVM::ConstantOp::create(b, loc, b.getI32Type(), b.getI32IntegerAttr(control));
    LLVM::StoreOp::create(b, loc, number, word);
    LLVM::CallIntrinsicOp::create(b, loc, b.getStringAttr("llvm.x86.sse.ldmxcsr"), ValueRange{word});
  };
  set(kFlush);
  LLVM::CallOp::create(b, loc, function, entry->getArguments());
  set(kUsual);
  LLVM::ReturnOp::create(b, loc, ValueRange());
}

LogicalResult lowerKernels(ModuleOp module) {
  if (failed(verifyKernelNumbers(module)))
    return failure();
  PassManager pm(module.getContext());
  pm.enableVerifier(false); // once, behind all of them
  pm.addPass(createSCFToControlFlowPass());
  ConvertMathToLLVMPassOptions mathOptions;
  mathOptions.approximateLog1p = false;
  pm.addPass(createConvertMathToLLVMPass(mathOptions));
  pm.addPass(createConvertMathToLibmPass()); // f64 only; the check of the LLVM IR refuses f32 calls
  pm.addPass(createConvertVectorToLLVMPass());
  pm.addPass(createFinalizeMemRefToLLVMConversionPass());
  pm.addPass(createArithToLLVMConversionPass());
  ConvertFuncToLLVMPassOptions funcOptions;
  funcOptions.useBarePtrCallConv = true;
  pm.addPass(createConvertFuncToLLVMPass(funcOptions));
  pm.addPass(createConvertControlFlowToLLVMPass());
  pm.addPass(createReconcileUnrealizedCastsPass());
  if (failed(pm.run(module)))
    return failure();
  for (auto function : llvm::make_early_inc_range(module.getOps<LLVM::LLVMFuncOp>()))
    if (function->hasAttr(kernels::kFlushesAttr))
      surroundFlushing(function);
  return verify(module);
}

} // namespace cinch::target
