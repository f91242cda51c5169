// LINK: cinch_frontend
// Right programs are accepted and elaborate to what they say: test/frontend/checked/*.cinch, and the models of the
// folders given as arguments. In a file, `// listing: text` is a piece of the listing that must be there, `// absent:
// text` one that must not be, `// define: N=3` and `// set: train.lr=1` are what the command line would give.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>

using namespace cinch;

static bool checkFile(const std::string &path) {
  SourceList sources;
  std::string error;
  int id = sources.addFile(path, error);
  if (id < 0) {
    llvm::outs() << "failed: " << error << "\n";
    return false;
  }
  Options options;
  std::vector<std::string> present, absent;
  for (int i = 1; i <= sources.lineCount(id); ++i) {
    std::string_view line = sources.line(id, i);
    auto [head, rest] = llvm::StringRef(line.data(), line.size()).split(": ");
    if (head == "// listing")
      present.push_back(rest.str());
    else if (head == "// absent")
      absent.push_back(rest.str());
    else if (head == "// define" && parseAssignment(rest.str()))
      options.defines.push_back(*parseAssignment(rest.str()));
    else if (head == "// set" && parseAssignment(rest.str()))
      options.settings.push_back(*parseAssignment(rest.str()));
  }
  Diagnostics diags(sources);
  ast::File prelude = parseFile(sources, 0, diags), file = parseFile(sources, id, diags);
  std::optional<Program> program;
  if (!diags.hasErrors())
    program = check(sources, prelude, file, options, diags);
  if (!program || diags.hasErrors()) {
    llvm::outs() << "failed: " << path << " is refused\n";
    diags.print(llvm::outs());
    return false;
  }
  bool good = true;
  if (std::string fault = verifyProgram(*program); !fault.empty()) {
    llvm::outs() << "failed: " << path << ": the verifier: " << fault << "\n";
    good = false;
  }
  std::string listing = printProgram(*program);
  for (const std::string &text : present)
    if (listing.find(text) == std::string::npos) {
      llvm::outs() << "failed: " << path << ": not in the listing: " << text << "\n";
      good = false;
    }
  for (const std::string &text : absent)
    if (listing.find(text) != std::string::npos) {
      llvm::outs() << "failed: " << path << ": in the listing: " << text << "\n";
      good = false;
    }
  return good;
}

int main(int argc, char **argv) {
  // build/bin/checked_programs -> test/frontend/checked
  std::string self = llvm::sys::fs::getMainExecutable(argv[0], reinterpret_cast<void *>(&checkFile));
  llvm::SmallString<256> folder(self);
  for (int i = 0; i < 3; ++i)
    llvm::sys::path::remove_filename(folder);
  llvm::sys::path::append(folder, "test", "frontend", "checked");
  std::vector<std::string> folders(argv + 1, argv + argc), paths;
  if (folders.empty())
    folders.push_back(folder.str().str());
  std::error_code error;
  for (const std::string &place : folders)
    for (llvm::sys::fs::directory_iterator it(place, error), end; it != end && !error; it.increment(error))
      if (llvm::StringRef(it->path()).ends_with(".cinch"))
        paths.push_back(it->path());
  std::sort(paths.begin(), paths.end());
  int passed = 0, failed = paths.empty();
  for (const std::string &path : paths)
    ++(checkFile(path) ? passed : failed);
  llvm::outs() << passed << " passed, " << failed << " failed\n";
  return failed > 0;
}
