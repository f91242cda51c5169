// HostCode.h: scheduled functions become kernels and the code that calls them.
//
// Every plan.kernel becomes a launch of a kernel function; equal specs share one function. Launches with constant offsets are
// rows of a table, which one small function walks, so that code does not grow with the depth; around them stands the micro-batch
// loop. In a loop over blocks of rows, offsets move with the block, and each launch is code of its own. Host code calls the
// functions of runtime.h and nothing else.
#ifndef CINCH_COMPILER_PHASES_HOSTCODE_H
#define CINCH_COMPILER_PHASES_HOSTCODE_H

#include "compiler/analysis/Cost.h"
#include "compiler/analysis/Target.h"
#include "compiler/target/DeviceCode.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/BuiltinOps.h"
#include "llvm/ADT/StringMap.h"

#include <map>
#include <memory>

namespace cinch {

// What the runtime is told of a launch.
struct LaunchInfo {
  std::string kernel, text; // function; for people: "blocks.3.ff: mul"
  std::string file; // with `line`: where it is written; the prelude has lines, too
  int line = 0;
  struct Buffer {
    int word = 0; // of the launch's offsets, where its offset stands
    int64_t count = 0; // elements in memory
    kernels::Elem elem = kernels::Elem::F32;
    int64_t columns = 0, pitch = 0; // of rows that do not lie side by side; 0: they do
  };
  analysis::LaunchPrice price; // what it does, and what the cost model says of it
  // Of a launch that a failed step is replayed with: of a training step, before the gate.
  std::vector<Buffer> outputs;
  int body = -1, operations = -1; // numbers in HostCode's tables; no body: attention
  std::vector<Buffer> inputs;    // of floats, if there is no body
  int64_t examples = 0;          // that the outputs hold, if there is no body and the examples come first
};

// The ops that a kernel computes, in their order, for messages. Equal layers share one list.
struct KernelOperations {
  struct Operation {
    std::string name, file;
    int line = 0;
    bool ofExamples = false; // its result has the batch axis
  };
  std::vector<Operation> operations;
  std::vector<int> ofNode; // per node of the body: its operation; -1: none
};

class HostCode {
public:
  HostCode(mlir::ModuleOp module, const analysis::Target &machine)
      : module(module), target(machine.kernels()), maxThreads(machine.threads()), machine(machine.rates()) {}

  // Kernels of a scheduled function (assign-memory has run).
  mlir::LogicalResult addKernels(mlir::func::FuncOp function);
  // After all kernels were added and lowered to the LLVM dialect: the tables, and the functions that walk them; then the entry
  // points of the functions, one by one. `entry` is its number for the runtime; if `counted`, the number of micro-batches is an argument.
  void addTables();
  // Several functions: one a worker, of which a call runs that of the worker whose context it is given; null: it has nothing to do.
  void addEntry(llvm::ArrayRef<mlir::func::FuncOp> functions, llvm::StringRef symbol, int entry, bool counted);
  // The kernels of a GPU, as code is generated for them. The host knows each as a row of numbers: which it is, blocks, threads of a
  // block, words of a launch.
  std::vector<target::DeviceKernel> deviceKernels;
  // Comments for the text of these kernels, "; NAME: FILE:LINE: WHAT; ..", one a kernel: some of the places in the program that it serves.
  std::string linesOfKernels() const;

  // How a kernel is launched.
  struct Call {
    int launch;
    bool alone; // on one thread
    std::string kernel;
    // There are thousands of calls: none takes room for what it has not.
    template <class T> using List = llvm::SmallVector<T, 0>;
    List<int64_t> words; // offsets, scratch, keys
    List<std::pair<int64_t, int64_t>> zeroed; // (offset, bytes) to clear first
    // The values whose offsets the first words are, and those whose bytes `zeroed` are: a loop may move them.
    List<mlir::Value> values, zeroedValues;
  };
  const Call &callOf(mlir::Operation *kernel) const { return *calls.find(kernel)->second; }
  // What a loop over micro-batches begins with: rows of the table of cleared ranges, from which to before which; and what is
  // accumulated from another start than 0.
  struct Start {
    struct Range {
      int64_t offset, bytes, word; // the word, again and again
    };
    std::pair<int64_t, int64_t> cleared;
    llvm::SmallVector<Range> set;
    // Where steps overlap: the same for the sums of the next step; and all sums, with the bytes from this step's to the next one's.
    std::pair<int64_t, int64_t> clearedNext;
    llvm::SmallVector<std::pair<int64_t, int64_t>> sums;
  };
  Start startOf(mlir::Operation *loop) const { return starts.lookup(loop); }

  std::vector<LaunchInfo> launches;
  std::vector<std::vector<int64_t>> bodies; // KernelBody.h
  std::vector<KernelOperations> operations;

private:
  void addFunction(mlir::func::FuncOp function, llvm::StringRef symbol, int entry, bool counted);
  mlir::LogicalResult addKernel(mlir::Operation *kernel, bool replayed);
  void describeBody(plan::KernelOp, const analysis::KernelSpec &, LaunchInfo &);
  void describeOperands(plan::KernelOp, const analysis::KernelSpec &, LaunchInfo &);
  void addDeviceKernel(const analysis::KernelSpec &, const Call &);
  std::string shared(const std::string &key, llvm::function_ref<mlir::func::FuncOp(const std::string &)> build);
  int bodyNumber(std::vector<int64_t> body);
  int operationsNumber(KernelOperations list);
  // (offset, bytes) of the arena become rows of the table of cleared ranges: from which to before which.
  std::pair<int64_t, int64_t> clearedLater(llvm::ArrayRef<std::pair<int64_t, int64_t>> ranges);

  mlir::ModuleOp module;
  kernels::TargetInfo target;
  int maxThreads;
  analysis::MachineRates machine;
  analysis::KernelSpecs specs;            // of the function whose kernels are added
  llvm::StringMap<std::string> functions; // key of a spec -> name
  llvm::DenseMap<mlir::Operation *, std::unique_ptr<Call>> calls; // a call is large, and the table has empty places
  llvm::SmallVector<mlir::Operation *> launched; // per number of a launch
  llvm::SmallVector<int64_t> cleared;            // offset, bytes, ..
  llvm::DenseMap<mlir::Operation *, Start> starts; // of loops over micro-batches
  std::map<std::vector<int64_t>, int> bodyNumbers;
  llvm::StringMap<int> operationsNumbers;
};

// A constant string under a global name, with a 0 behind it.
void addText(mlir::ModuleOp, llvm::StringRef symbol, const std::string &text);
// A reference to a symbol that somebody else has to bring.
void requireSymbol(mlir::ModuleOp, llvm::StringRef symbol);

} // namespace cinch
#endif
