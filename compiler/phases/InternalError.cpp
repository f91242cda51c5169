// InternalError.cpp: see InternalError.h.
#include "compiler/phases/InternalError.h"

#include "dialects/nn/NN.h"

#include "mlir/IR/Diagnostics.h"
#include "mlir/IR/MLIRContext.h"
#include "llvm/Support/ErrorHandling.h"
#include "llvm/Support/Signals.h"
#include "llvm/Support/raw_ostream.h"

#include <cxxabi.h>
#include <exception>
#include <new>
#include <signal.h>
#include <typeinfo>
#include <unistd.h>

namespace cinch {

static constexpr char kBegin[] = "cinch: internal error: ";
static constexpr char kFault[] = "\n  this is a fault of cinch, not of your program";
static constexpr char kReport[] = "\n  help: please report it, with the program and this command line, to the authors of Cinch\n";
static constexpr int kInternal = 70, kResources = 5;

// Only what a signal handler may call.
static void say(const char *text) {
  size_t size = 0;
  while (text[size])
    ++size;
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text, size);
}

static const char *wayAround = "\n  help: another `--microbatch` or another budget may avoid it";

void thereIsNoPlan() { wayAround = ""; }

int internalError(const llvm::Twine &what) {
  llvm::errs() << kBegin << what << kFault << wayAround << kReport;
  return kInternal;
}

static std::string written; // the file that is being written

void beginsToWrite(std::string path) { written = std::move(path); }

// `why` ends the line.
[[noreturn]] static void noPlace(const char *why) {
  say("cinch: cannot write ");
  say(written.empty() ? "an output" : written.c_str());
  say(": ");
  say(why);
  say("\n");
  llvm::sys::RunInterruptHandlers(); // removes temporary files
  _exit(kResources);
}

[[noreturn]] static void outOfMemory() {
  say("cinch: out of memory: planning and compiling this program need more than there is\n");
  _exit(kResources);
}

static void crashed(int signal, siginfo_t *info, void *) {
  // The linker maps what it writes. A page of a file that has no place on the disk, or was cut off, is known to be missing when it is touched.
  if (signal == SIGBUS && info->si_code == BUS_ADRERR)
    noPlace("it has no place on the disk, or a file that is read was cut short by another process");
  say(kBegin);
  say("it crashed");
  for (const char *text : {kFault, wayAround, kReport})
    say(text);
  _exit(kInternal);
}

// A stream of LLVM that cannot write ends the process through here.
static void fatal(void *, const char *reason, bool) {
  llvm::StringRef why(reason);
  if (!why.consume_front("IO failure on output stream: "))
    _exit(internalError(reason));
  noPlace(why.str().c_str());
}

// Nothing here throws but the standard library, when memory or threads run out. Without either, std::terminate is a crash like any other.
[[noreturn]] static void thrown() {
  const std::type_info *type = abi::__cxa_current_exception_type();
  llvm::StringRef name = type ? type->name() : "";
  if (name == "St9bad_alloc")
    outOfMemory();
  if (name == "St12system_error") {
    say("cinch: a thread cannot be started: memory or the number of processes is limited (ulimit -v, ulimit -u)\n");
    _exit(kResources);
  }
  abort();
}

void catchFatalErrors() {
  llvm::install_fatal_error_handler(fatal);
  std::set_terminate(thrown);
  signal(SIGXFSZ, SIG_IGN); // a file that grows beyond `ulimit -f` is a write that fails
  llvm::install_bad_alloc_error_handler([](void *, const char *, bool) { outOfMemory(); });
  std::set_new_handler(outOfMemory);
  static char stack[1 << 16]; // of its own: the other one may be what overflowed
  stack_t alternative{};
  alternative.ss_sp = stack;
  alternative.ss_size = sizeof stack;
  sigaltstack(&alternative, nullptr);
  struct sigaction action {};
  action.sa_sigaction = crashed;
  action.sa_flags = SA_ONSTACK | SA_SIGINFO;
  for (int signal : {SIGSEGV, SIGBUS, SIGILL, SIGFPE, SIGABRT})
    sigaction(signal, &action, nullptr);
}

PassErrors::PassErrors(mlir::MLIRContext &context, bool remarks) : context(context) {
  handler = context.getDiagEngine().registerHandler([this, remarks](mlir::Diagnostic &diagnostic) {
    std::string place;
    if (mlir::FileLineColLoc at = nn::userPlace(diagnostic.getLocation()))
      place = (at.getFilename().getValue() + ":" + llvm::Twine(at.getLine()) + ": ").str();
    if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Error) {
      std::string message = diagnostic.str();
      llvm::StringRef what(message);
      what.consume_front("internal error: ");
      text += (text.empty() ? "" : "\n  ") + place + what.str();
    } else if (diagnostic.getSeverity() == mlir::DiagnosticSeverity::Remark && remarks) {
      llvm::errs() << place << "remark: " << diagnostic.str() << "\n";
    }
    return mlir::success();
  });
}

PassErrors::~PassErrors() { context.getDiagEngine().eraseHandler(handler); }

} // namespace cinch
