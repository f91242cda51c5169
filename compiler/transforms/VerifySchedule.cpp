// VerifySchedule.cpp: proves a scheduled function from its text alone: every kernel has its offsets, values that are alive at one
// moment share no byte, and nothing leaves the arena. It knows nothing of any planner.
//
// Time counts the kernels in order; the bodies of loops stand once. A value lives from its kernel to its last reader. What the loop
// reads from before it lives to the loop's end, sums over micro-batches live from the loop's begin (they are cleared there) to
// their last reader behind it, arguments live always. In a loop over blocks of rows it is the same: what it reads from before it
// lives to its end, what its blocks fill lives from its begin. A kernel may write its result over an operand that dies there if both
// are the very same bytes. If a worker runs the body of a loop in parts, what one part leaves for a later one lives through the whole
// loop, in as many copies as micro-batches wait there. If its list of actions has some of the next step (2bw), that lives always, and what is
// one to a step is there twice: sums over the micro-batches live always, what is computed before the loop lives from the begin on.
//
// A state that lies on the host has bytes of pinned memory of its own. What is copied from there lives in the arena from the begin of the copy,
// and what is copied back to the end of it; it is awaited before anybody reads it, and goes back where it came from.
#include "compiler/transforms/Decision.h"
#include "compiler/solve/Bytes.h"
#include "compiler/transforms/VerifySchedule.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

#include "mlir/Dialect/Func/IR/FuncOps.h"

#include "llvm/ADT/MapVector.h"

#include <map>
#include <set>

using namespace mlir;

namespace cinch {
namespace {

struct Life {
  int64_t offset = 0, bytes = 0;
  int64_t begin = 0, end = 0; // alive in [begin, end], both included
  Value value;
  int part = 0;               // of the loop body in which it is written
};

int64_t bytesOf(Value value) {
  auto type = nn::tensorOf(value);
  int64_t bits = type.getElementTypeBitWidth();
  return type.getNumElements() * std::max<int64_t>(1, bits / 8);
}

// The trip of a loop along an axis: its slots and its values lie in the scratch of its kernel, and what is alive at one moment shares no
// byte. What is sliced, stacked or carried lies elsewhere, with a place of its own in each trip.
class TripVerifier {
public:
  TripVerifier(plan::KernelOp kernel, plan::LoopOp loop) : kernel(kernel), loop(loop) {}

  LogicalResult verify() {
    auto bytes = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr);
    begin = kernel.getScratch().value_or(-1);
    end = begin < 0 ? begin : begin + (bytes ? bytes.getInt() : 0);
    auto slots = loop->getAttrOfType<DenseI64ArrayAttr>(kSlotsAttr);
    if (!slots)
      return loop.emitOpError("has no slots for what it carries");
    size_t slot = 0;
    for (unsigned i = 0; i < loop.getInits().size(); ++i) {
      if (!loop.hasSlots(i))
        continue;
      for (int k = 0; k < 2; ++k, ++slot) {
        if (slot >= size_t(slots.size()))
          return loop.emitOpError("has too few slots for what it carries");
        lives.push_back({slots[slot], bytesOf(loop.carried(i)), 0, INT64_MAX, loop.carried(i)});
      }
    }
    if (failed(number()))
      return failure();
    for (size_t i = 0; i < lives.size(); ++i) {
      const Life &a = lives[i];
      if (a.bytes > 0 && (a.offset < begin || a.offset + a.bytes > end))
        return loop.emitOpError("has a value of a trip outside its scratch: ") << a.value.getType();
      for (size_t j = 0; j < i; ++j)
        if (const Life &b = lives[j]; clash(a, b))
          return loop.emitOpError("has two values in the same bytes of its scratch: [") << a.offset << ", " << a.offset + a.bytes
                                                                                       << ") and [" << b.offset << ", " << b.offset + b.bytes << ")";
    }
    return success();
  }

private:
  LogicalResult number() {
    DenseMap<Value, size_t> placed;
    int64_t time = 0;
    for (Operation &op : loop.block().without_terminator()) {
      auto part = dyn_cast<plan::KernelOp>(op);
      if (!part || !part.getReads() || !part.getWrites())
        return op.emitOpError("has no offsets");
      ++time;
      for (auto [operand, offset] : llvm::zip(part.getInputs(), *part.getReads()))
        if (auto it = placed.find(operand); it != placed.end()) {
          lives[it->second].end = time;
          if (lives[it->second].offset != offset)
            return part.emitOpError("reads offset ") << offset << ", its operand lies elsewhere";
        }
      if (auto bytes = part->getAttrOfType<IntegerAttr>(kScratchBytesAttr))
        lives.push_back({int64_t(*part.getScratch()), bytes.getInt(), time, time, part.getResult(0)});
      for (auto [result, offset] : llvm::zip(part.getOutputs(), *part.getWrites())) {
        if (loop.resultOf(result))
          continue;
        placed[result] = lives.size();
        lives.push_back({offset, bytesOf(result), time, time, result});
      }
      if (plan::LoopOp inner = analysis::loopOf(part))
        if (failed(TripVerifier(part, inner).verify()))
          return failure();
    }
    return success();
  }

  // A kernel may write over an operand that it reads last, if both are the very same bytes.
  static bool clash(const Life &a, const Life &b) {
    if (a.bytes == 0 || b.bytes == 0 || a.offset >= b.offset + b.bytes || b.offset >= a.offset + a.bytes)
      return false;
    const Life &first = a.begin < b.begin ? a : b, &second = a.begin < b.begin ? b : a;
    if (first.end < second.begin)
      return false;
    bool handedOver = first.begin < second.begin && first.end == second.begin && first.offset == second.offset &&
                      first.bytes == second.bytes && second.value.getDefiningOp() &&
                      llvm::is_contained(second.value.getDefiningOp()->getOperands(), first.value);
    return !handedOver;
  }

  plan::KernelOp kernel;
  plan::LoopOp loop;
  int64_t begin = 0, end = 0;
  SmallVector<Life> lives;
};

class ScheduleVerifier {
public:
  explicit ScheduleVerifier(func::FuncOp function) : function(function) {}

  LogicalResult verify() {
    auto arena = function->getAttrOfType<IntegerAttr>(kArenaAttr);
    if (!arena)
      return function.emitOpError("has no '") << kArenaAttr << "'";
    arenaBytes = arena.getInt();
    for (BlockArgument argument : function.getArguments()) {
      auto offset = function.getArgAttrOfType<IntegerAttr>(argument.getArgNumber(), "plan.offset");
      if (!offset)
        return function.emitOpError("argument ") << argument.getArgNumber() << " has no offset";
      if (function.getArgAttr(argument.getArgNumber(), kSpaceAttr)) {
        if (failed(placeOnHost(argument, offset.getInt())))
          return failure();
        continue;
      }
      lives.try_emplace(argument, Life{offset.getInt(), bytesOf(argument), -1, kForever, argument});
    }
    if (failed(number(function.getBody().front())) || failed(holdBefore()))
      return failure();
    for (auto &[copy, life] : underWay)
      return copy.getDefiningOp()->emitOpError("is not awaited");
    findStates();
    return sweep();
  }

private:
  static constexpr int64_t kForever = INT64_MAX;

  // Of arguments on the host: bytes of their own, within what there are.
  LogicalResult placeOnHost(BlockArgument argument, int64_t offset) {
    auto all = function->getAttrOfType<IntegerAttr>(kHostBytesAttr);
    int64_t end = offset + bytesOf(argument);
    if (offset < 0 || offset % 64 || !all || end > all.getInt())
      return function.emitOpError("argument ") << argument.getArgNumber() << " lies outside the pinned memory";
    auto next = hostEnds.lower_bound(offset + 1); // the first that ends behind its begin
    if (next != hostEnds.end() && next->second < end)
      return function.emitOpError("argument ") << argument.getArgNumber() << " shares bytes of pinned memory with another";
    hostEnds[end] = offset;
    hostOffset[argument] = offset;
    return success();
  }

  // A copy begins, or is waited for. Reading and writing where one is under way is refused where it is done (`number`, `sweep`).
  LogicalResult numberCopy(Operation &op, int64_t time) {
    if (auto fetch = dyn_cast<plan::FetchOp>(op)) {
      auto home = hostOffset.find(fetch.getValue());
      if (home == hostOffset.end() || !fetch.getHost() || int64_t(*fetch.getHost()) != home->second || !fetch.getOffset())
        return op.emitOpError("does not copy a state from where it lies on the host");
      lives[fetch.getCopy()] = {int64_t(*fetch.getOffset()), bytesOf(fetch.getCopy()), time, time, fetch.getCopy()};
      underWay.insert({fetch.getCopy(), fetch.getCopy()});
      cameTo[home->second] = int64_t(*fetch.getOffset());
    } else if (auto store = dyn_cast<plan::StoreOp>(op)) {
      Value value = store.getValue();
      if (!store.getOffset() || !store.getHost() || !lives.count(value) || lives[value].offset != int64_t(*store.getOffset()))
        return op.emitOpError("does not copy a state from where it lies");
      if (auto came = cameTo.find(int64_t(*store.getHost())); came == cameTo.end() || came->second != int64_t(*store.getOffset()))
        return op.emitOpError("copies a state from elsewhere than it was copied to");
      lives[value].end = std::max(lives[value].end, time);
      underWay.insert({store.getCopy(), value});
    } else {
      Value copy = cast<plan::AwaitOp>(op).getCopy();
      auto it = underWay.find(copy);
      if (it == underWay.end())
        return op.emitOpError("waits for a copy that is not under way");
      lives[it->second].end = std::max(lives[it->second].end, time);
      underWay.erase(it);
    }
    return success();
  }

  // Numbers the kernels and collects lifetimes.
  LogicalResult number(Block &block) {
    for (Operation &op : block) {
      if (auto loop = dyn_cast<plan::LoopOp>(op)) {
        if (failed(numberLoop(loop)))
          return failure();
      } else if (isa<plan::FetchOp, plan::StoreOp, plan::AwaitOp>(op)) {
        if (failed(numberCopy(op, now++)))
          return failure();
      } else if (int64_t time = now++; failed(numberReads(op, time)) || failed(numberWrites(op, time))) {
        return failure();
      }
    }
    return success();
  }

  // A loop, whose operands and results have the bytes that they have outside of it. What it reads from outside, its next trip reads again;
  // what its trips fill or accumulate is there while it runs.
  LogicalResult numberLoop(plan::LoopOp loop) {
    int64_t begin = now++;
    for (BlockArgument argument : loop.block().getArguments())
      alias[argument] = resolve(loop.operandOf(argument));
    if (loop.examples())
      waiting.clear(), part = 0;
    if (failed(number(loop.block())))
      return failure();
    int64_t end = now++;
    if (loop.examples() && failed(holdWaiting(loop, begin, end)))
      return failure();
    for (Value value : readFromOutside[loop]) {
      lives[value].end = std::max(lives[value].end, end);
      if (isa<BlockArgument>(value))
        lastArgumentUse[value] = std::max(lastArgumentUse.lookup(value), end);
    }
    for (OpResult result : loop->getResults()) {
      Value inner = resolve(loop.yieldedFor(result));
      auto it = lives.find(inner);
      if (it == lives.end())
        return loop.emitOpError("yields a value that has no place in memory");
      alias[result] = inner;
      Life &life = it->second;
      life.bytes = bytesOf(result);
      life.begin = std::min(life.begin, begin);
      life.end = std::max(life.end, end);
      if (overlaps(loop) && failed(holdTwice(life, -1, kForever)))
        return failure();
    }
    if (overlaps(loop))
      overlapBegin = begin;
    for (auto receive : loop.block().getOps<plan::ReceiveOp>())
      if (Value sum = receive.sum(); sum && lives[resolve(sum)].offset != receive.getWrites()->front())
        return receive.emitOpError("leaves what a sum goes on from where the sum is not");
    return success();
  }

  // What an op reads lives to it at least.
  LogicalResult numberReads(Operation &op, int64_t time) {
    bool inLoop = bool(plan::LoopOp::overExamplesAround(&op));
    part += isa<plan::PartOp>(op);
    for (Value operand : op.getOperands()) {
      Value value = resolve(operand);
      if (isa<func::ReturnOp>(op) && (value.getDefiningOp<plan::StoreOp>() || hostOffset.count(value)))
        continue; // on the host
      auto it = lives.find(value);
      if (it == lives.end())
        return op.emitOpError("reads a value that has no place in memory");
      if (underWay.count(value))
        return op.emitOpError("reads a state that is on its way");
      bool fromOutside = false;
      for (auto loop = op.getParentOfType<plan::LoopOp>(); loop; loop = loop->getParentOfType<plan::LoopOp>())
        if ((fromOutside = !loop.getBody().isAncestor(value.getParentRegion())))
          readFromOutside[loop].insert(value);
      if (inLoop && !fromOutside && it->second.part < part) // of the outermost loop, that over examples
        waiting[value].insert(part);
      if (isa<func::ReturnOp>(op))
        it->second.end = kForever;
      else if (it->second.end != kForever)
        it->second.end = std::max(it->second.end, time);
      if (isa<BlockArgument>(value) && !isa<func::ReturnOp>(op))
        lastArgumentUse[value] = std::max(lastArgumentUse.lookup(value), time);
    }
    if (isa<plan::ResultsOp>(op) && !inLoop)
      for (Value operand : op.getOperands())
        lives[resolve(operand)].end = kForever;
    return success();
  }

  // The bytes of what an op makes, from `time` on.
  LogicalResult numberWrites(Operation &op, int64_t time) {
    if (auto receive = dyn_cast<plan::ReceiveOp>(op))
      return numberReceive(receive, time);
    if (auto kernel = dyn_cast<plan::KernelOp>(op))
      return numberKernel(kernel, time);
    if (auto band = dyn_cast<plan::BandOp>(op))
      return numberBand(band, time);
    if (!isa<func::ReturnOp, plan::YieldOp, plan::GateOp, plan::ResultsOp, plan::SendOp, plan::PartOp>(op))
      return op.emitOpError("does not belong to phase 'scheduled'");
    return success();
  }

  LogicalResult numberReceive(plan::ReceiveOp receive, int64_t time) {
    if (!receive.getWrites())
      return receive.emitOpError("has no offsets");
    if (receive.getAdds() && !lives.count(resolve(receive.sum())))
      return receive.emitOpError("is added to a sum in front of the work that makes it");
    if (receive.getBegins()) // lies where the sum does
      return success();
    Value value = receive.getValue();
    lives[value] = {receive.getWrites()->front(), bytesOf(value), time, time, value, part};
    return success();
  }

  LogicalResult numberBand(plan::BandOp band, int64_t time) {
    if (!band.getReads() || !band.getWrites())
      return band.emitOpError("has no offsets");
    if (lives[resolve(band.getImage())].offset != band.getReads()->front())
      return band.emitOpError("copies from offset ") << band.getReads()->front() << ", the image lies elsewhere";
    lives[band.getRows()] = {band.getWrites()->front(), bytesOf(band.getRows()), time, time, band.getRows(), part};
    return success();
  }

  LogicalResult numberKernel(plan::KernelOp kernel, int64_t time) {
    if (!kernel.getReads() || !kernel.getWrites())
      return kernel.emitOpError("has no offsets");
    for (auto [operand, offset] : llvm::zip(kernel.getInputs(), *kernel.getReads()))
      if (lives[resolve(operand)].offset != offset)
        return kernel.emitOpError("reads offset ") << offset << ", its operand lies elsewhere";
    if (auto bytes = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr))
      scratches.push_back({int64_t(*kernel.getScratch()), bytes.getInt(), time, time, kernel.getResult(0)});
    for (auto [result, offset] : llvm::zip(kernel.getOutputs(), *kernel.getWrites())) {
      lives[result] = {offset, bytesOf(result), time, time, result, part};
      kernels[time] = kernel;
    }
    if (plan::LoopOp loop = analysis::loopOf(kernel))
      return TripVerifier(kernel, loop).verify();
    return success();
  }

  // What a later part of the loop body reads has its bytes through the whole loop.
  LogicalResult holdWaiting(plan::LoopOp loop, int64_t loopBegin, int64_t loopEnd) {
    if (waiting.empty() || inTurns(loop))
      return success();
    DenseSet<Value> sums; // no micro-batch has one of its own
    for (Value yielded : loop.yield().getValues())
      sums.insert(resolve(yielded));
    for (auto &[value, readers] : waiting) {
      Life &life = lives[value];
      if (sums.contains(value))
        continue;
      Operation *writer = value.getDefiningOp();
      auto copies = writer ? writer->getAttrOfType<DenseI64ArrayAttr>(kCopiesAttr) : DenseI64ArrayAttr();
      int64_t there = copies ? copies[cast<OpResult>(value).getResultNumber()] : 1, needed = 0;
      for (int reader : readers)
        needed = std::max(needed, mostWaiting(loop, life.part, reader));
      for (int reader : readers)
        if (!alwaysBehind(loop, life.part, reader))
          return error(value) << "is read in part " << reader << " of the loop body, which a micro-batch runs before part " << life.part
                              << ", where it is written";
      if (there < needed)
        return error(value) << "has " << there << " copies, but waits for a later part in " << needed << " micro-batches at once";
      life.bytes = solve::roundUp(life.bytes) * there;
      life.begin = overlaps(loop) ? -1 : loopBegin, life.end = overlaps(loop) ? kForever : loopEnd;
      if (overlaps(loop) && int64_t(loop.getCount()) % there)
        return error(value) << "has " << there << " copies, on which the " << loop.getCount() << " micro-batches of the next step do not take turns";
    }
    return success();
  }

  // Are there actions of the next step among those of the loop?
  static bool overlaps(plan::LoopOp loop) {
    if (!loop.getActions() || loop.getLags())
      return false;
    ArrayRef<int64_t> actions = *loop.getActions();
    for (size_t i = 1; i < actions.size(); i += 2)
      if (actions[i] >= int64_t(loop.getCount()))
        return true;
    return false;
  }
  // One for this step and one for the next.
  LogicalResult holdTwice(Life &life, int64_t begin, int64_t end) {
    Operation *writer = life.value.getDefiningOp();
    auto copies = writer ? writer->getAttrOfType<DenseI64ArrayAttr>(kCopiesAttr) : DenseI64ArrayAttr();
    if (!copies || copies[cast<OpResult>(life.value).getResultNumber()] != 2)
      return error(life.value) << "is not there twice, for the next step, too";
    life.bytes = solve::roundUp(life.bytes) * 2;
    life.begin = begin, life.end = end;
    return success();
  }
  // What is computed before a loop whose steps overlap, for work in it or behind it.
  LogicalResult holdBefore() {
    for (auto &entry : lives)
      if (Life &life = entry.second; !isa<BlockArgument>(life.value) && life.begin >= 0 && life.begin < overlapBegin && life.end > overlapBegin)
        if (failed(holdTwice(life, -1, life.end)))
          return failure();
    return success();
  }
  // Parts that take turns are the body as a whole.
  static bool inTurns(plan::LoopOp loop) {
    if (auto lags = loop.getLags())
      return lags->back() == 0;
    if (!loop.getActions())
      return true;
    ArrayRef<int64_t> actions = *loop.getActions();
    auto marks = loop.block().getOps<plan::PartOp>();
    int64_t parts = 1 + std::distance(marks.begin(), marks.end());
    for (size_t i = 0; i < actions.size(); i += 2)
      if (actions[i] != int64_t(i) / 2 % parts || actions[i + 1] != actions[i - int64_t(i) / 2 % parts * 2 + 1])
        return false;
    return true;
  }
  // Does every micro-batch run part `to` behind part `from`?
  static bool alwaysBehind(plan::LoopOp loop, int from, int to) {
    if (auto lags = loop.getLags())
      return (*lags)[to] >= (*lags)[from];
    ArrayRef<int64_t> actions = *loop.getActions();
    int64_t done = INT64_MAX; // each part takes the micro-batches in order: the first that part `from` has not run
    for (size_t i = 0; i < actions.size(); i += 2)
      done = actions[i] == from ? std::min(done, actions[i + 1]) : done;
    for (size_t i = 0; i < actions.size(); i += 2) {
      done += actions[i] == from;
      if (actions[i] == to && actions[i + 1] >= done)
        return false;
    }
    return true;
  }
  // Micro-batches that have begun one part and not ended a later one, at most.
  static int64_t mostWaiting(plan::LoopOp loop, int from, int to) {
    if (auto lags = loop.getLags())
      return (*lags)[to] - (*lags)[from] + 1;
    ArrayRef<int64_t> actions = *loop.getActions();
    auto firstOf = [&](int part) { // what is before it was done with the step before
      int64_t first = INT64_MAX;
      for (size_t i = 0; i < actions.size(); i += 2)
        first = actions[i] == part ? std::min(first, actions[i + 1]) : first;
      return first;
    };
    int64_t begun = firstOf(from) - firstOf(to), most = begun;
    for (size_t i = 0; i < actions.size(); i += 2) {
      begun += actions[i] == from;
      most = std::max(most, begun);
      begun -= actions[i] == to;
    }
    return most;
  }

  // The new value of a state, or of a slot, lies where the old one lay, whether or not it is computed from it.
  void findStates() {
    for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr}) {
      DenseMap<Attribute, Value> old;
      for (BlockArgument argument : function.getArguments())
        if (Attribute name = function.getArgAttr(argument.getArgNumber(), kind))
          old[name] = argument;
      for (auto [i, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
        if (Attribute name = function.getResultAttr(unsigned(i), kind))
          overwrites[value] = old.lookup(name);
    }
  }

  Value resolve(Value value) const {
    while (true) {
      auto it = alias.find(value);
      if (it == alias.end())
        return value;
      value = it->second;
    }
  }

  LogicalResult sweep() {
    SmallVector<Life> all(scratches);
    for (auto &entry : lives)
      all.push_back(entry.second);
    llvm::stable_sort(all, [](const Life &a, const Life &b) {
      return std::tie(a.begin, a.offset, a.bytes) < std::tie(b.begin, b.offset, b.bytes);
    });
    std::map<int64_t, Life> alive; // by offset
    std::multimap<int64_t, int64_t> ends;
    for (const Life &life : all) {
      if (life.bytes > 0 && (life.offset < 0 || life.offset + life.bytes > arenaBytes))
        return error(life.value) << "lies outside the arena of " << arenaBytes << " bytes";
      while (!ends.empty() && ends.begin()->first < life.begin) {
        auto it = alive.find(ends.begin()->second);
        if (it != alive.end() && it->second.end == ends.begin()->first)
          alive.erase(it);
        ends.erase(ends.begin());
      }
      auto it = alive.upper_bound(life.offset);
      if (it != alive.begin())
        --it;
      while (it != alive.end() && it->first < life.offset + life.bytes) {
        const Life &other = it->second;
        if (other.offset + other.bytes <= life.offset) {
          ++it;
          continue;
        }
        if (!inPlace(life, other))
          return error(life.value) << "overlaps a value that is still alive: bytes [" << life.offset << ", "
                                   << life.offset + life.bytes << ") and [" << other.offset << ", "
                                   << other.offset + other.bytes << ")";
        it = alive.erase(it);
      }
      alive[life.offset] = life;
      ends.insert({life.end, life.offset});
    }
    return success();
  }

  // `life` is written by a kernel over its own operand `other`, or over the state or parameter that it is the new value of, which nobody
  // reads any more.
  bool inPlace(const Life &life, const Life &other) {
    if (life.value.getDefiningOp<plan::ReceiveOp>())
      return life.offset == other.offset && life.bytes == other.bytes && overwrites.lookup(life.value) == other.value &&
             lastArgumentUse.lookup(other.value) < life.begin;
    auto kernel = kernels.lookup(life.begin);
    // What came from before the loop is read again in the next pass.
    bool again = kernel && plan::LoopOp::overExamplesAround(kernel) && isa<BlockArgument>(other.value);
    if (!kernel || again || life.offset != other.offset || life.bytes != other.bytes)
      return false;
    Value value = other.value;
    bool operand = llvm::any_of(kernel.getInputs(), [&](Value input) {
      return resolve(input) == value;
    });
    int64_t last = isa<BlockArgument>(value) ? lastArgumentUse.lookup(value) : other.end;
    return operand ? last == life.begin : overwrites.lookup(life.value) == value && last < life.begin;
  }

  InFlightDiagnostic error(Value value) {
    if (Operation *op = value.getDefiningOp())
      return op->emitOpError();
    return function.emitOpError("argument: ");
  }

  func::FuncOp function;
  int64_t arenaBytes = 0, now = 0;
  int64_t overlapBegin = -1; // of the loop whose steps overlap
  DenseMap<Value, Life> lives;
  DenseMap<Value, Value> alias;
  DenseMap<Value, int64_t> lastArgumentUse;
  DenseMap<Value, Value> overwrites; // new states -> old ones
  llvm::MapVector<Value, std::set<int>> waiting; // values of the loop body that is being numbered -> later parts that read them
  int part = 0;                        // of it
  DenseMap<Operation *, DenseSet<Value>> readFromOutside; // of each loop
  DenseMap<int64_t, plan::KernelOp> kernels;
  SmallVector<Life> scratches;
  DenseMap<Value, int64_t> hostOffset; // of arguments on the host
  std::map<int64_t, int64_t> hostEnds; // of them: end -> begin
  llvm::MapVector<Value, Value> underWay; // copies -> what they copy in the arena
  std::map<int64_t, int64_t> cameTo;   // of places on the host: where their last copy went
};

} // namespace

LogicalResult verifySchedule(func::FuncOp function) { return ScheduleVerifier(function).verify(); }

} // namespace cinch
