// Link.cpp: final link with lld as a library; `cc` is the fallback.
#include "compiler/target/Link.h"

#include "lld/Common/Driver.h"
#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Object/Archive.h"
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

namespace {
// What is linked, and where it goes.
struct Link {
  const std::vector<std::string> &objects;
  const std::string &runtimeArchive;
  std::string output;
  std::vector<const char *> parts; // of the runtime archive that nothing else asks for
  bool dynamic;
};
// Where this system keeps what a C program starts with; a folder that was not found is empty.
struct Places {
  std::string crt, gcc, libc;
  bool complete() const { return !crt.empty() && !gcc.empty() && !libc.empty(); }
};
} // namespace

static Places findPlaces(const std::string &runtimeArchive, bool dynamic) {
  // A package brings its own beside the runtime (tools/package).
  std::string ours = (sys::path::parent_path(runtimeArchive) + "/link").str();
  std::vector<std::string> places{ours, "/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib"}, compilers = gccFolders();
  compilers.insert(compilers.begin(), ours);
  return {folderOf("crt1.o", places), folderOf("libgcc.a", compilers), folderOf(dynamic ? "libc.so" : "libc.a", places)};
}

static int linkByLld(const Link &link, const Places &places, std::string &message) {
  const auto &[crt, gcc, libc] = places;
  std::vector<std::string> args = {"ld.lld", "-m", "elf_x86_64", "--gc-sections", "-z", "noexecstack", "-z", "now",
                                   "--strip-debug", "--threads=1", "-o", link.output}; // so little is linked that threads only start and end
  auto add = [&](std::initializer_list<std::string> more) { args.insert(args.end(), more); };
  if (link.dynamic)
    add({"-dynamic-linker", "/lib64/ld-linux-x86-64.so.2"});
  else
    add({"-static"});
  for (const char *part : link.parts)
    add({"-u", part});
  add({crt + "/crt1.o", crt + "/crti.o", gcc + (link.dynamic ? "/crtbegin.o" : "/crtbeginT.o")});
  args.insert(args.end(), link.objects.begin(), link.objects.end());
  add({link.runtimeArchive, "-L" + gcc, "-L" + libc});
  if (link.dynamic)
    add({"-lgcc", "-lc", "-lgcc"});
  else
    add({"--start-group", "-lgcc", "-lgcc_eh", "-lc", "--end-group"});
  add({gcc + "/crtend.o", crt + "/crtn.o"});
  std::vector<const char *> argv;
  for (const std::string &arg : args)
    argv.push_back(arg.c_str());
  raw_string_ostream errors(message);
  return lld::lldMain(argv, errors, errors, {{lld::Gnu, &lld::elf::link}}).retCode;
}

static int linkByCc(const Link &link, const std::string &cc, std::string &message) {
  std::vector<StringRef> args = {"cc", "-o", link.output};
  args.insert(args.end(), link.objects.begin(), link.objects.end());
  args.push_back(link.runtimeArchive);
  for (const char *part : link.parts)
    args.insert(args.end(), {"-u", part});
  if (link.dynamic)
    args.push_back("-ldl");
  args.push_back("-lpthread");
  return sys::ExecuteAndWait(cc, args, std::nullopt, {}, 0, 0, &message);
}

// A file that is mapped into memory takes this process with it when somebody cuts it short: it is read. Half an archive ends within a member, or
// its table of symbols names members that are not there.
std::unique_ptr<MemoryBuffer> readArchive(const std::string &path, std::string &error) {
  auto file = MemoryBuffer::getFile(path, /*IsText=*/false, /*RequiresNullTerminator=*/true, /*IsVolatile=*/true);
  if (!file) {
    error = "the runtime library '" + path + "' cannot be read: " + file.getError().message();
    return nullptr;
  }
  auto broken = [&](Error why) {
    error = "the runtime library '" + path + "' is not whole (" + toString(std::move(why)) + "): if it is being built or installed, run cinch again after that";
    return nullptr;
  };
  auto archive = object::Archive::create((*file)->getMemBufferRef());
  if (!archive)
    return broken(archive.takeError());
  Error wrong = Error::success();
  for (const object::Archive::Child &child : (*archive)->children(wrong))
    if (Expected<StringRef> bytes = child.getBuffer(); !bytes)
      return broken(joinErrors(std::move(wrong), bytes.takeError()));
  if (wrong)
    return broken(std::move(wrong));
  if (!(*archive)->hasSymbolTable())
    return broken(createStringError("it has no table of symbols"));
  for (const object::Archive::Symbol &symbol : (*archive)->symbols())
    if (Expected<object::Archive::Child> member = symbol.getMember(); !member)
      return broken(member.takeError());
  return std::move(*file);
}

std::string copyArchive(const std::string &path, TemporaryFile &copy) {
  std::string problem;
  std::unique_ptr<MemoryBuffer> bytes = readArchive(path, problem);
  if (!bytes)
    return problem;
  std::error_code error = copy.make("a");
  if (!error)
    error = copy.write(bytes->getBuffer());
  return error ? "the temporary file '" + copy.path() + "': " + error.message() : "";
}

// A device such as /dev/null is written to; a rename would put a file in its place.
static bool isSpecial(const std::string &output) { return sys::fs::exists(output) && !sys::fs::is_regular_file(output); }

std::string linkExecutable(const std::vector<std::string> &objects, const std::string &runtimeArchive,
                           const std::string &output, llvm::function_ref<bool(int64_t bytes)> accepts,
                           Linking linking) {
  std::vector<const char *> parts;
  if (linking == Linking::WithPeers || linking == Linking::WithPeersAndDevice)
    parts.push_back(kJoinPeers);
  if (linking == Linking::WithDevice || linking == Linking::WithPeersAndDevice)
    parts.push_back(kOpenDevice);
  // Beside the output, so that the last step is a rename; for a device, among the temporary files.
  TemporaryFile temporary, runtime;
  if (std::error_code error = isSpecial(output) ? temporary.make("exe") : temporary.makeBeside(output))
    return error.message();
  if (std::string problem = copyArchive(runtimeArchive, runtime); !problem.empty())
    return problem;
  const Link link{objects, runtime.path(), temporary.path(), parts, linking != Linking::Static};
  const Places places = findPlaces(runtimeArchive, link.dynamic);
  std::string message;
  int status = 1;
  int64_t shared = 0; // bytes of libraries
  if (places.complete()) {
    shared = link.dynamic ? kLibraryBytes : 0;
    status = linkByLld(link, places, message);
  } else if (auto cc = sys::findProgramByName("cc")) {
    shared = kLibraryBytes;
    status = linkByCc(link, *cc, message);
  } else {
    return "no C start files (crt1.o, libc.a, libgcc.a) and no `cc` found; install libc6-dev and gcc";
  }
  if (status != 0)
    return message.empty() ? "the linker failed" : message;
  uint64_t bytes = 0;
  if (std::error_code error = sys::fs::file_size(temporary.path(), bytes))
    return error.message();
  if (!accepts(int64_t(bytes) + shared))
    return "";
  std::error_code error = isSpecial(output) ? sys::fs::copy_file(temporary.path(), output) : temporary.renameTo(output);
  return error ? error.message() : "";
}

} // namespace cinch::target
