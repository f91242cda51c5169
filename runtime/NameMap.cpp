// NameMap.cpp: see NameMap.h.
#include "runtime/NameMap.h"
#include <string.h>

namespace cinch::rt {

namespace {

constexpr int kStars = 16;

// What the stars of a pattern stand for, from the left.
struct Stars {
  const char *begin[kStars];
  size_t size[kStars];
  int count = 0;
};

// Each star takes as little as the rest of the pattern allows.
bool matches(const char *pattern, const char *text, Stars &stars) {
  while (*pattern && *pattern != '*')
    if (*pattern++ != *text++)
      return false;
  if (!*pattern)
    return !*text;
  if (stars.count == kStars)
    return false;
  int star = stars.count++;
  stars.begin[star] = text;
  for (size_t size = 0;; ++size) {
    stars.size[star] = size;
    stars.count = star + 1;
    if (matches(pattern + 1, text + size, stars))
      return true;
    if (!text[size])
      return false;
  }
}

} // namespace

bool nameInFile(const NameMap &map, const char *path, char (&name)[512], bool &transposed) {
  for (const NameMapping &mapping : map.mappings) {
    Stars stars;
    if (strcmp(mapping.ours, "_") == 0 || !matches(mapping.ours, path, stars))
      continue;
    size_t size = 0;
    int star = 0;
    for (const char *c = mapping.theirs; *c; ++c) {
      bool filled = *c == '*' && star < stars.count;
      const char *from = filled ? stars.begin[star] : c;
      size_t length = filled ? stars.size[star++] : 1;
      for (size_t i = 0; i < length && size < sizeof name - 1; ++i)
        name[size++] = from[i];
    }
    name[size] = 0;
    transposed = mapping.transposed;
    return true;
  }
  return false;
}

bool notWanted(const NameMap &map, const char *nameInFile) {
  for (const NameMapping &mapping : map.mappings) {
    Stars stars;
    if (strcmp(mapping.ours, "_") == 0 && matches(mapping.theirs, nameInFile, stars))
      return true;
  }
  return false;
}

} // namespace cinch::rt
