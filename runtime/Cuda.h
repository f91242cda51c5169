// Cuda.h: a GPU of NVIDIA as one worker uses it: what the files Cuda*.cpp share.
#ifndef CINCH_RUNTIME_CUDA_H
#define CINCH_RUNTIME_CUDA_H
#include "runtime/CudaDriver.h"
#include "runtime/Device.h"
#include "runtime/Memory.h"

namespace cinch::rt {

// Pinned memory with data on its way to the device; it may change when `copied` has come.
struct Staging {
  char *memory = nullptr;
  CUevent copied = nullptr;
  bool used = false;
};

// A micro-batch that a captured step brings to the device, and from where.
struct StagedFill {
  int32_t entry = 0;
  int64_t index = 0;
  char *memory = nullptr;
};

// What the device counts on itself (compiler/target/DeviceControl.cpp), and so the host sees it.
struct Control {
  int64_t step, closed, loss, norm, learningRate, unused[3];
};

// Steps take turns, since two may be under way.
struct Turn {
  Control *result = nullptr; // pinned
  CUevent done = nullptr;
  CUgraphExec graph = nullptr; // null: not captured
  List<StagedFill> fills;      // of the graph, in their order
};

struct Gpu {
  CUdevice device = 0;
  CUcontext context = nullptr;
  char name[128] = "";
  size_t takenBefore = 0; // bytes, when its context was there
  CUdeviceptr arena = 0, control = 0;
  CUstream stream = nullptr;
  CUfunction *kernels = nullptr, gate = nullptr, endStep = nullptr, clear = nullptr, take = nullptr, add[2] = {}; // add: f32, f64
  Staging writes[2], fills[2];
  int writeTurn = 0, fillTurn = 0;
  int64_t fillBytes = 0; // of one micro-batch of any entry

  // State in pinned memory: a stream for each direction, an event that says that a copy may begin, and one a copy that says it has ended.
  CUstream in = nullptr, out = nullptr;
  CUevent mayBegin = nullptr;
  List<CUevent> ended;

  // Training steps.
  Turn turns[2];
  int64_t asked = 0, settled = 0;        // steps
  int64_t step = 0;                      // that the device is at when it has done what is settled
  bool counting = false, behind = false; // a step that the device counts is asked for; what is behind its gate
  Turn *capturing = nullptr;
  int64_t fillsOfStep = 0, launchesOfStep = 0; // of the step asked for last
  bool graphs = true;                          // not given up
  CUevent together = nullptr;                  // of several workers: where their steps meet (CudaTogether.cpp)
};
extern Gpu *gpus; // one a worker of this process
inline Gpu &gpuOf(const Worker &worker) { return gpus[&worker - workers]; }
// The calls of this thread are about this device.
void use(Gpu &);
// The thread is somebody else's from here on, who may have a context of his own, or none; and he gets it back.
void enterThread();
void leaveThread();
extern int64_t pinnedBytes;
// Pinned memory; null: there is none.
char *takePinned(int64_t bytes);

void launchOnDevice(Worker &, int32_t launch, const int64_t *kernel, const int64_t *offsets);
// A kernel of DeviceControl, on so many threads.
void launchControl(Gpu &, CUfunction, const int64_t (&words)[4], unsigned blocks, unsigned threads);
// Clears memory (`clear`), copies it within the arena (`take`), or adds it to what is there (`add`), if the gate is open.
void launchIfOpen(Gpu &, CUfunction, int64_t to, int64_t from, int64_t bytes);

// CudaOpen.cpp
void openDevices();
// Parameters on their way: so many bytes at a time.
constexpr int64_t kWriteBytes = int64_t(4) << 20;

// CudaStep.cpp
void prepareSteps(Worker &);
void restartSteps(Worker &, int64_t step);
void askForStep(Worker &);
void gateOnDevice(Worker &);
void settleStep(Worker &, StepResult &);
bool mayStopNow(Worker &);
// Memory for the micro-batch that a step under capture brings.
char *stageInCapture(Worker &, int32_t entry, int64_t index);
extern int64_t graphBytes; // of the devices, as their drivers count
extern int64_t graphCount;

// What CudaTogether.cpp uses: memory for the micro-batches of a graph; all of a step, kernel by kernel; whether it may become a graph; why
// it is none (false); the graph of what a stream has captured.
bool takeFills(Gpu &, Turn &);
bool captureBoth(Worker &); // steps of both turns are graphs
void refill(Worker &, const Turn &);
void enqueue(Worker &, Turn &);
bool mayCapture(Gpu &);
bool giveUp(Gpu &, const char *why, CUresult);
bool endCapture(Gpu &, Turn &);
int64_t freeBytes();

// CudaTogether.cpp
void askTogether(Worker &);
void prepareMeetings();
void forgetMessages(); // CudaMessages.cpp: all mailboxes are empty, and nobody waits for what was before

// CudaOffload.cpp
void prepareOffload(Worker &);
void fetchFromHost(Worker &, int32_t copy, int64_t offset, int64_t host, int64_t bytes);
void storeToHost(Worker &, int32_t copy, int64_t offset, int64_t host, int64_t bytes);
void awaitCopy(Worker &, int32_t copy);

// CudaMessages.cpp
void prepareMessages();
void sendOnDevice(Worker &, int32_t channel, uint32_t box, int64_t offset, int64_t bytes);
void receiveOnDevice(Worker &, int32_t channel, uint32_t box, int64_t offset, int64_t bytes, Arrival);
// From a mailbox on this device to its place, as the message arrives.
void takeOnDevice(Gpu &, int64_t offset, CUdeviceptr from, int64_t bytes, Arrival);

// CudaPeers.cpp: workers in several processes, by NCCL. A step's messages stand between beginMessages and endMessages.
int64_t meetByNccl(DeviceMeeting &);
const char *wordsOfNccl(int64_t result);
bool connectedByNccl();
bool meetsPeers(Worker &);
void beginMessages(Gpu &);
void endMessages();
void sendByNccl(Worker &, int32_t channel, int64_t offset, int64_t bytes);
void receiveByNccl(Worker &, int32_t channel, int64_t offset, int64_t bytes, Arrival);
void sumByNccl(Worker &, int32_t channel, int64_t offset, int64_t bytes);
void describeNccl();

// CudaTimes.cpp: events around launches.
void prepareTimes();
void beginTime(Gpu &, int32_t launch, int64_t worker);
void endTime(Gpu &);
void collectTimes(Gpu &);

} // namespace cinch::rt
#endif
