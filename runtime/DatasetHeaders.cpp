// DatasetHeaders.cpp: the headers of IDX (the format of MNIST's files) and NPY (NumPy's format 1.0, 2.0 and 3.0).
#include "runtime/Dataset.h"
#include "runtime/Output.h"
#include <errno.h>
#include <string.h>

namespace cinch::rt {

void readDataHeader(const FieldFile &file, void *into, int64_t size, int64_t offset, const char *format) {
  int64_t left = file.dataEnd - file.dataOffset;
  if (offset + size > left)
    fail(kData, "%s: the file is truncated: %lld bytes are no whole %s header", file.path.text, (long long)left,
         format);
  if (!readAt(file.fd, into, size_t(size), file.dataOffset + offset))
    fail(kData, "cannot read %s: %s", file.path.text, errno ? strerror(errno) : "unexpected end");
}

void checkSizes(const FieldFile &file, const Shape &shape) {
  int64_t total = 1;
  for (int i = 0; i < shape.rank; ++i) {
    if (shape.dims[i] < 0)
      fail(kData, "%s: its shape %s has a size below 0", file.path.text, describe(shape).text);
    if (shape.dims[i] && total > (int64_t(1) << 50) / shape.dims[i])
      fail(kData, "%s: its shape %s is too large", file.path.text, describe(shape).text);
    total *= shape.dims[i] ? shape.dims[i] : 1;
  }
}

Shape readIdxHeader(FieldFile &file) {
  unsigned char head[4 + 4 * 12];
  readDataHeader(file, head, 4, 0, "IDX");
  if (head[0] == 0x1f && head[1] == 0x8b)
    fail(kData, "%s: this is a gzip file; unpack it with gunzip first", file.path.text);
  if (head[0] != 0 || head[1] != 0)
    fail(kData, "%s: not an IDX file: it starts with %02x %02x, expected 00 00", file.path.text, head[0], head[1]);
  switch (head[2]) {
  case 0x08: file.raw = RawType::U8; break;
  case 0x09: file.raw = RawType::I8; break;
  case 0x0b: file.raw = RawType::I16; break;
  case 0x0c: file.raw = RawType::I32; break;
  case 0x0d: file.raw = RawType::F32; break;
  case 0x0e: file.raw = RawType::F64; break;
  default:
    fail(kData, "%s: not an IDX file: its type byte is %02x, expected 08, 09, 0b, 0c, 0d or 0e", file.path.text,
         head[2]);
  }
  Shape shape;
  shape.rank = head[3];
  if (shape.rank < 1 || shape.rank > 12)
    fail(kData, "%s: not an IDX file: it claims %d axes, expected 1 to 12", file.path.text, shape.rank);
  readDataHeader(file, head + 4, 4 * shape.rank, 4, "IDX");
  for (int i = 0; i < shape.rank; ++i) {
    const unsigned char *at = head + 4 + 4 * i;
    shape.dims[i] = int64_t(at[0]) << 24 | at[1] << 16 | at[2] << 8 | at[3];
  }
  checkSizes(file, shape);
  file.bigEndian = true;
  file.dataOffset += 4 + 4 * shape.rank;
  return shape;
}

namespace {

// The header of an NPY file: a Python dictionary of three known keys, as NumPy writes it.
struct NpyDictionary {
  const char *at;
  const FieldFile &file;

  [[noreturn]] void wrong(const char *what) { fail(kData, "%s: not a sound NPY file: %s", file.path.text, what); }
  void skip() {
    while (*at == ' ' || *at == '\n' || *at == '\t')
      ++at;
  }
  bool accept(char c) {
    skip();
    if (*at != c)
      return false;
    ++at;
    return true;
  }
  void expect(char c, const char *what) {
    if (!accept(c))
      wrong(what);
  }
  void quoted(char *into, size_t size) {
    skip();
    char quote = *at;
    if (quote != '\'' && quote != '"')
      wrong("a name in quotes is missing in its header");
    size_t n = 0;
    for (++at; *at && *at != quote; ++at)
      if (n + 1 < size)
        into[n++] = *at;
    into[n] = 0;
    if (*at != quote)
      wrong("a name in its header does not end");
    ++at;
  }
  bool word(const char *text) {
    skip();
    size_t n = strlen(text);
    if (strncmp(at, text, n) != 0)
      return false;
    at += n;
    return true;
  }
  int64_t number() {
    skip();
    if (*at < '0' || *at > '9')
      wrong("its shape is no list of whole numbers");
    int64_t value = 0;
    for (; *at >= '0' && *at <= '9'; ++at) {
      if (value > (int64_t(1) << 50))
        wrong("its shape is too large");
      value = value * 10 + (*at - '0');
    }
    if (*at == 'L')
      ++at;
    return value;
  }
};

void readNpyType(FieldFile &file, const char *type) {
  static const struct {
    const char *name;
    RawType raw;
  } types[] = {{"u1", RawType::U8},  {"i1", RawType::I8},  {"b1", RawType::Bool}, {"u2", RawType::U16},
               {"i2", RawType::I16}, {"u4", RawType::U32}, {"i4", RawType::I32},  {"u8", RawType::U64},
               {"i8", RawType::I64}, {"f2", RawType::F16}, {"f4", RawType::F32},  {"f8", RawType::F64}};
  const char *rest = type;
  if (*rest == '<' || *rest == '>' || *rest == '|' || *rest == '=')
    file.bigEndian = *rest++ == '>';
  for (const auto &known : types)
    if (strcmp(known.name, rest) == 0) {
      file.raw = known.raw;
      return;
    }
  fail(kData, "%s: values of type `%s` cannot be read; expected whole numbers, bool, f2, f4 or f8", file.path.text,
       type);
}

} // namespace

Shape readNpyHeader(FieldFile &file) {
  unsigned char head[12];
  readDataHeader(file, head, 10, 0, "NPY");
  if (memcmp(head, "\x93NUMPY", 6) != 0)
    fail(kData, "%s: not an NPY file: it does not start with \\x93NUMPY", file.path.text);
  if (head[6] < 1 || head[6] > 3)
    fail(kData, "%s: NPY format %d.%d; expected 1.0, 2.0 or 3.0", file.path.text, head[6], head[7]);
  int64_t start = 10, length = head[8] | head[9] << 8;
  if (head[6] >= 2) {
    readDataHeader(file, head, 12, 0, "NPY");
    start = 12;
    length = int64_t(head[8]) | int64_t(head[9]) << 8 | int64_t(head[10]) << 16 | int64_t(head[11]) << 24;
  }
  char text[8192];
  if (length >= int64_t(sizeof text))
    fail(kData, "%s: an NPY header of %lld bytes; at most %zu are read", file.path.text, (long long)length,
         sizeof text - 1);
  readDataHeader(file, text, length, start, "NPY");
  text[length] = 0;
  Shape shape;
  bool hasType = false, hasOrder = false, hasShape = false;
  NpyDictionary header = {text, file};
  header.expect('{', "its header is no dictionary");
  while (!header.accept('}')) {
    char key[32], type[32];
    header.quoted(key, sizeof key);
    header.expect(':', "a colon is missing in its header");
    if (strcmp(key, "descr") == 0) {
      header.skip();
      if (*header.at == '[')
        fail(kData, "%s: records (structured types) cannot be read", file.path.text);
      header.quoted(type, sizeof type);
      readNpyType(file, type);
      hasType = true;
    } else if (strcmp(key, "fortran_order") == 0) {
      if (header.word("True"))
        fail(kData, "%s: its values lie in Fortran order; save it with numpy.ascontiguousarray", file.path.text);
      if (!header.word("False"))
        header.wrong("fortran_order is neither True nor False");
      hasOrder = true;
    } else if (strcmp(key, "shape") == 0) {
      header.expect('(', "its shape is no tuple");
      shape.rank = 0;
      while (!header.accept(')')) {
        if (shape.rank == 12)
          header.wrong("its shape has more than 12 axes");
        shape.dims[shape.rank++] = header.number();
        if (!header.accept(',')) {
          header.expect(')', "its shape is no tuple");
          break;
        }
      }
      hasShape = true;
    } else {
      header.wrong("an unknown key in its header");
    }
    if (!header.accept(',')) {
      header.expect('}', "its header does not end");
      break;
    }
  }
  if (!hasType || !hasOrder || !hasShape)
    header.wrong("descr, fortran_order or shape is missing");
  checkSizes(file, shape);
  file.dataOffset += start + length;
  return shape;
}

} // namespace cinch::rt
