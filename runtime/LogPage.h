// LogPage.h: OUT/log.html, a page of curves with the rows of log.csv in it; it needs no other file and no network.
#ifndef CINCH_RUNTIME_LOGPAGE_H
#define CINCH_RUNTIME_LOGPAGE_H

namespace cinch::rt {

// Writes the page anew. False: errno.
bool writeLogPage();

} // namespace cinch::rt
#endif
