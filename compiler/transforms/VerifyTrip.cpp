// VerifyTrip.cpp: the trip of a loop along an axis. Its slots and its values lie in the scratch of its kernel, and what is alive at one
// moment shares no byte. What is sliced, stacked or carried lies elsewhere, with a place of its own in each trip.
#include "compiler/analysis/KernelProblem.h"
#include "compiler/transforms/Decision.h"
#include "compiler/transforms/ScheduleLives.h"
#include "dialects/nn/NN.h"

using namespace mlir;

namespace cinch {

int64_t bytesOf(Value value) {
  auto type = nn::tensorOf(value);
  int64_t bits = type.getElementTypeBitWidth();
  return nn::elementsInMemory(type) * std::max<int64_t>(1, bits / 8);
}

LogicalResult verifyScratch(plan::KernelOp kernel) {
  auto bytes = kernel->getAttrOfType<IntegerAttr>(kScratchBytesAttr);
  int64_t place = int64_t(kernel.getScratch().value_or(-1));
  if (place >= 0 && (!bytes || bytes.getInt() <= 0))
    return kernel.emitOpError("has scratch at offset ") << place << ", but not how many bytes of it are its own";
  if (place < 0 && bytes)
    return kernel.emitOpError("has no place for its ") << bytes.getInt() << " bytes of scratch";
  return success();
}

namespace {
class TripVerifier {
public:
  TripVerifier(plan::KernelOp kernel, plan::LoopOp loop, analysis::KernelSpecs &specs) : kernel(kernel), loop(loop), specs(specs) {}

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
        lives.push_back({slots[slot], bytesOf(loop.carried(i)), 0, kForever, loop.carried(i)});
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
          return loop.emitOpError("has two values in the same bytes of its scratch: [")
                 << a.offset << ", " << a.offset + a.bytes << ") and [" << b.offset << ", " << b.offset + b.bytes << ")";
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
      if (failed(verifyScratch(part)))
        return failure();
      if (auto bytes = part->getAttrOfType<IntegerAttr>(kScratchBytesAttr))
        lives.push_back({int64_t(*part.getScratch()), bytes.getInt(), time, time, part.getResult(0)});
      for (auto [result, offset] : llvm::zip(part.getOutputs(), *part.getWrites())) {
        if (loop.resultOf(result))
          continue;
        placed[result] = lives.size();
        lives.push_back({offset, bytesOf(result), time, time, result});
      }
      if (plan::LoopOp inner = analysis::loopOf(part))
        if (failed(verifyTrip(part, inner, specs)))
          return failure();
    }
    return success();
  }

  // A kernel may write over an operand that it reads last, if both are the very same bytes and each element is read before it is written.
  bool clash(const Life &a, const Life &b) {
    if (a.bytes == 0 || b.bytes == 0 || a.offset >= b.offset + b.bytes || b.offset >= a.offset + a.bytes)
      return false;
    const Life &first = a.begin < b.begin ? a : b, &second = a.begin < b.begin ? b : a;
    if (first.end < second.begin)
      return false;
    return first.begin == second.begin || first.end > second.begin || first.offset != second.offset || first.bytes != second.bytes ||
           !takesPlace(second.value, first.value);
  }

  // Is `result` made by a kernel that has read each element of its operand when it writes the same one of the result?
  bool takesPlace(Value result, Value operand) {
    auto writer = result.getDefiningOp<plan::KernelOp>();
    return writer && llvm::is_contained(writer.getInputs(), operand) && llvm::all_of(llvm::enumerate(writer.getInputs()), [&](auto input) {
             return input.value() != operand ||
                    analysis::readsBeforeItWrites(writer, unsigned(input.index()), cast<OpResult>(result).getResultNumber(), specs);
           });
  }

  plan::KernelOp kernel;
  plan::LoopOp loop;
  analysis::KernelSpecs &specs;
  int64_t begin = 0, end = 0;
  SmallVector<Life> lives;
};
} // namespace

LogicalResult verifyTrip(plan::KernelOp kernel, plan::LoopOp loop, analysis::KernelSpecs &specs) {
  return TripVerifier(kernel, loop, specs).verify();
}

} // namespace cinch
