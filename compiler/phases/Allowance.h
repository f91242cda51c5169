// Allowance.h: the bytes of a binary, of which a budget has to grant them to a trained program beside its arena.
//
// The process holds its binary (the kernel counts nearly every page of it), what the runtime reads out of its description
// (some half as many bytes as the text has), static buffers, and the pages that its stacks touch (12 KiB a thread). Before
// code is generated the size of the binary is a guess from the operations. `cinch` looks at what it has linked. It plans
// anew if that has outgrown the guess, or if it needs so much less that a plan with these bytes may be faster. So it does
// before a refusal names the smallest budget: it compiles that plan, too, and writes nothing (of several workers
// `cinch plan` names the guess, and says so). What the columns of tables take is known from the program (runtime/ColumnBytes.h). What
// the machine adds to them is its own (analysis/Target.h).
#ifndef CINCH_COMPILER_PHASES_ALLOWANCE_H
#define CINCH_COMPILER_PHASES_ALLOWANCE_H

#include <cstdint>

namespace cinch {

// Operations of a program, of training, evaluation and prediction together.
struct OperationCounts {
  int64_t all = 0;
  int64_t different = 0;        // that no other one equals but for its operands: each gets code of its own
  int64_t differentWindows = 0; // convolutions and pools among those: their code is long, with copies that turn filters
  int64_t differentWinograd = 0; // convolutions by Winograd's minimal filtering among those: their code is longer still
  int64_t differentPairs = 0;   // products of bf16 among those: instructions for them need code for numbers that are very small, too
};

// Bytes of binary and description together, at least: fitted to the examples, the programs of the tests and chains of up to 60
// convolutions, no two alike, and a ResNet of 18 layers, for AVX2 and AVX-512, with everything kept, all computed again, and in blocks of
// rows. A little generous, since planning and compiling twice costs more than these bytes.
// Every replica beyond the first has code of the host and a description of its own, and where bytes are tight a plan of its own, with other kernels of
// products, whose code is long in bf16. So has every stage, with kernels that no other stage runs: 2 KiB
// of examples/mlp, 12 of examples/gpt, 20 of a chain of reversible layers. Operations of shards are counted for all of them together; their messages
// and what each adds of the others' come on top, and their workers share less code. Convolutions by Winograd's minimal filtering have longer code than
// is guessed of one worker, whose plan is made anew then; so they count only where the guess itself is named.
inline int64_t guessedBinaryBytes(const OperationCounts &counts, int64_t stages, int64_t replicas, int64_t shards) {
  bool shared = shards > 1;
  int64_t anOperation = (shared ? 180 : 132) + (shared ? 120 : 40) * (replicas - 1);
  int64_t messages = shared ? ((10 * stages * replicas + 16) * shards) << 10 : 0;
  return (int64_t(1230) << 10) + anOperation * counts.all + 320 * counts.different + 9000 * counts.differentWindows +
         (4000 + 6500 * (replicas - 1)) * counts.differentPairs + (int64_t(16) << 10) * (stages - 1) +
         (stages * replicas * shards > 1 ? 14000 * counts.differentWinograd : 0) + messages;
}

// What a static binary has of the C library; a program of several workers has all of it (target::kLibraryBytes) instead.
constexpr int64_t kLibraryInBinary = 3 << 18;

} // namespace cinch
#endif
