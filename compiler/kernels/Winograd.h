// Winograd.h: how a convolution of 3 x 3 taps by Winograd's minimal filtering is cut; plain C++, no MLIR.
//
// Two neighbouring outputs of a row need four elements of the image and three taps. With d0 .. d3 and g0 .. g2 in the order of the image's columns
// (Winograd, "Arithmetic Complexity of Computations", 1980; Lavin and Gray, "Fast Algorithms for Convolutional Neural Networks", 2016):
//
//     v0 = d0 - d2    u0 = g0                         m0 = v0 u0
//     v1 = d1 + d2    u1 = ((g0 + g2) + g1) / 2       m1 = v1 u1      y0 = (m0 + m1) + m2
//     v2 = d2 - d1    u2 = ((g0 + g2) - g1) / 2       m2 = v2 u2      y1 = (m1 - m2) - m3
//     v3 = d1 - d3    u3 = g2                         m3 = v3 u3
//
// The same along rows: a patch of 4 x 4 elements and 3 x 3 taps become 4 x 4 numbers each, columns first. What is summed over the channels of the image
// are the products of these, 16 where 36 stand in the definition. Of the 16 sums, put together along columns first, come 2 x 2 outputs.
//
// Tiles of outputs begin at even rows and columns of the image. y1 needs none of d0, and y0 none of d3. So where a block of rows begins in the middle
// of a tile, the rows of the image that only the other outputs of the tile need may be anything, and no bit changes.
//
// The gradient of the filter is what the transposed formulas make of the image and of the gradient of 2 x 2 outputs, 16 products again. Their sums
// go over places:
//
//     v as above    z0 = y0         m0 = sum of v0 z0     g0 = m0 + (m1 + m2) / 2
//                   z1 = y0 + y1    m1 = sum of v1 z1     g1 = (m1 - m2) / 2
//                   z2 = y0 - y1    m2 = sum of v2 z2     g2 = (m1 + m2) / 2 + m3
//                   z3 = - y1       m3 = sum of v3 z3
//
// Each m is one chain, from +0.0, over the tiles of some rows of an image that are summed together (rowsOfTilesTogether). What comes of these sums is
// added to the gradient, those of an image after each other. So a block of rows has to hold all rows that belong together.
//
// An output or an image:
//     for nc columns:                               output channels
//       u of these: panels [16][channels][nr] in scratch
//       for some rows of tiles:                     of one image or of several
//         v of these: [16][tile][channel] in scratch
//         for nr columns, for a register tile of some tiles:
//           16 products of matrices are put down; outputs are put together from these
//
// The gradient of the filter:
//     for some channels of the image, for nc columns: output channels. This part of C stays near while all is added to it.
//       for the rows of tiles that are summed together, image by image:
//         v of these: [16][tile][channel], and z: panels [16][tile][nr], in scratch
//         for nr columns, for a register tile of some channels:
//           16 products of matrices are put down; what they make of the filter is added to C
#ifndef CINCH_COMPILER_KERNELS_WINOGRAD_H
#define CINCH_COMPILER_KERNELS_WINOGRAD_H

#include <cstdint>

namespace cinch::kernels {

struct ContractPlan;
struct ContractSpec;

constexpr int kWinogradTaps = 3, kWinogradOutputs = 2, kWinogradPatch = 4, kWinogradProducts = kWinogradPatch * kWinogradPatch;

// Of rows and of columns of the image. All strides and distances are counted in elements.
struct WinogradAxis {
  int64_t places = 0, tiles = 0;      // of outputs; the last tile may have one
  int64_t image = 0, first = 0;       // what exists of the image; where the window of output 0 begins
  int64_t a = 0;                      // stride of the image in A
  int64_t place = 0;                  // stride of places in C; in B, if C is the gradient of the filter
  int64_t firstA = 0;                 // where the window of output 0 begins, behind A's first element
  int64_t firstTap = 0, tap = 0;      // where its first tap lies, behind the first element of B (or of C), and from there to the next one
};

struct WinogradPlan {
  WinogradAxis rows, columns;
  int64_t channels = 0, channelA = 1, channelB = 1; // of the image; their strides in A and in B
  bool tapsTogether = false;                      // the nine taps of a channel of the image and one of the outputs lie side by side in B
  int64_t firstRow = 0;                           // 0 or 1: the number of the first row of C in its tile ..
  bool movesRows = false;                         // .. and of every other trip the other number
  bool ofFilter = false;                          // C is the gradient of the filter
  int64_t depth = 0;                              // steps of a panel: channels, or tiles and one more
  int64_t pitch = 0;                              // from a tile to the next one, in the transformed image
  int64_t rowsOfTiles = 0;                        // that are transformed together; of a filter also summed
  int64_t tileRows = 0;                           // tiles in a register tile; of a filter channels
  int64_t imageOfProduct() const;                 // from one of the 16 to the next one, in the transformed image
};

// Of the gradient of a filter: rows of tiles that are summed together, where a row has so many tiles; the last ones of an image may be fewer. Sums of
// few tiles would not be worth what is done with them.
int64_t rowsOfTilesTogether(int64_t tilesOfRow);

// Cuts a convolution whose spec says `winograd`; the rest of the plan is as for other contractions.
void planWinograd(ContractPlan &, const ContractSpec &);

} // namespace cinch::kernels
#endif
