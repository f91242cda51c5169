// PeersProtocol.h: what worker 0 asks the others (PeersDrive.cpp) and how they answer (PeersServe.cpp).
#ifndef CINCH_RUNTIME_PEERSPROTOCOL_H
#define CINCH_RUNTIME_PEERSPROTOCOL_H
#include "runtime/Dataset.h"
#include "runtime/Device.h"
#include "runtime/Links.h"

namespace cinch::rt {

struct Request {
  enum Kind : int32_t { OpenData, Prepare, Initialize, Call, Read, Store, Finite, Replays, Peak, GetNormals, SetNormals, Meet, Stop } kind = Stop;
  int32_t dataset = -1, entry = -1;
  int64_t offset = 0, bytes = 0; // Read; Store: where the tensor begins, bytes of the values that follow as bulk
  // Store: count values of a tensor from the first on, as they are in a file.
  int64_t tensor = 0, part = 0, first = 0, count = 0;
  int32_t fileType = 0, transposed = 0, touch = 0, all = 0;
  // Call: `entry` is an EntryCall.
  int64_t microbatches = 0, examples = 0, sourceExamples = 0, step = 0;
  int32_t mode = 0, checking = 0, training = 0, windowWidth = 0; // a window follows as bulk
  uint64_t seed = 0;
  int32_t late = 0, restart = 0; // Call: as run.late; the device counts steps from `step` on
  DeviceMeeting meeting;         // Meet
  int64_t words[128] = {};       // Call: of the context; OpenData: a bit for each result of `entry` that is not written
};
constexpr int64_t kResultBits = 64 * 128; // of `words`
constexpr int64_t kStopped = 2; // answer to Stop
struct Answer {
  int64_t number = 0, more = 0;
};
static_assert(sizeof(Request) <= size_t(kControlBytes), "a request is one control frame");

// What a worker says of one field of a data set, if it reads it.
struct FieldReport {
  int32_t open = 0, raw = 0, bigEndian = 0;
  uint32_t crc = 0;
  int64_t bytes = 0, examples = 0;
  int64_t sourceBytes = 0; // of the file that holds all fields, if there is one
  uint32_t sourceCrc = 0, unused = 0;
};
// Opens the fields of a data set that the worker reads in any entry, and reports.
void openOwnFields(int dataset, const Entry *entry, FieldReport *reports);

constexpr int64_t kPieceBytes = 65536; // of a tensor on its way
extern const Peers driving;
[[noreturn]] void serve();

// Both sides: channels.
void sendToPeer(Worker &, int32_t channel, int64_t offset, int64_t bytes);
void receiveFromPeer(Worker &, int32_t channel, int64_t offset, int64_t bytes, Arrival);
void sumAmongPeers(Worker &, int32_t channel, int64_t offset, int64_t bytes);
void awaitSumsOfPeers(Worker &);

} // namespace cinch::rt
#endif
