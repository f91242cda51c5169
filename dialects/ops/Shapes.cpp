// Shapes.cpp: the shape rules: the types of the results, batch axis included, from those of the operands, and what else an op
// asks of its types and attributes. C1, C2 .. are the constraints as the op's description in dialects/nn numbers them.
#include "dialects/ops/Shapes.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <map>
#include <numeric>
#include <set>

namespace cinch {

using Shape = std::vector<int64_t>;
using Types = std::vector<TensorType>;

// ---- What messages are made of ----------------------------------------------------------------------------------------
static const char *elementName(DType type) {
  static const char *const names[] = {"f32", "i32", "i1", "f64"};
  return names[size_t(type)];
}

std::string typeText(const TensorType &type) {
  std::string text = "tensor<";
  for (int64_t size : type.shape)
    text += std::to_string(size) + "x";
  text += elementName(type.dtype);
  return text + (type.batch < 0 ? ">" : ", #nn.batch<" + std::to_string(type.batch) + ">>");
}

static std::string piece(const char *text) { return text; }
static std::string piece(const std::string &text) { return text; }
static std::string piece(int64_t number) { return std::to_string(number); }
static std::string piece(size_t number) { return std::to_string(number); }
static std::string piece(double number) {
  char buffer[40];
  snprintf(buffer, sizeof buffer, "%.6e", number);
  return buffer;
}
static std::string piece(DType type) { return std::string("'") + elementName(type) + "'"; }
static std::string piece(const TensorType &type) { return "'" + typeText(type) + "'"; }
template <typename... Pieces> static std::string say(const Pieces &...pieces) { return (piece(pieces) + ...); }

// ---- Types ------------------------------------------------------------------------------------------------------------
static bool isFloat(DType type) { return type == DType::F32 || type == DType::F64; }
static int64_t rankOf(const TensorType &type) { return int64_t(type.shape.size()); }
static int64_t elementsOf(const Shape &shape, size_t count) {
  return std::accumulate(shape.begin(), shape.begin() + count, int64_t(1), std::multiplies<int64_t>());
}
static TensorType withElement(TensorType type, DType element) {
  type.dtype = element;
  return type;
}
static TensorType withAxis(TensorType type, int64_t axis, int64_t size) {
  type.shape[axis] = size;
  return type;
}
// Without some axes; a batch axis among them goes away too.
static TensorType withoutAxes(const TensorType &type, const Shape &axes, DType element) {
  TensorType result{element, {}, -1};
  for (int64_t axis = 0; axis < rankOf(type); ++axis) {
    if (std::find(axes.begin(), axes.end(), axis) != axes.end())
      continue;
    if (axis == type.batch)
      result.batch = int(result.shape.size());
    result.shape.push_back(type.shape[axis]);
  }
  return result;
}

// ---- Constants and element-wise ops -----------------------------------------------------------------------------------
static bool isWhole(double value) { return std::floor(value) == value && std::fabs(value) < 9007199254740992.0; }

static std::string constant(const OpView &op, Types &results) {
  double number = op.number(Key::Number);
  DType element = results[0].dtype;
  if ((element == DType::I32 && (!isWhole(number) || std::fabs(number) > 2147483648.0)) ||
      (element == DType::Bool && number != 0 && number != 1)) // C1
    return say("expected a number that ", element, " holds, got ", number);
  return "";
}

static std::string oneAxis(const TensorType &type, const std::string &size) {
  if (type.shape.size() != 1) // C1
    return say("expected one axis", size, ", got ", type);
  if (type.batch >= 0) // C2
    return say("expected no batch axis, got ", type);
  return "";
}

static std::string vector(const OpView &op, Types &results) {
  size_t count = std::get<std::vector<double>>(op.attribute(Key::Numbers)).size();
  std::string of = say(" of ", count, " elements");
  if (rankOf(results[0]) == 1 && results[0].shape[0] != int64_t(count)) // C1
    return say("expected one axis", of, ", got ", results[0]);
  return oneAxis(results[0], of);
}

static std::string random(const OpView &op, Types &results) {
  auto draw = Draw(op.integer(Key::Draw));
  DType element = results[0].dtype;
  bool fits = draw == Draw::Int    ? element == DType::I32
              : draw == Draw::Bool ? element == DType::Bool
                                   : isFloat(element);
  if (!fits) // C1
    return say("expected an element type that fits '", nameOf(ChoiceType::Draw, int64_t(draw)), "', got ", element);
  double number = op.number(Key::Number);
  if ((draw == Draw::Int && (!isWhole(number) || number < 1)) ||
      (draw == Draw::Bool && !(number >= 0 && number <= 1))) // C2
    return say("expected a count >= 1 or a probability in [0, 1], got ", number);
  return "";
}

static std::string compare(const OpView &op, Types &results) {
  if (op.in(0) != op.in(1))
    return say("expected one type, got ", op.in(0), " and ", op.in(1));
  results.push_back(withElement(op.in(0), DType::Bool));
  return "";
}

static std::string where(const OpView &op, Types &results) {
  const TensorType &condition = op.in(0), &a = op.in(1), &b = op.in(2);
  if (condition != withElement(a, DType::Bool)) // C1
    return say("expected the condition to have the shape and batch axis of ", a, ", got ", condition);
  if (a != b) // C2
    return say("expected one type, got ", a, " and ", b);
  results.push_back(a);
  return "";
}

static std::string cast(const OpView &op, Types &results) {
  const TensorType &from = op.in(0), &to = results[0];
  if (withElement(from, to.dtype) != to) // C1
    return say("expected shape and batch axis to stay, got ", from, " to ", to);
  if (isFloat(from.dtype) && !isFloat(to.dtype)) // C2
    return say("expected no float to become an integer, got ", from, " to ", to);
  return "";
}

// ---- Shape ------------------------------------------------------------------------------------------------------------
static std::string broadcast(const OpView &op, Types &results) {
  const TensorType &from = op.in(0), &to = results[0];
  const Shape &axes = op.integers(Key::Axes);
  if (int64_t(axes.size()) != rankOf(from)) // C1
    return say("expected ", rankOf(from), " axes, got ", axes.size());
  int64_t last = -1;
  for (size_t i = 0; i < axes.size(); ++i) {
    if (axes[i] <= last || axes[i] >= rankOf(to)) // C1
      return say("expected increasing axes below ", rankOf(to), ", got ", axes[i], " behind ", last);
    last = axes[i];
    if (from.shape[i] != to.shape[last]) // C2
      return say("axis ", i, " has ", from.shape[i], " elements, axis ", last, " of the result ", to.shape[last]);
  }
  if (from.dtype != to.dtype)
    return say("expected one element type, got ", from, " and ", to);
  bool fits = from.batch >= 0 ? to.batch == axes[from.batch]
                              : to.batch < 0 || std::find(axes.begin(), axes.end(), to.batch) == axes.end();
  if (!fits) // C3
    return say("the batch axis does not carry over, from ", from, " to ", to);
  return "";
}

static std::string transpose(const OpView &op, Types &results) {
  const TensorType &x = op.in(0);
  const Shape &permutation = op.integers(Key::Permutation);
  Shape sorted = permutation, axes(x.shape.size());
  std::sort(sorted.begin(), sorted.end());
  std::iota(axes.begin(), axes.end(), 0);
  if (sorted != axes) // C1
    return say("expected a permutation of ", rankOf(x), " axes");
  TensorType result{x.dtype, {}, -1};
  for (int64_t axis : permutation) {
    if (axis == x.batch)
      result.batch = int(result.shape.size());
    result.shape.push_back(x.shape[axis]);
  }
  results.push_back(result);
  return "";
}

static std::string reshape(const OpView &op, Types &results) {
  const TensorType &from = op.in(0), &to = results[0];
  if (from.dtype != to.dtype || elementsOf(from.shape, from.shape.size()) != elementsOf(to.shape, to.shape.size())) // C1
    return say("expected as many elements of one type, got ", from, " and ", to);
  if ((from.batch < 0) != (to.batch < 0) ||
      (from.batch >= 0 && (from.shape[from.batch] != to.shape[to.batch] ||
                           elementsOf(from.shape, from.batch) != elementsOf(to.shape, to.batch)))) // C2
    return say("expected the batch axis to keep its size and place, got ", from, " and ", to);
  return "";
}

static std::string slice(const OpView &op, Types &results) {
  int64_t axis = op.integer(Key::Axis), begin = op.integer(Key::Begin), end = op.integer(Key::End);
  if (begin < 0 || begin >= end || end > op.in(0).shape[axis]) // C2
    return say("expected a range inside ", op.in(0).shape[axis], " elements, got ", begin, " to ", end);
  results.push_back(withAxis(op.in(0), axis, end - begin));
  return "";
}

static std::string pad(const OpView &op, Types &results) {
  int64_t axis = op.integer(Key::Axis), before = op.integer(Key::Before), after = op.integer(Key::After);
  if (before < 0 || after < 0) // C2
    return say("expected no negative count, got ", before, " and ", after);
  results.push_back(withAxis(op.in(0), axis, before + op.in(0).shape[axis] + after));
  return "";
}

static std::string concat(const OpView &op, Types &results) {
  const TensorType &first = op.in(0);
  int64_t axis = op.integer(Key::Axis), size = 0;
  for (const TensorType *type : op.operands) {
    if (rankOf(*type) != rankOf(first) || withAxis(*type, axis, 1) != withAxis(first, axis, 1)) // C3
      return say("expected all but axis ", axis, " to agree, got ", first, " and ", *type);
    size += type->shape[axis];
  }
  results.push_back(withAxis(first, axis, size));
  return "";
}

// ---- Sums, products and places ----------------------------------------------------------------------------------------
static std::string reduce(const OpView &op, Types &results) {
  const TensorType &x = op.in(0);
  const Shape &axes = op.integers(Key::Axes);
  int64_t last = -1;
  if (axes.empty()) // C1
    return "expected an axis";
  for (int64_t axis : axes) {
    if (axis <= last || axis >= rankOf(x)) // C1
      return say("expected increasing axes below ", rankOf(x), ", got ", axis, " behind ", last);
    last = axis;
  }
  auto reduction = Reduction(op.integer(Key::Reduction));
  bool logical = reduction == Reduction::Any || reduction == Reduction::All;
  if (logical != (x.dtype == DType::Bool)) // C2
    return say("'", nameOf(ChoiceType::Reduction, int64_t(reduction)), "' does not fit ", x);
  results.push_back(withoutAxes(x, axes, x.dtype));
  return "";
}

// The labels of axes: the size that each stands for, and which of them is the batch axis.
namespace {
struct Labels {
  std::map<int64_t, int64_t> sizes;
  int64_t batch = -1;

  std::string read(const TensorType &type, const Shape &labels) {
    std::set<int64_t> seen;
    if (labels.size() != type.shape.size()) // C1
      return say("expected one label an axis of ", type, ", got ", labels.size());
    for (size_t axis = 0; axis < labels.size(); ++axis) {
      int64_t label = labels[axis];
      if (label < 0 || !seen.insert(label).second) // C1
        return say("label ", label, " is negative or twice in one operand");
      int64_t size = sizes.try_emplace(label, type.shape[axis]).first->second;
      if (size != type.shape[axis]) // C2
        return say("label ", label, " stands for ", size, " and for ", type.shape[axis], " elements");
      if (int(axis) != type.batch)
        continue;
      if (batch >= 0 && batch != label) // C5
        return say("the batch axes have two labels, ", batch, " and ", label);
      batch = label;
    }
    return "";
  }
  // False if an axis that is not the batch axis has its label.
  bool keepsBatch(const TensorType &type, const Shape &labels) const {
    for (size_t axis = 0; axis < labels.size(); ++axis)
      if (labels[axis] == batch && int(axis) != type.batch)
        return false;
    return true;
  }
  // Labels 0 .. rank - 1 as axes.
  TensorType type(DType element, int64_t rank) const {
    TensorType result{element, {}, batch < rank ? int(batch) : -1};
    for (int64_t label = 0; label < rank; ++label)
      result.shape.push_back(sizes.at(label));
    return result;
  }
};
} // namespace

static std::string contract(const OpView &op, Types &results) {
  const TensorType &lhs = op.in(0), &rhs = op.in(1);
  const Shape &a = op.integers(Key::LhsLabels), &b = op.integers(Key::RhsLabels);
  auto contains = [](const Shape &labels, int64_t label) {
    return std::find(labels.begin(), labels.end(), label) != labels.end();
  };
  int64_t rank = rankOf(results[0]), firstSum = -1;
  Labels labels;
  if (std::string fault = labels.read(lhs, a); !fault.empty())
    return fault;
  if (std::string fault = labels.read(rhs, b); !fault.empty())
    return fault;
  for (int64_t label = 0; label < rank; ++label)
    if (!labels.sizes.count(label)) // C3
      return say("result axis ", label, " is in no operand");
  for (const auto &[label, size] : labels.sizes)
    if (label >= rank) {
      if (!contains(a, label) || !contains(b, label)) // C3
        return say("summed label ", label, " is in one operand only");
      firstSum = firstSum < 0 ? label : std::min(firstSum, label);
    }
  bool ofBoth = lhs.batch >= 0 && rhs.batch >= 0;
  if (labels.batch >= rank && (labels.batch != firstSum || !ofBoth)) // C5
    return say("expected a summed batch axis to be one of both operands and the slowest, got label ", labels.batch,
               " and slowest ", firstSum);
  if (labels.batch >= 0 && (!labels.keepsBatch(lhs, a) || !labels.keepsBatch(rhs, b))) // C5
    return say("label ", labels.batch, " is the batch axis of one operand only");
  TensorType expected = labels.type(lhs.dtype, rank);
  if (results[0] != expected) // C4, C5
    return say("expected result type ", expected, ", got ", results[0]);
  if (lhs.dtype != rhs.dtype) // C4
    return say("expected one element type, got ", lhs, " and ", rhs);
  return "";
}

// The type of x[.., index, ..]; operand 0 of the op is left to the caller, the others are the index tensors.
static std::string gathered(const OpView &op, const TensorType &x, TensorType &result) {
  const Shape &ofX = op.integers(Key::XLabels);
  const Lists &ofIndices = std::get<Lists>(op.attribute(Key::IndexLabels));
  size_t indices = op.operands.size() - 1;
  if (int64_t(ofX.size()) != rankOf(x) || ofIndices.size() != indices) // C1
    return say("expected one label an axis of ", x, " and one list an index tensor, got ", ofX.size(), " and ",
               ofIndices.size());
  std::vector<int> named(indices, 0);
  TensorType kept{x.dtype, {}, -1};
  Shape keptLabels;
  for (size_t axis = 0; axis < ofX.size(); ++axis) {
    int64_t label = ofX[axis];
    if (label < 0 && (-label > int64_t(indices) || int(axis) == x.batch)) // C1, C5
      return say("entry ", label, " names no index tensor, or takes the batch axis by index");
    if (label < 0) {
      ++named[-label - 1];
      continue;
    }
    if (int(axis) == x.batch)
      kept.batch = int(kept.shape.size());
    kept.shape.push_back(x.shape[axis]);
    keptLabels.push_back(label);
  }
  Labels labels;
  if (std::string fault = labels.read(kept, keptLabels); !fault.empty())
    return fault;
  for (size_t i = 0; i < indices; ++i)
    if (std::string fault = labels.read(op.in(i + 1), ofIndices[i]); !fault.empty())
      return fault;
  bool keepsBatch = labels.keepsBatch(kept, keptLabels);
  for (size_t i = 0; i < indices; ++i)
    keepsBatch &= labels.keepsBatch(op.in(i + 1), ofIndices[i]);
  if (labels.batch >= 0 && !keepsBatch) // C5
    return say("label ", labels.batch, " is the batch axis of one operand only");
  int64_t rank = int64_t(labels.sizes.size());
  if (rank > 0 && labels.sizes.rbegin()->first != rank - 1) // C3
    return "expected the labels of the result without a gap";
  if (std::any_of(named.begin(), named.end(), [](int count) { return count != 1; })) // C4
    return "expected every index tensor to be named once";
  result = labels.type(x.dtype, rank);
  return "";
}

static std::string gather(const OpView &op, Types &results) {
  results.emplace_back();
  return gathered(op, op.in(0), results[0]);
}

static std::string scatterAdd(const OpView &op, Types &results) {
  TensorType updates;
  if (std::string fault = gathered(op, results[0], updates); !fault.empty())
    return fault;
  if (updates != op.in(0)) // C1
    return say("expected updates of type ", updates, ", got ", op.in(0));
  return "";
}

// ---- Rows, losses and attention ---------------------------------------------------------------------------------------
static std::string indexOfExtreme(const OpView &op, Types &results) {
  results.push_back(withoutAxes(op.in(0), {op.integer(Key::Axis)}, DType::I32));
  return "";
}

static std::string crossEntropy(const OpView &op, Types &results) {
  const TensorType &logits = op.in(0), &y = op.in(1);
  TensorType loss = withoutAxes(logits, {op.integer(Key::Axis)}, logits.dtype);
  if (y != withElement(loss, y.dtype)) // C2
    return say("expected labels of type ", withElement(loss, y.dtype), ", got ", y);
  double smooth = op.number(Key::Smooth);
  if (!(smooth >= 0 && smooth < 1)) // C3
    return say("expected a smoothing in [0, 1), got ", smooth);
  results.push_back(loss);
  return "";
}

static std::string crossEntropyGrad(const OpView &op, Types &) {
  Types loss;
  if (std::string fault = crossEntropy(op, loss); !fault.empty())
    return fault;
  return loss[0] != op.in(2) ? say("expected a gradient of type ", loss[0], ", got ", op.in(2)) : "";
}

static std::string attend(const OpView &op, Types &results) {
  const TensorType &q = op.in(0), &k = op.in(1), &v = op.in(2);
  auto fail = [&](const char *what) { return say(what, ", got ", q, ", ", k, " and ", v); };
  int64_t lead = rankOf(q) - 3;
  if (lead < 0 || rankOf(k) != rankOf(q) || rankOf(v) != rankOf(q)) // C3
    return fail("expected q, k and v of equal rank, at least 3");
  auto leading = [&](const TensorType &type) { return Shape(type.shape.begin(), type.shape.begin() + lead); };
  if (leading(q) != leading(k) || leading(q) != leading(v) || q.batch != k.batch || q.batch != v.batch ||
      q.batch >= lead) // C1
    return fail("expected the same leading axes, the batch axis among them");
  int64_t A = q.shape[lead], T = q.shape[lead + 1], K = q.shape[lead + 2];
  int64_t G = k.shape[lead], S = k.shape[lead + 1], E = v.shape[lead + 2];
  if (A % G) // C2
    return fail("expected a multiple of the key heads as query heads");
  if (k.shape[lead + 2] != K || v.shape[lead] != G || v.shape[lead + 1] != S) // C3
    return fail("expected q[A, T, K], k[G, S, K], v[G, S, E]");
  if (k.dtype != q.dtype || v.dtype != q.dtype) // C5
    return fail("expected one element type");
  TensorType keys{DType::Bool, leading(q), q.batch}, bias{q.dtype, {A, T, S}, -1};
  keys.shape.push_back(S);
  if (op.operands[3] && op.in(3) != keys) // C3
    return say("expected keys of type ", keys, ", got ", op.in(3));
  if (op.operands[4] && op.in(4) != bias) // C3, C4
    return say("expected a bias of type ", bias, ", got ", op.in(4));
  double dropout = op.number(Key::Dropout);
  if (!(dropout >= 0 && dropout < 1)) // C6
    return say("expected dropout in [0, 1), got ", dropout);
  results.push_back(withAxis(q, lead + 2, E));
  results.push_back(withoutAxes(q, {lead + 2}, q.dtype));
  return "";
}

static std::string attendGrad(const OpView &op, Types &results) {
  auto same = [&](const TensorType &a, const TensorType &b, const char *name) { // C1
    return a != b ? say(name, " has type ", a, ", expected ", b) : std::string();
  };
  const char *const names[] = {"dq", "dk", "dv"};
  for (size_t i = 0; i < 3; ++i)
    if (std::string fault = same(results[i], op.in(i), names[i]); !fault.empty())
      return fault;
  if (std::string fault = same(op.in(5), op.in(3), "dout"); !fault.empty())
    return fault;
  const TensorType &q = op.in(0);
  if (op.in(4) != withoutAxes(q, {rankOf(q) - 1}, q.dtype)) // C1
    return say("lse has type ", op.in(4), ", which is not that of a row of q");
  if (results.size() < 4)
    return "";
  return op.operands[7] ? same(results[3], op.in(7), "dbias") : "expected a bias beside its gradient"; // C2
}

// ---- Convolutions and pools -------------------------------------------------------------------------------------------
// How often a window fits along an axis.
static int64_t placesOf(int64_t size, int64_t window, int64_t stride, int64_t pad, int64_t dilate = 1) {
  int64_t room = size + 2 * pad - dilate * (window - 1) - 1;
  return room < 0 ? 0 : room / stride + 1;
}

// Leading axes, H, W and channels; the batch axis is one of the leading ones.
static std::string spatial(const TensorType &type) {
  if (rankOf(type) < 3 || type.batch >= rankOf(type) - 3) // C1
    return say("expected rows, columns and channels behind the leading axes, the batch axis among these, got ", type);
  return "";
}

// The sizes of [.., P, Q, C] given those of [.., H, W, C].
static TensorType pooled(const OpView &op, TensorType type) {
  size_t rows = type.shape.size() - 3;
  for (size_t i : {0, 1})
    type.shape[rows + i] = placesOf(type.shape[rows + i], op.integers(Key::Window)[i], op.integers(Key::Stride)[i],
                                    op.integers(Key::Pad)[i]);
  return type;
}

static std::string windows(const OpView &op, const TensorType &x) {
  const Shape &window = op.integers(Key::Window), &stride = op.integers(Key::Stride), &pad = op.integers(Key::Pad);
  for (const Shape *list : {&window, &stride, &pad})
    if (list->size() != 2) // C2
      return say("expected two numbers, one of rows and one of columns, got ", list->size());
  for (size_t i : {0, 1})
    if (window[i] < 1 || stride[i] < 1 || pad[i] < 0 || pad[i] >= window[i]) // C2
      return say("expected windows and strides of at least 1 and a padding from 0 to below the window, got ", window[i], ", ",
                 stride[i], " and ", pad[i]);
  if (std::string fault = spatial(x); !fault.empty())
    return fault;
  TensorType y = pooled(op, x);
  if (y.shape[y.shape.size() - 3] < 1 || y.shape[y.shape.size() - 2] < 1) // C3
    return say("a window of ", window[0], " x ", window[1], " does not fit into ", x);
  return "";
}

static std::string pool(const OpView &op, Types &results) {
  if (std::string fault = windows(op, op.in(0)); !fault.empty())
    return fault;
  results.push_back(pooled(op, op.in(0)));
  if (op.kind == OpKind::MaxPool)
    results.push_back(withElement(results[0], DType::I32));
  return "";
}

static std::string poolGrad(const OpView &op, Types &results) {
  if (std::string fault = windows(op, results[0]); !fault.empty())
    return fault;
  const TensorType &dy = *op.operands.back();
  if (TensorType y = pooled(op, results[0]); dy != y) // C3
    return say("expected a gradient of type ", y, ", got ", dy);
  if (op.kind == OpKind::MaxPoolGrad && op.in(0) != withElement(dy, DType::I32)) // C4
    return say("expected places of type ", withElement(dy, DType::I32), ", got ", op.in(0));
  return "";
}

static std::string conv(const OpView &op, Types &results) {
  auto gives = ConvPart(op.integer(Key::Gives));
  const TensorType &image = gives == ConvPart::Image ? results[0] : op.in(0);
  const TensorType &output = gives == ConvPart::Output ? results[0] : gives == ConvPart::Image ? op.in(0) : op.in(1);
  const TensorType &filter = gives == ConvPart::Filter ? results[0] : op.in(1);
  const Shape &stride = op.integers(Key::Stride), &pad = op.integers(Key::Pad), &dilate = op.integers(Key::Dilate);
  int64_t groups = op.integer(Key::Groups);
  if (stride.size() != 2 || pad.size() != 2 || dilate.size() != 2) // C2
    return "expected two strides, paddings and dilations, of rows and of columns";
  for (size_t i : {0, 1})
    if (stride[i] < 1 || pad[i] < 0 || dilate[i] < 1) // C2
      return say("expected strides and dilations of at least 1 and no negative padding, got ", stride[i], ", ", dilate[i],
                 " and ", pad[i]);
  for (const TensorType *type : {&image, &output})
    if (std::string fault = spatial(*type); !fault.empty())
      return fault;
  size_t rows = image.shape.size() - 3;
  if (output.shape.size() != image.shape.size() || output.batch != image.batch ||
      !std::equal(image.shape.begin(), image.shape.begin() + rows, output.shape.begin())) // C1
    return say("expected the same leading axes, got ", image, " and ", output);
  if (rankOf(filter) != 4 || filter.batch >= 0) // C1
    return say("expected a filter of four axes without the examples', got ", filter);
  int64_t in = image.shape.back(), out = output.shape.back();
  if (groups < 1 || in % groups || out % groups || filter.shape[2] != in / groups || filter.shape[3] != out) // C2, C3
    return say("expected a filter from ", in, " to ", out, " channels in ", groups, " groups, got ", filter);
  for (size_t i : {0, 1})
    if (int64_t places = placesOf(image.shape[rows + i], filter.shape[i], stride[i], pad[i], dilate[i]);
        places < 1 || output.shape[rows + i] != places) // C4
      return say("expected ", places, " places of the filter along axis ", rows + i, " of the output, got ", output);
  if (image.dtype != filter.dtype || output.dtype != filter.dtype) // C5
    return say("expected one element type, got ", image, ", ", filter, " and ", output);
  return "";
}

static std::string groupMean(const OpView &op, Types &results) {
  const TensorType &x = op.in(0);
  int64_t group = op.integer(Key::Group);
  if (x.batch < 0 || group < 1 || x.shape[x.batch] % group) // C1
    return say("expected a batch axis that groups of ", group, " examples divide, got ", x);
  results.push_back(x);
  return "";
}

// ---- Training ---------------------------------------------------------------------------------------------------------
static std::string sumSquares(const OpView &op, Types &) {
  return op.in(0).batch >= 0 ? say("expected no batch axis, got ", op.in(0)) : ""; // C1
}

static std::string newState(const OpView &op, Types &results) {
  if (op.in(0).batch >= 0) // C1
    return say("expected no batch axis, got ", op.in(0));
  results.push_back(op.in(0));
  return "";
}

static std::string update(const OpView &op, Types &results) {
  const TensorType &parameter = op.in(0);
  if (parameter.batch >= 0) // C1
    return say("expected a parameter without batch axis, got ", parameter);
  auto same = [&](const TensorType &other) { // C1
    return other != parameter ? say("expected the parameter's type ", parameter, ", got ", other) : std::string();
  };
  for (size_t i = 1; i < op.operands.size(); ++i)
    if (i != 2 && i != 3) // the scalars
      if (std::string fault = same(op.in(i)); !fault.empty())
        return fault;
  for (const TensorType &result : results)
    if (std::string fault = same(result); !fault.empty())
      return fault;
  return "";
}

// ---- Which rule an op has ---------------------------------------------------------------------------------------------
using Rule = std::string (*)(const OpView &, Types &);
static Rule ruleOf(OpKind kind) {
  switch (kind) {
  case OpKind::Constant: return constant;
  case OpKind::Vector: return vector;
  case OpKind::Range: return [](const OpView &, Types &results) { return oneAxis(results[0], ""); };
  case OpKind::Random: return random;
  case OpKind::Compare: return compare;
  case OpKind::Where: return where;
  case OpKind::Cast: return cast;
  case OpKind::Broadcast: return broadcast;
  case OpKind::Transpose: return transpose;
  case OpKind::Reshape: return reshape;
  case OpKind::Slice: return slice;
  case OpKind::Pad: return pad;
  case OpKind::Concat: return concat;
  case OpKind::Reduce: return reduce;
  case OpKind::Contract: return contract;
  case OpKind::Gather: return gather;
  case OpKind::ScatterAdd: return scatterAdd;
  case OpKind::ArgMax: case OpKind::ArgMin: return indexOfExtreme;
  case OpKind::CrossEntropy: return crossEntropy;
  case OpKind::CrossEntropyGrad: return crossEntropyGrad;
  case OpKind::Attend: return attend;
  case OpKind::AttendGrad: return attendGrad;
  case OpKind::Conv: return conv;
  case OpKind::MaxPool: case OpKind::SumPool: return pool;
  case OpKind::MaxPoolGrad: case OpKind::SumPoolGrad: return poolGrad;
  case OpKind::SumSquares: return sumSquares;
  case OpKind::GroupMean: return groupMean;
  case OpKind::NewState: return newState;
  case OpKind::Update: return update;
  default: return nullptr;
  }
}

bool infersTypes(OpKind kind) { return infoOf(kind).infers || infoOf(kind).sameType; }

std::string applyShapeRule(const OpView &op, Types &results) {
  const OpInfo &info = infoOf(op.kind);
  if (info.has(Key::Axis)) { // an axis is one of operand 0, and never the batch's
    int64_t axis = op.integer(Key::Axis);
    if (op.operands.empty())
      return "expected an operand";
    if (axis < 0 || axis >= rankOf(op.in(0)))
      return say("expected an axis below ", rankOf(op.in(0)), ", got ", axis);
    if (axis == op.in(0).batch)
      return say("axis ", axis, " is the batch axis: an op works example by example");
  }
  if (Rule rule = ruleOf(op.kind))
    return rule(op, results);
  if (info.sameType) {
    for (const TensorType *operand : op.operands)
      if (*operand != op.in(0))
        return say("expected one type, got ", op.in(0), " and ", *operand);
    results.push_back(op.in(0));
  }
  return "";
}

std::string checkForm(const OpView &op) {
  const OpInfo &info = infoOf(op.kind);
  size_t next = 0;
  for (const ValueInfo &wanted : info.operands) {
    size_t count = wanted.count == Count::Variadic ? op.operands.size() - next : 1;
    for (; count > 0; --count, ++next) {
      if (next >= op.operands.size() || (!op.operands[next] && wanted.count != Count::Optional))
        return say("operand `", wanted.name, "` is absent");
      if (op.operands[next] && !(bit(op.in(next).dtype) & wanted.types))
        return say("operand `", wanted.name, "` is of type ", op.in(next));
    }
  }
  if (next != op.operands.size())
    return say("expected ", next, " operands, got ", op.operands.size());
  if (op.attributes.size() != info.attributes.size())
    return say("expected ", info.attributes.size(), " attributes, got ", op.attributes.size());
  for (size_t i = 0; i < info.attributes.size(); ++i) {
    const AttrInfo &wanted = info.attributes[i];
    const AttrValue &value = op.attributes[i];
    static const size_t alternatives[] = {2, 3, 1, 4, 5, 6, 2}; // of AttrValue, by kind
    if (wanted.optional && value.index() == 0)
      continue;
    if (value.index() != alternatives[size_t(wanted.kind)])
      return say("attribute `", wanted.name, "` is ", value.index() ? "of another kind" : "absent");
    if (wanted.kind == AttrKind::Choice && !nameOf(wanted.choice, std::get<int64_t>(value)))
      return say("attribute `", wanted.name, "` has no value ", std::get<int64_t>(value));
    if (wanted.kind == AttrKind::Number && !std::isfinite(std::get<double>(value)))
      return say("attribute `", wanted.name, "` is not finite");
  }
  return "";
}

} // namespace cinch
