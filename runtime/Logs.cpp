// Logs.cpp: every row is written at once, with one write: a run that is killed leaves whole rows, and at most one torn
// one, which the resumed run cuts off. A log that cannot be written is a warning, once.
#include "runtime/Logs.h"
#include "runtime/LogPage.h"
#include "runtime/Progress.h"
#include "runtime/Files.h"
#include "runtime/Memory.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

namespace cinch::rt {

constexpr int kColumnsMax = 64;
static const char *names[kColumnsMax] = {"loss", "mean_loss", "lr", "norm", "examples_per_second", "seconds"};
static double values[kColumnsMax];
static bool present[kColumnsMax];
static int columns = kFirstMetric;
static int csvFile = -1, jsonlFile = -1, eventFile = -1;
static bool warned = false, hasPage = false;
static double nextPage = 0; // seconds since the start

int addColumn(const char *name) {
  if (columns == kColumnsMax)
    return kColumnsMax - 1;
  names[columns] = name;
  return columns++;
}

static void complain(const char *path) {
  if (!warned)
    warn("the log %s could not be written: %s; training goes on", path, strerror(errno));
  warned = true;
}

// The length of the rows whose step is at most `lastStep`; a row without its end of line does not count.
static int64_t lengthOfRows(int fd, int64_t size, int64_t lastStep, bool json) {
  char buffer[8192];
  int64_t kept = 0;
  while (kept < size) {
    int64_t now = size - kept < int64_t(sizeof buffer) - 1 ? size - kept : int64_t(sizeof buffer) - 1;
    if (!readAt(fd, buffer, size_t(now), kept))
      return kept;
    buffer[now] = 0;
    int64_t at = 0;
    while (char *end = static_cast<char *>(memchr(buffer + at, '\n', size_t(now - at)))) {
      const char *row = buffer + at;
      if (json && strncmp(row, "{\"step\":", 8) == 0)
        row += 8;
      if (*row >= '0' && *row <= '9' && strtoll(row, nullptr, 10) > lastStep)
        return kept + at;
      at = end - buffer + 1;
    }
    if (at == 0)
      return kept; // torn, or no row of ours
    kept += at;
  }
  return kept;
}

static void headerOf(Text &header) {
  header.add("step");
  for (int i = 0; i < columns; ++i)
    header.add(",%s", names[i]);
  header.add("\n");
}

// Whether the rows of a csv log have the columns that ours will have.
static bool sameColumns(int fd, int64_t size) {
  Text header;
  char there[sizeof header.data];
  headerOf(header);
  return size >= int64_t(header.size) && readAt(fd, there, header.size, 0) && memcmp(there, header.data, header.size) == 0;
}

static int openLog(const char *name, int64_t lastStep, int kind) {
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
    complain(path.text);
    return -1;
  }
  if (kind == kCsv && status.st_size > 0 && !sameColumns(fd, status.st_size) && setAside(path.text) != Aside::Nothing) {
    say("%s has other columns: it is kept as %s.previous, and a new one begins", path.text, path.text);
    close(fd);
    return openLog(name, lastStep, kind);
  }
  int64_t kept = kind == kTensorBoard ? lengthOfEvents(fd, status.st_size, lastStep)
                                      : lengthOfRows(fd, status.st_size, lastStep, kind == kJsonl);
  if (kept < status.st_size && ftruncate(fd, kept) != 0)
    complain(path.text);
  if (kept == 0 && kind == kTensorBoard)
    beginEvents(fd);
  if (kept == 0 && kind == kCsv) {
    Text header;
    headerOf(header);
    if (!writeAll(fd, header.data, header.size))
      complain(path.text);
  }
  return fd;
}

// The page is written anew now and then, so that a browser shows a run while it goes on; of long logs more rarely.
static void writePage() {
  double before = secondsSoFar();
  if (!writeLogPage())
    complain("log.html");
  double after = secondsSoFar(), took = after - before;
  nextPage = after + (took > 0.02 ? 100 * took : 2);
}

void closeLogs() {
  if (hasPage && csvFile >= 0)
    writePage();
}

void openLogs(unsigned sinks, int64_t lastStep) {
  hasPage = (sinks & kHtml) != 0;
  if (hasPage)
    sinks |= kCsv;
  if (sinks & kCsv)
    csvFile = openLog("log.csv", lastStep, kCsv);
  if (sinks & kJsonl)
    jsonlFile = openLog("log.jsonl", lastStep, kJsonl);
  if (sinks & kTensorBoard) {
    Path folder;
    joinPath(folder, run.options.out, "tensorboard");
    if (!makeFolders(folder.text))
      complain(folder.text);
    else
      eventFile = openLog("tensorboard/events.out.tfevents.0.cinch", lastStep, kTensorBoard);
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
  if (sinks & (kCsv | kHtml) && csvFile >= 0) {
    Text row;
    row.add("%lld", (long long)step);
    for (int i = 0; i < columns; ++i)
      row.add(",%s", present[i] ? exact(number, values[i], isSingle(i, single)) : "");
    row.add("\n");
    if (!writeAll(csvFile, row.data, row.size))
      complain("log.csv");
  }
  if (sinks & kJsonl && jsonlFile >= 0) {
    Text row;
    row.add("{\"step\":%lld", (long long)step);
    for (int i = 0; i < columns; ++i)
      if (present[i])
        row.add(",\"%s\":%s", names[i],
                __builtin_isfinite(values[i]) ? exact(number, values[i], isSingle(i, single)) : "null");
    row.add("}\n");
    if (!writeAll(jsonlFile, row.data, row.size))
      complain("log.jsonl");
  }
  if (sinks & kTensorBoard && eventFile >= 0)
    appendEvent(eventFile, step, names, values, present, columns);
  memset(present, 0, sizeof present);
  if (sinks & kHtml && hasPage && secondsSoFar() >= nextPage)
    writePage();
}

} // namespace cinch::rt
