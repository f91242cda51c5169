// Decision.cpp: the decision to and from its attribute.
#include "compiler/transforms/Decision.h"

#include "dialects/plan/Plan.h"

using namespace mlir;

namespace cinch {

static plan::RunAttr attributeOf(const DecidedRun &run, MLIRContext *context) {
  auto list = [&](ArrayRef<int64_t> numbers) { return DenseI64ArrayAttr::get(context, numbers); };
  SmallVector<Attribute> inside;
  for (const DecidedRun &inner : run.inside)
    inside.push_back(attributeOf(inner, context));
  SmallVector<int64_t> rows;
  if (run.rows.count > 0)
    rows = {run.rows.first, run.rows.count, run.rows.step};
  if (run.band >= 0)
    rows.push_back(run.band);
  return plan::RunAttr::get(context, run.kernel, run.recompute, list(run.reads), list(run.writes), run.scratch, run.scratchBytes,
                            rows.empty() ? DenseI64ArrayAttr() : list(rows), run.copies.empty() ? DenseI64ArrayAttr() : list(run.copies),
                            run.slots.empty() ? DenseI64ArrayAttr() : list(run.slots),
                            inside.empty() ? ArrayAttr() : ArrayAttr::get(context, inside),
                            run.zeroed.empty() ? DenseI64ArrayAttr() : list(run.zeroed));
}

// False if it is no run.
static bool readRun(Attribute attribute, DecidedRun &run) {
  auto list = [](DenseI64ArrayAttr numbers) { return numbers ? SmallVector<int64_t>(numbers.asArrayRef()) : SmallVector<int64_t>(); };
  auto written = dyn_cast<plan::RunAttr>(attribute);
  if (!written || written.getKernel() < 0)
    return false;
  SmallVector<int64_t> rows = list(written.getRows());
  if (!rows.empty() && (rows.size() < 3 || rows.size() > 4 || rows[1] < 1 || rows[2] < 1))
    return false;
  run = {written.getKernel(), written.getRecompute(), list(written.getReads()), list(written.getWrites()), list(written.getCopies()),
         written.getScratch(), written.getScratchBytes(), {}, rows.size() == 4 ? rows[3] : -1, list(written.getSlots()), {}, list(written.getZeroed())};
  if (!rows.empty())
    run.rows = {rows[0], rows[1], rows[2]};
  if (ArrayAttr inside = written.getInside())
    for (Attribute inner : inside)
      if (!readRun(inner, run.inside.emplace_back()))
        return false;
  return true;
}

static const char *const kMoves[] = {"", "fetch", "store", "await"}; // as solve::Kernel::Copy counts them

void writeDecision(func::FuncOp function, const Decided &decided) {
  MLIRContext *context = function.getContext();
  auto list = [&](ArrayRef<int64_t> numbers) { return DenseI64ArrayAttr::get(context, numbers); };
  SmallVector<Attribute> loops, runs, rows;
  for (const DecidedLoop &loop : decided.loops)
    loops.push_back(plan::LoopAttr::get(context, loop.first, loop.last, list(loop.zeroed)));
  for (const DecidedRun &run : decided.runs)
    runs.push_back(attributeOf(run, context));
  for (const DecidedRows &range : decided.rows)
    rows.push_back(plan::RowsAttr::get(context, range.first, range.last, range.examples, range.positions,
                                       range.zeroed.empty() ? DenseI64ArrayAttr() : list(range.zeroed)));
  SmallVector<int64_t> heights;
  for (auto [height, scale] : decided.heights)
    heights.append({height, scale});
  SmallVector<Attribute> moves;
  for (const DecidedMove &move : decided.moves)
    moves.push_back(plan::MoveAttr::get(context, move.before, StringAttr::get(context, kMoves[move.what]), move.argument, move.offset, move.kernel,
                                         move.result, move.host));
  function->setAttr(kDecisionAttr, plan::DecisionAttr::get(context, decided.microbatch, decided.count, decided.batch, decided.arenaBytes,
                                                           decided.rowPositions, heights.empty() ? DenseI64ArrayAttr() : list(heights),
                                                           list(decided.arguments), ArrayAttr::get(context, loops),
                                                           ArrayAttr::get(context, rows), ArrayAttr::get(context, runs), decided.hostBytes,
                                                           moves.empty() ? ArrayAttr() : ArrayAttr::get(context, moves)));
}

FailureOr<Decided> readDecision(func::FuncOp function) {
  auto written = function->getAttrOfType<plan::DecisionAttr>(kDecisionAttr);
  if (!written)
    return function.emitError("has no '") << kDecisionAttr << "': run decide-plan first";
  auto list = [](DenseI64ArrayAttr numbers) { return SmallVector<int64_t>(numbers.asArrayRef()); };
  Decided decided;
  decided.microbatch = written.getMicrobatch();
  decided.count = written.getCount();
  decided.batch = written.getBatch();
  decided.arenaBytes = written.getArena();
  decided.rowPositions = written.getRowPositions();
  decided.arguments = list(written.getArguments());
  if (DenseI64ArrayAttr heights = written.getRowHeights())
    for (int64_t i = 0; i + 1 < heights.size(); i += 2)
      decided.heights[heights[i]] = heights[i + 1];
  for (Attribute attribute : written.getRuns()) {
    if (!readRun(attribute, decided.runs.emplace_back()))
      return function.emitError("'") << kDecisionAttr << "' has what is no run: " << attribute;
  }
  for (Attribute attribute : written.getLoops()) {
    auto loop = dyn_cast<plan::LoopAttr>(attribute);
    if (!loop || loop.getFirst() < (decided.loops.empty() ? 0 : decided.loops.back().last) || loop.getLast() < loop.getFirst() ||
        loop.getLast() > int64_t(decided.runs.size()))
      return function.emitError("'") << kDecisionAttr << "' has a loop of no runs: " << attribute;
    decided.loops.push_back({loop.getFirst(), loop.getLast(), list(loop.getZeroed())});
  }
  for (Attribute attribute : written.getRows()) {
    auto rows = dyn_cast<plan::RowsAttr>(attribute);
    if (!rows || rows.getFirst() < 0 || rows.getLast() < rows.getFirst() ||
        rows.getLast() > int64_t(decided.runs.size()) || rows.getExamples() < 1 || rows.getPositions() < 1)
      return function.emitError("'") << kDecisionAttr << "' has row blocks of no runs: " << attribute;
    decided.rows.push_back({rows.getFirst(), rows.getLast(), rows.getExamples(), rows.getPositions(), rows.getZeroed() ? list(rows.getZeroed()) : SmallVector<int64_t>()});
  }
  decided.hostBytes = written.getHost();
  for (Attribute attribute : written.getMoves() ? written.getMoves() : ArrayAttr::get(function.getContext(), {})) {
    auto move = dyn_cast<plan::MoveAttr>(attribute);
    auto what = move ? llvm::find(kMoves, move.getWhat().getValue()) : std::end(kMoves);
    if (what == std::end(kMoves) || what == kMoves || move.getArgument() >= int64_t(function.getNumArguments()) || (move.getArgument() < 0) == (move.getKernel() < 0) ||
        move.getBefore() < (decided.moves.empty() ? 0 : decided.moves.back().before) || move.getBefore() > int64_t(decided.runs.size()))
      return function.emitError("'") << kDecisionAttr << "' has what is no copy of an argument or a result: " << attribute;
    decided.moves.push_back({move.getBefore(), solve::Kernel::Copy(what - kMoves), move.getArgument(), move.getOffset(), move.getKernel(), move.getResult(), move.getHost()});
  }
  return decided;
}

} // namespace cinch
