#include "compiler/phases/EntryEmitter.h"

using namespace mlir;

namespace cinch {

EntryEmitter::EntryEmitter(ModuleOp module, StringRef symbol, int entry, unsigned numbers)
    : builder(module.getContext()), loc(builder.getUnknownLoc()), module(module), entry(entry) {
  pointer = LLVM::LLVMPointerType::get(module.getContext());
  i32 = builder.getI32Type();
  i64 = builder.getI64Type();
  none = LLVM::LLVMVoidType::get(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  SmallVector<Type> arguments{pointer};
  arguments.append(numbers, i64);
  function = LLVM::LLVMFuncOp::create(builder, loc, symbol, LLVM::LLVMFunctionType::get(none, arguments));
  Block *block = function.addEntryBlock(builder);
  builder.setInsertionPointToStart(block);
  context = block->getArgument(0);
}

void EntryEmitter::finish() { LLVM::ReturnOp::create(builder, loc, ValueRange{}); }

Value EntryEmitter::number(Type type, int64_t value) {
  return LLVM::ConstantOp::create(builder, loc, type, builder.getIntegerAttr(type, value));
}

Value EntryEmitter::address(StringRef symbol) { return LLVM::AddressOfOp::create(builder, loc, pointer, symbol); }

Value EntryEmitter::call(StringRef name, Type result, ArrayRef<Value> arguments) {
  LLVM::LLVMFuncOp &callee = callees[name]; // a look-up in the module walks all its symbols
  if (!callee)
    callee = module.lookupSymbol<LLVM::LLVMFuncOp>(name);
  if (!callee) {
    OpBuilder::InsertionGuard guard(builder);
    builder.setInsertionPointToEnd(module.getBody());
    SmallVector<Type> types = llvm::map_to_vector(arguments, [](Value v) { return v.getType(); });
    callee = LLVM::LLVMFuncOp::create(builder, loc, name, LLVM::LLVMFunctionType::get(result, types));
  }
  auto op = LLVM::CallOp::create(builder, loc, callee, arguments);
  return op.getNumResults() ? op.getResult() : Value();
}

void EntryEmitter::loop(Value first, Value end, llvm::function_ref<void(Value)> emit) {
  Block *before = builder.getInsertionBlock();
  Block *head = newBlock();
  Value index = head->addArgument(i64, loc);
  Block *body = newBlock(), *after = newBlock();
  builder.setInsertionPointToEnd(before);
  LLVM::BrOp::create(builder, loc, ValueRange{first}, head);
  builder.setInsertionPointToEnd(head);
  Value more = LLVM::ICmpOp::create(builder, loc, LLVM::ICmpPredicate::slt, index, end);
  LLVM::CondBrOp::create(builder, loc, more, body, ValueRange{}, after, ValueRange{});
  builder.setInsertionPointToEnd(body);
  emit(index);
  Value next = LLVM::AddOp::create(builder, loc, index, number(i64, 1));
  LLVM::BrOp::create(builder, loc, ValueRange{next}, head);
  builder.setInsertionPointToEnd(after);
}

void EntryEmitter::when(Value condition, llvm::function_ref<void()> emit) {
  Block *before = builder.getInsertionBlock(), *then = newBlock(), *after = newBlock();
  builder.setInsertionPointToEnd(before);
  LLVM::CondBrOp::create(builder, loc, condition, then, ValueRange{}, after, ValueRange{});
  builder.setInsertionPointToEnd(then);
  emit();
  LLVM::BrOp::create(builder, loc, ValueRange{}, after);
  builder.setInsertionPointToEnd(after);
}

Value EntryEmitter::compare(LLVM::ICmpPredicate how, Value a, Value b) { return LLVM::ICmpOp::create(builder, loc, how, a, b); }

Value EntryEmitter::stack(size_t words) {
  OpBuilder::InsertionGuard guard(builder);
  builder.setInsertionPointToStart(&function.getBody().front());
  return LLVM::AllocaOp::create(builder, loc, pointer, i64, number(i64, int64_t(words)));
}

Value EntryEmitter::word(size_t at) {
  Value place = LLVM::GEPOp::create(builder, loc, pointer, i64, context, ArrayRef<LLVM::GEPArg>{int32_t(at)});
  return LLVM::LoadOp::create(builder, loc, i64, place);
}

Value EntryEmitter::placeIn(StringRef table, Type type, Value at) {
  return LLVM::GEPOp::create(builder, loc, pointer, type, address(table), ArrayRef<LLVM::GEPArg>{at});
}

Value EntryEmitter::entryOf(StringRef table, Type type, Value at) {
  return LLVM::LoadOp::create(builder, loc, type, placeIn(table, type, at));
}

void EntryEmitter::set(Value words, size_t at, Value value) {
  Value place = LLVM::GEPOp::create(builder, loc, pointer, i64, words, ArrayRef<LLVM::GEPArg>{int32_t(at)});
  LLVM::StoreOp::create(builder, loc, value, place);
}

Value EntryEmitter::plus(Value a, Value b, int64_t factor) {
  if (factor == 0)
    return a;
  return LLVM::AddOp::create(builder, loc, a, LLVM::MulOp::create(builder, loc, b, number(i64, factor)));
}

void addTable(ModuleOp module, StringRef symbol, Type type, Attribute value) {
  OpBuilder builder(module.getContext());
  builder.setInsertionPointToEnd(module.getBody());
  LLVM::GlobalOp::create(builder, builder.getUnknownLoc(), type, true, LLVM::Linkage::Internal, symbol, value);
}

} // namespace cinch
