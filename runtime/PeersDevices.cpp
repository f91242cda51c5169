// PeersDevices.cpp: how worker 0 has the devices of all workers join, so that they hand messages to one another.
#include "runtime/Output.h"
#include "runtime/PeersAsk.h"

namespace cinch::rt {

namespace {

void askToMeet(int64_t worker, const DeviceMeeting &meeting) {
  Request request;
  request.kind = Request::Meet;
  request.meeting = meeting;
  ask(links[worker], request);
}

// All that are named join what worker 0 has made an id for, each with its place among them as number. The first error, 0: none.
int64_t joinEach(DeviceMeeting meeting, const int64_t *members, int32_t count) {
  meeting.what = DeviceMeeting::Name;
  if (int64_t error = device->meet(meeting))
    return error;
  meeting.what = DeviceMeeting::Join;
  meeting.count = count;
  int64_t error = 0;
  for (meeting.rank = 0; meeting.rank < count; ++meeting.rank)
    if (members[meeting.rank] != 0)
      askToMeet(members[meeting.rank], meeting);
  for (meeting.rank = 0; meeting.rank < count; ++meeting.rank)
    if (members[meeting.rank] == 0)
      error = device->meet(meeting);
  for (int32_t i = 0; i < count; ++i)
    if (int64_t result = members[i] ? answerOf(links[members[i]]) : 0)
      error = error ? error : result;
  return error;
}

int64_t joinLanes() {
  const int64_t count = programWorkers();
  for (int64_t pair = 0; pair < count * count; ++pair) {
    DeviceMeeting meeting;
    meeting.from = int32_t(pair / count), meeting.to = int32_t(pair % count);
    bool needed = false;
    for (const ChannelSpec &channel : run.meta.channels)
      needed |= channel.from == meeting.from && channel.to == meeting.to;
    const int64_t members[] = {meeting.from, meeting.to};
    if (int64_t error = needed ? joinEach(meeting, members, 2) : 0)
      return error;
  }
  return 0;
}

int64_t joinReplicas() {
  const int64_t each = programWorkers() / run.meta.replicas;
  int64_t *members = allocateArray<int64_t>(run.meta.replicas);
  for (int64_t place = 0; place < each; ++place) {
    for (int64_t replica = 0; replica < run.meta.replicas; ++replica)
      members[replica] = replica * each + place;
    if (int64_t error = joinEach(DeviceMeeting(), members, int32_t(run.meta.replicas)))
      return error;
  }
  return 0;
}

// The answers of all to the same question; false: they differ.
bool askAllToMeet(DeviceMeeting meeting, int64_t &answer) {
  forEachPeer([&](Link &link) { askToMeet(link.worker, meeting); });
  answer = device->meet(meeting);
  bool same = true;
  forEachPeer([&](Link &link) { same &= answerOf(link) == answer; });
  return same;
}

} // namespace

void joinDevices() {
  Text why;
  DeviceMeeting meeting;
  int64_t version = 0, error = 0;
  if (run.options.hostMessages)
    return;
  if (!askAllToMeet(meeting, version))
    why.add("the workers have different versions of NCCL (libnccl.so.2), or some have none");
  else if (!version)
    why.add("NCCL (libnccl.so.2) is not here");
  else if (version < 20900) // 2.8.4 is 2804
    why.add("NCCL is older than 2.9 (%lld), which graphs can hold", (long long)version);
  else if ((error = joinLanes()) || (run.options.sumsByNccl && (error = joinReplicas())))
    why.add("NCCL says: %s (%lld)", device->wordsFor(error), (long long)error);
  if (why.size && run.options.sumsByNccl)
    fail(kResources, "--all-reduce nccl: %s", why.data);
  meeting.what = DeviceMeeting::Begin;
  if (!why.size)
    askAllToMeet(meeting, error);
  if (!run.options.quiet)
    why.size ? say("note: messages between the devices go through the memory of the hosts, since %s", why.data)
             : say("messages between the devices of a training step go by NCCL %lld", (long long)version);
}

// Before the second step, which shows how large one is: graphs for all, or for none.
void joinGraphs() {
  static int64_t steps;
  if (!run.late || ++steps != 2)
    return;
  DeviceMeeting meeting;
  int64_t all = 0, done = 0;
  meeting.what = DeviceMeeting::Capture;
  meeting.count = askAllToMeet(meeting, all) && all;
  meeting.what = DeviceMeeting::Graphs;
  askAllToMeet(meeting, done);
}

} // namespace cinch::rt
