// ShardForms.cpp: values, parameters and what bringing them into another form costs. The rules of the ops stand in ShardRules.cpp.
#include "compiler/analysis/ShardForms.h"

#include "dialects/ops/Optimizers.h"

#include <set>

using namespace mlir;

namespace cinch::analysis {

RankedTensorType shardType(RankedTensorType whole, ShardForm form, int64_t shards) {
  if (form.isWhole())
    return whole;
  if (form.axis >= whole.getRank() || form.axis == nn::batchAxis(whole) || whole.getDimSize(unsigned(form.axis)) % (form.behind * shards))
    return {};
  SmallVector<int64_t> shape(whole.getShape());
  shape[size_t(form.axis)] /= shards;
  return RankedTensorType::get(shape, whole.getElementType(), whole.getEncoding());
}

std::optional<ShardForm> reshapedForm(RankedTensorType from, ShardForm form, RankedTensorType to, int64_t shards) {
  int64_t behind = form.behind, before = 1; // elements in front of the axis and of the split
  for (int64_t axis = 0; axis < form.axis; ++axis)
    behind *= from.getDimSize(unsigned(axis));
  for (int64_t axis = 0; axis < to.getRank(); before *= to.getDimSize(unsigned(axis++))) {
    if (behind % before)
      return std::nullopt;
    ShardForm there{axis, behind / before};
    if (there.behind * shards <= to.getDimSize(unsigned(axis)))
      return shardType(to, there, shards) ? std::optional(there) : std::nullopt;
  }
  return std::nullopt;
}

std::string placeText(Operation *op) {
  FileLineColLoc place = nn::userPlace(op->getLoc());
  return place ? place.getFilename().str() + ":" + std::to_string(place.getLine()) : "the program";
}

int64_t ShardForms::bytesOf(Value value) const {
  auto type = nn::tensorOf(value);
  return type.getNumElements() * std::max<int64_t>(1, type.getElementTypeBitWidth() / 8);
}

// Axes are split behind 1, and behind what reshapes and slices cut them into.
void ShardForms::findFactors() {
  std::set<int64_t> found{1};
  function.walk([&](Operation *op) {
    if (auto reshape = dyn_cast<nn::ReshapeOp>(op)) {
      auto from = nn::tensorOf(reshape.getX()), to = nn::tensorOf(reshape.getResult());
      int64_t i = 0;
      while (i < from.getRank() && i < to.getRank() && from.getDimSize(unsigned(i)) == to.getDimSize(unsigned(i)))
        ++i;
      if (i < from.getRank() && i < to.getRank() && to.getDimSize(unsigned(i)) < from.getDimSize(unsigned(i)))
        found.insert(to.getDimSize(unsigned(i)));
    }
    if (auto slice = dyn_cast<nn::SliceOp>(op); slice && nn::hasBatch(slice.getX())) {
      int64_t size = nn::tensorOf(slice.getX()).getDimSize(unsigned(slice.getAxis())), length = int64_t(slice.getEnd() - slice.getBegin());
      if (size % length == 0 && int64_t(slice.getBegin()) % length == 0)
        found.insert(size / length);
    }
  });
  for (int64_t factor : found)
    if (factor <= 16 && factors.size() < 4)
      factors.push_back(factor);
}

ShardForms::ShardForms(func::FuncOp function, int64_t shards, const llvm::StringMap<ShardForm> *known)
    : function(function), shards(shards), decided(known) {
  findFactors();
  findHints();
  Block &block = function.getBody().front();
  for (BlockArgument argument : block.getArguments()) {
    unsigned number = argument.getArgNumber();
    values[argument].active = !known && function.getArgAttr(number, nn::kPathAttr) && !function.getArgAttr(number, nn::kFrozenAttr) &&
                              !function.getArgAttr(number, nn::kStateAttr) && isa<FloatType>(nn::tensorOf(argument).getElementType());
    values[argument].forms.push_back({});
    if (function.getArgAttr(number, nn::kStateAttr))
      states[function.getArgAttrOfType<StringAttr>(number, nn::kPathAttr).getValue()] = argument;
  }
  llvm::DenseSet<Value> added;
  auto add = [&](Operation *op) {
    for (Value operand : readsOf(op)) // right before its first reader
      if (auto argument = dyn_cast<BlockArgument>(operand); argument && added.insert(argument).second)
        addSource(argument);
    addOp(op);
  };
  for (Operation &op : block.without_terminator()) {
    if (isa<nn::NewStateOp>(op))
      continue;
    add(&op);
    for (Operation *user : op.getUsers()) // these stand at the end of the function, and nothing is to wait for them
      if (isa<nn::NewStateOp>(user))
        add(user);
  }
  finishValues();
}

// Initial values and updates that are made of a whole matrix keep it whole.
bool ShardForms::isMadeWhole(unsigned argument) {
  auto init = function.getArgAttrOfType<nn::InitAttr>(argument, nn::kInitAttr);
  auto training = function->getAttrOfType<nn::TrainingAttr>(nn::kTrainingAttr);
  auto optimizer = function.getArgAttrOfType<IntegerAttr>(argument, nn::kOptimizerAttr);
  return (init && init.getKind() == nn::InitKind::Orthogonal) ||
         (training && optimizer && training.getOptimizers()[size_t(optimizer.getInt())].rule().leastAxes > 0);
}

SmallVector<Value> ShardForms::readsOf(Operation *op) const {
  SmallVector<Value> values(op->getOperands());
  if (auto next = dyn_cast<nn::NewStateOp>(op))
    values.push_back(states.lookup(next.getPath()));
  return values;
}

// Parameters and states may lie in any form; data are whole.
void ShardForms::addSource(BlockArgument argument) {
  Known &known = values[argument];
  unsigned number = argument.getArgNumber();
  auto path = function.getArgAttrOfType<StringAttr>(number, nn::kPathAttr);
  bool free = path && !function.getArgAttr(number, nn::kAverageAttr) && !isMadeWhole(number);
  SmallVector<int> may{0};
  if (path && decided) {
    if (auto found = decided->find(path.getValue()); found != decided->end() && !found->second.isWhole()) {
      known.forms.push_back(found->second);
      may = {1};
    }
  } else if (free) {
    auto type = nn::tensorOf(argument);
    for (int64_t axis = 0; axis < type.getRank(); ++axis)
      for (int64_t factor : factors)
        if (shardType(type, {axis, factor}, shards)) {
          may.push_back(int(known.forms.size()));
          known.forms.push_back({axis, factor});
        }
  }
  known.number = int(order.size());
  order.push_back(argument);
  solve::ShardProblem::Op source;
  source.results = {known.number};
  ways.emplace_back();
  for (int form : may) {
    source.ways.push_back({{}, {form}, {}});
    ways.back().push_back({{}, {known.forms[size_t(form)]}, form == 0, false});
  }
  problem.ops.push_back(std::move(source));
  ops.push_back(nullptr);
  sources.resize(ops.size());
  sources.back() = argument;
}

int ShardForms::need(Value value, ShardForm form) {
  Known &known = values[value];
  auto place = llvm::find(known.forms, form);
  if (place == known.forms.end()) {
    if (known.forms.size() >= 30 || !shardType(nn::tensorOf(value), form, shards))
      return -1;
    known.forms.push_back(form);
    place = std::prev(known.forms.end());
  }
  return int(place - known.forms.begin()) + 1;
}

ShardForm ShardForms::formOf(Value value, int need) const { return values.lookup(value).forms[size_t(need - 1)]; }

void ShardForms::addOp(Operation *op) {
  bool stopped = op->hasTrait<nn::NoGradient>();
  bool active = !stopped && llvm::any_of(op->getOperands(), [&](Value operand) { return values[operand].active; });
  for (Value result : op->getResults()) {
    Known &known = values[result];
    known.forms.push_back({});
    known.active = active && isa<FloatType>(nn::tensorOf(result).getElementType());
  }
  SmallVector<Way> found;
  Way whole;
  whole.needs.assign(readsOf(op).size(), kWhole);
  whole.gives.resize(op->getNumResults());
  found.push_back(whole);
  waysOf(op, found);
  keepHinted(op, found);
  double flops = 0;
  if (isa<nn::ContractOp, nn::AttendOp, nn::ConvOp>(op))
    flops = cast<nn::Cost>(op).flops();
  if (auto gather = dyn_cast<nn::GatherOp>(op); gather && !nn::hasBatch(gather.getX()))
    flops = double(nn::tensorOf(gather.getX()).getNumElements()); // the update of the table
  solve::ShardProblem::Op entry;
  for (Value result : op->getResults()) {
    values[result].number = int(order.size());
    entry.results.push_back(int(order.size()));
    order.push_back(result);
  }
  for (Value operand : readsOf(op))
    entry.operands.push_back(values[operand].number);
  for (const Way &way : found) {
    solve::ShardProblem::Way plain;
    plain.needs.assign(way.needs.begin(), way.needs.end());
    for (auto [result, form] : llvm::zip(op->getResults(), way.gives))
      plain.gives.push_back(int(llvm::find(values[result].forms, form) - values[result].forms.begin()));
    plain.cost.work = int64_t(way.isWhole ? flops : flops / double(shards));
    if (way.sums)
      for (Value result : op->getResults())
        plain.cost.bytes += (isa<nn::CrossEntropyOp>(op) ? 3 : 1) * 2 * gathered(bytesOf(result));
    entry.ways.push_back(std::move(plain));
  }
  problem.ops.push_back(std::move(entry));
  ops.push_back(op);
  sources.resize(ops.size());
  ways.push_back(std::move(found));
}

// Of a parameter that is split and needed whole: each step all of it would travel. It is done where nothing else can be. A state lies as all
// that its step computes of it.
constexpr int64_t kAvoided = int64_t(1) << 50;

// Once all forms are known.
void ShardForms::finishValues() {
  for (Value value : order) {
    const Known &known = values[value];
    solve::ShardProblem::Value entry;
    int64_t bytes = bytesOf(value), kept = nn::splatNumber(value) ? 0 : bytes;
    int64_t sum = known.active ? 2 * gathered(bytes) : 0, gradient = known.active ? gathered(bytes) : 0;
    auto argument = dyn_cast<BlockArgument>(value);
    bool isState = argument && !decided && function.getArgAttr(argument.getArgNumber(), nn::kStateAttr);
    for (const ShardForm &form : known.forms) {
      entry.forms.push_back({0, 0, form.isWhole() ? kept : kept / shards});
      std::vector<std::optional<solve::ShardCost>> become;
      for (int need = 0; need <= int(known.forms.size()); ++need) {
        solve::ShardCost cost;
        bool whole = need <= kShared;
        if (form.isWhole())
          cost.bytes = need == kWhole ? 0 : need == kShared ? sum : gradient, cost.work = isState && !whole ? kAvoided : 0;
        else if (whole || !(known.forms[size_t(need - 1)] == form))
          cost.bytes = gathered(bytes) + (need == kWhole ? 0 : gradient), cost.work = argument ? kAvoided : 0;
        if (whole != form.isWhole() && need != kShared)
          cost.held = whole ? kept : kept / shards;
        become.push_back(cost);
      }
      entry.become.push_back(std::move(become));
    }
    problem.values.push_back(std::move(entry));
  }
}

} // namespace cinch::analysis
