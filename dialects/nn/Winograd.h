// Winograd.h: which convolutions are computed by Winograd's minimal filtering.
//
// A convolution of 3 x 3 taps with the attribute `nn.winograd`, which gives an output or an image, computes 2 x 2 neighbouring elements from 16 products
// instead of 36 (compiler/kernels/Winograd.h has the formulas). It is the same sum, rounded elsewhere. The attribute belongs to the program, to the op
// and to the kind of the target, not to the plan or to how many workers there are; the gradient of the image has it, too (compiler/transforms/ChooseWinograd).
//
// The gradient of the filter has it, too, if the convolution has the attribute `nn.winograd_filter`. Its sums go over places: some rows of an image are
// summed together, and then added to what is there.
#ifndef CINCH_DIALECTS_NN_WINOGRAD_H
#define CINCH_DIALECTS_NN_WINOGRAD_H

#include "llvm/ADT/StringRef.h"

namespace cinch::nn {

inline constexpr llvm::StringLiteral kWinogradAttr = "nn.winograd", kWinogradFilterAttr = "nn.winograd_filter";

// Of such a convolution in a loop over blocks of rows: [first, moves]. Elements that belong together begin at even rows of the whole image, so the first
// row of a block may be the second one of them: its number there is `first` in the first trip, and in all of them unless it moves by one with
// every trip (0 or 1).
inline constexpr llvm::StringLiteral kWinogradRowsAttr = "nn.winograd_rows";

} // namespace cinch::nn
#endif
