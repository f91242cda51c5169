// Channels.h: how many messages each channel must hold, so that workers that wait for full and empty channels make progress.
//
// A worker goes through its actions in order, and in each part of its loop body through the messages of that part in order: it takes one
// out of a channel, and waits while that is empty, or it puts one in, and waits while that is full. If nothing else is said, its work is
// done before it first puts one in. Actions and messages and their order are fixed, so whether the workers come to their end depends on the capacities alone, never on the timing (a Kahn network with bounded
// channels); when they do depends on both.
#ifndef CINCH_COMPILER_SOLVE_STAGES_CHANNELS_H
#define CINCH_COMPILER_SOLVE_STAGES_CHANNELS_H

#include "compiler/solve/StepGraph.h"

namespace cinch::solve {

struct ChannelProblem {
  std::vector<std::vector<PartAction>> actions;   // of each worker
  std::vector<std::vector<double>> seconds;       // [worker][part]: of one micro-batch
  struct Message {
    int channel = 0;
    bool sent = false; // else received
    enum When { Always, First, Last } when = Always; // in every micro-batch, or in one alone
    double share = -1; // of the part's work that is done before; < 0: all before one is sent, none before one is received
  };
  std::vector<std::vector<std::vector<Message>>> messages; // [worker][part], in order
  std::vector<double> travel;                              // of each channel: seconds of a message
  std::vector<double> begin;                               // of each worker: when it comes to its first action; empty: all at 0
  int64_t last = -1; // the micro-batch of messages of the last one; -1: the last in the worker's list (where steps overlap, others stand behind it)
};

struct ChannelRun {
  bool finished = false;  // false: the workers wait for one another for ever
  double makespan = 0;
  std::vector<double> busy; // of each worker
  struct Work {
    double begin = 0, end = 0;
  };
  std::vector<std::vector<Work>> work; // as the workers' actions
  // Of one of the longest chains of work and messages, each of which waits for the one before it: how often each part stands on it, by workers.
  std::vector<std::vector<double>> critical;
};
ChannelRun run(const ChannelProblem &, const std::vector<int> &boxes);

// The fewest boxes (the sum over the channels, found one channel after the other) with which the workers finish, and no later than with
// boxes without limit. Empty: not even those help.
std::vector<int> findBoxes(const ChannelProblem &);

} // namespace cinch::solve
#endif
