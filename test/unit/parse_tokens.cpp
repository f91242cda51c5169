// LINK: cinch_frontend
// The lexer and the parser on small texts: which are accepted, and what the messages say. For grammar_verdicts.py it
// also answers by the line:
//   parse_tokens --parse   each line of standard input holds token kinds (`NAME_ ASSIGN NUMBER NL`); prints 1 if the
//   grammar
//                          has them, else 0
//   parse_tokens --lex     each line holds a text (`\n`, `\\` and `\xHH` escaped); prints its token kinds, or `BAD`
//   parse_tokens FILE..    prints the diagnostics of these files; 1 if one has errors
#include "compiler/frontend/Parser.h"

#include "llvm/Support/raw_ostream.h"

#include <cstdio>
#include <iostream>
#include <map>
#include <sstream>

using namespace cinch;

// ---- Token kinds by name --------------------------------------------------------------------------------------------

static const char *const punctuationNames[] = {
    "LPAR",  "RPAR", "LSQB", "RSQB", "LBRACE", "RBRACE", "COMMA", "COLON", "QUERY", "TILDE", "MATMUL", "PRIME", "ASSIGN",
    "ARROW", "DOTS", "EQ",   "NE",   "LT",     "LE",     "GT",    "GE",    "PLUS",  "MINUS", "STAR", "SLASH", "CARET"};
static const char *const softWords[] = {"dim",   "const", "data",   "reversible", "layer", "model",
                                        "train", "on",    "seed",   "plan",       "batch", "scale",
                                        "from",  "below", "except", "builtin",    "names", "normalize", "at"};

static std::string upper(std::string s) {
  for (char &c : s)
    c = (c >= 'a' && c <= 'z') ? c - 0x20 : c;
  return s;
}

static std::map<std::string, Token> tokensByName() {
  std::map<std::string, Token> result;
  auto add = [&](const std::string &name, TokenKind kind, const std::string &text) {
    Token &token = result[name];
    token.kind = kind;
    token.text = text;
  };
  add("NAME_", TokenKind::Name, "x");
  add("NUMBER", TokenKind::Number, "1");
  add("STRING", TokenKind::String, "s");
  add("NL", TokenKind::NL, "");
  for (const char *word : softWords)
    add(upper(word), TokenKind::Name, word);
  for (const std::string &word : reservedWords())
    add(upper(word), wordKind(word), word);
  for (int i = 0; i < int(sizeof punctuationNames / sizeof *punctuationNames); ++i)
    add(punctuationNames[i], static_cast<TokenKind>(static_cast<int>(TokenKind::LPar) + i), "");
  return result;
}

static int parseLines() {
  auto byName = tokensByName();
  std::string line;
  while (std::getline(std::cin, line)) {
    std::vector<Token> tokens;
    std::istringstream words(line);
    for (std::string word; words >> word;) {
      auto it = byName.find(word);
      if (it == byName.end()) {
        std::cerr << "no such token: " << word << "\n";
        return 2;
      }
      tokens.push_back(it->second);
    }
    tokens.emplace_back();
    std::cout << (acceptsTokens(std::move(tokens)) ? "1\n" : "0\n");
  }
  return 0;
}

static std::string kindName(const Token &token) {
  if (token.kind == TokenKind::Name) {
    for (const char *word : softWords)
      if (token.text == word)
        return upper(word);
    return "NAME_";
  }
  if (token.kind >= TokenKind::LPar)
    return punctuationNames[static_cast<int>(token.kind) - static_cast<int>(TokenKind::LPar)];
  if (token.kind >= TokenKind::If)
    return upper(token.text);
  return token.kind == TokenKind::Number ? "NUMBER" : token.kind == TokenKind::String ? "STRING" : "NL";
}

static int lexLines() {
  std::string line;
  while (std::getline(std::cin, line)) {
    std::string text;
    for (size_t i = 0; i < line.size(); ++i) {
      if (line[i] != '\\') {
        text += line[i];
      } else if (line[++i] == 'x') {
        text += static_cast<char>(std::stoi(line.substr(i + 1, 2), nullptr, 16));
        i += 2;
      } else {
        text += line[i] == 'n' ? '\n' : line[i];
      }
    }
    SourceList sources;
    Diagnostics diags(sources);
    std::vector<Token> tokens = lex(sources, sources.add("text", text), diags);
    tokens.pop_back();
    std::string out;
    if (diags.hasErrors())
      out = "BAD";
    else
      for (const Token &token : tokens)
        out += (out.empty() ? "" : " ") + kindName(token);
    std::cout << out << "\n";
  }
  return 0;
}

static int parseFiles(int count, char **paths) {
  SourceList sources;
  Diagnostics diags(sources);
  for (int i = 0; i < count; ++i) {
    std::string error;
    int file = sources.addFile(paths[i], error);
    if (file < 0) {
      llvm::errs() << paths[i] << ": " << error << "\n";
      return 2;
    }
    parseFile(sources, file, diags);
  }
  diags.print(llvm::outs());
  return diags.hasErrors();
}

// ---- Cases ----------------------------------------------------------------------------------------------------------

static int passed = 0, failed = 0;

static void check(bool ok, const std::string &what) {
  ok ? ++passed : ++failed;
  if (!ok)
    std::cout << "failed: " << what << "\n";
}

static std::string diagnose(const std::string &text, size_t *items = nullptr) {
  SourceList sources;
  Diagnostics diags(sources);
  ast::File file = parseFile(sources, sources.add("t.cinch", text), diags);
  if (items)
    *items = file.items.size();
  std::string out;
  llvm::raw_string_ostream os(out);
  diags.print(os);
  return os.str();
}

static void accepted(const std::string &text) {
  std::string out = diagnose(text);
  check(out.empty(), "accept <" + text + ">: " + out);
}

// `parts` in this order in the diagnostics.
static void refused(const std::string &text, const std::vector<std::string> &parts) {
  std::string out = diagnose(text);
  size_t at = 0;
  for (const std::string &part : parts) {
    at = out.find(part, at);
    if (at == std::string::npos)
      return check(false, "refuse <" + text + ">: no <" + part + "> in\n" + out);
    at += part.size();
  }
  check(!parts.empty() && !out.empty(), "refuse <" + text + ">");
}

static std::string body(const std::string &text) { return "layer f(x: f32[..]) -> f32[..] {\n" + text + "\n}\n"; }

static void lineEnds() {
  accepted("");
  accepted("\n\n// nothing\n");
  accepted("dim N = 1");
  accepted("dim N = 1,\n  M = 2\ndim K = N +\n M");
  accepted("dim N = 1 batch; dim M = 2;;\n;");
  accepted(body("y = x\n  + x\n  * x\n  ^ 2\n  - 1\nreturn y"));
  accepted(body("y = if training\n then x\n else y\nreturn y"));
  accepted(body("y = f(x,\n\n x\n)[0,\n 1]\nreturn y"));
  accepted("layer f(x: f32[..])\n  -> f32[..] { return x }");
  accepted(body("@checkpoint @stage(auto)\n@recompute y = x; return y"));
  accepted(body("y = x @\n x'\nreturn y"));
  refused(body("y = x\n @ x'\nreturn y"), {"a line that begins with `@` is a hint"});
  refused(body("y = x x"), {"E0010", "expected an operator or the end of the line, got `x`", "t.cinch:2:7"});
  refused("dim N = 1 dim M = 2", {"expected the end of the line, got `dim`"});
  refused("dim N = 1,", {"expected a dim's name, got the end of the file"});
}

static void words() {
  accepted("dim dim = 1, const = 2, batch = 3 batch\nconst layer = dim * const");
  accepted("layer layer[on?, seed = 1](names: f32[on], train = 1) -> f32[on] below seed except plan { return names }");
  accepted("train train on on seed 1 {\n plan plan plan(1)\n from from 1 \"s\"\n}");
  accepted(body("scale, from = f(below)\nbuiltin[except, ..] = g[model]\nreturn data"));
  refused("dim if = 1", {"E0011", "`if` is a reserved word; expected a dim's name"});
  for (std::string word : {"sum", "max", "all", "state", "use", "where", "predict"})
    refused(body(word + " = x\nreturn x"), {"E0011", "`" + word + "` is a reserved word; expected a definition's name", "t.cinch:2:1", "another name", "1 error\n"});
  refused(body("max, i = f(x)"), {"E0011"});
  refused(body("sum[D] x"), {"E0010", "got `sum`"});
  refused("train m on d seed 1 {\n  sum = 3\n  state = 4\n  metric = 5\n}\n", {"E0011", "`sum`", "E0011", "`state`", "E0011", "`metric`", "3 errors\n"});
  refused(body("y = as + 1"), {"expected an expression, got `as`"});
  refused("modle m(x: f32[B]) -> f32[B] { return x }", {"got `modle`", "did you mean `model`?"});
  refused(body("retrun x"), {"got `retrun`", "did you mean `return`?"});
  refused(body("let y = x"), {"got `let`", "a definition has no word before it: `y = ..`"});
}

static void expressions() {
  accepted(body("y = -x ^ -2 ^ x' ' [0]'\nreturn y, max(x, y), min(x, y), where(a, b, c)"));
  accepted(body("y = 2 * sum[i] a[i] * max[.., j where b] c + mean[B] d @ e\nreturn y"));
  accepted(body("y = not not a == b and not c or d\nreturn (x, y), (x)"));
  accepted(body("y = x[.., :, 1:, :2, 1:2, a, n = 1, n = 1:2, (1), -1]\nreturn y"));
  accepted(body("h, _ = scan[T] c(0, x)\nuse a = repeat 3 b, c = repeat (N + 1) as i d[i](r = i)\nreturn h"));
  accepted("names m { \"a\" = \"b\"'; \"c\" = \"d\"\n}");
  accepted("plan { memory 3GiB; microbatch auto; remat every(4); x \"s\" 1 }");
  accepted(body("y = -sum[i] x[i] * -2 - -mean[j] -max[k] z[j, k] * -all[l] w[l] + a * -b @ -sum[i] c[i]\nreturn y"));
  refused(body("y = x ^ -sum[i] x[i]"), {"E0014", "a reduction cannot stand here", "put it in parentheses"});
  refused(body("y = x ^ mean[i] x[i]"), {"E0014"});
  refused(body("y = a < b < c"), {"E0015"});
  refused(body("y = sum(x)"), {"expected the axes in `[ ]` after `sum`, got `(`"});
  refused(body("y = max x"), {"expected `(` or the axes in `[ ]` after `max`, got `x`"});
  refused(body("y = f()"), {"expected an argument, got `)`"});
  refused(body("y = a + not b"), {"`not` cannot stand here", "put it in parentheses"});
  refused(body("y = where[a] b"), {"expected `where(condition, a, b)`"});
  refused("model m[N](x: f32[N]) -> f32[N] { return x }", {"a model has no size list"});
}

static void characters() {
  accepted("const a = 1.5e-3KiB + 12TB // 3K \x01 \xC3\xA9\r\nconst b = \"\\\"\\\\ // \xC3\xA9\"");
  accepted("const c = \"\\t\"");
  for (std::string text : {std::string("\xFF\xFE" "d\0i\0m\0", 8), std::string("d\0i\0m\0", 6), std::string("\xFE\xFF\0d", 4), std::string(300, '\0')}) {
    refused(text, {"E0001", "text in UTF-8", "the encoding UTF-8"});
    check(diagnose(text).find("E0001") == diagnose(text).rfind("E0001"), "one error for a file that is no text: " + diagnose(text));
  }
  refused("const a = .5", {"E0001", "unknown character `.`"});
  refused("const a = 3G", {"E0002", "malformed number `3G`", "write `3GiB`"});
  refused("const a = 1.2.3", {"E0001"});
  refused("const a = 1e", {"E0002"});
  refused("const a = \"b\nconst b = 1", {"E0003", "t.cinch:1:11"});
  refused("const a = \"\\n\"", {"E0003", "unknown escape"});
  refused("const a = b && c", {"unknown character `&&`", "write `and`"});
  refused("const a = b \xC2\xB7 c", {"unknown character `\xC2\xB7`", "t.cinch:1:13"});
  refused(std::string("const a = \x01"), {"byte 0x01"});
  refused(std::string("const a = b\0c", 13), {"byte 0x00"});
  refused("\xFF\xFE", {"E0001"});
  // Nothing is said of a bracket that a byte 0x00 hides the end of. Of bytes that are no UTF-8, in comments too, the first one is told.
  std::string nul = body("y = x\nreturn y");
  nul[nul.find("return")] = '\0';
  refused(nul, {"E0001", "here is the byte 0x00", "t.cinch:3:1", "1 error\n"});
  check(diagnose(nul).find("E0013") == std::string::npos, "a byte 0x00: " + diagnose(nul));
  refused("// caf\xE9\nconst a = 1 // \xE9\n", {"E0001", "here is the byte 0xe9", "t.cinch:1:7", "encoding UTF-8", "1 error\n"});
  refused("const a = b \xE9 c\ndim N = 1 1\n", {"here is the byte 0xe9", "t.cinch:1:13", "t.cinch:2:11", "2 errors\n"});
  refused("const a = \"\xC3\"", {"here is the byte 0xc3", "t.cinch:1:12"});
  // What cannot be seen is named.
  refused("const a\xC2\xA0= 1", {"unknown character U+00A0 (no-break space)", "a blank"});
  refused("const \xE2\x80\x8B" "a = 1", {"unknown character U+200B (zero-width space)", "delete it"});
  refused("const a \xE3\x80\x80= 1", {"U+3000 (ideographic space)"});
  refused("const \xD0\xB0 = 1", {"unknown character `\xD0\xB0` (U+0430)"});
  refused("const a = \xF0\x9F\x98\x80", {"(U+1F600)"});
}

static void recovery() {
  // One error each, and what is right around them is read.
  size_t items = 0;
  std::string out = diagnose("dim = 1\nlayer a(x: f32[..) -> f32[..] {\n  y = (x\n  z = x x\n  return z\n}\ndim N = 2\n"
                             "model m(x: f32[N]) -> f32[N] {\n  return x\n",
                             &items);
  for (const char *part : {"t.cinch:1:5", "t.cinch:2:18", "t.cinch:3:7", "t.cinch:4:9", "t.cinch:8:30", "5 errors"})
    check(out.find(part) != std::string::npos, std::string("recovery, ") + part + " in\n" + out);
  check(items >= 2, "recovery keeps items");
  refused(body("y = f(x\nreturn y"), {"E0013", "`(` is not closed", "t.cinch:2:6", "expected `)` before this"});
  refused("layer a(x: f32[..]) -> f32[..] {\n  return x\nlayer b(x: f32[..]) -> f32[..] {\n  return x\n}\n",
          {"E0013", "`{` is not closed", "t.cinch:1:32", "3 | layer b", "expected `}` before this", "1 error\n"});
  refused("dim N = 1\n}\n", {"this `}` closes nothing"});
  refused("layer a(x: f32[..]) f32[..] {\n  y = \n}", {"expected `->`", "2 errors"});
}

static std::string repeated(const std::string &text, int count) {
  std::string result;
  for (int i = 0; i < count; ++i)
    result += text;
  return result;
}

static void depth() {
  accepted("const a = " + repeated("(", 50) + "1" + repeated(")", 50));
  accepted("const a = 1" + repeated(" + 1", 400));
  for (int count : {1000, 100000}) {
    refused("const a = " + repeated("(", count) + "1" + repeated(")", count), {"E0012"});
    refused("const a = " + repeated("-", count) + "1", {"E0012"});
    refused("const a = " + repeated("not ", count) + "1", {"E0012"});
    refused("const a = 1" + repeated(" ^ 1", count), {"E0012"});
    refused("const a = 1" + repeated(" + 1", count), {"E0012"});
    refused("const a = 1" + repeated(" * 1", count), {"E0012"});
    refused("const a = b" + repeated("'", count), {"E0012"});
    refused("const a = b" + repeated("[1]", count), {"E0012"});
    refused("const a = b" + repeated("(1", count), {"E0012"});
    refused("const a = " + repeated("b[", count), {"E0012"});
    refused("const a = " + repeated("sum[i] ", count) + "1", {"E0012"});
    refused("const a = " + repeated("if a then ", count) + "1", {"E0012"});
    refused("const a = a" + repeated(" and a", count), {"E0012"});
  }
  // Many errors in one file: a bounded number of messages, quickly.
  check(diagnose(repeated("dim = 1\n", 2000)).find("(20 shown)") != std::string::npos, "many errors");
  check(diagnose(body(repeated("y = (\n", 20000))).find("(20 shown)") != std::string::npos, "many open brackets");
}

static void spelling() {
  std::vector<std::string> names = {"gelu", "relu", "layer_norm", "H"};
  check(nearestName("gleu", names) == "gelu", "a swap");
  check(nearestName("layernorm", names) == "layer_norm", "a letter left out");
  check(nearestName("h", names) == "H", "the other case");
  check(nearestName("D", names).empty(), "one letter is near to nothing");
  check(nearestName("softmax", names).empty(), "far");
  check(didYouMean("lstm", names).empty(), "no candidate, no help");
}

static void printing() {
  // The picture of language.md.
  SourceList sources;
  std::string text = "dim B = 64 batch, T = 1024\n\ndim D = 768\n  return gelu(x @ w)\n";
  int file = sources.add("gpt.cinch", text);
  Diagnostics diags(sources);
  auto at = [&](const char *what, uint32_t from = 0) {
    auto begin = static_cast<uint32_t>(text.find(what, from));
    return Span{file, begin, begin + 1};
  };
  uint32_t line = text.find("return");
  for (int i = 0; i < 2; ++i) // two instances
    diags.error(Code::E0203, at("@"), "`@` needs equal inner sizes, but D = 768 meets 512")
        .label(at("x", line), "x: f32[B, T, D]", "D = 768 from gpt.cinch:3")
        .label(at("w)", line), "w: f32[512, F]", "declared gpt.cinch:22, size written as 512")
        .path(i == 0 ? "in `ff = mlp` of `block`" : "in `ff = mlp` of `other`")
        .help("write `param w: f32[D, F]`")
        .help("");
  diags.warning(Code::E0010, at("D = 768"), "a warning").label(at("B"), "far away");
  std::string out;
  llvm::raw_string_ostream os(out);
  diags.print(os);
  std::string expected = "warning[E0010]: a warning\n"
                         "  --> gpt.cinch:3:5\n"
                         " 3 | dim D = 768\n"
                         "   |     ^\n"
                         " ..\n"
                         " 1 | dim B = 64 batch, T = 1024\n"
                         "   |     - far away\n"
                         "error[E0203]: `@` needs equal inner sizes, but D = 768 meets 512\n"
                         "  --> gpt.cinch:4:17\n"
                         " 4 |   return gelu(x @ w)\n"
                         "   |               - ^ - w: f32[512, F]   (declared gpt.cinch:22, size written as 512)\n"
                         "   |               x: f32[B, T, D]        (D = 768 from gpt.cinch:3)\n"
                         "   = in `ff = mlp` of `block`\n"
                         "   = and in 1 other instance\n"
                         "   = help: write `param w: f32[D, F]`\n"
                         "1 error, 1 warning\n";
  check(out == expected, "the frame\n" + out);
  out.clear();
  PrintOptions json;
  json.json = true;
  diags.print(os, json);
  check(out.find("\"code\":\"E0203\",\"column\":17,\"end\":{\"column\":18,\"line\":4},\"file\":\"gpt.cinch\"") !=
            std::string::npos,
        "JSON\n" + out);
  out.clear();
  Diagnostics rude(sources);
  rude.error(Code::E0010, at("@"), "number " + std::string(100000, '9') + "\033[31m \xFF");
  rude.print(os);
  check(out.size() < 1000 && out.find('\033') == std::string::npos && out.find('\xFF') == std::string::npos,
        "long and rude texts");
  check(explainCode("e0203").rfind("E0203: ", 0) == 0 && explainCode("203") == explainCode("E0203"), "explain");
  check(explainCode("E9999").empty() && explainCode("").empty(), "explain an unknown code");
}

int main(int argc, char **argv) {
  std::string mode = argc > 1 ? argv[1] : "";
  if (mode == "--parse")
    return parseLines();
  if (mode == "--lex")
    return lexLines();
  if (argc > 1)
    return parseFiles(argc - 1, argv + 1);
  check(diagnose(std::string(preludeText())).empty(), "the prelude");
  lineEnds();
  words();
  expressions();
  characters();
  recovery();
  depth();
  spelling();
  printing();
  std::cout << passed << " passed, " << failed << " failed\n";
  return failed > 0;
}
