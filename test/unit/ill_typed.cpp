// LINK: cinch_frontend
// Programs that nobody means: the tree's programs with names, numbers, types, operators and arguments exchanged. Those that the parser takes and
// the checker refuses, COUNT of them, must each get an error, and every error a place: in the program, or in the prelude with the way that leads
// there. What is accepted must be a right program to the verifier. No program takes long, and none ends the checker.
// ill_typed [COUNT = 2000 [SEED]]; with COUNT 0 the program of SEED is printed with its errors
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Lexer.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <set>
#include <sys/time.h>
#include <unistd.h>

using namespace cinch;

namespace {

constexpr time_t kSeconds = 10; // of a processor; no program takes longer

uint64_t current = 0; // seed of the program that is tried

void stopped(int signal) {
  std::array<char, 96> text{};
  int length = std::snprintf(text.data(), text.size(), "failed: seed %llu: signal %d\n0 passed, 1 failed\n", (unsigned long long)current, signal);
  if (write(1, text.data(), size_t(length)) != length)
    _exit(2);
  _exit(1);
}

// A program as its tokens, and the words that other programs use.
struct Source {
  std::string text;
  std::vector<Token> tokens;
};

class Mutator {
public:
  Mutator(const std::vector<Source> &sources, uint64_t seed) : sources(sources), draw(seed), source(pick(sources)) {}

  std::string run() {
    words.clear();
    for (const Token &token : source.tokens)
      words.push_back(std::string(source.text.substr(token.span.begin, token.span.end - token.span.begin)));
    for (size_t i = 0, count = 1 + below(3); i < count; ++i)
      change(below(words.size()));
    std::string text;
    uint32_t end = 0;
    for (size_t i = 0; i < words.size(); ++i) {
      const Span &span = source.tokens[i].span;
      text += source.text.substr(end, span.begin - end) + words[i];
      end = span.end;
    }
    return text + source.text.substr(end);
  }

private:
  size_t below(size_t n) { return size_t(draw() % n); }
  template <typename T> const T &pick(const std::vector<T> &list) { return list[below(list.size())]; }

  std::string nameLike() {
    static const std::vector<std::string> known = {"f32", "i32", "bool", "batch", "linear", "conv", "relu", "sum", "mean", "batch_norm", "conv2d",
                                                   "attend", "below", "dropout", "softmax", "reshape", "concat", "B", "x", "y", "training", "count"};
    const Source &other = below(3) ? source : pick(sources);
    for (int tries = 0; tries < 20 && below(4); ++tries)
      if (const Token &token = pick(other.tokens); token.kind == TokenKind::Name)
        return token.text;
    return pick(known);
  }

  // One token becomes another of its kind, moves, comes twice or goes.
  void change(size_t i) {
    static const std::vector<std::string> numbers = {"0", "1", "2", "3", "5", "64", "0.5", "1e30", "4096", "1000000007", "B", "-1"},
                                          operators = {"+", "-", "*", "/", "^", "==", "<", "and", "@", ">="};
    switch (source.tokens[i].kind) {
    case TokenKind::Name:
      if (!below(8)) // an argument more
        words[i] += ", " + nameLike();
      else
        words[i] = nameLike();
      return;
    case TokenKind::Number: words[i] = pick(numbers); return;
    case TokenKind::Plus: case TokenKind::Minus: case TokenKind::Star: case TokenKind::Slash: case TokenKind::Caret: case TokenKind::At:
    case TokenKind::EQ: case TokenKind::LT: case TokenKind::GT: words[i] = pick(operators); return;
    case TokenKind::Comma: // what stands beside it is exchanged, or one of them goes
      if (i > 0 && i + 1 < words.size() && below(2))
        std::swap(words[i - 1], words[i + 1]);
      else if (i + 1 < words.size())
        words[i].clear(), words[i + 1].clear();
      return;
    case TokenKind::Sum: case TokenKind::Mean: case TokenKind::Max: case TokenKind::Min: case TokenKind::Any: case TokenKind::All:
    case TokenKind::Prod: words[i] = std::vector<std::string>{"sum", "mean", "max", "any", "prod", "min"}[below(6)]; return;
    default: change(below(words.size())); return;
    }
  }

  const std::vector<Source> &sources;
  std::mt19937_64 draw;
  const Source &source;
  std::vector<std::string> words;
};

// What a program is, and what is wrong with what is said of it.
enum Kind { Unparsed, Refused, Accepted };
struct Verdict {
  Kind kind = Unparsed;
  std::string fault;
};

std::string faultOf(const SourceList &sources, int file, const Diagnostics &diags) {
  bool any = false;
  for (const Diagnostic &diagnostic : diags.sorted()) {
    std::string said = std::string(codeName(diagnostic.code)) + " `" + diagnostic.message + "`";
    if (!sources.valid(diagnostic.span))
      return said + " has no place";
    if (diagnostic.severity != Severity::Error)
      continue;
    any = true;
    if (diagnostic.message.empty())
      return said + " says nothing";
    if (diagnostic.span.file != file && diagnostic.paths.empty())
      return said + " is in the prelude, and nothing says how the program leads there";
    for (const Label &label : diagnostic.labels)
      if (!sources.valid(label.span))
        return said + ": the label `" + label.text + "` has no place";
  }
  return any ? "" : "refused without an error";
}

Verdict judge(const std::string &text, bool print) {
  SourceList sources;
  Diagnostics diags(sources);
  int file = sources.add("mutant.cinch", text);
  ast::File prelude = parseFile(sources, 0, diags), parsed = parseFile(sources, file, diags);
  Verdict verdict;
  std::optional<Program> program;
  if (!diags.hasErrors()) {
    program = check(sources, prelude, parsed, {}, diags);
    verdict.kind = program && !diags.hasErrors() ? Accepted : Refused;
  }
  verdict.fault = verdict.kind == Accepted ? verifyProgram(*program) : faultOf(sources, file, diags);
  if (print)
    diags.print(llvm::outs());
  return verdict;
}

std::vector<Source> programsOfTree(const std::string &root) {
  std::vector<std::string> paths;
  std::error_code error;
  for (const char *folder : {"examples", "bench/models", "test/execute", "test/frontend/checked"})
    for (llvm::sys::fs::recursive_directory_iterator it(root + "/" + folder, error), end; it != end && !error; it.increment(error))
      if (llvm::StringRef(it->path()).ends_with(".cinch"))
        paths.push_back(it->path());
  std::sort(paths.begin(), paths.end());
  std::vector<Source> found;
  for (const std::string &path : paths)
    if (auto buffer = llvm::MemoryBuffer::getFile(path); buffer && (*buffer)->getBufferSize() < 6'000) {
      Source source{(*buffer)->getBuffer().str(), {}};
      SourceList list;
      Diagnostics diags(list);
      for (Token &token : lex(list, list.add(path, source.text), diags))
        if (token.kind != TokenKind::NL && token.kind != TokenKind::End)
          source.tokens.push_back(std::move(token));
      if (!diags.hasErrors() && !source.tokens.empty())
        found.push_back(std::move(source));
    }
  return found;
}

} // namespace

int main(int argc, char **argv) {
  llvm::SmallString<256> root(llvm::sys::fs::getMainExecutable(argv[0], reinterpret_cast<void *>(&programsOfTree)));
  for (int i = 0; i < 3; ++i) // build/bin/ill_typed
    llvm::sys::path::remove_filename(root);
  int wanted = argc > 1 ? std::atoi(argv[1]) : 2'000, refused = 0, accepted = 0, unparsed = 0, failed = 0;
  uint64_t seed = argc > 2 ? std::strtoull(argv[2], nullptr, 10) : 1'000'000;
  std::vector<Source> sources = programsOfTree(root.str().str());
  for (int signal : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGPROF})
    std::signal(signal, stopped);
  const itimerval limit{{0, 0}, {kSeconds, 0}};
  std::set<std::string> kinds;
  for (; !sources.empty() && (refused < wanted || wanted == 0); ++seed) {
    current = seed;
    setitimer(ITIMER_PROF, &limit, nullptr);
    std::string text = Mutator(sources, seed).run();
    if (wanted == 0)
      llvm::outs() << text << "\n";
    Verdict verdict = judge(text, wanted == 0);
    ++(verdict.kind == Refused ? refused : verdict.kind == Accepted ? accepted : unparsed);
    if (!verdict.fault.empty()) {
      ++failed;
      if (kinds.insert(verdict.fault.substr(0, 40)).second)
        llvm::outs() << "failed: seed " << seed << ": " << verdict.fault << "\n";
    }
    if (wanted == 0)
      break;
  }
  llvm::outs() << refused << " programs refused by the checker, " << unparsed << " by the parser, " << accepted << " accepted; made of "
               << sources.size() << "\n"
               << refused + unparsed + accepted - failed << " passed, " << failed + sources.empty() << " failed\n";
  return failed > 0 || sources.empty();
}
