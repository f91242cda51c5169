// PeersDrive.cpp: worker 0's questions to the other processes (PeersDevices.cpp: those about their devices).
#include "runtime/Checking.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include "runtime/Peers.h"
#include "runtime/PeersAsk.h"
#include "runtime/Run.h"
#include <string.h>

namespace cinch::rt {

namespace {

// Everybody does it at the same time.
void askAll(const Request &request) {
  forEachPeer([&](Link &link) { ask(link, request); });
  forEachPeer([&](Link &link) { answerOf(link); });
}

// What two workers read has to be the same; what worker 0 does not read itself it knows from who does.
void mergeReports(Dataset &data, const FieldReport *all, int64_t fields) {
  int64_t counter = -1; // the worker and field that the number of examples is known from
  for (int64_t at = 0; at < fields * programWorkers(); ++at) {
    const FieldReport &report = all[at];
    if (!report.open)
      continue;
    if (counter < 0)
      counter = at;
    const FieldReport &counted = all[counter];
    if (report.examples != counted.examples)
      fail(kData, "data `%s`: worker %lld reads %lld examples of `%s`, worker %lld %lld of `%s`: the files differ", data.spec->name,
           (long long)(counter / fields), (long long)counted.examples, data.spec->fields[counter % fields].name,
           (long long)(at / fields), (long long)report.examples, data.spec->fields[at % fields].name);
    if (report.sourceCrc != counted.sourceCrc || (report.sourceCrc && report.sourceBytes != counted.sourceBytes)) // rows of one file
      fail(kData, "data `%s`: worker %lld and worker %lld read different files %s: %lld bytes with checksum %08x, %lld with %08x; every worker needs the "
           "same files",
           data.spec->name, (long long)(counter / fields), (long long)(at / fields), data.spec->files[0], (long long)counted.sourceBytes,
           counted.sourceCrc, (long long)report.sourceBytes, report.sourceCrc);
  }
  for (int64_t i = 0; i < fields; ++i) {
    int64_t first = -1;
    for (int64_t worker = 0; worker < programWorkers(); ++worker) {
      const FieldReport &report = all[worker * fields + i];
      if (!report.open)
        continue;
      if (first < 0)
        first = worker;
      const FieldReport &known = all[first * fields + i];
      if (report.crc != known.crc || report.bytes != known.bytes || report.raw != known.raw || report.bigEndian != known.bigEndian)
        fail(kData, "data `%s`: field `%s` of worker %lld and of worker %lld differ: %lld bytes with checksum %08x, %lld with %08x; "
             "every worker needs the same files",
             data.spec->name, data.spec->fields[i].name, (long long)first, (long long)worker, (long long)known.bytes, known.crc,
             (long long)report.bytes, report.crc);
    }
    if (first <= 0)
      continue;
    const FieldReport &known = all[first * fields + i];
    FieldFile &file = data.fields[i];
    file.raw = RawType(known.raw);
    file.bigEndian = known.bigEndian;
    file.dataOffset = 0;
    file.dataEnd = known.bytes;
    file.crc = known.crc;
  }
  if (counter >= 0)
    takeExamples(data, all[counter].examples);
}

void openDataEverywhere(int dataset, const Entry *entry) {
  const int64_t fields = run.meta.datasets[dataset].fields.size;
  FieldReport *reports = allocateArray<FieldReport>(fields * programWorkers());
  Request request;
  request.kind = Request::OpenData;
  request.dataset = dataset;
  for (int64_t i = 0; i < run.meta.entries.size; ++i)
    if (entry == &run.meta.entries[i])
      request.entry = int32_t(i);
  for (int64_t i = 0; entry && i < entry->results.size; ++i) {
    if (entry->results[i].written)
      continue;
    if (i >= kResultBits)
      fail(kUsage, "--only: where workers are processes, it stands for the first %lld results only", (long long)kResultBits);
    request.words[i / 64] |= int64_t(1) << i % 64;
  }
  forEachPeer([&](Link &link) {
    expectBulk(link, reinterpret_cast<char *>(reports + link.worker * fields), fields * int64_t(sizeof(FieldReport)));
    ask(link, request);
  });
  openOwnFields(dataset, entry, reports);
  forEachPeer([&](Link &link) { awaitBulk(link); });
  mergeReports(run.datasets[dataset], reports, fields);
}

void findNormalsEverywhere() {
  if (!normalNumbers())
    return;
  double *numbers = allocateArray<double>(normalNumbers());
  Request request;
  request.kind = Request::GetNormals;
  forEachPeer([&](Link &link) {
    expectBulk(link, reinterpret_cast<char *>(numbers), 8 * normalNumbers());
    ask(link, request);
    awaitBulk(link);
    unpackNormals(numbers, true);
  });
}

// What is known now, from the data or from the file of the parameters, holds for the whole run.
void tellNormals() {
  static bool told = false;
  if (told || !normalNumbers())
    return;
  told = true;
  double *numbers = allocateArray<double>(normalNumbers());
  packNormals(numbers);
  Request request;
  request.kind = Request::SetNormals;
  OutFrame frame;
  frame.head.kind = FrameKind::Bulk;
  frame.head.bytes = 8 * normalNumbers();
  frame.payload = reinterpret_cast<const char *>(numbers);
  forEachPeer([&](Link &link) {
    ask(link, request);
    postFrame(link, frame);
    answerOf(link);
  });
}

void prepareEverywhere(bool touch) {
  if (wire->arenaReady)
    wire->arenaReady();
  Request request;
  request.kind = Request::Prepare;
  request.touch = touch;
  askAll(request);
  // Where steps overlap, messages of two of them are under way.
  if (device && run.options.command == Options::Train && !run.meta.overlaps)
    joinDevices();
}

void initializeEverywhere() {
  Request request;
  request.kind = Request::Initialize;
  request.seed = run.meta.seed;
  askAll(request);
}

int64_t windowWidth() {
  int64_t width = 0;
  if (const Entry *predict = run.meta.entry("predict"))
    for (const EntryField &field : predict->fields)
      if (field.index == run.meta.textField && field.bytes / (4 * predict->microbatch) > width)
        width = field.bytes / (4 * predict->microbatch);
  return width;
}

void beginCall(EntryCall entry, int64_t microbatches) {
  tellNormals();
  if (entry == EntryCall::Train && !workers[0].context.checking)
    joinGraphs();
  Request request;
  request.kind = Request::Call;
  request.entry = int32_t(entry);
  request.microbatches = microbatches;
  request.dataset = run.source ? int32_t(run.source - run.datasets) : -1;
  request.sourceExamples = run.source ? run.source->examples : 0;
  request.examples = run.examples;
  request.step = run.step;
  request.mode = int32_t(run.mode);
  request.training = run.training;
  request.checking = workers[0].context.checking;
  request.seed = run.meta.seed;
  request.late = run.late;
  request.restart = run.restarted;
  run.restarted = false;
  request.windowWidth = run.mode == Run::Generating ? int32_t(windowWidth()) : 0;
  memcpy(request.words, workers[0].context.words, sizeof request.words);
  forEachPeer([&](Link &link) {
    ask(link, request);
    if (!request.windowWidth)
      return;
    OutFrame window;
    window.head.kind = FrameKind::Bulk;
    window.head.bytes = 4 * request.windowWidth;
    window.payload = reinterpret_cast<const char *>(run.window);
    postFrame(link, window);
  });
}

// Seconds that the others waited in calls so far.
double *waitedElsewhere;

double waited(int64_t worker) { return worker && waitedElsewhere ? waitedElsewhere[worker] : workers[0].waited; }

void endCall() {
  double limit = workers[0].context.checking ? 0 : longestWait();
  if (!waitedElsewhere) {
    waitedElsewhere = allocateArray<double>(programWorkers());
    memset(waitedElsewhere, 0, size_t(programWorkers()) * sizeof(double));
  }
  forEachPeer([&](Link &link) {
    Answer answer;
    receiveControl(link, &answer, sizeof answer, limit);
    bool failed = answer.number != 0;
    waitedElsewhere[link.worker] += double(answer.more) * 1e-9;
    if (failed != workers[0].gateFailed)
      failInternal("the workers 0 and %lld differ in whether the step's loss and norm are finite", (long long)link.worker);
  });
}

void readElsewhere(int64_t offset, char *into, int64_t bytes) {
  Link &link = links[ownerOf(offset)];
  Request request;
  request.kind = Request::Read;
  request.offset = offset;
  request.bytes = bytes;
  expectBulk(link, into, bytes);
  ask(link, request);
  awaitBulk(link);
}

void storeElsewhere(const TensorList &tensors, int64_t number, int64_t offset, int64_t part, int64_t first, int64_t count, const char *values, int64_t bytes) {
  const Tensor &tensor = tensors.items[number];
  Link &link = links[ownerOf(offset)];
  Request request;
  request.kind = Request::Store;
  request.offset = offset;
  request.tensor = number;
  request.part = part;
  request.first = first;
  request.count = count;
  request.bytes = bytes;
  request.fileType = int32_t(tensor.fileType);
  request.transposed = tensor.transposed;
  ask(link, request);
  OutFrame frame;
  frame.head.kind = FrameKind::Bulk;
  frame.head.bytes = bytes;
  frame.payload = values;
  postFrame(link, frame);
  answerOf(link);
}

int64_t firstBadElsewhere(bool all) {
  Request request;
  request.kind = Request::Finite;
  request.all = all;
  int64_t least = -1;
  forEachPeer([&](Link &link) { ask(link, request); });
  forEachPeer([&](Link &link) {
    int64_t bad = answerOf(link);
    if (bad >= 0 && (least < 0 || bad < least))
      least = bad;
  });
  return least;
}

void fetchReplays() {
  Request request;
  request.kind = Request::Replays;
  forEachPeer([&](Link &link) {
    request.entry = 0; // how many causes
    ask(link, request);
    int64_t count = answerOf(link);
    Cause *causes = allocateArray<Cause>(count + 1); // the first is firstBad
    request.entry = 1;
    expectBulk(link, reinterpret_cast<char *>(causes), (count + 1) * int64_t(sizeof(Cause)));
    ask(link, request);
    awaitBulk(link);
    Replay &replay = replayOf(link.worker);
    replay.firstBad = causes[0];
    replay.causes.size = 0;
    for (int64_t i = 0; i < count; ++i)
      replay.causes.add() = causes[i + 1];
  });
}

int64_t peakElsewhere(int64_t worker, int64_t &transportBytes) {
  Request request;
  request.kind = Request::Peak;
  ask(links[worker], request);
  Answer answer;
  receiveControl(links[worker], &answer, sizeof answer, 0);
  transportBytes = answer.more;
  return answer.number;
}

void stopEverywhere() {
  Request request;
  forEachPeer([&](Link &link) { ask(link, request); });
  forEachPeer([&](Link &link) {
    // Who was done with the step already said so before.
    if (answerOf(link) != kStopped)
      answerOf(link);
  });
}

} // namespace

const Peers driving = {
    openDataEverywhere, findNormalsEverywhere, prepareEverywhere, initializeEverywhere, beginCall,     endCall,        waited,
    readElsewhere,      storeElsewhere,        firstBadElsewhere, fetchReplays,         peakElsewhere, stopEverywhere, sendToPeer,
    receiveFromPeer,    sumAmongPeers, awaitSumsOfPeers};

} // namespace cinch::rt
