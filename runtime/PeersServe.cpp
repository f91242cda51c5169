// PeersServe.cpp: what a worker other than 0 does in a process of its own: what worker 0 asks, until it leaves. And the channels of
// all such workers.
#include "runtime/Checking.h"
#include "runtime/Checkpoint.h"
#include "runtime/Device.h"
#include "runtime/Initialize.h"
#include "runtime/LinksMpi.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/PeersProtocol.h"
#include "runtime/Run.h"
#include <string.h>

namespace cinch::rt {

static char *piece; // bulk from worker 0
static int64_t pieceBytes;
static bool stateIsNew; // the mirror has parameters and state that the device does not have yet

static void answer(int64_t number, int64_t more = 0) {
  Answer answer;
  answer.number = number;
  answer.more = more;
  sendControl(links[0], &answer, sizeof answer);
}

// Returns when the bytes may be changed.
static void sendBulk(const void *content, int64_t bytes) {
  static Counter done;
  uint32_t before = done.now();
  OutFrame frame;
  frame.head.kind = FrameKind::Bulk;
  frame.head.bytes = bytes;
  frame.payload = static_cast<const char *>(content);
  frame.done = &done;
  postFrame(links[0], frame);
  while (!awaitFor(&done.value, before, &done.sleepers, 60))
    continue;
}

// Others may have been told less than worker 0: which results it writes, it says.
static void takeWritten(const Request &request) {
  if (request.entry < 0)
    return;
  Entry &entry = run.meta.entries[request.entry];
  bool all = true;
  for (int64_t i = 0; i < entry.results.size && i < kResultBits; ++i) {
    entry.results[i].written = !(request.words[i / 64] >> i % 64 & 1);
    all &= entry.results[i].written;
  }
  if (!all)
    entry.readNeeded();
}

static void openAndReport(const Request &request) {
  static FieldReport reports[64];
  const int64_t fields = run.meta.datasets[request.dataset].fields.size;
  FieldReport *all = fields <= 64 ? reports : allocateArray<FieldReport>(fields);
  takeWritten(request);
  if (request.entry >= 0 && (run.options.command == Options::Eval || run.options.command == Options::Predict))
    takeDataFile(request.dataset, run.meta.entries[request.entry]);
  openOwnFields(request.dataset, request.entry >= 0 ? &run.meta.entries[request.entry] : nullptr, all);
  if (request.dataset == run.meta.trainDataset && request.entry < 0)
    findNormals(run.datasets[request.dataset]);
  sendBulk(all, fields * int64_t(sizeof(FieldReport)));
}

static void prepare(const Request &request) {
  startWorkers(ownWorker, run.options.threads, request.touch);
  prepareChannels();
  prepareCheckpoints(); // the list of tensors
  if (wire->arenaReady)
    wire->arenaReady();
  answer(0);
}

// The device counts steps: at most two are under way, since each brings its data from pinned memory of its own.
static void goOnLate(Worker &worker, const Request &request) {
  static int underWay;
  run.late = request.late;
  if (request.restart) {
    device->restart(worker, request.step);
    underWay = 0;
  }
  if (!run.late || request.checking || EntryCall(request.entry) != EntryCall::Train)
    return;
  StepResult left;
  if (underWay == 2)
    device->settle(worker, left);
  else
    ++underWay;
}

static void runCall(const Request &request) {
  Worker &worker = workers[0];
  memcpy(worker.context.words, request.words, sizeof request.words);
  worker.context.words[kWorker] = worker.number;
  run.meta.seed = request.seed;
  run.step = request.step;
  run.mode = Run::Mode(request.mode);
  run.training = request.training;
  run.examples = request.examples;
  if (request.dataset >= 0) {
    run.datasets[request.dataset].examples = request.sourceExamples;
    run.source = &run.datasets[request.dataset];
  }
  if (request.windowWidth) {
    awaitBulk(links[0]);
    run.window = reinterpret_cast<const int32_t *>(piece);
  }
  if (request.checking)
    beginReplay(request.checking);
  worker.gateFailed = false;
  worker.waited = 0;
  if (stateIsNew) {
    lookAtFirstParameters();
    stateToDevice();
  }
  stateIsNew = false;
  goOnLate(worker, request);
  callWorkers(EntryCall(request.entry), request.microbatches);
  worker.context.checking = 0;
  answer(worker.gateFailed, int64_t(worker.waited * 1e9));
}

static void store(const Request &request) {
  awaitBulk(links[0]);
  Tensor &tensor = allTensors().items[request.tensor];
  tensor.fileType = FileType(request.fileType);
  tensor.transposed = request.transposed;
  storeFromFile(tensor, arenaAt(request.offset), request.part, request.first, request.count, piece);
  stateIsNew = true;
  answer(0);
}

static void sendReplay(const Request &request) {
  const Replay &replay = replayOf(ownWorker);
  if (request.entry == 0) {
    answer(replay.causes.size);
    return;
  }
  Cause *causes = allocateArray<Cause>(replay.causes.size + 1);
  causes[0] = replay.firstBad;
  for (int64_t i = 0; i < replay.causes.size; ++i)
    causes[i + 1] = replay.causes[i];
  sendBulk(causes, (replay.causes.size + 1) * int64_t(sizeof(Cause)));
}

static void sendNormals() {
  double *numbers = allocateArray<double>(normalNumbers());
  packNormals(numbers);
  sendBulk(numbers, 8 * normalNumbers());
}

void serve() {
  for (;;) {
    Request request;
    receiveControl(links[0], &request, sizeof request, 0);
    switch (request.kind) {
    case Request::OpenData: openAndReport(request); break;
    case Request::Prepare: prepare(request); break;
    case Request::Initialize:
      run.meta.seed = request.seed;
      initialize(run.meta);
      stateIsNew = true;
      answer(0);
      break;
    case Request::Call: runCall(request); break;
    case Request::Read:
      if (!stateIsNew)
        fromDevice(request.offset, request.bytes);
      sendBulk(arenaAt(request.offset), request.bytes);
      break;
    case Request::Store: store(request); break;
    case Request::Finite:
      stateFromDevice();
      answer(firstBadParameter(request.all != 0));
      break;
    case Request::Replays: sendReplay(request); break;
    case Request::GetNormals: sendNormals(); break;
    case Request::SetNormals:
      awaitBulk(links[0]);
      unpackNormals(reinterpret_cast<const double *>(piece), false);
      answer(0);
      break;
    case Request::Meet: {
      DeviceMeeting meeting = request.meeting;
      answer(device->meet(meeting));
      break;
    }
    case Request::Peak: answer(peakMemory(), run.transportBytes); break;
    case Request::Stop: answer(kStopped); break;
    }
  }
}

void openOwnFields(int dataset, const Entry *entry, FieldReport *reports) {
  const Dataset &data = openFields(dataset, entry);
  for (int64_t i = 0; i < data.spec->fields.size; ++i) {
    const FieldFile &file = data.fields[i];
    reports[i] = FieldReport();
    if (file.fd < 0)
      continue;
    reports[i] = {1, int32_t(file.raw), file.bigEndian, file.crc, file.dataEnd - file.dataOffset, file.examples, file.source.size, file.sourceCrc};
  }
}

// ---- Channels

// Waits until the word differs from `value`. Worker 0 may ask for something else meanwhile: then this step is over.
static void awaitPeer(Worker &worker, Link &link, uint32_t *word, uint32_t value, uint32_t *sleepers, Patience &patience) {
  if (awaitSpinning(word, value, patience))
    return;
  double begun = monotonicSeconds();
  struct Timed { // however this ends, unless the step does
    Worker &worker;
    double begun;
    ~Timed() { worker.waited += monotonicSeconds() - begun; }
  } timed = {worker, begun};
  TimeLimit limit(longestWait());
  while (!awaitFor(word, value, sleepers, TimeLimit::kLook)) {
    if (ownWorker != 0 && controlWaits(links[0]))
      serve();
    if (limit.isOver() && !worker.context.checking)
      lostWorker(link.worker, Loss::Waited, longestWait());
  }
}

void sendToPeer(Worker &worker, int32_t number, int64_t offset, int64_t bytes) {
  Channel &channel = channels[number];
  WireChannel &outgoing = wireChannels[number];
  const ChannelSpec &spec = *channel.spec;
  Link &link = links[spec.to];
  uint64_t message = channel.sent;
  for (uint64_t received; message - (received = __atomic_load_n(&channel.received, __ATOMIC_ACQUIRE)) >= uint64_t(spec.boxes);)
    awaitPeer(worker, link, lowHalf(channel.received), uint32_t(received), &channel.waitingSenders, channel.senderPatience);
  for (uint32_t written; (written = outgoing.written.now()) != outgoing.posted;) // the staging bytes are free
    awaitPeer(worker, link, &outgoing.written.value, written, &outgoing.written.sleepers, channel.senderPatience);
  OutFrame frame;
  frame.head.kind = FrameKind::Message;
  frame.head.number = number;
  frame.head.bytes = bytes;
  frame.payload = worker.context.arena + offset;
  frame.staging = spec.staging >= 0 ? arenaAt(spec.staging) : nullptr;
  frame.done = &outgoing.written;
  ++outgoing.posted;
  channel.sent = message + 1;
  postFrame(link, frame);
  for (uint32_t written; !frame.staging && (written = outgoing.written.now()) != outgoing.posted;)
    awaitPeer(worker, link, &outgoing.written.value, written, &outgoing.written.sleepers, channel.senderPatience);
  if (__builtin_expect(worker.context.checking, 0)) {
    MessageTag tag = checkSend(worker, offset, bytes);
    OutFrame told;
    told.head.kind = FrameKind::Tag;
    told.head.number = number;
    told.head.a = tag.causes;
    told.head.b = uint64_t(tag.clock);
    postFrame(link, told);
  }
}

void receiveFromPeer(Worker &worker, int32_t number, int64_t offset, int64_t bytes, Arrival arrival) {
  Channel &channel = channels[number];
  WireChannel &incoming = wireChannels[number];
  const ChannelSpec &spec = *channel.spec;
  Link &link = links[spec.from];
  uint64_t message = channel.received;
  while (__atomic_load_n(&channel.sent, __ATOMIC_ACQUIRE) == message)
    awaitPeer(worker, link, lowHalf(channel.sent), uint32_t(message), &channel.waitingReceivers, channel.receiverPatience);
  takeMessage(worker, arrival, worker.context.arena + offset, channel.box(message), bytes);
  if (__builtin_expect(worker.context.checking, 0)) {
    for (uint32_t tags; (tags = incoming.tagged.now()) == incoming.tagsTaken;)
      awaitPeer(worker, link, &incoming.tagged.value, tags, &incoming.tagged.sleepers, channel.receiverPatience);
    checkReceive(worker, spec.from, offset, bytes, channel.tags[incoming.tagsTaken++ % uint32_t(spec.boxes)], arrival != Arrival::Replaces);
  }
  channel.received = message + 1;
  OutFrame credit;
  credit.head.kind = FrameKind::Credit;
  credit.head.number = number;
  postFrame(link, credit);
}

// Sums are finished in the order in which they are begun.
static struct {
  Counter finished;
  uint32_t begun = 0;
  int32_t last = 0; // channel of the last one
} ownSums;

static void awaitSumsBefore(Worker &worker, uint32_t wanted) {
  Channel &channel = channels[ownSums.last];
  const ChannelSpec &spec = *channel.spec;
  for (uint32_t finished; int32_t(wanted - (finished = ownSums.finished.now())) > 0;)
    awaitPeer(worker, links[spec.from == worker.number ? spec.to : spec.from], &ownSums.finished.value, finished, &ownSums.finished.sleepers,
              channel.receiverPatience);
}

void sumAmongPeers(Worker &worker, int32_t number, int64_t offset, int64_t bytes) {
  awaitSumsBefore(worker, ownSums.begun - (kSums - 1));
  ownSums.last = number;
  ++ownSums.begun;
  postSum(worker.context.arena + offset, bytes, channels[number].spec->sums == 8, ownSums.finished);
}

void awaitSumsOfPeers(Worker &worker) { awaitSumsBefore(worker, ownSums.begun); }

static Peers makeServing() {
  Peers result = {};
  result.beginCall = [](EntryCall, int64_t) {};
  result.endCall = [] {};
  result.send = sendToPeer;
  result.receive = receiveFromPeer;
  result.sum = sumAmongPeers;
  result.awaitSums = awaitSumsOfPeers;
  return result;
}

} // namespace cinch::rt

using namespace cinch::rt;

void cinch_join_peers() {
  const Options &options = run.options;
  if (strcmp(run.meta.ownSteps, "hogwild") == 0)
    fail(kUsage, "combine hogwild: its replicas share the memory of one process; run it without a launcher, or with --transport threads");
  ownWorker = run.number;
  workerTimeout = options.workerTimeout > 0 ? options.workerTimeout : 20 * run.meta.stepSeconds > 5 ? 20 * run.meta.stepSeconds : 5;
  prepareLinks();
  if (ownWorker != 0)
    speakAs(ownWorker);
  int64_t before = residentMemory();
  if (options.transport == Transport::Mpi)
    joinByMpi();
  else
    joinByTcp();
  if (options.transport == Transport::Mpi)
    run.transportBytes = residentMemory() - before;
  if (run.meta.transportReserve && run.transportBytes > run.meta.transportReserve)
    fail(kResources, "the MPI library takes %lld bytes in this process, and the program was compiled with --transport-reserve %lld",
         (long long)run.transportBytes, (long long)run.meta.transportReserve);
  if (ownWorker == 0) {
    peers = &driving;
    return;
  }
  static const Peers serving = makeServing();
  peers = &serving;
  ignoreSignals();
  run.options.out = "";
  pieceBytes = kPieceBytes;
  for (int64_t more : (const int64_t[]){4 * run.meta.textLength + 4096, 8 * normalNumbers()})
    pieceBytes = more > pieceBytes ? more : pieceBytes;
  piece = static_cast<char *>(allocate(size_t(pieceBytes)));
  expectBulk(links[0], piece, pieceBytes);
  serve();
}
