// ProgramHash.cpp: @train is printed without what does not count, and the text is hashed.
#include "compiler/phases/ProgramHash.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Shards.h"
#include "dialects/nn/Winograd.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

using namespace mlir;

namespace cinch {

// Numbers that the run is given become 1, or stay 0 where that makes another computation.
static void forgetValues(func::FuncOp function) {
  Builder b(function.getContext());
  APFloat none(0.0), one(1.0);
  function.walk([&](Operation *op) {
    for (StringRef hint : {nn::kKeepAttr, nn::kRecomputeAttr, nn::kStageAttr, nn::kShardHintAttr, nn::kBlockAttr, nn::kBlockEndAttr, nn::kWinogradAttr,
                           nn::kWinogradFilterAttr})
      op->removeDiscardableAttr(hint);
    if (auto rate = dyn_cast<nn::LearningRateOp>(op)) {
      auto schedule = rate.getSchedule();
      rate.setLrAttr(b.getF64FloatAttr(1));
      rate.setScheduleAttr(nn::ScheduleAttr::get(b.getContext(), schedule.getKind(), none, none, one, one, one, one,
                                                 schedule.getAt()));
    } else if (auto clip = dyn_cast<nn::ClipFactorOp>(op)) {
      clip.setLimitAttr(b.getF64FloatAttr(1));
    } else if (auto value = dyn_cast<nn::RunValueOp>(op)) {
      value.setNumberAttr(b.getF64FloatAttr(1));
    } else if (auto update = dyn_cast<nn::UpdateOp>(op)) {
      nn::OptimizerAttr optimizer = update.getOptimizer();
      SmallVector<double> values(optimizer.getValues().asArrayRef());
      size_t place = 0;
      for (const Hyperparameter &each : optimizer.rule().hyperparameters)
        for (size_t i = 0; i < each.size(); ++i, ++place) {
          bool zeroDecides = each.kind == Hyperparameter::Flag || StringRef(each.name) == "decay" || StringRef(each.name) == "momentum";
          values[place] = zeroDecides ? values[place] != 0 : 0;
        }
      update.setOptimizerAttr(nn::OptimizerAttr::get(b.getContext(), optimizer.getName(), b.getDenseF64ArrayAttr(values)));
    }
  });
  SmallVector<DictionaryAttr> arguments; // all at once: the context keeps every list of dictionaries that a function ever had
  for (unsigned i = 0; i < function.getNumArguments(); ++i) {
    NamedAttrList attributes(function.getArgAttrDict(i));
    attributes.erase(nn::kInitAttr);
    if (auto rule = dyn_cast_if_present<DictionaryAttr>(attributes.get(nn::kAverageAttr)))
      attributes.set(nn::kAverageAttr, rule.get("of"));
    arguments.push_back(attributes.getDictionary(b.getContext()));
  }
  function.setAllArgAttrs(arguments);
}

std::string hashOfTraining(ModuleOp module, const Program &program) {
  auto train = module.lookupSymbol<func::FuncOp>(nn::kTrainName);
  OwningOpRef<func::FuncOp> copy = train.clone();
  forgetValues(*copy);
  std::string text;
  llvm::raw_string_ostream out(text);
  copy->print(out);
  const Dataset &data = program.datasets[program.train.dataset];
  out << "\n" << int(data.source) << " " << data.window << " " << data.stride << " " << data.header << " " << data.tokenBits
      << " " << data.shuffle;
  if (program.train.combine != Combine::Exact)
    out << " combine " << nameOf(program.train.combine);
  if (data.hasMissing)
    out << llvm::formatv(" missing {0:E17}", data.missing);
  if (data.missingMean)
    out << " missing mean";
  if (data.holdOut > 0)
    out << llvm::formatv(" hold {0:E17} {1} {2}", data.holdOut, data.holdSeed, data.held);
  for (const Field &field : data.fields) {
    out << " " << field.name << " " << llvm::formatv("{0:E17}", field.scale) << (field.normalize ? " normalize" : "");
    if (field.at)
      out << " at " << field.at;
    for (const std::string &name : field.names)
      out << " \"" << name << "\"";
    if (field.other)
      out << " other";
  }
  return llvm::formatv("{0:x-16}", llvm::xxh3_64bits(text));
}

Described describedTraining(const Program &program) {
  const Train &train = program.train;
  const Dataset &data = program.datasets[train.dataset];
  static const char *sources[] = {"idx", "npy", "npz", "csv", "safetensors", "text", "tokens", "records"};
  auto listed = [](const auto &list, auto text) {
    std::string all;
    for (const auto &each : list)
      if (std::string one = text(each); !one.empty())
        all += (all.empty() ? "" : ", ") + one;
    return all.empty() ? std::string("none") : all;
  };
  Described d;
  auto &is = d.decides;
  is.push_back({"model", program.modelName});
  is.push_back({"batch", std::to_string(program.batch)});
  is.push_back({"precision", train.tf32 ? "f32" : train.precision()}); // tf32 is how a GPU multiplies in a program of f32
  is.push_back({"grain", std::to_string(train.grain)});
  is.push_back({"combine", nameOf(train.combine)});
  if (train.combine == Combine::Async)
    is.push_back({"combine.delay", std::to_string(train.stale)});
  if (train.delay)
    is.push_back({"delay", std::to_string(train.delay)});
  is.push_back({"optimizer", listed(train.optimizers, [](const Optimizer &o) {
                  std::string text = o.rule->name;
                  for (const char *each : {"momentum", "decay"})
                    if (o.rule->placeOf(each) != std::string::npos && o.value(each) != 0)
                      text += std::string(" with ") + each;
                  return text;
                })});
  is.push_back({"decay.except", listed(program.parameters, [](const Parameter &p) { return p.state || p.decays ? std::string() : p.path; })});
  is.push_back({"schedule", nameOf(train.schedule.kind)});
  is.push_back({"schedule.at", listed(train.schedule.at, [](int64_t at) { return std::to_string(at); })});
  is.push_back({"clip", std::string(train.clipNorm > 0 ? "norm" : "") + (train.clipNorm > 0 && train.clipValue > 0 ? ", " : "") +
                            (train.clipValue > 0 ? "value" : "")});
  if (is.back().second.empty())
    is.back().second = "none";
  is.push_back({"averages", train.hasEma ? "yes" : "no"});
  is.push_back({"frozen", listed(program.parameters, [](const Parameter &p) { return p.frozen ? p.path : std::string(); })});
  std::string how = sources[data.source];
  if (data.window)
    how += " of " + std::to_string(data.window) + " every " + std::to_string(data.stride);
  if (data.holdOut > 0 && data.window > 0)
    how += llvm::formatv(", {0} {1} of {2}", data.held ? "the last" : "but the last", data.holdOut, data.ofRows() ? "the rows" : "each file").str();
  else if (data.holdOut > 0)
    how += llvm::formatv(", {0} {1} of the rows (hold_seed {2})", data.held ? "the held out" : "but a held out", data.holdOut, data.holdSeed).str();
  if (data.missingMean)
    how += ", missing cells as the mean";
  is.push_back({"data", how + (data.shuffle ? ", shuffled" : ", in order")});
  is.push_back({"fields", listed(data.fields, [](const Field &f) {
                  return f.name + (f.scale == 1 ? std::string() : llvm::formatv(" scale {0}", f.scale).str()) +
                         (f.normalize ? " normalize" : "") + (f.at ? " at " + std::to_string(f.at) : std::string()) +
                         (f.names.empty() ? std::string() : llvm::formatv(" of {0} names{1}", f.names.size(), f.other ? " and other" : "").str());
                })});
  is.insert(is.end(), program.text.begin(), program.text.end());
  d.besides.push_back({"metrics", listed(program.metrics, [](const NamedValue &m) { return m.name; })});
  d.besides.push_back({"every", listed(train.every, [](const Every &e) {
                       static const char *kinds[] = {"eval", "checkpoint", "log"};
                       return std::string(kinds[e.kind]) + " every " + (e.steps ? std::to_string(e.steps) : std::string("epoch"));
                     })});
  return d;
}

} // namespace cinch
