// LINK: standin
// The stand-in for NVIDIA's driver refuses what a driver refuses, and puts off what a device may put off.
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <initializer_list>

extern "C" {
int cuInit(unsigned);
int cuDeviceGetCount(int *);
int cuDevicePrimaryCtxRetain(void **, int);
int cuCtxSetCurrent(void *);
int cuMemAlloc_v2(uint64_t *, size_t);
int cuMemAllocHost_v2(void **, size_t);
int cuStreamCreate(void **, unsigned);
int cuStreamSynchronize(void *);
int cuStreamWaitEvent(void *, void *, unsigned);
int cuEventCreate(void **, unsigned);
int cuEventRecord(void *, void *);
int cuEventSynchronize(void *);
int cuEventElapsedTime(float *, void *, void *);
int cuMemcpyHtoDAsync_v2(uint64_t, const void *, size_t, void *);
int cuMemcpyDtoHAsync_v2(void *, uint64_t, size_t, void *);
int cuMemcpyPeerAsync(uint64_t, void *, uint64_t, void *, size_t, void *);
int cuMemsetD2D32Async(uint64_t, size_t, unsigned, size_t, size_t, void *);
int cuStreamBeginCapture_v2(void *, int);
int cuStreamEndCapture(void *, void **);
int cuGraphInstantiateWithFlags(void **, void *, unsigned long long);
int cuGraphLaunch(void *, void *);
}

static int passed, failed;

static void expect(bool right, const char *what) {
  right ? ++passed : ++failed;
  if (!right)
    printf("FAILED: %s\n", what);
}

struct Place {
  void *context, *stream;
  uint64_t arena;
};

static Place open(int device) {
  Place place = {};
  expect(cuDevicePrimaryCtxRetain(&place.context, device) == 0 && cuCtxSetCurrent(place.context) == 0, "a context");
  expect(cuMemAlloc_v2(&place.arena, 64) == 0 && cuStreamCreate(&place.stream, 1) == 0, "an allocation and a stream");
  return place;
}

int main() {
  setenv("STANDIN_DEVICES", "2", 1);
  cuInit(0);
  int count = 0;
  setenv("CUDA_VISIBLE_DEVICES", "1", 1);
  expect(cuDeviceGetCount(&count) == 0 && count == 1, "CUDA_VISIBLE_DEVICES hides devices");
  unsetenv("CUDA_VISIBLE_DEVICES");
  uint64_t none = 0;
  expect(cuMemAlloc_v2(&none, 64) == 201, "no context, no memory");
  Place first = open(0), second = open(1);

  // Of another context; outside of what was allocated.
  int plain[16] = {}, back[16] = {};
  void *memory = nullptr;
  cuMemAllocHost_v2(&memory, 64);
  int *pinned = static_cast<int *>(memory);
  expect(cuMemcpyHtoDAsync_v2(first.arena, pinned, 64, first.stream) == 400, "a stream of a context that is not this thread's");
  cuCtxSetCurrent(first.context);
  expect(cuMemcpyHtoDAsync_v2(first.arena + 4, pinned, 64, first.stream) == 1, "a copy behind the allocation");

  // Late copies.
  pinned[0] = 1;
  cuMemcpyHtoDAsync_v2(first.arena, pinned, 64, first.stream);
  pinned[0] = 2;
  cuMemcpyDtoHAsync_v2(back, first.arena, 64, first.stream);
  expect(back[0] == 0, "nothing is done before somebody waits");
  cuStreamSynchronize(first.stream);
  expect(back[0] == 2, "whoever changes pinned memory too early changes what is copied");

  // A capture.
  void *graph = nullptr, *ready = nullptr;
  cuStreamBeginCapture_v2(first.stream, 1);
  expect(cuMemcpyHtoDAsync_v2(first.arena, plain, 64, first.stream) == 900 && cuStreamEndCapture(first.stream, &graph) == 901, "memory that is not pinned in a capture");
  cuStreamBeginCapture_v2(first.stream, 1);
  expect(cuStreamSynchronize(first.stream) == 900 && cuStreamEndCapture(first.stream, &graph) == 901, "waiting in a capture");
  cuStreamBeginCapture_v2(first.stream, 1);
  void *more = nullptr;
  expect(cuMemAllocHost_v2(&more, 64) == 900 && cuStreamEndCapture(first.stream, &graph) == 901, "allocating in a capture");
  cuStreamBeginCapture_v2(first.stream, 1);
  cuMemcpyHtoDAsync_v2(first.arena, pinned, 64, first.stream);
  cuMemcpyDtoHAsync_v2(pinned + 8, first.arena, 4, first.stream);
  expect(cuStreamEndCapture(first.stream, &graph) == 0 && cuGraphInstantiateWithFlags(&ready, graph, 0) == 0, "a graph");
  cuStreamSynchronize(first.stream);
  expect(pinned[8] == 0, "what is captured is not done");
  for (int value : {7, 9}) {
    pinned[0] = value;
    cuGraphLaunch(ready, first.stream);
    cuStreamSynchronize(first.stream);
    expect(pinned[8] == value, "a launch does it");
  }

  // Two devices: the second waits for the first, whoever is waited for.
  void *sent = nullptr, *timed = nullptr;
  cuEventCreate(&sent, 2);
  cuEventCreate(&timed, 0);
  cuMemcpyPeerAsync(second.arena, second.context, first.arena, first.context, 64, first.stream);
  cuEventRecord(sent, first.stream);
  float milliseconds = 0;
  cuEventRecord(timed, first.stream);
  expect(cuEventElapsedTime(&milliseconds, timed, timed) == 600, "a time that is not there yet");
  cuCtxSetCurrent(second.context);
  expect(cuEventRecord(sent, second.stream) == 400, "an event of another context");
  cuStreamWaitEvent(second.stream, sent, 0);
  cuMemcpyDtoHAsync_v2(back, second.arena, 64, second.stream);
  cuStreamSynchronize(second.stream);
  expect(back[0] == 9, "a stream waits for another's event");
  cuCtxSetCurrent(first.context);
  cuEventSynchronize(timed);
  expect(cuEventElapsedTime(&milliseconds, timed, timed) == 0 && cuEventElapsedTime(&milliseconds, sent, timed) == 400, "times of events that have some");

  // One word of two, down the rows.
  cuMemsetD2D32Async(first.arena, 8, 5, 1, 8, first.stream);
  cuMemcpyDtoHAsync_v2(back, first.arena, 64, first.stream);
  cuStreamSynchronize(first.stream);
  expect(back[0] == 5 && back[14] == 5 && back[1] == 0 && back[15] == 0, "rows are set");
  printf("%d passed, %d failed\n", passed, failed);
  return failed != 0;
}
