// Values.cpp: see Values.h.
#include "runtime/Values.h"
#include "runtime/EditDistance.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/TensorFile.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

namespace {

bool seedGiven = false, stepsGiven = false;
uint64_t fileSeed = 0;
int64_t fileSteps = 0, fileEpochs = 0; // of the program itself; steps from its epochs when the examples are counted

// A number as the language writes it: digits, perhaps a point with digits behind it, perhaps an exponent; in the range that the
// compiler takes (parseNumber).
bool readNumber(const char *text, double &value) {
  const char *at = text;
  auto digits = [&] {
    const char *begin = at;
    while (*at >= '0' && *at <= '9')
      ++at;
    return at > begin;
  };
  if (!digits() || (*at == '.' && (++at, !digits())))
    return false;
  if (*at == 'e' || *at == 'E') {
    ++at;
    if (*at == '+' || *at == '-')
      ++at;
    if (!digits())
      return false;
  }
  if (*at)
    return false;
  value = strtod(text, nullptr);
  if (value == 0x1p53 && !text[strspn(text, "0123456789")] && strtoull(text, nullptr, 10) > (1ull << 53))
    value = 0x1p53 + 2; // 2^53 + 1 is rounded to 2^53, the last whole number that is taken
  const char *first = text + strcspn(text, "123456789eE"); // digit that is not 0
  bool zero = *first < '1' || *first > '9';
  return zero || (value < 1e300 && value >= __DBL_MIN__);
}

bool holds(RunValue::Kind kind, double value) {
  bool whole = value <= 0x1p53 && value == double(int64_t(value));
  switch (kind) {
  case RunValue::AtLeast0: return value >= 0;
  case RunValue::Positive: return value > 0;
  case RunValue::Below1: return value >= 0 && value < 1;
  case RunValue::Count: return whole && value >= 1;
  case RunValue::Whole: return whole && value >= 0;
  }
  return false;
}

const char *nameOf(RunValue::Kind kind) {
  static const char *names[] = {"a number of at least 0", "a number above 0", "a number in [0, 1)",
                                "a whole number from 1 to 2^53", "a whole number from 0 to 2^53"};
  return names[int(kind)];
}

// How notes of a checkpoint call a value: `lr`, and that of the second optimizer that has one `lr.2`.
void labelOf(int64_t number, char (&label)[48]) {
  const List<RunValue> &values = run.meta.values;
  int same = 1;
  for (int64_t i = 0; i < number; ++i)
    same += strcmp(values[i].key, values[number].key) == 0;
  snprintf(label, sizeof label, same > 1 ? "%s.%d" : "%s", values[number].key, same);
}

// How it is set alone: the first one of several is `lr.1`, since `lr` sets them all.
void nameAlone(int64_t number, char (&name)[48]) {
  const List<RunValue> &values = run.meta.values;
  labelOf(number, name);
  for (int64_t i = number + 1; i < values.size; ++i)
    if (strcmp(name, values[i].key) == 0)
      snprintf(name, sizeof name, "%s.1", values[i].key);
}

bool isSetBy(const char *key, int64_t i) {
  char name[48];
  nameAlone(i, name);
  return strcmp(run.meta.values[i].key, key) == 0 || strcmp(name, key) == 0;
}

void setValue(const char *written, const char *key, const char *text) {
  Meta &meta = run.meta;
  double value = 0;
  bool number = readNumber(text, value), any = false, several = false;
  Text all; // those that are set: all of them or, where one is refused, none
  for (int64_t i = 0; i < meta.values.size; ++i) {
    RunValue &each = meta.values[i];
    char name[48];
    nameAlone(i, name);
    if (!isSetBy(key, i))
      continue;
    all.add("%s%s", any ? ", " : "", name);
    several = any;
    any = true;
    const bool turnsOff = each.zeroDecides && number && value == 0; // the range of `clip` begins above 0
    if (!number || (!holds(each.kind, value) && !turnsOff))
      fail(kUsage, "--set %s: `%s` must be %s%s", written, key, nameOf(each.kind), number || *text == '-' ? "" : ", in digits, neither tiny nor huge: 0.01 or 1e-2");
    if (each.zeroDecides && (value == 0) != (each.file == 0)) {
      char now[40];
      fail(kUsage,
           "--set %s: this program was compiled with %s %s, and whether that is 0 makes another computation; compile again, "
           "with --set %s",
           written, key, exact(now, each.file, false), written);
    }
  }
  for (int64_t i = 0; i < meta.values.size; ++i)
    if (RunValue &each = meta.values[i]; isSetBy(key, i)) {
      each.now = value;
      each.given = true;
    }
  if (several && !run.options.quiet)
    say("--set %s sets %s", written, all.data);
  if (any)
    return;
  static const char *const compiled[] = {"grain", "precision", "momentum", "decay", "clip", "clip_value", "eps", "alpha",
                                         "beta1", "beta2", "ema", "end", "power", "factor"};
  for (int i = 0; i < int(sizeof compiled / sizeof *compiled); ++i)
    if (const char *each = compiled[i]; strcmp(each, key) == 0)
      fail(kUsage, "--set %s: `%s` %s; change the program and compile again", written, key,
           strcmp(key, "grain") == 0 || strcmp(key, "precision") == 0 ? "is decided when compiling" : "is no value of this program");
  const char *nearest = nullptr;
  int least = mostEdits(key) + 1;
  auto offer = [&](const char *known) {
    int distance = editDistance(key, known);
    if (distance < least)
      least = distance, nearest = known;
  };
  for (const RunValue &each : meta.values)
    offer(each.key);
  offer("seed");
  offer("steps");
  offer("epochs");
  if (strcmp(key, "learning_rate") == 0)
    nearest = "lr";
  if (strcmp(key, "weight_decay") == 0)
    nearest = "decay";
  bool isUpper = key[0] >= 'A' && key[0] <= 'Z'; // as sizes are called, as a rule
  fail(kUsage, "--set %s: unknown key `%s`%s%s%s (`info` lists them); %s", written, key, nearest && !isUpper ? "; did you mean `" : "",
       nearest && !isUpper ? nearest : "", nearest && !isUpper ? "`?" : "", "a size or a constant of the program is given when compiling: cinch FILE -D NAME=VALUE");
}

void setSeed(const char *written, const char *text) {
  char *end;
  errno = 0;
  unsigned long long seed = strtoull(text, &end, 10);
  if (text[0] < '0' || text[0] > '9' || *end || errno)
    fail(kUsage, "--set %s: the seed must be a whole number below 2^64", written);
  run.meta.seed = seed;
  seedGiven = true;
}

void setLength(const char *written, const char *key, const char *text, int64_t &length, int64_t &other) {
  double value;
  if (!readNumber(text, value) || !holds(RunValue::Count, value))
    fail(kUsage, "--set %s: `%s` must be a whole number from 1 to 2^53", written, key);
  length = int64_t(value);
  other = 0;
  stepsGiven = true;
}

const char *noteOf(const List<Note> &notes, const char *kind, const char *key) {
  char name[64];
  snprintf(name, sizeof name, "%s.%s", kind, key);
  for (const Note &note : notes)
    if (strcmp(note.key, name) == 0)
      return note.text;
  return "";
}

void add(List<Note> &notes, const char *kind, const char *key, const char *text) {
  Note &note = notes.add();
  snprintf(note.key, sizeof note.key, "%s.%s", kind, key);
  snprintf(note.text, sizeof note.text, "%s", text);
}

// What becomes of one value when a checkpoint is resumed from.
enum class Fate { Same, AsCheckpoint, AsGiven, Unclear };
// `then`: of the run that saved it, and of its program; `now`: of this program, and as --set says.
Fate fateOf(const char *runThen, const char *fileThen, const char *fileNow, bool given, const char *givenNow) {
  if (given)
    return strcmp(givenNow, runThen) == 0 ? Fate::Same : Fate::AsGiven;
  if (strcmp(fileNow, runThen) == 0)
    return Fate::Same;
  return strcmp(fileNow, fileThen) == 0 ? Fate::AsCheckpoint : Fate::Unclear;
}

void sayLine(const char *what, const char *then, const char *now, const char *why) {
  if (!run.options.quiet)
    say("  %s: %s in the checkpoint, %s here%s", what, then, now, why);
}

} // namespace

int64_t programSteps(int64_t examples) {
  const Meta &meta = run.meta;
  if (!meta.steps && meta.epochs > INT64_MAX / examples)
    fail(kData, "%lld epochs of %lld examples are too many to count", (long long)meta.epochs, (long long)examples);
  int64_t steps = meta.steps ? meta.steps : meta.epochs * examples / meta.batch;
  if (steps == 0 && run.options.steps != 0) // --steps 0 wants none
    fail(kData, "%lld epoch%s of %lld example%s are less than one batch of %lld: nothing would be trained. --set epochs=%lld makes a step, "
                "--set steps=N makes N; or compile the program with a smaller batch",
         (long long)meta.epochs, meta.epochs == 1 ? "" : "s", (long long)examples, examples == 1 ? "" : "s", (long long)meta.batch,
         (long long)((meta.batch + examples - 1) / examples));
  if (fileEpochs)
    fileSteps = fileEpochs > INT64_MAX / examples ? 0 : fileEpochs * examples / meta.batch;
  return steps;
}

void applySettings() {
  Meta &meta = run.meta;
  fileSeed = meta.seed;
  fileSteps = meta.steps, fileEpochs = meta.epochs;
  for (const char *written : run.options.settings) {
    const char *equal = strchr(written, '=');
    char key[64];
    const char *name = strncmp(written, "train.", 6) == 0 ? written + 6 : written;
    if (!equal || equal == name)
      fail(kUsage, "--set expects KEY=VALUE, got `%s`", written);
    snprintf(key, sizeof key, "%.*s", int(equal - name < 63 ? equal - name : 63), name);
    if (strcmp(key, "seed") == 0)
      setSeed(written, equal + 1);
    else if (strcmp(key, "steps") == 0)
      setLength(written, key, equal + 1, meta.steps, meta.epochs);
    else if (strcmp(key, "epochs") == 0)
      setLength(written, key, equal + 1, meta.epochs, meta.steps);
    else
      setValue(written, key, equal + 1);
  }
}

void storeValues() {
  setWord(kSeed, int64_t(run.meta.seed));
  for (const RunValue &value : run.meta.values) {
    int64_t bits;
    memcpy(&bits, &value.now, 8);
    setWord(int(kRunValues + value.place), bits);
  }
}

void takeNotes(List<Note> &notes) {
  char label[48], number[40];
  for (int64_t i = 0; i < run.meta.values.size; ++i) {
    labelOf(i, label);
    add(notes, "run", label, exact(number, run.meta.values[i].now, false));
    add(notes, "file", label, exact(number, run.meta.values[i].file, false));
  }
  const uint64_t seeds[] = {run.meta.seed, fileSeed};
  const int64_t steps[] = {run.horizon, fileSteps};
  static const char *const kinds[] = {"run", "file"};
  for (int i = 0; i < 2; ++i) {
    snprintf(number, sizeof number, "%llu", (unsigned long long)seeds[i]);
    add(notes, kinds[i], "seed", number);
    snprintf(number, sizeof number, "%lld", (long long)steps[i]);
    add(notes, kinds[i], "steps", number);
  }
  for (const Described &each : run.meta.described)
    add(notes, "is", each.key, each.text);
}

void adoptValues(const char *checkpoint, const List<Note> &notes) {
  Meta &meta = run.meta;
  Text unclear, flags, old;
  auto differs = [&](const char *what, const char *key, const char *then, const char *now) {
    unclear.add("\n  %s: %s in the checkpoint, %s here", what, then, now);
    flags.add(" --set %s=%s", key, now);
    old.add(" --set %s=%s", key, then);
  };
  for (int64_t i = 0; i < meta.values.size; ++i) {
    RunValue &value = meta.values[i];
    char label[48], name[48], file[40], given[40];
    labelOf(i, label);
    nameAlone(i, name);
    const char *then = noteOf(notes, "run", label);
    if (!then[0])
      continue;
    switch (fateOf(then, noteOf(notes, "file", label), exact(file, value.file, false), value.given,
                   exact(given, value.now, false))) {
    case Fate::Same: break;
    case Fate::AsGiven: sayLine(name, then, given, " (--set)"); break;
    case Fate::AsCheckpoint:
      value.now = strtod(then, nullptr);
      if (!run.options.quiet)
        say("  %s: %s, as in the checkpoint (%s in the program)", name, then, file);
      break;
    case Fate::Unclear: differs(name, name, then, file); break;
    }
  }
  char file[40], given[40];
  const char *then = noteOf(notes, "run", "steps");
  snprintf(file, sizeof file, "%lld", (long long)fileSteps);
  snprintf(given, sizeof given, "%lld", (long long)run.horizon);
  if (then[0])
    switch (fateOf(then, noteOf(notes, "file", "steps"), file, stepsGiven, given)) {
    case Fate::Same: break;
    case Fate::AsGiven: sayLine("steps", then, given, " (--set)"); break;
    case Fate::AsCheckpoint:
      meta.steps = strtoll(then, nullptr, 10);
      meta.epochs = 0;
      stepsGiven = true; // by the checkpoint: what the program says stays known
      if (!run.options.quiet)
        say("  steps: %s, as in the checkpoint (%s in the program)", then, file);
      break;
    case Fate::Unclear: differs("steps", "steps", then, file); break;
    }
  then = noteOf(notes, "run", "seed");
  snprintf(file, sizeof file, "%llu", (unsigned long long)fileSeed);
  snprintf(given, sizeof given, "%llu", (unsigned long long)meta.seed);
  if (then[0])
    switch (fateOf(then, noteOf(notes, "file", "seed"), file, seedGiven, given)) {
    case Fate::Same: break;
    case Fate::AsCheckpoint: meta.seed = strtoull(then, nullptr, 10); break;
    case Fate::AsGiven:
    case Fate::Unclear:
      fail(kData,
           "the checkpoint %s was trained with another seed:\n  seed: %s in the checkpoint, %s here\nIts examples and random "
           "draws would not go on; bring the old seed back, or start from its parameters with --init",
           checkpoint, then, seedGiven ? given : file);
    }
  if (unclear.size)
    fail(kData, "the program's values are not those of the checkpoint %s:%s\nGo on with the new ones:%s; or with the old ones:%s",
         checkpoint, unclear.data, flags.data, old.data);
  for (const Described &each : meta.described) {
    const char *before = noteOf(notes, "is", each.key);
    if (each.then[0] && !before[0]) // by a program that does not ask for several
      before = "1";
    if (!each.decides && before[0] && strncmp(before, each.text, sizeof Note().text - 1) != 0)
      sayLine(each.key, before, each.text, each.then[0] ? each.then : "; the numbers of the training do not depend on it");
  }
}

void refuseProgram(const char *checkpoint, const List<Note> &notes, const char *problem) {
  Text text;
  for (const Described &each : run.meta.described) {
    const char *before = noteOf(notes, "is", each.key);
    if (each.decides && before[0] && strncmp(before, each.text, sizeof Note().text - 1) != 0)
      text.add("\n  %s: %s in the checkpoint, %s here", each.key, before, each.text);
  }
  if (problem[0])
    text.add("\n  %s", problem);
  if (!text.size)
    text.add("\n  the model, the loss or the types of the data: the step computes something else");
  fail(kData,
       "the checkpoint %s is of another program; what differs:%s\nIts training cannot go on here; its parameters can be where "
       "this one starts: --init %s, with --partial if only some of them fit",
       checkpoint, text.data, checkpoint);
}

void listValues() {
  const Meta &meta = run.meta;
  Text line;
  char name[48], number[40];
  for (int64_t i = 0; i < meta.values.size; ++i) {
    nameAlone(i, name);
    line.add("%s%s %s", line.size ? ", " : "", name, exact(number, meta.values[i].file, false));
  }
  line.add("%sseed %llu, %s %lld", line.size ? ", " : "", (unsigned long long)meta.seed, meta.steps ? "steps" : "epochs",
           (long long)(meta.steps ? meta.steps : meta.epochs));
  say("values       %s", line.data);
  Text several; // keys that set more than one value
  for (int64_t i = 0; i < meta.values.size; ++i) {
    nameAlone(i, name);
    const size_t length = strlen(meta.values[i].key);
    if (strncmp(name, meta.values[i].key, length) == 0 && strcmp(name + length, ".1") == 0)
      several.add("%s%s", several.size ? ", " : "", meta.values[i].key);
  }
  say("             another one: --set KEY=VALUE%s%s", several.size ? "; of every optimizer that has one: " : "", several.data);
}

} // namespace cinch::rt
