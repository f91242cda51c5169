// LINK: cinch_phases cinch_frontend cinch_solve MLIR
// However the compiler fails, it says that the fault is its own, what to try and where to report it, and ends with 70. Each end is
// that of a child process.
#include "test/unit/Expect.h"
#include "compiler/phases/InternalError.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"

#include <functional>
#include <new>
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

using namespace cinch;

struct End {
  int status = -1; // -1: a signal
  std::string text;
};

static End endOf(const std::function<int()> &work) {
  int ends[2];
  if (pipe(ends) != 0)
    return {};
  pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDERR_FILENO);
    close(ends[0]), close(ends[1]);
    catchFatalErrors();
    _exit(work());
  }
  close(ends[1]);
  End end;
  char buffer[4096];
  for (ssize_t size; (size = read(ends[0], buffer, sizeof buffer)) > 0;)
    end.text.append(buffer, size_t(size));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status))
    end.status = WEXITSTATUS(status);
  return end;
}

static void isOurs(const std::string &name, const std::string &what, const std::function<int()> &work) {
  End end = endOf(work);
  bool good = end.status == 70 && end.text.rfind("cinch: internal error: " + what + "\n", 0) == 0;
  for (const char *words : {"a fault of cinch, not of your program", "--microbatch", "budget", "please report it"})
    good &= end.text.find(words) != std::string::npos;
  expect(good, name + ": " + std::to_string(end.status) + ", " + end.text);
}

// What a pass reports reaches the user as ours, with the place in the user's file and without MLIR's `loc(..)`.
static int reportOfAPass() {
  mlir::MLIRContext context;
  PassErrors errors(context, false);
  auto place = mlir::FileLineColLoc::get(&context, "gpt.cinch", 12, 3);
  mlir::emitError(place) << "internal error: a value has no place";
  mlir::emitError(mlir::UnknownLoc::get(&context)) << "and another";
  mlir::emitWarning(place) << "a warning of a pass";
  return internalError(errors.text);
}

static int overflow(int depth) {
  volatile char page[4096];
  page[0] = char(depth);
  return depth < 1 << 30 ? overflow(depth + 1) + page[0] : 0;
}

// Resources that are missing are not our fault: `words` say which one, and the exit code is 5.
static void isScarce(const std::string &name, const std::string &words, const std::function<int()> &work) {
  End end = endOf(work);
  expect(end.status == 5 && end.text.find(words) != std::string::npos && end.text.find("internal") == std::string::npos,
         name + ": " + std::to_string(end.status) + ", " + end.text);
}

static int writeToFullDisk() {
  llvm::raw_fd_ostream(open("/dev/full", O_WRONLY), /*shouldClose=*/true) << "text";
  return 0;
}

// Its stack has no place.
static int startThread() {
  rlimit none{1 << 20, 1 << 20};
  setrlimit(RLIMIT_AS, &none);
  std::thread([] {}).join();
  return 0;
}

static int touchBeyondEnd() {
  int file = open("internal_errors.none", O_RDWR | O_CREAT, 0600);
  unlink("internal_errors.none");
  *static_cast<volatile char *>(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)) = 1;
  return 0;
}

static int outgrowLimit() {
  rlimit none{0, 0};
  setrlimit(RLIMIT_FSIZE, &none);
  int file = open("internal_errors.none", O_WRONLY | O_CREAT, 0600);
  unlink("internal_errors.none");
  return write(file, "text", 4) < 0 ? 3 : 0;
}

int main() {
  isOurs("a pass", "gpt.cinch:12: a value has no place\n  and another", reportOfAPass);
  isOurs("LLVM", "a fatal error", []() -> int { llvm::report_fatal_error("a fatal error"); });
  isOurs("a call of abort", "it crashed", []() -> int { abort(); });
  isOurs("a wild access", "it crashed", [] { return raise(SIGSEGV); });
  isOurs("a stack that is full", "it crashed", [] { return overflow(0); });
  isOurs("a crash while an output is written", "it crashed", []() -> int { // then LLVM handles signals, too
    llvm::sys::RemoveFileOnSignal("internal_errors.none");
    abort();
  });
  End alone = endOf([]() -> int {
    thereIsNoPlan();
    abort();
  });
  expect(alone.status == 70 && alone.text.find("please report it") != std::string::npos && alone.text.find("budget") == std::string::npos,
         "what plans nothing: " + std::to_string(alone.status) + ", " + alone.text);
  isScarce("no memory", "out of memory", [] {
    volatile size_t size = size_t(1) << 62;
    void *volatile block = ::operator new(size);
    return block ? 0 : 1;
  });
  isScarce("a full disk", "cannot write an output: No space left on device", writeToFullDisk);
  isScarce("a full disk, with its file", "cannot write gpt: No space left on device", [] {
    beginsToWrite("gpt");
    return writeToFullDisk();
  });
  isScarce("a page of a file that is not there", "no place on the disk", touchBeyondEnd);
  isOurs("a bus error without a file", "it crashed", [] { return raise(SIGBUS); });
  isScarce("no thread", "a thread cannot be started", startThread);
  expect(endOf(outgrowLimit).status == 3, "a file beyond the limit of its size ends the process");
  return tally();
}
