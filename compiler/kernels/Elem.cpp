// Elem.cpp: sizes of the element types in memory.
#include "compiler/kernels/ElemFacts.h"
#include "compiler/kernels/Kernels.h"

int64_t cinch::kernels::bytesOf(Elem elem) { return factsOf(elem).bytes; }
