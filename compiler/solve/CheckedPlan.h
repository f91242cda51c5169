// CheckedPlan.h: what the parts of the plan checker share: the plan and what follows from it at once. No planner sees it.
#ifndef CINCH_COMPILER_SOLVE_CHECKEDPLAN_H
#define CINCH_COMPILER_SOLVE_CHECKEDPLAN_H

#include "compiler/solve/PlanChecker.h"

#include <string>
#include <vector>

namespace cinch::solve {

struct CheckedPlan {
  CheckedPlan(const StepGraph &, const ScheduledProgram &);

  std::string who(size_t at) const { return "launch " + std::to_string(at) + " (" + g.kernels[p.launches[at].kernel].name + ")"; }
  bool isInput(int b) const { return g.buffers[b].kind == Buffer::Persistent || (g.buffers[b].kind == Buffer::Value && g.buffers[b].producer < 0); }
  // Persistent buffers that grow with the micro-batch are data: filled anew for each micro-batch.
  bool isData(int b) const { return isInput(b) && g.buffers[b].perExampleBytes != 0; }
  bool onHost(const Place &place) const { return place.buffer >= 0 && g.buffers[place.buffer].space == Buffer::Host; }
  // Do two places have a byte of the same memory in common?
  bool overlap(const Place &a, const Place &b) const {
    return onHost(a) == onHost(b) && a.bytes > 0 && b.bytes > 0 && a.offset < b.offset + b.bytes * b.copies && b.offset < a.offset + a.bytes * a.copies;
  }
  int parts() const; // of the main loop's body

  const StepGraph &g;
  const ScheduledProgram &p;
  int64_t rounds;             // of the main loop that are run
  bool overlaps = false;      // the worker's steps
  std::vector<int> sectionOf; // of launches
  std::vector<int> newerOf;   // of persistent buffers: the one in whose place the next step finds it; -1: its own
  // The loop that adds to each accumulator: the last that writes it; the main one, if none does.
  std::vector<int> summedIn;
  std::vector<bool> readBehind; // buffers that a kernel behind that loop reads
  int64_t touched = 0;          // end of the last byte that has a place
  int64_t touchedOnHost = 0;
};

// Whatever can be seen without running: sizes, places, which kernels run how often and in which order. Fills in what is not known yet.
std::string checkShape(CheckedPlan &);
// The claimed most bytes alive, from the launches alone.
std::string checkPeak(const CheckedPlan &);

} // namespace cinch::solve
#endif
