// EditorInput.h: the messages of an editor, as far as the protocol allows them where they stand. All others are answered here.
#ifndef CINCH_COMPILER_TOOLS_EDITORINPUT_H
#define CINCH_COMPILER_TOOLS_EDITORINPUT_H

#include "llvm/Support/LSP/Transport.h"

#include <cstdio>
#include <optional>

namespace cinch {

// LLVM's transport ends on a message that is no object, its parser of JSON on brackets that are nested deeply, and neither knows which message may
// come when.
class EditorInput : public llvm::lsp::JSONTransportInput {
public:
  EditorInput(std::FILE *in, llvm::raw_ostream &out) : in(in), out(out) {}

  bool hasError() const override { return ferror(in); }
  bool isEndOfInput() const override { return feof(in); }
  llvm::LogicalResult readDelimitedMessage(std::string &) override { return llvm::failure(); }
  // The next message that is to be handled; failure where the input ends.
  llvm::LogicalResult readStandardMessage(std::string &json) override;

private:
  bool readLine(std::string &line);
  std::optional<size_t> readHeaders();
  bool readBody(std::string &json, size_t size);
  bool accepts(llvm::StringRef json);
  bool refuse(const llvm::json::Value &id, int code, llvm::StringRef why);
  std::FILE *in;
  llvm::raw_ostream &out;
  bool initialized = false, shutDown = false;
};

} // namespace cinch
#endif
