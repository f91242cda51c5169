// Snippets.h: programs around the pieces of text that ForeignWords.def and CodeExamples.def hold, and what the checker says of them.
#ifndef CINCH_TEST_UNIT_SNIPPETS_H
#define CINCH_TEST_UNIT_SNIPPETS_H

#include "compiler/frontend/Check.h"
#include "compiler/frontend/CodeExamples.h"
#include "compiler/frontend/Parser.h"

#include <string>
#include <vector>

namespace cinch {

// Statements, a line each.
inline std::string snippetLines(const std::string &statements, const char *indent) {
  std::string text = indent;
  int braces = 0;
  for (char c : statements) {
    braces += c == '{' ? 1 : c == '}' ? -1 : 0;
    text += c == ';' && braces == 0 ? std::string("\n") + indent : std::string(1, c);
  }
  return text + "\n";
}

inline std::string programAround(const std::string &text, CodeExample::Place place, bool left) {
  using P = CodeExample;
  if (place == P::File)
    return text;
  std::string body = "  h = fc(x)\n", value, clause, optimizer = "  optimizer sgd(lr = 0.1)\n", items;
  std::string loss = "  loss = mean[B] cross_entropy(logits, y)\n";
  switch (place) {
  case P::Value: value = "  predict m = " + text + "\n"; break;
  case P::Body: body = snippetLines(text, "  "); break;
  case P::Use: body = snippetLines(text, "  ") + "  h = fc(d(x))\n"; break;
  case P::Item: (left ? body : items) = snippetLines(text, left ? "  " : ""); break;
  case P::Items: items = snippetLines(text, ""); break;
  case P::Clause: clause = snippetLines(text, "  "); break;
  case P::Optimizer: optimizer = snippetLines(text, "  "); break;
  case P::Loss: loss = snippetLines(text, "  "); break;
  case P::File: case P::CommandLine: break;
  }
  return "dim B = 8 batch, T = 5, D = 4, H = 6, C = 10\n"
         "data train = npz(\"d.npz\") -> (x: f32[B, D], z: f32[B, D], s: f32[B, T, D], y: i32[B] below C)\n" + items +
         "model net(x: f32[B, D], z: f32[B, D]) -> f32[B, C] {\n  use fc = linear[C]\n" + body + "  return h\n}\n"
         "train net on train seed 1 {\n  logits = net(x, z)\n" + loss + clause + value + optimizer + "  steps 10\n}\n";
}

// All diagnostics of a program; `good`: it is one.
inline std::vector<Diagnostic> diagnosed(const std::string &text, bool &good, const Options &options = {}) {
  SourceList sources;
  int number = sources.add("snippet.cinch", text);
  Diagnostics diags(sources);
  ast::File prelude = parseFile(sources, 0, diags), file = parseFile(sources, number, diags);
  good = !diags.hasErrors() && check(sources, prelude, file, options, diags).has_value();
  return diags.sorted();
}

} // namespace cinch
#endif
