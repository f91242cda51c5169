// Logs.cpp: every row is written at once, with one write: a run that is killed leaves whole rows, and at most one torn
// one, which the resumed run cuts off. A log that cannot be written is a warning, once for each log, and what was written of a row is cut off.
#include "runtime/Logs.h"
#include "runtime/LogPage.h"
#include "runtime/Progress.h"
#include "runtime/Files.h"
#include "runtime/Memory.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cinch::rt {

static const char *const kFixed[kFirstMetric] = {"loss", "mean_loss", "lr", "norm", "examples_per_second", "seconds"};
static List<const char *> names;
static double *values;
static bool *present;
static char *rowText; // of the header, and of each row
static int64_t rowSize = 0, rowMax = 0;
static int csvFile = -1, jsonlFile = -1, eventFile = -1;
static bool hasPage = false;
static double nextPage = 0; // seconds since the start

static void beginColumns() {
  for (int i = 0; names.size < kFirstMetric; ++i)
    names.add() = kFixed[i];
}

int addColumn(const char *name) {
  beginColumns();
  names.add() = name;
  return int(names.size) - 1;
}

// Room for as many columns as there are. A number has at most 24 characters, and in a row of JSON its name stands before it.
static void prepareRow() {
  beginColumns();
  values = allocateArray<double>(names.size);
  present = allocateArray<bool>(names.size);
  rowMax = 64;
  for (const char *name : names)
    rowMax += int64_t(strlen(name)) + 32;
  rowText = allocateArray<char>(rowMax);
}

static void __attribute__((format(printf, 1, 2))) addToRow(const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  int written = vsnprintf(rowText + rowSize, size_t(rowMax - rowSize), format, arguments);
  va_end(arguments);
  if (written < 0 || written >= rowMax - rowSize)
    failInternal("a row of the logs has more than %lld bytes", (long long)rowMax);
  rowSize += written;
}

// `log`: one of kCsv, kJsonl, kTensorBoard, kHtml.
static void complain(unsigned log, const char *path) {
  static unsigned warned = 0;
  if (!(warned & log))
    warn("the log %s could not be written: %s; training goes on", path, strerror(errno));
  warned |= log;
}

// Whether a row, of which these are the first characters, is one of a step beyond `lastStep`.
static bool isBeyond(const char *row, int64_t lastStep, bool json) {
  if (json && strncmp(row, "{\"step\":", 8) == 0)
    row += 8;
  return *row >= '0' && *row <= '9' && strtoll(row, nullptr, 10) > lastStep;
}

// The length of the rows whose step is at most `lastStep`; a row without its end of line does not count.
static int64_t lengthOfRows(int fd, int64_t size, int64_t lastStep, bool json) {
  char buffer[8192], head[32];
  size_t used = 0; // of `head`
  int64_t kept = 0;
  for (int64_t done = 0; done < size;) {
    const int64_t now = size - done < int64_t(sizeof buffer) ? size - done : int64_t(sizeof buffer);
    if (!readAt(fd, buffer, size_t(now), done))
      return kept;
    for (int64_t i = 0; i < now; ++i) {
      if (buffer[i] != '\n') {
        if (used < sizeof head - 1)
          head[used++] = buffer[i];
        continue;
      }
      head[used] = 0;
      used = 0;
      if (isBeyond(head, lastStep, json))
        return kept;
      kept = done + i + 1;
    }
    done += now;
  }
  return kept;
}

static void headerToRow() {
  rowSize = 0;
  addToRow("step");
  for (const char *name : names)
    addToRow(",%s", name);
  addToRow("\n");
}

// Whether the rows of a csv log have the columns that ours will have.
static bool sameColumns(int fd, int64_t size) {
  char there[512];
  headerToRow();
  bool same = size >= rowSize;
  for (int64_t at = 0; same && at < rowSize; at += int64_t(sizeof there)) {
    const size_t now = size_t(rowSize - at < int64_t(sizeof there) ? rowSize - at : int64_t(sizeof there));
    same = readAt(fd, there, now, at) && memcmp(there, rowText + at, now) == 0;
  }
  return same;
}

// Whole or not at all: a disk may be full for a while only.
static void appendRow(int fd, unsigned log, const char *name) {
  const int64_t before = lseek(fd, 0, SEEK_END);
  if (writeAll(fd, rowText, size_t(rowSize)))
    return;
  complain(log, name);
  if (before >= 0)
    (void)!ftruncate(fd, before);
}

static int openLog(const char *name, int64_t lastStep, unsigned kind) {
  Path path;
  joinPath(path, run.options.out, name);
  int fd = open(path.text, O_RDWR | O_CREAT | O_CLOEXEC | O_APPEND | O_NONBLOCK, 0666);
  struct stat status;
  if (fd >= 0 && fstat(fd, &status) == 0 && !S_ISREG(status.st_mode)) { // rows of an earlier run are cut off: a fifo has none
    close(fd);
    errno = ESPIPE;
    fd = -1;
  }
  if (fd < 0) {
    complain(kind, path.text);
    return -1;
  }
  if (kind == kCsv && status.st_size > 0 && !sameColumns(fd, status.st_size) && setAside(path.text, nullptr) != Aside::Nothing) {
    say("%s has other columns: it is kept as %s.previous, and a new one begins", path.text, path.text);
    close(fd);
    return openLog(name, lastStep, kind);
  }
  int64_t kept = kind == kTensorBoard ? lengthOfEvents(fd, status.st_size, lastStep)
                                      : lengthOfRows(fd, status.st_size, lastStep, kind == kJsonl);
  if (kept < status.st_size && ftruncate(fd, kept) != 0)
    complain(kind, path.text);
  if (kept == 0 && kind == kTensorBoard)
    beginEvents(fd);
  if (kept == 0 && kind == kCsv) {
    headerToRow();
    appendRow(fd, kind, path.text);
  }
  return fd;
}

// The page is written anew now and then, so that a browser shows a run while it goes on; of long logs more rarely.
static void writePage() {
  double before = secondsSoFar();
  if (!writeLogPage())
    complain(kHtml, "log.html");
  double after = secondsSoFar(), took = after - before;
  nextPage = after + (took > 0.02 ? 100 * took : 2);
}

void closeLogs() {
  if (hasPage && csvFile >= 0)
    writePage();
}

void openLogs(unsigned sinks, int64_t lastStep) {
  prepareRow();
  hasPage = (sinks & kHtml) != 0;
  if (hasPage)
    sinks |= kCsv;
  if (sinks & kCsv)
    csvFile = openLog("log.csv", lastStep, kCsv);
  if (sinks & kJsonl)
    jsonlFile = openLog("log.jsonl", lastStep, kJsonl);
  if (sinks & kTensorBoard) {
    Path folder;
    Text name;
    joinPath(folder, run.options.out, "tensorboard");
    name.add("tensorboard/%s", kEventFile);
    if (!makeFolders(folder.text))
      complain(kTensorBoard, folder.text);
    else
      eventFile = openLog(name.data, lastStep, kTensorBoard);
  }
}

void setColumn(int column, double value) {
  values[column] = value;
  present[column] = true;
}

static bool isSingle(int column, bool single) {
  return single && (column == kLoss || column == kMeanLoss || column == kNorm || column >= kFirstMetric);
}

void writeRow(int64_t step, unsigned sinks, bool single) {
  char number[40];
  const int columns = int(names.size);
  if (sinks & (kCsv | kHtml) && csvFile >= 0) {
    rowSize = 0;
    addToRow("%lld", (long long)step);
    for (int i = 0; i < columns; ++i)
      addToRow(",%s", present[i] ? exact(number, values[i], isSingle(i, single)) : "");
    addToRow("\n");
    appendRow(csvFile, kCsv, "log.csv");
  }
  if (sinks & kJsonl && jsonlFile >= 0) {
    rowSize = 0;
    addToRow("{\"step\":%lld", (long long)step);
    for (int i = 0; i < columns; ++i)
      if (present[i])
        addToRow(",\"%s\":%s", names[i], __builtin_isfinite(values[i]) ? exact(number, values[i], isSingle(i, single)) : "null");
    addToRow("}\n");
    appendRow(jsonlFile, kJsonl, "log.jsonl");
  }
  if (sinks & kTensorBoard && eventFile >= 0)
    appendEvent(eventFile, step, names.items, values, present, columns);
  if (sinks & kHtml && hasPage && secondsSoFar() >= nextPage)
    writePage();
}

void endRow() { memset(present, 0, size_t(names.size)); }

} // namespace cinch::rt
