// Device.cpp: what parameters and state need on their way to a device and back.
#include "runtime/Device.h"
#include "runtime/Run.h"

namespace cinch::rt {

const Device *device = nullptr;

static Worker *workerAt(int64_t offset) {
  for (int64_t i = 0; i < workerCount; ++i)
    if (workers[i].has(offset))
      return &workers[i];
  return nullptr;
}

void toDevice(int64_t offset, int64_t bytes) {
  if (Worker *worker = device ? workerAt(offset) : nullptr)
    device->write(*worker, offset - worker->at, arenaAt(offset), bytes);
}

void fromDevice(int64_t offset, int64_t bytes) {
  if (Worker *worker = device ? workerAt(offset) : nullptr)
    device->read(*worker, offset - worker->at, arenaAt(offset), bytes);
}

static void moveState(void (*move)(const Stored &)) {
  if (!device)
    return;
  for (const Parameter &parameter : run.meta.parameters)
    move(parameter);
  for (const Stored &slot : run.meta.slots)
    move(slot);
}

static void moveIn(const Stored &stored) {
  toDevice(stored.offset, stored.partBytes());
  for (int64_t copy : stored.copies)
    toDevice(copy, stored.partBytes());
}
// Copies hold what is there already, unless they are parts, or replicas' own numbers.
static void moveOut(const Stored &stored) {
  fromDevice(stored.offset, stored.partBytes());
  for (int64_t i = 0; (stored.own || stored.parts > 1) && i < stored.copies.size; ++i)
    fromDevice(stored.copies[i], stored.partBytes());
}

void stateToDevice() { moveState(moveIn); }
void stateFromDevice() { moveState(moveOut); }

void parametersToDevice() {
  for (int64_t i = 0; device && i < run.meta.parameters.size; ++i)
    moveIn(run.meta.parameters[i]);
}
void parametersFromDevice() {
  for (int64_t i = 0; device && i < run.meta.parameters.size; ++i)
    moveOut(run.meta.parameters[i]);
}

} // namespace cinch::rt
