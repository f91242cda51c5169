// LINK: cinch_frontend
// Programs with a few tokens changed: the front end takes or refuses each with a diagnostic in the text, never crashes,
// and what it takes passes the verifier. Seeds are the programs of test/frontend/language and of the examples. usage: frontend_mutants
// [COUNT=2000] [SEED=1]    a mutant that ends the process is printed first
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"
#include "test/fuzz/Mutate.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <unistd.h>

using namespace cinch;

static std::string current;

static void showAndLeave(int number) {
  static const char head[] = "failed: the front end crashed on\n", tail[] = "\n0 passed, 1 failed\n";
  if (write(1, head, sizeof head - 1) < 0 || write(1, current.data(), current.size()) < 0 ||
      write(1, tail, sizeof tail - 1) < 0)
    _exit(2);
  _exit(1);
}

static std::vector<std::string> programs(const char *argv0) {
  llvm::SmallString<256> root(llvm::sys::fs::getMainExecutable(argv0, reinterpret_cast<void *>(&showAndLeave)));
  for (int i = 0; i < 3; ++i) // build/bin/frontend_mutants
    llvm::sys::path::remove_filename(root);
  std::vector<std::string> paths, texts;
  std::error_code error;
  for (llvm::StringRef folder : {"/test/frontend/language", "/examples"})
    for (llvm::sys::fs::recursive_directory_iterator it(root + folder, error), end; it != end && !error; it.increment(error))
      if (llvm::StringRef(it->path()).ends_with(".cinch"))
        paths.push_back(it->path());
  std::sort(paths.begin(), paths.end());
  for (const std::string &path : paths) {
    SourceList sources;
    std::string reason;
    int id = sources.addFile(path, reason);
    if (id >= 0)
      texts.emplace_back(sources.text(id));
  }
  return texts;
}

int main(int argc, char **argv) {
  int count = argc > 1 ? std::atoi(argv[1]) : 2000;
  std::minstd_rand random(argc > 2 ? std::atoi(argv[2]) : 1);
  std::vector<std::string> texts = programs(argv[0]);
  if (texts.empty()) {
    std::cout << "failed: no programs\n0 passed, 1 failed\n";
    return 1;
  }
  for (int number : {SIGSEGV, SIGABRT, SIGFPE, SIGILL, SIGBUS})
    std::signal(number, showAndLeave);
  static char stack[1 << 16]; // an overflow of the stack needs another one to say so
  stack_t other{stack, 0, sizeof stack};
  sigaltstack(&other, nullptr);
  struct sigaction action{};
  action.sa_handler = showAndLeave;
  action.sa_flags = SA_ONSTACK;
  sigaction(SIGSEGV, &action, nullptr);

  std::vector<std::string> seen = pieces(std::string(preludeText()));
  int failed = 0, parsed = 0, accepted = 0;
  double slowest = 0;
  for (int i = 0; i < count; ++i) {
    current = mutate(texts[random() % texts.size()], seen, random);
    auto began = std::chrono::steady_clock::now();
    SourceList sources;
    Diagnostics diags(sources);
    int id = sources.add("mutant.cinch", current);
    ast::File prelude = parseFile(sources, 0, diags), file = parseFile(sources, id, diags);
    std::string fault;
    if (!diags.hasErrors()) {
      ++parsed;
      std::optional<Program> program = check(sources, prelude, file, {}, diags);
      accepted += program.has_value();
      if (program && argc > 3) {
        std::error_code error;
        llvm::raw_fd_ostream out(std::string(argv[3]) + "/mutant" + std::to_string(i) + ".cinch", error);
        out << current;
      }
      if (program.has_value() == diags.hasErrors())
        fault = "a program and errors, or neither";
      else if (program)
        fault = verifyProgram(*program);
    }
    for (const Diagnostic &d : diags.sorted())
      if (d.severity == Severity::Error && !sources.valid(d.span))
        fault = "an error without a place: " + d.message;
    std::string out;
    llvm::raw_string_ostream os(out);
    diags.print(os);
    slowest = std::max(slowest, std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
    if (!fault.empty() && ++failed <= 3)
      std::cout << "failed: " << fault << "\n" << current << "\n";
  }
  std::cout << count << " mutants, " << parsed << " parsed, " << accepted << " accepted, slowest " << slowest << " s\n";
  std::cout << count - failed << " passed, " << failed << " failed\n";
  return failed > 0;
}
