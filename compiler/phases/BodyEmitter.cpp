// BodyEmitter.cpp: the body of an entry point: runs of launches, loops over micro-batches, blocks of rows and axes, messages, the gate.
#include "compiler/phases/BodyEmitter.h"

#include "compiler/phases/OperandPlaces.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/TwoSteps.h"
#include "dialects/nn/NN.h"
#include "dialects/plan/Plan.h"

using namespace mlir;

namespace cinch {

using namespace kernels;

namespace {
enum OverlapWord { kFresh = 6, kFurther = 7 }; // of the context, for the host alone

// Emits the body of an entry point.
class BodyEmitter {
public:
  BodyEmitter(const HostCode &host, EntryEmitter &e, bool counted) : host(host), e(e), b(e.builder), counted(counted), places(e) {}

  void emitFunction(Block &block) {
    auto function = cast<func::FuncOp>(block.getParentOp());
    if ((places.overlapping = overlappingLoop(function)))
      return emitOverlapping(function, block);
    emit(block);
  }
  void finish() {
    if (!end)
      return;
    LLVM::BrOp::create(b, e.loc, ValueRange{}, end);
    b.setInsertionPointToEnd(end);
  }

private:
  void emit(Block &block) { emit(block.begin(), block.end()); }
  void emit(Block::iterator from, Block::iterator to) {
    for (Operation &op : llvm::make_range(from, to)) {
      if (auto kernel = dyn_cast<plan::KernelOp>(op); kernel && !analysis::loopOf(kernel) && !places.isMoved(kernel)) {
        int64_t launch = host.callOf(&op).launch;
        if (launch != behind) {
          launchAll();
          first = launch;
        }
        behind = launch + 1;
        continue;
      }
      launchAll();
      auto kernel = dyn_cast<plan::KernelOp>(op);
      if (op.hasAttr(kZeroedAttr) && !isOverExamples(op) && (!kernel || analysis::loopOf(kernel))) // sums that begin here
        clearSums(op);
      emit(op);
    }
    launchAll();
  }

  void emit(Operation &op) {
    if (auto kernel = dyn_cast<plan::KernelOp>(op)) {
      if (plan::LoopOp loop = analysis::loopOf(kernel))
        emitTrips(loop);
      else
        launch(kernel), clearOutside(kernel);
    } else if (auto band = dyn_cast<plan::BandOp>(op)) {
      copyBand(band);
    } else if (auto loop = dyn_cast<plan::LoopOp>(op)) {
      loop.examples() ? (emitMicrobatches(loop), awaitSums(loop)) : emitTrips(loop);
    } else if (auto send = dyn_cast<plan::SendOp>(op)) {
      onlyIn(send.getLast() ? lastMicrobatch : kEvery,
             [&] { message("cinch_send", send.getChannel(), send.getValue(), send.getReads()->front()); });
    } else if (auto receive = dyn_cast<plan::ReceiveOp>(op)) {
      onlyIn(receive.getAdds() ? lastMicrobatch : receive.getBegins() ? 0 : kEvery, [&] {
        if (receive.getAdds())
          message("cinch_receive_sum", receive.getChannel(), receive.sum(), receive.getWrites()->front(), analysis::elemOf(receive.sum()) == Elem::F64);
        else
          message("cinch_receive", receive.getChannel(), receive.getValue(), receive.getWrites()->front());
      });
    } else if (isa<plan::ResultsOp>(op) && isa<plan::LoopOp>(op.getParentOp())) {
      e.call("cinch_emit", e.none, {e.context, e.number(e.i32, e.entry), places.microbatch});
    } else if (isa<plan::GateOp>(op)) {
      emitGate();
    } else if (auto fetch = dyn_cast<plan::FetchOp>(op)) {
      move("cinch_fetch", fetch.getCopy(), *fetch.getOffset(), *fetch.getHost());
    } else if (auto store = dyn_cast<plan::StoreOp>(op)) {
      move("cinch_store", store.getCopy(), *store.getOffset(), *store.getHost());
    } else if (auto await = dyn_cast<plan::AwaitOp>(op)) {
      e.call("cinch_await", e.none, {e.context, e.number(e.i32, copies.lookup(await.getCopy()))});
    }
  }

  void launchAll() {
    if (first < behind)
      e.call("launch_rows", e.none, {e.context, e.number(e.i64, first), e.number(e.i64, behind)});
    first = behind;
  }

  // A launch whose operands lie where the loops around it have come to.
  void launch(plan::KernelOp kernel) {
    const HostCode::Call &call = host.callOf(kernel);
    for (auto [range, value] : llvm::zip(call.zeroed, call.zeroedValues))
      e.call("cinch_zero", e.none, {e.context, places.offsetOf(value, range.first), e.number(e.i64, range.second)});
    Value offsets = e.stack(call.words.size());
    for (size_t i = 0; i < call.words.size(); ++i)
      e.set(offsets, i, i < call.values.size() ? places.offsetOf(call.values[i], call.words[i]) : e.number(e.i64, call.words[i]));
    e.call("cinch_launch", e.none, {e.context, e.number(e.i32, call.launch), e.address(call.kernel), offsets, e.number(e.i32, call.alone)});
  }

  // Over blocks of rows, or along an axis.
  void emitTrips(plan::LoopOp loop) {
    plan::RowBlocksAttr rows = loop.rowBlocks();
    Value firstExample = rows ? e.word(kFirstExample) : Value();
    e.loop(e.number(e.i64, int64_t(loop.getCount())), [&](Value number) {
      const OperandPlaces::Trip &trip = places.begin(loop, number);
      if (rows) { // draws are numbered by example and position, and a number that is not finite is reported with its example
        e.set(e.context, kFirstExample, e.plus(firstExample, trip.outer, rows.getExamples()));
        e.set(e.context, kFirstPosition, e.plus(e.number(e.i64, 0), trip.inner, rows.getPositions()));
      }
      emit(loop.block());
    });
    if (rows) {
      e.set(e.context, kFirstExample, firstExample);
      e.set(e.context, kFirstPosition, e.number(e.i64, 0));
    }
  }

  // Rows of a band in the trip that runs: [first, inside) lie above the image, [inside, behind) in it, [behind, end) below it.
  struct BandRows {
    Value first, inside, behind, end;
  };
  BandRows rowsOf(plan::LoopOp loop, Value rows, int64_t first, int64_t step, int64_t of) {
    Value begin = e.plus(e.number(e.i64, first), places.tripOf(loop).inner, step);
    Value end = e.plus(begin, e.number(e.i64, nn::tensorOf(rows).getDimSize(1)), 1);
    auto between = [&](int64_t row) -> Value {
      Value above = LLVM::SMaxOp::create(b, e.loc, begin, e.number(e.i64, row));
      return LLVM::SMinOp::create(b, e.loc, end, above);
    };
    return {begin, between(0), between(of), end};
  }
  static int64_t bytesOfRow(Value rows) {
    return analysis::bytesOf(rows) / nn::tensorOf(rows).getDimSize(1);
  }

  // Rows [from, to) of a band that lies at `place`.
  void clear(const BandRows &band, Value place, Value from, Value to, int64_t bytes) {
    e.when(e.compare(LLVM::ICmpPredicate::slt, from, to), [&] {
      Value at = e.plus(place, LLVM::SubOp::create(b, e.loc, from, band.first), bytes);
      e.call("cinch_zero", e.none, {e.context, at, e.plus(e.number(e.i64, 0), LLVM::SubOp::create(b, e.loc, to, from), bytes)});
    });
  }
  void clearOutside(const BandRows &band, Value place, int64_t bytes) {
    clear(band, place, band.first, band.inside, bytes);
    clear(band, place, band.behind, band.end, bytes);
  }

  // What a kernel made of rows outside of an image.
  void clearOutside(plan::KernelOp kernel) {
    auto outside = kernel->getAttrOfType<DenseI64ArrayAttr>(kOutsideAttr);
    if (!outside)
      return;
    auto loop = cast<plan::LoopOp>(kernel->getParentOp());
    for (auto [result, offset] : llvm::zip(kernel.getOutputs(), *kernel.getWrites()))
      clearOutside(rowsOf(loop, result, outside[0], outside[1], outside[2]), places.offsetOf(result, offset), bytesOfRow(result));
  }

  void copyBand(plan::BandOp band) {
    auto loop = cast<plan::LoopOp>(band->getParentOp());
    int64_t bytes = bytesOfRow(band.getRows()), of = nn::tensorOf(band.getImage()).getDimSize(1);
    BandRows rows = rowsOf(loop, band.getRows(), int64_t(band.getFirst()), int64_t(band.getStep()), of);
    Value to = places.offsetOf(band.getRows(), band.getWrites()->front());
    Value from = e.plus(places.offsetOf(band.getImage(), band.getReads()->front()), places.tripOf(loop).outer, of * bytes);
    e.when(e.compare(LLVM::ICmpPredicate::slt, rows.inside, rows.behind), [&] {
      Value inBand = e.plus(to, LLVM::SubOp::create(b, e.loc, rows.inside, rows.first), bytes);
      Value count = LLVM::SubOp::create(b, e.loc, rows.behind, rows.inside);
      e.call("cinch_copy", e.none, {e.context, inBand, e.plus(from, rows.inside, bytes), e.plus(e.number(e.i64, 0), count, bytes)});
    });
    clearOutside(rows, to, bytes);
  }

  static bool isOverExamples(Operation &op) {
    auto loop = dyn_cast<plan::LoopOp>(op);
    return loop && loop.examples();
  }

  void clearSums(Operation &op) {
    HostCode::Start start = host.startOf(&op);
    if (auto ranges = start.cleared; ranges.first < ranges.second)
      e.call("clear_ranges", e.none, {e.context, e.number(e.i64, ranges.first), e.number(e.i64, ranges.second)});
    for (const HostCode::Start::Range &range : start.set)
      e.call("cinch_set", e.none,
             {e.context, e.number(e.i64, range.offset), e.number(e.i64, range.bytes), e.number(e.i64, range.word)});
  }

  void emitMicrobatches(plan::LoopOp loop) {
    clearSums(*loop);
    Value count = counted ? e.argument(0) : e.number(e.i64, int64_t(loop.getCount()));
    lastMicrobatch = int64_t(loop.getCount()) - 1;
    if (loop.getLags() && counted)
      return emitLags(loop, count);
    if (loop.getActions())
      return emitActions(loop);
    Block &whole = loop.block();
    e.loop(count, [&](Value pass) { emitPart(loop, pass, whole.begin(), whole.end()); });
  }

  // Replicas may have left the addition of their sums to a library, which goes on beside the rest of the loop.
  void awaitSums(plan::LoopOp loop) {
    bool adds = llvm::any_of(loop.block(), [](Operation &op) {
      auto send = dyn_cast<plan::SendOp>(op);
      auto receive = dyn_cast<plan::ReceiveOp>(op);
      return (send && send.getLast()) || (receive && receive.getAdds());
    });
    if (adds)
      e.call("cinch_await_sums", e.none, {e.context});
  }

  // A part of the loop body for one micro-batch.
  void emitPart(plan::LoopOp loop, Value microbatch, Block::iterator from, Block::iterator to) {
    places.microbatch = microbatch;
    Value inBatch = microbatch; // a replica's are counted from its own first one
    if (int64_t before = loop.examples().getFirst() / loop.examples().getSize())
      inBatch = e.plus(microbatch, e.number(e.i64, before), 1);
    auto isData = [](Value value) {
      auto argument = dyn_cast<BlockArgument>(value);
      auto function = argument ? dyn_cast<func::FuncOp>(argument.getOwner()->getParentOp()) : func::FuncOp();
      return function && (function.getArgAttr(argument.getArgNumber(), nn::kFieldAttr) ||
                          function.getArgAttr(argument.getArgNumber(), nn::kValidRowsAttr));
    };
    bool readsData = !loop.getActions(); // a whole body fills what it has
    for (Operation &op : llvm::make_range(from, to))
      op.walk([&](Operation *inner) { readsData |= llvm::any_of(inner->getOperands(), isData); });
    if (readsData)
      e.call("cinch_fill", e.none, {e.context, e.number(e.i32, e.entry), inBatch});
    else
      e.set(e.context, kFirstExample, e.plus(e.number(e.i64, 0), inBatch, loop.examples().getSize()));
    emit(from, to);
    places.microbatch = {};
  }

  using Part = std::pair<Block::iterator, Block::iterator>;
  static SmallVector<Part> partsOf(plan::LoopOp loop) {
    Block &body = loop.block();
    SmallVector<Part> parts{{body.begin(), body.end()}};
    for (Operation &op : body)
      if (isa<plan::PartOp>(op)) {
        parts.back().second = op.getIterator();
        parts.push_back({std::next(op.getIterator()), body.end()});
      }
    return parts;
  }

  // The worker goes through its list of actions.
  void emitActions(plan::LoopOp loop) {
    SmallVector<int64_t> rows; // part, micro-batch
    for (const plan::Action &action : loop.getActionsAttr().getList())
      rows.append({action.part, action.microbatch});
    std::string table = (e.function.getName() + "_actions").str();
    addTable<int64_t>(e.module, table, rows);
    SmallVector<Part> parts = partsOf(loop);
    e.loop(e.number(e.i64, int64_t(rows.size() / 2)), [&](Value row) {
      Value at = e.plus(e.number(e.i64, 0), row, 2);
      Value part = e.entryOf(table, e.i64, at), microbatch = e.entryOf(table, e.i64, e.plus(at, e.number(e.i64, 1), 1));
      for (auto [number, range] : llvm::enumerate(parts))
        e.when(e.compare(LLVM::ICmpPredicate::eq, part, e.number(e.i64, int64_t(number))),
               [&] { emitPart(loop, microbatch, range.first, range.second); });
    });
  }

  // A step that a part of the next one is done with. Nothing of the step was done before if word kFresh says so: then it begins with what
  // its list has of the next step, as its own. It goes no further than its own end unless word kFurther says so.
  void emitOverlapping(func::FuncOp function, Block &block) {
    plan::LoopOp loop = places.overlapping;
    for (auto [older, newer] : newerParameters(function)) {
      auto offsetOf = [&](Value argument) {
        return function.getArgAttrOfType<IntegerAttr>(cast<BlockArgument>(argument).getArgNumber(), "plan.offset").getInt();
      };
      places.distance[older] = offsetOf(newer) - offsetOf(older);
    }
    for (Value sum : loop.yield().getValues()) {
      while (auto rows = sum.getDefiningOp<plan::LoopOp>())
        sum = rows.yieldedFor(sum);
      places.sums.insert(sum);
    }
    HostCode::Start start = host.startOf(loop);
    Value fresh = e.word(kFresh), further = e.word(kFurther), zero = e.number(e.i64, 0), one = e.number(e.i64, 1);
    step = e.word(kStep);
    auto isSet = [&](Value flag) { return e.compare(LLVM::ICmpPredicate::ne, flag, zero); };
    e.when(e.compare(LLVM::ICmpPredicate::eq, fresh, zero), [&] {
      for (auto [offset, bytes] : start.sums)
        e.call("cinch_copy", e.none, {e.context, e.number(e.i64, offset), e.number(e.i64, offset + bytes), e.number(e.i64, bytes)});
    });
    e.loop(e.plus(one, further, 1), [&](Value pass) {
      beginStep(pass);
      emit(block.begin(), loop->getIterator());
      e.when(isSet(LLVM::OrOp::create(b, e.loc, pass, fresh)), [&] {
        auto of = [&](int64_t own, int64_t its) { return e.plus(e.number(e.i64, own), pass, its - own); };
        if (start.cleared.first < start.cleared.second)
          e.call("clear_ranges", e.none,
                 {e.context, of(start.cleared.first, start.clearedNext.first), of(start.cleared.second, start.clearedNext.second)});
        for (const HostCode::Start::Range &range : start.set)
          e.call("cinch_set", e.none, {e.context, of(range.offset, range.offset + range.bytes), e.number(e.i64, range.bytes), e.number(e.i64, range.word)});
      });
    });
    int64_t count = int64_t(loop.getCount());
    lastMicrobatch = count - 1;
    ArrayRef<plan::Action> actions = loop.getActionsAttr().getList();
    SmallVector<int64_t> rows; // part, micro-batch, 1: of the next step
    for (bool own : {true, false})
      for (auto [part, microbatch] : actions)
        if (int64_t ahead = microbatch >= count; !own || ahead)
          rows.append({part, microbatch - ahead * count, own ? 0 : ahead});
    int64_t all = int64_t(rows.size()) / 3, before = all - int64_t(actions.size());
    std::string table = (e.function.getName() + "_actions").str();
    addTable<int64_t>(e.module, table, rows);
    SmallVector<Part> parts = partsOf(loop);
    e.loop(e.plus(e.number(e.i64, before), fresh, -before), e.number(e.i64, all), [&](Value row) {
      Value at = e.plus(zero, row, 3);
      Value part = e.entryOf(table, e.i64, at), microbatch = e.entryOf(table, e.i64, e.plus(at, one, 1)), ahead = e.entryOf(table, e.i64, e.plus(at, one, 2));
      e.when(e.compare(LLVM::ICmpPredicate::sle, ahead, further), [&] {
        beginStep(ahead);
        for (auto [number, range] : llvm::enumerate(parts))
          e.when(e.compare(LLVM::ICmpPredicate::eq, part, e.number(e.i64, int64_t(number))),
                 [&] { emitPart(loop, microbatch, range.first, range.second); });
      });
    });
    awaitSums(loop);
    beginStep(zero);
    places.next = {};
    emit(std::next(loop->getIterator()), block.end());
  }

  // What follows is of this step (0) or of the next one (1).
  void beginStep(Value ahead) {
    places.next = ahead;
    e.set(e.context, kStep, e.plus(step, ahead, 1));
  }

  // Part i runs lags[i] micro-batches behind the first.
  void emitLags(plan::LoopOp loop, Value count) {
    ArrayRef<int64_t> lags = *loop.getLags();
    SmallVector<Part> parts = partsOf(loop);
    Value none = e.number(e.i64, 0), ticks = e.plus(count, e.number(e.i64, lags.back()), 1);
    e.loop(ticks, [&](Value tick) {
      for (auto [number, range] : llvm::enumerate(parts)) {
        Value microbatch = LLVM::SubOp::create(b, e.loc, tick, e.number(e.i64, lags[number]));
        Value begun = e.compare(LLVM::ICmpPredicate::sge, microbatch, none);
        Value left = e.compare(LLVM::ICmpPredicate::slt, microbatch, count);
        e.when(LLVM::AndOp::create(b, e.loc, begun, left),
               [&] { emitPart(loop, microbatch, range.first, range.second); });
      }
    });
  }

  void message(StringRef call, uint64_t channel, Value value, int64_t offset, std::optional<bool> wide = {}) {
    int64_t bytes = analysis::bytesOf(value);
    SmallVector<Value> arguments{e.context, e.number(e.i32, int64_t(channel)), places.offsetOf(value, offset), e.number(e.i64, bytes)};
    if (wide)
      arguments.push_back(e.number(e.i32, *wide));
    e.call(call, e.none, arguments);
  }

  // Copies of a step are numbered from 0 on.
  void move(StringRef call, Value copy, uint64_t offset, uint64_t host) {
    int64_t number = int64_t(copies.size()), bytes = analysis::bytesOf(copy);
    copies[copy] = number;
    e.call(call, e.none, {e.context, e.number(e.i32, number), e.number(e.i64, int64_t(offset)), e.number(e.i64, int64_t(host)), e.number(e.i64, bytes)});
  }

  // In one micro-batch alone, or in every one.
  static constexpr int64_t kEvery = -1;
  void onlyIn(int64_t microbatch, llvm::function_ref<void()> emit) {
    if (microbatch == kEvery)
      return emit();
    e.when(e.compare(LLVM::ICmpPredicate::eq, places.microbatch, e.number(e.i64, microbatch)), emit);
  }

  void emitGate() {
    Value open = e.call("cinch_gate", e.i32, {e.context});
    Value good = e.compare(LLVM::ICmpPredicate::ne, open, e.number(e.i32, 0));
    Block *here = b.getInsertionBlock(), *update = e.newBlock();
    if (!end)
      end = e.newBlock();
    b.setInsertionPointToEnd(here);
    LLVM::CondBrOp::create(b, e.loc, good, update, ValueRange{}, end, ValueRange{});
    b.setInsertionPointToEnd(update);
  }

  const HostCode &host;
  EntryEmitter &e;
  OpBuilder &b;
  bool counted;
  Block *end = nullptr;       // where a closed gate leads
  int64_t lastMicrobatch = 0; // of the loop
  OperandPlaces places;
  DenseMap<Value, int64_t> copies; // from and to the host
  Value step;                 // where steps overlap: that of this call
  int64_t first = 0, behind = 0; // launches that are still to be called
};
} // namespace

void emitBody(const HostCode &host, EntryEmitter &e, Block &block, bool counted) {
  BodyEmitter body(host, e, counted);
  body.emitFunction(block);
  body.finish();
}

} // namespace cinch
