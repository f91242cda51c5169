// KernelHarness.cpp: CPUs of this machine, calls, arenas with guards.
#include "test/kernels/KernelHarness.h"

#include "compiler/kernels/Tiling.h"

#include "llvm/TargetParser/Host.h"
#include <cstring>
#include <sys/mman.h>

namespace cinch::test {

std::vector<std::string> runnableCpus() {
  std::vector<std::string> cpus;
  auto features = llvm::sys::getHostCPUFeatures();
  if (features.lookup("avx2") && features.lookup("fma"))
    cpus.push_back("haswell");
  if (features.lookup("avx512f") && features.lookup("avx512vl") && features.lookup("avx512bw") &&
      features.lookup("avx512dq"))
    cpus.push_back("skylake-avx512");
  if (cpus.size() == 2 && features.lookup("avx512bf16"))
    cpus.push_back("cooperlake");
  if (cpus.size() == 3 && features.lookup("amx-tile") && features.lookup("amx-bf16") && features.lookup("avx512fp16"))
    cpus.push_back("sapphirerapids");
  return cpus;
}

kernels::TargetInfo withRandomTiling(const kernels::ContractSpec &spec, kernels::TargetInfo target, uint64_t random) {
  auto below = [&](uint64_t bound) {
    random = random * 6364136223846793005u + 1442695040888963407u;
    return int64_t((random >> 33) % bound);
  };
  kernels::Tiling tiling;
  do {
    tiling.rows = int(1 + below(28)), tiling.vectors = int(1 + below(14));
    tiling.steps = 64 + below(1 << below(10));
    tiling.near = 1 + below(1 << below(20)), tiling.far = 1 + below(1 << below(22));
  } while (!kernels::isTiling(tiling, target));
  auto table = std::make_shared<kernels::TileTable>();
  table->tilings[kernels::shapeText(spec, target)] = tiling;
  target.tiles = table;
  return target;
}

void callKernel(KernelFunction function, char *arena, const int64_t *offsets, int64_t *context, int64_t threads) {
  for (int64_t thread = threads; thread-- > 0;)
    function(arena, offsets, context, thread, threads);
}

static constexpr int64_t kGuard = 128;
static constexpr char kGuardByte = 0x5b;

int Arena::add(int64_t bytes) {
  sizes.push_back(bytes);
  return int(sizes.size()) - 1;
}

void Arena::place() {
  if (base)
    return;
  static size_t turn = 0; // the buffers take turns at the end
  atEnd = sizes.empty() ? 0 : turn++ % sizes.size();
  int64_t end = kGuard;
  offsets.resize(sizes.size());
  auto onLine = [](int64_t bytes) { return (bytes + 63) / 64 * 64; };
  for (size_t i = 0; i < sizes.size(); ++i)
    if (i != atEnd) {
      offsets[i] = end;
      end = onLine(end + sizes[i] + kGuard);
    }
  // Nothing behind the last one can be read. A program's arena ends like that.
  constexpr int64_t kPage = 4096;
  if (!sizes.empty()) {
    const int64_t bytes = onLine(sizes[atEnd]);
    end = (end + bytes + kPage - 1) / kPage * kPage;
    offsets[atEnd] = end - bytes;
  }
  const int64_t behind = end;
  end += kPage;
  // As in the arena of a program, memory is fresh, and lies in huge pages if it is large: what was small pages before stays small.
  constexpr int64_t kHuge = int64_t(2) << 20;
  const int64_t whole = (end + kHuge - 1) / kHuge * kHuge;
  mapped = size_t(whole + kHuge);
  void *fresh = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (fresh == MAP_FAILED)
    std::abort();
  storage = static_cast<char *>(fresh);
  base = storage + (kHuge - reinterpret_cast<uintptr_t>(storage) % kHuge) % kHuge;
  if (end >= kHuge)
    (void)madvise(base, size_t(whole), MADV_HUGEPAGE);
  std::memset(base, kGuardByte, size_t(behind));
  if (end < kHuge && mprotect(base + behind, size_t(kPage), PROT_NONE) != 0) // of a large one, that would break up its huge pages
    std::abort();
}

Arena::~Arena() {
  if (storage)
    munmap(storage, mapped);
}

bool Arena::isInside(int64_t place) const {
  for (size_t i = 0; i < sizes.size(); ++i)
    if (place >= offsets[i] && place < offsets[i] + sizes[i])
      return true;
  return false;
}

char *Arena::data() {
  place();
  return base;
}

const int64_t *Arena::offsetsOf() {
  place();
  return offsets.data();
}

bool Arena::guardsIntact() {
  place();
  for (size_t i = 0; i < sizes.size(); ++i) {
    const int64_t room = i == atEnd ? -sizes[i] & 63 : kGuard;
    for (int64_t b = 0; b < room; ++b)
      if (base[offsets[i] + sizes[i] + b] != kGuardByte)
        return false;
    for (int64_t b = 0; b < kGuard; ++b)
      if (base[offsets[i] - 1 - b] != kGuardByte && !isInside(offsets[i] - 1 - b))
        return false;
  }
  return true;
}

} // namespace cinch::test
