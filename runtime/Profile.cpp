// Profile.cpp: where the time of a training step goes, for `--profile`.
//
// Launches of the same place of the program count together: those of equal layers, too (`blocks.*.ff.up: contract`). Beside each stands
// what the plan predicted, and how much of the machine it reached: its operations at the rate that the plan reckons with for
// such work, and its bytes at the bandwidth, as shares of the time that it took. A launch counts with the median of its latest calls.
// Of several workers the table is about worker 0: they work side by side, and the sum of their times is no part of a step.
#include "runtime/Checksum.h"
#include "runtime/Files.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/Times.h"
#include <errno.h>
#include <stdio.h>
#include <string.h>

namespace cinch::rt {

namespace {

// Its text is read again where it is shown: hundreds of rows with theirs would be too much beside a small budget.
struct Row {
  int32_t launch = -1; // the first of its launches
  uint32_t checksum = 0; // of what they have in common
  bool shown = false;
  int64_t calls = 0, taken = 0;
  double operations = 0, bytes = 0, operationTime = 0, byteTime = 0, predicted = 0; // of all calls; times in nanoseconds
};

// What the launches of a row have in common.
struct Place {
  char text[256] = "", file[256] = "";
  int64_t line = 0;

  explicit Place(const Launch &launch) : line(launch.line) {
    withStars(launch.text);
    snprintf(file, sizeof file, "%s", launch.file[0] ? launch.file : run.meta.source);
  }
  bool operator==(const Place &other) const { return line == other.line && strcmp(text, other.text) == 0 && strcmp(file, other.file) == 0; }
  uint32_t checksum() const { return crc32c(crc32c(uint32_t(line), text, strlen(text)), file, strlen(file)); }

private:
  // Numbers between points become stars: equal layers are one row.
  void withStars(const char *from) {
    size_t n = 0;
    for (const char *at = from; *at && n + 1 < sizeof text;) {
      size_t digits = strspn(at, "0123456789");
      bool whole = digits && (at == from || at[-1] == '.') && (at[digits] == '.' || at[digits] == ':');
      text[n++] = whole ? '*' : *at;
      at += whole ? digits : 1;
    }
    text[n] = 0;
  }
};

Place placeOf(const Row &row) {
  static Launch launch;
  readLaunch(run.meta, cinch_meta, row.launch, launch);
  return Place(launch);
}

Row &rowOf(List<Row> &rows, int32_t number, const Launch &launch) {
  const Place place(launch);
  const uint32_t checksum = place.checksum();
  for (Row &row : rows)
    if (row.checksum == checksum && placeOf(row) == place)
      return row;
  Row &row = rows.add();
  row.launch = number, row.checksum = checksum;
  return row;
}

List<Row> rowsOfLaunches() {
  List<Row> rows;
  static Launch launch;
  for (int64_t i = 0; i < callsOfSteps.size; ++i) {
    const int64_t count = callsOfSteps[i];
    if (!count || !readLaunch(run.meta, cinch_meta, int32_t(i), launch))
      continue;
    Row &row = rowOf(rows, int32_t(i), launch);
    const double calls = double(count);
    row.calls += count;
    row.taken += count * timesOfFirst[i].median(); // no pause of the machine counts
    row.operations += calls * double(launch.price.operations);
    row.bytes += calls * double(launch.price.bytes);
    row.operationTime += calls * double(launch.price.operationNanoseconds);
    row.byteTime += calls * double(launch.price.byteNanoseconds);
    row.predicted += calls * double(launch.price.nanoseconds);
  }
  return rows;
}

Row *longest(List<Row> &rows) {
  Row *found = nullptr;
  for (Row &row : rows)
    if (!row.shown && (!found || row.taken > found->taken))
      found = &row;
  if (found)
    found->shown = true;
  return found;
}

// "812 us", "12.3 ms".
const char *shortTime(char (&buffer)[40], double nanoseconds) {
  const char *unit = nanoseconds < 1e3 ? "ns" : nanoseconds < 1e6 ? "us" : nanoseconds < 1e9 ? "ms" : "s";
  double value = nanoseconds / (nanoseconds < 1e3 ? 1 : nanoseconds < 1e6 ? 1e3 : nanoseconds < 1e9 ? 1e6 : 1e9);
  snprintf(buffer, sizeof buffer, "%.*f %s", value < 10 ? 2 : value < 100 ? 1 : 0, value, unit);
  return buffer;
}

// `part` of `whole` in percent; 0 of nothing.
int percent(double part, double whole) { return whole > 0 ? int(100 * part / whole + 0.5) : 0; }

void sayTable(List<Row> &rows, double steps, double all) {
  constexpr int kShown = 20;
  say("    a step  share   calls  predicted   Gop/s  of peak    GB/s  of peak  kernel");
  Row rest;
  int kinds = 0;
  for (int shown = 0; Row *row = longest(rows); ++shown) {
    double taken = double(row->taken);
    char each[40], predicted[40];
    if (shown < kShown) {
      const Place place = placeOf(*row);
      say("%10s  %3d %%  %6.*f  %9s  %6.1f   %4d %%  %6.1f   %4d %%  %s (%s:%lld)", shortTime(each, taken / steps), percent(taken, all),
          double(row->calls) < 10 * steps ? 1 : 0, double(row->calls) / steps, shortTime(predicted, row->predicted / steps),
          row->operations / taken, percent(row->operationTime, taken), row->bytes / taken, percent(row->byteTime, taken), place.text, place.file,
          (long long)place.line);
      continue;
    }
    ++kinds;
    rest.calls += row->calls;
    rest.taken += row->taken;
    rest.predicted += row->predicted;
  }
  char each[40], predicted[40];
  if (kinds)
    say("%10s  %3d %%  %6.0f  %9s  %39s%d further kernels, all in OUT/profile.tsv", shortTime(each, double(rest.taken) / steps),
        percent(double(rest.taken), all), double(rest.calls) / steps, shortTime(predicted, rest.predicted / steps), "", kinds);
}

struct Output {
  AtomicFile file;
  int error = 0; // of the first that failed
  explicit Output(const char *name) {
    Path path;
    joinPath(path, run.options.out, name);
    if (!beginFile(file, path.text))
      error = errno;
  }
  void add(const Text &text) {
    if (!error && !writeAll(file.fd, text.data, text.size))
      error = errno;
  }
  bool end() {
    if (error)
      abandonFile(file);
    else if (!commitFile(file))
      error = errno;
    if (error)
      warn("cannot write %s: %s", file.path.text, strerror(error));
    return !error;
  }
};

bool writeTable(List<Row> &rows, double steps) {
  Output out("profile.tsv");
  Text head;
  head.add("seconds_a_step\tcalls_a_step\tpredicted_seconds\toperations_a_second\tshare_of_peak\tbytes_a_second\tshare_of_bandwidth\tkernel\tplace\n");
  out.add(head);
  for (Row &row : rows) {
    const double taken = double(row.taken);
    const Place place = placeOf(row);
    Text line;
    line.add("%.9f\t%.3f\t%.9f\t%.4g\t%.4f\t%.4g\t%.4f\t%s\t%s:%lld\n", 1e-9 * taken / steps, double(row.calls) / steps,
             1e-9 * row.predicted / steps, 1e9 * row.operations / taken, row.operationTime / taken, 1e9 * row.bytes / taken,
             row.byteTime / taken, place.text, place.file, (long long)place.line);
    out.add(line);
  }
  return out.end();
}

bool writeTrace() {
  Output out("profile.json");
  Text head;
  head.add("{\"displayTimeUnit\": \"ms\", \"traceEvents\": [\n{\"ph\": \"M\", \"pid\": 0, \"name\": \"process_name\", \"args\": {\"name\": ");
  head.addQuoted(run.meta.program);
  head.add("}}");
  out.add(head);
  int64_t begin = INT64_MAX;
  for (int i = 0; i < eventCount(); ++i)
    begin = event(i).begin < begin ? event(i).begin : begin;
  static Launch launch;
  for (int i = 0; i < eventCount(); ++i) {
    const TimedEvent &each = event(i);
    if (each.launch < 0 || !readLaunch(run.meta, cinch_meta, each.launch, launch))
      launch = Launch();
    Text line;
    // Steps stand in a row of their own, above the workers.
    line.add(",\n{\"ph\": \"X\", \"pid\": 0, \"tid\": %d, \"ts\": %.3f, \"dur\": %.3f, \"name\": ", each.launch < 0 ? 0 : each.worker + 1,
             1e-3 * double(each.begin - begin), 1e-3 * double(each.nanoseconds));
    line.addQuoted(each.launch < 0 ? "step" : launch.text);
    if (each.launch >= 0) {
      Text place;
      place.add("%s:%lld", launch.file[0] ? launch.file : run.meta.source, (long long)launch.line);
      line.add(", \"args\": {\"place\": ");
      line.addQuoted(place.data);
      line.add(", \"kernel\": ");
      line.addQuoted(launch.kernel);
      line.add(", \"predicted_us\": %.3f, \"operations\": %lld, \"bytes\": %lld}", 1e-3 * double(launch.price.nanoseconds),
               (long long)launch.price.operations, (long long)launch.price.bytes);
    }
    line.add("}");
    out.add(line);
  }
  Text tail;
  tail.add("\n]}\n");
  out.add(tail);
  return out.end();
}

} // namespace

void reportProfile() {
  if (!stepTimes.calls)
    return say("profile: no step was done");
  List<Row> rows = rowsOfLaunches();
  double steps = double(stepTimes.calls), all = 0;
  for (const Row &row : rows)
    all += double(row.taken);
  char step[40], predicted[40], kernels[40];
  say("profile: %lld steps, %s each (median of the latest), %s of it in kernels%s; predicted %s (%s)", (long long)stepTimes.calls,
      shortTime(step, double(stepTimes.median())), shortTime(kernels, all / steps),
      programWorkers() > 1 ? " of worker 0" : "", shortTime(predicted, 1e9 * run.meta.stepSeconds),
      run.meta.costs);
  sayTable(rows, steps, all);
  if (writeTable(rows, steps))
    say("all of it: %s/profile.tsv", run.options.out);
  if (writeTrace())
    say("the latest %d launches for a viewer of traces (ui.perfetto.dev): %s/profile.json", eventCount(), run.options.out);
}

} // namespace cinch::rt
