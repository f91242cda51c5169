// Program.h: what the checker hands on. A Program is the whole file with every size a number, every layer instantiated and
// every `repeat` unrolled: three straight-line graphs (training, evaluation, prediction) over one list of parameters.
// Plain C++, no MLIR: the emitter turns each Op into one op of the `nn` dialect.
#ifndef CINCH_COMPILER_FRONTEND_PROGRAM_H
#define CINCH_COMPILER_FRONTEND_PROGRAM_H

#include <cstdint>
#include <string>
#include <vector>

namespace cinch {

// A piece of source text. `file` indexes the source list: 0 is the prelude, 1 the user's file.
struct Span {
  int file = -1;
  uint32_t begin = 0, end = 0; // byte offsets
};

enum class DType { F32, I32, Bool };

struct TensorType {
  DType dtype = DType::F32;
  std::vector<int64_t> shape;
  int batch = -1; // which axis holds the examples; -1: none
};

enum class OpKind {
  // Inputs. `index` says which.
  Parameter,  // Program::parameters[index]
  Field,      // the `index`-th field of the dataset the graph reads
  ValidRows,  // bool[B]: false for the rows that pad the last batch of an evaluation (evaluation graph only)
  // Constants.
  Constant,   // `number` everywhere (shape may be []: a scalar)
  Vector,     // 1-D, `numbers`
  Range,      // i32[N]: 0, 1, ..
  // Element-wise: operands and result have one and the same shape (the elaborator inserts Broadcast).
  Neg, Exp, Expm1, Log, Log1p, Sqrt, Sin, Cos, Tanh, Erf, Sigmoid, Softplus, Abs, Floor, StopGradient,
  Not, And, Or, Cast, // Cast: to type.dtype, from i32/bool to f32 or bool to i32
  Add, Sub, Mul, Div, Pow, Max, Min, // Pow: f32; a constant operand is a Constant of the full shape
  Compare,    // `compare`; result bool
  Where,      // operands: bool, a, b
  // Shape.
  Broadcast,  // ints[i] = the result axis of operand axis i (strictly increasing). No axis is stretched.
  Transpose,  // result axis i = operand axis ints[i]
  Reshape,    // row-major, to type.shape; never moves the batch axis past others
  Slice,      // one axis: ints = {axis, begin, end}; keeps the axis
  Pad,        // ints = {axis, before, after}, `number` fills
  Concat,     // ints = {axis}
  Reverse,    // ints = {axis}
  // Everything else.
  Reduce,     // `reduce` over axes ints (increasing); the axes go away. Sum and Mean: f32 operand. Any, All: bool.
  Contract,   // two f32 operands; maps[0], maps[1]: one label an axis. Labels 0..r-1 are the result's axes in order; labels
              // >= r are summed, the smallest slowest (batch first). Every summed label is in both maps.
  Gather,     // operand 0: x; operands 1..k: i32 index tensors. maps[0]: one entry an axis of x: label >= 0, or -(j) for
              // "at operand j". maps[j]: labels of the axes of index tensor j. Result axes are labels 0..r-1 in order.
  Softmax, LogSoftmax, ArgMax, ArgMin, // ints = {axis}
  CrossEntropy, // operands: logits, y; ints = {axis}; `number` = smooth; has `except`: see Op::except
  Attend,     // operands q[..,A,T,K] k[..,G,S,K] v[..,G,S,E] [keys bool[..,S]] [bias f32[A,T,S]]; see Op::attend
  Random,     // `random`; `key` is the hash of the call path; `number` = p (Bool), n (Int)
};

enum class CompareKind { EQ, NE, LT, LE, GT, GE };
enum class ReduceKind { Sum, Mean, Max, Min, Prod, Any, All };
enum class RandomKind { Uniform, Normal, Int, Bool };

struct Op {
  OpKind kind = OpKind::Constant;
  std::vector<int> operands; // indices of earlier ops of the same graph
  TensorType type;
  Span span;                 // where the user (or the prelude) wrote it
  int instance = 0;          // index into Program::instances
  int index = 0;
  std::vector<int64_t> ints;
  std::vector<std::vector<int64_t>> maps;
  double number = 0;
  std::vector<double> numbers;
  CompareKind compare = CompareKind::EQ;
  ReduceKind reduce = ReduceKind::Sum;
  RandomKind random = RandomKind::Uniform;
  uint64_t key = 0;
  bool hasExcept = false;    // CrossEntropy: label `except` counts 0 and has no gradient
  int64_t except = 0;
  struct { bool causal = false, hasKeys = false, hasBias = false; double scale = 1, dropout = 0; } attend;
  // Hints: they may make a plan slow, never wrong.
  bool keep = false, recompute = false; // @checkpoint, @recompute
  int block = -1;            // number of the block of a `repeat` this op is in (counted over the file); -1: none.
                             // The op whose value is the result of that block has blockEnd.
  bool blockEnd = false;
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
  enum Kind { Constant, Normal, TruncatedNormal, Uniform, Orthogonal } kind = Constant; // zeros and ones are Constant;
  double a = 0;              // value, deviation, half-width or gain. kaiming_* and xavier_* come resolved.
};

struct Parameter {
  std::string path;          // "blocks.3.attn.wqkv"
  TensorType type;
  Init init;
  Span span;
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
  Span span;
};

struct Dataset {
  std::string name;
  enum Source { Idx, Npy, Npz, Csv, Safetensors, Text, Tokens } source = Idx;
  std::vector<std::string> files;
  std::vector<Field> fields;
  int64_t window = 0, stride = 0, header = 0; // Text, Tokens
  int tokenBits = 16;
  bool csvHeader = true; std::string separator = ",";
  bool shuffle = true;
  Span span;
};

struct Optimizer {
  enum Kind { SGD, Adam, AdamW } kind = SGD;
  double lr = 0, momentum = 0, beta1 = 0.9, beta2 = 0.999, eps = 1e-8, decay = 0;
  bool nesterov = false;
  Span span;
};

struct Schedule {
  enum Kind { Constant, Linear, Cosine, Polynomial, InverseSqrt, Step, Exponential, WSD } kind = Constant;
  double warmup = 0, end = 0, power = 1, factor = 1, every = 0, decay = 0;
  std::vector<int64_t> at;
};

struct Every {               // `every N ..` or `every epoch ..`
  int64_t steps = 0;         // 0: every epoch
  enum Kind { Eval, Checkpoint, Log } kind = Eval;
  int dataset = -1;          // Eval
  int64_t batches = 0;       // Eval; 0: all
  std::string dir;           // Checkpoint
  int64_t keep = 0;          // 0: all
  std::string best;          // metric name or "loss"; "" none
  bool bestIsMax = false;
  bool csv = false, jsonl = false, tensorboard = false; // Log
};

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
  bool f64 = false;          // precision
  int64_t grain = 0;
  std::vector<Every> every;
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

struct Program {
  std::string modelName;
  int64_t batch = 0;         // B
  std::string batchName;     // "B"
  std::vector<Instance> instances;
  std::vector<Parameter> parameters; // in order of definition along the paths
  std::vector<Dataset> datasets;
  Train train;
  PlanSettings plan;

  Graph step;                // training = true
  int loss = -1;             // an op of `step`, f32[]
  // What `train` prints beside the loss is computed by `evaluation` only.

  Graph evaluation;          // training = false, over one batch. Batch reductions are Reduce{Sum} over the batch axis (the
                             // elaborator has put Where(ValidRows..) and the count of valid rows in), so summing each of them
                             // over all batches and computing the rest once gives the metrics of the whole set.
  std::vector<NamedValue> metrics; // ops of `evaluation`; the first is "loss"

  Graph prediction;          // training = false: the calls of the model in `train`, its metrics left out
  std::vector<NamedValue> results; // ops of `prediction`, all with the batch axis
};

} // namespace cinch
#endif
