// Waiting.cpp: a thread of its own looks at the clock, so that what is waited for need not know.
#include "compiler/tools/Waiting.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

namespace cinch {

Waiting::Waiting(std::string text) : what(std::move(text)), thread([this] { watch(); }) {}

Waiting::~Waiting() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    over = true;
  }
  ended.notify_one();
  thread.join();
}

void Waiting::watch() {
  using namespace std::chrono;
  auto begin = steady_clock::now();
  bool terminal = llvm::sys::Process::StandardErrIsDisplayed(), said = false;
  std::unique_lock<std::mutex> lock(mutex);
  auto pause = milliseconds(2000);
  while (!ended.wait_for(lock, pause, [this] { return over; })) {
    std::string line = llvm::formatv("{0}, {1:F0} s", what, duration<double>(steady_clock::now() - begin).count());
    if (terminal)
      llvm::errs() << "\r\x1b[K" << line;
    else if (!said)
      llvm::errs() << "cinch: " << what << " takes a while\n";
    said = true;
    pause = milliseconds(terminal ? 500 : 3600'000);
  }
  if (terminal && said)
    llvm::errs() << "\r\x1b[K";
}

} // namespace cinch
