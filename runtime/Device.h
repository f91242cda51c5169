// Device.h: the GPUs that a program runs on, as the rest of the runtime sees them. What stands behind this is linked into programs for a
// GPU only (-u cinch_open_device).
//
// The arena of each worker lies on its device. The host has a mirror of it: addresses of the same size, of which only those pages ever
// take memory that the host looks at (parameters and state while they are saved or loaded, results, messages between processes).
#ifndef CINCH_RUNTIME_DEVICE_H
#define CINCH_RUNTIME_DEVICE_H
#include "runtime/Worker.h"
#include <stdint.h>

namespace cinch::rt {

// What a training step left.
struct StepResult {
  double loss = 0, norm = 0, learningRate = 0; // as Run has them
  bool gateFailed = false;
};

// How devices of several processes come to hand messages to one another; worker 0 leads.
struct DeviceMeeting {
  enum : int32_t {
    Find,  // what is needed: its version; 0: it is not here
    Name,  // makes the id of what others join
    Join,  // the lane `from` -> `to`, or, if `to` is -1, the replicas that have the worker's place: as number `rank` of `count`
    Begin, // all is there
    Capture, // 1: steps may be graphs here. They hold messages, which is for all or for none, so that worker 0 asks
    Graphs,  // whether they are (`count`)
  } what = Find;
  int32_t rank = 0, count = 0, from = -1, to = -1;
  char id[128] = {};
};

// Offsets count from the begin of the worker's part of the arena.
struct Device {
  // Finds the devices and takes an arena for every worker of this process; leaves with kResources, and says why, if that cannot be.
  void (*open)();
  // Around each call of a library: the thread, and which context of the driver is its own, are the caller's.
  void (*enter)();
  void (*leave)();
  // These are done in the order in which they are called, `read` included, which returns when its bytes are there. What `write` copies
  // may be overwritten at once.
  void (*launch)(Worker &, int32_t launch, const int64_t *kernel, const int64_t *offsets);
  void (*zero)(Worker &, int64_t offset, int64_t bytes);
  void (*set)(Worker &, int64_t offset, int64_t bytes, int64_t word); // the word over them, again and again
  void (*copy)(Worker &, int64_t to, int64_t from, int64_t bytes);
  void (*write)(Worker &, int64_t offset, const char *from, int64_t bytes);
  void (*read)(Worker &, int64_t offset, char *into, int64_t bytes);
  void (*finish)(Worker &); // returns when all is done, and has told Times how long
  // Data on its way (null: whoever looks at the calls of a step does not need them). `stage` gives memory for a micro-batch of the entry (stagedBytes), `send` copies some of it to the device, and what was
  // sent may change again when `stage` gives that memory the next time.
  char *(*stage)(Worker &, int32_t entry, int64_t index);
  void (*send)(Worker &, int64_t offset, const char *from, int64_t bytes);
  void (*endStaging)(Worker &);
  // Copies of state between the arena and pinned memory beside it, which begin when all that was asked for before is done, and go on beside
  // what is asked for next, up to `await` of that copy. `host` counts from the begin of pinned memory, which is the mirror's.
  void (*fetch)(Worker &, int32_t copy, int64_t offset, int64_t host, int64_t bytes);
  void (*store)(Worker &, int32_t copy, int64_t offset, int64_t host, int64_t bytes);
  void (*await)(Worker &, int32_t copy);
  // A message into mailbox `box` of a channel between workers of this process, and out of it, or added to what is there. Nobody waits: the devices do.
  // Where the workers have processes, in training steps, if `meetsPeers`: then the devices find the mailboxes, and `sum` leaves the sum of all
  // replicas.
  void (*sendMessage)(Worker &, int32_t channel, uint32_t box, int64_t offset, int64_t bytes);
  void (*receiveMessage)(Worker &, int32_t channel, uint32_t box, int64_t offset, int64_t bytes, Arrival);
  void (*sum)(Worker &, int32_t channel, int64_t offset, int64_t bytes);
  bool (*meetsPeers)(Worker &);
  int64_t (*meet)(DeviceMeeting &); // 0 or an error, for which there are words; but see Find
  const char *(*wordsFor)(int64_t error);
  bool (*connected)(); // it came to Begin
  // Training steps whose gate is the device's: from `restart` on, whose first step is `step`, the device counts them. `step` asks for one
  // and returns before it is done; at most two are under way. `gate` is the gate in it. `settle` waits for the oldest: what it left.
  // Once a gate failed, no step changes parameters or state until `restart`.
  void (*restart)(Worker &, int64_t step);
  void (*step)(Worker &);
  void (*gate)(Worker &);
  void (*settle)(Worker &, StepResult &);
  bool (*mayStop)(Worker &); // between two calls of the program: nothing was asked for that would change parameters
  void (*describe)(struct Text &);    // "NAME", "2 of NAME and NAME", for people
  void (*describeMemory)();  // says it
};
extern const Device *device; // null: the CPU

// The mirror's bytes become the device's, and the other way around; nothing without a device, or if they are those of a worker elsewhere.
// Offsets are those of the whole arena.
void toDevice(int64_t offset, int64_t bytes);
void fromDevice(int64_t offset, int64_t bytes);
// All parameters, state and optimizer state, copies too.
void stateToDevice();
void stateFromDevice();
// What the program calls its parameters alone, copies too.
void parametersToDevice();
void parametersFromDevice();

} // namespace cinch::rt

// Sets `device`.
extern "C" void cinch_open_device() __attribute__((weak));
// Of the compiled object: PTX, and the names of its kernels, one a line, in the order of their numbers, each with the bytes of shared
// memory that a launch gives its blocks. A kernel is known to the host as the number of its launches, mostly one, and for each of them {number,
// blocks, threads of a block, words of its launch, those bytes, maps (compiler/kernels/TensorMap.h)}.
extern "C" const char cinch_device_code[] __attribute__((weak));
extern "C" const char cinch_device_kernels[] __attribute__((weak));
// Machine code for the architecture that the PTX names, if the compiler had an assembler.
extern "C" const char cinch_device_cubin[] __attribute__((weak));
#endif
