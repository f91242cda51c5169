// Fuzz target of the trained binary's readers: safetensors, NPY, IDX and token files with any content are taken or
// refused with a reason, never more. The first byte chooses the format and the field's type, the rest is the file.
// Promises tested:
//   - a file that was opened can be read example by example, and its values checked, without surprises;
//   - a safetensors file that was taken loads in full.
// Leaving (`fail`) becomes a jump back here; memory that the runtime never frees is freed after each input.
#include "runtime/Dataset.h"
#include "runtime/NameMap.h"
#include "runtime/Output.h"
#include "runtime/TensorFile.h"

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <csetjmp>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

static jmp_buf leave;
static std::vector<void *> memory;

static void require(bool ok, const char *what) {
  if (ok)
    return;
  std::fprintf(stderr, "broken promise: %s\n", what);
  std::abort();
}

// ---- What the readers need of Output.cpp and Memory.cpp -------------------------------------------------------------

namespace cinch::rt {

void Text::add(const char *format, ...) {
  va_list args;
  va_start(args, format);
  int n = vsnprintf(data + size, sizeof data - size, format, args);
  va_end(args);
  size = n < 0 ? size : std::min(size + size_t(n), sizeof data - 1);
}

void fail(int, const char *format, ...) {
  char text[4096];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args); // the sanitizers see every argument read
  va_end(args);
  longjmp(leave, 1);
}

void failInternal(const char *format, ...) {
  require(false, format);
  std::abort();
}

void *allocate(size_t bytes) {
  void *result = std::calloc(bytes ? bytes : 1, 1);
  require(result, "memory");
  memory.push_back(result);
  return result;
}

const char *copyText(const char *text, size_t size) {
  char *copy = static_cast<char *>(allocate(size + 1));
  std::memcpy(copy, text, size);
  return copy;
}

} // namespace cinch::rt

using namespace cinch::rt;

static void readDataset(const char *source, const char *path, uint8_t variant) {
  DatasetSpec spec;
  spec.name = "data";
  spec.source = source;
  spec.files.add() = path;
  FieldSpec &field = spec.fields.add();
  field.name = "x";
  field.from.add() = "x";
  field.elem = variant % 3 == 0 ? Elem::F32 : variant % 3 == 1 ? Elem::I32 : Elem::Bool;
  field.hasBelow = variant & 4;
  field.below = 10;
  field.hasExcept = variant & 8;
  field.except = 255;
  field.shape.rank = 1;
  field.shape.dims[0] = 4;
  spec.window = 4;
  spec.stride = 3;
  spec.header = variant & 1 ? 8 : 0;
  spec.tokenBits = variant & 2 ? 32 : 16;
  Dataset data;
  beginDataset(data, spec, spec);
  openField(data, 0, "/", "");
  require(data.examples > 0, "an opened file has examples");
  char values[4 * 8];
  for (int64_t example : {int64_t(0), data.examples / 2, data.examples - 1})
    for (Elem elem : {Elem::F32, Elem::F64})
      require(readExample(data, 0, example, field.elem == Elem::F32 ? elem : field.elem, values),
              "an example can be read");
}

static void readTensors(const char *path) {
  Shape shapes[2];
  shapes[0].rank = 2;
  shapes[0].dims[0] = 2;
  shapes[0].dims[1] = 3;
  shapes[1].rank = 0;
  float weights[6];
  double scalar[1];
  Tensor tensors[2];
  tensors[0].name = "a.weight";
  tensors[0].shape = &shapes[0];
  tensors[0].data = reinterpret_cast<char *>(weights);
  tensors[1].name = "b";
  tensors[1].elem = Elem::F64;
  tensors[1].shape = &shapes[1];
  tensors[1].data = reinterpret_cast<char *>(scalar);
  TensorList list{tensors, 2};
  NameMap map;
  map.mappings.add() = {"*.weight", "*.kernel", true};
  map.mappings.add() = {"_", "*.mask", false};
  map.mappings.add() = {"*", "*", false};
  for (int way = 0; way < 4; ++way) {
    Taking taking;
    taking.ignored = "optimizer.";
    taking.partial = way & 1;
    taking.names = way & 2 ? &map : nullptr;
    Problem problem;
    TensorFile file;
    if (!file.open(path, list, taking, problem) || !file.verify(problem)) {
      require(problem.text[0], "a refusal has a reason");
      continue;
    }
    require(file.load(list, problem), "a file that was taken loads");
    int64_t letters = 0;
    file.unexpected(list, taking, [](void *sum, const char *name) { *static_cast<int64_t *>(sum) += int64_t(strlen(name)); },
                    &letters);
  }
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  if (size == 0)
    return 0;
  static const int lowest = [] {
    int fd = open("/dev/null", O_RDONLY);
    close(fd);
    return fd;
  }();
  int fd = memfd_create("input", 0);
  require(fd >= 0 && write(fd, data + 1, size - 1) == ssize_t(size - 1), "a file in memory");
  char path[64];
  std::snprintf(path, sizeof path, "/proc/self/fd/%d", fd);
  if (!setjmp(leave)) {
    switch (data[0] % 5) {
    case 0:
      readDataset("idx", path, data[0] / 5);
      break;
    case 1:
      readDataset("npy", path, data[0] / 5);
      break;
    case 2:
      readDataset("tokens", path, data[0] / 5);
      break;
    case 3:
      readDataset("text", path, data[0] / 5);
      break;
    default:
      if (data[0] / 5 % 4 == 1)
        readDataset("npz", path, data[0] / 20);
      else if (data[0] / 5 % 4 == 2)
        readDataset("safetensors", path, data[0] / 20);
      else
        readTensors(path);
    }
  }
  close_range(lowest, ~0u, 0);
  for (void *piece : memory)
    std::free(piece);
  memory.clear();
  return 0;
}
