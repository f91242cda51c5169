// KernelCache.cpp: an entry is the checksum of the object, 16 hex digits and a line end, then the object. It is written beside its
// place and renamed into it, so that two compilers at once see whole entries; its time of change is that of its last use.
#include "compiler/target/KernelCache.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/Chrono.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/Support/xxhash.h"

#include <algorithm>
#include <chrono>
#include <vector>

namespace cinch::target {

namespace fs = llvm::sys::fs;
using llvm::StringRef;

static constexpr size_t kHead = 17;

static std::string headOf(StringRef object) {
  return llvm::utohexstr(llvm::xxh3_64bits(llvm::arrayRefFromStringRef(object)), true, 16) + "\n";
}

std::string KernelCache::pathOf(StringRef key) const {
  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, key + ".kernel");
  return path.str().str();
}

std::optional<llvm::SmallVector<char, 0>> KernelCache::find(StringRef key) const {
  if (folder.empty())
    return std::nullopt;
  std::string path = pathOf(key);
  auto file = llvm::MemoryBuffer::getFile(path, false, false);
  if (!file)
    return std::nullopt;
  StringRef text = (*file)->getBuffer();
  if (text.size() <= kHead || text.take_front(kHead) != headOf(text.drop_front(kHead)))
    return std::nullopt;
  int descriptor;
  if (!fs::openFileForWrite(path, descriptor, fs::CD_OpenExisting, fs::OF_Append)) {
    (void)fs::setLastAccessAndModificationTime(descriptor, std::chrono::system_clock::now());
    llvm::sys::fs::file_t handle = descriptor;
    fs::closeFile(handle);
  }
  text = text.drop_front(kHead);
  return llvm::SmallVector<char, 0>(text.begin(), text.end());
}

void KernelCache::keep(StringRef key, llvm::ArrayRef<char> object) const {
  if (folder.empty() || fs::create_directories(folder, true, fs::owner_all))
    return;
  llvm::SmallString<256> temporary;
  int descriptor;
  if (fs::createUniqueFile(pathOf(key) + ".%%%%%%%%.tmp", descriptor, temporary, fs::OF_None, fs::owner_read | fs::owner_write))
    return;
  StringRef text(object.data(), object.size());
  llvm::raw_fd_ostream out(descriptor, true);
  out << headOf(text) << text;
  out.close();
  bool written = !out.has_error();
  out.clear_error();
  if (!written || fs::rename(temporary, pathOf(key)))
    (void)fs::remove(temporary);
}

// The time of change of an empty file beside the entries says when they were last looked at. Whoever looks says so first.
bool KernelCache::isTrimmed() const {
  llvm::SmallString<256> path(folder);
  llvm::sys::path::append(path, "trimmed");
  fs::file_status status;
  auto now = std::chrono::system_clock::now();
  if (!fs::status(path, status) && now - status.getLastModificationTime() < std::chrono::minutes(10))
    return true;
  int descriptor;
  if (!fs::openFileForWrite(path, descriptor, fs::CD_CreateAlways)) {
    llvm::sys::fs::file_t handle = descriptor;
    fs::closeFile(handle);
  }
  return false;
}

void KernelCache::trim() const {
  if (folder.empty() || isTrimmed())
    return;
  struct Entry {
    llvm::sys::TimePoint<> used;
    std::string path;
    int64_t bytes;
  };
  std::vector<Entry> entries;
  int64_t bytes = 0;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    auto status = it->status();
    if (!status || status->type() != fs::file_type::regular_file)
      continue;
    entries.push_back({status->getLastModificationTime(), it->path(), int64_t(status->getSize())});
    bytes += entries.back().bytes;
  }
  std::sort(entries.begin(), entries.end(), [](const Entry &a, const Entry &b) { return a.used < b.used; });
  for (size_t i = 0; i < entries.size() && bytes > mostBytes; ++i) {
    (void)fs::remove(entries[i].path);
    bytes -= entries[i].bytes;
  }
}

} // namespace cinch::target
