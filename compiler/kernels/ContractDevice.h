// ContractDevice.h: how a GPU cuts a contraction into tiles of outputs; plain C++, no MLIR.
#ifndef CINCH_COMPILER_KERNELS_CONTRACTDEVICE_H
#define CINCH_COMPILER_KERNELS_CONTRACTDEVICE_H

#include "compiler/kernels/Device.h"

namespace cinch::kernels::device {

constexpr int64_t kThreads = 256; // of a block

// One index of a group, with what a step along it means in each operand.
struct Dim {
  int64_t size = 1, a = 0, b = 0, c = 0, bound[2] = {0, 0};
};
using Dims = std::vector<Dim>;
int64_t countOf(const Dims &);

// A product of bf16 or tf32 is one of tensor cores, unless it sums over examples alone: blocks of k start anew at each. It depends on what the
// program says of the op, not on how many examples or positions a launch has.
bool isOfTensorCores(const ContractSpec &);
// Of those of bf16, the ones that a GPU with wgmma computes by it (TargetInfo::warpgroups): all but convolutions with padding. It depends on the op
// and the kind of the GPU, as that does.
bool isOfWarpgroups(const std::vector<ContractSpec> &parts, const TargetInfo &);
// Threads of a block of the others.
int64_t threadsOf(const std::vector<ContractSpec> &parts);

struct Plan {
  ContractSpec spec; // its views are those of the operands below; which strides belong to which index is said by the dims
  Dims batch, m, n, k;
  Dims runs;     // of tensor cores: k without the dims at each index of which blocks start anew, which are these
  int64_t M, N, K;
  int64_t tileM, tileN; // of outputs

  // `processors`: multiprocessors of a GPU whose warpgroups compute it; 0: its warps or threads do.
  explicit Plan(const ContractSpec &spec, int processors = 0);
  int64_t tilesM() const { return (M + tileM - 1) / tileM; }
  int64_t tilesN() const { return (N + tileN - 1) / tileN; }
  int64_t items() const { return countOf(batch) * tilesM() * tilesN(); }
  int64_t sharedBytes() const; // that a block needs
};

} // namespace cinch::kernels::device
#endif
