// RowWise.cpp: an op is row-wise if row i of what it makes needs row i of its operands and what is the same for all rows.
#include "compiler/analysis/RowWise.h"

#include "compiler/analysis/Specs.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Winograd.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/TypeSwitch.h"

#include <utility>

using namespace mlir;

namespace cinch::analysis {

RowKind rowKind(Type type, const RowSpace &space) {
  auto tensor = dyn_cast<RankedTensorType>(type);
  int64_t batch = nn::batchAxis(type);
  if (!tensor || batch < 0)
    return RowKind::Whole;
  if (batch != 0 || tensor.getRank() < space.lead() || nn::batchGroup(type) > 1)
    return RowKind::Other;
  return space.lead() == 2 && space.scaleOf(tensor.getDimSize(1)) == 0 ? RowKind::Other : RowKind::Rows;
}

Type typeOfBlock(Type type, const RowSpace &space, int64_t examples, int64_t positions) {
  RowKind kind = rowKind(type, space);
  if (kind == RowKind::Whole)
    return type;
  auto tensor = cast<RankedTensorType>(type);
  SmallVector<int64_t> shape(tensor.getShape());
  shape[nn::batchAxis(type)] = examples;
  if (kind == RowKind::Rows && space.lead() == 2 && positions < space.positions)
    shape[1] = positions * space.scaleOf(shape[1]);
  return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
}

int64_t sliceOfPositions(Operation *op, const RowSpace &space) {
  auto slice = dyn_cast<nn::SliceOp>(op);
  if (!slice || space.lead() != 2 || slice.getAxis() != 1 || nn::batchAxis(slice.getX()) != 0 ||
      rowKind(slice.getX().getType(), space) != RowKind::Other ||
      int64_t(slice.getEnd() - slice.getBegin()) != space.positions)
    return -1;
  return slice.getBegin();
}

namespace {

class RowRules {
public:
  explicit RowRules(const RowSpace &space) : space(space), lead(space.lead()) {}

  // `op` makes rows, or the same for all rows, of rows and of what is the same for all rows.
  bool holds(Operation *op) const {
    for (Value value : op->getOperands())
      if (kind(value) == RowKind::Other)
        return false;
    for (Value value : op->getResults())
      if (kind(value) == RowKind::Other)
        return false;
    bool touches = nn::touchesBatch(op);
    if (!touches)
      return isLoopOp(op);
    return TypeSwitch<Operation *, bool>(op)
        .Case<nn::ConstantOp, nn::RandomOp>([](auto) { return true; })
        .Case<nn::BroadcastOp>([&](auto b) { return broadcast(b); })
        .Case<nn::TransposeOp>([&](auto t) { return identity(t.getPermutation()); })
        .Case<nn::ReshapeOp>([&](auto r) { return rows(r.getX()) && rows(r.getResult()) && heightOf(r.getX()) == heightOf(r.getResult()); })
        .Case<nn::SliceOp>([&](auto s) { return int64_t(s.getAxis()) >= lead; })
        .Case<nn::PadOp>([&](auto p) { return int64_t(p.getAxis()) >= lead; })
        .Case<nn::ConcatOp>([&](auto c) { return int64_t(c.getAxis()) >= lead; })
        .Case<nn::ReverseOp>([&](auto r) { return int64_t(r.getAxis()) >= lead; })
        .Case<nn::ArgMaxOp, nn::ArgMinOp>([&](auto a) { return int64_t(a.getAxis()) >= lead; })
        .Case<nn::ReduceOp>([&](auto r) { return reduce(r); })
        .Case<nn::ContractOp>([&](auto c) { return contract(c); })
        .Case<nn::GatherOp>([&](auto g) { return gather(g); })
        .Case<nn::ConvOp>([&](auto c) { return conv(c); })
        .Case<nn::MaxPoolOp, nn::SumPoolOp, nn::MaxPoolGradOp, nn::SumPoolGradOp>([&](Operation *p) { return pool(p); })
        .Case<nn::RangeOp, nn::GroupMeanOp, nn::ScatterAddOp, nn::AttendOp, nn::AttendGradOp>([](auto) { return false; })
        .Default([&](Operation *other) { return elementwise(other); });
  }

private:
  RowKind kind(Value value) const { return rowKind(value.getType(), space); }
  bool rows(Value value) const { return kind(value) == RowKind::Rows; }
  int64_t heightOf(Value value) const { return lead == 2 ? nn::tensorOf(value).getDimSize(1) : 0; }
  bool image(Value value) const { return lead == 2 && rows(value) && nn::tensorOf(value).getRank() == 4; }

  // Rows of the one image that meet a row of the other belong to a position near it: strides are those of the heights.
  bool conv(nn::ConvOp op) const {
    Value in = op.part(nn::ConvPart::Image), out = op.part(nn::ConvPart::Output);
    if (!image(in) || !image(out) || space.scaleOf(heightOf(in)) != op.getStride()[0] * space.scaleOf(heightOf(out)))
      return false;
    // A sum over rows takes each of them once.
    return op.getGives() != nn::ConvPart::Filter || heightOf(out) == space.positions * space.scaleOf(heightOf(out));
  }
  // What lies outside of the image is left out of a window, so none may begin there.
  bool pool(Operation *op) const {
    auto of = [&](const char *name) { return op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef()[0]; };
    bool gradient = isa<nn::MaxPoolGradOp, nn::SumPoolGradOp>(op);
    Value x = gradient ? op->getResult(0) : op->getOperand(0), y = gradient ? op->getOperands().back() : op->getResult(0);
    return image(x) && image(y) && space.scaleOf(heightOf(x)) == of("stride") * space.scaleOf(heightOf(y)) && of("pad") == 0 &&
           (!gradient || (of("window") == of("stride") && heightOf(x) == of("stride") * heightOf(y)));
  }

  // Axis i of the list is i for the axes that count rows.
  bool identity(ArrayRef<int64_t> list) const {
    for (int64_t i = 0; i < lead; ++i)
      if (i >= int64_t(list.size()) || list[i] != i)
        return false;
    return true;
  }
  bool above(ArrayRef<int64_t> list) const {
    return llvm::all_of(list, [&](int64_t label) { return label < 0 || label >= lead; });
  }
  bool fits(Value value, ArrayRef<int64_t> labels) const { return rows(value) ? identity(labels) : above(labels); }

  // One shape throughout: the axes are the same ones.
  bool elementwise(Operation *op) const {
    if (op->getNumResults() != 1 || !isLoopOp(op))
      return false;
    auto shape = nn::tensorOf(op->getResult(0)).getShape();
    return llvm::all_of(op->getOperands(), [&](Value v) { return rows(v) && nn::tensorOf(v).getShape() == shape; });
  }

  bool broadcast(nn::BroadcastOp op) const { return rows(op.getResult()) && fits(op.getX(), op.getAxes()); }

  // Blocks have all rows, and no more than these.
  bool eachOnce(Value value) const { return lead == 1 || heightOf(value) == space.positions * space.scaleOf(heightOf(value)); }

  bool reduce(nn::ReduceOp op) const {
    if (rows(op.getResult()))
      return above(op.getAxes());
    // A sum over rows: the slowest of its chain are the rows.
    ReductionAxes split = splitReduction(op.getX(), op.getAxes());
    return rows(op.getX()) && identity(split.chain) && eachOnce(op.getX());
  }

  bool contract(nn::ContractOp op) const {
    ArrayRef<int64_t> lhs = op.getLhsLabels(), rhs = op.getRhsLabels();
    if (rows(op.getResult()))
      return fits(op.getLhs(), lhs) && fits(op.getRhs(), rhs);
    if (!rows(op.getLhs()) || !rows(op.getRhs()))
      return false;
    // A sum over rows: their labels are the smallest that are summed.
    if (!eachOnce(op.getLhs()))
      return false;
    int64_t rank = nn::tensorOf(op.getResult()).getRank();
    for (int64_t i = 0; i < lead; ++i)
      if (lhs[i] != rank + i || rhs[i] != rank + i)
        return false;
    return true;
  }

  bool gather(nn::GatherOp op) const {
    if (!rows(op.getResult()) || !fits(op.getX(), op.getXLabels()))
      return false;
    for (auto [i, index] : llvm::enumerate(op.getIndices()))
      if (!fits(index, cast<DenseI64ArrayAttr>(op.getIndexLabels()[i]).asArrayRef()))
        return false;
    return true;
  }

  const RowSpace &space;
  int64_t lead;
};

} // namespace

// The convolution or the pool that a kernel is; null: it is neither.
static Operation *windowOf(plan::KernelOp kernel) {
  for (Operation &op : kernel.getBody().front().without_terminator())
    if (isa<nn::ConvOp>(op) || plan::kindOf(&op) == plan::KernelKind::Pool)
      return &op;
  return nullptr;
}

// Are all its rows those of images of one height, but for a convolution or a pool of views of its operands?
static bool isOfOneHeight(plan::KernelOp kernel, const RowSpace &space) {
  Block &body = kernel.getBody().front();
  if (Operation *window = windowOf(kernel))
    return llvm::all_of(body.without_terminator(), [&](Operation &op) { return &op == window || isView(&op); });
  int64_t height = 0;
  for (Operation &op : body.without_terminator())
    for (Value result : op.getResults())
      if (space.lead() == 2 && rowKind(result.getType(), space) == RowKind::Rows) {
        int64_t rows = nn::tensorOf(result).getDimSize(1);
        if (height > 0 && rows != height)
          return false;
        height = rows;
      }
  return true;
}

bool isRowWise(plan::KernelOp kernel, const RowSpace &space) {
  RowRules rules(space);
  Block &body = kernel.getBody().front();
  OperandRange stores = body.getTerminator()->getOperands();
  if (!isOfOneHeight(kernel, space))
    return false;
  for (Operation &op : body.without_terminator()) {
    if (sliceOfPositions(&op, space) >= 0 && isa<BlockArgument>(op.getOperand(0)) &&
        !llvm::is_contained(stores, op.getResult(0)))
      continue; // the block starts further in
    if (!rules.holds(&op))
      return false;
    // A sum over rows is complete behind the last block only: nothing here may read it.
    for (Value result : op.getResults())
      if (nn::touchesBatch(&op) && rowKind(result.getType(), space) == RowKind::Whole &&
          (!llvm::is_contained(stores, result) ||
           llvm::any_of(result.getUsers(), [&](Operation *user) { return user != body.getTerminator(); })))
        return false;
  }
  return llvm::any_of(body.without_terminator(), [](Operation &op) { return nn::touchesBatch(&op); });
}

// Of several places to begin at in one operand, those behind the first become inputs of their own.
std::map<unsigned, int64_t> takeSlices(plan::KernelOp kernel, const RowSpace &space) {
  std::map<unsigned, int64_t> firstOf;
  Block &body = kernel.getBody().front();
  auto place = [&](Operation *op) { return std::distance(body.begin(), Block::iterator(op)); };
  for (BlockArgument argument : llvm::to_vector(body.getArguments())) {
    llvm::MapVector<int64_t, SmallVector<Operation *>> cuts;
    for (Operation &op : body)
      if (int64_t begin = sliceOfPositions(&op, space); begin >= 0 && op.getOperand(0) == argument)
        cuts[begin].push_back(&op);
    for (auto [i, cut] : llvm::enumerate(cuts)) {
      BlockArgument input = argument;
      if (i > 0) {
        input = body.addArgument(argument.getType(), argument.getLoc());
        kernel.getInputsMutable().append(kernel.getInputs()[argument.getArgNumber()]);
      }
      input.setType(cut.second.front()->getResult(0).getType());
      for (Operation *slice : cut.second) {
        if (auto domain = kernel.getDomain(); domain && place(slice) < int64_t(*domain))
          kernel.setDomain(*domain - 1);
        slice->getResult(0).replaceAllUsesWith(input);
        slice->erase();
      }
      firstOf[input.getArgNumber()] = cut.first;
    }
  }
  return firstOf;
}

// ---- Some rows of images -----------------------------------------------------------------------------------------------------------
static bool givesImage(Operation *op) {
  auto conv = dyn_cast<nn::ConvOp>(op);
  return isa<nn::MaxPoolGradOp, nn::SumPoolGradOp>(op) || (conv && conv.getGives() == nn::ConvPart::Image);
}

solve::RowReach reachOf(OpOperand &operand) {
  Operation *op = operand.getOwner();
  Value value = operand.get();
  auto of = [&](const char *name) { return op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef()[0]; };
  auto conv = dyn_cast<nn::ConvOp>(op);
  if (!conv && plan::kindOf(op) != plan::KernelKind::Pool)
    return {};
  // What gives a filter walks the output's rows.
  if (conv &&
      (value == conv.part(nn::ConvPart::Filter) || (conv.getGives() == nn::ConvPart::Filter && value == conv.part(nn::ConvPart::Output))))
    return {};
  int64_t stride = of("stride"), pad = of("pad");
  int64_t reach = conv ? of("dilate") * (nn::tensorOf(conv.part(nn::ConvPart::Filter)).getDimSize(0) - 1) : of("window") - 1;
  return givesImage(op) ? solve::RowReach{1, stride, pad - reach, pad} : solve::RowReach{stride, 1, -pad, reach - pad};
}

// The operands of a convolution or a pool that are an input of its kernel, or views of it; none without one.
static SmallVector<OpOperand *> operandsFrom(Operation *window, BlockArgument argument) {
  SmallVector<OpOperand *> found;
  for (OpOperand &operand : window ? window->getOpOperands() : MutableArrayRef<OpOperand>()) {
    Value value = operand.get();
    while (Operation *view = value.getDefiningOp())
      value = view->getOperand(0);
    if (value == argument)
      found.push_back(&operand);
  }
  return found;
}

void takeRows(plan::KernelOp kernel, const RowSpace &space, const solve::TripRows &made, ArrayRef<solve::TripRows> known) {
  Block &body = kernel.getBody().front();
  auto typeWith = [&](Type type, int64_t rows) -> Type {
    if (rowKind(type, space) != RowKind::Rows)
      return type;
    auto tensor = cast<RankedTensorType>(type);
    SmallVector<int64_t> shape(tensor.getShape());
    shape[0] = 1, shape[1] = rows;
    return RankedTensorType::get(shape, tensor.getElementType(), tensor.getEncoding());
  };
  Operation *window = windowOf(kernel);
  SmallVector<Operation *> own = llvm::map_to_vector(body.without_terminator(), [](Operation &op) { return &op; });
  OpBuilder builder(&body, body.begin());
  for (BlockArgument argument : body.getArguments()) {
    if (rowKind(argument.getType(), space) != RowKind::Rows)
      continue;
    const solve::TripRows &there = known[argument.getArgNumber()];
    SmallVector<OpOperand *> read = operandsFrom(window, argument);
    solve::TripRows needed = solve::rowsNeeded(read.empty() ? solve::RowReach() : reachOf(*read.front()), made);
    Type type = typeWith(argument.getType(), needed.count);
    argument.setType(typeWith(argument.getType(), there.count));
    if (needed.count == there.count)
      continue;
    auto slice = nn::SliceOp::create(builder, argument.getLoc(), type, argument, 1,
                                     needed.first - there.first, needed.first - there.first + needed.count);
    argument.replaceAllUsesExcept(slice, slice);
    if (auto domain = kernel.getDomain())
      kernel.setDomain(*domain + 1);
  }
  if (window) {
    SmallVector<int64_t> pad(window->getAttrOfType<DenseI64ArrayAttr>("pad").asArrayRef());
    pad[0] = 0;
    if (givesImage(window)) {
      solve::RowReach reach = reachOf(window->getOpOperand(0));
      pad[0] = made.first + reach.to - solve::rowsNeeded(reach, made).first * reach.down;
    }
    window->setAttr("pad", builder.getDenseI64ArrayAttr(pad));
    if (window->hasAttr(nn::kWinogradAttr))
      window->setAttr(nn::kWinogradRowsAttr, builder.getDenseI64ArrayAttr({made.first & 1, made.step & 1}));
  }
  for (Operation *op : own) {
    bool view = window && op != window; // of as many rows as its operand has by now
    int64_t rows = view && nn::hasBatch(op->getOperand(0)) ? nn::tensorOf(op->getOperand(0)).getDimSize(1) : made.count;
    for (Value result : op->getResults())
      result.setType(typeWith(result.getType(), rows));
  }
  for (Value result : kernel.getResults())
    result.setType(typeWith(result.getType(), made.count));
}

// Second axes of the step's tensors, widest tensors first; last, no positions at all.
static SmallVector<int64_t> positionsOf(const Step &step) {
  SmallVector<std::pair<int64_t, int64_t>> found; // (elements, positions)
  for (const Step::Part &part : step.parts)
    if (step.inMainLoop(part.part))
      for (Value value : part.op->getResults())
        if (Shape shape = shapeOf(value); batchAxisOf(value) == 0)
          found.push_back({elementsOf(value), shape.size() > 2 ? shape[1] : 1});
  llvm::stable_sort(found, [](auto &a, auto &b) { return a.first > b.first; });
  SmallVector<int64_t> positions;
  for (auto &[elements, count] : found)
    if (!llvm::is_contained(positions, count))
      positions.push_back(count);
  if (!llvm::is_contained(positions, 1))
    positions.push_back(1);
  return positions;
}

// Images whose heights belong to these positions: as many rows a position as strides make of them, and none beyond the last one.
static RowSpace spaceOf(const Step &step, int64_t positions, bool images) {
  RowSpace space{positions, {}};
  if (!images || positions == 1)
    return space;
  SmallVector<Operation *> windows;
  for (const Step::Part &part : step.parts)
    if (plan::KernelOp kernel = part.kernel(); kernel && step.inMainLoop(part.part))
      if (Operation *window = windowOf(kernel))
        windows.push_back(window);
  auto know = [&](int64_t height, int64_t scale) {
    return space.scaleOf(height) == 0 && height <= positions * scale && space.heights.try_emplace(height, scale).second;
  };
  for (bool changed = true; changed;) {
    changed = false;
    for (Operation *window : windows) {
      auto conv = dyn_cast<nn::ConvOp>(window);
      bool gradient = !conv && givesImage(window);
      Value in = conv ? conv.part(nn::ConvPart::Image) : gradient ? window->getResult(0) : window->getOperand(0);
      Value out = conv ? conv.part(nn::ConvPart::Output) : gradient ? window->getOperands().back() : window->getResult(0);
      if (nn::tensorOf(in).getRank() != 4 || batchAxisOf(in) != 0)
        continue;
      int64_t stride = window->getAttrOfType<DenseI64ArrayAttr>("stride").asArrayRef()[0];
      int64_t above = nn::tensorOf(in).getDimSize(1), below = nn::tensorOf(out).getDimSize(1);
      if (int64_t scale = space.scaleOf(below))
        changed |= know(above, scale * stride);
      else if (int64_t scale = space.scaleOf(above); scale > 0 && scale % stride == 0)
        changed |= know(below, scale / stride);
    }
  }
  return space;
}

// What the solvers know of the rows of a kernel that is work on rows.
static void describeRows(plan::KernelOp kernel, const RowSpace &space, const Step &step, const StepProblem &problem,
                         solve::Kernel &marked) {
  Operation *window = windowOf(kernel);
  Block &body = kernel.getBody().front();
  marked.rowScale = marked.rowsTogether = 1;
  marked.ownRows = false;
  marked.reach.assign(marked.reads.size(), {});
  auto heightOf = [&](Value value) {
    return space.lead() == 2 && rowKind(value.getType(), space) == RowKind::Rows ? nn::tensorOf(value).getDimSize(1) : 0;
  };
  bool draws = false;
  for (Operation &op : body.without_terminator()) {
    draws |= isa<nn::RandomOp>(op) && nn::touchesBatch(&op);
    for (Value result : op.getResults()) {
      marked.ownRows |= nn::touchesBatch(&op) && rowKind(result.getType(), space) == RowKind::Whole;
      if (int64_t height = heightOf(result))
        marked.rowScale = space.scaleOf(height);
    }
  }
  if (auto conv = dyn_cast_or_null<nn::ConvOp>(window); conv && conv.getGives() == nn::ConvPart::Filter)
    marked.rowScale = space.scaleOf(heightOf(conv.part(nn::ConvPart::Output)));
  else if (!window && kernel.getNumResults() > 0 && marked.ownRows)
    for (Value argument : body.getArguments())
      if (int64_t height = heightOf(argument))
        marked.rowScale = space.scaleOf(height);
  marked.ownRows |= draws;
  marked.rows &= !draws || marked.rowScale == 1; // draws are numbered by positions
  if (!window)
    return marked.reach.clear();
  if (!isa<nn::ConvOp>(window) && givesImage(window)) // windows are whole
    marked.rowsTogether = window->getAttrOfType<DenseI64ArrayAttr>("stride").asArrayRef()[0];
  SmallVector<char> known(marked.reads.size(), false);
  for (BlockArgument argument : body.getArguments()) {
    int buffer = problem.buffer.lookup(step.inMemory(kernel.getInputs()[argument.getArgNumber()]));
    size_t read = size_t(llvm::find(marked.reads, buffer) - marked.reads.begin());
    for (OpOperand *operand : operandsFrom(window, argument)) {
      solve::RowReach reach = reachOf(*operand);
      marked.rows &= std::exchange(known[read], char(true)) ? marked.reach[read] == reach : true; // not in two ways
      marked.reach[read] = reach;
    }
  }
  if (llvm::all_of(marked.reach, [](const solve::RowReach &reach) { return reach.isOwnRow(); }))
    marked.reach.clear();
}

void markRows(const Step &step, StepProblem &problem, bool images) {
  SmallVector<int64_t> candidates = positionsOf(step);
  auto mark = [&](int64_t positions) {
    RowSpace space = spaceOf(step, positions, images);
    problem.graph.positions = positions;
    problem.heights = space.heights;
    for (auto &[value, buffer] : problem.buffer)
      if (space.lead() == 2 && rowKind(value.getType(), space) == RowKind::Rows) {
        problem.graph.buffers[buffer].rows = nn::tensorOf(value).getDimSize(1);
        problem.graph.buffers[buffer].rowScale = space.scaleOf(nn::tensorOf(value).getDimSize(1));
      } else {
        problem.graph.buffers[buffer].rows = 0, problem.graph.buffers[buffer].rowScale = 1;
      }
    for (auto [part, marked] : llvm::zip(step.parts, problem.graph.kernels)) {
      plan::KernelOp kernel = part.kernel();
      marked.rows = kernel && step.inMainLoop(part.part) && traitsOf(kernel.getKind()).rows && (images || !windowOf(kernel)) &&
                    isRowWise(kernel, space);
      if (marked.rows)
        describeRows(kernel, space, step, problem, marked);
    }
  };
  for (int64_t positions : candidates) {
    mark(positions);
    if (!solve::findRowWork(problem.graph).empty())
      return;
  }
  mark(candidates.front());
}

} // namespace cinch::analysis
