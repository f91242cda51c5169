// Assemble.h: PTX becomes machine code of a GPU (a cubin) where NVIDIA's assembler is at hand. A program runs without it: its driver
// assembles the PTX, which takes seconds the first time.
#ifndef CINCH_COMPILER_TARGET_ASSEMBLE_H
#define CINCH_COMPILER_TARGET_ASSEMBLE_H

#include "compiler/target/KernelCache.h"

#include <string>

namespace cinch::target {

// `ptxas` on the PATH or under $CUDA_HOME, $CUDA_PATH; "": there is none.
std::string findAssembler();

struct Assembled {
  std::string cubin; // "": there is none
  std::string error; // why, in a line
};
// What the same file made of the same PTX before is found again in the cache.
Assembled assemble(const std::string &assembler, const std::string &ptx, const std::string &arch, const KernelCache &);

} // namespace cinch::target
#endif
