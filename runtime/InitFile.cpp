// InitFile.cpp: see InitFile.h.
#include "runtime/InitFile.h"
#include "runtime/Checkpoint.h"
#include "runtime/Output.h"
#include "runtime/Run.h"
#include "runtime/TensorFile.h"
#include <string.h>

namespace cinch::rt {

namespace {

// Names, as many lines of them as it takes.
class NameList {
public:
  explicit NameList(const char *title) : title(title) {}
  void add(const char *name) {
    if (line.size && line.size + strlen(name) > 110)
      flush();
    line.add("%s%s", line.size ? ", " : "", name);
  }
  void flush() {
    if (line.size)
      say("  %-10s %s", title, line.data);
    line = Text();
    title = "";
  }

private:
  const char *title;
  Text line;
};

void addName(void *closure, const char *name) { static_cast<NameList *>(closure)->add(name); }

void list(const char *path, TensorFile &file, const TensorList &tensors, const Taking &taking) {
  int64_t found = 0;
  for (int64_t i = 0; i < tensors.count; ++i)
    found += tensors.items[i].found;
  say("%s: %lld of %lld tensors loaded", path, (long long)found, (long long)tensors.count);
  NameList loaded("loaded"), missing("missing"), unexpected("unexpected");
  bool keeps = false, finds = false; // of what is missing
  for (int64_t i = 0; i < tensors.count; ++i)
    if (tensors.items[i].found)
      loaded.add(tensors.items[i].name);
  loaded.flush();
  for (int64_t i = 0; i < tensors.count; ++i)
    if (const Tensor &tensor = tensors.items[i]; !tensor.found) {
      missing.add(tensor.name);
      const bool isFound = tensor.ofData && run.options.command == Options::Train;
      finds |= isFound, keeps |= !isFound;
    }
  missing.flush();
  file.unexpected(tensors, taking, addName, &unexpected);
  unexpected.flush();
  if (keeps)
    say("what is missing keeps its initial values%s", finds ? ", but for what was found in the training data (data.*)" : "");
  else if (finds)
    say("what is missing was found in the training data");
}

const NameMap *mapNamed(const char *name) {
  const Meta &meta = run.meta;
  Text names;
  for (const NameMap &map : meta.names) {
    if (strcmp(map.name, name) == 0)
      return &map;
    names.add("%s%s", names.size ? ", " : "", map.name);
  }
  if (!names.size)
    fail(kUsage, "--names %s: the program has no `names` block", name);
  fail(kUsage, "--names %s: there is no such map; the program has %s", name, names.data);
}

// What is not trained further says nothing of a trained model if a part of it is drawn.
void warnOfInitial(const char *path, const TensorList &tensors) {
  constexpr int64_t kShown = 12;
  Text names;
  int64_t count = 0;
  for (int64_t i = 0; i < tensors.count; ++i) {
    const Tensor &tensor = tensors.items[i];
    if (tensor.found || tensor.optional || tensor.likeIfMissing) // averages are those of their parameters
      continue;
    if (count++ < kShown)
      names.add("%s%s", names.size ? ", " : "", tensor.name);
  }
  if (count > kShown)
    names.add(" and %lld others", (long long)(count - kShown));
  if (count)
    warn("%s does not have %s: %s initial values, which were never trained; train first, or name a file that has %s", path, names.data,
         count == 1 ? "it has its" : "they have their", count == 1 ? "it" : "them");
}

enum class Bring { Values, Nothing };

// False: `problem` says why; `other`: it may be of another framework, and --names can say how to read it; a library has no flags. The file is closed then, before a library's call is left by a jump.
bool read(const char *path, const Taking &taking, Bring bring, Problem &problem, bool &other) {
  TensorList &tensors = parameterTensors();
  TensorFile file;
  const bool good = file.open(path, tensors, taking, problem) && file.verify(problem) &&
                    (bring == Bring::Values ? file.load(tensors, problem) : file.check(tensors, problem));
  const bool hasFlags = !onFailure; // failures of a library's call are taken by it
  other = hasFlags && file.hasHeader() && !taking.names && run.meta.names.size && !file.info.kind[0];
  if (good && bring == Bring::Values && taking.partial && !run.options.quiet)
    list(path, file, tensors, taking);
  return good;
}

void load(const char *path, const Taking &taking, Bring bring = Bring::Values) {
  TensorList &tensors = parameterTensors();
  Problem problem;
  bool other = false;
  if (!read(path, taking, bring, problem, other))
    fail(problem.ofProcess ? kResources : kData, "%s: %s%s%s%s", path, problem.text, other ? " (a file of another framework is read with --names " : "",
         other ? run.meta.names[0].name : "", other ? ")" : "");
  if (bring == Bring::Values && run.options.command != Options::Train)
    warnOfInitial(path, tensors);
}

} // namespace

const char *loadInitFile() {
  const Meta &meta = run.meta;
  const Options &options = run.options;
  Taking taking;
  taking.ignored = "optimizer/";
  taking.partial = options.partial;
  if (options.names && !options.init)
    fail(kUsage, "--names says what parameters are called in the file of --init; name one");
  if (options.names)
    taking.names = mapNamed(options.names);
  if (options.init) {
    load(options.init, taking);
    return options.init;
  }
  if (!meta.initFile) {
    if (options.partial)
      fail(kUsage, "--partial says how the file of --init is read; name one");
    return nullptr;
  }
  if (meta.initNames >= 0)
    taking.names = &meta.names[meta.initNames];
  Path path;
  joinPath(path, options.data, meta.initFile);
  load(path.text, taking);
  if (!options.quiet)
    say("parameters from %s", path.text);
  return copyText(path.text, strlen(path.text));
}

void checkInitFile() {
  const Meta &meta = run.meta;
  Taking taking;
  taking.ignored = "optimizer/";
  taking.names = meta.initNames >= 0 ? &meta.names[meta.initNames] : nullptr;
  Path path;
  joinPath(path, run.options.data, meta.initFile);
  load(path.text, taking, Bring::Nothing);
}

void loadParameterFile(const char *path) {
  Taking taking;
  taking.ignored = "optimizer/";
  load(path, taking);
}

} // namespace cinch::rt
