// CudaDriver.h: the part of NVIDIA's driver that the runtime calls, found at run time in libcuda.so.1. Names, types and numbers are those
// of the driver's public interface (CUDA Driver API); nothing of a CUDA toolkit is needed.
#ifndef CINCH_RUNTIME_CUDADRIVER_H
#define CINCH_RUNTIME_CUDADRIVER_H
#include <stddef.h>
#include <stdint.h>

namespace cinch::rt {

typedef int CUresult; // 0: done
typedef int CUdevice;
typedef uint64_t CUdeviceptr;
typedef struct CUctx_st *CUcontext;
typedef struct CUmod_st *CUmodule;
typedef struct CUfunc_st *CUfunction;
typedef struct CUstream_st *CUstream;
typedef struct CUevent_st *CUevent;
typedef struct CUgraph_st *CUgraph;
typedef struct CUgraphExec_st *CUgraphExec;

// Results that are looked at.
enum { kOutOfMemory = 2, kDriverTooOld = 35, kDeviceUnavailable = 46, kNoDevice = 100, kInvalidImage = 200, kNoBinaryForGpu = 209, kEccUncorrectable = 214, kUnsupportedPtx = 222,
       kFirstOfKernels = 700, kLastOfKernels = 720 };
enum { kCapabilityMajor = 75, kCapabilityMinor = 76 }; // attributes of a device
enum { kMostSharedOfLaunch = 8 };                       // of a function
enum { kEventWithoutTimes = 2, kStreamWaitsForNoOther = 1, kCaptureOfThread = 1 }; // flags

// CUtensorMap: how a kernel's copies of boxes see a tensor. Elements of bf16; lines of 128 bytes, swizzled; zeros where there are no elements.
struct alignas(64) TensorMapWords {
  uint64_t opaque[16];
};
enum { kMapOfBF16 = 9, kMapInterleavesNothing = 0, kMapSwizzle128 = 3, kMapPromotes128 = 2, kMapFillsZeros = 0 };

// Every function, with the name under which the driver has it.
#define CINCH_CUDA_FUNCTIONS(F)                                                                                                    \
  F(init, "cuInit", (unsigned))                                                                                                    \
  F(driverVersion, "cuDriverGetVersion", (int *))                                                                                  \
  F(deviceCount, "cuDeviceGetCount", (int *))                                                                                      \
  F(getDevice, "cuDeviceGet", (CUdevice *, int))                                                                                   \
  F(deviceName, "cuDeviceGetName", (char *, int, CUdevice))                                                                        \
  F(deviceAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice))                                                               \
  F(retainContext, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                                                            \
  F(currentContext, "cuCtxGetCurrent", (CUcontext *))                                                                              \
  F(setContext, "cuCtxSetCurrent", (CUcontext))                                                                                    \
  F(memoryInfo, "cuMemGetInfo_v2", (size_t *, size_t *))                                                                           \
  F(allocateOnDevice, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                                                    \
  F(allocatePinned, "cuMemAllocHost_v2", (void **, size_t))                                                                        \
  F(pinMemory, "cuMemHostRegister_v2", (void *, size_t, unsigned))                                                                 \
  F(loadModule, "cuModuleLoadDataEx", (CUmodule *, const void *, unsigned, int *, void **))                                        \
  F(functionOf, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))                                                     \
  F(setFunction, "cuFuncSetAttribute", (CUfunction, int, int))                                                                     \
  F(globalOf, "cuModuleGetGlobal_v2", (CUdeviceptr *, size_t *, CUmodule, const char *))                                           \
  F(createStream, "cuStreamCreate", (CUstream *, unsigned))                                                                        \
  F(waitForStream, "cuStreamSynchronize", (CUstream))                                                                              \
  F(streamWaitsFor, "cuStreamWaitEvent", (CUstream, CUevent, unsigned))                                                            \
  F(createEvent, "cuEventCreate", (CUevent *, unsigned))                                                                           \
  F(recordEvent, "cuEventRecord", (CUevent, CUstream))                                                                             \
  F(waitForEvent, "cuEventSynchronize", (CUevent))                                                                                 \
  F(timeBetween, "cuEventElapsedTime", (float *, CUevent, CUevent))                                                                \
  F(copyToDevice, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))                                           \
  F(copyFromDevice, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))                                               \
  F(copyOnDevice, "cuMemcpyDtoDAsync_v2", (CUdeviceptr, CUdeviceptr, size_t, CUstream))                                            \
  F(copyBetween, "cuMemcpyPeerAsync", (CUdeviceptr, CUcontext, CUdeviceptr, CUcontext, size_t, CUstream))                          \
  F(setBytes, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                                                   \
  F(setHalves, "cuMemsetD16Async", (CUdeviceptr, unsigned short, size_t, CUstream))                                                \
  F(setWords, "cuMemsetD32Async", (CUdeviceptr, unsigned, size_t, CUstream))                                                       \
  F(setRows, "cuMemsetD2D32Async", (CUdeviceptr, size_t, unsigned, size_t, size_t, CUstream))                                      \
  F(launchKernel, "cuLaunchKernel",                                                                                                \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))                \
  F(errorName, "cuGetErrorName", (CUresult, const char **))                                                                        \
  F(errorText, "cuGetErrorString", (CUresult, const char **))
// For kernels with maps of tensors alone, which need a driver for CUDA 12.0 or later.
#define CINCH_CUDA_MAPS(F)                                                                                                         \
  F(encodeMap, "cuTensorMapEncodeTiled",                                                                                           \
    (TensorMapWords *, int, uint32_t, void *, const uint64_t *, const uint64_t *, const uint32_t *, const uint32_t *, int, int, int, int))
// Those that a driver may lack: then each step is asked for kernel by kernel.
#define CINCH_CUDA_GRAPHS(F)                                                                                                       \
  F(beginCapture, "cuStreamBeginCapture_v2", (CUstream, int))                                                                      \
  F(endCapture, "cuStreamEndCapture", (CUstream, CUgraph *))                                                                       \
  F(instantiate, "cuGraphInstantiateWithFlags", (CUgraphExec *, CUgraph, unsigned long long))                                      \
  F(destroyGraph, "cuGraphDestroy", (CUgraph))                                                                                     \
  F(launchGraph, "cuGraphLaunch", (CUgraphExec, CUstream))

struct CudaDriver {
#define F(NAME, SYMBOL, ARGUMENTS) CUresult(*NAME) ARGUMENTS;
  CINCH_CUDA_FUNCTIONS(F)
  CINCH_CUDA_GRAPHS(F)
  CINCH_CUDA_MAPS(F)
#undef F
  bool hasGraphs;
  bool blocking; // CUDA_LAUNCH_BLOCKING=1: each kernel is waited for, so that the one that fails is known
};
extern CudaDriver cuda;

void openDriver();
// The words for a result: "unspecified launch failure (CUDA_ERROR_LAUNCH_FAILED, 719)".
struct Text;
void addResult(Text &, CUresult);
// Every call of the driver comes through here: what failed ends the run with kResources. `launch`: the one that was asked for, -1: none.
void expect(CUresult, const char *what, int64_t launch = -1);

} // namespace cinch::rt
#endif
