// Phase.h: the phases of a compilation: one enum, one spelling for flags, verifiers, dumps and messages.
#ifndef CINCH_COMPILER_TRANSFORMS_PHASE_H
#define CINCH_COMPILER_TRANSFORMS_PHASE_H

namespace cinch {

enum class Phase { Parsed, Differentiated, Planned, Scheduled, Lowered, LLVM };

constexpr const char *phaseName(Phase phase) {
  constexpr const char *names[] = {"parsed", "differentiated", "planned", "scheduled", "lowered", "llvm"};
  return names[static_cast<int>(phase)];
}

} // namespace cinch
#endif
