// EditorInput.cpp: see EditorInput.h.
#include "compiler/tools/EditorInput.h"
#include "compiler/solve/ParseJson.h"

#include "llvm/ADT/StringExtras.h"
#include "llvm/Support/raw_ostream.h"

using llvm::json::Object;

namespace cinch {

// The errors of JSON-RPC and of the protocol.
enum Code { ParseError = -32700, InvalidRequest = -32600, NotInitialized = -32002 };

// Always false.
bool EditorInput::refuse(const llvm::json::Value &id, int code, llvm::StringRef why) {
  std::string text;
  llvm::raw_string_ostream(text) << llvm::json::Value(
      Object{{"jsonrpc", "2.0"}, {"id", id}, {"error", Object{{"code", code}, {"message", llvm::json::fixUTF8(why)}}}});
  out << "Content-Length: " << text.size() << "\r\n\r\n" << text;
  out.flush();
  return false;
}

// Without the end of the line. False: the input ends before it.
bool EditorInput::readLine(std::string &line) {
  line.clear();
  int c;
  while ((c = getc(in)) != EOF && c != '\n')
    line += char(c);
  if (!line.empty() && line.back() == '\r')
    line.pop_back();
  return c != EOF;
}

// The size of the body; nothing where no header says it, or the input ends. Names of headers have no case.
std::optional<size_t> EditorInput::readHeaders() {
  std::optional<size_t> size;
  std::string line;
  while (readLine(line) && !line.empty()) {
    auto [name, value] = llvm::StringRef(line).split(':');
    unsigned long long bytes;
    if (name.trim().equals_insensitive("content-length") && llvm::to_integer(value.trim(), bytes, 10))
      size = size_t(bytes);
  }
  return size;
}

// A piece at a time: a size that is only claimed takes no memory.
bool EditorInput::readBody(std::string &json, size_t size) {
  constexpr size_t kPiece = 1 << 20;
  json.clear();
  while (json.size() < size) {
    const size_t before = json.size(), now = std::min(kPiece, size - before);
    json.resize(before + now);
    const size_t got = fread(json.data() + before, 1, now, in);
    json.resize(before + got);
    if (got == 0)
      return false;
  }
  return true;
}

// Whether the message is to be handled. A request that is not is answered; so is what is no message.
bool EditorInput::accepts(llvm::StringRef json) {
  llvm::Expected<llvm::json::Value> value = parseJson(json);
  if (!value)
    return refuse(nullptr, ParseError, llvm::toString(value.takeError()));
  const Object *message = value->getAsObject();
  if (!message || message->getString("jsonrpc") != std::optional<llvm::StringRef>("2.0"))
    return refuse(nullptr, InvalidRequest, "a message is an object with \"jsonrpc\": \"2.0\"");
  const llvm::json::Value *id = message->get("id");
  const std::optional<llvm::StringRef> method = message->getString("method");
  if (!method) // an answer, though nothing was asked
    return message->get("result") || message->get("error") ? false : refuse(id ? *id : nullptr, InvalidRequest, "the message has no method");
  if (!id) // before and behind the session nothing counts but its end
    return *method == "exit" || (initialized && !shutDown);
  if (shutDown)
    return refuse(*id, InvalidRequest, "the server was shut down; nothing but exit may follow");
  if (*method == "initialize" && initialized)
    return refuse(*id, InvalidRequest, "initialize was called already");
  if (*method != "initialize" && !initialized)
    return refuse(*id, NotInitialized, "initialize has to be called first");
  initialized = true;
  shutDown = *method == "shutdown";
  return true;
}

llvm::LogicalResult EditorInput::readStandardMessage(std::string &json) {
  while (!feof(in) && !ferror(in))
    if (std::optional<size_t> size = readHeaders(); size && readBody(json, *size) && accepts(json))
      return llvm::success();
  return llvm::failure();
}

} // namespace cinch
