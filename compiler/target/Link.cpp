// Link.cpp: final link with lld as a library; `cc` is the fallback.
#include "compiler/target/Link.h"

#include "lld/Common/Driver.h"
#include "llvm/ADT/SmallVector.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

using namespace llvm;

namespace cinch::target {

// The folder that holds `file`, of the places where Linux systems keep it; empty if none does.
static std::string folderOf(StringRef file, ArrayRef<std::string> places) {
  for (const std::string &place : places)
    if (sys::fs::exists(place + "/" + file.str()))
      return place;
  return "";
}

static std::vector<std::string> gccFolders() {
  std::vector<std::string> found;
  std::error_code error;
  for (sys::fs::directory_iterator it("/usr/lib/gcc/x86_64-linux-gnu", error), end; !error && it != end;
       it.increment(error))
    found.push_back(it->path());
  return found;
}

// Pulls the part of the runtime archive in that meets workers in other processes (runtime/Peers.h).
constexpr const char *kJoinPeers = "cinch_join_peers";
// The same for the part that drives a GPU (runtime/Device.h).
constexpr const char *kOpenDevice = "cinch_open_device";

std::string linkExecutable(const std::vector<std::string> &objects, const std::string &runtimeArchive,
                           const std::string &output, llvm::function_ref<bool(int64_t bytes)> accepts,
                           Linking linking) {
  const bool dynamic = linking != Linking::Static;
  std::vector<const char *> parts;
  if (linking == Linking::WithPeers || linking == Linking::WithPeersAndDevice)
    parts.push_back(kJoinPeers);
  if (linking == Linking::WithDevice || linking == Linking::WithPeersAndDevice)
    parts.push_back(kOpenDevice);
  // Beside the output, so that the last step is a rename; for a device, among the temporary files.
  SmallString<128> temporary(output);
  if (sys::fs::exists(output) && !sys::fs::is_regular_file(output)) {
    if (std::error_code error = sys::fs::createTemporaryFile("cinch", "exe", temporary))
      return error.message();
  } else {
    temporary += ".tmp";
  }
  // A package brings its own beside the runtime (tools/package).
  std::string ours = (sys::path::parent_path(runtimeArchive) + "/link").str();
  std::vector<std::string> places{ours, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}, compilers = gccFolders();
  compilers.insert(compilers.begin(), ours);
  std::string crt = folderOf("crt1.o", places), gcc = folderOf("libgcc.a", compilers);
  std::string libc = folderOf(dynamic ? "libc.so" : "libc.a", places);
  std::string message;
  int status = 1;
  int64_t shared = 0; // bytes of libraries
  if (!crt.empty() && !libc.empty() && !gcc.empty()) {
    std::vector<std::string> args = {"ld.lld", "-m", "elf_x86_64", "--gc-sections", "-z", "noexecstack", "-z", "now",
                                     "--strip-debug", "-o", temporary.str().str()};
    auto add = [&](std::initializer_list<std::string> more) { args.insert(args.end(), more); };
    if (dynamic)
      add({"-dynamic-linker", "/lib64/ld-linux-x86-64.so.2"});
    else
      add({"-static"});
    for (const char *part : parts)
      add({"-u", part});
    add({crt + "/crt1.o", crt + "/crti.o", gcc + (dynamic ? "/crtbegin.o" : "/crtbeginT.o")});
    args.insert(args.end(), objects.begin(), objects.end());
    add({runtimeArchive, "-L" + gcc, "-L" + libc});
    if (dynamic)
      add({"-lgcc", "-lc", "-lgcc"});
    else
      add({"--start-group", "-lgcc", "-lgcc_eh", "-lc", "--end-group"});
    if (dynamic)
      shared = kLibraryBytes;
    args.push_back(gcc + "/crtend.o");
    args.push_back(crt + "/crtn.o");
    std::vector<const char *> argv;
    for (const std::string &arg : args)
      argv.push_back(arg.c_str());
    raw_string_ostream errors(message);
    status = lld::lldMain(argv, errors, errors, {{lld::Gnu, &lld::elf::link}}).retCode;
  } else if (auto cc = sys::findProgramByName("cc")) {
    std::vector<StringRef> args = {"cc", "-o", temporary};
    for (const std::string &object : objects)
      args.push_back(object);
    args.push_back(runtimeArchive);
    for (const char *part : parts)
      args.insert(args.end(), {"-u", part});
    if (dynamic)
      args.push_back("-ldl");
    args.push_back("-lpthread");
    shared = kLibraryBytes;
    status = sys::ExecuteAndWait(*cc, args, std::nullopt, {}, 0, 0, &message);
  } else {
    return "no C start files (crt1.o, libc.a, libgcc.a) and no `cc` found; install libc6-dev and gcc";
  }
  if (status != 0) {
    sys::fs::remove(temporary);
    return message.empty() ? "the linker failed" : message;
  }
  uint64_t bytes = 0;
  if (std::error_code error = sys::fs::file_size(temporary, bytes))
    return error.message();
  if (!accepts(int64_t(bytes) + shared)) {
    sys::fs::remove(temporary);
    return "";
  }
  // A device such as /dev/null is written to; a rename would put a file in its place.
  bool special = sys::fs::exists(output) && !sys::fs::is_regular_file(output);
  std::error_code error = special ? sys::fs::copy_file(temporary, output) : sys::fs::rename(temporary, output);
  if (error || special)
    sys::fs::remove(temporary);
  return error ? error.message() : "";
}

} // namespace cinch::target
