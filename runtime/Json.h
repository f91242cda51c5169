// Json.h: a reader that walks through JSON text without building a tree: from memory (cinch_meta) or from a file
// through a small buffer (safetensors headers, which may be large), in constant memory. Wrong text makes it fail, never
// crash.
#ifndef CINCH_RUNTIME_JSON_H
#define CINCH_RUNTIME_JSON_H
#include <stddef.h>
#include <stdint.h>

namespace cinch::rt {

class JsonReader {
public:
  JsonReader(const char *text, int64_t size);
  // Bytes [offset, offset + size) of a file, read through `buffer`.
  JsonReader(int fd, int64_t offset, int64_t size, char *buffer, size_t capacity);

  // Containers: `if (enterObject()) while (nextKey()) .. one value ..`, likewise with arrays.
  bool enterObject();
  bool nextKey(); // false: the object is over (or the text is wrong); `key` holds the name
  bool enterArray();
  bool nextItem();

  // The first character of the value that comes next: one of { [ " t f n - 0..9; 0 at the end.
  char kind();
  bool readString();           // into `text`; longer ones are cut at its end
  bool readInteger(int64_t &); // whole numbers only, no exponent
  bool readUnsigned(uint64_t &); // a negative one stands for its 64 bits
  bool readNumber(double &);
  bool readBool(bool &);
  bool skipValue();
  bool finish(); // only white space may be left

  bool failed() const { return wrong != nullptr; }
  const char *why() const { return wrong; }
  int64_t position() const { return base + int64_t(at); }

  static constexpr size_t kTextMax = 2048;
  char key[kTextMax];
  char text[kTextMax];
  size_t textSize = 0;
  bool cut = false; // the last key or string was longer than fits

private:
  int peek();
  int take();
  void skipSpace();
  bool fail(const char *message);
  bool readQuoted(char *into, size_t &size);
  bool readNumberText();
  bool enter(char open);
  bool advance(char close);

  int fd = -1;
  int64_t fileOffset = 0, total = 0;
  const char *data = nullptr;
  char *buffer = nullptr;
  size_t capacity = 0;
  int64_t base = 0;        // bytes before `data`
  size_t at = 0, size = 0; // within `data`
  int depth = 0;
  uint64_t begun = 0; // bit d: the container at depth d has had an element
  const char *wrong = nullptr;
};

} // namespace cinch::rt
#endif
