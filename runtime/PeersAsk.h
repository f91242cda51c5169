// PeersAsk.h: how worker 0 asks another process, and has its answer.
#ifndef CINCH_RUNTIME_PEERSASK_H
#define CINCH_RUNTIME_PEERSASK_H
#include "runtime/Peers.h"
#include "runtime/PeersProtocol.h"
#include "runtime/Run.h"

namespace cinch::rt {

template <typename F> void forEachPeer(F f) {
  for (int64_t i = 1; i < programWorkers(); ++i)
    f(links[i]);
}

inline void ask(Link &link, const Request &request) { sendControl(link, &request, sizeof request); }

inline int64_t answerOf(Link &link, double limit = 0) {
  Answer answer;
  receiveControl(link, &answer, sizeof answer, limit);
  return answer.number;
}

// PeersDevices.cpp: the devices of all workers join to hand messages to one another; later, their steps become graphs.
void joinDevices();
void joinGraphs();

} // namespace cinch::rt
#endif
