// PerfectArenas.h: arena problems whose least height is known: a rectangle (time x bytes) cut into buffers packs again
// without any gap. Cuts go straight through a piece (guillotine cuts), or make a pinwheel of five out of it, which no
// straight cut takes apart.
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

  // `balance`: 0 cuts anywhere, more keeps cuts away from the edges (in percent of the length). `pinwheels`: so many of a
  // hundred cuts are pinwheels.
  ArenaProblem next(int count, int64_t width, int64_t height, int64_t balance = 0, int64_t pinwheels = 0) {
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
      if (pinwheels && below(100) < pinwheels && int(pieces.size()) + 4 <= count) {
        Piece x = pieces[i];
        if (x.t1 - x.t0 < 3 || x.h1 - x.h0 < 3)
          continue;
        // Four arms around a middle, this way round or the other.
        int64_t a = x.t0 + 1 + below(x.t1 - x.t0 - 2), c = a + 1 + below(x.t1 - a - 1);
        int64_t low = x.h0 + 1 + below(x.h1 - x.h0 - 2), high = low + 1 + below(x.h1 - low - 1);
        bool mirrored = below(2);
        auto add = [&](int64_t t0, int64_t t1, int64_t h0, int64_t h1) {
          pieces.push_back(mirrored ? Piece{t0, t1, x.h0 + x.h1 - h1, x.h0 + x.h1 - h0} : Piece{t0, t1, h0, h1});
        };
        add(x.t0, a, x.h0, high), add(a, x.t1, x.h0, low), add(c, x.t1, low, x.h1), add(x.t0, c, high, x.h1);
        pieces[i] = pieces.back(), pieces.pop_back();
        add(a, c, low, high);
        continue;
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
