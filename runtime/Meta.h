// Meta.h: what the compiled program says about itself (METADATA.md), as plain structs.
#ifndef CINCH_RUNTIME_META_H
#define CINCH_RUNTIME_META_H
#include "runtime/Memory.h"
#include <stdint.h>

namespace cinch::rt {

class JsonReader;

constexpr int64_t kRunValueWords = 120; // of the context, behind kRunValues (Run.h)

enum class Elem : uint8_t { F32, F64, I32, Bool, BF16 }; // BF16: what lies between kernels only
inline int64_t bytesOf(Elem elem) { return elem == Elem::F64 ? 8 : elem == Elem::Bool ? 1 : elem == Elem::BF16 ? 2 : 4; }
const char *nameOf(Elem); // as in METADATA.md

struct Shape {
  int rank = 0;
  int64_t dims[12];
  int64_t count() const;
};
struct ShapeText {
  char text[160];
};
ShapeText describe(const Shape &); // "[60000, 784]"

// A tensor that lies in the persistent part of the arena.
struct Stored {
  const char *path = "";
  Elem elem = Elem::F32;
  Shape shape;
  int64_t offset = 0;
  List<int64_t> copies;      // where further replicas have it
  // Of what is split among shards: offset and copies are of its parts, the parts of one replica behind those of another. Its elements are
  // [before, parts, the rest], and part p has all with p in the middle.
  int64_t before = 1, parts = 1;
  bool own = false;          // these hold numbers of their own
  bool averaged = false;     // .. and the average stands for all of them where one tensor is wanted
  const char *startsAs = ""; // of a slot: the parameter, of the same worker, as which it starts; empty: zeros
  int64_t startsFrom = -1;   // its number
  int64_t bytes() const { return shape.count() * bytesOf(elem); } // of the whole
  int64_t partCount() const { return shape.count() / parts; } // elements at one place
  int64_t partBytes() const { return partCount() * bytesOf(elem); }
  int64_t partAt(int64_t place) const; // which part lies there
};
// Where element `i` of a whole lies in its part; -1: in another one.
int64_t placeInPart(int64_t i, int64_t part, int64_t count, int64_t before, int64_t parts);

struct InitialValue {
  enum Kind { Constant, Normal, TruncatedNormal, Uniform, Orthogonal } kind = Constant;
  double a = 0;
};

struct Parameter : Stored {
  bool frozen = false, state = false;
  bool startsInfinite = false;   // what training began with is not finite, and no update's fault
  const char *averageOf = nullptr; // the path of the parameter of which this is the exponential average
  InitialValue init;
};

struct FieldSpec {
  const char *name = "";
  Elem elem = Elem::F32;
  Shape shape; // of one example
  double scale = 1;
  List<const char *> from; // npz, safetensors: the array; csv: one column a value
  bool hasBelow = false, hasExcept = false;
  int64_t below = 0, except = 0;
  List<const char *> names; // csv: what stands in a cell for 0, 1, .., for false and true
  bool other = false;       // csv: a cell that is none of the names is the number behind theirs
  bool normalize = false;
  int64_t at = 0; // windows of rows: the row of a window with which the field begins
};

struct DatasetSpec {
  const char *name = "";
  const char *folder = nullptr; // where its files are; null: --data
  const char *source = ""; // idx npy npz safetensors csv text tokens records
  const char *separator = ",";
  bool csvHeader = true, hasMissing = false;
  bool missingMean = false; // csv: in normalized fields a cell without a number counts as the mean of its column
  double missing = 0; // csv: what a cell without a number counts as
  List<const char *> files;
  int64_t window = 0, stride = 1, header = 0, tokenBits = 16;
  double holdOut = 0; // so many of the rows are held out, drawn with holdSeed, in windows the last ones; held: this set has those
  int64_t holdSeed = 0;
  bool held = false;
  bool shuffle = true;
  List<FieldSpec> fields;

  bool ofRows() const; // an example is `window` rows of the file that follow one another, and the first axis of a field counts its rows
  bool drawsRows() const { return holdOut > 0 && window == 0; } // which rows are held out
  Shape shapeOfRow(const FieldSpec &) const; // what one row of the file has of a field
};

// A line of a `names` block: what parameters are called in a file of another framework. `*` may stand in both.
struct NameMapping {
  const char *ours = "", *theirs = ""; // ours "_": not wanted, theirs "_": not in the file
  bool transposed = false;             // the last two axes are swapped there
};
struct NameMap {
  const char *name = "";
  List<NameMapping> mappings;
};

// A number of the program that --set replaces.
struct RunValue {
  enum Kind { AtLeast0, Positive, Below1, Count, Whole } kind = AtLeast0; // Count: whole, from 1
  const char *key = "";
  int64_t place = 0;        // kernels read it from word kRunValues + place of the context
  double file = 0, now = 0; // of the program; of this run
  bool given = false;       // by --set
  bool zeroDecides = false; // whether it is 0 was decided by the compiler
};
// Something that `hash` is made of, in words.
struct Described {
  const char *key = "", *text = "";
  bool decides = true; // false: it may differ from what a checkpoint says
  const char *then = ""; // what follows where it differs
};

struct Every {
  enum Kind { Eval, Checkpoint, Log } kind = Log;
  int64_t steps = 0; // 0: every epoch
  int dataset = -1;
  int64_t batches = 0, keep = 0, patience = 0; // patience 0: it stops nothing
  const char *dir = "", *best = "";
  bool bestIsMax = false, csv = false, jsonl = false, tensorboard = false, html = false;
};

struct EntryField {
  int index = 0; // of the data set that the program trains on
  int64_t offset = 0, bytes = 0;
  List<const char *> neededBy; // scalars or results
  bool read = true;            // false: its memory holds zeros
};
struct EntryValue { // a metric of `eval`, a result of `predict`
  const char *name = "";
  Elem elem = Elem::F32;
  Shape shape;
  int64_t offset = 0;
  int64_t copies = 1; // of a result, each on 64 bytes: micro-batch k has copy k modulo so many
  bool written = true; // false: a result that --only leaves out
};
struct Entry {
  const char *name = "";
  int64_t microbatch = 1, count = 0, valid = -1;
  int64_t group = 1;     // examples that are compared with one another: what is left behind the last whole group is left out
  List<int64_t> valids; // one a worker that asks which rows count; empty: `valid` is the only one
  List<EntryField> fields; // that are read
  List<EntryField> unread; // that only results need which --only leaves out
  List<EntryValue> scalars, results;

  // All that have memory in the arena.
  template <typename Visit> void eachField(Visit visit) const {
    for (const EntryField &field : fields)
      visit(field);
    for (const EntryField &field : unread)
      visit(field);
  }
  void readNeeded(); // sorts the fields by the results that are written
  int64_t copyBytes(const EntryValue &result) const { return onLine(microbatch * result.shape.count() * bytesOf(result.elem)); }
};

// Programs of several workers. Each has a part of the arena.
struct WorkerSpec {
  int64_t at = 0, bytes = 0;
  int64_t hostAt = 0, hostBytes = 0; // its part of the pinned memory
  int64_t shared = 0;               // the first bytes: those of the same worker of the first replica, in whole pages
  int64_t lossAt = -1, normAt = -1; // its copies of what the gate looks at

  bool has(int64_t offset) const { return (offset >= at && offset < at + bytes) || (offset >= hostAt && offset < hostAt + hostBytes); }
};
struct ChannelSpec {
  int from = 0, to = 0; // workers
  int64_t bytes = 0, boxes = 1;
  int64_t at = -1;      // of the mailboxes, in the part of `to`
  int64_t staging = -1; // of one message on its way to another process, in the part of `from`
  const char *name = "", *action = "";
  int64_t sums = 0;     // bytes of a number, if it carries sums that may be added in any order
  int64_t boxBytes() const { return onLine(bytes); }
};

struct Meta {
  const char *program = "", *hash = "", *source = "", *version = "";
  uint64_t seed = 0;
  int64_t batch = 1, steps = 0, epochs = 0;
  bool f64 = false, bf16 = false;
  int64_t hostAt = 0, hostBytes = 0; // offsets [hostAt, hostAt + hostBytes) are pinned memory beside a GPU, where some slots lie
  int64_t arenaBytes = 0, budget = 0, allowance = 0, maxThreads = 1, persistentBytes = 0;
  List<Parameter> parameters;
  List<Stored> slots;
  List<DatasetSpec> datasets;
  int trainDataset = 0;
  List<Every> every;
  List<Entry> entries;
  int64_t lossAt = -1, normAt = -1, learningRateAt = -1;
  Elem gateElem = Elem::F32;
  // Where in the text these stand: they are read only when a launch is to be named.
  int64_t launchesAt = -1, bodiesAt = -1, pricesAt = -1, operationsAt = -1;
  List<RunValue> values;
  List<Described> described;
  List<const char *> plan;
  List<NameMap> names;
  List<WorkerSpec> workers; // empty: one, which has the whole arena
  List<ChannelSpec> channels;
  double stepSeconds = 0;   // predicted; 0: not known
  const char *costs = "";   // whose: "built-in costs"
  const char *cpu = "";     // the name by which it was compiled for one; of a GPU empty
  List<const char *> needs; // that CPU's instruction sets
  int64_t transportReserve = 0; // bytes of the budget for an MPI library; 0: it is beside the budget
  bool overlaps = false;  // a call of cinch_train_step may do a part of the next step, too (2bw)
  const char *ownSteps = ""; // how the replicas combine their steps, if each makes its own
  int64_t replicas = 1;   // of the stages: worker w has stage w / shards modulo (workers / replicas / shards)
  int64_t shards = 1;     // that have a stage together
  const char *initFile = nullptr; // parameters start from this file, read through names[initNames] (-1: none)
  int initNames = -1;
  int textField = -1;
  int textResult = 0; // the logits, among the results of `predict`
  int64_t textLength = 0, textVocabulary = 0;

  const Entry *entry(const char *name) const; // null: there is none
  int64_t parameterCount() const;
};

// Reads the text of cinch_meta. Wrong text is the compiler's fault.
void readMeta(Meta &, const char *text);

struct LaunchBuffer {
  int64_t offset = 0, count = 0;
  int64_t columns = 0, pitch = 0; // of rows that do not lie side by side; 0: they do
  int64_t word = -1; // of the launch's offsets, where its own stands; -1: it never moves
  Elem elem = Elem::F32;
};
// What the cost model of the compiler says of a launch: operations, bytes from and to memory; how long the operations take at the
// machine's rate, the bytes at its bandwidth, and the launch as a whole.
struct LaunchPrice {
  int64_t operations = 0, bytes = 0, operationNanoseconds = 0, byteNanoseconds = 0, nanoseconds = 0;
};
struct Launch {
  char kernel[128] = "", text[512] = "", file[256] = "";
  int64_t line = 0, body = -1, operations = -1, examples = 0;
  int outputCount = 0, inputCount = 0;
  LaunchBuffer outputs[64], inputs[64];
  LaunchPrice price;
};
int64_t launchCount(const Meta &, const char *text);
// Finds launch `number`. False: the program does not describe it.
bool readLaunch(const Meta &, const char *text, int32_t number, Launch &);

// An op of a kernel, as people call it.
struct LaunchOperation {
  char name[128] = "", file[256] = "";
  int64_t line = 0;
  bool ofExamples = false; // its result has the batch axis
};
// Finds operation `number` of the launch.
bool readOperation(const Meta &, const char *text, const Launch &, int64_t number, LaunchOperation &);
// The operation of each node of the launch's body, -1: none.
bool readNodeOperations(const Meta &, const char *text, const Launch &, List<int64_t> &);
// The whole numbers of the launch's body.
bool readBody(const Meta &, const char *text, const Launch &, List<int64_t> &);

} // namespace cinch::rt
#endif
