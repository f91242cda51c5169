// PlanBlock.cpp: the `plan` block.
#include "compiler/frontend/TrainKeys.h"

#include <algorithm>
#include <set>

namespace cinch {

using namespace ast;

std::optional<int64_t> parseBytes(std::string_view text) {
  static const struct {
    const char *name;
    int64_t bytes;
  } units[] = {{"KiB", 1LL << 10}, {"MiB", 1LL << 20}, {"GiB", 1LL << 30}, {"TiB", 1LL << 40},
               {"kB", 1000},       {"MB", 1000000},    {"GB", 1000000000}, {"TB", 1000000000000},
               {"B", 1}}; // the last one: others end in it
  for (const auto &unit : units) {
    std::string_view name = unit.name;
    if (text.size() <= name.size() || text.substr(text.size() - name.size()) != name)
      continue;
    std::optional<Fraction> amount = Fraction::parse(text.substr(0, text.size() - name.size()));
    std::optional<Fraction> bytes = amount ? multiply(*amount, Fraction(unit.bytes)) : std::nullopt;
    return bytes ? bytes->floor().toInteger() : std::nullopt;
  }
  return std::nullopt;
}

void Elaborator::checkPlan() {
  using Reader = void (Elaborator::*)(const SettingWord &, Frame &);
  static const std::map<std::string, Reader> readers = {
      {"memory", &Elaborator::readMemory},
      {"microbatch", &Elaborator::readMicrobatch},
      {"stages", &Elaborator::readStages},
      {"schedule", &Elaborator::readStageSchedule},
      {"remat", &Elaborator::readRemat},
      {"offload", &Elaborator::readOffload},
  };
  Frame frame = fileFrame;
  std::set<std::string> seen;
  for (const Setting &setting : plan->settings) {
    const std::string &key = setting.key.text;
    auto reader = readers.find(key);
    refuseExcept(setting, frame);
    if (reader == readers.end()) {
      std::vector<std::string> keys;
      for (auto &[name, each] : readers)
        keys.push_back(name);
      report(Code::E0602, setting.key.textSpan, "unknown key `" + key + "` in plan", frame).help(meantOrAll(key, keys));
    } else if (!seen.insert(key).second) {
      report(Code::E0603, setting.span, "`" + key + "` is given twice", frame);
    } else if (oneWord(setting, (key + " and one value").c_str(), frame)) {
      (this->*reader->second)(setting.words[0], frame);
    }
  }
}

static bool isAuto(const SettingWord &word) { return word.kind == SettingWord::Name && word.text == "auto" && !word.hasArgs; }

void Elaborator::readMemory(const SettingWord &word, Frame &frame) {
  bool number = word.kind == SettingWord::Number;
  std::optional<int64_t> bytes = number ? parseBytes(word.text + word.unit) : std::nullopt;
  if (bytes && *bytes > 0) {
    program.plan.memory = *bytes;
    return;
  }
  if (number && !word.unit.empty()) {
    report(Code::E0603, word.span,
           std::string(bytes ? "`memory` is at least one byte" : "`memory` is a number of bytes below 2^63") + ", but this is `" + textOf(word.span) + "`", frame)
        .help(bytes ? "" : std::string("the most that can be written is ") + mostBytesText);
    return;
  }
  report(Code::E0603, word.span,
         number && word.unit.empty() ? "`memory` needs a unit"
                                     : "`memory` takes a number of bytes, but this is `" + textOf(word.span) + "`",
         frame)
      .help("write " + (number ? word.text : std::string("3")) + "GiB (2^30 bytes each) or GB (10^9)");
}

void Elaborator::readMicrobatch(const SettingWord &word, Frame &frame) {
  int64_t &microbatch = program.plan.microbatch;
  readCount(word, "microbatch", microbatch, frame);
  if (!options.microbatchGiven && microbatch > 0 && program.batch > 0 && program.batch % microbatch != 0)
    report(Code::E0603, word.span,
           "`microbatch` must divide the batch, but " + std::to_string(microbatch) + " does not divide " + program.batchName +
               " = " + std::to_string(program.batch),
           frame);
}

void Elaborator::readStages(const SettingWord &word, Frame &frame) { readCount(word, "stages", program.plan.stages, frame); }

// A whole number, or `auto`, which is 0.
void Elaborator::readCount(const SettingWord &word, const std::string &key, int64_t &target, Frame &frame) {
  if (isAuto(word))
    target = 0;
  else if (std::optional<Number> number = wordNumber(word, key, Range{Range::Count}, frame))
    target = *number->integer();
}

void Elaborator::readStageSchedule(const SettingWord &word, Frame &frame) {
  static const std::vector<std::string> schedules = {"naive", "gpipe", "1f1b", "2bw", "interleaved", "zb-h1", "zbv"};
  bool known = word.kind == SettingWord::String && std::find(schedules.begin(), schedules.end(), word.text) != schedules.end();
  if (known || isAuto(word)) {
    program.plan.schedule = word.text;
    return;
  }
  report(Code::E0603, word.span,
         "unknown schedule `" + word.text +
             "`; there are \"naive\", \"gpipe\", \"1f1b\", "
             "\"2bw\", \"interleaved\", \"zb-h1\", \"zbv\" and auto",
         frame)
      .help(meantOrAll(word.text, schedules));
}

void Elaborator::readOffload(const SettingWord &word, Frame &frame) {
  if (isAuto(word))
    report(Code::E0710, word.span, "`offload auto` is not there yet", frame).help("write `offload none`");
  else if (word.kind == SettingWord::Name && word.text == "none" && !word.hasArgs)
    program.plan.offload = word.text;
  else
    report(Code::E0603, word.span, "`offload` is none or auto, but this is `" + textOf(word.span) + "`", frame);
}

void Elaborator::readRemat(const SettingWord &word, Frame &frame) {
  static const std::vector<std::string> remats = {"none", "all", "sqrt", "every", "marked", "cheap", "optimal", "auto"};
  bool known = word.kind == SettingWord::Name && std::find(remats.begin(), remats.end(), word.text) != remats.end();
  bool every = known && word.text == "every";
  if (!known || word.args.size() != (every ? 1 : 0) || (every && word.args[0].name)) {
    report(Code::E0603, word.span,
           "unknown rematerialization `" + textOf(word.span) +
               "`; there are none, all, sqrt, every(N), "
               "marked, cheap, optimal and auto",
           frame)
        .help(didYouMean(word.text, remats));
    return;
  }
  std::string &remat = program.plan.remat;
  remat = word.text;
  if (every)
    if (std::optional<Number> number = settingNumber(*word.args[0].value, "every", Range{Range::Count}, frame))
      remat += ":" + std::to_string(*number->integer()); // as on the command line
}

// A micro-batch is made of whole grains, a grain of whole groups.
void Elaborator::checkGrain() {
  int64_t grain = program.train.grain, microbatch = program.plan.microbatch;
  for (const Op &op : program.step.ops)
    if (grain >= 1 && grain % op.type.group != 0) {
      report(Code::E0505, op.span,
             "`grain` must be a multiple of the group, but " + std::to_string(grain) + " is none of " + std::to_string(op.type.group), fileFrame);
      break;
    }
  if (!plan || options.microbatchGiven || grain < 1 || microbatch % grain == 0)
    return;
  for (const Setting &setting : plan->settings)
    if (setting.key.text == "microbatch")
      report(Code::E0603, setting.words[0].span,
             "`microbatch` must be a multiple of `grain`, but " + std::to_string(microbatch) + " is none of " +
                 std::to_string(grain),
             fileFrame);
}

} // namespace cinch
