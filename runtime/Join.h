// Join.h: whether the processes that found one another belong to one run, for every transport.
#ifndef CINCH_RUNTIME_JOIN_H
#define CINCH_RUNTIME_JOIN_H
#include "runtime/Output.h"
#include <stdint.h>

namespace cinch::rt {

// What a process says of itself when it calls.
struct Card {
  char magic[8];
  int32_t rank, world, port;
  int32_t sums;         // --all-reduce: 0 ring, 1 mpi, 2 nccl
  uint32_t description; // checksum of cinch_meta: two plans of one program cannot work together
  uint32_t askedSum;    // of Options::asked, whose begin `asked` is
  uint64_t meeting;     // of worker 0, so that calls of another run are told apart
  char program[64], hash[24], host[64], asked[128];
};
// What worker 0 answers.
struct Verdict {
  int32_t accepted;
  int32_t code; // refused: with which everybody leaves
  uint64_t meeting;
  char words[512]; // why not
};

constexpr double kSilentJoin = 3; // seconds that workers wait for one another before they say for whom
double joinSeconds(); // that they wait for one another at all: a minute, or --worker-timeout if that is more, or CINCH_JOIN_SECONDS

Card ownCard();
bool isCard(Card &); // of a program like this one; its texts end then
// Why a caller does not belong to this run, as worker 0 sees it; empty: it does. `there`: somebody with its number came before.
void judge(const Card &own, const Card &, bool there, Text &why);

} // namespace cinch::rt
#endif
