// LINK: cinch_frontend
// Wrong programs are refused where they are wrong: the cases of test/frontend/wrong/*.cinch. A case begins with
// `// case: title`. It is the body of a model, or items of a file if it defines the model itself; dims, data and a
// `train` block that it lacks are put around it. A line that is to be refused ends in `// E0201: words | words`: an
// error with this code (or one that begins so) on this line, with these words in it. Any other error fails the case; so
// do errors in cases that expect none. `// W0103: words` is a warning that must be there; others may be, too, unless
// `// no W0103` stands in the case.
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Parser.h"
#include "compiler/frontend/VerifyProgram.h"

#include "llvm/Support/FileSystem.h"
#include "llvm/Support/JSON.h"
#include "llvm/Support/Path.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <iostream>

using namespace cinch;

static int passed = 0, failed = 0;

static void fail(const std::string &where, const std::string &what) {
  std::cout << "failed: " << where << ": " << what << "\n";
}

static std::string trimmed(llvm::StringRef s) { return s.trim().str(); }

struct Expectation {
  int line;
  std::string code;
  std::vector<std::string> words;
  bool met = false;
};

static bool runCase(const std::string &where, const std::vector<std::string> &lines) {
  std::string program = "dim B = 8 batch, D = 4, H = 4, N = 3, V = 10\n"
                        "data train = npy(\"x.npy\", \"y.npy\") -> (x: f32[B, D], y: i32[B] below V)\n";
  auto has = [&](llvm::StringRef head) {
    return std::any_of(lines.begin(), lines.end(),
                       [&](const std::string &l) { return llvm::StringRef(l).starts_with(head); });
  };
  bool isBody = !has("model ");
  int line = 3;
  if (isBody) {
    program += "model m(x: f32[B, D]) -> f32[B, V] {\n";
    ++line;
  }
  std::vector<Expectation> expectations;
  std::vector<std::string> unwanted;
  for (const std::string &text : lines) {
    size_t comment = std::min(text.find("// E"), text.find("// W"));
    if (size_t none = text.find("// no W"); none != std::string::npos)
      unwanted.push_back(text.substr(none + 6, 5));
    if (comment != std::string::npos) {
      llvm::StringRef rest = llvm::StringRef(text).substr(comment + 3);
      auto [code, words] = rest.split(':');
      Expectation expectation{line, code.str(), {}};
      while (!words.empty()) {
        auto [word, more] = words.split('|');
        expectation.words.push_back(trimmed(word));
        words = more;
      }
      expectations.push_back(std::move(expectation));
    }
    program += text + "\n";
    ++line;
  }
  if (isBody)
    program += "}\n";
  if (!has("train "))
    program += "train m on train seed 1 {\n  loss = mean[B] cross_entropy(m(x), y)\n  optimizer sgd(lr = 0.1)\n  steps "
               "10\n}\n";

  SourceList sources;
  Diagnostics diags(sources), preludeDiags(sources);
  ast::File prelude = parseFile(sources, 0, preludeDiags);
  int id = sources.add("case.cinch", program);
  ast::File file = parseFile(sources, id, diags);
  std::optional<Program> result;
  if (!diags.hasErrors())
    result = check(sources, prelude, file, {}, diags);
  if (result.has_value() == diags.hasErrors())
    return fail(where, "a program and errors, or neither"), false;
  if (result)
    if (std::string fault = verifyProgram(*result); !fault.empty())
      return fail(where, "the verifier: " + fault), false;

  bool ok = true;
  for (const Diagnostic &d : diags.sorted()) {
    bool isError = d.severity == Severity::Error;
    std::string all = d.message;
    for (const auto *list : {&d.notes, &d.helps, &d.paths})
      for (const std::string &s : *list)
        all += "\n" + s;
    for (const Label &label : d.labels)
      all += "\n" + label.text + " (" + label.origin + ")";
    int at = sources.valid(d.span) && d.span.file == id ? sources.locate(d.span).line : 0;
    auto it = std::find_if(expectations.begin(), expectations.end(), [&](const Expectation &e) {
      return !e.met && e.line == at && llvm::StringRef(codeName(d.code).data()).starts_with(e.code) &&
             std::all_of(e.words.begin(), e.words.end(),
                         [&](const std::string &word) { return all.find(word) != std::string::npos; });
    });
    if (it == expectations.end()) {
      if (!isError && std::find(unwanted.begin(), unwanted.end(), codeName(d.code)) == unwanted.end())
        continue;
      fail(where, "not expected, " + std::string(codeName(d.code)) + " at line " + std::to_string(at) + " of\n" +
                      program + "  " + all);
      ok = false;
    } else {
      it->met = true;
    }
  }
  for (const Expectation &e : expectations)
    if (!e.met) {
      fail(where, "expected and not seen, " + e.code + (e.words.empty() ? "" : ": " + e.words[0]));
      ok = false;
    }
  return ok;
}

static void runFile(const std::string &path) {
  SourceList sources;
  std::string error;
  int id = sources.addFile(path, error);
  if (id < 0)
    return ++failed, fail(path, error);
  std::string title;
  std::vector<std::string> lines;
  auto finish = [&] {
    if (!title.empty())
      ++(runCase(llvm::sys::path::filename(path).str() + ", " + title, lines) ? passed : failed);
    lines.clear();
  };
  for (int i = 1; i <= sources.lineCount(id); ++i) {
    llvm::StringRef line(sources.line(id, i).data(), sources.line(id, i).size());
    if (line.starts_with("// case: ")) {
      finish();
      title = line.substr(9).str();
    } else if (!line.empty()) {
      lines.push_back(line.str());
    }
  }
  finish();
}

int main(int argc, char **argv) {
  // build/bin/wrong_programs -> test/frontend/wrong
  std::string self = llvm::sys::fs::getMainExecutable(argv[0], reinterpret_cast<void *>(&runFile));
  llvm::SmallString<256> folder(self);
  for (int i = 0; i < 3; ++i)
    llvm::sys::path::remove_filename(folder);
  llvm::sys::path::append(folder, "test", "frontend", "wrong");
  std::vector<std::string> paths(argv + 1, argv + argc);
  std::error_code error;
  if (paths.empty())
    for (llvm::sys::fs::directory_iterator it(folder, error), end; it != end && !error; it.increment(error))
      if (llvm::StringRef(it->path()).ends_with(".cinch"))
        paths.push_back(it->path());
  std::sort(paths.begin(), paths.end());
  for (const std::string &path : paths)
    runFile(path);
  if (paths.empty()) {
    ++failed;
    fail(folder.str().str(), "no cases");
  }
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed > 0;
}
