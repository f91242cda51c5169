// Device.cpp: what parameters and state need on their way to a device and back.
#include "runtime/Device.h"
#include "runtime/Run.h"

namespace cinch::rt {

const Device *device = nullptr;

static void moveState(void (*move)(int64_t, int64_t)) {
  if (!device)
    return;
  for (const Parameter &parameter : run.meta.parameters)
    move(parameter.offset, parameter.bytes());
  for (const Stored &slot : run.meta.slots)
    move(slot.offset, slot.bytes());
}

void stateToDevice() { moveState(toDevice); }
void stateFromDevice() { moveState(fromDevice); }

} // namespace cinch::rt
