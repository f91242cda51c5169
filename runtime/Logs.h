// Logs.h: CSV, JSON lines and TensorBoard under OUT. A row a step at which something is logged.
#ifndef CINCH_RUNTIME_LOGS_H
#define CINCH_RUNTIME_LOGS_H
#include <stddef.h>
#include <stdint.h>

namespace cinch::rt {

enum Sink : unsigned { kCsv = 1, kJsonl = 2, kTensorBoard = 4, kHtml = 8 }; // kHtml: a page of the rows of kCsv

constexpr const char *kEventFile = "events.out.tfevents.0.cinch"; // in OUT/tensorboard

// Columns: the fixed ones, then whatever is added before the logs are opened.
enum Column { kLoss, kMeanLoss, kLearningRate, kNorm, kSpeed, kSeconds, kFirstMetric };
int addColumn(const char *name);

// Opens the files of these sinks. Rows of steps beyond `lastStep` are cut off (a resumed run writes them anew).
void openLogs(unsigned sinks, int64_t lastStep);
void setColumn(int column, double value); // of the row that comes next
void writeRow(int64_t step, unsigned sinks, bool single);
void endRow(); // the next one has no columns yet
void closeLogs(); // the page with its last rows

// TensorBoard.cpp
void appendEvent(int fd, int64_t step, const char *const *tags, const double *values, const bool *present, int count);
void beginEvents(int fd);
// The length of the whole records up to `lastStep`; 0 if the file does not begin like one of ours.
int64_t lengthOfEvents(int fd, int64_t size, int64_t lastStep);

} // namespace cinch::rt
#endif
