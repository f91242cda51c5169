// Program.h: what the checker hands on. A Program is the whole file with every size a number, every layer instantiated and
// every `repeat` unrolled: three straight-line graphs (training, evaluation, prediction) over one list of parameters.
// Plain C++, no MLIR: the emitter turns each Op into one op of the `nn` dialect.
#ifndef CINCH_COMPILER_FRONTEND_PROGRAM_H
#define CINCH_COMPILER_FRONTEND_PROGRAM_H

#include "dialects/ops/Optimizers.h"
#include "dialects/ops/Ops.h"

#include <cstdint>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

namespace cinch {

// A piece of source text. `file` indexes the source list: 0 is the prelude, 1 the user's file.
struct Span {
  int file = -1;
  uint32_t begin = 0, end = 0; // byte offsets
};

// A node of a graph: an op of the table (dialects/ops/Ops.h; its meaning stands with its definition in dialects/nn), or an
// input. The elaborator writes out what `nn` has no op for: broadcasts of operands, means.
struct Op {
  OpKind kind = OpKind::Constant;
  std::vector<int> operands; // indices of earlier ops of the same graph, as the table lists operands; -1: absent
  std::vector<AttrValue> attributes; // one for each of the table
  TensorType type;           // of the result; of the first one, if the op has more
  Span span;                 // where the user (or the prelude) wrote it
  int instance = 0;          // index into Program::instances
  const char *written = "";  // what messages call it, if that is not the name of the op: "mean" of the sum that it is made of
  // Hints: they may make a plan slow, never wrong.
  bool keep = false, recompute = false; // @checkpoint, @recompute
  std::optional<int> endsStage;         // @stage: the number of the stage that ends behind this op, -1: auto
  std::optional<int> shard;  // @shard: how the nearest products above are shared (nn::ShardHint)
  int block = -1;            // number of the block of a `repeat` this op is in (counted over the file); -1: none.
                             // The op whose value is the result of that block has blockEnd.
  bool blockEnd = false;
  int stream = -1;           // an Add of a reversible layer: which operand is the stream that the result goes on
  bool named = false;        // the result of a definition or of a layer's call in the user's text: `precision bf16` rounds it

  explicit Op(OpKind kind, std::vector<int> operands = {},
              std::initializer_list<std::pair<Key, AttrValue>> given = {});
  void set(Key, AttrValue);
  const AttrValue &attribute(Key key) const { return attributes[size_t(infoOf(kind).placeOf(key))]; }
  int64_t integer(Key key) const { return std::get<int64_t>(attribute(key)); }
  double number(Key key) const { return std::get<double>(attribute(key)); }
  bool flag(Key key) const { return std::get<bool>(attribute(key)); }
  const std::vector<int64_t> &integers(Key key) const { return std::get<std::vector<int64_t>>(attribute(key)); }
  bool draws() const; // its value is random
};

struct Graph {
  std::vector<Op> ops;       // in order of definition: an op comes after its operands
};

struct Instance {            // one call of a layer, for messages: "`ff = mlp` of `block`, reached from .."
  std::string path;          // "blocks.3.ff"; "" for train
  std::string layer;         // "mlp"
  int parent = -1;
  Span use;                  // where `use` (or the direct call) stands
};

struct Init {
  InitKind kind = InitKind::Constant; // zeros and ones are Constant; kaiming_* and xavier_* come resolved
  double a = 0;              // value, deviation, half-width or gain
};

struct Parameter {           // and a state, which lies beside them
  std::string path;          // "blocks.3.attn.wqkv"
  TensorType type;
  Init init;
  Span span;
  bool state = false;        // has no gradient; Program::updates may move it, no optimizer does
  int averageOf = -1;        // a state that is the exponential average of this parameter (Train::ema)
  int optimizer = 0;         // index into Train::optimizers
  bool decays = true;        // false: named by `except`
  bool frozen = false;
};

struct Field {
  std::string name;
  TensorType type;           // batch axis first
  double scale = 1;
  std::vector<std::string> from;
  bool hasBelow = false;  int64_t below = 0;
  bool hasExcept = false; int64_t except = 0;
  std::vector<std::string> names; // csv: what stands in a cell for 0, 1, ..
  bool other = false;             // csv: a cell that is none of the names is the class behind theirs
  bool normalize = false;         // csv: mean and deviation of the training data go
  int64_t at = 0;                 // windows of rows: the row of a window with which the field begins
  Span span;
};

struct Dataset {
  // What the mean ("mean") or the deviation ("std") of a normalized field is called in files, as in runtime/Normalize.cpp.
  std::string nameOfNormal(const Field &field, const std::string &part) const { return "data." + name + "." + field.name + "." + part; }
  std::string name;
  enum Source { Idx, Npy, Npz, Csv, Safetensors, Text, Tokens, Records } source = Idx;
  std::vector<std::string> files;
  std::vector<Field> fields;
  int64_t window = 0, stride = 0; // Text, Tokens: values; otherwise rows, if an example is a window of them (0: it is a row)
  int64_t header = 0;             // Tokens, Records: bytes before the first
  int tokenBits = 16;
  bool csvHeader = true; std::string separator = ",";
  bool hasMissing = false; double missing = 0; // Csv: what a cell without a number counts as
  bool missingMean = false;                    // Csv: in normalized fields as the mean of its column, of which it is no part
  double holdOut = 0; uint64_t holdSeed = 0; bool held = false; // a share of the rows is held out, in windows the last ones; held: those rows
  bool shuffle = true;
  Span span;

  // An example is `window` rows that follow one another: the axis behind the batch counts rows of the field.
  bool ofRows() const { return window > 0 && source != Text && source != Tokens; }
  // Values of a field that one row of the file has.
  int64_t valuesOfRow(const Field &field) const {
    int64_t values = 1;
    for (size_t axis = ofRows() ? 2 : 1; axis < field.type.shape.size(); ++axis)
      values *= field.type.shape[axis];
    return values;
  }
};

struct Optimizer {
  const OptimizerRule *rule = nullptr;
  std::vector<double> values; // of its hyperparameters, in the order of the rule; a pair has two
  Span span;

  double value(std::string_view hyperparameter) const { return values[rule->placeOf(hyperparameter)]; }
};

struct Schedule {
  ScheduleKind kind = ScheduleKind::Constant;
  double warmup = 0, end = 0, power = 1, factor = 1, every = 0, decay = 0;
  std::vector<int64_t> at;
};

struct NameMap {             // `names`: what parameters are called in a file of another framework
  struct Mapping {
    std::string ours, theirs; // `*` may stand in both; ours "_": not wanted, theirs "_": not in the file
    bool transposed = false;  // the last two axes are swapped there
    Span span;
  };
  std::string name;
  std::vector<Mapping> mappings; // the first that matches counts
  Span span;
};

struct Every {               // `every N ..` or `every epoch ..`
  int64_t steps = 0;         // 0: every epoch
  enum Kind { Eval, Checkpoint, Log } kind = Eval;
  int dataset = -1;          // Eval
  int64_t batches = 0;       // Eval; 0: all
  int64_t patience = 0;      // Eval: training ends when so many brought no better `best`; 0: it does not
  std::string dir;           // Checkpoint
  int64_t keep = 0;          // 0: all
  std::string best;          // metric name or "loss"; "" none
  Span bestSpan;
  bool bestIsMax = false;
  bool csv = false, jsonl = false, tensorboard = false, html = false; // Log
};

// How replicas share a step. `exact`: its numbers are those of one worker. `reduce`: each sums its own examples; the sums are added.
// In the other ways each replica makes steps of its own, with its examples for the batch (rules.md).
enum class Combine { Exact, Reduce, RingAverage, Async, Hogwild };
const char *nameOf(Combine); // as it is written
inline bool makesOwnSteps(Combine combine) { return combine > Combine::Reduce; }

struct Train {
  std::string model;
  int dataset = 0;
  uint64_t seed = 0;
  int64_t steps = 0;         // 0: `epochs` is given; steps follow from the number of examples, known at run time
  int64_t epochs = 0;
  std::vector<Optimizer> optimizers;
  Schedule schedule;
  double clipNorm = 0;       // 0: none
  double clipValue = 0;      // 0: none
  bool hasEma = false;
  double ema = 0;            // e = ema * e + (1 - ema) * p
  bool f64 = false;          // precision
  bool bf16 = false;         // precision, with masters and sums in f32
  bool tf32 = false;         // precision f32, in which a GPU's tensor cores may multiply
  int64_t grain = 0;
  Combine combine = Combine::Exact;
  int64_t combined = 1;      // the replicas that `combine` names
  int64_t stale = 0;         // `async`: a replica's gradients are so many of its turns older than the youngest parameters that it knows
  int64_t shards = 1;        // workers that share every layer
  int64_t delay = 0;         // 1: gradients are those at the parameters before the last update
  std::vector<Every> every;
  std::string initFile;      // `init`: parameters start from this file; "": none
  int initNames = -1;        // index into Program::nameMaps; -1: they are called there as here

  const char *precision() const { return f64 ? "f64" : bf16 ? "bf16" : tf32 ? "tf32" : "f32"; }
};

struct PlanSettings {        // what the file asks for; the command line overrides
  int64_t memory = 0;        // bytes; 0: not given
  int64_t microbatch = 0;    // 0: auto
  int64_t stages = 1;        // 0: auto
  std::string schedule = "auto", remat = "auto"; // remat as on the command line: "every:4"
  std::string offload = "none";
};

struct NamedValue {
  std::string name;
  int op = -1;               // index into the graph
};

struct StateUpdate {              // what a state is from the next step on
  int parameter = -1;        // index into Program::parameters
  int op = -1;               // of `step`
};

struct Program {
  std::string modelName;
  int64_t batch = 0;         // B
  std::string batchName;     // "B"
  std::vector<Instance> instances;
  std::vector<Parameter> parameters; // in order of definition along the paths
  std::vector<Dataset> datasets;
  std::vector<NameMap> nameMaps;
  Train train;
  PlanSettings plan;

  Graph step;                // training = true
  int loss = -1;             // an op of `step`, f32[]
  std::vector<StateUpdate> updates; // at most one a state, in the order of `parameters`
  // What `train` prints beside the loss is computed by `evaluation` only.

  Graph evaluation;          // training = false, over one batch. Batch reductions are Reduce{Sum} over the batch axis (the
                             // elaborator has put Where(ValidRows..) and the count of valid rows in), so summing each of them
                             // over all batches and computing the rest once gives the metrics of the whole set.
  std::vector<NamedValue> metrics; // ops of `evaluation`; the first is "loss"

  Graph prediction;          // training = false: the `predict` clauses of `train` or, without any, its calls of the model
  std::vector<NamedValue> results; // ops of `prediction`, all with the batch axis, which comes first
  // Sizes, constants, layers and values of `train` by their names, as they are written: for people who are told what was edited.
  std::vector<std::pair<std::string, std::string>> text;
  int modelResult = -1;      // the one of `results` that is what the model returns, if that is one tensor
};

} // namespace cinch
#endif
