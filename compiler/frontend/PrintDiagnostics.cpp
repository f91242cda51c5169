// PrintDiagnostics.cpp: diagnostics as text with source frames, and as JSON, one object a line.
//
// A frame shows each line that has labels once. Under it the marks, `^` for the place itself and `-` for others; the
// rightmost label stands behind the marks, the others below, each under its mark, from right to left.
#include "compiler/frontend/Diagnostics.h"

#include "llvm/Support/JSON.h"
#include "llvm/Support/raw_ostream.h"

#include <algorithm>
#include <cstdlib>
#include <map>

namespace cinch {

bool wantsColor(llvm::raw_ostream &os, std::string_view choice) {
  if (choice == "always" || choice == "never")
    return choice == "always";
  const char *no = std::getenv("NO_COLOR");
  const char *term = std::getenv("TERM");
  return os.is_displayed() && (!no || !*no) && term && std::string_view(term) != "dumb";
}

namespace {

constexpr const char *bold = "\033[1m", *red = "\033[1;31m", *yellow = "\033[1;33m", *blue = "\033[1;34m",
                     *plain = "\033[0m";

bool isContinuation(char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; }

// Characters, not bytes.
size_t width(std::string_view s) {
  return s.size() - std::count_if(s.begin(), s.end(), isContinuation);
}

// What can be shown of a source line: tabs as blanks, control characters and broken UTF-8 as `?`.
std::string shown(std::string_view line) {
  std::string result;
  for (char c : line)
    result += c == '\t' ? ' ' : (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) ? '?' : c;
  return llvm::json::isUTF8(result) ? result : [&] {
    for (char &c : result)
      c = static_cast<unsigned char>(c) >= 0x80 ? '?' : c;
    return result;
  }();
}

// A text for people: nothing that moves the cursor.
std::string still(std::string text) {
  for (char &c : text)
    c = static_cast<unsigned char>(c) < 0x20 || c == 0x7F ? ' ' : c;
  return llvm::json::fixUTF8(text);
}

struct Mark {
  size_t begin, end; // columns from 0
  bool primary;
  std::string text, origin;
};

class TextPrinter {
public:
  TextPrinter(llvm::raw_ostream &os, const SourceList &sources, bool color) : os(os), sources(sources), color(color) {}

  void print(const Diagnostic &d) {
    bool isError = d.severity == Severity::Error;
    accent = isError ? red : yellow;
    paint(accent) << (isError ? "error" : "warning") << "[" << codeName(d.code).data() << "]";
    paint(plain);
    paint(bold) << ": " << still(d.message);
    paint(plain) << "\n";
    gutter = 2;
    if (sources.valid(d.span))
      frames(d);
    std::string bar(gutter + 1, ' ');
    for (const std::string &path : d.paths)
      extra(bar, "", path);
    if (d.instances > 0)
      extra(bar, "",
            "and in " + std::to_string(d.instances) + (d.instances == 1 ? " other instance" : " other instances"));
    for (const std::string &note : d.notes)
      extra(bar, "note: ", note);
    for (const std::string &help : d.helps)
      extra(bar, "help: ", help);
  }

private:
  llvm::raw_ostream &paint(const char *escape) {
    if (color)
      os << escape;
    return os;
  }

  void extra(const std::string &bar, const char *head, const std::string &text) {
    paint(blue) << bar << "= ";
    paint(plain);
    paint(bold) << head;
    paint(plain) << still(text) << "\n";
  }

  void frames(const Diagnostic &d) {
    LineColumn start = sources.locate(d.span);
    // Lines with labels: the primary's first, then the others of its file, then other files'.
    std::map<std::pair<int, int>, std::vector<Mark>> others;
    std::vector<Mark> first;
    Mark primary = mark(d.span, true);
    for (const Label &label : d.labels) {
      if (!sources.valid(label.span))
        continue;
      const Span &s = label.span;
      if (s.file == d.span.file && s.begin == d.span.begin && s.end == d.span.end && primary.text.empty()) {
        primary.text = still(label.text);
        primary.origin = still(label.origin);
        continue;
      }
      int line = sources.locate(s).line;
      Mark m = mark(s, false);
      m.text = still(label.text);
      m.origin = still(label.origin);
      bool isHome = s.file == d.span.file && line == start.line;
      (isHome ? first : others[{s.file == d.span.file ? -1 : s.file, line}]).push_back(std::move(m));
    }
    first.push_back(primary);
    int highest = start.line;
    for (auto &[place, marks] : others)
      highest = std::max(highest, place.second);
    gutter = std::max<size_t>(2, std::to_string(highest).size());
    std::string indent(gutter, ' ');
    paint(blue) << indent << "--> ";
    paint(plain) << shown(sources.name(d.span.file)) << ":" << start.line << ":" << start.column << "\n";
    frame(d.span.file, start.line, first);
    int lastFile = -1, lastLine = start.line;
    for (auto &[place, marks] : others) {
      int file = place.first == -1 ? d.span.file : place.first;
      if (place.first != lastFile) {
        paint(blue) << indent << "::: ";
        paint(plain) << shown(sources.name(file)) << ":" << place.second << "\n";
      } else if (place.second != lastLine + 1) {
        paint(blue) << std::string(gutter - 1, ' ') << "..";
        paint(plain) << "\n";
      }
      frame(file, place.second, marks);
      lastFile = place.first;
      lastLine = place.second;
    }
  }

  // Of a span over several lines the part on the first.
  Mark mark(Span span, bool primary) const {
    LineColumn at = sources.locate(span);
    std::string_view line = sources.line(span.file, at.line);
    size_t lineBegin = span.begin;
    while (lineBegin > 0 && sources.text(span.file)[lineBegin - 1] != '\n')
      --lineBegin;
    size_t begin = std::min<size_t>(span.begin - lineBegin, line.size());
    size_t end = std::min<size_t>(span.end - lineBegin, line.size());
    size_t column = width(line.substr(0, begin));
    return {column, std::max(column + 1, width(line.substr(0, end))), primary, "", ""};
  }

  void frame(int file, int number, std::vector<Mark> &marks) {
    std::string line = shown(sources.line(file, number));
    std::string label = std::to_string(number);
    window(line, marks);
    paint(blue) << std::string(gutter - label.size(), ' ') << label << " | ";
    paint(plain) << line << "\n";
    std::stable_sort(marks.begin(), marks.end(), [](const Mark &a, const Mark &b) { return a.begin < b.begin; });

    // The rows of text under the line: one with the marks, then one a label that does not fit there.
    std::string bar = std::string(gutter + 1, ' ') + "| ";
    std::string row;
    for (int pass = 0; pass < 2; ++pass) // `^` over `-`
      for (const Mark &m : marks)
        if (m.primary == (pass == 1)) {
          if (row.size() < m.end)
            row.resize(m.end, ' ');
          for (size_t i = m.begin; i < m.end; ++i)
            row[i] = m.primary ? '^' : '-';
        }
    std::vector<const Mark *> texts;
    for (const Mark &m : marks)
      if (!m.text.empty())
        texts.push_back(&m);
    std::vector<std::pair<std::string, std::string>> rows; // text up to the origin, origin
    const Mark *last = texts.empty() ? nullptr : texts.back();
    bool fits = last && std::all_of(marks.begin(), marks.end(), [&](const Mark &m) { return m.end <= last->end; });
    if (fits) {
      rows.push_back({row + " " + last->text, last->origin});
      texts.pop_back();
    } else {
      rows.push_back({row, ""});
    }
    while (!texts.empty()) {
      const Mark *m = texts.back();
      texts.pop_back();
      std::string below(m->begin, ' ');
      for (const Mark *waiting : texts)
        if (waiting->begin < m->begin)
          below[waiting->begin] = '|';
      rows.push_back({below + m->text, m->origin});
    }
    size_t originColumn = 0;
    for (auto &[text, origin] : rows)
      if (!origin.empty())
        originColumn = std::max(originColumn, width(text) + 3);
    for (auto &[text, origin] : rows) {
      paint(blue) << bar;
      paint(accent) << text;
      if (!origin.empty()) {
        paint(plain) << std::string(originColumn - width(text), ' ') << "(" << origin << ")";
      }
      paint(plain) << "\n";
    }
  }

  // A very long line is shown around its marks only.
  static void window(std::string &line, std::vector<Mark> &marks) {
    constexpr size_t longest = 200, before = 60;
    if (line.size() <= longest)
      return;
    size_t first = line.size();
    for (const Mark &m : marks)
      first = std::min(first, m.begin);
    size_t cut = first > before ? first - before : 0; // in characters
    auto byteOf = [&](size_t column) {
      size_t i = 0;
      while (i < line.size() && (column > 0 || isContinuation(line[i]))) {
        ++i;
        if (i == line.size() || !isContinuation(line[i]))
          column -= column > 0;
      }
      return i;
    };
    size_t begin = byteOf(cut), end = byteOf(cut + longest);
    bool cutEnd = end < line.size();
    std::string head = cut ? ".. " : "";
    line = head + line.substr(begin, end - begin) + (cutEnd ? " .." : "");
    size_t limit = head.size() + longest;
    for (Mark &m : marks) {
      m.begin = std::min(m.begin - cut + head.size(), limit);
      m.end = std::min(std::max(m.end - cut + head.size(), m.begin + 1), limit + 1);
    }
  }

  llvm::raw_ostream &os;
  const SourceList &sources;
  bool color;
  const char *accent = red;
  size_t gutter = 2;
};

llvm::json::Object place(const SourceList &sources, Span span) {
  llvm::json::Object result;
  if (!sources.valid(span))
    return result;
  auto begin = sources.locate(span), end = sources.locate(span.file, span.end);
  result["file"] = llvm::json::fixUTF8(sources.name(span.file));
  result["line"] = begin.line;
  result["column"] = begin.column;
  result["end"] = llvm::json::Object{{"line", end.line}, {"column", end.column}};
  return result;
}

llvm::json::Array strings(const std::vector<std::string> &list) {
  llvm::json::Array result;
  for (const std::string &s : list)
    result.push_back(llvm::json::fixUTF8(s));
  return result;
}

void printJSON(llvm::raw_ostream &os, const SourceList &sources, const Diagnostic &d) {
  llvm::json::Object object = place(sources, d.span);
  object["code"] = llvm::StringRef(codeName(d.code).data());
  object["severity"] = d.severity == Severity::Error ? "error" : "warning";
  object["message"] = llvm::json::fixUTF8(d.message);
  llvm::json::Array labels;
  for (const Label &label : d.labels) {
    llvm::json::Object one = place(sources, label.span);
    one["text"] = llvm::json::fixUTF8(label.text);
    if (!label.origin.empty())
      one["origin"] = llvm::json::fixUTF8(label.origin);
    labels.push_back(std::move(one));
  }
  object["labels"] = std::move(labels);
  object["path"] = strings(d.paths);
  object["instances"] = d.instances;
  object["notes"] = strings(d.notes);
  object["help"] = strings(d.helps);
  os << llvm::json::Value(std::move(object)) << "\n";
}

std::string counted(size_t count, const char *what) {
  return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

} // namespace

std::string messageAsJson(std::string_view text, std::string_view code) {
  llvm::StringRef rest(text.data(), text.size());
  auto [first, lines] = rest.split('\n');
  bool isError = !first.consume_front("warning: ");
  if (!first.consume_front("error: "))
    first.consume_front("cinch: ");
  llvm::json::Array notes, helps;
  for (llvm::StringRef line; !lines.empty();) {
    std::tie(line, lines) = lines.split('\n');
    line = line.trim();
    bool isHelp = line.consume_front("help: ");
    line.consume_front("note: ");
    if (!line.empty())
      (isHelp ? helps : notes).push_back(llvm::json::fixUTF8(line));
  }
  llvm::json::Object object{{"code", llvm::StringRef(code.data(), code.size())},
                            {"severity", isError ? "error" : "warning"},
                            {"message", llvm::json::fixUTF8(first)},
                            {"labels", llvm::json::Array()},
                            {"path", llvm::json::Array()},
                            {"instances", 0},
                            {"notes", std::move(notes)},
                            {"help", std::move(helps)}};
  std::string result;
  llvm::raw_string_ostream(result) << llvm::json::Value(std::move(object)) << "\n";
  return result;
}

void Diagnostics::print(llvm::raw_ostream &stream, const PrintOptions &options) const {
  std::string text; // written at once: standard error has no buffer
  llvm::raw_string_ostream os(text);
  printTo(os, options);
  stream << os.str();
}

void Diagnostics::printTo(llvm::raw_ostream &os, const PrintOptions &options) const {
  std::vector<Diagnostic> all = sorted();
  TextPrinter printer(os, sources, options.color);
  size_t counts[2] = {0, 0}, limit = options.limit > 0 ? options.limit : all.size();
  for (const Diagnostic &diagnostic : all) {
    size_t &count = counts[diagnostic.severity == Severity::Error ? 0 : 1];
    if (count++ >= limit)
      continue;
    if (options.json)
      printJSON(os, sources, diagnostic);
    else
      printer.print(diagnostic);
  }
  if (options.json || all.empty())
    return;
  std::string summary;
  static const char *const words[] = {"error", "warning"};
  for (int i = 0; i < 2; ++i)
    if (counts[i] > 0)
      summary += (summary.empty() ? "" : ", ") + counted(counts[i], words[i]) +
                 (counts[i] > limit ? " (" + std::to_string(limit) + " shown)" : "");
  os << summary << "\n";
}

} // namespace cinch
