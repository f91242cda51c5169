// DeviceControl.h: what a program's kernels on a GPU know of its run beside the words of their launch: a few words that lie on the device
// and that the device itself counts on, so that the host need not wait for it.
#ifndef CINCH_COMPILER_TARGET_DEVICECONTROL_H
#define CINCH_COMPILER_TARGET_DEVICECONTROL_H

#include "llvm/IR/IRBuilder.h"
#include "llvm/IR/Module.h"

#include <string>

namespace cinch::target {

constexpr int64_t kContextWords = 128; // of runtime.h

// Adds to the module, behind its entries, the words (`cinch_control`), the kernel that closes the gate for good (`cinch_gate`), the one that ends a step
// (`cinch_end_step`), those that clear (`cinch_clear`) and copy (`cinch_take`) memory behind the gate,
// and those that add what comes from another replica (`cinch_add32`, `cinch_add64`). "" or what is wrong.
std::string addControl(llvm::Module &);

// For a kernel's entry. Returns the address of a context whose step is the device's own count if the host says -1. Leads to `end` if the
// kernel stands behind the gate and that is closed; the builder goes on where it is not.
llvm::Value *enterContext(llvm::IRBuilder<> &, llvm::Value *context, llvm::BasicBlock *end);

// After optimization: whether every word of the context that a kernel reads is known by its number. Then nothing is left of the copy that
// enterContext makes.
bool contextIsDissolved(const llvm::Module &);

} // namespace cinch::target
#endif
