// Checksum.h: CRC-32C (Castagnoli), for checkpoints, data files and TensorBoard records, and the CRC-32 that ZIP files have.
#ifndef CINCH_RUNTIME_CHECKSUM_H
#define CINCH_RUNTIME_CHECKSUM_H
#include <stddef.h>
#include <stdint.h>

namespace cinch::rt {

// The checksum of what came before (0 at the start) and these bytes.
uint32_t crc32c(uint32_t before, const void *data, size_t size);
uint32_t crc32OfZip(uint32_t before, const void *data, size_t size);

} // namespace cinch::rt
#endif
