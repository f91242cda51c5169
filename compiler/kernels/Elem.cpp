// Elem.cpp: sizes of the element types in memory.
#include "compiler/kernels/Kernels.h"

int64_t cinch::kernels::bytesOf(Elem elem) {
  switch (elem) {
  case Elem::F64: return 8;
  case Elem::Bool: return 1;
  case Elem::BF16: return 2;
  case Elem::F32:
  case Elem::I32: return 4;
  }
  return 0;
}
