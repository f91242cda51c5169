// KernelTexts.cpp: see KernelTexts.h.
#include "compiler/target/KernelTexts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

using namespace mlir;

namespace cinch::target {

void mergeConstants(func::FuncOp function) {
  llvm::DenseMap<Attribute, arith::ConstantOp> known;
  Block &entry = function.front();
  function.walk([&](arith::ConstantOp constant) {
    auto [place, isNew] = known.try_emplace(constant.getValue(), constant);
    if (isNew) {
      constant->moveBefore(&entry, entry.begin());
    } else {
      constant.replaceAllUsesWith(place->second.getResult());
      constant.erase();
    }
  });
}

} // namespace cinch::target
