// Decision.cpp: the decision to and from an attribute, flat integers throughout.
#include "compiler/transforms/Decision.h"

#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch {

int64_t batchOf(func::FuncOp function) {
  int64_t batch = 1;
  auto look = [&](Type type) {
    if (int64_t axis = nn::batchAxis(type); axis >= 0)
      batch = cast<RankedTensorType>(type).getDimSize(axis);
  };
  for (Type type : function.getArgumentTypes())
    look(type);
  function.walk([&](Operation *op) {
    for (Type type : op->getResultTypes())
      look(type);
  });
  return batch;
}

void writeDecision(func::FuncOp function, const Decided &decided) {
  Builder b(function.getContext());
  auto list = [&](ArrayRef<int64_t> numbers) -> Attribute { return b.getDenseI64ArrayAttr(numbers); };
  SmallVector<Attribute> kernels, runs;
  for (const DecidedKernel &kernel : decided.kernels)
    kernels.push_back(b.getArrayAttr({list({int64_t(kernel.kind), int64_t(kernel.section)}), list(kernel.ops),
                                      list(kernel.stores), list(kernel.reads)}));
  for (const DecidedRun &run : decided.runs)
    runs.push_back(b.getArrayAttr(
        {list({run.kernel, int64_t(run.recompute), run.scratch, run.scratchBytes}), list(run.reads), list(run.writes)}));
  SmallVector<int64_t> rows{decided.rowPositions};
  for (const DecidedRows &range : decided.rows)
    rows.append({range.first, range.last, range.examples, range.positions});
  function->setAttr(
      kDecisionAttr,
      b.getDictionaryAttr({b.getNamedAttr("arguments", list(decided.arguments)),
                           b.getNamedAttr("header", list({decided.microbatch, decided.count, decided.batch,
                                                          decided.arenaBytes, decided.loopBegin, decided.loopEnd})),
                           b.getNamedAttr("kernels", b.getArrayAttr(kernels)),
                           b.getNamedAttr("rows", list(rows)),
                           b.getNamedAttr("runs", b.getArrayAttr(runs)),
                           b.getNamedAttr("zeroed", list(decided.zeroed))}));
}

FailureOr<Decided> readDecision(func::FuncOp function) {
  auto written = function->getAttrOfType<DictionaryAttr>(kDecisionAttr);
  auto bad = [&]() -> FailureOr<Decided> {
    return function.emitError("has no valid '") << kDecisionAttr << "': run decide-plan first";
  };
  if (!written)
    return bad();
  auto list = [](Attribute attribute) -> ArrayRef<int64_t> {
    auto array = dyn_cast_or_null<DenseI64ArrayAttr>(attribute);
    return array ? array.asArrayRef() : ArrayRef<int64_t>();
  };
  Decided decided;
  ArrayRef<int64_t> header = list(written.get("header"));
  auto kernels = dyn_cast_or_null<ArrayAttr>(written.get("kernels"));
  auto runs = dyn_cast_or_null<ArrayAttr>(written.get("runs"));
  ArrayRef<int64_t> rows = list(written.get("rows"));
  if (header.size() != 6 || rows.size() % 4 != 1 || !kernels || !runs)
    return bad();
  decided.microbatch = header[0];
  decided.count = header[1];
  decided.batch = header[2];
  decided.arenaBytes = header[3];
  decided.loopBegin = header[4];
  decided.loopEnd = header[5];
  auto assign = [&](SmallVectorImpl<int64_t> &to, Attribute from) {
    ArrayRef<int64_t> numbers = list(from);
    to.assign(numbers.begin(), numbers.end());
  };
  for (Attribute attribute : kernels) {
    auto parts = dyn_cast<ArrayAttr>(attribute);
    if (!parts || parts.size() != 4 || list(parts[0]).size() != 2)
      return bad();
    DecidedKernel kernel;
    kernel.kind = analysis::KernelGroup::Kind(list(parts[0])[0]);
    kernel.section = solve::Section(list(parts[0])[1]);
    assign(kernel.ops, parts[1]);
    assign(kernel.stores, parts[2]);
    assign(kernel.reads, parts[3]);
    decided.kernels.push_back(std::move(kernel));
  }
  for (Attribute attribute : runs) {
    auto parts = dyn_cast<ArrayAttr>(attribute);
    if (!parts || parts.size() != 3 || list(parts[0]).size() != 4 || list(parts[0])[0] < 0 ||
        list(parts[0])[0] >= int64_t(decided.kernels.size()))
      return bad();
    DecidedRun run;
    run.kernel = list(parts[0])[0];
    run.recompute = list(parts[0])[1];
    run.scratch = list(parts[0])[2];
    run.scratchBytes = list(parts[0])[3];
    assign(run.reads, parts[1]);
    assign(run.writes, parts[2]);
    decided.runs.push_back(std::move(run));
  }
  decided.rowPositions = rows[0];
  for (size_t i = 1; i < rows.size(); i += 4) {
    DecidedRows range{rows[i], rows[i + 1], rows[i + 2], rows[i + 3]};
    if (range.first < 0 || range.last < range.first || range.last > int64_t(decided.runs.size()) || range.examples < 1 ||
        range.positions < 1)
      return bad();
    decided.rows.push_back(range);
  }
  assign(decided.zeroed, written.get("zeroed"));
  assign(decided.arguments, written.get("arguments"));
  return decided;
}

} // namespace cinch
