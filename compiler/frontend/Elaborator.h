// Elaborator.h: checks a file by running it on types. The walk over `train` instantiates layers with concrete sizes,
// unrolls `repeat`, and leaves the ops of one graph behind; it runs three times (step, evaluation, prediction) over
// one tree of instances, so that parameters are the same in all. A definition is evaluated when a result asks for it:
// what no result needs does not exist.
//
// Random keys. Every random draw has a 64-bit key that depends on the chain of call sites from `train` alone:
//
//     mix(z):  z ^= z >> 30;  z *= 0xbf58476d1ce4e5b9;  z ^= z >> 27;  z *= 0x94d049bb133111eb;  z ^= z >> 31
//     key([])              = 0
//     key([n1, .., nk])    = mix(key([n1, .., nk-1]) + 0x9e3779b97f4a7c15 + nk)        (all modulo 2^64)
//
// The chain holds, from the outside: the number of each call in the body it stands in, followed by the number of the
// block if it calls a `repeat`. The number of a call: calls of a body (a name with parentheses behind it, or `range`,
// `random_..` with brackets only; in definitions, metrics, `update` and `return`) are counted from 0 in the order of
// the names in the text. Others are counted apart, so that they move no number of these: names that are calls by themselves, of layers from
// 2^20, of instances from 2^27; calls in the default values of parameters from 2^26. In `train` equal calls are one and have the number of the first, in the order of the text, the
// loss and all that it needs coming before the metrics. A draw in a loop (`scan`, `repeat .. shared`) draws for all trips at once, the
// trips being its first axes.
#ifndef CINCH_COMPILER_FRONTEND_ELABORATOR_H
#define CINCH_COMPILER_FRONTEND_ELABORATOR_H

#include "compiler/frontend/AST.h"
#include "compiler/frontend/Check.h"
#include "compiler/frontend/Diagnostics.h"
#include "compiler/frontend/GraphBuilder.h"
#include "compiler/frontend/Names.h"
#include "compiler/frontend/Values.h"

#include <functional>
#include <map>
#include <memory>
#include <set>
#include <unordered_map>

namespace cinch {

struct Range;

// The indices of one index statement. A label is (order << 8) + place, where `place` counts the axes that `..` stands
// for. Labels are ordered as the axes of the statement's result are, then as the reductions bind them; that is the
// canonical order of axes in which operands are combined.
struct IndexScope {
  struct Index {
    std::string name; // empty: `..`
    Span span;
    int order = 0;
    bool visible = true; // a reduction's index is seen in the reduction only
    bool used = false;
    bool reduced = false; // bound by a reduction
    bool known = false;   // its size (`..`: its sizes) has been seen
    std::vector<Number> sizes;
    Span sizedAt;
  };
  std::vector<Index> indices;
  int next = 0;

  int find(const std::string &name) const; // the visible one, or -1
};

// One call of a layer on the way, or the `train` block, or the file (constants).
struct Node;
struct Frame;

struct Binding {
  enum Kind { Ready, Definition, Parameter, State, Use } kind = Ready;
  Value value; // Ready, or a Definition that is done
  const ast::Statement *statement = nullptr;
  const ast::Use *use = nullptr;
  bool isSize = false; // a size parameter: may name an axis
  bool busy = false, done = false;
  Span span;
};

struct Frame {
  int file = 1;
  const ast::LayerItem *layer = nullptr; // null: train, or the file
  bool isTrain = false;                  // batch reductions are allowed
  bool inUpdate = false;                 // so they are in the expression of an `update`
  Node *node = nullptr;
  const Frame *caller = nullptr;
  Span callSpan;
  std::string via; // how it was called: "ff = mlp", "gelu(..)"
  Span viaSpan;
  uint64_t key = 0;
  int depth = 0;
  int block = -1;
  bool hasDots = false; // what `..` of the signature stands for
  std::vector<Number> dots;
  std::unordered_map<std::string, Binding> names;
  IndexScope *index = nullptr;
  std::map<std::string, Value> calls; // train: equal calls are one
};

// An instance that lives as long as the program: owner of parameters. A direct call has one too (key "@" and its
// number).
struct Node {
  std::string path;
  int instance = 0;       // in Program::instances
  std::vector<int> order; // place of its `use` along the path: orders parameters
  std::map<std::string, std::unique_ptr<Node>> children;
  std::map<std::string, int> parameters;
  std::map<const ast::Use *, int> firstBlocks; // number of block 0 of a `repeat`
};

// The arguments of a call: evaluated, in the order written, with the name given to each.
struct Argument {
  std::string name;
  Value value;
  Span span;
  const ast::Expr *expr = nullptr;
};

// Everything about one call of a layer.
struct Call {
  const ast::LayerItem &layer;
  std::vector<Argument> sizes, constants, args; // direct: all arguments are in `args`
  bool direct = false;
  Node *node = nullptr;
  Span span;
  std::string via;
  Span viaSpan;
  uint64_t key = 0;
  int block = -1;
};

enum class GraphMode { Step, Evaluation, Prediction };

class Elaborator {
public:
  Elaborator(const SourceList &sources, const ast::File &prelude, const ast::File &file, const Options &options,
             Diagnostics &diags);
  std::optional<Program> run();

private:
  friend class DataReader; // DataBlock.cpp
  // ---- Elaborator.cpp: file level, names, definitions
  void defineDims();
  void defineDim(const ast::Dim &dim);
  void defineConst(const ast::Constant &item);
  std::optional<Number> overridden(const std::string &name, Span span);
  void checkOverrides();
  Value lookup(const std::string &name, Span span, Frame &frame);
  Value force(Binding &binding, const std::string &name, Span span, Frame &frame);
  void defineBody(const std::vector<ast::Statement> &body, Frame &frame);
  void evaluateInOrder(const std::vector<ast::Statement> &body, const std::vector<const ast::Expr *> &roots,
                       Frame &frame);
  void noteNamed(const Value &);
  void runDefinition(const ast::Statement &statement, Frame &frame);
  bool mayStand(const ast::Hint &hint, std::set<std::string> &given, Frame &frame);
  Op &hinted(int op);
  bool shareAs(int op, int share, const ast::Hint &hint, Frame &frame);
  void applyHints(const ast::Statement &statement, const Value &value, Frame &frame);
  Value parameter(Binding &binding, const std::string &name, Frame &frame);
  void evalUpdate(const ast::Statement &statement, Frame &frame);
  bool resolveInit(const Value &value, const Tensor &tensor, Span span, Frame &frame, Init &init);
  Node *child(Node &parent, const std::string &key, const std::string &path, const std::string &layer, Span span,
              int order, int block);

  // ---- Expressions.cpp
  Value eval(const ast::Expr &expr, Frame &frame);
  void noteFact(Span span, const Value &value);
  Value evalWhole(const ast::Expr &expr, Frame &frame); // index notation suspended
  Value evalIf(const ast::Expr &expr, Frame &frame);
  Value evalUnary(const ast::Expr &expr, Frame &frame);
  Value evalBinary(const ast::Expr &expr, Frame &frame);
  Value evalMatMul(const ast::Expr &expr, const Value &left, const Value &right, Frame &frame);
  Value evalTranspose(const ast::Expr &expr, Frame &frame);
  Value evalNumber(const ast::Expr &expr, Frame &frame);
  std::optional<Number> evalConstantNumber(const ast::Expr &expr, Frame &frame, const char *what);

  // ---- Elementwise.cpp
  Value elementwise(OpKind kind, const std::vector<Value> &operands, const std::vector<Span> &spans, Span span,
                    Frame &frame, Comparison comparison = Comparison::EQ, const char *symbol = nullptr, Span at = {});
  struct ElementwiseCall;
  std::optional<DType> typeOfOperands(const ElementwiseCall &call, Frame &frame);
  bool checkElementwiseType(const ElementwiseCall &call, DType dtype, Frame &frame);
  bool tensorsOf(const ElementwiseCall &call, DType dtype, std::vector<Tensor> &all, Frame &frame);
  void boundResult(const ElementwiseCall &call, std::vector<Tensor> operands, Tensor &result, Frame &frame);
  bool align(std::vector<Tensor> &tensors, const std::vector<Span> &spans, Span span, Frame &frame, const char *symbol,
             Span at = {});
  Tensor bring(const Tensor &tensor, const std::vector<int> &labels, const std::vector<Number> &axes, Span span,
               Frame &frame);
  Tensor broadcastTo(const Tensor &tensor, const std::vector<Number> &axes, const std::vector<int64_t> &places,
                     Span span, Frame &frame);
  Tensor transposed(const Tensor &tensor, const std::vector<int64_t> &order, Span span, Frame &frame);
  bool hasF64() const;
  std::optional<Tensor> fill(const Value &value, DType dtype, const std::vector<Number> &axes, Span span, Frame &frame);
  Value constantBinary(ast::BinaryOp op, const Value &left, const Value &right, const ast::Expr &expr, Frame &frame);
  // The `except` value of the data may be among the elements, or what was computed from it; and only the latter.
  bool mayBeExcept(const Tensor &tensor) const { return graph->facts(tensor.op) & FromExcept; }
  bool isFromExcept(const Tensor &tensor) const { return mayBeExcept(tensor) && !tensor.hasExcept; }
  bool checkMaskEnd(const Tensor &tensor, Span span, Frame &frame, const char *what);

  // ---- Indexing.cpp
  Value evalIndex(const ast::Expr &expr, Frame &frame);
  Value indexWhole(const Tensor &base, const ast::Expr &expr, Frame &frame);
  bool sliceAxis(Tensor &result, size_t k, const Number &axis, const ast::Slot &slot, Span span, Frame &frame);
  Tensor gatherAxis(const Tensor &x, size_t axis, const Tensor &index, Span span, Frame &frame);
  Value indexScalar(const Tensor &base, const ast::Expr &expr, Frame &frame);
  Tensor gatherByIndex(const Tensor &x, const std::vector<Tensor> &indices, Span span, Frame &frame);
  bool labelDots(Tensor &tensor, size_t first, size_t count, const ast::Expr &expr, Frame &frame);
  bool placeSlots(const ast::Expr &expr, size_t rank, Frame &frame, std::vector<const ast::Slot *> &slots,
                  size_t &dotsAt, size_t &dotsCount);
  std::optional<int64_t> constantIndex(const Value &value, const Number &axis, Span span, Frame &frame);
  bool checkGatherRange(const Tensor &index, const Number &axis, Span span, Frame &frame);
  Tensor dropAxis(const Tensor &tensor, size_t axis, int64_t at, Span span, Frame &frame);

  // ---- IndexNotation.cpp
  Value defineByIndex(const ast::Statement &statement, Frame &frame);
  Value evalReduction(const ast::Expr &expr, Frame &frame);
  Value reduceByIndex(const ast::Expr &expr, Frame &frame);
  Value noIndices(const ast::Expr &expr, Frame &frame);
  bool reductionMask(const ast::Expr &expr, Frame &frame, std::optional<Tensor> &mask);
  bool sizeBound(const std::vector<int> &bound, std::set<int> &gone, Number &count, bool &overBatch, Frame &frame);
  Value reduceProduct(const ast::Expr &expr, const Tensor &left, const Tensor &right, const std::set<int> &gone, const Number &count,
                      Frame &frame);
  Value reduceBound(const ast::Expr &expr, const std::vector<int> &bound, Frame &frame);
  Value reduceBySize(const ast::Expr &expr, Frame &frame);
  Value reduce(const ast::Expr &expr, Tensor value, std::optional<Tensor> mask, std::vector<int64_t> axes,
               Frame &frame);
  Value reduceBatch(const ast::Expr &expr, Tensor value, std::optional<Tensor> mask, std::vector<int64_t> axes,
                    Frame &frame);
  Tensor emitReduce(ast::ReductionOp kind, const Tensor &value, const std::vector<int64_t> &axes, Span span, Frame &frame);
  bool contracts(const Tensor &left, const Tensor &right) const;
  Tensor contract(Tensor left, Tensor right, const std::vector<int> &result, const std::vector<int> &summed, Span span,
                  Frame &frame);
  bool useIndex(int index, const Number &size, Span span, Frame &frame);
  bool useDots(int index, const std::vector<Number> &sizes, Span span, Frame &frame);
  int bindIndex(IndexScope &scope, const std::string &name, Span span);
  Value requireScalar(Value value, Span span, Frame &frame);
  std::optional<Tensor> validRows(Span span, Frame &frame);

  // ---- Calls.cpp: what is called, and with which values
  Value evalCall(const ast::Expr &expr, Frame &frame);
  bool isCalledByName(const std::string &name, Frame &frame);
  Value callNamed(const ast::Expr &site, const ast::Expr &callee, const std::vector<ast::Slot> *slots,
                  const std::vector<ast::Arg> &args, Frame &frame);
  bool evalArgs(const std::vector<ast::Arg> &args, Frame &frame, std::vector<Argument> &values);
  bool evalSizes(const std::vector<ast::Slot> &slots, Frame &frame, std::vector<Argument> &values, bool &dots);
  std::optional<int64_t> repeatCount(const ast::Use &use, Frame &frame);
  bool callOfInstance(const ast::Use &use, const ast::Expr &site, int64_t block, Call &call, Frame &frame);
  bool feedNextBlock(const ast::Use &use, const ast::LayerItem &layer, const ast::Expr &site, const std::vector<Value> &results,
                     std::vector<Argument> &args, Frame &frame);
  Value callUse(const ast::Use &use, const ast::Expr &site, const std::vector<Argument> &args, Frame &frame);
  Value callDirect(const ast::LayerItem &layer, const ast::Expr &site, std::vector<Argument> sizes,
                   std::vector<Argument> args, Frame &frame);
  void evalReturn(const Call &call, const ast::Statement &last, Frame &callee, std::vector<Value> &values, std::vector<Span> &spans);
  bool checkReturn(const Call &call, std::vector<Value> &values, const std::vector<Span> &spans, Frame &callee);
  Value callLayer(const Call &call, Frame &caller);
  bool tooFewAxes(const Call &call, Frame &callee, Frame &caller);
  Value declaredResult(const ast::Type &type, Frame &callee);
  bool callable(const ast::LayerItem &layer, Span span, Frame &frame);
  // ---- Loops.cpp: `scan`, and `repeat .. shared`
  struct Looped;
  struct ActiveLoop {
    int number;    // over all loops of the file
    int64_t count; // of its trips
    Number trips;
  };
  Value evalScan(const ast::Expr &expr, Frame &frame);
  bool findLooped(const ast::Expr &call, Frame &frame, Looped &looped);
  bool cutAlong(const ActiveLoop &loop, Argument &arg, std::optional<size_t> &firstAxis, Frame &frame);
  bool keepsTypes(const std::vector<Argument> &args, const std::vector<int> &states, const std::vector<Tensor> &before, const std::vector<Tensor> &after,
                  Span span, Frame &frame);
  bool runLoop(const ActiveLoop &loop, std::vector<Argument> args, const std::vector<int> &states, Span span, Frame &frame,
               const std::function<Value(const std::vector<Argument> &)> &body, std::vector<Tensor> &after);
  void explainSlice(Diagnostic &d, const Tensor &whole, const Argument &arg, const std::string &name, const ActiveLoop &loop) const;
  Value loopResults(OpKind kind, const ActiveLoop &loop, const std::vector<Tensor> &after, size_t axis, Span span, Frame &frame);
  Value callShared(const ast::Use &use, const ast::LayerItem &layer, int64_t count, const ast::Expr &site,
                   const std::vector<Argument> &args, Frame &frame,
                   const std::function<Value(const std::vector<Argument> &)> &body);
  // ---- Binding.cpp: arguments against a signature
  bool bindCall(const Call &call, Frame &callee, Frame &caller);
  bool placeArguments(const Call &call, Frame &caller, std::vector<std::optional<Argument>> &placed);
  bool checkPlaced(const Call &call, std::vector<std::optional<Argument>> &placed, Frame &caller, bool good);
  bool checkRange(const ast::LayerItem &, const ast::Parameter &, Argument &, Frame &caller);
  bool takeRate(Value &rate, const std::string &who, Span span, Frame &caller);
  bool bindDefaultSizes(const Call &call, Frame &callee, Frame &caller);
  bool bindConstants(const Call &call, const std::vector<std::optional<Argument>> &placed, Frame &callee);
  bool bindTensors(const Call &call, const std::vector<std::optional<Argument>> &placed, Frame &callee, Frame &caller);
  bool bindSizes(const Call &call, Frame &callee, Frame &caller, std::set<std::string> &open);
  bool inferSizes(const ast::Type &type, const Argument &arg, const std::string &name, std::set<std::string> &open,
                  Frame &callee, Frame &caller, const Call &call);
  bool checkArgument(const ast::Parameter &parameter, const Argument &arg, Frame &callee, Frame &caller,
                     const Call &call);
  struct Declared; // a parameter of a layer as a call sees it
  std::optional<Tensor> fillArgument(const Declared &declared, DType dtype, const Argument &arg, Frame &caller);
  bool checkElements(const Declared &declared, std::optional<DType> dtype, const Tensor &tensor, const Argument &arg, Frame &caller);
  bool checkAxes(const Declared &declared, Tensor &tensor, const Argument &arg, Frame &caller);
  bool checkBounds(const Declared &declared, Tensor &tensor, const Argument &arg, Frame &caller);
  std::optional<std::vector<Number>> typeAxes(const ast::Type &type, Frame &frame);
  std::optional<DType> typeDtype(const ast::Type &type, Frame &frame);
  bool boundsInLayer(const ast::Type &type, Frame &frame, Interval &range); // of a parameter or a result, which have no `except` of their own
  bool typeBounds(const ast::Type &type, Frame &frame, Interval &range, bool &hasExcept, int64_t &except);
  Value checkResult(const ast::Type &type, Value value, Span span, Frame &callee);
  const ast::LayerItem *findLayer(const std::string &name, int file) const;
  uint64_t extend(uint64_t key, uint64_t number) const;

  // ---- Builtins.cpp, ShapeBuiltins.cpp, RowBuiltins.cpp
  Value callBuiltin(const ast::LayerItem &item, const ast::Expr &site, const std::vector<Argument> &sizes, bool dots,
                    const std::vector<Argument> &args, uint64_t key, Frame &frame);
  Value plainImplicit(const std::string &name, Span span, Frame &frame);
  Value callImplicit(const std::string &name, const ast::Expr &site, const std::vector<Argument> &args, Frame &frame);
  std::optional<Value> constantFunction(const std::string &name, const std::vector<Argument> &args, Span span,
                                        Frame &frame);
  Value builtinReshape(const std::vector<Argument> &sizes, bool dots, const std::vector<Argument> &args, Span span,
                       Frame &frame);
  Value builtinExpand(const std::vector<Argument> &sizes, bool dots, const std::vector<Argument> &args, Span span,
                      Frame &frame);
  Value builtinVector(const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinConcat(const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinPad(const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinReverse(const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinCount(const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinRange(const std::vector<Argument> &sizes, Span span, Frame &frame);
  Value builtinRandom(const std::string &name, const std::vector<Argument> &sizes, bool dots,
                      const std::vector<Argument> &args, uint64_t key, Span span, Frame &frame);
  std::optional<int64_t> groupSize(const Argument &group, Frame &frame);
  bool groupsAllowed(const char *name, Span span, Frame &frame);
  Value builtinGroupMean(const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinGroupAll(const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinGroupPlace(const std::vector<Argument> &args, Span span, Frame &frame);
  // ---- Weights.cpp
  Value builtinWeight(const std::vector<Argument> &args, Span span, Frame &frame);
  int parameterAt(const std::string &path) const;
  void meetModel(Frame &frame);
  void reportNoParameter(const std::string &text, Span span, Frame &frame);
  Value builtinCast(const std::string &name, const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinAlongAxis(OpKind kind, const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinCrossEntropy(const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinAttend(const ast::LayerItem &item, const ast::Expr &site, const std::vector<Argument> &args,
                      uint64_t key, Frame &frame);
  bool bindBuiltin(const ast::LayerItem &item, const std::vector<Argument> &args, Span span, Frame &frame, Frame &callee);
  // ---- WindowBuiltins.cpp
  Value builtinConvolution(const ast::LayerItem &item, const std::vector<Argument> &args, Span span, Frame &frame);
  Value builtinPool(const ast::LayerItem &item, const std::vector<Argument> &args, Span span, Frame &frame);
  std::optional<int64_t> wholeArgument(const Frame &callee, const char *name, int64_t least, Span span, Frame &frame);
  bool windowSizes(const Frame &callee, const std::vector<const char *> &names, const std::string &builtin, Span span, Frame &frame);
  Tensor channelsLast(const Tensor &x, bool columnsOnly, Span span, Frame &frame);
  Tensor channelsFirst(Tensor y, bool columnsOnly, Span span, Frame &frame);
  std::optional<std::vector<Number>> sizeList(const std::vector<Argument> &sizes, bool dots, Frame &frame);
  std::optional<size_t> axisArgument(const Argument *arg, const Tensor &x, int64_t fallback, Span span, Frame &frame,
                                     const char *what);
  // Arguments by position or name; nullptr where one is absent. False after an error.
  bool takeArguments(const std::string &builtin, const std::vector<Argument> &args,
                     const std::vector<const char *> &names, size_t required, Span span, Frame &frame,
                     std::vector<const Argument *> &taken);

  // ---- Emit.cpp: ops
  Tensor emit(Op op, DType dtype, std::vector<Number> axes, Span span, Frame &frame);
  int emit(Op op, TensorType type, Span span, Frame &frame); // of a type that no user sees
  bool asksForF64() const;
  bool checkAxis(const Number &axis, Span span, Frame &frame);
  int batchAxis(const std::vector<Number> &axes) const;
  bool isBatch(const Number &axis) const { return batchDim >= 0 && axis.isDim(batchDim); }
  bool sameSize(const Number &a, const Number &b) const;
  const Number &betterName(const Number &a, const Number &b) const;

  // ---- Report.cpp: messages
  Diagnostic &report(Code code, Span span, std::string message, const Frame &frame);
  Value failure(Code code, Span span, std::string message, const Frame &frame);
  std::string pathOf(const Frame &frame) const;
  std::string originOf(const Number &number) const;
  std::string equalValuesHelp(const Number &a, const Number &b) const;
  std::string sizeText(const Number &number) const { return withValue(number, dims); }
  // Of a tensor of which no axis is called so: help, if one of them is as long, but has another name or none.
  std::string sameLength(const Tensor &tensor, const Number &size) const;
  std::string typeOf(const Tensor &tensor) const { return typeText(tensor.dtype, tensor.axes, dims); }
  void labelOperand(Diagnostic &diagnostic, Span span, const Value &value, const Number *size = nullptr);
  const Parameter *parameterOf(const Value &value) const;
  std::string textOf(Span span) const;
  std::string asProduct(const ast::Expr &expr) const;
  std::string howToStretch(const Tensor &shorter, Span span, const Tensor &longer) const;
  Value indexIsNoValue(const std::string &name, Span span, const Frame &frame);

  // ---- TrainBlock.cpp, TrainKeys.cpp, DataBlock.cpp, PlanBlock.cpp
  void checkData(const ast::DataItem &item);
  void readTableWord(const ast::FieldModifier &modifier, const Dataset &data, cinch::Field &field, Frame &frame);
  void checkTrain();
  void startTrain(Frame &frame);
  void elaborateStep();
  void elaborateEvaluation();
  // ---- Predictions.cpp
  void elaboratePrediction();
  Tensor examplesFirst(const Tensor &tensor, Span span, Frame &frame);
  std::vector<NamedValue> modelResults(Frame &frame);
  void predictClause(const ast::Statement &statement, Frame &frame);
  int evalLoss(Frame &frame);
  void checkLoss(int op, Frame &frame);
  void checkReductions(int loss, Frame &frame);
  void checkTrained();
  std::optional<Number> settingNumber(const ast::Expr &expr, const std::string &key, const Range &range, Frame &frame);
  void readCombine(const ast::Setting &setting, Frame &frame);
  void readShards(const ast::Setting &setting, Frame &frame);
  void checkDelays(Span span, Frame &frame);
  std::optional<Number> wordNumber(const ast::SettingWord &word, const std::string &key, const Range &range,
                                   Frame &frame);
  std::vector<int> matchPath(bool isString, const std::string &text, Span span, Frame &frame);
  std::vector<int> matchPaths(const std::vector<ast::Arg> &args, Frame &frame);
  void leaveOut(std::vector<int> &named, const ast::Path &path, Frame &frame);
  void refuseExcept(const ast::Arg &arg, Code code, Frame &frame);
  void refuseExcept(const ast::Setting &setting, Frame &frame);
  bool readOptions(const std::string &what, const ast::SettingWord &word,
                   const std::map<std::string, std::function<void(const ast::Arg &)>> &readers,
                   const std::vector<std::string> &required, Frame &frame, std::vector<const ast::Expr *> *plain = nullptr);
  void readHyperparameter(const Hyperparameter &wanted, const ast::Expr &expr, Frame &frame, double *target);
  void readOptimizer(const ast::Setting &setting, Frame &frame);
  bool readPlaces(const ast::Arg &arg, std::vector<int64_t> &places, Frame &frame);
  void readSchedule(const ast::Setting &setting, Frame &frame);
  std::string fieldDifference(size_t field, int dataset, size_t other) const;
  bool sameField(size_t field, int dataset, size_t other) const;
  Span optionSpan(const Dataset &data, const char *option) const;
  void warnOfOtherValues(int dataset);
  void checkSameFields(int dataset, Span span, Frame &frame);
  int lackingField(const Graph &reader, int dataset) const;
  void warnUnusedData();
  void readClip(const ast::Setting &setting, Frame &frame);
  void readPrecision(const ast::Setting &setting, Frame &frame);
  bool oneWord(const ast::Setting &setting, const char *form, Frame &frame);
  std::string settingWithEqual(const char *key, const char *other) const;
  void applySettings(); // SetFlag.cpp
  std::optional<Number> readNumber(const ast::Setting &setting, const char *form, const Range &range, Frame &frame);
  void readSeed(Frame &frame);
  void readSteps(const ast::Setting &setting, Frame &frame);
  void readGrain(const ast::Setting &setting, Frame &frame);
  void readDelay(const ast::Setting &setting, Frame &frame);
  void readFreeze(const ast::Setting &setting, Frame &frame);
  void readEma(const ast::Setting &setting, Frame &frame);
  std::map<std::string, Span> readKeys(Frame &frame);
  std::string exampleOfTaking(const OptimizerRule &rule, int optimizer);
  void assignOptimizers(Frame &frame);
  void checkKeys();
  void describeText();
  // ---- PlanBlock.cpp
  void checkPlan();
  void readMemory(const ast::SettingWord &word, Frame &frame);
  void readMicrobatch(const ast::SettingWord &word, Frame &frame);
  void readStages(const ast::SettingWord &word, Frame &frame);
  void readCount(const ast::SettingWord &word, const std::string &key, int64_t &target, Frame &frame);
  void readStageSchedule(const ast::SettingWord &word, Frame &frame);
  void readOffload(const ast::SettingWord &word, Frame &frame);
  void readRemat(const ast::SettingWord &word, Frame &frame);
  void checkGrain();
  // ---- EveryKey.cpp
  void readEvery(const ast::Setting &setting, Frame &frame);
  void checkBest(Frame &frame);
  bool readEval(const ast::SettingWord &what, Every &every, Frame &frame);
  bool readCheckpoint(const ast::SettingWord &what, Every &every, Frame &frame);
  bool readLog(const ast::SettingWord &what, Every &every, Frame &frame);
  void readBestMetric(const ast::Expr &e, Every &every, Frame &frame);
  std::function<void(const ast::Arg &)> countReader(const char *name, int64_t &target, Frame &frame);
  // ---- NamesBlock.cpp
  void checkNamesBlock(const ast::NamesItem &item);
  void checkNameMaps();
  void readInit(const ast::Setting &setting, Frame &frame);
  void orderParameters();
  void addAverages();

  const SourceList &sources;
  const ast::File &prelude, &file;
  const Options &options;
  Diagnostics &diags;
  NameTables tables;

  DimTable dims;
  int batchDim = -1;
  Frame fileFrame, preludeFrame;
  std::unordered_map<std::string, int> datasetIndex;
  const ast::TrainItem *train = nullptr;
  const ast::PlanItem *plan = nullptr;
  std::set<std::string> usedOverrides;
  std::set<std::string> reported; // one diagnostic for each code, place and instance, over the three graphs
  std::vector<std::vector<int>> parameterOrder;
  std::vector<std::vector<Number>> parameterAxes; // in the order in which the parameters were met
  std::vector<std::vector<std::vector<Number>>> fieldAxes; // of every field of every dataset
  std::vector<int> optimizerOf;                            // of each parameter, the one that names it; -1: none
  bool unclearOptimizer = false;                           // of one it is not known which parameters it takes; that is said already
  int restOptimizer = -1;                                  // the one without `on`
  std::set<std::pair<int, int>> sparedBy;                  // (optimizer, parameter): `decay .. except`
  std::map<int, Span> updatedAt;                           // states, as numbers of parameters
  std::vector<bool> dataComplete;
  std::vector<const ast::Expr *> modelSites; // calls of the model, in the order they were met

  Program program;
  Node root;
  GraphBuilder *graph = nullptr;
  GraphMode mode = GraphMode::Step;
  bool training = true;
  bool parametersFixed = false; // after the step graph: evaluation may not need others
  int blocks = 0;
  int loopsMade = 0;
  // Reversible layers (Reversible.cpp).
  bool enterCoupling(const Call &call, Frame &callee, Frame &caller);
  bool checkCoupling(const Call &call, const std::vector<Value> &results, const std::vector<Span> &spans, Frame &callee);
  int couplingOperand(const Tensor &result, const Tensor &stream);
  bool dependsOn(int op, int wanted, int cut);
  int reversibleDepth = 0; // layers around what is evaluated that are
  std::vector<ActiveLoop> activeLoops; // around what is evaluated, from the outside
  int drawsForbidden = 0; // inside a call from index notation

  std::map<int, std::vector<int>> blockChains; // result of a `repeat` -> results of all its blocks
  long evaluations = 0;                        // of expressions; bounds the time a file can take
  int definitionDepth = 0, evalDepth = 0;
  int badOps = 0;   // ops that were made although something is wrong with them
  long opsLeft = 0; // limit on the size of a program
  bool tooLarge = false;
  double allBytes = 0; // of the tensors of the graph being built
  bool tooManyBytes = false;
  Diagnostic sink; // takes what is said about a diagnostic that was reported before
};

} // namespace cinch
#endif
