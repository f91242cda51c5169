// Join.cpp: see Join.h.
#include "runtime/Join.h"
#include "runtime/Checksum.h"
#include "runtime/Links.h"
#include "runtime/Run.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cinch::rt {

static constexpr char kMagic[8] = {'c', 'i', 'n', 'c', 'h', 'w', 'k', '2'};

Card ownCard() {
  Card card = {};
  memcpy(card.magic, kMagic, 8);
  card.rank = int32_t(ownWorker);
  card.world = int32_t(programWorkers());
  card.sums = run.options.sumsByMpi ? 1 : run.options.sumsByNccl ? 2 : 0;
  card.description = crc32c(0, cinch_meta, strlen(cinch_meta));
  card.askedSum = crc32c(0, run.options.asked, strlen(run.options.asked));
  snprintf(card.asked, sizeof card.asked, "%.127s", run.options.asked);
  snprintf(card.program, sizeof card.program, "%.63s", run.meta.program);
  snprintf(card.hash, sizeof card.hash, "%.23s", run.meta.hash);
  if (gethostname(card.host, sizeof card.host - 1) != 0)
    snprintf(card.host, sizeof card.host, "?");
  return card;
}

double joinSeconds() {
  const char *text = getenv("CINCH_JOIN_SECONDS");
  if (!text || !*text)
    return workerTimeout > 60 ? workerTimeout : 60;
  char *end;
  const double seconds = strtod(text, &end);
  if (*end || !(seconds > 0 && seconds < 1e9))
    fail(kUsage, "CINCH_JOIN_SECONDS is `%s`; expected a number of seconds above 0", text);
  return seconds;
}

bool isCard(Card &card) {
  card.program[sizeof card.program - 1] = card.asked[sizeof card.asked - 1] = card.hash[sizeof card.hash - 1] = card.host[sizeof card.host - 1] = 0;
  return memcmp(card.magic, kMagic, 8) == 0;
}

static const char *nameOfSums(const Card &card) { return card.sums == 1 ? "mpi" : card.sums == 2 ? "nccl" : "ring"; }

void judge(const Card &own, const Card &card, bool before, Text &why) {
  const char *here = own.host, *there = card.host;
  if (strcmp(card.hash, own.hash) != 0)
    why.add("worker %d at %s runs `%s` with hash %s, worker 0 at %s runs `%s` with hash %s: start the same program everywhere",
            card.rank, there, card.program, card.hash, here, own.program, own.hash);
  else if (card.description != own.description)
    why.add("worker %d at %s and worker 0 at %s run `%s` compiled with different plans (%08x, %08x): start the same file everywhere",
            card.rank, there, here, own.program, card.description, own.description);
  else if (card.world != own.world)
    why.add("worker %d at %s was started as one of %d, worker 0 at %s as one of %d", card.rank, there, card.world, here, own.world);
  else if (card.rank < 1 || card.rank >= own.world)
    why.add("a process at %s was started as worker %d of %d, but worker 0 at %s needs 1 to %d", there, card.rank, own.world, here,
            own.world - 1);
  else if (card.sums != own.sums)
    why.add("worker %d at %s was started with --all-reduce %s, worker 0 at %s with %s", card.rank, there, nameOfSums(card), here, nameOfSums(own));
  else if (*card.asked && card.askedSum != own.askedSum) // to say nothing leaves it to worker 0
    why.add("worker %d at %s was started with `%s`, worker 0 at %s with %s%s%s: what worker 0 is told holds for all, so tell the others the same or nothing",
            card.rank, there, card.asked, here, *own.asked ? "`" : "", *own.asked ? own.asked : "nothing of the kind", *own.asked ? "`" : "");
  else if (before)
    why.add("two processes were started as worker %d: one calls from %s, another came to worker 0 at %s before", card.rank, there,
            here);
}

} // namespace cinch::rt
