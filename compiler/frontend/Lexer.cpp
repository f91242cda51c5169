// Lexer.cpp: see Lexer.h. One pass; `pending` is a line end that ends a statement unless the next token goes on with
// it.
#include "compiler/frontend/Lexer.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/JSON.h"

#include <algorithm>
#include <map>

namespace cinch {

const std::vector<std::string> &reservedWords() {
  static const std::vector<std::string> words = {
      "if",   "then", "else", "and",  "or",   "not",   "true",  "false", "where",  "sum",    "mean",   "max", "min",
      "prod", "any",  "all",  "scan", "param", "state", "use",   "update", "return", "metric", "predict", "repeat", "as"};
  return words;
}

TokenKind wordKind(std::string_view word) {
  static const std::map<std::string, TokenKind, std::less<>> kinds = [] {
    std::map<std::string, TokenKind, std::less<>> result;
    int kind = static_cast<int>(TokenKind::If);
    for (const std::string &reserved : reservedWords())
      result[reserved] = static_cast<TokenKind>(kind++);
    return result;
  }();
  auto it = kinds.find(word);
  return it == kinds.end() ? TokenKind::Name : it->second;
}

static const char *const punctuation[] = {"(", ")", "[", "]", "{",  "}",  ",", ":",  "?", "~",  "@", "'", "=",
                                          "->", "..", "==", "!=", "<", "<=", ">", ">=", "+", "-", "*", "/", "^"};
static_assert(sizeof punctuation / sizeof *punctuation ==
                  static_cast<size_t>(TokenKind::Caret) - static_cast<size_t>(TokenKind::LPar) + 1,
              "one spelling a kind");

std::string describe(TokenKind kind) {
  switch (kind) {
  case TokenKind::Name:
    return "a name";
  case TokenKind::Number:
    return "a number";
  case TokenKind::String:
    return "a string";
  case TokenKind::NL:
    return "the end of the line";
  case TokenKind::End:
    return "the end of the file";
  case TokenKind::Error:
    return "an unknown character";
  default:
    break;
  }
  if (kind >= TokenKind::LPar)
    return std::string("`") + punctuation[static_cast<int>(kind) - static_cast<int>(TokenKind::LPar)] + "`";
  return "`" + reservedWords()[static_cast<int>(kind) - static_cast<int>(TokenKind::If)] + "`";
}

// Whether a line end behind this token ends a statement.
static bool canEndStatement(TokenKind kind) {
  switch (kind) {
  case TokenKind::Name:
  case TokenKind::Number:
  case TokenKind::String:
  case TokenKind::True:
  case TokenKind::False:
  case TokenKind::RPar:
  case TokenKind::RSquare:
  case TokenKind::RBrace:
  case TokenKind::Prime:
  case TokenKind::Error:
    return true;
  default:
    return false;
  }
}

// Whether a line that begins with this token goes on with the statement before.
static bool goesOn(TokenKind kind) {
  switch (kind) {
  case TokenKind::Arrow:
  case TokenKind::Then:
  case TokenKind::Else:
  case TokenKind::And:
  case TokenKind::Or:
  case TokenKind::EQ:
  case TokenKind::NE:
  case TokenKind::LT:
  case TokenKind::LE:
  case TokenKind::GT:
  case TokenKind::GE:
  case TokenKind::Plus:
  case TokenKind::Minus:
  case TokenKind::Star:
  case TokenKind::Slash:
  case TokenKind::Caret:
    return true;
  default:
    return false;
  }
}

namespace {

bool isDigit(char c) { return c >= '0' && c <= '9'; }
bool isLetter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool isUnit(std::string_view s) {
  static const char *const units[] = {"KiB", "MiB", "GiB", "TiB", "kB", "MB", "GB", "TB", "B"};
  return std::find(std::begin(units), std::end(units), s) != std::end(units);
}

// Characters that look like a blank or like nothing.
struct Unseen {
  uint32_t first, last;
  const char *name;
  bool blank;
};
const Unseen *unseenCharacter(uint32_t code) {
  static const Unseen all[] = {{0x80, 0x9F, "control character", false},
                               {0xA0, 0xA0, "no-break space", true},
                               {0xAD, 0xAD, "soft hyphen", false},
                               {0x2000, 0x200A, "a space of typesetting", true},
                               {0x200B, 0x200B, "zero-width space", false},
                               {0x200C, 0x200D, "zero-width joiner", false},
                               {0x200E, 0x200F, "mark of writing direction", false},
                               {0x2028, 0x2029, "separator of lines", true},
                               {0x202A, 0x202E, "mark of writing direction", false},
                               {0x202F, 0x202F, "narrow no-break space", true},
                               {0x205F, 0x205F, "a space of typesetting", true},
                               {0x2060, 0x2060, "word joiner", false},
                               {0x2066, 0x2069, "mark of writing direction", false},
                               {0x3000, 0x3000, "ideographic space", true},
                               {0xFEFF, 0xFEFF, "byte order mark", false}};
  for (const Unseen &each : all)
    if (code >= each.first && code <= each.last)
      return &each;
  return nullptr;
}

// Of a character in UTF-8 of two bytes or more.
uint32_t codePoint(std::string_view character) {
  uint32_t code = static_cast<unsigned char>(character[0]) & (0x7F >> character.size());
  for (size_t i = 1; i < character.size(); ++i)
    code = code << 6 | (static_cast<unsigned char>(character[i]) & 0x3F);
  return code;
}

std::string codeText(uint32_t code) {
  std::string digits = llvm::utohexstr(code);
  return "U+" + std::string(digits.size() < 4 ? 4 - digits.size() : 0, '0') + digits;
}

std::string byteText(char byte) { return "byte 0x" + llvm::utohexstr(static_cast<unsigned char>(byte), true, 2); }

class Lexer {
public:
  Lexer(const SourceList &sources, int file, Diagnostics &diags, uint32_t begin)
      : text(sources.text(file)), file(file), diags(diags), pos(begin) {}

  std::vector<Token> run() {
    if (isNoText()) // one error, and nothing of it is read
      pos = static_cast<uint32_t>(text.size());
    while (pos < text.size())
      step();
    lineEnd(pos);
    if (pending)
      emitPending();
    put(TokenKind::End, pos, pos);
    return std::move(out);
  }

private:
  char at(size_t offset) const { return pos + offset < text.size() ? text[pos + offset] : '\0'; }
  Span span(uint32_t begin, uint32_t end) const { return {file, begin, end}; }

  // What is no text at all: what an editor saved as UTF-16, what has a byte 0x00. A byte that is no UTF-8, such as a letter in Latin-1, is an
  // error, too, the first one, but the text around it is read.
  bool isNoText() {
    std::string_view mark = text.substr(0, 2);
    bool wide = mark == "\xFF\xFE" || mark == "\xFE\xFF";
    size_t at = wide ? 0 : text.find('\0'), broken = text.size();
    bool none = wide || at != std::string_view::npos;
    if (!none && !llvm::json::isUTF8(llvm::StringRef(text.data(), text.size()), &broken))
      at = broken;
    if (at < text.size())
      diags.error(Code::E0001, span(at, at + 1), "a program is text in UTF-8, and " + (wide ? "this file begins as UTF-16" : "here is the " + byteText(text[at])))
          .help("if an editor wrote it, save it there with the encoding UTF-8");
    return none;
  }

  void step() {
    char c = text[pos];
    if (c == ' ' || c == '\t' || c == '\r') {
      ++pos;
    } else if (c == '/' && at(1) == '/') {
      const uint32_t begin = pos;
      while (pos < text.size() && text[pos] != '\n')
        ++pos;
      const llvm::StringRef said = llvm::StringRef(text.data() + begin + 2, pos - begin - 2).trim();
      if (!startsLine && !said.empty() && said.find_first_not_of("0123456789") == llvm::StringRef::npos) // whole division elsewhere
        diags.warning(Code::W0104, span(begin, pos), "`//` begins a comment: " + said.str() + " is not read")
            .help("a quotient is x / " + said.str() + "; rounded down, floor(x / " + said.str() + ")");
    } else if (c == '/' && at(1) == '*') {
      uint32_t begin = pos;
      size_t end = text.find("*/", pos + 2);
      pos = end == std::string_view::npos ? uint32_t(text.size()) : uint32_t(end + 2);
      diags.error(Code::E0001, span(begin, begin + 2), "unknown character `/*`").help("a comment begins with `//` and ends with its line");
    } else if (c == '\n') {
      lineEnd(pos++);
      startsLine = true;
    } else if (c == ';') {
      lineEnd(pos++);
      if (pending)
        emitPending();
    } else if (isDigit(c)) {
      number();
    } else if (isLetter(c)) {
      uint32_t begin = pos;
      while (isLetter(at(0)) || isDigit(at(0)))
        ++pos;
      const TokenKind kind = wordKind(text.substr(begin, pos - begin));
      const bool isSetting = kind == TokenKind::All && !out.empty() && out.back().kind == TokenKind::Name && out.back().text == "remat";
      put(isSetting ? TokenKind::Name : kind, begin, pos); // `remat all`
    } else if (c == '"') {
      string();
    } else {
      operatorOrBad();
    }
  }

  void lineEnd(uint32_t where) {
    if (depth == 0 && !out.empty() && canEndStatement(out.back().kind) && !pending) {
      pending = true;
      pendingAt = where;
    }
  }
  void emitPending() {
    Token token;
    token.kind = TokenKind::NL;
    token.span = span(pendingAt, pendingAt);
    out.push_back(std::move(token));
    pending = false;
  }
  Token &put(TokenKind kind, uint32_t begin, uint32_t end) {
    if (pending && !goesOn(kind))
      emitPending();
    pending = false;
    Token token;
    token.kind = kind;
    token.span = span(begin, end);
    token.text = text.substr(begin, end - begin);
    token.startsLine = startsLine;
    token.bracketed = depth > 0;
    startsLine = false;
    out.push_back(std::move(token));
    return out.back();
  }

  // digits [ . digits ] [ e [+-] digits ] [ unit ], and no letter or digit behind it
  void number() {
    uint32_t begin = pos;
    while (isDigit(at(0)))
      ++pos;
    if (at(0) == '.' && isDigit(at(1)))
      for (++pos; isDigit(at(0));)
        ++pos;
    if ((at(0) == 'e' || at(0) == 'E') && (isDigit(at(1)) || ((at(1) == '+' || at(1) == '-') && isDigit(at(2)))))
      for (pos += 2; isDigit(at(0));)
        ++pos;
    uint32_t digitsEnd = pos;
    while (isLetter(at(0)) || isDigit(at(0)))
      ++pos;
    std::string_view unit = text.substr(digitsEnd, pos - digitsEnd);
    if (unit.empty() || isUnit(unit)) {
      Token &token = put(TokenKind::Number, begin, pos);
      token.text = text.substr(begin, digitsEnd - begin);
      token.unit = unit;
      return;
    }
    std::string digits(text.substr(begin, digitsEnd - begin));
    auto &error = diags.error(Code::E0002, span(begin, pos), "malformed number `" + digits + std::string(unit) + "`");
    static const char *const looseUnits[][2] = {{"K", "KiB"}, {"M", "MiB"}, {"G", "GiB"}, {"T", "TiB"}, {"KB", "kB"}};
    for (auto &[written, meant] : looseUnits)
      if (unit == written || (unit.size() == 1 && unit[0] == (written[0] | 0x20)))
        return error.help("write `" + digits + meant + "`"), void(put(TokenKind::Error, begin, pos));
    error.note("a number is digits, a fraction, an exponent and a unit: B KiB MiB GiB TiB kB MB GB TB");
    put(TokenKind::Error, begin, pos);
  }

  void string() {
    uint32_t begin = pos++;
    std::string value;
    while (pos < text.size() && text[pos] != '"' && text[pos] != '\n') {
      if (text[pos] == '\\') {
        if (at(1) == 't') { // a table's separator
          value += '\t';
          pos += 2;
          continue;
        }
        if (at(1) != '"' && at(1) != '\\') {
          diags.error(Code::E0003, span(pos, pos + 1), "unknown escape in a string")
              .help("write `\\\\` for a backslash, `\\\"` for a quote, `\\t` for a tab");
          while (pos < text.size() && text[pos] != '"' && text[pos] != '\n')
            ++pos;
          pos += at(0) == '"';
          put(TokenKind::Error, begin, pos);
          return;
        }
        ++pos;
      }
      value += text[pos++];
    }
    if (at(0) != '"' || pos >= text.size()) {
      diags.error(Code::E0003, span(begin, pos), "this string has no closing `\"` on its line");
      put(TokenKind::Error, begin, pos);
      return;
    }
    ++pos;
    put(TokenKind::String, begin, pos).text = std::move(value);
  }

  void operatorOrBad() {
    for (size_t length : {2, 1}) {
      std::string_view piece = text.substr(pos, length);
      if (piece.size() < length)
        continue;
      for (int i = 0; i < int(sizeof punctuation / sizeof *punctuation); ++i) {
        if (piece != punctuation[i])
          continue;
        auto kind = static_cast<TokenKind>(static_cast<int>(TokenKind::LPar) + i);
        if (kind == TokenKind::RBrace)
          lineEnd(pos);
        put(kind, pos, pos + length);
        if (kind == TokenKind::LPar || kind == TokenKind::LSquare)
          ++depth;
        else if ((kind == TokenKind::RPar || kind == TokenKind::RSquare) && depth > 0)
          --depth;
        pos += length;
        return;
      }
    }
    bad();
  }

  void bad() {
    static const struct {
      const char *written, *help;
    } habits[] = {{"&&", "write `and`"},
                  {"||", "write `or`"},
                  {"&", "write `and`"},
                  {"|", "write `or`"},
                  {"!", "write `not`"},
                  {"#", "a comment begins with `//`"},
                  {"%", "there is no remainder"},
                  {".", "names have no parts; digits stand on both sides of a number's point"},
                  {"`", "a string stands in double quotes"},
                  {"\xC2\xB7", "write `*`, or `@` for matrices"},
                  {"\xC3\x97", "write `*`"},
                  {"\xE2\x88\x92", "write `-`"},
                  {"\xE2\x80\x9C", "a string stands in `\"`"},
                  {"\xE2\x80\x9D", "a string stands in `\"`"},
                  {"\xE2\x86\x92", "write `->`"},
                  {"\xE2\x89\xA4", "write `<=`"},
                  {"\xE2\x89\xA5", "write `>=`"}};
    uint32_t begin = pos;
    size_t length = 1;
    std::string help;
    for (const auto &habit : habits)
      if (text.substr(pos).rfind(habit.written, 0) == 0) {
        length = std::string_view(habit.written).size();
        help = habit.help;
        break;
      }
    if (help.empty()) // one character, which may be several bytes
      while (pos + length < text.size() && (static_cast<unsigned char>(text[pos + length]) & 0xC0) == 0x80)
        ++length;
    pos += length;
    unknown(begin, std::move(help));
    put(TokenKind::Error, begin, pos);
  }

  // The character from `begin` to here. One that is no UTF-8 is told by isNoText.
  void unknown(uint32_t begin, std::string help) {
    std::string_view written = text.substr(begin, pos - begin);
    auto first = static_cast<unsigned char>(written[0]);
    std::string shown = "`" + std::string(written) + "`";
    if (first < 0x20 || first == 0x7F) {
      shown = byteText(written[0]);
    } else if (first >= 0x80) {
      if (!llvm::json::isUTF8(llvm::StringRef(written.data(), written.size())))
        return;
      uint32_t code = codePoint(written);
      if (const Unseen *unseen = unseenCharacter(code)) {
        shown = codeText(code) + " (" + unseen->name + ")";
        help = unseen->blank ? "write a blank in its place" : "it cannot be seen: delete it";
      } else {
        shown += " (" + codeText(code) + ")";
      }
    }
    diags.error(Code::E0001, span(begin, pos), "unknown character " + shown).help(std::move(help));
  }

  std::string_view text;
  int file;
  Diagnostics &diags;
  uint32_t pos;
  std::vector<Token> out;
  int depth = 0; // of ( and [
  bool pending = false, startsLine = true;
  uint32_t pendingAt = 0;
};

} // namespace

std::vector<Token> lex(const SourceList &sources, int file, Diagnostics &diags, uint32_t begin) {
  return Lexer(sources, file, diags, begin).run();
}

} // namespace cinch
