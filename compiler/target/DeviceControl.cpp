// DeviceControl.cpp: see DeviceControl.h. These kernels are written as LLVM's IR: they are the same in every program.
//
// The words of cinch_control: the step, whether the gate is closed, loss, norm and learning rate of the last step as bits.
// cinch_gate's words: where loss and norm lie (-1: there is none), whether they are f64.
// cinch_end_step's: the same, then where the learning rate lies (f64; -1: there is none).
// cinch_clear's, cinch_take's, cinch_add32's, cinch_add64's: to where, from where, how many bytes, how many threads there are; offsets of the arena.
#include "compiler/target/DeviceControl.h"

#include "llvm/AsmParser/Parser.h"
#include "llvm/Linker/Linker.h"
#include "llvm/Support/SourceMgr.h"

using namespace llvm;

namespace cinch::target {

constexpr int kStep = 0, kBehindGate = 6; // words of the context
constexpr const char *kCopy = "context_with_step";

static const char *const code = R"(
@cinch_control = addrspace(1) global [8 x i64] zeroinitializer, align 16

declare noundef i32 @llvm.nvvm.read.ptx.sreg.tid.x()
declare noundef i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()

; The bits of the number at an offset.
define internal i64 @cinch_bits(ptr %arena, i64 %at, i64 %isWide) alwaysinline nounwind {
  %none = icmp slt i64 %at, 0
  br i1 %none, label %zero, label %some
zero:
  ret i64 0
some:
  %place = getelementptr i8, ptr %arena, i64 %at
  %wide = icmp ne i64 %isWide, 0
  br i1 %wide, label %long, label %short
long:
  %b64 = load i64, ptr %place, align 8
  ret i64 %b64
short:
  %b32 = load i32, ptr %place, align 4
  %all = zext i32 %b32 to i64
  ret i64 %all
}

define internal i1 @cinch_is_bad(i64 %bits, i64 %isWide) alwaysinline nounwind {
  %wide = icmp ne i64 %isWide, 0
  %exponent = select i1 %wide, i64 9218868437227405312, i64 2139095040
  %its = and i64 %bits, %exponent
  %bad = icmp eq i64 %its, %exponent
  ret i1 %bad
}

define ptx_kernel void @cinch_gate(ptr %arena, ptr byval([4 x i64]) align 8 %words, ptr byval([128 x i64]) align 8 %context) #0 {
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %first = icmp eq i32 %thread, 0
  br i1 %first, label %work, label %end
work:
  %lossAt = load i64, ptr %words, align 8
  %normPlace = getelementptr i64, ptr %words, i64 1
  %normAt = load i64, ptr %normPlace, align 8
  %widePlace = getelementptr i64, ptr %words, i64 2
  %wide = load i64, ptr %widePlace, align 8
  %loss = call i64 @cinch_bits(ptr %arena, i64 %lossAt, i64 %wide)
  %norm = call i64 @cinch_bits(ptr %arena, i64 %normAt, i64 %wide)
  %badLoss = call i1 @cinch_is_bad(i64 %loss, i64 %wide)
  %badNorm = call i1 @cinch_is_bad(i64 %norm, i64 %wide)
  %bad = or i1 %badLoss, %badNorm
  br i1 %bad, label %close, label %end
close:
  store i64 1, ptr addrspace(1) getelementptr ([8 x i64], ptr addrspace(1) @cinch_control, i64 0, i64 1), align 8
  br label %end
end:
  ret void
}

define ptx_kernel void @cinch_end_step(ptr %arena, ptr byval([4 x i64]) align 8 %words, ptr byval([128 x i64]) align 8 %context) #0 {
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %first = icmp eq i32 %thread, 0
  br i1 %first, label %work, label %end
work:
  %lossAt = load i64, ptr %words, align 8
  %normPlace = getelementptr i64, ptr %words, i64 1
  %normAt = load i64, ptr %normPlace, align 8
  %widePlace = getelementptr i64, ptr %words, i64 2
  %wide = load i64, ptr %widePlace, align 8
  %ratePlace = getelementptr i64, ptr %words, i64 3
  %rateAt = load i64, ptr %ratePlace, align 8
  %loss = call i64 @cinch_bits(ptr %arena, i64 %lossAt, i64 %wide)
  %norm = call i64 @cinch_bits(ptr %arena, i64 %normAt, i64 %wide)
  %rate = call i64 @cinch_bits(ptr %arena, i64 %rateAt, i64 1)
  store i64 %loss, ptr addrspace(1) getelementptr ([8 x i64], ptr addrspace(1) @cinch_control, i64 0, i64 2), align 8
  store i64 %norm, ptr addrspace(1) getelementptr ([8 x i64], ptr addrspace(1) @cinch_control, i64 0, i64 3), align 8
  store i64 %rate, ptr addrspace(1) getelementptr ([8 x i64], ptr addrspace(1) @cinch_control, i64 0, i64 4), align 8
  %closed = load i64, ptr addrspace(1) getelementptr ([8 x i64], ptr addrspace(1) @cinch_control, i64 0, i64 1), align 8
  %step = load i64, ptr addrspace(1) @cinch_control, align 8
  %open = icmp eq i64 %closed, 0
  %one = zext i1 %open to i64
  %next = add i64 %step, %one
  store i64 %next, ptr addrspace(1) @cinch_control, align 8
  br label %end
end:
  ret void
}

attributes #0 = { nounwind "nvvm.reqntid"="32" }
attributes #1 = { nounwind "nvvm.reqntid"="128" }
)";

// Bytes of the arena are filled: copied FROM a place (take), or with zeros (clear). Words of four bytes go at once where places and bytes allow it.
static const char *const fill = R"(
define ptx_kernel void @NAME(ptr %arena, ptr byval([4 x i64]) align 8 %words, ptr byval([128 x i64]) align 8 %context) #1 {
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %before = mul i32 %block, 128
  %number = add i32 %before, %thread
  %first = zext i32 %number to i64
  %closed = load i64, ptr addrspace(1) getelementptr ([8 x i64], ptr addrspace(1) @cinch_control, i64 0, i64 1), align 8
  %open = icmp eq i64 %closed, 0
  %to = load i64, ptr %words, align 8
  %fromPlace = getelementptr i64, ptr %words, i64 1
  %from = load i64, ptr %fromPlace, align 8
  %bytesPlace = getelementptr i64, ptr %words, i64 2
  %bytes = load i64, ptr %bytesPlace, align 8
  %stridePlace = getelementptr i64, ptr %words, i64 3
  %stride = load i64, ptr %stridePlace, align 8
  %both = or i64 %to, FROM
  %all = or i64 %both, %bytes
  %low = and i64 %all, 3
  %wide = icmp eq i64 %low, 0
  %words4 = lshr i64 %bytes, 2
  %intoAll = getelementptr i8, ptr %arena, i64 %to
  %outOfAll = getelementptr i8, ptr %arena, i64 FROM
  br i1 %open, label %choose, label %end
choose:
  br i1 %wide, label %wideHead, label %byteHead
wideHead:
  %i = phi i64 [ %first, %choose ], [ %nextWord, %wideBody ]
  %moreWords = icmp slt i64 %i, %words4
  br i1 %moreWords, label %wideBody, label %end
wideBody:
  %wordFrom = getelementptr i32, ptr %outOfAll, i64 %i
  %wordTo = getelementptr i32, ptr %intoAll, i64 %i
  %word = WORD
  store i32 %word, ptr %wordTo, align 4
  %nextWord = add i64 %i, %stride
  br label %wideHead
byteHead:
  %k = phi i64 [ %first, %choose ], [ %nextByte, %byteBody ]
  %moreBytes = icmp slt i64 %k, %bytes
  br i1 %moreBytes, label %byteBody, label %end
byteBody:
  %byteFrom = getelementptr i8, ptr %outOfAll, i64 %k
  %byteTo = getelementptr i8, ptr %intoAll, i64 %k
  %byte = OCTET
  store i8 %byte, ptr %byteTo, align 1
  %nextByte = add i64 %k, %stride
  br label %byteHead
end:
  ret void
}
)";

// What comes from another replica is added to what is there: (came + there) + 0.0, as on a CPU (runtime/Channels.cpp). TYPE and BYTES are those of a number.
static const char *const addition = R"(
define ptx_kernel void @cinch_addBITS(ptr %arena, ptr byval([4 x i64]) align 8 %words, ptr byval([128 x i64]) align 8 %context) #1 {
begin:
  %block = call i32 @llvm.nvvm.read.ptx.sreg.ctaid.x()
  %thread = call i32 @llvm.nvvm.read.ptx.sreg.tid.x()
  %before = mul i32 %block, 128
  %number = add i32 %before, %thread
  %first = zext i32 %number to i64
  %closed = load i64, ptr addrspace(1) getelementptr ([8 x i64], ptr addrspace(1) @cinch_control, i64 0, i64 1), align 8
  %open = icmp eq i64 %closed, 0
  %to = load i64, ptr %words, align 8
  %fromPlace = getelementptr i64, ptr %words, i64 1
  %from = load i64, ptr %fromPlace, align 8
  %bytesPlace = getelementptr i64, ptr %words, i64 2
  %bytes = load i64, ptr %bytesPlace, align 8
  %stridePlace = getelementptr i64, ptr %words, i64 3
  %stride = load i64, ptr %stridePlace, align 8
  %count = udiv i64 %bytes, BYTES
  %intoAll = getelementptr i8, ptr %arena, i64 %to
  %outOfAll = getelementptr i8, ptr %arena, i64 %from
  br i1 %open, label %head, label %end
head:
  %i = phi i64 [ %first, %begin ], [ %next, %body ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %body, label %end
body:
  %placeFrom = getelementptr TYPE, ptr %outOfAll, i64 %i
  %placeTo = getelementptr TYPE, ptr %intoAll, i64 %i
  %came = load TYPE, ptr %placeFrom, align BYTES
  %there = load TYPE, ptr %placeTo, align BYTES
  %both = fadd TYPE %came, %there
  %sum = fadd TYPE %both, 0.0
  store TYPE %sum, ptr %placeTo, align BYTES
  %next = add i64 %i, %stride
  br label %head
end:
  ret void
}
)";

static std::string filled(std::string text, std::initializer_list<std::pair<StringRef, StringRef>> words) {
  for (auto [word, value] : words)
    for (size_t at; (at = text.find(word.data(), 0, word.size())) != std::string::npos;)
      text.replace(at, word.size(), value.str());
  return text;
}

std::string addControl(Module &module) {
  SMDiagnostic problem;
  const std::string all = filled(addition, {{"TYPE", "float"}, {"BITS", "32"}, {"BYTES", "4"}}) +
                          filled(addition, {{"TYPE", "double"}, {"BITS", "64"}, {"BYTES", "8"}}) + code +
                          filled(fill, {{"NAME", "cinch_clear"}, {"FROM", "0"}, {"WORD", "add i32 0, 0"}, {"OCTET", "add i8 0, 0"}}) +
                          filled(fill, {{"NAME", "cinch_take"},
                                        {"FROM", "%from"},
                                        {"WORD", "load i32, ptr %wordFrom, align 4"},
                                        {"OCTET", "load i8, ptr %byteFrom, align 1"}});
  std::unique_ptr<Module> control = parseAssemblyString(all, problem, module.getContext());
  if (!control)
    return ("the kernels of the gate: " + problem.getMessage()).str();
  control->setTargetTriple(module.getTargetTriple());
  control->setDataLayout(module.getDataLayout());
  return Linker::linkModules(module, std::move(control)) ? "the kernels of the gate cannot be linked" : "";
}

Value *enterContext(IRBuilder<> &b, Value *context, BasicBlock *end) {
  Module &module = *b.GetInsertBlock()->getModule();
  Type *i64 = b.getInt64Ty(), *words = ArrayType::get(i64, uint64_t(kContextWords));
  GlobalVariable *control = module.getGlobalVariable("cinch_control");
  if (!control) // declared
    control = new GlobalVariable(module, ArrayType::get(i64, 8), false, GlobalValue::ExternalLinkage, nullptr, "cinch_control", nullptr,
                                 GlobalValue::NotThreadLocal, 1);
  // `isVolatile`: not read before it is known that it is needed.
  auto word = [&](Value *base, uint64_t number, bool isVolatile = false) {
    return b.CreateLoad(i64, b.CreateConstInBoundsGEP1_64(i64, base, number), isVolatile);
  };
  Function *entry = b.GetInsertBlock()->getParent();
  BasicBlock *ask = BasicBlock::Create(b.getContext(), "", entry), *go = BasicBlock::Create(b.getContext(), "", entry);
  Value *copy = b.CreateAlloca(words, nullptr, kCopy);
  b.CreateCondBr(b.CreateICmpNE(word(context, kBehindGate), b.getInt64(0)), ask, go);
  b.SetInsertPoint(ask);
  b.CreateCondBr(b.CreateICmpNE(word(control, 1, true), b.getInt64(0)), end, go);
  b.SetInsertPoint(go);
  Value *said = word(context, kStep), *counted = word(control, 0);
  b.CreateMemCpy(copy, Align(8), context, Align(8), uint64_t(8 * kContextWords));
  b.CreateStore(b.CreateSelect(b.CreateICmpSLT(said, b.getInt64(0)), counted, said), copy);
  return copy;
}

bool contextIsDissolved(const Module &module) {
  for (const Function &function : module)
    for (const BasicBlock &block : function)
      for (const Instruction &instruction : block)
        if (isa<AllocaInst>(instruction) && instruction.getName().starts_with(kCopy) &&
            cast<AllocaInst>(instruction).getAllocatedType()->isArrayTy())
          return false;
  return true;
}

} // namespace cinch::target
