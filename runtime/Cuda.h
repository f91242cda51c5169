// Cuda.h: the part of NVIDIA's driver that the runtime calls, found at run time in libcuda.so.1. Names, types and numbers are those of
// the driver's public interface (CUDA Driver API); nothing of a CUDA toolkit is needed.
#ifndef CINCH_RUNTIME_CUDA_H
#define CINCH_RUNTIME_CUDA_H
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

enum { kOutOfMemory = 2, kNoDevice = 100, kInvalidImage = 200, kNoBinaryForGpu = 209, kUnsupportedPtx = 222 }; // results
enum { kCapabilityMajor = 75, kCapabilityMinor = 76 };                                                      // attributes of a device

// Every function, with the name under which the driver has it.
#define CINCH_CUDA_FUNCTIONS(F)                                                                                                    \
  F(init, "cuInit", (unsigned))                                                                                                    \
  F(driverVersion, "cuDriverGetVersion", (int *))                                                                                  \
  F(deviceCount, "cuDeviceGetCount", (int *))                                                                                      \
  F(getDevice, "cuDeviceGet", (CUdevice *, int))                                                                                   \
  F(deviceName, "cuDeviceGetName", (char *, int, CUdevice))                                                                        \
  F(deviceAttribute, "cuDeviceGetAttribute", (int *, int, CUdevice))                                                               \
  F(retainContext, "cuDevicePrimaryCtxRetain", (CUcontext *, CUdevice))                                                            \
  F(setContext, "cuCtxSetCurrent", (CUcontext))                                                                                    \
  F(memoryInfo, "cuMemGetInfo_v2", (size_t *, size_t *))                                                                           \
  F(allocateOnDevice, "cuMemAlloc_v2", (CUdeviceptr *, size_t))                                                                    \
  F(allocatePinned, "cuMemAllocHost_v2", (void **, size_t))                                                                        \
  F(loadModule, "cuModuleLoadDataEx", (CUmodule *, const void *, unsigned, int *, void **))                                        \
  F(functionOf, "cuModuleGetFunction", (CUfunction *, CUmodule, const char *))                                                     \
  F(createStream, "cuStreamCreate", (CUstream *, unsigned))                                                                        \
  F(waitForStream, "cuStreamSynchronize", (CUstream))                                                                              \
  F(createEvent, "cuEventCreate", (CUevent *, unsigned))                                                                           \
  F(recordEvent, "cuEventRecord", (CUevent, CUstream))                                                                             \
  F(waitForEvent, "cuEventSynchronize", (CUevent))                                                                                 \
  F(copyToDevice, "cuMemcpyHtoDAsync_v2", (CUdeviceptr, const void *, size_t, CUstream))                                           \
  F(copyFromDevice, "cuMemcpyDtoHAsync_v2", (void *, CUdeviceptr, size_t, CUstream))                                               \
  F(setBytes, "cuMemsetD8Async", (CUdeviceptr, unsigned char, size_t, CUstream))                                                   \
  F(launchKernel, "cuLaunchKernel",                                                                                                \
    (CUfunction, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, CUstream, void **, void **))                \
  F(errorName, "cuGetErrorName", (CUresult, const char **))                                                                        \
  F(errorText, "cuGetErrorString", (CUresult, const char **))

} // namespace cinch::rt
#endif
