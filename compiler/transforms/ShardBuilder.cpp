// ShardBuilder.cpp: see ShardBuilder.h.
#include "compiler/transforms/ShardBuilder.h"

#include "mlir/IR/IRMapping.h"

using namespace mlir;

namespace cinch {

static constexpr int kWholeNeed = analysis::ShardForms::kWhole, kSharedNeed = analysis::ShardForms::kShared;

// Hints and places of an op hold for the ops that it becomes, in each shard. That its result is rounded holds for the last of them alone (`giveRounding`).
void ShardBuilder::mark(Operation *before, Operation *source, int64_t shard) {
  Builder b(source->getContext());
  for (Operation *op = before ? before->getNextNode() : &source->getBlock()->front(); op != source; op = op->getNextNode()) {
    for (NamedAttribute attribute : source->getDiscardableAttrs())
      if (attribute.getName() != nn::kRoundedAttr && !op->hasAttr(attribute.getName()))
        op->setDiscardableAttr(attribute.getName(), attribute.getValue());
    if (shard >= 0 && !op->hasAttr(nn::kShardAttr))
      op->setAttr(nn::kShardAttr, b.getI64IntegerAttr(shard));
  }
}

void ShardBuilder::giveRounding(Operation *source, Value result) {
  if (Attribute rounded = source->getDiscardableAttr(nn::kRoundedAttr))
    result.getDefiningOp()->setDiscardableAttr(nn::kRoundedAttr, rounded);
}

Value ShardBuilder::onShard(Operation *op, int64_t shard, llvm::function_ref<Value(nn::GradientBuilder &)> build) {
  OpBuilder builder(op);
  nn::GradientBuilder b(builder);
  b.setLocation(nn::called(op->getLoc(), nn::nameOf(op)));
  Operation *before = op->getPrevNode();
  Value value = build(b);
  mark(before, op, shard);
  return value;
}

// The axis as [behind, rest].
static RankedTensorType inParts(RankedTensorType type, analysis::ShardForm form) {
  SmallVector<int64_t> shape(type.getShape());
  int64_t rest = shape[size_t(form.axis)] / form.behind;
  shape[size_t(form.axis)] = form.behind;
  shape.insert(shape.begin() + form.axis + 1, rest);
  int64_t batch = nn::batchAxis(type);
  return nn::tensorType(shape, type.getElementType(), batch > form.axis ? batch + 1 : batch, batch < 0 ? 1 : nn::batchGroup(type));
}

Value ShardBuilder::cut(OpBuilder &b, Value whole, ShardForm form, int64_t shard) {
  auto ofShard = [&](auto op) -> Value {
    op->setAttr(nn::kShardAttr, b.getI64IntegerAttr(shard));
    return op.getResult();
  };
  auto type = nn::tensorOf(whole);
  RankedTensorType local = analysis::shardType(type, form, shards);
  Location loc = whole.getLoc();
  if (std::optional<double> number = nn::splatNumber(whole))
    return ofShard(nn::ConstantOp::create(b, loc, local, b.getF64FloatAttr(*number)));
  Value from = whole;
  int64_t axis = form.axis;
  if (form.behind > 1) {
    from = ofShard(nn::ReshapeOp::create(b, loc, inParts(type, form), whole));
    ++axis;
  }
  int64_t length = nn::tensorOf(from).getDimSize(unsigned(axis)) / shards;
  Value slice = ofShard(nn::SliceOp::create(b, loc, from, uint64_t(axis), uint64_t(shard * length), uint64_t((shard + 1) * length)));
  return form.behind > 1 ? ofShard(nn::ReshapeOp::create(b, loc, local, slice)) : slice;
}

Value ShardBuilder::join(OpBuilder &b, ArrayRef<Value> parts, ShardForm form, RankedTensorType type) {
  SmallVector<Value> all(parts);
  Location loc = parts.front().getLoc();
  if (form.behind == 1)
    return nn::ConcatOp::create(b, loc, all, uint64_t(form.axis));
  for (Value &part : all)
    part = nn::ReshapeOp::create(b, loc, inParts(nn::tensorOf(part), form), part);
  Value joined = nn::ConcatOp::create(b, loc, all, uint64_t(form.axis + 1));
  return nn::ReshapeOp::create(b, loc, type, joined);
}

Value ShardBuilder::whole(Value value) {
  auto found = made.find(value);
  if (found == made.end())
    return value;
  Made &known = found->second;
  if (!known.joined && known.form.isWhole())
    return value;
  if (!known.joined) {
    OpBuilder b(function.getContext());
    Value last = known.parts.back();
    if (Operation *op = last.getDefiningOp())
      b.setInsertionPointAfter(op);
    else
      b.setInsertionPointToStart(&function.getBody().front());
    known.joined = join(b, known.parts, known.form, nn::tensorOf(value));
  }
  return known.joined;
}

Value ShardBuilder::part(Value value, ShardForm form, int64_t shard) {
  auto found = made.find(value);
  if (found != made.end() && found->second.form == form)
    return found->second.parts[size_t(shard)];
  Value from = whole(value);
  Made &known = made[value];
  auto place = llvm::find_if(known.cuts, [&](auto &cut) { return cut.first == form; });
  if (place == known.cuts.end()) {
    OpBuilder b(function.getContext());
    if (Operation *op = from.getDefiningOp())
      b.setInsertionPointAfter(op);
    else
      b.setInsertionPointToStart(&function.getBody().front());
    SmallVector<Value> parts;
    for (int64_t t = 0; t < shards; ++t)
      parts.push_back(cut(b, from, form, t));
    known.cuts.push_back({form, parts});
    place = std::prev(known.cuts.end());
  }
  return place->second[size_t(shard)];
}

Value ShardBuilder::operand(Operation *op, const Way &way, unsigned number, int64_t shard) {
  Value value = op->getOperand(number);
  int need = way.needs[number];
  return need <= kSharedNeed ? whole(value) : part(value, forms.formOf(value, need), shard);
}

// In the order of the shards.
Value ShardBuilder::overShards(Operation *op, ArrayRef<Value> parts, bool largest) {
  Value all = parts.front();
  onShard(op, -1, [&](nn::GradientBuilder &b) {
    for (Value part : parts.drop_front())
      all = largest ? b.make<nn::MaxOp>(all, part).getResult() : b.make<nn::AddOp>(all, part).getResult();
    return all;
  });
  all.getDefiningOp()->setAttr(nn::kAllReduceAttr, UnitAttr::get(op->getContext()));
  return all;
}

// The op as a shard does it: of its operands' parts, with what the parts change.
SmallVector<Value> ShardBuilder::writePart(nn::GradientBuilder &b, Operation *op, const Way &way, int64_t shard) {
  if (auto gather = dyn_cast<nn::GatherOp>(op); gather && way.sums)
    return {gatherRows(b, gather, way, shard)};
  IRMapping operands;
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    operands.map(op->getOperand(i), op->getOperand(i)); // one value may be needed in two forms: they are set one by one
  Operation *copy = b.opBuilder().clone(*op, operands);
  if (way.sums) // the sum is rounded
    copy->removeDiscardableAttr(nn::kRoundedAttr);
  for (unsigned i = 0; i < op->getNumOperands(); ++i)
    copy->setOperand(i, operand(op, way, i, shard));
  for (auto [result, form] : llvm::zip(copy->getResults(), way.gives))
    result.setType(analysis::shardType(cast<RankedTensorType>(result.getType()), form, shards));
  Builder attributes(op->getContext());
  if (auto slice = dyn_cast<nn::SliceOp>(copy); slice && int64_t(slice.getAxis()) == forms.formOf(op->getOperand(0), way.needs[0]).axis) {
    slice.setBegin(slice.getBegin() / uint64_t(shards));
    slice.setEnd(slice.getEnd() / uint64_t(shards));
  }
  if (auto conv = dyn_cast<nn::ConvOp>(copy); conv && conv.getGroups() > 1)
    conv.setGroups(conv.getGroups() / uint64_t(shards));
  if (auto attend = dyn_cast<nn::AttendOp>(copy); attend && attend.getDropout().convertToDouble() > 0) {
    auto q = nn::tensorOf(attend.getQ());
    int64_t heads = q.getDimSize(unsigned(q.getRank() - 3));
    copy->setAttr(nn::kOtherHeadsAttr, attributes.getDenseI64ArrayAttr({shard * heads, (shards - 1 - shard) * heads}));
  }
  return SmallVector<Value>(copy->getResults());
}

void ShardBuilder::write(Operation *op, const Way &way) {
  if (auto loss = dyn_cast<nn::CrossEntropyOp>(op); loss && way.sums) {
    Value all = crossEntropy(loss, way);
    giveRounding(op, all);
    made[op->getResult(0)] = {{}, {}, all, {}};
    replaced.push_back(op);
    return;
  }
  std::vector<SmallVector<Value>> parts(op->getNumResults());
  for (int64_t t = 0; t < shards; ++t) {
    for (unsigned i = 0; i < op->getNumOperands(); ++i)
      operand(op, way, i, t); // what is made for it stands where it is made, not among the op's own parts
    onShard(op, t, [&](nn::GradientBuilder &b) -> Value {
      for (auto [i, value] : llvm::enumerate(writePart(b, op, way, t)))
        parts[i].push_back(value);
      return {};
    });
  }
  replaced.push_back(op);
  for (auto [i, result] : llvm::enumerate(op->getResults()))
    if (way.sums) {
      Value all = overShards(op, parts[i]);
      giveRounding(op, all);
      made[result] = {{}, {}, all, {}};
    } else {
      made[result] = {way.gives[i], parts[i], {}, {}};
    }
}

// The parts stand where the argument stood, so that arguments of data keep their places behind them.
void ShardBuilder::splitArguments() {
  Block &block = function.getBody().front();
  Builder b(function.getContext());
  for (BlockArgument argument : SmallVector<BlockArgument>(block.getArguments())) {
    auto path = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kPathAttr);
    ShardForm form = path ? parameters.lookup(path.getValue()) : ShardForm();
    if (form.isWhole())
      continue;
    auto type = nn::tensorOf(argument);
    RankedTensorType local = analysis::shardType(type, form, shards);
    int64_t before = form.behind;
    for (int64_t axis = 0; axis < form.axis; ++axis)
      before *= type.getDimSize(unsigned(axis));
    SmallVector<Value> parts;
    unsigned number = argument.getArgNumber();
    DictionaryAttr known = function.getArgAttrDict(number);
    for (int64_t t = 0; t < shards; ++t) {
      NamedAttrList attributes(known);
      attributes.set(nn::kPathAttr, b.getStringAttr(nn::nameOnShard(known.getAs<StringAttr>(nn::kPathAttr).getValue(), t)));
      attributes.set(nn::kSplitAttr, b.getDenseI64ArrayAttr({before, shards}));
      if (auto rule = known.getAs<DictionaryAttr>(nn::kAverageAttr)) {
        NamedAttrList changed(rule);
        changed.set("of", b.getStringAttr(nn::nameOnShard(rule.getAs<StringAttr>("of").getValue(), t)));
        attributes.set(nn::kAverageAttr, changed.getDictionary(b.getContext()));
      }
      (void)function.insertArgument(number + unsigned(t) + 1, local, attributes.getDictionary(b.getContext()), argument.getLoc());
      parts.push_back(block.getArgument(number + unsigned(t) + 1));
    }
    made[argument] = {form, parts, {}, {}};
  }
}

// Where the state is split, its new value is: a value of each shard, whatever the way of the op is.
void ShardBuilder::writeState(nn::NewStateOp op) {
  ShardForm form = parameters.lookup(op.getPath());
  if (form.isWhole()) {
    op.getXMutable().set(whole(op.getX()));
    return;
  }
  SmallVector<Value> parts;
  for (int64_t t = 0; t < shards; ++t) {
    Value x = part(op.getX(), form, t);
    parts.push_back(onShard(op, t, [&](nn::GradientBuilder &b) -> Value {
      return b.make<nn::NewStateOp>(b.opBuilder().getStringAttr(nn::nameOnShard(op.getPath(), t)), x);
    }));
  }
  made[op.getResult()] = {form, parts, {}, {}};
  replaced.push_back(op);
}

// Results that are whole, and the parts of states, each with its name.
void ShardBuilder::writeResults() {
  Builder b(function.getContext());
  Operation *exit = function.getBody().front().getTerminator();
  SmallVector<Value> results;
  SmallVector<Attribute> attributes;
  for (auto [i, value] : llvm::enumerate(exit->getOperands())) {
    DictionaryAttr known = function.getResultAttrDict(unsigned(i));
    auto path = function.getResultAttrOfType<StringAttr>(unsigned(i), nn::kPathAttr);
    ShardForm form = path ? parameters.lookup(path.getValue()) : ShardForm();
    for (int64_t t = 0; t < (form.isWhole() ? 1 : shards); ++t) {
      NamedAttrList named(known);
      if (!form.isWhole())
        named.set(nn::kPathAttr, b.getStringAttr(nn::nameOnShard(path.getValue(), t)));
      results.push_back(form.isWhole() ? whole(value) : part(value, form, t));
      attributes.push_back(named.getDictionary(b.getContext()));
    }
  }
  exit->setOperands(results);
  function.setFunctionType(b.getFunctionType(function.getArgumentTypes(), ValueRange(results).getTypes()));
  function.setResAttrsAttr(b.getArrayAttr(attributes));
}

void ShardBuilder::run() {
  splitArguments();
  for (auto [i, op] : llvm::enumerate(forms.ops)) {
    if (!op)
      continue;
    const Way &way = forms.ways[i][size_t(ways[i])];
    if (auto state = dyn_cast<nn::NewStateOp>(op)) {
      writeState(state);
      continue;
    }
    if (!way.isWhole) {
      write(op, way);
      continue;
    }
    for (OpOperand &operand : op->getOpOperands())
      operand.set(whole(operand.get()));
  }
  writeResults();
  for (Operation *op : llvm::reverse(replaced)) {
    op->dropAllUses();
    op->erase();
  }
  SmallVector<BlockArgument> arguments(function.getArguments());
  for (BlockArgument argument : llvm::reverse(arguments))
    if (auto found = made.find(argument); found != made.end() && !found->second.form.isWhole() && argument.use_empty())
      (void)function.eraseArgument(argument.getArgNumber());
}

} // namespace cinch
