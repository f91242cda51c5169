// ColumnBytes.h: the bytes beside the arena that a program takes for the columns of tables, and for rows that are held out. The compiler counts them in the allowance, the runtime
// takes no more (Meta, DatasetCsv, Normalize, OwnRows; PeersDrive and PeersServe where each worker has a process).
#ifndef CINCH_RUNTIME_COLUMNBYTES_H
#define CINCH_RUNTIME_COLUMNBYTES_H
#include <stdint.h>

namespace cinch::rt {

// Of a text of so many characters in the description, and of a list of so many texts (Memory.h: it grows by doubling, and what it grew out of stays).
constexpr int64_t bytesOfText(int64_t characters) { return (characters + 1 + 15) / 16 * 16; }
constexpr int64_t bytesOfTexts(int64_t texts) { return 4 * 8 * texts; }
// Of a value of a row that is read: its column, its place among the columns, its number.
constexpr int64_t kReadBytes = 3 * 8;
// Of a value that is normalized: mean, deviation, and whether all rows hold the same.
constexpr int64_t kNormalBytes = 2 * 8 + 1;
// Of one whose cells may count as the mean: how many numbers its column has.
constexpr int64_t kCountBytes = 8;
// Of mean and deviation on their way between processes: twice on each side.
constexpr int64_t kToldBytes = 2 * 2 * 8;
// Of a data set whose rows are drawn where they lie (OwnRows.h).
constexpr int64_t kOwnRowsBytes = 1030 * 8;

} // namespace cinch::rt
#endif
