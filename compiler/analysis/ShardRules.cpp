// ShardRules.cpp: the ways in which each op can be shared. Where an operand may be split, its readers may be, too.
#include "compiler/analysis/ShardForms.h"

#include "llvm/ADT/TypeSwitch.h"
#include "llvm/Support/FormatVariadic.h"

using namespace mlir;

namespace cinch::analysis {

// Takes a way whose needs can all be.
void ShardForms::add(SmallVector<Way> &ways, Way way) {
  if (llvm::is_contained(way.needs, -1) || ways.size() >= 24)
    return;
  for (const Way &other : ways)
    if (other.needs == way.needs && other.gives == way.gives)
      return;
  ways.push_back(std::move(way));
}

void ShardForms::waysOf(Operation *op, SmallVector<Way> &ways) {
  if (op->getNumOperands() == 0 || op->getNumRegions())
    return;
  TypeSwitch<Operation *>(op)
      .Case<nn::ReduceOp>([&](auto o) { reduce(o, ways); })
      .Case<nn::ContractOp>([&](auto o) { contract(o, ways); })
      .Case<nn::GatherOp>([&](auto o) { gather(o, ways); })
      .Case<nn::AttendOp>([&](auto o) { attend(o, ways); })
      .Case<nn::CrossEntropyOp>([&](auto o) { crossEntropy(o, ways); })
      .Case<nn::ConvOp>([&](auto o) { conv(o, ways); })
      .Case<nn::MaxPoolOp, nn::SumPoolOp>([&](auto) { pool(op, ways); })
      .Case<nn::NewStateOp>([&](auto o) { newState(o, ways); })
      .Case<nn::BroadcastOp, nn::TransposeOp, nn::ReshapeOp, nn::SliceOp, nn::PadOp, nn::ConcatOp, nn::ReverseOp, nn::SoftmaxOp, nn::LogSoftmaxOp,
            nn::ArgMaxOp, nn::ArgMinOp>([&](auto) { alongAxes(op, ways); })
      .Case<nn::GroupMeanOp>([&](auto) { elementwise(op, ways); }) // of examples, which are never split
      .Default([&](Operation *) {
        if (op->hasTrait<OpTrait::Elementwise>())
          elementwise(op, ways);
      });
  // Forms that results are given in.
  llvm::erase_if(ways, [&](const Way &way) {
    return llvm::any_of(llvm::zip(op->getResults(), way.gives), [&](auto pair) {
      auto [result, form] = pair;
      return !form.isWhole() && need(result, form) < 0;
    });
  });
}

void ShardForms::elementwise(Operation *op, SmallVector<Way> &ways) {
  for (Value operand : op->getOperands())
    for (ShardForm form : SmallVector<ShardForm>(values[operand].forms)) {
      if (form.isWhole())
        continue;
      Way way{{}, {form}, false, false};
      for (Value each : op->getOperands())
        way.needs.push_back(need(each, form));
      add(ways, std::move(way));
    }
}

// Where a split of an operand's axis lies in the result; none: the op goes along that axis.
static std::optional<ShardForm> moved(Operation *op, ShardForm form, int64_t shards) {
  auto x = nn::tensorOf(op->getOperand(0)), result = nn::tensorOf(op->getResult(0));
  return TypeSwitch<Operation *, std::optional<ShardForm>>(op)
      .Case<nn::BroadcastOp>([&](auto o) { return ShardForm{o.getAxes()[size_t(form.axis)], form.behind}; })
      .Case<nn::TransposeOp>([&](auto o) {
        return ShardForm{int64_t(llvm::find(o.getPermutation(), form.axis) - o.getPermutation().begin()), form.behind};
      })
      .Case<nn::ReshapeOp>([&](auto) { return reshapedForm(x, form, result, shards); })
      .Case<nn::SliceOp>([&](auto o) -> std::optional<ShardForm> {
        if (int64_t(o.getAxis()) != form.axis)
          return form;
        int64_t part = x.getDimSize(unsigned(form.axis)) / form.behind, begin = int64_t(o.getBegin()), end = int64_t(o.getEnd());
        if (begin % part || end % part)
          return std::nullopt;
        return ShardForm{form.axis, (end - begin) / part};
      })
      .Case<nn::PadOp, nn::ConcatOp, nn::ReverseOp, nn::SoftmaxOp, nn::LogSoftmaxOp>([&](auto o) -> std::optional<ShardForm> {
        if (int64_t(o.getAxis()) == form.axis)
          return std::nullopt;
        return form;
      })
      .Case<nn::ArgMaxOp, nn::ArgMinOp>([&](auto o) -> std::optional<ShardForm> {
        if (int64_t(o.getAxis()) == form.axis)
          return std::nullopt;
        return ShardForm{form.axis - (form.axis > int64_t(o.getAxis())), form.behind};
      })
      .Default([](Operation *) { return std::nullopt; });
}

void ShardForms::alongAxes(Operation *op, SmallVector<Way> &ways) {
  for (Value operand : op->getOperands()) // of several: all are split alike
    for (ShardForm form : SmallVector<ShardForm>(values[operand].forms)) {
      if (form.isWhole())
        continue;
      std::optional<ShardForm> result = moved(op, form, shards);
      if (!result || !shardType(nn::tensorOf(op->getResult(0)), *result, shards))
        continue;
      Way way{{}, {*result}, false, false};
      for (Value each : op->getOperands())
        way.needs.push_back(need(each, form));
      add(ways, std::move(way));
    }
}

void ShardForms::reduce(nn::ReduceOp op, SmallVector<Way> &ways) {
  for (ShardForm form : SmallVector<ShardForm>(values[op.getX()].forms)) {
    if (form.isWhole())
      continue;
    if (llvm::is_contained(op.getAxes(), form.axis)) {
      if (op.getReduction() == nn::Reduction::Sum && isa<FloatType>(nn::tensorOf(op.getX()).getElementType()))
        add(ways, Way{{need(op.getX(), form)}, {ShardForm()}, false, true});
      continue;
    }
    int64_t before = llvm::count_if(op.getAxes(), [&](int64_t axis) { return axis < form.axis; });
    add(ways, Way{{need(op.getX(), form)}, {ShardForm{form.axis - before, form.behind}}, false, false});
  }
}

void ShardForms::contract(nn::ContractOp op, SmallVector<Way> &ways) {
  int64_t rank = nn::tensorOf(op.getResult()).getRank();
  ArrayRef<int64_t> labels[2] = {op.getLhsLabels(), op.getRhsLabels()};
  Value operands[2] = {op.getLhs(), op.getRhs()};
  for (int side : {0, 1})
    for (ShardForm form : SmallVector<ShardForm>(values[operands[side]].forms)) {
      if (form.isWhole())
        continue;
      int64_t label = labels[side][size_t(form.axis)];
      auto there = llvm::find(labels[1 - side], label);
      int own = need(operands[side], form);
      int other = there == labels[1 - side].end() ? kShared : need(operands[1 - side], {int64_t(there - labels[1 - side].begin()), form.behind});
      // What shares a layer is that its parameter is split: not the places of a text, each of which would read all of it.
      if (other == kShared && nn::hasBatch(operands[side]) && !nn::hasBatch(operands[1 - side]))
        continue;
      Way way{{side ? other : own, side ? own : other}, {label < rank ? ShardForm{label, form.behind} : ShardForm()}, false, label >= rank};
      if (label < rank && !shardType(nn::tensorOf(op.getResult()), way.gives[0], shards))
        continue;
      add(ways, std::move(way));
    }
}

void ShardForms::gather(nn::GatherOp op, SmallVector<Way> &ways) {
  for (ShardForm form : SmallVector<ShardForm>(values[op.getX()].forms)) {
    if (form.isWhole())
      continue;
    int64_t label = op.getXLabels()[size_t(form.axis)];
    Way way{{need(op.getX(), form)}, {ShardForm{label, form.behind}}, false, false};
    for (auto [index, labels] : llvm::zip(op.getIndices(), op.getIndexLabels().getAsRange<DenseI64ArrayAttr>())) {
      const auto *there = llvm::find(labels.asArrayRef(), label); // the places of what a shard has
      way.needs.push_back(there == labels.asArrayRef().end() ? int(kShared) : need(index, {there - labels.asArrayRef().begin(), form.behind}));
    }
    if (label < 0) { // each shard has the rows of a range
      ArrayRef<int64_t> axes = cast<DenseI64ArrayAttr>(op.getIndexLabels()[size_t(-label - 1)]).asArrayRef();
      if (form.behind != 1 || nn::hasBatch(op.getX()) || !llvm::is_sorted(axes) || !isa<FloatType>(nn::tensorOf(op.getX()).getElementType()))
        continue;
      way.gives = {ShardForm()}, way.sums = true;
    } else if (!shardType(nn::tensorOf(op.getResult()), way.gives[0], shards)) {
      continue;
    }
    add(ways, std::move(way));
  }
}

// By heads. Keys and values have fewer where heads share them: then so many, or one, which all shards read.
void ShardForms::attend(nn::AttendOp op, SmallVector<Way> &ways) {
  int64_t heads = nn::tensorOf(op.getQ()).getRank() - 3, groups = nn::tensorOf(op.getK()).getDimSize(unsigned(heads));
  bool split = groups % shards == 0;
  ShardForm form{heads, 1};
  if ((!split && groups != 1) || !shardType(nn::tensorOf(op.getQ()), form, shards) ||
      nn::batchAxis(op.getQ()) >= heads)
    return;
  Way way{{need(op.getQ(), form), split ? need(op.getK(), form) : int(kShared), split ? need(op.getV(), form) : int(kShared)},
          {form, form}, false, false};
  if (op.getKeys())
    way.needs.push_back(kShared);
  if (op.getBias())
    way.needs.push_back(need(op.getBias(), {0, 1}));
  add(ways, std::move(way));
}

// By classes: the largest, the sum of exponentials and the label's score are those of all shards.
void ShardForms::crossEntropy(nn::CrossEntropyOp op, SmallVector<Way> &ways) {
  for (ShardForm form : SmallVector<ShardForm>(values[op.getLogits()].forms)) {
    if (form.isWhole())
      continue;
    if (form.axis == int64_t(op.getAxis()) && form.behind == 1)
      add(ways, Way{{need(op.getLogits(), form), kShared}, {ShardForm()}, false, true});
    ShardForm result{form.axis - (form.axis > int64_t(op.getAxis())), form.behind};
    if (form.axis != int64_t(op.getAxis()))
      add(ways, Way{{need(op.getLogits(), form), need(op.getY(), result)}, {result}, false, false});
  }
}

// ---- Hints of the user: `@shard(..)` says of the nearest products above a value how they are shared. ----------------------
void ShardForms::findHints() {
  function.walk([&](Operation *op) {
    if (op->hasAttr(nn::kShardHintAttr) && wrong.empty())
      wrong = op->getBlock() == &function.getBody().front() ? findHinted(op) : wrongInLoop(op);
  });
}

static nn::ShardHint hintOf(Operation *op) { return nn::ShardHint(op->getAttrOfType<IntegerAttr>(nn::kShardHintAttr).getInt()); }

static std::string written(nn::ShardHint hint) {
  static const char *names[] = {"none", "column", "row"};
  return llvm::formatv("`@shard({0})`", names[int(hint)]);
}

// Every shard does the whole of a loop along an axis.
std::string ShardForms::wrongInLoop(Operation *op) {
  if (hintOf(op) == nn::ShardHint::None)
    return "";
  return llvm::formatv("{0}: {1} stands in a loop along an axis, all of which every shard does; expected it before a definition outside, or `@shard(none)`",
                       placeText(op), written(hintOf(op)));
}

std::string ShardForms::findHinted(Operation *op) {
  SmallVector<Operation *> stack{op};
  llvm::DenseSet<Operation *> seen;
  bool found = false, loops = false;
  while (!stack.empty()) {
    Operation *next = stack.pop_back_val();
    if (!next || !seen.insert(next).second)
      continue;
    loops |= next->getNumRegions() > 0;
    if (isa<nn::ContractOp, nn::ConvOp>(next)) {
      found = true;
      if (Operation *other = hints.try_emplace(next, op).first->second; hintOf(other) != hintOf(op))
        return llvm::formatv("{0}: {1} contradicts {2} at {3}: both say it of the product {4}", placeText(op), written(hintOf(op)), written(hintOf(other)),
                             placeText(other), nn::instancePath(next->getLoc()));
      continue;
    }
    for (Value operand : next->getOperands())
      stack.push_back(operand.getDefiningOp());
  }
  if (found || (loops && hintOf(op) == nn::ShardHint::None))
    return "";
  if (loops)
    return llvm::formatv("{0}: {1} stands at the result of a loop along an axis, all of which every shard does; expected it before a definition with a linear "
                         "layer, or `@shard(none)`",
                         placeText(op), written(hintOf(op)));
  return llvm::formatv("{0}: `@shard` stands at a value that no product computes; expected it before a definition with a linear layer", placeText(op));
}

void ShardForms::keepHinted(Operation *op, SmallVector<Way> &ways) {
  auto hint = hints.find(op);
  if (hint == hints.end())
    return;
  SmallVector<Way> kept;
  for (const Way &way : ways) {
    nn::ShardHint is = way.isWhole ? nn::ShardHint::None : way.sums ? nn::ShardHint::Row : nn::ShardHint::Column;
    if (is == hintOf(hint->second))
      kept.push_back(way);
  }
  if (kept.empty()) {
    if (wrong.empty())
      wrong = llvm::formatv("{0}: {1} cannot be: {2} does not divide the size of the product {3}", placeText(op), written(hintOf(hint->second)), shards,
                            nn::instancePath(op->getLoc()));
    return;
  }
  ways = std::move(kept);
}

} // namespace cinch::analysis
