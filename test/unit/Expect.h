// Expect.h: what a unit test counts and how it ends: one line for each failed case, and last `N passed, N failed`.
#ifndef CINCH_TEST_UNIT_EXPECT_H
#define CINCH_TEST_UNIT_EXPECT_H

#include <cstdio>
#include <string>

inline int passed = 0, failed = 0;

inline void expect(bool ok, const std::string &what) {
  ok ? ++passed : ++failed;
  if (!ok)
    std::printf("FAILED: %s\n", what.c_str());
}

// Prints the tally; returns the program's exit code.
inline int tally() {
  std::printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}

#endif
