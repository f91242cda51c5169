// Inflate.cpp: see Inflate.h. Codes are decoded bit by bit with the counts of each length, which is short; a data set is unpacked
// once. The last 32 KiB that were unpacked are kept in a ring, which is written out whenever it is full.
#include "runtime/Inflate.h"
#include "runtime/Checksum.h"
#include "runtime/Output.h"
#include <errno.h>
#include <new>
#include <string.h>

namespace cinch::rt {

namespace {

// A canonical Huffman code: how many symbols have each length, and the symbols in the order of their codes.
struct Code {
  uint16_t count[16], symbol[288];

  // False: the lengths are those of no code.
  bool make(const uint8_t *lengths, int symbols) {
    memset(count, 0, sizeof count);
    for (int i = 0; i < symbols; ++i)
      ++count[lengths[i]];
    count[0] = 0;
    int left = 1;
    uint16_t first[16] = {};
    for (int length = 1; length < 16; ++length) {
      left = 2 * left - count[length];
      if (left < 0)
        return false;
      first[length] = uint16_t(length > 1 ? first[length - 1] + count[length - 1] : 0);
    }
    for (int i = 0; i < symbols; ++i)
      if (lengths[i])
        symbol[first[lengths[i]]++] = uint16_t(i);
    return true;
  }
};

const uint16_t kLengthBase[] = {3,  4,  5,  6,  7,  8,  9,  10, 11,  13,  15,  17,  19,  23, 27,
                                31, 35, 43, 51, 59, 67, 83, 99, 115, 131, 163, 195, 227, 258};
const uint8_t kLengthBits[] = {0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4, 5, 5, 5, 5, 0};
const uint16_t kDistanceBase[] = {1,   2,   3,   4,   5,   7,    9,    13,   17,   25,   33,   49,   65,    97,    129,
                                  193, 257, 385, 513, 769, 1025, 1537, 2049, 3073, 4097, 6145, 8193, 12289, 16385, 24577};
const uint8_t kDistanceBits[] = {0, 0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4, 5, 5, 6, 6, 7, 7, 8, 8, 9, 9, 10, 10, 11, 11, 12, 12, 13, 13};

class Unpacker {
public:
  Unpacker(const FieldFile &file, int64_t begin, int64_t end, AtomicFile &into) : file(file), at(begin), end(end), into(into) {}

  const char *run(int64_t size, uint32_t checksum) {
    for (bool last = false; !last && !why;) {
      last = bits(1);
      int kind = bits(2);
      if (kind == 0)
        stored();
      else if (kind == 1)
        fixedCodes();
      else if (kind == 2)
        codesOfBlock();
      else
        why = "a block of no known kind";
      if (written > size)
        why = "more bytes than its directory says";
    }
    if (!why)
      flush();
    if (!why && written != size)
      why = "fewer bytes than its directory says";
    if (!why && crc != checksum)
      why = "its checksum is another one";
    return why;
  }

private:
  static constexpr int kRing = 32768;

  int byte() {
    if (place == filled) {
      filled = end - at < int64_t(sizeof buffer) ? int(end - at) : int(sizeof buffer);
      place = 0;
      if (filled <= 0 || !readAt(file.fd, buffer, size_t(filled), at)) {
        filled = 0;
        why = "it ends too early";
        return 0;
      }
      at += filled;
    }
    return buffer[place++];
  }
  int bits(int count) {
    while (held < count && !why) {
      hold |= uint32_t(byte()) << held;
      held += 8;
    }
    int value = int(hold & ((1u << count) - 1));
    hold >>= count;
    held -= count;
    return value;
  }
  void put(int c) {
    ring[written++ & (kRing - 1)] = static_cast<unsigned char>(c);
    if ((written & (kRing - 1)) == 0)
      flush();
  }
  void flush() {
    int64_t from = flushed & (kRing - 1), count = written - flushed;
    crc = crc32OfZip(crc, ring + from, size_t(count));
    if (!writeAll(into.fd, ring + from, size_t(count)))
      fail(kResources, "cannot write %s: %s", into.temporary.text, strerror(errno));
    flushed = written;
  }

  void stored() {
    hold = 0;
    held = 0;
    int size = bits(16), inverse = bits(16);
    if (size != (~inverse & 0xffff))
      why = "a stored block is damaged";
    for (int i = 0; i < size && !why; ++i)
      put(byte());
  }

  int symbol(const Code &code) {
    int value = 0, first = 0, index = 0;
    for (int length = 1; length < 16 && !why; ++length) {
      value |= bits(1);
      int count = code.count[length];
      if (value - count < first)
        return code.symbol[index + value - first];
      index += count;
      first = (first + count) << 1;
      value <<= 1;
    }
    why = "a code that stands for nothing";
    return 256;
  }

  void codes() {
    while (!why) {
      int c = symbol(literals);
      if (c < 256) {
        put(c);
        continue;
      }
      if (c == 256)
        return;
      if ((c -= 257) > 28) {
        why = "a length that there is not";
        return;
      }
      int length = kLengthBase[c] + bits(kLengthBits[c]), d = symbol(distances);
      if (d > 29) {
        why = "a distance that there is not";
        return;
      }
      int64_t distance = kDistanceBase[d] + bits(kDistanceBits[d]);
      if (distance > written) {
        why = "a distance before the beginning";
        return;
      }
      while (length-- && !why)
        put(ring[(written - distance) & (kRing - 1)]);
    }
  }

  void fixedCodes() {
    uint8_t lengths[288];
    for (int i = 0; i < 288; ++i)
      lengths[i] = i < 144 ? 8 : i < 256 ? 9 : i < 280 ? 7 : 8;
    literals.make(lengths, 288);
    memset(lengths, 5, 30);
    distances.make(lengths, 30);
    codes();
  }

  void codesOfBlock() {
    static const uint8_t order[] = {16, 17, 18, 0, 8, 7, 9, 6, 10, 5, 11, 4, 12, 3, 13, 2, 14, 1, 15};
    uint8_t lengths[320] = {};
    int literalCount = bits(5) + 257, distanceCount = bits(5) + 1, codeCount = bits(4) + 4;
    for (int i = 0; i < codeCount; ++i)
      lengths[order[i]] = uint8_t(bits(3));
    bool good = literalCount <= 286 && distanceCount <= 30 && literals.make(lengths, 19);
    memset(lengths, 0, sizeof lengths);
    for (int i = 0; i < literalCount + distanceCount && good && !why;) {
      int c = symbol(literals);
      if (c < 16) {
        lengths[i++] = uint8_t(c);
        continue;
      }
      int repeated = c == 16 ? 3 + bits(2) : c == 17 ? 3 + bits(3) : 11 + bits(7);
      good = c <= 18 && (c != 16 || i > 0) && i + repeated <= literalCount + distanceCount;
      for (uint8_t value = c == 16 && i > 0 ? lengths[i - 1] : uint8_t(0); good && repeated; --repeated)
        lengths[i++] = value;
    }
    good = good && !why && lengths[256] && distances.make(lengths + literalCount, distanceCount) &&
           literals.make(lengths, literalCount);
    if (good)
      codes();
    else if (!why)
      why = "a block without a sound code";
  }

  const FieldFile &file;
  int64_t at, end;
  AtomicFile &into;
  const char *why = nullptr;
  Code literals, distances;
  uint32_t hold = 0, crc = 0;
  int held = 0, place = 0, filled = 0;
  int64_t written = 0, flushed = 0;
  unsigned char buffer[4096], ring[kRing];
};

} // namespace

const char *inflate(const FieldFile &file, int64_t begin, int64_t end, AtomicFile &into, int64_t size, uint32_t checksum) {
  alignas(Unpacker) static char place[sizeof(Unpacker)]; // too large for a stack
  Unpacker &unpacker = *::new (static_cast<void *>(place)) Unpacker(file, begin, end, into);
  return unpacker.run(size, checksum);
}

} // namespace cinch::rt
