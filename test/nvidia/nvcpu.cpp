// nvcpu.cpp: nvcpu KERNELS.ll -o KERNELS.o [--check] [--plant FAULT:N]: the LLVM IR that became a program's PTX, as an object for this CPU.
//
// The code of every kernel stays as it is. What only a GPU has becomes a call of the stand-in driver (standin.cpp): which thread this is,
// barriers, shuffles, copies that go on, matrices. With --check, every access to shared memory and to the arena is shown to it first, with
// the alignment that it claims: a GPU stops where that is not so, and a CPU would not.
// Comments `; NAME: LINES` say which lines of a program kernel NAME serves (cinch --emit nvvm); the stand-in names them with the kernel.
// Faults can be planted: barrier:N leaves out the N-th barrier, shuffle:N takes the N-th shuffle from the lane beside, access:N moves the
// N-th access to the arena behind it (of the program's own kernels, not of the gate's), align:N moves the N-th access of two bytes and more to
// the arena or to shared memory by half of its alignment, wait:N lets the N-th wait for copies leave one group more on its way, copy:N and
// matrix:N move the N-th copy into shared memory, and the N-th matrix read from it, by 16 bytes, source:N reads the N-th copy from behind the
// arena, rounding:N leaves out the N-th rounding to tf32.
// Of products by wgmma: phase:N, show:N leave out the N-th wait for a barrier's phase, the N-th fence behind writes; arrive:N the N-th
// arrival; products:N lets the N-th wait for products leave one group more under way; swizzle:N, lines:N give the first operand of the N-th
// product the swizzle of 64 bytes, the distance of 16 lines between eight; turned:N takes its lines for columns; rows:N exchanges two of the registers that are the first operand of the N-th such product. Of copies of boxes: bytes:N expects
// 16 bytes too many the N-th time, box:N begins the N-th eight elements beside along its first axis, end:N one along its second, place:N puts it
// 128 bytes beside.
#include "llvm/ADT/StringExtras.h"
#include "llvm/Analysis/ValueTracking.h"
#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/InlineAsm.h"
#include "llvm/IR/InstIterator.h"
#include "llvm/IR/LegacyPassManager.h"
#include "llvm/IR/Module.h"
#include "llvm/IR/Verifier.h"
#include "llvm/IRReader/IRReader.h"
#include "llvm/MC/TargetRegistry.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/SourceMgr.h"
#include "llvm/Support/TargetSelect.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Target/TargetMachine.h"
#include "llvm/TargetParser/Host.h"

#include <cstdlib>
#include <cstring>

using namespace llvm;

constexpr unsigned kShared = 3;

// The function of the stand-in that does what an intrinsic does; "": there is none.
static StringRef replacement(StringRef name) {
  struct {
    StringRef begins, stands;
  } known[] = {{"llvm.nvvm.read.ptx.sreg.tid.x", "standin_thread"},   {"llvm.nvvm.read.ptx.sreg.ctaid.x", "standin_block"},
               {"llvm.nvvm.shfl.sync.down.i32", "standin_shuffle_down"}, {"llvm.nvvm.shfl.sync.idx.i32", "standin_shuffle_index"},
               {"llvm.nvvm.shfl.sync.bfly.i32", "standin_shuffle_beside"}, {"llvm.nvvm.ff2bf16x2.rn", "standin_rounded_pair"},
               {"llvm.nvvm.f2tf32.rna", "standin_rounded_to_tf32"},
               {"llvm.nvvm.ex2.approx.ftz", "standin_exp2"},           {"llvm.nvvm.rcp.approx.ftz.f", "standin_reciprocal"},
               {"llvm.nvvm.bar.warp.sync", "standin_sync_warp"},       {"llvm.nvvm.barrier", "standin_sync_block"},
               {"llvm.nvvm.cp.async.cg.shared.global.16", "standin_copy"},
               {"llvm.nvvm.cp.async.ca.shared.global.4", "standin_copy"}, {"llvm.nvvm.cp.async.commit.group", "standin_end_of_copies"},
               {"llvm.nvvm.cp.async.wait.group", "standin_wait_for_copies"},
               {"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.trans.b16", "standin_matrices_turned"},
               {"llvm.nvvm.ldmatrix.sync.aligned.m8n8.x4.b16", "standin_matrices"},
               {"llvm.nvvm.mma.m16n8k16.row.col.bf16", "standin_multiply"},
               {"llvm.nvvm.mma.m16n8k8.row.col.tf32", "standin_multiply_tf32"}};
  for (auto &each : known)
    if (name.starts_with(each.begins))
      return each.stands;
  return "";
}

struct Fault {
  std::string kind;
  int left = 0; // places of that kind before it
  bool isHere(StringRef place) { return kind == place && --left == 0; }
} fault;

// What the stand-in's function takes: pointers are plain ones, a structure is returned through a pointer in front, and a copy always says
// how many bytes it has, and how many those of its kind have at most.
static Value *callStandin(Module &module, CallInst &call, StringRef stands) {
  IRBuilder<> b(&call);
  LLVMContext &context = module.getContext();
  SmallVector<Value *> arguments(call.args());
  Type *pointer = PointerType::get(context, 0), *result = call.getType();
  AllocaInst *place = nullptr;
  if (stands == "standin_sync_block") {
    if (fault.isHere("barrier"))
      return nullptr;
    arguments.clear();
  }
  if (stands.starts_with("standin_shuffle") && fault.isHere("shuffle"))
    arguments[2] = b.CreateAdd(arguments[2], b.getInt32(1));
  for (Value *&argument : arguments)
    if (argument->getType()->isPointerTy())
      argument = b.CreateAddrSpaceCast(argument, pointer);
  if (stands == "standin_copy") {
    const uint32_t width = call.getCalledFunction()->getName().contains("global.4") ? 4 : 16;
    if (arguments.size() == 2)
      arguments.push_back(b.getInt32(width));
    arguments.push_back(b.getInt32(width));
    if (fault.isHere("copy"))
      arguments[0] = b.CreatePtrAdd(arguments[0], b.getInt64(16));
    if (fault.isHere("source"))
      arguments[1] = b.CreatePtrAdd(arguments[1], b.getInt64(uint64_t(1) << 40));
  }
  if (stands == "standin_wait_for_copies" && fault.isHere("wait"))
    arguments[0] = b.CreateAdd(arguments[0], b.getInt32(1));
  if (stands == "standin_rounded_to_tf32" && fault.isHere("rounding"))
    return b.CreateBitCast(arguments[0], result);
  if (stands.starts_with("standin_matrices") && fault.isHere("matrix"))
    arguments[0] = b.CreatePtrAdd(arguments[0], b.getInt64(16));
  if (result->isVectorTy())
    result = b.getInt32Ty();
  if (result->isStructTy()) {
    place = IRBuilder<>(&*call.getFunction()->getEntryBlock().getFirstInsertionPt()).CreateAlloca(result);
    arguments.insert(arguments.begin(), place);
    result = Type::getVoidTy(context);
  }
  SmallVector<Type *> types;
  for (Value *argument : arguments)
    types.push_back(argument->getType());
  if (stands == "standin_sync_block")
    result = Type::getVoidTy(context);
  Value *value = b.CreateCall(module.getOrInsertFunction(stands, FunctionType::get(result, types, false)), arguments);
  if (call.getType()->isVectorTy())
    return b.CreateBitCast(value, call.getType());
  return place ? b.CreateLoad(place->getAllocatedType(), place) : value;
}

// Shared memory that a launch gives: as much as an address in a description of a matrix can name, from such a multiple on.
constexpr uint64_t kSharedOfLaunch = 1 << 18;
static GlobalVariable *sharedOfLaunch(Module &module) {
  GlobalVariable *declared = module.getGlobalVariable("cinch_shared_of_launch");
  if (!declared || !declared->isDeclaration())
    return declared;
  Type *bytes = ArrayType::get(Type::getInt8Ty(module.getContext()), kSharedOfLaunch);
  auto *memory = new GlobalVariable(module, bytes, false, GlobalValue::ExternalLinkage, ConstantAggregateZero::get(bytes), "", nullptr,
                                    GlobalValue::NotThreadLocal, kShared);
  memory->setAlignment(Align(kSharedOfLaunch));
  memory->takeName(declared);
  declared->replaceAllUsesWith(memory);
  declared->eraseFromParent();
  return memory;
}

// The number that stands behind `before` in a text.
static int numberBehind(StringRef text, StringRef before) {
  int number = 0;
  text.substr(text.find(before) + before.size()).consumeInteger(10, number);
  return number;
}

// To where, by which map, which barrier is told, and the first elements along the axes.
static SmallVector<Value *> callOfBox(IRBuilder<> &b, CallInst &call) {
  const unsigned rank = call.arg_size() - 3;
  auto plain = [&](unsigned i) -> Value * { return b.CreateAddrSpaceCast(call.getArgOperand(i), PointerType::get(b.getContext(), 0)); };
  Type *type = ArrayType::get(b.getInt32Ty(), rank);
  AllocaInst *begin = IRBuilder<>(&*call.getFunction()->getEntryBlock().getFirstInsertionPt()).CreateAlloca(type);
  for (unsigned i = 0; i < rank; ++i) {
    Value *at = call.getArgOperand(3 + i);
    if (i < 2 && fault.isHere(i == 0 ? "box" : "end"))
      at = b.CreateAdd(at, b.getInt32(i == 0 ? 8 : 1));
    b.CreateStore(at, b.CreateConstInBoundsGEP2_32(type, begin, 0, i));
  }
  Value *to = plain(0);
  if (fault.isHere("place"))
    to = b.CreatePtrAdd(to, b.getInt64(128));
  return {to, plain(1), plain(2), b.getInt32(rank), begin};
}

// Inline PTX of compiler/kernels/Warpgroups.cpp. Where it takes sums in registers, the stand-in takes their place in memory.
static Value *callForAssembly(Module &module, CallInst &call) {
  IRBuilder<> b(&call);
  StringRef text = cast<InlineAsm>(call.getCalledOperand())->getAsmString();
  auto *type = dyn_cast<StructType>(call.getType());
  const unsigned count = type ? type->getNumElements() : 0;
  auto plain = [&](Value *pointer) { return b.CreateAddrSpaceCast(pointer, PointerType::get(module.getContext(), 0)); };
  SmallVector<Value *> arguments;
  AllocaInst *sums = nullptr;
  const bool begins = text.contains("setp.ne.b32 adds, 0, 0"); // the sums begin with these products: there are none to add to
  if (type) {
    sums = IRBuilder<>(&*call.getFunction()->getEntryBlock().getFirstInsertionPt()).CreateAlloca(type);
    for (unsigned i = 0; i < count; ++i)
      b.CreateStore(begins ? ConstantFP::get(b.getFloatTy(), 0) : call.getArgOperand(i), b.CreateStructGEP(type, sums, i));
    arguments = {sums, b.getInt32(count)};
  }
  StringRef stands;
  if (text.starts_with("mov.b64"))
    return call.getArgOperand(0);
  if (text.contains("mbarrier.init"))
    stands = "standin_begin_phases", arguments = {plain(call.getArgOperand(0)), call.getArgOperand(1), plain(sharedOfLaunch(module))};
  else if (text.contains("mbarrier.arrive"))
    stands = fault.isHere("arrive") ? "" : "standin_arrive", arguments = {plain(call.getArgOperand(0))};
  else if (text.contains("mbarrier.try_wait.parity"))
    stands = fault.isHere("phase") ? "" : "standin_await_phase", arguments = {plain(call.getArgOperand(0)), call.getArgOperand(1)};
  else if (text.contains("mbarrier.expect_tx"))
    stands = "standin_expect_bytes",
    arguments = {plain(call.getArgOperand(0)), b.CreateAdd(call.getArgOperand(1), b.getInt32(fault.isHere("bytes") ? 16 : 0))};
  else if (text.contains("cp.async.bulk.tensor")) {
    stands = "standin_copy_box";
    arguments = callOfBox(b, call);
  } else if (text.contains("fence.proxy.async"))
    stands = fault.isHere("show") ? "" : "standin_show";
  else if (text.contains("wgmma.fence"))
    stands = type ? "standin_prepared_sums" : "standin_begin_products";
  else if (text.contains("wgmma.commit_group"))
    stands = "standin_end_products";
  else if (text.contains("wgmma.wait_group")) {
    stands = type ? "standin_finished_sums" : "standin_await_products";
    arguments.push_back(b.getInt32(uint32_t(numberBehind(text, "aligned ") + fault.isHere("products"))));
  } else if (text.contains("wgmma.mma_async.sync.aligned.m64n") && numberBehind(text, "m64n") == int(2 * count)) {
    auto [turnedA, turnedB] = text.split("adds, 1, 1, ").second.split(", ");
    if (call.arg_size() == count + 5) { // the left side is in four registers
      stands = "standin_multiply_rows";
      for (unsigned i = count; i < count + 5; ++i)
        arguments.push_back(call.getArgOperand(i));
      if (fault.isHere("rows"))
        std::swap(arguments[3], arguments[4]);
      arguments.push_back(b.getInt32(turnedA.starts_with("1")));
    } else {
      stands = "standin_multiply_tiles";
      const unsigned first = begins ? 0 : count;
      Value *a = call.getArgOperand(first);
      if (fault.isHere("swizzle"))
        a = b.CreateXor(a, b.getInt64(uint64_t(3) << 62));
      if (fault.isHere("lines"))
        a = b.CreateAdd(a, b.getInt64(uint64_t(64) << 32));
      const bool turned = turnedA.starts_with("1") != fault.isHere("turned");
      arguments.append({a, call.getArgOperand(first + 1), b.getInt32(turned), b.getInt32(turnedB.starts_with("1"))});
    }
  } else {
    report_fatal_error(Twine("nvcpu: no model of ") + text);
  }
  if (!stands.empty()) {
    SmallVector<Type *> types;
    for (Value *argument : arguments)
      types.push_back(argument->getType());
    b.CreateCall(module.getOrInsertFunction(stands, FunctionType::get(b.getVoidTy(), types, false)), arguments);
  }
  return type ? b.CreateLoad(type, sums) : nullptr;
}

// Every thread of a kernel that multiplies by wgmma says first what the launch gave its block.
static void tellSharedOfLaunch(Module &module) {
  for (Function &function : module) {
    bool multiplies = false;
    for (Instruction &instruction : instructions(function))
      if (auto *call = dyn_cast<CallInst>(&instruction); call && call->isInlineAsm())
        multiplies = multiplies || StringRef(cast<InlineAsm>(call->getCalledOperand())->getAsmString()).contains("wgmma.mma_async");
    if (!multiplies)
      continue;
    IRBuilder<> b(&*function.getEntryBlock().getFirstInsertionPt());
    Value *shared = b.CreateAddrSpaceCast(sharedOfLaunch(module), PointerType::get(module.getContext(), 0));
    b.CreateCall(module.getOrInsertFunction("standin_memory_of_launch", FunctionType::get(b.getVoidTy(), {shared->getType()}, false)), {shared});
  }
}

// In the order of the text, so that the places of faults can be counted there.
static void replaceIntrinsics(Module &module) {
  tellSharedOfLaunch(module);
  std::vector<CallInst *> calls;
  for (Function &function : module)
    for (Instruction &instruction : instructions(function))
      if (auto *call = dyn_cast<CallInst>(&instruction);
          call && (call->isInlineAsm() || (call->getCalledFunction() && call->getCalledFunction()->getName().starts_with("llvm.nvvm."))))
        calls.push_back(call);
  for (CallInst *call : calls) {
    if (call->isInlineAsm()) {
      if (Value *result = callForAssembly(module, *call))
        call->replaceAllUsesWith(result);
      call->eraseFromParent();
      continue;
    }
    StringRef name = call->getCalledFunction()->getName(), stands = replacement(name);
    if (stands.empty())
      report_fatal_error(Twine("nvcpu: no model of ") + name);
    Value *result = callStandin(module, *call, stands);
    if (!call->getType()->isVoidTy())
      call->replaceAllUsesWith(result);
    call->eraseFromParent();
  }
  for (Function &function : make_early_inc_range(module))
    if (function.isDeclaration() && function.getName().starts_with("llvm.nvvm."))
      function.eraseFromParent();
}

// What a kernel declares in shared memory begins at its alignment and at no more, as it may on a GPU.
static void alignSharedExactly(Module &module) {
  LLVMContext &context = module.getContext();
  SmallVector<GlobalVariable *> declared;
  for (GlobalVariable &memory : module.globals())
    if (memory.getAddressSpace() == kShared && memory.getName() != "cinch_shared_of_launch")
      declared.push_back(&memory);
  for (GlobalVariable *memory : declared) {
    const uint64_t alignment = module.getDataLayout().getValueOrABITypeAlignment(memory->getAlign(), memory->getValueType()).value();
    Type *before = ArrayType::get(Type::getInt8Ty(context), alignment);
    auto *type = StructType::get(context, {before, memory->getValueType()}, /*isPacked=*/true);
    auto *moved = new GlobalVariable(module, type, false, memory->getLinkage(), Constant::getNullValue(type), "", nullptr, GlobalValue::NotThreadLocal, kShared);
    moved->setAlignment(Align(2 * alignment));
    Constant *begin = ConstantExpr::getInBoundsGetElementPtr(Type::getInt8Ty(context), moved, ConstantInt::get(Type::getInt64Ty(context), alignment));
    memory->replaceAllUsesWith(begin);
    memory->eraseFromParent();
  }
}

static void showAccesses(Module &module) {
  LLVMContext &context = module.getContext();
  Type *pointer = PointerType::get(context, 0), *i64 = Type::getInt64Ty(context), *nothing = Type::getVoidTy(context);
  auto *type = FunctionType::get(nothing, {pointer, i64, i64, i64}, false);
  FunctionCallee shared = module.getOrInsertFunction("standin_shared_access", type);
  FunctionCallee global = module.getOrInsertFunction("standin_global_access", type);
  for (Function &function : module)
    for (Instruction &instruction : make_early_inc_range(instructions(function))) {
      Value *at = getLoadStorePointerOperand(&instruction);
      if (!at)
        continue;
      const Value *object = getUnderlyingObject(at, 64);
      if (isa<GlobalVariable>(object) && at->getType()->getPointerAddressSpace() != kShared) // words of the run
        continue;
      auto *argument = dyn_cast<Argument>(object);
      if ((argument && argument->getArgNo() > 0) || isa<AllocaInst>(object)) // words that came by value, a structure's fields
        continue;
      IRBuilder<> b(&instruction);
      uint64_t bytes = module.getDataLayout().getTypeStoreSize(getLoadStoreType(&instruction));
      bool isShared = at->getType()->getPointerAddressSpace() == kShared;
      Value *plain = at->getType() == pointer ? at : b.CreateAddrSpaceCast(at, pointer);
      // The gate's kernels stand first. Two of them add up numbers of several workers, and a run of one worker does not start them.
      if (!isShared && function.getName().starts_with("kernel_") && fault.isHere("access"))
        plain = b.CreatePtrAdd(plain, b.getInt64(uint64_t(1) << 40));
      const uint64_t alignment = getLoadStoreAlignment(&instruction).value();
      if (alignment > 1 && fault.isHere("align"))
        plain = b.CreatePtrAdd(plain, b.getInt64(alignment / 2));
      b.CreateCall(isShared ? shared : global, {plain, b.getInt64(bytes), b.getInt64(isa<StoreInst>(instruction)), b.getInt64(alignment)});
    }
}

// NAME_lines is a text: the lines that the comments name.
static void nameLines(Module &module, StringRef text) {
  for (StringRef line : split(text, '\n')) {
    auto [name, lines] = line.split(": ");
    Function *kernel = name.consume_front("; ") ? module.getFunction(name) : nullptr;
    if (!kernel || kernel->getCallingConv() != CallingConv::PTX_Kernel)
      continue;
    Constant *said = ConstantDataArray::getString(module.getContext(), lines);
    new GlobalVariable(module, said->getType(), true, GlobalValue::ExternalLinkage, said, name + "_lines");
  }
}

// A kernel is an ordinary function on three addresses, or four; NAME_words, NAME_maps say how many words of its launch came by value.
static void makeCallable(Module &module) {
  LLVMContext &context = module.getContext();
  for (Function &function : make_early_inc_range(module)) {
    function.removeFnAttr("target-cpu");
    function.removeFnAttr("target-features");
    if (function.getCallingConv() != CallingConv::PTX_Kernel)
      continue;
    auto *words = cast<ArrayType>(function.getParamByValType(1));
    auto *number = ConstantInt::get(Type::getInt64Ty(context), words->getNumElements());
    new GlobalVariable(module, number->getType(), true, GlobalValue::ExternalLinkage, number, function.getName() + "_words");
    if (function.arg_size() > 3) {
      auto *maps = ConstantInt::get(number->getType(), cast<ArrayType>(function.getParamByValType(3))->getNumElements());
      new GlobalVariable(module, maps->getType(), true, GlobalValue::ExternalLinkage, maps, function.getName() + "_maps");
    }
    function.setCallingConv(CallingConv::C);
    for (unsigned i = 1; i < function.arg_size(); ++i)
      function.removeParamAttr(i, Attribute::ByVal);
  }
}

// Where the CPU has no instruction that rounds to bf16, LLVM calls this one, which GCC 12 does not have: to nearest, ties to even.
static void defineRounding(Module &module) {
  LLVMContext &context = module.getContext();
  IRBuilder<> b(context);
  auto *type = FunctionType::get(b.getBFloatTy(), {b.getFloatTy()}, false);
  auto *function = Function::Create(type, GlobalValue::ExternalLinkage, "__truncsfbf2", module);
  function->setVisibility(GlobalValue::HiddenVisibility);
  b.SetInsertPoint(BasicBlock::Create(context, "", function));
  Value *x = function->getArg(0), *bits = b.CreateBitCast(x, b.getInt32Ty());
  Value *odd = b.CreateAnd(b.CreateLShr(bits, 16), 1);
  Value *rounded = b.CreateLShr(b.CreateAdd(b.CreateAdd(bits, b.getInt32(0x7fff)), odd), 16);
  Value *quiet = b.CreateOr(b.CreateLShr(bits, 16), b.getInt32(0x40));
  Value *half = b.CreateTrunc(b.CreateSelect(b.CreateFCmpUNO(x, x), quiet, rounded), b.getInt16Ty());
  b.CreateRet(b.CreateBitCast(half, b.getBFloatTy()));
}

int main(int argc, char **argv) {
  const char *input = nullptr, *output = nullptr;
  bool check = false;
  for (int i = 1; i < argc; ++i) {
    if (!strcmp(argv[i], "-o") && i + 1 < argc)
      output = argv[++i];
    else if (!strcmp(argv[i], "--check"))
      check = true;
    else if (!strcmp(argv[i], "--plant") && i + 1 < argc && strchr(argv[i + 1], ':')) {
      StringRef kind, number;
      std::tie(kind, number) = StringRef(argv[++i]).split(':');
      fault = {kind.str(), atoi(number.str().c_str())};
    }
    else
      input = argv[i];
  }
  if (!input || !output)
    return errs() << "nvcpu KERNELS.ll -o KERNELS.o [--check] [--plant FAULT:N]\n", 2;
  InitializeNativeTarget();
  InitializeNativeTargetAsmPrinter();
  LLVMContext context;
  SMDiagnostic problem;
  auto text = MemoryBuffer::getFile(input, /*IsText=*/true);
  std::unique_ptr<Module> module = text ? parseIR(**text, problem, context) : nullptr;
  if (!module)
    return problem.print("nvcpu", errs()), 1;
  Triple triple(sys::getDefaultTargetTriple());
  std::string error, features;
  for (auto &feature : sys::getHostCPUFeatures())
    features += (features.empty() ? "" : ",") + std::string(feature.second ? "+" : "-") + feature.first().str();
  const Target *target = TargetRegistry::lookupTarget(triple, error);
  std::unique_ptr<TargetMachine> machine(
      target->createTargetMachine(triple, sys::getHostCPUName(), features, TargetOptions(), Reloc::PIC_, std::nullopt, CodeGenOptLevel::None));
  module->setTargetTriple(triple);
  module->setDataLayout(machine->createDataLayout());
  sharedOfLaunch(*module);
  replaceIntrinsics(*module);
  alignSharedExactly(*module);
  if (check)
    showAccesses(*module);
  nameLines(*module, (*text)->getBuffer());
  makeCallable(*module);
  defineRounding(*module);
  if (verifyModule(*module, &errs()))
    return 1;
  std::error_code code;
  raw_fd_ostream file(output, code);
  legacy::PassManager passes;
  if (code || machine->addPassesToEmitFile(passes, file, nullptr, CodeGenFileType::ObjectFile))
    return errs() << "nvcpu: cannot write " << output << "\n", 1;
  passes.run(*module);
  return 0;
}
