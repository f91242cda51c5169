// PartitionPlaces.cpp: on which workers the parts of a step run, and in which part of their loop bodies.
#include "compiler/transforms/Partitioner.h"

#include "dialects/nn/Held.h"

using namespace mlir;

namespace cinch {

SmallVector<int> Partitioner::workersOf(int segment, int shard) const {
  SmallVector<int> list;
  for (int t = 0; t < layout.shards; ++t)
    if (shard < 0 || t == shard)
      list.push_back(layout.worker(segment) + t);
  return list;
}

SmallVector<int> Partitioner::ownersOf(BlockArgument argument) const {
  func::FuncOp function = step.function;
  std::optional<int> shard;
  for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
    if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind); name && layout.shards > 1)
      shard = nn::shardOfName(name.getValue());
  return workersOf(homes.ownerOf(argument), shard.value_or(-1));
}

void Partitioner::placeParts() {
  at.resize(step.parts.size());
  for (int part = int(step.parts.size()); part-- > 0;) {
    Operation *op = step.parts[size_t(part)].op;
    int home = homes.home[size_t(part)];
    if (layout.replicas > 1 && layout.splitsBackward && onlySums(part)) {
      placeLate(part);
    } else if (isa<plan::GateOp>(op)) {
      for (int w = 0; w < layout.workers; ++w)
        at[part][w] = 0;
    } else if (home == analysis::StageHomes::kEverywhere) {
      placeWhereRead(part);
    } else if (isa<plan::ResultsOp>(op)) {
      at[part][0] = regionOf(part) == mainLoop ? layout.chunks(0) : 0;
    } else {
      int chunk = layout.chunk(home), chunks = layout.chunks(layout.worker(home));
      int loopPart = regionOf(part) != mainLoop                                    ? 0
                     : !step.parts[size_t(part)].isBackward()                      ? layout.forwardPart(chunk)
                     : layout.splitsBackward && homes.onlyWeights[size_t(part)]    ? layout.weightPart(chunks, chunk)
                                                                                   : layout.backwardPart(chunks, chunk);
      for (int w : workersOf(home, shardOf(op)))
        at[part][w] = loopPart;
    }
    training |= isa<plan::GateOp>(op); // its loop has backward parts, even if no gradient needs one
    resultsInLoop |= regionOf(part) == mainLoop && isa<plan::ResultsOp>(op);
  }
}

bool Partitioner::onlySums(int part) const {
  Operation *op = step.parts[size_t(part)].op;
  return regionOf(part) == mainLoop && op->getNumResults() > 0 && llvm::all_of(op->getResults(), [&](Value result) {
           return isSum(result) && llvm::none_of(homes.readersOf(result), [&](int reader) { return regionOf(reader) == mainLoop; });
         });
}

void Partitioner::placeLate(int part) {
  int home = homes.home[size_t(part)];
  if (home == analysis::StageHomes::kEverywhere)
    placeWhereRead(part);
  else
    for (int w : workersOf(home, shardOf(step.parts[size_t(part)].op)))
      at[part][w] = 0;
  for (auto &[w, loopPart] : at[part])
    loopPart = layout.weightPart(layout.chunks(w), home < 0 ? 0 : layout.chunk(home));
}

int Partitioner::readyFor(int loopPart, int w) const {
  int chunks = layout.chunks(w);
  return loopPart < 2 * chunks ? loopPart : layout.backwardPart(chunks, 3 * chunks - 1 - loopPart);
}

void Partitioner::placeWhereRead(int part) {
  for (Value result : step.parts[size_t(part)].op->getResults())
    for (int reader : homes.readersOf(result))
      for (auto [w, loopPart] : at[reader]) {
        int here = regionOf(reader) == regionOf(part) ? readyFor(loopPart, w) : 0;
        auto [known, fresh] = at[part].try_emplace(w, here);
        if (!fresh)
          known->second = std::min(known->second, here);
      }
  if (at[part].empty())
    at[part][0] = 0;
}

} // namespace cinch
