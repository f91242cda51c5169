// CodeRoom.h: the part of a budget that is kept for the code, which is known only when its plan is.
//
// A plan has what the budget leaves beside the code. How long the code is depends on the plan. So it is guessed first (phases/Allowance.h), and
// measured when the plan has been compiled. Then all may be planned once more, with another part for the code. This class says so, and with which.
//
// What it guarantees: the budget that a refusal names compiles. It is the bytes of the smallest plan and those that its code needs at least. With this
// budget either a plan with the guess fits, or the same smallest plan is found, measured, and taken in the end.
#ifndef CINCH_COMPILER_TOOLS_CODEROOM_H
#define CINCH_COMPILER_TOOLS_CODEROOM_H

#include <cstdint>
#include <optional>

namespace cinch {

class CodeRoom {
public:
  enum class Next { Done, Again };

  // What the next compilation is to be planned with.
  int64_t granted() const { return now.granted; }                        // CompileOptions::granted
  const std::optional<int64_t> &leanestIn() const { return now.leanestIn; } // CompileOptions::leanestIn

  // A plan fits, and its code leaves `leftOver` bytes of what it was granted; < 0: so many are missing. A plan with `spare` of them may be faster.
  // Done: the executable is the answer.
  Next planned(int64_t leftOver, int64_t spare) {
    if (leftOver >= 0) {
      if (spare <= 0 || sure)
        return Next::Done;
      sure = now;
      now = {now.granted - spare, std::nullopt};
      return Next::Again;
    }
    if (sure) // the code of the plan with spare bytes is longer
      now = *sure;
    else if (smallest && !now.leanestIn)
      now = *smallest;
    else
      now.granted += kReserve - leftOver; // the code of another plan may be a little longer
    return Next::Again;
  }

  // No plan fits into an arena of `room` bytes. The code of the smallest plan leaves `leftOver` bytes of its allowance. The budget has `above` bytes more
  // than this plan and its code take; < 0: so many are missing. Done: the budget is refused.
  Next refused(int64_t room, int64_t leftOver, int64_t above) {
    if (sure && now.granted != sure->granted) {
      now = *sure;
      return Next::Again;
    }
    if (smallest) {
      if (now.leanestIn)
        return Next::Done;
      now = *smallest;
      return Next::Again;
    }
    if (above < 0)
      return Next::Done;
    smallest = Grant{now.granted - leftOver, room};
    // A search in the bytes of this plan may find a faster one. It gets no more of them, since with a few bytes more the guess leaves no more either:
    // a larger budget is not planned slower.
    now.granted += above - leftOver;
    return Next::Again;
  }

private:
  static constexpr int64_t kReserve = 64 << 10;
  struct Grant {
    int64_t granted = 0;
    std::optional<int64_t> leanestIn;
  };
  Grant now;
  std::optional<Grant> sure;     // an executable fitted with it
  std::optional<Grant> smallest; // the smallest plan fits with it
};

} // namespace cinch
#endif
