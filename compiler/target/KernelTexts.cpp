// KernelTexts.cpp: see KernelTexts.h.
#include "compiler/target/KernelTexts.h"

#include "mlir/Dialect/Arith/IR/Arith.h"

#include <algorithm>
#include <thread>
#include <vector>

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

void onThreads(int threads, size_t jobs, llvm::function_ref<void()> work) {
  std::vector<std::thread> pool;
  for (size_t i = 1; i < std::min<size_t>(size_t(std::max(1, threads)), jobs); ++i)
    pool.emplace_back(work);
  if (jobs > 0)
    work();
  for (std::thread &thread : pool)
    thread.join();
}

} // namespace cinch::target
