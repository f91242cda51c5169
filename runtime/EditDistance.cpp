// EditDistance.cpp: see EditDistance.h.
#include "runtime/EditDistance.h"
#include <string.h>

namespace cinch::rt {

int editDistance(const char *a, const char *b) {
  int row[65];
  int n = int(strlen(b));
  if (n > 64 || strlen(a) > 64)
    return 99;
  for (int j = 0; j <= n; ++j)
    row[j] = j;
  for (int i = 1; a[i - 1]; ++i) {
    int diagonal = row[0];
    row[0] = i;
    for (int j = 1; j <= n; ++j) {
      int changed = diagonal + (a[i - 1] != b[j - 1]);
      diagonal = row[j];
      int shorter = row[j - 1] < row[j] ? row[j - 1] : row[j];
      row[j] = shorter + 1 < changed ? shorter + 1 : changed;
    }
  }
  return row[n];
}

int mostEdits(const char *typed) {
  size_t half = (strlen(typed) + 1) / 2;
  return half < 1 ? 1 : half > 3 ? 3 : int(half);
}

} // namespace cinch::rt
