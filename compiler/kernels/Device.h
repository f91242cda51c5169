// Device.h: the builders that a GPU has of its own, and how kernels are spread over one. Tiles lie in shared memory; one of
// them needs scratch, too.
#ifndef CINCH_COMPILER_KERNELS_DEVICE_H
#define CINCH_COMPILER_KERNELS_DEVICE_H

#include "compiler/kernels/Kernels.h"

namespace cinch::kernels {

// A block of `threads` is a worker; some more than there are multiprocessors, so that all of them stay busy to the end.
constexpr int64_t kThreadsOfProcessor = 2048; // that a multiprocessor holds at once
Grid gridOfBlocks(int64_t items, int64_t threads, const TargetInfo &);

// Contractions one after the other, of which none reads what another writes (ContractDevice.cpp).
mlir::func::FuncOp buildContractsOnDevice(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name,
                                          const std::vector<ContractSpec> &parts, const TargetInfo &);
Grid gridOfContracts(const std::vector<ContractSpec> &parts, const TargetInfo &);

// Attention (AttendDevice.h), in programs of bf16 on tensor cores where a row of the result fits into registers (AttendTensor.h).
bool isOfTensorCores(const AttendSpec &);
mlir::func::FuncOp buildAttendOnDevice(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendSpec &, const TargetInfo &);
mlir::func::FuncOp buildAttendOnDevice(mlir::OpBuilder &, mlir::ModuleOp, const std::string &name, const AttendGradSpec &, const TargetInfo &);
Grid gridOfAttend(const AttendSpec &, const TargetInfo &);
Grid gridOfAttend(const AttendGradSpec &, const TargetInfo &);
int64_t scratchBytesOfBlock(const AttendGradSpec &, const TargetInfo &);

// Pools: a worker is a thread (Pool.cpp).
Grid gridOf(const PoolSpec &, const TargetInfo &);

} // namespace cinch::kernels
#endif
