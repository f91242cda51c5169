// KernelBody.cpp: see KernelBody.h. compiler/phases/KernelBody.cpp writes what is read here.
#include "runtime/KernelBody.h"
#include <string.h>

namespace cinch::rt {

using namespace kernels;
using kernels::host::Cell;

// ---- Reading ------------------------------------------------------------------------------------------------------------
namespace {
struct Reader {
  const List<int64_t> &numbers;
  int64_t next = 0;
  bool good = true;

  const int64_t *take(int64_t count) {
    if (count < 0 || count > numbers.size - next) {
      good = false;
      next = numbers.size;
      static const int64_t none[1] = {};
      return none;
    }
    next += count;
    return numbers.items + next - count;
  }
  int64_t one() { return numbers.size - next > 0 ? *take(1) : (good = false, 0); }
  double real() {
    int64_t bits = one();
    double value;
    memcpy(&value, &bits, 8);
    return value;
  }
};

bool isDraw(LoopOp op) { return op >= LoopOp::RandomUniform && op <= LoopOp::RandomBool; }
bool isFloat(Elem elem) { return factsOf(elem).real; }
double realOf(const Cell &cell, Elem elem) { return host::numberOf(cell, elem); }
} // namespace

bool KernelBody::read(const List<int64_t> &numbers, const List<int64_t> &placesOfNodes) {
  places = &placesOfNodes;
  Reader in{numbers};
  outerRank = int(in.one());
  outerDims = in.take(outerRank);
  chainRank = int(in.one());
  chainDims = in.take(chainRank);
  cols = in.one();
  blockRows = in.one();
  batchDim = in.one();
  positionDim = in.one();
  examplesOfGroup = in.one();
  if (!in.good || rank() > kMaxDims)
    return false;
  rows = 1;
  for (int i = 0; i < chainRank; ++i)
    rows *= chainDims[i];
  auto index = [&](View &view) {
    view.offset = in.one();
    view.strides = in.take(rank());
  };
  auto view = [&](View &view) {
    view.word = in.one();
    index(view);
  };
  nodes.size = 0;
  for (int64_t count = in.one(); in.good && nodes.size < count;) {
    Node &node = nodes.add();
    node.op = LoopOp(in.one());
    node.elem = Elem(in.one());
    Level level = Level(in.one());
    node.variesRow = level == Level::Row || level == Level::Full;
    node.variesCol = level == Level::Column || level == Level::Full;
    node.argCount = int(in.one());
    node.args = in.take(node.argCount);
    in.good = in.good && (node.op == LoopOp::LoadAt || node.argCount <= 3);
    for (int i = 0; in.good && i < node.argCount; ++i)
      in.good = node.args[i] >= 0 && node.args[i] < nodes.size - 1;
    if (node.op == LoopOp::Load || node.op == LoopOp::LoadAt) {
      view(node.view);
      node.atStrides = in.take(node.op == LoopOp::LoadAt ? node.argCount : 0);
    } else if (node.op == LoopOp::Const || node.op == LoopOp::RunValue) {
      node.number = in.real();
    } else if (node.op == LoopOp::Index) {
      index(node.view);
    } else if (isDraw(node.op)) {
      node.number = in.real();
      node.keyWord = in.one();
      node.usesExample = in.one() != 0;
      node.positionStride = in.one();
      index(node.view);
      node.exampleStrides = in.take(rank());
    } else if (node.op == LoopOp::ReduceCols || node.op == LoopOp::ReduceChain) {
      node.reduce = LoopReduce(in.one());
      node.hasInit = node.op == LoopOp::ReduceChain && in.one() != 0;
      if (node.hasInit)
        view(node.view);
    }
  }
  stores.size = 0;
  for (int64_t count = in.one(); in.good && stores.size < count;) {
    Store &store = stores.add();
    store.node = int(in.one());
    view(store.view);
    store.copies = in.one();
    store.copyStride = in.one();
  }
  adds = in.one() != 0;
  if (adds) {
    added.node = int(in.one());
    view(added.view);
    addedArgCount = int(in.one());
    addedArgs = in.take(addedArgCount);
    addedStrides = in.take(addedArgCount);
  }
  return in.good;
}

// ---- Values -------------------------------------------------------------------------------------------------------------
void KernelBody::begin(ElementAt elements, const int64_t *offsetsAt, const int64_t *contextAt, CausesAt lookUp) {
  elementAt = elements;
  offsets = offsetsAt;
  context = contextAt;
  causesAt = lookUp;
  memset(at, 0, sizeof at);
  row = 0;
}

int64_t KernelBody::indexOf(const View &view) const {
  int64_t index = view.offset;
  for (int i = 0; i < rank(); ++i)
    index += at[i] * view.strides[i];
  return index;
}

void KernelBody::setRow(int64_t number) {
  row = number;
  for (int i = chainRank; i-- > 0; number /= chainDims[i])
    at[outerRank + i] = number % chainDims[i];
}

int64_t KernelBody::byteOf(int64_t word, int64_t index, Elem elem) const {
  return offsets[word] + index * factsOf(elem).bytes;
}

Cell KernelBody::load(int64_t word, int64_t index, Elem elem) const {
  const char *from = elementAt(byteOf(word, index, elem));
  Cell cell;
  switch (elem) {
  case Elem::F32: memcpy(&cell.f32, from, 4); break;
  case Elem::F64: memcpy(&cell.f64, from, 8); break;
  case Elem::I32: memcpy(&cell.i32, from, 4); break;
  case Elem::Bool: cell.i32 = *from != 0; break;
  case Elem::BF16: memcpy(reinterpret_cast<char *>(&cell.f32) + 2, from, 2); break;
  }
  return cell;
}

double KernelBody::number(int node) { return isFloat(nodes[node].elem) ? realOf(value(node), nodes[node].elem) : 0; }

Cell KernelBody::value(int number) {
  Node &node = nodes[number];
  int64_t col = at[rank() - 1];
  if (node.outer == outerNumber && (!node.variesRow || node.row == row) && (!node.variesCol || node.col == col))
    return node.value;
  Cell cell = compute(node);
  node.value = cell;
  node.outer = outerNumber;
  node.row = row;
  node.col = col;
  return cell;
}

Cell KernelBody::compute(Node &node) {
  switch (node.op) {
  case LoopOp::Load: return load(node.view.word, indexOf(node.view), node.elem);
  case LoopOp::LoadAt: {
    int64_t index = indexOf(node.view);
    for (int i = 0; i < node.argCount; ++i)
      index += value(int(node.args[i])).i32 * node.atStrides[i];
    return load(node.view.word, index, node.elem);
  }
  case LoopOp::Const: return host::make(node.elem, node.number);
  case LoopOp::Index: return host::make(Elem::I32, double(indexOf(node.view)));
  case LoopOp::Step: return host::make(node.elem, double(context[kStep]));
  case LoopOp::TotalSteps: return host::make(node.elem, double(context[kTotalSteps]));
  case LoopOp::RunValue: {
    double value;
    memcpy(&value, context + kRunValues + int64_t(node.number), 8);
    return host::make(node.elem, value);
  }
  case LoopOp::ReduceCols: case LoopOp::ArgMaxCols: case LoopOp::ArgMinCols: return reduceCols(node);
  case LoopOp::ReduceChain: return reduceChain(node);
  default: break;
  }
  if (isDraw(node.op)) {
    int64_t example = 0;
    for (int i = 0; i < rank(); ++i)
      example += at[i] * node.exampleStrides[i];
    return host::draw(node.op, node.number, uint64_t(offsets[node.keyWord]), context,
                      node.usesExample ? uint64_t(context[kFirstExample] + example) : 0,
                      indexOf(node.view) + context[kFirstPosition] * node.positionStride);
  }
  Cell args[3];
  for (int i = 0; i < node.argCount; ++i)
    args[i] = value(int(node.args[i]));
  return host::apply(node.op, nodes[node.args[0]].elem, node.elem, args[0], args[1], args[2]);
}

// 16 lanes and a fixed tree, as kernels do it.
Cell KernelBody::reduceCols(const Node &node) {
  int64_t before = at[rank() - 1];
  int arg = int(node.args[0]);
  Elem from = nodes[arg].elem;
  Cell lanes[16], result;
  LoopOp combine = host::reducer(node.reduce);
  int64_t best = 0;
  double bestNumber = 0;
  if (node.op == LoopOp::ReduceCols)
    for (Cell &lane : lanes)
      lane = host::neutral(node.reduce, node.elem);
  for (int64_t col = 0; col < cols; ++col) {
    setCol(col);
    Cell x = value(arg);
    if (node.op == LoopOp::ReduceCols) {
      lanes[col % 16] = host::apply(combine, node.elem, node.elem, lanes[col % 16], x, Cell());
      continue;
    }
    double number = realOf(x, from);
    bool better = col == 0 || (bestNumber == bestNumber &&
                               (number != number || (node.op == LoopOp::ArgMaxCols ? number > bestNumber : number < bestNumber)));
    if (better) {
      best = col;
      bestNumber = number;
    }
  }
  setCol(before);
  if (node.op != LoopOp::ReduceCols)
    return host::make(Elem::I32, double(best));
  for (int width = 8; width > 0; width /= 2)
    for (int lane = 0; lane < width; ++lane)
      lanes[lane] = host::apply(combine, node.elem, node.elem, lanes[lane], lanes[lane + width], Cell());
  return lanes[0];
}

Cell KernelBody::reduceChain(const Node &node) {
  int64_t before = row;
  LoopOp combine = host::reducer(node.reduce);
  auto add = [&](Cell &to, Cell x) { to = host::apply(combine, node.elem, node.elem, to, x, Cell()); };
  Cell start = node.reduce == LoopReduce::Sum ? host::make(node.elem, 0) : host::neutral(node.reduce, node.elem);
  Cell sum = node.hasInit ? load(node.view.word, indexOf(node.view), node.elem) : start, block = start;
  for (int64_t r = 0; r < rows; ++r) {
    setRow(r);
    add(blockRows ? block : sum, value(int(node.args[0])));
    if (blockRows && (r + 1) % blockRows == 0) {
      add(sum, block);
      block = start;
    }
  }
  setRow(before);
  return sum;
}

// ---- The way back from a bad number --------------------------------------------------------------------------------------
// True if a bad number has a cause: one of what was read, or an op of this kernel.

bool KernelBody::addCauses(int64_t byte) {
  Causes here = causesAt(byte);
  causes |= here;
  return here != 0;
}

bool KernelBody::born(int number, bool gathered, bool ofInfinite) {
  if (first.node >= 0 && placeOf(first.node) <= placeOf(number))
    return true;
  const Node &node = nodes[number];
  first = BadNode();
  first.node = number;
  first.op = node.op;
  first.reduce = node.reduce;
  first.elem = node.elem;
  first.result = this->number(number);
  first.gathered = gathered;
  first.ofInfinite = ofInfinite;
  first.argCount = gathered ? 0 : node.argCount < 3 ? node.argCount : 3;
  for (int i = 0; i < first.argCount; ++i)
    first.args[i] = realOf(value(int(node.args[i])), nodes[node.args[i]].elem);
  first.dims = rank();
  for (int i = 0; i < rank(); ++i) {
    bool varies = i < outerRank || (i < outerRank + chainRank ? node.variesRow : node.variesCol);
    bool countsExamples = i == batchDim || (examplesOfGroup > 1 && i == outerRank);
    first.at[i] = varies && (dim(i) > 1 || i == positionDim) && !countsExamples ? at[i] : -1;
  }
  first.positionDim = int(positionDim);
  if (batchDim >= 0)
    first.example = at[batchDim] * examplesOfGroup + (examplesOfGroup > 1 && node.variesRow ? row : 0);
  return true;
}

bool KernelBody::walk(int number) {
  Node &node = nodes[number];
  int64_t col = at[rank() - 1];
  if (node.walkedOuter == outerNumber && node.walkedRow == row && node.walkedCol == col)
    return node.walkedFound;
  bool found;
  switch (node.op) {
  case LoopOp::Load: found = addCauses(byteOf(node.view.word, indexOf(node.view), node.elem)); break;
  case LoopOp::LoadAt: {
    int64_t index = indexOf(node.view);
    for (int i = 0; i < node.argCount; ++i)
      index += value(int(node.args[i])).i32 * node.atStrides[i];
    found = addCauses(byteOf(node.view.word, index, node.elem));
    break;
  }
  case LoopOp::Const: found = false; break;
  case LoopOp::ReduceCols: found = walkMany(number, true); break;
  case LoopOp::ReduceChain: found = walkMany(number, false); break;
  default: found = walkOperands(number);
  }
  node.walkedOuter = outerNumber;
  node.walkedRow = row;
  node.walkedCol = col;
  node.walkedFound = found;
  return found;
}

// A NaN comes from the NaNs among the operands, an infinity from the infinities. Where there are none, the op made it: also a NaN
// from infinities that nothing but the program's text is to blame for.
bool KernelBody::walkOperands(int number) {
  const Node &node = nodes[number];
  if (isDraw(node.op))
    return born(number, false, false);
  double result = this->number(number);
  bool nan = result != result, anyNan = false, anyBad = false, found = false;
  int from = 0, to = node.argCount;
  if (node.op == LoopOp::Select) {
    from = value(int(node.args[0])).i32 ? 1 : 2;
    to = from + 1;
  }
  for (int i = from; i < to; ++i) {
    double x = this->number(int(node.args[i]));
    anyNan |= x != x;
    anyBad |= !__builtin_isfinite(x);
  }
  for (int i = from; i < to; ++i) {
    double x = this->number(int(node.args[i]));
    if (anyNan ? x != x : !__builtin_isfinite(x))
      found |= walk(int(node.args[i]));
  }
  if (found || (anyBad && (anyNan || !nan)))
    return found;
  return born(number, false, anyBad);
}

// The same for a reduction: the first NaN, or the first infinity of each sign.
bool KernelBody::walkMany(int number, bool overCols) {
  const Node &node = nodes[number];
  double result = this->number(number);
  int arg = int(node.args[0]);
  int64_t before = overCols ? at[rank() - 1] : row, count = overCols ? cols : rows;
  auto go = [&](int64_t i) { overCols ? setCol(i) : setRow(i); };
  int64_t places[3] = {-1, -1, -1}; // of a NaN, inf, -inf
  auto note = [&](double x, int64_t place) {
    int kind = x != x ? 0 : __builtin_isfinite(x) ? -1 : x > 0 ? 1 : 2;
    if (kind >= 0 && places[kind] < 0)
      places[kind] = place;
  };
  constexpr int64_t kInit = int64_t(1) << 62;
  if (node.hasInit)
    note(realOf(load(node.view.word, indexOf(node.view), node.elem), node.elem), kInit);
  for (int64_t i = 0; i < count; ++i) {
    go(i);
    note(this->number(arg), i);
  }
  bool found = false;
  for (int kind = 0; kind < 3; ++kind) {
    if (places[kind] < 0 || (kind > 0 && places[0] >= 0))
      continue;
    if (places[kind] == kInit) {
      go(before);
      found |= addCauses(byteOf(node.view.word, indexOf(node.view), node.elem));
    } else {
      go(places[kind]);
      found |= walk(arg);
    }
  }
  go(before);
  bool anyBad = places[0] >= 0 || places[1] >= 0 || places[2] >= 0;
  if (found || (anyBad && (places[0] >= 0 || result == result)))
    return found;
  return born(number, true, anyBad);
}

// ---- Elements -----------------------------------------------------------------------------------------------------------
bool KernelBody::explainHere(int node) { return bad(node) && walk(node); }

// Element `index` of what is added up at computed places.
bool KernelBody::explainAdded(int64_t index) {
  Elem elem = nodes[added.node].elem;
  Cell sum = load(added.view.word, index, elem);
  if (!__builtin_isfinite(realOf(sum, elem)))
    return addCauses(byteOf(added.view.word, index, elem));
  int64_t items = 1;
  for (int i = 0; i < outerRank; ++i)
    items *= outerDims[i];
  for (int64_t item = 0; item < items; ++item) {
    ++outerNumber;
    int64_t rest = item;
    for (int i = outerRank; i-- > 0; rest /= outerDims[i])
      at[i] = rest % outerDims[i];
    for (int64_t r = 0; r < rows; ++r)
      for (int64_t col = 0; col < cols; ++col) {
        setRow(r);
        setCol(col);
        int64_t place = indexOf(added.view);
        for (int i = 0; i < addedArgCount; ++i)
          place += value(int(addedArgs[i])).i32 * addedStrides[i];
        if (place != index)
          continue;
        if (bad(added.node))
          return walk(added.node);
        sum = host::apply(LoopOp::Add, elem, elem, sum, value(added.node), Cell());
        if (!__builtin_isfinite(realOf(sum, elem))) {
          if (first.node >= 0)
            return true;
          born(added.node, true, false);
          first.node = int(nodes.size); // the op behind the last node
          first.op = LoopOp::ReduceChain;
          first.reduce = LoopReduce::Sum;
          first.result = realOf(sum, elem);
          for (int i = 0; i < first.dims; ++i)
            first.at[i] = -1;
          return true;
        }
      }
  }
  return false;
}

bool KernelBody::explain(int64_t word, int64_t index, Causes &into, BadNode &found) {
  causes = 0;
  first = found;
  ++outerNumber;
  bool any = false;
  for (const Store &store : stores) {
    if (store.view.word != word)
      continue;
    // Strides of a store are those of a tensor without gaps, but perhaps for some behind its rows: the largest first. Which copy it is makes no difference.
    int64_t rest = index - store.view.offset;
    bool done[kMaxDims] = {}, copyDone = store.copies <= 1;
    memset(at, 0, sizeof at);
    for (;;) {
      int largest = -1;
      for (int i = 0; i < rank(); ++i)
        if (!done[i] && dim(i) > 1 && store.view.strides[i] > 0 &&
            (largest < 0 || store.view.strides[i] > store.view.strides[largest]))
          largest = i;
      if (!copyDone && (largest < 0 || store.copyStride > store.view.strides[largest])) {
        copyDone = true;
        rest %= store.copyStride;
        continue;
      }
      if (largest < 0)
        break;
      done[largest] = true;
      at[largest] = rest / store.view.strides[largest];
      rest %= store.view.strides[largest];
    }
    row = 0;
    for (int i = 0; i < chainRank; ++i)
      row = row * chainDims[i] + at[outerRank + i];
    any |= explainHere(store.node);
  }
  if (adds && added.view.word == word)
    any |= explainAdded(index);
  into |= causes;
  found = first;
  return any;
}

bool KernelBody::explainAny(int64_t word, Causes &into, BadNode &found) {
  int64_t items = 1;
  for (int i = 0; i < outerRank; ++i)
    items *= outerDims[i];
  causes = 0;
  first = found;
  for (const Store &store : stores) {
    if (store.view.word != word || rows > 1)
      continue;
    bool any = false;
    for (int64_t item = 0; item < items && !any; ++item) {
      ++outerNumber;
      int64_t rest = item;
      for (int i = outerRank; i-- > 0; rest /= outerDims[i])
        at[i] = rest % outerDims[i];
      setRow(0);
      for (int64_t col = 0; col < (store.view.strides[rank() - 1] ? cols : 1) && !any; ++col) {
        setCol(col);
        any = explainHere(store.node);
      }
    }
    if (any) {
      into |= causes;
      found = first;
      return true;
    }
  }
  return false;
}

} // namespace cinch::rt
