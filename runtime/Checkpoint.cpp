// Checkpoint.cpp: see Checkpoint.h. A slot of the optimizer is called `optimizer/PATH`: no parameter has a slash in its
// path.
#include "runtime/Checkpoint.h"
#include "runtime/Device.h"
#include "runtime/Logs.h"
#include "runtime/LossMeans.h"
#include "runtime/Normalize.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/TensorFile.h"
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

namespace cinch::rt {

static TensorList parameters, everything;
static List<Path> folders; // under OUT, without doubles
static int *folderOfRule;  // one a rule of meta.every
static List<Note> notes;     // of the run that saves
static List<DataMark> marks; // one a field of the data that the program trains on
static int64_t savedStep = -1;
static double *bestOfRule;    // NaN: none yet
static int64_t *waitedOfRule; // evaluations since the best one, of a rule with `patience`
static int64_t passedOver = 0; // checkpoints that `loadNewest` found damaged; the newest of them is `damaged`
static Path damaged;

static int folderNumber(const char *dir) {
  Path path;
  joinPath(path, run.options.out, dir[0] ? dir : "checkpoints");
  for (int64_t i = 0; i < folders.size; ++i)
    if (strcmp(folders[i].text, path.text) == 0)
      return int(i);
  folders.add() = path;
  return int(folders.size) - 1;
}

void prepareCheckpoints() {
  const Meta &meta = run.meta;
  int64_t ofReplicas = 0;
  for (const Parameter &parameter : meta.parameters)
    ofReplicas += parameter.own ? 1 + parameter.copies.size : 0;
  for (const Stored &slot : meta.slots)
    ofReplicas += slot.own ? 1 + slot.copies.size : 0;
  everything.items = allocateArray<Tensor>(meta.parameters.size + 2 * normals().size + meta.slots.size + ofReplicas);
  auto addAt = [&](const Stored &stored, int64_t offset, const char *name) {
    Tensor &tensor = everything.items[everything.count++];
    tensor = Tensor();
    tensor.name = name;
    tensor.elem = stored.elem;
    tensor.shape = &stored.shape;
    tensor.offset = offset;
    tensor.data = isHere(offset) ? arenaAt(offset) : nullptr;
    tensor.before = stored.before, tensor.parts = stored.parts;
    return &tensor;
  };
  auto add = [&](const Stored &stored, const char *prefix) {
    Text name;
    name.add("%s%s", prefix, stored.path);
    Tensor *tensor = addAt(stored, stored.offset, prefix[0] ? copyText(name.data, name.size) : stored.path);
    tensor->copies = &stored.copies;
    tensor->averaged = stored.averaged;
  };
  // What each replica has of its own, behind what stands for all: their average, or the first one's.
  auto addOfReplicas = [&](const Stored &stored, const char *prefix) {
    for (int64_t d = stored.averaged ? 0 : 1; stored.own && d <= stored.copies.size; ++d) {
      Text name, all;
      name.add("%s%lld/%s%s", kOfReplica, (long long)d, prefix, stored.path);
      all.add("%s%s", prefix, stored.path);
      Tensor *tensor = addAt(stored, d ? stored.copies[d - 1] : stored.offset, copyText(name.data, name.size));
      tensor->likeIfMissing = stored.startsAs[0] && !stored.averaged ? stored.startsAs : copyText(all.data, all.size);
    }
  };
  for (const Parameter &parameter : meta.parameters) {
    add(parameter, "");
    everything.items[everything.count - 1].likeIfMissing = parameter.averageOf; // training without `ema` saved none
  }
  for (const Normal &normal : normals())
    for (int part = 0; part < 2; ++part) {
      bool isMean = part == 0;
      Tensor &tensor = everything.items[everything.count++];
      tensor = Tensor();
      tensor.name = isMean ? normal.meanName : normal.deviationName;
      tensor.elem = Elem::F64;
      tensor.shape = &normal.shape;
      tensor.numbers = isMean ? Tensor::Finite : Tensor::Positive;
      tensor.data = reinterpret_cast<char *>(isMean ? normal.mean : normal.deviation);
      tensor.ofData = true;
      tensor.optional = run.options.command == Options::Train; // else they are those of the training data
    }
  parameters = {everything.items, everything.count};
  for (const Stored &slot : meta.slots)
    add(slot, "optimizer/");
  for (const Parameter &parameter : meta.parameters)
    addOfReplicas(parameter, "");
  for (const Stored &slot : meta.slots)
    addOfReplicas(slot, "optimizer/");
  folderOfRule = allocateArray<int>(meta.every.size);
  bestOfRule = allocateArray<double>(meta.every.size);
  waitedOfRule = allocateArray<int64_t>(meta.every.size);
  for (int64_t i = 0; i < meta.every.size; ++i) {
    bestOfRule[i] = __builtin_nan("");
    waitedOfRule[i] = 0;
    if (meta.every[i].kind == Every::Checkpoint)
      folderOfRule[i] = folderNumber(meta.every[i].dir);
  }
  if (folders.size == 0)
    folderNumber("checkpoints");
}

void markTrainingData() {
  const Dataset &data = run.datasets[run.meta.trainDataset];
  for (int64_t i = 0; i < data.spec->fields.size; ++i) {
    const FieldFile &file = data.fields[i];
    DataMark &mark = marks.add();
    Path path; // of a csv file itself, not of its values
    joinPath(path, run.options.data, data.spec->files[i < data.spec->files.size ? i : 0]);
    mark.field = data.spec->fields[i].name;
    mark.path = copyText(path.text, strlen(path.text));
    snprintf(mark.type, sizeof mark.type, "%s%s", file.bigEndian ? ">" : "<", nameOf(file.raw)); // of few letters: it stands in every checkpoint
    mark.bytes = file.dataEnd - file.dataOffset;
    mark.crc = file.crc;
  }
}

static const char *orderOf(const DataMark &mark) { return mark.type[0] == '>' ? "big-endian " : ""; }

// The values are those that the checkpoint was trained on, wherever the files lie now.
static void checkSameData(const char *checkpoint, const List<DataMark> &then) {
  Text unknown;
  for (int64_t i = 0; i < marks.size; ++i) {
    const DataMark &now = marks[i], &before = then[i];
    char difference[120] = "";
    if (!before.type[0])
      unknown.add("%s%s", unknown.size ? ", " : "", now.path);
    else if (strcmp(now.type, before.type) != 0)
      snprintf(difference, sizeof difference, "values of type %s%s, then %s%s", orderOf(now), now.type + 1, orderOf(before), before.type + 1);
    else if (now.bytes != before.bytes)
      snprintf(difference, sizeof difference, "%lld bytes of values, then %lld", (long long)now.bytes,
               (long long)before.bytes);
    else if (now.crc != before.crc)
      snprintf(difference, sizeof difference, "values with the checksum %08x, then %08x", now.crc, before.crc);
    if (difference[0])
      fail(kData,
           "%s is not what it was when the checkpoint %s was saved: field `%s` has %s; bring the old data back, or train "
           "afresh, without --resume",
           now.path, checkpoint, now.field, difference);
  }
  if (unknown.size)
    warn("the checkpoint %s does not say which data it was trained on: that %s did not change since is not checked",
         checkpoint, unknown.data);
}

static void pathOfStep(Path &path, int folder, int64_t step) {
  char name[64];
  snprintf(name, sizeof name, "step-%08lld.safetensors", (long long)step);
  joinPath(path, folders[folder].text, name);
}

// The size of the name of a file behind that of one that is not written to its end; -1: it is written.
static int64_t sizeBehind(const char *name) {
  const int64_t size = sizeBehindTemporary(name), all = int64_t(strlen(name));
  if (size >= 0)
    return size;
  return all > 4 && strcmp(name + all - 4, ".tmp") == 0 ? all - 4 : -1; // as runs of earlier versions called it
}

// Of a name as pathOfStep makes it, with eight digits, or more if the step has them: a file of another name would not be found under that of its
// step. -1: it is none.
static int64_t stepOfName(const char *name) {
  if (strncmp(name, "step-", 5) != 0)
    return -1;
  const char *digits = name + 5;
  const size_t count = strspn(digits, "0123456789");
  if (count < 8 || count > 18 || (count > 8 && digits[0] == '0') || strcmp(digits + count, ".safetensors") != 0)
    return -1;
  return strtoll(digits, nullptr, 10);
}

// What a run writes into a folder of checkpoints, or into that of events, written to its end or not.
static bool isOfRun(const char *name) {
  const int64_t size = sizeBehind(name);
  Text whole;
  whole.add("%.*s", int(size < 0 ? int64_t(strlen(name)) : size), name);
  return stepOfName(whole.data) >= 0 || strcmp(whole.data, "best.safetensors") == 0 || strcmp(whole.data, kEventFile) == 0;
}

static void deleteOld(int rule);

static bool save(int rule, bool pending, Path *saved, SecondName *second) {
  TensorFileInfo info;
  snprintf(info.kind, sizeof info.kind, "checkpoint 1");
  snprintf(info.program, sizeof info.program, "%s", run.meta.program);
  snprintf(info.hash, sizeof info.hash, "%s", run.meta.hash);
  info.step = run.step;
  info.pending = pending;
  info.last[0] = run.loss;
  info.last[1] = run.norm;
  info.last[2] = run.learningRate;
  info.data = marks;
  notes.size = 0;
  takeNotes(notes);
  takeMeans(notes);
  info.notes = notes;
  size_t used = 0;
  for (int64_t i = 0; i < run.meta.every.size; ++i)
    if ((bestOfRule[i] == bestOfRule[i] || waitedOfRule[i]) && used < sizeof info.best) {
      char number[40], waited[24] = "";
      if (run.meta.every[i].patience)
        snprintf(waited, sizeof waited, ":%lld", (long long)waitedOfRule[i]);
      used += size_t(snprintf(info.best + used, sizeof info.best - used, "%lld:%s:%s%s ", (long long)i,
                              run.meta.every[i].best, exact(number, bestOfRule[i], false), waited));
    }
  int folder = rule >= 0 ? folderOfRule[rule] : 0;
  Path path;
  pathOfStep(path, folder, run.step);
  stateFromDevice();
  if (!makeFolders(folders[folder].text) || !writeTensorFile(path.text, everything, info, second)) {
    if (second && second->error)
      return false;
    warn("step %lld: the checkpoint %s could not be written: %s; training goes on", (long long)run.step, path.text,
         strerror(errno));
    return false;
  }
  savedStep = run.step;
  if (saved)
    *saved = path;
  if (rule < 0)
    for (int64_t i = 0; i < run.meta.every.size && rule < 0; ++i)
      if (run.meta.every[i].kind == Every::Checkpoint)
        deleteOld(rule = int(i));
  return true;
}

bool saveCheckpoint(int rule, bool pending, Path *saved) { return save(rule, pending, saved, nullptr); }

static bool isBetter(int rule, double value) {
  static bool warned = false;
  double best = bestOfRule[rule];
  if (value != value && run.meta.every[rule].best[0] && !warned) {
    warn("step %lld: `%s`, by which the best is found, is not a number: it counts as no better", (long long)run.step, run.meta.every[rule].best);
    warned = true;
  }
  return value == value && (best != best || (run.meta.every[rule].bestIsMax ? value > best : value < best));
}

void countEvaluation(int rule, double value) {
  if (isBetter(rule, value)) {
    bestOfRule[rule] = value;
    waitedOfRule[rule] = 0;
  } else {
    ++waitedOfRule[rule];
  }
}

int ruleOutOfPatience() {
  for (int64_t i = 0; i < run.meta.every.size; ++i)
    if (run.meta.every[i].patience && waitedOfRule[i] >= run.meta.every[i].patience)
      return int(i);
  return -1;
}

// The best one has its name before the checkpoint has: a run that is killed between the two resumes before it, and finds it once more.
bool saveWithBest(int rule, double value) {
  double before = bestOfRule[rule];
  Path best;
  SecondName second;
  if (isBetter(rule, value)) {
    bestOfRule[rule] = value; // the file itself tells how good it is
    joinPath(best, folders[folderOfRule[rule]].text, "best.safetensors");
    second.path = best.text;
  }
  bool saved = save(rule, false, nullptr, second.path ? &second : nullptr);
  if (!second.named)
    bestOfRule[rule] = before;
  if (second.error) {
    warn("step %lld: %s could not be written: %s", (long long)run.step, best.text, strerror(second.error));
    saved = saveCheckpoint(rule, false, nullptr); // as one that is not the best
  }
  if (saved)
    deleteOld(rule);
  return saved;
}

namespace {

struct Oldest {
  int64_t after = -1; // steps until here are left out
  int64_t count = 0, step = INT64_MAX;
};

void countSteps(void *closure, const char *name) {
  Oldest &oldest = *static_cast<Oldest *>(closure);
  int64_t step = stepOfName(name);
  if (step <= oldest.after)
    return;
  ++oldest.count;
  if (step < oldest.step && step != run.step)
    oldest.step = step;
}

struct Candidate {
  int64_t step;
  int folder;
};
// Those of the same step in the order of their folders.
bool isBehind(const Candidate &a, const Candidate &b) { return a.step < b.step || (a.step == b.step && a.folder > b.folder); }

// The newest checkpoints behind the one that was tried last. Folders may hold any number of them, and what is allocated is never freed: so
// they are a few at a time, and the folders are listed again for the next ones.
struct Candidates {
  static constexpr int kMost = 64;
  Candidate list[kMost], tried = {INT64_MAX, -1};
  int count = 0, folder = 0; // the folder that is listed now
};

void gather(void *closure, const char *name) {
  Candidates &candidates = *static_cast<Candidates *>(closure);
  const Candidate found = {stepOfName(name), candidates.folder};
  if (found.step < 0 || !isBehind(found, candidates.tried))
    return;
  int at = candidates.count;
  if (at < Candidates::kMost)
    ++candidates.count;
  else if (isBehind(found, candidates.list[--at]))
    return;
  for (; at > 0 && isBehind(candidates.list[at - 1], found); --at)
    candidates.list[at] = candidates.list[at - 1];
  candidates.list[at] = found;
}

// What a run left behind that was killed while it wrote.
void removeUnfinished(void *closure, const char *name) {
  if (sizeBehind(name) < 0 || !isOfRun(name))
    return;
  Path path;
  joinPath(path, static_cast<const Path *>(closure)->text, name);
  unlink(path.text);
}

// A folder that is not there holds nothing.
void listCheckpoints(int folder, void (*visit)(void *, const char *), void *closure) {
  if (!listFolder(folders[folder].text, visit, closure) && errno != ENOENT && errno != ENOTDIR)
    fail(kData, "cannot look for checkpoints in %s: %s", folders[folder].text, strerror(errno));
}

// False: there is no further one.
bool gatherNext(Candidates &candidates) {
  candidates.count = 0;
  for (candidates.folder = 0; candidates.folder < folders.size; ++candidates.folder)
    listCheckpoints(candidates.folder, gather, &candidates);
  return candidates.count > 0;
}

// What a checkpoint is asked for. Every candidate is read into the same lists: the last one, which is taken, leaves its answers there.
void prepareQuestions(TensorFileInfo &questions) {
  questions.data.reserve(marks.size);
  for (const DataMark &mark : marks)
    questions.data.add().field = mark.field;
  takeNotes(questions.notes);
  takeMeans(questions.notes);
}

void clearAnswers(TensorFileInfo &questions) {
  for (DataMark &mark : questions.data) {
    const char *field = mark.field;
    mark = DataMark();
    mark.field = field;
  }
  for (Note &note : questions.notes)
    note.text[0] = 0;
}

void restoreBest(const char *text) {
  while (*text) {
    char *end;
    long long rule = strtoll(text, &end, 10);
    const char *metric = end + 1, *number = *end == ':' ? strchr(metric, ':') : nullptr;
    if (!number)
      return;
    double value = strtod(number + 1, &end);
    long long waited = *end == ':' ? strtoll(end + 1, &end, 10) : 0;
    // Rules may have changed since.
    if (rule >= 0 && rule < run.meta.every.size && size_t(number - metric) == strlen(run.meta.every[rule].best) &&
        strncmp(metric, run.meta.every[rule].best, size_t(number - metric)) == 0) {
      bestOfRule[rule] = value;
      waitedOfRule[rule] = waited;
    }
    if (*end != ' ')
      return;
    text = end + 1;
  }
}

// Whether it is sound; then its tensors and `info` are taken.
bool loadCandidate(const Path &path, TensorList &wanted, const Taking &taking, const TensorFileInfo &questions, TensorFileInfo &info) {
  TensorFile file;
  Problem problem;
  file.info = questions;
  bool good = file.open(path.text, wanted, taking, problem);
  Problem damage;
  if (file.info.hash[0] && strcmp(file.info.hash, run.meta.hash) != 0 && file.verify(damage))
    refuseProgram(path.text, file.info.notes, problem.text);
  if (good && (file.info.step < 0 || !file.info.check[0])) {
    problem.set("it has no position: it is no checkpoint of a training");
    good = false;
  }
  if (good && file.verify(problem) && file.load(wanted, problem)) {
    info = file.info;
    return true;
  }
  warn("the checkpoint %s is passed over: %s", path.text, problem.text);
  if (passedOver++ == 0)
    damaged = path;
  return false;
}

// False: there is none that can be read; `passedOver` says how many were tried. `cleans`: what was not written to its end goes. A run that trains
// may do so, since no other one writes to its folder; who only looks at checkpoints may see one that is being written.
bool loadNewest(TensorList &wanted, const Taking &taking, bool cleans, const char *&name, TensorFileInfo &info) {
  passedOver = 0;
  for (int folder = 0; cleans && folder < folders.size; ++folder)
    listCheckpoints(folder, removeUnfinished, &folders[folder]);
  TensorFileInfo questions;
  prepareQuestions(questions);
  Candidates candidates;
  while (gatherNext(candidates))
    for (int i = 0; i < candidates.count; ++i) {
      candidates.tried = candidates.list[i];
      Path path;
      pathOfStep(path, candidates.tried.folder, candidates.tried.step);
      clearAnswers(questions);
      if (loadCandidate(path, wanted, taking, questions, info)) {
        name = copyText(path.text, strlen(path.text));
        return true;
      }
    }
  return false;
}

} // namespace

// One that cannot be deleted stays, and does not keep those behind it.
static void deleteOld(int rule) {
  static bool warned = false;
  int64_t after = -1;
  int64_t keep = run.meta.every[rule].keep;
  int folder = folderOfRule[rule];
  if (keep < 1)
    return;
  for (;;) {
    Oldest oldest;
    Path path;
    oldest.after = after;
    if (!listFolder(folders[folder].text, countSteps, &oldest) || oldest.count <= keep || oldest.step == INT64_MAX)
      return;
    pathOfStep(path, folder, oldest.step);
    if (unlink(path.text) == 0)
      continue;
    if (!warned)
      warn("the checkpoint %s is too old, but cannot be deleted: %s", path.text, strerror(errno));
    warned = true;
    after = oldest.step;
  }
}

int64_t lastSavedStep() { return savedStep; }

const char *whatToGoOnFrom() {
  if (!run.training)
    return "";
  return savedStep >= 0 ? "; the last checkpoint is intact, --resume goes on from it" : "; no checkpoint had been written yet";
}

bool resumeNewest(const char *&name) {
  TensorFileInfo info;
  if (!loadNewest(everything, Taking(), true, name, info)) {
    if (passedOver)
      fail(kData,
           "--resume: none of the checkpoints under %s can be read; %lld %s passed over, the newest is %s. Bring a sound one back, or "
           "begin anew without --resume: what is there is then renamed to *.previous",
           run.options.out, (long long)passedOver, passedOver == 1 ? "is" : "are", damaged.text);
    return false;
  }
  checkSameData(name, info.data);
  adoptValues(name, info.notes);
  run.step = info.step;
  savedStep = info.step;
  run.pending = info.pending;
  run.loss = info.last[0];
  run.norm = info.last[1];
  run.learningRate = info.last[2];
  adoptMeans(info.notes);
  restoreBest(info.best);
  return true;
}

bool loadNewestParameters(const char *&name) {
  TensorFileInfo info;
  Taking taking;
  taking.ignored = "optimizer/";
  bool found = loadNewest(parameters, taking, false, name, info);
  if (!found && passedOver)
    fail(kData,
         "no parameters: %s/final.safetensors is not there, and none of the checkpoints can be read; %lld %s passed over, the newest is "
         "%s. Bring a sound file back, or name one with --init",
         run.options.out, (long long)passedOver, passedOver == 1 ? "is" : "are", damaged.text);
  return found;
}

TensorList &parameterTensors() { return parameters; }
TensorList &allTensors() { return everything; }

void writeFinal() {
  Path path;
  joinPath(path, run.options.out, "final.safetensors");
  stateFromDevice();
  if (!writeTensorFile(path.text, parameters, TensorFileInfo()))
    fail(kResources, "the final parameters could not be written to %s: %s", path.text, strerror(errno));
}

// What a new run moves out of its way: files and folders under OUT.
template <class Visit> static void visitEarlierRun(Visit visit) {
  const char *names[] = {"final.safetensors", "log.csv", "log.jsonl", "log.html", "tensorboard"};
  Path path;
  for (const char *name : names) {
    joinPath(path, run.options.out, name);
    visit(path.text);
  }
  for (int64_t i = 0; i < folders.size; ++i)
    visit(folders[i].text);
}

// Whether `file` is `place`, or one of a run's files in the folder `place`, behind links.
static bool goesWith(const char *file, const char *place) {
  char whole[PATH_MAX], outer[PATH_MAX];
  if (!realpath(file, whole) || !realpath(place, outer))
    return false;
  size_t size = strlen(outer);
  return strncmp(whole, outer, size) == 0 && (whole[size] == 0 || (whole[size] == '/' && isOfRun(whole + size + 1)));
}

// Whether setEarlierRunAside would move `file` or remove it.
static bool goesAside(const char *file) {
  bool found = false;
  visitEarlierRun([&](const char *path) {
    Path previous;
    const bool goes = nameAside(previous, path, isOfRun);
    found |= goesWith(file, path) || (goes && exists(path) && goesWith(file, previous.text));
  });
  return found;
}

void keepInitFile(const char *file) {
  if (goesAside(file))
    fail(kUsage,
         "the parameters of %s would be lost: this run moves what an earlier one left under %s out of its way, and the run behind it removes "
         "that; copy the file to another folder, or choose another folder with --out",
         file, run.options.out);
}

void keepDataFiles() {
  for (const DatasetSpec &spec : run.meta.datasets)
    for (const char *name : spec.files) {
      Path file;
      joinPath(file, spec.folder ? spec.folder : run.options.data, name);
      if (goesAside(file.text))
        fail(kUsage,
             "the data file %s would be lost: a run writes files of this name under %s, and moves those of an earlier one out of its way; give the "
             "file another name, or choose another folder with --out",
             file.text, run.options.out);
    }
}

void setEarlierRunAside() {
  bool any = false, replaced = false;
  visitEarlierRun([&](const char *path) {
    const Aside aside = setAside(path, isOfRun);
    any |= aside != Aside::Nothing;
    replaced |= aside == Aside::Replaced;
  });
  const char *lost = replaced ? "; the *.previous of the run before that one are gone" : "";
  if (any && !run.options.quiet)
    say("what an earlier run left in %s was renamed to *.previous%s", run.options.out, lost);
  else if (replaced)
    warn("what an earlier run left in %s was renamed to *.previous%s", run.options.out, lost);
}

namespace {
struct Elsewhere {
  const char *folder;
  Path found; // the first folder in it that holds checkpoints
};
} // namespace

static void findSteps(void *closure, const char *name) { *static_cast<bool *>(closure) |= stepOfName(name) >= 0; }

static void findFolder(void *closure, const char *name) {
  Elsewhere &elsewhere = *static_cast<Elsewhere *>(closure);
  Path path;
  bool holds = false;
  joinPath(path, elsewhere.folder, name);
  if (!elsewhere.found.text[0] && listFolder(path.text, findSteps, &holds) && holds)
    elsewhere.found = path;
}

void sayNoCheckpoint() {
  Text looked;
  for (int64_t i = 0; i < folders.size; ++i)
    looked.add("%s%s", i ? " or " : "", folders[i].text);
  Elsewhere elsewhere = {run.options.out, {}};
  listFolder(run.options.out, findFolder, &elsewhere);
  say("there is no checkpoint in %s to resume from: starting afresh", looked.data);
  if (elsewhere.found.text[0])
    say("%s holds checkpoints, but the program does not keep its own there; renamed to %s, they can be resumed from", elsewhere.found.text,
        folders[0].text);
}

} // namespace cinch::rt
