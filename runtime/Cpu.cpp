// Cpu.cpp: see Cpu.h. CPUID is asked directly: the compiler's builtin needs a library that a shared library is not linked with.
#include "runtime/Cpu.h"
#include "runtime/Meta.h"
#include "runtime/Output.h"
#include <cpuid.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace cinch::rt {

namespace {

enum Register { Eax, Ebx, Ecx, Edx };
// What the operating system must save of a thread, bits of XCR0: vectors of 32 bytes, of 64 bytes, registers of AMX.
constexpr unsigned kNothing = 0, kVectors = 0x6, kWideVectors = 0xe6, kTiles = 0x60000;

// LLVM's names, and where CPUID tells of them (Intel's manual, volume 2, "CPUID").
struct InstructionSet {
  const char *name;
  unsigned leaf, part;
  Register where;
  int bit;
  unsigned saved;
};
const InstructionSet sets[] = {
    {"avx2", 7, 0, Ebx, 5, kVectors},
    {"fma", 1, 0, Ecx, 12, kVectors},
    {"bmi", 7, 0, Ebx, 3, kNothing},
    {"bmi2", 7, 0, Ebx, 8, kNothing},
    {"avx512f", 7, 0, Ebx, 16, kWideVectors},
    {"avx512vl", 7, 0, Ebx, 31, kWideVectors},
    {"avx512bw", 7, 0, Ebx, 30, kWideVectors},
    {"avx512dq", 7, 0, Ebx, 17, kWideVectors},
    {"avx512cd", 7, 0, Ebx, 28, kWideVectors},
    {"avx512vbmi", 7, 0, Ecx, 1, kWideVectors},
    {"avx512vbmi2", 7, 0, Ecx, 6, kWideVectors},
    {"avx512vnni", 7, 0, Ecx, 11, kWideVectors},
    {"avx512bitalg", 7, 0, Ecx, 12, kWideVectors},
    {"avx512vpopcntdq", 7, 0, Ecx, 14, kWideVectors},
    {"avx512vp2intersect", 7, 0, Edx, 8, kWideVectors},
    {"avx512bf16", 7, 1, Eax, 5, kWideVectors},
    {"gfni", 7, 0, Ecx, 8, kNothing},
    {"amx-tile", 7, 0, Edx, 24, kTiles},
    {"amx-bf16", 7, 0, Edx, 22, kTiles},
};

unsigned savedState() {
  unsigned words[4];
  constexpr unsigned kSaves = 1u << 27; // XGETBV may be asked
  if (!__get_cpuid(1, &words[Eax], &words[Ebx], &words[Ecx], &words[Edx]) || !(words[Ecx] & kSaves))
    return 0;
  unsigned low, high;
  asm("xgetbv" : "=a"(low), "=d"(high) : "c"(0));
  return low;
}

bool isThere(const char *name) {
  for (const InstructionSet &set : sets) {
    if (strcmp(set.name, name) != 0)
      continue;
    unsigned words[4];
    return __get_cpuid_count(set.leaf, set.part, &words[Eax], &words[Ebx], &words[Ecx], &words[Edx]) && (words[set.where] >> set.bit & 1) &&
           (savedState() & set.saved) == set.saved;
  }
  return true; // an instruction set that this table does not know ends the program where it is used
}

bool permitAmx() {
  constexpr int kRequest = 0x1023, kTileData = 18; // ARCH_REQ_XCOMP_PERM of asm/prctl.h, XFEATURE_XTILE_DATA
  return syscall(SYS_arch_prctl, kRequest, kTileData) == 0;
}

} // namespace

void needCpu(const Meta &meta) {
  for (const char *name : meta.needs) {
    bool there = isThere(name), amx = strcmp(name, "amx-tile") == 0;
    if (there && (!amx || permitAmx()))
      continue;
    fail(kResources,
         "this program was compiled for the CPU `%s`, whose instructions %s this machine %s; compile it with `--cpu native` on this "
         "machine, or with `--cpu haswell` for any with AVX2",
         meta.cpu, name, there ? "does not lend to programs" : "does not have");
  }
}

} // namespace cinch::rt
