// Profile.cpp: the profile to and from JSON.
#include "compiler/analysis/Profile.h"

#include "llvm/ADT/SmallString.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>
#include <cstdlib>

namespace cinch::analysis {

using llvm::json::Array;
using llvm::json::Object;

static constexpr llvm::StringLiteral kKind = "cinch cost profile";
static constexpr int kVersion = 1;
static const struct {
  const char *name;
  double MachineRates::*field;
} keys[] = {{"product_flops", &MachineRates::product},         {"attend_flops", &MachineRates::attend},
            {"attend_grad_flops", &MachineRates::attendGrad}, {"loop_flops", &MachineRates::loop},
            {"bytes_per_second", &MachineRates::bytes},       {"launch_seconds", &MachineRates::launch}};
static constexpr llvm::StringLiteral kMessageKey = "message_seconds"; // optional: without it the built-in number serves

std::string profileText(const Profile &profile) {
  Array measured;
  for (auto &[threads, rates] : profile.measured) {
    Object entry{{"threads", threads}};
    for (auto &[name, field] : keys)
      entry[name] = rates.*field;
    entry[kMessageKey] = rates.message;
    measured.push_back(std::move(entry));
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::json::OStream json(out, 2);
  json.value(Object{{"kind", kKind}, {"version", kVersion}, {"cpu", profile.cpu}, {"processors", profile.processors},
                    {"measured", std::move(measured)}});
  return text + "\n";
}

bool parseProfile(const std::string &text, Profile &profile, std::string &error) {
  auto parsed = llvm::json::parse(text);
  if (!parsed) {
    error = "no JSON: " + llvm::toString(parsed.takeError());
    return false;
  }
  const Object *object = parsed->getAsObject();
  if (!object || object->getString("kind") != kKind) {
    error = "no profile of `cinch calibrate` (expected \"kind\": \"" + kKind.str() + "\")";
    return false;
  }
  if (auto version = object->getInteger("version"); version != kVersion) {
    error = "expected version " + std::to_string(kVersion) + ", got " + (version ? std::to_string(*version) : "none");
    return false;
  }
  profile.cpu = object->getString("cpu").value_or("").str();
  profile.processors = int(object->getInteger("processors").value_or(0));
  const Array *measured = object->getArray("measured");
  int last = 0;
  if (measured)
    for (const llvm::json::Value &value : *measured) {
      const Object *entry = value.getAsObject();
      auto threads = entry ? entry->getInteger("threads") : std::nullopt;
      if (!threads || *threads <= last || *threads > 1'000'000) {
        error = "expected \"measured\" by rising numbers of \"threads\"";
        return false;
      }
      last = int(*threads);
      MachineRates rates;
      auto read = [&](llvm::StringRef name, double &rate) {
        auto number = entry->getNumber(name);
        if (!number || !std::isfinite(*number) || !(*number > 0)) {
          error = "expected \"" + name.str() + "\" to be a number above 0 for " + std::to_string(last) + " threads";
          return false;
        }
        rate = *number;
        return true;
      };
      for (auto &[name, field] : keys)
        if (!read(name, rates.*field))
          return false;
      rates.message = MachineCosts().at(last).message;
      if (entry->get(kMessageKey) && !read(kMessageKey, rates.message))
        return false;
      profile.measured.push_back({last, rates});
    }
  if (profile.measured.empty()) {
    error = "\"measured\" is empty";
    return false;
  }
  return true;
}

std::string defaultProfilePath() {
  llvm::SmallString<256> path;
  if (const char *config = std::getenv("XDG_CONFIG_HOME"); config && llvm::sys::path::is_absolute(config)) {
    path = config;
  } else if (const char *home = std::getenv("HOME"); home && llvm::sys::path::is_absolute(home)) {
    path = home;
    llvm::sys::path::append(path, ".config");
  } else {
    return "";
  }
  llvm::sys::path::append(path, "cinch", "profile.json");
  return path.str().str();
}

} // namespace cinch::analysis
