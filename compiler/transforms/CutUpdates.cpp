// CutUpdates.cpp: the update of a parameter is done in runs of its rows.
//
//     %w1, %m1 = (ops on %w, %dw, %m : [12, 8], element by element)
//  ->
//     %w#0, %m1#0 = (the same ops on rows 0 to 5 of %w and %dw, and on %m#0 : [6, 8])       likewise #1
//     %w1 = nn.concat %w#0, %w#1 axis 0
//
// The sum of the gradient's squares stays one sum, because its order counts. An update that is more than work on elements (muon's), that
// other values read (an average of the parameter), or whose state something else reads stays as it is.
#include "compiler/transforms/CutUpdates.h"

#include "compiler/solve/stages/Rows.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Pieces.h"
#include "dialects/nn/Versions.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace cinch {
namespace {

// The update of one parameter, if it can be cut.
class Cutter {
public:
  Cutter(func::FuncOp function, BlockArgument parameter)
      : function(function), parameter(parameter), exit(function.getBody().front().getTerminator()),
        path(function.getArgAttrOfType<StringAttr>(parameter.getArgNumber(), nn::kPathAttr).getValue()) {
    canCut = nn::tensorOf(parameter).getRank() > 0 && findState() && findOps();
  }

  // The parameter's rows, and their state; one row, if the update cannot be cut.
  solve::RowsProblem::Tensor tensor() const {
    auto type = nn::tensorOf(parameter);
    int64_t bytes = type.getNumElements() * int64_t(type.getElementTypeBitWidth() / 8);
    return {bytes * int64_t(1 + state.size()), canCut ? type.getDimSize(0) : 1};
  }

  void cut(int64_t parts) {
    OpBuilder b(exit);
    int64_t rows = nn::tensorOf(parameter).getDimSize(0) / parts;
    SmallVector<Value> runs;
    std::vector<SmallVector<Value>> states(state.size());
    for (int64_t i = 0; i < parts; ++i) {
      IRMapping run;
      for (State &each : state)
        run.map(each.old, addState(each, i, parts));
      for (Operation *op : ops)
        copy(op, i, rows, run, b);
      runs.push_back(run.lookup(next()));
      for (auto [list, each] : llvm::zip(states, state))
        list.push_back(run.lookup(exit->getOperand(each.result)));
    }
    auto whole = nn::ConcatOp::create(b, parameter.getLoc(), runs, uint64_t(0));
    whole->setDiscardableAttrs(next().getDefiningOp()->getDiscardableAttrDictionary());
    whole->setAttr(nn::kJoinsAttr, b.getUnitAttr());
    exit->setOperand(result, whole);
    replaceResults(states, b);
    for (Operation *op : llvm::reverse(ops))
      op->erase();
    eraseState();
  }

private:
  bool canCut = false;
  struct State {
    BlockArgument old;
    unsigned result; // number of the function's result that is its new value
    std::string name; // behind the parameter's path
  };

  Value next() const { return exit->getOperand(result); }

  bool findState() {
    llvm::StringMap<unsigned> results;
    for (unsigned i = 0; i < function.getNumResults(); ++i)
      for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
        if (auto name = function.getResultAttrOfType<StringAttr>(i, kind))
          results[(kind + name.getValue()).str()] = i;
    auto own = results.find((nn::kPathAttr + path).str());
    if (own == results.end())
      return false;
    result = own->second;
    for (BlockArgument argument : function.getArguments()) {
      auto slot = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kSlotAttr);
      if (!slot || slot.getValue().rsplit('.').first != path || nn::isVersion(slot.getValue()))
        continue;
      auto updated = results.find((nn::kSlotAttr + slot.getValue()).str());
      if (updated == results.end() || argument.getType() != parameter.getType())
        return false;
      state.push_back({argument, updated->second, slot.getValue().rsplit('.').second.str()});
    }
    return !state.empty();
  }

  bool isLikeParameter(Value value) const { return nn::tensorOf(value).getShape() == nn::tensorOf(parameter).getShape(); }
  static bool isNumber(Value value) { return nn::tensorOf(value).getRank() == 0; }
  static bool isFilled(Operation *op) { return isa<nn::ConstantOp>(op) || (isa<nn::BroadcastOp>(op) && isNumber(op->getOperand(0))); }

  // The ops that make the new parameter and the new state and nothing else, in their order.
  bool findOps() {
    DenseSet<Value> made{next()};
    for (const State &each : state)
      if (!made.insert(exit->getOperand(each.result)).second)
        return false;
    DenseSet<Operation *> inside;
    for (Operation &op : llvm::reverse(function.getBody().front().without_terminator())) {
      if (op.getNumResults() != 1 || !isLikeParameter(op.getResult(0)) || !(op.hasTrait<OpTrait::Elementwise>() || isFilled(&op)))
        continue;
      bool isMade = made.contains(op.getResult(0));
      bool readInside = llvm::all_of(op.getUsers(), [&](Operation *user) { return inside.contains(user) || (isMade && user == exit); });
      if (!op.getResult(0).use_empty() && readInside) {
        inside.insert(&op);
        ops.push_back(&op);
      }
    }
    std::reverse(ops.begin(), ops.end());
    bool all = llvm::all_of(made, [&](Value value) { return value.getDefiningOp() && inside.contains(value.getDefiningOp()); });
    for (const State &each : state)
      all &= llvm::all_of(each.old.getUsers(), [&](Operation *user) { return inside.contains(user); });
    for (Operation *op : ops)
      for (Value operand : op->getOperands())
        all &= isLikeParameter(operand) || isNumber(operand);
    return all;
  }

  // A run of the state's rows takes the place of one of the arguments at the end.
  Value addState(const State &each, int64_t run, int64_t parts) {
    auto type = nn::tensorOf(each.old);
    SmallVector<int64_t> shape(type.getShape());
    shape.front() /= parts;
    NamedAttrList attributes(function.getArgAttrDict(each.old.getArgNumber()));
    Builder b(function.getContext());
    attributes.set(nn::kSlotAttr, b.getStringAttr(nn::nameOnShard(path, run) + "." + each.name));
    attributes.set(nn::kSplitAttr, b.getDenseI64ArrayAttr({1, parts}));
    unsigned at = function.getNumArguments();
    (void)function.insertArgument(at, type.clone(shape), attributes.getDictionary(function.getContext()), each.old.getLoc());
    return function.getArgument(at);
  }

  void copy(Operation *op, int64_t run, int64_t rows, IRMapping &known, OpBuilder &b) {
    for (Value operand : op->getOperands())
      if (!known.contains(operand) && !isNumber(operand)) {
        auto slice = nn::SliceOp::create(b, op->getLoc(), operand, uint64_t(0), uint64_t(run * rows), uint64_t((run + 1) * rows));
        slice->setDiscardableAttrs(op->getDiscardableAttrDictionary());
        if (isa<BlockArgument>(operand)) // each replica has the parameter; of what is computed, the rows are handed out
          slice->setAttr(nn::kPieceAttr, b.getI64IntegerAttr(run));
        known.map(operand, slice.getResult());
      }
    Operation *own = b.clone(*op, known);
    auto type = nn::tensorOf(op->getResult(0));
    SmallVector<int64_t> shape(type.getShape());
    shape.front() = rows;
    own->getResult(0).setType(type.clone(shape));
    own->setAttr(nn::kPieceAttr, b.getI64IntegerAttr(run));
    known.map(op->getResult(0), own->getResult(0));
  }

  // The new state of each run in the place of the whole.
  void replaceResults(ArrayRef<SmallVector<Value>> states, OpBuilder &b) {
    SmallVector<Value> values;
    SmallVector<Attribute> attributes;
    for (unsigned i = 0; i < exit->getNumOperands(); ++i) {
      auto each = llvm::find_if(state, [&](const State &one) { return one.result == i; });
      if (each == state.end()) {
        values.push_back(exit->getOperand(i));
        attributes.push_back(function.getResultAttrDict(i));
        continue;
      }
      for (auto [run, value] : llvm::enumerate(states[size_t(each - state.begin())])) {
        values.push_back(value);
        NamedAttrList named(function.getResultAttrDict(i));
        named.set(nn::kSlotAttr, b.getStringAttr(nn::nameOnShard(path, int64_t(run)) + "." + each->name));
        attributes.push_back(named.getDictionary(function.getContext()));
      }
    }
    exit->setOperands(values);
    function.setFunctionType(FunctionType::get(function.getContext(), function.getArgumentTypes(), ValueRange(values).getTypes()));
    function.setResAttrsAttr(b.getArrayAttr(attributes));
  }

  void eraseState() {
    llvm::BitVector erased(function.getNumArguments());
    for (const State &each : state)
      erased.set(each.old.getArgNumber());
    (void)function.eraseArguments(erased);
  }

  func::FuncOp function;
  BlockArgument parameter;
  Operation *exit;
  StringRef path;
  unsigned result = 0; // number of the function's result that is the new parameter
  SmallVector<State> state;
  std::vector<Operation *> ops;
};

} // namespace

// A run's kernel is code of its own, some 15 KB, on every worker.
constexpr int64_t kLeastRun = 32 << 10;

bool cutUpdates(func::FuncOp function, int workers) {
  solve::RowsProblem problem;
  problem.workers = workers, problem.least = kLeastRun;
  SmallVector<StringRef> paths;
  for (BlockArgument argument : function.getArguments())
    if (auto path = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kPathAttr)) {
      problem.tensors.push_back(Cutter(function, argument).tensor());
      paths.push_back(path.getValue());
    }
  solve::RowsSolution solution = solve::solve(problem);
  if (std::string wrong = solve::verify(problem, solution); !wrong.empty()) {
    function.emitError("internal error: updates in runs of rows: ") << wrong;
    return false;
  }
  bool any = false;
  for (auto [path, parts] : llvm::zip_equal(paths, solution.parts)) {
    if (parts == 1)
      continue;
    for (BlockArgument argument : function.getArguments())
      if (function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kPathAttr) == path) {
        Cutter(function, argument).cut(parts);
        any = true;
        break;
      }
  }
  if (any)
    function->setAttr(nn::kRowsAttr, UnitAttr::get(function.getContext()));
  return any;
}

} // namespace cinch
