// DeviceCode.h: kernels -> NVVM's LLVM IR -> PTX, in process. No CUDA toolkit and no libdevice.
#ifndef CINCH_COMPILER_TARGET_DEVICECODE_H
#define CINCH_COMPILER_TARGET_DEVICECODE_H

#include "compiler/target/KernelCache.h"

#include "mlir/IR/BuiltinOps.h"

#include <string>
#include <vector>

namespace cinch::target {

struct DeviceKernel {
  std::string name;       // of the function, and of the entry in the PTX
  int64_t workers = 1;    // Kernels.h, Grid
  int lanes = 1, block = 128;
  int64_t words = 0;      // of the offsets of a launch
  int64_t shared = 0;     // Kernels.h, Grid
  bool follows = false;   // it is launched behind the one before it in the list, with the same words (Kernels.h, gridsOf)
  bool approximates = false; // KernelSpec.h
  bool tf32 = false;         // it multiplies so
  std::vector<int64_t> maps = {0}; // TensorMap.h, kMapsAttr: how many, and what they say
  int64_t blocks() const { return (workers * lanes + block - 1) / block; }
};

struct DeviceCode {
  std::string ptx;
  std::string ir;    // what the PTX was made of, as text
  std::string error; // an internal error, or what this target cannot do; "": none
};

// Takes all kernels out of the module. An entry takes the address of the arena and, as values, the words of the launch and of the
// context, and the maps of its tensors, if it has any: those stay where the launch has put them (__grid_constant__). `withIr`: DeviceCode::ir is
// wanted, too.
DeviceCode compileForDevice(mlir::ModuleOp kernels, const std::vector<DeviceKernel> &, const std::string &arch, const KernelCache &, int threads, bool withIr);

// Empty if the text keeps the numbers contract, else the line that breaks it: an approximation, flushed denormals, an outside function; a minimum
// of 16 bits, which ptxas gets wrong.
// Kernels of these names may use ex2.approx.ftz and rcp.approx.ftz, and others numbers of tf32.
std::string verifyPtx(const std::string &ptx, llvm::ArrayRef<std::string> approximating, llvm::ArrayRef<std::string> multiplyingInTF32 = {});

} // namespace cinch::target
#endif
