// OpParts.cpp: what is written by hand of the ops, and what their generated code calls.
#include "dialects/nn/OpParts.h"

using namespace mlir;

namespace cinch::nn {

// Operands stand in the order image, output, filter or image, output.
Value ConvOp::part(ConvPart part) {
  ConvPart first = getGives() == ConvPart::Image ? ConvPart::Output : ConvPart::Image;
  return part == getGives() ? getResult() : part == first ? getLhs() : getRhs();
}

// C2 of update.
LogicalResult verifySlots(UpdateOp op) {
  auto slots = op.getOptimizer().rule().slotsWith(op.getOptimizer().getValues().asArrayRef());
  if (op.getState().size() != slots.size() || op.getNewState().size() != slots.size())
    return op.emitOpError() << "expected the old and the new state of " << slots.size() << " slots, got "
                            << op.getState().size() << " and " << op.getNewState().size();
  return success();
}

// ---- Lists of labels: [[0, 1], [0]] ---------------------------------------------------------------------------------
ParseResult parseLabelLists(OpAsmParser &parser, ArrayAttr &lists) {
  SmallVector<Attribute> all;
  auto parseOne = [&]() -> ParseResult {
    SmallVector<int64_t> labels;
    auto parseLabel = [&] { return parser.parseInteger(labels.emplace_back()); };
    if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseLabel))
      return failure();
    all.push_back(DenseI64ArrayAttr::get(parser.getContext(), labels));
    return success();
  };
  if (parser.parseCommaSeparatedList(AsmParser::Delimiter::Square, parseOne))
    return failure();
  lists = ArrayAttr::get(parser.getContext(), all);
  return success();
}

void printLabelLists(OpAsmPrinter &printer, Operation *, ArrayAttr lists) {
  printer << '[';
  llvm::interleaveComma(lists, printer, [&](Attribute labels) {
    printer << '[';
    llvm::interleaveComma(cast<DenseI64ArrayAttr>(labels).asArrayRef(), printer);
    printer << ']';
  });
  printer << ']';
}

} // namespace cinch::nn
