// TensorFile.h: safetensors files, written from the arena and read into it through small buffers.
#ifndef CINCH_RUNTIME_TENSORFILE_H
#define CINCH_RUNTIME_TENSORFILE_H
#include "runtime/Meta.h"

namespace cinch::rt {

// A tensor in memory that a file shall hold or fill.
struct Tensor {
  const char *name = "";
  Elem elem = Elem::F32;
  const Shape *shape = nullptr;
  char *data = nullptr;
  const char *likeIfMissing = nullptr; // a file need not have it: then it is what the file has under this name
  int64_t bytes() const { return shape->count() * bytesOf(elem); }
  // Filled in by readTensorHeader: where its values lie in the file.
  bool found = false;
  Elem fileElem = Elem::F32;
  int64_t fileOffset = 0;
};
struct TensorList {
  Tensor *items = nullptr;
  int64_t count = 0;
};

// What a checkpoint says of the values of one field of the data that it was trained on.
struct DataMark {
  const char *field = "", *path = ""; // the path is not written
  char type[8] = "";                  // "<f32"; "" where a file has none
  int64_t bytes = 0;
  uint32_t crc = 0;
};

// The metadata that Cinch writes; "" or -1 where a file has none.
struct TensorFileInfo {
  char check[17] = ""; // checksum of the data, then of the header (with this text as zeros), 8 hex digits each
  char kind[32] = "";  // "checkpoint 1"
  char program[256] = "", hash[32] = "", best[256] = "";
  int64_t step = -1;
  bool pending = false; // what was due after that step (evaluation, log) was not done yet; it needs
  double last[3] = {};  // the loss, gradient norm and learning rate of that step
  List<DataMark> data;  // when reading: the fields that are looked for
};

// Why a file was not taken.
struct Problem {
  char text[768] = "";
  void set(const char *format, ...) __attribute__((format(printf, 2, 3)));
};

// Writes the file atomically. False: errno tells why, and nothing changed under the name.
bool writeTensorFile(const char *path, const TensorList &, const TensorFileInfo &);

class TensorFile {
public:
  ~TensorFile();
  // Opens the file and reads its header: every tensor of it that `wanted` names is found there. Other names are a
  // problem, except those that begin with `ignored` (null: none).
  bool open(const char *path, TensorList &wanted, const char *ignored, Problem &);
  bool verify(Problem &);                   // the checksum, if there is one
  bool load(TensorList &wanted, Problem &); // brings the values in, F32 and F64 converted into one another
  TensorFileInfo info;

private:
  bool readHeader(TensorList &wanted, const char *ignored, Problem &);
  bool readTensor(class JsonReader &, TensorList &wanted, const char *ignored, Problem &);
  bool readInfo(class JsonReader &);
  int fd = -1;
  int64_t size = 0, headerSize = 0, covered = 0;
  uint32_t *names = nullptr; // hash table over `wanted`: index + 1
  uint64_t nameMask = 0;
};

// The number of single-letter edits between two names, at most 99; for "did you mean".
int editDistance(const char *a, const char *b);

} // namespace cinch::rt
#endif
