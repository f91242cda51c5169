// DevicePiece.cpp: the same lowering as for a CPU, then LLVM's code generator for PTX.
//
// What a builder makes is a function of (arena, offsets, context, worker, workers), as for a CPU. Around it stands an entry, which
// finds out which worker this thread belongs to. FMAs are those of the builders: the code generator fuses nothing
// (FPOpFusion::Standard), and writes mul.rn and add.rn, which ptxas may not fuse either.
#include "compiler/target/DevicePiece.h"
#include "compiler/kernels/TensorMap.h"
#include "compiler/target/DeviceControl.h"
#include "compiler/target/LowerKernels.h"
#include "compiler/target/Pipeline.h"
#include "compiler/target/VerifyNumbers.h"

#include "mlir/IR/BuiltinOps.h"
#include "mlir/Parser/Parser.h"
#include "mlir/Target/LLVMIR/Export.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/IntrinsicInst.h"
#include "llvm/IR/IntrinsicsNVPTX.h"
#include "llvm/IR/LLVMContext.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"

#include <mutex>

using namespace llvm;

extern "C" {
void LLVMInitializeNVPTXTargetInfo();
void LLVMInitializeNVPTXTarget();
void LLVMInitializeNVPTXTargetMC();
void LLVMInitializeNVPTXAsmPrinter();
}

namespace cinch::target {

std::unique_ptr<TargetMachine> createDeviceMachine(const std::string &arch, std::string &error) {
  static std::once_flag once;
  std::call_once(once, [] {
    LLVMInitializeNVPTXTargetInfo();
    LLVMInitializeNVPTXTarget();
    LLVMInitializeNVPTXTargetMC();
    LLVMInitializeNVPTXAsmPrinter();
  });
  Triple triple("nvptx64-nvidia-cuda");
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  if (!target)
    return nullptr;
  TargetOptions options;
  options.AllowFPOpFusion = FPOpFusion::Standard;
  // Without features it takes the oldest version of PTX that has the architecture, which old drivers know, too.
  return std::unique_ptr<TargetMachine>(
      target->createTargetMachine(triple, arch, "", options, std::nullopt, std::nullopt, CodeGenOptLevel::Default));
}

// void NAME(arena, words of the launch by value, context by value): calls the body for the worker that this thread is part of.
static void addEntry(Module &module, const DeviceKernel &kernel) {
  LLVMContext &context = module.getContext();
  Function *body = module.getFunction(kernel.name);
  body->setName(kernel.name + "_body");
  body->setLinkage(GlobalValue::InternalLinkage);
  body->addFnAttr(Attribute::AlwaysInline);
  Type *pointer = PointerType::get(context, 0), *i64 = Type::getInt64Ty(context);
  const int64_t maps = kernel.maps.front();
  auto *type = FunctionType::get(Type::getVoidTy(context), SmallVector<Type *>(maps ? 4 : 3, pointer), false);
  Function *entry = Function::Create(type, GlobalValue::ExternalLinkage, kernel.name, module);
  entry->setCallingConv(CallingConv::PTX_Kernel);
  entry->addFnAttr(Attribute::NoUnwind);
  entry->addFnAttr("nvvm.reqntid", std::to_string(kernel.block));
  if (Attribute most = body->getFnAttribute("nvvm.maxnreg"); most.isValid())
    entry->addFnAttr(most);
  auto byValue = [&](unsigned argument, int64_t words, uint64_t alignment) {
    entry->addParamAttr(argument, Attribute::getWithByValType(context, ArrayType::get(i64, uint64_t(words))));
    entry->addParamAttr(argument, Attribute::getWithAlignment(context, Align(alignment)));
  };
  byValue(1, std::max<int64_t>(1, kernel.words), 8);
  byValue(2, kContextWords, 8);
  if (maps > 0) {
    byValue(3, maps * kernels::kMapWords, 64);
    entry->addParamAttr(3, Attribute::get(context, "nvvm.grid_constant"));
  }

  IRBuilder<> b(BasicBlock::Create(context, "", entry));
  BasicBlock *end = BasicBlock::Create(context, "", entry);
  Value *words = enterContext(b, entry->getArg(2), end);
  auto special = [&](Intrinsic::ID id) { return b.CreateZExt(b.CreateIntrinsic(b.getInt32Ty(), id, {}), i64); };
  Value *thread = b.CreateAdd(b.CreateMul(special(Intrinsic::nvvm_read_ptx_sreg_ctaid_x), b.getInt64(uint64_t(kernel.block))),
                              special(Intrinsic::nvvm_read_ptx_sreg_tid_x));
  Value *worker = b.CreateUDiv(thread, b.getInt64(uint64_t(kernel.lanes))), *workers = b.getInt64(uint64_t(kernel.workers));
  BasicBlock *work = BasicBlock::Create(context, "", entry);
  b.CreateCondBr(b.CreateICmpULT(worker, workers), work, end);
  b.SetInsertPoint(work);
  SmallVector<Value *> arguments = {entry->getArg(0), entry->getArg(1), words, worker, workers};
  if (maps > 0)
    arguments.push_back(entry->getArg(3));
  b.CreateCall(body, arguments);
  b.CreateBr(end);
  b.SetInsertPoint(end);
  b.CreateRetVoid();
}

// A function that stands in no PTX: the C library's, in f64.
static std::string outsideFunction(const Module &module) {
  for (const Function &function : module)
    if (function.isDeclaration() && !function.isIntrinsic() && !function.use_empty())
      return function.getName().str();
  return "";
}

// ptxas 13.0 makes one VIMNMX.U16x2 of `min.u16` and a comparison of its result with an operand. That instruction has a predicate for each half,
// and ptxas lets both go to one register, so that on sm_90 the comparison is wrong: a row of causal attention lost a key on an H200. Minima and
// maxima of narrow integers are those of 32 bits, therefore.
static void widenShortExtremes(Module &module) {
  SmallVector<IntrinsicInst *> found;
  for (Function &function : module)
    for (Instruction &instruction : instructions(function))
      if (auto *call = dyn_cast<IntrinsicInst>(&instruction); call && isa<MinMaxIntrinsic>(call) && call->getType()->isIntegerTy() &&
                                                              call->getType()->getIntegerBitWidth() < 32)
        found.push_back(call);
  for (IntrinsicInst *call : found) {
    IRBuilder<> b(call);
    bool isSigned = cast<MinMaxIntrinsic>(call)->isSigned();
    auto wide = [&](Value *value) { return b.CreateIntCast(value, b.getInt32Ty(), isSigned); };
    Value *result = b.CreateBinaryIntrinsic(call->getIntrinsicID(), wide(call->getArgOperand(0)), wide(call->getArgOperand(1)));
    call->replaceAllUsesWith(b.CreateTrunc(result, call->getType()));
    call->eraseFromParent();
  }
}

// Of a module with an entry, or with the kernels of the gate.
static void writeCode(Module &module, TargetMachine &machine, DevicePiece &piece) {
  Optimizer(machine, true).run(module);
  widenShortExtremes(module);
  piece.error = verifyNumbers(module);
  if (piece.error.empty() && !contextIsDissolved(module))
    piece.error = "a kernel reads a word of the context whose number is not known";
  if (std::string outside = outsideFunction(module); piece.error.empty() && !outside.empty())
    piece.error = "a kernel calls " + outside;
  if (!piece.error.empty())
    return;
  raw_string_ostream(piece.ir) << module;
  SmallVector<char> text;
  raw_svector_ostream stream(text);
  legacy::PassManager passes;
  if (machine.addPassesToEmitFile(passes, stream, nullptr, CodeGenFileType::AssemblyFile)) {
    piece.error = "no PTX can be written";
    return;
  }
  passes.run(module);
  piece.ptx.assign(text.begin(), text.end());
}

static void setTarget(Module &module, TargetMachine &machine) {
  module.setTargetTriple(machine.getTargetTriple());
  module.setDataLayout(machine.createDataLayout());
}

DevicePiece compileControl(TargetMachine &machine) {
  DevicePiece piece;
  LLVMContext context;
  Module module("control", context);
  setTarget(module, machine);
  piece.error = addControl(module);
  if (piece.error.empty())
    writeCode(module, machine, piece);
  return piece;
}

DevicePiece compilePiece(StringRef text, const DeviceKernel &kernel, mlir::MLIRContext &mlirContext, TargetMachine &machine) {
  DevicePiece piece;
  std::string said;
  mlir::ScopedDiagnosticHandler handler(&mlirContext, [&](mlir::Diagnostic &diagnostic) {
    said += diagnostic.str() + "\n";
    return mlir::success();
  });
  LLVMContext context;
  std::unique_ptr<Module> module;
  auto read = mlir::parseSourceString<mlir::ModuleOp>(text, mlir::ParserConfig(&mlirContext, /*verifyAfterParse=*/false));
  if (read && succeeded(lowerKernels(*read)))
    module = mlir::translateModuleToLLVMIR(*read, context);
  if (!module) {
    piece.error = (read ? "a kernel cannot be lowered" : "a kernel cannot be read again") + (said.empty() ? "" : ": " + said);
    return piece;
  }
  if (!module->getFunction(kernel.name)) {
    piece.error = "a kernel was lost";
    return piece;
  }
  setTarget(*module, machine);
  addEntry(*module, kernel);
  writeCode(*module, machine, piece);
  return piece;
}

} // namespace cinch::target
