// TensorFile.h: safetensors files, written from the arena and read into it through small buffers.
#ifndef CINCH_RUNTIME_TENSORFILE_H
#define CINCH_RUNTIME_TENSORFILE_H
#include "runtime/Meta.h"
#include "runtime/Values.h"

namespace cinch::rt {

// How the values of a tensor are written in a file.
enum class FileType : uint8_t { F32, F64, F16, BF16, I32, Bool };
int64_t bytesOf(FileType);

// A tensor in memory that a file shall hold or fill.
struct Tensor {
  const char *name = "";
  Elem elem = Elem::F32;
  const Shape *shape = nullptr;
  char *data = nullptr;    // null: it lies in another process,
  int64_t offset = 0;      // there in the whole arena
  const List<int64_t> *copies = nullptr; // where further workers have it, in the whole arena: filled, too
  int64_t before = 1, parts = 1;         // as of Stored: offset, data and copies are then of parts
  bool averaged = false; // a file gets the average of it and its copies
  const char *likeIfMissing = nullptr; // a file need not have it: then it is what the file has under this name
  bool optional = false;               // a file need not have it: then it stays what it is
  bool ofData = false;                 // a mean or a deviation: training finds it in its data, and it has no other initial value
  enum Numbers : uint8_t { Any, Finite, Positive } numbers = Any; // what a file may have; positive ones are finite, too
  int64_t bytes() const { return shape->count() * bytesOf(elem); }
  // Filled in by TensorFile::open: what it is called in the file, and where its values lie in it.
  const char *nameInFile = "";
  bool transposed = false; // its last two axes are swapped there
  bool initial = false;    // the map says that the file does not have it
  uint32_t next = 0;       // number + 1 of another tensor with the same name in the file
  bool found = false;
  FileType fileType = FileType::F32;
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
  List<Note> notes;     // when reading: the keys that are looked for
};

// Why a file was not taken.
struct Problem {
  char text[768] = "";
  bool ofProcess = false; // it may open no more files: the file is not to blame
  void set(const char *format, ...) __attribute__((format(printf, 2, 3)));
};

// Writes the file atomically. False: errno tells why, and nothing changed under the name.
bool writeTensorFile(const char *path, const TensorList &, const TensorFileInfo &, struct SecondName *second = nullptr);

// Checkpoints have what each replica has of its own beside the tensor that stands for all of them: those of replicas that the program does not
// have are passed over.
constexpr char kOfReplica[] = "replica/";

// Which tensors a file may have and may lack.
struct Taking {
  const char *ignored = nullptr;  // names that begin so are passed over
  bool passesOver(const char *name) const;
  const NameMap *names = nullptr; // what our tensors are called in the file; null: as they are here
  bool partial = false;           // others may be there and may be missing; one at least is there
};

// Brings `count` values of a tensor, as they are in a file, from value `first` on to their places at `data`, converted. Of a tensor in
// parts: those of the part that lies there.
void storeFromFile(const Tensor &, char *data, int64_t part, int64_t first, int64_t count, const char *values);

class TensorFile {
public:
  ~TensorFile();
  // Opens the file and reads its header: every tensor of `wanted` is found there, and there are no others, but as `Taking`
  // allows.
  bool open(const char *path, TensorList &wanted, const Taking &, Problem &);
  bool verify(Problem &);                   // the checksum, if there is one
  // Whether all that was found has numbers that it may have: of F64, finite ones that an F32 tensor holds. Nothing is brought in.
  bool check(const TensorList &wanted, Problem &);
  // Brings the values of what was found in, F16, BF16, F32 and F64 converted into what the tensor holds. If one of them has numbers that it may not
  // have, nothing was brought in.
  bool load(TensorList &wanted, Problem &);
  // Calls `each` with the names that `open` did not ask for, in the order of the file.
  void unexpected(const TensorList &wanted, const Taking &, void (*each)(void *, const char *), void *closure);
  bool hasHeader() const { return headerSize > 0; } // it is a file of tensors, whatever their names
  TensorFileInfo info;

private:
  bool nameTensors(TensorList &wanted, const Taking &, Problem &);
  bool readHeader(TensorList &wanted, const Taking &, Problem &);
  struct Described;
  void addNearNames(const char *name, Problem &);
  bool readTensor(class JsonReader &, TensorList &wanted, const Taking &, Problem &);
  static bool readDescription(JsonReader &, Described &);
  bool checkDescription(const Described &, Problem &) const;
  bool take(const Described &, Tensor &, const Taking &, Problem &) const;
  uint64_t slotOf(const TensorList &, const char *nameInFile) const;
  bool loadTensor(TensorList &, int64_t number);
  bool checkNumbers(const Tensor &, Problem &);
  bool readInfo(class JsonReader &);
  int fd = -1;
  int64_t size = 0, headerSize = 0, covered = 0;
  uint32_t *names = nullptr; // hash table over the names in the file: number in `wanted` + 1
  uint64_t nameMask = 0;
  bool isLeftOver = false; // the tensor that was read last is none of `wanted`
};

} // namespace cinch::rt
#endif
