// ShardValues.cpp: @step decides how the program is shared; evaluation and prediction have the parameters as it left them.
#include "compiler/transforms/ShardValues.h"

#include "compiler/analysis/ShardForms.h"
#include "compiler/transforms/ShardBuilder.h"

#include "llvm/Support/FormatVariadic.h"

#include <set>

using namespace mlir;

namespace cinch {
namespace {

// What is worth sharing: products, attention, tables.
bool isShared(Operation *op) {
  auto gather = dyn_cast<nn::GatherOp>(op);
  return isa<nn::ContractOp, nn::ConvOp, nn::AttendOp>(op) || (gather && !nn::hasBatch(gather.getX()));
}

// What shards divide of an attention: the heads of its queries, and of its keys, if these are several.
int64_t headsOf(nn::AttendOp attend) {
  auto q = nn::tensorOf(attend.getQ()), k = nn::tensorOf(attend.getK());
  int64_t heads = q.getDimSize(unsigned(q.getRank() - 3)), groups = k.getDimSize(unsigned(k.getRank() - 3));
  return groups == 1 ? heads : groups;
}

// What numbers of shards have to divide: some size of a product or a table, and the heads of every attention.
void addSizes(Operation *op, SmallVectorImpl<int64_t> &some, SmallVectorImpl<int64_t> &every) {
  auto parameter = [&](Value value) {
    if (isa<BlockArgument>(value) && !nn::hasBatch(value))
      llvm::append_range(some, nn::tensorOf(value).getShape());
  };
  if (auto attend = dyn_cast<nn::AttendOp>(op)) {
    every.push_back(headsOf(attend));
    some.push_back(every.back());
  } else if (auto product = dyn_cast<nn::ContractOp>(op)) {
    parameter(product.getLhs());
    parameter(product.getRhs());
  } else if (auto gather = dyn_cast<nn::GatherOp>(op)) {
    parameter(gather.getX());
  } else if (auto conv = dyn_cast<nn::ConvOp>(op)) {
    if (conv.getGroups() > 1)
      some.push_back(int64_t(conv.getGroups()));
    else
      llvm::append_range(some, nn::tensorOf(conv.part(nn::ConvPart::Filter)).getShape().drop_front(2));
  }
}

std::set<int64_t> numbersThatFit(func::FuncOp function) {
  SmallVector<int64_t> some, every;
  function.walk([&](Operation *op) { addSizes(op, some, every); });
  std::set<int64_t> fits;
  for (int64_t shards = 1; shards <= 1024; ++shards) {
    auto divides = [&](int64_t size) { return size % shards == 0; };
    if (llvm::any_of(some, divides) && llvm::all_of(every, divides))
      fits.insert(shards);
  }
  return fits;
}

std::string nearest(const std::set<int64_t> &fits, int64_t shards) {
  auto above = fits.upper_bound(shards);
  std::string text = "1";
  if (auto below = fits.lower_bound(shards); below != fits.begin())
    text = std::to_string(*std::prev(below));
  return "expected shards " + text + (above == fits.end() ? std::string() : " or " + std::to_string(*above));
}

class Sharer {
public:
  Sharer(ModuleOp module, int64_t shards) : module(module), shards(shards) {}

  ShardedProgram run() {
    for (StringRef name : {nn::kStepName, nn::kEvaluationName, nn::kPredictionName})
      if (auto function = module.lookupSymbol<func::FuncOp>(name); function && out.wrong.empty() && out.fault.empty())
        share(function, name == nn::kStepName);
    return std::move(out);
  }

private:
  void share(func::FuncOp function, bool decides) {
    analysis::ShardForms forms(function, shards, decides ? nullptr : &decided);
    if (!forms.wrong.empty()) {
      out.wrong = forms.wrong;
      return;
    }
    solve::ShardSolution solution = solve::solve(forms.problem);
    if (solution.ways.empty()) {
      out.wrong = llvm::formatv("no way was found to share the program among {0} shards", shards);
      return;
    }
    std::optional<solve::ShardCost> cost = solve::costOf(forms.problem, solution.ways);
    if (!cost || !(*cost == solution.cost)) {
      out.fault = "what the shards do does not cost what the solver says";
      return;
    }
    if (decides)
      check(function, forms, solution.ways);
    if (!out.wrong.empty())
      return;
    if (decides) {
      tell(forms, solution.ways);
      if (!solution.exact)
        out.notes.push_back("there were too many ways to share the layers to try them all; a better one may exist");
      decide(function, forms, solution.ways);
    }
    ShardBuilder(function, forms, solution.ways, decided, shards).run();
  }

  void check(func::FuncOp function, const analysis::ShardForms &forms, ArrayRef<int> ways) {
    bool any = false;
    for (auto [i, op] : llvm::enumerate(forms.ops)) {
      const analysis::ShardForms::Way &way = forms.ways[i][size_t(ways[i])];
      any |= op && !way.isWhole && isShared(op);
      if (auto attend = dyn_cast_or_null<nn::AttendOp>(op); attend && way.isWhole && headsOf(attend) % shards) {
        out.wrong = llvm::formatv("{0}: attention of {1} heads cannot be divided among {2} shards; {3}", analysis::placeText(op),
                                  headsOf(attend), shards, nearest(numbersThatFit(function), shards));
        return;
      }
    }
    if (!any)
      out.wrong = llvm::formatv("nothing of the model can be divided among {0} shards: they divide no size of a product with a parameter; {1}", shards,
                                nearest(numbersThatFit(function), shards));
  }

  // What the user should know: the sums of which the order depends on the number of shards, and products that every shard does as a whole.
  void tell(const analysis::ShardForms &forms, ArrayRef<int> ways) {
    int64_t sums = 0, rows = 0, losses = 0; // a table's rows are no sums: one of the summands is the row, the others are zeros
    std::set<std::string> whole;
    for (auto [i, op] : llvm::enumerate(forms.ops)) {
      const analysis::ShardForms::Way &way = forms.ways[i][size_t(ways[i])];
      if (!op)
        continue;
      rows += way.sums && isa<nn::ContractOp, nn::ConvOp>(op);
      losses += way.sums && isa<nn::CrossEntropyOp>(op);
      sums += way.sums && isa<nn::ReduceOp>(op);
      if (way.isWhole)
        op->walk([&](Operation *product) { // those of a loop, too
          if (std::string path = nn::instancePath(product->getLoc()).str(); isa<nn::ContractOp, nn::ConvOp>(product) && !path.empty())
            whole.insert(path);
        });
    }
    out.notes.push_back(llvm::formatv("{0} shards add in the order of the shards, which changes last digits with their number: {1} products by rows, "
                                      "{2} losses over a split axis, {3} other sums; of the backward pass the gradients of what several shards read; "
                                      "and the norm of the gradient",
                                      shards, rows, losses, sums));
    if (whole.empty())
      return;
    std::string names;
    for (const std::string &name : whole)
      names += (names.empty() ? "" : ", ") + name;
    out.notes.push_back(llvm::formatv("every shard does the whole of: {0}", names));
  }

  // Averages lie as their parameters do.
  void decide(func::FuncOp function, const analysis::ShardForms &forms, ArrayRef<int> ways) {
    auto pathOf = [&](BlockArgument argument) { return function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), nn::kPathAttr); };
    for (auto [i, source] : llvm::enumerate(forms.sources))
      if (StringAttr path = source ? pathOf(source) : StringAttr())
        decided[path.getValue()] = forms.ways[i][size_t(ways[i])].gives[0];
    for (BlockArgument argument : function.getArguments())
      if (auto rule = function.getArgAttrOfType<DictionaryAttr>(argument.getArgNumber(), nn::kAverageAttr))
        decided[pathOf(argument).getValue()] = decided.lookup(rule.getAs<StringAttr>("of").getValue());
  }

  using ShardForm = analysis::ShardForm;
  ModuleOp module;
  int64_t shards;
  llvm::StringMap<ShardForm> decided;
  ShardedProgram out;
};

} // namespace

ShardedProgram shardValues(ModuleOp module, int64_t shards) { return Sharer(module, shards).run(); }

} // namespace cinch
