// Library.cpp: see Library.h.
#include "compiler/target/Library.h"
#include "compiler/target/Link.h"

#include "lld/Common/Driver.h"
#include "llvm/Object/Archive.h"
#include "llvm/Object/ArchiveWriter.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/raw_ostream.h"

LLD_HAS_DRIVER(elf)

using namespace llvm;

namespace cinch::target {

std::string writeStaticLibrary(StringRef object, const KernelObjects &kernels, const std::string &runtimeArchive,
                               const std::string &path) {
  std::vector<std::string> names{"program.o"};
  for (const KernelObjects::Object &each : kernels.objects)
    names.push_back(each.symbol + ".o");
  std::vector<NewArchiveMember> members;
  auto add = [&](StringRef bytes, StringRef name) {
    members.emplace_back(MemoryBufferRef(bytes, name));
    members.back().MemberName = name;
  };
  add(object, names[0]);
  for (size_t i = 0; i < kernels.objects.size(); ++i)
    add(StringRef(kernels.objects[i].bytes.data(), kernels.objects[i].bytes.size()), names[i + 1]);

  std::string problem;
  std::unique_ptr<MemoryBuffer> file = readArchive(runtimeArchive, problem);
  if (!file)
    return problem;
  auto archive = object::Archive::create(file->getMemBufferRef());
  if (!archive)
    return toString(archive.takeError());
  Error error = Error::success();
  for (const object::Archive::Child &child : (*archive)->children(error)) {
    Expected<StringRef> name = child.getName(), bytes = child.getBuffer();
    if (name && bytes && *name != "Main.cpp.o") // the user's program has a main of its own
      add(*bytes, *name);
    for (Expected<StringRef> *each : {&name, &bytes})
      if (!*each)
        return toString(each->takeError());
  }
  if (error)
    return toString(std::move(error));
  error = llvm::writeArchive(path, members, SymtabWritingMode::NormalSymtab, object::Archive::K_GNU, /*Deterministic=*/true,
                             /*Thin=*/false);
  return error ? toString(std::move(error)) : "";
}

std::string linkSharedLibrary(const std::vector<std::string> &objects, const std::string &runtimeArchive, const std::string &path,
                              const std::string &name) {
  TemporaryFile exports, runtime;
  std::error_code error = exports.make("map");
  if (!error)
    error = exports.write("{ global: cinch_model_*; local: *; };\n");
  if (error)
    return "the temporary file '" + exports.path() + "': " + error.message();
  std::string libc;
  for (const char *each : {"/lib/x86_64-linux-gnu/libc.so.6", "/usr/lib64/libc.so.6", "/lib64/libc.so.6"})
    if (libc.empty() && sys::fs::exists(each))
      libc = each;
  if (libc.empty())
    return "the C library (libc.so.6) is not found";
  if (std::string problem = copyArchive(runtimeArchive, runtime); !problem.empty())
    return problem;
  std::vector<std::string> args = {"ld.lld", "-shared", "-m", "elf_x86_64", "--gc-sections", "-z", "noexecstack", "-z", "now",
                                   "-z", "nodelete", // its threads run on when a program closes it
                                   "--strip-debug", "-soname", name, "--version-script",
                                   exports.path(), "-u", "cinch_model_init", "-o", path};
  args.insert(args.end(), objects.begin(), objects.end());
  args.insert(args.end(), {runtime.path(), libc});
  std::vector<const char *> argv;
  for (const std::string &arg : args)
    argv.push_back(arg.c_str());
  std::string message;
  raw_string_ostream errors(message);
  if (lld::lldMain(argv, errors, errors, {{lld::Gnu, &lld::elf::link}}).retCode != 0)
    return message.empty() ? "the linker failed" : message;
  return "";
}

} // namespace cinch::target
