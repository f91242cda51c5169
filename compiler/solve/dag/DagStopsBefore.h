// DagStopsBefore.h: the stops that may come right before another one (DagGates.cpp), and what lies in between costs.
//
// From the later stop back: what is wanted there, and behind it, lies at the stop before, is held across it, or is computed in between, and
// then what that reads is wanted. Three rules say that there must be room for it:
//
//   - What is held across the stop before has room beside it.
//   - A kernel that leaves few bytes to others has room where it is computed in between, beside the least that lies there (DagBetween.h).
//   - Let some source of the later stop's kernel e be computed in between, and let f be the kernel that makes the last of those. From f to
//     e all sources of e lie there. No gate is computed from f to e, and no kernel that has no room beside these sources. So what is held
//     across e lies at f already, or comes by other kernels from what does: at least the bytes of a minimum cut. They have room beside f
//     and the sources of e, or f is not the last. (Of two large sources, each made from something large, the second leaves far less
//     than e.)
#ifndef CINCH_COMPILER_SOLVE_DAG_DAGSTOPSBEFORE_H
#define CINCH_COMPILER_SOLVE_DAG_DAGSTOPSBEFORE_H

#include "compiler/solve/dag/DagBetween.h"
#include "compiler/solve/dag/DagStops.h"

namespace cinch::solve::detail {

class StopsBefore {
public:
  // `prefix`: by progress, what is spent at least before.
  StopsBefore(const StopGraph &g, StopList &stops, const std::vector<double> &prefix, int64_t &work)
      : g(g), stops(stops), prefix(prefix), work(work), between(g.d, g.unit, g.sources) {}

  // The gates have changed.
  void clear() { noRoom.clear(); }

  // Lists the stops that may come right before this one, if all from there to the beginning may take so long.
  const std::map<int, double> &of(int id, double seconds);

private:
  void findLast();
  bool noneIsLast() const;
  void findUseful();
  void from(int stop, bool first);
  void from(int stop, bool first, bool small);
  void choose(int v, int64_t room, double again);
  bool allFit();
  int firstReader(int f);
  bool fitsBefore(int f, int progress);

  static uint64_t bit(int v) { return uint64_t(1) << (v % 64); }
  bool wanted(int v) const { return (need[size_t(v) / 64] & bit(v)) != 0; }
  bool mustBeHeld(int v) const { return !there[v] && (g.isGate[g.unit[v]] || !g.possible[size_t(until)][v]); }
  bool isThereSmall(int v) const { return withSmall && g.isSmall[v] && mayBeHeld(v); }
  bool mayBeHeld(int v) const { return previous >= 0 && g.possible[size_t(isFirst ? now - 1 : now)][v]; }
  int placeOf(int u) const { return int(std::find(g.path.begin() + now, g.path.begin() + until, u) - g.path.begin()); }

  static constexpr int64_t kChoosing = 2; // steps that it takes to look at one value
  static constexpr int64_t kOpening = 64; // and a stop to be written down

  const StopGraph &g;
  StopList &stops;
  const std::vector<double> &prefix;
  int64_t &work;
  Between between;

  // Of the later stop, and the stop before it that is looked at.
  int until = 0, now = 0;     // progress between the two: at its end and at its begin
  int previous = -1;          // the stop's kernel
  bool isFirst = false;
  int ofStop = 0;             // values of it that are of use
  bool withSmall = false;     // small values are held across it
  int ofSmall = 0;            // of those that are wanted
  double left = 0;            // seconds from the beginning up to it
  std::map<int, double> found; // stops before it
  int64_t must = 0;           // bytes wanted that can only be held
  std::vector<int64_t> hold;  // of values: the fewest bytes that must be held to have them
  std::vector<uint64_t> need; // a bit a value: wanted
  // Kernels computed in between: for the first time, again, or perhaps, because that is as good as holding what they make.
  enum : char { kFirst = 1, kAgain, kPerhaps };
  Marks made, there, useful;  // .. ; values that lie there for the stop (2: its own); what findUseful found
  std::vector<int> held, added;
  const Stop *later = nullptr;
  std::vector<int> wantedFrom;               // of kernels: what firstReader found; -1: nothing yet
  std::map<std::pair<int, int>, bool> fits; // what fitsBefore found
  std::vector<int> last;                     // what findLast found
  std::map<int, Marks> noRoom;               // of stops: kernels that are gates, or have no room beside what the stop reads
};

} // namespace cinch::solve::detail
#endif
