// KernelCache.h: code of kernels that was generated before (objects of a CPU, PTX and machine code of a GPU), in $XDG_CACHE_HOME/cinch/kernels.
// Nothing depends on it but time: an entry that cannot be read or is damaged counts as absent, one that cannot be written is left out.
#ifndef CINCH_COMPILER_TARGET_KERNELCACHE_H
#define CINCH_COMPILER_TARGET_KERNELCACHE_H

#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"

#include <optional>
#include <string>

namespace cinch::target {

class KernelCache {
public:
  static constexpr int64_t kMostBytes = int64_t(1) << 30;

  // "": keeps nothing.
  explicit KernelCache(std::string folder, int64_t mostBytes = kMostBytes) : folder(std::move(folder)), mostBytes(mostBytes) {}

  // Any thread may call these; a key is a name for a file, made of everything that decides the object.
  std::optional<llvm::SmallVector<char, 0>> find(llvm::StringRef key) const;
  void keep(llvm::StringRef key, llvm::ArrayRef<char> object) const;
  // Deletes the entries that were used longest ago until the rest is within the limit. Looking at all of them takes longer than a small kernel's
  // code, so that is done if nobody did in the last ten minutes.
  void trim() const;

private:
  std::string pathOf(llvm::StringRef key) const;
  bool isTrimmed() const;
  std::string folder;
  int64_t mostBytes;
};

} // namespace cinch::target
#endif
