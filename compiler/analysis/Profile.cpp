// Profile.cpp: the profile to and from JSON.
#include "compiler/analysis/Profile.h"
#include "compiler/solve/ParseJson.h"
#include "compiler/solve/UserFolder.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <cmath>

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

static const struct {
  const char *name;
  int64_t (*read)(const kernels::Tiling &);
  void (*write)(kernels::Tiling &, int64_t);
} tileKeys[] = {{"rows", [](auto &t) { return int64_t(t.rows); }, [](auto &t, int64_t n) { t.rows = int(n); }},
                {"vectors", [](auto &t) { return int64_t(t.vectors); }, [](auto &t, int64_t n) { t.vectors = int(n); }},
                {"steps", [](auto &t) { return t.steps; }, [](auto &t, int64_t n) { t.steps = n; }},
                {"near_bytes", [](auto &t) { return t.near; }, [](auto &t, int64_t n) { t.near = n; }},
                {"far_bytes", [](auto &t) { return t.far; }, [](auto &t, int64_t n) { t.far = n; }}};

std::string profileText(const Profile &profile) {
  Array measured;
  for (auto &[threads, rates] : profile.measured) {
    Object entry{{"threads", threads}};
    for (auto &[name, field] : keys)
      entry[name] = rates.*field;
    entry[kMessageKey] = rates.message;
    measured.push_back(std::move(entry));
  }
  Array tiles;
  for (auto &[shape, tiling] : profile.tiles.tilings) {
    Object entry{{"product", shape}};
    for (auto &[name, read, write] : tileKeys)
      entry[name] = read(tiling);
    tiles.push_back(std::move(entry));
  }
  std::string text;
  llvm::raw_string_ostream out(text);
  llvm::json::OStream json(out, 2);
  Object all{{"kind", kKind}, {"version", kVersion}, {"cpu", profile.cpu}, {"processors", profile.processors}, {"measured", std::move(measured)}};
  if (!tiles.empty())
    all["tiles"] = std::move(tiles);
  json.value(std::move(all));
  return text + "\n";
}

// Profiles are of one CPU; whether a tile fits its registers is asked with the wider ones, and planContract asks again.
static bool parseTiles(const Array &list, kernels::TileTable &table, std::string &error) {
  kernels::TargetInfo widest;
  widest.amx = true;
  for (const llvm::json::Value &value : list) {
    const Object *entry = value.getAsObject();
    auto shape = entry ? entry->getString("product") : std::nullopt;
    kernels::Tiling tiling;
    bool good = shape && !shape->empty();
    for (auto &[name, read, write] : tileKeys)
      if (auto number = good ? entry->getInteger(name) : std::nullopt; number && *number >= 1 && *number <= int64_t(1) << 30)
        write(tiling, *number);
      else
        good = false;
    if (!good || !kernels::isTiling(tiling, widest)) {
      error = "expected each of \"tiles\" to have a \"product\" and a tile that fits the registers" +
              (shape ? ", see \"" + shape->str() + "\"" : std::string());
      return false;
    }
    if (!table.tilings.try_emplace(shape->str(), tiling).second) {
      error = "\"tiles\" has two entries for the product \"" + shape->str() + "\"";
      return false;
    }
  }
  return true;
}

static bool saysItIsProfile(const llvm::json::Value &value) {
  const Object *object = value.getAsObject();
  return object && object->getString("kind") == kKind;
}

bool isProfile(const std::string &text) {
  auto parsed = parseJson(text);
  if (parsed)
    return saysItIsProfile(*parsed);
  llvm::consumeError(parsed.takeError());
  return false;
}

bool parseProfile(const std::string &text, Profile &profile, std::string &error) {
  auto parsed = parseJson(text);
  if (!parsed) {
    error = "no JSON: " + llvm::toString(parsed.takeError());
    return false;
  }
  if (!saysItIsProfile(*parsed)) {
    error = "no profile of `cinch calibrate` (expected \"kind\": \"" + kKind.str() + "\")";
    return false;
  }
  const Object *object = parsed->getAsObject();
  if (auto version = object->getInteger("version"); version != kVersion) {
    error = "expected version " + std::to_string(kVersion) + ", got " + (version ? std::to_string(*version) : "none");
    return false;
  }
  const std::optional<llvm::StringRef> cpu = object->getString("cpu");
  if (!cpu) {
    error = "expected \"cpu\" to be the name of the processor that was measured";
    return false;
  }
  profile.cpu = cpu->str();
  const int64_t processors = object->getInteger("processors").value_or(0);
  if (processors < 0 || processors > 1'000'000) {
    error = "expected \"processors\" to be their number";
    return false;
  }
  profile.processors = int(processors);
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
        // Rates a second, and seconds to start a kernel, with much room around what machines have.
        if (!number || !(*number > 1e-15) || !(*number < 1e21)) {
          error = "expected \"" + name.str() + "\" to be a number from 1e-15 to 1e21 for " + std::to_string(last) + " threads";
          return false;
        }
        rate = *number;
        return true;
      };
      for (auto &[name, field] : keys)
        if (!read(name, rates.*field))
          return false;
      rates.message = builtInRates(last, 8).message;
      if (entry->get(kMessageKey) && !read(kMessageKey, rates.message))
        return false;
      profile.measured.push_back({last, rates});
    }
  if (profile.measured.empty()) {
    error = "\"measured\" is empty";
    return false;
  }
  const llvm::json::Value *tiles = object->get("tiles");
  if (tiles && !tiles->getAsArray()) {
    error = "expected \"tiles\" to be a list";
    return false;
  }
  return !tiles || parseTiles(*tiles->getAsArray(), profile.tiles, error);
}

std::string defaultProfilePath() {
  std::string folder = solve::userFolder("XDG_CONFIG_HOME", ".config");
  return folder.empty() ? folder : folder + "/profile.json";
}

} // namespace cinch::analysis
