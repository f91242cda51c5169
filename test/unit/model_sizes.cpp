// LINK: cinch_frontend
// The models of the language's pages have the published numbers of parameters. What the compiler does not have yet
// (`precision bf16`, `init`, a loss that averages over chosen elements only) is taken out of their text first.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringRef.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <cstring>

using namespace cinch;

static std::optional<Program> load(const std::string &path, const Options &options) {
  SourceList onDisk;
  std::string error, text;
  int id = onDisk.addFile(path, error);
  if (id < 0) {
    llvm::outs() << "failed: " << error << "\n";
    return std::nullopt;
  }
  for (int i = 1; i <= onDisk.lineCount(id); ++i) {
    llvm::StringRef line(onDisk.line(id, i).data(), onDisk.line(id, i).size());
    if (line.trim().starts_with("precision") || line.trim().starts_with("init "))
      continue;
    std::string kept = line.str();
    size_t where = kept.find(" where chosen]"); // a loss that averages over chosen tokens
    if (where != std::string::npos)
      kept.erase(where, strlen(" where chosen"));
    text += kept + "\n";
  }
  SourceList sources;
  id = sources.add(path, text);
  Diagnostics diags(sources);
  ast::File prelude = parseFile(sources, 0, diags), file = parseFile(sources, id, diags);
  std::optional<Program> program = check(sources, prelude, file, options, diags);
  if (!program)
    diags.print(llvm::outs());
  return program;
}

int main(int, char **argv) {
  std::string self = llvm::sys::fs::getMainExecutable(argv[0], reinterpret_cast<void *>(&load));
  llvm::SmallString<256> folder(self);
  for (int i = 0; i < 3; ++i)
    llvm::sys::path::remove_filename(folder);
  llvm::sys::path::append(folder, "test", "frontend", "language");
  struct Case {
    const char *file;
    int64_t parameters;
    Options options;
  };
  const Case cases[] = {{"models/mlp.cinch", 203530, {}},
                        {"models/gpt_bytes.cinch", 10844160, {}},
                        {"models/gpt2_124m.cinch", 124439808, {}},
                        {"models/bert.cinch", 109514298, {}},
                        {"models/vae.cinch", 652824, {}},
                        {"page/mlp.cinch", 203530, {}},
                        {"page/gpt.cinch", 124402944, {}},
                        {"models/mlp.cinch", 784 * 32 + 32 + 32 * 10 + 10, {{{"H", "32"}}, {}}},
                        // GPT-2 medium: 24 blocks of width 1024, 16 heads
                        {"models/gpt2_124m.cinch", 354823168, {{{"N", "24"}, {"D", "1024"}, {"A", "16"}}, {}}}};
  int passed = 0, failed = 0;
  for (const Case &c : cases) {
    std::optional<Program> program = load(folder.str().str() + "/" + c.file, c.options);
    int64_t total = 0;
    if (program)
      for (const Parameter &parameter : program->parameters) {
        int64_t size = 1;
        for (int64_t axis : parameter.type.shape)
          size *= axis;
        total += size;
      }
    std::string fault = program ? verifyProgram(*program) : "refused";
    if (total == c.parameters && fault.empty()) {
      ++passed;
      continue;
    }
    ++failed;
    llvm::outs() << "failed: " << c.file << ": " << total << " parameters, expected " << c.parameters << "; " << fault
                 << "\n";
  }
  llvm::outs() << passed << " passed, " << failed << " failed\n";
  return failed > 0;
}
