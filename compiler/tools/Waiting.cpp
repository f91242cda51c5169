// Waiting.cpp: a thread of its own looks at the clock, so that what is waited for need not know.
#include "compiler/tools/Waiting.h"

#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/raw_ostream.h"

#include <chrono>

namespace cinch {

Waiting::Waiting(std::string text) : what(std::move(text)) {
  if (llvm::sys::Process::StandardErrIsDisplayed())
    thread = std::thread([this] { watch(); });
}

Waiting::~Waiting() {
  {
    std::lock_guard<std::mutex> lock(mutex);
    over = true;
  }
  ended.notify_one();
  if (thread.joinable())
    thread.join();
}

void Waiting::watch() {
  using namespace std::chrono;
  auto begin = steady_clock::now();
  bool said = false;
  std::unique_lock<std::mutex> lock(mutex);
  while (!ended.wait_for(lock, milliseconds(said ? 500 : 2000), [this] { return over; })) {
    llvm::errs() << "\r\x1b[K"
                 << llvm::formatv("{0}, {1:F0} s", what, duration<double>(steady_clock::now() - begin).count());
    said = true;
  }
  if (said)
    llvm::errs() << "\r\x1b[K";
}

} // namespace cinch
