// PerfectArenas.h: arena problems whose least height is known: a rectangle (time x bytes) cut into buffers by straight
// cuts (guillotine cuts) packs again without any gap.
#ifndef CINCH_TEST_UNIT_PERFECTARENAS_H
#define CINCH_TEST_UNIT_PERFECTARENAS_H

#include "compiler/solve/Memory.h"

#include <algorithm>

namespace cinch::solve {

class PerfectArenas {
public:
  explicit PerfectArenas(uint64_t seed) : state(seed ? seed : 1) {}

  int64_t below(int64_t n) {
    state ^= state << 13, state ^= state >> 7, state ^= state << 17;
    return int64_t((state >> 11) % uint64_t(n));
  }

  // `balance`: 0 cuts anywhere, more keeps cuts away from the edges (in percent of the length).
  ArenaProblem next(int count, int64_t width, int64_t height, int64_t balance = 0) {
    struct Piece {
      int64_t t0, t1, h0, h1;
    };
    auto cut = [&](int64_t from, int64_t to) {
      int64_t edge = std::max<int64_t>(1, (to - from) * balance / 100);
      return from + edge + below(to - from - 2 * edge + 1);
    };
    std::vector<Piece> pieces{{0, width, 0, height}};
    while (int(pieces.size()) < count) {
      size_t i = size_t(below(int64_t(pieces.size())));
      for (int tries = 0; tries < 3; ++tries) { // larger pieces are cut first, more or less
        size_t j = size_t(below(int64_t(pieces.size())));
        if ((pieces[j].t1 - pieces[j].t0) * (pieces[j].h1 - pieces[j].h0) >
            (pieces[i].t1 - pieces[i].t0) * (pieces[i].h1 - pieces[i].h0))
          i = j;
      }
      Piece &x = pieces[i], y = x;
      bool time = below(2);
      if (time && x.t1 - x.t0 > 1)
        x.t1 = y.t0 = cut(x.t0, x.t1);
      else if (!time && x.h1 - x.h0 > 1)
        x.h1 = y.h0 = cut(x.h0, x.h1);
      else
        continue;
      pieces.push_back(y);
    }
    ArenaProblem p;
    for (size_t i = pieces.size(); i > 1; --i)
      std::swap(pieces[i - 1], pieces[size_t(below(int64_t(i)))]);
    for (const Piece &x : pieces)
      p.buffers.push_back({x.h1 - x.h0, x.t0, x.t1, -1});
    return p;
  }

private:
  uint64_t state;
};

} // namespace cinch::solve
#endif
