// EntryEmitter.h: one function in the LLVM dialect: words, calls, counted loops, branches; and constant tables beside it.
#ifndef CINCH_COMPILER_PHASES_ENTRYEMITTER_H
#define CINCH_COMPILER_PHASES_ENTRYEMITTER_H

#include "mlir/Dialect/LLVMIR/LLVMDialect.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

namespace cinch {

// Emits one entry point.
class EntryEmitter {
public:
  // `numbers`: how many i64 arguments follow the context.
  EntryEmitter(mlir::ModuleOp module, llvm::StringRef symbol, int entry, unsigned numbers);

  mlir::Value argument(unsigned at) { return function.getArgument(at + 1); } // behind the context
  void finish();
  mlir::Value number(mlir::Type type, int64_t value);
  mlir::Value address(llvm::StringRef symbol);
  mlir::Value call(llvm::StringRef name, mlir::Type result, llvm::ArrayRef<mlir::Value> arguments);
  // A counted loop: `emit` gets the number of the pass.
  void loop(mlir::Value count, llvm::function_ref<void(mlir::Value)> emit) { loop(number(i64, 0), count, emit); }
  void loop(mlir::Value first, mlir::Value end, llvm::function_ref<void(mlir::Value)> emit);
  void when(mlir::Value condition, llvm::function_ref<void()> emit);
  mlir::Value compare(mlir::LLVM::ICmpPredicate how, mlir::Value a, mlir::Value b);
  // Memory on the stack for so many words, there for the whole call.
  mlir::Value stack(size_t words);
  // Words of the context stand first in it.
  mlir::Value word(size_t at);
  // The address of table[at], and what stands there.
  mlir::Value placeIn(llvm::StringRef table, mlir::Type type, mlir::Value at);
  mlir::Value entryOf(llvm::StringRef table, mlir::Type type, mlir::Value at);
  // words[at] = value
  void set(mlir::Value words, size_t at, mlir::Value value);
  // a + b * factor
  mlir::Value plus(mlir::Value a, mlir::Value b, int64_t factor);
  mlir::Block *newBlock() { return builder.createBlock(&function.getBody(), function.getBody().end()); }

  mlir::OpBuilder builder;
  mlir::Location loc;
  mlir::ModuleOp module;
  mlir::LLVM::LLVMFuncOp function;
  mlir::Type pointer, i32, i64, none;
  mlir::Value context;
  int entry;

private:
  llvm::StringMap<mlir::LLVM::LLVMFuncOp> callees;
};

// A constant table under a name of the module.
void addTable(mlir::ModuleOp module, llvm::StringRef symbol, mlir::Type type, mlir::Attribute value);
template <typename Integer> void addTable(mlir::ModuleOp module, llvm::StringRef symbol, llvm::ArrayRef<Integer> numbers) {
  mlir::Type type = mlir::IntegerType::get(module.getContext(), 8 * sizeof(Integer));
  addTable(module, symbol, mlir::LLVM::LLVMArrayType::get(type, numbers.size()),
           mlir::DenseElementsAttr::get(mlir::RankedTensorType::get({int64_t(numbers.size())}, type), numbers));
}

} // namespace cinch
#endif
