// Json.cpp: RFC 8259, strictly, with a depth of at most 60.
#include "runtime/Json.h"
#include "runtime/Files.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>

namespace cinch::rt {

JsonReader::JsonReader(const char *text, int64_t size) : total(size), data(text), size(size_t(size)) {}

JsonReader::JsonReader(int fd, int64_t offset, int64_t size, char *buffer, size_t capacity)
    : fd(fd), fileOffset(offset), total(size), data(buffer), buffer(buffer), capacity(capacity) {}

bool JsonReader::fail(const char *message) {
  if (!wrong)
    wrong = message;
  return false;
}

int JsonReader::peek() {
  if (wrong)
    return -1;
  if (at == size) {
    int64_t next = base + int64_t(size);
    if (fd < 0 || next >= total)
      return -1;
    size_t part = total - next < int64_t(capacity) ? size_t(total - next) : capacity;
    if (!readAt(fd, buffer, part, fileOffset + next)) {
      fail("it cannot be read");
      return -1;
    }
    base = next;
    at = 0;
    size = part;
  }
  return static_cast<unsigned char>(data[at]);
}

int JsonReader::take() {
  int c = peek();
  if (c >= 0)
    ++at;
  return c;
}

void JsonReader::skipSpace() {
  for (int c = peek(); c == ' ' || c == '\n' || c == '\t' || c == '\r'; c = peek())
    ++at;
}

char JsonReader::kind() {
  skipSpace();
  int c = peek();
  return c < 0 ? 0 : char(c);
}

bool JsonReader::enter(char open) {
  if (kind() != open)
    return fail(open == '{' ? "an object is expected" : "an array is expected");
  ++at;
  if (++depth > 60)
    return fail("it is nested too deeply");
  begun &= ~(uint64_t(1) << depth);
  return true;
}

bool JsonReader::advance(char close) {
  char c = kind();
  if (c == close) {
    ++at;
    --depth;
    return false;
  }
  if (begun >> depth & 1) {
    if (c != ',')
      return fail("a comma is expected");
    ++at;
    if (kind() == close)
      return fail("an element is expected after the comma");
  }
  begun |= uint64_t(1) << depth;
  return !wrong;
}

bool JsonReader::enterObject() { return enter('{'); }
bool JsonReader::enterArray() { return enter('['); }
bool JsonReader::nextItem() { return !wrong && advance(']'); }

bool JsonReader::nextKey() {
  if (wrong || !advance('}'))
    return false;
  size_t length = 0;
  if (kind() != '"')
    return fail("a name in quotes is expected");
  if (!readQuoted(key, length))
    return false;
  if (kind() != ':')
    return fail("a colon is expected");
  ++at;
  return true;
}

static int hexDigit(int c) {
  return c >= '0' && c <= '9'   ? c - '0'
         : c >= 'a' && c <= 'f' ? c - 'a' + 10
         : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                : -1;
}

bool JsonReader::readQuoted(char *into, size_t &length) {
  take();
  size_t n = 0;
  cut = false;
  auto put = [&](int byte) {
    if (n < kTextMax - 1)
      into[n++] = char(byte);
    else
      cut = true;
  };
  auto hex4 = [&]() {
    int value = 0;
    for (int i = 0; i < 4; ++i) {
      int digit = hexDigit(take());
      if (digit < 0)
        return -1;
      value = value * 16 + digit;
    }
    return value;
  };
  for (;;) {
    int c = take();
    if (c < 0)
      return fail("a string does not end");
    if (c == '"')
      break;
    if (c < 0x20)
      return fail("a control character in a string");
    if (c != '\\') {
      put(c);
      continue;
    }
    c = take();
    switch (c) {
    case '"':
    case '\\':
    case '/': put(c); break;
    case 'b': put('\b'); break;
    case 'f': put('\f'); break;
    case 'n': put('\n'); break;
    case 'r': put('\r'); break;
    case 't': put('\t'); break;
    case 'u': {
      int code = hex4();
      if (code < 0)
        return fail("a wrong \\u in a string");
      if (code >= 0xd800 && code < 0xdc00) {
        if (take() != '\\' || take() != 'u')
          return fail("half a surrogate pair in a string");
        int low = hex4();
        if (low < 0xdc00 || low > 0xdfff)
          return fail("half a surrogate pair in a string");
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
      } else if (code >= 0xdc00 && code < 0xe000) {
        return fail("half a surrogate pair in a string");
      }
      if (code < 0x80) {
        put(code);
      } else if (code < 0x800) {
        put(0xc0 | code >> 6), put(0x80 | (code & 63));
      } else if (code < 0x10000) {
        put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
      } else {
        put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 63)), put(0x80 | (code >> 6 & 63)), put(0x80 | (code & 63));
      }
      break;
    }
    default: return fail("a wrong escape in a string");
    }
  }
  into[n] = 0;
  length = n;
  return true;
}

bool JsonReader::readString() {
  if (kind() != '"')
    return fail("a string is expected");
  return readQuoted(text, textSize);
}

bool JsonReader::readNumberText() {
  kind();
  size_t n = 0;
  auto digits = [&]() {
    size_t before = n;
    for (int c = peek(); c >= '0' && c <= '9'; c = peek()) {
      if (n < 400)
        text[n] = char(c);
      ++n;
      ++at;
    }
    return n > before;
  };
  auto accept = [&](char wanted) {
    if (peek() != wanted)
      return false;
    if (n < 400)
      text[n] = wanted;
    ++n;
    ++at;
    return true;
  };
  accept('-');
  if (accept('0')) {
    int c = peek();
    if (c >= '0' && c <= '9')
      return fail("a number is expected");
  } else if (!digits()) {
    return fail("a number is expected");
  }
  if (accept('.') && !digits())
    return fail("a number is expected");
  if (accept('e') || accept('E')) {
    if (!accept('+'))
      accept('-');
    if (!digits())
      return fail("a number is expected");
  }
  if (n >= 400)
    return fail("a number is too long");
  text[n] = 0;
  textSize = n;
  return true;
}

bool JsonReader::readInteger(int64_t &value) {
  if (!readNumberText())
    return false;
  char *end;
  errno = 0;
  value = strtoll(text, &end, 10);
  return (*end == 0 && errno == 0) || fail("a whole number is expected");
}

bool JsonReader::readUnsigned(uint64_t &value) {
  if (!readNumberText())
    return false;
  char *end;
  errno = 0;
  value = strtoull(text, &end, 10);
  return (*end == 0 && errno == 0) || fail("a whole number is expected");
}

bool JsonReader::readNumber(double &value) {
  if (!readNumberText())
    return false;
  value = strtod(text, nullptr);
  return true;
}

bool JsonReader::readBool(bool &value) {
  value = kind() == 't';
  const char *word = value ? "true" : "false";
  for (const char *c = word; *c; ++c)
    if (take() != *c)
      return fail("true or false is expected");
  return true;
}

bool JsonReader::skipValue() {
  switch (kind()) {
  case '{':
    enterObject();
    while (nextKey())
      skipValue();
    return !wrong;
  case '[':
    enterArray();
    while (nextItem())
      skipValue();
    return !wrong;
  case '"': return readString();
  case 't':
  case 'f': {
    bool ignored;
    return readBool(ignored);
  }
  case 'n':
    for (const char *c = "null"; *c; ++c)
      if (take() != *c)
        return fail("a value is expected");
    return true;
  default: return readNumberText();
  }
}

bool JsonReader::finish() {
  if (kind() != 0)
    return fail("something follows its end");
  return !wrong;
}

} // namespace cinch::rt
