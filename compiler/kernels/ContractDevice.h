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

// A product of bf16 is one of tensor cores, unless it sums over examples alone: blocks of k start anew at each. It depends on what the
// program says of the op, not on how many examples or positions a launch has.
bool isOfTensorCores(const ContractSpec &);

struct Plan {
  const ContractSpec &spec;
  Dims batch, m, n, k;
  Dims runs;     // of tensor cores: k without the dims at each index of which blocks start anew, which are these
  int64_t M, N, K, tile; // side of a tile of outputs

  explicit Plan(const ContractSpec &spec);
  int64_t tilesM() const { return (M + tile - 1) / tile; }
  int64_t tilesN() const { return (N + tile - 1) / tile; }
  int64_t items() const { return countOf(batch) * tilesM() * tilesN(); }
  int64_t sharedBytes() const; // that a block needs
};

} // namespace cinch::kernels::device
#endif
