// DevicePiece.h: one kernel of a GPU: its text -> NVVM's LLVM IR -> PTX.
#ifndef CINCH_COMPILER_TARGET_DEVICEPIECE_H
#define CINCH_COMPILER_TARGET_DEVICEPIECE_H

#include "compiler/target/DeviceCode.h"

#include <memory>

namespace llvm {
class TargetMachine;
}

namespace cinch::target {

struct DevicePiece {
  std::string ptx, ir;
  std::string error; // an internal error, or what this target cannot do; "": none
};

// Null: `error` says why.
std::unique_ptr<llvm::TargetMachine> createDeviceMachine(const std::string &arch, std::string &error);

// `text`: a module with the function `kernel.name` and the memory that it declares. It gets an entry.
DevicePiece compilePiece(llvm::StringRef text, const DeviceKernel &kernel, mlir::MLIRContext &, llvm::TargetMachine &);

// The kernels of the gate, which are the same in every program (DeviceControl.h).
DevicePiece compileControl(llvm::TargetMachine &);

} // namespace cinch::target
#endif
