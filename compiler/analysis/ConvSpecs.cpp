// ConvSpecs.cpp: convolutions and pools as kernel specs.
//
// Image row h, output row p and tap r meet where h = p * stride + r * dilate - pad. What gives the output or the filter walks p
// and r, and h follows; it may lie outside. What gives the image walks h, and p = (h + pad - r * dilate) / stride is whole for every
// so many taps only, which depend on h mod stride: for each such remainder, the image's rows and columns of it are a
// contraction of their own, over its taps. Remainders that follow each other and differ in their taps alone are one contraction together.
#include "compiler/analysis/Specs.h"

#include "compiler/kernels/ElemFacts.h"
#include "compiler/kernels/Winograd.h"
#include "dialects/nn/Grain.h"
#include "dialects/nn/TensorCores.h"
#include "dialects/nn/Winograd.h"

#include <array>
#include <numeric>
#include <tuple>
#include <utility>

using namespace mlir;
using namespace cinch::kernels;

namespace cinch::analysis {
namespace {

// A dim of a contraction: its size, and its strides in the three tensors and in the bounds of rows and columns.
struct Dim {
  int64_t size, image, filter, output, row = 0, column = 0;
};
using Dims = std::vector<Dim>;

struct Convolution {
  std::array<int64_t, 2> stride, pad, dilate; // of rows and of columns
  int batch;                             // which of the leading axes counts examples; -1: none
  View image, filter, output; // strides over their axes
  Shape imageShape, filterShape, outputShape;
  size_t leads = 0;
  int64_t groups = 1;
  Elem elem = Elem::F32;
  bool rounded = false; // of bf16
  bool tf32 = false;    // of f32 on tensor cores
  bool winograd = false; // by minimal filtering
  int64_t firstRow = 0;
  bool movesRows = false;

  int64_t groupIn() const { return filterShape[2]; }
  int64_t groupOut() const { return filterShape[3] / groups; }
  // Convolutions of bf16 and tf32: dims of k, from the outermost on, at each index of which blocks begin anew; of an image or an output the
  // rows of taps, and their columns if the taps of a row do not follow each other.
  void setBlocks(ContractSpec &spec, bool grained, bool ofFilter, bool strided) const {
    bool depthwise = groups > 1 && groupIn() == 1, apart = groups > 1 || dilate[0] > 1 || dilate[1] > 1 || strided;
    spec.rounds = rounded && depthwise;
    spec.pairs = rounded && !depthwise;
    spec.tf32 = tf32 && !depthwise;
    if (spec.pairs || spec.tf32)
      spec.anew = ofFilter ? (batch >= 0 && !grained ? 1 : 0) : apart ? 2 : 1;
  }
  void setWinograd(ContractSpec &spec, bool ofFilter) const {
    spec.winograd = winograd, spec.sumsPlaces = winograd && ofFilter;
    if (!ofFilter)
      spec.firstRow = firstRow, spec.movesRows = movesRows;
  }
  // Of the gradient of a filter, in a loop over blocks of rows: rows whose products are summed together have to be in one block.
  bool hasWholeSums() const { return outputSize(0) % (kWinogradOutputs * rowsOfTilesTogether((outputSize(1) + 1) / kWinogradOutputs)) == 0; }
  // Strides of axis 0 (rows), 1 (columns) or 2 (channels).
  int64_t ofImage(int axis) const { return image.strides[leads + axis]; }
  int64_t ofOutput(int axis) const { return output.strides[leads + axis]; }
  int64_t imageSize(int axis) const { return imageShape[leads + axis]; }
  int64_t outputSize(int axis) const { return outputShape[leads + axis]; }

  // The leading axes; in a chain the batch is the slowest.
  Dims leading(bool batchFirst) const {
    Dims dims;
    for (size_t axis = 0; axis < leads; ++axis) {
      Dim dim{imageShape[axis], image.strides[axis], 0, output.strides[axis]};
      dims.insert(batchFirst && int(axis) == batch ? dims.begin() : dims.end(), dim);
    }
    return dims;
  }
  Dims group() const {
    if (groups == 1)
      return {};
    return {{groups, groupIn() * channelStride(image, imageShape), groupOut() * channelStride(filter, filterShape),
             groupOut() * channelStride(output, outputShape)}};
  }
  // The views say 0 of an axis of one element.
  static int64_t channelStride(const View &view, const Shape &shape) { return shape.back() == 1 ? 1 : view.strides.back(); }

  // Rows of one column each lie in memory as the columns of one row do. Tiles walk columns, so they are taken for these.
  void turnOneColumn() {
    if (imageSize(1) != 1 || outputSize(1) != 1 || filterShape[1] != 1)
      return;
    for (auto *numbers : {&stride, &pad, &dilate})
      std::swap((*numbers)[0], (*numbers)[1]);
    for (auto [view, shape, rows] : {std::tuple{&image, &imageShape, leads}, {&output, &outputShape, leads}, {&filter, &filterShape, size_t(0)}}) {
      std::swap(view->strides[rows], view->strides[rows + 1]);
      std::swap((*shape)[rows], (*shape)[rows + 1]);
    }
  }

  Dim place(int axis) const { // p or q
    return {outputSize(axis), stride[axis] * ofImage(axis), 0, ofOutput(axis), axis == 0 ? stride[0] : 0, axis == 1 ? stride[1] : 0};
  }
  Dim tap(int axis) const { // r or s
    return {filterShape[axis], dilate[axis] * ofImage(axis), filter.strides[axis], 0, axis == 0 ? dilate[0] : 0, axis == 1 ? dilate[1] : 0};
  }
  Dim channelsIn() const { return {groupIn(), ofImage(2), filter.strides[2], 0}; }
  Dim channelsOut() const { return {groupOut(), 0, filter.strides[3], ofOutput(2)}; }
};

ContractSpec contraction(Elem elem, View a, View b, View c, int64_t Dim::*inA, int64_t Dim::*inB, int64_t Dim::*inC,
                         const Dims &batch, const Dims &m, const Dims &n, const Dims &k) {
  ContractSpec spec;
  spec.elem = elem;
  auto sizes = [](const Dims &dims) {
    return llvm::to_vector(llvm::map_range(dims, [](const Dim &dim) { return dim.size; }));
  };
  auto stridesOf = [](std::initializer_list<const Dims *> groups, int64_t Dim::*stride) {
    std::vector<int64_t> all;
    for (const Dims *dims : groups)
      for (const Dim &dim : *dims)
        all.push_back(dim.size == 1 ? 0 : dim.*stride);
    return all;
  };
  for (auto [to, from] : {std::pair{&spec.batch, &batch}, {&spec.m, &m}, {&spec.n, &n}, {&spec.k, &k}}) {
    auto list = sizes(*from);
    to->assign(list.begin(), list.end());
  }
  a.strides = stridesOf({&batch, &m, &k}, inA);
  b.strides = stridesOf({&batch, &k, &n}, inB);
  c.strides = stridesOf({&batch, &m, &n}, inC);
  spec.a = a, spec.b = b, spec.c = c;
  return spec;
}

// Adds a bound, unless nothing can be beyond it and the spec does without.
void addBound(ContractSpec &spec, const Dims &batch, const Dims &m, const Dims &k, int64_t offset, int64_t size, int64_t Dim::*stride) {
  Bound bound{offset, size, {}};
  int64_t least = offset, most = offset;
  for (const Dims *dims : {&batch, &m, &k})
    for (const Dim &dim : *dims) {
      bound.strides.push_back(dim.size == 1 ? 0 : dim.*stride);
      int64_t reach = (dim.size - 1) * (dim.*stride);
      (reach < 0 ? least : most) += reach;
    }
  if (spec.winograd || least < 0 || most >= size)
    spec.bounds.push_back(bound);
}

ContractSpec givingOutputOrFilter(const Convolution &c, bool filter) {
  View a = c.image;
  for (int axis : {0, 1})
    a.offset -= c.pad[axis] * c.ofImage(axis);
  Dims group = c.group(), places = c.leading(filter), taps{c.tap(0), c.tap(1), c.channelsIn()};
  places.push_back(c.place(0));
  places.push_back(c.place(1));
  const Dims &m = filter ? taps : places, &k = filter ? places : taps;
  ContractSpec spec = filter ? contraction(c.elem, a, c.output, c.filter, &Dim::image, &Dim::output, &Dim::filter, group,
                                           m, {c.channelsOut()}, k)
                             : contraction(c.elem, a, c.filter, c.output, &Dim::image, &Dim::filter, &Dim::output, group,
                                           m, {c.channelsOut()}, k);
  c.setWinograd(spec, filter);
  addBound(spec, group, m, k, -c.pad[0], c.imageSize(0), &Dim::row);
  addBound(spec, group, m, k, -c.pad[1], c.imageSize(1), &Dim::column);
  return spec;
}

// Rows (or columns) of the image with one remainder by the stride, or with `count` that follow each other: of each next one the first row of the image is
// the next row, and the first tap `tapStep` further.
struct Phase {
  Dim places, taps;
  int64_t begin, firstTap, firstOutput; // the first row of the image; its first tap, and the output row that it meets there
  int64_t count = 1, tapStep = 0;
};

Phase phaseOf(const Convolution &c, int axis, int64_t remainder) {
  int64_t stride = c.stride[axis], dilate = c.dilate[axis], pad = c.pad[axis];
  int64_t step = stride / std::gcd(stride, dilate), taps = c.filterShape[axis], first = 0;
  while (first < taps && (remainder + pad - first * dilate) % stride != 0)
    ++first;
  Phase phase;
  phase.begin = remainder;
  phase.firstTap = first;
  phase.firstOutput = first < taps ? (remainder + pad - first * dilate) / stride : 0;
  int64_t count = first < taps ? (taps - first + step - 1) / step : 0, back = -(step * dilate / stride);
  int64_t rows = (c.imageSize(axis) - remainder + stride - 1) / stride;
  phase.places = {rows, stride * c.ofImage(axis), 0, c.ofOutput(axis), axis == 0, axis == 1};
  phase.taps = {count, 0, step * c.filter.strides[axis], back * c.ofOutput(axis), axis == 0 ? back : 0,
                axis == 1 ? back : 0};
  return phase;
}

// All of an axis. `together`: those that can be are one.
std::vector<Phase> phasesOf(const Convolution &c, int axis, bool together) {
  std::vector<Phase> phases;
  for (int64_t remainder = 0; remainder < std::min(c.stride[axis], c.imageSize(axis)); ++remainder) {
    Phase next = phaseOf(c, axis, remainder);
    if (together && !phases.empty()) {
      Phase &last = phases.back();
      const int64_t step = next.firstTap - last.firstTap - (last.count - 1) * last.tapStep;
      if (next.places.size == last.places.size && next.taps.size == last.taps.size && next.firstOutput == last.firstOutput &&
          (last.count == 1 || step == last.tapStep)) {
        last.tapStep = step;
        ++last.count;
        continue;
      }
    }
    phases.push_back(next);
  }
  return phases;
}

ContractSpec givingImage(const Convolution &c, const Phase &rows, const Phase &columns) {
  const Phase phases[] = {rows, columns};
  View a = c.output, b = c.filter, to = c.image;
  Dims m = c.leading(false), n, k;
  for (int axis : {0, 1}) {
    a.offset += phases[axis].firstOutput * c.ofOutput(axis);
    b.offset += phases[axis].firstTap * c.filter.strides[axis];
    to.offset += phases[axis].begin * c.ofImage(axis);
    m.push_back(phases[axis].places);
    k.push_back(phases[axis].taps);
    if (phases[axis].count > 1)
      n.push_back({phases[axis].count, c.ofImage(axis), phases[axis].tapStep * c.filter.strides[axis], 0});
  }
  k.push_back(c.channelsOut());
  n.push_back(c.channelsIn());
  Dims group = c.group();
  ContractSpec spec = contraction(c.elem, a, b, to, &Dim::output, &Dim::filter, &Dim::image, group, m, n, k);
  c.setWinograd(spec, false);
  addBound(spec, group, m, k, phases[0].firstOutput, c.outputSize(0), &Dim::row);
  addBound(spec, group, m, k, phases[1].firstOutput, c.outputSize(1), &Dim::column);
  return spec;
}

} // namespace

bool convSpec(nn::ConvOp op, llvm::function_ref<int(Value)> bufferOf, bool accumulate, ConvSpec &spec, Value &blocker,
              llvm::SetVector<Operation *> *passed, const Extent &extent) {
  auto ofAxes = [](ArrayRef<int64_t> numbers) { return std::array<int64_t, 2>{numbers[0], numbers[1]}; };
  Convolution c{ofAxes(op.getStride()), ofAxes(op.getPad()), ofAxes(op.getDilate()), batchAxisOf(op.part(nn::ConvPart::Image))};
  c.winograd = op->hasAttr(nn::kWinogradAttr);
  // Minimal filtering transforms the filter anyway, and takes it in any order of its axes. A filter of one tap is a matrix, as other products have.
  ArrayRef<int64_t> taps = nn::tensorOf(op.part(nn::ConvPart::Filter)).getShape().take_front(2);
  const bool readsFilter = op.getGives() != nn::ConvPart::Filter, oneTap = op.getGroups() == 1 && taps[0] == 1 && taps[1] == 1;
  auto place = [&](nn::ConvPart part, View &view, Shape &shape) {
    shape = shapeOf(op.part(part), extent);
    const bool anyOrder = part == nn::ConvPart::Filter && readsFilter && (c.winograd || oneTap);
    return locateAxes(op.part(part), bufferOf, !anyOrder, view, blocker, passed, extent);
  };
  if (!place(nn::ConvPart::Image, c.image, c.imageShape) || !place(nn::ConvPart::Filter, c.filter, c.filterShape) ||
      !place(nn::ConvPart::Output, c.output, c.outputShape))
    return false;
  c.leads = c.imageShape.size() - 3;
  c.turnOneColumn();
  c.groups = int64_t(op.getGroups());
  c.rounded = elemOf(op.getLhs()) == Elem::BF16 || elemOf(op.getRhs()) == Elem::BF16;
  c.tf32 = op->hasAttr(nn::kTF32Attr);
  if (auto rows = op->getAttrOfType<DenseI64ArrayAttr>(nn::kWinogradRowsAttr))
    c.firstRow = rows[0], c.movesRows = rows[1] != 0;
  if (c.winograd && op.getGives() == nn::ConvPart::Filter && op->hasAttr(nn::kWinogradRowsAttr) && !c.hasWholeSums())
    return false;
  c.elem = c.rounded ? Elem::F32 : elemOf(op.getResult());
  if (op.getGives() != nn::ConvPart::Image) {
    ContractSpec only = givingOutputOrFilter(c, op.getGives() == nn::ConvPart::Filter);
    only.accumulate = accumulate;
    only.grain = accumulate ? nn::grainOf(op) : 0;
    c.setBlocks(only, only.grain > 0, op.getGives() == nn::ConvPart::Filter, false);
    spec.parts.push_back(std::move(only));
    return true;
  }
  // Each part has code of its own and packs the output anew, so few are quicker (strides 2 to 8 by `./train --profile`: 1.0 to 4 times). In groups of
  // few channels it is the other way round: vectors reach over groups, and cannot if a part has several remainders. But the code of many is too long.
  constexpr int64_t kFewParts = 16;
  const bool together = c.groups == 1 || std::min(c.stride[0], c.imageSize(0)) * std::min(c.stride[1], c.imageSize(1)) > kFewParts;
  const std::vector<Phase> ofColumns = phasesOf(c, 1, together);
  for (const Phase &rows : phasesOf(c, 0, together))
    for (const Phase &columns : ofColumns) {
      spec.parts.push_back(givingImage(c, rows, columns));
      c.setBlocks(spec.parts.back(), false, false, c.stride[0] > 1 || c.stride[1] > 1);
    }
  return true;
}

bool poolSpec(Operation *op, llvm::function_ref<int(Value)> bufferOf, PoolSpec &spec, Value &blocker,
              llvm::SetVector<Operation *> *passed, const Extent &extent) {
  spec.kind = isa<nn::MaxPoolOp>(op)       ? PoolKind::Max
              : isa<nn::SumPoolOp>(op)     ? PoolKind::Sum
              : isa<nn::MaxPoolGradOp>(op) ? PoolKind::MaxGrad
                                           : PoolKind::SumGrad;
  Value from = op->getOperands().back(), to = op->getResult(0);
  Value place = spec.kind == PoolKind::Max ? op->getResult(1) : spec.kind == PoolKind::MaxGrad ? op->getOperand(0) : Value();
  auto locate = [&](Value value, View &view) { return locateAxes(value, bufferOf, true, view, blocker, passed, extent); };
  if (!locate(from, spec.x) || !locate(to, spec.y) || (place && !locate(place, spec.place)))
    return false;
  Shape image = shapeOf(spec.gradient() ? to : from, extent), places = shapeOf(spec.gradient() ? from : to, extent);
  size_t leads = image.size() - 3;
  spec.elem = factsOf(elemOf(to)).sums;
  spec.lead.assign(image.begin(), image.begin() + leads);
  spec.C = image.back();
  auto numbers = [&](const char *name) { return op->getAttrOfType<DenseI64ArrayAttr>(name).asArrayRef(); };
  for (size_t axis : {0, 1}) {
    spec.image[axis] = image[leads + axis];
    spec.places[axis] = places[leads + axis];
    spec.window[axis] = numbers("window")[axis];
    spec.stride[axis] = numbers("stride")[axis];
    spec.pad[axis] = numbers("pad")[axis];
  }
  return true;
}

} // namespace cinch::analysis
