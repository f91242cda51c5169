// Format.cpp: the tokens of a file in their lines, laid out anew.
//
//  1. A line begins with two blanks for each `{` that is open. What goes on with the line before stands under the token behind the
//     innermost `(` or `[` that is open (two blanks to the right of the statement if that ends its line), or, if there is none,
//     four blanks to the right of the statement.
//  2. Between two tokens of a line stand no blanks or one (spaceBetween). Where one is right, more than one are columns that the
//     author has made, and stay; so are those before a comment.
//  3. Of several empty lines one stays; none at the ends of the file.
#include "compiler/frontend/Format.h"
#include "compiler/frontend/Lexer.h"

#include <algorithm>

namespace cinch {

namespace {

using Kind = TokenKind;

bool isOpening(Kind kind) { return kind == Kind::LPar || kind == Kind::LSquare || kind == Kind::LBrace; }
bool isClosing(Kind kind) { return kind == Kind::RPar || kind == Kind::RSquare || kind == Kind::RBrace; }
bool isWord(Kind kind) { return kind == Kind::Name || (kind >= Kind::If && kind <= Kind::As); }
bool isOperator(Kind kind) { return kind == Kind::Assign || kind == Kind::Tilde || kind == Kind::Arrow || kind >= Kind::EQ; }
// A token behind which a value is complete, so that a minus is a difference.
bool endsValue(Kind kind) {
  return kind == Kind::Name || kind == Kind::Number || kind == Kind::String || kind == Kind::True || kind == Kind::False ||
         kind == Kind::RPar || kind == Kind::RSquare || kind == Kind::Prime || kind == Kind::Dots;
}

// What stands between two tokens.
struct Gap {
  size_t blanks = 0;   // before the first comment, or before the token, if it stands on the same line
  bool semicolon = false;
  size_t newlines = 0; // in all
  struct Comment {
    std::string text;
    bool ownLine = false, emptyBefore = false;
    size_t blanks = 0;
  };
  std::vector<Comment> comments;
  bool emptyBefore = false; // an empty line right before the token
};

class Formatter {
public:
  Formatter(const SourceList &sources, int file) : text(sources.text(file)) {
    Diagnostics none(sources);
    for (Token &token : lex(sources, file, none))
      if (token.kind != Kind::NL)
        tokens.push_back(std::move(token));
  }

  std::string run() {
    size_t end = 0;
    if (text.substr(0, 3) == "\xEF\xBB\xBF")
      end = 3;
    for (size_t i = 0; i < tokens.size(); ++i) {
      const Token &token = tokens[i];
      bool last = token.kind == Kind::End;
      Gap gap = readGap(end, last ? text.size() : token.span.begin);
      writeGap(gap, i);
      if (last)
        break;
      writeToken(i, gap);
      end = token.span.end;
    }
    while (!out.empty() && (out.back() == '\n' || out.back() == ' '))
      out.pop_back();
    return out.empty() ? out : out + "\n";
  }

private:
  struct Bracket {
    Kind kind;
    size_t column;       // of what stands behind it; 0: it ends its line
    size_t statement;    // indentation of the statement that holds it
  };

  Gap readGap(size_t begin, size_t end) const {
    Gap gap;
    size_t blanks = 0, lines = 0;
    for (size_t at = begin; at < end; ++at) {
      char c = text[at];
      if (c == '\n') {
        ++lines;
        ++gap.newlines;
        blanks = 0;
      } else if (c == ';') {
        gap.semicolon = true;
        blanks = 0;
      } else if (c == '/' && at + 1 < end && text[at + 1] == '/') {
        size_t stop = std::min(text.find('\n', at), end);
        std::string comment(text.substr(at, stop - at));
        while (!comment.empty() && (comment.back() == ' ' || comment.back() == '\t' || comment.back() == '\r'))
          comment.pop_back();
        gap.comments.push_back({comment, lines > 0 || (begin == 0 && gap.comments.empty()), lines > 1, blanks});
        at = stop - 1;
        blanks = lines = 0;
      } else if (c == ' ' || c == '\t') {
        ++blanks;
      }
    }
    gap.blanks = blanks;
    gap.emptyBefore = lines > 1;
    return gap;
  }

  size_t depth() const {
    return size_t(std::count_if(brackets.begin(), brackets.end(), [](const Bracket &b) { return b.kind == Kind::LBrace; }));
  }
  bool inBrackets() const { return !brackets.empty() && brackets.back().kind != Kind::LBrace; }
  size_t column() const {
    size_t newline = out.rfind('\n');
    return newline == std::string::npos ? out.size() : out.size() - newline - 1;
  }

  // Whether token i goes on with the statement of the token before.
  bool continues(size_t i) const {
    if (i == 0 || tokens[i].kind == Kind::End)
      return false;
    if (inBrackets())
      return true;
    Kind before = tokens[i - 1].kind, kind = tokens[i].kind;
    if (before == Kind::LBrace || kind == Kind::RBrace || before == Kind::RBrace)
      return false;
    bool goesOn = kind == Kind::Arrow || kind == Kind::Then || kind == Kind::Else || kind == Kind::And || kind == Kind::Or ||
                  (kind >= Kind::EQ && kind <= Kind::Caret);
    return goesOn || !endsValue(before);
  }

  size_t indentOf(size_t i) const {
    if (i < tokens.size() && inBrackets()) {
      const Bracket &inner = brackets.back();
      bool closes = isClosing(tokens[i].kind);
      return inner.column ? inner.column - (closes ? 1 : 0) : inner.statement + (closes ? 0 : 2);
    }
    size_t levels = depth();
    if (tokens[i].kind == Kind::RBrace)
      return 2 * (levels - (levels > 0));
    return 2 * levels + (continues(i) ? 4 : 0);
  }

  void newLine(bool empty) {
    if (out.empty())
      return;
    while (!out.empty() && out.back() == ' ')
      out.pop_back();
    out += empty ? "\n\n" : "\n";
  }

  // Semicolons, comments and line ends before token i; then the line stands where the token goes.
  void writeGap(const Gap &gap, size_t i) {
    const bool ends = tokens[i].kind == Kind::RBrace || tokens[i].kind == Kind::End; // and the statement with it
    if (gap.semicolon && !out.empty() && !ends && gap.newlines == 0 && gap.comments.empty())
      out += ";";
    for (const Gap::Comment &comment : gap.comments) {
      if (comment.ownLine) {
        newLine(comment.emptyBefore);
        out += std::string(tokens[i].kind == Kind::RBrace ? 2 * depth() : indentOf(i), ' ') + comment.text;
      } else {
        out += std::string(std::max<size_t>(comment.blanks, out.empty() ? 0 : 1), ' ') + comment.text;
      }
    }
    if (tokens[i].kind == Kind::End)
      return;
    startsLine = out.empty() || gap.newlines > 0;
    if (startsLine && !out.empty())
      newLine(gap.emptyBefore);
  }

  void writeToken(size_t i, const Gap &gap) {
    const Token &token = tokens[i];
    if (startsLine) {
      if (!continues(i))
        statement = indentOf(i);
      out += std::string(indentOf(i), ' ');
    } else if (gap.semicolon) {
      out += std::string(std::max<size_t>(gap.blanks, 1), ' ');
    } else if (i > 0) {
      bool one = spaceBetween(i, gap.blanks);
      out += std::string(one ? std::max<size_t>(gap.blanks, 1) : 0, ' ');
    }
    if (isClosing(token.kind) && !brackets.empty())
      brackets.pop_back();
    out += text.substr(token.span.begin, token.span.end - token.span.begin);
    if (isOpening(token.kind)) {
      bool endsLine = i + 1 < tokens.size() && text.substr(token.span.end, tokens[i + 1].span.begin - token.span.end).find('\n') !=
                                                   std::string_view::npos;
      brackets.push_back({token.kind, endsLine ? 0 : column(), statement});
    }
  }

  // Whether a blank belongs between tokens i - 1 and i of one line; `blanks`: how many the author has written.
  bool spaceBetween(size_t i, size_t blanks) const {
    Kind a = tokens[i - 1].kind, b = tokens[i].kind;
    bool slot = !brackets.empty() && brackets.back().kind == Kind::LSquare;
    if (a == Kind::LBrace || b == Kind::LBrace || b == Kind::RBrace || a == Kind::RBrace)
      return true;
    if (a == Kind::LPar || a == Kind::LSquare || b == Kind::RPar || b == Kind::RSquare || b == Kind::Comma || b == Kind::Prime ||
        b == Kind::Query)
      return false;
    if (a == Kind::Comma)
      return true;
    if (a == Kind::Colon || b == Kind::Colon)
      return a == Kind::Colon && !slot;
    if (a == Kind::At || b == Kind::At) {
      bool hint = a == Kind::At ? isHint(i - 1) : isHint(i);
      return a == Kind::At ? !hint : true;
    }
    if (a == Kind::Minus && !isDifference(i - 1))
      return false;
    bool fraction = (b == Kind::Slash && a == Kind::Number && tokens[i + 1].kind == Kind::Number) ||
                    (a == Kind::Slash && b == Kind::Number && tokens[i - 2].kind == Kind::Number); // 1/255
    if (fraction)
      return blanks > 0;
    if (isOperator(a) || isOperator(b))
      return true;
    if (b == Kind::LPar)
      return isWord(a) && a != Kind::Name ? a != Kind::Max && a != Kind::Min && a != Kind::Where : blanks > 0;
    if (b == Kind::LSquare)
      return false;
    return true;
  }

  // A minus that has a left side.
  bool isDifference(size_t i) const { return i > 0 && endsValue(tokens[i - 1].kind) && !isClauseOfField(i - 1); }
  // `scale`, `below`, `except` behind a type, before a number: a name of a value has no value right before it.
  bool isClauseOfField(size_t i) const {
    std::string_view word = text.substr(tokens[i].span.begin, tokens[i].span.end - tokens[i].span.begin);
    return i > 0 && tokens[i].kind == Kind::Name && (word == "scale" || word == "below" || word == "except") && endsValue(tokens[i - 1].kind);
  }
  // `@checkpoint`, or the product of matrices? Hints stand at the beginning of a line.
  bool isHint(size_t i) const {
    while (i > 0 && !tokens[i].startsLine)
      --i;
    return tokens[i].kind == Kind::At && (i == 0 || !continues(i));
  }

  std::string_view text;
  std::vector<Token> tokens;
  std::vector<Bracket> brackets;
  std::string out;
  bool startsLine = true;
  size_t statement = 0; // indentation of the statement that is being written
};

} // namespace

std::string formatted(const SourceList &sources, int file) { return Formatter(sources, file).run(); }

std::string substance(const SourceList &sources, int file) {
  Diagnostics none(sources);
  std::string_view text = sources.text(file);
  std::string result;
  size_t end = 0;
  bool ends = false; // a statement has ended since the last token, by `;` before a comment or by the end of the line behind it
  for (const Token &token : lex(sources, file, none)) {
    if (token.kind == Kind::NL) {
      ends = true;
      continue;
    }
    for (size_t at = end; at < token.span.begin; ++at)
      if (text.substr(at, 2) == "//") { // a comment, without the blanks behind it
        size_t stop = std::min(text.find('\n', at), size_t(token.span.begin));
        std::string comment(text.substr(at, stop - at));
        comment.erase(comment.find_last_not_of(" \t\r") + 1);
        result += comment + "\n";
        at = stop;
      }
    result += (ends ? "NL\n" : "") + std::string(text.substr(token.span.begin, token.span.end - token.span.begin)) + "\n";
    end = token.span.end;
    ends = false;
  }
  return result;
}

} // namespace cinch
