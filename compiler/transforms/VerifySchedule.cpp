// VerifySchedule.cpp: proves a scheduled function from its text alone: every kernel has its offsets, values that are alive at one
// moment share no byte, and nothing leaves the arena. It knows nothing of any planner.
//
// Time counts the kernels in order; the bodies of loops stand once. A value lives from its kernel to its last reader. What the loop
// reads from before it lives to the loop's end, sums over micro-batches live from the loop's begin (they are cleared there; where the loop
// has one trip, some are cleared before the work that begins them instead, and live from there) to their last reader behind it, arguments live
// always, and are overwritten behind the gate only. In a loop over blocks of rows it is the same: what it reads from before it lives to its end,
// what its blocks fill lives from its begin. A kernel may write its result over an operand that dies there if both are the very same bytes, and
// it reads each element before it writes there. If a worker runs the body of a loop in parts, what one part leaves for a later one lives through
// the whole loop, in as many copies as micro-batches wait there. If its list of actions has some of the next step (2bw), that lives always, and
// what is one to a step is there twice: sums over the micro-batches live always, what is computed before the loop lives from the begin on.
#include "compiler/analysis/KernelProblem.h"
#include "compiler/solve/Bytes.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/ScheduleLives.h"
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
        if (failed(copies.place(argument, offset.getInt())))
          return failure();
        continue;
      }
      lives.try_emplace(argument, Life{offset.getInt(), bytesOf(argument), -1, kForever, argument});
    }
    if (failed(number(function.getBody().front())) || failed(holdBefore()))
      return failure();
    if (failed(copies.verifyEnd()))
      return failure();
    if (failed(findStates()))
      return failure();
    return sweep();
  }

private:
  // Numbers the kernels and collects lifetimes.
  LogicalResult number(Block &block) {
    for (Operation &op : block) {
      if (auto loop = dyn_cast<plan::LoopOp>(op)) {
        if (failed(numberLoop(loop)))
          return failure();
      } else if (isa<plan::FetchOp, plan::StoreOp, plan::AwaitOp>(op)) {
        if (failed(copies.number(op, now++, resolve(op.getOperand(0)))))
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
    if (loop.examples() && failed(copies.verifyEnd())) // work in blocks of rows may stand between a copy's begin and its end
      return failure();
    int64_t end = now++;
    if (loop.examples() && failed(holdWaiting(loop, begin, end)))
      return failure();
    for (Value value : readFromOutside[loop]) {
      lives[value].end = std::max(lives[value].end, end);
      if (isa<BlockArgument>(value))
        lastArgumentUse[value] = std::max(lastArgumentUse.lookup(value), end);
    }
    if (failed(numberResults(loop, begin, end)))
      return failure();
    if (overlaps(loop))
      overlapBegin = begin;
    return success();
  }

  // What a loop leaves. A sum lives from where it is cleared: from the loop's begin on, or from the work that clears or begins it.
  LogicalResult numberResults(plan::LoopOp loop, int64_t begin, int64_t end) {
    SmallVector<LoopSum> left; // of a loop over examples these are sums
    for (OpResult result : loop->getResults()) {
      Value inner = resolve(loop.yieldedFor(result));
      if (!lives.count(inner))
        return loop.emitOpError("yields a value that has no place in memory");
      alias[result] = inner;
      left.push_back({inner, lives[inner].offset, bytesOf(result)});
    }
    if (loop.examples() && failed(verifySums(loop, left)))
      return failure();
    DenseSet<Value> known;
    for (const LoopSum &sum : left) {
      if (!known.insert(sum.value).second) // two results may be one value
        continue;
      Life &life = lives[sum.value];
      life.bytes = sum.bytes;
      if (!sum.beginsLate)
        life.begin = std::min(life.begin, begin);
      life.end = std::max(life.end, end);
      if (overlaps(loop) && failed(holdTwice(life, -1, kForever)))
        return failure();
      // What lies behind a short sum is cleared with it.
      int64_t used = sum.offset + life.bytes, cleared = sum.offset + solve::roundUp(sum.bytes);
      if (loop.examples() && used < cleared)
        scratches.push_back({used, cleared - used, life.begin, life.begin, sum.value});
    }
    for (auto receive : loop.block().getOps<plan::ReceiveOp>()) {
      if (!receive.getBegins())
        continue;
      const LoopSum &sum = left[*receive.getBegins()];
      if (sum.offset != receive.getWrites()->front())
        return receive.emitOpError("leaves what a sum goes on from where the sum is not");
      if (sum.beginsLate && !receive.getAdds())
        return receive.emitOpError("leaves what a sum goes on from, and the work of the sum begins with nothing");
    }
    return success();
  }

  // What an op reads lives to it at least.
  LogicalResult numberReads(Operation &op, int64_t time) {
    bool inLoop = bool(plan::LoopOp::overExamplesAround(&op));
    part += isa<plan::PartOp>(op);
    for (Value operand : op.getOperands()) {
      Value value = resolve(operand);
      if (isa<func::ReturnOp>(op) && (value.getDefiningOp<plan::StoreOp>() || copies.isOnHost(value)))
        continue; // on the host
      auto it = lives.find(value);
      if (it == lives.end())
        return op.emitOpError("reads a value that has no place in memory");
      if (copies.isUnderWay(value))
        return op.emitOpError("reads what is on its way");
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
    if (isa<plan::GateOp>(op))
      gate = time;
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
    if (failed(verifyScratch(kernel)))
      return failure();
    if (!plan::LoopOp::overExamplesAround(kernel) && (kernel.getAccumulates() || !clearedBy(kernel).empty()))
      return kernel.emitOpError("adds to a sum, or clears one, outside of a loop over the micro-batches");
    if (auto bytes = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr))
      scratches.push_back({int64_t(*kernel.getScratch()), bytes.getInt(), time, time, kernel.getResult(0)});
    for (auto [result, offset] : llvm::zip(kernel.getOutputs(), *kernel.getWrites())) {
      lives[result] = {offset, bytesOf(result), time, time, result, part};
      kernels[time] = kernel;
    }
    if (plan::LoopOp loop = analysis::loopOf(kernel))
      return verifyTrip(kernel, loop, specs);
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
      auto count = writer ? writer->getAttrOfType<DenseI64ArrayAttr>(kCopiesAttr) : DenseI64ArrayAttr();
      int64_t there = count ? count[cast<OpResult>(value).getResultNumber()] : 1, needed = 0;
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

  // One for this step and one for the next.
  LogicalResult holdTwice(Life &life, int64_t begin, int64_t end) {
    Operation *writer = life.value.getDefiningOp();
    auto count = writer ? writer->getAttrOfType<DenseI64ArrayAttr>(kCopiesAttr) : DenseI64ArrayAttr();
    if (!count || count[cast<OpResult>(life.value).getResultNumber()] != 2)
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
  // The new value of a state, or of a slot, lies where the old one lay, whether or not it is computed from it: there the next step reads it.
  // What lies on the host HostCopies knows.
  LogicalResult findStates() {
    for (StringRef kind : {nn::kPathAttr, nn::kSlotAttr}) {
      DenseMap<Attribute, Value> old;
      for (BlockArgument argument : function.getArguments())
        if (Attribute name = function.getArgAttr(argument.getArgNumber(), kind))
          old[name] = argument;
      for (auto [i, value] : llvm::enumerate(function.getBody().front().getTerminator()->getOperands()))
        if (Attribute name = function.getResultAttr(unsigned(i), kind)) {
          Value before = overwrites[value] = old.lookup(name);
          auto was = lives.find(before), is = lives.find(resolve(value));
          if (was != lives.end() && is != lives.end() && was->second.offset != is->second.offset)
            return error(resolve(value)) << "leaves the new value of " << name << " at offset " << is->second.offset
                                         << ", where the next step finds none: the old one lies at " << was->second.offset;
        }
    }
    return success();
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
        if (isState(other.value) && life.begin < gate)
          return error(life.value) << "overwrites a parameter or a state before the gate, which leaves it as it was where it is closed: bytes ["
                                   << life.offset << ", " << life.offset + life.bytes << ")";
        it = alive.erase(it);
      }
      alive[life.offset] = life;
      ends.insert({life.end, life.offset});
    }
    return success();
  }

  // What is there before the step and behind it; it may have come from the host.
  static bool isState(Value value) {
    auto fetch = value.getDefiningOp<plan::FetchOp>();
    return isa<BlockArgument>(fetch ? fetch.getValue() : value);
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
    bool operand = llvm::is_contained(llvm::map_range(kernel.getInputs(), [&](Value input) { return resolve(input); }), value);
    int64_t last = isa<BlockArgument>(value) ? lastArgumentUse.lookup(value) : other.end;
    if (!operand)
      return overwrites.lookup(life.value) == value && last < life.begin;
    return last == life.begin && readsBeforeItWrites(kernel, value, cast<OpResult>(life.value).getResultNumber());
  }

  // Has the kernel read each element of its operand when it writes the same one of its result? What it clears, it clears before.
  bool readsBeforeItWrites(plan::KernelOp kernel, Value operand, unsigned result) {
    if (clears(kernel, (*kernel.getWrites())[result]))
      return false;
    return llvm::all_of(llvm::enumerate(kernel.getInputs()), [&](auto input) {
      return resolve(input.value()) != operand || analysis::readsBeforeItWrites(kernel, unsigned(input.index()), result, specs);
    });
  }

  InFlightDiagnostic error(Value value) {
    if (Operation *op = value.getDefiningOp())
      return op->emitOpError();
    return function.emitOpError("argument: ");
  }

  func::FuncOp function;
  int64_t arenaBytes = 0, now = 0;
  int64_t overlapBegin = -1; // of the loop whose steps overlap
  int64_t gate = -1;         // when it is passed, if there is one
  DenseMap<Value, Life> lives;
  DenseMap<Value, Value> alias;
  DenseMap<Value, int64_t> lastArgumentUse;
  DenseMap<Value, Value> overwrites; // new states -> old ones
  llvm::MapVector<Value, std::set<int>> waiting; // values of the loop body that is being numbered -> later parts that read them
  int part = 0;                        // of it
  DenseMap<Operation *, DenseSet<Value>> readFromOutside; // of each loop
  DenseMap<int64_t, plan::KernelOp> kernels;
  SmallVector<Life> scratches; // and what is cleared behind a sum
  analysis::KernelSpecs specs;
  HostCopies copies{function, lives};
};

} // namespace

LogicalResult verifySchedule(func::FuncOp function) { return ScheduleVerifier(function).verify(); }

} // namespace cinch
