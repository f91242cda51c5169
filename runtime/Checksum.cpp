// Checksum.cpp: the processor's own instruction where it has one, else slicing by eight (Kounavis and Berry, 2005):
// eight table look-ups for eight bytes.
#include "runtime/Checksum.h"
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#include <nmmintrin.h>
#endif

namespace cinch::rt {

using Table = uint32_t[8][256];

static void makeTable(Table &table, uint32_t polynomial) {
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t crc = i;
    for (int bit = 0; bit < 8; ++bit)
      crc = crc & 1 ? crc >> 1 ^ polynomial : crc >> 1;
    table[0][i] = crc;
  }
  for (uint32_t i = 0; i < 256; ++i)
    for (int k = 1; k < 8; ++k)
      table[k][i] = table[k - 1][i] >> 8 ^ table[0][table[k - 1][i] & 255];
}

// Of two threads that make it at once each writes the same.
static uint32_t byTable(Table &table, uint32_t polynomial, uint32_t before, const void *data, size_t size) {
  if (!table[7][255])
    makeTable(table, polynomial);
  const unsigned char *at = static_cast<const unsigned char *>(data);
  uint32_t crc = ~before;
  for (; size >= 8; size -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    word ^= crc;
    crc = table[7][word & 255] ^ table[6][word >> 8 & 255] ^ table[5][word >> 16 & 255] ^ table[4][word >> 24 & 255] ^
          table[3][word >> 32 & 255] ^ table[2][word >> 40 & 255] ^ table[1][word >> 48 & 255] ^ table[0][word >> 56];
  }
  for (; size; --size, ++at)
    crc = crc >> 8 ^ table[0][(crc ^ *at) & 255];
  return ~crc;
}

#if defined(__x86_64__)
__attribute__((target("sse4.2"))) static uint32_t byInstruction(uint32_t before, const void *data, size_t size) {
  const unsigned char *at = static_cast<const unsigned char *>(data);
  uint64_t crc = ~before;
  for (; size >= 8; size -= 8, at += 8) {
    uint64_t word;
    memcpy(&word, at, 8);
    crc = _mm_crc32_u64(crc, word);
  }
  for (; size; --size, ++at)
    crc = _mm_crc32_u8(uint32_t(crc), *at);
  return ~uint32_t(crc);
}

static bool hasInstruction() {
  unsigned a, b, c, d;
  return __get_cpuid(1, &a, &b, &c, &d) && (c & bit_SSE4_2);
}
#endif

uint32_t crc32c(uint32_t before, const void *data, size_t size) {
#if defined(__x86_64__)
  static const bool fast = hasInstruction();
  if (fast)
    return byInstruction(before, data, size);
#endif
  static Table table;
  return byTable(table, 0x82f63b78u, before, data, size);
}

uint32_t crc32OfZip(uint32_t before, const void *data, size_t size) {
  static Table table;
  return byTable(table, 0xedb88320u, before, data, size);
}

} // namespace cinch::rt
