// CommandFlags.h: the command lines of the `solve` commands: one file, and flags with a value (`--flag value` or `--flag=value`) or
// without. Each command lists its own; LLVM's parser knows all of them (tools/Options.cpp, for --help), but not which command has which.
#ifndef CINCH_COMPILER_SOLVE_COMMANDFLAGS_H
#define CINCH_COMPILER_SOLVE_COMMANDFLAGS_H

#include "llvm/ADT/StringRef.h"
#include "llvm/Support/raw_ostream.h"

#include <functional>
#include <string>
#include <vector>

namespace cinch::solve {

struct CommandFlag {
  std::string name; // with its dashes
  std::function<bool(llvm::StringRef)> take; // false: that is no value for it
  bool alone = false;                        // it has no value; `take` is called with an empty one
};

// A whole number in [least, below).
template <class Number> auto countInto(Number &to, int64_t least, int64_t below = INT64_MAX) {
  return [&to, least, below](llvm::StringRef value) {
    int64_t number = 0;
    bool ok = !value.getAsInteger(10, number) && number >= least && number < below;
    if (ok)
      to = Number(number);
    return ok;
  };
}

// Empty if the arguments are right, else what is wrong. `file` stays empty if there is none.
inline std::string parseFlags(const std::vector<std::string> &arguments, const std::vector<CommandFlag> &flags, std::string &file) {
  for (size_t i = 0; i < arguments.size(); ++i) {
    auto [name, value] = llvm::StringRef(arguments[i]).split('=');
    if (!name.starts_with("--")) {
      if (!file.empty())
        return "expected one file, got `" + file + "` and `" + arguments[i] + "`";
      file = arguments[i];
      continue;
    }
    const CommandFlag *flag = nullptr;
    std::string known;
    for (const CommandFlag &f : flags) {
      flag = f.name == name ? &f : flag;
      known += (known.empty() ? "" : &f == &flags.back() ? " or " : ", ") + f.name;
    }
    if (!flag)
      return "unknown flag `" + name.str() + "`; expected " + known;
    if (!flag->alone && name.size() == arguments[i].size()) {
      if (i + 1 == arguments.size())
        return "expected a value after `" + name.str() + "`";
      value = arguments[++i];
    }
    if ((flag->alone && name.size() < arguments[i].size()) || !flag->take(value))
      return "`" + value.str() + "` is no value for `" + name.str() + "`";
  }
  return "";
}

constexpr int kDone = 0, kNone = 1, kUsage = 2; // exit codes of the commands

inline int usageError(const std::string &message) {
  llvm::errs() << "error: " << message << "\n";
  return kUsage;
}

} // namespace cinch::solve
#endif
