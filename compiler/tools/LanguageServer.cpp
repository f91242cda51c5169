// LanguageServer.cpp: see LanguageServer.h. Every change of a text makes a new Document; checking a program takes milliseconds.
#include "compiler/tools/LanguageServer.h"
#include "compiler/phases/Version.h"
#include "compiler/tools/Document.h"
#include "compiler/tools/EditorInput.h"

#include "llvm/Support/LSP/Protocol.h"
#include "llvm/Support/LSP/Transport.h"
#include "llvm/Support/Program.h"
#include "llvm/Support/raw_ostream.h"

#include <map>

namespace lsp = llvm::lsp;
using llvm::json::Array;
using llvm::json::fixUTF8; // the protocol's texts are UTF-8, and the server ends on any that is not
using llvm::json::Object;

namespace cinch {

namespace {

// Lines and columns of a text; the protocol counts UTF-16 units. A program may have thousands of errors: none is counted from the text's begin.
class Positions {
public:
  explicit Positions(std::string_view text) : text(text) {
    lsp::Position position;
    for (uint32_t i = 0; i < text.size(); ++i) {
      if (i % kStep == 0)
        marks.push_back(position);
      pass(position, text[i]);
    }
    marks.push_back(position);
  }
  lsp::Position of(uint32_t offset) const {
    offset = std::min<uint32_t>(offset, text.size());
    if (offset == text.size())
      return marks.back();
    lsp::Position position = marks[offset / kStep];
    for (uint32_t i = offset / kStep * kStep; i < offset; ++i)
      pass(position, text[i]);
    return position;
  }

private:
  static constexpr uint32_t kStep = 256;
  static void pass(lsp::Position &position, char byte) {
    unsigned char c = static_cast<unsigned char>(byte);
    if (c == '\n')
      position.line++, position.character = 0;
    else if ((c & 0xC0) != 0x80)
      position.character += c >= 0xF0 ? 2 : 1;
  }
  std::string_view text;
  std::vector<lsp::Position> marks; // at every kStep-th byte, and at the end
};

// A document, and where things stand in it.
struct OpenDocument : Document {
  OpenDocument(std::string name, std::string text) : Document(std::move(name), std::move(text)), positions(this->text()) {}
  Positions positions;
};

uint32_t offsetOf(std::string_view text, lsp::Position position) {
  uint32_t at = 0;
  for (int line = 0; line < position.line; ++line) {
    size_t end = text.find('\n', at);
    if (end == std::string_view::npos)
      return uint32_t(text.size());
    at = uint32_t(end) + 1;
  }
  for (int units = 0; units < position.character && at < text.size() && text[at] != '\n';) {
    unsigned char c = static_cast<unsigned char>(text[at]);
    units += c >= 0xF0 ? 2 : 1;
    for (++at; at < text.size() && (static_cast<unsigned char>(text[at]) & 0xC0) == 0x80;)
      ++at;
  }
  return at;
}

lsp::Range rangeOf(const OpenDocument &document, Span span) { return {document.positions.of(span.begin), document.positions.of(span.end)}; }

std::string messageOf(const Document &document, const Diagnostic &diagnostic) {
  std::string text = diagnostic.message;
  for (const Label &label : diagnostic.labels)
    if (!label.text.empty() && !document.isHere(label.span))
      text += "\n" + document.placeOf(label.span) + ": " + label.text;
  for (const std::vector<std::string> *list : {&diagnostic.paths, &diagnostic.notes})
    for (const std::string &line : *list)
      text += "\n" + line;
  for (const std::string &line : diagnostic.helps)
    text += "\nhelp: " + line;
  return fixUTF8(text);
}

struct FormattingParams { // its options are ours to choose
  lsp::TextDocumentIdentifier textDocument;
};
bool fromJSON(const llvm::json::Value &value, FormattingParams &result, llvm::json::Path path) {
  llvm::json::ObjectMapper map(value, path);
  return map && map.map("textDocument", result.textDocument);
}

class Server {
public:
  Server(lsp::JSONTransport &transport) : handler(transport) {
    publish = handler.outgoingNotification<llvm::json::Value>("textDocument/publishDiagnostics");
    handler.method("initialize", this, &Server::initialize);
    handler.notification("initialized", this, &Server::ignore);
    handler.method("shutdown", this, &Server::shutdown);
    handler.notification("textDocument/didOpen", this, &Server::open);
    handler.notification("textDocument/didChange", this, &Server::change);
    handler.notification("textDocument/didClose", this, &Server::close);
    handler.method("textDocument/hover", this, &Server::hover);
    handler.method("textDocument/definition", this, &Server::definition);
    handler.method("textDocument/references", this, &Server::references);
    handler.method("textDocument/documentHighlight", this, &Server::highlight);
    handler.method("textDocument/documentSymbol", this, &Server::symbols);
    handler.method("textDocument/completion", this, &Server::completion);
    handler.method("textDocument/formatting", this, &Server::format);
  }
  lsp::MessageHandler handler;
  bool shutDown = false;

private:
  void initialize(const lsp::InitializeParams &, lsp::Callback<llvm::json::Value> reply) {
    reply(Object{{"serverInfo", Object{{"name", "cinch"}, {"version", kVersion}}},
                 {"capabilities", Object{{"textDocumentSync", Object{{"openClose", true}, {"change", 1}}},
                                         {"hoverProvider", true},
                                         {"definitionProvider", true},
                                         {"referencesProvider", true},
                                         {"documentHighlightProvider", true},
                                         {"documentSymbolProvider", true},
                                         {"completionProvider", Object{{"resolveProvider", false}}},
                                         {"documentFormattingProvider", true}}}});
  }
  void ignore(const lsp::NoParams &) {}
  void shutdown(const lsp::NoParams &, lsp::Callback<std::nullptr_t> reply) {
    shutDown = true;
    reply(nullptr);
  }

  void open(const lsp::DidOpenTextDocumentParams &params) { take(params.textDocument.uri, params.textDocument.text); }
  void change(const lsp::DidChangeTextDocumentParams &params) {
    auto found = documents.find(params.textDocument.uri.uri().str());
    std::string text(found == documents.end() ? "" : found->second->text());
    if (succeeded(lsp::TextDocumentContentChangeEvent::applyTo(params.contentChanges, text)))
      take(params.textDocument.uri, text);
  }
  void close(const lsp::DidCloseTextDocumentParams &params) {
    documents.erase(params.textDocument.uri.uri().str());
    publish(Object{{"uri", params.textDocument.uri.uri()}, {"diagnostics", Array()}});
  }

  void take(const lsp::URIForFile &uri, const std::string &text) {
    auto document = std::make_unique<OpenDocument>(uri.file().str(), text);
    Array list;
    for (const Diagnostic &each : document->problems()) {
      Span span = document->isHere(each.span) ? each.span : Span{each.span.file, 0, 0};
      Array related;
      for (const Label &label : each.labels)
        if (!label.text.empty() && document->isHere(label.span))
          related.push_back(Object{{"location", Object{{"uri", uri.uri()}, {"range", rangeOf(*document, label.span)}}},
                                   {"message", fixUTF8(label.text + (label.origin.empty() ? "" : " (" + label.origin + ")"))}});
      list.push_back(Object{{"range", rangeOf(*document, span)},
                            {"severity", each.severity == Severity::Error ? 1 : 2},
                            {"code", std::string(codeName(each.code))},
                            {"source", "cinch"},
                            {"message", messageOf(*document, each)},
                            {"relatedInformation", std::move(related)}});
    }
    publish(Object{{"uri", uri.uri()}, {"diagnostics", std::move(list)}});
    documents[uri.uri().str()] = std::move(document);
  }

  const OpenDocument *find(const lsp::URIForFile &uri) {
    auto found = documents.find(uri.uri().str());
    return found == documents.end() ? nullptr : found->second.get();
  }

  void hover(const lsp::TextDocumentPositionParams &params, lsp::Callback<std::optional<lsp::Hover>> reply) {
    const OpenDocument *document = find(params.textDocument.uri);
    auto found = document ? document->hover(offsetOf(document->text(), params.position)) : std::nullopt;
    if (!found)
      return reply(std::nullopt);
    lsp::Hover hover(rangeOf(*document, found->first));
    hover.contents.value = fixUTF8(found->second);
    reply(hover);
  }

  void definition(const lsp::TextDocumentPositionParams &params, lsp::Callback<llvm::json::Value> reply) {
    const OpenDocument *document = find(params.textDocument.uri);
    auto found = document ? document->definition(offsetOf(document->text(), params.position)) : std::nullopt;
    if (!found || !document->isHere(*found)) // the prelude is no file: hovering shows its text
      return reply(nullptr);
    reply(Object{{"uri", params.textDocument.uri.uri()}, {"range", rangeOf(*document, *found)}});
  }

  void references(const lsp::ReferenceParams &params, lsp::Callback<llvm::json::Value> reply) {
    const OpenDocument *document = find(params.textDocument.uri);
    Array list;
    if (!document)
      return reply(std::move(list));
    const uint32_t offset = offsetOf(document->text(), params.position);
    const std::optional<Span> definition = document->definition(offset);
    for (Span span : document->references(offset))
      if (params.context.includeDeclaration || span.begin != definition->begin || span.file != definition->file)
        list.push_back(Object{{"uri", params.textDocument.uri.uri()}, {"range", rangeOf(*document, span)}});
    reply(std::move(list));
  }

  void highlight(const lsp::TextDocumentPositionParams &params, lsp::Callback<llvm::json::Value> reply) {
    const OpenDocument *document = find(params.textDocument.uri);
    Array list;
    if (document)
      for (Span span : document->references(offsetOf(document->text(), params.position)))
        list.push_back(Object{{"range", rangeOf(*document, span)}});
    reply(std::move(list));
  }

  void symbols(const lsp::DocumentSymbolParams &params, lsp::Callback<llvm::json::Value> reply) {
    static constexpr lsp::SymbolKind kinds[] = {lsp::SymbolKind::Number, lsp::SymbolKind::Constant, lsp::SymbolKind::Array, lsp::SymbolKind::Function,
                                                lsp::SymbolKind::Class, lsp::SymbolKind::Event, lsp::SymbolKind::Namespace};
    const OpenDocument *document = find(params.textDocument.uri);
    Array list;
    if (document)
      for (const Document::Symbol &each : document->symbols())
        list.push_back(Object{{"name", fixUTF8(each.name)}, {"kind", int(kinds[each.kind])}, {"range", rangeOf(*document, each.all)},
                              {"selectionRange", rangeOf(*document, each.selection)}});
    reply(std::move(list));
  }

  void completion(const lsp::CompletionParams &params, lsp::Callback<llvm::json::Value> reply) {
    const OpenDocument *document = find(params.textDocument.uri);
    Array items;
    static constexpr lsp::CompletionItemKind kinds[] = {lsp::CompletionItemKind::Keyword, lsp::CompletionItemKind::Function,
                                                        lsp::CompletionItemKind::Variable, lsp::CompletionItemKind::Constant,
                                                        lsp::CompletionItemKind::Module};
    if (document)
      for (const Document::Candidate &each : document->candidates(offsetOf(document->text(), params.position)))
        items.push_back(Object{{"label", fixUTF8(each.name)}, {"kind", int(kinds[each.kind])}, {"detail", fixUTF8(each.detail)}});
    reply(Object{{"isIncomplete", false}, {"items", std::move(items)}});
  }

  void format(const FormattingParams &params, lsp::Callback<llvm::json::Value> reply) {
    const OpenDocument *document = find(params.textDocument.uri);
    auto text = document ? document->formattedText() : std::nullopt;
    if (!text || *text == document->text())
      return reply(Array());
    lsp::Range all{lsp::Position(), document->positions.of(uint32_t(document->text().size()))};
    reply(Array{Object{{"range", all}, {"newText", fixUTF8(*text)}}});
  }

  std::map<std::string, std::unique_ptr<OpenDocument>> documents;
  lsp::OutgoingNotification<llvm::json::Value> publish;
};

} // namespace

int serveLanguage() {
  llvm::sys::ChangeStdinToBinary();
  llvm::sys::ChangeStdoutToBinary();
  lsp::JSONTransport transport(std::make_unique<EditorInput>(stdin, llvm::outs()), llvm::outs());
  Server server(transport);
  if (llvm::Error error = transport.run(server.handler)) {
    llvm::errs() << "cinch lsp: " << llvm::toString(std::move(error)) << "\n";
    return 1;
  }
  return server.shutDown ? 0 : 1;
}

} // namespace cinch
