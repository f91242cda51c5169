// LanguageServer.h: `cinch lsp`: programs in an editor, by the language server protocol on standard input and output.
#ifndef CINCH_COMPILER_TOOLS_LANGUAGESERVER_H
#define CINCH_COMPILER_TOOLS_LANGUAGESERVER_H

namespace cinch {

int serveLanguage(); // until the editor says `exit`

} // namespace cinch
#endif
