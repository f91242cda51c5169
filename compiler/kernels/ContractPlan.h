// ContractPlan.h: how one contraction is cut into blocks and tiles; plain C++, no MLIR.
//
// The shape of the code (after Goto and van de Geijn, "Anatomy of High-Performance Matrix Multiplication", 2008):
//
//   for each batch, each outer n:
//     for nc columns:                            as wide as scratch may be: A is read once a block
//       for kc of the reduction, in order:       C is read and written once a block: still one chain
//         pack B (kc x nc) as panels kc x nr
//         for each outer m, for mc rows:
//           pack A (mc x kc) as panels of mr rows
//           for nr columns, for mr rows: a register tile of mr x nv vectors, one FMA chain an element
//
// Rows first (an A whose rows, all of them, stay in the second-level cache, and of which something is packed): the loop over nc columns stands
// inside of that over mc rows, which takes all rows at once. Then A is packed once however few columns a block has, and so is B.
//
// A grained reduction has one more loop outside of kc, over its blocks. Sums of a block that takes several k blocks lie in
// scratch, tile by tile, and that many rows of tiles are walked at a time; the last k block adds them to C.
//
// Windows (an A with bounds): A is always packed, row by row if its k is contiguous, and zeros take the place of what does not exist.
// The rows of such an A need not be one range, as long as those of C are: a row's number is taken apart when it is packed.
//
// Bands (most A with bounds): A is an image of rows, columns and channels. It goes into scratch as it lies, some rows at a time, with
// zeros where it ends, and tiles read it there: each element is copied once, not once a tap. Taps of a row and their channels follow
// each other there, so they are one stretch of k, or of the rows of a filter's gradient. Beside a band whose places are k, a B of few columns is
// read where it lies.
//
// Of pairs, too. Where the CPU has vdpbf16ps, a band holds words: two channels of a place, if rows of C are places, or a channel
// of a place and of the second one behind it, if places are k. A run of k may be several stretches of the band then. For AMX a run is one stretch
// (ContractAmxBands.cpp).
//
// Planar (bands under so few columns of C that most lanes would be empty): the band is turned while it is copied, so that places beside
// each other are, and lanes are these; a tile has all columns of C under some rows and vectors of places.
//
// Outside (windows and bands): where a whole tile's stretch of k lies outside of A, its steps would add +0.0 times what B holds. They are
// left out if that changes nothing: if all of this block of B is finite and no chain of the tile is at -0.0. An image of few places beside
// what lies outside of it has one place of many examples as the rows of a tile, so that no tile reaches over its end. The rows of a filter's
// gradient belong to one tap; of a small image the tile walks those places alone that this tap has inside, a rectangle of each example, and
// what it found counts if all of B is finite and no sum is -0.0; else the tile is computed again with all places.
//
// Lanes (a C that is contiguous along a batch dim and n together, as in convolutions in groups of few channels, or along an n that
// fits one vector, of an A with bounds): no panels; a vector holds elements of that batch dim and n, a tile some rows of m and
// some vectors, and k is walked in plain loops. Where a tile lies within all bounds, nothing is asked for each element.
//
// Pairs (products of bf16): both operands are always packed, as f32 that hold bf16; a tile has half as many outputs, since each has two
// chains. k is cut where blocks of 32 end, or behind whole runs.
//
// Dots (pairs where the CPU has a quick vdpbf16ps): c = fma(low, low, fma(high, high, c)) for words of two bf16, denormals flushed, which makes two
// steps of a chain. Panels hold words, two for four elements of k: of the even ones (low 2, high 0) and of the odd ones (low 3, high 1). A
// run is filled up to whole words by +0.0 in A and -0.0 in B, which changes no chain.
// An output has three registers of a tile: both chains of a block and the sum of all blocks so far.
//
// In order (pairs whose blocks have one element): a chain of FMAs over k gives the same bits, unless a number is very small or very large. Code for
// both is there, and each thread looks at what it multiplies (ContractInOrder.cpp).
//
// AMX (pairs where the CPU has tdpbf16ps): an instruction adds one block of 32 elements of k to 16 x 16 results, so a tile is up to four such
// squares of C. Panels hold words of two neighbours in k, (low 0, high 1), (low 2, high 3): A by rows, B by steps. A run is filled up to whole
// blocks. An A of bf16 whose rows are whole blocks is read where it lies, and so is a B that holds words (two indices of k, of which the inner one has
// size 2, under columns two apart). If all rows of A take at most half of the second-level cache, A is packed once
// before all blocks of B.
//
// Winograd (a convolution of 3 x 3 taps whose spec says so): other chains over other numbers, with loops of their own (Winograd.h).
//
// Tiles at the edges of m and n are tiles of their own with fewer rows or vectors, so nothing is padded that is stored.
#ifndef CINCH_COMPILER_KERNELS_CONTRACTPLAN_H
#define CINCH_COMPILER_KERNELS_CONTRACTPLAN_H

#include "compiler/kernels/Tiling.h"
#include "compiler/kernels/Winograd.h"

#include <algorithm>

namespace cinch::kernels {

// The dims of one group, slowest first, each with its stride in A, B and C (0 where the operand lacks the group).
struct ContractDim {
  int64_t size = 1, a = 0, b = 0, c = 0;
  int64_t bound0 = 0, bound1 = 0; // strides of A's bounds
  int64_t band = 0;               // stride in a band of A
  bool isBounded() const { return bound0 || bound1; }
};
using ContractDims = std::vector<ContractDim>;
int64_t countOf(const ContractDims &);
constexpr int64_t kPairBlock = 32; // elements of k whose two chains are added at once

enum class PackedA {
  No,   // read in place
  Rows, // [mr][kc + pad]: row copies, for an A whose k is contiguous
  Cols, // [kc][mr]: for all others
  Band  // Bands
};
enum class PackedB {
  No,        // read in place: its n is contiguous
  Copy,      // [kc][nr] by vector copies along n
  Transpose, // [kc][nr] by register transposes: its k is contiguous
  Gather     // [kc][nr] element by element
};

// Who walks the places of the image: the rows of C (its output, or what gives the image) or the reduction (the filter's gradient).
enum class Bands {
  No,
  OfM,
  OfK,
  Planar // of m, and lanes are places
};
// What a band holds, each in as many bytes as an element of scratch.
enum class Cell {
  Element,
  Channels, // dots: a word of two channels of a place, in groups of four; AMX: of two neighbours
  Places,   // dots: a word of a channel of a place, and of the place `apart` columns behind it
  Padded,   // AMX: as Channels, and each place is filled up to whole blocks
  Windows,  // AMX: for each place of C its row of taps, words of two neighbours, filled up to whole blocks
  Turned    // AMX: an element, of half a word. A row has for each channel its places, `columns` of them: more than it needs, for vectors reach over the end
};
struct Band {
  Cell cell = Cell::Element;
  int64_t columns = 0, channels = 0;         // of the image in scratch, in cells; its rows follow from the outputs'
  int64_t elements = 0;                      // channels of a place of the image
  int64_t apart = 0;
  int64_t rowStep = 1, reach = 0;            // rows of the image from one row of places to the next; those that further taps add
  int64_t rowsBefore = 0, columnsBefore = 0; // of the first place's first tap: taps may walk backwards
  int64_t rowStride = 0, columnStride = 0;   // of A
  int rowBound = -1, columnBound = -1;       // which of the bounds; -1: none
  int64_t height = 1;                        // rows of places in an image
  int64_t rows = 1;                          // of them in a band
  int64_t rowsInTile = 1;                    // Planar: of them
  int64_t taps = 1, tapStep = 0, placeStep = 1; // Windows: of a row; columns of the image from a tap and from a place to the next
  int64_t squareStep = 0;                    // Turned: from a square of rows to the next, where each is a tap; 0: rows are channels
  int64_t behind = 0;                        // cells that tiles read behind the band, and use for nothing
  bool holdsPairs() const { return cell == Cell::Channels || cell == Cell::Padded || cell == Cell::Windows; } // of neighbours in k
  int64_t before() const { return cell == Cell::Turned ? rowsBefore * columns * channels + columnsBefore : (rowsBefore * columns + columnsBefore) * channels; }
  int64_t cells() const { return ((rows - 1) * rowStep + reach + 1) * columns * channels + behind; }
  int64_t elems() const { return cell == Cell::Turned ? (cells() + 1) / 2 : cells(); } // of scratch
};

struct ContractPlan {
  Elem elem = Elem::F32;
  int64_t bytes = 4; // of an element
  int lanes = 16;    // elements of a vector
  bool manyRegisters = false;
  bool prefersFewLoads = false; // among tiles that are alike otherwise
  bool accumulate = false;
  View a, b, c; // a and b exchanged if C is contiguous along m

  // Batch, then the outer dims of m, n, k, and the inner one of each, which is tiled.
  ContractDims batch, outerM, outerN, outerK;
  ContractDim m, n, k;
  std::vector<Bound> bounds; // of A; their strides stand in the dims
  ContractDims rows;         // Windows, Lanes: the dims that `m` consists of; m.a is then of no use
  bool nothing = false;      // nothing is summed: C is +0.0
  bool overLanes = false;    // Lanes: element e of n lies at (e / lane.size) * n.a + (e % lane.size) * lane.a of A, likewise of B
  ContractDim lane;
  Bands bands = Bands::No;
  Band band;
  bool skips[2] = {};        // a tile and a stretch of k lie on one side of this bound: what lies outside is left out
  bool sparesPlaces = false; // Windows of a filter's gradient: a tile leaves out what places of k its tap has outside
  bool rowsInTile = false;   // Bands::OfK: `rows` are all rows of C, in one tile
  bool byWinograd = false;
  WinogradPlan winograd;
  // The reduction in blocks: `grain.size` of them, each from zero (k and outerK are those of one); all one chain if not.
  bool grained = false;
  ContractDim grain;

  // Pairs: blocks of 32 start anew behind every `runLength` elements of k, which lie in one inner stretch or in several whole ones.
  bool pairs = false;
  int64_t runLength = 0;
  bool dots = false;   // by vdpbf16ps; a panel's step is a word, in runs of one element that element
  bool amx = false;    // by tdpbf16ps; `dots` is false then
  bool wordsOfB = false; // AMX: B holds words already: element (k, n) is at k / 2 * (2 * k.b) + n * 2 + k % 2
  bool inOrder = false; // one chain over k; words hold neighbours, the earlier one in the high half
  bool rounds = false; // what is read of A and B is an f32 that holds bf16

  Tiling tiling;      // what the blocks below were chosen by
  int mr = 8, nv = 3; // register tile: rows, vectors
  int64_t kc = 0;     // length of a k block within a run of the inner k dim
  int64_t runs = 1;   // whole runs a block, when the inner dim is shorter than a block
  int unroll = 1;     // of the k loop; divides the length of every block
  int64_t mc = 0, nc = 0;
  bool rowsFirst = false; // A is packed before the loop over columns
  bool pairOfPanels = false; // AMX: a block of B has no more, so its rows are short pieces that lie far apart
  // Rows of tiles whose unfinished block sums lie in scratch at once; 0: a block is done within one k block.
  int64_t sumUnits = 0;
  PackedA packA = PackedA::No;
  PackedB packB = PackedB::No;
  bool prefetchC = false; // ahead of each tile: worth it when C does not stay in a near cache
  bool prefetchB = false; // rows ahead, of a long B that is read in place
  bool directC = true;    // C is stored by vectors; else through a tile in scratch

  bool skipsOutside() const { return skips[0] || skips[1]; }
  int64_t runsOfImage() const { return outerK.empty() ? 1 : countOf(outerK) / outerK.front().size; } // sparesPlaces: of an example
  int64_t nr() const { return int64_t(nv) * lanes; }
  int64_t blockK() const { return kc * runs; }           // longest block
  // Pairs: so many stretches of the inner dim are one run.
  int64_t stretches() const { return pairs ? std::max<int64_t>(1, runLength / k.size) : 1; }
  bool hasWords() const { return amx || (dots && runLength > 1); } // panels hold them, two elements each
  int64_t group() const { return amx ? kPairBlock : inOrder ? 2 : 4; } // elements of k that a run is filled up to
  int64_t wordsOf(int64_t elements) const { return (elements + group() - 1) / group() * group() / 2; }
  int64_t blockSteps() const; // of the tile, for the longest block
  bool rowsInPanelA() const { return packA == PackedA::Rows || (amx && packA != PackedA::No); } // not its columns
  int64_t rowPitchA() const { return blockSteps() + lanes; } // rowsInPanelA: odd against the sets of the first cache
  bool hasTile() const { return amx || !directC; } // some outputs go through a tile in scratch
  int64_t panelA() const;                                // elements of one packed panel
  int64_t panelB() const { return (blockSteps() + lanes) * nr(); }
  int64_t blocksPerRun() const { return (k.size + kc - 1) / kc; }
  int64_t blocksK() const;
  int64_t tilesN() const { return (nc + nr() - 1) / nr(); }
  // Offsets in scratch, in elements: A, B, tile, block sums.
  int64_t scratchB() const;
  int64_t scratchTile() const;
  int64_t scratchSums() const;
  int64_t scratchElems() const;
};

// Bands, if A is an image that they suit; dims as the spec has them (ContractBandPlan.cpp).
// Pairs: blocks begin anew at every index of the first `anew` dims of k.
bool formBands(ContractPlan &, ContractDims m, ContractDims n, ContractDims k, size_t anew);
bool formPlanar(ContractPlan &, ContractDims m, ContractDims n, ContractDims k);
void chooseBand(ContractPlan &, int64_t longest); // the rows of a band, and the blocks of k
ContractDim takeInner(ContractDims &dims, bool contiguousInC);

// What lies outside of A (ContractOutsidePlan.cpp).
bool takesExamples(const ContractPlan &banded, const ContractPlan &windows); // whether the latter is the quicker one
bool takesPlanar(const ContractPlan &otherwise, const ContractPlan &planar);
bool formExamples(ContractPlan &, ContractDims m, ContractDims n, ContractDims k); // dims as the spec has them
void chooseSkips(ContractPlan &);
void chooseSpares(ContractPlan &); // sparesPlaces, if blocks of k can be whole examples, too
bool isQuickerByAmx(ContractPlan);         // than by FMAs, of pairs whose dims are formed (Tiling.cpp)
double cyclesOfRows(const ContractPlan &); // of one step in k of all tiles, for each row of m (Tiling.cpp)

double choosePlanarTile(ContractPlan &);   // the same cycles, of places in lanes (Tiling.cpp)

// Whether one chain over k may give the bits of the plan's blocks, and the plan for it, which divides the work among threads alike (ContractInOrder.cpp).
bool canBeInOrder(const ContractPlan &);
ContractPlan inOrder(ContractPlan);

// The tile, and how large blocks may be, of a plan whose dims are formed (Tiling.cpp).
void chooseTiling(ContractPlan &, const ContractSpec &, const TargetInfo &);

// The blocks, and what is packed and fetched ahead, of a plan with dims and a tile (ContractBlocks.cpp).
void chooseBlocks(ContractPlan &);

// Merges dims, exchanges operands where that makes C contiguous, chooses tiles and blocks by shape and target.
ContractPlan planContract(const ContractSpec &, const TargetInfo &);

} // namespace cinch::kernels
#endif
