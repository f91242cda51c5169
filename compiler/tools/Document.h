// Document.h: what an editor asks about one program: diagnostics, what a name is, where it is defined, what may stand here. Plain offsets
// into the text; LanguageServer.cpp speaks the protocol.
#ifndef CINCH_COMPILER_TOOLS_DOCUMENT_H
#define CINCH_COMPILER_TOOLS_DOCUMENT_H

#include "compiler/frontend/AST.h"
#include "compiler/frontend/Diagnostics.h"
#include "compiler/frontend/Facts.h"
#include "compiler/frontend/Lexer.h"
#include "compiler/frontend/Source.h"

#include <optional>

namespace cinch {

class Document {
public:
  Document(std::string name, std::string text);

  // A name that may be completed, and what it is.
  struct Candidate {
    enum Kind { Word, Layer, Value, Size, Data } kind;
    std::string name, detail;
  };

  std::string_view text() const { return sources.text(file); }
  std::vector<Diagnostic> problems() const { return diagnostics.sorted(); }
  bool isHere(Span span) const { return span.file == file; } // else in the prelude, or nowhere
  std::string placeOf(Span span) const { return sources.place(span); }
  // What the name or expression at an offset is, in Markdown, and the piece of text that it is about.
  std::optional<std::pair<Span, std::string>> hover(uint32_t offset) const;
  std::optional<Span> definition(uint32_t offset) const;
  // Where this program says the name at an offset, its definition among them, in the order of the text; none, if nothing defines it. A word that
  // names a parameter in a call is none of them: `rate` in `dropout(x, rate = 0.1)`.
  std::vector<Span> references(uint32_t offset) const;
  // What the program defines, in its order.
  struct Symbol {
    enum Kind { Size, Constant, Data, Layer, Model, Train, Names } kind;
    std::string name;
    Span all, selection; // the whole text, and the name in it
  };
  std::vector<Symbol> symbols() const;
  std::vector<Candidate> candidates(uint32_t offset) const;
  std::optional<std::string> formattedText() const; // none: it has errors of syntax

private:
  // A definition that is seen from a place.
  struct Definition {
    Candidate::Kind kind;
    ast::Name name;
    Span all; // the text that says what it is
  };
  std::vector<Definition> visible(uint32_t offset) const; // the nearest first
  Span nameAt(uint32_t offset) const;
  const Definition *find(const std::vector<Definition> &, const std::string &name) const;

  SourceList sources;
  Diagnostics diagnostics{sources};
  int file;
  std::vector<Token> tokens;
  ast::File prelude, tree;
  Facts facts;
  bool parsed = false; // without an error of syntax
};

} // namespace cinch
#endif
