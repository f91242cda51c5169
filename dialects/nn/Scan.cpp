// Scan.cpp: nn.scan: its types, its verifier (constraints C1.. stand in NNOps.td), and how loops are made.
#include "dialects/nn/Scan.h"

#include "mlir/IR/IRMapping.h"
#include "llvm/ADT/MapVector.h"
#include "llvm/ADT/SetVector.h"

using namespace mlir;

namespace cinch::nn {

static int64_t tensorFirst(Type type) { return cast<RankedTensorType>(type).getDimSize(0); }
static RankedTensorType withFirst(Type of, int64_t size) {
  auto type = cast<RankedTensorType>(of);
  SmallVector<int64_t> shape(type.getShape());
  shape[0] = size;
  return tensorType(shape, type.getElementType(), batchAxis(type), batchGroup(type));
}

RankedTensorType ScanOp::partOf(Type stacked) {
  auto type = cast<RankedTensorType>(stacked);
  int64_t batch = batchAxis(type);
  return tensorType(type.getShape().drop_front(), type.getElementType(), batch < 0 ? -1 : batch - 1, batchGroup(type));
}

RankedTensorType ScanOp::stackedType(Type part, int64_t trips) {
  auto type = cast<RankedTensorType>(part);
  SmallVector<int64_t> shape{trips};
  llvm::append_range(shape, type.getShape());
  int64_t batch = batchAxis(type);
  return tensorType(shape, type.getElementType(), batch < 0 ? -1 : batch + 1, batchGroup(type));
}

RankedTensorType ScanOp::runOf(Type stacked, int64_t trips) { return withFirst(stacked, tensorFirst(stacked) / trips); }
RankedTensorType ScanOp::joinedType(Type run, int64_t trips) { return withFirst(run, tensorFirst(run) * trips); }

double ScanOp::flops() {
  double trip = 0;
  block().walk([&](Cost op) { trip += op.flops(); });
  return trip * double(getTrips());
}

LogicalResult ScanOp::verify() {
  int64_t trips = getTrips();
  if (trips < 1) // C1
    return emitOpError("needs at least 1 trip, got ") << trips;
  for (ValueRange values : {ValueRange(getSlices()), ValueRange(getStacks())}) // C2
    for (Value value : values)
      if (auto type = tensorOf(value); type.getRank() < 1 || type.getDimSize(0) % trips || batchAxis(type) == 0)
        return emitOpError("an operand of type ") << type << " has no " << trips << " parts along its first axis";
  if (getStacks().size() != getFirsts().size())
    return emitOpError("has ") << getStacks().size() << " stacks, but " << getFirsts().size() << " first parts";
  SmallVector<Type> arguments(getInits().getTypes());
  for (auto [i, value] : llvm::enumerate(getSlices())) {
    size_t number = arguments.size();
    bool inRuns = number < block().getNumArguments() && block().getArgument(unsigned(number)).getType() == runOf(value.getType(), trips);
    if (!inRuns && tensorFirst(value.getType()) != trips)
      return emitOpError("slice ") << i << " of type " << value.getType() << " has no " << trips << " parts";
    arguments.push_back(inRuns ? runOf(value.getType(), trips) : partOf(value.getType()));
  }
  for (auto [stack, first] : llvm::zip(getStacks(), getFirsts())) {
    if (tensorFirst(stack.getType()) != trips)
      return emitOpError("a stack of type ") << stack.getType() << " has no " << trips << " parts";
    arguments.push_back(partOf(stack.getType()));
    if (first.getType() != arguments.back())
      return emitOpError("a first part is of type ") << first.getType() << ", expected " << arguments.back();
  }
  llvm::append_range(arguments, getWholes().getTypes());
  if (TypeRange(block().getArgumentTypes()) != TypeRange(arguments)) // C3
    return emitOpError("has body arguments that differ from its operands");
  auto end = dyn_cast<YieldOp>(yield());
  if (!end || end.getNumOperands() != getNumResults() || getNumResults() < carriedCount())
    return emitOpError("yields not one value for each result");
  for (unsigned i = 0; i < getNumResults(); ++i) {
    Type want = end.getOperand(i).getType();
    if (i >= carriedCount())
      want = tensorOf(getResult(i)).getRank() == cast<RankedTensorType>(want).getRank() && cast<RankedTensorType>(want).getRank() > 0
                 ? joinedType(want, trips)
                 : stackedType(want, trips);
    else if (want != getInits()[i].getType())
      return emitOpError("yields the carried value ") << i << " of type " << want << ", it began as " << getInits()[i].getType();
    if (getResult(i).getType() != want)
      return emitOpError("result ") << i << " is of type " << getResult(i).getType() << ", expected " << want;
  }
  for (Operation &op : block().without_terminator()) { // C4
    bool sums = touchesBatch(&op) && llvm::any_of(op.getResultTypes(), [](Type type) { return batchAxis(type) < 0; });
    if (isa<NNDialect>(op.getDialect()) && (isa<RandomOp>(op) || sums))
      return op.emitOpError(sums ? "sums over the batch inside a loop" : "draws inside a loop");
  }
  return success();
}

namespace {
// Brings what a body reads from outside into it.
class Captures {
public:
  Captures(MLIRContext *context, Block *body) : body(body), builder(context) { builder.setInsertionPointToStart(body); }

  Value inside(Value value) {
    if (Value known = mapping.lookupOrNull(value))
      return known;
    Operation *op = value.getDefiningOp();
    bool spread = op && isa<BroadcastOp>(op) && hasBatch(value) && !hasBatch(op->getOperand(0));
    if (op && (isa<ConstantOp, VectorOp, RangeOp>(op) || spread)) {
      IRMapping operands;
      for (Value operand : op->getOperands())
        operands.map(operand, inside(operand));
      Operation *copy = builder.clone(*op, operands);
      mapping.map(value, copy->getResult(0));
      return copy->getResult(0);
    }
    wholes.push_back(value);
    Value argument = body->addArgument(value.getType(), value.getLoc());
    mapping.map(value, argument);
    return argument;
  }
  SmallVector<Value> wholes;

private:
  Block *body;
  OpBuilder builder;
  IRMapping mapping;
};
} // namespace

// Every yielded value is computed in the body, and for one purpose: a carried value may be stacked, too.
static void separate(SmallVectorImpl<Value> &yields, unsigned carriedCount, OpBuilder &end, Location loc) {
  llvm::DenseSet<Value> carried, stacked;
  for (auto [i, value] : llvm::enumerate(yields)) {
    bool computed = value.getDefiningOp() && !isa<ConstantOp, VectorOp, RangeOp>(value.getDefiningOp());
    bool again = !(i < carriedCount ? carried : stacked).insert(value).second;
    if (!computed || again)
      value = ReshapeOp::create(end, loc, value.getType(), value); // a copy
  }
}

ScanOp createScan(OpBuilder &builder, Location loc, const ScanParts &parts, Block *body) {
  auto isInside = [&](Value value) {
    Operation *op = value.getDefiningOp();
    for (Block *block = op ? op->getBlock() : cast<BlockArgument>(value).getOwner(); block;) {
      if (block == body)
        return true;
      Operation *parent = block->getParentOp();
      block = parent ? parent->getBlock() : nullptr;
    }
    return false;
  };
  Captures captures(builder.getContext(), body);
  SmallVector<Operation *> ops;
  for (Operation &op : *body)
    ops.push_back(&op);
  for (Operation *op : ops)
    for (OpOperand &operand : op->getOpOperands())
      if (!isInside(operand.get()))
        operand.set(captures.inside(operand.get()));
  OpBuilder end(builder.getContext());
  end.setInsertionPointToEnd(body);
  SmallVector<Value> yields;
  for (Value value : parts.yields)
    yields.push_back(isInside(value) ? value : captures.inside(value));
  separate(yields, unsigned(parts.inits.size()), end, loc);
  YieldOp::create(end, loc, yields);
  SmallVector<Type> results;
  for (auto [i, value] : llvm::enumerate(yields)) {
    bool carried = i < parts.inits.size(), inRuns = !carried && !parts.inRuns.empty() && parts.inRuns[i - parts.inits.size()];
    results.push_back(carried  ? Type(value.getType())
                      : inRuns ? ScanOp::joinedType(value.getType(), parts.trips)
                               : ScanOp::stackedType(value.getType(), parts.trips));
  }
  auto scan = ScanOp::create(builder, loc, results, parts.inits, parts.slices, parts.stacks, parts.firsts, captures.wholes,
                             uint64_t(parts.trips), parts.reverse);
  scan.getBody().push_back(body);
  return scan;
}

// The loop with other stacked results. `resultOf`: of each old result, its number among the new; -1: gone.
static ScanOp rebuilt(ScanOp scan, ValueRange yields, ArrayRef<int> resultOf) {
  OpBuilder builder(scan);
  SmallVector<Type> results;
  for (auto [i, value] : llvm::enumerate(yields))
    results.push_back(i < scan.carriedCount() ? value.getType() : Type(ScanOp::stackedType(value.getType(), scan.getTrips())));
  for (auto [i, now] : llvm::enumerate(resultOf))
    if (now >= 0)
      results[now] = scan.getResult(unsigned(i)).getType();
  scan.yield()->setOperands(yields);
  auto other = ScanOp::create(builder, scan.getLoc(), results, scan.getInits(), scan.getSlices(), scan.getStacks(), scan.getFirsts(),
                              scan.getWholes(), scan.getTrips(), scan.getReverse());
  other->setDiscardableAttrs(scan->getDiscardableAttrDictionary());
  other.getBody().takeBody(scan.getBody());
  for (auto [result, now] : llvm::zip(scan->getResults(), resultOf))
    if (now >= 0)
      result.replaceAllUsesWith(other.getResult(unsigned(now)));
  scan.erase();
  return other;
}

// The loop with these slices, for which its body has arguments; slices and wholes that nothing reads any more go.
static ScanOp withSlices(ScanOp scan, SmallVector<Value> slices) {
  Block &block = scan.block();
  SmallVector<Value> wholes(scan.getWholes());
  auto dropUnread = [&](SmallVector<Value> &operands, unsigned first) {
    for (unsigned i = unsigned(operands.size()); i-- > 0;)
      if (block.getArgument(first + i).use_empty()) {
        block.eraseArgument(first + i);
        operands.erase(operands.begin() + i);
      }
  };
  dropUnread(wholes, scan.carriedCount() + unsigned(slices.size() + scan.getStacks().size()));
  dropUnread(slices, scan.carriedCount());
  OpBuilder builder(scan);
  auto other = ScanOp::create(builder, scan.getLoc(), scan.getResultTypes(), scan.getInits(), slices, scan.getStacks(), scan.getFirsts(),
                              wholes, scan.getTrips(), scan.getReverse());
  other->setDiscardableAttrs(scan->getDiscardableAttrDictionary());
  other.getBody().takeBody(scan.getBody());
  scan->replaceAllUsesWith(other);
  scan.erase();
  return other;
}

ScanOp splitSharedWork(ScanOp scan) {
  Block &block = scan.block();
  llvm::SetVector<Operation *> shared;
  bool ofExamples = llvm::any_of(block.getArgumentTypes(), [](Type type) { return batchAxis(type) >= 0; }) ||
                    llvm::any_of(block.without_terminator(), [](Operation &op) { return touchesBatch(&op); }); // repeated for them here
  for (Operation &op : block.without_terminator())
    if (ofExamples && !touchesBatch(&op) && !isa<ConstantOp, VectorOp, RangeOp>(op))
      shared.insert(&op);
  if (shared.empty())
    return scan;
  ScanParts parts;
  parts.trips = int64_t(scan.getTrips());
  auto body = std::make_unique<Block>();
  IRMapping inside;
  for (unsigned i = 0; i < scan.getSlices().size(); ++i)
    if (!hasBatch(scan.part(i))) {
      parts.slices.push_back(scan.getSlices()[i]);
      inside.map(scan.part(i), body->addArgument(scan.part(i).getType(), scan.getLoc()));
    }
  for (unsigned i = 0; i < scan.getWholes().size(); ++i)
    inside.map(scan.whole(i), scan.getWholes()[i]);
  OpBuilder copies(scan.getContext());
  copies.setInsertionPointToEnd(body.get());
  SmallVector<Value> leaving;
  for (Operation *op : shared) {
    copies.clone(*op, inside);
    for (Value result : op->getResults())
      if (llvm::any_of(result.getUsers(), [&](Operation *user) { return !shared.contains(user); })) {
        leaving.push_back(result);
        parts.yields.push_back(inside.lookup(result));
      }
  }
  OpBuilder builder(scan);
  ScanOp before = createScan(builder, scan.getLoc(), parts, body.release());
  before->setDiscardableAttrs(scan->getDiscardableAttrDictionary());
  SmallVector<Value> slices(scan.getSlices());
  for (auto [i, value] : llvm::enumerate(leaving)) {
    Value part = block.insertArgument(scan.carriedCount() + unsigned(slices.size()), value.getType(), value.getLoc());
    value.replaceUsesWithIf(part, [&](OpOperand &use) { return !shared.contains(use.getOwner()); });
    slices.push_back(before.stackedResult(unsigned(i)));
  }
  for (Operation *op : llvm::reverse(shared.getArrayRef()))
    op->erase();
  return withSlices(scan, std::move(slices));
}

ScanOp hoistProducts(ScanOp scan) {
  unsigned carried = scan.carriedCount(), sliced = unsigned(scan.getSlices().size());
  SmallVector<Value> slices(scan.getSlices());
  OpBuilder builder(scan);
  Block &block = scan.block();
  // The operand of the loop that a value of the body is, or a part of; null: it is computed in the trip.
  auto outside = [&](Value value, bool &part) -> Value {
    auto argument = dyn_cast<BlockArgument>(value);
    if (!argument || argument.getArgNumber() < carried)
      return {};
    unsigned number = argument.getArgNumber() - carried;
    part = number < slices.size();
    if (part) // parts that are several in a row stay
      return tensorOf(slices[number]).getRank() == tensorOf(value).getRank() + 1 ? slices[number] : Value();
    return number >= slices.size() + scan.getStacks().size()
               ? scan.getWholes()[number - slices.size() - scan.getStacks().size()]
               : Value();
  };
  for (Operation &op : llvm::make_early_inc_range(block.without_terminator())) {
    auto contract = dyn_cast<ContractOp>(op);
    bool lhsPart = false, rhsPart = false;
    Value lhs = contract ? outside(contract.getLhs(), lhsPart) : Value(), rhs = lhs ? outside(contract.getRhs(), rhsPart) : Value();
    if (!rhs || (!lhsPart && !rhsPart))
      continue;
    auto labels = [](ArrayRef<int64_t> inTrip, bool part) {
      SmallVector<int64_t> all;
      if (part)
        all.push_back(0);
      for (int64_t label : inTrip)
        all.push_back(label + 1);
      return all;
    };
    auto type = ScanOp::stackedType(contract.getType(), scan.getTrips());
    auto product = ContractOp::create(builder, op.getLoc(), type, lhs, rhs, labels(contract.getLhsLabels(), lhsPart),
                                      labels(contract.getRhsLabels(), rhsPart));
    product->setDiscardableAttrs(op.getDiscardableAttrDictionary());
    contract.getResult().replaceAllUsesWith(block.insertArgument(carried + unsigned(slices.size()), contract.getType(), op.getLoc()));
    slices.push_back(product);
    op.erase();
  }
  return slices.size() == sliced ? scan : withSlices(scan, std::move(slices));
}

ScanOp separateYields(ScanOp scan) {
  SmallVector<Value> yields;
  SmallVector<int> resultOf;
  for (unsigned i = 0; i < scan.getNumResults(); ++i) {
    bool keep = i < scan.carriedCount() || !scan.getResult(i).use_empty();
    resultOf.push_back(keep ? int(yields.size()) : -1);
    if (keep)
      yields.push_back(scan.yield()->getOperand(i));
  }
  OpBuilder end(scan.yield());
  separate(yields, scan.carriedCount(), end, scan.getLoc());
  // What is asked for after the last trip lies in a place of its own.
  for (unsigned i = 0; i < scan.carriedCount(); ++i)
    for (Value &value : MutableArrayRef<Value>(yields).drop_front(scan.carriedCount()))
      if (!scan.getResult(i).use_empty() && value == yields[i])
        value = ReshapeOp::create(end, scan.getLoc(), value.getType(), value); // a copy
  if (yields.size() == scan.getNumResults()) {
    scan.yield()->setOperands(yields);
    return scan;
  }
  return rebuilt(scan, yields, resultOf);
}

ScanOp addStacked(ScanOp scan, ArrayRef<Value> values) {
  SmallVector<Value> yields(scan.yield()->getOperands());
  SmallVector<int> resultOf = llvm::to_vector(llvm::seq<int>(0, int(yields.size())));
  llvm::append_range(yields, values);
  OpBuilder end(scan.yield());
  separate(yields, scan.carriedCount(), end, scan.getLoc());
  return rebuilt(scan, yields, resultOf);
}

} // namespace cinch::nn
