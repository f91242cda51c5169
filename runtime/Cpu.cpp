// Cpu.cpp: see Cpu.h.
#include "runtime/Cpu.h"
#include "runtime/Meta.h"
#include "runtime/Output.h"
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cinch::rt {

// LLVM's names of instruction sets, which are those of the builtin, too. It knows what the operating system saves of a thread.
static bool isThere(const char *name) {
#define HAS(NAME) if (strcmp(name, NAME) == 0) return __builtin_cpu_supports(NAME)
  HAS("avx2");
  HAS("fma");
  HAS("bmi");
  HAS("bmi2");
  HAS("avx512f");
  HAS("avx512vl");
  HAS("avx512bw");
  HAS("avx512dq");
  HAS("avx512cd");
  HAS("avx512vbmi");
  HAS("avx512vbmi2");
  HAS("avx512vnni");
  HAS("avx512bitalg");
  HAS("avx512vpopcntdq");
  HAS("avx512vp2intersect");
  HAS("avx512bf16");
  HAS("gfni");
  HAS("amx-tile");
  HAS("amx-bf16");
#undef HAS
  return true; // an instruction set that this table does not know ends the program where it is used
}

static bool permitAmx() {
  constexpr int kRequest = 0x1023, kTileData = 18; // ARCH_REQ_XCOMP_PERM of asm/prctl.h, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

void needCpu(const Meta &meta) {
  for (const char *name : meta.needs) {
    bool amx = strcmp(name, "amx-tile") == 0;
    if (isThere(name) && (!amx || permitAmx()))
      continue;
    fail(kResources, "this program was compiled for the CPU `%s`, whose instructions %s this machine %s; compile it with `--cpu native` on this machine, "
         "or with `--cpu haswell` for any with AVX2", meta.cpu, name, amx && isThere(name) ? "does not lend to programs" : "does not have");
  }
}

} // namespace cinch::rt
