// CompiledBytes.cpp: how many bytes a program takes: its code, guessed before there is any, its state, its arena, the smallest budget.
#include "compiler/phases/Compile.h"
#include "compiler/target/Link.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Winograd.h"
#include "runtime/ColumnBytes.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"
#include "mlir/IR/OperationSupport.h"
#include "llvm/ADT/DenseSet.h"

using namespace mlir;

namespace cinch {

int64_t WorkersPlan::mostOnce(bool handedOut) const {
  std::vector<int64_t> bytes(handedOut ? each.size() : each.size() / size_t(replicas), 0);
  for (size_t w = 0; w < each.size(); ++w)
    bytes[w % bytes.size()] += each[w].once;
  return *std::max_element(bytes.begin(), bytes.end());
}

int64_t WorkersPlan::bytesToShards() const {
  std::vector<int64_t> sent(each.size(), 0);
  for (const Channel &channel : channels)
    if (channel.inLoop && !channel.action.empty() && channel.from / shards == channel.to / shards)
      sent[size_t(channel.from)] += channel.messageBytes;
  return *std::max_element(sent.begin(), sent.end());
}

// How large the executable will be is guessed from these. Of the steps that may be planned, the one of this name counts.
void Compilation::countOperations(StringRef step) {
  operations = {};
  llvm::DenseSet<llvm::hash_code> different;
  module->walk<WalkOrder::PreOrder>([&](Operation *op) {
    if (auto function = dyn_cast<func::FuncOp>(op); function && function.getName().starts_with(nn::kTrainName) && function.getName() != step)
      return WalkResult::skip();
    ++operations.all;
    bool isNew = different
                     .insert(OperationEquivalence::computeHash(op, OperationEquivalence::ignoreHashValue,
                                                               OperationEquivalence::ignoreHashValue,
                                                               OperationEquivalence::IgnoreLocations))
                     .second;
    operations.different += isNew;
    operations.differentWindows += isNew && isa<nn::ConvOp, nn::MaxPoolOp, nn::SumPoolOp>(op);
    auto conv = dyn_cast<nn::ConvOp>(op);
    operations.differentWinograd += isNew && conv && conv->hasAttr(nn::kWinogradAttr);
    bool ofPairs = isa<nn::ContractOp>(op) && (op->hasAttr(nn::kBF16Attr) || llvm::any_of(op->getOperands(), [](Value value) {
                                                 return nn::tensorOf(value).getElementType().isBF16();
                                               }));
    operations.differentPairs += isNew && ofPairs;
    return WalkResult::advance();
  });
}

// What the host holds of the columns of tables, and of rows that are held out, beside the arena.
int64_t Compilation::columnBytes() const {
  int64_t bytes = 0;
  for (const Dataset &dataset : program.datasets) {
    if (dataset.holdOut > 0 && dataset.window == 0 && dataset.source != Dataset::Csv)
      bytes += rt::kOwnRowsBytes;
    for (const Field &field : dataset.fields) {
      const bool trained = &dataset == &program.datasets[program.train.dataset];
      const int64_t found = rt::kNormalBytes + (dataset.missingMean ? rt::kCountBytes : 0);
      const int64_t normal = field.normalize && trained ? found + (options.workers() > 1 ? rt::kToldBytes : 0) : 0;
      if (dataset.source != Dataset::Csv) {
        bytes += dataset.valuesOfRow(field) * normal;
        continue;
      }
      for (const std::vector<std::string> *texts : {&field.from, &field.names}) {
        bytes += rt::bytesOfTexts(int64_t(texts->size()));
        for (const std::string &text : *texts)
          bytes += rt::bytesOfText(int64_t(text.size()));
      }
      bytes += int64_t(field.from.size()) * (rt::kReadBytes + normal);
    }
  }
  return bytes;
}

int64_t Compilation::allowance() const {
  if (options.target.isDevice())
    return 0;
  int64_t libraries = options.workers() > 1 ? target::kLibraryBytes - kLibraryInBinary : 0;
  int64_t binary = guessedBinaryBytes(operations, options.stages, options.replicas, options.shards) + libraries;
  return options.target.allowance(binary + columnBytes()) + options.granted + options.transportReserve;
}

int64_t Compilation::allowanceOfSeveral() const {
  analysis::Target target = options.target;
  target.cpu.threads = std::min(target.cpu.threads, 2); // each has its part of them
  return target.allowance(guessedBinaryBytes(operations, 2, 1, 1) + target::kLibraryBytes - kLibraryInBinary + columnBytes());
}

static int64_t bytesOfArguments(func::FuncOp function, StringRef kind) {
  int64_t bytes = 0;
  for (BlockArgument argument : function.getArguments())
    if (function.getArgAttr(argument.getArgNumber(), kind)) {
      auto type = nn::tensorOf(argument);
      bytes += solve::roundUp(type.getNumElements() * int64_t(type.getElementTypeBitWidth() / 8));
    }
  return bytes;
}

int64_t Compilation::persistentBytes() const {
  int64_t bytes = 0;
  for (const EntryPlan &entry : entries)
    if (entry.name == "train")
      bytes += entry.persistentBytes;
  return bytes;
}

int64_t Compilation::persistentBytes(func::FuncOp function) {
  return bytesOfArguments(function, nn::kPathAttr) + bytesOfArguments(function, nn::kSlotAttr);
}

int64_t Compilation::bytesOfState(StringRef function) const {
  return bytesOfArguments(mlir::ModuleOp(module.get()).lookupSymbol<func::FuncOp>(function), nn::kSlotAttr);
}

int64_t Compilation::arenaBytes() const {
  if (!workers.each.empty())
    return workers.each.back().at + workers.each.back().bytes;
  int64_t bytes = 64;
  for (const EntryPlan &entry : entries)
    bytes = std::max(bytes, entry.arenaBytes);
  return bytes;
}

int64_t Compilation::smallestBudget() const {
  if (workers.count > 1) // a worker's
    return workers.smallest + allowance();
  int64_t arena = entries.front().outcome.result.smallestArena;
  for (size_t i = 1; i < entries.size(); ++i)
    arena = std::max(arena, entries[i].arenaBytes);
  return arena + allowance();
}

int64_t Compilation::budgetBound() const {
  if (workers.count > 1)
    return workers.bound + allowance();
  return entries.front().outcome.result.bound + allowance();
}

int64_t Compilation::leftOverBy(int64_t fileBytes) const {
  if (options.target.isDevice())
    return 0;
  return allowance() - options.target.allowance(fileBytes + metadataBytes + columnBytes()) - options.transportReserve;
}

bool Compilation::isLimited() const {
  const solve::SearchResult &result = entries.front().outcome.result;
  return options.budget && (result.plan.recomputed > 0 || result.plan.seconds > 1.0005 * result.secondsBound);
}

int64_t Compilation::spareOf(int64_t leftOver) const {
  if (options.target.isDevice() || options.workers() > 1 || !options.budget)
    return 0;
  constexpr int64_t kWorth = 256; // a part of the arena
  const int64_t spare = leftOver - analysis::Cpu::kAllowanceStep;
  return spare >= std::max(analysis::Cpu::kAllowanceStep, arenaBytes() / kWorth) ? spare : 0;
}

} // namespace cinch
