// Cpu.h: whether this machine's processor has what the kernels were compiled for.
#ifndef CINCH_RUNTIME_CPU_H
#define CINCH_RUNTIME_CPU_H

namespace cinch::rt {

struct Meta;

// Leaves with kResources if an instruction set that `meta.needs` names is missing, or the operating system does not let this process use
// it. Of AMX, Linux lends the registers to processes that ask; threads of the process may use them from then on.
void needCpu(const Meta &);

} // namespace cinch::rt
#endif
