// Device.h: the GPU that a program runs on, as the rest of the runtime sees it. What stands behind this is linked into programs for a
// GPU only (-u cinch_open_device).
//
// The arena lies on the device. The host has a mirror of it: addresses of the same size, of which only those pages ever take memory
// that the host looks at (parameters and state while they are saved or loaded, data on its way, results).
#ifndef CINCH_RUNTIME_DEVICE_H
#define CINCH_RUNTIME_DEVICE_H
#include "runtime/Worker.h"
#include <stdint.h>

namespace cinch::rt {

struct Device {
  // Finds the device and takes the arena on it; leaves with kResources, and says why, if that cannot be.
  void (*open)(int64_t arenaBytes);
  // These are done in the order in which they are called, `read` included, which returns when its bytes are there. What `write` copies
  // may be overwritten at once.
  void (*launch)(int32_t launch, const int64_t *kernel, const int64_t *offsets, const int64_t *words);
  void (*zero)(int64_t offset, int64_t bytes);
  void (*write)(int64_t offset, const char *from, int64_t bytes);
  void (*read)(int64_t offset, char *into, int64_t bytes);
  void (*finish)(); // returns when all is done
  const char *(*name)();
  int64_t (*usedByAll)(); // bytes of the device that are taken now, by whomever; 0: it does not tell
};
extern const Device *device; // null: the CPU

// The mirror's bytes become the device's, and the other way around; nothing without a device.
inline void toDevice(int64_t offset, int64_t bytes) {
  if (device)
    device->write(offset, arenaAt(offset), bytes);
}
inline void fromDevice(int64_t offset, int64_t bytes) {
  if (device)
    device->read(offset, arenaAt(offset), bytes);
}
// All parameters, state and optimizer state.
void stateToDevice();
void stateFromDevice();

} // namespace cinch::rt

// Sets `device`.
extern "C" void cinch_open_device() __attribute__((weak));
// Of the compiled object: PTX, and the names of its kernels, one a line, in the order of their numbers. A kernel is known to the host
// as {number, blocks, threads of a block, words of its launch}.
extern "C" const char cinch_device_code[] __attribute__((weak));
extern "C" const char cinch_device_kernels[] __attribute__((weak));
#endif
