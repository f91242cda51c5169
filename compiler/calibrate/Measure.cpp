// Measure.cpp: sizes, runs, samples. Everything goes the way of a user's program: compiled and linked by this very
// compiler, run with --kernel-times. Of each kernel the quickest call counts, so that what else the machine does while
// it is measured does not.
#include "compiler/calibrate/Measure.h"

#include "compiler/calibrate/Calibrate.h"
#include "compiler/calibrate/Fit.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/FileSystem.h"
#include "llvm/Support/FileUtilities.h"
#include "llvm/Support/FormatVariadic.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/MemoryBuffer.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/Process.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"
#include "llvm/TargetParser/Host.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <signal.h>
#include <thread>

namespace cinch::calibrate {

using analysis::MachineRates;
using solve::Kernel;

namespace {
// Small enough that a call fits between two interruptions, large enough to look like work.
struct Size {
  const char *name;
  int B, T, V, D, A;
};
constexpr Size kSizes[] = {
    {"small rows", 4, 64, 256, 64, 2},
    {"wide rows", 2, 128, 512, 256, 4},
    {"long rows", 1, 512, 256, 128, 2},
    {"beyond the caches", 1, 32, 40000, 64, 2},
};
constexpr double kSecondsOfARun = 1.5;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

volatile sig_atomic_t asked = 0; // the signal that asked the process to end
constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};
// Which of them the process was started to ignore, as nohup does. LLVM answers all of them from its first temporary file on.
const std::array<bool, 3> ignored = [] {
  std::array<bool, 3> list = {};
  for (size_t i = 0; i < list.size(); ++i)
    if (struct sigaction now; sigaction(kSignals[i], nullptr, &now) == 0)
      list[i] = now.sa_handler == SIG_IGN;
  return list;
}();

class Calibration {
public:
  Calibration(const std::string &compiler, int threads) : compiler(compiler), most(threads) {}
  ~Calibration() {
    if (!folder.empty())
      llvm::sys::fs::remove_directories(folder);
  }

  bool run(analysis::Profile &profile);
  std::string error;
  bool hasPlace = true; // for its files

private:
  std::string path(llvm::StringRef name) const {
    llvm::SmallString<128> full(folder);
    llvm::sys::path::append(full, name);
    return full.str().str();
  }
  bool write(llvm::StringRef name, llvm::StringRef text);
  bool call(const std::string &program, std::vector<std::string> arguments, llvm::StringRef output);
  bool prepare(const Size &size, int number);
  bool measure(const Size &size, int number, int threads);
  void progress(const std::string &text);

  std::string compiler;
  int most;
  llvm::SmallString<128> folder;
  std::vector<Sample> kernels;                  // of the program at hand, by launch
  std::vector<std::pair<int, Sample>> samples; // threads, kernel
};
} // namespace

void Calibration::progress(const std::string &text) {
  bool terminal = llvm::sys::Process::StandardErrIsDisplayed();
  llvm::errs() << (terminal ? "\r\x1b[K" : "") << text << (terminal || text.empty() ? "" : "\n");
}

bool Calibration::write(llvm::StringRef name, llvm::StringRef text) {
  std::error_code code;
  llvm::raw_fd_ostream out(path(name), code);
  if (!code) {
    out << text;
    out.close();
    code = out.error();
    out.clear_error();
  }
  if (code)
    error = "cannot write " + path(name) + ": " + code.message();
  return !code;
}

bool Calibration::call(const std::string &program, std::vector<std::string> arguments, llvm::StringRef output) {
  std::vector<llvm::StringRef> words = {program};
  words.insert(words.end(), arguments.begin(), arguments.end());
  std::string out = path(output), errors = path("errors");
  for (const std::string &file : {out, errors}) // they would be written over, not cut
    (void)llvm::sys::fs::remove(file);
  std::optional<llvm::StringRef> redirects[] = {llvm::StringRef(""), llvm::StringRef(out), llvm::StringRef(errors)};
  std::string problem;
  int code = llvm::sys::ExecuteAndWait(program, words, std::nullopt, redirects, 300, 0, &problem);
  if (asked) {
    error = "stopped";
    return false;
  }
  if (code == 0)
    return true;
  auto said = llvm::MemoryBuffer::getFile(errors);
  error = llvm::join(words, " ") + ": exit " + std::to_string(code) + " " + problem +
          (said ? "\n" + (*said)->getBuffer().take_back(500).str() : "");
  return false;
}

// Compiles the program at one size; its plan says what each launch does.
bool Calibration::prepare(const Size &size, int number) {
  std::vector<std::string> flags = {path("block.cinch"), "--no-plan-cache", "--profile", "none", "--remat", "none", "--row-blocks", "none",
                                    "--microbatch", std::to_string(size.B),
                                    "--max-threads", std::to_string(most)};
  for (auto [name, value] : {std::pair{"B", size.B}, {"T", size.T}, {"V", size.V}, {"D", size.D}, {"A", size.A}})
    flags.push_back(llvm::formatv("-D{0}={1}", name, value));
  std::vector<std::string> build = flags, plan = flags;
  build.insert(build.end(), {"-o", path("run" + std::to_string(number))});
  plan.insert(plan.begin(), "plan");
  plan.push_back("--json");
  if (!call(compiler, build, "said") || !call(compiler, plan, "plan.json"))
    return false;
  auto text = llvm::MemoryBuffer::getFile(path("plan.json"));
  auto parsed = text ? llvm::json::parse((*text)->getBuffer()) : llvm::json::Value(nullptr);
  if (!parsed) {
    error = llvm::toString(parsed.takeError());
    return false;
  }
  const llvm::json::Object *object = parsed->getAsObject(), *runs = object ? object->getObject("runs") : nullptr;
  const llvm::json::Array *list = object ? object->getArray("kernels") : nullptr, *order = runs ? runs->getArray("kernel") : nullptr;
  if (!list || !order) {
    error = "the plan of a measured program has no kernels";
    return false;
  }
  double examples = double(object->getInteger("microbatch").value_or(1));
  kernels.clear();
  for (const llvm::json::Value &run : *order) {
    const llvm::json::Object *kernel = (*list)[size_t(run.getAsInteger().value_or(0))].getAsObject();
    static const std::pair<const char *, Kernel::Work> works[] = {{"loop", Kernel::Loop},
                                                                  {"product", Kernel::Product},
                                                                  {"attention", Kernel::Attention},
                                                                  {"attention_grad", Kernel::AttentionGrad}};
    auto pair = [&](const char *key, double &fixed, double &grows) {
      const llvm::json::Array *numbers = kernel->getArray(key);
      if (numbers && numbers->size() == 2) {
        fixed = (*numbers)[0].getAsNumber().value_or(0);
        grows = (*numbers)[1].getAsNumber().value_or(0) * examples;
      }
    };
    for (auto &[name, work] : works)
      if (kernel && kernel->getString("work") == llvm::StringRef(name)) {
        Sample sample;
        sample.work = work;
        pair("flops", sample.fixedFlops, sample.flops);
        pair("traffic", sample.fixedBytes, sample.bytes);
        kernels.push_back(sample);
      }
  }
  return true;
}

bool Calibration::measure(const Size &size, int number, int threads) {
  std::string exe = path("run" + std::to_string(number)), times = path("times.tsv"), out = path("out");
  double one = 0;
  for (int steps : {2, 0}) {
    // The first run warms up and says how many steps make a good measurement.
    int count = steps ? steps : int(std::min(60.0, std::max(8.0, kSecondsOfARun / std::max(one, 1e-4))));
    llvm::sys::fs::remove_directories(out);
    double begin = now();
    if (!call(exe, {"--data", path(""), "--out", out, "--steps", std::to_string(count), "--threads", std::to_string(threads),
                    "--log", "none", "--quiet", "--kernel-times", times},
              "said"))
      return false;
    one = (now() - begin) / count;
  }
  auto text = llvm::MemoryBuffer::getFile(times);
  if (!text) {
    error = "the measured program wrote no times";
    return false;
  }
  size_t found = 0;
  for (llvm::StringRef line : llvm::split((*text)->getBuffer(), '\n')) {
    llvm::SmallVector<llvm::StringRef> fields;
    line.split(fields, '\t');
    size_t launch = 0;
    double least = 0;
    if (fields.size() < 6 || fields[0].getAsInteger(10, launch) || fields[4].getAsDouble(least) || launch >= kernels.size())
      continue;
    Sample sample = kernels[launch];
    sample.seconds = least;
    // One thread may have done what is so small, whatever their number.
    constexpr double kOfThreads = 1e-6;
    if (least > 0 && (threads == 1 || least > kOfThreads))
      samples.push_back({threads, sample});
    ++found;
  }
  if (found < kernels.size() / 2) {
    error = llvm::formatv("{0} of {1} kernels of the measured program were timed", found, kernels.size());
    return false;
  }
  return true;
}

// Two threads take turns, each asleep until the other wakes it, as workers of one process do; half of a turn. The quickest of several runs counts.
static double secondsOfMessage() {
  constexpr int kTurns = 1000;
  double least = 1;
  for (int run = 0; run < 5; ++run) {
    std::mutex mutex;
    std::condition_variable changed;
    int turn = 0;
    auto takeTurns = [&](int first) {
      for (int i = first; i < kTurns; i += 2) {
        std::unique_lock<std::mutex> lock(mutex);
        changed.wait(lock, [&] { return turn == i; });
        ++turn;
        changed.notify_one();
      }
    };
    double begin = now();
    std::thread other(takeTurns, 1);
    takeTurns(0);
    other.join();
    least = std::min(least, (now() - begin) / kTurns);
  }
  return std::max(least, 1e-7);
}

bool Calibration::run(analysis::Profile &profile) {
  if (std::error_code code = llvm::sys::fs::createUniqueDirectory("cinch-calibrate", folder)) {
    error = "cannot make the temporary folder '" + folder.str().str() + "': " + code.message();
    folder.clear();
    return hasPlace = false;
  }
  std::string letters;
  for (uint32_t state = 1; letters.size() < 65536;) {
    state = state * 1664525u + 1013904223u;
    letters += char('a' + (state >> 24) % 26);
  }
  if (!write("block.cinch", blockProgram()) || !write("train.txt", letters))
    return false;
  std::vector<int> counts;
  for (int n = 1; n < most; n *= 2)
    counts.push_back(n);
  counts.push_back(most);
  int parts = int(std::size(kSizes) * (counts.size() + 1)), part = 0;
  for (auto [number, size] : llvm::enumerate(kSizes)) {
    progress(llvm::formatv("calibrate {0,2}/{1}: compiling, {2}", ++part, parts, size.name));
    if (!prepare(size, int(number)))
      return false;
    for (int threads : counts) {
      progress(llvm::formatv("calibrate {0,2}/{1}: {2}, {3} thread{4}", ++part, parts, size.name, threads,
                             threads == 1 ? "" : "s"));
      if (!measure(size, int(number), threads))
        return false;
    }
  }
  if (llvm::sys::Process::StandardErrIsDisplayed())
    progress("");
  profile.cpu = llvm::sys::getHostCPUName().str();
  profile.processors = most;
  llvm::outs() << llvm::formatv("{0}, {1} processor{2}; all threads together:\n", profile.cpu, most, most == 1 ? "" : "s");
  const double message = secondsOfMessage();
  llvm::outs() << llvm::formatv("a message between workers takes {0:F1} us to wake the one who waits for it\n", message * 1e6);
  llvm::outs() << "threads   products  attention  its gradient  loops (additions)     memory    start   kernels  predicted / measured\n";
  for (int threads : counts) {
    std::vector<Sample> of;
    for (auto &[n, sample] : samples)
      if (n == threads)
        of.push_back(sample);
    MachineRates rates = fit(of, analysis::builtInRates(threads, 8));
    rates.message = message;
    Quality good = quality(rates, of);
    profile.measured.push_back({threads, rates});
    llvm::outs() << llvm::formatv("{0,7} {1,6:F1} GFLOP/s {2,4:F1} GFLOP/s {3,5:F1} GFLOP/s {4,8:F1} G/s {5,8:F1} GB/s {6,5:F1} us "
                                  "{7,6}   {8:F2} in all, {9:F2} a kernel\n",
                                  threads, rates.product / 1e9, rates.attend / 1e9, rates.attendGrad / 1e9, rates.loop / 1e9,
                                  rates.bytes / 1e9, rates.launch * 1e6, of.size(), good.ratio, good.factor);
  }
  return true;
}

int measureMachine(const std::string &compiler, int threads, analysis::Profile &profile, std::string &error) {
  struct sigaction answer = {}, before[3];
  answer.sa_flags = SA_RESTART;
  for (size_t i = 0; i < ignored.size(); ++i) {
    if (ignored[i])
      answer.sa_handler = SIG_IGN;
    else
      answer.sa_handler = [](int signal) { asked = signal; };
    sigaction(kSignals[i], &answer, &before[i]);
  }
  int status = 0;
  {
    Calibration calibration(compiler, threads);
    if (!calibration.run(profile))
      status = calibration.hasPlace ? 1 : 5;
    error = calibration.error;
  }
  for (size_t i = 0; i < ignored.size(); ++i)
    sigaction(kSignals[i], &before[i], nullptr);
  if (asked)
    raise(asked); // the handler of temporary files ends the process
  return status;
}

} // namespace cinch::calibrate
