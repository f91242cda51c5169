// ElemFacts.h: what is known of each element type, in one table. An unknown type is an internal error: the process ends.
#ifndef CINCH_COMPILER_KERNELS_ELEMFACTS_H
#define CINCH_COMPILER_KERNELS_ELEMFACTS_H

#include "compiler/kernels/LoopOps.h"

#include <cstdint>

namespace cinch::kernels {

struct ElemFacts {
  int64_t bytes; // in memory
  // As what a register, or a cell of the host (HostOps.h), holds its values.
  enum Held { F32, F64, I32 } held;
  bool real;     // a float
  Elem sums;     // the type in which sums of it are computed
};

inline ElemFacts factsOf(Elem elem) {
  switch (elem) {
  case Elem::F32: return {4, ElemFacts::F32, true, Elem::F32};
  case Elem::F64: return {8, ElemFacts::F64, true, Elem::F64};
  case Elem::BF16: return {2, ElemFacts::F32, true, Elem::F32};
  case Elem::I32: return {4, ElemFacts::I32, false, Elem::I32};
  case Elem::Bool: return {1, ElemFacts::I32, false, Elem::Bool};
  }
  __builtin_trap();
}

// The logical lanes of sums and of attention are those of 64 bytes, whatever the vectors of a CPU hold.
inline int64_t logicalLanes(Elem elem) { return 64 / factsOf(elem).bytes; }

} // namespace cinch::kernels
#endif
