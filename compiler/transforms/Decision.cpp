// Decision.cpp: the decision to and from its attribute.
#include "compiler/transforms/Decision.h"

#include "dialects/plan/Plan.h"

using namespace mlir;

namespace cinch {

void writeDecision(func::FuncOp function, const Decided &decided) {
  MLIRContext *context = function.getContext();
  auto list = [&](ArrayRef<int64_t> numbers) { return DenseI64ArrayAttr::get(context, numbers); };
  SmallVector<Attribute> runs, rows;
  for (const DecidedRun &run : decided.runs)
    runs.push_back(plan::RunAttr::get(context, run.kernel, run.recompute, list(run.reads), list(run.writes), run.scratch,
                                      run.scratchBytes));
  for (const DecidedRows &range : decided.rows)
    rows.push_back(plan::RowsAttr::get(context, range.first, range.last, range.examples, range.positions));
  function->setAttr(kDecisionAttr,
                    plan::DecisionAttr::get(context, decided.microbatch, decided.count, decided.batch, decided.arenaBytes,
                                            decided.loopBegin, decided.loopEnd, decided.rowPositions,
                                            list(decided.arguments), list(decided.zeroed), ArrayAttr::get(context, rows),
                                            ArrayAttr::get(context, runs)));
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
  decided.loopBegin = written.getLoopBegin();
  decided.loopEnd = written.getLoopEnd();
  decided.rowPositions = written.getRowPositions();
  decided.arguments = list(written.getArguments());
  decided.zeroed = list(written.getZeroed());
  for (Attribute attribute : written.getRuns()) {
    auto run = dyn_cast<plan::RunAttr>(attribute);
    if (!run || run.getKernel() < 0)
      return function.emitError("'") << kDecisionAttr << "' has what is no run: " << attribute;
    decided.runs.push_back({run.getKernel(), run.getRecompute(), list(run.getReads()), list(run.getWrites()), run.getScratch(),
                            run.getScratchBytes()});
  }
  for (Attribute attribute : written.getRows()) {
    auto rows = dyn_cast<plan::RowsAttr>(attribute);
    if (!rows || rows.getFirst() < 0 || rows.getLast() < rows.getFirst() ||
        rows.getLast() > int64_t(decided.runs.size()) || rows.getExamples() < 1 || rows.getPositions() < 1)
      return function.emitError("'") << kDecisionAttr << "' has row blocks of no runs: " << attribute;
    decided.rows.push_back({rows.getFirst(), rows.getLast(), rows.getExamples(), rows.getPositions()});
  }
  return decided;
}

} // namespace cinch
