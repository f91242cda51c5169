// StageHomes.cpp: segments, and the homes of all other work.
#include "compiler/analysis/StageHomes.h"

#include "dialects/nn/Held.h"
#include "dialects/nn/NN.h"
#include "dialects/nn/Pieces.h"
#include "dialects/nn/Versions.h"

using namespace mlir;

namespace cinch::analysis {

static constexpr int kUnplaced = -2;

static StringRef nameOfArgument(const Step &step, BlockArgument argument) {
  func::FuncOp function = step.function;
  for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr})
    if (auto name = function.getArgAttrOfType<StringAttr>(argument.getArgNumber(), kind))
      return name.getValue();
  return "";
}

static bool isSingle(Value value) { return elementsOf(value) == 1; }

StageHomes::StageHomes(const Step &step, const llvm::StringMap<int> *known) : step(step), training(!known) {
  for (auto [i, part] : llvm::enumerate(step.parts)) {
    for (Value operand : part.op->getOperands()) {
      SmallVector<int> &list = readers[step.inMemory(operand)];
      if (list.empty() || list.back() != int(i))
        list.push_back(int(i));
    }
    for (Value result : part.op->getResults())
      writer[result] = int(i);
  }
  home.assign(step.parts.size(), kUnplaced);
  findData();
  if (training) {
    findSegments();
    placeOwners();
    placeBefore();
    placeEarlyLoops();
    placeBefore(); // what reads the sums of the early loops, or only makes something for them
    keepTogether();
    keepVersions(); // of parameters that only this work reads
    placeBackward();
  } else {
    owners = *known;
    placeForward();
  }
  placeBehind();
  findOnlyWeights();
}

ArrayRef<int> StageHomes::readersOf(Value value) const {
  auto found = readers.find(value);
  return found == readers.end() ? ArrayRef<int>() : ArrayRef<int>(found->second);
}

int StageHomes::writerOf(Value value) const {
  auto found = writer.find(value);
  return found == writer.end() ? -1 : found->second;
}

int StageHomes::ownerOf(BlockArgument argument) const {
  auto found = owners.find(nameOfArgument(step, argument));
  return found == owners.end() ? -1 : found->second;
}

bool StageHomes::isData(Value value) const {
  if (auto argument = dyn_cast<BlockArgument>(value))
    return nameOfArgument(step, argument).empty();
  return data[size_t(writerOf(value))];
}

bool StageHomes::liesOnce(BlockArgument argument) const {
  return func::FuncOp(step.function).getArgAttr(argument.getArgNumber(), nn::kSlotAttr) &&
         llvm::none_of(readersOf(argument), [&](int reader) { return step.parts[reader].part <= 2 * int(step.loops.size()) - 1; });
}

void StageHomes::findData() {
  data.assign(step.parts.size(), false);
  for (auto [i, part] : llvm::enumerate(step.parts)) {
    if (isa<plan::GateOp>(part.op))
      home[i] = kEverywhere;
    if (!part.kernel())
      continue;
    data[i] = llvm::all_of(part.op->getOperands(), [&](Value operand) { return isData(step.inMemory(operand)); });
    for (OpResult result : part.op->getResults())
      data[i] = data[i] && !step.homeOf(result);
    if (data[i])
      home[i] = kEverywhere;
  }
}

bool StageHomes::isForwardSegment(int part) const {
  return inMainLoop(part) && !data[part] && step.parts[part].kernel() && !step.parts[part].isBackward();
}

void StageHomes::findSegments() {
  for (int part = 0; part < int(step.parts.size()); ++part)
    if (isForwardSegment(part)) {
      home[part] = int(segments.size());
      segments.push_back(part);
    }
}

// Where training has a delay it is the previous parameter that is read: the parameter lies beside it.
void StageHomes::own(BlockArgument argument, int segment) {
  StringRef name = nameOfArgument(step, argument);
  owners.try_emplace(name, segment);
  bool slot = bool(func::FuncOp(step.function).getArgAttr(argument.getArgNumber(), nn::kSlotAttr));
  if (slot && name.consume_back(nn::previousOf("")))
    owners.try_emplace(name, segment);
}

// The first segment that reads a parameter in the main loop has it; slots follow later, with the kernel that updates them.
void StageHomes::placeOwners() {
  func::FuncOp function = step.function;
  for (BlockArgument argument : function.getArguments()) {
    if (nameOfArgument(step, argument).empty())
      continue;
    for (int reader : readersOf(argument))
      if (inMainLoop(reader) && home[reader] >= 0) {
        own(argument, home[reader]);
        break;
      }
  }
  keepTogether();
  keepVersions();
}

// The older versions of a parameter start as it does, and each becomes the next one: they lie beside it, wherever they are read.
void StageHomes::keepVersions() {
  for (BlockArgument argument : func::FuncOp(step.function).getArguments()) {
    StringRef name = nameOfArgument(step, argument);
    if (!func::FuncOp(step.function).getArgAttr(argument.getArgNumber(), nn::kSlotAttr) || !nn::isVersion(name))
      continue;
    if (auto owner = owners.find(name.rsplit('.').first); owner != owners.end()) {
      const int segment = owner->second; // the map may grow
      owners[name] = segment;
    }
  }
}

// Single numbers may be updated by one kernel together: they lie together.
void StageHomes::keepTogether() {
  for (const Step::Part &part : step.parts) {
    SmallVector<StringRef> together;
    int first = kUnplaced;
    for (OpResult result : part.op->getResults())
      if (BlockArgument argument = step.homeOf(result)) {
        together.push_back(nameOfArgument(step, argument));
        if (int owner = ownerOf(argument); owner >= 0 && (first < 0 || owner < first))
          first = owner;
      }
    if (first >= 0)
      for (StringRef name : together)
        owners[name] = first;
  }
}

// The smallest segment that reads what a part makes.
int StageHomes::firstReader(int part) const {
  int first = kUnplaced;
  for (Value result : step.parts[part].op->getResults())
    for (int reader : readersOf(result))
      if (home[reader] >= 0 && (first < 0 || home[reader] < first))
        first = home[reader];
  return first;
}

// Work before the main loop that is no part of a loop goes where it is read.
void StageHomes::placeBefore() {
  int mainLoop = 2 * int(step.loops.size()) - 1;
  for (int part = int(step.parts.size()); part-- > 0;) {
    int place = step.parts[part].part;
    if (home[part] != kUnplaced || place > mainLoop || place % 2 == 1)
      continue;
    home[part] = firstReader(part);
    if (home[part] >= 0)
      for (Value operand : step.parts[part].op->getOperands())
        if (auto argument = dyn_cast<BlockArgument>(step.inMemory(operand)))
          own(argument, home[part]);
  }
}

// The latest segment among what a part reads; kUnplaced: it reads nothing that has a place.
int StageHomes::latestOperand(int part) const {
  int latest = kUnplaced;
  for (Value operand : step.parts[part].op->getOperands()) {
    Value value = step.inMemory(operand);
    int at = kUnplaced;
    if (auto argument = dyn_cast<BlockArgument>(value))
      at = ownerOf(argument);
    else if (!isData(value))
      at = home[size_t(writerOf(value))];
    latest = std::max(latest, at);
  }
  return latest;
}

// The work of a loop before the main one is the forward part again, for a sum that all examples wait for.
void StageHomes::placeEarlyLoops() {
  int mainLoop = 2 * int(step.loops.size()) - 1;
  for (int part = 0; part < int(step.parts.size()); ++part)
    if (home[part] == kUnplaced && step.parts[part].part < mainLoop && step.parts[part].part % 2 == 1)
      home[part] = std::max(0, latestOperand(part));
}

// A function without a backward part goes by its operands; what the main loop hands out, the first worker hands out.
void StageHomes::placeForward() {
  int behind = 2 * int(step.loops.size());
  for (int part = 0; part < int(step.parts.size()); ++part)
    if (home[part] == kUnplaced && step.parts[part].part < behind)
      home[part] = isa<plan::ResultsOp>(step.parts[part].op) ? 0 : std::max(0, latestOperand(part));
}

bool StageHomes::atHand(Value value, int segment) const {
  if (isData(value))
    return true;
  int from = writerOf(value);
  if (from >= 0 ? home[size_t(from)] == segment : ownerOf(cast<BlockArgument>(value)) == segment)
    return true;
  return llvm::any_of(readersOf(value), [&](int reader) {
    return home[reader] == segment && inMainLoop(reader) && !step.parts[reader].isBackward();
  });
}

// The parameter that a sum of the main loop is a gradient of: the one that is updated with it, or null.
BlockArgument StageHomes::parameterOf(int part) const {
  for (OpResult result : step.parts[part].op->getResults()) {
    SmallVector<Value> reached{result};
    if (step.parts[part].kernel() && computedBy(result).getDefiningOp()->hasAttr(nn::kHeldAttr)) // what its grains are added to is the gradient
      for (int reader : readersOf(result))
        reached.append(step.parts[reader].op->result_begin(), step.parts[reader].op->result_end());
    for (size_t i = 0; i < reached.size() && reached.size() < 64; ++i)
      for (int reader : readersOf(reached[i])) {
        if (step.parts[reader].part <= step.parts[part].part)
          continue;
        for (OpResult next : step.parts[reader].op->getResults()) {
          if (BlockArgument argument = step.homeOf(next)) {
            if (ownerOf(argument) >= 0) // not its state
              return argument;
            continue;
          }
          if (!isSingle(next) && !llvm::is_contained(reached, Value(next)))
            reached.push_back(next);
        }
      }
  }
  return {};
}

void StageHomes::placeBackward() {
  int last = std::max(0, int(segments.size()) - 1);
  for (int part = 0; part < int(step.parts.size()); ++part) {
    if (home[part] != kUnplaced || !inMainLoop(part))
      continue;
    int latest = last;
    SmallVector<Value> others; // operands that are no gradients
    for (Value operand : step.parts[part].op->getOperands()) {
      Value value = step.inMemory(operand);
      int from = writerOf(value);
      if (from >= 0 && inMainLoop(from) && !data[from] && step.parts[from].isBackward())
        latest = std::min(latest, home[from]);
      else
        others.push_back(value);
    }
    if (BlockArgument parameter = parameterOf(part); parameter && ownerOf(parameter) >= 0)
      others.push_back(parameter);
    home[part] = latest;
    for (int segment = latest; segment >= 0; --segment)
      if (llvm::all_of(others, [&](Value value) { return atHand(value, segment); })) {
        home[part] = segment;
        break;
      }
  }
}

void StageHomes::placeBehind() {
  for (int part = 0; part < int(step.parts.size()); ++part) {
    Operation *op = step.parts[part].op;
    if (home[part] == kUnplaced) {
      int segment = kUnplaced;
      auto consider = [&](int at) { segment = at < 0 ? segment : segment < 0 ? at : std::min(segment, at); };
      for (OpResult result : op->getResults())
        if (BlockArgument argument = step.homeOf(result))
          consider(ownerOf(argument));
      if (segment < 0 && pieceOf(op) >= 0) // some of a parameter's rows
        for (Value operand : op->getOperands())
          if (auto argument = dyn_cast<BlockArgument>(step.inMemory(operand)))
            consider(ownerOf(argument));
      const bool isRun = segment >= 0 && pieceOf(op) >= 0;
      for (Value operand : op->getOperands()) {
        Value value = step.inMemory(operand);
        if (isRun || (segment >= 0 && llvm::any_of(op->getResults(), [&](OpResult r) { return bool(step.homeOf(r)); })))
          break; // a parameter's update stands with the parameter, and so does that of some of its rows
        if (isSingle(value) || isData(value))
          continue;
        auto argument = dyn_cast<BlockArgument>(value);
        consider(argument ? ownerOf(argument) : home[size_t(writerOf(value))]);
      }
      // Of single numbers alone. What is there before the loop is not sent behind it, when the next step may have begun (schedule 2bw).
      for (Value operand : op->getOperands()) {
        Value value = step.inMemory(operand);
        auto argument = dyn_cast<BlockArgument>(value);
        const bool isBefore = argument || step.parts[size_t(writerOf(value))].part < 2 * int(step.loops.size()) - 1;
        if (segment < 0 && isBefore && !isData(value))
          consider(argument ? ownerOf(argument) : home[size_t(writerOf(value))]);
      }
      home[part] = std::max(0, segment);
    }
    for (OpResult result : op->getResults())
      if (BlockArgument argument = step.homeOf(result))
        own(argument, home[part]);
  }
  if (!training)
    return;
  // What nothing computes with stays with the first segment.
  func::FuncOp function = step.function;
  for (BlockArgument argument : function.getArguments())
    if (!nameOfArgument(step, argument).empty())
      own(argument, 0);
}

int StageHomes::shardOf(Operation *part) {
  auto kernel = dyn_cast<plan::KernelOp>(part);
  return kernel ? nn::shardOf(computedBy(kernel->getResult(0)).getDefiningOp()) : -1;
}

int StageHomes::pieceOf(Operation *part) {
  auto kernel = dyn_cast<plan::KernelOp>(part);
  return kernel ? nn::pieceOf(computedBy(kernel->getResult(0)).getDefiningOp()) : -1;
}

// Readers come later, so they are settled first.
void StageHomes::findOnlyWeights() {
  onlyWeights.assign(step.parts.size(), false);
  for (size_t part = step.parts.size(); part-- > 0;) {
    bool othersWait = llvm::any_of(step.parts[part].op->getResults(), [&](Value result) {
      return llvm::any_of(readersOf(result), [&](int reader) {
        return inMainLoop(reader) && !(onlyWeights[size_t(reader)] && home[size_t(reader)] == home[part]);
      });
    });
    onlyWeights[part] = inMainLoop(int(part)) && step.parts[part].isBackward() && !step.parts[part].isHeld() && !othersWait;
  }
}

} // namespace cinch::analysis
