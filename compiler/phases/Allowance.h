// Allowance.h: the bytes that a budget grants to a trained program beside its arena.
//
// The process holds its binary (the kernel counts nearly every page of it), what the runtime reads out of its description
// (some half as many bytes as the text has), static buffers, and the pages that its stacks touch (12 KiB a thread). Before
// code is generated the size of the binary is a guess from the operations; `cinch` looks at what it has linked and plans
// anew if it has outgrown the guess. test/execute/budget.py measures the rest.
#ifndef CINCH_COMPILER_PHASES_ALLOWANCE_H
#define CINCH_COMPILER_PHASES_ALLOWANCE_H

#include <cstdint>

namespace cinch {

// Bytes of binary and description together: of the runtime alone 1 MiB, 50 to 105 an operation (12 to 48 blocks of a GPT),
// up to 350 where no two layers are alike and each gets code of its own (convolutions of many kinds). Generous, since planning and compiling twice costs more
// than these bytes.
inline int64_t guessedBinaryBytes(int64_t operations, int64_t different) {
  return (int64_t(5) << 18) + 112 * operations + 352 * different;
}

// What a static binary has of the C library; a program of several workers has all of it (target::kLibraryBytes) instead.
constexpr int64_t kLibraryInBinary = 3 << 18;

constexpr int64_t kAllowanceRound = 64 << 10;

inline int64_t allowanceFor(int64_t binaryBytes, int threads) {
  constexpr int64_t kReserve = 512 << 10, kThread = 32 << 10;
  return (binaryBytes + kReserve + threads * kThread + kAllowanceRound - 1) / kAllowanceRound * kAllowanceRound;
}

} // namespace cinch
#endif
