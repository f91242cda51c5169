// EditDistance.h: which name was meant by one that nothing is called by.
#ifndef CINCH_RUNTIME_EDITDISTANCE_H
#define CINCH_RUNTIME_EDITDISTANCE_H

namespace cinch::rt {

// The number of single-letter edits between two names, at most 99; for "did you mean".
int editDistance(const char *a, const char *b);
// A name is offered in the place of what was typed if at most so many edits lie between them: half of the letters typed, rounded up, but no more than three.
int mostEdits(const char *typed);

} // namespace cinch::rt
#endif
