// Tiling.h: how a product is cut for one machine: the tile in registers and the blocks in caches; plain C++.
//
// Built-in rules choose a tiling by the product's shape. `cinch calibrate --tune` measures others and stores the best ones in a profile.
// A tiling decides how many chains run side by side and where a chain is put down and taken up again, never a number.
#ifndef CINCH_COMPILER_KERNELS_TILING_H
#define CINCH_COMPILER_KERNELS_TILING_H

#include "compiler/kernels/Kernels.h"

#include <map>

namespace cinch::kernels {

struct Tiling {
  int rows = 0, vectors = 0; // of C in registers
  int64_t steps = 0;         // of k that are done at a time, about
  int64_t near = 0, far = 0; // bytes of the packed block of A, which stays in a near cache, and of that of B
  bool operator==(const Tiling &o) const { return rows == o.rows && vectors == o.vectors && steps == o.steps && near == o.near && far == o.far; }
};

// Measured tilings by `shapeText`.
struct TileTable {
  std::map<std::string, Tiling> tilings;
};

// What a tiling is measured for, on one line: element types, sizes, strides and the width of the vectors. Offsets do not count.
std::string shapeText(const ContractSpec &, const TargetInfo &);

// The tiling by which planContract cuts it. Nothing if it is not cut into tiles.
struct TilingChoice {
  Tiling tiling;
  std::vector<std::pair<int, int>> tiles; // (rows, vectors) that fit the registers, the built-in rules' candidates
};
bool tilingOf(const ContractSpec &, const TargetInfo &, TilingChoice &);
// Whether such a tile's chains fit the registers of the machine, and blocks have sizes that mean something.
bool isTiling(const Tiling &, const TargetInfo &);

} // namespace cinch::kernels
#endif
