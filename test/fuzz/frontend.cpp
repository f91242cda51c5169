// Fuzz target of the front end: whatever the bytes are, it must neither crash nor hang, and
//   - the parser with recovery and the parser that stops at the first error agree on whether the text is a program;
//   - every diagnostic can be printed, and its JSON reads back;
//   - the checker gives a program or errors, and its program passes the verifier.
// Two mutators take turns: libFuzzer's on bytes, and one on tokens (drop, double, swap, replace by a token seen
// anywhere), so that many inputs get as far as the checker. test/fuzz/run builds and runs it.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"
#include "test/fuzz/Mutate.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <cstdlib>

using namespace cinch;

static void require(bool ok, const char *what) {
  if (ok)
    return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

static const ast::File &prelude(const SourceList &sources) {
  static ast::File file = [&] {
    Diagnostics diags(sources);
    ast::File result = parseFile(sources, 0, diags);
    require(!diags.hasErrors(), "the prelude parses");
    return result;
  }();
  return file;
}

static void printBothWays(const Diagnostics &diags) {
  std::string out;
  llvm::raw_string_ostream os(out);
  PrintOptions options;
  options.color = true;
  options.limit = 0;
  diags.print(os, options);
  out.clear();
  options.json = true;
  diags.print(os, options);
  for (llvm::StringRef rest = out; !rest.empty();) {
    auto [line, next] = rest.split('\n');
    auto value = llvm::json::parse(line);
    require(static_cast<bool>(value), "JSON reads back");
    rest = next;
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  SourceList sources;
  const ast::File &library = prelude(sources);
  int id = sources.add("fuzz.cinch", std::string(reinterpret_cast<const char *>(data), size));
  Diagnostics diags(sources), lexing(sources);
  ast::File file = parseFile(sources, id, diags);
  std::vector<Token> tokens = lex(sources, id, lexing);
  if (!lexing.hasErrors())
    require(acceptsTokens(std::move(tokens)) == !diags.hasErrors(), "recovery does not change the verdict");
  else
    require(diags.hasErrors(), "a bad character is an error");
  if (!diags.hasErrors()) {
    std::optional<Program> program = check(sources, library, file, {}, diags);
    require(program.has_value() == !diags.hasErrors(), "a program or errors");
    std::string fault = program ? verifyProgram(*program) : "";
    require(fault.empty(), fault.c_str());
  }
  printBothWays(diags);
  return 0;
}

// ---- Mutation of tokens ---------------------------------------------------------------------------------------------

extern "C" size_t LLVMFuzzerMutate(uint8_t *data, size_t size, size_t maxSize);

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t *data, size_t size, size_t maxSize, unsigned seed) {
  static const std::vector<std::string> seen = pieces(std::string(preludeText()));
  std::minstd_rand random(seed);
  if (random() % 8 == 0 || size == 0)
    return LLVMFuzzerMutate(data, size, maxSize);
  std::string result = mutate(std::string(reinterpret_cast<char *>(data), size), seen, random);
  size = std::min(result.size(), maxSize);
  std::copy(result.begin(), result.begin() + size, data);
  return size;
}
