// NamesBlock.cpp: `names`, what parameters are called in a file of another framework, and `init`, which starts from one.
#include "compiler/frontend/Elaborator.h"
#include "compiler/frontend/TrainKeys.h"

#include <algorithm>

namespace cinch {

using namespace ast;

void Elaborator::checkNamesBlock(const NamesItem &item) {
  auto stars = [](const std::string &text) { return std::count(text.begin(), text.end(), '*'); };
  NameMap map{item.name.text, {}, item.name.span};
  for (const NameMap &other : program.nameMaps)
    if (other.name == map.name)
      report(Code::E0102, item.name.span, "two name maps are called `" + map.name + "`", fileFrame)
          .label(other.span, "the other one");
  for (const NameMapping &mapping : item.mappings) {
    bool unwanted = mapping.ours == "_", initial = mapping.theirs == "_";
    if (unwanted && initial)
      report(Code::E0607, mapping.span, "one side of a line is a name: `_` on the left is what is not wanted of the file, on the right what it does not have",
             fileFrame);
    if (!unwanted && !initial && stars(mapping.ours) != stars(mapping.theirs))
      report(Code::E0607, mapping.span,
             "both names need the same number of `*`, but `" + mapping.ours + "` has " +
                 std::to_string(stars(mapping.ours)) + " and `" + mapping.theirs + "` has " +
                 std::to_string(stars(mapping.theirs)),
             fileFrame);
    if ((unwanted || initial) && mapping.transposed)
      report(Code::E0607, mapping.span, "what is not read is not transposed either", fileFrame).help("leave the `'` out");
    if (std::max(stars(mapping.ours), stars(mapping.theirs)) > 16)
      report(Code::E0607, mapping.span, "a name has more than 16 `*`", fileFrame);
    map.mappings.push_back({mapping.ours, mapping.theirs, mapping.transposed, mapping.span});
  }
  program.nameMaps.push_back(std::move(map));
}

// The mapping of a path, or null.
static const NameMap::Mapping *mappingOf(const NameMap &map, const std::string &path) {
  for (const NameMap::Mapping &mapping : map.mappings)
    if (mapping.ours != "_" && matchesStars(mapping.ours, path))
      return &mapping;
  return nullptr;
}

// Once all parameters are known.
void Elaborator::checkNameMaps() {
  if (!parametersFixed)
    return;
  std::vector<std::string> paths;
  for (const cinch::Parameter &parameter : program.parameters)
    paths.push_back(parameter.path);
  const size_t ofModel = paths.size();
  for (const cinch::Field &field : program.datasets[program.train.dataset].fields) // files have what it was normalized with, too
    for (const char *part : {"mean", "std"})
      if (field.normalize)
        paths.push_back(program.datasets[program.train.dataset].nameOfNormal(field, part));
  for (const NameMap &map : program.nameMaps) {
    std::set<const NameMap::Mapping *> used;
    for (size_t i = 0; i < paths.size(); ++i) {
      const NameMap::Mapping *mapping = mappingOf(map, paths[i]);
      const size_t axes = i < ofModel ? program.parameters[i].type.shape.size() : 1;
      if (mapping && used.insert(mapping).second && mapping->transposed && axes < 2)
        report(Code::E0607, mapping->span, "this transposes `" + paths[i] + "`, which has fewer than two axes", fileFrame)
            .help("leave the `'` out, or write a line for `" + paths[i] + "` above");
    }
    for (const NameMap::Mapping &mapping : map.mappings) {
      bool any = mapping.ours == "_" || used.count(&mapping);
      for (size_t i = 0; !any && i < paths.size(); ++i)
        any = matchesStars(mapping.ours, paths[i]); // a line above takes all of them
      if (!any)
        report(Code::E0607, mapping.span, "no parameter is named `" + mapping.ours + "`", fileFrame)
            .help(mapping.ours.find('?') == std::string::npos
                      ? didYouMean(mapping.ours, paths)
                      : "`?` is itself in a name map, where it stands for any character in the paths of `freeze`, `on` and `except`; `*` stands for any "
                        "text, the same one on both sides");
    }
  }
  if (program.train.initNames < 0)
    return;
  const NameMap &map = program.nameMaps[program.train.initNames];
  paths.resize(ofModel);
  for (const std::string &path : paths)
    if (!mappingOf(map, path)) {
      report(Code::E0607, map.span, "`" + map.name + "` does not say what `" + path + "` is called in the file", fileFrame)
          .help("end the map with \"*\" = \"*\" if the rest is called as it is here; \"" + path + "\" = \"_\" starts as the program says");
      return;
    }
}

// `init "file" [names map]`
void Elaborator::readInit(const Setting &setting, Frame &frame) {
  const std::vector<SettingWord> &words = setting.words;
  bool file = !setting.key.hasArgs && !words.empty() && words[0].kind == SettingWord::String && !words[0].text.empty();
  bool mapped = words.size() == 3 && words[1].kind == SettingWord::Name && words[1].text == "names" && !words[1].hasArgs &&
                words[2].kind == SettingWord::Name && !words[2].hasArgs;
  if (!file || (words.size() != 1 && !mapped)) {
    report(Code::E0603, setting.span, "write init \"file\" or init \"file\" names map", frame);
    return;
  }
  program.train.initFile = words[0].text;
  if (!mapped)
    return;
  std::vector<std::string> known;
  for (size_t i = 0; i < program.nameMaps.size(); ++i) {
    known.push_back(program.nameMaps[i].name);
    if (known.back() == words[2].text)
      program.train.initNames = static_cast<int>(i);
  }
  if (program.train.initNames < 0)
    report(Code::E0101, words[2].span, "unknown name map `" + words[2].text + "`", frame)
        .help(known.empty() ? "the file has no `names " + words[2].text + " { .. }`" : didYouMean(words[2].text, known));
}

} // namespace cinch
