// Inflate.h: unpacks what is compressed by DEFLATE (RFC 1951), as arrays are in the files of numpy.savez_compressed.
#ifndef CINCH_RUNTIME_INFLATE_H
#define CINCH_RUNTIME_INFLATE_H
#include "runtime/Dataset.h"

namespace cinch::rt {

// Unpacks bytes `begin` to `end` of the file behind what was written to `into`. They have to give `size` bytes with the CRC-32
// `checksum`; null, or what is wrong.
const char *inflate(const FieldFile &, int64_t begin, int64_t end, AtomicFile &into, int64_t size, uint32_t checksum);

} // namespace cinch::rt
#endif
