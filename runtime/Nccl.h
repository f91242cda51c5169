// Nccl.h: the part of NVIDIA's communication library that the runtime calls, found at run time in libnccl.so.2. Names, types and numbers
// are those of its public interface (nccl.h); nothing of it is needed to compile.
#ifndef CINCH_RUNTIME_NCCL_H
#define CINCH_RUNTIME_NCCL_H
#include "runtime/CudaDriver.h"

namespace cinch::rt {

typedef struct ncclComm *NcclComm;
struct NcclId { // passed by value
  char bytes[128];
};
enum { kNcclBytes = 1, kNcclF32 = 7, kNcclF64 = 8 }; // types of elements
enum { kNcclSum = 0 };

#define CINCH_NCCL_FUNCTIONS(F)                                                                                                    \
  F(version, "ncclGetVersion", (int *))                                                                                            \
  F(makeId, "ncclGetUniqueId", (NcclId *))                                                                                         \
  F(join, "ncclCommInitRank", (NcclComm *, int count, NcclId, int rank))                                                           \
  F(send, "ncclSend", (const void *, size_t count, int type, int peer, NcclComm, CUstream))                                        \
  F(receive, "ncclRecv", (void *, size_t count, int type, int peer, NcclComm, CUstream))                                           \
  F(allReduce, "ncclAllReduce", (const void *, void *, size_t count, int type, int operation, NcclComm, CUstream))

struct Nccl {
#define F(NAME, SYMBOL, ARGUMENTS) int(*NAME) ARGUMENTS; // 0: done
  CINCH_NCCL_FUNCTIONS(F)
#undef F
  const char *(*errorText)(int);
};
extern Nccl nccl;

// False: it is not here, or lacks something.
bool openNccl();
// What failed ends the run with kResources.
void expectNccl(int result, const char *what);

} // namespace cinch::rt
#endif
