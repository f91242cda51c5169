// Expect.h: what a unit test counts and how it ends: one line for each expectation that is not met, and last `N passed, N failed`.
//
// Cases are counted. An expectation is one, unless it stands inside of a `Case`: all of those together are one.
#ifndef CINCH_TEST_UNIT_EXPECT_H
#define CINCH_TEST_UNIT_EXPECT_H

#include <cstdio>
#include <string>

inline int passed = 0, failed = 0;

class Case {
public:
  Case() : around(current) { current = this; }
  ~Case() {
    current = around;
    if (!around)
      good ? ++passed : ++failed;
    else
      around->good &= good;
  }
  Case(const Case &) = delete;

private:
  friend void expect(bool, const std::string &);
  inline static Case *current = nullptr;
  Case *around;
  bool good = true;
};

inline void expect(bool ok, const std::string &what) {
  if (Case::current)
    Case::current->good &= ok;
  else
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
